"""What is suggested, in which words, and what becomes of it."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.frames.events import (
    AutonomySet,
    Entered,
    FrameEvent,
    Planned,
    Popped,
    Pushed,
    Rooted,
    Suggested,
    SuggestionsCleared,
    read_event,
    recorded,
)
from proxy.core.frames.reducer import apply
from proxy.core.frames.suggestion_log import (
    EXPIRES_MS,
    LEFT,
    MOST,
    POP,
    PUSH,
    Advice,
    Chosen,
    Suggestion,
    acted_upon,
    suggested,
)
from proxy.core.frames.tree import Status, Tree
from proxy.core.policy.autonomy_rules import Autonomy
from proxy.core.policy.signals import Signals
from proxy.core.policy.suggest import NEXT, pointless, stats, suggestion, waiting, words

RULES = Autonomy(level="suggest")
ERRORS = Signals(errors=4, goal="Translate the onboarding email.", wanted=frozenset({"email"}))
SUCCESS = Signals(successes=("pytest -q", "ruff check .", "mypy proxy"), artifacts=3, covered=1.0)
MINUTE = 60_000


def grown(*events: FrameEvent, now: int = 0) -> Tree:
    tree = Tree()
    for event in (Rooted("root", "Cart", "Make the cart round its prices."), *events):
        tree = apply(tree, event, now)
    return tree


def pushed(frame: str = "f1", title: str = "Rounding", parent: str = "root") -> Pushed:
    return Pushed(frame, parent, title, "prices are rounded", "t", "0/c", "block")


def popped(frame: str = "f1", told: str = "told") -> Popped:
    return Popped(frame, Status.COMPLETED, "done", "done", told)


def made(tree: Tree, seen: Signals = ERRORS, now: int = 0, **rules: Any) -> Suggestion | None:
    return suggestion(tree, seen, replace(RULES, **rules), max_depth=10, now=now)


def with_suggestion(tree: Tree, seen: Signals = ERRORS, now: int = 0) -> Tree:
    found = made(tree, seen, now)
    assert found is not None
    return apply(tree, Suggested(tree.active, found), now)


# ------------------------------------------------------------------------------------------------------------ the words
@pytest.mark.rows("S1-94")
def test_a_push_is_suggested_in_the_words_of_the_row() -> None:
    found = made(grown(pushed()))

    assert found is not None
    assert found.text == (
        '[STACK SUGGESTION: Consider pushing a new frame for "Translate the onboarding email." - '
        "Reason: 4 errors since the last success and a new goal (80% confidence)]"
    )
    told = words(found, "n0nce")
    assert told == (
        '<stack-context note="suggestion" nonce="n0nce">\n'
        f"<!-- Stack Autonomy Suggestions -->\n{found.text}\n</stack-context>"
    )


@pytest.mark.rows("S1-94")
def test_a_pop_is_suggested_with_the_status_it_would_end_as() -> None:
    found = made(grown(pushed()), SUCCESS)

    assert found is not None
    assert (found.kind, found.status) == (POP, "completed")
    assert found.text.startswith(
        '[STACK SUGGESTION: Consider popping the current frame "Rounding" as completed - Reason: '
    )


@pytest.mark.rows("S1-156")
@given(st.text(max_size=300))
def test_no_title_breaks_out_of_the_line_or_the_element(title: str) -> None:
    """S1-156: what a user types is no mark-up of ours."""
    found = made(grown(pushed()), Signals(errors=9, goal=f"x {title}", wanted=frozenset({"x"})))
    assert found is not None

    assert ElementTree.fromstring(words(found, "n0nce")).tag == "stack-context"
    assert re.fullmatch(
        r'\[STACK SUGGESTION: Consider pushing a new frame for "[^"\n]+" - Reason: [^\n]+\]', found.text
    )


def test_what_is_planned_next_is_what_a_push_would_be_for() -> None:
    tree = grown(pushed(), Planned("p1", "f1", "Negative prices", "they round too"))

    named = made(tree, Signals(messages=21, files=6))
    assert named is not None
    assert named.title == "Negative prices"
    unnamed = made(grown(pushed()), Signals(messages=21, files=6))
    assert unnamed is not None
    assert unnamed.title == NEXT


# ---------------------------------------------------------------------------------------------------- when nothing is
@pytest.mark.rows("S1-82", "S1-92")
def test_one_of_a_kind_waits_and_the_same_situation_is_told_once() -> None:
    tree = with_suggestion(grown(pushed()))

    other = Signals(tokens=60_000)
    assert made(tree, ERRORS, MINUTE) is None
    assert made(tree, other, MINUTE) is None  # one push waits
    assert made(tree, ERRORS, 6 * MINUTE) is None  # it was not wanted
    later = made(tree, other, 6 * MINUTE)
    assert later is not None
    assert later.heuristic == "duration"
    assert made(tree, SUCCESS, MINUTE) is not None  # a pop is another kind


@pytest.mark.rows("S1-82")
def test_a_push_or_pop_that_leads_nowhere_is_not_suggested() -> None:
    plan = Planned("p1", "root", "Lexer", "Lexer", origin="plan")
    request = Entered("f2", "root", "Email", "Email", "request")
    deep = [pushed(f"f{n}", parent=f"f{n - 1}" if n > 1 else "root") for n in range(1, 10)]

    assert pointless(grown(plan), PUSH, 10) == "the client's own plan divides the work"
    assert pointless(grown(*deep), PUSH, 10) == "10 frames are open already"
    assert pointless(grown(), POP, 10) == "the active frame is the root"
    assert pointless(grown(request), POP, 10).startswith("the proxy opened")
    assert pointless(grown(popped("root", "")), PUSH, 10) == "the root frame has ended"
    assert pointless(grown(pushed()), PUSH, 10) == pointless(grown(pushed()), POP, 10) == ""
    assert made(grown(), SUCCESS) is None


# -------------------------------------------------------------------------------------------------- what became of them
@pytest.mark.rows("S1-95", "D3")
@pytest.mark.parametrize(
    ("seen", "operation"),
    [(ERRORS, pushed("f2", "Email", "f1")), (SUCCESS, popped("f1"))],
)
def test_the_operation_within_five_minutes_acts_upon_a_suggestion(seen: Signals, operation: FrameEvent) -> None:
    tree = with_suggestion(grown(pushed()), seen)

    in_time = apply(tree, operation, EXPIRES_MS)
    assert in_time.advice.tally.acted == 1
    assert waiting(in_time.advice, EXPIRES_MS) == ()
    too_late = apply(tree, operation, EXPIRES_MS + 1)
    assert (too_late.advice.tally.acted, stats(too_late.advice, EXPIRES_MS + 1).ignored) == (0, 1)


@pytest.mark.rows("S1-95")
def test_another_operation_and_another_frame_act_upon_nothing() -> None:
    tree = with_suggestion(grown(pushed()), SUCCESS)

    for other in (pushed("f2", "Email", "f1"), Planned("p1", "f1", "Later", "later")):
        assert apply(tree, other, MINUTE).advice.tally.acted == 0


@pytest.mark.rows("S1-83", "S1-95", "D3")
def test_what_the_proxy_opens_and_ends_is_counted_apart() -> None:
    auto = Entered("f2", "root", "Step 2 of: Cart", "", "auto")
    tree = grown(auto, popped("f2", told=""))

    assert (tree.advice.tally.auto_pushes, tree.advice.tally.auto_pops) == (1, 1)
    assert grown(auto, popped("f2", told="popped by the model")).advice.tally.auto_pops == 0
    assert grown(Entered("f3", "root", "Email", "", "request")).advice.tally.auto_pushes == 0


def numbered(n: int) -> Suggestion:
    return Suggestion(PUSH, f"f{n}", 80, "duration", "long", "text")


@pytest.mark.rows("S1-95")
def test_a_long_history_is_cut_to_its_newer_half_and_every_count_stays() -> None:
    advice = Advice()
    for n in range(MOST + 1):
        advice = suggested(advice, numbered(n), n * EXPIRES_MS * 2)
        if n % 2:
            advice = acted_upon(advice, PUSH, f"f{n}", n * EXPIRES_MS * 2)
        assert len(advice.history) <= MOST

    assert len(advice.history) == LEFT
    assert advice.history[-1].frame == f"f{MOST}"
    counts = stats(advice, (MOST + 2) * EXPIRES_MS * 2)
    assert (counts.total, counts.push, counts.acted, counts.ignored) == (101, 101, 50, 51)


@pytest.mark.rows("S1-129", "S1-130")
def test_what_is_taken_back_is_not_ignored_and_counts_begin_with_what_waits() -> None:
    tree = with_suggestion(grown(pushed()))

    back = apply(tree, SuggestionsCleared(MINUTE, waiting=True), MINUTE)
    assert waiting(back.advice, MINUTE) == ()
    assert stats(back.advice, 9 * MINUTE).ignored == 0
    assert made(back, ERRORS, 2 * MINUTE) is None
    anew = apply(tree, SuggestionsCleared(MINUTE, counts=True), MINUTE)
    assert (anew.advice.tally.total, len(anew.advice.history)) == (1, 1)
    assert apply(tree, SuggestionsCleared(9 * MINUTE, counts=True), 9 * MINUTE).advice.tally.total == 0


@pytest.mark.rows("S1-126")
def test_what_was_set_last_counts_wherever_it_hangs() -> None:
    newer, older = Chosen(at=2, level="auto"), Chosen(at=1, level="manual")

    assert grown(AutonomySet(newer), AutonomySet(older)).advice.chosen == newer
    assert grown(AutonomySet(older), AutonomySet(newer)).advice.chosen == newer


def test_the_events_read_as_they_were_written() -> None:
    found = made(grown(pushed()))
    assert found is not None
    for event in (Suggested("f1", found), SuggestionsCleared(5, waiting=True), AutonomySet(Chosen(3, heuristics=()))):
        assert read_event(recorded(event, "entry", 0, 1, 7)) == event
