"""A subagent ended before its result comes: which one is meant, and what is refused (S1-120)."""

from __future__ import annotations

import pytest

from proxy.core.frames.events import FrameEvent, FramePopped, SubagentStarted
from proxy.core.frames.tree import Status
from proxy.core.tools.stack_tool_list import run
from tests.core.forest import call, popped
from tests.core.tools.test_inspect_tools import ask, desk_after

pytestmark = pytest.mark.rows("S1-120")
CHILD = "d" * 32


def delegated(frame: str = "fsub", title: str = "Find flaky tests", conversation: str = CHILD) -> SubagentStarted:
    return SubagentStarted(frame, "froot", title, "Listed.", conversation, f"call-{frame}")


def told(*events: FrameEvent, **arguments: object) -> tuple[str, tuple[FrameEvent, ...]]:
    done = run(desk_after(*events), call("k", "stack_subagent_complete", **arguments))
    return done.text, done.events


@pytest.mark.parametrize("named", ["", "fsub", "find FLAKY tests", CHILD])
def test_it_is_named_by_frame_title_or_conversation_or_not_at_all(named: str) -> None:
    text, events = told(delegated(), sessionID=named, status="failed", summary="No longer wanted.")

    assert events == (FramePopped("fsub", Status.FAILED, "No longer wanted.", "No longer wanted."),)
    assert text.startswith("Subagent fsub (Find flaky tests) is failed.")


def test_without_a_status_it_is_completed_and_without_a_summary_that_is_told() -> None:
    _, (event,) = told(delegated())
    assert event == FramePopped(
        "fsub", Status.COMPLETED, "Ended before its result came.", "Ended before its result came."
    )


@pytest.mark.rows("S1-132")
@pytest.mark.parametrize(
    ("events", "arguments", "says"),
    [
        ((), {}, "No subagent is tracked here."),
        ((), {"sessionID": "fsub"}, "'fsub' is not tracked"),
        ((delegated(),), {"sessionID": "froot"}, "'froot' is not tracked"),
        ((delegated(),), {"sessionID": "froot"}, "A frame of yours ends with stack_frame_pop."),
        ((delegated(), delegated("ftwo", "Other")), {}, "Say which by frame. Tracked: fsub Find flaky tests"),
        ((delegated(), popped("fsub")), {"sessionID": "fsub"}, "subagent fsub is already completed"),
        ((delegated(), popped("fsub")), {}, "None is at work. Tracked: fsub"),
        ((delegated(),), {"status": "planned"}, "status 'planned' is none of blocked, completed, failed"),
        ((delegated(),), {"status": {"a": 1}, "sessionID": ["x"], "summary": 7, "more": None}, ""),
    ],
)
def test_what_cannot_be_ended_is_told_what_to_do(
    events: tuple[FrameEvent, ...], arguments: dict[str, object], says: str
) -> None:
    """S1-132."""
    text, done = told(*events, **arguments)
    assert says in text
    assert text.startswith("Error: ") == (not done) == bool(says)


def test_in_the_tree_it_is_over_and_nothing_else_changes() -> None:
    tool_context = desk_after(delegated(), popped("fsub", "No longer wanted.", Status.FAILED))
    assert tool_context.tree.active == "froot"
    assert "[X] fsub Find flaky tests" in ask(tool_context, "stack_status")
