"""Those who wait on an event loop for what a thread does, how they are told, and for how long others give way to them.

The law: **everybody is told once, on their own loop**, also when they left in the meantime or their loop is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from proxy.errors import StoreError


@dataclass(frozen=True, slots=True)
class Waiter:
    """Somebody on an event loop who waits for a ticket. `settled_only`: told of the end, not of a failure."""

    ticket: int
    settled_only: bool
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]


@dataclass(slots=True)
class GivingWay:
    """Receipts are left for what somebody waits for, until the first of them was left for so long, in seconds. Even
    then whoever waits at that moment comes first, and they next."""

    for_s: float
    left_since: float | None = None
    """Since when something is left that has waited for company; None where nothing is."""
    may_wait: bool = True

    def took(self, now: float, *, gave_way: bool, left: bool) -> None:
        """A group was taken: whether receipts gave way to it, and whether anything was left."""
        if not left:
            self.left_since = None
        elif self.left_since is None:
            self.left_since = now if gave_way else now - self.for_s
        overdue = self.left_since is not None and now - self.left_since >= self.for_s
        self.may_wait = not (gave_way and overdue)


def tell(news: Sequence[tuple[Waiter, StoreError | None]]) -> None:
    """Wake the waiters, each on its loop, with one call per loop."""
    for loop in {waiter.loop for waiter, _ in news}:
        try:
            loop.call_soon_threadsafe(_wake, [(w.future, error) for w, error in news if w.loop is loop])
        except RuntimeError:  # the loop was closed: nobody waits there any more
            continue


def _wake(news: Sequence[tuple[asyncio.Future[None], StoreError | None]]) -> None:
    for future, error in news:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(again(error))


def again(error: StoreError) -> StoreError:
    """A new one of the same words: an exception raised in two places would gather both traces."""
    return StoreError(str(error), code=error.code)
