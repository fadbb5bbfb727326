"""The client's side of one answer: bytes out as they may leave, comments while it waits, the end or the break.

The law: **a failed stream never ends normally.** A stream begins with its first round; a plain answer is sent when it
is whole, so that its length and its cost stand in its headers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from proxy.core.ledger.messages import Request, Spoken
from proxy.dialects import OPENAI_CHAT, TOLD, Dialect, Writing
from proxy.errors import ProxyError
from proxy.upstream.routing import Answer, RawHeaders

log = logging.getLogger(__name__)

HELD = 1 << 20
"""Bytes of a plain answer that wait for its end where it passes as it is."""
_SIZED = frozenset({b"content-length", b"content-encoding", b"etag", b"content-md5"})
"""Headers of an answer that are not true of one we wrote anew."""


class Reply(Protocol):
    """The connection to the client. `abort` closes it without an end: the only way a failed stream may stop."""

    @property
    def started(self) -> bool: ...

    @property
    def gone(self) -> bool:
        """The client has left."""

    async def start(self, status: int, headers: RawHeaders) -> None: ...

    async def send(self, chunk: bytes) -> None: ...

    async def end(self, last: bytes = b"") -> None: ...

    def abort(self) -> None: ...


def why_cancelled(reply: Reply) -> str:
    """Why a request was cancelled that no person stopped: the client has left it, or the process ends."""
    return "client_left" if reply.gone else "shutdown"


class Delivery:
    """One answer under way. `told` gives our headers as they are known when they are asked for."""

    def __init__(
        self, dialect: Dialect, request: Request, reply: Reply, told: Callable[[], RawHeaders], *, intercept: bool
    ) -> None:
        self.reply = reply
        self._dialect = dialect
        self._told = told
        self._stream = request.stream
        self._intercept = intercept
        self._held: list[bytes] = []
        self._head: Answer | None = None
        self._beating: asyncio.Task[None] | None = None
        self.writing: Writing = dialect.answer(request, intercept=intercept)

    async def begin_round(self, got: Answer) -> None:
        """The provider has answered a round; the first one begins the client's stream."""
        coding = got.header(b"content-encoding").strip().lower()
        kind = got.header(b"content-type").decode("latin-1")
        self.writing.begin_round(got.status, kind, encoded=coding not in (b"", b"identity"))
        self._head = got
        # What is no completion passes from its first byte on: one without any may be no answer at all.
        passes = self._stream or (self.writing.is_error and not self._intercept)
        if not self.reply.started and passes:
            await self._start(got)

    async def _start(self, got: Answer, *more: tuple[bytes, bytes]) -> None:
        """What we wrote anew has another length than what came."""
        headers = _resized(got.headers) if self._intercept and not self.writing.is_error else got.headers
        await self.reply.start(got.status, [*headers, *more, *self._told()])

    async def feed(self, chunk: bytes) -> None:
        """Pass on what may leave now. A plain answer waits until it is whole, because its cost is told in its
        headers; one that passes as it is waits no longer than `HELD` bytes."""
        out = self._read_along(chunk)
        if not out:
            return
        if not self.reply.started and self.writing.is_error and self._head:
            await self._start(self._head)
        if self.reply.started:
            await self.reply.send(out)
            return
        self._held.append(out)
        if self._head and not self._intercept and sum(map(len, self._held)) > HELD:
            await self._start(self._head)
            held, self._held = self._held, []
            await self.reply.send(b"".join(held))

    def _read_along(self, chunk: bytes) -> bytes:
        """What of it leaves now. An answer that passes as it is passes also where we fail on what is in it."""
        try:
            return self.writing.feed(chunk)
        except Exception:  # the agent must not notice
            if self._intercept:
                raise
            log.exception("answer could not be read along")
            self.writing.read_no_more()
            return chunk

    def end_round(self, *, complete: bool) -> Spoken:
        """The round as it was produced, with what the client is told where it can ask for that again."""
        try:
            spoken = self.writing.end_round(complete=complete)
        except Exception:  # a plain answer is read at its end: the agent must not notice that either
            if self._intercept:
                raise
            log.exception("answer could not be read along")
            self.writing.read_no_more()
            spoken = self.writing.end_round(complete=complete)
        told = self.writing.told
        return replace(spoken, extra={**spoken.extra, TOLD: told}) if told else spoken

    def last_bytes(self) -> bytes:
        """What was held of the last round, and the end."""
        return b"".join([*self._held, self.writing.finish()])

    async def end(self, last: bytes) -> None:
        """Send the end. Headers of a plain answer are told now, with its length."""
        if not self.reply.started and self._head is not None:
            ours = self._intercept and not self.writing.is_error
            length = [(b"content-length", str(len(last)).encode())] if ours else []
            await self._start(self._head, *length)
        await self.reply.end(last)

    async def refuse(self, got: Answer, body: bytes) -> None:
        """An error of the provider, unchanged; behind a stream that has begun only the broken connection can say so."""
        if self.reply.started:
            self.reply.abort()
            return
        await self.reply.start(got.status, [*got.headers, *self._told()])
        await self.reply.end(body)

    async def fail(self, error: ProxyError) -> None:
        """An error of ours, or of the way to the provider: behind a stream that has begun the dialect's word for it,
        where it has one, and the broken connection."""
        if self.reply.started and self._stream and (word := self.writing.broken(str(error))):
            await self.reply.send(word)
        await fail(self.reply, error, self._told(), self._dialect)

    def keep_alive(self, every_s: float) -> None:
        """Comments every `every_s` seconds for a client that waits on a stream of ours that has begun."""
        if self._stream and self._intercept:
            self._beating = asyncio.create_task(self._beat(every_s))

    def keep_no_more(self) -> None:
        """The client waits no longer."""
        if self._beating is not None:
            self._beating.cancel()

    async def _beat(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            if comment := self.writing.keep_alive():
                await self.reply.send(comment)


async def fail(reply: Reply, error: ProxyError, headers: RawHeaders, dialect: Dialect | None = None) -> None:
    """Tell an error in the shape of the API that was asked; behind an answer that has begun only the broken connection
    can say so."""
    if reply.started:
        reply.abort()
        return
    body = (dialect or OPENAI_CHAT).error_body(error.status, str(error), error.code)
    kind = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await reply.start(error.status, [*kind, *headers])
    await reply.end(body)


def _resized(headers: RawHeaders) -> RawHeaders:
    return [(name, value) for name, value in headers if name not in _SIZED]
