"""Builds the map of seen files for a frame: collects contents, reads their symbols, ranks them, and renders them within
a token budget. A symbol reader other than regular expressions (tree-sitter) is passed in by callers that can wait for
it.

Definitions are taken by rank until the budget is full, and shown by file in line order ("14 class Cart" below
"cart.py"). The attribute `of` counts all seen files; a file seen only in parts says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from callstack_proxy.filemap.contents import MAX_CHARACTERS, SeenFile, collect_contents, newest_files
from callstack_proxy.filemap.page_rank import RankedFile, mentioned_paths, rank_files
from callstack_proxy.filemap.symbols import SymbolReader, symbols_by_patterns
from proxy.config import Config
from proxy.core.context import DrawMap, owner_of
from proxy.core.definitions import language_of
from proxy.core.frames import PathState, Tree, ancestors, frame_id_of
from proxy.core.observers import DEFAULT_TOOL_ROLES, ToolRoles
from proxy.core.text import CountTokens, element, escape_xml

DEFAULT_MAP_TOKENS = 1_024  # tokens (S2-25)
MAX_CHARACTERS_IN_REQUEST = MAX_CHARACTERS // 2  # characters examined during a request: about 20 ms, 100 ms at worst
MIN_MAP_TOKENS = 40  # tokens; less has no room for a file and a symbol
MAX_ENTRIES = 2_000
MAX_ENTRIES_IN_REQUEST = 500  # the newest entries of a path that are examined during a request


MAX_SHOWN_DEFINITIONS = 500
ELEMENT_NAME = "seen-files"
PARTIAL_FILE_SUFFIX = " (parts)"


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


def draw_map_for(config: Config) -> DrawMap | None:
    """What draws the map into frame blocks, as `budgets.map` wants it; None where that is 0."""
    most = config.budgets.map
    return partial(file_map_text, max_tokens=most, tool_roles=config.observed_tools) if most else None


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


# -------------------------------------------------------------------------------------------------------------- render


def fit_to_budget(
    files: Sequence[RankedFile], seen_count: int, budget: int, count: CountTokens
) -> tuple[RankedFile, ...]:
    """The highest-ranked definitions that fit `budget` tokens once rendered; `files` is sorted by rank, and
    `seen_count` files were seen in all."""
    definitions = [
        (rank, index, row) for index, file in enumerate(files) for row, (_, rank) in enumerate(file.definitions)
    ]
    order = sorted(definitions, key=lambda each: (-round(each[0], 12), each[1], each[2]))[:MAX_SHOWN_DEFINITIONS]

    def first(most: int) -> tuple[RankedFile, ...]:
        return _keep_definitions(files, {(index, row) for _, index, row in order[:most]})

    low, high = 0, len(order)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(render_file_map(first(middle), seen_count)) <= budget else (low, middle - 1)
    return first(low)


def _keep_definitions(files: Sequence[RankedFile], kept: set[tuple[int, int]]) -> tuple[RankedFile, ...]:
    trimmed = (
        replace(
            file, definitions=tuple(definition for row, definition in enumerate(file.definitions) if (at, row) in kept)
        )
        for at, file in enumerate(files)
    )
    return tuple(file for file in trimmed if file.definitions)


def render_file_map(files: Sequence[RankedFile], seen_count: int) -> str:
    """The element; empty without files."""
    if not files:
        return ""
    folder = common_folder([file.path for file in files])
    lines: list[str] = []
    for file in files:
        lines.append(escape_xml(file.path.removeprefix(folder) + ("" if file.is_complete else PARTIAL_FILE_SUFFIX)))
        lines += [escape_xml(f"  {d.line} {d.text}" if d.line else f"  {d.text}") for d, _ in file.definitions]
    return element(
        ELEMENT_NAME, {"of": str(seen_count), **({"in": folder.rstrip("/") or "/"} if folder else {})}, *lines
    )


def common_folder(paths: Sequence[str]) -> str:
    """The folder that contains all paths, with a trailing slash; empty for no common folder or a single path."""
    if len(paths) < 2:
        return ""
    first, last = min(paths), max(paths)
    shared_length = next(
        (at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last))
    )
    return first[: first.rfind("/", 0, shared_length) + 1]
