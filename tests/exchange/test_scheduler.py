"""Deadlines: what is at hand needs none, what waits too long is cancelled, and whoever cancels is heard."""

import asyncio
import time
from collections.abc import Generator
from types import SimpleNamespace
from typing import cast

import pytest

from proxy.core.ledger import Request
from proxy.exchange.background.scheduler import LONG_REQUEST_PARTS, hold, in_own_time, in_slices, with_timeout

LONG_S = 60.0


async def test_what_does_not_wait_is_carried_out_whatever_its_time() -> None:
    async def work() -> str:
        return "at hand"

    assert await with_timeout(0, work()) == "at hand"


async def test_an_error_is_raised_as_it_was_before_and_after_waiting() -> None:
    async def work(*, waits: bool) -> None:
        if waits:
            await asyncio.sleep(0)
        raise LookupError("gone")

    for waits in (False, True):
        with pytest.raises(LookupError, match="gone"):
            await with_timeout(LONG_S, work(waits=waits))


async def test_what_waits_gets_what_it_waits_for() -> None:
    """More than once, and also what a future raises."""
    loop = asyncio.get_running_loop()
    told, failed = loop.create_future(), loop.create_future()

    async def work() -> list[object]:
        found: list[object] = [await told]
        try:
            await failed
        except OSError as error:
            found.append(str(error))
        await asyncio.sleep(0)
        return found

    loop.call_soon(told.set_result, 1)
    loop.call_soon(failed.set_exception, OSError("full"))
    assert await with_timeout(LONG_S, work()) == [1, "full"]


async def test_what_waits_too_long_is_cancelled() -> None:
    ended = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("put in order")

    with pytest.raises(TimeoutError):
        await with_timeout(0.001, work())
    assert ended == ["put in order"]


async def test_a_cancellation_from_outside_is_none_of_its_own() -> None:
    began = asyncio.Event()

    async def work() -> None:
        began.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(with_timeout(LONG_S, work()))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_others_have_their_turn_between_two_bits() -> None:
    turns: list[str] = []

    def work() -> Generator[None, None, str]:
        for bit in ("first", "second"):
            turns.append(bit)
            yield
        return "done"

    async def other() -> None:
        turns.append("other")

    waiting = asyncio.create_task(other())
    assert await in_slices(work()) == "done"
    await waiting
    assert turns == ["first", "other", "second"]


async def test_an_error_between_two_bits_is_raised() -> None:
    def work() -> Generator[None, None, str]:
        yield
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        await in_slices(work())


async def test_work_in_its_own_time_takes_none_from_those_who_wait_for_the_same_turn() -> None:
    """One decides over a long history; others of its scope would pass unread, as too slow."""
    long_one = cast(Request, SimpleNamespace(messages=range(LONG_REQUEST_PARTS + 1), tool_names=(), body=b""))
    lock, told = asyncio.Lock(), list[str]()

    async def decides() -> None:
        async with hold(lock):
            await in_own_time(long_one, lambda: time.sleep(0.6))
            told.append("long")

    async def waits() -> None:
        async with hold(lock):
            told.append("other")

    deciding = asyncio.create_task(with_timeout(0.3, decides()))
    await asyncio.sleep(0.1)
    await with_timeout(0.3, waits())
    await deciding

    assert told == ["long", "other"]


async def test_who_waits_for_a_turn_that_does_not_come_is_cancelled_all_the_same() -> None:
    lock = asyncio.Lock()

    async def waits() -> None:
        async with hold(lock):
            pass

    async with lock:
        with pytest.raises(TimeoutError):
            await with_timeout(0.05, waits())
