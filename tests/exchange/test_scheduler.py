"""Deadlines: what is at hand needs none, what waits too long is cancelled, and whoever cancels is heard."""

import asyncio
from collections.abc import Generator

import pytest

from proxy.exchange.background.scheduler import in_slices, with_timeout

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
