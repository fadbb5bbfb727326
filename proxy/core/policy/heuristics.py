"""Seven heuristics, four for a push and three for a pop, each scoring 0 to 100. Each is a pure function of the signals,
and its score names the figures it is made of. The constants are those of the requirement rows; a table of steps gives
the points of the highest step that is exceeded.

The scores of the enabled ones are combined into one figure, which is compared with the thresholds. The default is the
maximum: a mean would need all scores high at once, and no two of the three pop heuristics reach the threshold by a
mean. `noisy_or` adds up several middling scores, as independent reasons would.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import msgspec

from proxy.core.frames import POP, PUSH, Status
from proxy.core.policy.autonomy_rules import MAX_SCORE, AutonomyRules
from proxy.core.policy.signals import FrameSignals

PointSteps = Sequence[tuple[float, int]]  # (exceeded, points), the highest first
ScoreInput = int | float | bool | str

POINTS_PER_ERROR, MAX_ERROR_POINTS, NEW_GOAL_POINTS = 15, 50, 30
OTHER_TOPIC_POINTS = 60
RECENT_FILE_STEPS: PointSteps = ((3, 20), (1, 10))
MESSAGE_STEPS: PointSteps = ((20, 40), (10, 25), (5, 10))
CHANGED_FILE_STEPS: PointSteps = ((5, 30), (2, 15))
TOKEN_STEPS: PointSteps = ((50_000, 70), (30_000, 50), (15_000, 30), (5_000, 15))
POINTS_PER_SUCCESS, MAX_SUCCESS_POINTS = 20, 60
POINTS_PER_ARTIFACT, MAX_ARTIFACT_POINTS = 10, 30
COVERAGE_POINTS = 30
IDLE_TURN_STEPS: PointSteps = ((5, 70), (3, 40), (1, 20))
FAILURE_STEPS: PointSteps = ((3, 40), (1, 20))
STUCK_THRESHOLD = 60  # above it, stagnation means the frame is stuck: blocked or failed
USAGE_STEPS: PointSteps = ((0.9, 90), (0.8, 70), (0.7, 50), (0.5, 20))


class HeuristicScore(msgspec.Struct, frozen=True):
    """Points from 0 to 100 and their inputs. `reason` is a few words for a suggestion; `status` is what a pop would end
    the frame as."""

    points: int
    reason: str
    inputs: Mapping[str, ScoreInput] = msgspec.field(default_factory=dict)
    status: str = ""


class Heuristic(msgspec.Struct, frozen=True):
    """One of the seven; `kind` is push or pop. `count_points` is cheap and runs at every request;
    `build_score` runs only when the points matter."""

    name: str
    kind: str
    count_points: Callable[[FrameSignals], int]
    build_score: Callable[[FrameSignals, int], HeuristicScore]

    def score(self, signals: FrameSignals) -> HeuristicScore:
        return self.build_score(signals, self.count_points(signals))


def _points_for_failures(signals: FrameSignals) -> int:
    return min(MAX_ERROR_POINTS, POINTS_PER_ERROR * signals.errors) + NEW_GOAL_POINTS * bool(signals.goal)


def _points_for_switch(signals: FrameSignals) -> int:
    return _points_for_other_topic(signals) + _points_of_step(RECENT_FILE_STEPS, signals.files)


def _points_for_other_topic(signals: FrameSignals) -> int:
    """Points by the share of the request's own keywords; 0 without a new goal."""
    if not signals.goal_keywords:
        return 0
    return round_half_up(
        OTHER_TOPIC_POINTS * (1 - len(signals.frame_keywords & signals.goal_keywords) / len(signals.goal_keywords))
    )


def _points_for_complexity(signals: FrameSignals) -> int:
    return _points_of_step(MESSAGE_STEPS, signals.messages) + _points_of_step(CHANGED_FILE_STEPS, signals.files)


def _points_for_completion(signals: FrameSignals) -> int:
    successes = min(MAX_SUCCESS_POINTS, POINTS_PER_SUCCESS * len(signals.successes))
    artifacts = min(MAX_ARTIFACT_POINTS, POINTS_PER_ARTIFACT * signals.artifacts)
    return successes + artifacts + round_half_up(COVERAGE_POINTS * signals.goal_coverage)


def _points_for_stagnation(signals: FrameSignals) -> int:
    return _points_of_step(IDLE_TURN_STEPS, signals.idle_turns) + _points_of_step(FAILURE_STEPS, len(signals.failures))


def failure_boundary(signals: FrameSignals, points: int) -> HeuristicScore:
    """Errors without a success since, and a new goal: a unit that may be tried again."""
    reasons = [_pluralize(signals.errors, "error") + " since the last success"] if signals.errors else []
    reasons += ["a new goal"] if signals.goal else []
    return _build_heuristic_score(points, " and ".join(reasons), errors=signals.errors, new_goal=bool(signals.goal))


def context_switch(signals: FrameSignals, points: int) -> HeuristicScore:
    """The user asks for something in other words, and other files are involved."""
    shared = len(signals.frame_keywords & signals.goal_keywords)
    topic_points = _points_for_other_topic(signals)
    reasons = (
        [f"{shared} of the {len(signals.goal_keywords)} keywords of the request are this frame's"]
        if topic_points
        else []
    )
    reasons += [f"{signals.files} files changed lately"] if signals.files > 1 else []
    return _build_heuristic_score(
        points, ", ".join(reasons), keywords=len(signals.goal_keywords), shared=shared, files=signals.files
    )


def complexity(signals: FrameSignals, points: int) -> HeuristicScore:
    """Enough was done that a part of it deserves a summary of its own."""
    reason = f"{signals.messages} messages and {_pluralize(signals.files, 'changed file')} in this frame"
    return _build_heuristic_score(points, reason, messages=signals.messages, files=signals.files)


def duration(signals: FrameSignals, points: int) -> HeuristicScore:
    return _build_heuristic_score(points, f"{signals.tokens:,} tokens in this frame", tokens=signals.tokens)


def goal_completion(signals: FrameSignals, points: int) -> HeuristicScore:
    """The frame's goal seems to be reached."""
    signs = f" ({', '.join(signals.successes[:3])})" if signals.successes else ""
    reason = (
        f"{_pluralize(len(signals.successes), 'sign')} of success{signs}, {_pluralize(signals.artifacts, 'file')} made"
    )
    covered, artifacts = round(signals.goal_coverage, 2), signals.artifacts
    return _build_heuristic_score(
        points, reason, Status.COMPLETED, successes=len(signals.successes), artifacts=artifacts, covered=covered
    )


def stagnation(signals: FrameSignals, points: int) -> HeuristicScore:
    """Turns without news, and failures that stayed."""
    failing = len(signals.failures) > len(signals.successes)
    status = (Status.FAILED if failing else Status.BLOCKED) if points > STUCK_THRESHOLD else ""
    reason = (
        f"{_pluralize(signals.idle_turns, 'turn')} without progress, {_pluralize(len(signals.failures), 'failure')}"
    )
    return _build_heuristic_score(points, reason, status, idle_turns=signals.idle_turns, failures=len(signals.failures))


def context_overflow(signals: FrameSignals, points: int) -> HeuristicScore:
    share = round(signals.usage, 3)
    status = Status.COMPLETED if len(signals.successes) > len(signals.failures) else Status.BLOCKED
    return _build_heuristic_score(points, f"the window is {signals.usage:.0%} full", status, usage=share)


HEURISTICS: Mapping[str, Heuristic] = {
    told.__name__: Heuristic(told.__name__, kind, points, told)
    for kind, points, told in (
        (PUSH, _points_for_failures, failure_boundary),
        (PUSH, _points_for_switch, context_switch),
        (PUSH, _points_for_complexity, complexity),
        (PUSH, lambda signals: _points_of_step(TOKEN_STEPS, signals.tokens), duration),
        (POP, _points_for_completion, goal_completion),
        (POP, _points_for_stagnation, stagnation),
        (POP, lambda signals: _points_of_step(USAGE_STEPS, signals.usage), context_overflow),
    )
}


def round_half_up(value: float) -> int:
    """Round, with one half upwards. Python rounds half to even, which would shift the requirement's figures."""
    return int(value + 0.5)


def _points_of_step(steps: PointSteps, value: float) -> int:
    for exceeded, points in steps:
        if value > exceeded:
            return points
    return 0


def _build_heuristic_score(points: int, reason: str, status: str = "", **inputs: ScoreInput) -> HeuristicScore:
    return HeuristicScore(min(MAX_SCORE, points), reason, inputs, status)


def _pluralize(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# ------------------------------------------------------------------------------------------------------------ combined
CACHED_HEURISTIC_SETS = 64
"""One set from the configuration, and one for each conversation with its own choice."""


COMBINERS: Mapping[str, Callable[[Sequence[int]], float]] = {
    "max": lambda points: max(points, default=0),
    "noisy_or": lambda points: MAX_SCORE * (1 - math.prod(1 - each / MAX_SCORE for each in points)),
    "mean": lambda points: sum(points) / len(points) if points else 0,
}


class AutonomyVerdict(msgspec.Struct, frozen=True):
    """The verdict for a push or a pop. `scores` has all heuristics of that kind, enabled or not; `primary` is the
    enabled one with the most points, empty where none has any; `status` is what a pop would end as."""

    kind: str
    confidence: int
    threshold: int
    scores: Mapping[str, HeuristicScore]
    primary: str = ""
    status: str = ""

    @property
    def is_reached(self) -> bool:
        return bool(self.primary) and self.confidence >= self.threshold

    @property
    def reason(self) -> str:
        return self.scores[self.primary].reason if self.primary else ""


def judge(kind: str, signals: FrameSignals, rules: AutonomyRules) -> AutonomyVerdict:
    scores = {name: heuristic.score(signals) for name, heuristic in HEURISTICS.items() if heuristic.kind == kind}
    enabled = {name: score for name, score in scores.items() if name in rules.heuristics}
    confidence = _combine([score.points for score in enabled.values()], rules)
    primary = max(enabled, key=lambda name: enabled[name].points, default="")
    if primary and not enabled[primary].points:
        primary = ""
    status = (enabled[primary].status if primary else "") or (Status.BLOCKED if kind == POP and primary else "")
    return AutonomyVerdict(kind, confidence, rules.threshold(kind), scores, primary, status)


def may_reach_threshold(kind: str, signals: FrameSignals, rules: AutonomyRules) -> bool:
    """Whether the points alone reach the threshold. Nearly always they do not, and building the full scores is
    spared."""
    points = [min(MAX_SCORE, points(signals)) for points in _point_functions(kind, rules.heuristics)]
    return _combine(points, rules) >= rules.threshold(kind)


@lru_cache(CACHED_HEURISTIC_SETS)
def _point_functions(kind: str, names: tuple[str, ...]) -> list[Callable[[FrameSignals], int]]:
    return [each.count_points for name, each in HEURISTICS.items() if each.kind == kind and name in names]


def _combine(points: Sequence[int], rules: AutonomyRules) -> int:
    return min(MAX_SCORE, round_half_up(COMBINERS[rules.combine](points)))
