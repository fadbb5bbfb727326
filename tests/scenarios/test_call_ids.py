"""Calls that cannot be told apart by their ids: two of one answer under one id, or without one. Each is known by its
place in the message."""

from collections.abc import Sequence

import pytest

from llm_test_provider import ScriptedAnswer, ScriptedCall, ScriptedProvider, answers, says
from tests.client_dialects import MESSAGES
from tests.harness import Conversation, Json, Stage, bash, op, push


def alike(*made: ScriptedCall, text: str = "", ident: str = "call_1") -> ScriptedAnswer:
    """An answer whose calls all have one id."""
    return answers(text, [ScriptedCall(each.name, each.arguments, ident) for each in made])


def results(messages: Sequence[Json]) -> list[str]:
    return [str(message["content"]) for message in messages if message["role"] == "tool"]


def names(messages: Sequence[Json]) -> list[str]:
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    return [call["function"]["name"] for call in calls]


ORDERS = {
    "ours first": (push("Inner"), bash("cat a")),
    "ours last": (bash("cat a"), push("Inner")),
    "ours between": (bash("cat a"), push("Inner"), bash("cat b")),
    "ours twice": (op("add_decision", decision="JWT"), bash("cat a"), push("Inner")),
}


@pytest.mark.rows("X-30")
@pytest.mark.parametrize("made", ORDERS.values(), ids=ORDERS.keys())
def test_a_call_of_ours_under_the_id_of_a_clients_gets_one_of_its_own(
    stage: Stage, provider: ScriptedProvider, made: Sequence[ScriptedCall]
) -> None:
    """The client sees the id that the provider gave its call, and what it answers reaches the model, once."""
    if stage.tongue is MESSAGES and sum(call.name == "bash" for call in made) > 1:
        pytest.skip("the messages API refuses two calls of the client's own under one id")
    chat = stage.chat()
    provider.will(alike(*made, text="Go. "), says("Done."))
    answer = chat.says("read them")
    wanted = [f"CONTENT-{number}" for number in range(len(answer.calls))]
    chat.returns(*wanted)

    assert [name for name, _ in answer.calls] == ["bash"] * len(wanted)
    assert {call["id"] for call in answer.message["tool_calls"]} == {"call_1"}
    line = provider.received[-1].messages
    assert [told for told in results(line) if told.startswith("CONTENT")] == wanted
    assert names(line) == [call.name for call in made]
    assert len(results(line)) == len(made)
    ids = [call["id"] for message in line for call in message.get("tool_calls") or ()]
    assert [ident == "call_1" for ident in ids] == [call.name == "bash" for call in made]
    assert len(set(ids)) == 1 + sum(call.name != "bash" for call in made)
    assert chat.proxy.statuses() == {"read them": "in_progress", "Inner": "in_progress"}


@pytest.mark.rows("X-30")
@pytest.mark.spoken_in("chat", "responses", reason="the messages API refuses ids that repeat")
def test_two_calls_of_the_client_under_one_id_keep_a_result_each(
    stage: Stage, provider: ScriptedProvider, chat: Conversation
) -> None:
    later = alike(bash("cat c"), bash("cat d"), ident="call_2")
    provider.will(alike(bash("cat a"), bash("cat b")), later, says("Done."), says("ok"))
    chat.says("read them")
    chat.returns("CONTENT-a", "CONTENT-b")
    chat.returns("CONTENT-c", "CONTENT-d")
    chat.says("and?")

    wanted = ["CONTENT-a", "CONTENT-b", "CONTENT-c", "CONTENT-d"]
    assert results(provider.received[-1].messages) == wanted
