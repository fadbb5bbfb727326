"""One figure of several scores, and the rules by which it counts (S1-84, S1-91b, C7).

The mean of the scores, as it was once defined, asks all of them to be high at once: no two of the three that speak
for a pop reach its threshold (D1). So the highest one counts unless somebody chooses otherwise; `noisy_or` lets
several middling ones add up, as independent reasons would.

The law: **a combined score lies between 0 and 100**, and each way of combining reaches the thresholds the rules come
with.

What this module does not do: it measures nothing, and says nothing of what follows from a figure.
"""

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
"""Choices of heuristics whose points are at hand: the configuration's, and those of conversations with their own."""


def _highest(points: Sequence[int]) -> float:
    return max(points, default=0)


def _noisy_or(points: Sequence[int]) -> float:
    return MAX_SCORE * (1 - math.prod(1 - each / MAX_SCORE for each in points))


def _mean(points: Sequence[int]) -> float:
    return sum(points) / len(points) if points else 0


COMBINERS: Mapping[str, Callable[[Sequence[int]], float]] = {"max": _highest, "noisy_or": _noisy_or, "mean": _mean}


class AutonomyVerdict(msgspec.Struct, frozen=True):
    """What the heuristics say of a push or a pop. `scores` are of all of them that speak for it, enabled or not;
    `primary` is the enabled one with the most points, empty where none has any. `status` is what a pop would end as."""

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


def judge(kind: str, seen: FrameSignals, rules: AutonomyRules) -> AutonomyVerdict:
    """What speaks for a push or a pop, by these rules."""
    scores = {name: each.score(seen) for name, each in HEURISTICS.items() if each.kind == kind}
    enabled = {name: score for name, score in scores.items() if name in rules.heuristics}
    confidence = _combine([score.points for score in enabled.values()], rules)
    primary = max(enabled, key=lambda name: enabled[name].points, default="")
    if primary and not enabled[primary].points:
        primary = ""
    status = (enabled[primary].status if primary else "") or (Status.BLOCKED if kind == POP and primary else "")
    return AutonomyVerdict(kind, confidence, rules.threshold(kind), scores, primary, status)


def may_reach_threshold(kind: str, seen: FrameSignals, rules: AutonomyRules) -> bool:
    """Whether the points alone reach the threshold: nearly never, and then no word need be made of them."""
    points = [min(MAX_SCORE, points(seen)) for points in _point_functions(kind, rules.heuristics)]
    return _combine(points, rules) >= rules.threshold(kind)


@lru_cache(CACHED_HEURISTIC_SETS)
def _point_functions(kind: str, names: tuple[str, ...]) -> list[Callable[[FrameSignals], int]]:
    return [each.count_points for name, each in HEURISTICS.items() if each.kind == kind and name in names]


def _combine(points: Sequence[int], rules: AutonomyRules) -> int:
    return min(MAX_SCORE, round_half_up(COMBINERS[rules.combine](points)))
