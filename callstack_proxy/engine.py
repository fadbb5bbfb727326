"""Opens the proxy's services in this process: a store, and the same exchange that a running proxy sends requests
through. No web server, no management API, no background tasks but the deletion of what is too old.

A `Turn` is one request of the application on its way through the engine. What the engine would send to a provider is
handed to the caller, who asks the model; the model's answer goes back in, until the engine has an answer for the
application.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from callstack_proxy.config_sources import load_config
from callstack_proxy.filemap import draw_map_for
from proxy.accounting import Accountant, TokenCounter
from proxy.auth import LOCAL_TENANT
from proxy.config import Config, UpstreamSettings
from proxy.config.runtime import LiveSettings
from proxy.core.matching import RETRY_WINDOW_MS
from proxy.dialects import dialect_at
from proxy.errors import InvalidConfiguration, StoreError
from proxy.exchange import (
    AppServices,
    ClientRequest,
    DeferredTasks,
    HeldReply,
    Reply,
    Services,
    build_services,
    delete_expired,
    pipeline,
)
from proxy.store import ConversationCache, Store
from proxy.store.sql import open_store
from proxy.upstream import Answer, ContextWindows, RawHeaders, Routes, Upstream

PATHS: Mapping[str, str] = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
"""Where a client of each API posts its requests."""
PRESENCE_LOCK = "running.lock"
"""In the data directory. A proxy that runs on it holds a shared lock on this file, and so does an open engine."""
_JSON_HEADERS: RawHeaders = [(b"content-type", b"application/json")]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def configuration(data: str | Path | None, settings: Mapping[str, object] | None) -> Config:
    """The configuration of an engine: `settings` by the keys of proxy.yaml (dotted where they are nested), the rest as
    it is by default. Without `data` nothing is written to disk. Raises InvalidConfiguration."""
    flags = dict(settings or {})
    if data is not None:
        flags["data"] = str(data)
    elif "data" not in flags and "store" not in flags:
        flags["store"] = "memory:"
    return load_config(flags, asks_upstreams=False)


@dataclass(frozen=True)
class OpenEngine:
    """Serves requests on the event loop that opened it. `services` are by API."""

    config: Config
    store: Store
    services: Mapping[str, Services]
    deferred_tasks: DeferredTasks
    secret: bytes
    """Of the store."""
    presence: int | None
    """A descriptor that is open as long as the data directory is in use."""

    async def handle(self, request: ClientRequest, reply: Reply, api: str) -> None:
        """Answer one request. Raises ProxyError where it is refused before the model is asked."""
        await pipeline.handle(self.services[api], request, reply)

    async def close(self) -> None:
        """Write everything to disk."""
        self.deferred_tasks.run_pending()
        with suppress(StoreError):  # at the exit of the interpreter, when `close` can start no thread to wait in
            await self.store.wait_until_durable(self.store.write(LOCAL_TENANT.id, ()))
        await self.store.close()
        if self.presence is not None:
            os.close(self.presence)


async def open_engine(config: Config, upstream: Upstream) -> OpenEngine:
    """Open the store and build the services; all models are asked through `upstream`. Raises StoreError where the store
    cannot be opened, and InvalidConfiguration where another process uses it."""
    presence = _hold_presence(config)
    store, counter = open_store(config.store, config.data), TokenCounter()
    try:
        await store.start()
        secret, newest = await store.secret(), await store.conversations(None, limit=1)
    except StoreError:
        await store.close()
        if presence is not None:
            os.close(presence)
        raise
    live = LiveSettings(config.subagent, store, now_ms)
    with suppress(StoreError):
        await live.refresh()
    deferred = DeferredTasks()
    process = AppServices(
        config=config,
        live_settings=live,
        store=store,
        conversation_cache=ConversationCache(store, ask_until=(newest[0].created if newest else 0) + RETRY_WINDOW_MS),
        routes=_routes(config, upstream),
        counter=counter,
        context_windows=ContextWindows(time.monotonic, config.tariff_of),
        accountant=Accountant(now_ms, counter.name, config.tariff_of),
        secret=secret,
        now=now_ms,
        new_id=lambda: secrets.token_hex(16),
        deferred_tasks=deferred,
        draw_map=draw_map_for(config),
    )
    await counter.preload()
    await delete_expired(store, config.retention_days, now_ms())
    services = {api: build_services(process, spoken) for api, path in PATHS.items() if (spoken := dialect_at(path))}
    return OpenEngine(config, store, services, deferred, secret, presence)


def new_request(path: str, body: bytes, headers: list[tuple[bytes, bytes]]) -> ClientRequest:
    """A request of this process. What a user types is for the model: it is no command."""
    name = "r" + secrets.token_hex(10)
    return ClientRequest(name, LOCAL_TENANT.id, "POST", path, b"", headers, body, takes_slash_commands=False)


def _routes(config: Config, upstream: Upstream) -> Routes:
    routes = Routes(config.model_copy(update={"upstreams": {}}))
    routes.upstreams = dict.fromkeys((*config.upstreams, upstream.name), upstream)
    return routes


def _hold_presence(config: Config) -> int | None:
    """Say that the data directory is in use. None for a store that several may use, or where the file system has no
    locks. Raises InvalidConfiguration where a proxy or another engine uses it."""
    if config.store_path is None:
        return None
    try:
        config.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(config.data / PRESENCE_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InvalidConfiguration(f"data: {config.data} cannot be used: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(descriptor, fcntl.LOCK_SH)  # as a proxy holds it, which would wait for an exclusive one
    except BlockingIOError:
        os.close(descriptor)
        raise InvalidConfiguration(
            f"data: {config.data} is in use by a proxy or another engine, and keeps conversations for one alone; share "
            "one Engine between sessions, name another directory, or set store to a PostgreSQL server"
        ) from None
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


class CallerAnswer(Answer):
    """What the model answered, as the caller has it."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status, self.headers = status, list(_JSON_HEADERS)
        self._body = body

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._body

    async def aclose(self) -> None:
        """There is no connection."""


class CallerUpstream(Upstream):
    """The model, asked by the caller of this process."""

    def __init__(self) -> None:
        super().__init__("default", UpstreamSettings(url="http://application.invalid"))

    async def send(self, method: str, path: str, query: bytes, headers: RawHeaders, body: bytes) -> Answer:
        return await _TURN.get().ask(body)


class Turn:
    """Use it on the engine's event loop. After `next` has returned None, `reply` holds the answer."""

    def __init__(self, engine: OpenEngine, request: ClientRequest, api: str) -> None:
        self.request = request
        self.reply = HeldReply()
        self.newest_body: bytes | None = None
        """What is to be sent to the model now; None where nothing is."""
        self._bodies: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._answer: asyncio.Future[Answer] | None = None
        self._task = asyncio.create_task(self._run(engine, api))

    async def _run(self, engine: OpenEngine, api: str) -> None:
        _TURN.set(self)
        try:
            await engine.handle(self.request, self.reply, api)
        finally:
            self._bodies.put_nowait(None)

    async def ask(self, body: bytes) -> Answer:
        """The answer of the model to this body, once the caller has it."""
        self._answer = asyncio.get_running_loop().create_future()
        self._bodies.put_nowait(body)
        return await self._answer

    async def next(self) -> bytes | None:
        """What is to be sent to the model next; None where the engine has done its work. Raises what the engine
        raised."""
        self.newest_body = await self._bodies.get()
        if self.newest_body is None:
            await self._task
        return self.newest_body

    def give(self, answer: Answer) -> None:
        """The model's answer to `newest_body`."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    async def leave(self) -> None:
        """The application wants no answer any more."""
        self.reply.client_left = True
        self._task.cancel()
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.exception()  # nobody is there to be told


_TURN: ContextVar[Turn] = ContextVar("turn")
