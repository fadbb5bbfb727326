"""Subagents: a frame in the conversation that delegated the work, from the call to its result (S1-71a, S1-71d,
S1-71f)."""

from __future__ import annotations

import pytest

from llm_test_provider import ScriptedProvider, call, says
from tests.harness import Json, RunningProxy, Stage, as_one_text, bash, does, push, recall
from tests.scenarios.sessions import TOOLS, todo

PROMPT = "Find the tests that fail now and then."
TASK = "Make the build green."


def detail(proxy: RunningProxy, conversation: str, title: str) -> Json:
    return dict(proxy.get(f"/stack/frames/{proxy.frames(conversation)[title]['sessionID']}"))


def titled(proxy: RunningProxy) -> dict[str, Json]:
    return {row["title"]: row for row in proxy.conversations}


@pytest.mark.rows("S1-71a", "S1-71d", "S1-71f", "S1-71i", "C18", "D8")
def test_a_subagent_is_a_frame_from_its_call_to_its_result(stage: Stage, provider: ScriptedProvider) -> None:
    """It is seen at once, under the frame the call was made in; the result is what it returned, there and in its own
    conversation."""
    proxy = stage.proxy()
    parent = stage.chat(proxy, tools=(*TOOLS, "task"))
    child = stage.chat(proxy, tools=("bash",))
    provider.will(
        does(call("task", description="flaky", prompt=PROMPT)),
        does(bash("pytest")),
        says("Two: a and b."),
    )
    provider.will(says("Both are mended."))

    parent.says(TASK)
    child.says(PROMPT)
    rows = titled(proxy)
    assert rows[PROMPT]["parent"] == rows[TASK]["id"]
    assert proxy.statuses(rows[TASK]["id"]) == {TASK: "in_progress", PROMPT: "in_progress"}
    told = detail(proxy, rows[TASK]["id"], PROMPT)
    assert (told["origin"], told["ancestors"]) == ("subagent", [proxy.frames(rows[TASK]["id"])[TASK]["sessionID"]])

    child.returns("2 failed")
    parent.returns("Two: a and b.")

    assert proxy.statuses(rows[TASK]["id"])[PROMPT] == "completed"
    assert detail(proxy, rows[TASK]["id"], PROMPT)["results"] == "Two: a and b."
    assert proxy.statuses(rows[PROMPT]["id"]) == {PROMPT: "completed"}


@pytest.mark.rows("S1-71a")
@pytest.mark.parametrize("tool", ["spawn_agent", "write"])
def test_a_subagent_whose_call_was_answered_before_it_began_hangs_under_its_parent(
    stage: Stage, provider: ScriptedProvider, tool: str
) -> None:
    """Codex answers `spawn_agent` at once, and the agent works on beside it. A text that was written to a file begins
    nobody."""
    proxy = stage.proxy()
    parent = stage.chat(proxy, tools=(*TOOLS, tool))
    provider.will(does(call(tool, message=PROMPT)), says("It is at work."), says("I look."))
    parent.says(TASK)
    parent.returns("begun")

    stage.chat(proxy, tools=("bash",)).says(PROMPT)

    rows = titled(proxy)
    assert rows[PROMPT]["parent"] == (rows[TASK]["id"] if tool == "spawn_agent" else None)
    assert PROMPT not in proxy.statuses(rows[TASK]["id"])


@pytest.mark.parametrize("restarted", [False, True], ids=["at hand", "restarted"])
def test_what_a_subagent_did_is_recalled_by_the_ref_of_its_frame(
    stage: Stage, provider: ScriptedProvider, *, restarted: bool
) -> None:
    """A block names it with a ref, so recall finds what stands in its own conversation."""
    proxy = stage.proxy()
    parent = stage.chat(proxy, tools=(*TOOLS, "task"))
    child = stage.chat(proxy, tools=("bash",))
    provider.will(does(call("task", prompt=PROMPT)), does(bash("pytest")), says("Two: a and b."))
    provider.will(does(push("Mend them")), says("I begin."))
    parent.says(TASK)
    child.says(PROMPT)
    child.returns("2 failed, 40 passed")
    parent.returns("Two: a and b.")
    block = str(provider.received[-1].messages[-1]["content"])
    frame = proxy.frames(titled(proxy)[TASK]["id"])[PROMPT]["sessionID"]
    if restarted:
        proxy.restart()
    provider.will(does(recall(frame)), says("I see."))

    parent.says("What did it see?")

    assert f'ref="{frame}"' in block
    told = str(provider.received[-1].messages[-1]["content"])
    assert told.startswith(f"Frame {frame} ({PROMPT}), completed.")
    assert all(words in told for words in ('"pytest"', "2 failed, 40 passed", "Two: a and b."))


@pytest.mark.parametrize(
    "asked",
    [{"ref": PROMPT}, {"ref": TASK, "query": "40 passed"}, {"query": "40 passed"}],
    ids=["by its title", "by the title above it", "by words alone"],
)
def test_what_a_subagent_did_is_recalled_after_a_restart_by_names_and_words(
    stage: Stage, provider: ScriptedProvider, asked: Json
) -> None:
    """Its conversation is not at hand any more, and nothing in the call says which one that is."""
    proxy = stage.proxy()
    parent = stage.chat(proxy, tools=(*TOOLS, "task"))
    child = stage.chat(proxy, tools=("bash",))
    provider.will(
        does(call("task", prompt=PROMPT)),
        does(bash("pytest")),
        says("Two: a and b."),
        says("I begin."),
    )
    parent.says(TASK)
    child.says(PROMPT)
    child.returns("2 failed, 40 passed")
    parent.returns("Two: a and b.")
    proxy.restart()
    provider.will(does(call("stack_recall", **asked)), says("I see."))

    parent.says("What did it see?")

    assert "2 failed, 40 passed" in str(provider.received[-1].messages[-1]["content"])


@pytest.mark.rows("C23", "S1-71f")
def test_two_subagents_at_once_end_each_by_its_own_result(stage: Stage, provider: ScriptedProvider) -> None:
    proxy = stage.proxy()
    parent = stage.chat(proxy, tools=(*TOOLS, "task"))
    first, second = (stage.chat(proxy, tools=("bash",)) for _ in range(2))
    prompts = ("Look at the lexer module.", "Look at the parser module.")
    provider.will(does(*(call("task", prompt=prompt) for prompt in prompts)), says("Lexer."), says("Parser."))
    provider.will(says("Done."))
    parent.says(TASK)
    second.says(prompts[1])
    first.says(prompts[0])

    parent.returns("the lexer is fine", "the parser is slow")

    at = titled(proxy)[TASK]["id"]
    results = [detail(proxy, at, prompt)["results"] for prompt in prompts]
    assert results == ["the lexer is fine", "the parser is slow"]


@pytest.mark.rows("S0-14", "S0-18")
def test_what_a_subagent_returned_is_told_when_the_work_around_it_leaves(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """The item of the plan that delegated it is folded: the report stays in sight, the step beside it does not."""
    proxy = stage.proxy()
    parent, child = stage.chat(proxy, tools=(*TOOLS, "task")), stage.chat(proxy, tools=("bash",))
    looks = does(call("read", filePath="src/lexer.py"))
    begins, ends = (does(todo(items)) for items in ("[>] Find | [ ] Mend", "[x] Find | [>] Mend"))
    provider.will(begins, looks, does(call("task", prompt=PROMPT)), says("Two: a and b."), looks, ends, looks, looks)
    parent.says(TASK)
    parent.returns("ok")
    parent.returns("content " * 2_000)
    child.says(PROMPT)
    for result in ("Two: a and b.", "content " * 2_000, "ok", "fine"):
        parent.returns(result)

    line = as_one_text(provider.received[-1].messages)
    frame = proxy.frames(titled(proxy)[TASK]["id"])[PROMPT]["sessionID"]
    assert "content content" not in line
    told = f"frames inside, as told when each ended:\\n{PROMPT} ({frame}, completed): Two: a and b.</results>"
    assert told in line


def test_a_subagent_survives_a_restart_between_its_call_and_its_result(
    stage: Stage, provider: ScriptedProvider
) -> None:
    proxy = stage.proxy()
    parent = stage.chat(proxy, tools=(*TOOLS, "task"))
    child = stage.chat(proxy, tools=("bash",))
    provider.will(does(call("task", prompt=PROMPT)), says("Two: a and b."), says("Both are mended."))
    parent.says(TASK)
    child.says(PROMPT)

    proxy.restart()
    parent.returns("Two: a and b.")

    rows = titled(proxy)
    assert proxy.statuses(rows[TASK]["id"])[PROMPT] == "completed"
    assert proxy.statuses(rows[PROMPT]["id"]) == {PROMPT: "completed"}
