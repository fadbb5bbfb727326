"""ASGI middleware that refuses ambiguous and foreign requests on every path, before any route is looked up.

A request that two programs could read differently is answered 400 and its connection closed; a foreign `Host` or
`Origin` 403; too large a body 413; 503 what comes while the bodies that are being read take all room. What the
application refuses before it has read the body is answered here too, and the connection closed. No Python server does
this alone. Each refusal is one line in the log.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, NamedTuple

from proxy.config import Config, is_loopback
from proxy.core.memo import memoize
from proxy.dialects import OPENAI_CHAT, dialect_at
from proxy.errors import (
    BadRequest,
    BudgetSpent,
    BudgetUnknown,
    Forbidden,
    MethodNotAllowed,
    OtherUser,
    Overloaded,
    ProxyError,
    TooLarge,
    Unauthorized,
    UpgradeRefused,
)
from proxy.server.allowed_origins import (
    AllowedOrigins,
    cross_origin_headers,
    is_own_origin,
    is_preflight,
    preflight_headers,
)
from proxy.server.body_room import BodyRoom
from proxy.server.upstream_loop import refuse_loop

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
HeaderMap = Mapping[bytes, bytes]
"""Header values by name. Repeated headers are joined by line breaks, which no value contains."""

MAX_HEADERS = 100
MAX_CACHED_CHECKS = 256
"""Cached results of checks, for paths and for hosts."""

_HOST = re.compile(rb"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
_OWN_HEADER_PREFIX = b"x-stack-"
_OWN_CLIENT_HEADERS = frozenset(
    {b"x-stack-session", b"x-stack-mode", b"x-stack-key", b"x-stack-cache-keep-alive", b"x-stack-slash-commands"}
)
_DASHED_NAMES = frozenset(
    {
        b"api-key",
        b"content-encoding",
        b"content-length",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"sec-fetch-site",
        b"transfer-encoding",
        b"x-api-key",
    }
)
"""Names with a dash that say who may ask, where a body ends, or what a connection is. Some servers read a name with an
underscore as one of them (nginx, CGI, WSGI), so it is refused; any other name with an underscore passes upstream."""
_HEADERS_OF_STATUS: Mapping[int, Headers] = {
    Overloaded.status: [(b"retry-after", b"1")],
    MethodNotAllowed.status: [(b"allow", b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")],
    UpgradeRefused.status: [(b"upgrade", b"HTTP/1.1"), (b"connection", b"upgrade")],
}
"""What RFC 9110 wants beside these statuses (sections 15.5.6 and 15.5.22), and when to come again."""
_UNREAD_ERRORS = (TooLarge, Overloaded, Unauthorized, OtherUser, BudgetSpent, BudgetUnknown)
"""What the application raises while the client may still be sending its body."""
_MANAGEMENT_BODIES_BYTES = 16 * 1024 * 1024
"""Of all bodies to `/stack` and `/console` at one time: whose they are is known only once they are read."""
_DRAIN_S = 2.0
"""A client still sending its body can read the 413 only if we go on reading for a moment."""


class _BodyLimit(NamedTuple):
    size: int
    description: str

    def as_error(self) -> TooLarge:
        return TooLarge(f"The request body is larger than {self.size} bytes, {self.description}. Send less.")


_MANAGEMENT_PREFIXES = ("/stack/", "/console/")
_MANAGEMENT_BODY_LIMIT = _BodyLimit(1024 * 1024, "the most that is read here at once")
"""Far more than the largest plan sent to `/stack`."""

OnRefusal = Callable[[str], object]
"""Called with the reason of every refusal, to count it."""


def log_refusal(reason: str, status: int) -> Headers:
    """Log a refusal and return the headers that name it. `status` is 0 if the connection closed without an answer."""
    request = "r" + secrets.token_hex(10)
    fields = {"id": request, "status": "error", "reason": reason, "client_status": status, "upstream_status": 0}
    log.warning("request", extra={f"stack_{name}": value for name, value in fields.items()})
    return [(b"x-stack-status", f"error; reason={reason}".encode()), (b"x-stack-request-id", request.encode())]


def _ignore_refusal(reason: str) -> None:
    """Counts nothing."""


class RequestGuard:
    """Wraps the application. Passes HTTP requests and lifespan messages, ignores anything else."""

    def __init__(
        self, app: Application, config: Config, refused: OnRefusal = _ignore_refusal, hop: bytes = b""
    ) -> None:
        """`hop` is what our own requests upstream say in `Via`."""
        self._app = app
        self._hop = hop
        self._on_refusal = refused
        self._limit = _BodyLimit(config.body_limit_bytes, "the limit of this proxy (body_limit_bytes)")
        self._room = BodyRoom(max(config.bodies_limit_bytes, config.body_limit_bytes))
        self._management_room = BodyRoom(_MANAGEMENT_BODIES_BYTES)
        self._hosts = {config.host.strip("[]").lower(), *(host.strip("[]") for host in config.allowed_hosts)}
        self._origins = AllowedOrigins(config.allowed_origins)
        self._is_allowed_host_cached = memoize(MAX_CACHED_CHECKS)(self._is_allowed_host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, or refuse it in the API's error shape."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        headers: Headers = scope["headers"]
        is_management = path.startswith(_MANAGEMENT_PREFIXES)
        limit = min(self._limit, _MANAGEMENT_BODY_LIMIT) if is_management else self._limit
        room = self._management_room if is_management else self._room
        by_name = _header_map(headers)
        try:
            _refuse_ambiguous_framing(len(headers), by_name, scope["http_version"])
            if hides := _path_fault(scope["raw_path"]):
                raise BadRequest(hides)
            self._refuse_foreign_requests(by_name, path)
            _refuse_method(scope["method"], by_name)
            if b"via" in by_name:
                refuse_loop(self._hop, by_name[b"via"])
            if int(by_name.get(b"content-length", b"0")) > limit.size:
                raise limit.as_error()
        except ProxyError as error:
            drain = (
                isinstance(error, TooLarge) and b"expect" not in by_name
            )  # who waits for our word sends nothing more
            await self._refuse(error, _LimitedBody(receive, limit, room), path, send, drain=drain)
            return
        scope["headers"] = _without_own_headers(headers, by_name)
        if b"origin" in by_name and not is_own_origin(origin := by_name[b"origin"].strip(), by_name[b"host"].strip()):
            if is_preflight(scope["method"], by_name):
                await _grant_preflight(origin, by_name, send)
                return
            send = _readable_by(origin, send)
        if b"transfer-encoding" in by_name or int(by_name.get(b"content-length", b"0")) > 0:
            drain = b"expect" not in by_name  # who waits for our word would be told to go on
            await self._serve_body(scope, _LimitedBody(receive, limit, room), send, drain=drain)
        else:
            await self._app(scope, receive, send)

    async def _serve_body(self, scope: Scope, body: _LimitedBody, send: Send, *, drain: bool) -> None:
        answer = _ResponseTracker(send)
        try:
            await self._app(scope, body.receive, answer.send)
        except _UNREAD_ERRORS as error:
            if answer.started:
                raise
            body.end()
            await self._refuse(error, body, scope["path"], send, drain=drain or body.is_begun)
        finally:
            body.end()

    async def _refuse(self, error: ProxyError, body: _LimitedBody, path: str, send: Send, *, drain: bool) -> None:
        """Answer completely; with `drain`, read for a moment what the client still sends; then close."""
        self._on_refusal(error.code)
        text = (dialect_at(path) or OPENAI_CHAT).error_body(error.status, str(error), error.code)
        headers = [
            *log_refusal(error.code, error.status),
            (b"content-type", b"application/json"),
            (b"content-length", str(len(text)).encode()),
            (b"connection", b"close"),
            *_HEADERS_OF_STATUS.get(error.status, ()),
        ]
        if isinstance(error, BudgetSpent):
            headers += [(b"retry-after", str(error.retry_after_s).encode()), (b"x-should-retry", b"false")]
        await send({"type": "http.response.start", "status": error.status, "headers": headers})
        await send({"type": "http.response.body", "body": text, "more_body": True})
        if drain:
            await _drain_body(body)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _refuse_foreign_requests(self, headers: HeaderMap, path: str) -> None:
        """Raises Forbidden: a web page in the browser can reach this port, but not with our host name and origin."""
        host = headers.get(b"host", b"").strip()
        if not self._is_allowed_host_cached(host):
            raise _host_error(host)
        origins = _header_values(headers, b"origin")
        for origin in origins:
            if not self._origins.serves(origin, host, path):
                raise _origin_error(origin, path)
        if all(is_own_origin(origin, host) for origin in origins) and b"cross-site" in _header_values(
            headers, b"sec-fetch-site"
        ):
            raise Forbidden("Requests of web pages from another site are not served. Ask from outside of a browser.")

    def _is_allowed_host(self, host: bytes) -> bool:
        name = _host_name(host)
        return name is not None and (is_loopback(name) or name in self._hosts)


def _host_name(host: bytes) -> str | None:
    """Name or address in a `Host` header; None unless there is exactly one."""
    match = _HOST.fullmatch(host)
    return match[1].decode().strip("[]").lower() if match else None


def _host_error(host: bytes) -> ProxyError:
    if (name := _host_name(host)) is None:
        return BadRequest("The request must have exactly one Host header, a name or address with an optional port.")
    return Forbidden(f"The host {name!r} is not one this proxy answers for; the operator can add it to allowed_hosts.")


def _origin_error(origin: bytes, path: str) -> ProxyError:
    if path.startswith(_MANAGEMENT_PREFIXES):
        return Forbidden("Requests of pages from another origin are not served here. Open the console's own page.")
    named = origin.decode("latin-1")[:80]
    return Forbidden(
        f"Requests of web pages from the origin {named!r} are not served; the operator can add it to allowed_origins."
    )


async def _grant_preflight(origin: bytes, headers: HeaderMap, send: Send) -> None:
    granted = preflight_headers(
        origin,
        headers[b"access-control-request-method"],
        headers.get(b"access-control-request-headers", b"").replace(b"\n", b","),
        private_network=b"access-control-request-private-network" in headers,
    )
    await send({"type": "http.response.start", "status": 204, "headers": granted})
    await send({"type": "http.response.body", "body": b""})


def _readable_by(origin: bytes, send: Send) -> Send:
    """Sends answers that a page of `origin` may read."""

    async def send_readable(message: AsgiMessage) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": cross_origin_headers(origin, message.get("headers", []))}
        await send(message)

    return send_readable


def _header_map(headers: Headers) -> HeaderMap:
    once = dict(headers)
    if len(once) == len(headers):
        return once
    several: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        several.setdefault(name, []).append(value)
    return {name: b"\n".join(values) for name, values in several.items()}


def _header_values(headers: HeaderMap, name: bytes) -> list[bytes]:
    return [value.strip() for value in headers[name].split(b"\n")] if name in headers else []


def _refuse_ambiguous_framing(count: int, headers: HeaderMap, http_version: str) -> None:
    """Raises BadRequest if the end of the body, or a header's identity, is in doubt."""
    if http_version not in {"1.0", "1.1"}:
        raise BadRequest("Only HTTP/1.0 and HTTP/1.1 are spoken here. Send the request in one of them.")
    if count > MAX_HEADERS:
        raise BadRequest(f"The request has more than {MAX_HEADERS} headers. Send fewer.")
    if b"_" in b"".join(headers):
        _refuse_look_alike_names(headers)
    length, coding = headers.get(b"content-length"), headers.get(b"transfer-encoding")
    if length is not None and not length.strip().isdigit():
        raise BadRequest("The request has more than one Content-Length, or one that is not a number. Send one.")
    if coding is not None and (length is not None or http_version == "1.0" or coding.strip().lower() != b"chunked"):
        raise BadRequest("Transfer-Encoding must be a single chunked, without Content-Length, on HTTP/1.1.")


def _refuse_look_alike_names(headers: HeaderMap) -> None:
    """Raises BadRequest for a name with an underscore that another program may read as a header that counts here."""
    for name in headers:
        dashed = name.replace(b"_", b"-")
        if dashed != name and (dashed in _DASHED_NAMES or dashed.startswith(_OWN_HEADER_PREFIX)):
            words = f"The header {name.decode('latin-1')!r} looks like {dashed.decode('latin-1')!r} to other programs"
            raise BadRequest(f"{words}, which means something else here. Write it with dashes, or leave it out.")


def _refuse_method(method: str, headers: HeaderMap) -> None:
    """Raises MethodNotAllowed for TRACE, which would send a client's credentials back to whoever asks, and
    UpgradeRefused for the handshake of a web socket: clients go on without one at once."""
    if method == "TRACE":
        raise MethodNotAllowed("TRACE is neither answered nor passed on: it tells credentials. Use another method.")
    if method == "GET" and (b"sec-websocket-key" in headers or is_websocket(headers.items())):
        # Codex's own provider tries a web socket first, and goes to plain HTTP at once only where it reads a 426.
        raise UpgradeRefused("Web sockets are not spoken here. Send the request by plain HTTP to the same path.")


def is_websocket(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a client wants to change to a web socket."""
    return any(name == b"upgrade" and b"websocket" in value.lower() for name, value in headers)


@memoize(MAX_CACHED_CHECKS)
def _path_fault(raw_path: bytes) -> str:
    """Why decoding changes the meaning of a path; empty if it does not."""
    path = raw_path.lower()
    # SDKs in JavaScript escape the slash in a model's name, as in `/v1/models/org%2Fname`.
    before_name, _, _ = path.partition(b"/models/")
    if b"%2f" in before_name or b"%5c" in path or b"\\" in path or b"%00" in path:
        return "The path hides a slash, a backslash or a zero byte. Write it without escapes."
    steps = path.replace(b"%2e", b".").replace(b"%2f", b"/").split(b"/")
    if b".." in steps:
        return "The path climbs up with '..'. Write it without."
    if b"." in steps:
        return "The path has a step '.', which other programs leave out. Write it without."
    return ""


class _LimitedBody:
    """Counts body bytes while they are read, against the limit of one body and the room for all."""

    def __init__(self, receive: Receive, limit: _BodyLimit, room: BodyRoom) -> None:
        self._receive = receive
        self._limit = limit
        self._room = room
        self._read = 0
        self._held = 0
        self.ended = False

    @property
    def is_begun(self) -> bool:
        """Whether the client was asked for its body."""
        return self._read > 0

    async def receive(self) -> AsgiMessage:
        """The next message. Raises TooLarge once the body has passed its limit, and Overloaded where all bodies have
        passed theirs."""
        if self.ended:
            return await self._receive()
        message = await self.next_message()
        if self._read > self._limit.size:
            raise self._limit.as_error()
        size = len(message.get("body", b""))
        self._room.take(size)
        self._held += size
        if self.ended:
            self.end()
        return message

    def end(self) -> None:
        """The body is read, or given up."""
        self._room.give_back(self._held)
        self._held = 0

    async def next_message(self) -> AsgiMessage:
        message = await self._receive()
        self._read += len(message.get("body", b""))
        self.ended = message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message


class _ResponseTracker:
    """Notes whether the answer has started: after that its status cannot change."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    async def send(self, message: AsgiMessage) -> None:
        self.started = True
        await self._send(message)


async def _drain_body(body: _LimitedBody) -> None:
    try:
        async with asyncio.timeout(_DRAIN_S):
            while not body.ended:
                await body.next_message()
    except TimeoutError:
        return


def _without_own_headers(headers: Headers, by_name: HeaderMap) -> Headers:
    """A copy without `x-stack-*` headers that clients may not send; trailers may still extend the server's list."""
    if _OWN_HEADER_PREFIX not in b"\n".join(by_name):
        return headers.copy()
    return [
        header for header in headers if not header[0].startswith(_OWN_HEADER_PREFIX) or header[0] in _OWN_CLIENT_HEADERS
    ]
