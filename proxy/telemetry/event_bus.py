"""Distributes events to listeners. Each has a bounded queue, so nobody waits for a slow listener: it misses events and
learns how many. Remembered events and the number of listeners are bounded too."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from proxy.accounting import Receipt
from proxy.core.ledger import Ledger, LedgerEvent
from proxy.errors import ProxyError
from proxy.telemetry.events import ProxyEvent, proxy_events_of, receipt_event_of

MAX_REMEMBERED_EVENTS = 1_000
"""Past events that a returning listener can ask for."""
MAX_WAITING_EVENTS = 1_000
"""Events queued for one listener; it misses those beyond."""
MAX_LISTENERS, MAX_LISTENERS_PER_TENANT = 64, 8
"""Listeners at once: of all tenants, and of one."""


class TooManyListeners(ProxyError):
    status = 429
    code = "too_many_listeners"


class NumberedEvent(msgspec.Struct, frozen=True, gc=False):
    """An event with its number in this process, from 1."""

    number: int
    event: ProxyEvent


@dataclass(eq=False)
class EventListener:
    """`scope` is a tenant, or None for an operator. `missed` counts events dropped since the last report."""

    scope: str | None
    conversation: str = ""
    waiting: deque[NumberedEvent] = field(default_factory=deque)
    missed: int = 0
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    def accepts(self, happening: ProxyEvent) -> bool:
        mine = self.scope is None or self.scope == happening.tenant
        return mine and self.conversation in ("", happening.conversation)

    def enqueue(self, event: NumberedEvent) -> None:
        if len(self.waiting) >= MAX_WAITING_EVENTS:
            self.missed += 1
        else:
            self.waiting.append(event)
        self._woken.set()

    async def wait_for_events(self, seconds: float) -> tuple[list[NumberedEvent], int]:
        """New events, oldest first, and the number missed; both empty if none comes in time."""
        if not self.waiting:
            self._woken.clear()
            try:
                await asyncio.wait_for(self._woken.wait(), seconds)
            except TimeoutError:
                return [], 0
        told, missed = list(self.waiting), self.missed
        self.waiting.clear()
        self.missed = 0
        return told, missed


class Tracer(Protocol):
    """Told of the receipts and ledger events of this process."""

    def trace_receipt(self, tenant: str, receipt: Receipt) -> None: ...

    def trace_ledger_events(self, ledger: Ledger, events: Sequence[LedgerEvent]) -> None: ...

    async def close(self) -> None: ...


class EventBus:
    """One per process, on its event loop."""

    def __init__(self) -> None:
        self._number = 0
        self._recent: deque[NumberedEvent] = deque(maxlen=MAX_REMEMBERED_EVENTS)
        self._listeners: list[EventListener] = []
        self.on_event: Callable[[ProxyEvent], None] = lambda _: None
        """Told of everything that happened in this process."""
        self.tracer: Tracer | None = None

    @property
    def newest_number(self) -> int:
        """Of the newest event, 0 before the first."""
        return self._number

    def publish_ledger_events(self, ledger: Ledger, events: Sequence[LedgerEvent]) -> None:
        for happening in proxy_events_of(ledger, events):
            self.publish(happening)
        if self.tracer is not None:
            self.tracer.trace_ledger_events(ledger, events)

    def publish_receipt(self, tenant: str, receipt: Receipt) -> None:
        self.publish(receipt_event_of(tenant, receipt))
        if self.tracer is not None:
            self.tracer.trace_receipt(tenant, receipt)

    def publish(self, happening: ProxyEvent) -> None:
        """Something happened in this process."""
        self.distribute(happening)
        self.on_event(happening)

    def distribute(self, happening: ProxyEvent) -> None:
        """Something happened, here or in another process."""
        self._number += 1
        told = NumberedEvent(self._number, happening)
        self._recent.append(told)
        for listener in self._listeners:
            if listener.accepts(happening):
                listener.enqueue(told)

    def events_since(self, number: int, listener: EventListener) -> Iterator[NumberedEvent]:
        """Remembered events for this listener after `number`."""
        return (event for event in self._recent if event.number > number and listener.accepts(event.event))

    def refuse_if_full(self, scope: str | None) -> None:
        """Raises TooManyListeners if no listener can be added."""
        of_one = sum(listener.scope == scope for listener in self._listeners)
        if len(self._listeners) >= MAX_LISTENERS or of_one >= MAX_LISTENERS_PER_TENANT:
            raise TooManyListeners("As many listen to events as may. Close a stream, or ask with follow=false.")

    @contextmanager
    def listen(self, scope: str | None, conversation: str = "", after: int | None = None) -> Iterator[EventListener]:
        """A listener, beginning with remembered events after number `after`. Raises TooManyListeners."""
        self.refuse_if_full(scope)
        listener = EventListener(scope, conversation)
        listener.waiting.extend(self.events_since(after, listener) if after is not None else ())
        self._listeners.append(listener)
        try:
            yield listener
        finally:
            self._listeners.remove(listener)
