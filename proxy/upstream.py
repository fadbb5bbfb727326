"""The provider: bytes in, bytes out.

`Routes.choose` says which configured upstream serves a model, `Upstream.send` starts a request there, and the `Answer`
hands out status, headers and body bytes as they arrive. Its law: nothing is added, decoded, followed or retried once a
byte of the answer was seen; a body and its headers leave here as the provider sent them. Closing an `Answer` closes
the provider's connection at once.

aiohttp carries it: httpx2, our first choice, spends 530 us of CPU on one small request (8 at a time) against 86 us of
aiohttp, and the whole budget is 400 us (measured, client-side, PERFORMANCE.md section 3). It stays behind three
methods: `send`, `chunks`, `aclose`.

The address comes from the operator's configuration alone; a redirect is an answer like any other. No parsing of what
passes happens here.
"""

from __future__ import annotations

import os
import ssl
import zlib
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import SimpleNamespace
from urllib.parse import quote_from_bytes, urlsplit

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload
from multidict import CIMultiDict
from yarl import URL

from proxy.config import Config, UpstreamSettings
from proxy.errors import (
    InvalidConfiguration,
    ProxyError,
    UpstreamClosed,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from proxy.tenancy import holds_client_key

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

_OURS = HOP_BY_HOP | {b"host", b"content-length", b"expect", b"cookie"}
"""Not passed upstream: framing is made anew, and a cookie set by one origin has no business at another."""

_CREDENTIALS = frozenset({b"authorization", b"x-api-key", b"api-key"})

_NEVER_ADDED = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")

_POOL_IDLE_S = 30.0
"""Shorter than servers keep an idle connection, so that few requests meet one that has just been closed."""

_READ_AHEAD = 2 * 1024
"""Bytes of an answer that may wait here before we stop reading; twice that and one read of the socket (250 KiB) is the
most that a slow client's stream can hold: S11 allows 256 KiB."""

_HEADER_LINE = 64 * 1024
"""Bytes of one header of an answer; the library's 8 KiB would turn a long policy header into a failed request."""

_LOST = (aiohttp.ServerDisconnectedError, aiohttp.ClientConnectionResetError, ConnectionError)

DECODED_LIMIT = 64 * 1024 * 1024
"""Bytes a compressed body may unpack to; a 1000:1 bomb stops here."""


class UnknownModel(ProxyError):
    """No configured upstream serves the model; answered in the API's own shape, never guessed."""

    status = 404
    code = "model_not_found"


@dataclass(slots=True)
class Answer:
    """What the provider answers: `headers` as received, in order, less the hop-by-hop ones. Close it, or read it to
    its end."""

    status: int
    headers: RawHeaders
    _response: aiohttp.ClientResponse = field(repr=False)
    _upstream: str = ""

    async def chunks(self) -> AsyncIterator[bytes]:
        """Body bytes as they arrive, undecoded. Raises UpstreamClosed or UpstreamTimeout after the last byte that
        came."""
        content = self._response.content
        try:
            while chunk := await content.readany():
                yield chunk
        except aiohttp.ServerTimeoutError as error:
            raise UpstreamTimeout(f"upstream {self._upstream} fell silent in the middle of its answer") from error
        except (aiohttp.ClientError, OSError) as error:
            # The library raises before it hands out what had arrived; a partial answer is kept, so take it first.
            if arrived := content._read_nowait(-1):
                yield arrived
            raise UpstreamClosed(f"upstream {self._upstream} closed the connection before its answer ended") from error
        finally:
            self._response.close()  # no effect on an answer read to its end: its connection is back in the pool

    async def body(self) -> bytes:
        """The whole body, undecoded. Raises as `chunks` does."""
        return b"".join([chunk async for chunk in self.chunks()])

    def header(self, name: bytes) -> bytes:
        """First value of a header, empty where there is none. `name` in lower case."""
        return next((value for key, value in self.headers if key.lower() == name), b"")

    async def aclose(self) -> None:
        """End it. A body not read to its end costs the connection: the provider sees the close and stops working."""
        self._response.close()


class Upstream:
    """One provider. `send` may be called by many tasks at a time; all share the pool's connections."""

    def __init__(self, name: str, settings: UpstreamSettings, pool: Pool) -> None:
        self.name = name
        self.settings = settings
        self._pool = pool
        self._base, self._holds_version = _base_of(settings.url)
        self._ssl = _trust(name, settings)
        self._timeout = aiohttp.ClientTimeout(
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

    async def send(self, method: str, path: str, query: bytes, headers: RawHeaders, body: bytes) -> Answer:
        """Start a request; returns once the answer's headers are here. `headers` leave as they are: see
        `outgoing_headers`.

        Raises UpstreamUnreachable (no connection), UpstreamTimeout or UpstreamClosed (no answer). Cancelling closes
        the connection.
        """
        for attempts_left in (1, 0):
            trace = SimpleNamespace(reused=False)
            try:
                return await self._attempt(method, self.url(path, query), headers, body, trace)
            except (aiohttp.ClientError, OSError) as error:
                # An idle connection that the provider was just closing: it read nothing of this, so say it once more.
                # Any other loss may have been read, and must not be.
                if not (attempts_left and trace.reused and isinstance(error, _LOST)):
                    raise self._refusal(error) from error
        raise AssertionError("the last attempt returns or raises")

    async def _attempt(
        self, method: str, address: str, headers: RawHeaders, body: bytes, trace: SimpleNamespace
    ) -> Answer:
        response = await self._pool.session.request(
            method,
            URL(address, encoded=True),
            data=_Body(body) if body else None,
            headers=CIMultiDict((_text(name), _text(value)) for name, value in headers),
            skip_auto_headers=_NEVER_ADDED,
            allow_redirects=False,
            proxy=self.settings.proxy,
            ssl=self._ssl,
            timeout=self._timeout,
            trace_request_ctx=trace,
        )
        return Answer(response.status, end_to_end(response.raw_headers), response, self.name)

    def _refusal(self, error: aiohttp.ClientError | OSError) -> UpstreamError:
        """What a failed attempt means for the client. The message names our upstream, never its key or its address."""
        match error:
            case aiohttp.ConnectionTimeoutError():
                seconds = self.settings.connect_timeout_s
                return UpstreamTimeout(f"upstream {self.name} did not accept a connection in {seconds:g} s")
            case TimeoutError():
                return UpstreamTimeout(f"upstream {self.name} sent nothing for {self.settings.idle_timeout_s:g} s")
            case aiohttp.ClientConnectorError():
                return UpstreamUnreachable(f"upstream {self.name} cannot be reached: {_reason(error)}")
            case aiohttp.ClientHttpProxyError():
                return UpstreamUnreachable(f"upstream {self.name}: the proxy in front of it answered {error.status}")
            case aiohttp.ClientResponseError():
                return UpstreamClosed(f"upstream {self.name} answered something that is not HTTP")
            case _:
                return UpstreamClosed(f"upstream {self.name} closed the connection without an answer")


class Pool:
    """The process's one client session: kept connections, no cookies, no redirects, no proxies from the environment."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    @property
    def session(self) -> aiohttp.ClientSession:
        """Made at first use, because it belongs to the running event loop."""
        if self._session is None:
            reuse = aiohttp.TraceConfig()
            reuse.on_connection_reuseconn.append(_note_reuse)
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_POOL_IDLE_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                read_bufsize=_READ_AHEAD,
                max_line_size=_HEADER_LINE,
                max_field_size=_HEADER_LINE,
                trace_configs=[reuse],
            )
        return self._session

    async def aclose(self) -> None:
        """Close every connection, also those in use."""
        if self._session is not None:
            await self._session.close()
            self._session = None


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request goes, and the model name to send there."""

    upstream: Upstream
    model: str


class Routes:
    """Which upstream serves which model. Nothing a client sends can name an address; it can only name a model."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._pool = Pool()
        self.upstreams = {name: Upstream(name, settings, self._pool) for name, settings in config.upstreams.items()}

    def choose(self, model: str | None) -> Route:
        """By the model's own entry, then an upstream's alias, name, glob, then the default. None: a request without a
        model.

        Raises UnknownModel where nothing fits.
        """
        if model is None:
            return Route(self._fallback() or self._first(), "")
        exception = self._config.for_model(model)
        wanted = exception.alias or model
        if exception.upstream is not None:
            upstream: Upstream | None = self.upstreams[exception.upstream]
        else:
            upstream = self._named(wanted) or self._fallback()
        if upstream is None:
            served = ", ".join(sorted(self._served())) or "none: start with --upstream URL"
            raise UnknownModel(f"The model {model!r} is not served by any configured upstream. Served: {served}")
        return Route(upstream, upstream.settings.aliases.get(wanted, wanted))

    async def aclose(self) -> None:
        """Close all connections to all upstreams."""
        await self._pool.aclose()

    def _named(self, model: str) -> Upstream | None:
        upstreams = self.upstreams.values()
        fitting = (
            one for serves in (_by_alias, _by_name, _by_glob) for one in upstreams if serves(one.settings, model)
        )
        return next(fitting, None)

    def _fallback(self) -> Upstream | None:
        """`default`, else the first upstream that lists no models."""
        return self.upstreams.get("default") or next(
            (up for up in self.upstreams.values() if not up.settings.models), None
        )

    def _first(self) -> Upstream:
        first = next(iter(self.upstreams.values()), None)
        if first is not None:
            return first
        raise UnknownModel("No upstream is configured: start with --upstream URL")

    def _served(self) -> set[str]:
        settings = [upstream.settings for upstream in self.upstreams.values()]
        return {name for one in settings for name in (*one.models, *one.aliases)}


def _by_alias(settings: UpstreamSettings, model: str) -> bool:
    return model in settings.aliases


def _by_name(settings: UpstreamSettings, model: str) -> bool:
    return model in settings.models


def _by_glob(settings: UpstreamSettings, model: str) -> bool:
    return any(fnmatchcase(model, glob) for glob in settings.models)


def outgoing_headers(
    client: Iterable[tuple[bytes, bytes]], settings: UpstreamSettings, *, readable: bool
) -> RawHeaders:
    """The client's headers as they go upstream, in order.

    Left out: what belongs to the connection, cookies, everything named `x-stack-*`, and client keys of ours. The
    operator's key
    replaces the client's credentials. `readable` asks for an uncompressed answer, for us to look into; otherwise the
    client's own wish
    passes.
    """
    client = list(client)
    dropped = _OURS | _named_by_connection(client)
    if settings.key is not None:
        dropped |= _CREDENTIALS
    if readable:
        dropped |= {b"accept-encoding"}
    headers = [
        (name, value)
        for name, value in client
        if name.lower() not in dropped and not name.lower().startswith(b"x-stack-") and not holds_client_key(value)
    ]
    if readable:
        headers.append((b"accept-encoding", b"identity"))
    if settings.key is not None:
        secret = settings.key.get_secret_value()
        shown = f"Bearer {secret}" if settings.key_header == "authorization" else secret
        headers.append((settings.key_header.encode(), shown.encode()))
    return headers


def end_to_end(headers: Sequence[tuple[bytes, bytes]]) -> RawHeaders:
    """Headers of an answer less those that belong to one connection, and less `x-stack-*`, which only we may say."""
    dropped = HOP_BY_HOP | _named_by_connection(headers)
    lowered = [(name.lower(), name, value) for name, value in headers]
    return [(name, value) for low, name, value in lowered if low not in dropped and not low.startswith(b"x-stack-")]


def _named_by_connection(headers: Iterable[tuple[bytes, bytes]]) -> set[bytes]:
    named: set[bytes] = set()
    for name, value in headers:
        if name.lower() == b"connection":
            named.update(token.strip().lower() for token in value.split(b","))
    return named


def decoded(body: bytes, encoding: bytes, limit: int = DECODED_LIMIT) -> bytes | None:
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


class _Body(Payload):
    """Bytes of any size, written as they are; the library's own bytes payload warns above 1 MiB."""

    def __init__(self, value: bytes) -> None:
        super().__init__(value)
        self._size = len(value)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return bytes(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        await writer.write(self._value)


_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))


def _base_of(url: str) -> tuple[str, bool]:
    """A base URL without its last slash, and whether a part of its path is a version (`v1`, `v1beta`, `v4`)."""
    base = url.rstrip("/")
    parts = urlsplit(base).path.split("/")
    return base, any(part[:1] == "v" and part[1:2].isdigit() for part in parts)


def _trust(name: str, settings: UpstreamSettings) -> ssl.SSLContext | bool:
    if not settings.verify:
        return False
    if settings.ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=settings.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise InvalidConfiguration(f"upstreams.{name}.ca_file: {settings.ca_file} cannot be read: {error}") from error


def _reason(error: aiohttp.ClientConnectorError) -> str:
    """Why there is no connection, in the system's own words ("Connection refused")."""
    if isinstance(error, aiohttp.ClientSSLError):
        return f"its certificate or TLS was not accepted ({error.os_error.strerror or error.os_error})"
    number = error.os_error.errno
    return os.strerror(number) if number and number > 0 else str(error.os_error) or type(error.os_error).__name__


def _text(value: bytes) -> str:
    """The text that the library turns back into these bytes (it writes UTF-8)."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")


async def _note_reuse(
    _session: aiohttp.ClientSession, context: SimpleNamespace, _params: aiohttp.TraceConnectionReuseconnParams
) -> None:
    context.trace_request_ctx.reused = True
