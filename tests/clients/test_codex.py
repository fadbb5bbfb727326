"""Codex, from npm: the responses API alone, with encrypted reasoning, freeform calls, tools that stand in the input,
and subagents that begin empty or with all that their parent has.

Where it cannot be installed, sessions of it that were captured are replayed by `tests/yardstick` all the same.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llm_test_provider import Model, ReceivedRequest, ScriptedCall, ScriptedProvider, answers, call, says
from tests.clients.job import ERRAND, FILE, ClientJob, assert_it_was_done, lines, tell
from tests.clients.serving import ROOT, Served
from tests.clients.story import CLOSING, GREETING

PACKAGE = "@openai/codex@0.169.0"
PATCHING, CODING, DELEGATING = "gpt-5.5", "gpt-6-sol", "gpt-5.2-codex"
"""Models by what Codex offers them: a freeform tool for patches, one tool that runs JavaScript and stands in the input,
subagents of the older kind."""
PATCH = f"*** Begin Patch\n*** Add File: {FILE}\n+{GREETING}*** End Patch\n"
PLAN = [{"step": "Greet", "status": "in_progress"}, {"step": "Look again", "status": "pending"}]
SETTINGS = """
model = "{model}"
model_provider = "callstack"

[tools.update_plan]
enabled = true

[model_providers.callstack]
name = "callstack"
base_url = "{url}"
env_key = "SCRIPTED_KEY"
wire_api = "responses"
"""
Codex = Callable[..., str]


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    """Its models leave out reasoning that stands behind anything but what it was made behind, as this vendor's do."""
    with ScriptedProvider(models=[Model(name, binding="drop") for name in (PATCHING, CODING, DELEGATING)]) as running:
        yield running


@pytest.fixture
def codex(npm: Callable[..., Path], run: Callable[..., str], proxy: Served, repository: Path, home: Path) -> Codex:
    """Gives Codex a prompt for a model, and what it printed back."""
    program = npm("codex", PACKAGE) / "node_modules" / ".bin" / "codex"
    settings = home / ".codex" / "config.toml"
    settings.parent.mkdir()

    def ask(model: str, *said: str) -> str:
        settings.write_text(SETTINGS.format(model=model, url=proxy.url))
        command = [str(program), "exec", "--json", "--dangerously-bypass-approvals-and-sandbox", *said]
        return run(command, repository, SCRIPTED_KEY="sk-scripted")

    return ask


def is_subagent(received: ReceivedRequest) -> bool:
    return received.header("x-openai-subagent") is not None


def commands() -> tuple[ScriptedCall, ScriptedCall]:
    return call("exec_command", cmd=f"cat {FILE}"), call("exec_command", cmd="cat README.md")


def javascript(tool: str, argument: object) -> ScriptedCall:
    """A call in the one tool that runs code."""
    return ScriptedCall(
        "exec", f"const told = await tools.{tool}({json.dumps(argument)});\ntext(told.output ?? told);\n"
    )


def waits(received: ReceivedRequest) -> ScriptedCall:
    """Waits for the subagent that the newest result names."""
    _, told = received.results[-1]
    [agent] = re.findall(r'"agent_id":\s*"([^"]+)"', told)
    return call("wait_agent", targets=[agent])


MEANS = {
    PATCHING: ClientJob(call("update_plan", plan=PLAN), ScriptedCall("apply_patch", PATCH), commands()),
    CODING: ClientJob(
        javascript("exec_command", {"cmd": "ls"}),
        javascript("apply_patch", PATCH),
        (javascript("exec_command", {"cmd": f"cat {FILE}"}), javascript("exec_command", {"cmd": "cat README.md"})),
        call("spawn_agent", task_name="look", message=ERRAND),
        lambda _: call("wait_agent", timeout_ms=10_000),
    ),
    DELEGATING: ClientJob(
        call("update_plan", plan=PLAN),
        call("exec_command", cmd=f"printf '{GREETING.rstrip()}\\n' > {FILE}"),
        commands(),
        call("spawn_agent", message=ERRAND),
        waits,
        writes_for_sure=False,
    ),
}


@pytest.mark.parametrize("model", MEANS)
def test_it_plans_works_and_delegates_and_notices_nothing(
    provider: ScriptedProvider, proxy: Served, codex: Codex, repository: Path, home: Path, model: str
) -> None:
    means = MEANS[model]
    tell(provider, means, is_subagent)

    said = codex(model, f"Write {FILE}")

    assert_it_was_done(provider, proxy, means, said, repository, home)
    told = [line["item"]["text"] for line in lines(said) if line.get("item", {}).get("type") == "agent_message"]
    assert told == ["First the plan.", "Now the file.", "I look at both.", CLOSING]
    assert {each.path for each in provider.asked} == {"/v1/responses"}
    main = [each for each in provider.asked if not is_subagent(each)]
    assert all("stack_frame_push" in each.tool_names for each in main)
    assert ["tools" in each.body for each in main] == [model != CODING] * len(main)


def test_it_goes_on_with_a_session_of_an_earlier_process(
    provider: ScriptedProvider, proxy: Served, codex: Codex
) -> None:
    provider.will(answers("", [call("stack_frame_push", title="Stay", successCriteria="Stays.")]), says("Begun."))
    provider.will(answers("", [call("stack_frame_pop", status="completed", results="Stayed.")]), says(CLOSING))

    codex(PATCHING, "Begin.")
    said = codex(PATCHING, "resume", "--last", "Go on.")

    assert CLOSING in said
    [conversation] = proxy.page("/stack/conversations")["conversations"]
    frames = proxy.page(f"/stack/conversations/{conversation['id']}/state")["frames"].values()
    assert ("Stay", "completed") in [(frame["title"], frame["status"]) for frame in frames]


@pytest.mark.rows("X-69")
def test_our_hook_speaks_to_its_user_behind_a_compaction_and_the_model_hears_nothing(
    provider: ScriptedProvider, proxy: Served, codex: Codex, home: Path, tmp_path: Path
) -> None:
    """Codex 0.169.0 runs the hooks of `~/.codex/hooks.json`, which its user has to trust, and shows no line of them in
    `exec`: what it hands to the hook, and what it gets, is copied to a file."""
    seen = tmp_path / "hooks.jsonl"
    hook = f"PYTHONPATH={ROOT} {sys.executable} -m callstack_proxy hook --data {tmp_path / 'data'}"
    runs = [{"hooks": [{"type": "command", "command": f"(tee -a {seen}; echo >> {seen}) | {hook} | tee -a {seen}"}]}]
    (home / ".codex" / "hooks.json").write_text(json.dumps({"hooks": {"SessionStart": runs, "Stop": runs}}))
    provider.will(says("Begun."), says("All was said."), says("Gone on."))
    proxy.page("/stack/statusline")  # the first question takes longer than a hook waits
    options = ("--dangerously-bypass-hook-trust", "-c", "model_auto_compact_token_limit=5000")

    codex(DELEGATING, *options, "Begin.")
    codex(DELEGATING, *options, "resume", "--last", "Go on.")

    rows = [json.loads(line) for line in seen.read_text().splitlines() if line]
    told = [(row.get("source") or row["hook_event_name"]) if "hook_event_name" in row else "ours" for row in rows]
    assert told == ["startup", "Stop", "resume", "compact", "ours", "Stop"]
    assert rows[4]["systemMessage"].startswith("callstack: what the compaction left out is kept")
    assert [each.number for each in provider.asked if b"compaction left out" in each.raw] == []
