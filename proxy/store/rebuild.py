"""A ledger built again from what was written of it, in the order of writing.

The law: **what hangs on something that is not there is not there either**. A store that lost a record (a full disk, a
clock that ran backwards between two starts) gives back a smaller ledger that is whole, never one with holes: every
parent of an entry is in it, every turn of a round, every entry of an event.
"""

from __future__ import annotations

from collections.abc import Iterable

from proxy.core.ledger.ledger import Conversation, Entry, Event, Ledger, Round, Thread, Value
from proxy.core.ledger.queue import Queued


def replayed(conversation: Conversation, values: Iterable[Value]) -> Ledger:
    """`values` in the order they were written. One that comes before what it hangs on is taken up when that is
    there."""
    ledger = Ledger(conversation)
    waiting = list(values)
    while waiting:
        left = [value for value in waiting if not _added(ledger, value)]
        if len(left) == len(waiting):
            break
        waiting = left
    return ledger


def _added(ledger: Ledger, value: Value) -> bool:
    """False while what `value` hangs on is missing."""
    match value:
        case Entry():
            if value.parent and value.parent not in ledger.entries:
                return False
            ledger.add(value)
        case Round():
            if value.turn not in ledger.entries:
                return False
            ledger.add_round(value)
        case Event():
            if value.entry not in ledger.entries:
                return False
            ledger.add_event(value)
        case Thread():
            ledger.threads[value.id] = value
        case Queued():
            ledger.queue[value.id] = value
    return True
