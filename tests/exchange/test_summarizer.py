"""The summariser in its own process: what waits for it, what it may know of what was deleted, what it is refused for.
How it works through HTTP is in `tests/scenarios/test_summaries.py`."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest
from msgspec.structs import replace

from callstack_proxy.config_sources import load_config
from callstack_proxy.management.reports import sum_receipts
from llm_test_provider import ReceivedRequest, ScriptedAnswer, ScriptedProvider, says
from proxy.accounting import Accountant, Receipt
from proxy.accounting.token_counter import TokenCounter
from proxy.config.model import Config
from proxy.core.frames.events import FrameEntered, FrameFolded, RootStarted, ThreadWoken
from proxy.dialects import OPENAI_CHAT, ParseCache
from proxy.errors import InvalidConfiguration
from proxy.exchange.background.own_requests import OwnRequests
from proxy.exchange.background.summarizer import MAX_WAITING_FOLDS, Summarizer, build_summarizer, parse_answer
from proxy.exchange.thread.placement import ParsedRequest, Placement
from proxy.store.conversation_cache import CachedConversation, ConversationCache
from proxy.store.interface import Store
from proxy.store.sql import open_store
from proxy.telemetry.metrics import Metrics
from proxy.upstream.routing import Routes
from tests.core.forest import LedgerBuilder, call

MODEL = "claude-haiku-4-5"
TENANT = "tenant"
WORK = "secret words of the conversation " * 400
PATIENCE_S = 10.0


@pytest.fixture
def writer() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as running:
        yield running


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    made = open_store("sqlite", tmp_path)
    await made.start()
    yield made
    await made.close()


def configured(url: str, **settings: str) -> Config:
    flags = {"upstreams.writer.url": url, "upstreams.writer.key": "sk-own", "summaries.upstream": "writer"}
    return load_config({**flags, "summaries.model": MODEL, **{f"summaries.{k}": v for k, v in settings.items()}})


class Bench:
    """A summariser with all it works with, and one conversation in which a span was folded."""

    def __init__(self, store: Store, writer: ScriptedProvider, **settings: str) -> None:
        self.store, self.metrics, self.today = store, Metrics(), 1_800_000_000_000
        self.routes = Routes(config := configured(writer.url, **settings))
        self.shelf = ConversationCache(store)
        numbers = itertools.count(1)
        counter = TokenCounter()
        own_requests = OwnRequests(
            self.shelf,
            store,
            Accountant(lambda: self.today, counter.name, config.tariff_of),
            self.metrics,
            lambda: self.today,
            lambda: f"r{next(numbers):020x}",
        )
        made = build_summarizer(config, self.routes, own_requests, counter)
        assert made is not None
        self.summaries: Summarizer = made
        self.shelved, self.standing = folded(self.shelf)

    async def until(self, true: Callable[[], bool]) -> None:
        """Lets the summariser work until something is true of it."""
        working = asyncio.create_task(self.summaries.run())
        late = time.monotonic() + PATIENCE_S
        try:
            while not true():
                assert time.monotonic() < late, self.metrics.summaries
                await asyncio.sleep(0.005)
        finally:
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.routes.aclose()


def folded(conversations: ConversationCache) -> tuple[CachedConversation, Placement]:
    """A conversation with one folded span, as a request stands in it that is rendered."""
    talk = LedgerBuilder()
    talk.client("user", "begin")
    talk.happens(RootStarted("froot", "Begin", "begin"))
    talk.happens(FrameEntered("fitem", "froot", "The item", "it is done", "plan"))
    talk.happens(ThreadWoken("", "[]"))
    turn = talk.model(("", (call("c1", "bash", command="make"),)))
    result = talk.client("tool", WORK, answers="c1")
    talk.happens(FrameFolded("fitem", (turn, result), "<stack-context>made</stack-context>"))
    ledger = talk.ledger
    cached = conversations.create(ledger.conversation)
    entries = [
        replace(e, message=replace(e.message, tokens=len(e.message.text) // 4)) if e.message else e
        for e in ledger.entries.values()
    ]
    rounds = [one for some in ledger.rounds.values() for one in some]
    events = [one for some in ledger.events.values() for one in some]
    conversations.record(cached, [*entries, *rounds, *events], [ledger.conversation])
    body = msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": "begin"}]})
    parsed = ParsedRequest(TENANT, [], OPENAI_CHAT.parse_request(body, ParseCache()), 0)
    return cached, Placement(parsed, cached, cached.path_state(result), result, "thread", "full", mode="active")


# ---------------------------------------------------------------------------------------------------------
# configuration
@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"upstreams.writer.key": None}, ["summaries.upstream", "no key of its own", "upstreams.writer.key"]),
        ({"summaries.upstream": "nobody"}, ["summaries.upstream", "no upstream 'nobody'", "writer"]),
        ({"summaries.model": "some-model-of-mine"}, ["summaries.model", "not known", "tariffs"]),
        ({"summaries.model": "half", "tariffs.half.input": "1"}, ["summaries.model", "not known", "output"]),
        ({"summaries.usd_per_day": "-1"}, ["summaries.usd_per_day"]),
    ],
)
def test_what_would_spend_anybody_elses_money_or_nobody_knows_how_much_is_refused(
    flags: dict[str, Any], told: list[str]
) -> None:
    known = {"upstreams.writer.url": "http://a.example", "upstreams.writer.key": "sk-canary"}
    with pytest.raises(InvalidConfiguration) as refused:
        load_config({**known, "summaries.upstream": "writer", "summaries.model": MODEL, **flags})
    assert all(word in str(refused.value) for word in told)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize("off", [{"model": ""}, {"usd_per_day": "0"}])
def test_without_a_model_or_money_there_is_no_summariser(off: dict[str, str]) -> None:
    """A key or a price is asked for only where it is on."""
    config = load_config({"upstream": "http://a.example", **{f"summaries.{k}": v for k, v in off.items()}})
    assert not config.summaries.is_enabled


# ------------------------------------------------------------------------------------------------------------ behaviour
async def test_more_folds_than_may_wait_are_counted_and_passed_over(store: Store, writer: ScriptedProvider) -> None:
    async with Bench(store, writer) as bench:
        for _ in range(MAX_WAITING_FOLDS + 3):
            bench.summaries.enqueue_folds(bench.standing)
        assert bench.metrics.summaries == {"queue_full": 3}


async def test_a_request_that_passed_as_it_came_offers_nothing(store: Store, writer: ScriptedProvider) -> None:
    async with Bench(store, writer) as bench:
        for _ in range(MAX_WAITING_FOLDS + 3):
            bench.summaries.enqueue_folds(replace(bench.standing, status="asleep"))
        assert bench.metrics.summaries == {}


async def test_nothing_deleted_is_asked_about(store: Store, writer: ScriptedProvider) -> None:
    """What waits holds no content: it is read again, and is not there."""
    async with Bench(store, writer) as bench:
        bench.summaries.enqueue_folds(bench.standing)
        await delete(bench)
        await bench.until(lambda: bench.metrics.summaries == {"gone": 1})
        assert not writer.received


@pytest.mark.parametrize("words", ["Progress: it was made.", ""], ids=["summarised", "empty"])
async def test_what_is_deleted_while_it_is_summarised_leaves_no_content(
    store: Store, writer: ScriptedProvider, words: str
) -> None:
    """The money was spent and is told; neither the question nor the summary is kept."""
    async with Bench(store, writer) as bench:
        deleted = threading.Event()

        def late(_: ReceivedRequest) -> ScriptedAnswer:
            assert deleted.wait(PATIENCE_S)
            return says(words)

        writer.will(late)
        bench.summaries.enqueue_folds(bench.standing)

        async def meanwhile() -> None:
            await asyncio.to_thread(writer.wait_for, 1)
            await delete(bench)
            deleted.set()

        await asyncio.gather(meanwhile(), bench.until(lambda: bench.metrics.summaries == {"gone": 1}))
        (kept,) = await store.requests(None)
        asked = await store.request(None, kept.id)
        assert asked is not None
        assert asked.sent == ()
        assert msgspec.json.decode(kept.receipt, type=Receipt).cost > 0


async def delete(bench: Bench) -> None:
    conversation = bench.shelved.ledger.conversation.id
    await bench.store.delete_conversations(TENANT, conversation)
    bench.shelf.drop_deleted(TENANT, conversation)


async def test_a_day_ends_at_midnight_of_utc(store: Store, writer: ScriptedProvider) -> None:
    """What was spent yesterday is not counted today, nor by a process that starts today."""
    writer.when(MODEL, says("Progress: it was made."), loop=True)
    async with Bench(store, writer, usd_per_day="0.0075") as bench:
        for outcomes in ({"kept": 1}, {"kept": 1, "no_money": 1}):
            bench.summaries.enqueue_folds(bench.standing)
            await bench.until(lambda wanted=outcomes: bench.metrics.summaries == wanted)  # type: ignore[misc]
        bench.today += 86_400_000
        bench.summaries.enqueue_folds(bench.standing)
        await bench.until(lambda: bench.metrics.summaries == {"kept": 2, "no_money": 1})


async def test_a_summary_counts_as_cost_and_as_no_request(store: Store, writer: ScriptedProvider) -> None:
    writer.will(says("Progress: it was made."))
    async with Bench(store, writer) as bench:
        bench.summaries.enqueue_folds(bench.standing)
        await bench.until(lambda: bench.metrics.summaries == {"kept": 1})
        (kept,) = await store.requests(None)
        row = sum_receipts([msgspec.json.decode(kept.receipt, type=Receipt)])
        assert (row.requests, row.rounds, row.own) == (0, 1, row.tokens_sent)
        assert row.saved == -row.cost < 0
        assert bench.metrics.requests == {}
        assert bench.metrics.sums["writer", MODEL].cost == row.cost
        asked = await store.request(None, kept.id)
        assert asked is not None
        assert b"".join(asked.sent[0].body) == writer.received[0].raw


async def test_no_content_is_logged_whatever_goes_wrong(
    store: Store, writer: ScriptedProvider, caplog: pytest.LogCaptureFixture
) -> None:
    """O2: the words of an error may be content."""
    async with Bench(store, writer) as bench:
        caplog.set_level("DEBUG")
        writer.will(ScriptedAnswer(text=""))
        bench.summaries.enqueue_folds(bench.standing)
        await bench.until(lambda: bench.metrics.summaries == {"empty": 1})
        assert "secret words" not in caplog.text
        assert [r.__dict__["reason"] for r in caplog.records if r.message == "summary"] == ["empty"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"choices":[]}',
        b'{"choices":[{}]}',
        b'{"choices":[{"message":null}]}',
        b"[" * 9999,
        b'{"choices":[{"message":{"content":[{"type":"text"}]}}]}',
        b"\xff\xfe",
        b'{"choices":[{"message":{"content":7}}]}',
    ],
)
def test_what_is_no_completion_has_no_text(body: bytes) -> None:
    assert parse_answer(body) == ("", None)
