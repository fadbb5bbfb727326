"""A clock for a proxy that runs in the test's own process: nobody may set the clock of the machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

HOUR_MS = 3_600_000


class Clock:
    """The time of the machine in ms since the epoch, and what it was set forward by."""

    def __init__(self) -> None:
        self.set_by = 0

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self.set_by


@contextmanager
def set_clock() -> Iterator[Clock]:
    """What every proxy goes by that is started inside."""
    with patch("proxy.server.app.now_ms", Clock()) as clock:
        assert isinstance(clock, Clock)
        yield clock
