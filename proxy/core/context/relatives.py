"""The relatives that a frame block may mention. Ages are measured once, when the frame is entered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence

import msgspec

from proxy.core.context.relevance import MINIMUM_RELEVANCE, SiblingScore, relevant_siblings, score_sibling
from proxy.core.frames import Frame, Status, Tree, children, path_to, siblings, tasks_above
from proxy.core.text import extract_keywords

FINISHED_STATUSES = frozenset({Status.COMPLETED, Status.FAILED, Status.BLOCKED})
"""Siblings that are listed; failures are as useful as successes."""
RETRIED_FRAME_SCORE = 1_000_000.0
MS_PER_HOUR = 3_600_000


class FrameSurroundings(msgspec.Struct, frozen=True):
    """A frame and the frames that its block may mention. `lineage` are the tasks above it, the parent first and the
    user's request last; `sibling_levels` are ranked
    siblings of each frame on the path, nearest level first. `child_counts` counts the children of each frame."""

    frame: Frame
    lineage: tuple[Frame, ...]
    sibling_levels: tuple[tuple[Frame, ...], ...]
    finished_count: int
    frame_and_siblings: tuple[Frame, ...]
    planned_children: tuple[Frame, ...]
    ages_hours: Mapping[str, float]
    child_counts: Mapping[str, int]
    scores: Mapping[str, SiblingScore]
    """Scores of every finished sibling, ranked or not."""
    without_messages: frozenset[str] = frozenset()
    """Finished siblings without messages: `stack_recall` finds nothing of them."""
    planned_beside_path: tuple[Frame, ...] = ()
    """Planned siblings of the frame and of those above it, nearest level first."""
    has_plan: bool = False
    """Any frame of the tree is planned."""


def surroundings_of(tree: Tree, frame_id: str, now: int, in_view: Container[str] = frozenset()) -> FrameSurroundings:
    """`now` is in ms. `in_view` are finished frames of which the context tells already."""
    frame = tree.frames[frame_id]
    path = path_to(tree, frame_id)
    ages = {f.id: max(0, now - f.updated_at) / MS_PER_HOUR for f in tree.frames.values()}
    levels = [[f for f in level if f.id not in in_view] for level in finished_siblings(tree, path)]
    keywords = keywords_of(frame)
    scores = {f.id: score_sibling(f, keywords, ages[f.id]) for level in levels for f in level}
    if frame.retry_of in scores:  # what failed before is the one thing a retry must know
        scores[frame.retry_of] = SiblingScore(MINIMUM_RELEVANCE + scores[frame.retry_of].relevance, RETRIED_FRAME_SCORE)
    return FrameSurroundings(
        frame,
        tasks_above(tree, frame_id),
        relevant_siblings(levels, scores),
        sum(map(len, levels)),
        frame_and_siblings(tree, frame),
        planned_children(tree, frame_id),
        ages,
        Counter(f.parent for f in tree.frames.values() if not f.is_part),
        scores,
        frozenset(f.id for level in levels for f in level if has_no_messages(tree, f)),
        tuple(f for each in reversed(path) if each.parent for f in planned_children(tree, each.parent)),
        any(f.status is Status.PLANNED for f in tree.frames.values()),
    )


def has_no_messages(tree: Tree, frame: Frame) -> bool:
    """Whether neither a finished frame nor any below has messages: the client ticked off a plan item unstarted."""
    ticked_off = frame.origin == "plan" and not (frame.tokens or frame.opening or frame.was_stopped_in_place)
    return ticked_off and all(has_no_messages(tree, below) for below in children(tree, frame.id))


def finished_siblings(tree: Tree, path: Sequence[Frame]) -> tuple[tuple[Frame, ...], ...]:
    """Finished siblings of each frame of `path` (root first), nearest level first, without parts."""
    return tuple(
        tuple(f for f in siblings(tree, frame.id) if f.status in FINISHED_STATUSES and not f.is_part)
        for frame in reversed(path)
    )


def keywords_of(frame: Frame) -> frozenset[str]:
    return extract_keywords(f"{frame.title} {frame.criteria}")


def frame_and_siblings(tree: Tree, frame: Frame) -> tuple[Frame, ...]:
    """In order of creation."""
    return children(tree, frame.parent) if frame.parent else (frame,)


def planned_children(tree: Tree, frame_id: str) -> tuple[Frame, ...]:
    """Children that have not begun, in order of creation."""
    return tuple(f for f in children(tree, frame_id) if f.status is Status.PLANNED)
