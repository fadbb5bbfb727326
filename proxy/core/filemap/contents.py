"""Files as far as they were seen, put together from what calls told of them.

The law: **newest content wins**. A whole content takes the place of all that was known; a part is laid over it by its
line numbers; an edit is made where its old text stands. Where that is not known, its new text is kept for itself,
without a place, for it is in the file for certain.

What this module does not do: it reads no code, and it keeps no more of a file than `LONGEST` characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec

from proxy.core.filemap.changes import (
    MAX_CONTENT_LENGTH,
    FileChange,
    FileContent,
    FileEdit,
    FileRemoval,
    file_changes_of,
)
from proxy.core.frames import PathEntry
from proxy.core.observers import ToolRoles, steps_of
from proxy.core.recall import is_same_file

MAX_FILES = 200
"""Files that are kept in mind, the newest ones."""
MAX_CHARACTERS = 262_144
"""Of contents that a map is made of, the newest files first: it bounds what a map costs."""
MAX_UNPLACED_TEXTS = 50
"""Texts of a file that have no known place, the newest ones."""


class SeenFile(msgspec.Struct, frozen=True):
    """The lines of a file that were seen, in order, each with its number; 0 where only an edit told of it and its place
    is not known. `whole`: all of the file, as far as anybody said."""

    path: str
    numbers: tuple[int, ...]
    lines: tuple[str, ...]
    is_complete: bool = False


@dataclass(slots=True)
class _PartialFile:
    """What is known of one file: lines by number, and texts without a place."""

    lines: dict[int, str] = field(default_factory=dict)
    unplaced_texts: list[str] = field(default_factory=list)
    is_complete: bool = False

    def add_content(self, content: FileContent) -> None:
        shown = content.file_lines
        if shown.is_complete:
            self.lines, self.unplaced_texts = {}, []
        self.is_complete = shown.is_complete or self.is_complete
        self.lines.update(zip(shown.numbers, shown.lines, strict=True))

    def apply_edit(self, edited: FileEdit) -> None:
        if edited.old:
            for first, text in self._contiguous_runs():
                if (at := text.find(edited.old)) >= 0:
                    self._apply_edit_at(first, text, at, edited)
                    return
            for n, text in enumerate(self.unplaced_texts):
                if edited.old in text:
                    self.unplaced_texts[n] = text.replace(edited.old, edited.new, -1 if edited.replaces_all else 1)[
                        :MAX_CONTENT_LENGTH
                    ]
                    return
        self.unplaced_texts = [*self.unplaced_texts, edited.new[:MAX_CONTENT_LENGTH]][-MAX_UNPLACED_TEXTS:]

    def _apply_edit_at(self, first: int, text: str, at: int, edited: FileEdit) -> None:
        """Make an edit in the run of lines that begins at number `first`; what stands below moves along."""
        times = -1 if edited.replaces_all else 1
        new = text[:at] + text[at:].replace(edited.old, edited.new, times)
        old_lines, new_lines = text.count("\n") + 1, new[:MAX_CONTENT_LENGTH].split("\n")
        moved = len(new_lines) - old_lines
        kept = {n: line for n, line in self.lines.items() if n < first}
        below = {n + moved: line for n, line in self.lines.items() if n >= first + old_lines}
        self.lines = {**kept, **dict(enumerate(new_lines, first)), **below}

    def _contiguous_runs(self) -> list[tuple[int, str]]:
        """Lines that follow each other, as one text each, with the number of the first."""
        numbers = sorted(self.lines)
        starts = [0, *(at for at, (one, next_one) in enumerate(pairwise(numbers), 1) if next_one != one + 1)]
        ends = [*starts[1:], len(numbers)]
        return [
            (numbers[start], "\n".join(self.lines[n] for n in numbers[start:end]))
            for start, end in zip(starts, ends, strict=True)
            if start < end
        ]

    def to_seen_file(self, path: str) -> SeenFile:
        numbered = [(n, self.lines[n]) for n in sorted(self.lines)]
        all_lines = numbered + [(0, line) for text in self.unplaced_texts for line in text.split("\n")]
        left, kept = MAX_CONTENT_LENGTH + 1, 0  # behind the last line stands no border
        for _, line in all_lines:
            left -= len(line) + 1
            if left < 0:
                break
            kept += 1
        chosen = all_lines[:kept]
        is_whole = self.is_complete and kept == len(all_lines)
        return SeenFile(path, tuple(n for n, _ in chosen), tuple(line for _, line in chosen), is_whole)


class SeenContents(msgspec.Struct, frozen=True):
    """The files that were seen, the one that was touched last at the end. `touched` are the results in which each was
    seen: (entry, path), in order."""

    files: tuple[SeenFile, ...]
    touched: tuple[tuple[str, str], ...]


def collect_contents(path_entries: Iterable[PathEntry], names: ToolRoles) -> SeenContents:
    """The contents that the client's calls told of, up to the end of these entries."""
    piles: dict[str, _PartialFile] = {}
    touched: list[tuple[str, str]] = []
    for step in steps_of(path_entries):
        for done in step.executions:
            paths = [_apply_change(piles, change) for change in file_changes_of(done, names)]
            touched += [(done.entry, path) for path in paths if path]
        while len(piles) > MAX_FILES:
            del piles[next(iter(piles))]
    return SeenContents(tuple(pile.to_seen_file(path) for path, pile in piles.items()), tuple(touched))


def _apply_change(piles: dict[str, _PartialFile], change: FileChange) -> str:
    """Lay a change over what is known, and give the path it is known by; empty for a file that is gone."""
    path = next((known for known in piles if is_same_file(known, change.path)), change.path)
    pile = piles.pop(path, None) or _PartialFile()
    if isinstance(change, FileRemoval):
        if change.moved_to:
            piles[change.moved_to] = pile
        return change.moved_to
    if isinstance(change, FileContent):
        pile.add_content(change)
    else:
        pile.apply_edit(change)
    piles[path] = pile
    return path


def newest_files(files: Sequence[SeenFile], characters: int) -> tuple[SeenFile, ...]:
    """As many of the newest files as have so many characters together, in order of their paths."""
    chosen: list[SeenFile] = []
    for file in reversed(files):
        characters -= sum(map(len, file.lines)) + len(file.lines)
        if characters < 0:
            break
        chosen.append(file)
    return tuple(sorted(chosen, key=lambda file: file.path))
