"""The map as text, of at most so many tokens (S2-25).

    <seen-files of="12" in="src/shop">
    cart.py
      14 class Cart
      31 def total(self) -> Decimal
    prices.py (parts)
      8 def price_of(item: str) -> Decimal
    </seen-files>

The law: **what is referred to most is told first, and all of it fits**: definitions are taken in the order of their
rank, as many as the budget has room for, and told by file in the order of lines. `of` counts all files that were seen;
a file of which only parts were seen says so.

What this module does not do: it ranks nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from proxy.core.filemap.ranking import RankedFile
from proxy.core.filemap.symbols import Definition
from proxy.core.text import CountTokens, element, escape_xml

MAX_SHOWN_DEFINITIONS = 500
"""Definitions of a map, whatever its budget."""
ELEMENT_NAME = "seen-files"
PARTIAL_FILE_SUFFIX = " (parts)"
"""Behind a file of which not all was seen."""


def fit_to_budget(files: Sequence[RankedFile], seen: int, budget: int, count: CountTokens) -> tuple[RankedFile, ...]:
    """Of `files`, the first of which has the highest rank, those definitions that fit `budget` tokens as `as_text`
    tells them; `seen` files were seen in all."""
    found = [(rank, at, row) for at, file in enumerate(files) for row, (_, rank) in enumerate(file.definitions)]
    order = sorted(found, key=lambda each: (-round(each[0], 12), each[1], each[2]))[:MAX_SHOWN_DEFINITIONS]

    def first(most: int) -> tuple[RankedFile, ...]:
        return _keep_definitions(files, {(at, row) for _, at, row in order[:most]})

    low, high = 0, len(order)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(render_file_map(first(middle), seen)) <= budget else (low, middle - 1)
    return first(low)


def _keep_definitions(files: Sequence[RankedFile], kept: set[tuple[int, int]]) -> tuple[RankedFile, ...]:
    """The files with these of their definitions; a file without any is left out."""
    held = (
        replace(file, definitions=tuple(each for row, each in enumerate(file.definitions) if (at, row) in kept))
        for at, file in enumerate(files)
    )
    return tuple(file for file in held if file.definitions)


def render_file_map(files: Sequence[RankedFile], seen: int) -> str:
    """The element; empty where there is nothing to tell."""
    if not files:
        return ""
    folder = common_folder([file.path for file in files])
    lines: list[str] = []
    for file in files:
        lines.append(escape_xml(file.path.removeprefix(folder) + ("" if file.is_complete else PARTIAL_FILE_SUFFIX)))
        lines += [escape_xml(_definition_line(definition)) for definition, _ in file.definitions]
    return element(ELEMENT_NAME, {"of": str(seen), **({"in": folder.rstrip("/") or "/"} if folder else {})}, *lines)


def _definition_line(definition: Definition) -> str:
    return f"  {definition.line} {definition.text}" if definition.line else f"  {definition.text}"


def common_folder(paths: Sequence[str]) -> str:
    """The folder that all paths lie in, with its slash at the end; empty where they share none, or there is one path
    alone."""
    if len(paths) < 2:
        return ""
    first, last = min(paths), max(paths)
    same = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[: first.rfind("/", 0, same) + 1]
