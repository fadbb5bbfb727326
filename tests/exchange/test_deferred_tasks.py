"""What nobody waits for is done late, in order, and never left out."""

import asyncio
import logging

import pytest

from proxy.exchange.background.scheduler import MAX_DELAY_S, DeferredTasks


async def test_work_waits_for_whoever_waits() -> None:
    afterwards, done = DeferredTasks(), list[str]()

    afterwards.add(lambda: done.append("first"))
    afterwards.add(lambda: done.append("second"))
    await asyncio.sleep(0)
    soon = list(done)
    await asyncio.sleep(10 * MAX_DELAY_S)

    assert soon == []
    assert done == ["first", "second"]


async def test_whoever_reads_catches_up_first() -> None:
    afterwards, done = DeferredTasks(), list[str]()
    afterwards.add(lambda: done.append("once"))

    afterwards.run_pending()
    at_once = list(done)
    await asyncio.sleep(10 * MAX_DELAY_S)

    assert at_once == ["once"]
    assert done == ["once"], "what was done is not done again"


async def test_trouble_is_told_at_once_with_all_before_it() -> None:
    afterwards, done = DeferredTasks(), list[str]()
    afterwards.add(lambda: done.append("news"))

    afterwards.add(lambda: done.append("trouble"), now=True)

    assert done == ["news", "trouble"]


def test_where_nobody_waits_it_is_done_at_once() -> None:
    afterwards, done = DeferredTasks(0), list[str]()

    afterwards.add(lambda: done.append("done"))

    assert done == ["done"]


async def test_what_comes_behind_does_not_fail_with_it(caplog: pytest.LogCaptureFixture) -> None:
    afterwards, done = DeferredTasks(), list[str]()

    afterwards.add(lambda: done.remove("nothing there"))
    afterwards.add(lambda: done.append("behind"))
    with caplog.at_level(logging.ERROR):
        afterwards.run_pending()

    assert done == ["behind"]
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert caplog.records[0].exc_info is not None


async def test_work_that_comes_while_others_is_done_waits_for_its_turn() -> None:
    afterwards, done = DeferredTasks(), list[str]()
    afterwards.add(lambda: afterwards.add(lambda: done.append("later")))

    afterwards.run_pending()
    soon = list(done)
    await asyncio.sleep(10 * MAX_DELAY_S)

    assert soon == []
    assert done == ["later"]
