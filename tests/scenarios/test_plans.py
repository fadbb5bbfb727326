"""Requests that a plan pays for by window: logins of Claude Code and Codex, against a provider that hides what a token
weighs and tells only how much of its windows is used."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llm_test_provider import HiddenPlan, Model, says
from tests.client_dialects import MESSAGES, RESPONSES, TestDialect
from tests.harness import RecordingProvider, Stage, running_stage
from tests.scenarios.test_bill import SYSTEM, TOOLS, play_session

pytestmark = pytest.mark.rows("X-63")

LOGINS = {
    "messages": {"authorization": "Bearer sk-ant-oat01-abc"},
    "responses": {"authorization": "Bearer eyJh.eyJz.sig", "chatgpt-account-id": "11111111-2222"},
}
KEYS = {
    "messages": {"x-api-key": "sk-ant-api03-abc"},
    "responses": {"authorization": "Bearer sk-proj-abc"},
}
MODELS = {"messages": "claude-opus-4-8", "responses": "gpt-5.4"}
SPOKEN = {MESSAGES.name: "messages", RESPONSES.name: "responses"}
PRICES = {"messages": (5.0, 6.25, 25.0), "responses": (2.5, 2.5, 15.0)}
"""Of the list, by hand: USD per million tokens of fresh input, of what is written, and of answers."""


def hidden_plan(api: str, share: float, read: float = 0.0) -> HiddenPlan:
    """A plan in which a USD of the list takes `share` of a window of 5 hours; a cached token weighs `read` of a fresh
    one."""
    fresh, written, output = (share * price for price in PRICES[api])
    return HiddenPlan(fresh, read * fresh, written, output)


@pytest.fixture(params=[MESSAGES, RESPONSES], ids=lambda tongue: tongue.name)
def spoken(request: pytest.FixtureRequest) -> TestDialect:
    tongue: TestDialect = request.param
    return tongue


def play(stage: Stage, provider: RecordingProvider, api: str, headers: dict[str, str], requests: int) -> list[Any]:
    """Conversations of several lengths, with long and short answers. The receipts, oldest first."""
    chance, proxy = random.Random(4), stage.proxy()
    chat = None
    for number in range(requests):
        if number % 6 == 0:
            system = f"{SYSTEM[: chance.randrange(4_000, 60_000)]} {number}"
            chat = stage.chat(proxy, model=MODELS[api], system=system, tools=TOOLS[:3], headers=headers)
        assert chat is not None
        provider.will(says("word " * chance.choice((5, 50, 3_000))))
        chat.says("Look: " + " ".join(str(chance.randrange(999)) for _ in range(chance.choice((10, 200, 4_000)))))
    return proxy.receipts()


@pytest.mark.long
def test_after_thirty_requests_a_receipt_knows_what_of_the_window_it_took(tmp_path: Path, spoken: TestDialect) -> None:
    api = SPOKEN[spoken.name]
    plan = hidden_plan(api, 2.0, read=0.1)
    with (
        RecordingProvider(models=[Model(MODELS[api])], plan=plan) as provider,
        running_stage(provider, tmp_path, streamed=False, tongue=spoken) as stage,
    ):
        receipts = play(stage, provider, api, LOGINS[api], 34)
        taken = [plan.weigh(received.usage) for received in provider.asked if received.usage]

    assert receipts[0]["plan"]["rounds"] == 0
    last = receipts[-1]["plan"]
    five, week = last["windows"]
    assert last["rounds"] >= 28
    assert (five["name"], week["name"]) == ("5h", "7d")
    shares = sum(receipt["plan"]["windows"][0]["share"] for receipt in receipts[30:])
    assert shares == pytest.approx(sum(taken[30:]), rel=0.1)
    assert last["read_for_gate"] * five["scale"] <= 0.1 * 2.0 <= 1.5 * last["read"] * five["scale"]
    assert week["share"] == pytest.approx(five["share"] * plan.week, rel=0.2)


@pytest.mark.long
def test_with_a_login_nothing_is_folded_for_money_and_the_window_costs_no_more(
    tmp_path: Path, spoken: TestDialect
) -> None:
    """The same session with a key, whose folds cost the window more, and with a login."""
    api, folds, taken, untouched = SPOKEN[spoken.name], {}, {}, {}
    for paid, headers, mode in (
        ("key", KEYS[api], "active"),
        ("login", LOGINS[api], "active"),
        ("off", LOGINS[api], "shadow"),
    ):
        plan = hidden_plan(api, 0.5)
        with (
            RecordingProvider(models=[Model(MODELS[api])], plan=plan if paid != "key" else None) as provider,
            running_stage(provider, tmp_path / paid, streamed=False, tongue=spoken) as stage,
        ):
            chat = stage.chat(stage.proxy(mode=mode), model=MODELS[api], system=SYSTEM, tools=TOOLS, headers=headers)
            play_session(provider, chat)
            play_session(provider, chat, seed=8)
            receipts = chat.proxy.receipts()
            used = [received.usage for received in provider.asked if received.usage]
        taken[paid] = sum(map(plan.weigh, used))
        folds[paid] = [d for r in receipts for d in r["decisions"] if d["kind"] == "fold" and d["done"]]
        untouched[paid] = [r["plan"] for r in receipts]

    assert folds["key"]
    assert not folds["login"]
    assert untouched["key"] == [None] * len(untouched["key"])
    assert all(plan["read_for_gate"] < 0.01 for plan in untouched["login"])
    assert taken["login"] < 1.01 * taken["off"]
    told = sum(plan["cost"] for plan in untouched["login"]) / sum(p["cost_untouched"] for p in untouched["login"])
    assert told == pytest.approx(taken["login"] / taken["off"], rel=0.02)


def test_a_key_that_pays_by_the_token_is_priced_by_the_list(tmp_path: Path, spoken: TestDialect) -> None:
    api = SPOKEN[spoken.name]
    with (
        RecordingProvider(models=[Model(MODELS[api])]) as provider,
        running_stage(provider, tmp_path, streamed=False, tongue=spoken) as stage,
    ):
        receipts = play(stage, provider, api, KEYS[api], 2)
    assert [receipt["plan"] for receipt in receipts] == [None, None]


def test_an_account_whose_answers_tell_of_windows_is_a_plan(tmp_path: Path, spoken: TestDialect) -> None:
    """Whatever the credential looks like."""
    api = SPOKEN[spoken.name]
    with (
        RecordingProvider(models=[Model(MODELS[api])], plan=hidden_plan(api, 0.5)) as provider,
        running_stage(provider, tmp_path, streamed=True, tongue=spoken) as stage,
    ):
        receipts = play(stage, provider, api, {"authorization": "Bearer something-else"}, 2)
    assert all(receipt["plan"] for receipt in receipts)


@pytest.mark.long
def test_what_was_measured_of_a_plan_holds_after_a_restart(
    tmp_path: Path, new_database: Callable[[], str] | None
) -> None:
    api = "messages"
    with (
        RecordingProvider(models=[Model(MODELS[api])], plan=hidden_plan(api, 3.0)) as provider,
        running_stage(provider, tmp_path, streamed=False, tongue=MESSAGES, new_database=new_database) as stage,
    ):
        proxy = stage.proxy()
        for round_ in range(14):
            if round_ == 12:
                proxy.restart()
            if round_ in (0, 12):
                chat = stage.chat(proxy, model=MODELS[api], system=SYSTEM, headers=LOGINS[api])
            provider.will(says("word " * 3_000))
            chat.says(f"Look at part {round_}: " + "and more " * 2_000)
        receipts = proxy.receipts()

    before, after = receipts[11]["plan"], receipts[12]["plan"]
    assert before["rounds"] >= 8
    assert after["rounds"] >= before["rounds"]
    assert after["account"] == before["account"]
    assert [window["scale"] for window in after["windows"]] == pytest.approx(
        [window["scale"] for window in before["windows"]], rel=0.5
    )
