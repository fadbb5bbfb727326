"""Assembles file contents from the changes that calls reported. The newest content wins: a whole content replaces
everything, a part is laid over by line number, an edit is applied where its old text stands. An edit whose place is
unknown keeps its new text without a line number."""

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

MAX_FILES = 200  # the newest ones
MAX_CHARACTERS = 262_144  # of all contents a map is made of, the newest files first: it bounds the cost of a map
MAX_UNPLACED_TEXTS = 50  # of one file, the newest ones


class SeenFile(msgspec.Struct, frozen=True):
    """The known lines of a file, in order, with their numbers; 0 for text of an edit whose place is unknown.
    `is_complete`: as far as known, all of the file."""

    path: str
    numbers: tuple[int, ...]
    lines: tuple[str, ...]
    is_complete: bool = False


@dataclass(slots=True)
class _PartialFile:
    """Known lines by number, and texts without a place."""

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
        """Apply an edit in the run of lines that begins at number `first`; the lines below move along."""
        times = -1 if edited.replaces_all else 1
        new = text[:at] + text[at:].replace(edited.old, edited.new, times)
        old_lines, new_lines = text.count("\n") + 1, new[:MAX_CONTENT_LENGTH].split("\n")
        moved = len(new_lines) - old_lines
        kept = {n: line for n, line in self.lines.items() if n < first}
        below = {n + moved: line for n, line in self.lines.items() if n >= first + old_lines}
        self.lines = {**kept, **dict(enumerate(new_lines, first)), **below}

    def _contiguous_runs(self) -> list[tuple[int, str]]:
        """Consecutive lines joined to texts, each with the number of its first line."""
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
    """The known files, the one touched last at the end. `touched` lists (entry, path) of the results that showed them,
    in order."""

    files: tuple[SeenFile, ...]
    touched: tuple[tuple[str, str], ...]


def collect_contents(path_entries: Iterable[PathEntry], names: ToolRoles) -> SeenContents:
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
    """Apply a change, and return the path of the changed file; empty for a removed one."""
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
    """The newest files that together have at most `characters`, in order of their paths."""
    chosen: list[SeenFile] = []
    for file in reversed(files):
        characters -= sum(map(len, file.lines)) + len(file.lines)
        if characters < 0:
            break
        chosen.append(file)
    return tuple(sorted(chosen, key=lambda file: file.path))
