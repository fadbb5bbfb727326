"""What is done when a conversation goes quiet: it is told of, and where another one began it without a call that says
so, it may get a frame there (S1-71c, S1-99).

The law: **one conversation never keeps the others from being told of**, whatever is wrong with it.

What this module does not do: `idling` says what is quiet, `delegation` what becomes of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from proxy.config.runtime import LiveSettings
from proxy.config.sections import SubagentSettings
from proxy.errors import StoreError
from proxy.exchange.background.idle import Idling, Rest
from proxy.exchange.thread import subagents as delegation
from proxy.store.cache import Shelf
from proxy.telemetry.event_bus import Feed
from proxy.telemetry.events import Happening

log = logging.getLogger(__name__)

EVERY_S = 5.0
"""Between two looks, at most."""


async def hear_rest(idling: Idling, shelf: Shelf, feed: Feed, live: LiveSettings, now: Callable[[], int]) -> None:
    """Until it is cancelled. `now` tells ms since the epoch."""
    while True:
        await asyncio.sleep(min(EVERY_S, live.subagent.idle_delay / 2_000))
        settings = live.subagent
        for rest in idling.due():
            if settings.enabled and rest.parent:
                await _looked_at(rest, shelf, settings, now())
            feed.tell(Happening("conversation.idle", now(), rest.tenant, rest.conversation))


async def _looked_at(rest: Rest, shelf: Shelf, settings: SubagentSettings, now: int) -> None:
    try:
        await delegation.unannounced(shelf, rest.tenant, rest.conversation, settings, now)
    except StoreError as error:
        log.warning("no frame for what went idle", extra={"reason": error.code})
    except Exception:  # the edge of our own bookkeeping: nobody waits for this
        log.exception("what went idle could not be looked at", extra={"conversation": rest.conversation})
