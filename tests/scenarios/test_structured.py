"""An agent that asks for a JSON schema with every request, and gets one document however many rounds it takes."""

import json

import pytest

from llm_test_provider import ScriptedProvider, says
from tests.harness import Conversation, Stage, bash, does, op, pop, push

SCHEMA = {"type": "object", "properties": {"done": {"type": "boolean"}}, "required": ["done"]}
FORM = {"type": "json_schema", "json_schema": {"name": "out", "strict": True, "schema": SCHEMA}}
DONE = '{"done": true}'


@pytest.fixture
def agent(stage: Stage) -> Conversation:
    return stage.chat(options={"response_format": FORM})


@pytest.mark.rows("X-36", "X-23")
def test_the_answer_is_the_json_of_the_last_round_alone(provider: ScriptedProvider, agent: Conversation) -> None:
    """Words of hidden rounds are no part of the document; the turn is known again by what the client saw of it."""
    provider.will(
        does(push("Inner"), text="Let me open a frame."), does(op("status"), text='{"done": false}'), says(DONE),
        does(bash("ls")), does(pop("found"), text="Back."), says(DONE), says(DONE),
    )  # fmt: skip
    first = agent.says("do it")
    agent.says("and on")
    last = agent.returns("a.py")
    again = agent.says("again")

    assert [answer.text for answer in (first, last, again)] == [DONE] * 3
    assert {answer.stack_status for answer in (first, last, again)} == {"full"}
    assert agent.proxy.statuses() == {"do it": "in_progress", "Inner": "completed"}
    assert len(agent.proxy.conversations) == 1
    told = [m["content"] for m in provider.received[3].messages if m["role"] == "assistant"]
    assert told == ["Let me open a frame.", '{"done": false}', DONE]


@pytest.mark.rows("X-36")
def test_words_beside_a_call_of_the_clients_are_shown(provider: ScriptedProvider, agent: Conversation) -> None:
    """No round follows that one, so they stand alone."""
    provider.will(does(push("Inner"), bash("ls"), text="Looking."), says(DONE))
    assert agent.says("do it").text == "Looking."
    assert agent.returns("a.py").text == DONE


@pytest.mark.rows("X-36")
def test_words_of_a_model_that_calls_no_tool_of_ours_pass_as_they_came(
    provider: ScriptedProvider, agent: Conversation
) -> None:
    provider.will(says(DONE), does(bash("ls"), text="Looking."))
    assert agent.says("do it").text == DONE
    answer = agent.says("go on")
    assert (answer.text, answer.calls) == ("Looking.", [("bash", json.dumps({"command": "ls"}))])
