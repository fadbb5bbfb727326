"""A map of the files that the model has read or written, with their most referenced definitions. It shows only contents
that passed through the proxy, which reads no disk."""

from proxy.core.definitions import language_of
from proxy.core.filemap.changes import FileEdit, file_changes_of
from proxy.core.filemap.contents import SeenFile
from proxy.core.filemap.file_map import (
    DEFAULT_MAP_TOKENS,
    PARTIAL_FILE_SUFFIX,
    build_file_map,
    file_map_text,
    fit_to_budget,
    render_file_map,
)
from proxy.core.filemap.page_rank import RankedFile
from proxy.core.filemap.symbols import FileSymbols, build_symbols, symbols_by_patterns
