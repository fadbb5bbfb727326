"""Client keys with budgets and models: what is refused, in the words of each API, and what goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from callstack_proxy.management.issued_keys import issue_key, limit_key
from llm_test_provider import ScriptedProvider, Usage, says, status
from proxy.auth import UsageLimits
from tests.harness import Conversation, RunningProxy, Stage, does, plan

DEAREST = Usage(1_000_000, 1_000)


@pytest.fixture
def proxy(stage: Stage) -> RunningProxy:
    stage.looks_into_store = False  # which needs a key here
    return stage.proxy(tenancy="key", default_tariff__output=2.0)  # a budget in USD takes models with a price alone


def client(stage: Stage, proxy: RunningProxy, name: str, **limits: object) -> Conversation:
    """With a key of this name, whose limits are these."""
    chat = stage.chat(proxy)
    key = issue_key(keys_of(proxy), name, limits=UsageLimits.model_validate(limits))
    chat.headers = {"authorization": f"Bearer {key}"}
    return chat


def keys_of(proxy: RunningProxy) -> Path:
    return proxy.config.keys_path


@pytest.mark.one_process("what another process answered a moment ago is not counted yet")
@pytest.mark.parametrize(
    ("limits", "told"),
    [({"tokens": 1_000_000}, "1,001,000 of 1,000,000 tokens a month"), ({"usd": 0.05, "per": "day"}, "of $0.05 a day")],
    ids=["tokens", "usd"],
)
def test_a_key_whose_budget_is_spent_is_refused_before_the_provider_is_asked(
    stage: Stage, provider: ScriptedProvider, proxy: RunningProxy, limits: dict[str, object], told: str
) -> None:
    chat, other = client(stage, proxy, "ana", **limits), client(stage, proxy, "bob", **limits)
    provider.will(says("The last one.", usage=DEAREST), says("Bob's."))
    assert chat.says("hello").status == 200

    refused = chat.says("again")

    assert (refused.status, refused.stack_status) == (429, "error; reason=budget_spent")
    assert refused.json["error"]["code"] == "budget_spent"
    assert told in refused.json["error"]["message"]
    assert 0 < int(refused.headers["retry-after"]) <= 31 * 86_400
    assert refused.headers["x-should-retry"] == "false"
    assert len(provider.received) == 1
    assert other.says("hello").text == "Bob's."


def test_a_budget_is_still_spent_after_a_restart_and_goes_on_once_it_is_raised(
    stage: Stage, provider: ScriptedProvider, proxy: RunningProxy
) -> None:
    chat = client(stage, proxy, "ana", tokens=100_000)
    provider.will(says("ok", usage=DEAREST))
    chat.says("hello")
    proxy.restart()
    assert chat.says("again").status == 429

    limit_key(keys_of(proxy), "ana", UsageLimits(tokens=10_000_000))
    provider.will(says("Better."))

    assert chat.asks().text == "Better."


def test_a_key_may_ask_for_its_models_alone(stage: Stage, provider: ScriptedProvider, proxy: RunningProxy) -> None:
    chat = client(stage, proxy, "ana", models=("gpt-x", "small-*"))
    provider.will(says("Yes."), says("Small."))
    assert chat.says("hello").text == "Yes."
    assert chat.says("and now", model="small-7").text == "Small."

    refused = chat.says("again", model="gpt-xl")

    assert (refused.status, refused.stack_status) == (403, "error; reason=model_not_allowed")
    assert "may ask for gpt-x, small-*; the request asks for 'gpt-xl'" in refused.json["error"]["message"]
    assert len(provider.received) == 2


@pytest.mark.one_process("what another process answered a moment ago is not counted yet")
def test_what_no_model_answered_costs_nothing(stage: Stage, provider: ScriptedProvider, proxy: RunningProxy) -> None:
    chat = client(stage, proxy, "ana", tokens=10_000)
    for trouble in (status(400), status(401), status(500, headers={"x-should-retry": "false"})):
        provider.will(trouble)
        chat.says("hello")
    provider.will(says("At last.", usage=DEAREST))

    assert chat.asks().text == "At last."
    assert chat.says("again").status == 429


@pytest.mark.rows("X-57")
@pytest.mark.parametrize("text", ["", "Let me look. "], ids=["said nothing", "has spoken"])
def test_our_own_further_rounds_end_where_the_budget_has_no_room_for_another(
    stage: Stage, provider: ScriptedProvider, proxy: RunningProxy, text: str
) -> None:
    chat = client(stage, proxy, "ana", tokens=100_000)
    provider.when(lambda _: True, does(plan("Read", "Write"), text=text, usage=Usage(30_000, 100)), loop=True)

    answer = chat.says("hello", max_tokens=500)

    assert len(provider.received) == 3  # 90,300 of 100,000 tokens; a fourth sends 30,100 and more
    if text:
        assert (answer.ended, answer.status) == (True, 200)
        assert answer.text.startswith(text)
    else:
        assert "budget of this key" in answer.raw.decode()
        assert answer.streamed or answer.status == 429


@pytest.mark.spoken_in("chat", reason="the harness writes no request without a model in the others")
def test_a_key_with_models_cannot_leave_the_model_out(
    stage: Stage, provider: ScriptedProvider, proxy: RunningProxy
) -> None:
    chat = client(stage, proxy, "ana", models=("gpt-x",))

    assert chat.says("hello", model=...).json["error"]["code"] == "model_not_allowed"
    assert not provider.received


def test_what_was_used_is_told_by_key_and_stays_when_the_conversation_is_forgotten(
    stage: Stage, provider: ScriptedProvider, proxy: RunningProxy
) -> None:
    chat, other = client(stage, proxy, "ana", usd=50.0), client(stage, proxy, "bob")
    provider.will(*(says("ok", usage=DEAREST) for _ in range(3)))
    chat.says("hello")
    chat.says("again")
    conversation = other.says("hello").headers["x-stack-conversation"]
    proxy.asked("DELETE", f"/stack/conversations/{conversation}", headers=other.headers)

    rows = proxy.asked("GET", "/stack/usage?by=day", headers=chat.headers)[1]["rows"]
    operator = {"x-stack-key": issue_key(keys_of(proxy), "root", admin=True)}
    keys = {row["name"]: row for row in proxy.asked("GET", "/stack/keys", headers=operator)[1]["keys"]}
    own = proxy.asked("GET", "/stack/keys", headers=other.headers)[1]["keys"]

    assert [(row["name"], row["requests"], row["tokens"]) for row in rows] == [("ana", 2, 2 * 1_001_000)]
    assert keys["ana"]["limits"] == {"usd": 50.0, "tokens": None, "per": "month", "models": [], "slash_commands": "on"}
    assert keys["ana"]["used"]["cost"] == pytest.approx(rows[0]["cost"])
    assert keys["bob"]["used"]["tokens"] == 1_001_000
    assert [row["name"] for row in own] == ["bob"]
