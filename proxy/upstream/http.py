"""HTTP to a provider: bytes in, bytes out.

    Upstream, Answer           what every kind of provider is to the rest of the proxy
    HttpUpstream, HttpAnswer   one that is reached at a URL and speaks the client's own dialect

`send` starts a request, and the answer hands out status, headers and body bytes as they arrive. Its law: nothing is
added, decoded, followed or retried once a byte of the answer was seen; a body and its headers leave here as the
provider sent them. Closing an answer closes the provider's connection at once.

aiohttp carries it: httpx2, our first choice, spends 530 us of CPU on one small request (8 at a time) against 86 us of
aiohttp, and the whole budget is 400 us (measured, client-side, PERFORMANCE.md section 3). It stays behind three
methods: `send`, `chunks`, `aclose`. What is used of it are its connections and its parser: with its sessions it
takes 2,875 bytecodes for one small request, without 898.

The address comes from the operator's configuration alone; a redirect is an answer like any other. No parsing of what
passes happens here.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence, Set
from functools import partial
from itertools import chain
from typing import Any, cast
from urllib.parse import quote_from_bytes, urlsplit

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError, RawResponseMessage
from aiohttp.streams import StreamReader
from yarl import URL

from proxy.config import UpstreamSettings
from proxy.core.memo import memoize
from proxy.errors import InvalidConfiguration, UpstreamClosed, UpstreamError, UpstreamTimeout, UpstreamUnreachable

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
"""RFC 9110 section 7.6.1, and the older names of RFC 2616: they belong to one connection, not to the message."""

_NO_HEADERS: Set[bytes] = frozenset()

_POOL_IDLE_S = 30.0
"""Shorter than servers keep an idle connection, so that few requests meet one that has just been closed."""

_READ_BUFFER_BYTES = 2 * 1024
"""Where twice these bytes of an answer wait here we stop reading; that and one read of the socket (250 KiB) is the most
that a slow client's stream can hold: S11 allows 256 KiB."""

_MAX_HEADER_LINE_BYTES = 64 * 1024
"""Bytes of one header of an answer; the library's 8 KiB would turn a long policy header into a failed request."""

_MAX_JOINED_BODY_BYTES = 64 * 1024
"""Bytes of a body that leaves with its head as one write; a longer one is not copied for that."""

_MAX_CACHED_TARGETS = 256
"""Of so many paths, each with its query, is remembered how they are asked for: clients ask at the same ones all day."""

_METHODS_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""What tells no length where it has no body."""

_UNSAFE_IN_HEADER = re.compile(rb"[\r\n\0]")
"""What would end a header before its time."""

_IDEMPOTENT_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""What may be said twice where the first time was lost (RFC 9110 section 9.2.2)."""

SWITCHING_PROTOCOLS = 101
"""The one status below 200 behind which no answer comes."""

_CONNECTION_LOST = (aiohttp.ServerDisconnectedError, aiohttp.ClientConnectionResetError)
_LOST_AFTER_SENDING = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)

_STALE_CONNECTION_S = 0.5
"""By then it has shown that an idle connection had been closed: it takes a round trip, 0.3 s around the earth. What is
lost later may have been lost by a server that had read the request and worked on it."""

MAX_DECOMPRESSED_BYTES = 64 * 1024 * 1024
"""Bytes a compressed body may unpack to; a 1000:1 bomb stops here."""


class Answer(ABC):
    """What a provider answers. Close it, or read it to its end."""

    __slots__ = ("headers", "status")
    status: int
    headers: RawHeaders
    """In order, their names in lower case, less those that belong to one connection."""

    @abstractmethod
    def chunks(self) -> AsyncIterator[bytes]:
        """Body bytes as they arrive. Raises UpstreamClosed or UpstreamTimeout after the last byte that came."""

    @abstractmethod
    async def aclose(self) -> None:
        """End it. A body not read to its end costs the connection: the provider sees the close and stops working."""

    async def body(self) -> bytes:
        """The whole body. Raises as `chunks` does."""
        return b"".join([chunk async for chunk in self.chunks()])

    def header(self, name: bytes) -> bytes:
        """First value of a header, empty where there is none. `name` in lower case."""
        return dict(reversed(self.headers)).get(name, b"")


class Upstream(ABC):
    """One provider. `send` may be called by many tasks at a time."""

    def __init__(self, name: str, settings: UpstreamSettings) -> None:
        self.name = name
        self.settings = settings

    def warm(self) -> None:  # noqa: B027 - most kinds have nothing to begin
        """Begin what takes time before the first request, without waiting for it."""

    @abstractmethod
    async def send(self, method: str, path: str, query: bytes, headers: RawHeaders, body: bytes) -> Answer:
        """Start a request; returns once the answer's headers are here. `path` is raw, as the client wrote it.

        Raises UpstreamUnreachable (no connection), UpstreamTimeout or UpstreamClosed (no answer). Cancelling closes
        the connection.
        """

    async def aclose(self) -> None:  # noqa: B027 - connections of most kinds are the pool's
        """Close what was opened for it alone."""


class HttpAnswer(Answer):
    """An answer as received: undecoded, its headers less the hop-by-hop ones. Its connection goes back to the pool with
    its last byte."""

    __slots__ = ("_connection", "_content", "_upstream")

    def __init__(
        self, message: RawResponseMessage, content: StreamReader, connection: Connection, upstream: str
    ) -> None:
        self.status = message.code
        self.headers = end_to_end_headers(message.raw_headers)
        self._upstream = upstream
        self._content = content
        self._connection: Connection | None = connection
        content.on_eof(self._release_connection)

    async def chunks(self) -> AsyncIterator[bytes]:
        content = self._content
        try:
            while chunk := await content.readany():
                yield chunk
        except aiohttp.ServerTimeoutError as error:
            raise UpstreamTimeout(f"upstream {self._upstream} fell silent in the middle of its answer") from error
        except (aiohttp.ClientError, OSError) as error:
            # The library raises before it hands out what had arrived; a partial answer is kept, so take it first.
            if arrived := b"".join(content._buffer):
                yield arrived
            raise UpstreamClosed(f"upstream {self._upstream} closed the connection before its answer ended") from error
        finally:
            await self.aclose()

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
        if connection.protocol is not None and connection.protocol.writing_paused:
            connection.close()  # the provider has not read all that it was told
        else:
            connection.release()


class HttpUpstream(Upstream):
    """A provider at a URL. All of them share the pool's connections."""

    def __init__(self, name: str, settings: UpstreamSettings, pool: ConnectionPool) -> None:
        super().__init__(name, settings)
        self._pool = pool
        self._base, self._holds_version = _parse_base_url(settings.url)
        self._ssl = _ssl_setting(name, settings)
        self._proxy = URL(settings.proxy) if settings.proxy else None
        self._cached_destination: aiohttp.ClientRequest | None = None
        self._cached_target = memoize(_MAX_CACHED_TARGETS)(self._request_target)
        self._timeouts = aiohttp.ClientTimeout(
            total=None, connect=settings.connect_timeout_s, sock_read=settings.idle_timeout_s
        )

    def url(self, path: str, query: bytes = b"") -> str:
        """Where `path` (raw, as the client wrote it) goes. A base that has its version takes the place of the
        client's `/v1`."""
        if self._holds_version and (path == "/v1" or path.startswith("/v1/")):
            path = path.removeprefix("/v1")
        address = self._base + path
        if query:
            address += "?" + (query.decode() if query.isascii() else quote_from_bytes(query, safe=_PRINTABLE))
        return address

    async def send(self, method: str, path: str, query: bytes, headers: RawHeaders, body: bytes) -> HttpAnswer:
        """`headers` leave as they are: see `upstream.outgoing_headers`."""
        head = self._request_head(method, self._cached_target(path, query), headers, body)
        for attempts_left in (1, 0):
            reused = False
            began = time.monotonic()
            try:
                connection = await self._pool.connect(self._destination, self._timeouts)
                reused = cast(_Connection, connection.protocol).was_used
                return await self._send_on(connection, method, head, body)
            except (aiohttp.ClientError, HttpProcessingError, OSError) as error:
                if not (attempts_left and _may_retry(method, error, time.monotonic() - began, reused=reused)):
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
                read_timeout=self._timeouts.sock_read,
                read_bufsize=_READ_BUFFER_BYTES,
                max_line_size=_MAX_HEADER_LINE_BYTES,
                max_field_size=_MAX_HEADER_LINE_BYTES,
            )
            protocol.write_request(head, body)
            message, content = await protocol.read_answer_head()
            answered = protocol.was_used = True
        finally:
            if not answered:
                connection.close()
        return HttpAnswer(message, content, connection, self.name)

    @property
    def _destination(self) -> aiohttp.ClientRequest:
        """What the library finds a connection by. Made at first use, because it belongs to the running event loop."""
        if self._cached_destination is None:
            loop = asyncio.get_running_loop()
            self._cached_destination = aiohttp.ClientRequest(
                "GET", URL(self._base), loop=loop, proxy=self._proxy, ssl=self._ssl
            )
        return self._cached_destination

    def _request_target(self, path: str, query: bytes) -> tuple[bytes, bytes]:
        """What stands in the first line of a request, and its host: a proxy is told the whole address, where it does
        not only hand on what is encrypted."""
        url = URL(self.url(path, query), encoded=True)
        in_full = self._proxy is not None and url.scheme == "http"
        target = str(url.with_fragment(None)) if in_full else url.raw_path_qs
        return target.encode(), (url.host_port_subcomponent or "").encode()

    @staticmethod
    def _request_head(method: str, target: tuple[bytes, bytes], headers: RawHeaders, body: bytes) -> bytes:
        """The head of a request: no header but those given, its host and its length. Raises ValueError where one would
        end before its time."""
        asked, host = target
        told = [(b"Host", host), *headers]
        if body or method not in _METHODS_WITHOUT_BODY:
            told.append((b"Content-Length", b"%d" % len(body)))
        if _UNSAFE_IN_HEADER.search(b"".join([asked, *chain.from_iterable(told)])):
            raise ValueError("a header holds the end of a line")
        lines = b"".join([b"%b: %b\r\n" % header for header in told])
        if not lines.isascii():
            lines = b"".join([b"%b: %b\r\n" % (_to_utf8(name), _to_utf8(value)) for name, value in told])
        return b"%b %b HTTP/1.1\r\n%b\r\n" % (method.upper().encode(), asked, lines)

    def _upstream_error(self, error: aiohttp.ClientError | HttpProcessingError | OSError) -> UpstreamError:
        """What a failed attempt means for the client. The message names our upstream, never its key or its address."""
        match error:
            case aiohttp.ConnectionTimeoutError():
                seconds = self.settings.connect_timeout_s
                return UpstreamTimeout(f"upstream {self.name} did not accept a connection in {seconds:g} s")
            case TimeoutError():
                return UpstreamTimeout(f"upstream {self.name} sent nothing for {self.settings.idle_timeout_s:g} s")
            case aiohttp.ClientConnectorError():
                return UpstreamUnreachable(f"upstream {self.name} cannot be reached: {_connect_failure_reason(error)}")
            case aiohttp.ClientHttpProxyError():
                return UpstreamUnreachable(f"upstream {self.name}: the proxy in front of it answered {error.status}")
            case aiohttp.ClientResponseError() | HttpProcessingError():
                return UpstreamClosed(f"upstream {self.name} answered something that is not HTTP")
            case _:
                return UpstreamClosed(f"upstream {self.name} closed the connection without an answer")


def _may_retry(method: str, error: Exception, after_s: float, *, reused: bool) -> bool:
    """Whether a request that failed with `error`, `after_s` seconds after it began, may be sent again. A reused
    connection that is lost at once was already being closed by the provider, which read nothing. After any other loss
    the provider may have read the request, so only an idempotent one is sent again."""
    if isinstance(error, _CONNECTION_LOST) and reused and after_s <= _STALE_CONNECTION_S:
        return True
    was_sent = isinstance(error, _LOST_AFTER_SENDING) and not isinstance(error, aiohttp.ClientConnectorError)
    return was_sent and method in _IDEMPOTENT_METHODS


class _Connection(ResponseHandler):
    """A connection that reads no more while much waits. What was read is parsed to its end all the same: it takes no
    more room so, and the library would copy the rest of it with every pause. Its clock is looked at when it strikes;
    the library sets another one with every read.
    """

    was_used = False
    """Whether an earlier request was answered on it."""
    _is_sending = False

    def is_connected(self) -> bool:
        """Whether a request may leave on it. Not where an answer waits that nobody asked for, as some servers send 408
        to who keeps silent: every request after it would be answered with what was meant for the one before."""
        transport = self.transport
        return transport is not None and not transport.is_closing() and not len(self)

    def write_request(self, head: bytes, body: bytes) -> None:
        """Write a request. The provider's silence counts from when all of it is on its way."""
        transport = self.transport
        if transport is None or transport.is_closing():
            raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")
        if len(body) <= _MAX_JOINED_BODY_BYTES:
            transport.write(head + body)
        else:
            transport.write(head)
            transport.write(body)  # Python's own loop forgets to say of `writelines` that it has too much (3.12, 3.13)
        self._is_sending = self.writing_paused
        if not self._is_sending:
            self.start_timeout()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._is_sending:
            self._is_sending = False
            self.start_timeout()

    async def read_answer_head(self) -> tuple[RawResponseMessage, StreamReader]:
        """The head of the answer, and its body to come. Raises HttpProcessingError where the provider changes the
        protocol: nobody asked it to, and a client that is told so too waits for no answer any more."""
        while True:
            message, content = await self.read()
            if message.code == SWITCHING_PROTOCOLS:
                raise HttpProcessingError(code=SWITCHING_PROTOCOLS, message="another protocol that nobody asked for")
            if not 100 <= message.code <= 199:
                return message, content

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002 - the library's signature
        super().resume_reading(resume_parser)
        if self._reading_paused:
            # What was left of the last read has filled the buffer again. The library has started the clock all the
            # same: without this, a client that reads slowly would be taken for a silent provider.
            self._drop_timeout()


class _Connector(aiohttp.TCPConnector):
    """Makes connections of our class. The library has no option for that."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._factory = partial(_Connection, loop=self._loop)  # type: ignore[assignment] # as the base class does


class ConnectionPool:
    """The process's kept connections. Below the library's sessions, which have cookies, redirects and proxies of the
    environment to look for with every request, and make three objects of each; we hand on bytes."""

    def __init__(self) -> None:
        self._connector: _Connector | None = None

    async def connect(self, there: aiohttp.ClientRequest, limits: aiohttp.ClientTimeout) -> Connection:
        """An idle connection to where this request goes, or a new one. Raises aiohttp.ClientError."""
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
    """Headers of an answer, their names in lower case, less those that belong to one connection, and less `x-stack-*`,
    which only we may say."""
    lowered = [(name.lower(), value) for name, value in headers]
    dropped = HOP_BY_HOP | connection_header_names(lowered)
    return [header for header in lowered if header[0] not in dropped and not header[0].startswith(b"x-stack-")]


def connection_header_names(headers: Sequence[tuple[bytes, bytes]]) -> Set[bytes]:
    """Headers that a `connection` header keeps to one connection. Names in lower case, as they are given."""
    if b"connection" not in dict(headers):
        return _NO_HEADERS
    told = [value.lower().split(b",") for name, value in headers if name == b"connection"]
    return {token.strip() for tokens in told for token in tokens}


def decompress(body: bytes, encoding: bytes, limit: int = MAX_DECOMPRESSED_BYTES) -> bytes | None:
    """`body` unpacked from gzip or deflate, for looking into only; None where we cannot, or where it grows beyond
    `limit` bytes."""
    if encoding.strip().lower() not in {b"gzip", b"x-gzip", b"deflate"}:
        return None
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)  # 32: gzip or zlib, by its own header
    try:
        unpacked = unpacker.decompress(body, limit + 1)
    except zlib.error:
        return None
    return unpacked if len(unpacked) <= limit and unpacker.eof else None


_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))


def _parse_base_url(url: str) -> tuple[str, bool]:
    """A base URL without its last slash, and whether a part of its path is a version (`v1`, `v1beta`, `v4`)."""
    base = url.rstrip("/")
    parts = urlsplit(base).path.split("/")
    return base, any(part[:1] == "v" and part[1:2].isdigit() for part in parts)


def _ssl_setting(name: str, settings: UpstreamSettings) -> ssl.SSLContext | bool:
    if not settings.verify:
        return False
    if settings.ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=settings.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise InvalidConfiguration(f"upstreams.{name}.ca_file: {settings.ca_file} cannot be read: {error}") from error


def _connect_failure_reason(error: aiohttp.ClientConnectorError) -> str:
    """Why there is no connection, in the system's own words ("Connection refused")."""
    if isinstance(error, aiohttp.ClientSSLError):
        return f"its certificate or TLS was not accepted ({error.os_error.strerror or error.os_error})"
    number = error.os_error.errno
    return os.strerror(number) if number and number > 0 else str(error.os_error) or type(error.os_error).__name__


def _to_utf8(value: bytes) -> bytes:
    """What is no UTF-8 is taken for Latin-1."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1").encode()
    return value
