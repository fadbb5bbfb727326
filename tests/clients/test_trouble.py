"""What two coding agents do when the provider is in trouble (CLIENTS 7): through the proxy they come as far as
without it, and where the provider asks them to come again, they come as often."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from llm_test_provider import ScriptedAnswer, ScriptedProvider, call, cut, error_chunk, overflow, says, status
from tests.clients import test_claude_code, test_codex
from tests.clients.serving import Served
from tests.clients.story import CLOSING

Attempt = Callable[..., subprocess.CompletedProcess[str]]
LONG = says("an answer that never comes to its end " * 20)
SOON = {"retry-after": "0", "retry-after-ms": "10"}
TROUBLE: dict[str, ScriptedAnswer] = {
    "throttled": status(429, headers=SOON),
    "failing": status(500, headers=SOON),
    "too long": overflow(),
    "cut in the middle": cut(LONG, after_events=12),
    "an error in the middle": error_chunk(LONG, after_events=12),
    "slow, in small pieces, between comments": says(CLOSING, delay_s=0.5, piece=1, events=("comments",)),
}
LOOKS = {"claude": call("Bash", command="ls", description="List"), "codex": call("exec_command", cmd="ls")}


@pytest.fixture
def agent(
    npm: Callable[..., Path], attempt: Attempt, repository: Path, home: Path
) -> Callable[[str, str], subprocess.CompletedProcess[str]]:
    """Gives one of the two the same prompt at this origin."""

    def ask(which: str, origin: str) -> subprocess.CompletedProcess[str]:
        if which == "claude":
            program = npm("claude-code", test_claude_code.PACKAGE) / "node_modules" / ".bin" / "claude"
            settings = {
                "ANTHROPIC_BASE_URL": origin,
                "ANTHROPIC_API_KEY": "sk-scripted",
                "CLAUDE_CODE_MAX_RETRIES": "2",
            }
            told = [str(program), "-p", "Look around.", *test_claude_code.TASK]
            return attempt(told, repository, **settings, **test_claude_code.QUIET, **test_claude_code.ALLOWED)
        program = npm("codex", test_codex.PACKAGE) / "node_modules" / ".bin" / "codex"
        (home / ".codex").mkdir(exist_ok=True)
        written = test_codex.SETTINGS.format(model=test_codex.PATCHING, url=f"{origin}/v1")
        (home / ".codex" / "config.toml").write_text(f"{written}stream_max_retries = 2\nrequest_max_retries = 2\n")
        options = ["--json", "--dangerously-bypass-approvals-and-sandbox", "Look around."]
        return attempt([str(program), "exec", *options], repository, SCRIPTED_KEY="sk-scripted")

    return ask


@pytest.mark.parametrize("trouble", TROUBLE)
@pytest.mark.parametrize("which", LOOKS)
def test_it_does_the_same_through_the_proxy_as_without_it(
    provider: ScriptedProvider,
    proxy: Served,
    agent: Callable[[str, str], subprocess.CompletedProcess[str]],
    which: str,
    trouble: str,
) -> None:
    provider.when(lambda received: not received.tool_names, says('{"title": "Look"}'), loop=True)

    def plays(origin: str) -> tuple[int, bool, list[int]]:
        """How it ended, and what each of its requests was answered with."""
        provider.received.clear()
        provider.script.queue.answers[:] = [
            ScriptedAnswer(text="I look.", calls=(LOOKS[which],)),
            TROUBLE[trouble],
            says(CLOSING),
        ]
        provider.script.queue.taken = 0
        done = agent(which, origin)
        return done.returncode, CLOSING in done.stdout, [each.status for each in provider.asked if each.tool_names]

    assert plays(proxy.origin) == plays(provider.origin)
