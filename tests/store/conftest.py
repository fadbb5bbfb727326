"""A store on a real file, with a circuit that rests a short while so that a test can see it recover."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from proxy.store.database.sqlite import SqliteFile
from proxy.store.database_errors import CircuitBreaker
from proxy.store.sql import SqlStore
from proxy.store.writer import QueueLimits

REST_S = 0.2
OLD_SCHEMAS = Path(__file__).with_name("old_schemas.sql")
"""The statements that each version brought; a new version adds its own."""

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


def build_old_store(path: Path, version: str) -> None:
    """An empty store as that version of the schema made it."""
    _, *versions = re.split(r"^-- version (\d+)$", OLD_SCHEMAS.read_text(), flags=re.MULTILINE)
    steps = dict(zip(versions[::2], versions[1::2], strict=True))
    with closing(sqlite3.connect(path)) as writing:
        for name, step in steps.items():
            if name <= version:
                writing.executescript(step)
        writing.execute("INSERT INTO alembic_version (version_num) VALUES (?)", (version,))
        writing.execute("INSERT INTO meta (tenant, name, value) VALUES ('', 'secret', ?)", (bytes(32),))
        writing.commit()
