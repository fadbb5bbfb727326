"""The command `tariffs`: which prices a model gets, how old they are, and an update of them.

An update is written to the data directory, and is read by whatever starts afterwards. It replaces figures of built-in
rows and adds models; rows of the configuration stay before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import asdict

from callstack_proxy.cli.context import AsJson, ConfigFile, DataDirectory, settings_at
from callstack_proxy.cli.output import escape_unsafe, output_width, pluralize, print_json, print_line
from callstack_proxy.management.reports import TableColumn, format_columns
from proxy.accounting import STALE_DAYS, Tariff, age_days, read_facts, write_facts
from proxy.config import Config

LITELLM = "litellm"
LITELLM_FILE = "model_prices_and_context_window_backup.json"


def tariffs(
    models: Annotated[list[str] | None, typer.Argument(help="Models as clients name them; default: all rows.")] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help=f"How old each row is; exit code 1 where one is over {STALE_DAYS} days."),
    ] = False,
    update: Annotated[
        str, typer.Option("--update", metavar="FILE|litellm", help="Take prices from a file, or from litellm's table.")
    ] = "",
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Prices, windows and traits, and where they stand: `tariffs` in the configuration, an update, the built-in table,
    the family of a model in none, or the default. USD per million tokens; read and write are multiples of the input
    price."""
    settings = settings_at(config, data)
    if update:
        _update(settings, update)
        return
    found = {name: settings.tariff_of(name) for name in models or ()}
    rows = list(found.items()) or [(_tariff_names(row), row) for row in settings.tariff_table.all_tariffs()]
    shown = [(escape_unsafe(name), row) for name, row in rows]
    if check:
        stale = _print_ages(shown, today())
        raise typer.Exit(1 if stale else 0)
    if as_json:
        print_json([{"model": name if found else None, **asdict(row)} for name, row in rows])
        return
    for line in _tariff_lines(shown):
        print_line(line)


def today() -> date:
    return datetime.now(UTC).date()


def is_stale(row: Tariff, day: date) -> bool:
    """Whether the figures of a row were checked too long ago to be relied on."""
    return (age_days(row, day) or 0) > STALE_DAYS


# -------------------------------------------------------------------------------------------------------------- update
def _update(settings: Config, source: str) -> None:
    """Write the rows of `source` to the data directory, in place of those of an earlier update."""
    file = _litellm_table() if source == LITELLM else Path(source)
    try:
        facts = read_facts(file)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{file} cannot be read: {error}", param_hint="--update") from None
    if not facts:
        words = "has no model with a price, a window (max_input_tokens) and a longest answer (max_output_tokens)"
        raise typer.BadParameter(f"{file} {words}", param_hint="--update")
    place = settings.updated_models_path
    place.parent.mkdir(parents=True, exist_ok=True)
    write_facts(place, facts)
    print_line(f"{pluralize(len(facts), 'model')} written to {place}; rows of the configuration stay before them")
    print_line("A running proxy reads them when it is started again.")


def _litellm_table() -> Path:
    """The table that litellm ships. It is found without importing litellm, which takes seconds."""
    spec = find_spec(LITELLM)
    if spec is None or not spec.submodule_search_locations:
        raise typer.BadParameter("litellm is not installed here; name a file instead", param_hint="--update")
    return Path(spec.submodule_search_locations[0], LITELLM_FILE)


# --------------------------------------------------------------------------------------------------------------- check
def _print_ages(rows: Sequence[tuple[str, Tariff]], day: date) -> int:
    """Prints how old each row is, and what to do. Returns how many are too old."""
    dated = [(name, row, age_days(row, day)) for name, row in rows]
    columns = (
        TableColumn("model", tuple(name for name, _, _ in dated), 0, 18, is_number=False),
        TableColumn("days", tuple("undated" if age is None else f"{age:,}" for _, _, age in dated), 0),
        TableColumn("checked", tuple(row.as_of or "-" for _, row, _ in dated), 1, is_number=False),
        TableColumn("row", tuple(row.source for _, row, _ in dated), 2, 8, is_number=False),
        TableColumn("read at", tuple(row.read_at or "-" for _, row, _ in dated), 3, 24, is_number=False),
    )
    for line in format_columns(columns, output_width()):
        print_line(line)
    stale = [name for name, row, _ in dated if is_stale(row, day)]
    undated = sum(age is None for _, _, age in dated)
    print_line()
    if stale:
        words = f"{len(stale)} of {pluralize(len(dated), 'row')} checked more than {STALE_DAYS} days ago."
        print_line(f"{words} `callstack inspect tariffs --update litellm` (or a file) brings newer ones.", "yellow")
    else:
        print_line(f"no row was checked more than {STALE_DAYS} days ago")
    if undated:
        print_line(f"{pluralize(undated, 'row')} without a day")
    return len(stale)


# ---------------------------------------------------------------------------------------------------------------- list
def _tariff_lines(rows: Sequence[tuple[str, Tariff]]) -> list[str]:
    def texts(cells: Iterable[str], name: str, rank: int, least: int = 0) -> TableColumn:
        return TableColumn(name, tuple(cells), rank, least, is_number=False)

    def numbers(cells: Iterable[str], name: str, rank: int = 0) -> TableColumn:
        return TableColumn(name, tuple(cells), rank)

    found = [row for _, row in rows]
    columns = (
        texts((name for name, _ in rows), "model", 0, 18),
        numbers((f"{row.input:g}" for row in found), "in $"),
        numbers(("?" if row.output is None else f"{row.output:g}" for row in found), "out $"),
        numbers((f"{round(row.read, 3):.3g}" for row in found), "read"),
        numbers((f"{row.write:.3g}" for row in found), "write"),
        numbers((f"{row.minimum:,}" for row in found), "minimum", 5),
        numbers((f"{row.step:,}" for row in found), "step", 7),
        numbers((f"{row.ttl_s:,}" for row in found), "ttl s", 6),
        numbers((f"{row.window:,}{'' if row.window_known else '?'}" for row in found), "window", 1),
        numbers((f"{row.max_output:,}" for row in found), "answer", 8),
        numbers((f"{row.long_context:,}" if row.long_context else "-" for row in found), "long above", 9),
        texts((traits_of(row) for row in found), "traits", 4, 24),
        texts((row.source for row in found), "row", 0, 8),
        texts((row.as_of or "undated" for row in found), "as of", 2),
        texts((row.read_at or "-" for row in found), "read at", 10, 24),
    )
    return format_columns(columns, output_width())


def _tariff_names(row: Tariff) -> str:
    """Names as users write them; both spellings of a version count as one."""
    return "any other" if row.names == ("*",) else " ".join(row.names).replace("[-.]", ".")


def traits_of(row: Tariff) -> str:
    """What a model requires of a rewritten history; empty where it accepts any."""
    said = (
        (f"reasoning bound ({row.binding})", row.binding != "none"),
        ("reasoning in tool loops", row.thinking_in_loop == "required"),
        (f"needs {' '.join(row.required)}", bool(row.required)),
        ("no user after tool", row.after_tool == "suffix"),
        ("roles alternate", row.roles == "alternate"),
        (f"appends {' '.join(row.append)}", bool(row.append)),
    )
    return ", ".join(word for word, holds in said if holds)
