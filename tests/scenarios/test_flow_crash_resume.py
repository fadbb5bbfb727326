"""Crash, restart, resume at the exact subtask with blocked actions still known: an agent whose proxy is killed in the
middle of an answer goes on where it stood, and so does the person who looks (S2-42, S3-25, S3-29 to S3-31).

The proxy is a process of its own and dies by SIGKILL: nothing is flushed, nobody is told.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
from typing import Any

import pytest

from llm_test_provider import ScriptedProvider, says
from llm_test_provider.answer import stall
from tests import laws
from tests.client_dialects import neutral
from tests.crash.killable import ROOT, KillableProxy
from tests.harness import Conversation, Stage, activate, bash, does, plan, pop

pytestmark = pytest.mark.asked("streamed")
GOAL = "Move the shop to the new database."
NOTHING = "no such file: dump.sql"
TURN = "half of what the agent says when the lights go out " * 8


def resumed(chat: Conversation) -> dict[str, Any]:
    told: dict[str, Any] = chat.proxy.get(f"/stack/conversations/{chat.proxy.conversations[0]['id']}/resume")
    return told


def printed(proxy: KillableProxy) -> str:
    """What `callstack resume` prints in a process of its own."""
    command = [sys.executable, "-m", "callstack_proxy", "resume", "--data", str(proxy.data)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=60, text=True)
    return done.stdout


def line_of(stage: Stage, at: int) -> laws.Body:
    return laws.Body.read(neutral(stage.tongue, stage.provider.received[at].raw))


@pytest.fixture
def killable(stage: Stage) -> KillableProxy:
    return KillableProxy(stage, wake_at_tokens=0, loops="block").start()


@pytest.fixture
def looping(killable: KillableProxy, stage: Stage, provider: ScriptedProvider) -> Conversation:
    """Three tasks, the first done; in the second the agent has asked for the same three times, in vain."""
    chat = stage.chat(killable)
    provider.will(does(plan("Dump", "Load", "Switch over")), says("Three steps."))
    chat.says(GOAL)
    known = chat.proxy.frames()
    provider.will(
        does(activate(known["Dump"]["sessionID"])),
        does(bash("dump")),
        does(pop("It lies in old.sql.")),
    )
    provider.will(does(activate(known["Load"]["sessionID"])), *[does(bash("load dump.sql"))] * 3)
    chat.says("Begin.")
    chat.returns("dumped to old.sql")
    for _ in range(2):
        chat.returns(NOTHING)
    return chat


def dies_in_the_middle_of_an_answer(chat: Conversation, killable: KillableProxy) -> None:
    """The client has read the beginning of a stream when the process is killed."""
    body = chat.body()
    connection, response = killable.opened(body, {})
    read = b""
    try:
        while b"half of" not in read:
            read += response.read1(256)
        killable.kill()
        with pytest.raises((http.client.IncompleteRead, ConnectionError, AssertionError)):
            _read_to_the_end(response)
    finally:
        connection.close()


def _read_to_the_end(response: http.client.HTTPResponse) -> None:
    assert b"[DONE]" in response.read()


@pytest.mark.rows("S2-42", "S3-25", "S3-29", "S3-30", "C24", "S3-37")
def test_after_a_crash_the_work_goes_on_at_the_exact_subtask(
    killable: KillableProxy, looping: Conversation, stage: Stage, provider: ScriptedProvider
) -> None:
    chat = looping
    provider.will(stall(says(TURN), after_events=12))
    chat.history.append({"role": "tool", "tool_call_id": chat.history[-1]["tool_calls"][0]["id"], "content": NOTHING})
    before = len(provider.received)
    dies_in_the_middle_of_an_answer(chat, killable)
    left = line_of(stage, before)

    # A person looks while nothing runs: the store alone tells.
    screen = printed(killable)
    killable.start()
    told = resumed(chat)

    assert [step["title"] for step in told["path"]] == [GOAL, "Load"]
    assert told["finished"][0]["results"] == "It lies in old.sql."
    assert [(b["calls"], b["times"]) for b in told["blocked_actions"]] == [(["bash: load dump.sql"], 3)]
    assert NOTHING in told["actions"][-1]
    assert told["next"]["title"] == "Switch over"
    assert "Load" in screen
    assert "load dump.sql" in screen

    # The client asks again, as all do: the same line, byte for byte, and the blocked action is blocked still.
    stage.excuse()
    provider.will(does(bash("load dump.sql")), does(bash("load old.sql")))
    answer = chat.asks()
    assert line_of(stage, before + 1).written == left.written
    assert [arguments for _, arguments in answer.calls] == ['{"command": "load old.sql"}']
    refused = provider.received[-1].messages[-1]
    assert refused["content"].startswith("Error: not run.")

    # It goes on to the end, and nothing is blocked in the next subtask.
    provider.will(
        does(pop("Loaded.")),
        does(activate(chat.proxy.frames()["Switch over"]["sessionID"])),
        says("On it."),
    )
    chat.returns("4,711 rows loaded")
    told = resumed(chat)
    assert [step["title"] for step in told["path"]] == [GOAL, "Switch over"]
    assert told["blocked_actions"] == []
    assert [part["title"] for part in told["finished"]] == ["Dump", "Load"]
    assert told["next"] == {"frame": None, "title": None, "action": "Go on with Switch over."}


@pytest.mark.long
@pytest.mark.rows("S3-31")
def test_other_first_words_after_a_crash_are_another_goal(
    killable: KillableProxy, looping: Conversation, stage: Stage, provider: ScriptedProvider
) -> None:
    """S3-31: the work is resumed only by who asks for the same."""
    assert looping.proxy.active() == "Load", "what is asked for is on disk"
    killable.kill()
    killable.start()
    provider.will(says("Which one?"))
    stage.chat(killable).says("Move the shop to another town.")

    newest, resumable = killable.conversations
    assert newest["frames"] == 1
    assert resumable["title"] == GOAL
