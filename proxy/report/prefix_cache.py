"""What a provider's prompt cache would have read of a request, as far as it can be told from outside.

A request is seen as a chain of pieces, each an identity and its tokens: tools and system text first, then one per
message. The law: **a piece is found only behind the same pieces as before**; a changed, moved or inserted one makes
everything behind it new, and what was not used for the tariff's lifetime is gone.

What this module does not do: it computes no money. Its memory is bounded and its time is handed in, in ms.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from proxy.tariffs import Tariff

Piece = tuple[str, int]
"""Identity and tokens of tools and system text, or of one message."""
Chain = Sequence[Piece]
CacheKey = tuple[str, str, str]
"""Tenant, upstream, model: what a provider keeps a cache for."""

MOST_PIECES = 1_000_000
"""Pieces one simulation remembers, eight bytes each; the conversations longest unused go first."""
MOST_LINES = 32
"""Lines one conversation keeps warm: frames, forks and branches. The longest unused go first."""
MOST_HEADS = 4096
MARK = 8
"""Bytes a piece is remembered by."""


class CacheUse(msgspec.Struct, frozen=True):
    """Input tokens by what they cost: read from the cache, written to it, paid in full."""

    cached: int = 0
    written: int = 0
    uncached: int = 0
    prefix: int = 0
    """The known beginning, before the provider's minimum and steps: at most this much could be read."""

    def __add__(self, other: CacheUse) -> CacheUse:
        return CacheUse(
            self.cached + other.cached,
            self.written + other.written,
            self.uncached + other.uncached,
            self.prefix + other.prefix,
        )

    @property
    def total(self) -> int:
        return self.cached + self.written + self.uncached


@dataclass(slots=True)
class _Line:
    """A chain that was sent: its marks in a row, and when it was used last, in ms."""

    marks: bytes
    used: int


class PrefixCache:
    """What a provider's prompt cache holds, as far as it can be told from outside.

    A piece is found only behind the same pieces as before, a changed or moved one makes everything behind it new. Each
    line sent stays warm for the tariff's lifetime and warms its beginning whenever it is used. Providers that want
    breakpoints are taken to get one behind the last message.
    """

    def __init__(self, most_pieces: int = MOST_PIECES) -> None:
        self._most_pieces = most_pieces
        self._pieces = 0
        # By key and the first two pieces: conversations that begin alike share a shelf, all others only their head.
        self._shelves: OrderedDict[tuple[CacheKey, bytes], list[_Line]] = OrderedDict()
        self._heads: OrderedDict[tuple[CacheKey, bytes], int] = OrderedDict()

    def knows(self, key: CacheKey, chain: Chain) -> bool:
        """Whether a conversation that begins like this was seen, however long ago."""
        return (key, _marks(identity for identity, _ in chain[:2])) in self._shelves

    def use(self, key: CacheKey, chain: Chain, tariff: Tariff, now: int, *, warm: bool = False) -> CacheUse:
        """Account for one request at `now` (ms) and remember it. `warm`: all but its last piece is in the cache."""
        identities, tokens = zip(*chain, strict=True) if chain else ((), ())
        marks = _marks(identities)
        since = now - tariff.ttl_s * 1000
        found = len(chain) - 1 if warm else self._found(key, marks, since)
        self._remember(key, marks, since, now)
        total = sum(tokens)
        prefix = sum(tokens[:found])
        cached = _storable(prefix, tariff)
        # Where storing costs nothing extra, what is stored is plain input.
        written = max(0, _storable(total, tariff) - cached) if tariff.write != 1 else 0
        return CacheUse(cached, written, total - cached - written, prefix)

    def _found(self, key: CacheKey, marks: bytes, since: int) -> int:
        """Pieces at the beginning that are still warm."""
        warm = [
            _shared(line.marks, marks) for line in self._shelves.get((key, marks[: 2 * MARK]), ()) if line.used >= since
        ]
        head = int(self._heads.get((key, marks[:MARK]), since - 1) >= since)
        return max(head, *warm) if warm else head

    def _remember(self, key: CacheKey, marks: bytes, since: int, now: int) -> None:
        opening = (key, marks[: 2 * MARK])
        before = self._shelves.pop(opening, [])
        # A line that goes on is the same line, longer.
        kept = [line for line in before if line.used >= since and not marks.startswith(line.marks)][-MOST_LINES + 1 :]
        self._shelves[opening] = [*kept, _Line(marks, now)]
        self._pieces += _size(self._shelves[opening]) - _size(before)
        self._heads[(key, marks[:MARK])] = now
        self._heads.move_to_end((key, marks[:MARK]))
        while len(self._heads) > MOST_HEADS:
            self._heads.popitem(last=False)
        while self._pieces > self._most_pieces and len(self._shelves) > 1:
            self._pieces -= _size(self._shelves.popitem(last=False)[1])


def _marks(identities: Iterable[str]) -> bytes:
    """The identities in a row, eight bytes each: long chains compare at the speed of memory."""
    return array("q", list(map(hash, identities))).tobytes()


def _size(lines: Iterable[_Line]) -> int:
    return sum(len(line.marks) // MARK for line in lines)


def _shared(one: bytes, other: bytes) -> int:
    """How many pieces two lines have in common at their beginning."""
    low, high = 0, min(len(one), len(other)) // MARK
    if one[: high * MARK] == other[: high * MARK]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if one[: middle * MARK] == other[: middle * MARK]:
            low = middle
        else:
            high = middle - 1
    return low


def _storable(tokens: int, tariff: Tariff) -> int:
    """Tokens of a prefix that a cache of this tariff can hold."""
    whole = tokens - tokens % tariff.step
    return whole if whole >= tariff.minimum else 0
