"""A summary of work that goes on: what is kept of it, and when it is told on the line (S1-65, S1-115)."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.compaction import FoldRules, is_compaction_due
from proxy.core.compaction.context_overflow import OverflowNotes, drop_oldest
from proxy.core.compaction.fold_cost import GateReason
from proxy.core.context.message_list import build_context
from proxy.core.frames.events import InterimSummaryAdded, as_ledger_event
from proxy.core.observers import DEFAULT_TOOL_ROLES
from proxy.core.tools.record_tools import MAX_NOTE_TOKENS
from proxy.core.tools.stack_tool_list import run
from tests.core.forest import LedgerBuilder, call, count, popped, rooted
from tests.core.tools.test_inspect_tools import desk_after
from tests.core.working import SCRIBE, GrowingConversation, bash, padded

pytestmark = pytest.mark.rows("S1-65", "S1-115")
NOTE = "The cause is the lock in worker.py; what remains is the test for it."


def at_work(groups: int = 6, after: int = 3, **settings: Any) -> GrowingConversation:
    """A request in the middle of its tool loop, summed up after the first `groups` groups; `after` more followed."""
    watched = GrowingConversation(folds=False, settings=settings).user("Find out why the worker hangs.")
    for n in range(groups):
        watched.does(bash(f"command {n}"), results=[padded(f"output {n}")])
    watched.arrives()
    summed_up_here(watched, NOTE)
    for n in range(groups, groups + after):
        watched.does(bash(f"command {n}"), results=[padded(f"output {n}")])
    watched.arrives()
    return watched


def summed_up_here(watched: GrowingConversation, words: str) -> None:
    made = InterimSummaryAdded(watched.story.tree.active, watched.story.tip, words, words)
    watched.ledger.add_event(as_ledger_event(made, watched.story.tip, 0, watched.ledger.next_seq, watched.now))
    watched.story = watched.again


def line_of(watched: GrowingConversation) -> list[str]:
    return [m.text for m in build_context(watched.story, SCRIBE).messages]


# ---------------------------------------------------------------------------------------------------------- on the line
def test_while_the_line_is_cached_a_summary_changes_nothing() -> None:
    watched = at_work()
    before = line_of(watched)
    made = watched.fold()

    assert (made.events, made.decisions) == ((), ())
    assert line_of(watched) == before


@pytest.mark.parametrize(
    ("when", "reason"),
    [({"cold": True}, GateReason.COLD), ({"window": 5_000}, GateReason.PRESSURE)],
    ids=["cold", "overflow"],
)
def test_with_a_cold_cache_or_a_full_window_it_stands_for_what_it_sums_up(
    when: dict[str, Any], reason: GateReason
) -> None:
    watched = at_work()
    made = watched.fold(**when)

    assert [(d.kind, d.verdict.reason) for d in made.decisions] == [("fold", reason)]
    asked, trace, *rest = line_of(watched)
    assert asked == "Find out why the worker hangs."
    assert f"<results>{NOTE}</results>" in trace
    assert [text for text in rest if text] == [padded(f"output {n}") for n in (6, 7, 8)]
    assert watched.story.tree.active_frame.title == "Find out why the worker hangs."


def test_without_a_summary_the_same_moment_changes_nothing() -> None:
    watched = at_work()
    plain = GrowingConversation(folds=False).user("Find out why the worker hangs.")
    for n in range(9):
        plain.does(bash(f"command {n}"), results=[padded(f"output {n}")])
    plain.arrives()

    assert plain.fold(cold=True).events == ()
    assert watched.fold(cold=True).events


@pytest.mark.rows("S2-21")
def test_a_second_summary_leaves_the_first_where_it_stands() -> None:
    """S2-21: added, never made anew."""
    watched = at_work()
    watched.fold(cold=True)
    summed_up_here(watched, "The test is written, it fails on Windows.")
    for n in range(4):
        watched.does(bash(f"further {n}"), results=[padded(f"further output {n}")])
    watched.arrives()
    watched.fold(cold=True)

    told = "\n".join(line_of(watched))
    assert told.count(NOTE) == told.count("The test is written, it fails on Windows.") == 1
    assert "further 0" not in line_of(watched)[-1]


def test_a_long_note_stays_whole_in_its_trace() -> None:
    watched = at_work(groups=12)
    words = " ".join(f"finding{n}" for n in range(150))
    summed_up_here(watched, words)
    watched.does(bash("last"), results=["ok"]).arrives()
    watched.fold(cold=True)

    assert words in line_of(watched)[1]


def test_a_line_that_is_trimmed_tells_the_summary_too() -> None:
    watched = at_work()
    line = build_context(watched.story, SCRIBE)
    event = drop_oldest(watched.story, line, line.tokens // 3, OverflowNotes(DEFAULT_TOOL_ROLES, "0123456789abcdef"))

    assert event is not None
    assert f"Summed up then: {NOTE}\n" in event.trace


def test_only_what_was_summed_up_makes_a_fold_due() -> None:
    watched = at_work(groups=1, after=1)
    assert is_compaction_due(watched.story, FoldRules(100_000))
    watched.fold(cold=True)
    plain = GrowingConversation(folds=False).user("Go").does(bash("ls"), results=["a"]).does(bash("ls"), results=["b"])
    plain.arrives()
    assert not is_compaction_due(plain.story, FoldRules(100_000))


# ------------------------------------------------------------------------------------------------------------- the tool
def worked() -> LedgerBuilder:
    """A frame under way: a file was changed and a command failed."""
    found = LedgerBuilder()
    found.client("user", "Build the shop")
    found.happens(rooted())
    found.model(("I change it.", (call("e1", "edit", filePath="src/shop.py", oldString="a", newString="b"),)))
    found.client("tool", "Edited.", "e1")
    found.model(("Now I test it.", (call("b1", "bash", command="pytest -q"),)))
    found.client("tool", "exit code 1\nFAILED test_shop.py::test_sale - AssertionError: 3 != 4", "b1")
    return found


def test_the_tool_keeps_the_note_and_what_is_known_and_changes_no_frame() -> None:
    talk = worked()
    told = run(talk.desk(), call("k", "stack_frame_summarize", note="The sale is half done."))

    (event,) = told.events
    assert isinstance(event, InterimSummaryAdded)
    assert (event.frame, event.at, event.words) == ("froot", talk.tip, "The sale is half done.")
    assert event.text.splitlines()[:3] == ["State: The sale is half done.", "Changed:", "- src/shop.py"]
    assert "- pytest -q: failed" in event.text
    assert event.text.endswith("Next: none")
    assert "The frame goes on" in told.text

    talk.happens(event)
    assert talk.story.tree.active == "froot"
    assert talk.story.tree.interim_summaries["froot"].text == event.text


def test_without_a_note_what_was_said_last_is_the_summary() -> None:
    (event,) = run(worked().desk(), call("k", "stack_frame_summarize")).events
    assert isinstance(event, InterimSummaryAdded)
    assert event.words == "Now I test it."


def test_a_note_is_cut_to_its_bound_and_that_is_told() -> None:
    told = run(worked().desk(), call("k", "stack", op="summarize", args={"note": "word " * 5_000}))
    (event,) = told.events
    assert isinstance(event, InterimSummaryAdded)
    assert count(event.words) <= MAX_NOTE_TOKENS
    assert event.words.endswith("[cut]")
    assert f"cut to {MAX_NOTE_TOKENS} tokens" in told.text


@pytest.mark.rows("S1-132")
def test_where_nothing_was_done_or_all_is_over_there_is_nothing_to_sum_up() -> None:
    """S1-132."""
    told = run(desk_after(), call("k", "stack_frame_summarize"))
    assert told.text.startswith("Error: nothing was done in froot yet")
    assert told.events == ()
    over = worked()
    over.model(("", (call("p", "stack_frame_pop", results="x"),)))
    over.happens(popped("froot"), over.tip, 1)
    told = run(over.desk(), call("k", "stack_frame_summarize", note="late"))
    assert told.text.startswith("Error: frame froot is completed")
