"""A circuit breaker: a store that keeps failing is left alone for a while, and then tried once.

It decides from the times of failures alone; the clock is handed in. Who asks it, and what is refused meanwhile, is the
writer's business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Circuit:
    """Opens after `failures` within `window` seconds, or when it is tripped; after `rest` seconds a probe is due, and
    what becomes of that decides."""

    def __init__(
        self, clock: Callable[[], float], *, failures: int = 5, window: float = 30.0, rest: float = 10.0
    ) -> None:
        self._clock = clock
        self._window = window
        self._rest = rest
        self._failed: deque[float] = deque(maxlen=failures)
        self._opened: float | None = None

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    def failed(self) -> None:
        """Count a failure. A failed probe opens the circuit for another rest."""
        now = self._clock()
        self._failed.append(now)
        full = len(self._failed) == self._failed.maxlen
        if self.is_open or (full and now - self._failed[0] <= self._window):
            self._opened = now

    def trip(self) -> None:
        """Open at once: what failed is known not to pass by itself."""
        self._opened = self._clock()

    def closed(self) -> None:
        """The probe succeeded: everything before is forgotten."""
        self._opened = None
        self._failed.clear()

    def until_probe(self) -> float | None:
        """Seconds until a probe is due, 0 when it is, None while the circuit is closed."""
        if self._opened is None:
            return None
        return max(0.0, self._opened + self._rest - self._clock())
