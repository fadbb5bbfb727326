"""A map of the files that the model has read or written, with their most referenced definitions. It shows only contents
that passed through the proxy, which reads no disk."""

from callstack_proxy.filemap.changes import FileEdit, file_changes_of
from callstack_proxy.filemap.contents import SeenFile
from callstack_proxy.filemap.file_map import (
    DEFAULT_MAP_TOKENS,
    PARTIAL_FILE_SUFFIX,
    build_file_map,
    draw_map_for,
    file_map_text,
    fit_to_budget,
    render_file_map,
)
from callstack_proxy.filemap.page_rank import RankedFile
from callstack_proxy.filemap.symbols import FileSymbols, build_symbols, symbols_by_patterns
from proxy.core.definitions import language_of
