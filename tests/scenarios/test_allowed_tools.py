"""A client that allows some of its tools only: `tool_choice: allowed_tools`."""

import json

import pytest

from llm_test_provider import ScriptedProvider, says
from tests.client_dialects import CHAT
from tests.harness import Conversation, Json, Stage, bash, does, push

pytestmark = pytest.mark.spoken_in("chat", "responses", reason="the messages API has no such choice")


def names_in(choice: Json) -> list[str]:
    tools = choice.get("tools") or choice["allowed_tools"]["tools"]
    return [tool.get("name") or tool["function"]["name"] for tool in tools]


@pytest.fixture
def choice(stage: Stage) -> Json:
    if stage.tongue is CHAT:
        tools = [{"type": "function", "function": {"name": "bash"}}]
        return {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": tools}}
    return {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "bash"}]}


@pytest.mark.rows("X-31")
@pytest.mark.parametrize("model", ["gpt-x", "gpt-5.2"], ids=["tools in front", "tools behind"])
def test_what_an_awake_thread_offers_is_allowed_too(
    stage: Stage, provider: ScriptedProvider, choice: Json, model: str
) -> None:
    """The client is told its own choice, whatever was sent."""
    chat = stage.chat(model=model)
    provider.will(does(push("Inner")), does(bash("ls")), says("Done."))
    answer = chat.says("do it", tool_choice=choice)
    chat.returns("a.py", tool_choice=choice)

    assert answer.calls == [("bash", json.dumps({"command": "ls"}))]
    assert b"stack_" not in answer.raw
    for request in provider.received:
        allowed = names_in(request.body["tool_choice"])
        assert allowed[0] == "bash"
        assert "stack_recall" in allowed
        assert len(set(allowed)) == len(allowed)


@pytest.mark.rows("X-31", "X-15")
def test_a_choice_passes_as_it_came_where_nothing_of_ours_is_offered(
    stage: Stage, provider: ScriptedProvider, choice: Json
) -> None:
    chat: Conversation = stage.chat(stage.proxy(wake_at_tokens=1_000_000))
    provider.will(says("Done."))
    chat.says("do it", tool_choice=choice)
    assert provider.received[0].body["tool_choice"] == choice
