"""Definitions and references of a file, as values, and how they are found by regular expressions.

A definition is shown by its own source line, so readers need no grammar of the language. The expressions look at one
line at a time, in time proportional to the length of the file: they serve languages without a grammar, and requests,
which cannot wait for a parser. They do not know blocks, so they cannot tell methods from functions, and they count a
definition inside a multi-line string.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from callstack_proxy.filemap.contents import SeenFile
from proxy.core.definitions import KEYWORDS, MAX_DEFINITION_LENGTH, PATTERNS, language_of, place_of

MAX_SYMBOL_LENGTH = 80
MAX_DEFINITIONS = 400
MAX_REFERENCES = 4_000  # different names in one file
MAX_DISPLAYED_LINE_LENGTH = 90


class Definition(msgspec.Struct, frozen=True):
    """`line` is the line number, 0 where unknown; `text` is the line, behind its owner where another definition of the
    file has the name too: `Invoice.to_dict: def to_dict(self)`."""

    name: str
    line: int
    text: str


class FileSymbols(msgspec.Struct, frozen=True):
    """Definitions in line order, and how often each other name is used."""

    definitions: tuple[Definition, ...] = ()
    references: Mapping[str, int] | None = None


SymbolReader = Callable[[Sequence[SeenFile]], Iterable[FileSymbols]]  # the symbols of each file, in order


def build_symbols(file: SeenFile, found: Iterable[tuple[str, int]], uses: Mapping[str, int]) -> FileSymbols:
    """Symbols of a file from the names `found` in it, with line indexes, and the counts of all names it `uses`,
    definitions included. A definition counts once per line."""
    definitions: dict[tuple[str, int], Definition] = {}
    remaining = Counter(uses)
    found = tuple(found)
    times = Counter(name for name, _ in dict.fromkeys(found))
    for name, row in found:
        if len(definitions) < MAX_DEFINITIONS and len(name) <= MAX_SYMBOL_LENGTH and (name, row) not in definitions:
            definitions[name, row] = Definition(name, file.numbers[row], _text_of(file, row, shared=times[name] > 1))
            remaining[name] -= 1
    references = [
        (name, times) for name, times in remaining.items() if times > 0 and 1 < len(name) <= MAX_SYMBOL_LENGTH
    ]
    in_order = sorted(definitions.items(), key=lambda each: each[0][1])
    return FileSymbols(tuple(definition for _, definition in in_order), dict(references[:MAX_REFERENCES]))


def _text_of(file: SeenFile, row: int, *, shared: bool) -> str:
    text = _shorten_line(file.lines[row])
    if not shared:
        return text
    top = row
    while top and file.numbers[top] and file.numbers[top - 1] == file.numbers[top] - 1:
        top -= 1
    place = place_of(file.lines[top : row + 1], row - top, language_of(file.path))
    return f"{place}: {text}" if "." in place else text


def _shorten_line(line: str) -> str:
    text = " ".join(line[: 4 * MAX_DISPLAYED_LINE_LENGTH].split()).rstrip("{:(; \t")
    return text if len(text) <= MAX_DISPLAYED_LINE_LENGTH else text[: MAX_DISPLAYED_LINE_LENGTH - 1] + "…"


# ------------------------------------------------------------------------------------------------------------ patterns


def symbols_by_patterns(files: Sequence[SeenFile]) -> list[FileSymbols]:
    """Symbols of each file; none for a language without patterns."""
    return [_symbols_of_file(file, PATTERNS.get(language_of(file.path), ())) for file in files]


_WORD = re.compile(r"[^\W\d]\w{1,79}")


def _symbols_of_file(file: SeenFile, patterns: Sequence[re.Pattern[str]]) -> FileSymbols:
    if not patterns:
        return FileSymbols()
    found: list[tuple[str, int]] = []
    uses: Counter[str] = Counter()
    for row, line in enumerate(file.lines):
        if not (head := line[:MAX_DEFINITION_LENGTH]) or head.isspace():
            continue
        match = next((match for pattern in patterns if (match := pattern.match(head))), None)
        if match and match[1] not in KEYWORDS:
            found.append((match[1], row))
        uses.update(_WORD.findall(head))
    return build_symbols(file, found, uses)
