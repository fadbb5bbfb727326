"""Selects the queued messages of people that still have to be delivered on a path. A message is delivered once; it is
delivered again on a new path if its turn failed, unless an answer to it was completed or is still being made."""

from __future__ import annotations

from collections.abc import Container

from proxy.core.frames import PathState
from proxy.core.ledger import DeliveryState, EntryKind, Lane, Ledger, QueuedMessage, waiting_messages

_NO_ENTRIES: Container[str] = ()


def undelivered_messages(  # noqa: PLR0913 - a path, who stands on it, and when
    ledger: Ledger, path_state: PathState, thread: str, lane: Lane, now: int, under_way: Container[str] = _NO_ENTRIES
) -> tuple[QueuedMessage, ...]:
    """Messages for this `thread` and `lane` to deliver behind `path_state` at `now` (ms), in the order in which they
    were queued. `under_way` are the last entries of other requests in flight."""
    queue = ledger.queue
    if not queue:
        return ()
    due_ids = {message.id for message in waiting_messages(queue.values(), now)}
    delivered = (
        message for message in queue.values() if message.state is DeliveryState.DELIVERED and now < message.expires
    )
    due_ids |= {message.id for message in delivered if not _is_delivered(ledger, path_state, message, under_way)}
    return tuple(
        message
        for message in queue.values()
        if message.id in due_ids and message.lane is lane and message.thread in ("", thread)
    )


def _is_delivered(ledger: Ledger, path_state: PathState, message: QueuedMessage, under_way: Container[str]) -> bool:
    """Whether the message was answered, is being answered, is on this path, or belongs to another path."""
    entry = ledger.entries.get(message.entry)
    turn = ledger.entries.get(entry.parent) if entry else None
    if turn is None or turn.kind is not EntryKind.TURN:
        return True
    rounds = ledger.rounds.get(turn.id, ())
    is_answered = bool(rounds) and rounds[-1].last and rounds[-1].spoken.complete
    if turn.parent in under_way or turn.id in ledger.parent_ids or is_answered:
        return True
    path_ids = {path_entry.entry.id for path_entry in path_state.entries}
    return message.entry in path_ids or turn.parent not in path_ids
