"""Claude Code, from npm: the messages API with signed thinking, cache markers that move, system messages in
mid-history, deferred tools, and subagents.

Where it cannot be installed, sessions of it that were captured are replayed by `tests/yardstick` all the same.
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llm_test_provider import Model, ReceivedRequest, ScriptedCall, ScriptedProvider, answers, call, says
from tests.clients.job import ERRAND, FILE, THOUGHT, ClientJob, assert_it_was_done, lines, tell
from tests.clients.serving import ROOT, Served
from tests.clients.story import CLOSING, GREETING

PACKAGE = "@anthropic-ai/claude-code@2.1.330"
MODEL = "claude-opus-5-5"
QUIET = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
ALLOWED = {"IS_SANDBOX": "1", "CLAUDE_CODE_ENABLE_TODO_TOOLS": "1"}
"""It skips permissions for root in a sandbox alone, and offers its task tools where it is told to."""
TASK = ["--dangerously-skip-permissions", "--model", MODEL, "--output-format", "stream-json", "--verbose"]
Claude = Callable[..., str]


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    """Its model refuses thoughts that stand behind anything but what they were made behind, as this vendor's do."""
    with ScriptedProvider(models=[Model(MODEL, binding="error")]) as running:
        yield running


@pytest.fixture
def claude(npm: Callable[..., Path], run: Callable[..., str], proxy: Served, repository: Path) -> Claude:
    """Gives Claude Code a prompt, and what it printed back."""
    program = npm("claude-code", PACKAGE) / "node_modules" / ".bin" / "claude"
    reached = {"ANTHROPIC_BASE_URL": proxy.origin, "ANTHROPIC_API_KEY": "sk-scripted"}

    def ask(prompt: str, *options: str) -> str:
        return run([str(program), "-p", prompt, *TASK, *options], repository, **reached, **QUIET, **ALLOWED)

    return ask


def is_subagent(received: ReceivedRequest) -> bool:
    return received.header("x-claude-code-agent-id") is not None


def means_of(repository: Path) -> ClientJob:
    delegated = {"description": "Look around", "subagent_type": "general-purpose", "run_in_background": False}
    return ClientJob(
        plans=call("TaskCreate", subject="Greet", description="Write the greeting"),
        writes=call("Write", file_path=str(repository / FILE), content=GREETING),
        looks=(
            call("Bash", command=f"cat {FILE}", description="Show"),
            call("Read", file_path=str(repository / "README.md")),
        ),
        delegates=call("Agent", prompt=ERRAND, **delegated),
    )


def test_it_plans_works_and_delegates_and_notices_nothing(
    provider: ScriptedProvider, proxy: Served, claude: Claude, repository: Path, home: Path
) -> None:
    means = means_of(repository)
    tell(provider, means, is_subagent)

    said = claude(f"Write {FILE}")

    assert_it_was_done(provider, proxy, means, said, repository, home)
    used = [block["name"] for told in lines(said) for block in blocks(told) if block["type"] == "tool_use"]
    assert used == ["TaskCreate", "Write", "Bash", "Read", "Agent"]
    assert {(each.path, each.query) for each in provider.asked} == {("/v1/messages", "beta=true")}
    assert all("context-management" in str(each.header("anthropic-beta")) for each in provider.asked)
    assert [each.number for each in provider.asked if markers(each) > 4] == []


def test_a_tool_it_loads_in_the_middle_is_offered_from_then_on(provider: ScriptedProvider, claude: Claude) -> None:
    """A tool search ends in a reference to a tool, and from then on the tool stands among the others."""
    provider.will(
        answers("", [call("stack_frame_push", title="Search", successCriteria="Found.")], THOUGHT),
        answers("", [call("ToolSearch", query="select:WebFetch")], THOUGHT),
        answers("", [ScriptedCall("stack_frame_pop", {"status": "completed", "results": "There is one."})]),
        says(CLOSING),
    )

    said = claude("Find a tool that fetches pages.")

    assert lines(said)[-1]["result"] == CLOSING
    *before, after = provider.asked[:3]
    assert ["WebFetch" in each.tool_names for each in (*before, after)] == [False, False, True]
    assert b'"tool_reference"' in after.raw
    assert [each.status for each in provider.asked] == [200] * 4


def test_it_goes_on_with_a_session_of_an_earlier_process(
    provider: ScriptedProvider, proxy: Served, claude: Claude
) -> None:
    provider.will(answers("", [call("stack_frame_push", title="Stay", successCriteria="Stays.")]), says("Begun."))
    provider.will(answers("", [call("stack_frame_pop", status="completed", results="Stayed.")]), says(CLOSING))

    claude("Begin.")
    said = claude("Go on.", "--continue")

    assert lines(said)[-1]["result"] == CLOSING
    [conversation] = proxy.page("/stack/conversations")["conversations"]
    frames = proxy.page(f"/stack/conversations/{conversation['id']}/state")["frames"].values()
    assert ("Stay", "completed") in [(frame["title"], frame["status"]) for frame in frames]


@pytest.mark.rows("X-69")
def test_its_hook_tells_the_user_of_a_compaction_and_the_model_nothing(
    provider: ScriptedProvider, proxy: Served, claude: Claude, tmp_path: Path
) -> None:
    command = f"PYTHONPATH={ROOT} {sys.executable} -m callstack_proxy hook --data {tmp_path / 'data'}"
    runs = [{"hooks": [{"type": "command", "command": command}]}]
    hooks = ["--settings", json.dumps({"hooks": {"SessionStart": runs, "Stop": runs}})]
    provider.will(says("Begun."), says("All was said."), says("All was said."))
    proxy.page("/stack/statusline")  # the first question takes longer than a hook waits

    claude("Begin.", *hooks)
    said = claude("/compact", "--continue", *hooks)

    words = "what the compaction left out is kept"
    [told] = [str(each["content"]) for each in lines(said) if words in str(each.get("content"))]
    assert told.startswith("SessionStart:compact says: callstack: ")
    assert [each.number for each in provider.asked if words.encode() in each.raw] == []


def blocks(told: dict[str, object]) -> list[dict[str, str]]:
    """The content blocks of a line, the assistant's own; those of a subagent are left out."""
    message = told.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    own = told["type"] == "assistant" and not told.get("parent_tool_use_id")
    return content if own and isinstance(content, list) else []


def markers(received: ReceivedRequest) -> int:
    """Cache markers of a request: the API takes four."""
    return received.raw.count(b'"cache_control"')
