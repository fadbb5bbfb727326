"""Output of the commands: texts made harmless, columns, and errors on stderr.

Titles and texts come from models and from the web. A terminal obeys escape sequences, and direction overrides mislead a
reader, so control characters, overrides of direction and half surrogate pairs are escaped: `\\x1b`, `\\u202e`,
`\\ud83d`.
"""

from __future__ import annotations

import csv
import json
import pydoc
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from proxy.accounting import format_balance

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)


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


def format_dollars(amount: float) -> str:
    """`$12.40`; with four decimals below a dollar."""
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.4f}"


def print_line(text: str = "", color: str | None = None) -> None:
    """Print a line on stdout. `color` is one of typer's names, ignored unless stdout is a terminal."""
    typer.secho(escape_unsafe(text), fg=color)


def print_balance(saved: float, untouched: float) -> None:
    """Print what was saved so far (USD), green for a gain and red for a loss."""
    print_line(format_balance(saved, untouched), "green" if saved > 0 else "red" if saved < 0 else "cyan")


def print_error(message: str) -> None:
    typer.secho(escape_unsafe(f"error: {message}"), fg="red", err=True)


def print_note(message: str) -> None:
    """Print a note on stderr: no error, but something the user must know."""
    typer.secho(escape_unsafe(f"note: {message}"), fg="yellow", err=True)


def print_json(value: Any) -> None:
    """Print JSON in ASCII, with every control character escaped."""
    typer.echo(json.dumps(value, indent=2))


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
        pydoc.pager(escape_unsafe(text))
    else:
        print_line(text)


def align_columns(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> list[str]:
    """Rows as aligned lines; the columns in `right` are numbers. The last column is not padded."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(_padded(row, widths, right)).rstrip() for row in cells]


def _padded(row: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> list[str]:
    return [
        cell.rjust(width) if at in right else cell.ljust(width)
        for at, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]


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
