"""Turns that a provider stores, as it told them: a bounded cache, so that a long history which was not read in time is
read on with the next request. It also knows who tells nothing, and is asked no more for a while."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from proxy.core.memo import keep_newest

MAX_CACHED_BYTES = 16 << 20
MAX_REFUSALS = 10
"""Refusals in a row after which a provider is not asked for a while: it may have no such requests."""
REST_SECONDS = 300.0
MAX_OWNERS = 1_000

Owner = tuple[str, str]
"""A tenant and an upstream."""


class ProviderTurn(msgspec.Struct, frozen=True):
    """A stored answer: the id of the one before it, or empty; the items of its input and of its output, oldest first;
    and the ids of the former."""

    previous: str
    input: tuple[bytes, ...]
    output: tuple[bytes, ...]
    input_ids: frozenset[str]
    output_ids: frozenset[str]

    @property
    def size(self) -> int:
        return sum(map(len, self.input)) + sum(map(len, self.output))

    def input_holds(self, items: frozenset[str]) -> bool:
        """Whether all these items stand in its input: some providers tell all that came before in each input."""
        return bool(items) and items <= self.input_ids


class ProviderTurns:
    """Not for several threads. Times are monotonic, in seconds."""

    def __init__(self) -> None:
        self._turns: OrderedDict[tuple[Owner, str], ProviderTurn] = OrderedDict()
        self._bytes = 0
        self._refusals: OrderedDict[Owner, tuple[int, float]] = OrderedDict()
        """How often each refused in a row, and when it did last."""

    def get(self, owner: Owner, name: str) -> ProviderTurn | None:
        return self._turns.get((owner, name))

    def add(self, owner: Owner, name: str, turn: ProviderTurn) -> None:
        """A stored answer never changes, so it is kept until there is no room."""
        self._refusals.pop(owner, None)
        if (owner, name) in self._turns:
            return
        self._turns[owner, name] = turn
        self._bytes += turn.size
        while self._bytes > MAX_CACHED_BYTES:
            _, gone = self._turns.popitem(last=False)
            self._bytes -= gone.size

    def note_refusal(self, owner: Owner, now: float) -> None:
        count, _ = self._refusals.get(owner, (0, 0.0))
        keep_newest(self._refusals, owner, (count + 1, now), MAX_OWNERS)

    def refuses(self, owner: Owner, now: float) -> bool:
        count, since = self._refusals.get(owner, (0, 0.0))
        return count >= MAX_REFUSALS and now - since < REST_SECONDS
