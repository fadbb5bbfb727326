"""Why each ancestor and each finished sibling stands in a frame's block, or does not (S1-54, S1-56).

The law: **nothing is weighed anew**. Scores come from the functions that chose (`ranking`, `surroundings`), of the tree
and the time at which the frame was entered, and whether one stands there is read in the block itself.

What this module does not do: it looks for no event (`views.explained` finds that tree and that time), and chooses
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from proxy.core.context.frame_block import LONGEST_SHARE, described, named_beside
from proxy.core.context.relatives import View, finished_beside, keywords_of, view_of
from proxy.core.context.relevance import (
    MINIMUM_RELEVANCE,
    AncestorParts,
    SharedWords,
    SiblingRest,
    ancestor_parts,
    shared_words,
    sibling_rest,
)
from proxy.core.frames.tree import Frame, Tree, path_to
from proxy.core.text import Count

MINIMAL = re.compile(r'<stack-context [^>]*\bview="minimal"')
"""The form that tells the goal and the task, and no sibling."""


class Why(StrEnum):
    """What decided."""

    ROOT = "root"  # the goal always stands
    PARENT = "parent"  # so does the frame above
    SCORE = "score"  # an ancestor that fitted, the best first
    RETRIED = "retried"  # the attempt before this one
    WORDS = "words"  # what it is about has to do with the frame
    NEWEST = "newest"  # one of the three newest
    OTHER_WORDS = "other words"  # left out: it has too little to do with the frame, and newer ones there are
    NO_ROOM = "no room"  # left out: others took the budget
    VIEW = "view"  # left out: the minimal view does not tell of it


class Ancestor(msgspec.Struct, frozen=True):
    """`depth` is 1 for the parent. `tokens` is what it takes in the block; of one that is left out, what it would have
    taken at most."""

    frame: Frame
    depth: int
    score: float
    parts: AncestorParts
    kept: bool
    why: Why
    tokens: int


class Sibling(msgspec.Struct, frozen=True):
    """`level` is 0 beside the frame, 1 beside its parent, and so on. `relevance` is the part of the score on which the
    threshold is (D4)."""

    frame: Frame
    level: int
    score: float
    relevance: int
    words: SharedWords
    rest: SiblingRest
    kept: bool
    why: Why
    tokens: int


class Explanation(msgspec.Struct, frozen=True):
    """The parent first, then by score; siblings by level, and in each by score."""

    ancestors: tuple[Ancestor, ...]
    siblings: tuple[Sibling, ...]


def explained(tree: Tree, frame: str, now: int, block: str, count: Count) -> Explanation:
    """Of the block that `frame` was told as it was entered: `tree` is the state with it begun, `now` (ms) when that
    was."""
    view = view_of(tree, frame, now)
    shown = _Shown(block[max(0, block.rfind("<stack-context ")) :], count)  # before it, words on an earlier attempt
    above = [_ancestor(view, shown, depth) for depth in range(1, len(view.lineage) + 1)]
    levels = finished_beside(tree, path_to(tree, frame))
    beside = [_sibling(view, shown, f, level) for level, found in enumerate(levels) for f in found]
    return Explanation(
        tuple(sorted(above, key=lambda a: (a.why is not Why.PARENT, -a.score, a.depth))),
        tuple(sorted(beside, key=lambda s: (s.level, -s.score, -s.frame.order))),
    )


class _Shown(msgspec.Struct, frozen=True):
    """What stands in a block. All text in it is escaped, so nothing anybody wrote looks like the start of a frame."""

    block: str
    count: Count

    def of(self, frame: Frame) -> str:
        """What it says of a frame itself; empty where it says nothing of it."""
        found = re.search(rf'<([a-z-]+)(?: [a-z-]+="[^"]*")*? (?:id|ref)="{re.escape(frame.id)}"[^>]*>', self.block)
        if found is None:
            return ""
        end = re.compile(rf"<child |</{found[1]}>").search(self.block, found.end())
        return self.block[found.start() : end.end() if end and end[0][1] == "/" else end.start() if end else None]

    def tokens(self, frame: Frame, attributes: Mapping[str, str]) -> int:
        return self.count(self.of(frame) or described(frame, attributes, LONGEST_SHARE, self.count))

    @property
    def is_minimal(self) -> bool:
        return MINIMAL.search(self.block) is not None


def _ancestor(view: View, shown: _Shown, depth: int) -> Ancestor:
    frame = view.lineage[depth - 1]
    parts = ancestor_parts(frame, depth, view.ages[frame.id])
    kept = bool(shown.of(frame))
    tokens = shown.tokens(frame, {"id": frame.id, "status": frame.status})
    return Ancestor(frame, depth, parts.total, parts, kept, _why_above(view, shown, depth, kept=kept), tokens)


def _why_above(view: View, shown: _Shown, depth: int, *, kept: bool) -> Why:
    if not kept:
        return Why.VIEW if shown.is_minimal else Why.NO_ROOM
    if depth == 1:
        return Why.PARENT
    return Why.ROOT if depth == len(view.lineage) else Why.SCORE


def _sibling(view: View, shown: _Shown, frame: Frame, level: int) -> Sibling:
    score = view.scores[frame.id]
    words, rest = shared_words(frame, keywords_of(view.frame)), sibling_rest(frame, view.ages[frame.id])
    kept = bool(shown.of(frame))
    tokens = shown.tokens(frame, named_beside(view, frame))
    why = _why_beside(view, shown, frame, kept=kept)
    return Sibling(frame, level, score.total, score.relevance, words, rest, kept, why, tokens)


def _why_beside(view: View, shown: _Shown, frame: Frame, *, kept: bool) -> Why:
    if not kept and shown.is_minimal:
        return Why.VIEW
    if not any(frame in level for level in view.levels):
        return Why.OTHER_WORDS
    if not kept:
        return Why.NO_ROOM
    if frame.id == view.frame.retry_of:
        return Why.RETRIED
    return Why.WORDS if view.scores[frame.id].relevance >= MINIMUM_RELEVANCE else Why.NEWEST
