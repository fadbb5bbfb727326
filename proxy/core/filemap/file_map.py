"""The map of seen files: which symbols are where, of the files whose contents passed by (S2-23 to S2-25).

    changes    what one call with its result tells of the contents of files
    results    the lines of a file in the result of a read, whatever the client put around them
    contents   files as far as they were seen: newest content wins, parts are put together
    symbols    definitions and references of a file, as values
    patterns   these by the look of lines
    ranking    which files and definitions others refer to: PageRank, personalised by a frame's files
    drawing    the map as text, within a budget of tokens

The law: **the map tells what was seen, and no more**. A proxy sees no disk: what was never read has no line here, a
file of which parts were seen says so, and what a command did behind our back is not known.

What this package does not do: it reads no disk and decides nothing of the line. Another reader of symbols than the
patterns here comes in as an argument (`proxy.management.treesitter`), where there is time to wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proxy.core.context import owner_of
from proxy.core.filemap.contents import MAX_CHARACTERS, SeenFile, collect_contents, newest_files
from proxy.core.filemap.patterns import language_of, symbols_by_patterns
from proxy.core.filemap.ranking import RankedFile, mentioned_paths, rank_files
from proxy.core.filemap.render import fit_to_budget, render_file_map
from proxy.core.filemap.symbols import SymbolReader
from proxy.core.frames import PathState, Tree, ancestors
from proxy.core.observers import DEFAULT_TOOL_ROLES, ToolRoles
from proxy.core.text import CountTokens

__all__ = ["DEFAULT_MAP_TOKENS", "FileMap", "build_file_map", "file_map_text"]

DEFAULT_MAP_TOKENS = 1_024
"""Tokens of a map, where nobody says otherwise (S2-25)."""
MAX_CHARACTERS_IN_REQUEST = MAX_CHARACTERS // 2
"""Characters of contents that a map is made of in the middle of a request: some 20 ms, 100 at worst."""
MIN_MAP_TOKENS = 40
"""Tokens below which none is begun: not a file and a symbol have room."""
MAX_ENTRIES = 2_000
MAX_ENTRIES_IN_REQUEST = 500
"""Entries of a path, the newest ones, in which contents are looked for."""


class FileMap(msgspec.Struct, frozen=True):
    """The files of a path with their symbols ranked, the first first; `seen` counts those without symbols too."""

    files: tuple[RankedFile, ...]
    seen_count: int


def build_file_map(  # noqa: PLR0913  where it is drawn for, and how
    path_state: PathState,
    tree: Tree,
    frame: str,
    read: SymbolReader = symbols_by_patterns,
    names: ToolRoles = DEFAULT_TOOL_ROLES,
    *,
    at_once: bool = False,
) -> FileMap:
    """The map for a frame of `tree`: what it and its parents worked on, and what its title and criteria name, counts
    first. `frame` may be empty: then all files count alike. `at_once`: somebody waits, so it looks at less."""
    path_entries = path_state.entries[-MAX_ENTRIES_IN_REQUEST if at_once else -MAX_ENTRIES :]
    contents = collect_contents(path_entries, names)
    code = [file for file in contents.files if language_of(file.path)]
    files = newest_files(code, MAX_CHARACTERS_IN_REQUEST if at_once else MAX_CHARACTERS)
    symbols = tuple(read(files))
    owners = {p.entry.id: owner_of(path_state, p).partition("#")[0] for p in path_entries}
    touched = {(owners.get(entry, ""), path) for entry, path in contents.touched}
    focus = _focus_weights(tree, frame, files, touched) if frame else {}
    if frame:
        words = f"{tree.frames[frame].title} {tree.frames[frame].criteria}"
        for path in mentioned_paths(words, files, symbols):
            focus[path] = focus.get(path, 0.0) + 1.0
    return FileMap(rank_files(files, symbols, focus), len(contents.files))


def file_map_text(  # noqa: PLR0913  where it is drawn for, and what it may cost
    path_state: PathState,
    tree: Tree,
    frame: str,
    room: int,
    count: CountTokens,
    *,
    most: int = DEFAULT_MAP_TOKENS,
    names: ToolRoles = DEFAULT_TOOL_ROLES,
) -> str:
    """The map as a part of the block of a frame, in at most `most` tokens, and no more than there is `room` for. It is
    drawn in the middle of a request, so it looks at less, and waits for no grammar."""
    if min(room, most) < MIN_MAP_TOKENS:
        return ""
    mapped = build_file_map(path_state, tree, frame, names=names, at_once=True)
    return render_file_map(fit_to_budget(mapped.files, mapped.seen_count, min(room, most), count), mapped.seen_count)


def _focus_weights(
    tree: Tree, frame: str, files: Sequence[SeenFile], touched: set[tuple[str, str]]
) -> dict[str, float]:
    """The files of the nearest frame, from this one up, that worked on any."""
    for owner in (tree.frames[frame], *ancestors(tree, frame)):
        if found := {file.path: 1.0 for file in files if (owner.id, file.path) in touched}:
            return found
    return {}
