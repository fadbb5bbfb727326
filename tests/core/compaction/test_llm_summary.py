"""What a summariser is asked about a span, and what of its answer is used, by values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.compaction.llm_summary import (
    MAX_ITEMS,
    MESSAGE_CHARACTERS,
    MIN_SUMMARY_TOKENS,
    SummarySpan,
    describe_active_frame,
    newest_fitting,
    quote_message,
    span_of,
    summary_heading,
    summary_instructions,
    usable_summary,
)
from proxy.core.frames.events import (
    ArtifactAdded,
    DecisionAdded,
    FoldSummarized,
    FrameEntered,
    FrameFolded,
    FramePlanned,
    FramePopped,
)
from proxy.core.frames.tree import Status
from proxy.core.ledger.messages import Call, Message
from tests.core.forest import LedgerBuilder, call, count, grown, popped, pushed, rooted


def group(talk: LedgerBuilder, number: int, result: str = "fine") -> tuple[str, str]:
    """A call and its result: their entries."""
    turn = talk.model((f"step {number}", (call(f"c{number}", "bash", command=f"make {number}"),)))
    return turn, talk.client("tool", f"{result} {number}", answers=f"c{number}")


def begun() -> LedgerBuilder:
    talk = LedgerBuilder()
    talk.client("user", "begin")
    talk.happens(rooted())
    talk.happens(FrameEntered("fitem", "froot", "The item", "It is done.", "plan"))
    return talk


def said(span: SummarySpan | None) -> list[str]:
    assert span is not None
    return [m.text for m in span.messages]


def spanned(talk: LedgerBuilder, frame: str) -> SummarySpan | None:
    return span_of(talk.ledger, talk.story, talk.tip, frame)


def test_a_span_is_what_its_fold_took_and_nothing_else() -> None:
    talk = begun()
    first = group(talk, 1)
    group(talk, 2)
    talk.happens(FrameFolded("fitem", first, "trace"))
    span = spanned(talk, "fitem")
    assert said(span) == ["step 1", "fine 1"]
    assert spanned(talk, "fother") is None


@pytest.mark.rows("S2-21")
def test_what_was_summarised_is_told_by_its_summary() -> None:
    """S2-21: three folds, each of which takes over the one before: the newest summary and the new messages."""
    talk = begun()
    entries: tuple[str, ...] = group(talk, 1)
    talk.happens(FrameFolded("fitem", entries, "trace"))
    talk.happens(FoldSummarized("fitem", "SUM 1"))
    entries = (*entries, *group(talk, 2))
    talk.happens(FrameFolded("fitem", entries, "trace"))
    talk.happens(FoldSummarized("fitem", "SUM 1 and 2"))
    entries = (*entries, *group(talk, 3))
    talk.happens(FrameFolded("fitem", entries, "trace"))

    span = spanned(talk, "fitem")
    assert said(span) == ["step 3", "fine 3"]
    assert span is not None
    assert span.earlier_summaries == ("SUM 1 and 2",)


def test_what_nobody_summarised_is_shown_again() -> None:
    """A summariser that failed once does not leave a hole."""
    talk = begun()
    first = group(talk, 1)
    talk.happens(FrameFolded("fitem", first, "trace"))
    talk.happens(FrameFolded("fitem", (*first, *group(talk, 2)), "trace"), talk.tip)
    assert said(spanned(talk, "fitem")) == ["step 1", "fine 1", "step 2", "fine 2"]


def test_a_summary_of_other_work_is_none_of_this_span() -> None:
    talk = begun()
    talk.happens(FrameFolded("fitem", group(talk, 1), "trace"))
    talk.happens(FoldSummarized("fitem", "SUM of the item"))
    talk.happens(FrameEntered("fnext", "froot", "Next", "", "plan"))
    talk.happens(FrameFolded("fnext", group(talk, 2), "trace"), talk.tip)
    span = spanned(talk, "fnext")
    assert span is not None
    assert span.earlier_summaries == ()


def test_a_summary_belongs_to_the_fold_at_its_entry() -> None:
    """One that arrives late says nothing of what a later fold took."""
    talk = begun()
    first = group(talk, 1)
    talk.happens(FrameFolded("fitem", first, "old"))
    at = talk.tip
    second = group(talk, 2)
    talk.happens(FrameFolded("fitem", (*first, *second), "new"))
    talk.happens(FoldSummarized("fitem", "SUM 1"), at)
    assert [(t.trace, t.summary) for t in talk.story.tree.removals] == [("new", "")]

    talk = begun()
    talk.happens(FrameFolded("fitem", group(talk, 1), "old"))
    at = talk.tip
    talk.happens(FrameFolded("fitem", group(talk, 2), "new"))
    talk.happens(FoldSummarized("fitem", "SUM 1"), at)
    assert [(t.trace, t.summary) for t in talk.story.tree.removals] == [("old", "SUM 1"), ("new", "")]


def whole() -> SummarySpan:
    talk = begun()
    for event in (ArtifactAdded("fitem", "src/a.py"), DecisionAdded("fitem", "Use tabs.")):
        talk.happens(event)
    talk.happens(FramePopped("fitem", Status.COMPLETED, "Item done.", ""))
    talk.happens(FrameEntered("fnext", "froot", "Next", "It is next.", "plan"))
    talk.happens(FrameFolded("fnext", group(talk, 1), "trace"))
    span = spanned(talk, "fnext")
    assert span is not None
    return span


@pytest.mark.rows("S1-66")
def test_the_question_says_where_the_frame_stands() -> None:
    """S1-66."""
    told = summary_heading(whole(), "2026-01-02T03:04:05", "2026-01-02T03:00:00")
    for line in (
        "Type: frame completion",
        "Time: 2026-01-02T03:04:05",
        "Frame: fnext",
        "Title: Next",
        "Criteria: It is next.",
        "Status: in_progress",
        "Created: 2026-01-02T03:00:00",
        "# Parent\nTitle: Build the shop\nCriteria: The shop sells things.\nStatus: in_progress\nResults: none",
        "# Finished beside it\n- The item: Item done.",
        "# Earlier summary\nnone",
    ):
        assert f"\n{line}\n" in f"\n{told}\n"


@pytest.mark.rows("S1-66")
def test_long_lists_and_long_texts_are_cut() -> None:
    """S1-66: parents' results at 500 characters, siblings' at 200, of more than three the newest three."""
    span = whole()
    frame = replace(span.frame, artifacts=tuple(f"src/{n}.py" for n in range(MAX_ITEMS + 9)), results="r" * 900)
    told = summary_heading(replace(span, frame=frame, parent=frame, finished_siblings=(frame,)), "", "")
    assert ("- src/8.py" in told, "- src/9.py" in told) == (False, True)
    assert ("r" * 499 in told, "r" * 500 in told) == (True, False)
    assert "Next: " + "r" * 199 + "…" in told


def test_a_long_message_is_shown_by_its_beginning_and_its_end() -> None:
    text = "a" * MESSAGE_CHARACTERS + "middle" + "z" * MESSAGE_CHARACTERS
    shown = quote_message(Message("tool", b"", "", text, (Call("c", "bash", "x" * 3 * MESSAGE_CHARACTERS),)))
    assert shown.startswith("[tool] aaa")
    assert "zzz\n[calls bash] xxx" in shown
    assert "middle" not in shown
    assert len(shown) < 2 * MESSAGE_CHARACTERS + 200


@given(st.lists(st.text("ab ", max_size=30), max_size=12), st.integers(-5, 200))
def test_the_newest_messages_that_fit_are_shown_in_order(texts: list[str], room: int) -> None:
    counts = [len(text) for text in texts]
    shown = newest_fitting(texts, counts, room).split("\n")
    missing = next((n for n in range(len(texts) + 1) if sum(counts[n:]) <= room), len(texts))
    assert shown[-len(texts[missing:]) :] == texts[missing:] or missing == len(texts)
    assert ("older messages are not shown" in shown[0]) == (missing > 0)


@pytest.mark.rows("S4-65")
def test_only_what_is_a_tenth_smaller_is_used() -> None:
    """S4-65."""
    span = replace(whole(), tokens=100)
    assert usable_summary("word " * 90, span, lambda text: len(text.split())) == ("word " * 90).strip()
    assert usable_summary("word " * 91, span, lambda text: len(text.split())) == ""
    assert usable_summary(" \x00\n ", span, count) == ""


def test_the_room_grows_with_the_span_up_to_a_bound() -> None:
    """What is asked for fits its place in a trace."""
    span = whole()
    assert [replace(span, tokens=tokens).max_summary_tokens for tokens in (100, 20_000, 1_000_000)] == [
        MIN_SUMMARY_TOKENS,
        320,
        400,
    ]
    assert "At most 224 words" in summary_instructions(replace(span, tokens=20_000), "")


@pytest.mark.rows("S1-66")
def test_who_is_asked_for_a_summary_of_everything_is_told_where_the_work_stands() -> None:
    """S1-66: the active frame, its parent, what is planned, what was finished beside it."""
    tree = grown(
        rooted(),
        pushed("fauth", title="Auth"),
        popped("fauth", "JWT in src/auth.py."),
        pushed("fpay", title="Pay", criteria="Paying works."),
        DecisionAdded("fpay", "Stripe, not Adyen"),
        FramePlanned("fbank", "fpay", "Bank", "Transfers work."),
    )
    told = describe_active_frame(tree, 90 * 60_000)

    assert told.splitlines()[:6] == [
        "# Frame", "Type: overflow", "Frame: fpay", "Title: Pay", "Criteria: Paying works.", "Status: in_progress"
    ]  # fmt: skip
    assert told.splitlines()[6] == "Created: 1.4h ago"
    assert "# Parent\nTitle: Build the shop" in told
    assert "# Decisions\n- Stripe, not Adyen" in told
    assert "# Finished beside it\n- Auth: JWT in src/auth.py." in told
    assert told.endswith("# Planned\n- Bank: Transfers work.")
