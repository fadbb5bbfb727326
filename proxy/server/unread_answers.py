"""Ends connections whose clients take nothing of what was written for them: a client may keep its connection open and
read no more, and without an end its request, its connection to the provider and a drain would wait for it."""

from __future__ import annotations

import array
import asyncio
import fcntl
import logging
import termios
from asyncio.events import TimerHandle

from proxy.config import Config

log = logging.getLogger(__name__)

DRAIN_LIMIT_S = 2.0
"""For all connections once the process drains. A client that reads acknowledges something within it, behind three lost
packets too."""
DEFAULT_LIMIT_S = 900.0
"""Without an upstream: as long as one may be silent by default."""
_CHECKS_A_LIMIT = 4
"""So a connection ends at most a quarter of its limit late."""


def unread_limit_s(config: Config) -> float:
    """Seconds in which a client has to take something: as long as the most patient upstream may be silent."""
    return max((each.idle_timeout_s for each in config.upstreams.values()), default=DEFAULT_LIMIT_S)


class UnreadAnswer:
    """What one connection has written and its client has not taken. Aborts the connection when the client took nothing
    more of it for `limit_s`; one that reads slowly stays. A connection whose writes the system has taken has no
    timer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, limit_s: float) -> None:
        self._loop = loop
        self._transport = transport
        self._limit_s = limit_s
        self._clock: TimerHandle | None = None
        self._written = self._taken = 0
        self._moved_at = 0.0

    def wrote(self, size: int) -> None:
        """`size` bytes more were given to the transport."""
        self._written += size
        if self._clock is None and self._transport.get_write_buffer_size():
            self._watch()

    def hurry(self, limit_s: float) -> None:
        """From now on the limit is `limit_s`, if that is less."""
        self._limit_s = min(self._limit_s, limit_s)
        if self._clock is not None:
            self.stop()
            self._watch()

    def stop(self) -> None:
        """The connection is lost."""
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _watch(self) -> None:
        self._taken = self._written - self._not_taken()
        self._moved_at = self._loop.time()
        self._check_later()

    def _check_later(self) -> None:
        self._clock = self._loop.call_later(self._limit_s / _CHECKS_A_LIMIT, self._check)

    def _check(self) -> None:
        self._clock = None
        if not self._transport.get_write_buffer_size():
            return
        now, taken = self._loop.time(), self._written - self._not_taken()
        if taken > self._taken:
            self._taken, self._moved_at = taken, now
        elif now - self._moved_at >= self._limit_s:
            log.warning("a client read nothing of its answer; ended", extra={"stack_limit_s": self._limit_s})
            self._transport.abort()
            return
        self._check_later()

    def _not_taken(self) -> int:
        """Bytes that the client's system has not acknowledged: ours, and what this system holds. The system takes from
        us only when it has sent most of what it holds, so our own would seem to stand still for minutes."""
        queued = array.array("i", [0])
        try:
            fcntl.ioctl(self._transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, queued)
        except OSError:  # a system that does not tell
            queued[0] = 0
        return self._transport.get_write_buffer_size() + queued[0]
