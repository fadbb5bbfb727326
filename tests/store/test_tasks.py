"""The rows behind the view `tasks`: right in stores that were begun without them, and whoever wrote what (S2-39)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from proxy.core.frames.events import FrameEntered, FramePopped, RootStarted, as_ledger_event
from proxy.core.frames.tree import Status
from proxy.core.ledger.ledger import Entry, EntryKind, LedgerEvent
from proxy.store import read as reading
from proxy.store import tasks_view as followed
from proxy.store.interface import LedgerRecord
from proxy.store.sql import SqlStore
from tests.management.api.small_ledger import records_of
from tests.store.conftest import Making, rows
from tests.store.values import opened, said

pytestmark = pytest.mark.rows("S2-39")
GONE = """DROP VIEW tasks; DROP TABLE task_rows; DROP TABLE settings; DROP TABLE usage_days; DROP TABLE reservations;
DROP TABLE frame_vectors;
ALTER TABLE conversations DROP COLUMN written"""
TOLD = "SELECT goal, status, result, depth FROM tasks ORDER BY created_at, goal"
SMALL = [
    ("Make the suite green", "active", None, 0),
    ("Fix rounding", "complete", "Decimal until the last step", 1),
    ("Write the changelog", "active", None, 1),
]


def node(name: str, parent: str, seq: int, role: str = "user") -> Entry:
    return Entry(name, parent, seq, EntryKind.MESSAGE, "main", said(name, role), created=seq)


async def wrote(store: SqlStore, *values: Entry | LedgerEvent) -> None:
    await store.wait_until_durable(store.write("a", [LedgerRecord("c1", value) for value in values]))


async def test_a_store_from_before_gets_rows_for_all_that_is_in_it(making: Making, path: Path) -> None:
    old = await making()
    for tenant, name in (("one", "a"), ("two", "b")):
        old.write(tenant, records_of(tenant, name)[0])
    await old.close()
    with closing(sqlite3.connect(path)) as before:
        gone = GONE
        before.executescript(f"{gone}; UPDATE alembic_version SET version_num = '0003';")

    new = await making()

    assert rows(path, TOLD) == sorted([*SMALL, *SMALL], key=lambda row: [r[0] for r in SMALL].index(str(row[0])))
    assert len(rows(path, "SELECT DISTINCT session_id FROM tasks")) == 2
    assert any("migrated from schema 0003" in note for note in new.health().notes)


async def test_a_store_from_before_is_taken_up_also_where_one_conversation_in_it_cannot_be_read(
    making: Making, path: Path
) -> None:
    """A fault costs rows, never the store."""
    old = await making()
    for name in ("whole", "broken"):
        old.write("a", records_of("a", name)[0])
    await old.close()
    with closing(sqlite3.connect(path)) as before:
        gone = GONE
        novel = 'UPDATE events SET data = \'{"type":"novel"}\' WHERE conversation = (SELECT max(id) FROM conversations)'
        before.executescript(f"{gone}; {novel}; UPDATE alembic_version SET version_num = '0003';")

    await making()

    assert rows(path, TOLD) == SMALL


async def test_records_that_come_in_any_cut_make_the_same_rows(making: Making, path: Path) -> None:
    store = await making()
    for record in records_of("a", "a")[0]:
        await store.wait_until_durable(store.write("a", [record]))

    assert rows(path, TOLD) == SMALL


async def test_another_process_on_the_same_file_is_followed(making: Making, path: Path) -> None:
    """One opens a conversation, another goes on with it, the first one again."""
    here, there = await making(), await making()
    begun = as_ledger_event(RootStarted("froot", "Build", "it works"), "m1", 0, 1, 1)
    await here.wait_until_durable(here.write("a", opened("c1", node("m1", "", 0), begun)))
    entered = as_ledger_event(FrameEntered("fone", "froot", "One", "c", "request"), "m2", 0, 3, 3)
    await wrote(there, node("m2", "m1", 2), entered)
    ended = as_ledger_event(FramePopped("fone", Status.FAILED, "no", "no"), "m3", 0, 5, 5)
    await wrote(here, node("m3", "m2", 4), ended)

    assert rows(path, TOLD) == [("Build", "active", None, 0), ("One", "blocked", "no", 1)]
    assert rows(path, "SELECT completed_at FROM tasks WHERE goal = 'One'") == [(5,)]


async def test_more_conversations_than_are_kept_in_mind_are_all_followed(
    making: Making, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed, "MAX_FOLLOWED_CONVERSATIONS", 1)  # a thousand take a while
    store = await making()
    for name in ("c1", "c2", "c3"):
        begun = as_ledger_event(RootStarted(f"f{name}", name, "it works"), "m1", 0, 1, 1)
        store.write("a", opened(name, node("m1", "", 0), begun))
    ended = as_ledger_event(FramePopped("fc1", Status.COMPLETED, "yes", "yes"), "m2", 0, 3, 3)
    await wrote(store, node("m2", "m1", 2, "assistant"), ended)

    assert rows(path, "SELECT goal, status FROM tasks ORDER BY goal") == [
        ("c1", "complete"),
        ("c2", "active"),
        ("c3", "active"),
    ]


@pytest.mark.parametrize("data", [b"", b"{}", b'{"type":"of a newer program"}', b'{"type":"rooted"}', b"\xff"])
async def test_an_event_that_cannot_be_read_costs_rows_and_no_record(making: Making, path: Path, data: bytes) -> None:
    store = await making()
    begun = as_ledger_event(RootStarted("froot", "Build", "it works"), "m1", 0, 1, 1)
    await store.wait_until_durable(store.write("a", opened("c1", node("m1", "", 0), begun)))
    await wrote(store, node("m2", "m1", 2), LedgerEvent("m2", 0, 3, "strange", "x", data, 3))

    assert rows(path, "SELECT goal FROM tasks") == [("Build",)]
    ledger = await store.load("a", "c1")
    assert ledger is not None
    assert [event.data for event in ledger.events["m2"]] == [data]


async def test_a_user_who_speaks_begins_the_next_root(making: Making, path: Path) -> None:
    """C20."""
    store = await making()
    begun = as_ledger_event(RootStarted("froot", "Build", "it works"), "m1", 0, 1, 1)
    await store.wait_until_durable(store.write("a", opened("c1", node("m1", "", 0), begun)))
    await wrote(store, as_ledger_event(FramePopped("froot", Status.COMPLETED, "it stands", "s"), "m1", 0, 2, 2))
    await wrote(store, node("m2", "m1", 3), as_ledger_event(RootStarted("fnext", "Ship", "it is out"), "m2", 0, 4, 4))

    assert rows(path, TOLD) == [("Build", "complete", "it stands", 0), ("Ship", "active", None, 0)]


async def test_a_user_who_speaks_reopens_the_root_in_a_store_from_before(making: Making, path: Path) -> None:
    store = await making()
    begun = as_ledger_event(RootStarted("froot", "Build", "it works"), "m1", 0, 1, 1)
    await store.wait_until_durable(store.write("a", opened("c1", node("m1", "", 0), begun)))
    await wrote(store, as_ledger_event(FramePopped("froot", Status.COMPLETED, "it stands", "s"), "m1", 0, 2, 2))
    assert rows(path, TOLD) == [("Build", "complete", "it stands", 0)]
    await wrote(store, node("m2", "m1", 3))

    assert rows(path, TOLD) == [("Build", "active", "it stands", 0)]


async def test_two_paths_that_take_turns_are_told_without_reading_either_again(
    making: Making, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two loops go on from one request, each with its own answer: the rows are those of the one that spoke last."""
    store = await making()
    begun = as_ledger_event(RootStarted("froot", "Build", "it works"), "m1", 0, 1, 1)
    entered = as_ledger_event(FrameEntered("fone", "froot", "One", "c", "request"), "m1", 0, 2, 2)
    await store.wait_until_durable(store.write("a", opened("c1", node("m1", "", 0), begun, entered)))
    read = [0]
    outline = reading.load_outline

    def counted(*asked: Any) -> object:
        read[0] += 1
        return outline(*asked)

    monkeypatch.setattr(reading, "load_outline", counted)  # nobody but us sees what is read again
    ended = as_ledger_event(FramePopped("fone", Status.COMPLETED, "done", "done"), "m2", 0, 4, 4)
    await wrote(store, node("m2", "m1", 3, "assistant"), ended)
    assert rows(path, TOLD)[1] == ("One", "complete", "done", 1)
    await wrote(store, node("n2", "m1", 5, "assistant"))
    assert rows(path, TOLD)[1] == ("One", "active", None, 1)
    await wrote(store, node("m3", "m2", 6))
    assert rows(path, TOLD)[1] == ("One", "complete", "done", 1)
    await wrote(
        store, node("n3", "n2", 7), as_ledger_event(FramePopped("fone", Status.FAILED, "no", "no"), "n3", 0, 8, 8)
    )

    assert rows(path, TOLD)[1] == ("One", "blocked", "no", 1)
    assert read == [0]
