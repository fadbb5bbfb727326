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
from proxy.core.ledger.ledger import Event, Ledger
from proxy.errors import ProxyError
from proxy.telemetry.events import Happening, of_events, of_receipt

REMEMBERED = 1_000
"""Happenings that a listener who comes back can ask for."""
WAITING = 1_000
"""Happenings that wait for one listener; it misses what comes beyond."""
LISTENERS, LISTENERS_OF_ONE = 64, 8
"""How many may listen at once, and how many of them for one tenant."""


class TooManyListeners(ProxyError):
    status = 429
    code = "too_many_listeners"


class Numbered(msgspec.Struct, frozen=True, gc=False):
    """A happening with its number in this process, from 1."""

    number: int
    happening: Happening


@dataclass(eq=False)
class Listener:
    """`scope` is a tenant, or None for an operator; `conversation` narrows it where it is not empty. What waits is the
    oldest first; `missed` counts what did not fit since it was told last."""

    scope: str | None
    conversation: str = ""
    waiting: deque[Numbered] = field(default_factory=deque)
    missed: int = 0
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    def hears(self, happening: Happening) -> bool:
        mine = self.scope is None or self.scope == happening.tenant
        return mine and self.conversation in ("", happening.conversation)

    def take(self, told: Numbered) -> None:
        if len(self.waiting) >= WAITING:
            self.missed += 1
        else:
            self.waiting.append(told)
        self._woken.set()

    async def news(self, seconds: float) -> tuple[list[Numbered], int]:
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


class Feed:
    """One per process, on its event loop."""

    def __init__(self) -> None:
        self._number = 0
        self._recent: deque[Numbered] = deque(maxlen=REMEMBERED)
        self._listeners: list[Listener] = []

    def happened(self, ledger: Ledger, events: Sequence[Event]) -> None:
        """These events were decided, and are in the ledger."""
        for happening in of_events(ledger, events):
            self.tell(happening)

    def answered(self, tenant: str, told: Receipt) -> None:
        """A request was answered."""
        self.tell(of_receipt(tenant, told))

    def tell(self, happening: Happening) -> None:
        self._number += 1
        told = Numbered(self._number, happening)
        self._recent.append(told)
        for listener in self._listeners:
            if listener.hears(happening):
                listener.take(told)

    def since(self, number: int, listener: Listener) -> Iterator[Numbered]:
        """What this listener could have heard after `number`, as far as it is remembered."""
        return (told for told in self._recent if told.number > number and listener.hears(told.happening))

    def refuse_if_full(self, scope: str | None) -> None:
        """Raises TooManyListeners where this one more would be one too many."""
        of_one = sum(listener.scope == scope for listener in self._listeners)
        if len(self._listeners) >= LISTENERS or of_one >= LISTENERS_OF_ONE:
            raise TooManyListeners("As many listen to events as may. Close a stream, or ask with follow=false.")

    @contextmanager
    def heard(self, scope: str | None, conversation: str = "", after: int | None = None) -> Iterator[Listener]:
        """A listener for as long as it listens; `after`: with what it could have heard behind this number. Raises
        TooManyListeners."""
        self.refuse_if_full(scope)
        listener = Listener(scope, conversation)
        listener.waiting.extend(self.since(after, listener) if after is not None else ())
        self._listeners.append(listener)
        try:
            yield listener
        finally:
            self._listeners.remove(listener)
