"""Explains why each ancestor and finished sibling is, or is not, in the block that a frame received. Scores come from
the functions that made the choice, with the tree and time of entry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from proxy.core.context.relatives import FrameSurroundings, finished_siblings, keywords_of, surroundings_of
from proxy.core.context.relevance import (
    MINIMUM_RELEVANCE,
    AncestorScoreParts,
    SharedWordScore,
    SiblingBaseScore,
    ancestor_score_parts,
    score_shared_words,
    sibling_base_score,
)
from proxy.core.context.write_frame_block import MAX_FRAME_TOKENS, frame_element, sibling_attributes
from proxy.core.frames import Frame, Tree, path_to
from proxy.core.text import CountTokens

MINIMAL_BLOCK_TAG = re.compile(r'<stack-context [^>]*\bview="minimal"')
"""The minimal form, which shows no siblings."""


class SelectionReason(StrEnum):
    """Why a frame was shown or left out."""

    ROOT = "root"  # the goal always stands
    PARENT = "parent"  # so does the frame above
    SCORE = "score"  # an ancestor that fitted, the best first
    RETRIED = "retried"  # the attempt before this one
    WORDS = "words"  # what it is about has to do with the frame
    NEWEST = "newest"  # one of the three newest
    OTHER_WORDS = "other words"  # left out: it has too little to do with the frame, and newer ones there are
    NO_ROOM = "no room"  # left out: others took the budget
    IN_VIEW = "in view"  # left out: the parent's context, which a fork has, tells of it
    VIEW = "view"  # left out: the minimal view does not tell of it


class ExplainedAncestor(msgspec.Struct, frozen=True):
    """`depth` is 1 for the parent. `tokens` is the size in the block, or the largest possible one if left out."""

    frame: Frame
    depth: int
    score: float
    parts: AncestorScoreParts
    kept: bool
    why: SelectionReason
    tokens: int


class ExplainedSibling(msgspec.Struct, frozen=True):
    """`level` is 0 beside the frame, 1 beside its parent. `relevance` is compared with `MINIMUM_RELEVANCE`."""

    frame: Frame
    level: int
    score: float
    relevance: int
    words: SharedWordScore
    base_score: SiblingBaseScore
    kept: bool
    why: SelectionReason
    tokens: int


class BlockExplanation(msgspec.Struct, frozen=True):
    """Ancestors: the parent first, then by score. Siblings: by level, then by score."""

    ancestors: tuple[ExplainedAncestor, ...]
    siblings: tuple[ExplainedSibling, ...]


def explain_block(tree: Tree, frame: str, now: int, block: str, count: CountTokens) -> BlockExplanation:
    """Explain `block`. `tree` is the state just after the frame began; `now` is the time of entry in ms."""
    surroundings = surroundings_of(tree, frame, now)
    reader = _BlockReader(
        block[max(0, block.rfind("<stack-context ")) :], count
    )  # before it, words on an earlier attempt
    above = [_explain_ancestor(surroundings, reader, depth) for depth in range(1, len(surroundings.lineage) + 1)]
    levels = finished_siblings(tree, path_to(tree, frame))
    beside = [_explain_sibling(surroundings, reader, f, level) for level, found in enumerate(levels) for f in found]
    return BlockExplanation(
        tuple(sorted(above, key=lambda a: (a.why is not SelectionReason.PARENT, -a.score, a.depth))),
        tuple(sorted(beside, key=lambda s: (s.level, -s.score, -s.frame.order))),
    )


class _BlockReader(msgspec.Struct, frozen=True):
    """Reads frames out of a block. All text in a block is escaped, so no quoted text can look like a frame element."""

    block: str
    count: CountTokens

    def element_of(self, frame: Frame) -> str:
        """The element of a frame without its children; empty if the frame is not in the block."""
        start_tag = re.search(rf'<([a-z-]+)(?: [a-z-]+="[^"]*")*? (?:id|ref)="{re.escape(frame.id)}"[^>]*>', self.block)
        if start_tag is None:
            return ""
        end = re.compile(rf"<child |</{start_tag[1]}>").search(self.block, start_tag.end())
        if end is None:
            return self.block[start_tag.start() :]
        return self.block[start_tag.start() : end.start() if end[0].startswith("<child") else end.end()]

    def frame_tokens(self, frame: Frame, attributes: Mapping[str, str]) -> int:
        return self.count(self.element_of(frame) or frame_element(frame, attributes, MAX_FRAME_TOKENS, self.count))

    @property
    def is_of_fork(self) -> bool:
        """Whether it tells of no finished sibling, as the block of a fork."""
        return "<completed-siblings" not in self.block

    @property
    def is_minimal(self) -> bool:
        return MINIMAL_BLOCK_TAG.search(self.block) is not None


def _explain_ancestor(view: FrameSurroundings, reader: _BlockReader, depth: int) -> ExplainedAncestor:
    frame = view.lineage[depth - 1]
    parts = ancestor_score_parts(frame, depth, view.ages_hours[frame.id])
    kept = bool(reader.element_of(frame))
    tokens = reader.frame_tokens(frame, {"id": frame.id, "status": frame.status})
    return ExplainedAncestor(
        frame, depth, parts.total, parts, kept, _ancestor_reason(view, reader, depth, kept=kept), tokens
    )


def _ancestor_reason(view: FrameSurroundings, reader: _BlockReader, depth: int, *, kept: bool) -> SelectionReason:
    if not kept:
        return SelectionReason.VIEW if reader.is_minimal else SelectionReason.NO_ROOM
    if depth == 1:
        return SelectionReason.PARENT
    return SelectionReason.ROOT if depth == len(view.lineage) else SelectionReason.SCORE


def _explain_sibling(view: FrameSurroundings, reader: _BlockReader, frame: Frame, level: int) -> ExplainedSibling:
    score = view.scores[frame.id]
    words, rest = (
        score_shared_words(frame, keywords_of(view.frame)),
        sibling_base_score(frame, view.ages_hours[frame.id]),
    )
    kept = bool(reader.element_of(frame))
    tokens = reader.frame_tokens(frame, sibling_attributes(view, frame))
    why = _sibling_reason(view, reader, frame, kept=kept)
    return ExplainedSibling(frame, level, score.total, score.relevance, words, rest, kept, why, tokens)


def _sibling_reason(view: FrameSurroundings, reader: _BlockReader, frame: Frame, *, kept: bool) -> SelectionReason:
    if not kept and reader.is_minimal:
        return SelectionReason.VIEW
    if not kept and reader.is_of_fork and view.frame.opening and view.frame.opening.view == "fork":
        return SelectionReason.IN_VIEW
    if not any(frame in level for level in view.sibling_levels):
        return SelectionReason.OTHER_WORDS
    if not kept:
        return SelectionReason.NO_ROOM
    if frame.id == view.frame.retry_of:
        return SelectionReason.RETRIED
    return SelectionReason.WORDS if view.scores[frame.id].relevance >= MINIMUM_RELEVANCE else SelectionReason.NEWEST
