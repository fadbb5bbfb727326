"""The cache keep-alive in its own process: who gets a ping, and how many a conversation can pay for. How it works over
HTTP is in `tests/scenarios/test_cache_pings.py`."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from callstack_proxy.config_sources import load_config
from llm_test_provider import ScriptedProvider, Usage, says
from proxy.accounting import Accountant, RequestOutcome
from proxy.accounting.prompt_cache import hash_chain
from proxy.accounting.tariff import Tariff
from proxy.config import CacheKeepAliveSettings
from proxy.core.ledger import Usage as ReportedUsage
from proxy.dialects import OPENAI_CHAT
from proxy.errors import StoreError
from proxy.exchange.background import cache_pings
from proxy.exchange.background.cache_pings import CacheKeepAlive, SentRequest
from proxy.exchange.background.own_requests import OwnRequests
from proxy.store.conversation_cache import ConversationCache
from proxy.store.interface import Store
from proxy.store.sql import open_store
from proxy.telemetry.metrics import Metrics
from proxy.upstream.routing import Routes
from tests.core.forest import LedgerBuilder

TENANT = "tenant"
ROW = Tariff(("m",), input=1.0, output=0.0, read=0.1, write=1.25, ttl_s=300)
TOKENS = 10_000
CHAIN = [("head", 1_000), ("message", TOKENS - 1_000)]
PING_USD = 0.001
"""A read of so many tokens."""
PATIENCE_S, QUIET_S = 10.0, 0.1


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as running:
        yield running


@pytest.fixture
async def bench(tmp_path: Path, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    # A patch: what is due is looked for each quarter of a second, too long for a test of its own each.
    monkeypatch.setattr(cache_pings, "CHECK_INTERVAL_S", 0.005)
    store = open_store("sqlite", tmp_path)
    await store.start()
    made = Bench(store, provider)
    working = asyncio.create_task(made.keep_alive.run())
    yield made
    working.cancel()
    with suppress(asyncio.CancelledError):
        await working
    await made.routes.aclose()
    await store.close()


class Bench:
    """A keep-alive with all it works with, and one conversation whose answer has just ended."""

    def __init__(self, store: Store, provider: ScriptedProvider) -> None:
        self.provider, self.now_ms, self.metrics = provider, 1_800_000_000_000, Metrics()
        flags = {"upstreams.default.url": provider.url, "upstreams.default.key": "sk-own"}
        self.routes = Routes(load_config(flags))
        conversations = ConversationCache(store)
        talk = LedgerBuilder()
        talk.client("user", "begin")
        self.cached = conversations.create(talk.ledger.conversation)
        numbers = itertools.count(1)
        self.accountant = Accountant(lambda: self.now_ms, tariff_of=lambda _: ROW)
        self.keep_alive = CacheKeepAlive(
            CacheKeepAliveSettings(pings=4),
            OwnRequests(
                conversations,
                store,
                self.accountant,
                self.metrics,
                lambda: self.now_ms,
                lambda: f"r{next(numbers):020x}",
            ),
        )
        self.tenant = talk.ledger.conversation.tenant

    def rests(self, saved: float = 1.0, written: int = TOKENS, **about: Any) -> None:
        """An answer has ended, in a conversation that has saved so many USD."""
        request: dict[str, Any] = {
            "tenant": self.tenant,
            "entry_id": "e1",
            "dialect": OPENAI_CHAT,
            "upstream": self.routes.upstreams["default"],
            "path": "/v1/chat/completions",
            "query": b"",
            "headers": [(b"content-type", b"application/json")],
            "body": b'{"model":"m","messages":[{"role":"user","content":"hello"}]}',
            "chain": hash_chain(CHAIN),
            "sent_at": self.now_ms,
            "entries": len(self.cached.ledger.entries),
            "waits_for_tools": False,
            "user_messages": 2,
            "is_delegated": False,
        }
        account = self.accountant.open(CHAIN, (self.tenant, "default", "m"))
        account.add_round(CHAIN)
        conversation = self.cached.ledger.conversation.id
        outcome = RequestOutcome(
            id="r", conversation=conversation, thread="t1", model="m", upstream="default", status="full"
        )
        receipt = account.settle(outcome, [ReportedUsage(TOKENS, 1, 0, written)])
        self.keep_alive.add_to_balance(self.tenant, conversation, saved)
        self.keep_alive.begin_pause(SentRequest(**{**request, **about}), receipt)

    async def sends(self, wanted: int, steps: int, *, cached: int = TOKENS, since: int = 0) -> None:
        """So many pings, read from the cache as far as told, and no more in a pause of so many times their interval."""
        said = says(".").but(usage=Usage(TOKENS, 0, cached))
        self.provider.when(lambda _: True, said, loop=True)
        for step in range(1, steps + 1):
            self.now_ms += 271_000
            late = time.monotonic() + PATIENCE_S
            while self.count < min(since + step, wanted):
                assert time.monotonic() < late, self.metrics.cache_pings
                await asyncio.sleep(0.005)
            await asyncio.sleep(0 if since + step < wanted else QUIET_S)
        assert self.count == wanted

    @property
    def count(self) -> int:
        return sum(self.metrics.cache_pings.values())


async def test_who_has_come_back_once_is_expected_back(bench: Bench) -> None:
    bench.rests()
    await bench.sends(2, 2)


@pytest.mark.parametrize("about", [{"user_messages": 1}, {"is_delegated": True}], ids=str)
async def test_who_was_asked_once_or_by_an_agent_is_not(bench: Bench, about: dict[str, Any]) -> None:
    bench.rests(**about)
    await bench.sends(0, 1)


@pytest.mark.parametrize("about", [{"user_messages": 1}, {"is_delegated": True}], ids=str)
async def test_whose_tools_run_comes_back_in_any_case(bench: Bench, about: dict[str, Any]) -> None:
    bench.rests(waits_for_tools=True, **about)
    await bench.sends(1, 1)


@pytest.mark.parametrize("pings", [0, 1, 2])
async def test_a_conversation_spends_what_it_has_saved(bench: Bench, pings: int) -> None:
    bench.rests(saved=(pings + 0.5) * PING_USD)
    await bench.sends(pings, 4)


async def test_a_prompt_that_is_no_longer_cached_is_not_asked_for_again(bench: Bench) -> None:
    bench.rests()
    await bench.sends(1, 3, cached=TOKENS // 3)
    assert bench.metrics.cache_pings == {"cold": 1}


async def test_a_store_that_fails_says_nothing_of_the_model(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise StoreError("away", code="store_unreachable")

    with monkeypatch.context() as patched:  # a patch: the store of this process cannot be taken away and come back
        patched.setattr(bench.keep_alive.own_requests.conversation_cache, "get", fail)
        for wanted in range(1, cache_pings.MAX_MISSES + 1):
            bench.rests()
            await bench.sends(wanted, 1, since=wanted - 1)
    assert bench.metrics.cache_pings == {"store_unreachable": cache_pings.MAX_MISSES}
    bench.rests()
    await bench.sends(cache_pings.MAX_MISSES + 1, 1, since=cache_pings.MAX_MISSES)
    assert bench.metrics.cache_pings["kept"] == 1


async def test_what_the_provider_did_not_keep_is_not_kept_alive(bench: Bench) -> None:
    """Its client set a marker behind the system text alone, say."""
    bench.rests(written=TOKENS // 5)
    await bench.sends(0, 1)
