"""Estimates what the request of the client would have cost without the proxy, in the tokens that the provider counts.

A provider counts other tokens than we do, and each round that it reports says how many: `ProviderCounts` keeps the
count of what the client sent from request to request. The report also says whether the provider's cache held what we
thought. Where it held less or more, the untouched request is taken to have met the same cache. Estimates are as likely
too high as too low.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from proxy.accounting.model_prices import Tariff
from proxy.accounting.prompt_cache import HASH_BYTES, CacheKey, CacheUse, HashedChain, cacheable_tokens, common_pieces
from proxy.core.ledger import Usage

MAX_COUNTED_CONVERSATIONS = 4096
MAX_LINES_PER_CONVERSATION = 8
"""Lines of one conversation (branches, subagents) whose count is kept. The longest unused go first."""
MAX_COUNTED_PREFIXES = 16
"""Earlier requests of a line whose count is kept, beside its first."""
MIN_GROWTH_SHARE = 0.5
"""What was counted stands for what the client added from this share of its tokens on: a trace and a short message are
counted otherwise than the long output that they stand for."""
MAX_RATIO = 3.0
"""Provider's tokens for one of ours, at most, in what was added to a line. More is taken for something else."""
SURPRISE_SHARE = 0.03
"""Share of the cached tokens by which provider and simulation may differ for want of exact counts."""


class SentRound(msgspec.Struct, frozen=True, gc=False):
    """A round as simulated. `known`: tokens of its beginning that were sent before, however long ago. `head`: tokens of
    its first piece. `answer`: our tokens of an answer whose usage was not reported. `is_assumed`: another process sent
    what was before, so how much of that stands in this round is not known. `borrows_head`: only the head is known, and
    from another conversation. `unmarked`: tokens at its end that go into no cache."""

    use: CacheUse
    known: int = 0
    head: int = 0
    answer: int = 0
    is_assumed: bool = False
    borrows_head: bool = False
    unmarked: int = 0


class PromptScale(msgspec.Struct, frozen=True, gc=False):
    """The provider's tokens for each of ours: `old` for the first `border` tokens of a prompt, `new` behind them."""

    new: float = 1.0
    border: int = 0
    old: float = 1.0

    def tokens(self, ours: int) -> float:
        """Provider's tokens of the first `ours` tokens of a prompt."""
        old = min(ours, self.border)
        return self.old * old + self.new * (ours - old)

    def last_tokens(self, total: int, ours: int) -> float:
        """Provider's tokens of the last `ours` of `total` tokens."""
        return self.tokens(total) - self.tokens(total - ours) if ours else 0.0


class _CountedPrefix(msgspec.Struct, frozen=True, gc=False):
    """The first `length` bytes of a line's hashes, in our tokens and the provider's."""

    length: int
    ours: int
    theirs: int


class _CountedLine(msgspec.Struct, frozen=True, gc=False):
    """A request: what the client sent, in our tokens and the provider's, and what was sent upstream. `prefixes` are the
    beginnings of that which were sent alone before, shortest first, and all of it."""

    came: bytes
    came_ours: int
    came_theirs: float
    sent: bytes
    prefixes: tuple[_CountedPrefix, ...]


class ProviderCounts:
    """What the reported usage has taught of how a provider counts.

    A line that grows is counted by its growth: what is new in it was sent as well, and the provider told how many
    tokens that made, beside an earlier request that began alike. So a line that was folded since is still counted as
    it was when it was sent.
    """

    def __init__(self) -> None:
        self._lines: OrderedDict[tuple[CacheKey, bytes], list[_CountedLine]] = OrderedDict()
        self._newest: OrderedDict[CacheKey, float] = OrderedDict()

    def learn(self, key: CacheKey, came: HashedChain, sent: HashedChain, reported: int) -> PromptScale:
        """The scale of what the client sent, where the provider counted `reported` tokens in what was sent."""
        level = self._newest[key] = reported / sent.total
        shelf = (key, came.first_two)
        lines = self._lines.pop(shelf, [])
        before = max(
            (line for line in lines if came.hashes.startswith(line.came)), key=lambda line: len(line.came), default=None
        )
        scale = PromptScale(level)
        kept: tuple[_CountedPrefix, ...] = ()
        if before is not None:
            alike = common_pieces(before.sent, sent.hashes) * HASH_BYTES
            kept = tuple(prefix for prefix in before.prefixes if prefix.length <= alike)
            scale = _scale_of_growth(before, came, kept, sent, reported)
        prefixes = (
            *kept[:1],
            *kept[1:][-MAX_COUNTED_PREFIXES:],
            _CountedPrefix(len(sent.hashes), sent.total, reported),
        )
        counted = _CountedLine(came.hashes, came.total, scale.tokens(came.total), sent.hashes, prefixes)
        self._lines[shelf] = [*(line for line in lines if line is not before), counted][-MAX_LINES_PER_CONVERSATION:]
        for known in (self._lines, self._newest):
            if len(known) > MAX_COUNTED_CONVERSATIONS:
                known.popitem(last=False)
        return scale

    def newest(self, key: CacheKey) -> PromptScale:
        """By the round that the provider reported last, of whatever conversation."""
        return PromptScale(self._newest.get(key, 1.0))


def _scale_of_growth(
    before: _CountedLine, came: HashedChain, prefixes: Sequence[_CountedPrefix], sent: HashedChain, reported: int
) -> PromptScale:
    """`prefixes` are the beginnings of `sent` that were counted before. What the client added is about as many tokens
    for the provider as what stands behind the longest of them, unless that is little beside it: then as the larger of
    the line before it and this request."""
    level, old = reported / sent.total, before.came_theirs / before.came_ours if before.came_ours else 1.0
    new = old if before.came_ours > sent.total else level
    if prefixes and (grown := sent.total - prefixes[-1].ours) > 0:
        ratio = (reported - prefixes[-1].theirs) / grown
        if grown >= MIN_GROWTH_SHARE * (came.total - before.came_ours) and 1 / MAX_RATIO < ratio < MAX_RATIO:
            new = ratio
    return PromptScale(new, before.came_ours, old)


class UntouchedRequest(msgspec.Struct, frozen=True, gc=False):
    """What the client sent, as simulated. `scale` converts its tokens to those of the provider; `unmarked` of them, at
    the end, go into no cache."""

    use: CacheUse
    known: int
    head: int
    tariff: Tariff
    scale: PromptScale
    unmarked: int = 0

    @property
    def total(self) -> float:
        """The provider's tokens."""
        return self.scale.tokens(self.use.total)

    def as_simulated(self) -> CacheUse:
        return scaled_use(self.use, self.scale, self.tariff, self.unmarked)

    def as_reported(self, first: SentRound, usage: Usage, *, writes_are_told: bool) -> CacheUse:
        """With the cache as the first round met it, which the provider reported."""
        unmarked = self.scale.last_tokens(self.use.total, self.unmarked)
        if writes_are_told and first.unmarked == self.unmarked and usage.cached + usage.written:
            unmarked = usage.input - usage.cached - usage.written  # behind the same marker
        use = _split(self.total, self._prefix_as_met(first, usage), self.tariff, unmarked)
        return use if writes_are_told else CacheUse(use.cached, 0, use.uncached + use.written, use.prefix)

    def _prefix_as_met(self, first: SentRound, usage: Usage) -> float:
        """Provider's tokens of the known beginning."""
        tariff, scale = self.tariff, self.scale
        ours, ratio = scale.tokens(self.use.prefix), usage.input / first.use.total
        believed = cacheable_tokens(round(first.use.prefix * ratio), tariff)
        surprise = usage.cached - believed
        own = first.head - self.head
        breaks_alike = first.use.prefix == (self.use.prefix and self.use.prefix + own)
        if abs(surprise) <= max(tariff.step, SURPRISE_SHARE * believed):
            if not (breaks_alike and usage.cached):
                return ours
            # The report says in which step of the cache the same prefix ends, so how far off our count of it is.
            counted = first.use.prefix * ratio
            return ours + min(max(counted, usage.cached), usage.cached + tariff.step - 1) - counted
        if surprise < 0 and first.is_assumed and usage.cached >= round(first.head * ratio) * (1 - SURPRISE_SHARE):
            return ours  # the cache is alive: what it lacks is what we changed
        if surprise < 0:
            return ours * usage.cached / believed
        if first.known > first.use.prefix:  # it lives longer than we think
            return max(ours, scale.tokens(self.known))
        if breaks_alike:
            # Both break in the same message, and the provider knew a part of it.
            return ours + max(0.0, surprise - (0 if first.use.prefix else own * ratio))
        return ours


def scaled_use(use: CacheUse, scale: PromptScale, tariff: Tariff, unmarked: int = 0) -> CacheUse:
    """A simulated use in the tokens of the provider; the last `unmarked` of ours go into no cache."""
    return _split(scale.tokens(use.total), scale.tokens(use.prefix), tariff, scale.last_tokens(use.total, unmarked))


def _split(total: float, prefix: float, tariff: Tariff, unmarked: float) -> CacheUse:
    whole = round(total)
    end = max(0, whole - round(unmarked))
    cached = cacheable_tokens(min(round(prefix), end), tariff)
    written = max(0, cacheable_tokens(end, tariff) - cached) if tariff.write != 1 else 0
    return CacheUse(cached, written, whole - cached - written, cached)
