"""`callstack serve`: the proxy, until a signal.

Three lines say when requests are answered: where to point clients, where the data lies, where to look. Everything else
it has to say is the log, on stderr.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Annotated

import typer

from proxy.app import build
from proxy.commands.journal import keep_journal
from proxy.commands.place import ConfigFile, DataDirectory, configuration
from proxy.commands.presence import Presence, announce, withdraw
from proxy.commands.printing import say
from proxy.config import Config, parse_assignments
from proxy.errors import InvalidConfiguration, ProxyError
from proxy.server import serve as run_server


def serve(  # noqa: PLR0913 - one parameter for each option
    config: ConfigFile = None,
    upstream: Annotated[str | None, typer.Option(help="Base URL of the provider, with or without /v1.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
    data: DataDirectory = None,
    mode: Annotated[str | None, typer.Option(help="off, shadow or active.")] = None,
    assigned: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any key of proxy.yaml.")
    ] = None,
) -> None:
    """Run the proxy."""
    named = {"upstream": upstream, "host": host, "port": port, "data": str(data) if data else None, "mode": mode}
    settings = configuration(
        config, parse_assignments(assigned or ()) | {k: v for k, v in named.items() if v is not None}
    )
    if not settings.upstreams:
        raise InvalidConfiguration("upstreams: there is none; name one with --upstream URL or in proxy.yaml")
    _serve(settings)


def _serve(settings: Config) -> None:
    keep_journal(settings.log_level)
    token = secrets.token_urlsafe(32)
    app = build(settings, operator_token=token)
    here: list[Presence] = []

    def ready(url: str) -> None:
        here.append(Presence(url, token, os.getpid()))
        announce(settings.data, here[0])
        for line in welcome(url, settings.store_path):
            say(line)

    def draining() -> None:
        app.draining = True

    try:
        run_server(app, settings, ready=ready, draining=draining)
    finally:
        for presence in here:
            withdraw(settings.data, presence)
    if not here:
        raise ProxyError("the proxy did not start; the log above says why", code="not_started")


def welcome(url: str, store: Path | None) -> tuple[str, str, str]:
    """Where to point clients, where the data lies, where to look."""
    return (
        f"clients  {url}/v1",
        f"data     {store.resolve() if store else 'in memory, lost at exit'}",
        f"look     {url}/stack/conversations, or: callstack tree",
    )
