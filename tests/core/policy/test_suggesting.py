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
    FrameEntered,
    FrameEvent,
    FramePlanned,
    FramePopped,
    FramePushed,
    RootStarted,
    SuggestionMade,
    SuggestionsCleared,
    as_ledger_event,
    decode_event,
)
from proxy.core.frames.reducer import reduce
from proxy.core.frames.suggestion_log import (
    EXPIRES_MS,
    MAX_SUGGESTIONS,
    POP,
    PUSH,
    SUGGESTIONS_KEPT,
    AutonomySettings,
    Suggestion,
    SuggestionState,
    add_suggestion,
    mark_acted_upon,
)
from proxy.core.frames.tree import Status, Tree
from proxy.core.policy.autonomy_rules import AutonomyRules
from proxy.core.policy.signals import FrameSignals
from proxy.core.policy.suggest import (
    DEFAULT_TOPIC,
    make_suggestion,
    pending_suggestions,
    reason_not_to_suggest,
    suggestion_note,
    tally_at,
)

RULES = AutonomyRules(level="suggest")
ERRORS = FrameSignals(errors=4, goal="Translate the onboarding email.", goal_keywords=frozenset({"email"}))
SUCCESS = FrameSignals(successes=("pytest -q", "ruff check .", "mypy proxy"), artifacts=3, goal_coverage=1.0)
MINUTE = 60_000


def grown(*events: FrameEvent, now: int = 0) -> Tree:
    tree = Tree()
    for event in (RootStarted("root", "Cart", "Make the cart round its prices."), *events):
        tree = reduce(tree, event, now)
    return tree


def pushed(frame: str = "f1", title: str = "Rounding", parent: str = "root") -> FramePushed:
    return FramePushed(frame, parent, title, "prices are rounded", "t", "0/c", "block")


def popped(frame: str = "f1", told: str = "told") -> FramePopped:
    return FramePopped(frame, Status.COMPLETED, "done", "done", told)


def made(tree: Tree, seen: FrameSignals = ERRORS, now: int = 0, **rules: Any) -> Suggestion | None:
    return make_suggestion(tree, seen, replace(RULES, **rules), max_depth=10, now=now)


def with_suggestion(tree: Tree, seen: FrameSignals = ERRORS, now: int = 0) -> Tree:
    found = made(tree, seen, now)
    assert found is not None
    return reduce(tree, SuggestionMade(tree.active, found), now)


# ------------------------------------------------------------------------------------------------------------ the words
@pytest.mark.rows("S1-94")
def test_a_push_is_suggested_in_the_words_of_the_row() -> None:
    found = made(grown(pushed()))

    assert found is not None
    assert found.text == (
        '[STACK SUGGESTION: Consider pushing a new frame for "Translate the onboarding email." - '
        "Reason: 4 errors since the last success and a new goal (80% confidence)]"
    )
    told = suggestion_note(found, "n0nce")
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
    found = made(grown(pushed()), FrameSignals(errors=9, goal=f"x {title}", goal_keywords=frozenset({"x"})))
    assert found is not None

    assert ElementTree.fromstring(suggestion_note(found, "n0nce")).tag == "stack-context"
    assert re.fullmatch(
        r'\[STACK SUGGESTION: Consider pushing a new frame for "[^"\n]+" - Reason: [^\n]+\]', found.text
    )


def test_what_is_planned_next_is_what_a_push_would_be_for() -> None:
    tree = grown(pushed(), FramePlanned("p1", "f1", "Negative prices", "they round too"))

    named = made(tree, FrameSignals(messages=21, files=6))
    assert named is not None
    assert named.title == "Negative prices"
    unnamed = made(grown(pushed()), FrameSignals(messages=21, files=6))
    assert unnamed is not None
    assert unnamed.title == DEFAULT_TOPIC


# ---------------------------------------------------------------------------------------------------- when nothing is
@pytest.mark.rows("S1-82", "S1-92", "S1-93")
def test_one_of_a_kind_waits_and_the_same_situation_is_told_once() -> None:
    tree = with_suggestion(grown(pushed(), FramePlanned("p1", "f1", "Negative prices", "they round too")))

    other = FrameSignals(tokens=60_000)
    assert made(tree, ERRORS, MINUTE) is None
    assert made(tree, other, MINUTE) is None  # one push waits
    assert made(tree, ERRORS, 6 * MINUTE) is None  # it was not wanted
    later = made(tree, other, 6 * MINUTE)
    assert later is not None
    assert later.heuristic == "duration"
    assert made(tree, SUCCESS, MINUTE) is not None  # a pop is another kind


@pytest.mark.rows("S1-82")
def test_a_push_or_pop_that_leads_nowhere_is_not_suggested() -> None:
    plan = FramePlanned("p1", "root", "Lexer", "Lexer", origin="plan")
    request = FrameEntered("f2", "root", "Email", "Email", "request")
    deep = [pushed(f"f{n}", parent=f"f{n - 1}" if n > 1 else "root") for n in range(1, 10)]

    done = (plan, FrameEntered("p1", "root", "Lexer", "Lexer", "plan"), popped("p1", ""))
    assert reason_not_to_suggest(grown(plan), PUSH, 10) == "the client's own plan divides the work"
    assert reason_not_to_suggest(grown(*done), PUSH, 10) == "the client's own plan divides the work"
    assert reason_not_to_suggest(grown(*done, request), PUSH, 10) == ""
    assert reason_not_to_suggest(grown(*deep), PUSH, 10) == "10 frames are open already"
    assert reason_not_to_suggest(grown(), POP, 10) == "the active frame is the root"
    assert reason_not_to_suggest(grown(request), POP, 10).startswith("the proxy opened")
    assert reason_not_to_suggest(grown(popped("root", "")), PUSH, 10) == "the root frame has ended"
    assert reason_not_to_suggest(grown(pushed()), PUSH, 10) == reason_not_to_suggest(grown(pushed()), POP, 10) == ""
    assert made(grown(), SUCCESS) is None


# -------------------------------------------------------------------------------------------------- what became of them
@pytest.mark.rows("S1-93", "S1-95", "D3")
@pytest.mark.proves("S1-93")
@pytest.mark.parametrize(
    ("seen", "operation"),
    [(ERRORS, pushed("f2", "Email", "f1")), (SUCCESS, popped("f1"))],
)
def test_the_operation_within_five_minutes_acts_upon_a_suggestion(seen: FrameSignals, operation: FrameEvent) -> None:
    tree = with_suggestion(grown(pushed()), seen)

    in_time = reduce(tree, operation, 5 * MINUTE)
    assert in_time.suggestion_state.counts.acted == 1
    assert pending_suggestions(in_time.suggestion_state, 5 * MINUTE) == ()
    too_late = reduce(tree, operation, 5 * MINUTE + 1).suggestion_state
    assert (too_late.counts.acted, tally_at(too_late, 5 * MINUTE + 1).ignored) == (0, 1)


@pytest.mark.rows("S1-95")
def test_another_operation_and_another_frame_act_upon_nothing() -> None:
    tree = with_suggestion(grown(pushed()), SUCCESS)

    for other in (pushed("f2", "Email", "f1"), FramePlanned("p1", "f1", "Later", "later")):
        assert reduce(tree, other, MINUTE).suggestion_state.counts.acted == 0


@pytest.mark.rows("S1-83", "S1-95", "D3")
def test_what_the_proxy_opens_and_ends_is_counted_apart() -> None:
    auto = FrameEntered("f2", "root", "Step 2 of: Cart", "", "auto")
    tree = grown(auto, popped("f2", told=""))

    assert (tree.suggestion_state.counts.auto_pushes, tree.suggestion_state.counts.auto_pops) == (1, 1)
    assert grown(auto, popped("f2", told="popped by the model")).suggestion_state.counts.auto_pops == 0
    assert grown(FrameEntered("f3", "root", "Email", "", "request")).suggestion_state.counts.auto_pushes == 0


def numbered(n: int) -> Suggestion:
    return Suggestion(PUSH, f"f{n}", 80, "duration", "long", "text")


@pytest.mark.rows("S1-95")
def test_a_long_history_is_cut_to_its_newer_half_and_every_count_stays() -> None:
    advice = SuggestionState()
    for n in range(MAX_SUGGESTIONS + 1):
        advice = add_suggestion(advice, numbered(n), n * EXPIRES_MS * 2)
        if n % 2:
            advice = mark_acted_upon(advice, PUSH, f"f{n}", n * EXPIRES_MS * 2)
        assert len(advice.history) <= MAX_SUGGESTIONS

    assert len(advice.history) == SUGGESTIONS_KEPT
    assert advice.history[-1].frame == f"f{MAX_SUGGESTIONS}"
    counts = tally_at(advice, (MAX_SUGGESTIONS + 2) * EXPIRES_MS * 2)
    assert (counts.total, counts.push, counts.acted, counts.ignored) == (101, 101, 50, 51)


@pytest.mark.rows("S1-129", "S1-130")
def test_what_is_taken_back_is_not_ignored_and_counts_begin_with_what_waits() -> None:
    tree = with_suggestion(grown(pushed()))

    back = reduce(tree, SuggestionsCleared(MINUTE, waiting=True), MINUTE)
    assert pending_suggestions(back.suggestion_state, MINUTE) == ()
    assert tally_at(back.suggestion_state, 9 * MINUTE).ignored == 0
    assert made(back, ERRORS, 2 * MINUTE) is None
    anew = reduce(tree, SuggestionsCleared(MINUTE, counts=True), MINUTE)
    assert (anew.suggestion_state.counts.total, len(anew.suggestion_state.history)) == (1, 1)
    assert reduce(tree, SuggestionsCleared(9 * MINUTE, counts=True), 9 * MINUTE).suggestion_state.counts.total == 0


@pytest.mark.rows("S1-126")
def test_what_was_set_last_counts_wherever_it_hangs() -> None:
    newer, older = AutonomySettings(at=2, level="auto"), AutonomySettings(at=1, level="manual")

    assert grown(AutonomySet(newer), AutonomySet(older)).suggestion_state.settings == newer
    assert grown(AutonomySet(older), AutonomySet(newer)).suggestion_state.settings == newer


def test_the_events_read_as_they_were_written() -> None:
    found = made(grown(pushed()))
    assert found is not None
    for event in (
        SuggestionMade("f1", found),
        SuggestionsCleared(5, waiting=True),
        AutonomySet(AutonomySettings(3, heuristics=())),
    ):
        assert decode_event(as_ledger_event(event, "entry", 0, 1, 7)) == event
