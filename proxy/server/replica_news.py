"""What proxies on a shared store tell each other: what happened, for whoever listens to events; that a setting was
changed; that a person stops a conversation. It is told without a promise: what counts stands in the store."""

from __future__ import annotations

import logging

import msgspec

from proxy.config.runtime import LiveSettings
from proxy.errors import StoreError
from proxy.exchange import InFlight
from proxy.store import Store
from proxy.telemetry import EventBus, ProxyEvent

log = logging.getLogger(__name__)


class News(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of: an event, the tenant and conversation of requests to stop, and that settings were changed."""

    event: ProxyEvent | None = None
    stopped: tuple[str, str] | None = None
    settings: bool = False


class ReplicaNews:
    """Tells the others what happens here, and does here what they tell. On a store of its own it says nothing."""

    def __init__(self, store: Store, event_bus: EventBus, in_flight: InFlight, live_settings: LiveSettings) -> None:
        self._store = store
        self._event_bus = event_bus
        self._in_flight = in_flight
        self._live_settings = live_settings
        if store.is_shared:
            event_bus.on_event = lambda happening: self._tell(News(event=happening))
            in_flight.on_cancel = lambda *owner: self._tell(News(stopped=owner))
            live_settings.on_change = lambda: self._tell(News(settings=True))

    def _tell(self, news: News) -> None:
        self._store.announce(msgspec.json.encode(news).decode())

    async def listen_forever(self) -> None:
        """Returns at once on a store of its own."""
        async for told in self._store.announcements():
            try:
                await self._hear(msgspec.json.decode(told, type=News))
            except (msgspec.MsgspecError, StoreError) as error:  # of another version, or the store is away
                log.debug("news not understood", extra={"cause": type(error).__name__})

    async def _hear(self, news: News) -> None:
        if news.event is not None:
            self._event_bus.distribute(news.event)
        if news.stopped is not None:
            self._in_flight.cancel_here(*news.stopped)
        if news.settings:
            await self._live_settings.refresh()
