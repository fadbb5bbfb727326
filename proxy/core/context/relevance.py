"""Scores ancestors and siblings and selects those that a frame block shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from proxy.core.frames import Frame, Status
from proxy.core.text import count_shared_keywords

ANCESTOR_DEPTH_SCORES = {1: 1000, 2: 500}  # S1-54: parent, grandparent; deeper ones by the next two
ANCESTOR_DEEPER_BASE = 100
ANCESTOR_PER_LEVEL = 20
ANCESTOR_RECENCY = 50  # S1-54: less one an hour
ANCESTOR_STATUS = {Status.IN_PROGRESS: 30, Status.COMPLETED: 10}
ANCESTOR_RESULTS = 20
ANCESTOR_ARTIFACTS = 10
SIBLING_RECENCY = 100  # S1-56: less ten an hour
SIBLING_RECENCY_PER_HOUR = 10
SIBLING_CRITERIA_HIT = 20
SIBLING_RESULTS_HIT = 10
SIBLING_ARTIFACT_HIT = 25
SIBLING_RESULTS = 30
SIBLING_ARTIFACTS = 15
SIBLING_STATUS = {Status.COMPLETED: 20, Status.FAILED: 15}
MINIMUM_RELEVANCE = 30  # S1-57, of the part that words decide (D4, C10)
KEPT_NEWEST_SIBLINGS = 3  # C10


class SiblingScore(msgspec.Struct, frozen=True):
    """Only `relevance` (shared words) is compared with the threshold; `base` is what every finished frame has."""

    relevance: int
    base: float

    @property
    def total(self) -> float:
        return self.relevance + self.base


class AncestorScoreParts(msgspec.Struct, frozen=True):
    nearness: int
    recency: float
    status: int
    results: int
    artifacts: int

    @property
    def total(self) -> float:
        return self.nearness + self.recency + self.status + self.results + self.artifacts


class SharedWordScore(msgspec.Struct, frozen=True):
    """Points for words that a sibling shares with the frame being entered, by where they occur."""

    criteria: int
    results: int
    artifacts: int

    @property
    def total(self) -> int:
        return self.criteria + self.results + self.artifacts


class SiblingBaseScore(msgspec.Struct, frozen=True):
    """Points of a sibling that do not depend on its words."""

    recency: float
    results: int
    artifacts: int
    status: int

    @property
    def total(self) -> float:
        return self.recency + self.results + self.artifacts + self.status


def ancestor_score_parts(frame: Frame, depth: int, age_hours: float) -> AncestorScoreParts:
    """`depth` is 1 for the parent."""
    return AncestorScoreParts(
        ANCESTOR_DEPTH_SCORES.get(depth, max(0, ANCESTOR_DEEPER_BASE - ANCESTOR_PER_LEVEL * depth)),
        max(0.0, ANCESTOR_RECENCY - age_hours),
        ANCESTOR_STATUS.get(frame.status, 0),
        ANCESTOR_RESULTS if frame.results else 0,
        ANCESTOR_ARTIFACTS if frame.artifacts else 0,
    )


def score_ancestor(frame: Frame, depth: int, age_hours: float) -> float:
    """`depth` is 1 for the parent."""
    return ancestor_score_parts(frame, depth, age_hours).total


def score_shared_words(frame: Frame, keywords: frozenset[str]) -> SharedWordScore:
    return SharedWordScore(
        SIBLING_CRITERIA_HIT * count_shared_keywords(keywords, f"{frame.title} {frame.criteria}"),
        SIBLING_RESULTS_HIT * count_shared_keywords(keywords, f"{frame.results} {frame.results_compacted}"),
        SIBLING_ARTIFACT_HIT * count_shared_keywords(keywords, " ".join(frame.artifacts)),
    )


def sibling_base_score(frame: Frame, age_hours: float) -> SiblingBaseScore:
    return SiblingBaseScore(
        max(0.0, SIBLING_RECENCY - SIBLING_RECENCY_PER_HOUR * age_hours),
        SIBLING_RESULTS if frame.results else 0,
        SIBLING_ARTIFACTS if frame.artifacts else 0,
        SIBLING_STATUS.get(frame.status, 0),
    )


def score_sibling(frame: Frame, keywords: frozenset[str], age_hours: float) -> SiblingScore:
    return SiblingScore(score_shared_words(frame, keywords).total, sibling_base_score(frame, age_hours).total)


class FrameSelection(msgspec.Struct, frozen=True):
    """The selected frames in display order, and how many were left out."""

    chosen: tuple[Frame, ...]
    omitted: int


MinimumTokens = Callable[[Frame], int]
"""A cheap lower bound of a frame's tokens."""


def select_within_budget(
    frames: Iterable[Frame], costs: Mapping[str, int], budget: int, least: MinimumTokens = lambda _: 0
) -> tuple[Frame, ...]:
    """Take frames in order that fit `budget` tokens. `costs` is not read where the lower bound `least` is too large."""
    chosen: list[Frame] = []
    for frame in frames:
        if least(frame) <= budget and costs[frame.id] <= budget:
            chosen.append(frame)
            budget -= costs[frame.id]
    return tuple(chosen)


def select_ancestors(
    lineage: Sequence[Frame], costs: Mapping[str, int], ages: Mapping[str, float], budget: int
) -> FrameSelection:
    """The frames of `lineage` (parent first) that fit `budget`, root first. The parent is always selected."""
    if not lineage:
        return FrameSelection((), 0)
    parent, *others = lineage
    depth = {frame.id: at for at, frame in enumerate(lineage, 1)}
    ranked = sorted(others, key=lambda f: (-score_ancestor(f, depth[f.id], ages[f.id]), depth[f.id]))
    chosen = (parent, *select_within_budget(ranked, costs, budget - costs[parent.id]))
    return FrameSelection(tuple(sorted(chosen, key=lambda f: -depth[f.id])), len(lineage) - len(chosen))


def relevant_siblings(
    levels: Sequence[Sequence[Frame]], scores: Mapping[str, SiblingScore]
) -> tuple[tuple[Frame, ...], ...]:
    """Of each of `levels` the frames with enough relevance, and the newest of all levels, ranked by score."""
    by_age = sorted((f for level in levels for f in level), key=_newest_first)
    newest = {f.id for f in by_age[:KEPT_NEWEST_SIBLINGS]}
    return tuple(
        tuple(
            sorted(
                (f for f in level if f.id in newest or scores[f.id].relevance >= MINIMUM_RELEVANCE),
                key=lambda f: (f.id not in newest, -scores[f.id].total, -f.order),
            )
        )
        for level in levels
    )


def select_siblings(
    levels: Sequence[Sequence[Frame]], costs: Mapping[str, int], budget: int, least: MinimumTokens = lambda _: 0
) -> FrameSelection:
    """The frames of `levels` (nearest first, ranked) that fit `budget`, shown by level and most recent first."""
    chosen = {f.id for f in select_within_budget((f for level in levels for f in level), costs, budget, least)}
    shown = [f for level in levels for f in sorted(level, key=_newest_first) if f.id in chosen]
    return FrameSelection(tuple(shown), sum(map(len, levels)) - len(shown))


def _newest_first(frame: Frame) -> tuple[int, int]:
    return (-frame.updated_at, -frame.order)
