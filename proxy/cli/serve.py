"""`callstack serve`: runs the proxy until a signal.

Once requests are answered it prints three lines: where to point clients, where the data is, where to look. Everything
else goes to the log on stderr. A data directory has at most one proxy: a second one would keep its own memory of the
same conversations.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from proxy.cli.context import (
    ConfigFile,
    DataDirectory,
    ServerInfo,
    data_flag,
    find_running_proxy,
    load_settings,
    remove_server_file,
    write_server_file,
)
from proxy.cli.log_output import configure_logging
from proxy.cli.output import print_line
from proxy.config import Config, Mode, parse_assignments
from proxy.errors import InvalidConfiguration, ProxyError
from proxy.server import build_app
from proxy.server import serve as run_server

log = logging.getLogger(__name__)

WILDCARD_ADDRESSES = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - an address to recognise, not to bind
"""Addresses that mean all interfaces; a client cannot connect to them, so loopback is named instead."""

MODE_NOTES: Mapping[Mode, str] = {
    "off": "requests are sent as they came",
    "shadow": "requests are sent as they came",
    "passive": "the model is offered stack_recall alone",
}
"""What each unusual mode does."""


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
    log_format: Annotated[
        str | None, typer.Option(help="text, json, or auto: text on a terminal, json elsewhere.")
    ] = None,
) -> None:
    """Run the proxy."""
    named = {"upstream": upstream, "host": host, "port": port, "data": str(data) if data else None, "mode": mode}
    named["log_format"] = log_format
    settings = load_settings(
        config, parse_assignments(assigned or ()) | {k: v for k, v in named.items() if v is not None}
    )
    if not settings.upstreams:
        raise InvalidConfiguration("upstreams: there is none; name one with --upstream URL or in proxy.yaml")
    _serve(settings)


def _serve(settings: Config) -> None:
    log_handler = configure_logging(settings.log_level, settings.log_format)
    prepare_data_directory(settings)
    token = secrets.token_urlsafe(32)
    app = build_app(settings, operator_token=token)
    app.metrics.dropped_log_lines = lambda: log_handler.dropped_lines
    here: list[ServerInfo] = []

    def ready(url: str) -> None:
        reached = reachable_url(url)
        here.append(ServerInfo(reached, token, os.getpid()))
        try:
            write_server_file(settings.data, here[0])
        except OSError as error:
            log.warning("no note left: mode and forget will not find this proxy", extra={"reason": error.strerror})
        for line in welcome_lines(reached, settings):
            print_line(line)

    def draining() -> None:
        app.draining = True
        # A signal handler may interrupt a write in the middle of a line, so the event loop logs it.
        asyncio.get_running_loop().call_soon_threadsafe(farewell)

    def farewell() -> None:
        app.deferred_tasks.run_pending()
        waited_for = app.metrics.open_requests
        hint = {"stack_waits_for": waited_for, "stack_hint": "Ctrl-C once more ends at once"} if waited_for else {}
        log.warning("stopping", extra={"stack_drain_s": settings.drain_s} | hint)

    try:
        run_server(app, settings, ready=ready, draining=draining, refused=app.metrics.count_refusal)
    finally:
        for presence in here:
            remove_server_file(settings.data, presence)
    if not here:
        raise ProxyError("the proxy did not start; the log above says why", code="not_started")


def prepare_data_directory(settings: Config) -> None:
    """Make the data directory. Raises InvalidConfiguration where it cannot be used, or another proxy uses it."""
    data = settings.data
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        reason = "not a directory" if data.exists() else error.strerror
        raise InvalidConfiguration(f"data: {data} cannot be made: {reason}; name a directory with --data") from None
    if not os.access(data, os.W_OK | os.X_OK):
        raise InvalidConfiguration(f"data: {data} cannot be written to; name another directory with --data")
    other = find_running_proxy(data)
    if other is not None:
        raise InvalidConfiguration(
            f"data: a proxy runs on {data} already, at {other.url} (process {other.pid}); "
            "stop it, or name another directory with --data"
        )


def reachable_url(url: str) -> str:
    """`url` with an address that a client on this machine can connect to."""
    scheme, _, address = url.partition("://")
    host, _, port = address.rpartition(":")
    return f"{scheme}://{WILDCARD_ADDRESSES.get(host, host)}:{port}"


def welcome_lines(url: str, settings: Config) -> Sequence[str]:
    """Where to point clients, where the data is, where to look; then an unusual mode or host."""
    store = settings.store_path
    lines = [
        f"clients  {url}/v1",
        f"data     {store.resolve() if store else 'in memory, lost at exit'}",
        f"look     {url}/stack/conversations" + (f", or: callstack tree{data_flag(settings)}" if store else ""),
    ]
    if settings.mode != "active":
        lines.append(f"mode     {settings.mode}: {MODE_NOTES[settings.mode]}")
    if settings.host.strip("[]") in {address.strip("[]") for address in WILDCARD_ADDRESSES}:
        names = ", ".join(settings.allowed_hosts) or "none yet"
        lines.append(f"hosts    other machines reach it by a name or address in allowed_hosts: {names}")
    return lines
