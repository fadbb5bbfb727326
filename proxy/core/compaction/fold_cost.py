"""The cost gate: whether a rewrite of the context pays, in tokens at the full input price.

A cached token costs a tenth of a fresh one or less, so removing tokens is no saving by itself: everything behind the
cut has to be written to the provider's cache again. What left may be read again or recalled, which costs a request. A
rewrite passes if it pays within the requests still expected, if
the cache is cold, or if the window is nearly full. Where long requests cost more, staying short is worth what that
costs. Every verdict carries its figures, so that receipts can show them.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from proxy.core.compaction.detours import DetourHistory
from proxy.core.compaction.segments import FoldRules
from proxy.core.ledger import Message

EXPECTED_REQUESTS = 50
"""Expected further requests of a conversation with up to `YOUNG_CONVERSATION_REQUESTS` requests, and of an older one:
medians of recorded conversations."""
EXPECTED_REQUESTS_LATER = 35
YOUNG_CONVERSATION_REQUESTS = 60
DETOUR_TOKENS = 2_000
"""What a detour brings back: a file read again, or a recall."""
NO_FOLDS = DetourHistory()
PRESSURE_SHARE = 0.6
"""A context longer than this share of the window is folded at any cost."""
TAIL_REWRITE_SHARE = 0.25
"""A fold at the tail may resend at most this share of the tokens it saves."""
WAKE_OUTLAY_SHARE = 0.03
"""Waking may put a conversation behind by this share of what it would have cost so far without us."""
LONG_CONTEXT_TOKENS = 40_000
"""A context above this size may wake for twice the share: what is saved pays it back within a few requests, and without
it some conversations with small tools and system text grew to 80,000 tokens."""
LONG_WAKE_OUTLAY_SHARE = 0.06


class LongRequestPrice(msgspec.Struct, frozen=True):
    """A request of more than `above` tokens costs `factor` times as much, all of it; a request of the conversation has
    `growth` tokens more than the one before it."""

    above: float
    factor: float
    growth: float = 0.0


class CachePrices(msgspec.Struct, frozen=True):
    """Prices of reading and writing a cached token, as multiples of the fresh input price, and of long requests."""

    read: float
    write: float
    long: LongRequestPrice | None = None

    def factor_of(self, tokens: float) -> float:
        """How many times as much a request of so many tokens costs."""
        return self.long.factor if self.long and tokens > self.long.above else 1.0


class ContextRewrite(msgspec.Struct, frozen=True):
    """A rewrite in tokens: `removed` leave, `compaction` replaces them, `behind` stay behind the cut and are written
    again, `context_tokens` is the size without the rewrite. `added` comes in permanently (tools and guidance on
    waking), `reasoning` becomes invalid."""

    removed: int
    compaction: int
    behind: int
    context_tokens: int
    added: int = 0
    reasoning: int = 0


class GateReason(StrEnum):
    GATE = "gate"
    COLD = "cold"
    BAND = "band"
    """It pays because the request stays below the length from which it would cost more."""
    PRESSURE = "pressure"
    ASKED = "asked"
    """A person asked for it."""
    NOT_YET = "not_yet"
    PROVIDER_TRIMMED = "provider_trimmed"
    """The provider edits the context itself, so the cost of a cut is unknown."""


class GateVerdict(msgspec.Struct, frozen=True):
    """`gain` and `cost` are in fresh input tokens over the `requests` still expected; `band` is the part of `gain` that
    comes from staying below the length from which a request costs more."""

    is_worth_it: bool
    reason: GateReason
    rewrite: ContextRewrite
    requests: int
    prices: CachePrices
    gain: float
    cost: float
    band: float = 0.0


def expected_requests(done: int) -> int:
    return EXPECTED_REQUESTS if done <= YOUNG_CONVERSATION_REQUESTS else EXPECTED_REQUESTS_LATER


def evaluate_rewrite(  # noqa: PLR0913  one question, and what it depends on
    rewrite: ContextRewrite,
    prices: CachePrices,
    requests: int,
    *,
    cold: bool,
    window: int = 0,
    history: DetourHistory = NO_FOLDS,
) -> GateVerdict:
    """`cold` means that the provider caches nothing of the context. `window` is in tokens, 0 if unknown. `history` says
    how earlier folds of the conversation went."""
    saved = rewrite.removed - rewrite.compaction - rewrite.added
    dear = _paid_for_length(rewrite, saved, prices)
    band = dear * prices.read * _requests_below(rewrite.context_tokens - saved, prices, requests) if dear else 0.0
    gain = saved * prices.read * requests
    if cold:  # all of it would have to be written anew with this request
        gain += saved * (prices.write - prices.read)
        band += dear * (prices.write - prices.read)
    resend = 0.0 if cold else rewrite.behind * (prices.write - prices.read)
    detours = 0.0
    if rewrite.removed:
        gain *= 0.5 if history.since_newest else 1.0  # trusted with half, where a detour followed the newest fold
        detours = history.expected * (DETOUR_TOKENS * prices.write + rewrite.context_tokens * prices.read)
    cost = resend + (rewrite.compaction + rewrite.added) * prices.write + detours + rewrite.reasoning
    if window and rewrite.context_tokens > window * PRESSURE_SHARE and saved > 0:
        reason = GateReason.PRESSURE
    elif gain + band <= cost:
        reason = GateReason.NOT_YET
    elif gain <= cost:
        reason = GateReason.BAND
    else:
        reason = GateReason.COLD if cold else GateReason.GATE
    return GateVerdict(reason is not GateReason.NOT_YET, reason, rewrite, requests, prices, gain + band, cost, band)


def _paid_for_length(rewrite: ContextRewrite, saved: int, prices: CachePrices) -> float:
    """Tokens that the request without the rewrite is charged on top, for its length alone; 0 where it is as dear with
    it, or as cheap without it."""
    before, after = rewrite.context_tokens, rewrite.context_tokens - saved
    return (prices.factor_of(before) / prices.factor_of(after) - 1) * before if after < before else 0.0


def _requests_below(tokens: float, prices: CachePrices, requests: int) -> float:
    """In how many of the requests expected a context of `tokens` stays below the length from which it costs more."""
    if prices.long is None or prices.long.growth <= 0:
        return requests
    return min(requests, 1 + (prices.long.above - tokens) / prices.long.growth)


def outlay(rewrite: ContextRewrite, prices: CachePrices, *, cold: bool) -> float:
    """How much dearer the rewrite makes this one request, in fresh input tokens; negative if it saves at once."""
    came_in = (rewrite.compaction + rewrite.added) * prices.write
    dear = _paid_for_length(rewrite, rewrite.removed - rewrite.compaction - rewrite.added, prices)
    if cold:
        return came_in - (rewrite.removed + dear) * prices.write
    return came_in + rewrite.behind * (prices.write - prices.read) - (rewrite.removed + dear) * prices.read


def within_outlay(verdict: GateVerdict, paid: float | None, *, cold: bool) -> GateVerdict:
    """The verdict, refused where the rewrite would put a conversation that cost `paid` so far visibly behind. None for
    `paid` sets no limit, and neither does a window that is nearly full."""
    if paid is None or not verdict.is_worth_it or verdict.reason is GateReason.PRESSURE:
        return verdict
    share = LONG_WAKE_OUTLAY_SHARE if verdict.rewrite.context_tokens > LONG_CONTEXT_TOKENS else WAKE_OUTLAY_SHARE
    if outlay(verdict.rewrite, verdict.prices, cold=cold) <= share * paid:
        return verdict
    return replace(verdict, is_worth_it=False, reason=GateReason.NOT_YET)


def untouched_cost(messages: Sequence[Message], head: int, prices: CachePrices) -> float:
    """What the requests up to this history cost if the provider cached all of it, in fresh input tokens: each request
    before an answer read what the one before it had written."""
    total, written, paid = head, 0, 0.0
    for message in messages:
        if message.role == "assistant":
            paid += prices.factor_of(total) * (written * prices.read + (total - written) * prices.write)
            written = total
        total += message.tokens
    return paid


class CompactionInput(msgspec.Struct, frozen=True):
    """What a decision depends on besides the context; `now` is in ms, `window` is 0 if unknown.

    `head` are the tokens of tools and system text, `added_tokens` those that waking adds, which the plan has to pay;
    None where the thread is awake, or wakes without a cost (see `pays_for_waking`). `binds_reasoning`: the model
    refuses or drops reasoning behind a changed prefix. `provider_edits`: the provider edits the context itself, so its
    cache is unknown and nothing is folded to save money. `wake_is_appended`: waking changes no earlier message.
    `voids_reasoning`: waking comes together with a fold, and all earlier reasoning becomes invalid. `paid` is what the
    conversation has cost so far without us, in fresh input tokens, where waking may cost only a share of it. `history`
    says what followed earlier folds.
    """

    newest_entry: str
    now: int
    prices: CachePrices
    requests: int
    cold: bool
    window: int
    rules: FoldRules
    head: int = 0
    added_tokens: int | None = None
    binds_reasoning: bool = False
    provider_edits: bool = False
    wake_is_appended: bool = False
    voids_reasoning: bool = False
    paid: float | None = None
    history: DetourHistory = NO_FOLDS

    @property
    def pays_for_waking(self) -> bool:
        """Whether the thread wakes with this request, at a cost that the folds have to bring in."""
        return self.added_tokens is not None

    def evaluate(self, rewrite: ContextRewrite, *, cold: bool | None = None) -> GateVerdict:
        """What the cost gate says of a rewrite; `cold` where its price is another than the cache tells."""
        is_cold = self.cold if cold is None else cold
        return evaluate_rewrite(
            rewrite, self.prices, self.requests, cold=is_cold, window=self.window, history=self.history
        )

    @property
    def shortest_part(self) -> int:
        """Tokens above which a part may leave: what is cut, less its newest steps."""
        return self.rules.part_tokens - self.rules.newest_tokens

    @property
    def longest_wait(self) -> int:
        """Tokens up to which a part stays while the agent may still need what it read."""
        return self.rules.longest_wait - self.rules.newest_tokens
