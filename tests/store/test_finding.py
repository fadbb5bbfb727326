"""Finding finished frames in a file: after a restart, in older stores, beside another process, and what it costs when
the index itself fails (S2-38)."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from proxy.core.frames.events import DecisionAdded, FrameActivated, FrameEvent, FramePopped, as_ledger_event
from proxy.core.frames.tree import Status
from proxy.errors import StoreError
from proxy.store import search_index as finding
from proxy.store.database import READERS
from proxy.store.interface import LedgerRecord
from proxy.store.sql import SqlStore
from tests.store.conftest import Making, rows
from tests.store.values import entry, worked

pytestmark = pytest.mark.rows("S2-38")
BEFORE = """
DROP TABLE usage_days; DROP TABLE reservations; DROP TABLE frame_vectors;
DROP INDEX tasks_by_writing;
ALTER TABLE task_rows DROP COLUMN criteria;
ALTER TABLE task_rows DROP COLUMN noted;
ALTER TABLE task_rows DROP COLUMN written;
ALTER TABLE conversations DROP COLUMN written;
UPDATE alembic_version SET version_num = '0005';
"""


async def found(store: SqlStore, query: str, tenant: str = "a") -> list[str]:
    """Conversations, the best first."""
    return [frame.conversation for frame in (await store.search_finished_frames(tenant, query)).frames]


async def test_after_a_restart_what_was_done_before_is_found(making: Making) -> None:
    old = await making()
    old.write("a", worked("c1", "Limiter"))
    await old.close()

    assert await found(await making(), "limiter") == ["c1"]


async def test_a_store_from_before_is_found_with_all_that_is_in_it(making: Making, path: Path) -> None:
    old = await making()
    old.write("a", worked("c1", "Limiter", criteria="for the public API", noted=("src/limit.py (changed)",)))
    old.write("b", worked("c2", "Handbook", tenant="b"))
    await old.close()
    with closing(sqlite3.connect(path)) as before:
        before.executescript(BEFORE)

    new = await making()

    assert await found(new, "public limit.py") == ["c1"]
    assert (await new.search_finished_frames("a", "public limit.py")).whole
    assert await found(new, "handbook", "b") == ["c2"]
    new.write("a", worked("c3", "Limiter of another kind"))
    assert sorted(await found(new, "limiter")) == ["c1", "c3"]


async def test_what_another_process_does_is_seen_at_once(making: Making) -> None:
    """Also what it forgets, of which this one's index still knows the words."""
    here, there = await making(), await making()
    there.write("a", worked("c1", "Limiter"))
    await there.wait_until_durable(there.write("a", worked("c2", "Limiter")))
    before = await found(here, "limiter")
    await there.delete_conversations("a", "c2")

    assert before == ["c2", "c1"]
    assert await found(here, "limiter") == ["c1"]


async def test_a_frame_is_found_by_what_is_said_of_it_now(making: Making) -> None:
    """It was blocked, then it went well; asked for once, that stays known."""
    store = await making()
    store.write("a", worked("c1", "Limiter", "waits for a key", criteria="for the public API", status=Status.BLOCKED))
    before = await found(store, "limiter")
    decided: tuple[FrameEvent, ...] = (
        FrameActivated("c1-frame", "t", "c", ""),
        FramePopped("c1-frame", Status.COMPLETED, "a token bucket", ""),
    )
    events = [as_ledger_event(event, "c1-m4", 0, 7 + at, 7 + at) for at, event in enumerate(decided)]
    store.write(
        "a", [LedgerRecord("c1", entry("c1-m4", "c1-m3", seq=6)), *(LedgerRecord("c1", event) for event in events)]
    )

    assert before == []
    assert await found(store, "bucket public") == ["c1"]
    assert (await store.search_finished_frames("a", "bucket public")).whole
    assert await found(store, "waits") == []


async def test_what_others_do_changes_no_order(making: Making) -> None:
    """How rare a word is counts among the frames of whoever asks."""
    store = await making()
    for number in range(20):
        store.write("b", worked(f"b{number}", "parser", tenant="b"))
    store.write("a", worked("c1", "parser"))
    store.write("a", worked("c2", "lexer"))
    store.write("a", worked("c3", "lexer"))

    assert await found(store, "lexer parser nothing") == ["c1", "c3", "c2"]


async def test_an_index_full_of_old_words_is_made_again(making: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "MAX_OUTDATED_ROWS", 1)  # a thousand take a while
    store = await making()
    store.write("a", worked("c1", "Limiter"))
    for number in range(4):
        noted = as_ledger_event(DecisionAdded("c1-frame", f"decision {number}"), "c1-m3", 0, 10 + number, 10)
        store.write("a", [LedgerRecord("c1", noted)])
        assert await found(store, "limiter") == ["c1"]

    assert await found(store, "decision 0 3") == ["c1"]
    assert store._frame_search._indexes["a"].outdated <= 2


async def test_those_who_searched_last_keep_an_index(making: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "MAX_INDEXES", 2)  # the third one shows the same as the seventeenth
    store = await making()
    for tenant in ("a", "b", "c", "a"):
        store.write(tenant, worked(f"of-{tenant}", "Limiter", tenant=tenant))
        assert await found(store, "limiter", tenant) == [f"of-{tenant}"]

    assert list(store._frame_search._indexes) == ["c", "a"]


async def test_an_index_that_fails_costs_a_search_and_nothing_else(making: Making, path: Path) -> None:
    """It is never taken for a fault of the file, which would be set aside."""
    store = await making()
    store.write("a", worked("c1", "Limiter"))
    await found(store, "limiter")
    store._frame_search._indexes["a"].close()

    with pytest.raises(StoreError, match="cannot be searched"):
        await found(store, "limiter")

    assert await found(store, "limiter") == ["c1"]
    assert store.health().ok
    assert rows(path, "SELECT id FROM conversations") == [("c1",)]


async def test_no_word_stays_in_the_file_of_what_was_forgotten(making: Making, path: Path) -> None:
    store = await making()
    store.write("a", worked("c1", "Limiter", "Xylophonquartett", criteria="Zwergspitzparade"))
    store.write("a", worked("c2", "Other"))
    await found(store, "Xylophonquartett")
    await store.delete_conversations("a", "c1")
    held = b"".join(part.read_bytes() for part in path.parent.glob("callstack.db*")).lower()

    assert b"xylophon" not in held
    assert b"zwergspitz" not in held


async def test_no_read_waits_for_a_search(making: Making) -> None:
    """However many are asked for, and however long one takes."""
    store = await making()
    store.write("a", worked("c1", "Limiter"))
    with store._frame_search._lock:
        searches = [asyncio.create_task(found(store, "limiter")) for _ in range(2 * READERS)]
        await asyncio.sleep(0)

        async with asyncio.timeout(10):
            assert await store.load("a", "c1") is not None

    assert await asyncio.gather(*searches) == [["c1"]] * len(searches)
