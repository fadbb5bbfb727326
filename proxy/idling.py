"""Conversations that have gone quiet: no request under way, and none for a while (S1-99).

The law: **a conversation goes idle once** for each time that it rests; a further request makes that a new time. Nothing
is kept of one that is idle, so memory is bounded by what was asked lately (S1-71h).

What this module does not do: it decides nothing about frames, and knows no clock but the one it is given.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

MOST = 50_000
"""Conversations that may rest at once; the longest resting one goes unheard beyond."""

Owner = tuple[str, str]
"""Tenant and conversation."""


class Idling:
    """`delay_s` is how long a rest lasts; `clock` tells seconds and never goes back; `busy` says whether a request of a
    conversation is under way."""

    def __init__(self, delay_s: float, clock: Callable[[], float], busy: Callable[[str, str], bool]) -> None:
        self._delay = delay_s
        self._clock = clock
        self._busy = busy
        self._resting: OrderedDict[Owner, float] = OrderedDict()

    def rested(self, tenant: str, conversation: str) -> None:
        """Its last request has ended now."""
        self._resting[tenant, conversation] = self._clock()
        self._resting.move_to_end((tenant, conversation))
        if len(self._resting) > MOST:
            self._resting.popitem(last=False)

    def due(self) -> list[Owner]:
        """Those that have gone idle since this was asked last, the longest resting first."""
        now = self._clock()
        over = []
        for owner, since in list(self._resting.items()):
            if now - since < self._delay:
                break
            del self._resting[owner]
            if not self._busy(*owner):  # one that is busy rests again when that ends
                over.append(owner)
        return over

    def __len__(self) -> int:
        return len(self._resting)
