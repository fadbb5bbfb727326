"""A subagent that a person ends, put into the store: its frame, and the root of its own conversation (S1-120).

It hangs on the newest entry of each, so it holds there in every process and after a restart. What cannot be done is
refused in the words the model would read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.core.frames.events import FrameEvent, Popped, recorded
from proxy.core.frames.frames import FINAL, RETURNED
from proxy.core.frames.path_state import Story
from proxy.core.ledger.ledger import Event, Ledger
from proxy.core.text import cut_for_display
from proxy.core.tools.base import Mistake
from proxy.core.tools.completing import ended, tracked
from proxy.errors import NotAllowed
from proxy.management.views.lookup import newest_story
from proxy.store import Owned, Store


@dataclass(frozen=True, slots=True)
class Ended:
    """What was recorded, by conversation."""

    events: Sequence[tuple[str, Event]]


async def end(store: Store, ledger: Ledger, story: Story, wanted: tuple[str, str, str], now: int) -> Ended:
    """End a subagent at `now` (ms): `wanted` are its frame, the status and the summary. Durable when this returns.

    Raises NotAllowed, StoreError.
    """
    frame, status, summary = wanted
    try:
        event = ended(tracked(story.tree, frame), status, summary)
    except Mistake as mistake:
        raise NotAllowed(str(mistake).removeprefix("Error: "), code="not_allowed") from None
    owner = ledger.conversation
    told = [(owner.id, _hung(ledger, story.tip, event, now))]
    if (child := await store.load(owner.tenant, story.tree.frames[frame].conversation)) is not None:
        told += [(child.conversation.id, root) for root in _root(child, event, now)]
    await store.durable(store.write(owner.tenant, [Owned(conversation, made) for conversation, made in told]))
    return Ended(told)


def _root(child: Ledger, ended: Popped, now: int) -> list[Event]:
    """The end of the subagent's own conversation, where that goes on."""
    story = newest_story(child)
    root = story.tree.root if story.tree.frames else None
    if root is None or root.status in FINAL | RETURNED:
        return []
    popped = Popped(root.id, ended.status, ended.results, cut_for_display(ended.results))
    return [_hung(child, story.tip, popped, now)]


def _hung(ledger: Ledger, entry: str, event: FrameEvent, now: int) -> Event:
    return recorded(event, entry, ledger.newest_round(entry), ledger.seq, now)
