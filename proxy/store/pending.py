"""Those who wait on an event loop for what a thread does, how they are told, and for how long others give way to them.

The law: **everybody is told once, on their own loop**, also when they left in the meantime or their loop is closed.

What was handed to the writer and is neither on disk nor given up, by its ticket.

The law: **a ticket is over once, and tickets end in any order**: receipts give way. So a reader waits for all that may
concern it, and whoever waits for a ticket, for that one alone.

What this module does not do: it holds no lock and tells nobody; `writer` does both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proxy.errors import StoreError
from proxy.store.commit import Batch


@dataclass(frozen=True, slots=True)
class Waiter:
    """Somebody on an event loop who waits for a ticket. `settled_only`: told of the end, not of a failure."""

    ticket: int
    ignores_failure: bool
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]


@dataclass(slots=True)
class ReceiptDelay:
    """Receipts are left for what somebody waits for, until the first of them was left for so long, in seconds. Even
    then whoever waits at that moment comes first, and they next."""

    max_delay_s: float
    waiting_since: float | None = None
    """Since when something is left that has waited for company; None where nothing is."""
    may_delay: bool = True

    def record_group(self, now: float, *, gave_way: bool, left: bool) -> None:
        """A group was taken: whether receipts gave way to it, and whether anything was left."""
        if not left:
            self.waiting_since = None
        elif self.waiting_since is None:
            self.waiting_since = now if gave_way else now - self.max_delay_s
        overdue = self.waiting_since is not None and now - self.waiting_since >= self.max_delay_s
        self.may_delay = not (gave_way and overdue)


def notify_waiters(news: Sequence[tuple[Waiter, StoreError | None]]) -> None:
    """Wake the waiters, each on its loop, with one call per loop."""
    for loop in {waiter.loop for waiter, _ in news}:
        try:
            loop.call_soon_threadsafe(_resolve_futures, [(w.future, error) for w, error in news if w.loop is loop])
        except RuntimeError:  # the loop was closed: nobody waits there any more
            continue


def _resolve_futures(news: Sequence[tuple[asyncio.Future[None], StoreError | None]]) -> None:
    for future, error in news:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(copy_of_error(error))


def copy_of_error(error: StoreError) -> StoreError:
    """A new one of the same words: an exception raised in two places would gather both traces."""
    return StoreError(str(error), code=error.code)


MAX_SCANNED_BATCHES = 64
"""Batches that are looked through for what a reader asks for; where there are more, all of them may concern it."""


@dataclass(frozen=True, slots=True)
class WriterJob:
    """Something else to do with the connection that writes, in its turn. It does its own transactions."""

    ticket: int
    run: Callable[[], None]
    size: int = 0


class PendingWork:
    """`newest` is the last ticket that was given."""

    def __init__(self) -> None:
        self.newest_ticket = 0
        self._work_by_ticket: dict[int, Batch | WriterJob] = {}

    @property
    def next_ticket(self) -> int:
        """The ticket of what is taken next."""
        return self.newest_ticket + 1

    def add(self, work: Batch | WriterJob) -> int:
        """It was queued under the next ticket; that."""
        self.newest_ticket = work.ticket
        self._work_by_ticket[work.ticket] = work
        return work.ticket

    def remove(self, ticket: int) -> None:
        self._work_by_ticket.pop(ticket, None)

    def is_done_for(self, waiter: Waiter) -> bool:
        """Whether nothing is left that this one waits for: all up to its ticket, or the ticket alone. What a
        conversation consists of is written in order."""
        if waiter.ignores_failure:
            return next(iter(self._work_by_ticket), self.next_ticket) > waiter.ticket
        return waiter.ticket not in self._work_by_ticket

    def newest_ticket_for(self, concerns: Callable[[Batch], bool]) -> int:
        """The ticket of the newest batch that `concerns` somebody, or of a job, which may concern anybody; 0 where
        there is neither."""
        if len(self._work_by_ticket) > MAX_SCANNED_BATCHES:
            return self.newest_ticket
        newest_first = reversed(self._work_by_ticket.values())
        return next((work.ticket for work in newest_first if isinstance(work, WriterJob) or concerns(work)), 0)
