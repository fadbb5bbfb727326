"""What the model is told of its client's plan tools: to keep them, or to plan with the stack tools alone (C19)."""

from __future__ import annotations

import pytest

from llm_test_provider import ScriptedProvider, call, says
from tests.harness import Conversation, Stage, as_one_text, bash, does, plan, push, texts
from tests.scenarios.sessions import Session
from tests.scenarios.test_inferred_frames import as_todos
from tests.scenarios.test_tool_names import goes_cold

TOOLS = ("bash", "TodoWrite", "read")
KEEP, NEVER = "Todo items are frames:", "NEVER use TodoWrite or any other todo or plan tool."


def replaced(stage: Stage, **settings: object) -> Conversation:
    return stage.chat(stage.proxy(guidance="replace", **settings), tools=TOOLS)


@pytest.mark.rows("C19", "S1-76", "S1-141")
def test_with_replace_the_model_is_told_to_plan_in_frames_and_the_clients_tools_stay_as_they_are(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """C19: words alone. Tools of the client are offered as it sent them, before ours."""
    chat = replaced(stage)
    provider.will(does(plan("Lexer", "Parser")), says("Planned."))

    assert chat.says("Build the formatter.").text == "Planned."

    sent = as_one_text(provider.received[0].messages)
    assert (NEVER in sent, KEEP in sent) == (True, False)
    assert provider.received[0].tool_names[: len(TOOLS)] == list(TOOLS)
    assert chat.proxy.statuses() == {"Build the formatter.": "in_progress", "Lexer": "planned", "Parser": "planned"}


@pytest.mark.rows("C19", "S1-76")
def test_with_replace_a_plan_tool_that_is_called_all_the_same_is_mirrored(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """The client gets its call, and its items become frames."""
    chat = replaced(stage)
    provider.will(does(as_todos({"Lexer": "doing", "Parser": "planned"})), says("Planned."))

    answer = chat.says("Build the formatter.")
    assert [made["function"]["name"] for made in answer.message["tool_calls"]] == ["TodoWrite"]
    chat.returns("Todos are kept.")

    assert chat.proxy.statuses() == {"Build the formatter.": "in_progress", "Lexer": "in_progress", "Parser": "planned"}


@pytest.mark.rows("C19")
def test_another_wording_counts_from_the_next_block_that_is_written(stage: Stage, provider: ScriptedProvider) -> None:
    """L2: what a conversation was told as it woke stands, byte for byte, until its block is written anew; one that
    wakes later reads the new wording at once."""
    session = Session(stage.chat(tools=TOOLS), provider)
    session.turn("Build the formatter.", closing="Yes.")
    chat, proxy = session.chat, session.chat.proxy
    proxy.config = proxy.config.model_copy(update={"guidance": "replace"})
    proxy.restart()
    session.turn("Yes, please go on.", closing="I go on.")
    sent = as_one_text(provider.received[-1].messages)
    assert (KEEP in sent, NEVER in sent) == (True, False)

    provider.will(does(call("stack_cache_clear")), says("Noted."))
    chat.says("Yes, please note it.")
    goes_cold(session)
    session.turn("Yes, please go on.", closing="I go on.")
    sent = as_one_text(provider.received[-1].messages)
    assert (KEEP in sent, NEVER in sent) == (False, True)


@pytest.mark.rows("C19")
def test_in_mode_passive_nothing_is_told_of_plan_tools(stage: Stage, provider: ScriptedProvider) -> None:
    chat = replaced(stage, mode="passive")
    provider.will(does(bash("ls")), says("There."))
    chat.says("Build the formatter.")
    chat.returns("a.py")

    assert all("plan tool" not in as_one_text(received.messages) for received in provider.received)


@pytest.mark.rows("C19")
def test_a_frame_that_is_pushed_is_told_of_no_client_tool(stage: Stage, provider: ScriptedProvider) -> None:
    """The wording stands once, with the guidance: no block of a frame repeats it."""
    chat = replaced(stage)
    provider.will(does(push("Lexer")), says("Begun."))
    chat.says("Build the formatter.")

    block = texts(provider.received[-1].messages)[-1]
    assert ("<stack-context" in block, "TodoWrite" in block) == (True, False)
