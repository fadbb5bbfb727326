"""Output of the commands: texts made harmless and fitted to the terminal, columns, and errors on stderr.

Titles and texts come from models and from the web. A terminal obeys escape sequences, and direction overrides mislead a
reader, so control characters, overrides of direction and half surrogate pairs are escaped: `\\x1b`, `\\u202e`,
`\\ud83d`.

A line that is longer than the terminal is wide goes on below, between words. Piped output has lines of any length,
unless COLUMNS says otherwise.
"""

from __future__ import annotations

import csv
import json
import os
import pydoc
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import typer

from proxy.core.text import cell_width, cut_at_word, dollar_decimals

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)

_LINE_START = re.compile(r"[\s│├└─]*")
"""The indentation of a line, or the branches of a tree in front of it."""
_BRANCHES_BELOW = str.maketrans("├└─", "│  ")
_GAP_AND_WORD = re.compile(r"(\s*)((?:put away|brought back|coming back|\S)+)")
_GAP_AND_GROUP = re.compile(r"(\s*)(\S+(?:\s\S+)*)")
COLUMN_GAP = "  "
MIN_FLEXIBLE_WIDTH = 16
"""Cells of a text that stay on the narrowest terminal."""

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""First characters of a text that a spreadsheet would take as a formula."""


def escape_unsafe(text: str) -> str:
    """`text` with everything escaped that a terminal would obey. Line ends and tabs stay."""
    if text.isprintable():  # no unsafe character is
        return text
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def one_line(text: str) -> str:
    """`text` escaped and on one line, for titles in rows."""
    return escape_unsafe(" ".join(text.split()))


def pluralize(count: int, noun: str) -> str:
    """`1 request`, `2 requests`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def format_dollars(amount: float, beside: Iterable[float] = ()) -> str:
    """`$12.40`; with four decimals where it and all `beside` it, its column or its sentence, are below a dollar."""
    decimals = dollar_decimals((amount, *beside))
    sign = "-" if round(amount, decimals) < 0 else ""
    return f"{sign}${abs(amount):,.{decimals}f}"


def output_width() -> int | None:
    """Cells of a line on stdout; None for any number."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit():
        return shutil.get_terminal_size().columns
    return None


def wrap_text(text: str, width: int | None, hang: int = 2) -> Iterator[str]:
    """The lines of `text`, each at most `width` cells wide. What does not fit goes on below, indented by `hang` and as
    its line is, with the branches of a tree. In a line that is not much too long, words between gaps of two blanks stay
    together. A word longer than a line stays whole, so that it can be copied."""
    for line in text.split("\n"):
        if width is None or cell_width(line.expandtabs()) <= width:
            yield line
        else:
            yield from _wrap_line(line.expandtabs(), width, hang)


def _wrap_line(line: str, width: int, hang: int) -> Iterator[str]:
    start = _LINE_START.match(line)
    written = start[0] if start else ""
    below = written.translate(_BRANCHES_BELOW) + " " * hang
    if cell_width(below) > width / 2:
        below = " " * hang
    pieces: list[tuple[str, str]] = []
    for gap, group in _GAP_AND_GROUP.findall(line[len(written) :]):
        stays = cell_width(line) <= 2 * width and cell_width(below + group) <= width
        pieces += [(gap, group)] if stays else _GAP_AND_WORD.findall(gap + group)
    for at, (gap, piece) in enumerate(pieces):
        if at and cell_width(written + gap + piece) > width:
            yield written
            written = below + piece
        else:
            written += gap + piece
    yield written


def print_line(text: str = "", color: str | None = None, *, to_copy: bool = False) -> None:
    """Print a line on stdout, on several where it is too long and is not there `to_copy`. `color` is one of typer's
    names, ignored unless stdout is a terminal."""
    typer.secho("\n".join(wrap_text(escape_unsafe(text), None if to_copy else output_width())), fg=color)


def print_balance(saved: float, text: str) -> None:
    """Print what was saved: green for a gain and red for a loss."""
    print_line(text, "green" if saved > 0 else "red" if saved < 0 else "cyan")


def print_error(message: str) -> None:
    _print_on_stderr(f"error: {message}", "red")


def print_note(message: str) -> None:
    """Print a note on stderr: no error, but something the user must know."""
    _print_on_stderr(f"note: {message}", "yellow")


def _print_on_stderr(text: str, color: str) -> None:
    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
    typer.secho("\n".join(wrap_text(escape_unsafe(text), width)), fg=color, err=True)


def print_json(value: Any) -> None:
    """Print JSON in ASCII, with every control character escaped. Structs in it are objects."""
    typer.echo(json.dumps(value, indent=2, default=msgspec.to_builtins))


def print_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Print a header line, even without rows, and a line for each row."""
    writer = csv.DictWriter(sys.stdout, columns)
    writer.writeheader()
    writer.writerows({name: _csv_cell(value) for name, value in row.items()} for row in rows)


def _csv_cell(value: Any) -> Any:
    """A cell as text, prefixed so that no spreadsheet runs a formula that a model wrote."""
    if isinstance(value, Mapping):
        value = ", ".join(f"{name} {number}" for name, number in value.items())
    if not isinstance(value, str):
        return value
    text = one_line(value)
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text


def print_bytes(lines: Iterable[bytes]) -> None:
    """Print stored bytes, one piece a line; escaped on a terminal, unchanged elsewhere."""
    for line in lines:
        if sys.stdout.isatty():
            print_line(line.decode("utf-8", "surrogateescape"))
        else:
            sys.stdout.buffer.write(line + b"\n")
    sys.stdout.flush()


def print_paged(text: str) -> None:
    """Print a long text: through the pager on a terminal, directly when piped."""
    if sys.stdout.isatty():
        pydoc.pager("\n".join(wrap_text(escape_unsafe(text), output_width())))
    else:
        print_line(text)


def align_columns(
    rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), flexible: int = -1, cuts: bool = False
) -> list[str]:
    """A line for each row, with aligned columns; those in `right` are numbers. Where the terminal is too narrow, the
    text of column `flexible` goes on below itself in the same item, or is cut after a word if `cuts`."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(cell_width, column)) for column in zip(*cells, strict=True)]
    width, at = output_width(), flexible % len(widths)
    if width is not None:
        others = sum(widths) - widths[at] + len(COLUMN_GAP) * (len(widths) - 1)
        widths[at] = min(widths[at], max(MIN_FLEXIBLE_WIDTH, width - others))
    return ["\n".join(_row_lines(row, widths, right, at, cuts=cuts)) for row in cells]


def _row_lines(
    row: Sequence[str], widths: Sequence[int], right: Sequence[int], flexible: int, *, cuts: bool
) -> Iterator[str]:
    text, room = row[flexible], widths[flexible]
    for number, part in enumerate([cut_at_word(text, room)] if cuts else wrap_text(text, room, hang=0)):
        cells = (part if at == flexible else "" if number else cell for at, cell in enumerate(row))
        yield COLUMN_GAP.join(
            _padded(cell, width, at in right) for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()


def _padded(cell: str, width: int, is_number: bool) -> str:  # noqa: FBT001 - of a column, not of a call
    gap = " " * (width - cell_width(cell))
    return gap + cell if is_number else cell + gap


@contextmanager
def progress_bar(what: str, *, wanted: bool = True) -> Iterator[Callable[[float], None]]:
    """A progress bar on stderr, which disappears when the work ends. Yields a function that takes the share done, from
    0 to 1. There is no bar where stderr is no terminal."""
    if not wanted or not sys.stderr.isatty():
        yield lambda share: None
        return
    from rich.console import Console  # only long work pays for loading it
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn(what), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda share: bar.update(task, completed=share)
