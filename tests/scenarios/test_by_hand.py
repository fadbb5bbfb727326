"""A person drives the tree from beside the client, while the agent works: what is done takes effect with the next
request of its path, and the model is told (S0-36).
"""

from __future__ import annotations

from typing import Any

import pytest

from llm_test_provider import ScriptedProvider, call, says
from proxy.core.compaction.truncate_outputs import CLEARED_PREFIX
from tests.harness import (
    Conversation,
    Json,
    RunningProxy,
    Stage,
    activate,
    as_one_text,
    bash,
    does,
    pop,
    push,
    texts,
)
from tests.scenarios.sessions import TOOLS, Session

pytestmark = pytest.mark.rows("S0-36")
SUFFIXED = {"tariffs__own__names": "gpt-x", "tariffs__own__after_tool": "suffix"}


def by_hand(proxy: RunningProxy, path: str, body: Json | None = None, method: str = "POST") -> tuple[int, Any]:
    """Status and answer of a deed."""
    return proxy.asked(method, f"/stack{path}", body)


def pushed(chat: Conversation, title: str, **more: Any) -> str:
    """A frame that a person begins; its id."""
    at = chat.proxy.conversations[0]["id"]
    status, told = by_hand(chat.proxy, f"/conversations/{at}/frames", {"title": title, **more})
    assert status == 200, told
    return str(told["frames"][0]["sessionID"])


def notes(line: list[Json]) -> list[str]:
    return [text for text in texts(line) if 'note="by hand"' in text]


def test_what_a_person_does_while_the_agent_works_is_told_with_its_next_request(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """L2: behind the results that come with it, and never again; what stood there before keeps its bytes."""
    chat = stage.chat()
    provider.will(does(bash("ls")), does(bash("cat lexer.py")), says("done"), says("ok"))
    chat.says("build a parser")

    lexer = pushed(chat, "Lexer", criteria="tokens come out")
    chat.returns("lexer.py")
    chat.returns("def lex(): ...")
    chat.says("fine")

    first, *later = stage.lines()
    assert [len(notes(line)) for line in (first, *later)] == [0, 1, 1, 1]
    assert lexer in notes(later[0])[0]
    assert "tokens come out" in notes(later[0])[0]
    assert chat.last is not None
    assert chat.last.headers["x-stack-frame"] == lexer


def test_what_it_was_told_is_no_words_of_the_users_to_be_recalled(stage: Stage, provider: ScriptedProvider) -> None:
    """L3: recall gives what the client and the model said. What we told beside it was true of its moment."""
    chat = stage.chat()
    sought = call("stack_recall", query="user changed the frames by hand")
    provider.will(
        does(push("Parser")),
        does(bash("ls")),
        says("hm"),
        does(pop("It parses.")),
        does(sought),
        says("ok"),
    )
    chat.says("build a parser")
    pushed(chat, "Lexer")
    chat.returns("lexer.py")
    provider.will(does(pop("It lexes.")))

    chat.says("go on")

    assert len(notes(stage.lines()[2])) == 1
    told = next(text for text in texts(stage.lines()[-1]) if "all of these words" in text)
    assert "The user changed the frames by hand:" not in told


def test_it_holds_over_a_restart_and_is_told_then(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat()
    provider.will(says("hello"), says("one"))
    chat.says("build a parser")
    pushed(chat, "Lexer")
    chat.proxy.restart()

    chat.says("go on")

    assert "Lexer" in notes(stage.lines()[-1])[0]
    assert chat.proxy.active() == "Lexer"


def test_the_note_stays_where_the_client_prunes_what_it_stands_behind(stage: Stage, provider: ScriptedProvider) -> None:
    """L2: clients clear old results; no word of ours leaves the past with that."""
    chat = stage.chat()
    provider.will(does(bash("ls")), says("That is all there is to see here, I am done."), says("ok"))
    chat.says("build a parser")
    pushed(chat, "Lexer")
    chat.returns("lexer.py\n" * 20)
    next(m for m in chat.history if m["role"] == "tool")["content"] = CLEARED_PREFIX
    chat.says("go on")

    lines = stage.lines()
    assert len(notes(lines[1])) == 1
    assert lines[2][: len(lines[1])] == lines[1]


@pytest.mark.rows("S1-31")
def test_a_frame_of_the_model_is_ended_only_once_it_has_answered(stage: Stage, provider: ScriptedProvider) -> None:
    """S1-31: its line goes with it, and so would results that the model has not read."""
    chat = stage.chat()
    provider.will(does(push("Auth")), does(bash("ls")), says("It needs a key."), says("ok"))
    chat.says("add a login")
    auth = str(chat.proxy.frames()["Auth"]["sessionID"])

    status, refused = by_hand(chat.proxy, f"/frames/{auth}/pop", {"status": "failed"})
    assert status == 409
    assert "is at work" in refused["error"]["message"]
    assert by_hand(chat.proxy, f"/frames/{auth}/invalidate", {"reason": "not now"})[0] == 409
    chat.returns("auth.py")
    status, told = by_hand(chat.proxy, f"/frames/{auth}/pop", {"status": "failed"})
    chat.says("leave it")

    assert (status, told["frames"][0]["results"]) == (200, "It needs a key.")
    assert chat.proxy.statuses() == {"add a login": "in_progress", "Auth": "failed"}
    assert "auth.py" not in as_one_text(stage.lines()[-1])


def test_a_frame_of_the_model_is_given_up_and_the_model_told_why(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat()
    provider.will(does(push("Auth")), says("It needs a key."), says("ok"))
    chat.says("add a login")
    auth = str(chat.proxy.frames()["Auth"]["sessionID"])

    status, _ = by_hand(chat.proxy, f"/frames/{auth}/invalidate", {"reason": "no login after all"})
    chat.says("leave it")

    line = stage.lines()[-1]
    assert status == 200
    assert "no login after all" in notes(line)[0]
    assert "It needs a key." not in [text.removeprefix("assistant: ") for text in texts(line)]


def test_a_model_that_takes_no_words_behind_results_is_told_with_the_users(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """And a frame it opened itself is left to it: the user's words would stand behind a result."""
    chat = stage.chat(stage.proxy(**SUFFIXED))
    provider.will(does(push("Auth")), does(bash("ls")), says("done"), says("ok"))
    chat.says("add a login")
    auth = str(chat.proxy.frames()["Auth"]["sessionID"])
    pushed(chat, "Keys")

    chat.returns("auth.py")
    assert not notes(stage.lines()[-1])
    status, refused = by_hand(chat.proxy, f"/frames/{auth}/pop", {})
    chat.says("fine")

    assert status == 409
    assert "Tell the agent" in refused["error"]["message"]
    assert len(notes(stage.lines()[-1])) == 1


def test_work_in_a_frame_that_a_person_began_is_folded_when_a_person_ends_it(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """As any frame that no call opened; the trace says what came of it in the person's words."""
    session = Session(stage.chat(tools=TOOLS), provider)
    session.plays("""
        user: Build a parser.
        says: Tell me where to begin.
    """)
    lexer = pushed(session.chat, "Lexer")
    session.plays("""
        user: Begin with the lexer.
        read src/lexer.py
        edit src/lexer.py
        run make lexer
        says: The lexer reads numbers.
    """)
    assert session.outputs_sent() == [1, 2, 3]

    by_hand(session.chat.proxy, f"/frames/{lexer}/pop", {"results": "Numbers are read; names are still missing."})
    session.plays("""
        user: Go on with the printer, it should print trees.
        says: It prints.
    """)

    line = stage.lines()[-1]
    trace = next(text for text in texts(line) if f'ref="{lexer}"' in text and "<stack-context" in text)
    assert session.outputs_sent() == []
    assert "Numbers are read; names are still missing." in trace
    assert "user: Begin with the lexer." in texts(line)


@pytest.mark.rows("C6")
def test_what_was_done_in_a_frame_of_a_person_stays_when_the_model_takes_it_up_again(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """C6, L2: the first attempt stands on the parent's line, for no call stands for it; the second one is a call."""
    chat = stage.chat()
    provider.will(says("hello"), does(bash("ls")), says("It needs a key."))
    chat.says("build a parser")
    lexer = pushed(chat, "Lexer")
    chat.says("begin")
    chat.returns("lexer.py")
    by_hand(chat.proxy, f"/frames/{lexer}/pop", {"status": "blocked"})
    provider.will(says("Tell me."), does(activate(lexer)), does(bash("make")), says("It stands."))
    provider.will(does(pop("it stands")), says("ok"), says("ok"))

    chat.says("wait")
    chat.says("take it up again")
    assert "lexer.py" in as_one_text(stage.lines()[-1])
    chat.returns("made by the second attempt")
    chat.says("then end it")
    chat.says("fine")

    line = as_one_text(stage.lines()[-1])
    assert "lexer.py" in line
    assert "made by the second attempt" not in line
    assert chat.proxy.statuses() == {"build a parser": "in_progress", "Lexer": "completed"}
