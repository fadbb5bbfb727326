"""The little of HTTP/1.1 a provider needs, on asyncio streams, with nothing between the script and the socket.

Reads requests (fixed or chunked bodies, trailers, `Expect: 100-continue`) and writes response heads and chunks. A
server library would put right what this one must get wrong on purpose. Not a server for the open network: its limits
are generous and it trusts who calls.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import unquote

from proxy.testing.answer import Headers

HEAD_LIMIT = 1024 * 1024
BODY_LIMIT = 256 * 1024 * 1024


class BadRequestBytes(Exception):
    """What arrived is not a request this provider reads."""


@dataclass(frozen=True, slots=True)
class Request:
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


async def read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request | None:
    """The next request, or `None` where the peer closed between two. Raises BadRequestBytes, ConnectionError."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise BadRequestBytes("the connection ended inside a request head") from error
        return None
    except asyncio.LimitOverrunError as error:
        raise BadRequestBytes("the request head is too long") from error
    request = _parsed_head(head)
    if request.header("expect").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await writer.drain()
    try:
        return await _with_body(request, reader)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
        raise BadRequestBytes("the request body is broken") from error


def _parsed_head(head: bytes) -> Request:
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    try:
        method, target, version = first.split(" ")
    except ValueError as error:
        raise BadRequestBytes(f"not a request line: {first[:80]!r}") from error
    return Request(method, target, version, tuple(_header(line) for line in lines))


def _header(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name, value.strip()


async def _with_body(request: Request, reader: asyncio.StreamReader) -> Request:
    parts = (request.method, request.target, request.version, request.headers)
    if "chunked" in request.header("transfer-encoding").lower():
        body, trailers = await _read_chunked(reader)
        return Request(*parts, body, trailers)
    length = int(request.header("content-length") or 0)
    if not 0 <= length <= BODY_LIMIT:
        raise BadRequestBytes("the request body is too long")
    return Request(*parts, await reader.readexactly(length))


async def _read_chunked(reader: asyncio.StreamReader) -> tuple[bytes, Headers]:
    body = bytearray()
    while True:
        size = int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16)
        if size == 0:
            break
        if len(body) + size > BODY_LIMIT:
            raise BadRequestBytes("the request body is too long")
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
