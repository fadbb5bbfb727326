"""Claude Code and Codex with `callstack mcp` among their tools: what an earlier session finished in a folder is found
by a later one, while both go through the proxy."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llm_test_provider import Model, ScriptedProvider, answers, call, says
from tests.clients import test_claude_code as claude_code
from tests.clients import test_codex as codex
from tests.clients.job import lines
from tests.clients.serving import ROOT, Served
from tests.clients.story import CLOSING

pytestmark = pytest.mark.rows("X-68")

SERVER_START_S = 60
FOUND = "mcp__callstack__stack_search"
CODEX_SERVER = """
[mcp_servers.callstack]
command = {command}
args = {args}
env = {{ PYTHONPATH = {path} }}
startup_timeout_sec = {wait}
required = true
"""


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    models = [Model(claude_code.MODEL, binding="error"), Model(codex.DELEGATING, binding="drop")]
    with ScriptedProvider(models=models) as running:
        yield running


@pytest.fixture
def server(tmp_path: Path) -> list[str]:
    """The arguments of the interpreter that start the server."""
    return ["-m", "callstack_proxy", "mcp", "--data", str(tmp_path / "data")]


def finishes_a_task(provider: ScriptedProvider) -> None:
    provider.will(
        answers("", [call("stack_frame_push", title="Greet the harbour", criteria="It is greeted.")]),
        answers("", [call("stack_frame_pop", status="completed", results="Greeted by lamp, as sound is forbidden.")]),
        says(CLOSING),
    )


def assert_it_found_that(provider: ScriptedProvider) -> None:
    _, result = provider.asked[-1].results[-1]
    assert "Greet the harbour" in result
    assert "Greeted by lamp, as sound is forbidden." in result
    assert {each.status for each in provider.asked} == {200}


def test_claude_code_finds_what_an_earlier_session_finished(
    provider: ScriptedProvider,
    proxy: Served,
    npm: Callable[..., Path],
    run: Callable[..., str],
    repository: Path,
    server: list[str],
) -> None:
    program = npm("claude-code", claude_code.PACKAGE) / "node_modules" / ".bin" / "claude"
    reached = {"ANTHROPIC_BASE_URL": proxy.origin, "ANTHROPIC_API_KEY": "sk-scripted", "MCP_TIMEOUT": "60000"}
    started = {"command": sys.executable, "args": server, "env": {"PYTHONPATH": str(ROOT)}}
    settings = ["--mcp-config", json.dumps({"mcpServers": {"callstack": started}}), "--strict-mcp-config"]

    def ask(prompt: str, *options: str) -> str:
        command = [str(program), "-p", prompt, *claude_code.TASK, *options]
        return run(command, repository, **reached, **claude_code.QUIET, **claude_code.ALLOWED)

    finishes_a_task(provider)
    ask("Greet the harbour.")
    provider.will(answers("", [call("ToolSearch", query=f"select:{FOUND}")]))
    provider.will(answers("", [call(FOUND, words="greet harbour")]), says(CLOSING))
    said = ask("How was the harbour greeted?", *settings)

    assert lines(said)[-1]["result"] == CLOSING
    assert FOUND in provider.asked[-1].tool_names
    assert_it_found_that(provider)


def test_codex_finds_what_an_earlier_session_finished(
    provider: ScriptedProvider,
    proxy: Served,
    npm: Callable[..., Path],
    run: Callable[..., str],
    repository: Path,
    home: Path,
    server: list[str],
) -> None:
    program = npm("codex", codex.PACKAGE) / "node_modules" / ".bin" / "codex"
    settings = home / ".codex" / "config.toml"
    settings.parent.mkdir()
    own = codex.SETTINGS.format(model=codex.DELEGATING, url=proxy.url)
    ours = CODEX_SERVER.format(
        command=json.dumps(sys.executable), args=json.dumps(server), path=json.dumps(str(ROOT)), wait=SERVER_START_S
    )
    settings.write_text(own + ours)

    def ask(prompt: str) -> None:
        command = [str(program), "exec", "--json", "--dangerously-bypass-approvals-and-sandbox", prompt]
        run(command, repository, SCRIPTED_KEY="sk-scripted")

    finishes_a_task(provider)
    ask("Greet the harbour.")
    provider.will(answers("", [call("stack_search", words="greet harbour")]), says(CLOSING))
    ask("How was the harbour greeted?")

    assert {"stack_search", "stack_frame_push"} <= set(provider.asked[-1].tool_names)
    assert_it_found_that(provider)
