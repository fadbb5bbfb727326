"""The provider on a socket: connections in, planned deliveries out, every break a real one.

`Server` reads requests, asks `respond` what to say, writes it, and notes when a peer leaves before its answer is
complete. Nothing is buffered here: a write that is planned as one piece is one `send`, and a break is made only when
all bytes before it have left.

Its one law: whoever leaves is noticed at once, also while the script is silent. A peer that shuts down its sending
half counts as gone.

The little of HTTP/1.1 a provider needs, on asyncio streams, with nothing between the script and the socket.

Reads requests (fixed or chunked bodies, trailers, `Expect: 100-continue`) and writes response heads and chunks. A
server library would put right what this one must get wrong on purpose. Not a server for the open network: its limits
are generous and it trusts who calls.
"""

from __future__ import annotations

import asyncio
import json
import math
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import unquote

from llm_test_provider.answer import FixedReply, Headers, error_body
from llm_test_provider.delivery import Delivery
from llm_test_provider.model import fixed
from llm_test_provider.script import ReceivedRequest

HEAD_LIMIT = 1024 * 1024
BODY_LIMIT = 256 * 1024 * 1024


class MalformedRequest(Exception):
    """What arrived is not a request this provider reads."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request as it arrived. Header names as sent, in order; `path` is decoded, `target` is not."""

    method: str
    target: str
    version: str
    headers: Headers
    body: bytes = b""
    trailers: Headers = ()

    @property
    def path(self) -> str:
        return unquote(self.target.partition("?")[0])

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]

    def header(self, name: str) -> str:
        """The first value of a header, whatever its case; empty where it is absent."""
        return next((value for key, value in self.headers if key.lower() == name), "")

    @property
    def keeps_alive(self) -> bool:
        wish = self.header("connection").lower()
        return wish == "keep-alive" if self.version == "HTTP/1.0" else wish != "close"


class WatchedReader(asyncio.StreamReader):
    """A reader that tells when the peer has stopped sending, without anybody reading."""

    def __init__(self) -> None:
        super().__init__(limit=HEAD_LIMIT)
        self.ended = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.ended.set()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self.ended.set()


async def read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> HttpRequest | None:
    """The next request, or `None` where the peer closed between two. Raises MalformedRequest, ConnectionError."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise MalformedRequest("the connection ended inside a request head") from error
        return None
    except asyncio.LimitOverrunError as error:
        raise MalformedRequest("the request head is too long") from error
    request = _parsed_head(head)
    if request.header("expect").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await writer.drain()
    try:
        return await _with_body(request, reader)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
        raise MalformedRequest("the request body is broken") from error


def _parsed_head(head: bytes) -> HttpRequest:
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    try:
        method, target, version = first.split(" ")
    except ValueError as error:
        raise MalformedRequest(f"not a request line: {first[:80]!r}") from error
    return HttpRequest(method, target, version, tuple(_header(line) for line in lines))


def _header(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name, value.strip()


async def _with_body(request: HttpRequest, reader: asyncio.StreamReader) -> HttpRequest:
    parts = (request.method, request.target, request.version, request.headers)
    if "chunked" in request.header("transfer-encoding").lower():
        body, trailers = await _read_chunked(reader)
        return HttpRequest(*parts, body, trailers)
    length = int(request.header("content-length") or 0)
    if not 0 <= length <= BODY_LIMIT:
        raise MalformedRequest("the request body is too long")
    return HttpRequest(*parts, await reader.readexactly(length))


async def _read_chunked(reader: asyncio.StreamReader) -> tuple[bytes, Headers]:
    body = bytearray()
    while True:
        size = int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16)
        if size == 0:
            break
        if len(body) + size > BODY_LIMIT:
            raise MalformedRequest("the request body is too long")
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    trailers: list[tuple[str, str]] = []
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
        trailers.append(_header(line.decode("latin-1").rstrip("\r\n")))
    return bytes(body), tuple(trailers)


def response_head(status: int, headers: Headers) -> bytes:
    known = status in HTTPStatus.__members__.values()
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase if known else 'Scripted'}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def last_chunk(trailers: Headers) -> bytes:
    return b"0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in trailers).encode("latin-1") + b"\r\n"


NO_BODY = frozenset({204, 304})


class ProviderHandler(Protocol):
    """Who keeps the records and knows the answers."""

    def receive(self, request: HttpRequest) -> ReceivedRequest: ...

    def respond(self, received: ReceivedRequest) -> Delivery | bytes: ...

    def finish(self, received: ReceivedRequest, *, left: bool) -> None: ...

    def connections(self, change: int) -> None: ...


def parsed(body: bytes) -> Any:
    """The JSON of a body, `None` where it is none or nested too deeply."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


class Server:
    """One listening socket in the running event loop."""

    def __init__(self, tool_context: ProviderHandler) -> None:
        self._desk = tool_context
        self._connections: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port."""
        loop = asyncio.get_running_loop()

        def protocol() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(WatchedReader(), self._connected, loop=loop)

        self._listening = await loop.create_server(protocol, host, port, backlog=2048)
        bound: int = self._listening.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Stop listening and drop what is open."""
        if self._listening is not None:
            self._listening.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert isinstance(reader, WatchedReader)  # noqa: S101 - narrows what `protocol` above made
        task = asyncio.get_running_loop().create_task(self._connection(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _connection(self, reader: WatchedReader, writer: asyncio.StreamWriter) -> None:
        # Nothing may wait in our own buffer: a break must come behind all bytes before it.
        writer.transport.set_write_buffer_limits(0)
        self._desk.connections(+1)
        try:
            while await self._exchange(reader, writer):
                pass
        except MalformedRequest as error:
            reply = FixedReply(400, error_body(str(error), "invalid_request_error", None))
            await _write(writer, fixed(reply), None)
        except ConnectionError:
            pass
        except asyncio.CancelledError:
            # Closing would wait for a peer that does not read.
            writer.transport.abort()
            raise
        finally:
            writer.close()
            self._desk.connections(-1)

    async def _exchange(self, reader: WatchedReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; says whether the connection goes on."""
        request = await read_request(reader, writer)
        if request is None:
            return False
        received = self._desk.receive(request)
        delivery = self._desk.respond(received)
        received.status = 0 if isinstance(delivery, bytes) else delivery.status
        writing = asyncio.ensure_future(_write(writer, delivery, request))
        leaving = asyncio.ensure_future(reader.ended.wait())
        try:
            await asyncio.wait({writing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            left = not writing.done() or isinstance(writing.exception(), ConnectionError)
            self._desk.finish(received, left=left)
            return not left and writing.result()
        finally:
            writing.cancel()
            leaving.cancel()


async def _write(writer: asyncio.StreamWriter, delivery: Delivery | bytes, request: HttpRequest | None) -> bool:
    """Carry out a delivery; says whether the connection may be used again."""
    if isinstance(delivery, bytes):
        await _send(writer, delivery)
        return False
    if delivery.delay_s:
        await _silence(delivery.delay_s)
    framing = (
        "close" if request and request.version == "HTTP/1.0" and delivery.framing == "chunked" else delivery.framing
    )
    keeps = request is not None and request.keeps_alive and framing != "close" and delivery.ending is None
    await _send(writer, response_head(delivery.status, _framed_headers(delivery, framing, keeps=keeps)))
    if (request and request.method == "HEAD") or delivery.status in NO_BODY:
        return keeps
    frame: Callable[[bytes], bytes] = chunk if framing == "chunked" else bytes
    await _send_all(writer, delivery.pieces, frame, delivery.pace_ms)
    if delivery.ending is not None:
        await _break(writer, delivery, frame)
        if delivery.ending.how != "stall":
            return False
        await _send_all(writer, delivery.rest, frame, delivery.pace_ms)
    if framing == "chunked":
        await _send(writer, last_chunk(delivery.trailers))
    return keeps


def _framed_headers(delivery: Delivery, framing: str, *, keeps: bool) -> Headers:
    framed = {
        "chunked": (("transfer-encoding", "chunked"),),
        "length": (("content-length", str(delivery.length)),),
        "close": (),
    }[framing]
    given = {name.lower() for name, _ in delivery.headers}
    ours = tuple(header for header in framed if header[0] not in given)
    return (*delivery.headers, *ours, ("connection", "keep-alive" if keeps else "close"))


async def _break(writer: asyncio.StreamWriter, delivery: Delivery, frame: Callable[[bytes], bytes]) -> None:
    """Make the break the script asks for."""
    ending = delivery.ending
    match ending.how if ending else "close":
        case "stall" if ending is not None and ending.until is not None:
            while not ending.until():  # noqa: ASYNC110 - any condition of a test, which sets no event
                await asyncio.sleep(0.02)
        case "stall":
            await _silence(ending.seconds if ending else 0)
        case "reset":
            # Linger of zero seconds: closing sends RST where it would send FIN.
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        case "half_close":
            writer.write_eof()
            await _silence(math.inf)
        case "truncate" if frame is chunk:
            kept_back = delivery.rest[0] if delivery.rest else b"data: "
            announced = chunk(kept_back + bytes(64))
            await _send(writer, announced[: announced.index(b"\n") + 1 + len(kept_back) // 2])
        case _:
            pass


async def _send_all(
    writer: asyncio.StreamWriter, pieces: tuple[bytes, ...], frame: Callable[[bytes], bytes], pace_ms: float
) -> None:
    for position, piece in enumerate(pieces):
        if position and pace_ms:
            await asyncio.sleep(pace_ms / 1000)
        await _send(writer, frame(piece))


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


async def _silence(seconds: float) -> None:
    if math.isinf(seconds):
        await asyncio.get_running_loop().create_future()
    await asyncio.sleep(seconds)
