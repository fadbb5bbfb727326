"""Simulates what a provider's prompt cache holds.

A request is a chain of pieces, each an identity and its tokens: tools and system text first, then one per message. A
piece is cached only behind the same pieces as before, and until the tariff's lifetime has passed without a use.
Memory is bounded; times are ms and come in as arguments. Receipts ask it; whether a fold finds a cold cache is
decided by `proxy/exchange/thread/gate_prices.py`.
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict
from collections.abc import Sequence

import msgspec

from proxy.accounting.tariff import Tariff

PromptPiece = tuple[str, int]
"""Identity and tokens of tools and system text, or of one message."""
PromptChain = Sequence[PromptPiece]
CacheKey = tuple[str, str, str]
"""Tenant, upstream, model: what a provider keeps a cache for."""

MAX_PIECES = 1_000_000
"""Pieces one simulation remembers, eight bytes each; the conversations longest unused go first."""
MAX_CHAINS_PER_CONVERSATION = 32
"""Lines one conversation keeps warm: frames, forks and branches. The longest unused go first."""
MAX_CONVERSATIONS = 4096
"""Conversations one simulation remembers, about 1.5 KB each beside their pieces, and beginnings of requests."""
HASH_BYTES = 8
"""Bytes a piece is remembered by."""


class CacheUse(msgspec.Struct, frozen=True, gc=False):
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


class HashedChain(msgspec.Struct, frozen=True, gc=False):
    """A chain as caches compare it, made once for all that are asked about it. `hashes` are its identities in a row,
    eight bytes each: long chains compare at the speed of memory. `head` and `first_two` are the first and the first two
    of them, `total` is the sum of `tokens`. `unmarked`: tokens at the end, behind the last cache marker. Where writing
    to the cache has a price, it ends at the marker."""

    hashes: bytes
    head: bytes
    first_two: bytes
    tokens: tuple[int, ...]
    total: int
    unmarked: int = 0

    def behind_marker(self, tariff: Tariff) -> int:
        """Tokens at the end that no cache of this tariff holds."""
        return self.unmarked if tariff.write != 1 else 0


class _SentChain(msgspec.Struct, frozen=True, gc=False):
    """A chain that was sent: its marks in a row, and when it was used last, in ms."""

    hashes: bytes
    used_at: int


class PromptCacheModel:
    """What a provider's prompt cache holds, as far as it can be told from outside.

    A piece is found only behind the same pieces as before, a changed or moved one makes everything behind it new. Each
    context sent stays warm for the tariff's lifetime and warms its beginning whenever it is used. Providers that want
    breakpoints keep a context up to its last one.
    """

    def __init__(self, most_pieces: int = MAX_PIECES) -> None:
        self._most_pieces = most_pieces
        self._pieces = 0
        # By key and the first two pieces: conversations that begin alike share a shelf, all others only their head.
        self._conversations: OrderedDict[tuple[CacheKey, bytes], list[_SentChain]] = OrderedDict()
        self._heads: OrderedDict[tuple[CacheKey, bytes], int] = OrderedDict()

    def has_seen(self, key: CacheKey, chain: PromptChain | HashedChain) -> bool:
        """Whether a conversation that begins like this was seen, however long ago."""
        return (key, hash_chain(chain).first_two) in self._conversations

    def record_request(self, key: CacheKey, chain: PromptChain | HashedChain, tariff: Tariff, now: int) -> CacheUse:
        """Account for one request at `now` (ms) and remember it."""
        return self.record_and_recall(key, chain, tariff, now)[0]

    def record_and_recall(  # noqa: PLR0913  a request, its prices, its time, and what is known of the cache
        self,
        key: CacheKey,
        chain: PromptChain | HashedChain,
        tariff: Tariff,
        now: int,
        *,
        warm: bool = False,
        long_head: bool = False,
    ) -> tuple[CacheUse, int]:
        """As `record_request`; and how many tokens of the beginning were sent before, however long ago. `warm`:
        all but its last piece is in the cache. `long_head`: its first piece was written for the longer lifetime."""
        hashed = hash_chain(chain)
        tokens, total, unmarked = hashed.tokens, hashed.total, hashed.behind_marker(tariff)
        since = now - tariff.ttl_s * 1000
        head_lives = long_head and self._heads.get((key, hashed.head), 0) >= now - tariff.long_ttl_s * 1000
        found, known = self._find_pieces(key, hashed, since, now, kept=_pieces_before(tokens, unmarked))
        found = max(found, int(head_lives))
        prefix = min(sum(tokens[:-1] if warm else tokens[:found]), total - unmarked)
        use = cache_use_of(total, prefix, tariff, unmarked)
        return use, prefix if known == found else max(prefix, sum(tokens[:known]))

    def _find_pieces(self, key: CacheKey, hashed: HashedChain, since: int, now: int, *, kept: int) -> tuple[int, int]:
        """How many pieces at the beginning of a context were still warm, and how many were sent at any time; from
        `now` on its first `kept` pieces are warm."""
        opening, head, marks = (key, hashed.first_two), (key, hashed.head), hashed.hashes
        before, head_used = self._conversations.pop(opening, ()), self._heads.pop(head, None)
        found, known, gone = int(head_used is not None and head_used >= since), int(head_used is not None), 0
        stored = marks if kept == len(hashed.tokens) else marks[: kept * HASH_BYTES]
        after: list[_SentChain] = []
        for other in before:
            if other.used_at < since:
                gone += len(other.hashes)
                known = max(known, common_pieces(other.hashes, marks))
            elif stored.startswith(other.hashes):  # a context that goes on is the same, longer
                gone += len(other.hashes)
                found = max(found, len(other.hashes) // HASH_BYTES)
            else:
                found = max(found, common_pieces(other.hashes, marks))
                after.append(other)
        if len(after) >= MAX_CHAINS_PER_CONVERSATION:
            gone += len(after.pop(0).hashes)
        after.append(_SentChain(stored, now))
        self._conversations[opening] = after
        if kept or head_used is not None:
            self._heads[head] = now if kept or found else head_used or now
        self._pieces += kept - gone // HASH_BYTES
        self._make_room()
        return found, max(found, known)

    def _make_room(self) -> None:
        while len(self._heads) > MAX_CONVERSATIONS:
            self._heads.popitem(last=False)
        while (known := len(self._conversations)) > 1 and (
            known > MAX_CONVERSATIONS or self._pieces > self._most_pieces
        ):
            oldest = self._conversations.popitem(last=False)[1]
            self._pieces -= sum([len(chain.hashes) for chain in oldest]) // HASH_BYTES


def _pieces_before(tokens: Sequence[int], unmarked: int) -> int:
    """How many pieces stand before the last `unmarked` tokens as a whole."""
    kept = len(tokens)
    while unmarked > 0 and kept:
        kept -= 1
        unmarked -= tokens[kept]
    return kept


def with_shorter_prefix(use: CacheUse, prefix: int, tariff: Tariff, unmarked: int = 0) -> CacheUse:
    """The same request where at most `prefix` tokens of its beginning were known."""
    return use if use.prefix <= prefix else cache_use_of(use.total, prefix, tariff, unmarked)


def cache_use_of(total: int, prefix: int, tariff: Tariff, unmarked: int = 0) -> CacheUse:
    """A request of `total` tokens of which the first `prefix` are in the cache and the last `unmarked` go into none."""
    cached = cacheable_tokens(prefix, tariff)
    # Where storing costs nothing extra, what is stored is plain input.
    written = max(0, cacheable_tokens(total - unmarked, tariff) - cached) if tariff.write != 1 else 0
    return CacheUse(cached, written, total - cached - written, prefix)


def hash_chain(chain: PromptChain | HashedChain, unmarked: int = 0) -> HashedChain:
    """A chain as caches compare it; `unmarked` tokens at its end stand behind the last cache marker."""
    if isinstance(chain, HashedChain):
        return chain
    if not chain:
        return HashedChain(b"", b"", b"", (), 0)
    identities, tokens = zip(*chain, strict=True)
    marks = array("q", list(map(hash, identities))).tobytes()
    total = sum(tokens)
    return HashedChain(marks, marks[:HASH_BYTES], marks[: 2 * HASH_BYTES], tokens, total, min(max(0, unmarked), total))


def holds_all_pieces(hashed: HashedChain, other: HashedChain) -> bool:
    """Whether all pieces of `other` but its head stand in `hashed`, each as often."""
    ours, theirs = (Counter(array("q", each.hashes[HASH_BYTES:])) for each in (hashed, other))
    return theirs <= ours


def common_pieces(one: bytes, other: bytes) -> int:
    """How many pieces two lines have in common at their beginning."""
    low, high = 0, min(len(one), len(other)) // HASH_BYTES
    if one[: high * HASH_BYTES] == other[: high * HASH_BYTES]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if one[: middle * HASH_BYTES] == other[: middle * HASH_BYTES]:
            low = middle
        else:
            high = middle - 1
    return low


def cacheable_tokens(tokens: int, tariff: Tariff) -> int:
    """Tokens of a prefix that a cache of this tariff can hold."""
    whole = tokens - tokens % tariff.step
    return whole if whole >= tariff.minimum else 0
