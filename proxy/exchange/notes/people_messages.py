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

from proxy.core.context import undelivered_messages
from proxy.core.frames import PathState, QueuedMessagesDelivered, as_ledger_event
from proxy.core.ledger import (
    DeliveryState,
    Entry,
    EntryKind,
    Lane,
    LedgerEvent,
    QueuedMessage,
    message_id,
    render_queued_messages,
)
from proxy.core.matching import MatchKind
from proxy.core.policy import build_root_from_person
from proxy.dialects import DialectComposer
from proxy.exchange.background.in_flight import InFlight
from proxy.exchange.thread.placement import Placement
from proxy.store import ConversationCache
from proxy.telemetry import Metrics

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MessageDelivery:
    """Puts the words there, in one dialect. As a note it tells an arriving request what waits in the lane `steer`."""

    conversation_cache: ConversationCache
    in_flight: InFlight
    composer: DialectComposer
    metrics: Metrics
    forbids_user_after_result: Callable[[str], bool]
    """Whether a model, by the client's name for it, takes no user message behind a result."""

    def __call__(self, placement: Placement) -> Placement:
        """Raises StoreError."""
        now = placement.parsed_request.now
        said = self.due_messages(placement, placement.path_state, Lane.STEER, now)
        if not said or self._was_already_sent(placement):
            return placement
        self.deliver(placement, placement.path_state, (placement.entry_id, 0), said, now)
        placement.cached_conversation.forget_path_state(placement.entry_id)
        return replace(placement, path_state=placement.cached_conversation.path_state(placement.entry_id))

    def due_messages(
        self, placement: Placement, path_state: PathState, lane: Lane, now: int
    ) -> tuple[QueuedMessage, ...]:
        """What is to be told now (ms) behind `path_state`, in the order in which it was said."""
        ledger = placement.ledger
        if not ledger.queue or not placement.request.tool_names:
            return ()
        nodes = self.in_flight.other_entry_ids(placement.parsed_request.tenant, placement.conversation)
        return undelivered_messages(ledger, path_state, placement.thread, lane, now, nodes)

    def _was_already_sent(self, placement: Placement) -> bool:
        """Whether these bytes have left already and may not get an end of ours: a result that is sent again, to a model
        that takes no words but inside of it."""
        request = placement.request
        return (
            placement.match_kind is MatchKind.RETRIED
            and bool(request.messages[-1].answers)
            and self.forbids_user_after_result(request.model)
        )

    def deliver(
        self,
        placement: Placement,
        path_state: PathState,
        where: tuple[str, int],
        said: Sequence[QueuedMessage],
        now: int,
    ) -> list[LedgerEvent]:
        """All of `said` as one message of the user's, there for good: behind an entry, and of a turn behind its round
        of this number. Where the tree of frames has ended, the next one begins with it. Raises StoreError; then nothing
        was told."""
        at, number = where
        ledger, conversation = placement.ledger, placement.conversation
        ids = tuple(each.id for each in said)
        message = self.composer.user_message(render_queued_messages(said))
        identity = message_id(at, "said " + " ".join(ids), conversation)
        words = Entry(identity, at, ledger.next_seq, EntryKind.USER_OVERLAY, placement.thread, message, created=now)
        root = build_root_from_person(path_state.tree, words.id, "\n".join(each.text for each in said))
        events = (
            *([root] if root else ()),
            QueuedMessagesDelivered(root.frame if root else path_state.tree.active, words.id, ids),
        )
        made = [as_ledger_event(event, at, number, ledger.next_seq + 1 + n, now) for n, event in enumerate(events)]
        settled = (replace(each, state=DeliveryState.DELIVERED, settled=now, entry=words.id) for each in said)
        self.conversation_cache.record(placement.cached_conversation, [words, *made, *settled])
        self.metrics.count_messages("dequeued", len(said))
        log.info("message dequeued", extra={"conversation": conversation, "messages": len(said), "lane": said[0].lane})
        return made
