"""`callstack statusline`: one line for a client that shows one, whatever is there."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from callstack_proxy.cli.context import ServerInfo, write_server_file
from callstack_proxy.cli.statusline.ask_proxy import read_options
from callstack_proxy.cli.statusline.line import cut_to_width, line_text
from llm_test_provider import ScriptedProvider, says
from tests.cli.conftest import Shell
from tests.crash.killable import KillableProxy
from tests.forked_commands import environment
from tests.harness import WAIT_S, bash, does, push, running_stage

ANSWER = {"tokens_sent": 23_900, "tokens_in": 103_451, "frame": "Fix the rounding", "saved": 0.3127, "untouched": 0.86}
LOADED_BESIDE = (
    "import sys, callstack_proxy.__main__; print(sorted(m for m in sys.modules if m.split('.')[0] in sys.argv[1:]))"
)


@pytest.mark.rows("X-69")
@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({}, "callstack 24k of 103k tokens · saved $0.31 today (36 %) · Fix the rounding"),
        ({"tokens_sent": 812, "tokens_in": 812, "frame": ""}, "callstack 812 tokens · saved $0.31 today (36 %)"),
        ({"tokens_in": 0, "saved": 0.0, "frame": ""}, "callstack nothing saved today"),
        (
            {"saved": -0.0021, "untouched": 0.1, "frame": "a\x1b[31m\u202eb\nc"},
            "callstack 24k of 103k tokens · lost $0.0021 today (2 %) · a [31m b c",
        ),
        ({"saved": None, "untouched": "x", "tokens_in": "many", "frame": 7}, "callstack nothing saved today"),
    ],
)
def test_the_line_says_context_savings_and_frame(changed: dict[str, object], line: str) -> None:
    assert line_text({**ANSWER, **changed}, is_subscription=False) == line


@pytest.mark.rows("X-69")
def test_a_subscription_is_told_a_share_and_no_money() -> None:
    answer = {**ANSWER, "plan_saved": -0.02, "plan_untouched": 1.0}
    line = "callstack 24k of 103k tokens · lost 2 % of today's use · Fix the rounding"

    assert line_text(answer, is_subscription=True) == line
    assert line_text({**answer, "saved": 0.0, "untouched": 0.0}, is_subscription=False) == line
    by_both = "callstack 24k of 103k tokens · saved $0.31 today (36 %) · lost 2 % of the plan · Fix the rounding"
    assert line_text(answer, is_subscription=False) == by_both
    assert "nothing saved today" in line_text(ANSWER, is_subscription=True)


@pytest.mark.parametrize(
    ("text", "width", "cut"), [("abcdef", 6, "abcdef"), ("abcdef", 5, "abcd…"), ("請求書", 5, "請求…")]
)
def test_the_line_fits_its_terminal(text: str, width: int, cut: str) -> None:
    assert cut_to_width(text, width) == cut


def test_what_only_the_program_can_answer_is_left_to_it() -> None:
    assert [read_options([word]) for word in ("--help", "--data", "--set=x", "more")] == [None] * 4
    assert (options := read_options(["--data=/a b", "--settings"])) is not None
    assert (options.data, options.shows_settings) == ("/a b", True)


@pytest.mark.rows("X-69")
def test_without_a_proxy_there_is_a_line_whatever_stdin_holds(shell: Shell) -> None:
    for typed in ("", "{", "[1]", "\x00\xff", '{"session_id": 7}', "[" * 100_000):
        done = shell.on_data("statusline", typed=typed)
        assert (done.code, done.out, done.errors) == (0, "callstack: not in use here\n", "")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        for server in (ServerInfo(url, "token", os.getpid()), ServerInfo("nonsense", "token", 1)):
            write_server_file(shell.data, server)
            done = shell.on_data("statusline")
            line = "callstack: the proxy is busy\n" if server.url == url else "callstack: no proxy answers\n"
            assert (done.code, done.out, done.errors) == (0, line, "")


def test_the_settings_are_printed_and_nothing_is_written(shell: Shell) -> None:
    done = shell.run("statusline", "--settings", "--data", "my data")

    in_claude = next(line for line in done.out.splitlines() if "statusLine" in line)
    line = json.loads(f"{{{in_claude}}}")["statusLine"]
    assert line["type"] == "command"
    assert line["command"].endswith(f'callstack statusline --data "{shell.home / "my data"}"')
    assert f"#({line['command']} </dev/null)" in done.out
    assert list(shell.home.iterdir()) == []
    assert "callstack statusline" in shell.run("statusline", "--help").out


def answered(shell: Shell, env: dict[str, str], typed: str) -> str:
    """The line of a proxy that has time: it builds its API at the first question."""
    until = time.monotonic() + WAIT_S
    while (line := shell.run("statusline", env=env, typed=typed).out) == "callstack: the proxy is busy\n":
        assert time.monotonic() < until
    return line


@pytest.mark.rows("X-69")
def test_the_session_that_stdin_names_is_told(tmp_path: Path) -> None:
    with ScriptedProvider() as provider, running_stage(provider, tmp_path, streamed=False) as stage:
        proxy = KillableProxy(stage, wake_at_tokens=0).start()
        shell = Shell(tmp_path, tmp_path / "data")
        ours, other = stage.chat(proxy), stage.chat(proxy)
        ours.headers["x-claude-code-session-id"] = "session-a"
        provider.will(does(push("Find the cause")), does(bash("ls")), says("hello"))
        ours.says("The tests fail.")
        other.says("hello there")

        named, base = json.dumps({"session_id": "session-a"}), f"http://localhost:{proxy.port}"
        data = {"STACK_DATA": str(shell.data)}
        line = answered(shell, data, named)
        same = answered(shell, {**data, "ANTHROPIC_BASE_URL": base}, named)
        narrow = answered(shell, {**data, "COLUMNS": "20"}, named)
        unknown = answered(shell, data, '{"session_id": "never seen"}')
        elsewhere = shell.run("statusline", env={"ANTHROPIC_BASE_URL": base, "STACK_DATA": str(tmp_path / "no")}).out
        ours.returns("a.py")

    assert line.startswith("callstack ")
    assert " tokens · " in line
    assert line.endswith(" · Find the cause\n")
    assert same == line
    assert elsewhere == "callstack: not in use here\n"
    assert len(narrow) <= 21
    assert "tokens" not in unknown
    assert " today" in unknown


@pytest.mark.rows("X-69")
def test_the_line_loads_nothing_of_the_product(shell: Shell) -> None:
    beside = [
        "proxy",
        "callstack_proxy",
        "typer",
        "pydantic",
        "msgspec",
        "http",
        "pathlib",
        "asyncio",
        "dataclasses",
        "inspect",
        "shlex",
    ]
    words = [sys.executable, "-c", LOADED_BESIDE, *beside]
    done = subprocess.run(words, cwd=shell.home, env=environment(shell.home), capture_output=True, check=True)

    loaded = [
        "callstack_proxy",
        "callstack_proxy.__main__",
        "callstack_proxy.cli",
        "callstack_proxy.cli.statusline",
        "callstack_proxy.cli.statusline.ask_proxy",
        "callstack_proxy.cli.statusline.hook",
        "callstack_proxy.cli.statusline.line",
    ]
    assert done.stdout.decode() == f"{loaded}\n"
