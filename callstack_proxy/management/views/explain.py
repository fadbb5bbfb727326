"""Explains why each ancestor and finished sibling is in the block of the active frame, or is not. Scores are those of
the time at which the block was rendered, or of now if there is none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, cast

import msgspec
from msgspec.structs import asdict
from typing_extensions import TypedDict

from callstack_proxy.management.views.as_of import ledger_at
from callstack_proxy.management.views.contexts import BudgetsView, active_block, budgets_view
from proxy.config import Config
from proxy.config.for_core import tool_settings
from proxy.core.context import (
    MAX_FRAME_TOKENS,
    MINIMUM_RELEVANCE,
    FrameSurroundings,
    ancestor_score_parts,
    finished_siblings,
    frame_element,
    keywords_of,
    score_shared_words,
    sibling_attributes,
    sibling_base_score,
    surroundings_of,
)
from proxy.core.frames import (
    BlockRenewed,
    Frame,
    FrameActivated,
    FramePushed,
    PathState,
    Tree,
    decode_event,
    path_to,
    replay,
)
from proxy.core.ledger import Ledger, LedgerEvent
from proxy.core.text import CountTokens

InclusionReason = Literal[
    "root",  # the goal always stands
    "parent",  # so does the frame above
    "score",  # an ancestor that fitted, the best first
    "retried",  # the attempt before this one
    "words",  # what it is about has to do with the frame
    "newest",  # one of the three newest
    "other words",  # left out: it has too little to do with the frame, and newer ones there are
    "no room",  # left out: others took the budget
    "in view",  # left out: the parent's context, which a fork has, tells of it
    "view",  # left out: the minimal view does not tell of it
]
"""Why a frame is in a block or left out."""
EVENTS_WITH_BLOCK = ("pushed", "activated", "block renewed")
"""Kinds of events that carry a block."""
MINIMAL_BLOCK_TAG = re.compile(r'<stack-context [^>]*\bview="minimal"')
"""The minimal form, which shows no siblings."""


class AncestorScoreView(TypedDict):
    nearness: int
    recency: float
    status: int
    results: int
    artifacts: int


class RelativeView(TypedDict):
    """`kept` where it stands in the block, and `why` it does or does not. `tokens`: what it takes there; of one that is
    left out, what it would have taken at most."""

    frame: str
    title: str
    status: str
    kept: bool
    why: InclusionReason
    tokens: int
    score: float


class AncestorView(RelativeView):
    """`depth` is 1 for the parent; `score` is the sum of its `parts`."""

    depth: int
    parts: AncestorScoreView


class SharedWordsView(TypedDict):
    criteria: int
    results: int
    artifacts: int


class SiblingScoreView(TypedDict):
    recency: float
    results: int
    artifacts: int
    status: int


class SiblingView(RelativeView):
    """`level` is 0 beside the frame, 1 beside its parent, and so on. `relevance`, the sum of its `words`, has to reach
    `minimum_relevance`, or it is one of the three newest; `score` is that and the sum of the `rest`, but for an attempt
    before this one, which goes first."""

    level: int
    relevance: int
    words: SharedWordsView
    rest: SiblingScoreView


class ExplanationView(TypedDict):
    """`at` (ms) is when the block was told; null where none was, and all is as it would be now. The parent first, then
    by score; siblings by level, and in each by score."""

    conversation: str
    frame: str
    title: str
    at: int | None
    budgets: BudgetsView
    minimum_relevance: int
    ancestors: list[AncestorView]
    siblings: list[SiblingView]


def explanation_view(
    ledger: Ledger, path_state: PathState, config: Config, now: int, count: CountTokens
) -> ExplanationView:
    """Raises NotFound if no frame was begun."""
    block, was_told = active_block(ledger, path_state, config, now, count)
    frame = path_state.tree.active
    event = _event_with_block(ledger, frame, block) if was_told else None
    tree, at = (_tree_at(ledger, event), event.created) if event else (path_state.tree, now)
    ancestors, siblings = explain_block(tree, frame, at, block, count)
    return {
        "conversation": ledger.conversation.id,
        "frame": frame,
        "title": path_state.tree.as_shown.active_frame.title,
        "at": event.created if event else None,
        "budgets": budgets_view(tool_settings(config).budgets),
        "minimum_relevance": MINIMUM_RELEVANCE,
        "ancestors": ancestors,
        "siblings": siblings,
    }


def _event_with_block(ledger: Ledger, frame: str, block: str) -> LedgerEvent | None:
    events = (event for records in ledger.events.values() for event in records if event.kind in EVENTS_WITH_BLOCK)
    return max(
        (event for event in events if _has_block(event, frame, block)), key=lambda event: event.seq, default=None
    )


def _has_block(event: LedgerEvent, frame: str, block: str) -> bool:
    decoded = decode_event(event)
    return isinstance(decoded, FramePushed | FrameActivated | BlockRenewed) and (decoded.frame, decoded.block) == (
        frame,
        block,
    )


def _tree_at(ledger: Ledger, event: LedgerEvent) -> Tree:
    past = ledger_at(ledger, event.created)
    past.events[event.entry] = tuple(record for record in past.events[event.entry] if record.seq <= event.seq)
    return replay(past, past.path(event.entry), {}).tree


def explain_block(
    tree: Tree, frame: str, now: int, block: str, count: CountTokens
) -> tuple[list[AncestorView], list[SiblingView]]:
    """Explain `block`. `tree` is the state just after the frame began; `now` is the time of entry in ms."""
    surroundings = surroundings_of(tree, frame, now)
    reader = _BlockReader(block[max(0, block.rfind("<stack-context ")) :], count)  # before it: the earlier attempt
    above = [_ancestor(surroundings, reader, depth) for depth in range(1, len(surroundings.lineage) + 1)]
    levels = enumerate(finished_siblings(tree, path_to(tree, frame)))
    ranked = sorted(
        ((level, sibling) for level, found in levels for sibling in found),
        key=lambda each: (each[0], -surroundings.scores[each[1].id].total, -each[1].order),
    )
    return (
        sorted(above, key=lambda view: (view["why"] != "parent", -view["score"], view["depth"])),
        [_sibling(surroundings, reader, sibling, level) for level, sibling in ranked],
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


def _ancestor(surroundings: FrameSurroundings, reader: _BlockReader, depth: int) -> AncestorView:
    frame = surroundings.lineage[depth - 1]
    parts = ancestor_score_parts(frame, depth, surroundings.ages_hours[frame.id])
    kept = bool(reader.element_of(frame))
    return {
        "frame": frame.id,
        "title": frame.title,
        "status": str(frame.status),
        "depth": depth,
        "kept": kept,
        "why": _ancestor_reason(surroundings, reader, depth, kept=kept),
        "tokens": reader.frame_tokens(frame, {"id": frame.id, "status": frame.status}),
        "score": parts.total,
        "parts": cast(AncestorScoreView, asdict(parts)),
    }


def _ancestor_reason(
    surroundings: FrameSurroundings, reader: _BlockReader, depth: int, *, kept: bool
) -> InclusionReason:
    if not kept:
        return "view" if reader.is_minimal else "no room"
    if depth == 1:
        return "parent"
    return "root" if depth == len(surroundings.lineage) else "score"


def _sibling(surroundings: FrameSurroundings, reader: _BlockReader, frame: Frame, level: int) -> SiblingView:
    score = surroundings.scores[frame.id]
    kept = bool(reader.element_of(frame))
    return {
        "frame": frame.id,
        "title": frame.title,
        "status": str(frame.status),
        "level": level,
        "kept": kept,
        "why": _sibling_reason(surroundings, reader, frame, kept=kept),
        "tokens": reader.frame_tokens(frame, sibling_attributes(surroundings, frame)),
        "score": score.total,
        "relevance": score.relevance,
        "words": cast(SharedWordsView, asdict(score_shared_words(frame, keywords_of(surroundings.frame)))),
        "rest": cast(SiblingScoreView, asdict(sibling_base_score(frame, surroundings.ages_hours[frame.id]))),
    }


def _sibling_reason(
    surroundings: FrameSurroundings, reader: _BlockReader, frame: Frame, *, kept: bool
) -> InclusionReason:
    if not kept and reader.is_minimal:
        return "view"
    opening = surroundings.frame.opening
    if not kept and reader.is_of_fork and opening and opening.view == "fork":
        return "in view"
    if not any(frame in level for level in surroundings.sibling_levels):
        return "other words"
    if not kept:
        return "no room"
    if frame.id == surroundings.frame.retry_of:
        return "retried"
    return "words" if surroundings.scores[frame.id].relevance >= MINIMUM_RELEVANCE else "newest"
