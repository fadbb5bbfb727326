"""The loops of a conversation: what was warned of, whether it still stands, and how a person clears it (S3-25, S3-26).

A loop stands while the work it arose in goes on: the same frame, no new words of the user. Clearing hangs on the
newest entry of each path, so it survives a restart; what was warned of stays in the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.core.frames.events import Looped, LoopsCleared, read_event, recorded
from proxy.core.frames.path_state import Story
from proxy.core.ledger.ledger import Event, Ledger
from proxy.core.policy.loop_detection import Rules, standing
from proxy.management.views.lookup import stories
from proxy.management.views.schemas import LoopRow
from proxy.store import Owned, Store


@dataclass(frozen=True, slots=True)
class Cleared:
    """What was recorded, and how many loops stood before."""

    events: Sequence[Event]
    loops: int


def loop_rows(ledger: Ledger) -> list[LoopRow]:
    """Every loop that was warned of, on whatever path, the oldest first."""
    stands = {loop.at for story in stories(ledger) for loop in standing(story, Rules().window)}
    found = [
        (event, looped.loop, looped.frame)
        for events in ledger.events.values()
        for event in events
        if event.kind == "looped" and isinstance(looped := read_event(event), Looped)
    ]
    return [
        {
            "kind": loop.kind,
            "calls": list(loop.shown),
            "signatures": list(loop.calls),
            "count": loop.count,
            "frame": frame,
            "entry": event.entry,
            "created": event.created,
            "standing": event.entry in stands,
        }
        for event, loop, frame in sorted(found, key=lambda row: (row[0].created, row[0].seq))
    ]


async def clear(store: Store, ledger: Ledger, at: int) -> Cleared:
    """Record at `at` (ms since the epoch) that what was counted up to now is no part of a loop, on every path that has
    one; durable when this returns. Raises StoreError."""
    found = [story for story in stories(ledger) if standing(story, Rules().window)]
    events = [_cleared(ledger, story, n, at) for n, story in enumerate(found)]
    if events:
        conversation = ledger.conversation
        await store.durable(store.write(conversation.tenant, [Owned(conversation.id, event) for event in events]))
    return Cleared(events, len({loop.at for story in found for loop in standing(story, Rules().window)}))


def _cleared(ledger: Ledger, story: Story, number: int, at: int) -> Event:
    """Behind the newest entry; where that is a turn, behind its last round."""
    rounds = ledger.rounds.get(story.tip, ())
    event = LoopsCleared(story.tree.active, story.tip)
    return recorded(event, story.tip, rounds[-1].number if rounds else 0, ledger.seq + number, at)
