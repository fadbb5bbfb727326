"""The write-ahead log is brought into the file behind a commit, so that nobody waits for it, and does not grow without
end."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from proxy.store.database.sqlite import CHECKPOINT_AT_PAGES, WAL_BYTES, WAL_PAGES
from proxy.store.interface import RequestRecord
from proxy.store.sql import SqlStore
from tests.store.values import entry, opened

FRAME = 4096 + 24
"""Bytes of one page in the log."""
PAGES = 15
"""One of these commits takes more."""


def log_bytes(path: Path) -> int:
    return path.with_name(f"{path.name}-wal").stat().st_size


async def committed(store: SqlStore, count: int, name: str = "c", size: int = 10_000) -> None:
    """So many commits, each waited for."""
    for number in range(count):
        text = f"{name} {number} " + "x" * size
        await store.wait_until_durable(store.write("a", opened(f"{name} {number}", entry("m1", text=text))))


@contextmanager
def read_all_along(path: Path) -> Iterator[None]:
    """Somebody needs the store as it is now."""
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM entries").fetchall()
        yield


async def test_the_log_begins_anew_before_a_commit_would_have_to_see_to_it(store: SqlStore, path: Path) -> None:
    await committed(store, 2 * WAL_PAGES // PAGES)

    assert FRAME < log_bytes(path) < (WAL_PAGES + CHECKPOINT_AT_PAGES[1]) // 2 * FRAME


async def test_a_log_that_a_reader_needed_begins_anew_when_he_is_gone(store: SqlStore, path: Path) -> None:
    with read_all_along(path):
        await committed(store, WAL_PAGES // PAGES, "held up", 50_000)
        grown = log_bytes(path)
        assert grown > WAL_PAGES * FRAME

    await committed(store, 2 * WAL_PAGES // PAGES)
    assert log_bytes(path) <= max(grown, WAL_BYTES)
    assert store.health().ok


async def test_a_body_that_is_stored_already_does_not_count_as_growth(store: SqlStore, path: Path) -> None:
    """A conversation resends all of it with every request, and little of that is new."""
    body = tuple(f"{number} ".encode() * 3_000 for number in range(100))
    frames = []
    for number in range(CHECKPOINT_AT_PAGES[0] // PAGES // 2):
        await store.wait_until_durable(
            store.write("a", [RequestRecord(f"r{number}", "", "", "", "", number, "full", body=body)])
        )
        frames.append(log_bytes(path) // FRAME)

    assert frames == sorted(set(frames)), "the log began anew before it was long"
    assert frames[-1] < CHECKPOINT_AT_PAGES[0]
