"""The first thing a request meets: one pure ASGI guard that lets in what is unambiguous and ours.

Its law: a request that two programs could read differently is not read at all. It is answered 400 and its connection
is closed; what is well formed but not for us (a foreign `Host` or `Origin`) is answered 403, what is too large 413. It
fails closed, on every path, before any route is looked up, so a new route cannot escape it. Each refusal is one line in
the log (`tell_refusal`), also those of `server`, which judges before there is a request.

No Python server does this alone (RELIABILITY section 1: duplicate `Host`, `Transfer-Encoding: identity, chunked`,
`%2e%2e%2f` and underscore names all get through). What stands before a request, its bytes and its clock, is `server`.

It knows nothing about keys, tenants, models or what a body says.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, NamedTuple

from proxy.config.model import Config, is_loopback
from proxy.core.memo import remembered
from proxy.dialects import OPENAI_CHAT, dialect_at
from proxy.errors import BadRequest, Forbidden, ProxyError, TooLarge

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
Told = Mapping[bytes, bytes]
"""The values of headers by their name, where one is told more than once a line each, in order: no value holds a line's
end."""

MAX_HEADERS = 100
JUDGED = 256
"""Of so many paths, and names of hosts, is remembered what was found: clients ask at the same ones all day."""

_HOST = re.compile(rb"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
_OURS = b"x-stack-"
_READ_FROM_CLIENTS = frozenset({b"x-stack-session", b"x-stack-mode", b"x-stack-key"})
_DRAIN_S = 2.0
"""A client still sending a body that is too large reads its 413 only if we go on reading for a moment."""


class _Limit(NamedTuple):
    """Bytes of a body, and whose limit that is."""

    size: int
    words: str

    def passed(self) -> TooLarge:
        return TooLarge(f"The request body is larger than {self.size} bytes, {self.words}.")


_MANAGED = "/stack/"
_MANAGED_LIMIT = _Limit(1024 * 1024, "the most that is read on /stack; send less at once")
"""Far more than the largest plan there, far less than a context."""

Refused = Callable[[str], object]
"""Is told the reason of every refusal, to count it."""


def tell_refusal(reason: str, status: int) -> Headers:
    """The one line in the log about a request that got no further than the door (O3), and the headers that name it to
    the client. `status` is 0 where the connection was closed without an answer."""
    request = "r" + secrets.token_hex(10)
    told = {"id": request, "status": "error", "reason": reason, "client_status": status, "upstream_status": 0}
    log.warning("request", extra={f"stack_{name}": value for name, value in told.items()})
    return [(b"x-stack-status", f"error; reason={reason}".encode()), (b"x-stack-request-id", request.encode())]


def _uncounted(reason: str) -> None:
    """Nobody counts."""


class Edge:
    """Wraps the application. Lifespan messages pass; anything but HTTP is not served here."""

    def __init__(self, app: Application, config: Config, refused: Refused = _uncounted) -> None:
        self._app = app
        self._refused = refused
        self._limit = _Limit(config.body_limit_bytes, "the limit of this proxy (body_limit_bytes)")
        self._hosts = {config.host.strip("[]").lower(), *(host.strip("[]") for host in config.allowed_hosts)}
        self._is_ours = remembered(JUDGED)(self._answers_for)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, or refuse in the API's own error shape."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        headers: Headers = scope["headers"]
        limit = min(self._limit, _MANAGED_LIMIT) if path.startswith(_MANAGED) else self._limit
        told = _by_name(headers)
        try:
            _refuse_ambiguous_framing(len(headers), told, scope["http_version"])
            _refuse_hidden_path(scope["raw_path"])
            self._refuse_strangers(told)
            _refuse_announced_size(told, limit)
        except ProxyError as error:
            drain = isinstance(error, TooLarge) and b"expect" not in told  # who waits for our word sends nothing more
            await self._refuse(error, _LimitedBody(receive, limit), path, send, drain=drain)
            return
        scope["headers"] = _less_results(headers, told)
        if b"transfer-encoding" in told:
            await self._counted(scope, _LimitedBody(receive, limit), send)
        else:  # its size is announced, and no more is read
            await self._app(scope, receive, send)

    async def _counted(self, scope: Scope, body: _LimitedBody, send: Send) -> None:
        """Serve a request that announces no size."""
        answer = _Answering(send)
        try:
            await self._app(scope, body.receive, answer.send)
        except TooLarge as error:
            if answer.started:
                raise
            await self._refuse(error, body, scope["path"], send, drain=True)

    async def _refuse(self, error: ProxyError, body: _LimitedBody, path: str, send: Send, *, drain: bool) -> None:
        """Answer and close. Whole answer first; then, with `drain`, a moment of reading what the client still sends."""
        self._refused(error.code)
        text = (dialect_at(path) or OPENAI_CHAT).error_body(error.status, str(error), error.code)
        headers = [
            *tell_refusal(error.code, error.status),
            (b"content-type", b"application/json"),
            (b"content-length", str(len(text)).encode()),
            (b"connection", b"close"),
        ]
        await send({"type": "http.response.start", "status": error.status, "headers": headers})
        await send({"type": "http.response.body", "body": text, "more_body": True})
        if drain:
            await _drain(body)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _refuse_strangers(self, told: Told) -> None:
        """T2: a page in the user's browser may reach this port, but not under our name and not as us."""
        host = told.get(b"host", b"").strip()
        if not self._is_ours(host):
            raise _stranger(host)
        for origin in _values(told, b"origin"):
            if origin.lower() not in (b"http://" + host.lower(), b"https://" + host.lower()):
                raise Forbidden("Requests of web pages from another origin are not served.")
        if b"cross-site" in _values(told, b"sec-fetch-site"):
            raise Forbidden("Requests of web pages from another site are not served.")

    def _answers_for(self, host: bytes) -> bool:
        name = _name_in(host)
        return name is not None and (is_loopback(name) or name in self._hosts)


def _name_in(host: bytes) -> str | None:
    """The name or address that a `Host` header holds; None where it holds none, or more."""
    match = _HOST.fullmatch(host)
    return match[1].decode().strip("[]").lower() if match else None


def _stranger(host: bytes) -> ProxyError:
    """Why a request with this `Host` is not served."""
    if (name := _name_in(host)) is None:
        return BadRequest("The request must have exactly one Host header, a name or address with an optional port.")
    return Forbidden(f"The host {name!r} is not one this proxy answers for; the operator can add it to allowed_hosts.")


def _refuse_announced_size(told: Told, limit: _Limit) -> None:
    if int(told.get(b"content-length", b"0")) > limit.size:
        raise limit.passed()


def _by_name(headers: Headers) -> Told:
    once = dict(headers)
    if len(once) == len(headers):
        return once
    several: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        several.setdefault(name, []).append(value)
    return {name: b"\n".join(values) for name, values in several.items()}


def _values(told: Told, name: bytes) -> list[bytes]:
    return [value.strip() for value in told[name].split(b"\n")] if name in told else []


def _refuse_ambiguous_framing(count: int, told: Told, http_version: str) -> None:
    """Where this request's body ends must be beyond doubt, and which of its `count` headers is which. Raises
    BadRequest."""
    if http_version not in {"1.0", "1.1"}:
        raise BadRequest("Only HTTP/1.0 and HTTP/1.1 are spoken here.")
    if count > MAX_HEADERS:
        raise BadRequest(f"More than {MAX_HEADERS} headers.")
    if b"_" in b"".join(told):
        raise BadRequest("Header names with an underscore are not accepted: others read them as a dash.")
    length, coding = told.get(b"content-length"), told.get(b"transfer-encoding")
    if length is not None and not length.strip().isdigit():
        raise BadRequest("More than one Content-Length, or one that is not a number.")
    if coding is not None and (length is not None or http_version == "1.0" or coding.strip().lower() != b"chunked"):
        raise BadRequest("Transfer-Encoding must be a single chunked, without Content-Length, on HTTP/1.1.")


def _refuse_hidden_path(raw_path: bytes) -> None:
    """A path must mean before decoding what it means after. Raises BadRequest."""
    if hides := _hidden_in(raw_path):
        raise BadRequest(hides)


@remembered(JUDGED)
def _hidden_in(raw_path: bytes) -> str:
    """Why a path means something else after decoding; empty where it does not."""
    path = raw_path.lower()
    if b"%2f" in path or b"%5c" in path or b"\\" in path or b"%00" in path:
        return "The path hides a slash, a backslash or a zero byte."
    if b".." in path.replace(b"%2e", b".").split(b"/"):
        return "The path climbs up with '..'."
    return ""


class _LimitedBody:
    """Counts body bytes while they are read: a chunked body announces no size."""

    def __init__(self, receive: Receive, limit: _Limit) -> None:
        self._receive = receive
        self._limit = limit
        self._read = 0
        self.ended = False

    async def receive(self) -> Message:
        """The next message. Raises TooLarge once the body has passed the limit."""
        message = await self.next()
        if self._read > self._limit.size:
            raise self._limit.passed()
        return message

    async def next(self) -> Message:
        """The next message, whatever the size."""
        message = await self._receive()
        self._read += len(message.get("body", b""))
        self.ended = message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message


class _Answering:
    """Knows whether the answer has started: from then on its status cannot change."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    async def send(self, message: Message) -> None:
        self.started = True
        await self._send(message)


async def _drain(body: _LimitedBody) -> None:
    try:
        async with asyncio.timeout(_DRAIN_S):
            while not body.ended:
                await body.next()
    except TimeoutError:
        return


def _less_results(headers: Headers, told: Told) -> Headers:
    """The headers less the `x-stack-*` that only we may say; what a client may say of these is a short list. A copy:
    the server's list may still grow by trailers."""
    if _OURS not in b"\n".join(told):
        return headers.copy()
    return [header for header in headers if not header[0].startswith(_OURS) or header[0] in _READ_FROM_CLIENTS]
