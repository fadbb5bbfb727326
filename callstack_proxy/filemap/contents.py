"""Assembles file contents from the changes that calls reported. The newest content wins: a whole content replaces
everything, a part is laid over by line number, an edit is applied where its old text stands. An edit whose place is
unknown keeps its new text without a line number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec

from callstack_proxy.filemap.changes import (
    MAX_CONTENT_LENGTH,
    FileChange,
    FileContent,
    FileEdit,
    FileRemoval,
    file_changes_of,
)
from proxy.core.frames import PathEntry, is_same_file
from proxy.core.observers import ToolRoles, steps_of

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
        file_lines = content.file_lines
        if file_lines.is_complete:
            self.lines, self.unplaced_texts = {}, []
        self.is_complete = file_lines.is_complete or self.is_complete
        self.lines.update(zip(file_lines.numbers, file_lines.lines, strict=True))

    def apply_edit(self, edit: FileEdit) -> None:
        if edit.old:
            for first, text in self._contiguous_runs():
                if (position := text.find(edit.old)) >= 0:
                    self._apply_edit_at(first, text, position, edit)
                    return
            for index, text in enumerate(self.unplaced_texts):
                if edit.old in text:
                    self.unplaced_texts[index] = text.replace(edit.old, edit.new, -1 if edit.replaces_all else 1)[
                        :MAX_CONTENT_LENGTH
                    ]
                    return
        self.unplaced_texts = [*self.unplaced_texts, edit.new[:MAX_CONTENT_LENGTH]][-MAX_UNPLACED_TEXTS:]

    def _apply_edit_at(self, first: int, text: str, position: int, edit: FileEdit) -> None:
        """Apply an edit in the run of lines that begins at number `first`; the lines below move along."""
        times = -1 if edit.replaces_all else 1
        new = text[:position] + text[position:].replace(edit.old, edit.new, times)
        old_lines, new_lines = text.count("\n") + 1, new[:MAX_CONTENT_LENGTH].split("\n")
        shift = len(new_lines) - old_lines
        above = {n: line for n, line in self.lines.items() if n < first}
        below = {n + shift: line for n, line in self.lines.items() if n >= first + old_lines}
        self.lines = {**above, **dict(enumerate(new_lines, first)), **below}

    def _contiguous_runs(self) -> list[tuple[int, str]]:
        """Consecutive lines joined to texts, each with the number of its first line."""
        numbers = sorted(self.lines)
        starts = [
            0,
            *(index for index, (number, next_number) in enumerate(pairwise(numbers), 1) if next_number != number + 1),
        ]
        ends = [*starts[1:], len(numbers)]
        return [
            (numbers[start], "\n".join(self.lines[n] for n in numbers[start:end]))
            for start, end in zip(starts, ends, strict=True)
            if start < end
        ]

    def to_seen_file(self, path: str) -> SeenFile:
        numbered = [(n, self.lines[n]) for n in sorted(self.lines)]
        all_lines = numbered + [(0, line) for text in self.unplaced_texts for line in text.split("\n")]
        characters_left, line_count = MAX_CONTENT_LENGTH + 1, 0  # behind the last line stands no border
        for _, line in all_lines:
            characters_left -= len(line) + 1
            if characters_left < 0:
                break
            line_count += 1
        chosen = all_lines[:line_count]
        is_whole = self.is_complete and line_count == len(all_lines)
        return SeenFile(path, tuple(n for n, _ in chosen), tuple(line for _, line in chosen), is_whole)


class SeenContents(msgspec.Struct, frozen=True):
    """The known files, the one touched last at the end. `touched` lists (entry, path) of the results that showed them,
    in order."""

    files: tuple[SeenFile, ...]
    touched: tuple[tuple[str, str], ...]


def collect_contents(path_entries: Iterable[PathEntry], tool_roles: ToolRoles) -> SeenContents:
    partial_files: dict[str, _PartialFile] = {}
    touched: list[tuple[str, str]] = []
    for step in steps_of(path_entries):
        for execution in step.executions:
            paths = [_apply_change(partial_files, change) for change in file_changes_of(execution, tool_roles)]
            touched += [(execution.entry, path) for path in paths if path]
        while len(partial_files) > MAX_FILES:
            del partial_files[next(iter(partial_files))]
    return SeenContents(
        tuple(partial_file.to_seen_file(path) for path, partial_file in partial_files.items()), tuple(touched)
    )


def _apply_change(partial_files: dict[str, _PartialFile], change: FileChange) -> str:
    """Apply a change, and return the path of the changed file; empty for a removed one."""
    path = next((known_path for known_path in partial_files if is_same_file(known_path, change.path)), change.path)
    partial_file = partial_files.pop(path, None) or _PartialFile()
    if isinstance(change, FileRemoval):
        if change.moved_to:
            partial_files[change.moved_to] = partial_file
        return change.moved_to
    if isinstance(change, FileContent):
        partial_file.add_content(change)
    else:
        partial_file.apply_edit(change)
    partial_files[path] = partial_file
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
