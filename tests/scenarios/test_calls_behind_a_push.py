"""Calls behind a push in the same message are the work of its frame; calls before it are the parent's."""

from __future__ import annotations

import pytest

from llm_test_provider import ScriptedProvider, call, says
from tests.harness import Conversation, Stage, activate, as_one_text, bash, does, plan, pop, push, recall

pytestmark = pytest.mark.rows("S0-04")


@pytest.fixture
def chat(stage: Stage) -> Conversation:
    return stage.chat(tools=("bash", "read", "TodoWrite"))


def test_calls_behind_a_push_leave_with_its_frame_and_those_before_it_stay(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    provider.will(does(bash("cat a"), push("Read b"), bash("cat b"), call("read", path="src/c.py"), text="Both."))
    provider.will(does(pop("b has 12 rules.")), does(bash("make")))
    chat.says("Build the formatter.")
    chat.returns("content A", "content B", "content C")
    inside = as_one_text(provider.received[-2].messages)
    assert all(f"content {each}" in inside for each in "ABC")

    after = as_one_text(provider.received[-1].messages)
    assert "content A" in after
    assert "b has 12 rules." in after
    assert "Both." in after
    assert "content B" not in after
    assert "content C" not in after
    assert "cat b" not in after
    assert "c.py" in after, "a file that was read inside is told with the results"

    frame = chat.proxy.frames()["Read b"]["sessionID"]
    provider.will(does(recall(frame)), does(bash("ls")))
    chat.returns("made")
    told = as_one_text(provider.received[-1].messages)
    assert "content B" in told
    assert "content C" in told


def test_what_is_changed_behind_a_push_is_the_frames_artifact(chat: Conversation, provider: ScriptedProvider) -> None:
    provider.will(does(push("Write b"), call("Write", file_path="src/b.py", content="x = 1")), does(pop("Written.")))
    provider.will(does(bash("make")), says("ok"))
    chat.says("Build the formatter.")
    chat.returns("File created.")
    chat.returns("made")

    assert chat.proxy.frames()["Write b"]["artifacts"] == ["src/b.py"]
    assert "x = 1" not in as_one_text(provider.received[-1].messages)


def test_calls_behind_an_activate_belong_to_the_frame_it_begins(chat: Conversation, provider: ScriptedProvider) -> None:
    provider.will(does(plan("Lexer", "Parser")), does(activate("Lexer"), bash("cat lexer")), does(pop("It has rules.")))
    provider.will(does(bash("make")))
    chat.says("Build the formatter.")
    chat.returns("LEXER TEXT")

    after = as_one_text(provider.received[-1].messages)
    assert "It has rules." in after
    assert "LEXER TEXT" not in after


def test_of_two_pushes_in_a_message_the_first_takes_the_calls_behind_both(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    """A second push is planned beside the first; calls behind both are the first one's."""
    provider.will(does(push("One"), bash("cat one"), push("Two"), bash("cat two")), does(pop("One is done.")))
    provider.will(does(bash("make")))
    chat.says("Build the formatter.")
    chat.returns("text ONE", "text TWO")

    after = as_one_text(provider.received[-1].messages)
    assert "text ONE" not in after
    assert "text TWO" not in after
    assert chat.proxy.statuses()["Two"] == "planned"
    assert "Two" in after


def test_a_frame_popped_with_blocked_and_resumed_does_not_bring_them_back(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    provider.will(does(push("One"), bash("cat one")), does(pop("Waits for a key.", "blocked")), does(bash("make")))
    chat.says("Build the formatter.")
    chat.returns("text ONE")
    provider.will(does(activate("One")), does(bash("again")), says("ok"))
    chat.returns("made")

    after = as_one_text(provider.received[-1].messages)
    assert "Waits for a key." in after
    assert "text ONE" not in after
