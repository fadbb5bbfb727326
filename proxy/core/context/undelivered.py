"""Selects the queued messages of people that still have to be delivered on a path.

A message is delivered once. If a turn fails after a message was inserted between two of its rounds, and the client asks
again from before it, the message is delivered again on the new path, unless an answer to it was completed or is still
being made.
"""

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
    due = {said.id for said in waiting_messages(queue.values(), now)}
    lost = (said for said in queue.values() if said.state is DeliveryState.DELIVERED and now < said.expires)
    due |= {said.id for said in lost if not _is_delivered(ledger, path_state, said, under_way)}
    return tuple(said for said in queue.values() if said.id in due and _is_addressed_to(said, thread, lane))


def _is_addressed_to(said: QueuedMessage, thread: str, lane: Lane) -> bool:
    return said.lane is lane and said.thread in ("", thread)


def _is_delivered(ledger: Ledger, path_state: PathState, said: QueuedMessage, under_way: Container[str]) -> bool:
    """Whether the message was answered, is being answered, is on this path, or belongs to another path."""
    words = ledger.entries.get(said.entry)
    turn = ledger.entries.get(words.parent) if words else None
    if turn is None or turn.kind is not EntryKind.TURN:
        return True
    if turn.parent in under_way or turn.id in ledger.parent_ids or _is_answer_complete(ledger, turn.id):
        return True
    here = {path_entry.entry.id for path_entry in path_state.entries}
    return said.entry in here or turn.parent not in here


def _is_answer_complete(ledger: Ledger, turn: str) -> bool:
    rounds = ledger.rounds.get(turn, ())
    return bool(rounds) and rounds[-1].last and rounds[-1].spoken.complete
