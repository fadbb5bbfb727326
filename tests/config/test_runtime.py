"""What is set while the proxy runs: what holds, in this process and in others on the same store (S1-118)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from callstack_proxy.config_sources import load_config
from proxy.config import runtime as live_settings
from proxy.config.runtime import ALL_TENANTS, LiveSettings
from proxy.config.sections import SubagentSettings
from proxy.errors import BadRequest, InvalidConfiguration, StoreError
from proxy.store.interface import SettingRecord, Store
from proxy.store.sql import open_store

pytestmark = pytest.mark.rows("S1-118")

CONFIGURED = SubagentSettings(min_duration=7, patterns=("scout",))


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[tuple[Store, Store]]:
    """Two processes' on one file."""
    both = open_store("sqlite", tmp_path), open_store("sqlite", tmp_path)
    for store in both:
        await store.start()
    yield both
    for store in both:
        await store.close()


async def test_another_process_knows_what_was_set_once_it_looks(stores: tuple[Store, Store]) -> None:
    here, there = (LiveSettings(CONFIGURED, store) for store in stores)
    await stores[0].wait_until_durable(here.change({"enabled": False, "patterns": ["a"]}))
    await stores[1].wait_until_durable(there.change({"min_messages": 9}))
    await here.refresh()
    await there.refresh()

    assert here.subagent == there.subagent
    assert (here.subagent.enabled, here.subagent.min_messages, here.subagent.patterns) == (False, 9, ("a",))
    assert here.overridden_keys == there.overridden_keys == ("enabled", "min_messages", "patterns")
    await stores[1].wait_until_durable(there.change({"enabled": None, "min_messages": None, "patterns": None}))
    await here.refresh()
    assert here.subagent == CONFIGURED


async def test_it_looks_again_and_again_by_itself(stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_settings, "REFRESH_INTERVAL_S", 0.001)  # nobody waits five seconds for a test
    here, there = (LiveSettings(CONFIGURED, store) for store in stores)
    following = asyncio.create_task(there.refresh_forever())
    here.change({"min_duration": 8})
    async with asyncio.timeout(5):
        while there.subagent.min_duration != 8:  # noqa: ASYNC110 - it tells nobody: whoever asks reads an attribute
            await asyncio.sleep(0.001)
    following.cancel()


async def test_what_was_read_before_a_change_does_not_take_it_back(stores: tuple[Store, Store]) -> None:
    live = LiveSettings(CONFIGURED, stores[0])
    reading = asyncio.create_task(live.refresh())
    await asyncio.sleep(0)
    live.change({"min_duration": 8})
    await reading

    assert live.subagent.min_duration == 8


@pytest.mark.parametrize("stored", [b"-5", b"{}", b"no json", b'"long"'])
async def test_what_is_stored_and_cannot_hold_costs_nothing_but_that(
    stores: tuple[Store, Store], stored: bytes
) -> None:
    """It may be a newer program's."""
    records = [SettingRecord("subagent.min_duration", stored, 1), SettingRecord("subagent.unheard_of", b"1", 1)]
    await stores[0].wait_until_durable(stores[0].write(ALL_TENANTS, records))
    live = LiveSettings(CONFIGURED, stores[0])
    await live.refresh()

    assert live.subagent == CONFIGURED


async def test_a_store_that_takes_nothing_leaves_what_held(stores: tuple[Store, Store]) -> None:
    live = LiveSettings(CONFIGURED, stores[0])
    await stores[0].close()

    with pytest.raises(StoreError):
        live.change({"min_duration": 8})
    assert live.try_change({"min_duration": 8}) == "the store is closed. Nothing was set."
    assert (live.subagent, live.overridden_keys) == (CONFIGURED, ())


def test_what_cannot_hold_changes_nothing_of_what_comes_with_it() -> None:
    live = LiveSettings(CONFIGURED)
    for wanted in (
        {"min_duration": 8, "idle_delay": 5},
        {"min_duration": 8, "patterns": ["("]},
        {"unheard_of": 1},
        {"model_may_configure": True},
    ):
        with pytest.raises(BadRequest):
            live.change(wanted)

    assert (live.subagent, live.overridden_keys) == (CONFIGURED, ())


def test_without_a_store_it_holds_as_long_as_it_lives() -> None:
    live = LiveSettings(CONFIGURED)
    assert live.change({"min_duration": 8}) == 0
    assert live.subagent.min_duration == 8


@pytest.mark.parametrize("tenancy", ["key", "credential"])
def test_nobody_gives_the_keys_of_all_clients_for_pings(tenancy: str) -> None:
    told = {"cache_keep_alive.client_keys": "true", "tenancy": tenancy}
    with pytest.raises(InvalidConfiguration, match=r"cache_keep_alive\.client_keys.*x-stack-cache-keep-alive: on"):
        load_config(told)


@pytest.mark.parametrize("tenancy", ["key", "credential"])
def test_a_model_sets_nothing_where_others_would_feel_it(tenancy: str) -> None:
    told = {"subagent.model_may_configure": "true", "tenancy": tenancy}
    with pytest.raises(InvalidConfiguration, match="what a model sets holds for everybody"):
        load_config(told)

    assert load_config({**told, "tenancy": "single"}).subagent.model_may_configure
