"""Definitions and references of a file, as values.

The law: **a definition is told by its own line**, in whatever language; nobody has to know the grammar to read it.

What this module does not do: it reads no file (`patterns` does, and `proxy.management.treesitter`), and ranks nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from proxy.core.filemap.contents import SeenFile

MAX_SYMBOL_LENGTH = 80
MAX_DEFINITIONS = 400
MAX_REFERENCES = 4_000
"""Of one file, different names."""
MAX_DISPLAYED_LINE_LENGTH = 90
"""Characters of the line of a definition."""


class Definition(msgspec.Struct, frozen=True):
    """A name, the number of its line (0 where that is not known), and the line."""

    name: str
    line: int
    text: str


class FileSymbols(msgspec.Struct, frozen=True):
    """What a file defines, in the order of its lines, and how often it uses which names."""

    definitions: tuple[Definition, ...] = ()
    references: Mapping[str, int] | None = None


SymbolReader = Callable[[Sequence[SeenFile]], Iterable[FileSymbols]]
"""The symbols of each file, in order."""


def build_symbols(file: SeenFile, found: Iterable[tuple[str, int]], uses: Mapping[str, int]) -> FileSymbols:
    """Symbols from what was `found` in a file, names with the index of their line, and all names that it `uses`, those
    it defines among them. Each definition counts once for each line."""
    definitions: dict[tuple[str, int], Definition] = {}
    left = Counter(uses)
    for name, row in found:
        if len(definitions) < MAX_DEFINITIONS and len(name) <= MAX_SYMBOL_LENGTH and (name, row) not in definitions:
            definitions[name, row] = Definition(name, file.numbers[row], _shorten_line(file.lines[row]))
            left[name] -= 1
    kept = [(name, times) for name, times in left.items() if times > 0 and 1 < len(name) <= MAX_SYMBOL_LENGTH]
    in_order = sorted(definitions.items(), key=lambda each: each[0][1])
    return FileSymbols(tuple(definition for _, definition in in_order), dict(kept[:MAX_REFERENCES]))


def _shorten_line(line: str) -> str:
    text = " ".join(line[: 4 * MAX_DISPLAYED_LINE_LENGTH].split()).rstrip("{:(; \t")
    return text if len(text) <= MAX_DISPLAYED_LINE_LENGTH else text[: MAX_DISPLAYED_LINE_LENGTH - 1] + "…"
