"""Stopping all work in a conversation, put into the store: on the path of every thread, where it was left off.

It hangs on the last entry that stays whoever goes on from there: an answer that broke off is none. It holds in every
process and after a restart; the model is told of it with the next request of that path.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

from typing_extensions import TypedDict

from proxy.accounting.tokens import estimate
from proxy.config.model import Config
from proxy.core.commands.frames import Hand, hung
from proxy.core.commands.stop import stopped
from proxy.core.ledger.ledger import Entry, Event, Kind, Ledger
from proxy.exchange.resolver import tool_settings
from proxy.exchange.thread.policy import suffixed
from proxy.management.views.lookup import folded, thread_tips
from proxy.store import Owned, Store


class TreeStopped(TypedDict):
    """Ids of frames: those that are blocked now, those that were given up before they began, and those that are still
    under way, because a subagent does their work in a conversation of its own."""

    blocked: list[str]
    invalidated: list[str]
    left: list[str]


async def stop_all(store: Store, config: Config, ledger: Ledger, now: int) -> tuple[TreeStopped, Sequence[Event]]:
    """Stop it at `now` (ms); durable when this returns. `ledger` is the caller's own, and has it then. Raises
    StoreError, Unreadable."""
    found: TreeStopped = {"blocked": [], "invalidated": [], "left": []}
    events: list[Event] = []
    for tip in _ends(ledger):
        story = folded(ledger, tip)
        thread = ledger.threads.get(tip.thread)
        takes_none_behind = suffixed(config, thread.model if thread else "")
        hand = Hand(story, ledger, secrets.token_hex(8), now, estimate, tool_settings(config), takes_none_behind)
        came = stopped(hand)
        for event in hung(hand, came.done) if came.done else ():
            ledger.add_event(event)
            events.append(event)
        found["blocked"] += came.blocked
        found["invalidated"] += came.invalidated
        found["left"] += came.left
    if events:
        about = ledger.conversation
        await store.durable(store.write(about.tenant, [Owned(about.id, event) for event in events]))
    return _each_once(found), events


def _ends(ledger: Ledger) -> Iterator[Entry]:
    """Where each thread was left off."""
    for tip in thread_tips(ledger).values():
        if tip.id in ledger.has_child:
            continue
        rounds = ledger.rounds.get(tip.id, ())
        broken = tip.kind is Kind.TURN and not (rounds and rounds[-1].last and rounds[-1].spoken.complete)
        yield ledger.entries[tip.parent] if broken else tip


def _each_once(found: TreeStopped) -> TreeStopped:
    blocked, invalidated, left = (list(dict.fromkeys(found[name])) for name in ("blocked", "invalidated", "left"))
    return {"blocked": blocked, "invalidated": invalidated, "left": left}
