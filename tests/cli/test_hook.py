"""`callstack hook`: what Claude Code and Codex show their users when a session starts, is compacted, or ends a turn.
Whatever is there, the agent is not held up."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from callstack_proxy.cli.statusline.hook import compaction_words, stop_words
from llm_test_provider import ScriptedProvider, says
from tests.cli.conftest import Shell
from tests.crash.killable import KillableProxy
from tests.forked_commands import environment
from tests.harness import running_stage

pytestmark = pytest.mark.rows("X-69")

SESSION, COMPACTED = "session-a", "SessionStart:compact"


def answered(shell: Shell, event: str, session: str = SESSION, **env: str) -> str:
    """The words for the user at an event; empty for silence."""
    name, _, source = event.partition(":")
    typed = json.dumps({"hook_event_name": name, "source": source or "startup", "session_id": session})
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
    assert [answered(shell, event) for event in (COMPACTED, "Stop", "PreCompact", "")] == [""] * 4


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
        while not (compacts := answered(shell, COMPACTED)):  # the first question builds the management API
            pass
        started = [answered(shell, "SessionStart"), answered(shell, "SessionStart", ANTHROPIC_BASE_URL=base)]
        same, unknown = answered(shell, COMPACTED, ANTHROPIC_BASE_URL=base), answered(shell, COMPACTED, "other")

    assert started == ["", ""]
    assert same == compacts
    assert compacts == "callstack: what the compaction left out is kept, and the model can recall it."
    assert unknown == ""


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"session_saved": 0.31, "session_untouched": 0.86}, "this session saved $0.31 today (36 %)"),
        ({"session_saved": -0.02, "session_untouched": 1.0}, "this session lost $0.02 today (2 %)"),
        ({"session_plan_saved": 0.3, "session_plan_untouched": 1.0}, "this session saved 30 % of today's use"),
        ({"session_saved": -0.009, "session_untouched": 1.0}, ""),
        ({}, ""),
    ],
)
def test_the_end_of_a_turn_says_what_the_session_saved(answer: dict[str, object], words: str) -> None:
    assert stop_words(answer) == words


def test_a_compaction_that_was_not_needed_is_called_so() -> None:
    needed, not_needed = (compaction_words({"tokens_sent": sent, "tokens_in": 103_000}) for sent in (90_000, 24_000))

    assert not_needed == f"{needed} It was not needed: of 103k tokens only 24k were sent."


def test_the_settings_are_printed_and_nothing_is_written(shell: Shell) -> None:
    done = shell.run("hook", "--settings", "--data", "my data")

    settings = json.loads(done.out.partition("\n\n")[2])["hooks"]
    assert set(settings) == {"SessionStart", "Stop"}
    ((run,),) = (group["hooks"] for group in settings["Stop"])
    assert run["type"] == "command"
    assert run["command"].endswith(f'callstack hook --data "{shell.home / "my data"}"')
    assert list(shell.home.iterdir()) == []
    assert "callstack hook" in shell.run("hook", "--help").out


def test_the_printed_commands_run_in_any_folder_without_the_environment(shell: Shell) -> None:
    """Whether its environment was active or not when they were printed, and whatever its data directory is called."""
    own, named = str(Path(sys.executable).parent), "a \"b\" $HOME `c` 'd' \\"
    path = os.pathsep.join(folder for folder in os.environ["PATH"].split(os.pathsep) if folder != own)
    printed = [
        shell.run("hook", "--settings", "--data", named, env={"PATH": each}).out.partition("\n\n")[2]
        for each in (path, f"{own}{os.pathsep}{path}")
    ]
    (shell.home / named).mkdir()
    (elsewhere := shell.home / "elsewhere").mkdir()

    assert printed[0] == printed[1]
    for event, (group,) in json.loads(printed[0])["hooks"].items():
        (command,) = (run["command"] for run in group["hooks"])
        done = subprocess.run(
            ["/bin/sh", "-c", f'{command} && set -- {command} && printf %s "$4" >&2'],
            cwd=elsewhere,
            env=environment(shell.home) | {"PATH": path},
            input=json.dumps({"hook_event_name": event, "session_id": SESSION}),
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, str(shell.home / named))
        assert "no proxy runs here" in done.stdout if event == "SessionStart" else done.stdout == ""


def test_a_program_that_the_path_leads_to_is_named_without_its_folder(shell: Shell) -> None:
    """As pipx and uv install it: a link in a folder of the PATH. A stranger's program of the same name is not ours."""
    (links := shell.home / "links").mkdir()
    (strangers := shell.home / "strangers").mkdir()
    (links / "callstack").symlink_to(Path(sys.executable).parent / "callstack")
    (strangers / "callstack").write_text("#!/bin/sh\n")
    (strangers / "callstack").chmod(0o755)

    def first_word(*path: Path) -> str:
        printed = shell.run("hook", "--settings", env={"PATH": os.pathsep.join(map(str, path))}).out
        runs = json.loads(printed.partition("\n\n")[2])["hooks"]["Stop"][0]["hooks"]
        return str(shlex.split(runs[0]["command"])[0])

    assert first_word(links, strangers) == "callstack"
    assert Path(first_word(strangers, links)).parent == Path(sys.executable).parent
