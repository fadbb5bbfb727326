"""What a tool keeps on a frame by one event (`NoteKept`) is told wherever the frame's decisions are."""

from __future__ import annotations

from proxy.core.compaction.facts import with_noted_facts
from proxy.core.compaction.trace import SpanFacts
from proxy.core.frames.events import DecisionAdded, NoteKept
from proxy.core.frames.results import frame_results_text
from proxy.core.frames.tree import Frame, FrameNote, Status
from proxy.core.tools.inspect_tools import tree_state
from tests.core.forest import LedgerBuilder, call, count, grown, pushed, rooted
from tests.core.tools.test_inspect_tools import ask, desk_after

NOTED = (
    pushed("fa", title="Auth"),
    DecisionAdded("fa", "Use JWT."),
    NoteKept("fa", "findings", "The key is read twice."),
    NoteKept("fa", "risks", "Clocks differ <by> minutes."),
    NoteKept("fa", "findings", "No test covers it."),
)


def noted_frame() -> Frame:
    return grown(rooted(), *NOTED).frames["fa"]


def test_notes_stay_on_their_frame_in_order_and_by_kind() -> None:
    frame = noted_frame()

    assert frame.kept_notes[0] == FrameNote("findings", "The key is read twice.")
    assert frame.notes_by_kind()["findings"] == ["The key is read twice.", "No test covers it."]
    assert frame.noted[0] == "Use JWT."
    assert frame.noted[-1] == "findings: No test covers it."
    tree = grown(rooted(), NoteKept("nobody", "findings", "lost"))
    assert not any(frame.kept_notes for frame in tree.frames.values())


def test_the_parent_reads_a_section_for_each_kind_at_the_return() -> None:
    tree = grown(rooted(), *NOTED)
    frame = tree.frames["fa"]
    text = frame_results_text(
        tree, frame, Status.COMPLETED, "Done.", count=count, budget=4_000, paths=(), past_speech=(), below=()
    )

    assert "<decisions>- Use JWT.</decisions>" in text
    assert "<findings>- The key is read twice.\n- No test covers it.</findings>" in text
    assert "<risks>- Clocks differ" in text


def test_details_summary_and_state_have_them() -> None:
    desk = desk_after(*NOTED)

    for tool in ("stack_frame_details", "stack_get_summary"):
        assert "findings:\n- The key is read twice.\n- No test covers it." in ask(desk, tool, frame="fa")
    state = tree_state(desk.tree)["frames"]
    assert state["fa"]["notes"]["findings"] == ["The key is read twice.", "No test covers it."]
    assert "notes" not in state["froot"]


def test_a_trace_has_what_a_call_in_the_span_noted() -> None:
    talk = LedgerBuilder()
    talk.client("user", "go")
    talk.happens(rooted())
    talk.model(("", (call("k", "stack_finding", text=" The key is read twice. "),)))
    talk.happens(NoteKept("froot", "findings", "The key is read twice."), number=1)
    story = talk.story

    facts = with_noted_facts(SpanFacts(), story.tree, story.entries)

    assert facts.decisions == ("findings: The key is read twice.",)
    assert with_noted_facts(SpanFacts(), story.tree, story.entries[:1]).decisions == ()
