"""The commands that hand a conversation on, and take one in: `export` and `import`.

`export` reads the store itself, whether a proxy runs or not. `import` writes to it, so no proxy may run on the same
directory: what one keeps in memory would not know of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from proxy.auth import LOCAL
from proxy.cli.context import AsJson, ConfigFile, DataDirectory, at, data_flag, opened, run
from proxy.cli.output import columns, complain, counted, say, say_json
from proxy.cli.running import running
from proxy.config.model import Config
from proxy.errors import BadRequest, InvalidConfiguration, NotAllowed
from proxy.management.export import files as writing
from proxy.management.export.flamegraph import MEASURES
from proxy.management.export.formats import FORMATS, Format, Options, format_named, measure_named
from proxy.management.export.importer import Imported, imported
from proxy.management.export.source import Material, gathered
from proxy.management.views import lookup
from proxy.store.sql import open_store

WHOLE = "ledger"
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
            help=f"One of {', '.join(FORMATS)}. Default: {WHOLE}; with nothing named at all they are listed.",
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
    kind = kind or WHOLE
    try:
        chosen, options = format_named(kind), Options(whole, measure_named(measure))
    except BadRequest as error:
        raise typer.BadParameter(str(error)) from None
    if out is None and chosen.files is not None:
        raise typer.BadParameter(f"{kind} has several files: name a folder, or a file that ends in .zip, with --out")
    material = run(_gathered(at(config, data), conversation, thread))
    if out is None:
        _print(writing.stream(chosen, material, options))
    else:
        _write(chosen, material, options, out)


def list_formats() -> None:
    """The formats, and which of them can be imported."""
    rows = [(name, each.about, "import" if each.returns else "") for name, each in FORMATS.items()]
    for line in columns([("format", "what it is", ""), *rows]):
        say(line)


async def _gathered(settings: Config, reference: str, thread: str) -> Material:
    async with opened(settings) as store:
        return await gathered(store, await lookup.ledger_named(store, None, reference), thread, settings.observed_tools)


def _print(pieces: Iterable[bytes]) -> None:
    """To whatever reads it; a terminal gets what cannot move its cursor."""
    for piece in pieces:
        if sys.stdout.isatty():
            say(piece.decode("utf-8", "surrogateescape").rstrip("\n"))
        else:
            sys.stdout.buffer.write(piece)
    sys.stdout.flush()


def _write(chosen: Format, material: Material, options: Options, out: Path) -> None:
    writing.written(chosen, material, options, out)
    say(f"{material.id}: written to {out}")


# ------------------------------------------------------------------------------------------------------------- import
def import_(
    place: Annotated[Path, typer.Argument(help="A file of the format ledger; a folder or .zip of stack or jetbox.")],
    tenant: Annotated[str, typer.Option(help="Whose it will be: the tenant, such as key-NAME.")] = LOCAL.id,
    config: ConfigFile = None,
    data: DataDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Take in a conversation: all of it or nothing. What is here already stays as it is."""
    settings = at(config, data)
    try:
        told = run(_imported(settings, tenant, place))
    except BadRequest as error:  # the command was right, what it was given is not
        complain(str(error))
        raise typer.Exit(1) from None
    if as_json:
        say_json(
            {
                "conversation": told.conversation,
                "format": told.format,
                "frames": told.frames,
                "entries": told.entries,
                "requests": told.requests,
            }
        )
        return
    size = f"{counted(told.frames, 'frame')}, {counted(told.requests, 'request')}"
    shown = f"`callstack tree {told.conversation}{data_flag(settings)}` shows it"
    say(f"{told.conversation}: {size}, from the format {told.format}. {shown}.")


async def _imported(settings: Config, tenant: str, place: Path) -> Imported:
    if settings.store_path is None:
        raise InvalidConfiguration("store: it is kept in memory, and would be gone with this command")
    if running(settings.data) is not None:
        raise NotAllowed(f"A proxy runs on {settings.data}. Stop it, import, start it again.", code="proxy_runs")
    store = open_store(settings.store, settings.data)
    try:
        await store.start()
        return await imported(store, tenant, place, data_flag(settings))
    finally:
        await store.close()
