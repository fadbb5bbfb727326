"""Columns that fit a terminal: what matters least goes first, and a name is cut before a figure is.

The law: **a figure is shown whole or not at all**. Widths are characters; `None` is as wide as it gets, for what is
piped somewhere. What this module does not do: it knows neither receipts nor prices, and makes no text harmless.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

GAP = "  "


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and one cell a row. `rank` 0 stays; of the others the one with the highest goes first.

    `least`: a text may be cut to this many characters, with `…` at its end unless it is an id, whose beginning stands
    for it; 0: it is shown whole.
    """

    heading: str
    cells: tuple[str, ...]
    rank: int = 0
    least: int = 0
    number: bool = True
    is_id: bool = False

    @property
    def width(self) -> int:
        return max(map(len, (self.heading, *self.cells)))

    def cut(self, width: int) -> Column:
        """At most `width` characters wide, and never less than its heading and `least` ask for."""
        width = max(width, self.least, len(self.heading))
        end = 0 if self.is_id else 1
        cells = (cell if len(cell) <= width else cell[: width - end] + "…" * end for cell in self.cells)
        return replace(self, cells=tuple(cells))


def lines(columns: Sequence[Column], width: int | None = None) -> list[str]:
    """The columns side by side, headings first. A column without a single word in it is left away."""
    kept = [column for column in columns if any(column.cells) or column.rank == 0]
    if width is not None:
        kept = _fitted(kept, width)
    rows = zip(*((column.heading, *column.cells) for column in kept), strict=True)
    return [GAP.join(_padded(cell, column) for cell, column in zip(row, kept, strict=True)).rstrip() for row in rows]


def _fitted(columns: Sequence[Column], width: int) -> list[Column]:
    """Names cut as far as they may be, then columns left out, then the names given what room there is."""
    kept = list(columns)
    while _narrowest(kept) > width and (least := max(kept, key=lambda column: column.rank)).rank:
        kept.remove(least)
    room = width - _narrowest(kept)
    for at, column in enumerate(kept):
        if column.least:
            cut = column.cut(column.cut(0).width + max(0, room))
            room -= cut.width - column.cut(0).width
            kept[at] = cut
    return kept


def _narrowest(columns: Sequence[Column]) -> int:
    widths = [column.cut(0).width if column.least else column.width for column in columns]
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _padded(cell: str, column: Column) -> str:
    return cell.rjust(column.width) if column.number else cell.ljust(column.width)
