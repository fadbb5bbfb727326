"""Waiting for something with a deadline, and letting others not wait.

The law: **who does not wait needs no clock**. Most of what a request does between its arrival and its departure asks
for things that are at hand, and never gives way to the loop; it runs until it first waits, and only then is its time
measured. A deadline set beforehand costs 12 us a request.

What this module does not do: it stops nothing that computes.

What nobody waits for, done when those who wait have been served.

An answer is over before it is booked: the receipt, the line in the log, the figures. An agent that has its answer sends
its next request at once, and with several of them each would wait for the books of all others; and work of one kind in
a row is cheaper than the same between other work.

The law: **late by at most `WAIT_S`, in order, never left out**. Trouble is told at once, with all before it. Whoever
reads what is done here calls `catch_up` first, and so does whoever closes the process. Only a process that is killed
from outside takes the books of its last moment with it, as it does with all that is written behind.

What this module does not do: it keeps no order with anything but itself, and knows no thread but the event loop's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

Found = TypeVar("Found")


async def with_timeout(seconds: float, work: Coroutine[Any, Any, Found]) -> Found:
    """What `work` returns. Raises what it raises, and TimeoutError where it waits longer than so many seconds; then it
    has been cancelled."""
    async with asyncio.timeout(seconds):
        return await work


async def in_slices(work: Generator[None, None, Found]) -> Found:
    """What `work` comes to; others have their turn between two bits of it. Raises what it raises."""
    while True:
        try:
            next(work)
        except StopIteration as ended:
            found: Found = ended.value
            return found
        await asyncio.sleep(0)


log = logging.getLogger(__name__)

MAX_DELAY_S = 0.005
"""How long work waits for other work of its kind, in seconds: longer than an agent on the same machine takes to send
its next request, and at 1,700 requests a second 0.5 ms of work in a row."""

DeferredTask = Callable[[], None]


class DeferredTasks:
    """One per process, on its event loop. `wait_s` 0: at once, for whoever has nobody waiting, such as a replay."""

    def __init__(self, wait_s: float = MAX_DELAY_S) -> None:
        self._delay_s = wait_s
        self._pending: list[DeferredTask] = []

    def add(self, work: DeferredTask, *, now: bool = False) -> None:
        """To be done soon, or `now`, behind all that was added before."""
        self._pending.append(work)
        if now or not self._delay_s:
            self.run_pending()
        elif len(self._pending) == 1:
            asyncio.get_running_loop().call_later(self._delay_s, self.run_pending)

    def run_pending(self) -> None:
        """Do all that waits, now."""
        waiting, self._pending = self._pending, []
        for work in waiting:
            try:
                work()
            except Exception:  # the edge of our own books: what comes behind has nothing to do with it
                log.exception("what a request leaves behind could not be booked")
