"""A person plans a tree, the agent works depth-first through it, one branch is invalidated with its cascade, a failed
frame is retried with its lesson: the whole way over HTTP, as one long piece of work.
"""

from __future__ import annotations

import pytest

from llm_test_provider import ScriptedProvider, says
from tests.harness import Conversation, Stage, activate, as_one_text, bash, does, pop, texts

pytestmark = pytest.mark.rows("S0-36", "S0-39", "S0-03", "S0-04", "S1-37", "S1-77")


def frames(chat: Conversation) -> dict[str, str]:
    """Ids by title, of several the newest."""
    return {title: str(frame["sessionID"]) for title, frame in chat.proxy.frames().items()}


def typed(chat: Conversation, provider: ScriptedProvider, command: str) -> str:
    """The answer to a command, for which the provider was not asked."""
    before = len(provider.received)
    answer = chat.says(command)
    assert answer.stack_status == "answered"
    assert len(provider.received) == before
    return answer.text


@pytest.mark.rows("S3-37", "S1-01")
def test_a_person_plans_a_tree_and_the_agent_works_through_it(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat()
    provider.will(says("Tell me how you want it built."))
    chat.says("build a compiler")

    # A tree of two levels, typed in the chat.
    typed(chat, provider, "/stack plan Frontend | programs are read; Cache | builds are fast; Backend | code comes out")
    typed(chat, provider, "/stack plan under Frontend: Lexer | tokens come out; Parser | trees come out")
    typed(chat, provider, "/stack plan under Cache: Keys; Storage")
    at = frames(chat)

    # The agent goes down into the first branch, and comes back from its first leaf.
    provider.will(
        does(activate(at["Frontend"])),
        does(activate(at["Lexer"])),
        does(bash("make lexer")),
        does(pop("The lexer stands in lexer.py.")),
        does(activate(at["Parser"])),
        does(bash("make parser")),
        does(pop("Left recursion: it never ended. Another grammar is needed.", "failed")),
        says("The parser failed."),
    )
    chat.says("Go on with the plan.")
    chat.returns("lexer built: 412 states")
    chat.returns("parser: stack overflow at line 88")
    assert chat.proxy.statuses() | {"Lexer": "completed", "Parser": "failed"} == chat.proxy.statuses()
    assert chat.proxy.active() == "Frontend"

    # One branch is given up, with what was planned below it.
    told = typed(chat, provider, "/stack invalidate Cache | we build everything anew")
    assert "Keys" in told
    assert "Storage" in told

    # What failed is tried again, and knows why.
    told = typed(chat, provider, "/stack activate Parser")
    assert "Left recursion" in told
    retried = frames(chat)["Parser"]
    assert retried != at["Parser"]
    provider.will(
        does(bash("make parser")),
        does(pop("An operator grammar does it, see parser.py.")),
        does(pop("Programs are read: lexer.py, parser.py.")),
        does(activate(at["Backend"])),
        does(bash("make backend")),
        does(pop("Code comes out of backend.py.")),
        says("All of it stands."),
    )
    chat.says("Try the parser once more.")
    first_line = stage.lines()[-1]
    assert "Left recursion" in as_one_text(first_line)
    assert "we build everything anew" in as_one_text(first_line)
    assert "stack overflow at line 88" not in as_one_text(first_line)
    chat.returns("parser built")
    chat.returns("backend built")

    # The way it took, and what is left of it on the line.
    assert chat.proxy.statuses() == {
        "build a compiler": "in_progress",
        "Frontend": "completed",
        "Cache": "invalidated",
        "Backend": "completed",
        "Lexer": "completed",
        "Parser": "completed",
        "Keys": "invalidated",
        "Storage": "invalidated",
    }
    detail = chat.proxy.get(f"/stack/frames/{retried}")
    assert (detail["retryOf"], detail["origin"], detail["status"]) == (at["Parser"], "human", "completed")
    assert chat.proxy.get(f"/stack/frames/{at['Parser']}")["status"] == "failed"
    line = stage.lines()[-1]
    assert "Programs are read: lexer.py, parser.py." in as_one_text(line)
    assert "lexer built: 412 states" not in as_one_text(line)
    assert not any(text.startswith(("user: /stack", "assistant: [callstack]")) for text in texts(line))

    # It survives the process, and the person is shown where it stands.
    chat.proxy.restart()
    assert typed(chat, provider, "/stack tree").count("✓") == 5
