"""A conversation as it was: the ledger as far as it was known at a time.

The law: **nothing that came later is looked at**. State is what the events on a path make of it, so a ledger that is
cut off at a time tells everything as it stood then: the tree, the frames, whose the path was that had grown last. What
was said at a time is there from then on; a round of an answer, once it was whole.

What this module does not do: it changes nothing, and folds nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from proxy.core.ledger.ledger import Event, Ledger, Round
from proxy.errors import BadRequest

LATEST = 2**53
"""ms since the epoch: the largest number that every reader of JSON can say."""


def moment_in(text: str) -> int | None:
    """ms since the epoch of `as_of`: a number of them, or an ISO time, in UTC where it names no zone. None where there
    is no text. Raises BadRequest."""
    told = text.strip()
    if not told:
        return None
    try:
        return _numbered(told) if told.lstrip("-").isdigit() else _written(told)
    except (ValueError, OverflowError):
        raise BadRequest(
            "as_of: write ms since the epoch, or an ISO time as 2026-11-22T09:30:00Z (in a query, + is %2B).",
            code="bad_time",
        ) from None


def _numbered(told: str) -> int:
    if len(told) > len(str(LATEST)) or not 0 <= int(told) <= LATEST:
        raise ValueError(told)
    return int(told)


def _written(told: str) -> int:
    found = datetime.fromisoformat(told)
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def ledger_at(ledger: Ledger, at: int | None) -> Ledger:
    """What of `ledger` was known at `at` (ms since the epoch), in the order it came; all of it for None."""
    if at is None:
        return ledger
    past = Ledger(ledger.conversation)
    for entry in ledger.entries.values():
        if entry.created <= at:
            past.add(entry)
    for done in _rounds(ledger):
        if done.created <= at:
            past.add_round(done)
    for event in _events(ledger):
        if event.created <= at:
            past.add_event(event)
    past.threads.update(ledger.threads)
    return past


def _rounds(ledger: Ledger) -> Iterator[Round]:
    for rounds in ledger.rounds.values():
        yield from rounds


def _events(ledger: Ledger) -> Iterator[Event]:
    for events in ledger.events.values():
        yield from events
