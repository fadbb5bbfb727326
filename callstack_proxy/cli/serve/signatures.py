"""`callstack serve`, and `callstack console`, which prints the link to the console of the proxy that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from callstack_proxy.cli.context import (
    ConfigFile,
    DataDirectory,
    console_url,
    find_running_proxy,
    load_settings,
    settings_at,
)
from callstack_proxy.cli.output import print_line, print_note
from callstack_proxy.config_sources import parse_assignments


def serve(
    config: ConfigFile = None,
    upstream: Annotated[str | None, typer.Option(help="Base URL of the provider, with or without /v1.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
    data: DataDirectory = None,
    mode: Annotated[str | None, typer.Option(help="off, shadow, passive or active.")] = None,
    assigned: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any key of proxy.yaml.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes; more than 1 need store: postgresql://...")] = 1,
    log_format: Annotated[
        str | None, typer.Option(help="text, json, or auto: short lines on a terminal, json elsewhere.")
    ] = None,
    agents: Annotated[
        Path | None, typer.Option(hidden=True, help="End when nobody holds a lock on this file; for `wrap`.")
    ] = None,
) -> None:
    """Run the proxy."""
    named = {"upstream": upstream, "host": host, "port": port, "data": str(data) if data else None, "mode": mode}
    named["log_format"] = log_format
    settings = load_settings(
        config, parse_assignments(assigned or ()) | {k: v for k, v in named.items() if v is not None}
    )
    # The server takes 0.8 s to import, which help and a link to a running one do not need.
    from callstack_proxy.cli.serve import command

    command.serve(settings, workers, agents)


def console(config: ConfigFile = None, data: DataDirectory = None) -> None:
    """Print the link to the console of the proxy that runs. Where none runs, one shows what is stored, until Ctrl-C
    or until another proxy starts."""
    settings = settings_at(config, data)
    server = find_running_proxy(settings.data)
    if server is not None:
        print_line(console_url(server.url, server.token))
        return
    print_note(f"no proxy runs on {settings.data}; this one shows what is stored there, until Ctrl-C")
    from callstack_proxy.cli.serve import command  # as above

    command.show_stored(settings)
