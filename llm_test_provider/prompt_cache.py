"""Four simulated prompt caches, as vendors described them on `AS_OF`.

`PrefixCache.use` takes one request as a sequence of parts (tools, system text, messages, in the order a provider
reads them) and says how many of its tokens were read from the cache, written to it, or paid in full. Time arrives as
a clock, so a lifetime passes in a test without waiting.

Its one law: a part is known by its bytes and by all the parts before it, nothing else. A part that is changed, moved
or inserted makes everything behind it unknown. Parts are never matched in their middle: a real cache that works in
blocks of tokens may find a little more. Money per token is not here, only the multiples of the input price.
"""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

AS_OF = "2026-11-21"
MINUTE = 60.0
HOUR = 60 * MINUTE
DAY = 24 * 60 * MINUTE
MOST_PREFIXES = 100_000
"""Prefixes one cache remembers; the longest unused go first."""


@dataclass(frozen=True, slots=True)
class CacheRule:
    """How one vendor caches. `read` and `write` are multiples of the input price, `lifetime` seconds since last use."""

    name: str
    read: float
    write: float
    minimum: int
    """Tokens below which a prefix is not cached."""
    step: int
    """Cached tokens are a multiple of this."""
    lifetime: float
    marked: bool
    """Cached only up to breakpoints, and found only within `look_back` parts before one."""
    look_back: int = 20
    remark: str = ""


CACHE_RULES: dict[str, CacheRule] = {
    rule.name: rule
    for rule in (
        CacheRule(
            "anthropic",
            0.1,
            1.25,
            1024,
            1,
            5 * MINUTE,
            marked=True,
            remark="minimum 512 to 4,096 by model; for an hour: 2.0",
        ),
        CacheRule("openai", 0.1, 1.0, 1024, 128, 10 * MINUTE, marked=False, remark="older models read at 0.5"),
        CacheRule("deepseek", 0.02, 1.0, 64, 64, DAY, marked=False, remark="on disk, best effort"),
        CacheRule("gemini", 0.1, 1.0, 4096, 1, 5 * MINUTE, marked=False, remark="implicit, not guaranteed"),
    )
}


@dataclass(frozen=True, slots=True)
class PromptPart:
    """A piece of a request: its canonical bytes, its tokens, and whether a breakpoint stands behind it."""

    content: bytes
    tokens: int
    breakpoint: bool = False
    lifetime: float | None = None
    """Seconds since last use for which the breakpoint asks; `None` is what the rule gives."""


@dataclass(frozen=True, slots=True)
class SimulatedCacheUse:
    """Input tokens of one request by what they cost. The first three add up to the whole prompt."""

    cached: int
    written: int
    uncached: int
    written_long: int = 0
    """The part of `written` that was stored for longer than the rule's lifetime."""


class SimulatedCache:
    """One vendor's cache for one account and model."""

    def __init__(self, rule: CacheRule, clock: Callable[[], float]) -> None:
        self.rule = rule
        self._clock = clock
        self._last_use: OrderedDict[bytes, tuple[float, float]] = OrderedDict()
        """When a prefix was last used, and how long it lives from then."""

    def use(self, parts: Sequence[PromptPart]) -> SimulatedCacheUse:
        """Account for one request and remember its prefixes."""
        digests, lengths = _prefixes(parts)
        total = lengths[-1] if lengths else 0
        now = self._clock()
        found = self._longest_known(parts, digests, now)
        cached = self._counted(lengths[found]) if found is not None else 0
        end, long_end = self._remember(parts, digests, lengths, now)
        # Tokens that are stored at no extra price are just input: only a dearer write is told apart.
        written, written_long = (max(at - cached, 0) if self.rule.write != 1 else 0 for at in (end, long_end))
        return SimulatedCacheUse(cached, written, total - cached - written, written_long)

    def _longest_known(self, parts: Sequence[PromptPart], digests: Sequence[bytes], now: float) -> int | None:
        for index in reversed(range(len(digests))):
            if self._alive(digests[index], now) and self._in_reach(parts, index):
                return index
        return None

    def _alive(self, digest: bytes, now: float) -> bool:
        last, lifetime = self._last_use.get(digest, (-math.inf, 0.0))
        return now - last <= lifetime

    def _in_reach(self, parts: Sequence[PromptPart], index: int) -> bool:
        return not self.rule.marked or any(part.breakpoint for part in parts[index : index + self.rule.look_back])

    def _remember(
        self, parts: Sequence[PromptPart], digests: Sequence[bytes], lengths: Sequence[int], now: float
    ) -> tuple[int, int]:
        """Store what this request leaves in the cache; returns the tokens of the longest prefix stored, and of the
        longest that is to live longer than the rule says."""
        end = long_end = 0
        for part, digest, length in zip(parts, digests, lengths, strict=True):
            storable = length >= self.rule.minimum and (part.breakpoint or not self.rule.marked)
            alive = self._alive(digest, now)
            if not storable and not alive:
                continue
            wanted = (part.lifetime or self.rule.lifetime) if storable else 0.0
            self._last_use[digest] = (now, max(wanted, self._last_use[digest][1] if alive else 0.0))
            self._last_use.move_to_end(digest)
            if storable:
                end = length
                long_end = length if wanted > self.rule.lifetime else long_end
        while len(self._last_use) > MOST_PREFIXES:
            self._last_use.popitem(last=False)
        return end, long_end

    def _counted(self, tokens: int) -> int:
        whole = tokens - tokens % self.rule.step
        return whole if whole >= self.rule.minimum else 0


def _prefixes(parts: Sequence[PromptPart]) -> tuple[list[bytes], list[int]]:
    """For each part: the digest and the tokens of everything up to and including it."""
    digests, lengths = [], []
    running, tokens = hashlib.sha256(), 0
    for part in parts:
        running.update(len(part.content).to_bytes(8, "big") + part.content)
        tokens += part.tokens
        digests.append(running.digest())
        lengths.append(tokens)
    return digests, lengths
