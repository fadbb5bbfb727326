"""Writes one answer to the client: its bytes, keep-alive comments while it waits, and the end or an error. A failed
stream never ends normally: the connection is broken, or ends behind an error in the words of the client's API. A stream
begins with its first round; a plain answer is sent when it is complete, so that its headers carry length and cost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from msgspec.structs import replace

from proxy.core.ledger import ModelResponse, Request
from proxy.core.tools import tool_meant
from proxy.dialects import CLIENT_RESPONSE_KEY, OPENAI_CHAT, Dialect, ProviderFailure, ResponseWriter, read_failure
from proxy.errors import BudgetSpent, ProxyError, RateLimited, ShuttingDown
from proxy.upstream import (
    Answer,
    BrokenCoding,
    DecodedTooLarge,
    RawHeaders,
    UnknownCoding,
    codings_of,
    decode_body,
    retry_after_s,
)

log = logging.getLogger(__name__)

EVENT_STREAM_TYPE, JSON_TYPE = b"text/event-stream", b"application/json"
MAX_ODD_BYTES = 16 << 20
"""Bytes of an answer under another label than asked that are gathered; a larger one passes unread."""
MAX_FED_BYTES = 8 * 1024
"""Bytes of an answer that are read in one go: 30 to 60 events, about 2 ms; thousands of comments take 12."""
MAX_HELD_BYTES = 1 << 20
"""Bytes of an unmodified plain answer that are held back until it ends."""
MANY_CALLS = 1_000
"""A stream of more is not written down while it comes, and its end waits until it is, which takes ten times as long."""
_BODY_HEADERS = frozenset({b"content-length", b"content-encoding", b"etag", b"content-md5"})
"""Upstream headers that are wrong for a body that we rewrote."""


class Reply(Protocol):
    """The connection to the client. `abort` closes it without an end, as a stream stops that broke off."""

    @property
    def started(self) -> bool: ...

    @property
    def client_left(self) -> bool:
        """The client has left."""

    async def start(self, status: int, headers: RawHeaders) -> None: ...

    async def send(self, chunk: bytes) -> None: ...

    async def end(self, last: bytes = b"") -> None: ...

    def abort(self) -> None: ...


@dataclass
class HeldReply:
    """A reply that is kept whole: nobody reads it while it comes."""

    status: int = 0
    headers: RawHeaders = field(default_factory=list)
    body: bytes = b""
    was_aborted: bool = False
    client_left: bool = False

    @property
    def started(self) -> bool:
        return self.status != 0

    @property
    def header_values(self) -> dict[str, str]:
        """By name in lower case."""
        return {name.decode("latin-1"): value.decode("latin-1") for name, value in self.headers}

    async def start(self, status: int, headers: RawHeaders) -> None:
        self.status, self.headers = status, headers

    async def send(self, chunk: bytes) -> None:
        self.body += chunk

    async def end(self, last: bytes = b"") -> None:
        self.body += last

    def abort(self) -> None:
        self.was_aborted = True


class AsgiReply:
    """The ASGI connection to a client. The server breaks off a reply that started and did not end."""

    def __init__(self, send: Callable[[MutableMapping[str, Any]], Awaitable[None]]) -> None:
        self._send = send
        self._ended = False
        self.started = False
        self.client_left = False

    async def start(self, status: int, headers: RawHeaders) -> None:
        self.started = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def send(self, chunk: bytes) -> None:
        if not self._ended:
            await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def end(self, last: bytes = b"") -> None:
        if not self._ended:
            self._ended = True
            await self._send({"type": "http.response.body", "body": last, "more_body": False})

    def abort(self) -> None:
        """Send nothing more: the server closes the connection of an unfinished reply."""
        self._ended = True


def cancel_reason(reply: Reply) -> str:
    """Why a request was cancelled that no person stopped."""
    return "client_left" if reply.client_left else "shutdown"


class ClientResponse:
    """One answer in progress. `proxy_headers` returns our headers as known when it is called."""

    def __init__(
        self,
        dialect: Dialect,
        request: Request,
        reply: Reply,
        proxy_headers: Callable[[], RawHeaders],
        *,
        intercept: bool,
    ) -> None:
        self.reply = reply
        self._dialect = dialect
        self._stack_headers = proxy_headers
        self._is_stream = request.stream
        self._is_intercepted = intercept
        references = dialect.references
        self.can_be_named = references is not None and references.is_answer_stored(request)
        """The client may ask for the answer by its id, or go on from it. Its end (the last events of a stream, the last
        piece of a plain answer) waits for `last_bytes`."""
        self._held: list[bytes] = []
        self.end_is_held = False
        """The end of a stream has come and waits: what the client still waits for is in our hands."""
        self._odd: bytearray | None = None
        """What has come of an answer under another label than asked, or compressed; None for any other."""
        self._upstream_answer: Answer | None = None
        self.round_events = 0
        """What has come of a stream in this round."""
        self._keep_alive_task: asyncio.Task[None] | None = None
        self._sent_tail = b""
        """The last bytes of a stream that left."""
        self.writer: ResponseWriter = dialect.new_response_writer(request, intercept=intercept)
        self.writer.tool_meant = partial(tool_meant, request)

    async def begin_round(self, got: Answer) -> None:
        """Take the head of a round's answer; the first one starts the client's stream."""
        codings, kind = codings_of(got.headers), got.header(b"content-type").decode("latin-1")
        wanted = EVENT_STREAM_TYPE if self._is_stream else b"json"
        is_odd = (bool(kind.strip()) and wanted not in kind.lower().encode()) or bool(codings)
        self._upstream_answer, self.round_events = got, 0
        self._odd = bytearray() if is_odd and self._is_intercepted and 200 <= got.status < 300 else None
        if self._odd is None:
            await self._begin_round(got.status, kind, encoded=bool(codings))

    async def _begin_round(self, status: int, kind: str, *, encoded: bool) -> None:
        self.writer.begin_round(status, kind, encoded=encoded)
        # An error passes from its first byte on; an answer without any byte may be none at all.
        passes = self._is_stream or (self.writer.is_error and not self._is_intercepted)
        if not self.reply.started and passes and self._upstream_answer:
            await self._start(self._upstream_answer)

    async def release_odd(self) -> None:
        """Read an answer that came under another label than asked, or compressed, now that all of it is here. One with
        nothing in it that we know passes as it came."""
        odd, self._odd = self._odd, None
        if odd is None or self._upstream_answer is None:
            return
        got, body = self._upstream_answer, bytes(odd)
        codings, kind = codings_of(got.headers), got.header(b"content-type").decode("latin-1")
        try:
            plain = decode_body(body, codings, MAX_ODD_BYTES) if codings else body
            turned = self.writer.in_asked_form(plain, kind, packed=bool(codings))
        except (UnknownCoding, BrokenCoding, DecodedTooLarge):
            turned = None
        if turned is None:
            await self._begin_round(got.status, kind, encoded=bool(codings))
        else:
            asked = EVENT_STREAM_TYPE if self._is_stream else JSON_TYPE
            await self._begin_round(got.status, asked.decode(), encoded=False)
        await self.feed(body if turned is None else turned)

    async def _start(self, got: Answer, *more: tuple[bytes, bytes]) -> None:
        headers = got.headers
        if self._is_intercepted and not self.writer.is_error:
            own = [(name, value) for name, value in headers if name not in _BODY_HEADERS]
            headers = _with_content_type(own, EVENT_STREAM_TYPE if self._is_stream else JSON_TYPE)
        await self.reply.start(got.status, [*headers, *more, *self._stack_headers()])

    async def feed(self, chunk: bytes) -> None:
        """Send what may leave now. A plain answer waits until it is complete, because its headers tell its cost; an
        unmodified one waits for at most `MAX_HELD_BYTES`."""
        self.round_events += chunk.count(b"data:") if self._is_stream else 0
        if self._odd is not None:
            self._odd += chunk
            if len(self._odd) > MAX_ODD_BYTES:
                await self.release_odd()
            return
        out = await self._process_in_slices(chunk) if self._is_stream else self._process_chunk(chunk)
        if not out:
            return
        if not self.reply.started and self.writer.is_error and self._upstream_answer:
            await self._start(self._upstream_answer)
        if self.reply.started:
            is_long = self._is_stream and self.writer.call_count > MANY_CALLS
            out = self._without_held_end(out) if self.can_be_named or is_long else out
            if out:
                await self.reply.send(out)  # which waits, if at all, before it writes
                self._sent_tail = (self._sent_tail + out[-4:])[-4:]
            return
        self._held.append(out)
        if self._upstream_answer and not self._is_intercepted and sum(map(len, self._held)) > MAX_HELD_BYTES:
            await self._start(self._upstream_answer)
            # Of an answer that can be named, the newest piece stays: it may be the end, which waits for the store.
            leaving = len(self._held) - (1 if self.can_be_named else 0)
            held, self._held = self._held[:leaving], self._held[leaving:]
            await self.reply.send(b"".join(held))

    def _without_held_end(self, out: bytes) -> bytes:
        """What of `out`, and of what was held before, may leave now."""
        if not self._is_stream:
            before, self._held = b"".join(self._held), [out]
            return before
        self.end_is_held = self.end_is_held or self.writer.end_has_come
        if not self.end_is_held:
            return out
        self._held.append(out)
        return b""

    async def _process_in_slices(self, chunk: bytes) -> bytes:
        """The bytes to send now. A chunk may hold thousands of events."""
        if len(chunk) <= MAX_FED_BYTES:
            return self._process_chunk(chunk)
        out = []
        for start in range(0, len(chunk), MAX_FED_BYTES):
            out.append(self._process_chunk(chunk[start : start + MAX_FED_BYTES]))
            await asyncio.sleep(0)
        return b"".join(out)

    def _process_chunk(self, chunk: bytes) -> bytes:
        """The bytes to send now. An unmodified answer still passes if our reader fails on it."""
        try:
            return self.writer.feed(chunk)
        except Exception:  # the agent must not notice
            if self._is_intercepted:
                raise
            log.exception("answer could not be read along")
            self.writer.stop_reading()
            return chunk

    def end_round(self, *, complete: bool) -> ModelResponse:
        """The round as the provider produced it, with the client's version where the client can ask for it again."""
        try:
            spoken = self.writer.end_round(complete=complete)
        except Exception:  # a plain answer is read at its end: the agent must not notice that either
            if self._is_intercepted:
                raise
            log.exception("answer could not be read along")
            self.writer.stop_reading()
            spoken = self.writer.end_round(complete=complete)
        whole_answer = self.writer.retrievable_response
        return replace(spoken, extra={**spoken.extra, CLIENT_RESPONSE_KEY: whole_answer}) if whole_answer else spoken

    def last_bytes(self) -> bytes:
        """What was held back of the last round, and the end."""
        return b"".join([*self._held, self.writer.finish()])

    async def end(self, last: bytes) -> None:
        """Send the end; for a plain answer the headers too, with its length."""
        if not self.reply.started and self._upstream_answer is not None:
            ours = self._is_intercepted and not self.writer.is_error
            length = [(b"content-length", str(len(last)).encode())] if ours else []
            await self._start(self._upstream_answer, *length)
        await self.reply.end(last)

    async def send_refusal(self, got: Answer, body: bytes, now: int) -> None:
        """Send the provider's error unchanged; a stream that has begun ends with it in the words of the client's API.
        `now` is in ms since the epoch."""
        if self.reply.started:
            await self._end_failed(read_failure(got.status, _plain(got, body), retry_after_s(got.headers, now, body)))
            return
        await self.reply.start(got.status, [*got.headers, *self._stack_headers()])
        await self.reply.end(body)

    async def send_error(self, error: ProxyError) -> None:
        """Send our own or a transport error. A stream that has begun gets the dialect's error event, or a comment that
        says why, and is broken off."""
        # opencode, Codex, cline, continue and pi send the same body again when a connection breaks; an error in the
        # stream of a chat makes cline, pi and Qwen Code give up (2026-11).
        if self.reply.started and self._is_stream:
            if self.writer.is_finished and (ending := self.writer.finish()):  # it had come before the connection broke
                await self.reply.send(ending)
                self._sent_tail = ending[-4:]
            words = str(error)
            if last := self.writer.closing_error(words) or self._closing_comment(words):
                await self.reply.send(last)
        await send_error_response(self.reply, error, self._stack_headers(), self._dialect)

    def _closing_comment(self, words: str) -> bytes:
        """A comment for people who read what came; clients read none, and ask again where a connection breaks. Nothing
        behind half an event, which it would become a part of, in compressed bytes, or beyond an announced length."""
        got = self._upstream_answer if not self._is_intercepted else None
        is_fixed = got is not None and bool(got.header(b"content-length") or got.header(b"content-encoding"))
        is_amid_event = bool(self._sent_tail) and not self._sent_tail.endswith((b"\n\n", b"\r\n\r\n"))
        if is_fixed or is_amid_event or self.writer.is_error:
            return b""
        return stream_comment(words)

    async def send_failure(self, error: ProxyError) -> None:
        """Send an error of ours for a round that failed as a whole; a stream that has begun ends with it, as its API
        ends one that failed."""
        if self.reply.started:
            await self._end_failed(ProviderFailure(error.status, str(error), {"code": error.code}))
            return
        await send_error_response(self.reply, error, self._stack_headers(), self._dialect)

    async def _end_failed(self, failure: ProviderFailure) -> None:
        """End a stream as its API ends one that failed; where that cannot be said, it is broken off."""
        if end := self.writer.failed_end(failure):
            await self.reply.end(end)
        else:
            self.reply.abort()

    def start_keep_alive(self, every_s: float) -> None:
        """Send a comment every `every_s` seconds while a stream of ours waits."""
        if self._is_stream and self._is_intercepted:
            self._keep_alive_task = asyncio.create_task(self._send_keep_alives(every_s))

    def stop_keep_alive(self) -> None:
        if self._keep_alive_task is not None:
            self._keep_alive_task.cancel()

    async def _send_keep_alives(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            # Before the provider's head came, a comment would make it a 200, and a refusal could not be passed on.
            if self.reply.started and (comment := self.writer.keep_alive()):
                await self.reply.send(comment)


def stopped_error() -> ShuttingDown:
    return ShuttingDown("The proxy was stopped before the answer was whole. Send it again.")


def stream_comment(words: str) -> bytes:
    """A comment of ours behind whole events of a stream."""
    return b": callstack: %b\n\n" % " ".join(words.split()).encode("utf-8", "replace")


async def send_error_response(
    reply: Reply, error: ProxyError, headers: RawHeaders, dialect: Dialect | None = None
) -> None:
    """Send an error in the shape of the client's API; an answer that has begun is broken off instead."""
    if reply.started:
        reply.abort()
        return
    body = (dialect or OPENAI_CHAT).error_body(error.status, str(error), error.code)
    kind = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await reply.start(error.status, [*kind, *_retry_headers(error), *headers])
    await reply.end(body)


def _plain(got: Answer, body: bytes) -> bytes:
    """The body of a refusal, unpacked where it can be."""
    try:
        return decode_body(body, codings_of(got.headers), MAX_ODD_BYTES)
    except (UnknownCoding, BrokenCoding, DecodedTooLarge):
        return b""


def _retry_headers(error: ProxyError) -> RawHeaders:
    """`x-should-retry` is what the SDKs of OpenAI and Anthropic go by: without it they ask three times."""
    if not isinstance(error, RateLimited):
        return []
    headers = [(b"retry-after", str(error.retry_after_s).encode())]
    return [*headers, (b"x-should-retry", b"false")] if isinstance(error, BudgetSpent) else headers


def _with_content_type(headers: RawHeaders, kind: bytes) -> RawHeaders:
    """The headers of an answer that leaves as this kind, however it came."""
    types = [value for name, value in headers if name == b"content-type"]
    if not types or not types[0].strip() or kind in types[0].lower():
        return headers
    return [*(header for header in headers if header[0] != b"content-type"), (b"content-type", kind)]
