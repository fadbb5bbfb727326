"""Receipts give way to what somebody waits for, for a moment, and lose nothing by it."""

from __future__ import annotations

import time
from itertools import count

from proxy.store.interface import Record, RequestRecord
from proxy.store.pending_writes import ReceiptDelay
from proxy.store.sql import SqlStore
from tests.store.values import entry, opened

MANY = 400
BODY = 50_000
PATIENCE_S = 5.0


def receipts(name: str) -> list[list[Record]]:
    """Many, each of a body that no other has."""
    bodies = (f"{name} {number} ".encode() * (BODY // 10) for number in range(MANY))
    return [[RequestRecord(f"{name}{n}", "", "", "", "", n, "full", body=(body,))] for n, body in enumerate(bodies)]


async def test_a_line_does_not_wait_for_the_receipts_before_it(store: SqlStore) -> None:
    """L3: what a conversation consists of is on disk while the receipts that were queued before still wait; a read
    sees these too."""
    tickets = [store.write("a", records) for records in receipts("r")]
    await store.wait_until_durable(store.write("a", opened("c1", entry("m1"))))
    waiting = store.health().queued

    assert waiting >= MANY // 2
    assert len(await store.requests("a", limit=1000)) == MANY
    for ticket in tickets:
        await store.wait_until_durable(ticket)
    assert store.health().queued == 0


async def test_receipts_give_way_for_a_moment(store: SqlStore) -> None:
    """Somebody may always wait; that keeps no receipt from the disk."""
    written = [store.write("a", records) for records in receipts("r")]
    until = time.monotonic() + PATIENCE_S
    for number in count():
        await store.wait_until_durable(store.write("a", opened(f"c{number}", entry("m1"))))
        if not store.health().queued:
            break
        assert time.monotonic() < until

    for ticket in written:
        await store.wait_until_durable(ticket)


def test_whoever_waits_comes_first_also_when_receipts_are_overdue_and_they_come_next() -> None:
    receipts = ReceiptDelay(max_delay_s=0.1)
    told = []
    for now in (5.0, 5.05, 5.11, 5.12, 5.13):
        told.append(receipts.may_delay)
        receipts.record_group(now, gave_way=told[-1], left=told[-1])

    assert told == [True, True, True, False, True]
    assert receipts.waiting_since == 5.13


def test_what_was_too_much_for_a_group_does_not_wait_for_company_again() -> None:
    left = ReceiptDelay(max_delay_s=0.1)
    left.record_group(5.0, gave_way=False, left=True)
    assert left.may_delay
    assert left.waiting_since is not None
    assert left.waiting_since + left.max_delay_s <= 5.0

    left.record_group(5.01, gave_way=False, left=False)
    assert left.waiting_since is None
