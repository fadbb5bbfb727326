"""Is it worth it? What a rewrite of the line costs and saves, in input tokens that would be paid in full.

A warm cached token costs a tenth of a fresh one or less, so taking tokens off the line is no saving by itself: what
stands behind the cut must be written to the provider's cache anew. The law: **a rewrite that is not a pop at the tail
happens only where it pays within the requests that are still expected**, or where the cache is cold, or where the
window is nearly full. Every answer, also "not now", carries its figures, so that a receipt can show them.

What this module does not do: it knows no frames, no clock and no table of prices; figures come in, figures go out.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

EXPECTED_REQUESTS = 50
"""Requests still to come in a conversation of up to `YOUNG` requests, and in an older one: medians of recorded ones."""
EXPECTED_REQUESTS_LATER = 35
YOUNG_CONVERSATION_REQUESTS = 60
RECALL_PROBABILITY = 0.1
"""The chance that what left is asked for once."""
RECALL_TOKENS = 2_000
PRESSURE_SHARE = 0.6
"""Of the window: a line longer than this is folded whatever it costs."""
TAIL_REWRITE_SHARE = 0.25
"""Of what a fold at the tail takes away, what may be written again behind the cut."""


class CachePrices(msgspec.Struct, frozen=True):
    """Of a token read from the provider's cache, and of one written to it, in fresh input tokens."""

    read: float
    write: float


class ContextRewrite(msgspec.Struct, frozen=True):
    """A rewrite in tokens: `removed` leave, `compaction` stands for them, `behind` stay behind the cut and are written
    again, `line` is what is sent without it. `added` comes with it for good (tools and guidance at waking),
    `reasoning` is what no longer can be sent."""

    removed: int
    compaction: int
    behind: int
    context_tokens: int
    added: int = 0
    reasoning: int = 0


class GateReason(StrEnum):
    GATE = "gate"
    COLD = "cold"
    PRESSURE = "pressure"
    ASKED = "asked"
    """A person wants it, whatever it costs."""
    NOT_YET = "not_yet"
    PROVIDER_TRIMMED = "provider_trimmed"
    """The provider edits by itself what it is sent: what a cut would cost is not known."""


class GateVerdict(msgspec.Struct, frozen=True):
    """Whether it is worth it, why, and the figures: `gain` and `cost` in fresh input tokens over `requests` still
    expected."""

    is_worth_it: bool
    reason: GateReason
    rewrite: ContextRewrite
    requests: int
    prices: CachePrices
    gain: float
    cost: float


def expected_requests(done: int) -> int:
    """How many more requests a conversation is taken to make after `done` of them."""
    return EXPECTED_REQUESTS if done <= YOUNG_CONVERSATION_REQUESTS else EXPECTED_REQUESTS_LATER


def evaluate_rewrite(
    rewrite: ContextRewrite, prices: CachePrices, requests: int, *, cold: bool, window: int = 0
) -> GateVerdict:
    """Weigh a rewrite. `cold`: nothing of the line is in the provider's cache any more. `window` is the model's, in
    tokens; 0 where it is not known."""
    saved = rewrite.removed - rewrite.compaction - rewrite.added
    gain = saved * prices.read * requests
    if cold:  # all of it would have to be written anew with this request
        gain += saved * (prices.write - prices.read)
    again = 0.0 if cold else rewrite.behind * (prices.write - prices.read)
    recall = (
        RECALL_PROBABILITY * (RECALL_TOKENS * prices.write + rewrite.context_tokens * prices.read)
        if rewrite.removed
        else 0.0
    )
    cost = again + (rewrite.compaction + rewrite.added) * prices.write + recall + rewrite.reasoning
    if window and rewrite.context_tokens > window * PRESSURE_SHARE and saved > 0:
        reason = GateReason.PRESSURE
    elif gain <= cost:
        reason = GateReason.NOT_YET
    else:
        reason = GateReason.COLD if cold else GateReason.GATE
    return GateVerdict(reason is not GateReason.NOT_YET, reason, rewrite, requests, prices, gain, cost)
