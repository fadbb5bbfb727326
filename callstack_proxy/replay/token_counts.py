"""Token counts of replays, kept by content. A recorded text is counted when its log is read, by the proxy, by the
recorded provider and for what left the context; it is tokenized once for all of them, in all sessions of a process."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import blake2b

from proxy.accounting import load_o200k

MAX_COUNTS = 100_000
"""Counts that are kept, of about 150 bytes each: those of a thousand sessions of 100 messages."""
DIGEST_BYTES = 16


@cache
def load_memoized_o200k() -> Callable[[str], int]:
    """`load_o200k` with one memory for the whole process. Raises ImportError or OSError as that does."""
    return memoized(load_o200k(), MAX_COUNTS)


def memoized(count: Callable[[str], int], most: int) -> Callable[[str], int]:
    """`count`, which keeps up to `most` results by a hash of the text."""
    counts: dict[bytes, int] = {}

    def count_once(text: str) -> int:
        key = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()
        known = counts.get(key)
        if known is None:
            if len(counts) >= most:
                counts.clear()
            known = counts[key] = count(text)
        return known

    return count_once
