"""Requests in flight, by conversation: shows an answer while it is made, and lets a person cancel it.

A request is listed exactly while it runs. Cancelling it cancels its task, which closes the upstream connection at once.
Nothing is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from proxy.core.ledger import Call


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An answer so far: the frame and number (from 0) of its newest round, the text of all rounds, and the newest
    round's calls."""

    frame: str
    round: int
    text: str
    calls: tuple[Call, ...] = ()


class InFlightRequest(msgspec.Struct, eq=False):
    """`entry_id` is the entry of its last message, empty where it is on no path; `created` is ms since the epoch."""

    request_id: str
    tenant: str
    conversation: str
    thread: str
    entry_id: str
    status: str
    created: int
    take_snapshot: Callable[[], Snapshot]
    cancelled_by_user: bool = False
    task: asyncio.Task[object] | None = None
    end_event: asyncio.Event | None = None
    """Set once somebody waits for the end."""

    def cancel(self) -> None:
        """Cancels at most once: a second cancel would cut off the reply to the client."""
        if not self.cancelled_by_user and self.task is not None:
            self.cancelled_by_user = True
            self.task.cancel()

    async def wait_until_ended(self) -> None:
        if self.task is not None:
            self.end_event = self.end_event or asyncio.Event()
            await self.end_event.wait()


class InFlight:
    """All requests of this process that belong to a conversation. `rested` is called with tenant and conversation when
    the last one ends."""

    def __init__(self, rested: Callable[[str, str], None] = lambda *_: None) -> None:
        self._on_resting = rested
        self.on_cancel: Callable[[str, str], None] = lambda *_: None
        """Told of each cancellation by a person: other processes may have requests of the conversation."""
        self._by_conversation: dict[tuple[str, str], list[InFlightRequest]] = {}

    def register(self, flight: InFlightRequest) -> None:
        """Call it in the task that carries out the request."""
        flight.task = asyncio.current_task()
        self._by_conversation.setdefault((flight.tenant, flight.conversation), []).append(flight)

    def unregister(self, flight: InFlightRequest) -> None:
        key = (flight.tenant, flight.conversation)
        flight.task = None
        flight.take_snapshot = lambda: Snapshot("", 0, "")  # the other one holds the whole request
        if flight.end_event is not None:
            flight.end_event.set()
        flying = self._by_conversation[key]
        flying.remove(flight)
        if not flying:
            del self._by_conversation[key]
            self._on_resting(*key)

    def cancel(self, tenant: str, conversation: str) -> tuple[InFlightRequest, ...]:
        """Cancel the requests of a conversation, in every process; returns those of this one."""
        self.on_cancel(tenant, conversation)
        return self.cancel_here(tenant, conversation)

    def cancel_here(self, tenant: str, conversation: str) -> tuple[InFlightRequest, ...]:
        flying = self.in_conversation(tenant, conversation)
        for flight in flying:
            flight.cancel()
        return flying

    def in_conversation(self, tenant: str, conversation: str) -> tuple[InFlightRequest, ...]:
        """Oldest first."""
        return tuple(self._by_conversation.get((tenant, conversation), ()))

    def other_entry_ids(self, tenant: str, conversation: str) -> frozenset[str]:
        """Entries of the conversation's requests in flight, except the current task's."""
        asking = asyncio.current_task()
        return frozenset(
            flight.entry_id for flight in self.in_conversation(tenant, conversation) if flight.task is not asking
        )

    def __len__(self) -> int:
        return sum(map(len, self._by_conversation.values()))
