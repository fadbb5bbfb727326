"""Definitions and references of a file, as values.

The law: **a definition is told by its own line**, in whatever language; nobody has to know the grammar to read it.

What this module does not do: it reads no file (`patterns` does, and `proxy.management.treesitter`), and ranks nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from proxy.core.filemap.contents import SeenFile

LONGEST_NAME = 80
MOST_DEFINITIONS = 400
MOST_REFERENCES = 4_000
"""Of one file, different names."""
SHOWN = 90
"""Characters of the line of a definition."""


class Definition(msgspec.Struct, frozen=True):
    """A name, the number of its line (0 where that is not known), and the line."""

    name: str
    line: int
    shown: str


class Symbols(msgspec.Struct, frozen=True):
    """What a file defines, in the order of its lines, and how often it uses which names."""

    definitions: tuple[Definition, ...] = ()
    references: Mapping[str, int] | None = None


ReadSymbols = Callable[[Sequence[SeenFile]], Iterable[Symbols]]
"""The symbols of each file, in order."""


def told(file: SeenFile, found: Iterable[tuple[str, int]], uses: Mapping[str, int]) -> Symbols:
    """Symbols from what was `found` in a file, names with the index of their line, and all names that it `uses`, those
    it defines among them. Each definition counts once for each line."""
    definitions: dict[tuple[str, int], Definition] = {}
    left = Counter(uses)
    for name, row in found:
        if len(definitions) < MOST_DEFINITIONS and len(name) <= LONGEST_NAME and (name, row) not in definitions:
            definitions[name, row] = Definition(name, file.numbers[row], _shown(file.lines[row]))
            left[name] -= 1
    kept = [(name, times) for name, times in left.items() if times > 0 and 1 < len(name) <= LONGEST_NAME]
    in_order = sorted(definitions.items(), key=lambda each: each[0][1])
    return Symbols(tuple(definition for _, definition in in_order), dict(kept[:MOST_REFERENCES]))


def _shown(line: str) -> str:
    text = " ".join(line[: 4 * SHOWN].split()).rstrip("{:(; \t")
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
