"""What is to be told on a path: what waits, and what was told where nobody heard it.

Words are told once. But a request may fail after they were put on its line, and the client goes on from before it: then
they stand on a path that nobody follows, and the next request is told them again. The law: **on each path they stand
once, and where an answer to them came whole, on no other**.

What this module does not do: it tells nothing, and knows no request that is under way; these come in as the entries
they stand at.
"""

from __future__ import annotations

from collections.abc import Container

from proxy.stack.ledger import Entry, Kind, Ledger
from proxy.stack.queued import Lane, Queued, State, waiting
from proxy.stack.story import Story

_NOBODY: Container[str] = ()


def unheard(  # noqa: PLR0913 - a path, who stands on it, and when
    ledger: Ledger, story: Story, thread: str, lane: Lane, now: int, under_way: Container[str] = _NOBODY
) -> tuple[Queued, ...]:
    """What people said in this lane and `thread` is to be told now (ms) behind `story`, in the order in which they said
    it. `under_way` are the last entries of other requests that are being answered."""
    queue = ledger.queue
    if not queue:
        return ()
    due = {said.id for said in waiting(queue.values(), now)}
    lost = (said for said in queue.values() if said.state is State.DELIVERED and now < said.expires)
    due |= {said.id for said in lost if not _is_heard(ledger, story, said, under_way)}
    return tuple(said for said in queue.values() if said.id in due and _is_for(said, thread, lane))


def _is_for(said: Queued, thread: str, lane: Lane) -> bool:
    return said.lane is lane and said.thread in ("", thread)


def _is_heard(ledger: Ledger, story: Story, said: Queued, under_way: Container[str]) -> bool:
    """Whether it was answered, is being answered, or stands on this path anyway."""
    words = ledger.entries.get(said.entry)
    behind = ledger.entries.get(words.parent) if words else None
    if behind is None:
        return True
    request = behind.parent if behind.kind is Kind.TURN else behind.id
    if request in under_way or _was_answered(ledger, behind):
        return True
    return any(placed.entry.id == said.entry for placed in story.placed)


def _was_answered(ledger: Ledger, behind: Entry) -> bool:
    """Whether an answer to what stands behind this entry came whole, or the client went on from what it got of one."""
    turns = [behind.id] if behind.kind is Kind.TURN else ledger.turns_under.get(behind.id, ())
    return any(turn in ledger.has_child or _is_whole(ledger, turn) for turn in turns)


def _is_whole(ledger: Ledger, turn: str) -> bool:
    rounds = ledger.rounds.get(turn, ())
    return bool(rounds) and rounds[-1].last and rounds[-1].spoken.complete
