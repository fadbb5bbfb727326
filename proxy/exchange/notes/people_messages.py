"""Delivers queued user messages (`background.inbox`) to the model: behind the newest message of a request, or behind a
hidden round of the current turn.

The text, its delivery and its removal from the queue are one transaction, durable before the request is sent, so each
message is delivered once. Only awake threads get messages, and no request without tools. Raises StoreError.
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
    """Delivers messages in one dialect. Called as a note, it delivers `Lane.STEER` with an arriving request."""

    conversation_cache: ConversationCache
    in_flight: InFlight
    composer: DialectComposer
    metrics: Metrics
    forbids_user_after_result: Callable[[str], bool]
    """By the client's name for a model: whether it rejects a user message behind a result."""

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
        """The messages to deliver at `now` (ms) behind `path_state`, oldest first."""
        ledger = placement.ledger
        if not ledger.queue or not placement.request.tool_names:
            return ()
        nodes = self.in_flight.other_entry_ids(placement.parsed_request.tenant, placement.conversation)
        return undelivered_messages(ledger, path_state, placement.thread, lane, now, nodes)

    def _was_already_sent(self, placement: Placement) -> bool:
        """Whether the request repeats a result that was already sent, to a model that accepts text only inside of
        it."""
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
        """Add all of `said` as one permanent user message behind the entry and round in `where`. Where the tree of
        frames has ended, the message begins the next one. Raises StoreError; then nothing was delivered."""
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
