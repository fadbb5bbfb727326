"""Room for the bodies of requests: how many bytes of them the process holds at one time, and for whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from proxy.errors import Overloaded


class BodyRoom:
    """`size` bytes for all bodies; of them `share` at most for one holder, such as a tenant."""

    def __init__(self, size: int, share: int | None = None) -> None:
        self._size = size
        self._share = size if share is None else share
        self._taken: Counter[str] = Counter()
        self._total = 0

    def take(self, size: int, holder: str = "") -> None:
        """Raises Overloaded if there is no room for so many bytes more."""
        if self._total + size > self._size or self._taken[holder] + size > self._share:
            whose, most = ("your", self._share) if self._total + size <= self._size else ("the", self._size)
            raise Overloaded(
                f"{whose.capitalize()} request bodies that are being read or answered take all {most} bytes that this "
                "proxy has for them. Send the request again in a moment; the operator can raise bodies_limit_bytes."
            )
        self._total += size
        self._taken[holder] += size

    @contextmanager
    def taken(self, size: int, holder: str) -> Iterator[None]:
        """Takes it for as long as the block runs. Raises Overloaded."""
        self.take(size, holder)
        try:
            yield
        finally:
            self.give_back(size, holder)

    def give_back(self, size: int, holder: str = "") -> None:
        self._total -= size
        self._taken[holder] -= size
        if not self._taken[holder]:
            del self._taken[holder]
