"""Work handed to the writer and not yet finished, by ticket, and the waiters for it.

Tickets may finish in any order. Each waiter is woken once, on its own event loop. The writer holds the lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proxy.errors import StoreError
from proxy.store.commit import Batch


@dataclass(frozen=True, slots=True)
class Waiter:
    """A task on an event loop that waits for a ticket. `ignores_failure`: a failure of the ticket is not raised."""

    ticket: int
    ignores_failure: bool
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]


@dataclass(slots=True)
class ReceiptDelay:
    """Receipts give way to batches that somebody waits for, but no longer than this many seconds."""

    max_delay_s: float
    waiting_since: float | None = None
    """When the oldest delayed work began to wait; None if there is none."""
    may_delay: bool = True

    def record_group(self, now: float, *, gave_way: bool, left: bool) -> None:
        if not left:
            self.waiting_since = None
        elif self.waiting_since is None:
            self.waiting_since = now if gave_way else now - self.max_delay_s
        overdue = self.waiting_since is not None and now - self.waiting_since >= self.max_delay_s
        self.may_delay = not (gave_way and overdue)


def notify_waiters(news: Sequence[tuple[Waiter, StoreError | None]]) -> None:
    """Wake the waiters with one call per event loop."""
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
    """A new error with the same text: raising one object in two places would join both tracebacks."""
    return StoreError(str(error), code=error.code)


MAX_SCANNED_BATCHES = 64
"""Batches checked for what a reader asks for; with more in the queue, all count as relevant."""


@dataclass(frozen=True, slots=True)
class WriterJob:
    """Other work for the write connection, in its turn in the queue. It does its own transactions."""

    ticket: int
    run: Callable[[], None]
    size: int = 0


class PendingWork:
    """`newest` is the last ticket given."""

    def __init__(self) -> None:
        self.newest_ticket = 0
        self._work_by_ticket: dict[int, Batch | WriterJob] = {}

    @property
    def next_ticket(self) -> int:
        return self.newest_ticket + 1

    def add(self, work: Batch | WriterJob) -> int:
        """Register queued work under the next ticket, and return that ticket."""
        self.newest_ticket = work.ticket
        self._work_by_ticket[work.ticket] = work
        return work.ticket

    def remove(self, ticket: int) -> None:
        self._work_by_ticket.pop(ticket, None)

    def is_done_for(self, waiter: Waiter) -> bool:
        """Whether this waiter has nothing left to wait for: every ticket up to its own, or its own alone."""
        if waiter.ignores_failure:
            return next(iter(self._work_by_ticket), self.next_ticket) > waiter.ticket
        return waiter.ticket not in self._work_by_ticket

    def newest_ticket_for(self, concerns: Callable[[Batch], bool]) -> int:
        """Ticket of the newest job, or batch that `concerns` the reader; 0 if there is none."""
        if len(self._work_by_ticket) > MAX_SCANNED_BATCHES:
            return self.newest_ticket
        newest_first = reversed(self._work_by_ticket.values())
        return next((work.ticket for work in newest_first if isinstance(work, WriterJob) or concerns(work)), 0)
