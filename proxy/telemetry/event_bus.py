"""Who hears what happens: everybody who listens, each what is theirs, and the file `events.jsonl` where one is wanted.

The laws: **nobody waits for a listener**: each has a queue of its own, and one that does not keep up is told how much
it missed; and **everything is bounded**: what is remembered, what waits, who listens.

What this module does not do: it speaks to nobody. The routes of `api.events` do, and `event_file` writes the file.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

from proxy.accounting import Receipt
from proxy.core.ledger import Ledger, LedgerEvent
from proxy.errors import ProxyError
from proxy.telemetry.events import ProxyEvent, proxy_events_of, receipt_event_of

MAX_REMEMBERED_EVENTS = 1_000
"""Happenings that a listener who comes back can ask for."""
MAX_WAITING_EVENTS = 1_000
"""Happenings that wait for one listener; it misses what comes beyond."""
MAX_LISTENERS, MAX_LISTENERS_PER_TENANT = 64, 8
"""How many may listen at once, and how many of them for one tenant."""


class TooManyListeners(ProxyError):
    status = 429
    code = "too_many_listeners"


class NumberedEvent(msgspec.Struct, frozen=True, gc=False):
    """A happening with its number in this process, from 1."""

    number: int
    event: ProxyEvent


@dataclass(eq=False)
class EventListener:
    """`scope` is a tenant, or None for an operator; `conversation` narrows it where it is not empty. What waits is the
    oldest first; `missed` counts what did not fit since it was told last."""

    scope: str | None
    conversation: str = ""
    waiting: deque[NumberedEvent] = field(default_factory=deque)
    missed: int = 0
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    def accepts(self, happening: ProxyEvent) -> bool:
        mine = self.scope is None or self.scope == happening.tenant
        return mine and self.conversation in ("", happening.conversation)

    def enqueue(self, told: NumberedEvent) -> None:
        if len(self.waiting) >= MAX_WAITING_EVENTS:
            self.missed += 1
        else:
            self.waiting.append(told)
        self._woken.set()

    async def wait_for_events(self, seconds: float) -> tuple[list[NumberedEvent], int]:
        """What has come, oldest first, and how much was missed; both empty where nothing comes within the time."""
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


class EventBus:
    """One per process, on its event loop."""

    def __init__(self) -> None:
        self._number = 0
        self._recent: deque[NumberedEvent] = deque(maxlen=MAX_REMEMBERED_EVENTS)
        self._listeners: list[EventListener] = []

    def publish_ledger_events(self, ledger: Ledger, events: Sequence[LedgerEvent]) -> None:
        """These events were decided, and are in the ledger."""
        for happening in proxy_events_of(ledger, events):
            self.publish(happening)

    def publish_receipt(self, tenant: str, told: Receipt) -> None:
        """A request was answered."""
        self.publish(receipt_event_of(tenant, told))

    def publish(self, happening: ProxyEvent) -> None:
        self._number += 1
        told = NumberedEvent(self._number, happening)
        self._recent.append(told)
        for listener in self._listeners:
            if listener.accepts(happening):
                listener.enqueue(told)

    def events_since(self, number: int, listener: EventListener) -> Iterator[NumberedEvent]:
        """What this listener could have heard after `number`, as far as it is remembered."""
        return (told for told in self._recent if told.number > number and listener.accepts(told.event))

    def refuse_if_full(self, scope: str | None) -> None:
        """Raises TooManyListeners where this one more would be one too many."""
        of_one = sum(listener.scope == scope for listener in self._listeners)
        if len(self._listeners) >= MAX_LISTENERS or of_one >= MAX_LISTENERS_PER_TENANT:
            raise TooManyListeners("As many listen to events as may. Close a stream, or ask with follow=false.")

    @contextmanager
    def listen(self, scope: str | None, conversation: str = "", after: int | None = None) -> Iterator[EventListener]:
        """A listener for as long as it listens; `after`: with what it could have heard behind this number. Raises
        TooManyListeners."""
        self.refuse_if_full(scope)
        listener = EventListener(scope, conversation)
        listener.waiting.extend(self.events_since(after, listener) if after is not None else ())
        self._listeners.append(listener)
        try:
            yield listener
        finally:
            self._listeners.remove(listener)
