"""Combines the scores of the enabled heuristics into one figure from 0 to 100 and compares it with the thresholds. The
default is the maximum: a mean would need all scores high at once, and no two of the three pop heuristics reach the
threshold by a mean. `noisy_or` adds up several middling scores, as independent reasons would."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import msgspec

from proxy.core.frames import POP, Status
from proxy.core.policy.autonomy_rules import MAX_SCORE, AutonomyRules
from proxy.core.policy.heuristics import HEURISTICS, HeuristicScore, round_half_up
from proxy.core.policy.signals import FrameSignals

CACHED_HEURISTIC_SETS = 64
"""One set from the configuration, and one for each conversation with its own choice."""


def _highest(points: Sequence[int]) -> float:
    return max(points, default=0)


def _noisy_or(points: Sequence[int]) -> float:
    return MAX_SCORE * (1 - math.prod(1 - each / MAX_SCORE for each in points))


def _mean(points: Sequence[int]) -> float:
    return sum(points) / len(points) if points else 0


COMBINERS: Mapping[str, Callable[[Sequence[int]], float]] = {"max": _highest, "noisy_or": _noisy_or, "mean": _mean}


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
