"""Renders the map as text within a token budget. Definitions are taken by rank until the budget is full, and shown by
file in line order. `of` counts all seen files; a file seen only in parts says so.

    <seen-files of="12" in="src/shop">
    cart.py
      14 class Cart
      31 def total(self) -> Decimal
    prices.py (parts)
      8 def price_of(item: str) -> Decimal
    </seen-files>
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from proxy.core.filemap.page_rank import RankedFile
from proxy.core.filemap.symbols import Definition
from proxy.core.text import CountTokens, element, escape_xml

MAX_SHOWN_DEFINITIONS = 500
ELEMENT_NAME = "seen-files"
PARTIAL_FILE_SUFFIX = " (parts)"


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
        lines += [escape_xml(_definition_line(definition)) for definition, _ in file.definitions]
    return element(
        ELEMENT_NAME, {"of": str(seen_count), **({"in": folder.rstrip("/") or "/"} if folder else {})}, *lines
    )


def _definition_line(definition: Definition) -> str:
    return f"  {definition.line} {definition.text}" if definition.line else f"  {definition.text}"


def common_folder(paths: Sequence[str]) -> str:
    """The folder that contains all paths, with a trailing slash; empty for no common folder or a single path."""
    if len(paths) < 2:
        return ""
    first, last = min(paths), max(paths)
    shared_length = next(
        (at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last))
    )
    return first[: first.rfind("/", 0, shared_length) + 1]
