"""X-12, S4-08: what ends the hidden loop of one client request."""

import pytest

from llm_test_provider import ScriptedAnswer as Scripted
from llm_test_provider import ScriptedProvider, says
from tests.harness import Stage, as_one_text, bash, does, op, push


@pytest.mark.rows("X-12")
@pytest.mark.parametrize("rounds", [1, 3])
def test_x_12_at_most_so_many_rounds_and_then_an_answer(stage: Stage, provider: ScriptedProvider, rounds: int) -> None:
    """Up to N + 1 upstream calls; the last one may use no tool, and its arrays are those of the first."""
    chat = stage.chat(stage.proxy(stack_rounds=rounds))
    provider.will(*([does(op("status"))] * rounds), says("enough"))

    assert chat.says("hello").text == "enough"
    bodies = [received.body for received in provider.received]
    assert len(bodies) == rounds + 1
    assert bodies[-1]["tool_choice"] == "none"
    assert all(body["tools"] == bodies[0]["tools"] for body in bodies)


@pytest.mark.rows("X-12")
def test_x_12_after_so_many_seconds_no_further_stack_call_is_served(stage: Stage, provider: ScriptedProvider) -> None:
    """DESIGN 7: 60 s unless configured, from the first call on, which may come late: some models think for minutes."""
    chat = stage.chat(stage.proxy(stack_seconds=0.2))
    provider.will(does(op("status"), delay_s=0.3), does(op("status"), delay_s=0.3), says("enough"))

    assert chat.says("hello").text == "enough"
    assert provider.received[-1].body["tool_choice"] == "none"
    assert stage.lines()[-1][-1]["content"].startswith("No more stack calls in this turn")


@pytest.mark.rows("X-12")
@pytest.mark.parametrize("bound", [{"stack_seconds": 0.2}, {"stack_rounds": 1}], ids=["seconds", "rounds"])
def test_x_12_a_stack_call_beside_a_client_call_is_served_past_the_bounds(
    stage: Stage, provider: ScriptedProvider, bound: dict[str, float]
) -> None:
    """DESIGN 7: the client's call ends the turn, so no round follows that had to be bounded."""
    chat = stage.chat(stage.proxy(**bound))
    provider.will(does(push("Auth"), bash("ls"), delay_s=0.3), says("ok"))
    chat.says("hello")
    chat.returns("a.py")

    assert chat.proxy.statuses() == {"Conversation": "in_progress", "Auth": "in_progress"}
    assert len(provider.received) == 2
    assert "No more stack calls" not in as_one_text(provider.received[-1].messages)
    assert provider.received[-1].body.get("tool_choice") != "none"


@pytest.mark.rows("S4-03", "S4-08")
@pytest.mark.parametrize(
    "last",
    [says("done"), does(bash("ls")), does(op("status"), bash("ls"))],
    ids=["text", "client call", "both"],
)
def test_s4_08_a_finish_or_a_client_call_ends_the_loop(
    stage: Stage, provider: ScriptedProvider, last: Scripted
) -> None:
    """S4-03, S4-08: one upstream call is one step, and the next one is only made for calls of ours alone."""
    chat = stage.chat()
    provider.will(does(op("status")), last, says("never asked"))
    chat.says("hello")

    assert len(provider.received) == 2
