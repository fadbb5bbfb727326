"""A store on a real file, with a circuit that rests a short while so that a test can see it recover."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proxy.store.database.sqlite import SqliteFile
from proxy.store.database_errors import CircuitBreaker
from proxy.store.sql import SqlStore
from proxy.store.writer import QueueLimits

REST_S = 0.2

Making = Callable[..., Awaitable[SqlStore]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "callstack.db"


@pytest.fixture
async def making(path: Path) -> AsyncIterator[Making]:
    """Starts stores, on the same file unless told otherwise, and closes them in the end."""
    made: list[SqlStore] = []

    async def make(at: Path = path, bounds: QueueLimits | None = None, *, start: bool = True) -> SqlStore:
        store = SqlStore(SqliteFile(at), circuit=CircuitBreaker(time.monotonic, rest=REST_S), bounds=bounds)
        made.append(store)
        if start:
            await store.start()
        return store

    yield make
    for store in made:
        await store.close()


@pytest.fixture
async def store(making: Making) -> SqlStore:
    return await making()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another connection holds the write lock, as another process would."""
    other = sqlite3.connect(path, isolation_level=None, timeout=5)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.rollback()
        other.close()


@contextmanager
def being_read(path: Path) -> Iterator[None]:
    """Another connection reads what is there now, as an export or a backup would."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT count(*) FROM conversations").fetchall()
    try:
        yield
    finally:
        other.rollback()
        other.close()


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    """What somebody sees who opens the file with SQLite alone."""
    reading = sqlite3.connect(path)
    try:
        return reading.execute(query).fetchall()
    finally:
        reading.close()
