"""Runs the application on a socket with uvicorn, and adds deadlines to its connections: `header_deadline_s` for
headers, `body_deadline_s` for each 4 KiB of a body, and one for clients that do not read (`unread_answers`). Headers
beyond 64 KiB are refused, trailers dropped.

SIGTERM, SIGHUP, SIGUSR1 and Ctrl-C drain: running answers get `drain_s` seconds, then the exit status is 0; a second
Ctrl-C ends at once. `tests/server/test_library_contract.py` names the private parts of uvicorn in use.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import logging
import re
import signal
import socket
from asyncio.events import TimerHandle
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from types import FrameType
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import uvicorn
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn._types import ASGISendEvent, HTTPResponseBodyEvent
from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from proxy.config import Config
from proxy.dialects import OPENAI_CHAT, dialect_at
from proxy.errors import InvalidConfiguration, ProxyError, TooLarge
from proxy.server.guard import Application, Headers, OnRefusal, is_websocket, log_refusal
from proxy.server.unread_answers import DRAIN_LIMIT_S, UnreadAnswer, unread_limit_s
from proxy.server.upstream_loop import refuse_own_upstreams

MAX_HEADER_BYTES = 64 * 1024
_HEADERS_TOO_LARGE = (431, "headers_too_large", f"The headers are larger than {MAX_HEADER_BYTES} bytes. Send less.")
_FRAMING_TOO_LARGE = (
    400,
    "bad_request",
    "The body's chunk extensions and trailers are too large. Send it without them.",
)
_MAX_UNFINISHED_HEADER_BYTES = 2 * 1024 * 1024
"""Bytes of all headers that have begun and are not whole, on all connections. Honest ones come with one read."""
_SMALL_HEADER_BYTES = 1024
"""Of one connection, which is read in any case."""
_TOO_MANY_HEADERS = (503, "overloaded", "Too many requests have begun and not sent their headers. Send it again.")
_TOO_LARGE = "The request body is larger than {} bytes, the limit of this proxy (body_limit_bytes). Send less."
_CHUNK_HEAD = re.compile(rb"([0-9a-fA-F]+).*\r\n")
_BODY_TOO_LATE = (408, "body_late", "The request body did not arrive in time (body_deadline_s). Send it again.")
_FRAMING_PER_BODY_BYTE = 16
"""A body in chunks of one byte has five."""
_DISCARD_S = 2.0
"""How long what comes is thrown away behind a refusal."""
_MIN_BODY_PROGRESS_BYTES = 4 * 1024
"""Bytes that a body must gain within each deadline, so that a byte now and then does not hold a connection."""

OTHER_USER_KEY = "callstack.other_user"
"""In the scope of a request, where its connection is of another user of this machine."""
_BACKLOG = 2048

_MAX_WRITE_BYTES = 64 * 1024
"""Bytes of an answer that are written at once. The library waits for a slow client between two writes alone."""

_MAX_UNSENT_BYTES = 64 * 1024
"""Bytes of an answer that the system holds for a client before it has sent them. What is under way to the client is not
counted, so a distant one is not slowed down."""

GC_THRESHOLDS = (20_000, 20, 50)
"""Thresholds of the three generations; Python's are (700, 10, 10)."""

for _status in range(1000):
    # Some providers answer with a status that HTTP does not know. The library would fail on it.
    STATUS_LINE.setdefault(_status, b"HTTP/1.1 %03d \r\n" % _status)

_STATUSES_WITHOUT_BODY = frozenset({204, 304})
"""Statuses of answers without a body, whatever their headers say (RFC 9110 section 8.6)."""

_KEEP_ALIVE_S = 75
"""Longer than clients keep idle connections, so that the clients close them."""


class ServerHooks(NamedTuple):
    """What is called: `ready` with the base URL once requests are answered, `draining` when the drain begins, `refused`
    with the reason of each refused request."""

    ready: Callable[[str], None]
    draining: Callable[[], None] = lambda: None
    refused: OnRefusal = lambda reason: None


def serve(app: Application, config: Config, hooks: ServerHooks, listener: socket.socket | None = None) -> None:
    """Serve until a signal, on `listener` or a socket of its own. Raises InvalidConfiguration if the address cannot be
    bound."""
    listener = listener or bind(config.host, config.port)
    with listener:
        refuse_own_upstreams(config, listener)
        settings = uvicorn.Config(
            app,
            http=_protocol_class(config, hooks.refused),
            loop="auto",  # uvloop where it exists
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=config.drain_s,
        )
        server = _Server(settings, lambda: hooks.ready(base_url(listener)), hooks.draining)
        logging.getLogger("uvicorn.error").addFilter(server.should_log)
        with _more_signals_drain(server):
            server.run(sockets=[listener])


def bind(host: str, port: int) -> socket.socket:
    """A bound socket. Raises InvalidConfiguration with what to do about it."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InvalidConfiguration(f"host: {host!r} is not an address of this machine: {error.strerror}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _bound_unsent_bytes(listener)
        listener.bind(address)
        listener.listen(_BACKLOG)  # now, so that two starting at once cannot both believe the port is theirs
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            reason = f"port: {port} on {host} is in use; stop the program that has it, or choose another with --port"
        elif error.errno == errno.EACCES:
            reason = f"port: {port} needs rights this user does not have; choose one above 1023 with --port"
        else:
            reason = f"host: cannot listen on {host}:{port}: {error.strerror}"
        raise InvalidConfiguration(reason) from None
    return listener


def _bound_unsent_bytes(listener: socket.socket) -> None:
    """Connections inherit this. Without it the system takes on megabytes for a client that reads slowly, so we would
    read the provider's answer that far ahead."""
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _MAX_UNSENT_BYTES)


def base_url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], draining: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready
        self._draining = draining

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        _tune_runtime()
        if self.started:
            self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # The library would raise the signal again when all is done; a drained server has ended well: exit status 0.
        self.force_exit = self.should_exit and sig == signal.SIGINT
        if not self.should_exit:
            self._draining()
        self.should_exit = True

    def should_log(self, record: logging.LogRecord) -> bool:
        """Whether a log line of the library is news: requests cut off by the shutdown have lines of their own."""
        error = record.exc_info[1] if record.exc_info else None
        if self.should_exit and isinstance(error, asyncio.CancelledError):
            return False
        return record.getMessage() not in _IGNORED_LOG_MESSAGES


@contextmanager
def _more_signals_drain(server: _Server) -> Iterator[None]:
    """A closed terminal (SIGHUP) and SIGUSR1, by which some supervisors ask for a graceful stop, drain as SIGTERM does;
    under `nohup`, where the first is ignored, it stays so."""
    before = {each: signal.getsignal(each) for each in (signal.SIGHUP, signal.SIGUSR1)}
    taken = {each: handler for each, handler in before.items() if handler != signal.SIG_IGN}
    for each in taken:
        signal.signal(each, server.handle_exit)
    try:
        yield
    finally:
        for each, handler in taken.items():
            signal.signal(each, handler)


class _ResponseCycle(RequestResponseCycle):
    """Corrects answers that the library would refuse: drops forbidden headers, lets a 204 or 304 announce a length, and
    does not chunk an answer to HTTP/1.0."""

    _ends_with_connection = False
    unread: UnreadAnswer

    async def send(self, message: ASGISendEvent) -> None:
        if message["type"] == "http.response.start" and not self.response_started:
            given = message.get("headers", [])  # for a forbidden one the library would send no answer at all
            headers = [(n, value) for n, value in given if not (HEADER_RE.search(n) or HEADER_VALUE_RE.search(value))]
            if self.scope["http_version"] == "1.0":
                self._ends_with_connection = all(name.lower() != b"content-length" for name, _ in headers)
            if self._ends_with_connection or message["status"] in _STATUSES_WITHOUT_BODY:
                self.chunked_encoding = False  # also: a length among the headers is not compared with what is sent
            await super().send({**message, "headers": headers})
            return
        if message["type"] == "http.response.body":
            body = message.get("body", b"")
            last = max(0, len(body) - 1) // _MAX_WRITE_BYTES * _MAX_WRITE_BYTES
            for at in range(0, last, _MAX_WRITE_BYTES):  # each waits until the client has read most of those before
                await self._send_body({**message, "body": body[at : at + _MAX_WRITE_BYTES], "more_body": True})
            await self._send_body({**message, "body": body[last:]})
            return
        await super().send(message)

    async def _send_body(self, message: HTTPResponseBodyEvent) -> None:
        if self._ends_with_connection:
            self.expected_content_length = len(message["body"])
        await super().send(message)
        if not self.disconnected:
            self.unread.wrote(len(message["body"]))


_IGNORED_LOG_MESSAGES = ("ASGI callable returned without completing response.",)
"""Logged for answers that we break off because their upstream did. Our own line has an id."""


def _tune_runtime() -> None:
    """Collect garbage less often and freeze long-lived objects: a full collection stalled every stream for 168 ms."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


class _RequestRefused(Exception):
    """Raised in a parser callback to stop the parser."""


def _protocol_class(config: Config, refused: OnRefusal) -> type[HttpToolsProtocol]:
    """The connection class with the deadlines of `config`; `refused` counts refusals."""
    limit_s = unread_limit_s(config)

    class Deadlines(_ClientConnection):
        header_deadline_s = config.header_deadline_s
        body_deadline_s = config.body_deadline_s
        body_limit_bytes = config.body_limit_bytes
        unread_limit_s = limit_s

        def told(self, reason: str, status: int) -> Headers:
            refused(reason)
            return log_refusal(reason, status)

        def refuses_unread(self, target: bytes, headers: Headers) -> ProxyError | None:
            return self.app.refuses_unread(target, headers) if isinstance(self.app, AdmittingApplication) else None

    return Deadlines


@runtime_checkable
class AdmittingApplication(Protocol):
    """An application that can refuse a request before its body is read."""

    def refuses_unread(self, target: bytes, headers: Headers) -> ProxyError | None:
        """`target` is the path with its query, `headers` have names in lower case."""

    def is_other_user(self, client: tuple[str, int] | None, server: tuple[str, int | None] | None) -> bool:
        """Whether a connection is of somebody for whom no key of ours may be spent."""


def _chunk_size(data: bytes, after: int) -> int:
    """The size that the head of a chunk tells, which stands in `data` before the last `after` bytes; 0 where its
    beginning came with an earlier read."""
    end = len(data) - after
    begin = data.rfind(b"\n", 0, max(0, end - 2)) + 1
    head = _CHUNK_HEAD.fullmatch(data, begin, end) if begin else None
    return int(head[1], 16) if head else 0


class _ClientConnection(HttpToolsProtocol):
    header_deadline_s: float
    body_deadline_s: float
    body_limit_bytes: int
    unread_limit_s: float
    unfinished_headers: ClassVar[list[int]] = [0]
    """Bytes of headers that are not whole, of all connections."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._header_clock: TimerHandle | None = None
        self._body_clock: TimerHandle | None = None
        self._in_headers = self._in_body = False
        self._wants_upgrade = False
        """Whether the request being read asks for another protocol."""
        self._received = b""
        """The data being parsed; where a head has begun and is not whole, also what came of it before."""
        self._line_from = 0
        """Where in it the next request line is looked for."""
        self._is_rewritten = False
        """Whether the head being parsed is one of ours."""
        self._header_bytes = 0
        self._held_bytes = 0
        """Of `_received`, as counted in `unfinished_headers`."""
        self._body_bytes = 0
        self._body_pieces: list[bytes] = []
        """Of the data being parsed."""
        self._open_chunk: int | None = None
        """Bytes that came of a chunk that began with this read and is not whole."""
        self._framing_bytes = 0
        """Received beside a body, beyond what is usual: of the heads of chunks, or of trailers."""
        self._unread_error: ProxyError | None = None
        """Why the request is refused whose headers have just come."""
        self._is_other_user: bool | None = None
        """Whose connection this is; None until its first request."""
        self._discards = False
        """Whether the connection is refused, and what still comes is thrown away."""
        self._refusal = (400, "bad_request", "The request is not valid HTTP/1.1. Send it as RFC 9112 says.")

    def told(self, reason: str, status: int) -> Headers:
        """Log and count a refusal; returns headers for its answer. Implemented by `_protocol_class`."""
        raise NotImplementedError

    def refuses_unread(self, target: bytes, headers: Headers) -> ProxyError | None:
        """Why a request is refused by its headers alone, or None. Implemented by `_protocol_class`."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as the base class does
        super().connection_made(transport)
        self._unread = UnreadAnswer(self.loop, transport, self.unread_limit_s)
        self._header_clock = self.loop.call_later(self.header_deadline_s, self._on_headers_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self.unfinished_headers[0] -= self._held_bytes
        self._held_bytes = 0
        self._received = b""
        self._stop_header_clock()
        self._stop_body_clock()
        self._unread.stop()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The process drains."""
        super().shutdown()
        self._unread.hurry(DRAIN_LIMIT_S)

    def data_received(self, data: bytes) -> None:
        if self._discards:
            return
        if self._in_headers:
            # One endless header reaches no callback, so it is counted here: from the second read of the socket on, as
            # the first may hold the end of another request.
            self._header_bytes += len(data)
        elif self._in_body:
            self._framing_bytes += len(data)
        self._unset_keepalive_if_required()
        self._received = self._received + data if self._received else data
        self._open_chunk = None
        try:
            self._parse(memoryview(data))
            self._take_body()
        except HttpParserError:
            self.send_400_response("")
        self._received = self._received[self._line_from :] if self._in_headers else b""
        self._line_from = 0
        if self._in_headers and self._header_bytes > MAX_HEADER_BYTES and not self.transport.is_closing():
            self._refusal = _HEADERS_TOO_LARGE
            self.send_400_response("")
        elif self._in_body and self._framing_bytes > MAX_HEADER_BYTES:  # the parser joins a trailer anew with each read
            self._refusal = _FRAMING_TOO_LARGE
            self.send_400_response("")
        elif self._open_chunk is not None and _chunk_size(data, self._open_chunk) > self.body_limit_bytes:
            self._refusal = (413, TooLarge.code, _TOO_LARGE.format(self.body_limit_bytes))
            self.send_400_response("")
        if self._in_headers or self._held_bytes:
            self._count_unfinished_header()
        self._start_clocks()

    def _count_unfinished_header(self) -> None:
        """Refuses this one where all of them take too much, so that connections that say nothing cannot fill the
        memory."""
        size = 0 if self.transport.is_closing() else len(self._received)
        self.unfinished_headers[0] += size - self._held_bytes
        self._held_bytes = size
        if size > _SMALL_HEADER_BYTES and self.unfinished_headers[0] > _MAX_UNFINISHED_HEADER_BYTES:
            self._refusal = _TOO_MANY_HEADERS
            self.send_400_response("")

    def _parse(self, data: memoryview) -> None:
        """Ignore a request to change the protocol, as Java's client sends first: a server may decline by answering. The
        parser would take the body for data of the other protocol, so the head is parsed again without it. The handshake
        of a web socket stays visible to the guard, which refuses it: there `connection` goes, and what follows."""
        while True:
            try:
                self.parser.feed_data(data)
            except HttpParserUpgrade as other:
                data = data[other.args[0] :]
                request_line = b"%b %b HTTP/%b" % (
                    self.parser.get_method(),
                    self.url,
                    self.parser.get_http_version().encode(),
                )
                leaves_http = self.parser.get_method() == b"GET" and is_websocket(self.headers)
                left_out = b"connection" if leaves_http else b"upgrade"
                headers = [b"%b: %b" % header for header in self.headers if header[0] != left_out]
                self.parser = HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as the library has it
                self._wants_upgrade = False
                self._is_rewritten = True
                self.parser.feed_data(b"\r\n".join([request_line, *headers, b"", b""]))
                self._is_rewritten = False
                if leaves_http:
                    return
            else:
                return

    def _start_clocks(self) -> None:
        """A request that arrives with one read, as nearly all do, needs no timer."""
        if self._in_headers and self._header_clock is None:
            self._header_clock = self.loop.call_later(self.header_deadline_s, self._on_headers_late)
        if self._in_body and self._body_clock is None:
            self._body_clock = self.loop.call_later(self.body_deadline_s, self._check_body_progress)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_headers = True
        self._header_bytes = 0

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._stop_header_clock()
        self._check_request_line()
        if not self.url.startswith(b"/"):
            self._refusal = (400, "bad_request", "The request target must be a path, such as /v1/models.")
            raise _RequestRefused
        if len(self.url) + sum(map(len, chain.from_iterable(self.headers))) + 4 * len(self.headers) > MAX_HEADER_BYTES:
            self._refusal = _HEADERS_TOO_LARGE
            raise _RequestRefused
        self._unread_error = self.refuses_unread(self.url, self.headers)
        if self._unread_error is not None:
            raise _RequestRefused
        self._wants_upgrade = self.parser.should_upgrade()
        if self._wants_upgrade:
            return
        if self._is_other_user is None:
            asked = self.app if isinstance(self.app, AdmittingApplication) else None
            self._is_other_user = asked is not None and asked.is_other_user(self.client, self.server)
        if self._is_other_user:
            self.scope[OTHER_USER_KEY] = True  # type: ignore[literal-required] # ours
        if self.parser.get_http_version() == "1.0":  # RFC 9110, 10.1.1
            self.expect_100_continue = False
        super().on_headers_complete()
        self.headers = deque(maxlen=0)  # type: ignore[assignment] # of what comes now, which are trailers, nothing stays
        # The library has no seam for this; the cycle has not begun to run yet.
        self.cycle.__class__ = _ResponseCycle
        self.cycle.unread = self._unread  # type: ignore[attr-defined] # of the class that it has now
        self._in_body, self._body_bytes, self._framing_bytes = True, 0, 0

    def _check_request_line(self) -> None:
        """Refuses more than one space between the words of a request line, of which the parser says nothing."""
        if self._is_rewritten:
            return
        line = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        at = self._received.find(line, self._line_from)
        if at < 0:
            self._refusal = (
                400,
                "bad_request",
                "The request line must be: method, one space, path, one space, HTTP/1.1.",
            )
            raise _RequestRefused
        self._line_from = at + len(line)

    def on_chunk_header(self) -> None:
        self._open_chunk = 0

    def on_body(self, body: bytes) -> None:
        self._body_pieces.append(body)
        if self._open_chunk is not None:
            self._open_chunk += len(body)

    def on_chunk_complete(self) -> None:
        self._open_chunk = None

    def _take_body(self) -> None:
        """Hand on what came of a body, at once: the library copies all that waits with each chunk, and a read may have
        40,000 of them."""
        if self._body_pieces:
            body = b"".join(self._body_pieces)
            self._body_pieces.clear()
            self._framing_bytes = max(0, self._framing_bytes - len(body) * (1 + _FRAMING_PER_BODY_BYTE))
            self._body_bytes += len(body)
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._wants_upgrade:
            return
        self._take_body()
        self._in_body = False
        self._stop_body_clock()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Overrides the library's plain text with the API's error shape and our status."""
        if self.transport.is_closing() or self._discards:
            return
        if self._is_answering():
            # The request in front of it is being answered, and has its line: a second answer would land inside it.
            self.transport.close()
            return
        if self._unread_error is not None:
            self._answer_unread(self._unread_error)
            return
        status, code, message = self._refusal
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
        text = json.dumps({"error": error}).encode()
        headers = [*self.told(code, status), (b"content-type", b"application/json"), (b"connection", b"close")]
        head = STATUS_LINE[status] + b"".join(name + b": " + value + b"\r\n" for name, value in headers)
        self._end_with(head + f"content-length: {len(text)}\r\n\r\n".encode() + text)

    def _answer_unread(self, error: ProxyError) -> None:
        """Refuse a request of which only the headers are read."""
        spoken = dialect_at(self.url.partition(b"?")[0].decode("latin-1")) or OPENAI_CHAT
        text = spoken.error_body(error.status, str(error), error.code)
        told = [*self.told(error.code, error.status), (b"content-type", b"application/json"), (b"connection", b"close")]
        head = STATUS_LINE[error.status] + b"".join(name + b": " + value + b"\r\n" for name, value in told)
        self._end_with(head + f"content-length: {len(text)}\r\n\r\n".encode() + text)

    def _end_with(self, answer: bytes) -> None:
        """End the connection with a refusal. A client that is still sending can read it only if we take what comes for
        a moment. Nothing else is kept until then: there may be a thousand of them."""
        self.transport.write(answer)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(_DISCARD_S, self.transport.close)
        self._discards = True
        self.unfinished_headers[0] -= self._held_bytes
        self._held_bytes = 0
        self._received = b""
        self.headers = []
        self.parser = HttpRequestParser(self)
        self._in_headers = self._in_body = False
        self._stop_header_clock()
        self._stop_body_clock()
        if not getattr(self.cycle, "response_complete", True):  # whoever reads the body, or answers
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.flow.resume_reading()

    def _is_answering(self) -> bool:
        started = getattr(self.cycle, "response_started", False)  # the library has None here before the first request
        return bool(started) and not self.cycle.response_complete

    def _on_headers_late(self) -> None:
        """Log only if the client had begun a request; an idle connection is not one."""
        self._header_clock = None
        if self._in_headers:
            self.told("headers_late", 0)
        self.transport.close()

    def _check_body_progress(self) -> None:
        # Where we stopped reading, because the application is slower than the network, the client is not to blame.
        if self._body_bytes >= _MIN_BODY_PROGRESS_BYTES or self.flow.read_paused:
            self._body_bytes = 0
            self._body_clock = self.loop.call_later(self.body_deadline_s, self._check_body_progress)
            return
        self._body_clock = None
        if self.cycle.response_started:
            self.transport.close()
        else:
            self._refusal = _BODY_TOO_LATE
            self.send_400_response("")

    def _stop_header_clock(self) -> None:
        if self._header_clock is not None:
            self._header_clock.cancel()
            self._header_clock = None

    def _stop_body_clock(self) -> None:
        if self._body_clock is not None:
            self._body_clock.cancel()
            self._body_clock = None
