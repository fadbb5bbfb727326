"""Stores what has arrived of a streamed answer while the rest is still to come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from proxy.exchange.turn import Turn

DRAFT_DELAY_S = 0.25
"""Longest delay before received output is written to the store."""


class DraftTimer:
    """Calls `write` with a turn at most `DRAFT_DELAY_S` after the first piece that was not written yet.

    The timer alone holds `write`: kept here, a request would hold itself and live until the next garbage collection.
    """

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    def schedule(self, turn: Turn, write: Callable[[Turn], None]) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(DRAFT_DELAY_S, self._fire, turn, write)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self, turn: Turn, write: Callable[[Turn], None]) -> None:
        self._timer = None
        write(turn)
