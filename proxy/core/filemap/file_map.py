"""Builds the map of seen files for a frame: collects contents, reads their symbols, ranks them, and renders them within
a token budget. A symbol reader other than the regular expressions here (tree-sitter) is passed in by callers that can
wait for it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proxy.core.context import owner_of
from proxy.core.definitions import language_of
from proxy.core.filemap.contents import MAX_CHARACTERS, SeenFile, collect_contents, newest_files
from proxy.core.filemap.page_rank import RankedFile, mentioned_paths, rank_files
from proxy.core.filemap.render import fit_to_budget, render_file_map
from proxy.core.filemap.symbols import SymbolReader, symbols_by_patterns
from proxy.core.frames import PathState, Tree, ancestors, frame_id_of
from proxy.core.observers import DEFAULT_TOOL_ROLES, ToolRoles
from proxy.core.text import CountTokens

__all__ = ["DEFAULT_MAP_TOKENS", "FileMap", "build_file_map", "file_map_text"]

DEFAULT_MAP_TOKENS = 1_024  # tokens (S2-25)
MAX_CHARACTERS_IN_REQUEST = MAX_CHARACTERS // 2  # characters examined during a request: about 20 ms, 100 ms at worst
MIN_MAP_TOKENS = 40  # tokens; less has no room for a file and a symbol
MAX_ENTRIES = 2_000
MAX_ENTRIES_IN_REQUEST = 500  # the newest entries of a path that are examined during a request


class FileMap(msgspec.Struct, frozen=True):
    """The ranked files of a path with their symbols, highest rank first; `seen_count` also counts files without
    symbols."""

    files: tuple[RankedFile, ...]
    seen_count: int


def build_file_map(  # noqa: PLR0913  where it is drawn for, and how
    path_state: PathState,
    tree: Tree,
    frame: str,
    read: SymbolReader = symbols_by_patterns,
    tool_roles: ToolRoles = DEFAULT_TOOL_ROLES,
    *,
    at_once: bool = False,
) -> FileMap:
    """The map for `frame` of `tree`. Files that the frame and its parents worked on, and names in its title and
    criteria, rank higher; with an empty `frame` all files count alike. `at_once` limits the work for use during a
    request."""
    path_entries = path_state.entries[-MAX_ENTRIES_IN_REQUEST if at_once else -MAX_ENTRIES :]
    contents = collect_contents(path_entries, tool_roles)
    code = [file for file in contents.files if language_of(file.path)]
    files = newest_files(code, MAX_CHARACTERS_IN_REQUEST if at_once else MAX_CHARACTERS)
    symbols = tuple(read(files))
    owners = {p.entry.id: frame_id_of(owner_of(path_state, p)) for p in path_entries}
    touched = {(owners.get(entry, ""), path) for entry, path in contents.touched}
    focus = _focus_weights(tree, frame, files, touched) if frame else {}
    if frame:
        text = f"{tree.frames[frame].title} {tree.frames[frame].criteria}"
        for path in mentioned_paths(text, files, symbols):
            focus[path] = focus.get(path, 0.0) + 1.0
    return FileMap(rank_files(files, symbols, focus), len(contents.files))


def file_map_text(  # noqa: PLR0913  where it is drawn for, and what it may cost
    path_state: PathState,
    tree: Tree,
    frame: str,
    room: int,
    count: CountTokens,
    *,
    max_tokens: int = DEFAULT_MAP_TOKENS,
    tool_roles: ToolRoles = DEFAULT_TOOL_ROLES,
) -> str:
    """The map as part of a frame's block, in at most `max_tokens` tokens and at most `room`. It runs during a request,
    so it examines less and uses no grammar."""
    if min(room, max_tokens) < MIN_MAP_TOKENS:
        return ""
    mapped = build_file_map(path_state, tree, frame, tool_roles=tool_roles, at_once=True)
    return render_file_map(
        fit_to_budget(mapped.files, mapped.seen_count, min(room, max_tokens), count), mapped.seen_count
    )


def _focus_weights(
    tree: Tree, frame: str, files: Sequence[SeenFile], touched: set[tuple[str, str]]
) -> dict[str, float]:
    """Weights for the files of the nearest frame, from this one upwards, that worked on any."""
    for owner in (tree.frames[frame], *ancestors(tree, frame)):
        if weights := {file.path: 1.0 for file in files if (owner.id, file.path) in touched}:
            return weights
    return {}
