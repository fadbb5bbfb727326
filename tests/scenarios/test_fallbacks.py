"""A model that is refused for load or for length goes to another one: one conversation, one receipt, nothing that the
other one must not see."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from callstack_proxy.management.issued_keys import issue_key
from llm_test_provider import ScriptedProvider, says, status
from proxy.auth import UsageLimits
from tests.harness import Conversation, Stage, does, push
from tests.ports import held_port, port_of

MODEL, OTHER = "gpt-5.4", "glm-5"


@pytest.fixture
def second() -> Iterator[ScriptedProvider]:
    """The provider behind the first one."""
    with ScriptedProvider() as running:
        yield running


def chat_with(stage: Stage, second: ScriptedProvider, **settings: object) -> Conversation:
    given = {
        "upstreams__second__url": second.url,
        "upstreams__second__models": OTHER,
        "upstreams__default__fallbacks": OTHER,
    }
    return stage.chat(stage.proxy(**(given | settings)), model=MODEL)


@pytest.mark.rows("X-52")
@pytest.mark.parametrize("code", [429, 500, 503, 529])
def test_given_a_provider_that_is_busy_then_the_next_one_answers_in_the_same_conversation(
    stage: Stage, provider: ScriptedProvider, second: ScriptedProvider, code: int
) -> None:
    chat = chat_with(stage, second)
    provider.will(does(push("Auth"), text="I begin."), says("first"), status(code), says("back again"))
    second.will(says("from the other one"))
    chat.says("add login")

    answer = chat.says("go on")
    after = chat.says("and on")

    assert answer.text == "from the other one"
    assert (answer.stack_status, after.text) == ("full", "back again")
    [asked] = second.received
    assert json.loads(asked.raw)["model"] == OTHER
    assert "stack_frame_pop" in asked.tool_names, "frames and tools go along"
    assert len(chat.proxy.conversations) == 1
    _, told, last = chat.proxy.receipts()
    assert [(r["model"], r["upstream"]) for r in (told, last)] == [(OTHER, "second"), (MODEL, "default")]
    assert told["cost"] > 0


@pytest.mark.rows("X-52")
def test_given_a_provider_that_cannot_be_reached_then_the_next_one_answers(
    stage: Stage, second: ScriptedProvider
) -> None:
    with held_port() as nobody:
        chat = chat_with(stage, second, upstreams__default__url=f"http://127.0.0.1:{port_of(nobody)}")
        second.will(says("here"))
        assert chat.says("hello").text == "here"


@pytest.mark.rows("X-52")
def test_given_that_all_are_busy_then_the_first_refusal_reaches_the_client(
    stage: Stage, provider: ScriptedProvider, second: ScriptedProvider
) -> None:
    chat = chat_with(stage, second)
    provider.will(status(429, headers={"retry-after": "60"}))
    second.will(status(503))
    answer = chat.says("hello")
    assert (answer.status, answer.headers["retry-after"]) == (429, "60")
    assert len(second.received) == 1


@pytest.mark.rows("X-52")
@pytest.mark.parametrize("code", [400, 401, 404])
def test_a_refusal_that_is_not_for_load_goes_nowhere_else(
    stage: Stage, provider: ScriptedProvider, second: ScriptedProvider, code: int
) -> None:
    chat = chat_with(stage, second)
    provider.when(lambda _: True, status(code), loop=True)
    assert chat.says("hello").status == code
    assert second.received == []


@pytest.mark.rows("X-52")
def test_a_context_that_cannot_be_made_to_fit_goes_to_the_next_one(
    stage: Stage, provider: ScriptedProvider, second: ScriptedProvider
) -> None:
    chat = chat_with(stage, second)
    refusal = {"error": {"message": "maximum context length is 100 tokens", "code": "context_length_exceeded"}}
    provider.when(lambda _: True, status(400, body=refusal), loop=True)
    second.will(says("it fits"))
    answer = chat.says("a long story " * 50)
    assert answer.text == "it fits"


@pytest.mark.rows("X-52")
def test_a_model_may_have_fallbacks_of_its_own_and_an_upstream_stands_for_the_same_model(
    stage: Stage, provider: ScriptedProvider, second: ScriptedProvider
) -> None:
    own = {"models__gpt-x__fallbacks": "second", "upstreams__second__models": "nothing-else"}
    chat = chat_with(stage, second, upstreams__default__fallbacks=None, upstreams__second__key="sk-theirs", **own)
    chat.model = "gpt-x"
    chat.headers["authorization"] = "Bearer sk-mine"
    provider.will(status(529))
    second.will(says("same model, elsewhere"))
    assert chat.says("hello").text == "same model, elsewhere"
    assert json.loads(second.received[0].raw)["model"] == "gpt-x"
    assert second.received[0].header("authorization") == "Bearer sk-theirs"


@pytest.mark.rows("X-52")
def test_the_clients_key_for_one_provider_never_goes_to_another(
    stage: Stage, provider: ScriptedProvider, second: ScriptedProvider
) -> None:
    chat = chat_with(stage, second)
    chat.headers |= {"authorization": "Bearer sk-mine", "x-api-key": "sk-mine"}
    provider.will(status(529))
    second.will(says("fine"))
    chat.says("hello")
    assert "sk-mine" in str(provider.received[0].headers)
    assert "sk-mine" not in str(second.received[0].headers)


@pytest.mark.rows("X-52")
def test_reasoning_of_one_maker_does_not_travel_to_another(
    stage: Stage, provider: ScriptedProvider, second: ScriptedProvider
) -> None:
    stage.judged = False  # a law compares messages with their reasoning
    chat = chat_with(stage, second)
    provider.will(says("first", reasoning="mine alone"), status(503), says("third"))
    second.will(says("second", reasoning="theirs alone"))
    for text in ("one", "two", "three"):
        chat.says(text)
    assert b"mine alone" not in second.received[0].raw
    assert b"first" in second.received[0].raw
    assert b"theirs alone" not in provider.received[-1].raw
    assert b"second" in provider.received[-1].raw


@pytest.mark.rows("X-52")
@pytest.mark.parametrize("models", [("gpt-*",), ("gpt-*", "glm-*")], ids=["not allowed", "allowed"])
def test_the_models_that_a_key_may_ask_for_hold_for_fallbacks(
    stage: Stage, provider: ScriptedProvider, second: ScriptedProvider, models: tuple[str, ...]
) -> None:
    stage.looks_into_store = False  # which needs a key here
    chat = chat_with(stage, second, tenancy="key")
    key = issue_key(chat.proxy.config.keys_path, "ana", limits=UsageLimits(models=models))
    chat.headers = {"authorization": f"Bearer {key}"}
    provider.will(status(529))
    second.will(says("fine"))

    answer = chat.says("hello")

    is_allowed = "glm-*" in models
    assert (answer.status, len(second.received)) == ((200, 1) if is_allowed else (529, 0))
