"""What there is to say to a frame of the tree around it: the way to it, what ended beside it, what is planned.

The law: **the age of everything is taken once**, as the frame is entered, and what is chosen by it is never chosen anew
(D12).

What this module does not do: it writes nothing and knows no budget; the forms of the block (`block`, `block_nested`,
`block_minimal`) do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from proxy.core.context.relevance import MINIMUM_RELEVANCE, SiblingScore, relevant_siblings, score_sibling
from proxy.core.frames import Frame, Status, Tree, ancestors, children, path_to, siblings
from proxy.core.text import extract_keywords

FINISHED_STATUSES = frozenset({Status.COMPLETED, Status.FAILED, Status.BLOCKED})
"""What siblings are listed for: failures tell as much as successes (C10)."""
RETRIED_FRAME_SCORE = 1_000_000.0
MS_PER_HOUR = 3_600_000


class FrameSurroundings(msgspec.Struct, frozen=True):
    """A frame and what a block may say about the tree around it. `lineage` is the parent first, the root last;
    `levels` are the finished siblings of each frame on the path, the nearest level first, ranked; `below` counts the
    children of each frame. Ages are in hours."""

    frame: Frame
    lineage: tuple[Frame, ...]
    sibling_levels: tuple[tuple[Frame, ...], ...]
    finished_count: int
    frame_and_siblings: tuple[Frame, ...]
    planned_children: tuple[Frame, ...]
    ages_hours: Mapping[str, float]
    child_counts: Mapping[str, int]
    scores: Mapping[str, SiblingScore]
    """Of every finished sibling, also of those that are not ranked."""
    without_messages: frozenset[str] = frozenset()
    """Finished siblings in which nothing was said: there is nothing to recall of them."""


def surroundings_of(tree: Tree, frame_id: str, now: int) -> FrameSurroundings:
    """What there is to say to this frame at `now` (ms)."""
    frame = tree.frames[frame_id]
    path = path_to(tree, frame_id)
    ages = {f.id: max(0, now - f.updated_at) / MS_PER_HOUR for f in tree.frames.values()}
    levels = finished_siblings(tree, path)
    keywords = keywords_of(frame)
    scores = {f.id: score_sibling(f, keywords, ages[f.id]) for level in levels for f in level}
    if frame.retry_of in scores:  # what failed before is the one thing a retry must know
        scores[frame.retry_of] = SiblingScore(MINIMUM_RELEVANCE + scores[frame.retry_of].relevance, RETRIED_FRAME_SCORE)
    return FrameSurroundings(
        frame,
        tuple(ancestors(tree, frame_id)),
        relevant_siblings(levels, scores),
        sum(map(len, levels)),
        frame_and_siblings(tree, frame),
        planned_children(tree, frame_id),
        ages,
        Counter(f.parent for f in tree.frames.values()),
        scores,
        frozenset(f.id for level in levels for f in level if has_no_messages(tree, f)),
    )


def has_no_messages(tree: Tree, frame: Frame) -> bool:
    """Whether nothing was said in a finished frame or below it: an item of the client's plan that was ticked off
    without having been begun. Whatever else ends has been worked in, or is a conversation of its own."""
    ticked_off = frame.origin == "plan" and not (frame.tokens or frame.opening or frame.was_stopped_in_place)
    return ticked_off and all(has_no_messages(tree, below) for below in children(tree, frame.id))


def finished_siblings(tree: Tree, path: Sequence[Frame]) -> tuple[tuple[Frame, ...], ...]:
    """The finished siblings of each frame of `path` (from the root down), the nearest level first."""
    return tuple(tuple(f for f in siblings(tree, each.id) if f.status in FINISHED_STATUSES) for each in reversed(path))


def keywords_of(frame: Frame) -> frozenset[str]:
    """The words by which siblings have to do with it."""
    return extract_keywords(f"{frame.title} {frame.criteria}")


def frame_and_siblings(tree: Tree, frame: Frame) -> tuple[Frame, ...]:
    """The frame and its siblings, in order of birth."""
    return children(tree, frame.parent) if frame.parent else (frame,)


def planned_children(tree: Tree, frame_id: str) -> tuple[Frame, ...]:
    """Its children that have not begun, in order of birth."""
    return tuple(f for f in children(tree, frame_id) if f.status is Status.PLANNED)
