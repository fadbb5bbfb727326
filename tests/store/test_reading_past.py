"""A read waits for what it could find, and for nothing else that is being written."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.errors import StoreError
from proxy.store.interface import AnchorRecord, LedgerRecord, Record, RequestRecord
from proxy.store.pending_writes import MAX_SCANNED_BATCHES
from proxy.store.sql import SqlStore
from tests.store.conftest import locked
from tests.store.values import entry, opened


def anchored(conversation: str, key: str, *, tenant: str = "a", hint: str = "") -> list[Record]:
    made = opened(conversation, entry(f"{conversation} m1"), tenant=tenant, hint=hint)
    return [*made, AnchorRecord(conversation, hint, (key,), 1)]


async def kept(store: SqlStore) -> None:
    """Two conversations, on disk."""
    await store.wait_until_durable(store.write("a", anchored("known", "key")))
    await store.wait_until_durable(store.write("a", anchored("session", "its key", hint="s")))


async def test_a_read_does_not_wait_for_what_it_cannot_find(store: SqlStore, path: Path) -> None:
    """While another process holds the file nothing is written: whoever waited would be told so, after 250 ms."""
    await kept(store)
    with locked(path):
        store.write("a", anchored("c1", "another key"))
        store.write("b", anchored("c2", "key", tenant="b"))
        store.write("a", anchored("c3", "key", hint="another"))

        assert await store.find_by_anchors("a", "", ["key"]) == ("known",)
        assert await store.conversations_in_session("a", "s") == ("session",)


@pytest.mark.parametrize("unrelated", [0, 3, MAX_SCANNED_BATCHES])
async def test_a_read_sees_what_was_queued_before_it(store: SqlStore, unrelated: int) -> None:
    await kept(store)
    store.write("a", anchored("new", "key", hint="s"))
    store.write("a", anchored("newer", "key"))
    for number in range(unrelated):
        store.write("a", anchored(f"c{number}", f"another key {number}"))

    assert set(await store.find_by_anchors("a", "", ["no key", "key"])) == {"known", "newer"}
    assert set(await store.conversations_in_session("a", "s")) == {"session", "new"}


async def test_a_read_waits_for_what_it_could_find(store: SqlStore, path: Path) -> None:
    await kept(store)
    with locked(path):
        store.write("a", anchored("new", "key"))
        with pytest.raises(StoreError):
            await store.find_by_anchors("a", "", ["key"])


@pytest.mark.parametrize("queued", [1, MAX_SCANNED_BATCHES + 1])
async def test_a_read_sees_what_was_queued_before_a_write_that_failed(store: SqlStore, queued: int) -> None:
    """Receipts give way, so what was handed over last may be over first."""
    for number in range(queued):
        store.write("a", [RequestRecord(f"r{number}", "", "", "", "", number, "full")])
    refused = store.write("a", [LedgerRecord("gone", entry("m1"))])
    with pytest.raises(StoreError, match="not in the store any more"):
        await store.wait_until_durable(refused)
    assert store.health().queued == queued

    assert len(await store.requests("a", limit=1000)) == queued
