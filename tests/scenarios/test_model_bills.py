"""Receipts against providers that bill by today's price lists: prices, lifetimes of the cache and bands, written here
by hand and not taken from the list of the product."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from callstack_proxy.cli.inspect import receipt_text
from llm_test_provider import Model, ScriptedProvider, Usage, says
from llm_test_provider.apis import chat as chat_api
from llm_test_provider.prompt_cache import CACHE_RULES, CacheRule
from proxy.accounting import UNKNOWN_TARIFF, Receipt
from tests.client_dialects import CHAT, MESSAGES, RESPONSES, TestDialect
from tests.clocks import Clock, set_clock
from tests.harness import Conversation, RecordingProvider, Stage, bash, does, running_stage
from tests.scenarios.test_bill import SYSTEM, TOOLS, play_session

MILLION = 1_000_000
CLOSE = 0.01
"""Share of a bill by which a receipt may be off."""
CACHE = "of the bill"


@dataclass(frozen=True)
class Bill:
    """What a provider charges for a model, in USD per million tokens, and how its cache works."""

    model: str
    input: float
    cached: float
    written: float
    output: float
    lifetime: int
    minimum: int
    step: int = 1
    above: int = 0
    dear_input: float = 0.0
    dear_output: float = 0.0
    tongue: TestDialect = CHAT

    @property
    def rule(self) -> CacheRule:
        read, write = self.cached / self.input, self.written / self.input
        marked = self.tongue is MESSAGES
        return CacheRule(CACHE, read, write, self.minimum, self.step, self.lifetime, marked=marked)

    def charge(self, usage: Usage, completion: int) -> float:
        """USD for one answer."""
        is_long = 0 < self.above < usage.prompt
        times = self.dear_input / self.input if is_long else 1.0
        fresh = usage.prompt - usage.cached - usage.written
        lasting = 2 * self.input * usage.written_long  # what the messages API keeps for an hour
        written = self.written * (usage.written - usage.written_long) + lasting
        read = self.input * fresh + self.cached * usage.cached + written
        return (times * read + (self.dear_output if is_long else self.output) * completion) / MILLION


BILLS = [
    Bill("claude-fable-5-2", 8.0, 0.2, 10.0, 40.0, 300, 512, tongue=MESSAGES),
    Bill("claude-opus-5-5", 4.0, 0.2, 5.0, 20.0, 300, 512, tongue=MESSAGES),
    Bill("claude-sonnet-5", 2.0, 0.2, 2.5, 10.0, 300, 1024, tongue=MESSAGES),
    Bill("claude-haiku-5-5", 0.1, 0.01, 0.125, 0.5, 300, 512, 1, 100_000, 0.5, 2.5, tongue=MESSAGES),
    Bill("gpt-6.2-sol", 2.0, 0.1, 2.5, 10.0, 1800, 1024, 128, 272_000, 4.0, 15.0),
    Bill("gpt-6.1-terra", 1.0, 0.05, 1.25, 5.0, 1800, 1024, 128, 272_000, 2.0, 7.5),
    Bill("gpt-6-luna", 0.1, 0.01, 0.125, 0.5, 1800, 1024, 128, 272_000, 0.2, 0.75),
    Bill("gpt-5.6-terra", 2.0, 0.2, 2.5, 12.0, 1800, 1024, 128, 272_000, 4.0, 18.0),
    Bill("gpt-5.3-codex", 1.75, 0.175, 1.75, 14.0, 600, 1024, 128, tongue=RESPONSES),
    Bill("o3", 2.0, 0.5, 2.0, 8.0, 300, 1024, 128),
    Bill("gemini-3.1-pro", 2.0, 0.2, 2.0, 12.0, 300, 4096, 1, 200_000, 4.0, 18.0),
    Bill("gemini-4-neon", 3.0, 0.15, 3.0, 15.0, 300, 4096),
    Bill("deepseek-flash", 0.3, 0.006, 0.3, 1.2, 86_400, 64, 64),
    Bill("grok-4.7", 2.0, 0.5, 2.0, 6.0, 300, 1024, 128, 200_000, 4.0, 12.0),
    Bill("kimi-k2.7-code", 0.95, 0.19, 0.95, 4.0, 300, 1024, 128),
    Bill("mimo-v2.6-pro", 0.435, 0.0036, 0.435, 0.87, 300, 1024, 128),
    Bill("mistral-large-3", 0.5, 0.05, 0.5, 1.5, 300, 1024, 128),
]


@pytest.fixture
def clock() -> Iterator[Clock]:
    with set_clock() as clock:
        yield clock


def play(provider: ScriptedProvider, chat: Conversation, clock: Clock, bill: Bill) -> None:
    """A question, a command with a long output (longer than the band, where there is one), a pause in which the cache
    lives, and one after which it is gone."""
    long = "word " * max(8_000, int(bill.above * 1.02))
    provider.will(does(bash("make")), does(bash("ls")), says("That is it. " * 40), says("Yes."), says("Again yes."))
    chat.says(f"Look at this, please. {'word ' * 6_000}")
    chat.returns(long)
    chat.returns("a.py")
    clock.set_by += int(bill.lifetime * 900)
    chat.says("And now?")
    clock.set_by += int(bill.lifetime * 1_100)
    chat.says("And after the break?")


def send(alone: ScriptedProvider, tongue: TestDialect, body: bytes) -> None:
    parts = urlsplit(alone.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    connection.request("POST", tongue.path, body, {"content-type": "application/json"})
    connection.getresponse().read()
    connection.close()


def direct_bill(stage: Stage, provider: ScriptedProvider, bill: Bill, played: list[int]) -> float:
    """What the same bodies cost that are sent straight to such a provider, each at its time on the clock (ms)."""
    written = [r.usage.completion for r in provider.asked if r.usage]
    now = [0]
    with ScriptedProvider(models=[Model(bill.model, cache=CACHE)], clock=lambda: now[0] / 1000) as alone:
        for note, at in zip(stage.notes, played, strict=True):
            now[0] = at
            alone.will(says("as before"))
            send(alone, stage.tongue, note.body)
        told = [received.usage for received in alone.asked if received.usage]
    return sum(bill.charge(usage, completion) for usage, completion in zip(told, written, strict=True))


@pytest.mark.rows("X-62")
@pytest.mark.parametrize("bill", BILLS, ids=lambda bill: bill.model)
@pytest.mark.parametrize("mode", ["shadow", "active"])
def test_a_receipt_is_what_the_provider_of_the_model_bills(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, bill: Bill, mode: str
) -> None:
    monkeypatch.setitem(CACHE_RULES, CACHE, bill.rule)
    with (
        RecordingProvider(models=[Model(bill.model, cache=CACHE)], clock=lambda: clock() / 1000) as provider,
        running_stage(provider, tmp_path, streamed=False, tongue=bill.tongue) as stage,
    ):
        chat = stage.chat(stage.proxy(mode=mode), model=bill.model, system=SYSTEM, tools=TOOLS)
        play(provider, chat, clock, bill)
        receipts = chat.proxy.receipts()
        total = chat.proxy.get("/stack/totals")["total"]
        paid = sum(bill.charge(r.usage, r.usage.completion) for r in provider.asked if r.usage)
        direct = direct_bill(stage, provider, bill, [receipt["created"] for receipt in receipts])

    assert all(receipt["priced"] and receipt["basis"] == "reported" for receipt in receipts[1:])
    assert total["cost"] == pytest.approx(paid, rel=CLOSE)
    assert total["cost_untouched"] == pytest.approx(direct, rel=CLOSE)


@pytest.mark.rows("X-62")
@pytest.mark.parametrize("mode", ["shadow", "active"])
def test_the_first_request_of_claude_code_costs_untouched_what_it_costs_directly(tmp_path: Path, mode: str) -> None:
    """Its last marker stands before its last words: what is behind it goes into no cache, with and without us."""
    bill, mark = (
        next(bill for bill in BILLS if bill.model == "claude-opus-5-5"),
        {"cache_control": {"type": "ephemeral"}},
    )
    tools = [{"name": name, "description": f"{name}. " * 30, "input_schema": {"type": "object"}} for name in TOOLS]
    asked = {"type": "text", "text": "Please mend the build.", **mark}
    reminder = {"type": "text", "text": f"<system-reminder>{'Mind the style. ' * 300}</system-reminder>"}
    body = {
        "model": bill.model,
        "max_tokens": 32_000,
        "system": [{"type": "text", "text": SYSTEM, **mark}],
        "tools": tools,
        "messages": [{"role": "user", "content": [asked, reminder]}],
    }
    raw = json.dumps(body).encode()
    with (
        RecordingProvider(models=[Model(bill.model)]) as provider,
        running_stage(provider, tmp_path, streamed=False, tongue=MESSAGES) as stage,
        ScriptedProvider(models=[Model(bill.model)]) as alone,
    ):
        provider.will(says("I will."))
        alone.will(says("I will."))
        proxy = stage.proxy(mode=mode)
        proxy.post(raw, {"user-agent": "claude-cli/2.1.197 (external, cli)"})
        (receipt,) = proxy.receipts()
        send(alone, MESSAGES, raw)
        (direct,) = [received.usage for received in alone.asked if received.usage]

    assert direct.prompt - direct.written > 1_000
    assert receipt["cost_untouched"] == pytest.approx(bill.charge(direct, direct.completion), rel=CLOSE)
    assert receipt["saved"] <= 0


@pytest.mark.rows("X-62")
def test_a_fold_that_keeps_requests_below_a_band_is_done_for_that(tmp_path: Path) -> None:
    """The same session where long requests cost five times as much, and where they do not."""
    above, asked, decided = 33_000, {}, {}
    for known in (0, above):
        row = {"tariffs.long.names": "gpt-5.4", "tariffs.long.long_context": known, "tariffs.long.long_input": 5}
        with (
            RecordingProvider(models=[Model("gpt-5.4", cache="openai")]) as provider,
            running_stage(provider, tmp_path / str(known), streamed=False, tongue=CHAT) as stage,
        ):
            chat = stage.chat(stage.proxy(mode="active", **row), model="gpt-5.4", system=SYSTEM, tools=TOOLS)
            play_session(provider, chat)
            asked[known] = [received.usage for received in provider.asked if received.usage]
            decided[known] = [each for receipt in chat.proxy.receipts() for each in receipt["decisions"]]

    bill = Bill("gpt-5.4", 2.5, 0.25, 2.5, 15.0, 600, 1024, 128, above, 12.5, 15.0)
    unaware, aware = (sum(bill.charge(usage, usage.completion) for usage in asked[known]) for known in (0, above))
    folds = [each for each in decided[above] if each["kind"] == "fold" and each["done"]]
    assert folds
    assert all(0 < each["band"] < each["gain"] for each in folds)
    assert not any(each["band"] for each in decided[0])
    assert sum(usage.prompt > above for usage in asked[above]) < sum(usage.prompt > above for usage in asked[0])
    assert aware < 0.7 * unaware


DEARER = Bill("gpt-5.4", 2.75, 0.275, 2.75, 16.5, 600, 1024, 128)
"""A reseller who takes a tenth more than the list."""


@pytest.mark.rows("X-62")
@pytest.mark.parametrize("mode", ["shadow", "active"])
def test_where_the_answer_names_its_cost_the_receipt_is_the_bill(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """OpenRouter's `usage.cost`: also what the untouched request would have cost is told at the prices paid."""
    bill, told = DEARER, chat_api.usage_object
    monkeypatch.setitem(CACHE_RULES, CACHE, bill.rule)
    monkeypatch.setattr(chat_api, "usage_object", lambda u: told(u) | {"cost": bill.charge(u, u.completion)})
    with (
        RecordingProvider(models=[Model(bill.model, cache=CACHE)], clock=lambda: clock() / 1000) as provider,
        running_stage(provider, tmp_path, streamed=False, tongue=CHAT) as stage,
    ):
        chat = stage.chat(stage.proxy(mode=mode), model=bill.model, system=SYSTEM, tools=TOOLS)
        play(provider, chat, clock, bill)
        receipts = chat.proxy.receipts()
        total = chat.proxy.get("/stack/totals")["total"]
        paid = sum(bill.charge(r.usage, r.usage.completion) for r in provider.asked if r.usage)
        direct = direct_bill(stage, provider, bill, [receipt["created"] for receipt in receipts])

    assert total["cost"] == pytest.approx(paid)
    assert total["cost_untouched"] == pytest.approx(direct, rel=CLOSE)
    assert all(receipt["billed"] for receipt in receipts)
    assert receipts[-1]["price_factor"] == pytest.approx(1.1)


@pytest.mark.rows("X-62")
def test_a_price_learned_from_a_bill_holds_at_that_upstream_where_no_cost_is_named(tmp_path: Path) -> None:
    """The header of a proxy of litellm; the model is in no table, and has its price from then on."""
    with (
        RecordingProvider(models=[Model("house-9")]) as provider,
        running_stage(provider, tmp_path, streamed=False, tongue=CHAT) as stage,
    ):
        chat = stage.chat(stage.proxy(mode="shadow"), model="house-9", system=SYSTEM)
        billed = says("Yes.", headers=(("x-litellm-response-cost", "0.0900"),))
        provider.will(says("Yes."), billed, says("Yes."), says("Yes.", headers=(("x-litellm-response-cost", "n/a"),)))
        for question in ("One?", "Two?", "Three?", "Four?"):
            chat.says(question)
        before, named, after, unreadable = chat.proxy.receipts()

    assert (before["priced"], before["price_factor"], before["billed"]) == (False, 1.0, False)
    assert (named["priced"], named["cost"], named["billed"]) == (True, pytest.approx(0.09), True)
    for receipt in (after, unreadable):
        assert (receipt["priced"], receipt["billed"]) == (True, False)
        assert receipt["price_factor"] == pytest.approx(named["price_factor"])
        assert receipt["cost"] == pytest.approx(0.09, rel=0.05)
    assert f"{named['price_factor']:.3g} times that" in "\n".join(
        receipt_text(msgspec.convert(named, Receipt), UNKNOWN_TARIFF)
    )
    assert "corrected" not in "\n".join(receipt_text(msgspec.convert(before, Receipt), UNKNOWN_TARIFF))
