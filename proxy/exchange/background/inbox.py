"""What people say into a conversation while an agent works in it, and how they stop it.

A message waits until `hearing` tells it to the model: in the lane `steer` with the next request to the provider, in the
lane `follow_up` when the model has nothing more to do. It can be seen and taken back while it waits, and it expires.

The laws: **what was taken in is on disk**, and it is bounded in number and length; **nothing is taken in that nobody
would hear**, as in a conversation that passes by the proxy untouched: whoever says it is told what to do instead. A
client that leaves changes nothing of what waits; a person who cancels clears it (C17).

What this module does not do: it tells the model nothing, and it does not know who asks: the tenant comes from outside.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from msgspec.structs import replace

from proxy.core.ledger.queued_messages import Lane, Queued, State, waiting
from proxy.errors import BadRequest, NotAllowed, UnknownFrame
from proxy.exchange.background.in_flight import Flight, Flights
from proxy.store import Store
from proxy.store.conversation_cache import Shelf, Shelved
from proxy.telemetry.event_bus import Feed
from proxy.telemetry.events import Happening
from proxy.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

MOST_WAITING = 32
"""Messages that wait in one conversation."""
LONGEST = 16_000
"""Characters of one."""
MOST_TEXT = 64_000
"""Characters of all that wait: they are told at once, as one message."""
LISTED = 200
"""The newest so many messages are listed."""
STOPS_S = 5.0
"""How long whoever cancels waits until the requests under way have put things in order."""
UNTOUCHED = ("off", "shadow")
"""Modes in which what a client sends is what the provider gets."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What a hard cancel stopped: how many requests under way, and how many messages that waited."""

    requests: int
    messages: int


@dataclass(frozen=True)
class Speaking:
    """One per process, or per command where none runs. `hours` is how long a message waits; `now` tells ms since the
    epoch, `fresh_id` makes an id of 128 random bits, hex."""

    store: Store
    shelf: Shelf
    hours: float
    now: Callable[[], int]
    fresh_id: Callable[[], str]
    flights: Flights = field(default_factory=Flights)
    metrics: Metrics = field(default_factory=Metrics)
    feed: Feed = field(default_factory=Feed)

    async def say(  # noqa: PLR0913 - whose words, which, for whom, and when
        self, tenant: str, conversation: str, text: str, lane: Lane, thread: str = "", name: str = ""
    ) -> tuple[Queued, int]:
        """Take a message in, for every thread of the conversation or for one; it, and its place among those that wait,
        from 1 (0: it waits no more). Durable when this returns. What was said under a `name` is said once: asked again
        it is what it has become.

        Raises UnknownFrame for a conversation or a thread that is not there, BadRequest for a text that says nothing or
        too much, NotAllowed where nobody would hear it or too much waits already, StoreError.
        """
        _worded(text)
        shelved = await self._at(tenant, conversation)
        now = self.now()
        before = waiting(shelved.ledger.queue.values(), now)
        if (known := shelved.ledger.queue.get(name)) is not None:
            return known, before.index(known) + 1 if known in before else 0
        await self._heard(shelved, thread)
        if len(before) >= MOST_WAITING or sum(len(each.text) for each in before) + len(text) > MOST_TEXT:
            raise NotAllowed(
                f"{len(before)} messages wait here already, and at most {MOST_WAITING} of {MOST_TEXT:,} characters "
                "together are taken in. Wait until the agent was told of them, or DELETE those no longer wanted.",
                code="queue_full",
            )
        said = Queued(name or self.fresh_id(), text, lane, thread, now, now + int(self.hours * 3_600_000))
        await self._record(shelved, [said])
        position = len(before) + 1
        self._counted("queued", shelved, now, lane=str(lane), waiting=position)
        return said, position

    async def queue(self, tenant: str, conversation: str) -> tuple[Queued, ...]:
        """What was said here and not taken back, the oldest first. Raises UnknownFrame, StoreError."""
        shelved = await self._at(tenant, conversation)
        kept = [said for said in shelved.ledger.queue.values() if said.state is not State.REMOVED]
        return tuple(kept[-LISTED:])

    async def clear(self, tenant: str, conversation: str) -> int:
        """Take back whatever waits; how many that were. Raises UnknownFrame, StoreError."""
        shelved = await self._at(tenant, conversation)
        left = waiting(shelved.ledger.queue.values(), self.now())
        await self._remove(shelved, left)
        return len(left)

    async def remove(self, tenant: str, conversation: str, message: str) -> None:
        """Take one message back. Raises UnknownFrame, NotAllowed where the model was told of it, StoreError."""
        shelved = await self._at(tenant, conversation)
        said = shelved.ledger.queue.get(message)
        if said is None or said.state is State.REMOVED:
            raise UnknownFrame("There is no such message here. GET .../messages lists those there are.")
        if said.state is State.DELIVERED:
            raise NotAllowed("The model was told of it already; say something else instead.", code="delivered")
        await self._remove(shelved, [said])

    async def live(self, tenant: str, conversation: str) -> tuple[Flight, ...]:
        """The requests that are under way here, the oldest first. Raises UnknownFrame, StoreError."""
        await self._at(tenant, conversation)
        return self.flights.of(tenant, conversation)

    async def cancel(self, tenant: str, conversation: str) -> Cancelled:
        """Stop every request of the conversation that is under way, at once, and take back whatever waits. Returns when
        the stopped ones have put things in order. Raises UnknownFrame, StoreError."""
        flying = self.flights.of(tenant, conversation)
        for flight in flying:
            flight.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOPS_S):
                for flight in flying:
                    await flight.ended()
        return Cancelled(len(flying), await self.clear(tenant, conversation))

    # ---------------------------------------------------------------------------------------------------- underneath
    async def _at(self, tenant: str, conversation: str) -> Shelved:
        shelved = await self.shelf.get(tenant, conversation)
        if shelved is None:
            raise UnknownFrame(f"There is no conversation {conversation[:64]!r}. GET /stack/conversations lists yours.")
        return shelved

    async def _heard(self, shelved: Shelved, thread: str) -> None:
        """Raises NotAllowed where no request of this conversation would be told anything, UnknownFrame for a thread
        that is not there."""
        ledger = shelved.ledger
        if thread and thread not in ledger.threads:
            raise UnknownFrame("There is no such thread here. GET .../threads lists those there are.")
        if not any(known.tool_names for known in ledger.threads.values()):
            raise NotAllowed(
                "The client of this conversation offers no tools, so the proxy never acts on it: say it in the client.",
                code="no_tools",
            )
        mode = ledger.conversation.mode
        if not mode:
            newest = await self.store.requests(shelved.tenant, ledger.conversation.id, 1)
            mode = newest[0].status if newest else ""
        if mode in UNTOUCHED:
            raise NotAllowed(
                f"In mode {mode} what the client sends is what the provider gets. Set the mode active or passive first "
                f"(`callstack mode`, or PUT /stack/conversations/{ledger.conversation.id}/mode), or say it in the "
                "client.",
                code="mode",
            )

    async def _remove(self, shelved: Shelved, gone: Sequence[Queued]) -> None:
        """The words go at once; that something was said stays until the conversation goes."""
        now = self.now()
        await self._record(shelved, [replace(said, text="", state=State.REMOVED, settled=now) for said in gone])
        for said in gone:
            self._counted("removed", shelved, now, lane=str(said.lane))

    def _counted(self, what: str, shelved: Shelved, now: int, **figures: int | str) -> None:
        """Told to whoever listens, counted and logged: never with the words."""
        about = shelved.ledger.conversation
        self.metrics.spoken(what)
        self.feed.tell(Happening(f"message.{what}", now, about.tenant, about.id, figures=dict(figures)))
        log.info("message %s", what, extra={"conversation": about.id, **figures})

    async def _record(self, shelved: Shelved, values: Sequence[Queued]) -> None:
        if values:
            self.shelf.record(shelved, values)
            await self.shelf.durable(shelved)


def _worded(text: str) -> None:
    if not text.strip():
        raise BadRequest("The text says nothing; write what the agent is to be told.", code="no_text")
    if len(text) > LONGEST:
        raise BadRequest(
            f"The text has {len(text)} characters, and at most {LONGEST} are taken in: name a file that has the rest.",
            code="text_too_long",
        )
