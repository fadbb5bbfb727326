"""`retention`: what nobody has continued for so many days is really deleted by the proxy that runs."""

import asyncio
import time
from pathlib import Path

import pytest

from callstack_proxy.config_sources import load_config
from llm_test_provider import ScriptedProvider, says
from proxy.core.ledger.ledger import Conversation
from proxy.exchange import delete_expired, delete_expired_forever
from proxy.server.app import build_app
from proxy.store.sql import open_store
from tests.harness import WAIT_S, RunningProxy, Stage
from tests.management.api.small_ledger import CLOCK, written


async def _old_conversation(data: Path) -> None:
    """One that was last written in 2023."""
    store = open_store("sqlite", data)
    await store.start()
    try:
        await written(store, "local", "old")
    finally:
        await store.close()


def _ids(proxy: RunningProxy) -> list[str]:
    return [row["id"] for row in proxy.conversations]


@pytest.fixture
def data(stage: Stage) -> Path:
    found = stage.folder / "kept"
    found.mkdir(mode=0o700)
    asyncio.run(_old_conversation(found))
    return found


@pytest.mark.parametrize("key", ["retention", "retention_days"])
def test_what_is_older_than_the_days_is_gone_and_what_is_new_stays(
    stage: Stage, provider: ScriptedProvider, data: Path, key: str
) -> None:
    proxy = stage.proxy(data=data, **{key: 1})
    provider.will(says("ok"))
    new = stage.chat(proxy).says("hello").headers["x-stack-conversation"]

    until = time.monotonic() + WAIT_S
    while _ids(proxy) != [new]:
        assert time.monotonic() < until, _ids(proxy)


def test_a_clock_that_is_wrong_at_the_start_deletes_nothing(data: Path) -> None:
    """Age counts from the newest record, so a machine that wakes years ahead finds everything in its place."""

    async def left() -> int:
        app = build_app(load_config({"upstream": "http://127.0.0.1:9", "data": str(data), "retention": 1}))
        await app._store.start()
        await delete_expired(app._store, app.config.retention_days, time.time_ns() // 1_000_000)
        found = await app._store.conversations(None)
        await app._store.close()
        return len(found)

    assert asyncio.run(left()) == 1


class _Enough(Exception):
    """Ends the looks of a test."""


@pytest.mark.parametrize(
    ("elapsed_h", "set_by_h", "left"),
    [([0, 0, 1, 2, 7], 0, 2), ([0, 0, 1, 2, 5], 999, 2), ([0, 0, 1, 2, 8], 999, 1), ([0, 0, 1, 2, 8], -999, 2)],
    ids=["right", "jumped", "jumped for hours", "set back"],
)
def test_a_clock_that_jumps_while_the_proxy_works_deletes_nothing_for_hours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elapsed_h: list[int], set_by_h: int, left: int
) -> None:
    """What is written behind the jump is the newest of all, and everything else would be as old as the jump is long."""
    monkeypatch.setattr("proxy.exchange.background.retention.INTERVAL_S", 0)  # an hour, which is no setting
    looks = iter(elapsed_h)
    hours = 0

    def elapsed_s() -> float:
        return hours * 3600.0

    def now_ms() -> int:
        nonlocal hours
        hours = next(looks, -1)
        if hours < 0:
            raise _Enough
        return CLOCK + (hours + set_by_h * (hours > 0)) * 3_600_000

    async def looked() -> int:
        store = open_store("sqlite", tmp_path)
        await store.start()
        await written(store, "local", "old")
        new = Conversation("new", "local", created=CLOCK + max(0, set_by_h) * 3_600_000)
        await store.wait_until_durable(store.write("local", [new]))
        with pytest.raises(_Enough):
            await delete_expired_forever(store, 1, now_ms, elapsed_s)
        found = await store.conversations(None)
        await store.close()
        return len(found)

    assert asyncio.run(looked()) == left


def test_nothing_is_too_old_where_everything_is_kept(stage: Stage, provider: ScriptedProvider, data: Path) -> None:
    proxy = stage.proxy(data=data, retention=0)
    provider.will(says("ok"))
    stage.chat(proxy).says("hello")

    assert len(_ids(proxy)) == 2
