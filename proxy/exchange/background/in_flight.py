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

from proxy.core.ledger import Call


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What there is of an answer so far: the frame its newest round is made in, the number of that round from 0, the
    text of all rounds, and the calls of the newest one."""

    frame: str
    round: int
    text: str
    calls: tuple[Call, ...] = ()


class InFlightRequest(msgspec.Struct, eq=False):
    """One request. `node` is the entry of its last message, empty where it stands on no path; `created` is ms since the
    epoch."""

    request_id: str
    tenant: str
    conversation: str
    thread: str
    entry_id: str
    status: str
    created: int
    take_snapshot: Callable[[], Snapshot]
    cancelled_by_user: bool = False
    """A person wants it stopped."""
    task: asyncio.Task[object] | None = None
    """Carries it out, as long as it is under way."""
    end_event: asyncio.Event | None = None
    """There once somebody waits for its end."""

    def cancel(self) -> None:
        """Once is enough: what is told to the client then must not be cut off."""
        if not self.cancelled_by_user and self.task is not None:
            self.cancelled_by_user = True
            self.task.cancel()

    async def wait_until_ended(self) -> None:
        """Returns when it is no longer under way."""
        if self.task is not None:
            self.end_event = self.end_event or asyncio.Event()
            await self.end_event.wait()


def _empty_snapshot() -> Snapshot:
    return Snapshot("", 0, "")


class InFlight:
    """All requests of this process that are under way and belong to a conversation. `rested` is called with the tenant
    and the conversation whose last one has ended."""

    def __init__(self, rested: Callable[[str, str], None] = lambda *_: None) -> None:
        self._on_resting = rested
        self._by_conversation: dict[tuple[str, str], list[InFlightRequest]] = {}

    def register(self, flight: InFlightRequest) -> None:
        """Known from here on, in the task that carries it out, until that says it is at its `end`."""
        flight.task = asyncio.current_task()
        self._by_conversation.setdefault((flight.tenant, flight.conversation), []).append(flight)

    def unregister(self, flight: InFlightRequest) -> None:
        """It is no longer under way."""
        key = (flight.tenant, flight.conversation)
        flight.task, flight.take_snapshot = (
            None,
            _empty_snapshot,
        )  # whoever shows it holds the whole request, and holds this
        if flight.end_event is not None:
            flight.end_event.set()
        flying = self._by_conversation[key]
        flying.remove(flight)
        if not flying:
            del self._by_conversation[key]
            self._on_resting(*key)

    def in_conversation(self, tenant: str, conversation: str) -> tuple[InFlightRequest, ...]:
        """Those of a conversation, the oldest first."""
        return tuple(self._by_conversation.get((tenant, conversation), ()))

    def other_entry_ids(self, tenant: str, conversation: str) -> frozenset[str]:
        """The entries at which they stand, but for the one that this task carries out."""
        asking = asyncio.current_task()
        return frozenset(
            flight.entry_id for flight in self.in_conversation(tenant, conversation) if flight.task is not asking
        )

    def __len__(self) -> int:
        return sum(map(len, self._by_conversation.values()))
