"""One request of the application on its way through the engine. What the engine would send to a provider is handed to
the caller, who asks the model; the model's answer goes back in, until the engine has an answer for the application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextvars import ContextVar

from callstack_proxy.engine import OpenEngine
from proxy.config import UpstreamSettings
from proxy.exchange import ClientRequest, HeldReply
from proxy.upstream import Answer, RawHeaders, Upstream

_JSON_HEADERS: RawHeaders = [(b"content-type", b"application/json")]


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
