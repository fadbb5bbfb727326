"""The seven heuristics with the constants of their rows, and what each way of combining them can reach (D1, C7)."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.frames.suggestion_log import POP, PUSH, AutonomySettings
from proxy.core.policy.autonomy_rules import HEURISTIC_NAMES, AutonomyRules, clamp_threshold
from proxy.core.policy.heuristics import COMBINERS, HEURISTICS, judge, may_reach_threshold
from proxy.core.policy.signals import FrameSignals

SIGNS = ("pytest -q", "ruff check", "mypy proxy")
DISJOINT: dict[str, Any] = {
    "goal": "Translate the email.",
    "goal_keywords": frozenset({"trans", "email"}),
    "frame_keywords": frozenset({"parse"}),
}


@pytest.mark.proves("S1-86", "S1-87", "S1-88", "S1-89", "S1-90", "S1-91")
@pytest.mark.rows("S1-85", "S1-86", "S1-87", "S1-88", "S1-89", "S1-90", "S1-91", "S0-05", "S0-06", "S0-07")
@pytest.mark.parametrize(
    ("name", "seen", "points"),
    [
        ("failure_boundary", {"errors": 1}, 15),
        ("failure_boundary", {"errors": 3}, 45),
        ("failure_boundary", {"errors": 40}, 50),
        ("failure_boundary", {"errors": 4, "goal": "other"}, 80),
        ("context_switch", {**DISJOINT, "files": 4}, 80),
        ("context_switch", {**DISJOINT, "files": 2}, 70),
        ("context_switch", {**DISJOINT, "frame_keywords": frozenset({"email"})}, 30),
        ("context_switch", {"files": 4}, 20),
        ("complexity", {"messages": 21, "files": 6}, 70),
        ("complexity", {"messages": 11, "files": 3}, 40),
        ("complexity", {"messages": 6, "files": 2}, 10),
        ("complexity", {"messages": 5, "files": 5}, 15),
        ("duration", {"tokens": 51_000}, 70),
        ("duration", {"tokens": 50_000}, 50),
        ("duration", {"tokens": 15_001}, 30),
        ("duration", {"tokens": 5_001}, 15),
        ("duration", {"tokens": 5_000}, 0),
        ("goal_completion", {"successes": SIGNS, "artifacts": 3, "goal_coverage": 1.0}, 100),
        ("goal_completion", {"successes": SIGNS[:1], "artifacts": 1, "goal_coverage": 0.5}, 45),
        ("goal_completion", {"artifacts": 9}, 30),
        ("stagnation", {"idle_turns": 6}, 70),
        ("stagnation", {"idle_turns": 4}, 40),
        ("stagnation", {"idle_turns": 2, "failures": ("bash",) * 2}, 40),
        ("stagnation", {"idle_turns": 6, "failures": ("bash",) * 4}, 100),
        ("context_overflow", {"usage": 0.91}, 90),
        ("context_overflow", {"usage": 0.9}, 70),
        ("context_overflow", {"usage": 0.71}, 50),
        ("context_overflow", {"usage": 0.51}, 20),
        ("context_overflow", {"usage": 0.5}, 0),
    ],
)
def test_a_heuristic_gives_the_points_of_its_row(name: str, seen: dict[str, Any], points: int) -> None:
    assert HEURISTICS[name].score(FrameSignals(**seen)).points == points


@pytest.mark.proves("S1-90")
@pytest.mark.rows("S1-90")
@pytest.mark.parametrize(
    ("seen", "status"),
    [
        ({"idle_turns": 6}, "blocked"),
        ({"idle_turns": 6, "failures": ("bash",) * 4}, "failed"),
        ({"idle_turns": 6, "failures": ("bash",) * 2, "successes": SIGNS}, "blocked"),
        ({"idle_turns": 4}, ""),
    ],
)
def test_what_stands_still_ends_as_blocked_or_as_failed_where_failures_prevail(
    seen: dict[str, Any], status: str
) -> None:
    assert HEURISTICS["stagnation"].score(FrameSignals(**seen)).status == status


def test_the_rules_name_every_heuristic_there_is() -> None:
    assert tuple(HEURISTICS) == HEURISTIC_NAMES


signals = st.builds(
    FrameSignals,
    errors=st.integers(0, 1_000),
    goal=st.sampled_from(["", "something else"]),
    frame_keywords=st.frozensets(st.sampled_from("abcdef")),
    goal_keywords=st.frozensets(st.sampled_from("abcdef")),
    messages=st.integers(0, 10_000),
    files=st.integers(0, 500),
    tokens=st.integers(0, 10**7),
    successes=st.lists(st.sampled_from(SIGNS), max_size=5).map(tuple),
    failures=st.lists(st.sampled_from(SIGNS), max_size=9).map(tuple),
    artifacts=st.integers(0, 500),
    goal_coverage=st.floats(0, 1),
    idle_turns=st.integers(0, 1_000),
    usage=st.floats(0, 3),
)


@given(
    signals, st.sampled_from([PUSH, POP]), st.sampled_from(sorted(COMBINERS)), st.sets(st.sampled_from(HEURISTIC_NAMES))
)
def test_a_confidence_lies_between_0_and_100_and_names_an_enabled_reason(
    seen: FrameSignals, kind: str, combine: str, enabled: set[str]
) -> None:
    verdict = judge(kind, seen, AutonomyRules(combine=combine, heuristics=tuple(enabled)))

    assert 0 <= verdict.confidence <= 100
    assert all(0 <= score.points <= 100 for score in verdict.scores.values())
    assert set(verdict.scores) == {name for name in HEURISTIC_NAMES if HEURISTICS[name].kind == kind}
    assert verdict.primary in {*enabled, ""}
    assert bool(verdict.primary) == any(verdict.scores[name].points for name in enabled & set(verdict.scores))
    assert not verdict.is_reached or verdict.reason
    assert bool(verdict.status) == (kind == POP and bool(verdict.primary))


@given(
    signals,
    st.sampled_from([PUSH, POP]),
    st.sampled_from(sorted(COMBINERS)),
    st.sets(st.sampled_from(HEURISTIC_NAMES)),
    st.integers(0, 100),
)
def test_the_points_alone_tell_whether_a_threshold_is_reached(
    seen: FrameSignals, kind: str, combine: str, enabled: set[str], threshold: int
) -> None:
    rules = AutonomyRules(combine=combine, heuristics=tuple(enabled), push_threshold=threshold, pop_threshold=threshold)
    verdict = judge(kind, seen, rules)

    assert may_reach_threshold(kind, seen, rules) == (verdict.confidence >= threshold)
    assert may_reach_threshold(kind, seen, rules) or not verdict.is_reached


# ------------------------------------------------------------------------------------------------- the reachable region
HIGHEST_OF = {
    "failure_boundary": 80,
    "context_switch": 80,
    "complexity": 70,
    "duration": 70,
    "goal_completion": 100,
    "stagnation": 100,
    "context_overflow": 90,
}
THRESHOLDS = {PUSH: 70, POP: 80}


def of_kind(kind: str) -> list[int]:
    return [HIGHEST_OF[name] for name in HEURISTIC_NAMES if HEURISTICS[name].kind == kind]


def reached_by(combine: str, kind: str, together: int) -> bool:
    """Whether some of the heuristics of a kind, so many of them at their highest and the others silent, reach its
    threshold."""
    highest = of_kind(kind)
    chosen = combinations(range(len(highest)), together)
    lit = ([points if at in some else 0 for at, points in enumerate(highest)] for some in chosen)
    return any(COMBINERS[combine](each) >= THRESHOLDS[kind] for each in lit)


@pytest.mark.rows("D1", "C7", "S1-91b")
def test_d1_the_mean_asks_all_heuristics_at_once_where_max_and_noisy_or_ask_one() -> None:
    """How many of them have to be at their highest before the threshold is reached."""
    needed = {
        (combine, kind): next(n for n in range(1, 5) if reached_by(combine, kind, n))
        for combine, kind in product(COMBINERS, (PUSH, POP))
    }

    assert needed == {
        ("max", PUSH): 1,
        ("max", POP): 1,
        ("noisy_or", PUSH): 1,
        ("noisy_or", POP): 1,
        ("mean", PUSH): 4,
        ("mean", POP): 3,
    }
    assert round(COMBINERS["mean"](of_kind(PUSH))) == 75


@pytest.mark.rows("D1", "C7")
def test_d1_the_highest_points_are_really_reached() -> None:
    """The table above is no wish: these signals give them."""
    most = FrameSignals(
        errors=9, messages=99, files=9, tokens=99_000, successes=SIGNS, failures=("bash",) * 4, artifacts=9,
        goal_coverage=1.0, idle_turns=9, usage=0.99, **DISJOINT,
    )  # fmt: skip

    assert {name: each.score(most).points for name, each in HEURISTICS.items()} == HIGHEST_OF


@pytest.mark.rows("C7")
def test_noisy_or_adds_up_what_the_highest_passes_over() -> None:
    middling = FrameSignals(errors=3, messages=21, tokens=31_000)

    assert judge(PUSH, middling, AutonomyRules()).confidence == 50
    assert judge(PUSH, middling, AutonomyRules(combine="noisy_or")).confidence == 84
    assert judge(PUSH, middling, AutonomyRules(combine="mean")).confidence == 34


@pytest.mark.rows("S1-91b", "S1-96")
def test_what_is_not_enabled_counts_nothing_and_is_still_explained() -> None:
    verdict = judge(PUSH, FrameSignals(errors=9, tokens=31_000), AutonomyRules(heuristics=("duration",)))

    assert (verdict.confidence, verdict.primary) == (50, "duration")
    assert verdict.scores["failure_boundary"].points == 50


# ----------------------------------------------------------------------------------------------------------- the rules
@pytest.mark.rows("S1-84")
def test_a_threshold_is_taken_as_the_nearest_that_is_allowed() -> None:
    assert [clamp_threshold(asked) for asked in (-5, 0, 70, 100, 150)] == [0, 0, 70, 100, 100]


def test_what_was_chosen_for_a_conversation_goes_before_the_configuration() -> None:
    rules = AutonomyRules(level="suggest", push_threshold=60)

    assert rules.with_overrides(AutonomySettings()) == rules
    chosen = rules.with_overrides(AutonomySettings(at=1, level="manual", heuristics=(), suggest_in_context=False))
    assert chosen == AutonomyRules("manual", 60, 80, "max", suggest_in_context=False, heuristics=())
