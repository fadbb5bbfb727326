"""The optional cache keep-alive through HTTP on both sides: what is sent while a client pauses, when, with whose key,
and what it costs. Proxy and provider share a clock that the tests set forward: a pause of minutes takes none."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from llm_test_provider import ScriptedProvider, says, status
from llm_test_provider.script import ReceivedRequest
from proxy.accounting.tariff import Tariff
from tests.bill import sum_charged
from tests.client_dialects import MESSAGES
from tests.clocks import Clock
from tests.harness import RunningProxy, Stage, bash, does
from tests.scenarios.sessions import TOOLS, Session

CLOCK = Clock()
MINUTE = 60
TTL_S, STEP_S = 5 * MINUTE, 270
PATIENCE_S, QUIET_S = 2.0, 0.15
PRICES: dict[str, Any] = {"input": 1.0, "output": 5.0, "read": 0.1, "write": 1.25, "minimum": 1024, "ttl_s": TTL_S}
ON = {
    "cache_keep_alive__pings": 4,
    "upstreams__default__key": "sk-of-the-operator",
    "tariffs__own__names": "gpt-x",
    **{f"tariffs__own__{name}": value for name, value in PRICES.items()},
}
"""With a model whose prices are known and whose cache lives for five minutes."""
WORKS = """
user: Find out how the parser is built.
run cat lexer
run cat parser
run cat tables
says: It is a table driven parser.
user: Now translate the README into French.
run cat README
run cat glossary
says: It is translated.
user: Add a workflow for releases.
run cat workflow
says: Done.
"""
"""Finished work is folded at each request of the user, so the conversation saves."""


@pytest.fixture(autouse=True)
def _set_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    CLOCK.set_by = 0
    # A patch: what is due is looked for each quarter of a second, and each test waits for several pings.
    monkeypatch.setattr("proxy.exchange.background.cache_pings.CHECK_INTERVAL_S", 0.01)
    with patch("proxy.server.app.now_ms", CLOCK):
        yield


pytestmark = pytest.mark.parametrize("provider", [{"clock": lambda: CLOCK() / 1000}], indirect=True)


@pytest.fixture
def proxy(stage: Stage) -> RunningProxy:
    return stage.proxy(**ON)


def working(stage: Stage, provider: ScriptedProvider, proxy: RunningProxy, **about: Any) -> Session:
    """A conversation that has saved, in a pause."""
    stage.excused |= set(range(1, 100))  # folds change the past of a line; here the pauses are looked at
    provider.when(is_ping, says("."), loop=True)
    session = Session(stage.chat(proxy, tools=TOOLS, **about), provider, padding=6_000)
    session.plays(WORKS)
    return session


def is_ping(received: ReceivedRequest) -> bool:
    """Whether it asks for hardly any answer."""
    limits = ("max_tokens", "max_completion_tokens", "max_output_tokens")
    return isinstance(received.body, dict) and any(int(received.body.get(name) or 99) <= 16 for name in limits)


def pings(provider: ScriptedProvider) -> list[ReceivedRequest]:
    return [received for received in provider.received if is_ping(received)]


def pass_time(seconds: float) -> None:
    CLOCK.set_by += int(seconds * 1000)


def until(proxy: RunningProxy, **wanted: int) -> None:
    """Returns once so many pings have ended so."""
    late = time.monotonic() + PATIENCE_S
    while (told := proxy.counted("callstack_cache_pings_total", "outcome")) != wanted:
        assert time.monotonic() < late, told
        time.sleep(0.01)


def pauses(proxy: RunningProxy, pings: int, step_s: float = STEP_S) -> None:
    """A pause in which so many pings are sent and all find what they keep."""
    for n in range(pings):
        pass_time(step_s)
        until(proxy, kept=n + 1)


def stays_quiet(provider: ScriptedProvider, seconds: float = STEP_S + 1) -> None:
    """A pause in which nothing is sent."""
    before = len(provider.received)
    pass_time(seconds)
    time.sleep(QUIET_S)
    assert len(provider.received) == before


def test_the_cache_is_warm_after_a_pause_and_each_ping_has_a_receipt(
    stage: Stage, provider: ScriptedProvider, proxy: RunningProxy
) -> None:
    session = working(stage, provider, proxy)
    before = provider.received[-1]
    pauses(proxy, 3)
    session.turn("One more thing.", closing="Yes?")
    after = provider.received[-1].usage
    assert after
    assert before.usage
    assert after.cached > 0.9 * before.usage.prompt
    asked = pings(provider)
    assert [len(each.messages) for each in asked] == [len(before.messages)] * 3
    assert [each.tool_names for each in asked] == [before.tool_names] * 3
    told = [receipt for receipt in proxy.receipts() if receipt["status"] == "keep_alive"]
    assert [receipt["reason"] for receipt in told] == ["kept"] * 3
    assert all(receipt["saved"] == -receipt["cost"] < 0 for receipt in told)
    total = proxy.manage("GET", "/stack/totals")["total"]
    assert total["requests"] == len(provider.received) - 3


def test_the_report_is_the_bill_on_both_sides(stage: Stage, provider: ScriptedProvider) -> None:
    """The untouched run sends no pings, so its cache is cold after the pause."""
    prices = PRICES if stage.tongue is MESSAGES else {**PRICES, "write": 1.0, "step": 128, "ttl_s": 10 * MINUTE}
    row, first = Tariff(("gpt-x",), **prices), 0
    settings = {**ON, **{f"tariffs__own__{name}": value for name, value in prices.items()}}
    untouched = stage.proxy(**{**settings, "mode": "off", "upstreams__default__key": "sk-direct"})
    for proxy in (untouched, stage.proxy(**settings)):
        first = len(provider.received)
        session = working(stage, provider, proxy)
        if proxy is untouched:
            pass_time(3 * 0.9 * row.ttl_s)
        else:
            pauses(proxy, 3, 0.9 * row.ttl_s)
        session.turn("One more thing.", closing="Yes?")
    receipts = proxy.receipts()
    assert sum(receipt["cost"] for receipt in receipts) == pytest.approx(sum_charged(provider.received[first:], row))
    alone = sum_charged(provider.received[first - 1 : first], row)
    assert receipts[-1]["cost_untouched"] == pytest.approx(alone, rel=0.01)
    assert receipts[-1]["saved"] > 0.5 * alone


def test_a_pause_has_as_many_pings_as_pay(stage: Stage, provider: ScriptedProvider, proxy: RunningProxy) -> None:
    """With writes at 1.25 that is all four that may be sent; with writes at the input price it is three."""
    working(stage, provider, proxy)
    pauses(proxy, 4)
    stays_quiet(provider)
    free_writes = stage.proxy(**{**ON, "tariffs__own__write": 1.0})
    working(stage, provider, free_writes)
    pauses(free_writes, 3)
    stays_quiet(provider)


@pytest.mark.parametrize(
    "settings",
    [
        {"cache_keep_alive__pings": 0},
        {"upstreams__default__key": None},  # nobody gave a key for it
        {"tariffs__own__read": 0.5},  # a read costs as much as it saves
        {"tariffs__own__names": "other"},  # the price is not known
        {"mode": "off"},
        {"mode": "shadow"},
    ],
    ids=str,
)
def test_nothing_is_sent_where_it_is_off_or_cannot_pay(
    stage: Stage, provider: ScriptedProvider, settings: dict[str, object]
) -> None:
    working(stage, provider, stage.proxy(**{**ON, **settings}))
    stays_quiet(provider)


@pytest.mark.one_process("it looks into SQLite's file, or damages it")
@pytest.mark.parametrize(
    ("header", "settings"),
    [({"x-stack-cache-keep-alive": "on"}, {}), ({}, {"cache_keep_alive__client_keys": True})],
    ids=["by-header", "by-setting"],
)
def test_a_client_may_give_its_own_key(
    stage: Stage, provider: ScriptedProvider, header: dict[str, str], settings: dict[str, object]
) -> None:
    """By a header, or where the proxy is its user's own by the settings. The key is in no file."""
    proxy = stage.proxy(**{**ON, "upstreams__default__key": None, **settings})
    keys = {"authorization": "Bearer sk-of-the-client", "x-api-key": "sk-of-the-client"}
    working(stage, provider, proxy, headers={**keys, **header})
    pauses(proxy, 1)
    (ping,) = pings(provider)
    assert "sk-of-the-client" in (ping.header("authorization") or ping.header("x-api-key") or "")
    assert ping.header("x-stack-cache-keep-alive") is None
    kept = [path.read_bytes() for path in stage.folder.rglob("*") if path.is_file()]
    assert kept
    assert not any(b"sk-of-the-client" in written for written in kept)


def test_a_client_that_is_back_needs_none(stage: Stage, provider: ScriptedProvider, proxy: RunningProxy) -> None:
    """The pause begins anew with each request."""
    session = working(stage, provider, proxy)
    pass_time(STEP_S - 30)
    session.turn("One more thing.", closing="Yes?")
    stays_quiet(provider, 60)
    pass_time(STEP_S - 60)
    until(proxy, kept=1)


def test_the_first_words_of_a_person_may_be_the_last(
    stage: Stage, provider: ScriptedProvider, proxy: RunningProxy
) -> None:
    """Whoever was asked for one thing, and has answered, may not come back."""
    stage.excused |= set(range(1, 100))
    provider.when(is_ping, says("."), loop=True)
    script, _, _ = WORKS.partition("user: Now")
    Session(stage.chat(proxy, tools=TOOLS), provider, padding=6_000).plays(script)
    stays_quiet(provider)


def test_the_cache_is_kept_while_a_tool_runs(stage: Stage, provider: ScriptedProvider, proxy: RunningProxy) -> None:
    session = working(stage, provider, proxy)
    provider.will(does(bash("make all"), bash("make check")), says("All is well."))
    session.chat.says("Build it and run the checks.")
    pauses(proxy, 2)
    session.chat.returns("built", "checked")
    after = provider.received[-1].usage
    assert after
    assert after.cached > 0.5 * after.prompt


def test_what_has_saved_nothing_spends_nothing(stage: Stage, provider: ScriptedProvider) -> None:
    proxy = stage.proxy(**{**ON, "wake_at_tokens": 10_000_000})
    working(stage, provider, proxy)
    assert sum(receipt["saved"] for receipt in proxy.receipts()) == pytest.approx(0.0, abs=1e-9)
    stays_quiet(provider)


def test_a_ping_that_finds_nothing_is_the_last(stage: Stage, provider: ScriptedProvider, proxy: RunningProxy) -> None:
    working(stage, provider, proxy)
    pass_time(60 * MINUTE)  # as if the machine had slept
    until(proxy, cold=1)
    stays_quiet(provider)


@pytest.mark.one_process("each process learns for itself what a provider refuses")
def test_a_model_that_refuses_them_gets_no_more(stage: Stage, provider: ScriptedProvider, proxy: RunningProxy) -> None:
    refused = 0
    provider.when(is_ping, status(400), loop=True)
    session = working(stage, provider, proxy)
    for refused in (1, 2, 3):
        pass_time(STEP_S)
        until(proxy, refused=refused)
        session.turn(f"Question {refused}?", closing="Yes?")
    stays_quiet(provider)
    assert [receipt["cost"] for receipt in proxy.receipts() if receipt["status"] == "keep_alive"] == [0.0] * 3


def test_what_was_deleted_is_not_sent_again(stage: Stage, provider: ScriptedProvider, proxy: RunningProxy) -> None:
    stage.judged = False  # what was sent is no longer stored
    working(stage, provider, proxy)
    proxy.manage("DELETE", f"/stack/conversations/{proxy.conversations[0]['id']}")
    stays_quiet(provider)


@pytest.mark.rows("X-51")
def test_no_ping_is_sent_before_the_time_that_a_refusal_named(
    stage: Stage, provider: ScriptedProvider, proxy: RunningProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose request was refused does not matter; the pause is over, and that is no miss of the model."""
    # Patched: a provider rests by a clock that a test cannot set.
    passed = SimpleNamespace(monotonic=lambda: time.monotonic() + CLOCK.set_by / 1000)
    monkeypatch.setattr("proxy.upstream.retry_after.time", passed)
    session = working(stage, provider, proxy)
    provider.will(status(429, headers={"retry-after": str(STEP_S * 2)}))
    other = stage.chat(proxy, tools=TOOLS)
    assert other.says("Something else.").status == 429
    before = len(provider.received)
    pass_time(STEP_S)
    until(proxy, resting=1)
    assert len(provider.received) == before

    pass_time(STEP_S)
    session.turn("Are you there?", closing="Yes.")
    pass_time(STEP_S)
    until(proxy, resting=1, kept=1)
