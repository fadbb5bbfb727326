"""`kill -9` behind a typed command: what a person was told is done is done, once (S0-36)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from llm_test_provider import ScriptedProvider, says
from tests.crash.killable import KillableProxy
from tests.harness import Stage, texts

pytestmark = pytest.mark.rows("S0-36")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with ScriptedProvider() as provider:
        running = Stage(provider, tmp_path, streamed=True)
        yield running
        assert running.breaches() == []
        running.stop()


def test_what_a_person_was_told_survives_a_kill_right_behind_the_answer(stage: Stage) -> None:
    """It is on disk before it is told; the retry after the kill is answered alike, and does nothing twice."""
    chat = stage.chat(KillableProxy(stage, wake_at_tokens=0).start())
    proxy = chat.proxy
    assert isinstance(proxy, KillableProxy)
    stage.provider.will(says("hello"), says("one"))
    chat.says("build a parser")
    chat.says("/stack push Outer")

    first = chat.says("/stack push Inner | it works")
    proxy.kill()
    proxy.start()
    chat.history.pop()
    again = chat.asks()
    proxy.kill()
    proxy.start()
    chat.says("go on")

    assert again.text == first.text
    assert proxy.statuses() == dict.fromkeys(("build a parser", "Outer", "Inner"), "in_progress")
    assert proxy.active() == "Inner"
    line = texts(stage.provider.received[-1].messages)
    assert not any(text.startswith(("user: /stack", "assistant: [callstack]")) for text in line)
    assert sum('note="by hand"' in text for text in line) == 1
