"""What is told of money, held against what a provider really charges: for the requests that reached it, and for the
same requests sent without a proxy."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace

from llm_test_provider import Ending, Model, ScriptedProvider, Usage, overflow, says, status
from llm_test_provider.tokens import Counter
from proxy.accounting.model_prices import tariff_for
from proxy.accounting.tariff import Tariff
from tests.bill import MILLION, charged, sum_charged
from tests.client_dialects import messages
from tests.harness import NUMBER, Conversation, Stage, activate, bash, does, plan, pop, push, recall, texts

CLOSE = 0.01
"""Share of a bill by which what is told of it may be off."""
STRANGE = 50
"""Tokens by which each request may be off besides: these are so small that our tools and texts make a quarter of them,
and only a provider knows how it counts those."""
CACHED_MODELS = {
    "gpt-5.4": "openai",
    "claude-opus-4-8": "anthropic",
    "deepseek-v4-flash": "deepseek",
    "gemini-3.1-pro": "gemini",
}
"""A model of the table, and the cache its provider has."""
LONG = "word " * 1_200


# ------------------------------------------------------------------------------------------------------- what they play
def begin(provider: ScriptedProvider, chat: Conversation) -> None:
    """A small question, and one that is large enough to wake the latest riser."""
    provider.will(says("Ask."), says("I see."))
    chat.says("May I ask something?")
    chat.says(f"This is it: {LONG * 4}")


def frames(provider: ScriptedProvider, chat: Conversation) -> None:
    begin(provider, chat)
    for task in range(3):
        provider.will(
            does(push(f"Task {task}")),
            *(does(bash(f"{n}")) for n in range(3)),
            does(pop("ok")),
            says("on"),
        )
    for task in range(3):
        chat.says(f"task {task}")
        for n in range(3):
            chat.returns(f"output {task} {n} {LONG}")


def hidden_rounds_alone(provider: ScriptedProvider, chat: Conversation) -> None:
    """Everything costs, and nothing is saved."""
    begin(provider, chat)
    for n in range(3):
        provider.will(
            does(push(f"Task {n}"), text="thinking about it " * 30),
            does(pop("nothing")),
            says("done"),
        )
        chat.says(f"{n} {LONG}")


def a_plan_and_a_recall(provider: ScriptedProvider, chat: Conversation) -> None:
    begin(provider, chat)
    provider.will(
        does(plan("First", "Second")),
        does(activate("First")),
        does(bash()),
        does(pop("found")),
        says("one"),
    )
    chat.says(f"plan it {LONG}")
    chat.returns(LONG * 3)
    provider.will(does(recall("First")), says("two"), says("three"))
    chat.says("what was it?")
    chat.says("and then?")


def two_branches(provider: ScriptedProvider, chat: Conversation) -> None:
    begin(provider, chat)
    provider.will(says("one"), says("two"), does(push("Aside")), says("three"), says("four"))
    chat.says(LONG)
    chat.says("go on")
    other = chat.branch(6)
    other.says("something else instead")
    chat.says("and on")


def a_client_that_compacts(provider: ScriptedProvider, chat: Conversation) -> None:
    begin(provider, chat)
    provider.will(
        does(push("Long")),
        does(bash("a")),
        does(bash("b")),
        does(pop("ok")),
        says("one"),
        says("two"),
    )
    chat.says("go on")
    chat.returns(LONG * 2)
    chat.returns(LONG * 2)
    chat.proxy.stage.excuse()
    chat.history = [{"role": "user", "content": f"Summary of what was done: {LONG}"}]
    chat.says("go on")


PLAYS = [frames, hidden_rounds_alone, a_plan_and_a_recall, two_branches, a_client_that_compacts]


# -------------------------------------------------------------------------------------------------------------- charged
def near(bill: float, requests: int, row: Tariff) -> Any:
    """What a receipt may tell of `bill`."""
    return pytest.approx(bill, rel=CLOSE, abs=CLOSE * bill + requests * STRANGE * row.input / MILLION)


def charged_without_a_proxy(
    stage: Stage, provider: ScriptedProvider, model: str, row: Tariff | None = None, count: Counter | None = None
) -> float:
    """The same bodies, straight to a provider of the same kind that writes as much as it wrote for the client."""
    row = row or tariff_for(model)
    written = {r.header(NUMBER): r.usage.completion for r in provider.asked if r.usage}
    with ScriptedProvider(models=[Model(model, cache=CACHED_MODELS[model])], count=count) as alone:
        for note in stage.notes:
            alone.will(says("as before"))
            parts = urlsplit(alone.url)
            connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
            connection.request("POST", stage.tongue.path, note.body, {"content-type": "application/json"})
            connection.getresponse().read()
            connection.close()
        told = [received.usage for received in alone.asked if received.usage]
    assert len(told) == len(stage.notes) == len(written)
    return sum(
        charged(Usage(u.prompt, completion, u.cached, u.written, 0, u.written_long), row)
        for u, completion in zip(told, written.values(), strict=True)
    )


@pytest.fixture(params=CACHED_MODELS)
def model(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def provider(model: str) -> Iterator[ScriptedProvider]:
    with ScriptedProvider(models=[Model(model, cache=CACHED_MODELS[model])]) as running:
        yield running


@pytest.mark.rows("X-41")
@pytest.mark.parametrize("play", PLAYS)
@pytest.mark.parametrize("wake_at", [0, pytest.param(3_000, marks=pytest.mark.long)])
def test_the_untouched_cost_is_the_bill_of_a_run_without_a_proxy(
    stage: Stage,
    provider: ScriptedProvider,
    model: str,
    play: Callable[[ScriptedProvider, Conversation], None],
    wake_at: int,
) -> None:
    """O2, T13: whatever is played, whichever cache the provider has, from the first request or waking later."""
    chat = stage.chat(stage.proxy(wake_at_tokens=wake_at), model=model)

    play(provider, chat)

    total = chat.proxy.get("/stack/totals")["total"]
    paid = sum_charged(provider.asked, tariff_for(model))
    # What passes asleep in a stream tells no usage, and is estimated.
    assert total["cost"] == pytest.approx(paid, rel=0.005 if wake_at else None)
    bill = charged_without_a_proxy(stage, provider, model)
    assert total["cost_untouched"] == near(bill, len(stage.notes), tariff_for(model))
    assert total["cost_untouched"] == pytest.approx(total["cost"] + total["saved"])


def a_round_that_is_refused(provider: ScriptedProvider, chat: Conversation) -> None:
    begin(provider, chat)
    busy = status(503, headers={"retry-after": "0"})
    provider.will(
        does(push("Long")),
        busy,
        does(bash("a")),
        does(pop("ok")),
        busy,
        says("one"),
        says("two"),
    )
    chat.says(f"go on {LONG}")
    chat.returns(LONG * 2)
    chat.says("and on")


def a_line_that_is_too_long(provider: ScriptedProvider, chat: Conversation) -> None:
    begin(provider, chat)
    provider.will(*(does(bash(f"step {n}")) for n in range(6)), overflow(), says("It fits now."), says("done"))
    chat.says("do it all")
    for _ in range(5):
        chat.returns(LONG * 2)
    chat.proxy.stage.excuse()
    chat.returns(LONG * 2)
    chat.says("go on")


REFUSALS = [a_round_that_is_refused, a_line_that_is_too_long]


@pytest.mark.parametrize("play", REFUSALS)
def test_what_was_refused_and_asked_again_is_paid_once(
    stage: Stage, provider: ScriptedProvider, model: str, play: Callable[[ScriptedProvider, Conversation], None]
) -> None:
    """X-16: a provider charges nothing for a refusal."""
    chat = stage.chat(model=model)

    play(provider, chat)

    receipts = chat.proxy.receipts()
    paid = sum_charged(provider.asked, tariff_for(model))
    assert sum(receipt["rounds"] for receipt in receipts) > len([r for r in provider.asked if r.usage])
    assert sum(receipt["cost"] for receipt in receipts) == pytest.approx(paid)
    assert {receipt["basis"] for receipt in receipts[2:]} == {"reported"}


def test_a_client_that_leaves_in_the_last_round_has_saved_nothing_by_the_hidden_ones(
    stage: Stage, provider: ScriptedProvider, model: str
) -> None:
    """What the model wrote in them is paid, and nobody would have asked it to."""
    chat = stage.chat(stage.proxy(wake_at_tokens=0), model=model, streamed=True)
    provider.will(does(push("x"), text="thinking " * 400), says(LONG, ending=Ending("stall", after_events=9)))
    chat.history.append({"role": "user", "content": "hello"})

    connection, response = chat.proxy.opened(chat.body(), {})
    response.readline()
    provider.wait_until(lambda: len(provider.received) == 2)
    connection.close()
    provider.wait_until(lambda: provider.open_connections == 0)

    (receipt,) = chat.proxy.receipts()
    row = tariff_for(model)
    written = receipt["usage_by_round"][0]["output"] * (row.output or 0.0) / MILLION
    assert receipt["reason"] == "client_left"
    assert receipt["saved"] <= -written < 0


@pytest.mark.parametrize("play", PLAYS)
@pytest.mark.parametrize("long_context", [4_500, pytest.param(5_500, marks=pytest.mark.long)])
@pytest.mark.parametrize("model", ["gpt-5.4", "gemini-3.1-pro"], indirect=True)
def test_a_long_request_is_charged_as_the_provider_does(
    stage: Stage,
    provider: ScriptedProvider,
    model: str,
    play: Callable[[ScriptedProvider, Conversation], None],
    long_context: int,
) -> None:
    """O2: from some length on all of a request costs twice as much, whichever of the two runs is that long."""
    row = replace(tariff_for(model), long_context=long_context)
    chat = stage.chat(
        stage.proxy(**{"tariffs.long.names": model, "tariffs.long.long_context": long_context}), model=model
    )

    play(provider, chat)

    total = chat.proxy.get("/stack/totals")["total"]
    paid = sum_charged(provider.asked, row)
    assert any(received.usage.prompt > long_context for received in provider.asked if received.usage)
    assert total["cost"] == pytest.approx(paid)
    bill = charged_without_a_proxy(stage, provider, model, row)
    assert total["cost_untouched"] == near(bill, len(stage.notes), row)


@pytest.mark.spoken_in("messages", reason="only there a client says how long something shall be kept")
@pytest.mark.parametrize("model", ["claude-opus-4-8"], indirect=True)
@pytest.mark.parametrize("play", PLAYS)
def test_a_cache_that_shall_last_an_hour_is_charged_as_the_provider_does(
    stage: Stage,
    provider: ScriptedProvider,
    model: str,
    play: Callable[[ScriptedProvider, Conversation], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """O2: some clients ask for it with every marker, and it costs 2 instead of 1.25."""
    monkeypatch.setattr(messages, "MARK", messages.LASTING)  # a habit of the client, not of what is tested
    chat = stage.chat(model=model)

    play(provider, chat)

    total = chat.proxy.get("/stack/totals")["total"]
    paid = sum_charged(provider.asked, tariff_for(model))
    assert sum(received.usage.written_long for received in provider.asked if received.usage) > 1_000
    assert total["cost"] == pytest.approx(paid)
    bill = charged_without_a_proxy(stage, provider, model)
    assert total["cost_untouched"] == near(bill, len(stage.notes), tariff_for(model))


@pytest.mark.rows("X-16", "S2-15")
def test_the_sums_are_those_of_their_rows_and_of_the_receipts(
    stage: Stage, provider: ScriptedProvider, model: str
) -> None:
    """X-16, S2-15: by whatever they are grouped, with the fixed part and without it."""
    chat = stage.chat(model=model)
    a_plan_and_a_recall(provider, chat)
    receipts = chat.proxy.receipts()

    for by in ("request", "frame", "conversation", "model", "day", "client"):
        for fixed in ("true", "false"):
            told = chat.proxy.get(f"/stack/totals?by={by}&fixed={fixed}")
            for name in (
                "requests",
                "recalls",
                "tokens_in",
                "tokens_sent",
                "tokens_saved",
                "own",
                "sent_cached",
                "cost",
            ):
                assert told["total"][name] == pytest.approx(sum(row[name] for row in told["rows"]))
            assert told["total"]["saved"] == pytest.approx(sum(receipt["saved"] for receipt in receipts))
    assert told["total"]["recalls"] == 1


@pytest.mark.rows("X-41")
def test_a_conversation_tells_its_balance_so_far(stage: Stage, provider: ScriptedProvider) -> None:
    """In USD and percent, and a loss with a minus: a session this short does not pay for what it was given."""
    chat = stage.chat()
    provider.will(says("hi"))
    chat.says("hello")

    (row,) = chat.proxy.get("/stack/conversations")["conversations"]
    total = chat.proxy.get("/stack/totals")["total"]

    assert row["saved"] < 0
    for name in ("cost", "cost_untouched", "saved", "saved_percent"):
        assert row[name] == pytest.approx(total[name])


@pytest.mark.rows("S2-15")
def test_a_finished_frame_has_its_title_its_end_and_its_price(stage: Stage, provider: ScriptedProvider) -> None:
    """S2-15: tokens and money per finished frame, those of its recalls among them."""
    chat = stage.chat()
    a_plan_and_a_recall(provider, chat)

    rows = {row["title"]: row for row in chat.proxy.get("/stack/totals?by=frame")["rows"]}

    first = rows["First"]
    assert (first["status"], first["requests"] > 0, first["cost"] > 0) == ("completed", True, True)
    assert sum(row["recalls"] for row in rows.values()) == 1


def test_without_the_fixed_part_no_saving_changes(stage: Stage, provider: ScriptedProvider, model: str) -> None:
    chat = stage.chat(model=model, system="Careful. " * 900)
    frames(provider, chat)

    whole = chat.proxy.get("/stack/totals")["total"]
    rest = chat.proxy.get("/stack/totals?fixed=false")["total"]

    assert rest["tokens_in"] == whole["tokens_in"] - whole["fixed_in"]
    assert rest["tokens_saved"] == rest["tokens_in"] - rest["tokens_sent"] == whole["tokens_saved"]
    assert rest["cost"] == pytest.approx(whole["cost"] - whole["cost_fixed"])
    assert rest["cost_untouched"] == pytest.approx(whole["cost_untouched"] - whole["cost_fixed"])
    assert rest["saved"] == whole["saved"]
    assert 0 < whole["cost_fixed"] < whole["cost"]
    for side in ("sent", "untouched"):
        split = [rest[f"{side}_{part}"] for part in ("cached", "written", "uncached")]
        assert min(split) >= 0
        assert sum(split) == rest["tokens_sent" if side == "sent" else "tokens_in"]


@pytest.mark.rows("S4-36")
def test_what_the_gate_decided_stands_in_the_receipt(stage: Stage, provider: ScriptedProvider) -> None:
    """S4-36: which request woke, at what prices, and what that was weighed against."""
    chat = stage.chat(stage.proxy(wake_at_tokens=3_000))
    begin(provider, chat)

    asleep, woken = chat.proxy.receipts()

    assert asleep["decisions"] == []
    decision = woken["decisions"][0]
    assert decision["kind"] == "wake"
    assert decision["added"] == woken["own_tools"] + woken["own_texts"]
    assert decision["requests"] > 0
    assert chat.proxy.get(f"/stack/requests/{woken['id']}/diff")["receipt"]["decisions"] == woken["decisions"]


@pytest.mark.parametrize("model", ["gpt-5.4"], indirect=True)
def test_a_note_of_ours_is_weighed_and_told_as_ours(stage: Stage, provider: ScriptedProvider) -> None:
    """What was said to the model stands on every later line, and costs what any other text does."""
    window = {"tariffs__own__names": "gpt-x", "tariffs__own__window": 20_000}
    receipts = []
    for share in (0, 0.2):
        chat = stage.chat(stage.proxy(**window, pressure_warning=share))
        provider.will(says("one"), says("two"))
        chat.says(f"Read this. {LONG * 3}")
        chat.says("And now?")
        receipts.append(chat.proxy.receipts())

    noted = [text for text in texts(provider.received[-1].messages) if "memory-pressure" in text]
    assert len(noted) == 1
    for quiet, told in zip(*receipts, strict=True):
        more = told["own_texts"] - quiet["own_texts"]
        assert told["tokens_sent"] - quiet["tokens_sent"] == more
        assert len(noted[0]) / 6 < more < len(noted[0]) / 2


# ----------------------------------------------------------------------------------------------------- configured
# prices
ROWS = {
    "tariffs.house.names": "gpt-house*",
    "tariffs.house.input": 7,
    "tariffs.house.output": 0,
    "tariffs.house.as_of": "2026-11-01",
    "default_tariff.input": 3,
}


@pytest.mark.parametrize(
    ("asked", "price", "priced", "as_of"),
    [("gpt-house-2", 7.0, True, "2026-11-01"), ("nobody-knows", 3.0, False, ""), ("fast", 7.0, True, "2026-11-01")],
)
def test_a_configured_price_is_the_price_of_every_receipt(
    stage: Stage, provider: ScriptedProvider, asked: str, price: float, priced: bool, as_of: str
) -> None:
    """The row of the name sent upstream counts: `fast` is an alias."""
    settings = {"upstreams.default.aliases.fast": "gpt-house-9", **ROWS}
    chat = stage.chat(stage.proxy(**settings), model=asked)
    provider.will(says("hi", usage=Usage(prompt=1_000, completion=10)))

    answer = chat.says("hello")

    (receipt,) = chat.proxy.receipts()
    assert (receipt["priced"], receipt["tariffs_as_of"]) == (priced, as_of)
    assert receipt["cost"] == pytest.approx(1_000 * price / MILLION)
    if not answer.streamed:
        assert answer.headers.get("x-stack-priced", "true") == str(priced).lower()
    assert chat.proxy.get("/stack/totals")["total"]["unpriced"] == (0 if priced else 1)


def test_the_days_of_the_api_say_their_zone(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat()
    provider.will(says("hi"))
    chat.says("hello")

    told: dict[str, Any] = chat.proxy.get("/stack/totals?by=day")

    assert told["zone"]
    assert json.dumps(told["rows"][0]["key"]).count("-") == 2
