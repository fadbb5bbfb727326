"""`callstack serve`: runs the proxy until a signal.

Once requests are answered it prints three lines: where to point clients, where the data is, where to look. Everything
else goes to the log on stderr. A data directory has at most one proxy, unless the store is shared: a second one would
keep its own memory of the same conversations.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import secrets
import signal
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from callstack_proxy.cli.context import (
    VIEWER,
    ServerInfo,
    console_url,
    fingerprint_of,
    hold_presence,
    is_alive,
    prepare_data_directory,
    read_server_file,
    remove_server_file,
    write_server_file,
)
from callstack_proxy.cli.output import print_line
from callstack_proxy.cli.serve.log_output import BufferedStreamHandler, configure_logging
from callstack_proxy.cli.serve.workers import Worker, Workers, worker_from
from callstack_proxy.management.mount import DOORS
from proxy.config import Config, Mode
from proxy.errors import InvalidConfiguration, ProxyError
from proxy.server import ServerHooks, base_url, bind, build_app
from proxy.server import serve as run_server

log = logging.getLogger(__package__)

LOCK_FILE = "callstack.lock"
WILDCARD_ADDRESSES = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - an address to recognise, not to bind
"""Addresses that mean all interfaces; a client cannot connect to them, so loopback is named instead."""

MODE_NOTES: Mapping[Mode, str] = {
    "off": "requests are sent as they came",
    "shadow": "requests are sent as they came",
    "passive": "the model is offered stack_recall alone",
}
"""What each unusual mode does."""


def serve(settings: Config, workers: int, agents: Path | None) -> None:
    """Run the proxy until a signal."""
    if not settings.upstreams:
        raise InvalidConfiguration("upstreams: there is none; name one with --upstream URL or in proxy.yaml")
    if workers > 1 and not settings.is_store_shared:
        raise InvalidConfiguration(
            "workers: several processes need a store that they can share, and a SQLite file has one owner; set store "
            "to postgresql://user@host/name, or serve with one worker"
        )
    worker = worker_from(os.environ)
    if workers > 1 and worker is None:
        _serve_with_workers(settings, workers)
    else:
        _serve(settings, agents, worker=worker)


def show_stored(settings: Config) -> None:
    """Run a proxy that only shows what is stored, until a signal or until another proxy starts."""
    alone = settings.model_copy(update={"host": "127.0.0.1", "port": 0, "upstreams": {}, "log_level": "WARNING"})
    _serve(alone, None, configuration=VIEWER)


def _serve_with_workers(settings: Config, count: int) -> None:
    configure_logging(settings.log_level, settings.log_format)
    prepare_data_directory(settings)
    listener, token = bind(settings.host, settings.port), secrets.token_urlsafe(32)
    server = ServerInfo(reachable_url(base_url(listener)), token, os.getpid(), fingerprint_of(settings))

    def ready() -> None:
        write_server_file(settings.data, server)
        for line in (*welcome_lines(server.url, settings, token), f"workers  {count}"):
            print_line(line)

    try:
        Workers(listener, count, token).run(ready)
    finally:
        remove_server_file(settings.data, server)
        listener.close()


def _serve(settings: Config, agents: Path | None, configuration: str = "", worker: Worker | None = None) -> None:
    log_handler = configure_logging(settings.log_level, settings.log_format)
    prepare_data_directory(settings)
    with exclusive_use(settings):
        if worker is None:
            _serve_alone(settings, log_handler, agents, configuration or fingerprint_of(settings))
        else:
            _serve_as_worker(settings, log_handler, worker)


def _serve_as_worker(settings: Config, log_handler: BufferedStreamHandler, worker: Worker) -> None:
    app = build_app(settings, operator_token=worker.token, doors=DOORS)
    app.metrics.dropped_log_lines = lambda: log_handler.dropped_lines
    worker.end_with_parent()

    def draining() -> None:
        app.draining = True

    hooks = ServerHooks(lambda _: worker.report_ready(), draining, app.metrics.count_refusal)
    run_server(app, settings, hooks, socket.socket(fileno=worker.listener))


def _serve_alone(settings: Config, log_handler: BufferedStreamHandler, agents: Path | None, configuration: str) -> None:
    token = secrets.token_urlsafe(32)
    app = build_app(settings, operator_token=token, doors=DOORS)
    app.metrics.dropped_log_lines = lambda: log_handler.dropped_lines
    here: list[ServerInfo] = []

    def ready(url: str) -> None:
        reached = reachable_url(url)
        here.append(ServerInfo(reached, token, os.getpid(), configuration))
        try:
            write_server_file(settings.data, here[0])
        except OSError as error:
            log.warning("no note left: mode and forget will not find this proxy", extra={"reason": error.strerror})
        if configuration == VIEWER:
            print_line(console_url(reached, token))
        else:
            for line in welcome_lines(reached, settings, token):
                print_line(line)
        if agents is not None:
            threading.Thread(target=_end_without_agents, args=(agents,), name="agents", daemon=True).start()

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
        run_server(app, settings, ServerHooks(ready, draining, app.metrics.count_refusal))
    finally:
        for presence in here:
            remove_server_file(settings.data, presence)
    if not here:
        raise ProxyError("the proxy did not start; the log above says why", code="not_started")


def _end_without_agents(lock: Path) -> None:
    """End this process, as SIGTERM does, when nobody holds a shared lock on the file any more. The lock is kept to the
    end: a `wrap` that comes in between waits, and starts another proxy."""
    fcntl.flock(os.open(lock, os.O_RDWR | os.O_CLOEXEC), fcntl.LOCK_EX)
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def exclusive_use(settings: Config) -> Iterator[None]:
    """Hold the locks of the data directory and of the store's while this block runs. The system takes them away with
    the process, and they hold between containers that share a volume. Raises InvalidConfiguration where another proxy
    has one: two would each keep their own memory of the same conversations. On a shared store they do not."""
    with ExitStack() as held:
        if (presence := hold_presence(settings.data)) is not None:
            held.callback(os.close, presence)
        if settings.is_store_shared:
            yield
            return
        store = settings.store_path
        for folder in dict.fromkeys((settings.data, store.parent if store else settings.data)):
            held.callback(os.close, _lock(folder, settings.data))
        yield


def _lock(folder: Path, data: Path) -> int:
    """The descriptor that holds the lock of a directory."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InvalidConfiguration(
            f"data: {folder / LOCK_FILE} cannot be opened: {error.strerror}; name another directory with --data"
        ) from None
    try:
        _take_lock(descriptor, data)
    except BlockingIOError:
        os.close(descriptor)
        other = read_server_file(data)
        place = f", at {other.url} (process {other.pid})" if other else ""
        raise InvalidConfiguration(
            f"data: a proxy runs on {folder} already{place}, and a second one would not see what the first one has in "
            "memory; stop it, or name another directory with --data"
        ) from None
    except OSError as error:  # a file system without locks
        log.warning("data directory not locked: see to it that one proxy uses it", extra={"reason": error.strerror})
    return descriptor


def _take_lock(descriptor: int, data: Path) -> None:
    """Takes the lock, after ending a proxy that only shows what is stored. Raises BlockingIOError, OSError."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        other = read_server_file(data)
        if other is None or other.configuration != VIEWER or not is_alive(other.pid):
            raise
        os.kill(other.pid, signal.SIGTERM)
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def reachable_url(url: str) -> str:
    """`url` with an address that a client on this machine can connect to."""
    scheme, _, address = url.partition("://")
    host, _, port = address.rpartition(":")
    return f"{scheme}://{WILDCARD_ADDRESSES.get(host, host)}:{port}"


def welcome_lines(url: str, settings: Config, token: str = "") -> Sequence[str]:
    """Where to point clients, where the data is, where to look; then an unusual mode or host. With client keys, the
    console's link has no code of `token` in it: people sign in, and this output is often collected."""
    lines = [
        f"clients  {url}/v1",
        f"data     {settings.store_place}",
        f"console  {console_url(url, token if settings.tenancy == 'single' else '')}",
    ]
    if settings.mode != "active":
        lines.append(f"mode     {settings.mode}: {MODE_NOTES[settings.mode]}")
    if settings.host.strip("[]") in {address.strip("[]") for address in WILDCARD_ADDRESSES}:
        names = ", ".join(settings.allowed_hosts) or "none yet"
        lines.append(f"hosts    other machines reach it by a name or address in allowed_hosts: {names}")
    return lines
