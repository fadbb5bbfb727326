"""The commands `export`, `import` and `migrate`.

`export` reads the store. `import` writes to it directly, so no proxy may run on the same directory: it keeps
conversations in memory and would not notice the new one. `migrate` copies a whole store to another place.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from callstack_proxy.cli.context import AsJson, ConfigFile, DataDirectory, data_flag, find_running_proxy, settings_at
from callstack_proxy.cli.output import align_columns, pluralize, print_error, print_json, print_line
from callstack_proxy.cli.store_access import opened_store
from callstack_proxy.management import find_by_id
from callstack_proxy.management.export import (
    MEASURES,
    ExportFormat,
    ExportInput,
    ExportOptions,
    ImportResult,
    export_formats,
    files,
    format_named,
    import_conversation,
    load_export_input,
    measure_named,
)
from proxy.auth import LOCAL_TENANT
from proxy.config import Config
from proxy.errors import BadRequest, InvalidConfiguration, NotAllowed

DEFAULT_FORMAT = "ledger"
"""The format of who names none, as over HTTP: everything, and it comes back exactly."""


# ------------------------------------------------------------------------------------------------------------- export
def export(
    conversation: Annotated[
        str, typer.Argument(help="Id, or its beginning (4 characters or more); default: the newest.")
    ] = "",
    kind: Annotated[
        str,
        typer.Option(
            "--format",
            help=f"One of {', '.join(export_formats())}. "
            f"Default: {DEFAULT_FORMAT}; with nothing named at all they are listed.",
        ),
    ] = "",
    out: Annotated[
        Path | None, typer.Option(help="A file; a folder, or a .zip, for stack and jetbox. Default: what it prints.")
    ] = None,
    thread: Annotated[str, typer.Option(help="The path of this thread instead of the one that grew last.")] = "",
    whole: Annotated[bool, typer.Option("--whole", help="messages: the client's history as it was sent.")] = False,
    measure: Annotated[str, typer.Option(help=f"collapsed: {', '.join(MEASURES)}.")] = "tokens",
    config: ConfigFile = None,
    data: DataDirectory = None,
) -> None:
    """A conversation as files that others read. Nothing in them opens anything: no key, no tenant."""
    if not (kind or conversation or out):
        list_formats()
        return
    kind = kind or DEFAULT_FORMAT
    try:
        chosen, options = format_named(kind), ExportOptions(whole, measure_named(measure))
    except BadRequest as error:
        raise typer.BadParameter(str(error)) from None
    if out is None and chosen.render_files is not None:
        raise typer.BadParameter(f"{kind} has several files: name a folder, or a file that ends in .zip, with --out")
    export_input = asyncio.run(_load_material(settings_at(config, data), conversation, thread))
    if out is None:
        _print(files.export_chunks(chosen, export_input, options))
    else:
        _write(chosen, export_input, options, out)


def list_formats() -> None:
    """The formats, and which of them can be imported."""
    rows = [(name, each.description, "import" if each.is_importable else "") for name, each in export_formats().items()]
    for line in align_columns([("format", "what it is", ""), *rows]):
        print_line(line)


async def _load_material(settings: Config, reference: str, thread: str) -> ExportInput:
    async with opened_store(settings) as store:
        return await load_export_input(
            store, await find_by_id.find_ledger(store, None, reference), thread, settings.observed_tools
        )


def _print(pieces: Iterable[bytes]) -> None:
    """To whatever reads it; a terminal gets what cannot move its cursor."""
    for piece in pieces:
        if sys.stdout.isatty():
            print_line(piece.decode("utf-8", "surrogateescape").rstrip("\n"))
        else:
            sys.stdout.buffer.write(piece)
    sys.stdout.flush()


def _write(chosen: ExportFormat, export_input: ExportInput, options: ExportOptions, out: Path) -> None:
    files.write_export(chosen, export_input, options, out)
    print_line(f"{export_input.id}: written to {out}")


# ------------------------------------------------------------------------------------------------------------- import
def import_(
    place: Annotated[Path, typer.Argument(help="A file of the format ledger; a folder or .zip of stack or jetbox.")],
    tenant: Annotated[str, typer.Option(help="Whose it will be: the tenant, such as key-NAME.")] = LOCAL_TENANT.id,
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Take in a conversation: all of it or nothing. What is here already stays as it is."""
    settings = settings_at(config, data)
    try:
        result = asyncio.run(_import_conversation(settings, tenant, place))
    except BadRequest as error:  # the command was right, what it was given is not
        print_error(str(error))
        raise typer.Exit(1) from None
    if as_json:
        print_json(
            {
                "conversation": result.conversation,
                "format": result.format,
                "frames": result.frames,
                "entries": result.entries,
                "requests": result.requests,
            }
        )
        return
    size = f"{pluralize(result.frames, 'frame')}, {pluralize(result.requests, 'request')}"
    shown = f"`callstack tree {result.conversation}{data_flag(settings)}` shows it"
    print_line(f"{result.conversation}: {size}, from the format {result.format}. {shown}.")


async def _import_conversation(settings: Config, tenant: str, place: Path) -> ImportResult:
    if settings.is_store_in_memory:
        raise InvalidConfiguration("store: it is kept in memory, and would be gone with this command")
    if find_running_proxy(settings.data) is not None:
        raise NotAllowed(f"A proxy runs on {settings.data}. Stop it, import, start it again.", code="proxy_runs")
    from proxy.store.sql import open_store  # as in `store_access`

    store = open_store(settings.store, settings.data)
    try:
        await store.start()
        return await import_conversation(store, tenant, place, data_flag(settings))
    finally:
        await store.close()


# ------------------------------------------------------------------------------------------------------------ migrate
def migrate(
    to: Annotated[str, typer.Option("--to", help="Where to: sqlite:/a/path.db, or postgresql://user@host/name.")],
    source: Annotated[str, typer.Option("--from", help="Where from. Default: the configured store.")] = "",
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Copy everything to an empty store, in one transaction. The old store stays as it is."""
    settings = settings_at(config, data)
    source_settings = settings.model_copy(update={"store": source}) if source else settings
    if source_settings.store_path is not None and find_running_proxy(settings.data) is not None:
        raise NotAllowed(f"A proxy runs on {settings.data}. Stop it, migrate, start it again.", code="proxy_runs")
    from callstack_proxy.management.copy_store import copy_store  # as in `store_access`

    started = time.monotonic()
    result = copy_store(source_settings.store, to, settings.data)
    if as_json:
        print_json(result._asdict())
        return
    size = f"{pluralize(result.conversations, 'conversation')}, {pluralize(result.requests, 'request')}"
    print_line(f"{size} ({result.rows:,} rows) in {time.monotonic() - started:.1f} s")
    print_line(f"from  {result.source}")
    print_line(f"to    {result.target}")
    print_line("Set `store` to the new place in proxy.yaml, or STACK_STORE. The old store was left as it is.")
