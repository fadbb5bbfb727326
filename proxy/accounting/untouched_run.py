"""Estimates what the request of the client would have cost without the proxy, in the tokens that the provider counts.

A provider counts other tokens than we do, in tools and system text by another ratio than in messages, and each round
that it reports says how many: `ProviderCounts` keeps the count of what the client sent from request to request. The
report also says whether the provider's cache held what we thought. Where it held less or more, the untouched request is
taken to have met the same cache. Estimates are as likely too high as too low.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from proxy.accounting.prompt_cache import HASH_BYTES, CacheKey, CacheUse, HashedChain, cacheable_tokens, common_pieces
from proxy.accounting.tariff import Tariff
from proxy.core.ledger import Usage

MAX_COUNTED_CONVERSATIONS = 4096
MAX_LINES_PER_CONVERSATION = 8
"""Lines of one conversation (branches, subagents) whose count is kept. The longest unused go first."""
MAX_COUNTED_PREFIXES = 16
"""Earlier requests of a context whose count is kept, beside its first."""
MIN_GROWTH_SHARE = 0.5
"""What was counted stands for what the client added from this share of its tokens on: a trace and a short message are
counted otherwise than the long output that they stand for."""
MAX_RATIO = 3.0
"""Provider's tokens for one of ours, at most, in what was added to a context. More is taken for something else."""
MIN_TEXT_TOKENS = 500
"""Tokens of messages that must have been counted apart from their head before the two have ratios of their own."""
MAX_TEXT_TOKENS = 100_000
"""Tokens of messages that a ratio is learned from; older ones count less."""
OWN_HEAD_WEIGHT = 1.2
"""What a token of our own tools and guidance counts beside one of the client's head: definitions as short as ours are
more of syntax and frame. Without it, the client's own head is counted a little too large."""
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
    """The provider's tokens for each of ours: `in_head` for the first `head` tokens of a prompt (tools and system
    text), `old` for the others among its first `border` tokens, `new` behind them."""

    new: float = 1.0
    border: int = 0
    old: float = 1.0
    head: int = 0
    in_head: float = 1.0

    def tokens(self, ours: int) -> float:
        """Provider's tokens of the first `ours` tokens of a prompt."""
        head = min(ours, self.head)
        old = max(0, min(ours, self.border) - head)
        return self.in_head * head + self.old * old + self.new * (ours - head - old)

    def last_tokens(self, total: int, ours: int) -> float:
        """Provider's tokens of the last `ours` of `total` tokens."""
        return self.tokens(total) - self.tokens(total - ours) if ours else 0.0


class _CountedPrefix(msgspec.Struct, frozen=True, gc=False):
    """The first `length` bytes of a context's hashes, in our tokens and the provider's."""

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


class _CountedText(msgspec.Struct, frozen=True, gc=False):
    """Messages that were counted apart from their head, in our tokens and the provider's."""

    ours: float = 0.0
    theirs: float = 0.0


_NO_TEXT = _CountedText()


class ProviderCounts:
    """What the reported usage has taught of how a provider counts.

    A context that grows is counted by its growth: what is new in it was sent as well, and the provider told how many
    tokens that made, beside an earlier request that began alike. So a context that was folded since is still counted as
    it was when it was sent.
    """

    def __init__(self) -> None:
        self._lines: OrderedDict[tuple[CacheKey, bytes], list[_CountedLine]] = OrderedDict()
        self._newest: OrderedDict[CacheKey, float] = OrderedDict()
        self._texts: OrderedDict[CacheKey, _CountedText] = OrderedDict()

    def learn(
        self, key: CacheKey, came: HashedChain, sent: HashedChain, reported: int, *, missing: int = 0
    ) -> PromptScale:
        """The scale of what the client sent, where the provider counted `reported` tokens in what was sent. `missing`
        tokens of the client's head were left out."""
        self._newest[key] = reported / sent.total
        shelf = (key, came.first_two)
        lines = self._lines.pop(shelf, [])
        before = max(
            (line for line in lines if came.hashes.startswith(line.came)), key=lambda line: len(line.came), default=None
        )
        whole = _CountedPrefix(len(sent.hashes), sent.total, reported)
        kept: tuple[_CountedPrefix, ...] = ()
        if before is not None:
            alike = common_pieces(before.sent, sent.hashes) * HASH_BYTES
            kept = tuple(prefix for prefix in before.prefixes if prefix.length <= alike)
            self._add_text(key, kept, whole)
        text = self._text_ratio(key)
        head = came.tokens[0] if came.tokens else 0  # of a request of our own nothing came
        own = (OWN_HEAD_WEIGHT - 1) * max(0, sent.tokens[0] + missing - head) if head else 0.0
        in_head = _head_ratio(sent.tokens[0], own, kept[0] if kept else whole, text)
        if before is not None:
            scale = _scale_of_growth(before, came, kept, whole, in_head)
        elif in_head is None or text is None:
            scale = PromptScale(reported / (sent.total + own))
        else:
            scale = PromptScale(text, head=head, in_head=in_head)
        prefixes = (*kept[:1], *kept[1:][-MAX_COUNTED_PREFIXES:], whole)
        counted = _CountedLine(came.hashes, came.total, scale.tokens(came.total), sent.hashes, prefixes)
        self._lines[shelf] = [*(line for line in lines if line is not before), counted][-MAX_LINES_PER_CONVERSATION:]
        for known in (self._lines, self._newest, self._texts):
            if len(known) > MAX_COUNTED_CONVERSATIONS:
                known.popitem(last=False)
        return scale

    def _add_text(self, key: CacheKey, kept: Sequence[_CountedPrefix], whole: _CountedPrefix) -> None:
        """What stands behind the longest prefix that was counted before is messages alone, counted apart."""
        if not kept or (ratio := _growth_ratio(kept[-1], whole)) is None:
            return
        known, grown = self._texts.pop(key, _NO_TEXT), whole.ours - kept[-1].ours
        share = min(1.0, MAX_TEXT_TOKENS / (known.ours + grown))
        self._texts[key] = _CountedText(share * (known.ours + grown), share * (known.theirs + ratio * grown))

    def _text_ratio(self, key: CacheKey) -> float | None:
        """The provider's tokens for each of ours in messages; None before enough of them were counted apart."""
        known = self._texts.get(key, _NO_TEXT)
        return known.theirs / known.ours if known.ours >= MIN_TEXT_TOKENS else None

    def newest(self, key: CacheKey) -> PromptScale:
        """By the round that the provider reported last, of whatever conversation."""
        return PromptScale(self._newest.get(key, 1.0))


def _growth_ratio(prefix: _CountedPrefix, whole: _CountedPrefix) -> float | None:
    """The provider's tokens for each of ours in what stands behind `prefix`; None for nothing, or an odd count."""
    grown = whole.ours - prefix.ours
    ratio = (whole.theirs - prefix.theirs) / grown if grown > 0 else 0.0
    return ratio if 1 / MAX_RATIO < ratio < MAX_RATIO else None


def _head_ratio(head: int, own: float, shortest: _CountedPrefix, text: float | None) -> float | None:
    """The provider's tokens for each of ours in the head, from the prefix that holds least besides and the ratio of
    messages; None where that is not known, or would be odd. `own`: by how much our own part of the head weighs more."""
    if text is None or not head:
        return None
    ratio = (shortest.theirs - text * (shortest.ours - head)) / (head + own)
    return ratio if 1 / MAX_RATIO < ratio < MAX_RATIO else None


def _scale_of_growth(
    before: _CountedLine,
    came: HashedChain,
    prefixes: Sequence[_CountedPrefix],
    whole: _CountedPrefix,
    in_head: float | None,
) -> PromptScale:
    """`prefixes` are the beginnings of `whole`, which was sent, that were counted before. What the client added is
    about as many tokens for the provider as what stands behind the longest of them, unless that is little beside it:
    then as the messages before it. While the ratio of the head is not known, as the larger of the context before it and
    this request."""
    added = came.total - before.came_ours
    is_telling = bool(prefixes) and whole.ours - prefixes[-1].ours >= MIN_GROWTH_SHARE * added
    ratio = _growth_ratio(prefixes[-1], whole) if is_telling else None
    head = came.tokens[0] if came.tokens else 0
    if in_head is not None and head and (texts := before.came_ours - head) > 0:
        old = (before.came_theirs - in_head * head) / texts
        if 1 / MAX_RATIO < old < MAX_RATIO:
            return PromptScale(ratio or old, before.came_ours, old, head, in_head)
    old = before.came_theirs / before.came_ours if before.came_ours else 1.0
    level = old if before.came_ours > whole.ours else whole.theirs / whole.ours
    return PromptScale(ratio or level, before.came_ours, old)


def scale_of_round(sent: SentRound, usage: Usage | None, scale: PromptScale) -> PromptScale:
    """How the provider counts a round, by what it reported of it, else as `scale` says of new messages."""
    total = sent.use.total
    if usage is None or not usage.input or not total:
        return PromptScale(scale.new)
    texts = total - sent.head
    if scale.head and texts > 0:
        new = (usage.input - scale.in_head * sent.head) / texts
        if 1 / MAX_RATIO < new < MAX_RATIO:
            return PromptScale(new, head=sent.head, in_head=scale.in_head)
    return PromptScale(usage.input / total)


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
        tariff, scale, sent = self.tariff, self.scale, scale_of_round(first, usage, self.scale)
        ours, counted = scale.tokens(self.use.prefix), sent.tokens(first.use.prefix)
        believed = cacheable_tokens(round(counted), tariff)
        surprise = usage.cached - believed
        own = first.head - self.head
        breaks_alike = first.use.prefix == (self.use.prefix and self.use.prefix + own)
        if abs(surprise) <= max(tariff.step, SURPRISE_SHARE * believed):
            if not (breaks_alike and usage.cached):
                return ours
            # The report says in which step of the cache the same prefix ends, so how far off our count of it is.
            return ours + min(max(counted, usage.cached), usage.cached + tariff.step - 1) - counted
        if surprise < 0 and first.is_assumed and usage.cached >= round(sent.tokens(first.head)) * (1 - SURPRISE_SHARE):
            return ours  # the cache is alive: what it lacks is what we changed
        if surprise < 0:
            return ours * usage.cached / believed
        if first.known > first.use.prefix:  # it lives longer than we think: all that is known, or its beginning alone
            if usage.cached >= cacheable_tokens(round(sent.tokens(first.known)), tariff) * (1 - SURPRISE_SHARE):
                return max(ours, scale.tokens(self.known))
            alive = usage.cached - max(0.0, sent.tokens(first.head) - scale.tokens(self.head))
            return max(ours, min(alive, scale.tokens(self.known)))
        if breaks_alike:
            # Both break in the same message, and the provider knew a part of it.
            return ours + max(
                0.0, surprise - (0 if first.use.prefix else sent.tokens(first.head) - sent.tokens(self.head))
            )
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
