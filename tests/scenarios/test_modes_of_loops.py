"""A loop goes on under another system text and other tools: another mode of an agent, or another agent that took over.

Nobody names a session. The first such request may be a question about the history, and passes as it came; a request
that holds its own earlier answers is a loop.
"""

from itertools import cycle

import pytest

from llm_test_provider import ScriptedProvider, says
from tests.harness import Conversation, Stage, as_one_text, bash, does, push

PLAN, ACT = "PLAN MODE. You only plan.", "ACT MODE. You do it."
PLANNER, ACTOR = ("read",), ("bash", "read", "edit")
TRIAGE, BILLING = ("read", "to_billing"), ("read", "to_triage", "refund")


def turn_into(chat: Conversation, system: str, tools: tuple[str, ...]) -> None:
    chat.system, chat.tools = system, tools


def status_of(chat: Conversation) -> str:
    assert chat.last is not None
    return chat.last.stack_status.partition(";")[0]


@pytest.mark.rows("X-32")
@pytest.mark.parametrize("second", [(ACT, ACTOR), (ACT, ("edit",)), (ACT, ())], ids=["more", "others", "none"])
def test_a_loop_in_another_mode_keeps_its_conversation_and_its_frames(
    stage: Stage, provider: ScriptedProvider, chat: Conversation, second: tuple[str, tuple[str, ...]]
) -> None:
    """X-32: the first request is answered beside the thread, all others on it."""
    turn_into(chat, PLAN, PLANNER)
    provider.will(does(push("Ledger")), says("I read the ledger."))
    chat.says("look at the ledger")
    turn_into(chat, *second)
    stage.excuse()
    provider.will(says("I do the first step."), says("I do the second step."), says("I do the third step."))
    chat.says("do it")
    assert status_of(chat) == "side"
    chat.says("go on")
    chat.says("and on")

    assert status_of(chat) == "full"
    assert len(chat.proxy.conversations) == 1
    (thread,) = {str(chat.last.headers["x-stack-thread"])} if chat.last else {""}
    assert chat.proxy.frames(chat.proxy.conversations[0]["id"], thread)["Ledger"]["status"] == "in_progress"
    assert "stack_frame_push" in as_one_text(provider.received[-1].messages)


@pytest.mark.rows("X-32")
def test_agents_that_hand_over_in_turn_are_all_in_one_conversation(
    stage: Stage, provider: ScriptedProvider, chat: Conversation
) -> None:
    """X-32: each agent may make a single request before it hands back; its own earlier answer is in the history."""
    agents = cycle([("You are the triage agent.", TRIAGE), ("You are the billing agent.", BILLING)])
    provider.will(*(says(f"This is answer {n}, by one of us.") for n in range(7)))
    seen = []
    for n in range(7):
        turn_into(chat, *next(agents))
        stage.excuse()
        chat.says(f"Message {n} of the user.")
        seen.append(status_of(chat))

    assert seen == ["full", "side", "full", "full", "full", "full", "full"]
    assert len(chat.proxy.conversations) == 1
    assert len(chat.proxy.conversations[0]["threads"]) == 2


@pytest.mark.rows("X-32")
def test_a_loop_beside_the_thread_with_fewer_of_its_tools_is_a_fork(
    stage: Stage, provider: ScriptedProvider, chat: Conversation
) -> None:
    """X-32: such as one that looks for memories to keep; its parent goes on as if nothing had been."""
    provider.will(does(push("Auth")), says("one"))
    chat.says("hello")
    beside = chat.branch(2)
    turn_into(beside, "You look for memories to keep.", ("bash",))
    provider.will(does(bash("ls")), says("Nothing to keep."), says("two"))
    beside.says("look for memories")
    assert status_of(beside) == "side"
    beside.returns("a.md")
    assert status_of(beside) != "side"
    chat.says("go on")

    parent, child = sorted(chat.proxy.conversations, key=lambda c: c["parent"] or "")
    assert child["parent"] == parent["id"]
    assert parent["threads"] == ["main"]
    assert chat.proxy.frames(parent["id"])["Auth"]["status"] == "in_progress"


@pytest.mark.rows("X-32")
@pytest.mark.parametrize("tools", [("bash",), ("memories",), ()], ids=["some", "others", "none"])
def test_questions_about_a_history_stay_beside_the_thread(
    stage: Stage, provider: ScriptedProvider, chat: Conversation, tools: tuple[str, ...]
) -> None:
    """X-07: none of them holds an answer to another, whatever the client put into the history itself."""
    provider.will(says("one"), says("A title."), says("two"), says("Another title."))
    for at, word in enumerate(("hello", "go on")):
        chat.says(word)
        beside = chat.branch(len(chat.history))
        turn_into(beside, "You ask about conversations.", tools)
        beside.history.append({"role": "user", "content": "[stopped by the user]"})
        beside.history.append({"role": "assistant", "content": f"Nothing was asked, for the {at}. time."})
        beside.says("what is this about?")
        assert status_of(beside) == "side"

    assert len(chat.proxy.conversations) == 1


@pytest.mark.rows("X-32")
def test_a_loop_in_another_mode_is_known_after_a_restart(
    stage: Stage, provider: ScriptedProvider, chat: Conversation
) -> None:
    provider.will(says("one"), says("I do it."), says("I did."))
    chat.says("hello")
    turn_into(chat, ACT, ("edit",))
    stage.excuse()
    chat.says("do it")
    chat.proxy.restart()
    chat.says("go on")

    assert status_of(chat) == "full"
    assert len(chat.proxy.conversations) == 1
