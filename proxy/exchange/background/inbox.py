"""Queues user messages for a running agent, and cancels its requests.

The lane `steer` is delivered with the next upstream request, `follow_up` when the model has finished. Waiting messages
are durable, limited in number and length, can be removed, and expire. A message that no request would deliver is
refused with NotAllowed. A cancel clears the queue; a client that disconnects does not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from msgspec.structs import replace

from proxy.core.ledger import DeliveryState, Lane, QueuedMessage, waiting_messages
from proxy.errors import BadRequest, NotAllowed, NotFound
from proxy.exchange.background.in_flight import InFlight, InFlightRequest
from proxy.exchange.thread.holdout import HELD_OUT_MODE
from proxy.store import CachedConversation, ConversationCache, Store
from proxy.telemetry import EventBus, Metrics, ProxyEvent

log = logging.getLogger(__name__)

MAX_WAITING_MESSAGES = 32
"""Per conversation."""
MAX_MESSAGE_CHARACTERS = 16_000
MAX_WAITING_CHARACTERS = 64_000
"""All waiting messages are delivered at once, as one."""
MAX_LISTED_MESSAGES = 200
CANCEL_TIMEOUT_S = 5.0
"""How long a cancel waits for the cancelled requests to clean up."""
UNCHANGED_MODES = ("off", "shadow", HELD_OUT_MODE)
"""Modes in which the client's request is sent unchanged."""


@dataclass(frozen=True, slots=True)
class CancelledCounts:
    """Cancelled requests and removed messages."""

    requests: int
    messages: int


@dataclass(frozen=True)
class Inbox:
    """One per process, or per command without one. `expiry_hours` is how long a message waits; `now` returns ms since
    the epoch, `new_id` 128 random bits in hex."""

    store: Store
    conversation_cache: ConversationCache
    expiry_hours: float
    now: Callable[[], int]
    new_id: Callable[[], str]
    in_flight: InFlight = field(default_factory=InFlight)
    metrics: Metrics = field(default_factory=Metrics)
    event_bus: EventBus = field(default_factory=EventBus)

    async def add_message(  # noqa: PLR0913 - whose words, which, for whom, and when
        self, tenant: str, conversation: str, text: str, lane: Lane, thread: str = "", name: str = ""
    ) -> tuple[QueuedMessage, int]:
        """Queue a message for one thread or all; returns it and its position from 1 (0: no longer waiting). Durable on
        return. Repeating a `name` returns the first message as it is now.

        Raises NotFound for an unknown conversation or thread, BadRequest for an empty or too long text, NotAllowed
        where it cannot be delivered or too much waits, StoreError.
        """
        _check_text(text)
        cached = await self._load_conversation(tenant, conversation)
        now = self.now()
        before = waiting_messages(cached.ledger.queue.values(), now)
        if (known := cached.ledger.queue.get(name)) is not None:
            return known, before.index(known) + 1 if known in before else 0
        await self._check_deliverable(cached, thread)
        if (
            len(before) >= MAX_WAITING_MESSAGES
            or sum(len(each.text) for each in before) + len(text) > MAX_WAITING_CHARACTERS
        ):
            raise NotAllowed(
                f"{len(before)} messages wait here already, and at most {MAX_WAITING_MESSAGES} of "
                f"{MAX_WAITING_CHARACTERS:,} characters "
                "together are taken in. Wait until the agent was told of them, or DELETE those no longer wanted.",
                code="queue_full",
            )
        said = QueuedMessage(name or self.new_id(), text, lane, thread, now, now + int(self.expiry_hours * 3_600_000))
        await self._store(cached, [said])
        position = len(before) + 1
        self._report("queued", cached, now, lane=str(lane), waiting=position)
        return said, position

    async def list_messages(self, tenant: str, conversation: str) -> tuple[QueuedMessage, ...]:
        """All messages but the removed, oldest first. Raises NotFound, StoreError."""
        cached = await self._load_conversation(tenant, conversation)
        messages = [said for said in cached.ledger.queue.values() if said.state is not DeliveryState.REMOVED]
        return tuple(messages[-MAX_LISTED_MESSAGES:])

    async def clear_messages(self, tenant: str, conversation: str) -> int:
        """Remove all waiting messages; returns their number. Raises NotFound, StoreError."""
        cached = await self._load_conversation(tenant, conversation)
        left = waiting_messages(cached.ledger.queue.values(), self.now())
        await self._remove_messages(cached, left)
        return len(left)

    async def remove_message(self, tenant: str, conversation: str, message: str) -> None:
        """Raises NotFound, NotAllowed for a message that was delivered, StoreError."""
        cached = await self._load_conversation(tenant, conversation)
        said = cached.ledger.queue.get(message)
        if said is None or said.state is DeliveryState.REMOVED:
            raise NotFound("There is no such message here. GET .../messages lists those there are.")
        if said.state is DeliveryState.DELIVERED:
            raise NotAllowed("The model was told of it already; say something else instead.", code="delivered")
        await self._remove_messages(cached, [said])

    async def list_in_flight(self, tenant: str, conversation: str) -> tuple[InFlightRequest, ...]:
        """Oldest first. Raises NotFound, StoreError."""
        await self._load_conversation(tenant, conversation)
        return self.in_flight.in_conversation(tenant, conversation)

    async def cancel_requests(self, tenant: str, conversation: str) -> CancelledCounts:
        """Cancel all requests of the conversation and remove all waiting messages. Returns when the requests have
        cleaned up. Raises NotFound, StoreError."""
        flying = self.in_flight.cancel(tenant, conversation)
        with suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_TIMEOUT_S):
                for flight in flying:
                    await flight.wait_until_ended()
        return CancelledCounts(len(flying), await self.clear_messages(tenant, conversation))

    # ---------------------------------------------------------------------------------------------------- underneath
    async def _load_conversation(self, tenant: str, conversation: str) -> CachedConversation:
        cached = await self.conversation_cache.get(tenant, conversation)
        if cached is None:
            raise NotFound(f"There is no conversation {conversation[:64]!r}. GET /stack/conversations lists yours.")
        return cached

    async def _check_deliverable(self, cached: CachedConversation, thread: str) -> None:
        """Raises NotAllowed where no request would deliver a message, NotFound for an unknown thread."""
        ledger = cached.ledger
        if thread and thread not in ledger.threads:
            raise NotFound("There is no such thread here. GET .../threads lists those there are.")
        if not any(known.tool_names for known in ledger.threads.values()):
            raise NotAllowed(
                "The client of this conversation offers no tools, so the proxy never acts on it: say it in the client.",
                code="no_tools",
            )
        mode = ledger.conversation.chosen_mode
        if not mode:
            newest = await self.store.requests(cached.tenant, ledger.conversation.id, 1)
            mode = newest[0].status if newest else ""
        if mode in UNCHANGED_MODES:
            raise NotAllowed(
                f"In mode {mode} what the client sends is what the provider gets. Set the mode active or passive first "
                f"(`callstack frame mode`, or PUT /stack/conversations/{ledger.conversation.id}/mode), or say it in "
                "the client.",
                code="mode",
            )

    async def _remove_messages(self, cached: CachedConversation, gone: Sequence[QueuedMessage]) -> None:
        """Deletes the text; the event stays until the conversation is deleted."""
        now = self.now()
        await self._store(cached, [replace(said, text="", state=DeliveryState.REMOVED, settled=now) for said in gone])
        for said in gone:
            self._report("removed", cached, now, lane=str(said.lane))

    def _report(self, what: str, cached: CachedConversation, now: int, **figures: int | str) -> None:
        """Never logs the text."""
        about = cached.ledger.conversation
        self.metrics.count_messages(what)
        self.event_bus.publish(ProxyEvent(f"message.{what}", now, about.tenant, about.id, figures=dict(figures)))
        log.info("message %s", what, extra={"conversation": about.id, **figures})

    async def _store(self, cached: CachedConversation, values: Sequence[QueuedMessage]) -> None:
        if values:
            self.conversation_cache.record(cached, values)
            await self.conversation_cache.wait_until_durable(cached)


def _check_text(text: str) -> None:
    if not text.strip():
        raise BadRequest("The text says nothing; write what the agent is to be told.", code="no_text")
    if len(text) > MAX_MESSAGE_CHARACTERS:
        raise BadRequest(
            f"The text has {len(text)} characters, and at most {MAX_MESSAGE_CHARACTERS} are taken in: "
            f"name a file that has the rest.",
            code="text_too_long",
        )
