"""The embedded database: one SQLite file, and all that is said to SQLite and to no other database.

The law: **a file is never deleted or overwritten**. One that is damaged is set aside under its name and the time, or
left where it is for whoever only looks; one that is older is copied before it is migrated. The file is the owner's
alone (mode 0600, its directory 0700 where we make it); a symbolic link in its place is refused.

Two engines stand over it: one connection that writes (`BEGIN IMMEDIATE`, for a read that turns into a write fails at
once in WAL mode when somebody else wrote in between), and a pool that can only read.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import NullPool, QueuePool

from proxy.errors import StoreError
from proxy.store import migrate as migrating
from proxy.store.failures import as_store_error

BUSY_MS = 250
"""How long a statement waits for another process before it gives up."""
READERS = 4
"""Connections that read at the same time."""
SEARCHERS = 1
"""And those that search: a search may take seconds, and no request waits for one to read."""
SHRINK_MS = 50
"""And one that gets what was deleted out of the file: it is tried again, and whoever writes waits behind it."""
MAX_REWRITE_BYTES = 256 * 1024 * 1024
"""Size up to which a file is written anew when somebody asks for a conversation to be forgotten: about a second."""
WAL_BYTES = 64 * 1024 * 1024
"""What the write-ahead log is cut back to after it was longer."""
WAL_PAGES = 4_000
"""Pages of the write-ahead log from which SQLite brings it into the file by itself: within the commit of whoever comes
then, who waits 10 ms more for each 1,000 of them."""
CHECKPOINT_AT_PAGES = (1_000, 2_000)
"""And those from which the writer has it done before, behind a commit: where nobody waits for the next one, and where
somebody does."""
PAGE_BYTES = 4_096
PAGES_PER_COMMIT, PAGES_PER_RECORD = 16, 2
"""About so many come with them beside the bytes that are said (measured: 15 to 23 for a commit of 3 records, 106 to 185
for one of 69 records and 60 pages). SQLite tells nobody how many there are."""
MAX_NOTES = 20
"""How many of the newest things to tell an operator are kept."""
FILE_SUFFIXES = ("", "-wal", "-shm")
BACKUP_SUFFIX = ".before-"


class SqliteFile:
    """One file with its connections. `writing` is used by one thread; `reading` by any. Without `sets_aside` a damaged
    one stays where it is."""

    def __init__(self, path: Path, *, now: Callable[[], float] = time.time, sets_aside: bool = True) -> None:
        self.path = path.absolute()
        self._may_set_aside = sets_aside
        self.notes: deque[str] = deque(maxlen=MAX_NOTES)
        self._now = now
        self._secret = b""
        self._opened_once = False
        self._identity: tuple[int, int] | None = None
        self._engine: Engine | None = None
        self._write_connection: Connection | None = None
        self._read_engine: Engine | None = None
        self._log_pages = 0

    @property
    def location(self) -> str:
        return str(self.path)

    @property
    def secret(self) -> bytes:
        """Empty until the store was open once; then it stays, also when the file has to be made anew."""
        return self._secret

    @property
    def is_open(self) -> bool:
        return self._read_engine is not None

    @property
    def read_engine(self) -> Engine:
        if self._read_engine is None:
            raise StoreError("the store is not open", code="store_unreachable")
        return self._read_engine

    @property
    def write_connection(self) -> Connection:
        """The connection that writes, opened when it has to be."""
        if self._write_connection is not None and not self._is_same_file():
            self.close()
        if self._write_connection is None:
            self.open()
        assert self._write_connection is not None  # noqa: S101 - `open` made it or raised
        return self._write_connection

    def open(self) -> None:
        """Raises StoreError when it cannot be used. What is damaged is set aside, where that is to be, and a new store
        begun."""
        try:
            self._open()
        except Exception as caught:
            self.close()
            error = as_store_error(caught)
            if error.code != "store_corrupt" or not self._may_set_aside:
                raise error from caught
            self.set_aside()
            self._open()

    def _open(self) -> None:
        was_there = self._prepare_file()
        if self._opened_once and not was_there:
            self.notes.append("the store's file was gone; a new one was begun")
        self._engine = create_engine("sqlite://", creator=self._connect, poolclass=NullPool)
        event.listen(self._engine, "begin", _begin_immediate)
        self._read_engine = create_engine(
            "sqlite://",
            creator=self._connect_read_only,
            poolclass=QueuePool,
            pool_size=READERS + SEARCHERS,
            max_overflow=0,
        )
        event.listen(self._read_engine, "begin", _begin_deferred)
        self._write_connection = self._engine.connect()
        _configure_durability(_raw_connection(self._write_connection), new=not was_there)
        self._migrate()
        with self._read_engine.connect() as connection:
            self._secret = self._secret or migrating.secret_of(connection)
        self._identity = _file_identity(self.path)
        self._opened_once = True

    def close(self) -> None:
        for closing in (self._write_connection, self._engine, self._read_engine):
            try:
                if isinstance(closing, Connection):
                    closing.close()
                elif closing is not None:
                    closing.dispose()
            except Exception as caught:
                self.notes.append(f"closing the store: {type(caught).__name__}")
        self._write_connection = self._engine = self._read_engine = None

    def set_aside(self) -> None:
        """Move the file and what belongs to it out of the way, where that is to be. Nothing is deleted."""
        self.close()
        if not self._may_set_aside:
            return
        self._opened_once = False  # the next file is new because of this, not because one was gone
        name = f"{self.path.name}.corrupt-{datetime.fromtimestamp(self._now(), UTC):%Y%m%dT%H%M%S%fZ}"
        for side in FILE_SUFFIXES:
            old = self.path.with_name(self.path.name + side)
            if old.exists():
                old.rename(self.path.with_name(name + side))
        self.notes.append(f"the store's file was damaged; it was kept as {name} and a new store begun")

    def size_bytes(self) -> int:
        """Of the file and its write-ahead log."""
        total = 0
        for side in ("", "-wal"):
            try:
                total += os.stat(f"{self.path}{side}").st_size  # noqa: PTH116 - asked on the event loop: the cheap way
            except OSError:
                continue
        return total

    def count_log_pages(self, records: int, size: int) -> None:
        """A transaction was committed, with so many records, and so many bytes of what is said in them."""
        self._log_pages += PAGES_PER_COMMIT + PAGES_PER_RECORD * records + size // PAGE_BYTES

    def checkpoint_if_large(self, *, waited_for: bool) -> None:
        """Bring a long write-ahead log into the file, as far as no reader is in the way; then it begins anew. What was
        committed is on disk anyway, and what is wrong with the disk is found and told by the next commit."""
        if self._write_connection is not None and self._log_pages >= CHECKPOINT_AT_PAGES[waited_for]:
            self._log_pages = 0
            with suppress(sqlite3.Error):
                _raw_connection(self._write_connection).execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def compact(self, *, rewrite: bool) -> bool:
        """Make the file smaller by what was deleted; False when somebody else was in the way.

        Deleted rows are overwritten with zeros. `rewrite` also writes a file of up to `REWRITTEN_BYTES` anew, for a
        copy may stay in the unused part of a page that was once split; a larger one would keep every writer waiting.
        """
        for copy in self.path.parent.glob(f"{self.path.name}{BACKUP_SUFFIX}*"):
            copy.unlink()
        rewrite = rewrite and self.size_bytes() <= MAX_REWRITE_BYTES
        # As a script: SQLite gives a row without columns per page here, and `execute` stops at the first.
        return self._run_unless_locked(
            lambda raw: raw.executescript("VACUUM" if rewrite else "PRAGMA incremental_vacuum")
        )

    def truncate_log(self) -> bool:
        """Bring the write-ahead log into the file and cut it to nothing; False when somebody else was in the way."""
        return self._run_unless_locked(lambda raw: raw.execute("PRAGMA wal_checkpoint(TRUNCATE)"))

    def _run_unless_locked(self, run: Callable[[sqlite3.Connection], sqlite3.Cursor]) -> bool:
        """Whether `run` was done, which tells by an error or by its first column that it was not."""
        raw = _raw_connection(self.write_connection)
        raw.execute(f"PRAGMA busy_timeout={SHRINK_MS}").fetchall()
        try:
            told = run(raw).fetchone()
        except sqlite3.OperationalError as caught:
            if as_store_error(caught).code == "store_locked":
                return False
            raise
        finally:
            raw.execute(f"PRAGMA busy_timeout={BUSY_MS}").fetchall()
        return not (told and told[0])

    # ------------------------------------------------------------------------------------------------------- opening
    def _prepare_file(self) -> bool:
        """Make the directory and the file where they are missing; whether there is something in it."""
        if not self.path.parent.exists():
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Never opened when it is there: closing a second handle would drop the locks SQLite holds on it.
        if not os.path.lexists(self.path):
            with suppress(FileExistsError):  # another process was faster
                _create_file(self.path)
        found = self.path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise StoreError(f"{self.path} is not a regular file", code="store_unreachable")
        if stat.S_IMODE(found.st_mode) & 0o077 and found.st_uid == os.geteuid():
            self.path.chmod(0o600)
        return found.st_size > 0

    def _is_same_file(self) -> bool:
        return _file_identity(self.path) == self._identity

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(
            f"file:{quote(str(self.path))}?mode=rw",
            uri=True,
            timeout=BUSY_MS / 1000,
            isolation_level=None,
            check_same_thread=False,
        )

    def _connect_read_only(self) -> sqlite3.Connection:
        connection = self._connect()
        connection.execute("PRAGMA query_only=ON")
        return connection

    def _migrate(self) -> None:
        """Asked on a connection that only reads, so that a store in use by another process opens at once."""
        assert self._write_connection is not None  # noqa: S101 - `_open` made it
        with self.read_engine.connect() as connection:
            version = migrating.schema_version_of(connection)
        if migrating.is_current(version):
            return
        if version:
            self._back_up(version)
        with self._write_connection.begin():
            version = migrating.schema_version_of(self._write_connection)  # another process may have been faster
            if not version:
                migrating.create_schema(self._write_connection, self._secret)
            elif not migrating.is_current(version):
                migrating.upgrade(self._write_connection)
        if version:
            self.notes.append(f"the store was migrated from schema {version}; a copy was kept")

    def _back_up(self, version: str) -> None:
        """Keep a copy of the store as it is, under the version it has."""
        copy = self.path.with_name(f"{self.path.name}{BACKUP_SUFFIX}{version}")
        partial = copy.with_name(f"{copy.name}.partial")
        partial.unlink(missing_ok=True)
        _create_file(partial)
        with self.read_engine.connect() as connection:
            raw = _raw_connection(connection)
            raw.execute("PRAGMA query_only=OFF")
            raw.execute("VACUUM INTO ?", (str(partial),))
            raw.execute("PRAGMA query_only=ON")
        partial.replace(copy)


def _create_file(path: Path) -> None:
    """An empty file that only its owner may read. Raises FileExistsError where anything is, a link too."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def _file_identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - before every commit: the cheap way
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _raw_connection(connection: Connection) -> sqlite3.Connection:
    """SQLite's own connection, for what must stand outside a transaction."""
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)  # noqa: S101 - the engines here make no other
    return raw


def _begin_immediate(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _begin_deferred(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")


def _configure_durability(raw: sqlite3.Connection, *, new: bool) -> None:
    """Settings of the connection that writes; in a file that is not new these write nothing."""
    if new:
        raw.execute("PRAGMA auto_vacuum=INCREMENTAL")
    raw.execute("PRAGMA journal_mode=WAL").fetchall()
    raw.execute("PRAGMA synchronous=FULL")
    raw.execute("PRAGMA secure_delete=ON").fetchall()
    raw.execute(f"PRAGMA journal_size_limit={WAL_BYTES}").fetchall()
    raw.execute(f"PRAGMA wal_autocheckpoint={WAL_PAGES}").fetchall()
