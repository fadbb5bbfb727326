"""What was handed to the writer and is neither on disk nor given up, by its ticket.

The law: **a ticket is over once, and tickets end in any order**: receipts give way. So a reader waits for all that may
concern it, and whoever waits for a ticket, for that one alone.

What this module does not do: it holds no lock and tells nobody; `writer` does both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from proxy.store.commit import Batch
from proxy.store.pending import Waiter

LOOKED_THROUGH = 64
"""Batches that are looked through for what a reader asks for; where there are more, all of them may concern it."""


@dataclass(frozen=True, slots=True)
class Job:
    """Something else to do with the connection that writes, in its turn. It does its own transactions."""

    ticket: int
    run: Callable[[], None]
    size: int = 0


class UnderWay:
    """`newest` is the last ticket that was given."""

    def __init__(self) -> None:
        self.newest = 0
        self._works: dict[int, Batch | Job] = {}

    @property
    def next(self) -> int:
        """The ticket of what is taken next."""
        return self.newest + 1

    def took(self, work: Batch | Job) -> int:
        """It was queued under the next ticket; that."""
        self.newest = work.ticket
        self._works[work.ticket] = work
        return work.ticket

    def ended(self, ticket: int) -> None:
        self._works.pop(ticket, None)

    def is_over(self, waiter: Waiter) -> bool:
        """Whether nothing is left that this one waits for: all up to its ticket, or the ticket alone. What a
        conversation consists of is written in order."""
        if waiter.settled_only:
            return next(iter(self._works), self.next) > waiter.ticket
        return waiter.ticket not in self._works

    def newest_that(self, concerns: Callable[[Batch], bool]) -> int:
        """The ticket of the newest batch that `concerns` somebody, or of a job, which may concern anybody; 0 where
        there is neither."""
        if len(self._works) > LOOKED_THROUGH:
            return self.newest
        newest_first = reversed(self._works.values())
        return next((work.ticket for work in newest_first if isinstance(work, Job) or concerns(work)), 0)
