"""Runs when a conversation has been idle: publishes an event, and attaches an unannounced subagent to its parent.

A conversation goes idle once per rest; a new request starts a new rest. A failure with one conversation does not stop
the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from proxy.config import SubagentSettings
from proxy.config.runtime import LiveSettings
from proxy.core.memo import keep_newest
from proxy.errors import StoreError
from proxy.exchange.thread import attach_subagent
from proxy.store import ConversationCache
from proxy.telemetry import EventBus, ProxyEvent

MAX_RESTING = 50_000
"""Conversations tracked at once; beyond, the longest resting is forgotten."""


class RestingConversation(NamedTuple):
    """`parent` is the conversation it came from, or empty."""

    tenant: str
    conversation: str
    parent: str


class IdleTracker:
    """`delay_s` returns the current idle delay; `clock` returns monotonic seconds; `busy` says whether a conversation
    has a request in flight."""

    def __init__(
        self, delay_s: Callable[[], float], clock: Callable[[], float], busy: Callable[[str, str], bool]
    ) -> None:
        self._delay_s = delay_s
        self._clock = clock
        self._is_busy = busy
        self._resting_since: OrderedDict[RestingConversation, float] = OrderedDict()

    def start_resting(self, tenant: str, conversation: str, parent: str = "") -> None:
        rest = RestingConversation(tenant, conversation, parent)
        keep_newest(self._resting_since, rest, self._clock(), MAX_RESTING)

    def take_idle(self) -> list[RestingConversation]:
        """Those that became idle since the last call, the longest resting first."""
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


async def on_idle(
    idling: IdleTracker, conversations: ConversationCache, feed: EventBus, live: LiveSettings, now: Callable[[], int]
) -> None:
    """Run until cancelled. `now` returns ms since the epoch."""
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
        await attach_subagent.attach_unannounced(conversations, rest.tenant, rest.conversation, settings, now)
    except StoreError as error:
        log.warning("no frame for what went idle", extra={"reason": error.code})
    except Exception:  # the edge of our own bookkeeping: nobody waits for this
        log.exception("what went idle could not be looked at", extra={"conversation": rest.conversation})
