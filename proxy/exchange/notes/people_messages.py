"""Telling the model what people said from beside the client (`speaking`): behind the newest message of a request, or
behind a hidden round of the turn that is under way.

The law: **the words, that they were told, and that they wait no more are one transaction**, and it is durable before
the line leaves. So they are told once, whichever of two requests comes first and whenever the process dies; and what
was told stays where it stands (L2).

What this module does not do: it takes no message in, and only an awake thread is told anything. A request without tools
is a summary or a title: it is told nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from proxy.core.context.undelivered import unheard
from proxy.core.frames.events import Dequeued, recorded
from proxy.core.frames.path_state import Story
from proxy.core.ledger.ledger import Entry, Event, Kind, message_id
from proxy.core.ledger.queued_messages import Lane, Queued, State, told
from proxy.core.matching.match import How
from proxy.core.policy.roots import begun_by
from proxy.dialects.compose import Writer
from proxy.exchange.background.in_flight import Flights
from proxy.exchange.thread.placement import Standing
from proxy.store.conversation_cache import Shelf
from proxy.telemetry.metrics import Metrics

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Hearing:
    """Puts the words there, in one dialect. As a note it tells an arriving request what waits in the lane `steer`."""

    shelf: Shelf
    flights: Flights
    writer: Writer
    metrics: Metrics
    suffixed: Callable[[str], bool]
    """Whether a model, by the client's name for it, takes no user message behind a result."""

    def __call__(self, standing: Standing) -> Standing:
        """Raises StoreError."""
        now = standing.arrival.now
        said = self.due(standing, standing.story, Lane.STEER, now)
        if not said or self._was_sent(standing):
            return standing
        self.tell(standing, standing.story, (standing.node, 0), said, now)
        standing.shelved.forget_story(standing.node)
        return replace(standing, story=standing.shelved.story(standing.node))

    def due(self, standing: Standing, story: Story, lane: Lane, now: int) -> tuple[Queued, ...]:
        """What is to be told now (ms) behind `story`, in the order in which it was said."""
        ledger = standing.ledger
        if not ledger.queue or not standing.request.tool_names:
            return ()
        nodes = self.flights.nodes(standing.arrival.tenant, standing.conversation)
        return unheard(ledger, story, standing.thread, lane, now, nodes)

    def _was_sent(self, standing: Standing) -> bool:
        """Whether these bytes have left already and may not get an end of ours: a result that is sent again, to a model
        that takes no words but inside of it."""
        request = standing.request
        return standing.how is How.RETRIED and bool(request.messages[-1].answers) and self.suffixed(request.model)

    def tell(
        self, standing: Standing, story: Story, where: tuple[str, int], said: Sequence[Queued], now: int
    ) -> list[Event]:
        """All of `said` as one message of the user's, there for good: behind an entry, and of a turn behind its round
        of this number. Where the tree of frames has ended, the next one begins with it. Raises StoreError; then nothing
        was told."""
        at, number = where
        ledger, conversation = standing.ledger, standing.conversation
        ids = tuple(each.id for each in said)
        message = self.writer.user_message(told(said))
        identity = message_id(at, "said " + " ".join(ids), conversation)
        words = Entry(identity, at, ledger.seq, Kind.SAID, standing.thread, message, created=now)
        root = begun_by(story.tree, words.id, "\n".join(each.text for each in said))
        events = (*([root] if root else ()), Dequeued(root.frame if root else story.tree.active, words.id, ids))
        made = [recorded(event, at, number, ledger.seq + 1 + n, now) for n, event in enumerate(events)]
        settled = (replace(each, state=State.DELIVERED, settled=now, entry=words.id) for each in said)
        self.shelf.record(standing.shelved, [words, *made, *settled])
        self.metrics.spoken("dequeued", len(said))
        log.info("message dequeued", extra={"conversation": conversation, "messages": len(said), "lane": said[0].lane})
        return made
