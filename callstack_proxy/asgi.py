"""An ASGI middleware for applications that serve one of the three APIs themselves, such as a gateway in Starlette or
FastAPI: `app.add_middleware(CallstackASGI, data="...")`. Requests for an answer go through the engine, which asks the
application instead of a provider, streamed or not; all others pass as they are.

Where the engine cannot be opened, everything passes as it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import AsyncExitStack
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from callstack_proxy.engine import OpenEngine, configuration, new_request, open_engine
from proxy.auth import KeyRing, TenantResolver
from proxy.config import UpstreamSettings
from proxy.dialects import OPENAI_CHAT, dialect_at
from proxy.errors import ProxyError, StoreError, UpstreamClosed
from proxy.exchange import AsgiReply, send_error_response
from proxy.upstream import Answer, RawHeaders, Upstream

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_WAITING_MESSAGES = 8
"""Of an answer, before the application waits for whoever reads it."""
_SCOPE: ContextVar[Scope] = ContextVar("scope")
"""Of the client's request that is being answered."""


class CallstackASGI:
    """`data` and `settings` are those of Engine. Each key that clients send has conversations of its own, unless
    `settings` name another `tenancy`."""

    def __init__(
        self, app: Application, *, data: str | Path | None = None, settings: Mapping[str, object] | None = None
    ) -> None:
        self._app = app
        self._config = configuration(data, {"tenancy": "credential", **(settings or {})})
        self._engine: asyncio.Task[OpenEngine] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            try:
                await self._app(scope, receive, send)
            finally:
                await self.aclose()
        elif scope["type"] == "http" and scope["method"] == "POST" and dialect_at(scope["path"]) is not None:
            await self._answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def aclose(self) -> None:
        """Write everything to disk. Called at the end of the application, where the server tells it."""
        task, self._engine = self._engine, None
        if task is not None and (engine := await _opened(task)) is not None:
            await engine.close()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._engine is None:
            self._engine = asyncio.create_task(open_engine(self._config, _ApplicationUpstream(self._app)))
        engine = await _opened(self._engine)
        body = await _body_from(receive)
        if body is None:
            return
        try:
            tenant = self._tenant_of(engine, scope) if engine is not None else None
        except ProxyError:  # a login that changes from request to request, say
            tenant = None
        if engine is None or tenant is None:
            await self._app(scope, _replayed(body, receive), send)
            return
        spoken = dialect_at(scope["path"]) or OPENAI_CHAT
        path = (scope.get("raw_path") or scope["path"].encode()).partition(b"?")[0].decode("latin-1")
        headers = list(scope["headers"])
        request = replace(new_request(path, body, headers), tenant=tenant, query=scope.get("query_string", b""))
        reply = AsgiReply(send)
        api = next(api for api, services in engine.services.items() if services.dialect is spoken)
        _SCOPE.set(scope)
        work = asyncio.create_task(engine.handle(request, reply, api))
        watcher = asyncio.create_task(_leave(receive, reply, work))
        try:
            await work
        except ProxyError as error:
            await send_error_response(reply, error, [], spoken)
        except asyncio.CancelledError:
            work.cancel()
            if not reply.client_left:
                raise
        finally:
            watcher.cancel()

    def _tenant_of(self, engine: OpenEngine, scope: Scope) -> str:
        resolver = TenantResolver(
            self._config.tenancy, KeyRing(self._config.keys_path), engine.secret, self._config.front
        )
        return resolver.tenant_of(scope["headers"]).id


async def _opened(task: asyncio.Task[OpenEngine]) -> OpenEngine | None:
    try:
        return await asyncio.shield(task)
    except (ProxyError, StoreError) as error:
        log.error("the engine cannot be opened; requests pass without it", extra={"cause": str(error)})  # noqa: TRY400
        return None


async def _body_from(receive: Receive) -> bytes | None:
    """The whole body; None where the client left before its end."""
    pieces = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)


def _replayed(body: bytes, receive: Receive | None = None) -> Receive:
    """Receives `body`, then what still comes of the client."""
    has_come = False

    async def again() -> MutableMapping[str, Any]:
        nonlocal has_come
        if not has_come:
            has_come = True
            return {"type": "http.request", "body": body, "more_body": False}
        if receive is None:
            await asyncio.Event().wait()  # an answer that is closed cancels the application
        return await receive() if receive is not None else {"type": "http.disconnect"}

    return again


async def _leave(receive: Receive, reply: AsgiReply, work: asyncio.Task[None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    reply.client_left = True
    work.cancel()


class _ApplicationUpstream(Upstream):
    """The application behind the middleware, asked in its own process."""

    def __init__(self, app: Application) -> None:
        super().__init__("default", UpstreamSettings(url="http://application.invalid"))
        self._app = app

    async def send(self, method: str, path: str, query: bytes, headers: RawHeaders, body: bytes) -> Answer:
        kept = [header for header in headers if header[0] not in (b"content-length", b"accept-encoding")]
        told = [*kept, (b"content-length", b"%d" % len(body))]
        scope = {**_SCOPE.get(), "headers": told, "query_string": query}
        answer = _ApplicationAnswer(self._app, scope, body)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(answer.aclose)
            await answer.begin()
            undo.pop_all()
        return answer


class _ApplicationAnswer(Answer):
    """What the application answers, as it comes. It waits while nobody reads."""

    def __init__(self, app: Application, scope: Scope, body: bytes) -> None:
        self._messages: asyncio.Queue[MutableMapping[str, Any] | None] = asyncio.Queue(MAX_WAITING_MESSAGES)
        self._has_ended = False
        self._task = asyncio.create_task(self._run(app, scope, body))

    async def _run(self, app: Application, scope: Scope, body: bytes) -> None:
        try:
            await app(scope, _replayed(body), self._messages.put)
        except Exception:  # the application's own failure, which its server would have logged
            log.exception("the application failed")
        if not self._has_ended:
            await self._messages.put(None)

    async def begin(self) -> None:
        """Returns with the head of the answer. Raises UpstreamClosed where there is none."""
        head = await self._messages.get()
        if head is None or head["type"] != "http.response.start":
            raise UpstreamClosed("The application gave no answer. Send the request again; its log may say why.")
        self.status = head["status"]
        self.headers = [(bytes(name).lower(), bytes(value)) for name, value in head.get("headers", ())]

    async def chunks(self) -> AsyncIterator[bytes]:
        while (message := await self._messages.get()) is not None:
            if message["type"] == "http.response.body":
                self._has_ended = not message.get("more_body", False)
                yield message.get("body", b"")
                if self._has_ended:
                    return
        raise UpstreamClosed("The application broke off its answer. Send the request again; its log may say why.")

    async def aclose(self) -> None:
        """What the application does behind the end of its answer goes on."""
        if not self._has_ended:
            self._task.cancel()
