"""A provider that misbehaves at any byte of its answer: the client hears of it within the idle timeout, and what it
got never looks like a good end."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache

import pytest

from llm_test_provider import ScriptedProvider, says
from tests.harness import Json
from tests.ports import held_port, port_of
from tests.wire.proxied import ServedProxy
from tests.wire.talking import body_of, exchange, raw_request

IDLE_S = 0.3
RELAYED_STEP = 16
"""Bytes between two offsets where nothing of ours reads the events: all of them took six minutes."""
READ_STEP = {"stalls": 1}
"""Bytes between two offsets where we read the events, by manner; others take every eighth."""
LIMIT_S = 10.0
"""A busy machine is late; one that waits for ever is later."""
CLIENTS = 64
OFFSETS = 12
"""Offsets of one answer in a quick run."""
GARBAGE = b"\x00zz\r\n\xff{]\r\n"

AWAKE = pytest.mark.parametrize("awake", [True, False], ids=["awake", "asleep"])
STREAM = pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])

PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
ENDS = {"chat": b"[DONE]", "messages": b"message_stop", "responses": b'"type":"response.completed"'}
"""What the last event of a stream holds."""
OPEN = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def request_of(dialect: str, said: str, *, awake: bool, stream: bool) -> bytes:
    """A request in a dialect; a thread whose client offers no tools never wakes."""
    flat = {"name": "read_file", "description": "reads"}
    schema: Json = {"type": "object", "properties": {}}
    asked: Json = {"model": "m", "messages": [{"role": "user", "content": said}], "stream": stream}
    if dialect == "chat":
        asked = body_of(said, awake=awake, stream=stream)
    elif dialect == "messages":
        asked |= {"max_tokens": 100, **({"tools": [{**flat, "input_schema": schema}]} if awake else {})}
    else:
        asked = {"model": "m", "input": said, "stream": stream}
        asked |= {"tools": [{"type": "function", **flat, "parameters": schema}]} if awake else {}
    return raw_request(json.dumps(asked).encode(), path=PATHS[dialect])


@cache
def recorded(dialect: str, *, stream: bool) -> bytes:
    """A whole answer as it came over the wire, head and framing included."""
    with ScriptedProvider() as provider:
        provider.will(says("naïve words"))
        return exchange(provider.port, request_of(dialect, "hi", awake=False, stream=stream))


# ------------------------------------------------------------------------------------------------------- the other side
Misbehaving = Callable[[asyncio.StreamWriter], Awaitable[None]]


async def stalls(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(LIMIT_S * 2)


async def closes(writer: asyncio.StreamWriter) -> None:
    """The connection ends as one ends that has said everything."""


async def resets(writer: asyncio.StreamWriter) -> None:
    peer: socket.socket = writer.get_extra_info("socket")
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def babbles_and_stays(writer: asyncio.StreamWriter) -> None:
    writer.write(GARBAGE)
    await writer.drain()
    await asyncio.sleep(LIMIT_S * 2)


async def babbles_and_closes(writer: asyncio.StreamWriter) -> None:
    writer.write(GARBAGE)
    await writer.drain()


async def drips(writer: asyncio.StreamWriter) -> None:
    """A byte now and then, which never adds up to one of an answer."""
    while True:
        writer.write(b"0")
        await writer.drain()
        await asyncio.sleep(IDLE_S / 4)


MANNERS: dict[str, Misbehaving] = {
    "stalls": stalls,
    "closes": closes,
    "resets": resets,
    "babbles": babbles_and_stays,
    "babbles-and-closes": babbles_and_closes,
}
WAYS = pytest.mark.parametrize(
    ("manner", "every"),
    [
        *(pytest.param(manner, False, id=f"{manner}-some") for manner in MANNERS),
        *(pytest.param(manner, True, id=f"{manner}-each", marks=pytest.mark.long) for manner in ("stalls", "babbles")),
    ],
)


@asynccontextmanager
async def provider_at(port: int, said: Callable[[bytes], tuple[bytes, Misbehaving]]) -> AsyncIterator[None]:
    """A provider that answers a request with bytes, and then misbehaves."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: *([0-9]+)", head)
            body = await reader.readexactly(int(length[1])) if length else b""
            out, manner = said(body)
            writer.write(out)
            await writer.drain()
            await manner(writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the proxy left, as it should, or the test is over
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield
    finally:
        server.close()


@dataclass(frozen=True)
class Outcome:
    """What a client saw: the status (0 for none), and whether the answer came to an end that HTTP calls one."""

    status: int
    body: bytes
    whole: bool


async def hear(port: int, request: bytes) -> Outcome:
    """Raises TimeoutError where the client is left waiting."""
    async with asyncio.timeout(LIMIT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
        try:
            writer.write(request)
            raw = await reader.read(-1)
        finally:
            writer.close()
    head, _, body = raw.partition(b"\r\n\r\n")
    if not head:
        return Outcome(0, b"", whole=False)
    if b"transfer-encoding: chunked" in head.lower():
        whole = body.endswith(b"0\r\n\r\n")
    else:
        length = re.search(rb"(?i)content-length: *([0-9]+)", head)
        whole = length is not None and len(body) == int(length[1])
    return Outcome(int(head.split(b" ", 2)[1]), body, whole)


def looks_good(heard: Outcome, *, stream: bool) -> bool:
    """Whether a client would take it for an answer. Bytes that fill an announced length pass as they came; a client
    that cannot read them knows that something is wrong."""
    if heard.status != 200 or not heard.whole or b'"error"' in heard.body:
        return False
    return stream or GARBAGE[:4] not in heard.body


@pytest.fixture(scope="module")
def behind() -> Iterator[int]:
    """The port of the provider that misbehaves."""
    with held_port() as place:
        yield port_of(place)


@pytest.fixture(scope="module")
def wronged(tmp_path_factory: pytest.TempPathFactory, behind: int) -> Iterator[ServedProxy]:
    upstream, data = f"http://127.0.0.1:{behind}", tmp_path_factory.mktemp("wronged") / "data"
    with ServedProxy(upstream, data, upstreams__default__idle_timeout_s=IDLE_S, keep_alive_s=0.1) as running:
        yield running


# ------------------------------------------------------------------------------------------------------------ the tests
@pytest.mark.rows("X-54")
@WAYS
@STREAM
@AWAKE
@pytest.mark.parametrize("dialect", PATHS)
async def test_an_answer_that_breaks_at_any_byte_ends_as_a_broken_one_in_time(
    wronged: ServedProxy, behind: int, dialect: str, awake: bool, stream: bool, manner: str, every: bool
) -> None:
    answer = await asyncio.to_thread(recorded, dialect, stream=stream)
    last = answer.index(ENDS[dialect]) if stream else len(answer)
    close = READ_STEP.get(manner, 8) if awake and stream else RELAYED_STEP
    offsets = range(0, last, close if every else max(1, last // OFFSETS))

    def said(body: bytes) -> tuple[bytes, Misbehaving]:
        wanted = re.search(rb"break at ([0-9]+)!", body)
        assert wanted
        return answer[: int(wanted[1])], MANNERS[manner]

    gate = asyncio.Semaphore(CLIENTS)

    async def at(offset: int) -> tuple[int, Outcome]:
        async with gate:
            asked = request_of(dialect, f"{manner} {every}: break at {offset}!", awake=awake, stream=stream)
            return offset, await hear(wronged.port, asked)

    async with provider_at(behind, said):
        heard = await asyncio.gather(*map(at, offsets))

    assert [(offset, one) for offset, one in heard if looks_good(one, stream=stream)] == []
    assert [one for _, one in heard if one.status not in (200, 502, 504)] == []


@pytest.mark.rows("X-54")
@pytest.mark.parametrize(
    "before",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nx-",
        OPEN,
        OPEN + b"7\r\ndata: {\r\n1;",
        OPEN + b"e\r\n: words come\n\n\r\n0\r\nx-",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n",
    ],
    ids=["status", "header", "chunk-size", "chunk-extension", "trailer", "headers"],
)
@AWAKE
async def test_framing_that_drips_is_silence(wronged: ServedProxy, behind: int, before: bytes, awake: bool) -> None:
    async with provider_at(behind, lambda body: (before, drips)):
        asked = request_of("chat", "drip", awake=awake, stream=True)
        heard = await hear(wronged.port, asked)

    assert heard.status in (200, 502, 504)
    assert not looks_good(heard, stream=True)


@pytest.mark.rows("X-54")
@pytest.mark.parametrize("before", [b"data: {", b'{"id":'], ids=["events", "object"])
@AWAKE
async def test_a_line_that_drips_is_silence(wronged: ServedProxy, behind: int, before: bytes, awake: bool) -> None:
    """A byte now and then would hold a request for hours."""
    kind = b"text/event-stream" if before[:1] == b"d" else b"application/json"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: " + kind + b"\r\n\r\n"
    async with provider_at(behind, lambda body: (head + before, drips)):
        heard = await hear(wronged.port, request_of("chat", "drip", awake=awake, stream=before[:1] == b"d"))

    assert heard.status in (200, 504)
    assert not looks_good(heard, stream=True)
    if awake or heard.status == 504:  # else half an event has passed, and a comment would become a part of it
        assert b"no whole line of it came for 0.3 s (idle_timeout_s)" in heard.body


LATE = b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"late"},"finish_reason":"stop"}]}'


def staying_alive(line_end: bytes) -> Misbehaving:
    """Comments for longer than the idle timeout, and then the answer."""

    async def stays_alive(writer: asyncio.StreamWriter) -> None:
        for _ in range(8):
            writer.write(b": PROCESSING" + 2 * line_end)
            await writer.drain()
            await asyncio.sleep(IDLE_S / 4)
        writer.write(LATE + 2 * line_end + b"data: [DONE]" + 2 * line_end)
        await writer.drain()

    return stays_alive


@pytest.mark.rows("X-54")
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
@AWAKE
async def test_a_provider_that_says_that_it_works_is_waited_for(
    wronged: ServedProxy, behind: int, awake: bool, line_end: bytes
) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    async with provider_at(behind, lambda body: (head, staying_alive(line_end))):
        heard = await hear(wronged.port, request_of("chat", "late", awake=awake, stream=True))

    assert (heard.status, heard.whole) == (200, True)
    assert b"late" in heard.body
    assert b"[DONE]" in heard.body


@pytest.fixture(scope="module")
def flooded(tmp_path_factory: pytest.TempPathFactory, behind: int) -> Iterator[ServedProxy]:
    """Waits for longer than a test."""
    upstream, data = f"http://127.0.0.1:{behind}", tmp_path_factory.mktemp("flooded") / "data"
    with ServedProxy(upstream, data, upstreams__default__idle_timeout_s=LIMIT_S * 2) as running:
        yield running


def flooding(piece: bytes) -> Misbehaving:
    async def floods(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(piece)
            await writer.drain()

    return floods


@pytest.mark.rows("X-54")
@pytest.mark.parametrize(
    ("before", "piece"),
    [
        (OPEN + b"1;", b"x" * 10_000),
        (OPEN, b"0" * 10_000),
        (OPEN + b"3\r\n:\n\n\r\n", b"1;x=" + b"y" * 100_000 + b"\r\n\n\r\n"),
        (OPEN + b"3\r\n:\n\n\r\n0\r\nx-", b"y" * 10_000),
        (OPEN + b"3\r\n:\n\n\r\n0\r\n", b"x-y: z\r\n" * 1_000),
        (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100),
    ],
    ids=["extension", "size", "extensions", "trailer", "trailers", "heads"],
)
@AWAKE
async def test_framing_without_end_is_broken_framing(
    flooded: ServedProxy, behind: int, before: bytes, piece: bytes, awake: bool
) -> None:
    """Told at once: read until the idle timeout, it keeps a core from everybody else."""
    async with provider_at(behind, lambda body: (before, flooding(piece))):
        heard = await hear(flooded.port, request_of("chat", "flood", awake=awake, stream=True))

    assert heard.status in (200, 502)
    assert b"is not HTTP" in heard.body
    assert not looks_good(heard, stream=True)


async def ends_an_event_byte_by_byte(writer: asyncio.StreamWriter) -> None:
    for piece in (b"1\r\n\n\r\n", b"1\r\n\n\r\n", b"no length\r\n"):
        await writer.drain()
        await asyncio.sleep(IDLE_S / 4)
        writer.write(piece)
    await writer.drain()
    await asyncio.sleep(IDLE_S)


@pytest.mark.rows("X-54")
async def test_a_reason_comes_behind_an_event_that_ended_in_small_pieces(flooded: ServedProxy, behind: int) -> None:
    async with provider_at(behind, lambda body: (OPEN + b"2\r\n:x\r\n", ends_an_event_byte_by_byte)):
        heard = await hear(flooded.port, request_of("chat", "pieces", awake=False, stream=True))

    assert b":x\r\n" in heard.body
    assert b"is not HTTP" in heard.body


async def puts_off(writer: asyncio.StreamWriter) -> None:
    """One head after the other says that the answer is yet to come."""
    while True:
        writer.write(b"HTTP/1.1 102 Processing\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(IDLE_S / 4)


@pytest.mark.rows("X-54")
@STREAM
async def test_heads_that_put_off_the_answer_are_silence(wronged: ServedProxy, behind: int, stream: bool) -> None:
    async with provider_at(behind, lambda body: (b"", puts_off)):
        heard = await hear(wronged.port, request_of("chat", "put off", awake=True, stream=stream))

    assert heard.status == 504
    assert b"idle_timeout_s" in heard.body


@pytest.mark.rows("X-54")
async def test_heads_that_say_to_wait_are_read_for_minutes(flooded: ServedProxy, behind: int) -> None:
    """One every ten seconds until the idle timeout, which is 15 minutes."""
    answer = await asyncio.to_thread(recorded, "chat", stream=False)
    heads = 90 * b"HTTP/1.1 102 Processing\r\n\r\n"
    async with provider_at(behind, lambda body: (heads + answer, closes)):
        heard = await hear(flooded.port, request_of("chat", "work", awake=True, stream=False))

    assert (heard.status, heard.whole) == (200, True)


@pytest.mark.rows("X-54")
async def test_a_provider_that_reads_no_request_is_silent(wronged: ServedProxy, behind: int) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(LIMIT_S)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", behind, limit=1024)
    try:
        asked = raw_request(json.dumps(body_of("long " * 3_000_000)).encode())
        heard = await hear(wronged.port, asked)
    finally:
        server.close()

    assert heard.status == 504
    assert b"idle_timeout_s" in heard.body
