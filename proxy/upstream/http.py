"""HTTP to a provider: bytes in, bytes out. `Upstream` and `Answer` are the interface of every kind of provider;
`HttpUpstream` and `HttpAnswer` reach one at a URL that speaks the client's dialect.

Status, headers and body are passed on as received; nothing is retried after the first byte of an answer. aiohttp's
connections and parser are used without its sessions, which take 2,000 of the 20,000 bytecodes of a small request and
add headers. `tests/upstream/test_library_contract.py` names the private parts in use.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence, Set
from functools import partial
from itertools import chain
from typing import Any, TypeVar, cast
from urllib.parse import quote_from_bytes, urlsplit

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.helpers import _EXC_SENTINEL
from aiohttp.http import HttpProcessingError, RawResponseMessage
from aiohttp.streams import StreamReader
from multidict import CIMultiDict
from yarl import URL

from proxy.config import NetworkSettings, UpstreamSettings
from proxy.core.memo import memoize
from proxy.errors import InvalidConfiguration, UpstreamClosed, UpstreamError, UpstreamTimeout, UpstreamUnreachable
from proxy.upstream.network import proxy_for, trusting_context

Arrived = TypeVar("Arrived")
RawHeaders = list[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
    }
    | {b"transfer-encoding", b"upgrade"}
)
"""Headers that belong to one connection (RFC 9110 section 7.6.1, RFC 2616)."""

_NO_HEADERS: Set[bytes] = frozenset()

_POOL_IDLE_S = 30.0
"""Shorter than servers keep idle connections, so that few requests meet one that was just closed."""

_READ_BUFFER_BYTES = 2 * 1024
"""Reading stops when twice this waits here. With one read of the socket (250 KiB) that stays below the 256 KiB that a
slow client's stream may hold."""

_MAX_HEADER_LINE_BYTES = 64 * 1024
"""Most bytes of a header of an answer. The library's 8 KiB is too little for some policy headers."""

_MAX_JOINED_BODY_BYTES = 64 * 1024
"""A body up to this size is written together with its head; a longer one is not worth the copy."""

MAX_REFUSAL_BYTES = 16 << 20
_MAX_FRAMING_BYTES = 64 * 1024
"""Of chunk heads and trailers, beyond what is usual for the body between them."""
_FRAMING_PER_BODY_BYTE = 16
"""A body in chunks of one byte has five."""
_MAX_INTERIM_HEADS = 128
"""Heads that only say to wait, before one answer. Some servers send one every ten seconds."""
_FIRST_PIECE_BYTES = 4 * 1024
_PROGRESS_BYTES = 4 * 1024
"""What an answer gains by this much is progress without the end of a line too."""
_MAX_KEPT_ALIVE = 4
"""An answer goes on for so many times `idle_timeout_s` with keep-alives alone: an hour; queues take ten minutes."""
_KEEP_ALIVE = re.compile(rb"""(?:\s|:[^\r\n]*+|event:\ ?ping|data:\ ?\{"type":\ ?"ping"\})*+""", re.VERBOSE)
"""Comments, white space, and pings as Anthropic sends them."""
_ONE_LOOK_S = 0.05
"""More than the event loop takes to look at its sockets: uvloop may run what is due before."""
_MAX_BUSY_S = 0.002
"""Seconds that an answer which never waits works on before other requests have their turn."""
_PIECE_BYTES = 1 << 20
"""Of a longer body, as much is written at once: a millisecond. 60 MB in one piece hold the event loop for 100 ms."""
_NOTHING = memoryview(b"")

_MAX_CACHED_TARGETS = 256
"""Cached request targets; clients use the same few paths."""

_METHODS_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Methods that need no Content-Length when the body is empty."""

_UNSAFE_IN_HEADER = re.compile(rb"[\r\n\0]")
"""Characters that would end a header line."""

_IDEMPOTENT_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""Methods that may be sent twice (RFC 9110 section 9.2.2)."""

SWITCHING_PROTOCOLS = 101
"""The only 1xx status that no answer follows."""

_CONNECTION_LOST = (aiohttp.ServerDisconnectedError, aiohttp.ClientConnectionResetError)
_RESET_ERRNOS = frozenset({errno.ECONNRESET, errno.EPIPE})
"""How the end of a stale connection shows where it crosses the request."""
_LOST_AFTER_SENDING = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)

_LATE_S = 1.0
"""A connection that failed so long behind its deadline may have come: this process stood still. The library's clock
rounds up to a second."""
_STALE_CONNECTION_S = 0.5
"""A stale idle connection shows within a round trip (0.3 s around the earth). A later loss may be one of a server that
was already working on the request."""


class Answer(ABC):
    """A provider's answer. Close it, or read it to its end."""

    __slots__ = ("headers", "status")
    status: int
    headers: RawHeaders
    """In order, names in lower case, without hop-by-hop headers."""

    @abstractmethod
    def chunks(self) -> AsyncIterator[bytes]:
        """Body bytes as they arrive. Raises UpstreamClosed or UpstreamTimeout after the last byte that came."""

    @abstractmethod
    async def aclose(self) -> None:
        """End the answer. If the body was not read to its end, the connection is closed, so that the provider stops
        working."""

    async def body(self) -> bytes:
        """The whole body, for what is short: a refusal. Raises as `chunks` does, and UpstreamClosed above
        MAX_REFUSAL_BYTES."""
        came = bytearray()
        async for chunk in self.chunks():
            came += chunk
            if len(came) > MAX_REFUSAL_BYTES:
                raise UpstreamClosed("The upstream refused the request with an answer without end. Send it again.")
        return bytes(came)

    def header(self, name: bytes) -> bytes:
        """First value of a header, empty if there is none. `name` in lower case."""
        return dict(reversed(self.headers)).get(name, b"")


class AskedElsewhere(asyncio.CancelledError):
    """Ends a request whose body was taken instead of sent: somebody else asks the provider. It passes through
    everything that a cancellation passes through, and is no failure."""


class Upstream(ABC):
    """One provider. `send` may run many times concurrently."""

    def __init__(self, name: str, settings: UpstreamSettings) -> None:
        self.name = name
        self.settings = settings
        self.rests_until = 0.0
        """Until when it wants to be left alone, as far as it said so; by `time.monotonic`."""

    def warm(self) -> None:  # noqa: B027 - most kinds have nothing to begin
        """Start slow preparations for the first request, without waiting."""

    @abstractmethod
    async def send(self, method: str, path: str, query: bytes, headers: RawHeaders, body: bytes) -> Answer:
        """Start a request; returns when the answer's headers have arrived. `path` is raw, as the client wrote it.
        Raises UpstreamUnreachable (no connection), UpstreamTimeout or UpstreamClosed (no answer). Cancelling closes the
        connection."""

    async def aclose(self) -> None:  # noqa: B027 - connections of most kinds are the pool's
        """Close what this upstream opened for itself."""


async def _within(limit_s: float, arrival: Callable[[], Awaitable[Arrived]]) -> Arrived:
    """What arrives within `limit_s`. Raises TimeoutError if nothing does. Where the deadline comes late, this process
    stood still, and is given the time back: what came meanwhile is read only now."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(limit_s):
            return await arrival()
    except TimeoutError:
        late_s = time.monotonic() - began - limit_s
    async with asyncio.timeout(min(late_s + _ONE_LOOK_S, limit_s)):
        return await arrival()


class HttpAnswer(Answer):
    """An answer as received, without hop-by-hop headers. Its connection returns to the pool with the last byte."""

    def __init__(
        self,
        message: RawResponseMessage,
        content: StreamReader,
        connection: Connection,
        upstream: str,
        idle_timeout_s: float,
    ) -> None:
        self.status = message.code
        self.headers = end_to_end_headers(message.raw_headers)
        self._upstream = upstream
        self._idle_timeout_s = idle_timeout_s
        self._content = content
        self._connection: Connection | None = connection
        named = dict(self.headers)
        kind = named.get(b"content-type", b"").lower()
        self._is_text = (b"json" in kind or b"event-stream" in kind) and b"content-encoding" not in named
        self._waited_s = 0.0
        """Seconds for which the provider was waited for since the last progress."""
        self._unended = 0
        """Bytes that have come since then."""
        self._kept_alive_s = 0.0
        """Seconds for which it was waited for since it last said more than a keep-alive."""
        self._busy_since = time.monotonic()
        content.on_eof(self._release_connection)

    async def chunks(self) -> AsyncIterator[bytes]:
        content = self._content
        try:
            while chunk := await self._read():
                yield chunk
        except TimeoutError as error:
            raise UpstreamTimeout(
                f"upstream {self._upstream} fell silent in the middle of its answer: no whole line of it came for "
                f"{self._idle_timeout_s:g} s (idle_timeout_s), or only keep-alives for {_MAX_KEPT_ALIVE} times that. "
                "Send the request again."
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            # The library raises before it hands out what had arrived; a partial answer is kept, so take it first.
            if arrived := b"".join(content._buffer):
                yield arrived
            if isinstance(error, BrokenFraming):
                did = "broke the framing of its answer (what came is not HTTP)"
            else:
                did = "closed the connection before its answer ended"
            raise UpstreamClosed(f"upstream {self._upstream} {did}. Send the request again.") from error
        finally:
            await self.aclose()

    async def _read(self) -> bytes:
        """The next bytes of the body; empty at its end. Raises TimeoutError after `idle_timeout_s` without progress: a
        byte, and in a text the end of a line, so that a byte now and then does not hold a request for hours; also after
        `_MAX_KEPT_ALIVE` times as long with keep-alives alone. Where bytes wait here, other requests have their turn.
        """
        content, began = self._content, time.monotonic()
        if content.is_eof() or content._buffer:
            if began - self._busy_since > _MAX_BUSY_S:
                await asyncio.sleep(0)
                self._busy_since = time.monotonic()
            chunk = await content.readany()
        else:
            idle_s = self._idle_timeout_s
            limit_s = min(idle_s - self._waited_s, _MAX_KEPT_ALIVE * idle_s - self._kept_alive_s)
            chunk = await _within(limit_s, content.readany)
            self._busy_since = time.monotonic()
            waited_s = self._busy_since - began
            if waited_s < limit_s + _ONE_LOOK_S:  # else this process stood still
                self._waited_s += waited_s
                self._kept_alive_s += waited_s
        self._unended += len(chunk)
        has_line_end = b"\n" in chunk or b"\r" in chunk
        if not self._is_text or self._unended >= _PROGRESS_BYTES or has_line_end or chunk.isspace():
            self._waited_s = self._unended = 0
        if not (self._is_text and _KEEP_ALIVE.fullmatch(chunk)):
            self._kept_alive_s = 0
        return chunk

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            if self._content.exception() is None:
                self._content.set_exception(aiohttp.ClientConnectionError("Connection closed"))
            connection.close()

    def _release_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if connection.protocol is not None and cast(_Connection, connection.protocol).is_sending:
            connection.close()  # the provider has not read all that it was told
        else:
            connection.release()


class HttpUpstream(Upstream):
    """A provider at a URL. All share one connection pool."""

    def __init__(
        self,
        name: str,
        settings: UpstreamSettings,
        pool: ConnectionPool,
        network: NetworkSettings | None = None,
        *,
        via: bytes = b"",
    ) -> None:
        super().__init__(name, settings)
        self._pool = pool
        self._base, self._holds_version = _parse_base_url(settings.url)
        network = network or NetworkSettings()
        self._proxy = proxy_for(settings.url, settings.proxy, network)
        self._is_plain_to_proxy = self._proxy is not None and URL(settings.url).scheme == "http"
        self._own_headers: RawHeaders = [(b"via", via)] if via else []
        if self._proxy and self._is_plain_to_proxy:
            self._own_headers += [(name.encode(), value.encode()) for name, value in self._proxy.headers.items()]
        uses_tls = "https" in (URL(settings.url).scheme, self._proxy.url.scheme if self._proxy else "")
        self._ssl = _ssl_setting(name, settings, network) if uses_tls or settings.ca_file else True
        self._cached_destination: aiohttp.ClientRequest | None = None
        self._cached_target = memoize(_MAX_CACHED_TARGETS)(self._request_target)
        self._timeouts = aiohttp.ClientTimeout(total=None, connect=settings.connect_timeout_s)

    def url(self, path: str, query: bytes = b"") -> str:
        """URL for `path` (raw, as the client wrote it). If the base URL ends in a version, it replaces the client's
        `/v1`."""
        if self._holds_version and (path == "/v1" or path.startswith("/v1/")):
            path = path.removeprefix("/v1")
        address = self._base + path
        if query:
            address += "?" + (query.decode() if query.isascii() else quote_from_bytes(query, safe=_PRINTABLE))
        return address

    async def send(self, method: str, path: str, query: bytes, headers: RawHeaders, body: bytes) -> HttpAnswer:
        """`headers` are sent unchanged, and ours behind them; see `outgoing_headers`."""
        if self._own_headers:
            headers = [*headers, *self._own_headers]
        head = self._request_head(method, self._cached_target(path, query), headers, body)
        connect_s = self.settings.connect_timeout_s
        for attempts_left in (1, 0):
            reused = False
            began = time.monotonic()
            try:
                connection = await self._pool.connect(self._destination, self._timeouts)
                reused = cast(_Connection, connection.protocol).was_used
                return await self._send_on(connection, method, head, body)
            except (aiohttp.ClientError, HttpProcessingError, OSError) as error:
                after_s = time.monotonic() - began
                was_late = isinstance(error, aiohttp.ConnectionTimeoutError) and after_s > connect_s + _LATE_S
                if not (attempts_left and (was_late or _may_retry(method, error, after_s, reused=reused))):
                    raise self._upstream_error(error) from error
        raise AssertionError("the last attempt returns or raises")

    async def _send_on(self, connection: Connection, method: str, head: bytes, body: bytes) -> HttpAnswer:
        answered = False
        try:
            protocol = cast(_Connection, connection.protocol)
            protocol.set_response_params(
                skip_payload=method == "HEAD",
                read_until_eof=True,
                auto_decompress=False,
                read_bufsize=_READ_BUFFER_BYTES,
                max_line_size=_MAX_HEADER_LINE_BYTES,
                max_field_size=_MAX_HEADER_LINE_BYTES,
            )
            protocol.write_request(head, body)
            message, content = await protocol.read_answer_head(self.settings.idle_timeout_s)
            answered = protocol.was_used = True
        finally:
            if not answered:
                connection.close()
        return HttpAnswer(message, content, connection, self.name, self.settings.idle_timeout_s)

    @property
    def _destination(self) -> aiohttp.ClientRequest:
        """The key by which the library pools connections. Made at first use, because it belongs to the running event
        loop."""
        if self._cached_destination is None:
            loop = asyncio.get_running_loop()
            url, proxy = URL(self._base), self._proxy
            for_proxy = None
            if proxy is not None and proxy.headers:
                # The library adds the host with the first connection, and pools by the hash of these headers.
                for_proxy = CIMultiDict({**proxy.headers, "Host": url.host_port_subcomponent or ""})
            self._cached_destination = aiohttp.ClientRequest(
                "GET", url, loop=loop, proxy=proxy.url if proxy else None, proxy_headers=for_proxy, ssl=self._ssl
            )
        return self._cached_destination

    def _request_target(self, path: str, query: bytes) -> tuple[bytes, bytes]:
        """Target of the request line, and the host. A plain-HTTP proxy gets the whole URL."""
        url = URL(self.url(path, query), encoded=True)
        target = str(url.with_fragment(None)) if self._is_plain_to_proxy else url.raw_path_qs
        return target.encode(), (url.host_port_subcomponent or "").encode()

    @staticmethod
    def _request_head(method: str, target: tuple[bytes, bytes], headers: RawHeaders, body: bytes) -> bytes:
        """Request head with the given headers, host and length. Raises ValueError if a header contains a line break."""
        request_target, host = target
        lines_of = [(b"Host", host), *headers]
        if body or method not in _METHODS_WITHOUT_BODY:
            lines_of.append((b"Content-Length", b"%d" % len(body)))
        if _UNSAFE_IN_HEADER.search(b"".join([request_target, *chain.from_iterable(lines_of)])):
            raise ValueError("a header holds the end of a line")
        lines = b"".join([b"%b: %b\r\n" % header for header in lines_of])
        if not lines.isascii():
            lines = b"".join([b"%b: %b\r\n" % (_to_utf8(name), _to_utf8(value)) for name, value in lines_of])
        return b"%b %b HTTP/1.1\r\n%b\r\n" % (method.upper().encode(), request_target, lines)

    def _upstream_error(self, error: aiohttp.ClientError | HttpProcessingError | OSError) -> UpstreamError:
        """The error for the client. It names our upstream, never its key or address."""
        match error:
            case aiohttp.ConnectionTimeoutError():
                seconds = self.settings.connect_timeout_s
                waited = f"upstream {self.name} did not accept a connection in {seconds:g} s (connect_timeout_s)"
                return UpstreamTimeout(f"{waited}. Send the request again, or have the operator look at its url.")
            case TimeoutError():
                silent_s = f"{self.settings.idle_timeout_s:g} s"
                return UpstreamTimeout(
                    f"upstream {self.name} sent nothing for {silent_s} (idle_timeout_s). Send the request again, or "
                    f"raise upstreams.{self.name}.idle_timeout_s if it takes longer."
                )
            case aiohttp.ClientProxyConnectionError():
                reason = _connect_failure_reason(error)
                failed = f"upstream {self.name}: the HTTP proxy to it cannot be reached: {reason}"
                return UpstreamUnreachable(f"{failed}. {_again(self.name, 'proxy')}")
            case aiohttp.ClientConnectorError():
                reason = _connect_failure_reason(error)
                return UpstreamUnreachable(f"upstream {self.name} cannot be reached: {reason}. {_again(self.name)}")
            case aiohttp.ClientHttpProxyError():
                answered = f"upstream {self.name}: the proxy in front of it answered {error.status}"
                return UpstreamUnreachable(f"{answered}. {_again(self.name, 'proxy')}")
            case aiohttp.ClientResponseError() | HttpProcessingError():
                return UpstreamClosed(f"upstream {self.name} answered something that is not HTTP. {_again(self.name)}")
            case _:
                return UpstreamClosed(f"upstream {self.name} closed the connection, and answered nothing. Ask again.")


def _again(upstream: str, setting: str = "url") -> str:
    """What to do about an upstream that is not reached."""
    return f"Send the request again; if that does not help, have the operator look at upstreams.{upstream}.{setting}."


def _may_retry(method: str, error: Exception, after_s: float, *, reused: bool) -> bool:
    """Whether a request that failed with `error`, `after_s` seconds after it began, may be sent again. A reused
    connection that is lost at once was already being closed by the provider, which read nothing. After any other loss
    the provider may have read the request, so only an idempotent one is sent again."""
    is_lost = isinstance(error, _CONNECTION_LOST) or (isinstance(error, OSError) and error.errno in _RESET_ERRNOS)
    if is_lost and reused and after_s <= _STALE_CONNECTION_S:
        return True
    was_sent = isinstance(error, _LOST_AFTER_SENDING) and not isinstance(error, aiohttp.ClientConnectorError)
    return was_sent and method in _IDEMPOTENT_METHODS


class BrokenFraming(aiohttp.ClientPayloadError):
    """A body whose framing is not HTTP's."""


class _Connection(ResponseHandler):
    """A connection that refuses unrequested answers. The library's own read timeout is off: behind a pause of this
    process it may fire before what came meanwhile is read."""

    was_used = False
    """Whether an earlier request was answered on it."""
    _unwritten = _NOTHING
    """The rest of the request, which the transport has not got yet."""
    _open_body: StreamReader | None = None
    """The body that is being read."""
    _uncounted = _framing = _body_bytes = 0
    """Bytes received that the parser may still hold; those received beside the body; those of the body."""

    def data_received(self, data: bytes) -> None:
        """Break off heads without end, and a body whose framing grows without it: a chunk's head, or trailers."""
        body = self._open_body
        if body is None:  # in two pieces: a read may hold thousands of heads, which take the parser 0.3 s
            super().data_received(data[:_FIRST_PIECE_BYTES])
            if len(self) > _MAX_INTERIM_HEADS:
                self._break_off()
            elif len(data) > _FIRST_PIECE_BYTES:
                super().data_received(data[_FIRST_PIECE_BYTES:])
            return
        super().data_received(data)
        self._uncounted += len(data)
        if self._reading_paused:
            return  # the parser holds the rest of it
        gained, self._body_bytes = body.total_bytes - self._body_bytes, body.total_bytes
        self._framing = max(0, self._framing + self._uncounted - gained * (1 + _FRAMING_PER_BODY_BYTE))
        self._uncounted = 0
        if self._framing > _MAX_FRAMING_BYTES:
            self._break_off()

    def _break_off(self) -> None:
        if self.transport is not None:
            self.transport.close()
            self.set_exception(HttpProcessingError())

    def is_connected(self) -> bool:
        """Whether a request may be sent. False also if an unrequested answer waits (some servers send 408 when idle),
        because every later request would get the answer of the one before."""
        transport = self.transport
        return transport is not None and not transport.is_closing() and not len(self)

    def write_request(self, head: bytes, body: bytes) -> None:
        """Write a request."""
        transport = self.transport
        if transport is None or transport.is_closing():
            raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")
        self._open_body = None  # of the answer before, which has ended
        if len(body) <= _MAX_JOINED_BODY_BYTES:
            transport.write(head + body)
        else:
            # Python's own loop forgets to say of "writelines" that it has too much (3.12, 3.13).
            transport.write(head)
            self._unwritten = memoryview(body)
        self._write_on()

    def _write_on(self) -> None:
        """Write the next piece of the request, if the provider takes it: a transport would copy all that is left."""
        transport = self.transport
        if transport is None or transport.is_closing():
            self._unwritten = _NOTHING
            return
        if self._unwritten and not self.writing_paused:
            piece, self._unwritten = self._unwritten[:_PIECE_BYTES], self._unwritten[_PIECE_BYTES:]
            transport.write(piece)
            if self._unwritten and not self.writing_paused:
                asyncio.get_running_loop().call_soon(self._write_on)

    @property
    def is_sending(self) -> bool:
        """Whether the provider has not taken all of the request."""
        return bool(self._unwritten) or self.writing_paused

    def close(self) -> None:
        """Close at once where bytes wait to be read by the provider: a transport waits for it, if need be for ever."""
        if self._unsent_bytes:
            self.abort()
        else:
            super().close()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._write_on()

    def set_exception(self, exc: BaseException, exc_cause: BaseException = _EXC_SENTINEL) -> None:
        """Fail the answer that is being read too: where the parser fails in the middle of a body, the library tells
        only who waits for the next answer, and forgets the body, so that its reader would wait for ever."""
        body, self._open_body = self._open_body, None
        if body is not None and not body.is_eof() and body.exception() is None:
            body.set_exception(BrokenFraming() if isinstance(exc, HttpProcessingError) else exc, exc)
        super().set_exception(exc, exc_cause)

    async def read_answer_head(self, idle_timeout_s: float) -> tuple[RawResponseMessage, StreamReader]:
        """Head of the answer, and its body to come. Raises TimeoutError if for `idle_timeout_s` none came and nothing
        of the request left, or for as long behind a first head that only says to wait, and HttpProcessingError if there
        are many of those, or the provider switches protocols: nobody asked for it, and a client would wait for ever."""
        message, content = await self._read_head(idle_timeout_s)
        if 100 <= message.code <= 199:  # in one deadline, or further ones would make it last for ever
            message, content = await _within(
                idle_timeout_s, partial(self._read_last_head, message.code, idle_timeout_s)
            )
        self._open_body, self._body_bytes = content, content.total_bytes
        self._uncounted = self._framing = 0
        return message, content

    async def _read_last_head(self, code: int, idle_timeout_s: float) -> tuple[RawResponseMessage, StreamReader]:
        for _ in range(_MAX_INTERIM_HEADS):
            if code == SWITCHING_PROTOCOLS:
                break
            message, content = await self._read_head(idle_timeout_s)
            if not 100 <= (code := message.code) <= 199:
                return message, content
        raise HttpProcessingError(message="a protocol that nobody asked for, or heads without end")

    async def _read_head(self, idle_timeout_s: float) -> tuple[RawResponseMessage, StreamReader]:
        while True:
            unsent = self._unsent_bytes
            try:
                return await _within(idle_timeout_s, self.read)
            except TimeoutError:
                # A long request may take its time to leave; a provider that stops reading is as silent as any.
                if self._unsent_bytes >= unsent:
                    raise

    @property
    def _unsent_bytes(self) -> int:
        if self.transport is None:
            return 0
        return len(self._unwritten) + self.transport.get_write_buffer_size()


class _Connector(aiohttp.TCPConnector):
    """Makes connections of our class. The library has no option for that."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._factory = partial(_Connection, loop=self._loop)  # type: ignore[assignment] # as the base class does


class ConnectionPool:
    """The process's idle connections to providers."""

    def __init__(self) -> None:
        self._connector: _Connector | None = None

    async def connect(self, there: aiohttp.ClientRequest, limits: aiohttp.ClientTimeout) -> Connection:
        """An idle connection to the destination, or a new one. Raises aiohttp.ClientError."""
        if self._connector is None:  # at first use, because it belongs to the running event loop
            self._connector = _Connector(limit=0, keepalive_timeout=_POOL_IDLE_S)
        try:
            return await self._connector.connect(there, [], limits)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError from error

    async def aclose(self) -> None:
        """Close every connection, also those in use."""
        if self._connector is not None:
            await self._connector.close()
            self._connector = None


def end_to_end_headers(headers: Sequence[tuple[bytes, bytes]]) -> RawHeaders:
    """Headers of an answer, names in lower case, without hop-by-hop headers and `x-stack-*`, which only this proxy may
    send."""
    lowered = [(name.lower(), value) for name, value in headers]
    dropped = HOP_BY_HOP | connection_header_names(lowered)
    return [header for header in lowered if header[0] not in dropped and not header[0].startswith(b"x-stack-")]


def connection_header_names(headers: Sequence[tuple[bytes, bytes]]) -> Set[bytes]:
    """Names that a `connection` header lists, in lower case."""
    if b"connection" not in dict(headers):
        return _NO_HEADERS
    values = [value.lower().split(b",") for name, value in headers if name == b"connection"]
    return {token.strip() for tokens in values for token in tokens}


_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))


def _parse_base_url(url: str) -> tuple[str, bool]:
    """A base URL without its last slash, and whether its path contains a version (`v1`, `v1beta`, `v4`)."""
    base = url.rstrip("/")
    parts = urlsplit(base).path.split("/")
    return base, any(part[:1] == "v" and part[1:2].isdigit() for part in parts)


def _ssl_setting(name: str, settings: UpstreamSettings, network: NetworkSettings) -> ssl.SSLContext | bool:
    if not settings.verify:
        return False
    if settings.ca_file is None:
        return trusting_context(network.ca_files)
    try:
        return ssl.create_default_context(cafile=settings.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise InvalidConfiguration(f"upstreams.{name}.ca_file: {settings.ca_file} cannot be read: {error}") from error


def _connect_failure_reason(error: aiohttp.ClientConnectorError) -> str:
    """Why there is no connection, in the system's words ("Connection refused")."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        reason = getattr(error.certificate_error, "verify_message", "") or str(error.certificate_error)
        return (
            f"its certificate is not trusted ({reason}); name the file of your authority's certificate in "
            "network.ca_files, SSL_CERT_FILE or NODE_EXTRA_CA_CERTS"
        )
    if isinstance(error, aiohttp.ClientSSLError):
        return f"its certificate or TLS was not accepted ({error.os_error.strerror or error.os_error})"
    number = error.os_error.errno
    if number and number > 0:
        return os.strerror(number)
    return error.os_error.strerror or str(error.os_error) or type(error.os_error).__name__  # a name that is not known


def _to_utf8(value: bytes) -> bytes:
    """Anything that is not UTF-8 counts as Latin-1."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1").encode()
    return value
