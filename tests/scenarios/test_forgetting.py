"""A conversation is forgotten by its id while an answer is under way in it."""

from __future__ import annotations

from pathlib import Path

from llm_test_provider import ScriptedProvider, says
from tests.harness import Conversation, bash, does
from tests.scenarios.speaking import beside, meanwhile

SECRET = "SESAME-4711"


def test_forgotten_while_it_is_answered_nothing_that_was_said_comes_back(
    chat: Conversation, provider: ScriptedProvider, tmp_path: Path
) -> None:
    """T10: the receipt of the answer under way is written behind the deletion; it is all that is left, and goes when
    it is asked for by the same id."""
    provider.will(does(bash("ls")))
    chat.says(f"The password is {SECRET}. {'It is long. ' * 20}")
    path = beside(chat).at
    gone: list[int] = []
    meanwhile(provider, 2, lambda: gone.append(chat.proxy.asked("DELETE", path)[0]), says("Done."))

    answer = chat.returns("a.py")

    assert (answer.text, gone) == ("Done.", [200])
    assert [receipt["conversation"] for receipt in chat.proxy.receipts()] == [path.rpartition("/")[2]]
    assert [p.name for p in tmp_path.rglob("callstack.db*") if SECRET.encode() in p.read_bytes()] == []
    chat.proxy.asked("DELETE", path)
    assert chat.proxy.receipts() == []
    chat.proxy.stage.notes.clear()  # the judge looks in the store for what left
