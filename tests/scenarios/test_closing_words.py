"""What the user read last before a message of theirs stays before the model, however the frame ended in which it was
said. The judge asks it of every scenario; these are the ways in which it was lost."""

from __future__ import annotations

import pytest

from llm_test_provider import ScriptedProvider, says
from tests.harness import Conversation, Stage, as_one_text, bash, does, pop, push
from tests.scenarios.sessions import TOOLS, Session, outputs_in

CLOSING = "parse() reads List[int] & stops at the first ';'.\n\nIts tests are in test_parser.py: 12 of them."
PARTS = CLOSING.replace("&", "&amp;").split("\n\n")


def is_before_the_model(provider: ScriptedProvider) -> bool:
    line = as_one_text(provider.received[-1].messages).replace(" & ", " &amp; ")
    return all(part in line for part in PARTS)


@pytest.mark.rows("X-45")
@pytest.mark.parametrize("next_message", ["yes, go on", "Now write documentation for the installer."])
def test_closing_words_behind_a_pop_that_came_beside_a_call_stay(
    chat: Conversation, provider: ScriptedProvider, next_message: str
) -> None:
    provider.will(
        does(push("Read the parser")),
        does(bash("cat parser.py"), pop("parse() is in parser.py")),
        says(CLOSING),
        says("ok"),
        says("all right"),
    )
    chat.says("Explain the parser to me, please.")
    chat.returns("def parse(): ...")
    chat.says(next_message)

    assert chat.proxy.statuses()["Read the parser"] == "completed"
    assert is_before_the_model(provider)
    chat.says("thanks, and what about the lexer?")
    assert is_before_the_model(provider), "nor later"


@pytest.mark.rows("X-45")
def test_closing_words_of_a_frame_that_is_popped_later_stay(chat: Conversation, provider: ScriptedProvider) -> None:
    provider.will(does(push("Read the parser")), does(bash("cat parser.py")), says(CLOSING))
    chat.says("Explain the parser to me, please.")
    chat.returns("def parse(): ...")
    provider.will(does(bash("pytest")), does(pop("12 tests pass")), says("They pass."), says("ok"))
    chat.says("yes, run them")
    chat.returns("12 passed")

    assert chat.proxy.statuses()["Read the parser"] == "completed"
    assert is_before_the_model(provider)
    chat.says("good")
    assert is_before_the_model(provider), "nor later"


@pytest.mark.rows("X-45")
def test_closing_words_of_nested_frames_stay(chat: Conversation, provider: ScriptedProvider) -> None:
    provider.will(
        does(push("Read the parser")), does(push("Read its lexer")), does(bash("cat lexer.py")), says(CLOSING)
    )
    chat.says("Explain the parser to me, please.")
    chat.returns("def lex(): ...")
    provider.will(does(pop("lexer read")), does(bash("pytest")), does(pop("12 tests pass")), says("They pass."))
    chat.says("yes, run them")
    chat.returns("12 passed")

    assert is_before_the_model(provider)


@pytest.mark.rows("X-45")
def test_a_long_answer_is_no_shorter_for_the_frame_it_was_given_in(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    long = " ".join(f"Rule {n} of the parser is number {n}." for n in range(400))
    provider.will(does(push("Read the parser")), does(bash("cat parser.py")), says(f"RESULT: read\n{long}"), says("ok"))
    chat.says("Explain the parser to me, please.")
    chat.returns("def parse(): ...")
    chat.says("Now write documentation for the installer.")

    assert long in as_one_text(provider.received[-1].messages)


@pytest.mark.rows("X-45")
@pytest.mark.parametrize("view", ["isolate", "last:1"])
def test_a_narrow_view_shows_the_closing_words_beside_the_users(
    stage: Stage, provider: ScriptedProvider, view: str
) -> None:
    chat = stage.chat(stage.proxy(child_view=view))
    provider.will(does(bash("cat parser.py")), says(CLOSING))
    chat.says("Explain the parser to me, please.")
    chat.returns("def parse(): ...")
    provider.will(does(push("Mend the parser")), says("Mended."))
    chat.says("mend it then")

    assert is_before_the_model(provider)


@pytest.mark.rows("X-45")
def test_a_folded_request_keeps_the_closing_words_of_frames_inside_it(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    long = "def parse(): ...\n" * 3_000
    provider.will(does(push("Read the parser")), does(bash("cat parser.py")), says(CLOSING))
    chat.says("Explain the parser to me, please.")
    chat.returns(long)
    provider.will(does(pop("read")), does(bash("cat lexer.py")), does(bash("cat main.py")), says("All read."))
    chat.says("yes, go on with the lexer")
    chat.returns(long)
    chat.returns(long)
    provider.will(says("ok"), says("fine"))
    chat.says("Now write documentation for the installer.")
    chat.says("Change the colour of the login page to green.")

    assert not any(long in str(message) for message in provider.received[-1].messages), "the request has folded"
    assert is_before_the_model(provider)


@pytest.mark.rows("X-45")
def test_nothing_folds_between_the_last_tick_of_a_plan_and_the_closing_words(
    stage: Stage, provider: ScriptedProvider
) -> None:
    session = Session(stage.chat(tools=TOOLS), provider)
    session.plays("""
        user: Give the language a lexer and a parser.
        todo: [>] Lexer | [ ] Parser
        read lexer.py
        edit lexer.py
        todo: [x] Lexer | [>] Parser
        read parser.py
        edit parser.py
        todo: [x] Lexer | [x] Parser
        run git diff
        says: Both are written.
        user: Now write documentation for the installer.
        says: ok
    """)
    shown = [outputs_in(received.messages) for received in provider.received]

    assert shown[8] == [*shown[7], 8], "with the last tick nothing leaves, and nothing behind it"
    assert 6 in shown[8]
    assert not shown[-1], "it leaves with the user's next request"
