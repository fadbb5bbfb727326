"""Explains why each ancestor and finished sibling is in the block of the active frame, or is not. Scores are those of
the time at which the block was rendered, or of now if there is none."""

from __future__ import annotations

from typing import Literal, cast

from msgspec.structs import asdict
from typing_extensions import TypedDict

from callstack_proxy.management.views.as_of import ledger_at
from callstack_proxy.management.views.contexts import BudgetsView, active_block, budgets_view
from proxy.config import Config
from proxy.config.for_core import tool_settings
from proxy.core.context import MINIMUM_RELEVANCE, ExplainedAncestor, ExplainedSibling, explain_block
from proxy.core.frames import BlockRenewed, FrameActivated, FramePushed, PathState, Tree, decode_event, replay
from proxy.core.ledger import Ledger, LedgerEvent
from proxy.core.text import CountTokens

InclusionReason = Literal[
    "root", "parent", "score", "retried", "words", "newest", "other words", "no room", "in view", "view"
]
EVENTS_WITH_BLOCK = ("pushed", "activated", "block renewed")
"""Kinds of events that carry a block."""


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
    explanation = explain_block(tree, frame, at, block, count)
    return {
        "conversation": ledger.conversation.id,
        "frame": frame,
        "title": path_state.tree.as_shown.active_frame.title,
        "at": event.created if event else None,
        "budgets": budgets_view(tool_settings(config).budgets),
        "minimum_relevance": MINIMUM_RELEVANCE,
        "ancestors": [_ancestor(relative) for relative in explanation.ancestors],
        "siblings": [_sibling(relative) for relative in explanation.siblings],
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


def _ancestor(ancestor: ExplainedAncestor) -> AncestorView:
    return {
        "frame": ancestor.frame.id,
        "title": ancestor.frame.title,
        "status": str(ancestor.frame.status),
        "depth": ancestor.depth,
        "kept": ancestor.kept,
        "why": ancestor.why.value,
        "tokens": ancestor.tokens,
        "score": ancestor.score,
        "parts": cast(AncestorScoreView, asdict(ancestor.parts)),
    }


def _sibling(sibling: ExplainedSibling) -> SiblingView:
    return {
        "frame": sibling.frame.id,
        "title": sibling.frame.title,
        "status": str(sibling.frame.status),
        "level": sibling.level,
        "kept": sibling.kept,
        "why": sibling.why.value,
        "tokens": sibling.tokens,
        "score": sibling.score,
        "relevance": sibling.relevance,
        "words": cast(SharedWordsView, asdict(sibling.words)),
        "rest": cast(SiblingScoreView, asdict(sibling.base_score)),
    }
