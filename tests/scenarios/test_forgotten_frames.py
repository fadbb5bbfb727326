"""Frames that a model pushed and did not end: the next request ends them, and a pop that came too early counts."""

from __future__ import annotations

import pytest

from llm_test_provider import ScriptedProvider, call, says
from tests.harness import Conversation, Stage, bash, does, pop, push

COMPLETED = "completed"


def asks_and_is_answered(chat: Conversation, provider: ScriptedProvider, request: str, answer: str) -> None:
    provider.will(does(bash(f"look at {request}")), says(answer))
    chat.says(request)
    chat.returns("ok")


@pytest.mark.rows("S1-173")
def test_three_requests_after_an_open_push_are_three_requests(chat: Conversation, provider: ScriptedProvider) -> None:
    provider.will(does(push("Read the parser")), does(bash("cat parser.py")), says("The parser is fine."))
    chat.says("Explain the parser to me, please.")
    chat.returns("def parse(): ...")
    asks_and_is_answered(chat, provider, "Now write documentation for the installer.", "The installer is documented.")
    asks_and_is_answered(chat, provider, "Change the colour of the login page to green.", "The page is green.")
    asks_and_is_answered(chat, provider, "Remove the old database migrations.", "The migrations are gone.")

    frames = chat.proxy.frames()
    read = frames["Read the parser"]
    assert (read["status"], read["results"]) == (COMPLETED, "The parser is fine.")
    going, *ended, last = chat.proxy.statuses().values()
    assert (going, ended, last) == ("in_progress", [COMPLETED] * 4, "in_progress"), "the conversation goes on"
    assert not any("cat parser.py" in str(m) for m in provider.received[-1].messages), "its work left with it"
    assert any("The parser is fine." in str(m) for m in provider.received[-1].messages)


ANSWERS = {"in words": "yes, go on", "by the topic": "Write a test for parse() in parser.py."}


@pytest.mark.rows("S1-173")
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_a_frame_goes_on_where_the_user_only_answers(
    chat: Conversation, provider: ScriptedProvider, answer: str
) -> None:
    provider.will(does(push("Read the parser")), does(bash("cat parser.py")), says("Shall I fix parse() in parser.py?"))
    chat.says("Explain the parser to me, please.")
    chat.returns("def parse(): ...")
    provider.will(says("Fixed."))
    chat.says(answer)

    assert chat.proxy.statuses()["Read the parser"] == "in_progress"


@pytest.mark.rows("S1-173")
def test_a_frame_ends_where_the_user_names_another_task_about_the_same(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    provider.will(does(push("Read the parser")), does(bash("cat parser.py")), says("Shall I fix parse() in parser.py?"))
    chat.says("Explain the parser to me, please.")
    chat.returns("def parse(): ...")
    provider.will(says("Written."))
    chat.says("A new task: write a test for parse() in parser.py, please.")

    assert chat.proxy.statuses()["Read the parser"] == COMPLETED


@pytest.mark.rows("S1-173")
def test_where_requests_are_not_followed_only_a_pop_ends_a_frame(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat(stage.proxy(infer_requests="false"))
    provider.will(does(push("Read the parser")), does(push("Read the lexer")))
    provider.will(does(bash("cat lexer.py"), pop("it splits words")), says("The parser is fine."))
    chat.says("Explain the parser to me, please.")
    chat.returns("def words(): ...")
    asks_and_is_answered(chat, provider, "Now write documentation for the installer.", "The installer is documented.")

    statuses = chat.proxy.statuses()
    assert (statuses["Read the parser"], statuses["Read the lexer"]) == ("in_progress", COMPLETED)


@pytest.mark.rows("S1-173")
@pytest.mark.parametrize("next_message", ["yes, go on", "Now write documentation for the installer."])
def test_a_pop_beside_calls_of_the_client_counts_once_the_user_is_answered(
    chat: Conversation, provider: ScriptedProvider, next_message: str
) -> None:
    provider.will(
        does(push("Read the parser")),
        does(bash("cat parser.py"), pop("parse() is in parser.py")),
        says("The parser is fine."),
        says("ok"),
    )
    chat.says("Explain the parser to me, please.")
    chat.returns("def parse(): ...")
    assert "it is popped then" in str(provider.received[-1].messages)
    chat.says(next_message)

    read = chat.proxy.frames()["Read the parser"]
    assert (read["status"], read["results"]) == (COMPLETED, "parse() is in parser.py")
    assert "parse() is in parser.py" in str(provider.received[-1].messages)


@pytest.mark.rows("S1-173")
def test_a_pop_that_came_too_early_is_forgotten_where_the_work_went_on(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    provider.will(
        does(push("Read the parser")),
        does(bash("cat parser.py"), pop("all is well")),
        does(bash("pytest")),
        says("Shall I fix the two failing tests?"),
        says("ok"),
    )
    chat.says("Explain the parser to me, please.")
    chat.returns("def parse(): ...")
    chat.returns("2 failed")
    chat.says("yes, go on")

    assert chat.proxy.statuses()["Read the parser"] == "in_progress"


@pytest.mark.rows("S1-173")
def test_a_pop_that_came_too_early_counts_where_the_answer_needed_a_recall(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    """The hidden round of the recall belongs to the turn that answers."""
    provider.will(
        does(push("Read the parser")),
        does(bash("cat parser.py"), pop("parse() is in parser.py")),
        does(call("stack_recall", query="parser")),
        says("The parser is fine."),
        says("ok"),
    )
    chat.says("Explain the parser to me, please.")
    chat.returns("def parse(): ...")
    chat.says("yes, go on")

    read = chat.proxy.frames()["Read the parser"]
    assert (read["status"], read["results"]) == (COMPLETED, "parse() is in parser.py")


@pytest.mark.rows("S1-173")
def test_a_frame_whose_attempts_kept_failing_is_not_told_as_completed(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    provider.will(does(push("Fix the parser")), does(bash("cat parser.py")))
    chat.says("Fix the parser for me, please.")
    for _ in range(3):
        provider.will(does(push("Rewrite the lexer")), does(bash("pytest")), does(pop("2 tests fail", status="failed")))
        chat.returns("def parse(): ...")
        provider.will(does(bash("git checkout parser.py")))
        chat.returns("2 failed")
    provider.will(says("I could not mend it."))
    chat.returns("ok")
    asks_and_is_answered(chat, provider, "Now write documentation for the installer.", "The installer is documented.")

    assert chat.proxy.statuses()["Fix the parser"] == "blocked"
