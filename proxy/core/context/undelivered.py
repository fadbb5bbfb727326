"""What is to be told on a path: what waits, and what was told where nobody heard it.

Words are told once. What was told behind a request stands there for whoever asks it again. But a turn may fail after
words were put between two of its rounds, and the client asks again from before it: then they stand on a path that
nobody follows, and that next try is told them again. The law: **on each path they stand once, and where an answer to
them came whole, or is still to come, on no other**.

What this module does not do: it tells nothing, and knows no request that is under way; these come in as the entries
they stand at.
"""

from __future__ import annotations

from collections.abc import Container

from proxy.core.frames import PathState
from proxy.core.ledger import DeliveryState, EntryKind, Lane, Ledger, QueuedMessage, waiting_messages

_NO_ENTRIES: Container[str] = ()


def undelivered_messages(  # noqa: PLR0913 - a path, who stands on it, and when
    ledger: Ledger, path_state: PathState, thread: str, lane: Lane, now: int, under_way: Container[str] = _NO_ENTRIES
) -> tuple[QueuedMessage, ...]:
    """What people said in this lane and `thread` is to be told now (ms) behind `path_state`, in the order in which
    they said it. `under_way` are the last entries of other requests that are being answered."""
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
    """Whether it was answered or is being answered, stands on this path anyway, or is another path's."""
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
