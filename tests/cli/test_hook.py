"""`callstack hook`: what Claude Code and Codex show their users when a session starts, before it compacts, and when a
turn has ended. Whatever is there, the agent is not held up."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from callstack_proxy.cli.statusline.hook import answer_words
from llm_test_provider import ScriptedProvider, says
from tests.cli.conftest import Shell
from tests.crash.killable import KillableProxy
from tests.harness import running_stage

pytestmark = pytest.mark.rows("X-69")

SESSION = "session-a"


def answered(shell: Shell, event: str, session: str = SESSION, **env: str) -> str:
    """The words for the user at an event; empty for silence."""
    typed = json.dumps({"hook_event_name": event, "session_id": session})
    done = shell.run("hook", "--data", str(shell.data), env=env, typed=typed)
    assert (done.code, done.errors) == (0, "")
    if not done.out:
        return ""
    answer = json.loads(done.out)
    assert set(answer) == {"systemMessage"}
    return str(answer["systemMessage"])


def test_a_start_without_a_proxy_says_what_to_do(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        elsewhere = answered(shell, "SessionStart", ANTHROPIC_BASE_URL=f"http://127.0.0.1:{port}")
    refused = answered(shell, "SessionStart", ANTHROPIC_BASE_URL=f"http://localhost:{port}")

    assert elsewhere == ""
    assert refused.startswith(f"callstack: nothing answers at 127.0.0.1:{port}")
    assert "`callstack serve`" in refused
    assert "`callstack wrap`" in answered(shell, "SessionStart")
    assert [answered(shell, event) for event in ("PreCompact", "Stop", "Notification", "")] == [""] * 4


def test_what_is_no_event_is_met_with_silence(shell: Shell) -> None:
    for typed in (
        "",
        "{",
        "[1]",
        "\x00\xff",
        '{"hook_event_name": 7, "session_id": []}',
        '{"hook_event_name": "Stop"}',
    ):
        done = shell.on_data("hook", typed=typed)
        assert (done.code, done.out, done.errors) == (0, "", "")


def test_a_running_proxy_is_asked_for_the_session(tmp_path: Path) -> None:
    with ScriptedProvider() as provider, running_stage(provider, tmp_path, streamed=False) as stage:
        proxy = KillableProxy(stage).start()
        shell = Shell(tmp_path, tmp_path / "data")
        chat = stage.chat(proxy)
        chat.headers["x-claude-code-session-id"] = SESSION
        provider.will(says("hello"))
        chat.says("The tests fail.")
        base = f"http://127.0.0.1:{proxy.port}"
        while not (compacts := answered(shell, "PreCompact")):  # the first question builds the management API
            pass
        started = [answered(shell, "SessionStart"), answered(shell, "SessionStart", ANTHROPIC_BASE_URL=base)]
        same, unknown = answered(shell, "PreCompact", ANTHROPIC_BASE_URL=base), answered(shell, "PreCompact", "other")

    assert started == ["", ""]
    assert same == compacts
    assert compacts.startswith("callstack: all of this session is kept")
    assert unknown == ""


@pytest.mark.parametrize(
    ("event", "answer", "words"),
    [
        ("PreCompact", {"tokens_sent": 24_000, "tokens_in": 103_000}, "only 24k of 103k tokens are sent, so nothing"),
        ("PreCompact", {"tokens_sent": 90_000, "tokens_in": 103_000}, "all of this session is kept, and the model"),
        ("Stop", {"session_saved": 0.31, "session_untouched": 0.86}, "this session saved $0.31 today (36 %)"),
        ("Stop", {"session_saved": -0.02, "session_untouched": 1.0}, "this session lost $0.02 today (2 %)"),
        ("Stop", {"session_plan_saved": 0.3, "session_plan_untouched": 1.0}, "this session saved 30 % of today's use"),
        ("Stop", {"session_saved": 0.0, "session_untouched": 1.0}, ""),
    ],
)
def test_the_words_of_an_event(event: str, answer: dict[str, object], words: str) -> None:
    said = answer_words(event, answer)

    assert said == words if event == "Stop" else said.startswith(words)


def test_the_settings_are_printed_and_nothing_is_written(shell: Shell) -> None:
    done = shell.run("hook", "--settings", "--data", "my data")

    settings = json.loads("{" + done.out.partition("\n\n")[2] + "}")["hooks"]
    assert set(settings) == {"SessionStart", "PreCompact", "Stop"}
    command = f'callstack hook --data "{shell.home / "my data"}"'
    assert settings["Stop"] == [{"hooks": [{"type": "command", "command": command}]}]
    assert list(shell.home.iterdir()) == []
    assert "callstack hook" in shell.run("hook", "--help").out
