"""The provider on a socket: connections in, planned deliveries out, every break a real one.

`Server` reads requests, asks `respond` what to say, writes it, and notes when a peer leaves before its answer is
complete. Nothing is buffered here: a write that is planned as one piece is one `send`, and a break is made only when
all bytes before it have left.

Its one law: whoever leaves is noticed at once, also while the script is silent. A peer that shuts down its sending
half counts as gone.
"""

from __future__ import annotations

import asyncio
import json
import math
import socket
import struct
from collections.abc import Callable
from typing import Any, Protocol

from proxy.testing.answer import Headers, Reply, error_body
from proxy.testing.delivery import Delivery
from proxy.testing.http1 import BadRequestBytes, Request, WatchedReader, chunk, last_chunk, read_request, response_head
from proxy.testing.model import fixed
from proxy.testing.script import Received

NO_BODY = frozenset({204, 304})


class Desk(Protocol):
    """Who keeps the records and knows the answers."""

    def receive(self, request: Request) -> Received: ...

    def respond(self, received: Received) -> Delivery | bytes: ...

    def finish(self, received: Received, *, left: bool) -> None: ...

    def connections(self, change: int) -> None: ...


def parsed(body: bytes) -> Any:
    """The JSON of a body, `None` where it is none or nested too deeply."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


class Server:
    """One listening socket in the running event loop."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
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
        except BadRequestBytes as error:
            reply = Reply(400, error_body(str(error), "invalid_request_error", None))
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


async def _write(writer: asyncio.StreamWriter, delivery: Delivery | bytes, request: Request | None) -> bool:
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
