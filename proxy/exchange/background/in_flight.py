"""Requests under way, by conversation: what is seen of an answer while it is made, and how a person stops it.

The law: **a flight is known exactly as long as its request is carried out**, whichever way that ends. To stop one is to
cancel the task that carries it out, which closes the upstream at once; what is told to the client then is its own
business (`exchange`).

What this module does not do: it keeps nothing. After a restart nothing is under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from proxy.core.ledger.messages import Call


@dataclass(frozen=True, slots=True)
class Glimpse:
    """What there is of an answer so far: the frame its newest round is made in, the number of that round from 0, the
    text of all rounds, and the calls of the newest one."""

    frame: str
    round: int
    text: str
    calls: tuple[Call, ...] = ()


class Flight(msgspec.Struct, eq=False):
    """One request. `node` is the entry of its last message, empty where it stands on no path; `created` is ms since the
    epoch."""

    request: str
    tenant: str
    conversation: str
    thread: str
    node: str
    status: str
    created: int
    glimpse: Callable[[], Glimpse]
    stopped: bool = False
    """A person wants it stopped."""
    task: asyncio.Task[object] | None = None
    """Carries it out, as long as it is under way."""
    over: asyncio.Event | None = None
    """There once somebody waits for its end."""

    def stop(self) -> None:
        """Once is enough: what is told to the client then must not be cut off."""
        if not self.stopped and self.task is not None:
            self.stopped = True
            self.task.cancel()

    async def ended(self) -> None:
        """Returns when it is no longer under way."""
        if self.task is not None:
            self.over = self.over or asyncio.Event()
            await self.over.wait()


def _nothing() -> Glimpse:
    return Glimpse("", 0, "")


class Flights:
    """All requests of this process that are under way and belong to a conversation. `rested` is called with the tenant
    and the conversation whose last one has ended."""

    def __init__(self, rested: Callable[[str, str], None] = lambda *_: None) -> None:
        self._rested = rested
        self._by_conversation: dict[tuple[str, str], list[Flight]] = {}

    def begin(self, flight: Flight) -> None:
        """Known from here on, in the task that carries it out, until that says it is at its `end`."""
        flight.task = asyncio.current_task()
        self._by_conversation.setdefault((flight.tenant, flight.conversation), []).append(flight)

    def end(self, flight: Flight) -> None:
        """It is no longer under way."""
        key = (flight.tenant, flight.conversation)
        flight.task, flight.glimpse = None, _nothing  # whoever shows it holds the whole request, and holds this
        if flight.over is not None:
            flight.over.set()
        flying = self._by_conversation[key]
        flying.remove(flight)
        if not flying:
            del self._by_conversation[key]
            self._rested(*key)

    def of(self, tenant: str, conversation: str) -> tuple[Flight, ...]:
        """Those of a conversation, the oldest first."""
        return tuple(self._by_conversation.get((tenant, conversation), ()))

    def nodes(self, tenant: str, conversation: str) -> frozenset[str]:
        """The entries at which they stand, but for the one that this task carries out."""
        asking = asyncio.current_task()
        return frozenset(flight.node for flight in self.of(tenant, conversation) if flight.task is not asking)

    def __len__(self) -> int:
        return sum(map(len, self._by_conversation.values()))
