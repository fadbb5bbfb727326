"""The client side of the benchmark: closed loops over keep-alive connections, timed from first byte to last.

A closed loop sends the next request when the answer is complete, as an agent does. The HTTP here is the least that
reads an answer correctly, since whatever this process burns is missing on the other core.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

import payloads

PATH = "/v1/chat/completions"
OK = 200
END = "\r\n"
NO_HEADERS: Mapping[str, str] = {}


class RequestFailed(Exception):
    """The answer was not a complete 200; the benchmark has no use for its time."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer and its times in ms, counted from the first byte sent."""

    body: bytes
    first_byte_ms: float
    total_ms: float


@dataclass(frozen=True, slots=True)
class Round:
    """What one round of requests took. Times in ms, oldest first."""

    total_ms: tuple[float, ...]
    first_byte_ms: tuple[float, ...]
    wall_s: float
    events: int


class Connection:
    """One keep-alive connection. Use as an async context manager. It takes `buffer` bytes before they are read."""

    def __init__(self, base: str, buffer: int = 1 << 20) -> None:
        self._host, self._port = urlsplit(base).hostname or "127.0.0.1", urlsplit(base).port or 80
        self._buffer = buffer

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port, limit=self._buffer)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def send(
        self, body: bytes, method: str = "POST", path: str = PATH, more: Mapping[str, str] = NO_HEADERS
    ) -> Answer:
        """The answer to one request. `more`: further headers. Raises RequestFailed when it is no 200."""
        started = time.perf_counter()
        status, headers = await self.ask(body, method, path, more)
        first = time.perf_counter()
        if headers.get("transfer-encoding") == "chunked":
            first, answer = await self._chunks()
        else:
            answer = await self._reader.readexactly(int(headers.get("content-length", "0")))
        done = time.perf_counter()
        if status != OK:
            raise RequestFailed(f"{status}: {answer[:300]!r}")
        return Answer(answer, (first - started) * 1000, (done - started) * 1000)

    async def ask(
        self, body: bytes, method: str = "POST", path: str = PATH, more: Mapping[str, str] = NO_HEADERS
    ) -> tuple[int, dict[str, str]]:
        """Status and headers of the answer to one request; its body is still to be read. `more`: further headers."""
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: {self._host}:{self._port}\r\nauthorization: Bearer sk-bench\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
            f"{''.join(f'{name}: {value}{END}' for name, value in more.items())}\r\n"
        )
        self._writer.write(head.encode() + body)
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin1").lower().split(END)
        return int(lines[0].split()[1]), dict(line.split(": ", 1) for line in lines[1:] if ": " in line)

    async def pieces(self, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
        """The body as it comes, in chunks as they were sent. Raises IncompleteReadError where it breaks off."""
        if headers.get("transfer-encoding") != "chunked":
            yield await self._reader.readexactly(int(headers.get("content-length", "0")))
            return
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            yield await self._reader.readexactly(size)
            await self._reader.readexactly(2)
        await self._reader.readexactly(2)

    async def _chunks(self) -> tuple[float, bytes]:
        """When the first chunk came, and all of them together."""
        first, parts = 0.0, []
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            parts.append(await self._reader.readexactly(size))
            first = first or time.perf_counter()
            await self._reader.readexactly(2)
        await self._reader.readexactly(2)
        return first, b"".join(parts)


def gathered(answers: Sequence[Answer], wall_s: float) -> Round:
    """The answers of one round in one value."""
    return Round(
        tuple(answer.total_ms for answer in answers),
        tuple(answer.first_byte_ms for answer in answers),
        wall_s,
        sum(answer.body.count(b"data: ") for answer in answers),
    )


async def repeat(base: str, body_of: Callable[[int], bytes], count: int, concurrency: int = 1) -> Round:
    """`count` requests over that many connections; the n-th request is `body_of(n)`."""
    numbers = iter(range(count))

    async def one_client() -> list[Answer]:
        async with Connection(base) as connection:
            return [await connection.send(body_of(number)) for number in numbers]

    started = time.perf_counter()
    answers = await asyncio.gather(*(one_client() for _ in range(concurrency)))
    return gathered([answer for each in answers for answer in each], time.perf_counter() - started)


async def session(base: str, seed: int, turns: int = payloads.SESSION_TURNS) -> Round:
    """One agent's growing conversation: each request is the last one, its answer, and what the tools said."""
    writer = payloads.Writer(seed)
    history: list[dict[str, Any]] = payloads.opening(writer)
    answers = []
    started = time.perf_counter()
    async with Connection(base) as connection:
        for turn in range(1, turns + 1):
            answers.append(await connection.send(payloads.body(history, "bench-call")))
            said = json.loads(answers[-1].body)["choices"][0]["message"]
            history = payloads.follow_up(history, said, turn, writer)
    return gathered(answers, time.perf_counter() - started)


async def longest_silence(base: str, path: str, busy: asyncio.Task[Round]) -> float:
    """The most ms a trivial request took while the server was `busy`: how long its event loop stood still."""
    worst = 0.0
    async with Connection(base) as connection:
        while not busy.done():
            worst = max(worst, (await connection.send(b"", "GET", path)).total_ms)
            await asyncio.sleep(0.001)
    return worst
