"""Conversations that have gone quiet: no request under way, and none for a while (S1-99).

The law: **a conversation goes idle once** for each time that it rests; a further request makes that a new time. Nothing
is kept of one that is idle, so memory is bounded by what was asked lately (S1-71h).

What this module does not do: it decides nothing about frames, and knows no clock but the one it is given.

What is done when a conversation goes quiet: it is told of, and where another one began it without a call that says
so, it may get a frame there (S1-71c, S1-99).

The law: **one conversation never keeps the others from being told of**, whatever is wrong with it.

What this module does not do: `idling` says what is quiet, `delegation` what becomes of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from proxy.config import LiveSettings, SubagentSettings
from proxy.errors import StoreError
from proxy.exchange.thread import attach_subagent as delegation
from proxy.store import ConversationCache
from proxy.telemetry import EventBus, ProxyEvent

MAX_RESTING = 50_000
"""Conversations that may rest at once; the longest resting one goes unheard beyond."""


class RestingConversation(NamedTuple):
    """A conversation that rests. `parent` is the one it came from, or empty."""

    tenant: str
    conversation: str
    parent: str


class IdleTracker:
    """`delay_s` tells how long a rest lasts now; `clock` tells seconds and never goes back; `busy` says whether a
    request of a conversation is under way."""

    def __init__(
        self, delay_s: Callable[[], float], clock: Callable[[], float], busy: Callable[[str, str], bool]
    ) -> None:
        self._delay_s = delay_s
        self._clock = clock
        self._is_busy = busy
        self._resting_since: OrderedDict[RestingConversation, float] = OrderedDict()

    def start_resting(self, tenant: str, conversation: str, parent: str = "") -> None:
        """Its last request has ended now."""
        rest = RestingConversation(tenant, conversation, parent)
        self._resting_since[rest] = self._clock()
        self._resting_since.move_to_end(rest)
        if len(self._resting_since) > MAX_RESTING:
            self._resting_since.popitem(last=False)

    def take_idle(self) -> list[RestingConversation]:
        """Those that have gone idle since this was asked last, the longest resting first."""
        now, delay = self._clock(), self._delay_s()
        over = []
        for rest, since in list(self._resting_since.items()):
            if now - since < delay:
                break
            del self._resting_since[rest]
            if not self._is_busy(rest.tenant, rest.conversation):  # one that is busy rests again when that ends
                over.append(rest)
        return over

    def __len__(self) -> int:
        return len(self._resting_since)


log = logging.getLogger(__name__)

MAX_CHECK_INTERVAL_S = 5.0
"""Between two looks, at most."""


async def on_idle(
    idling: IdleTracker, conversations: ConversationCache, feed: EventBus, live: LiveSettings, now: Callable[[], int]
) -> None:
    """Until it is cancelled. `now` tells ms since the epoch."""
    while True:
        await asyncio.sleep(min(MAX_CHECK_INTERVAL_S, live.subagent.idle_delay / 2_000))
        settings = live.subagent
        for rest in idling.take_idle():
            if settings.enabled and rest.parent:
                await _attach_subagent(rest, conversations, settings, now())
            feed.publish(ProxyEvent("conversation.idle", now(), rest.tenant, rest.conversation))


async def _attach_subagent(
    rest: RestingConversation, conversations: ConversationCache, settings: SubagentSettings, now: int
) -> None:
    try:
        await delegation.attach_unannounced(conversations, rest.tenant, rest.conversation, settings, now)
    except StoreError as error:
        log.warning("no frame for what went idle", extra={"reason": error.code})
    except Exception:  # the edge of our own bookkeeping: nobody waits for this
        log.exception("what went idle could not be looked at", extra={"conversation": rest.conversation})
