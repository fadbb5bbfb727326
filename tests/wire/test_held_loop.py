"""A process that stood still, as on a busy machine or behind a pause, takes no provider for silent whose bytes came."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from tests.ports import held_port, port_of
from tests.wire.proxied import ServedProxy
from tests.wire.test_broken_answers import AWAKE, LATE, hear, looks_good, provider_at, request_of, stalls

pytestmark = pytest.mark.rows("X-54")

IDLE_S = 0.5
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
FIRST = LATE.replace(b"late", b"first").replace(b'"stop"', b"null") + b"\n\n"
LAST = LATE + b"\n\ndata: [DONE]\n\n"
ANSWER = HEAD + FIRST + LAST
EARLY = b"HTTP/1.1 103 Early Hints\r\n\r\n"


@pytest.fixture(scope="module")
def behind() -> Iterator[int]:
    with held_port() as place:
        yield port_of(place)


@pytest.fixture(scope="module")
def pausing(tmp_path_factory: pytest.TempPathFactory, behind: int) -> Iterator[ServedProxy]:
    upstream, data = f"http://127.0.0.1:{behind}", tmp_path_factory.mktemp("pausing") / "data"
    with ServedProxy(upstream, data, upstreams__default__idle_timeout_s=IDLE_S) as running:
        yield running


class Pause:
    """Lets the process of a proxy stand still for a while."""

    def __init__(self, proxy: ServedProxy, lasts_s: float) -> None:
        self._begun, self._over, self._lasts_s = threading.Event(), threading.Event(), lasts_s
        proxy.app._tasks[0].get_loop().call_soon_threadsafe(self._hold)

    def _hold(self) -> None:
        self._begun.set()
        time.sleep(self._lasts_s)
        self._over.set()

    async def begins(self) -> None:
        await asyncio.to_thread(self._begun.wait)

    async def ends(self) -> None:
        await asyncio.to_thread(self._over.wait)


@AWAKE
@pytest.mark.parametrize(
    ("before", "meanwhile", "after", "lasts_s"),
    [
        (b"", ANSWER, b"", 2 * IDLE_S),
        (b"", ANSWER[:20], ANSWER[20:], 2 * IDLE_S),
        (ANSWER[:20], ANSWER[20:], b"", 2 * IDLE_S),
        (EARLY, ANSWER, b"", 2 * IDLE_S),
        (HEAD, FIRST + LAST, b"", 2 * IDLE_S),
        (HEAD + FIRST, LAST, b"", 2 * IDLE_S),
        (HEAD + FIRST, LAST[:20], LAST[20:], 2 * IDLE_S),
        (HEAD + FIRST + LAST[:20], LAST[20:30], LAST[30:], 2 * IDLE_S),
        (HEAD + FIRST, b": works\n\n", LAST, 5 * IDLE_S),
    ],
    ids=["answer", "half-a-head", "head", "early-head", "body", "events", "half-an-event", "a-piece", "keep-alive"],
)
async def test_what_came_while_the_process_stood_still_is_read(
    pausing: ServedProxy, behind: int, awake: bool, before: bytes, meanwhile: bytes, after: bytes, lasts_s: float
) -> None:
    async def goes_on(writer: asyncio.StreamWriter) -> None:
        pause = Pause(pausing, lasts_s)
        await pause.begins()
        writer.write(meanwhile)
        await writer.drain()
        await pause.ends()
        await asyncio.sleep(IDLE_S / 4)
        writer.write(after)
        await writer.drain()

    async with provider_at(behind, lambda body: (before, goes_on)):
        heard = await hear(pausing.port, request_of("chat", "go on", awake=awake, stream=True))

    assert looks_good(heard, stream=True), heard
    assert b"late" in heard.body


@AWAKE
@pytest.mark.parametrize("before", [b"", HEAD + FIRST], ids=["answer", "events"])
async def test_silence_behind_a_pause_is_silence(pausing: ServedProxy, behind: int, awake: bool, before: bytes) -> None:
    async def is_silent(writer: asyncio.StreamWriter) -> None:
        Pause(pausing, 2 * IDLE_S)
        await stalls(writer)

    async with provider_at(behind, lambda body: (before, is_silent)):
        heard = await hear(pausing.port, request_of("chat", "say no more", awake=awake, stream=True))

    assert not looks_good(heard, stream=True)
    assert b"(idle_timeout_s)" in heard.body
