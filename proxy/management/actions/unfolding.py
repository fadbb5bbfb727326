"""What a person asks for, put into the store: a folded frame is to come back.

It hangs on the requests at which the frame was folded, so every path that has the fold has the wish too, in every
process and after a restart. When it comes is `proxy.core.compaction.unfolding`'s to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.core.compaction.unfolding import Wish, wish
from proxy.core.frames.events import Kept, recorded
from proxy.core.frames.path_state import Story
from proxy.core.ledger.ledger import Event, Ledger
from proxy.errors import NotAllowed
from proxy.management.views.conversations import shortened
from proxy.management.views.lookup import stories
from proxy.management.views.schemas import UnfoldingTold
from proxy.store import Owned, Store

AT_ONCE = "with the next request, whatever it costs"
WHEN_CHEAP = "with the next request that finds its cache cold, or folds something else"


@dataclass(frozen=True, slots=True)
class Asked:
    """What was recorded, and what is told of it."""

    events: Sequence[Event]
    told: UnfoldingTold


async def ask_back(store: Store, ledger: Ledger, frame: str, *, now: bool, at: int) -> Asked:
    """Record at `at` (ms since the epoch) that `frame`, a frame of this conversation, is wanted back; durable when
    this returns.

    Raises NotAllowed where there is nothing to bring back, StoreError.
    """
    story, wanted = _found(ledger, frame, now=now)
    events: list[Event] = []
    if wanted.is_new:
        kept = Kept(wanted.frame, now)
        events = [recorded(kept, entry, 0, ledger.seq + n, at) for n, entry in enumerate(wanted.entries)]
        conversation = ledger.conversation
        await store.durable(store.write(conversation.tenant, [Owned(conversation.id, event) for event in events]))
    at_once = now or story.tree.kept.get(wanted.frame, False)
    return Asked(
        events,
        {
            "frame": wanted.frame,
            "title": shortened(story.tree.frames[wanted.frame].title),
            "conversation": ledger.conversation.id,
            "new": wanted.is_new,
            "now": at_once,
            "comes": AT_ONCE if at_once else WHEN_CHEAP,
        },
    )


def _found(ledger: Ledger, frame: str, *, now: bool) -> tuple[Story, Wish]:
    """The newest path on which the frame is folded. Raises NotAllowed with what the newest one says."""
    refused: NotAllowed | None = None
    for story in stories(ledger):
        if frame in story.tree.frames:
            try:
                return story, wish(ledger, story, frame, now=now)
            except NotAllowed as error:
                refused = refused or error
    raise refused or NotAllowed(f"Frame {frame} stands on no path.", code="not_folded")
