"""Conversations that have gone quiet: no request under way, and none for a while (S1-99).

The law: **a conversation goes idle once** for each time that it rests; a further request makes that a new time. Nothing
is kept of one that is idle, so memory is bounded by what was asked lately (S1-71h).

What this module does not do: it decides nothing about frames, and knows no clock but the one it is given.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

MOST = 50_000
"""Conversations that may rest at once; the longest resting one goes unheard beyond."""


class Rest(NamedTuple):
    """A conversation that rests. `parent` is the one it came from, or empty."""

    tenant: str
    conversation: str
    parent: str


class Idling:
    """`delay_s` tells how long a rest lasts now; `clock` tells seconds and never goes back; `busy` says whether a
    request of a conversation is under way."""

    def __init__(
        self, delay_s: Callable[[], float], clock: Callable[[], float], busy: Callable[[str, str], bool]
    ) -> None:
        self._delay = delay_s
        self._clock = clock
        self._busy = busy
        self._resting: OrderedDict[Rest, float] = OrderedDict()

    def rested(self, tenant: str, conversation: str, parent: str = "") -> None:
        """Its last request has ended now."""
        rest = Rest(tenant, conversation, parent)
        self._resting[rest] = self._clock()
        self._resting.move_to_end(rest)
        if len(self._resting) > MOST:
            self._resting.popitem(last=False)

    def due(self) -> list[Rest]:
        """Those that have gone idle since this was asked last, the longest resting first."""
        now, delay = self._clock(), self._delay()
        over = []
        for rest, since in list(self._resting.items()):
            if now - since < delay:
                break
            del self._resting[rest]
            if not self._busy(rest.tenant, rest.conversation):  # one that is busy rests again when that ends
                over.append(rest)
        return over

    def __len__(self) -> int:
        return len(self._resting)
