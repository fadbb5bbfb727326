"""The tools that look at the context, and those that tell of subagents: what the model reads, also where it errs."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from proxy.core.frames.events import (
    ArtifactAdded,
    ContextTrimmed,
    DecisionAdded,
    FrameEntered,
    FrameFolded,
    FrameKept,
    FramePlanned,
    FramePopped,
    FrameSplit,
    ResultReplaced,
    RootStarted,
    SubagentStarted,
)
from proxy.core.frames.tree import Status
from proxy.core.tools.stack_tool_list import run, tool_definitions
from tests.core.forest import LedgerBuilder, call, popped, pushed
from tests.core.tools.test_inspect_tools import ask, desk_after

NAMES = {
    "stack_context_info": "S1-112",
    "stack_context_preview": "S1-113",
    "stack_compaction_info": "S1-116",
    "stack_get_summary": "S1-117",
    "stack_stats": "S1-119",
    "stack_subagent_list": "S1-121",
}
HOSTILE: list[dict[str, object]] = [
    {},
    {"unknown": [1, {"x": None}]},
    {"sessionID": 7, "maxLength": [], "filter": {}, "reset": 0, "showActive": "no"},
    {"sessionID": "x" * 100_000, "maxLength": 10**30, "filter": "y" * 100_000},
    {"sessionID": "</stack-context>", "maxLength": "\ud800", "filter": "\x1b[2J"},
]


@pytest.mark.rows("S1-134")
def test_they_are_offered_one_by_one_and_change_no_list_of_the_core() -> None:
    """S1-134: the dispatcher reaches them and does not list them, so its bytes stay what they were."""
    full = {each["name"] for each in tool_definitions("full")}

    assert full >= NAMES.keys()
    assert not any(name.removeprefix("stack_") in str(tool_definitions("core")) for name in NAMES)
    tool_context = desk_after()
    for name in NAMES:
        assert ask(tool_context, "stack", op=name.removeprefix("stack_")) == ask(tool_context, name)


@pytest.mark.rows("S1-132")
@pytest.mark.parametrize("arguments", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("name", NAMES)
def test_whatever_they_are_asked_they_answer_a_sentence(name: str, arguments: dict[str, object]) -> None:
    """S1-132."""
    tool_context = desk_after(pushed("fpay", title="Pay"))
    outcome = run(tool_context, call("k", name, **arguments))

    assert outcome.events == ()
    assert 0 < len(outcome.text) < 20_000
    assert "failed inside the proxy" not in outcome.text


# ------------------------------------------------------------------------------------------------------------- context
@pytest.mark.rows("S1-112", "S1-12")
def test_the_context_is_told_with_budgets_selection_and_line() -> None:
    done = (pushed("fauth", title="Auth"), popped("fauth", "JWT in src/auth.py."))
    tool_context = desk_after(
        *done, pushed("fpay", title="Pay"), FramePlanned("fbank", "fpay", "Bank", "Transfers work.")
    )

    told = ask(tool_context, "stack_context_info")
    assert told.startswith("Active: fpay (Pay)\n")
    assert "total 4,000, ancestors 1,500, siblings 1,500, current 800." in told
    assert "Selection: 1 above, 1 of 1 finished beside the path, 1 planned below." in told
    assert "Last usage: the provider has told none yet." in told


@pytest.mark.rows("S1-112")
def test_the_line_is_told_with_the_tokens_of_the_words_that_stand_on_it() -> None:
    """A trace takes some, and an output that was cleared those of what stands for it."""
    talk = LedgerBuilder()
    talk.client("user", "go on")
    talk.happens(RootStarted("froot", "Go on", "It goes."))
    talk.model(("", (call("c1", "bash"), call("c2", "bash"))))
    folded, cleared = (talk.client("tool", f"output of {n}", n) for n in ("c1", "c2"))
    message = talk.ledger.entries[cleared].message
    assert message is not None
    talk.ledger.entries[cleared] = replace(talk.ledger.entries[cleared], message=replace(message, tokens=30_000))
    assert "Line: 4 entries, 30,000 tokens," in ask(talk.desk(), "stack_context_info")

    talk.happens(FrameFolded("froot", (folded,), "one two three"))
    talk.happens(ResultReplaced(cleared, "four five", "pruned"))

    assert "Line: 3 entries, 5 tokens," in ask(talk.desk(), "stack_context_info")


@pytest.mark.rows("S1-113")
def test_the_preview_is_the_block_as_it_was_told_cut_with_what_is_missing() -> None:
    event = msgspec.structs.replace(pushed("fpay", title="Pay"), block="<stack-context>as told then</stack-context>")
    tool_context = desk_after(event)

    assert ask(tool_context, "stack_context_preview") == event.block
    shown = ask(tool_context, "stack_context_preview", maxLength=5)
    assert shown == f"{event.block[:5]}\n... {len(event.block) - 5:,} more characters"
    assert ask(tool_context, "stack_context_preview", maxLength="5") == shown
    assert ask(tool_context, "stack_context_preview", maxLength=5.0) == shown
    assert ask(tool_context, "stack_context_preview", maxLength=None) == event.block
    assert ask(desk_after(), "stack_context_preview").startswith("<stack-context")
    for wrong in (0, -1, 10**9, True, "many", [5], 2.5):
        assert ask(tool_context, "stack_context_preview", maxLength=wrong).startswith(
            "Error: maxLength must be a number"
        )


# ---------------------------------------------------------------------------------------------------------- compaction
@pytest.mark.rows("S1-116")
def test_compactions_are_told_by_how_they_left_and_what_is_pending() -> None:
    over = (
        FrameEntered("fone", "froot", "One", "c", "request"),
        FramePopped("fone", Status.COMPLETED, "one", "one"),
        FrameEntered("ftwo", "froot", "Two", "c", "request"),
        FramePopped("ftwo", Status.COMPLETED, "two", "two"),
    )
    tool_context = desk_after(
        pushed("fauth", title="Auth"),
        popped("fauth"),
        *over,
        FrameFolded("fone", ("e1",), "trace of one"),
        FrameKept("fone"),
        FrameSplit("fpart", "froot", "Part", "so far", ()),
        ContextTrimmed(("e2",), "trace"),
        SubagentStarted("fsub", "froot", "Look", "c", "c2", "k9"),
    )

    told = ask(tool_context, "stack_compaction_info")
    assert "- as results of their calls: fauth Auth\n" in told
    assert "- folded: fone One\n" in told
    assert "- parts of long work: none\n" in told
    assert "- cut because the line did not fit: 1 times\n" in told
    assert "- ended, and folded as soon as that pays: ftwo Two; fpart Part\n" in told
    assert "- asked back: fone One\n" in told
    assert told.endswith("- subagents whose result is awaited: fsub Look")


# ------------------------------------------------------------------------------------------------------------- summary
@pytest.mark.rows("S1-117")
def test_a_summary_has_results_artifacts_and_decisions() -> None:
    tool_context = desk_after(
        pushed("fauth", title="Auth"),
        ArtifactAdded("fauth", "src/auth.py"),
        DecisionAdded("fauth", "Use JWT."),
        popped("fauth", "JWT works."),
    )

    assert ask(tool_context, "stack_get_summary", sessionID="Auth") == (
        "[+] Auth [fauth] completed\nresults: JWT works.\nartifacts:\n- src/auth.py\ndecisions:\n- Use JWT."
    )
    assert ask(tool_context, "stack_get_summary") == (
        "[*] Build the shop [froot] in_progress\nresults: none yet\nartifacts: none\ndecisions: none"
    )
    assert ask(tool_context, "stack_get_summary", sessionID="nobody").startswith("Error: no frame, or more than one")


# ----------------------------------------------------------------------------------------------------------- subagents
SUBAGENTS = (
    SubagentStarted("fold", "froot", "Look for all the flaky tests there are", "c", "c1", "k1"),
    SubagentStarted("fnew", "froot", "Mend them", "c", "c2", "k2"),
    FramePopped("fold", Status.COMPLETED, "two", "two"),
)


@pytest.mark.proves("S1-121")
@pytest.mark.rows("S1-121")
def test_subagents_are_listed_the_newest_activity_first_with_short_titles() -> None:
    tool_context = desk_after(*SUBAGENTS)

    first, old, new = ask(tool_context, "stack_subagent_list").splitlines()
    assert first == "Subagents (all): 2"
    assert old.startswith("- fold Look for all the flaky tests")
    assert "completed, last active " in old
    assert len(old.partition(":")[0]) <= len("- fold ") + 30
    assert new.startswith("- fnew Mend them: in_progress")
    assert ask(tool_context, "stack_subagent_list", filter="active").splitlines()[1:] == [new]
    assert ask(tool_context, "stack_subagent_list", filter="completed").splitlines()[1:] == [old]
    assert ask(tool_context, "stack_subagent_list", filter="without-frame") == "Subagents (without-frame): 0"
    assert ask(tool_context, "stack_subagent_list", filter="mine").startswith(
        "Error: filter 'mine' is none of all, active"
    )


@pytest.mark.rows("S1-119")
def test_subagents_are_counted_with_rates_of_one_decimal() -> None:
    third = SubagentStarted("fthird", "froot", "Third", "c", "c3", "k3")
    told = ask(desk_after(*SUBAGENTS, third), "stack_stats")

    assert told.splitlines()[:3] == [
        "Subagents with a frame: 3",
        "Ended by their result: 0; ended by hand: 1",
        "Completed: 33.3 %",
    ]
    assert "At work: 2" in told
    assert "At work" not in ask(desk_after(*SUBAGENTS), "stack_stats", showActive=False)
    assert ask(desk_after(), "stack_stats", reset=True).startswith("Error: only a person counts anew")


@pytest.mark.rows("S1-119", "S1-132")
def test_subagents_are_counted_whichever_way_yes_and_no_are_written() -> None:
    """S1-119, S1-132: some models write words in quotes, and null for what they leave out."""
    tool_context = desk_after(*SUBAGENTS)
    told = ask(tool_context, "stack_stats")

    assert "At work" not in ask(tool_context, "stack_stats", showActive="False")
    assert ask(tool_context, "stack_stats", reset="false", showActive=None) == told
    assert ask(tool_context, "stack_stats", reset="true").startswith("Error: only a person counts anew")
    assert ask(tool_context, "stack_stats", showActive="no") == "Error: showActive must be true or false."
