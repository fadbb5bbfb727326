"""The SQLite database file, and everything that is specific to SQLite.

A file is never deleted: a damaged one is renamed with a timestamp, an older one copied before migration. Only the owner
can read it (mode 0600), and a symbolic link is refused. One connection writes, with `BEGIN IMMEDIATE`, because in WAL
mode a read that turns into a write fails if another process wrote in between; a pool can only read.
"""

from __future__ import annotations

import mmap
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import NullPool, QueuePool

from proxy.errors import StoreError
from proxy.store.database import migrate
from proxy.store.database.interface import READERS, SEARCHERS, Database
from proxy.store.database_errors import as_store_error

BUSY_MS = 250
"""How long a statement waits for another process."""
SHRINK_MS = 50
"""Short busy timeout while deleted bytes are removed: writers wait meanwhile, and it is tried again."""
MAX_REWRITE_BYTES = 256 * 1024 * 1024
"""Largest file that is rewritten when conversations are deleted, which takes about a second."""
WAL_BYTES = 64 * 1024 * 1024
"""Size to which a longer write-ahead log is cut back."""
WAL_PAGES = 4_000
"""Pages of the write-ahead log from which SQLite checkpoints by itself, within a commit: 10 ms for each 1,000."""
CHECKPOINT_AT_PAGES = (500, 2_000)
"""Pages from which the writer checkpoints after a commit: if nobody waits for the next one, and if somebody does."""
PAGE_BYTES = 4_096
PAGES_PER_COMMIT, PAGES_PER_RECORD = 16, 2
"""Estimated log pages beside the bytes of text, because SQLite does not report them (measured: 15 to 23 for a commit of
3 records, 106 to 185 for one of 69 records and 60 pages)."""
FILE_SUFFIXES = ("", "-wal", "-shm")
BACKUP_SUFFIX = ".before-"
SET_ASIDE_SUFFIX = ".corrupt-"


class SqliteFile(Database):
    """One file with its connections. One process owns it, by a lock that `serve` holds, so nobody announces and
    nobody listens."""

    def __init__(self, path: Path, *, now: Callable[[], float] = time.time, sets_aside: bool = True) -> None:
        super().__init__(may_set_aside=sets_aside)
        self.path = path.absolute()
        self._now = now
        self._opened_once = False
        self._identity: tuple[int, int] | None = None
        self._log_pages = 0
        self._has_begun_file = False

    @property
    def location(self) -> str:
        return str(self.path)

    @property
    def write_connection(self) -> Connection:
        """The write connection, opened if necessary."""
        if self._write_connection is not None and _file_identity(self.path) != self._identity:
            self.close()
        if self._write_connection is None:
            self.open()
        assert self._write_connection is not None  # noqa: S101 - `open` made it or raised
        return self._write_connection

    def open(self) -> None:
        """Open the store; set a damaged file aside, if allowed, and begin a new one. Raises StoreError."""
        try:
            self._open()
        except Exception as caught:
            self.close()
            error = as_store_error(caught)
            if error.code != "store_corrupt" or not self.may_set_aside:
                raise error from caught
            self.set_aside()
            self._open()

    def _open(self) -> None:
        was_there = self._prepare_file()
        if self._opened_once and not was_there:
            self.notes.append("the store's file was gone; a new one was begun")
        self._engine = create_engine("sqlite://", creator=self._connect, poolclass=NullPool)
        event.listen(self._engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
        reading = create_engine(
            "sqlite://",
            creator=self._connect_read_only,
            poolclass=QueuePool,
            pool_size=READERS + SEARCHERS,
            max_overflow=0,
        )
        event.listen(reading, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        with ExitStack() as undone_on_failure:
            undone_on_failure.callback(reading.dispose)
            self._write_connection = self._engine.connect()
            _configure_durability(_raw_connection(self._write_connection), new=not was_there)
            self._migrate(reading)
            with reading.connect() as connection:
                self.secret = self.secret or migrate.secret_of(connection)
            undone_on_failure.pop_all()
        self._identity = _file_identity(self.path)
        self._read_engine = reading  # last: readers use it from here on, and find the tables
        self._opened_once = True

    def close(self) -> None:
        for close in self._give_up_connections():
            try:
                close()
            except Exception as caught:
                self.notes.append(f"closing the store: {type(caught).__name__}")

    def remove_if_begun(self) -> None:
        self.close()
        if self._has_begun_file:
            for side in FILE_SUFFIXES:
                self.path.with_name(self.path.name + side).unlink(missing_ok=True)

    def set_aside(self) -> None:
        """Rename the file and its companions, if allowed. Nothing is deleted."""
        self.close()
        if not self.may_set_aside:
            return
        self._opened_once = False  # the next file is new because of this, not because one was gone
        name = f"{self.path.name}{SET_ASIDE_SUFFIX}{datetime.fromtimestamp(self._now(), UTC):%Y%m%dT%H%M%S%fZ}"
        for side in FILE_SUFFIXES:
            old = self.path.with_name(self.path.name + side)
            if old.exists():
                old.rename(self.path.with_name(name + side))
        self.notes.append(f"the store's file was damaged; it was kept as {name} and a new store begun")

    def forget_set_aside(self, conversation: str, before: int) -> int:
        """Delete the damaged files that hold this conversation, or were last written before `before` (ms). They cannot
        be edited, so each goes as a whole. Returns the bytes deleted."""
        freed = 0
        for path in self.path.parent.glob(f"{self.path.name}{SET_ASIDE_SUFFIX}*Z"):
            files = [side for suffix in FILE_SUFFIXES if (side := path.with_name(path.name + suffix)).is_file()]
            newest_ms = max(file.stat().st_mtime for file in files) * 1000 if files else 0
            if newest_ms < before or (conversation and any(_holds(file, conversation.encode()) for file in files)):
                freed += sum(file.stat().st_size for file in files)
                for file in files:
                    file.unlink()
        return freed

    def size_bytes(self) -> int:
        total = 0
        for side in ("", "-wal"):
            try:
                total += os.stat(f"{self.path}{side}").st_size  # noqa: PTH116 - asked on the event loop: the cheap way
            except OSError:
                continue
        return total

    def begin_write(self, connection: Connection, tenants: Collection[str]) -> int:
        return time.time_ns()  # `BEGIN IMMEDIATE` has the lock

    def pipelined(self, connection: Connection) -> AbstractContextManager[None]:
        return nullcontext()

    def count_log_pages(self, records: int, size: int) -> None:
        """Count a committed transaction of so many records and bytes of text."""
        self._log_pages += PAGES_PER_COMMIT + PAGES_PER_RECORD * records + size // PAGE_BYTES

    def checkpoint_if_large(self, *, waited_for: bool) -> None:
        """Checkpoint a long log, as far as readers allow. Errors are ignored: the next commit reports them."""
        if self._write_connection is not None and self._log_pages >= CHECKPOINT_AT_PAGES[waited_for]:
            self._log_pages = 0
            with suppress(sqlite3.Error):
                _raw_connection(self._write_connection).execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def compact(self) -> bool:
        """Overwrite deleted rows with zeros; False if another connection was in the way. A file of up to
        `MAX_REWRITE_BYTES` is rewritten, because a copy may remain in a split page."""
        for copy in self.path.parent.glob(f"{self.path.name}{BACKUP_SUFFIX}*"):
            copy.unlink()
        rewrite = self.size_bytes() <= MAX_REWRITE_BYTES
        # As a script: SQLite gives a row without columns per page here, and `execute` stops at the first.
        return self._run_unless_locked(
            lambda raw: raw.executescript("VACUUM" if rewrite else "PRAGMA incremental_vacuum")
        )

    def truncate_log(self) -> bool:
        """Checkpoint the write-ahead log and cut it to zero; False if another connection was in the way."""
        return self._run_unless_locked(lambda raw: raw.execute("PRAGMA wal_checkpoint(TRUNCATE)"))

    def _run_unless_locked(self, run: Callable[[sqlite3.Connection], sqlite3.Cursor]) -> bool:
        """Run `run`; False if it failed on a lock, by an error or by its first column."""
        raw = _raw_connection(self.write_connection)
        raw.execute(f"PRAGMA busy_timeout={SHRINK_MS}").fetchall()
        try:
            first_row = run(raw).fetchone()
        except sqlite3.OperationalError as caught:
            if as_store_error(caught).code == "store_locked":
                return False
            raise
        finally:
            raw.execute(f"PRAGMA busy_timeout={BUSY_MS}").fetchall()
        return not (first_row and first_row[0])

    # ------------------------------------------------------------------------------------------------------- opening
    def _prepare_file(self) -> bool:
        """Create the directory and the file if missing. Returns whether the file has content."""
        if not self.path.parent.exists():
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Never opened when it is there: closing a second handle would drop the locks SQLite holds on it.
        if not os.path.lexists(self.path):
            with suppress(FileExistsError):  # another process was faster
                _create_file(self.path)
                self._has_begun_file = True
        found = self.path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise StoreError(f"{self.path} is not a regular file", code="store_unreachable")
        if stat.S_IMODE(found.st_mode) & 0o077 and found.st_uid == os.geteuid():
            self.path.chmod(0o600)
        return found.st_size > 0

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

    def _migrate(self, reading: Engine) -> None:
        """Checked on a read-only connection, so that a store in use by another process opens at once."""
        assert self._write_connection is not None  # noqa: S101 - `_open` made it
        with reading.connect() as connection:
            version = migrate.schema_version_of(connection)
        if migrate.is_current(version):
            return
        if version:
            self._back_up(reading, version)
        with self._write_connection.begin():
            version = migrate.schema_version_of(self._write_connection)  # another process may have been faster
            if not version:
                migrate.create_schema(self._write_connection, self.secret)
            elif not migrate.is_current(version):
                migrate.upgrade(self._write_connection)
        if version:
            self.notes.append(f"the store was migrated from schema {version}; a copy was kept")

    def _back_up(self, reading: Engine, version: str) -> None:
        copy = self.path.with_name(f"{self.path.name}{BACKUP_SUFFIX}{version}")
        partial = copy.with_name(f"{copy.name}.partial")
        partial.unlink(missing_ok=True)
        _create_file(partial)
        with reading.connect() as connection:
            raw = _raw_connection(connection)
            raw.execute("PRAGMA query_only=OFF")
            raw.execute("VACUUM INTO ?", (str(partial),))
            raw.execute("PRAGMA query_only=ON")
        partial.replace(copy)


def _create_file(path: Path) -> None:
    """Create an empty file that only its owner can read. Raises FileExistsError if anything is there, also a link."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def _holds(file: Path, word: bytes) -> bool:
    """Whether the bytes of `word` stand anywhere in a file."""
    if not file.stat().st_size:
        return False
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(word) >= 0


def _file_identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - before every commit: the cheap way
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _raw_connection(connection: Connection) -> sqlite3.Connection:
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)  # noqa: S101 - the engines here make no other
    return raw


@contextmanager
def replacing_damaged_text(connection: Connection) -> Iterator[None]:
    """While this block runs, what is not UTF-8 in a text reads as replacement characters."""
    raw = _raw_connection(connection)
    raw.text_factory = partial(str, encoding="utf-8", errors="replace")
    try:
        yield
    finally:
        raw.text_factory = str


def _configure_durability(raw: sqlite3.Connection, *, new: bool) -> None:
    """Settings of the write connection; in an existing file they write nothing."""
    if new:
        raw.execute("PRAGMA auto_vacuum=INCREMENTAL")
    raw.execute("PRAGMA journal_mode=WAL").fetchall()
    raw.execute("PRAGMA synchronous=FULL")
    raw.execute("PRAGMA secure_delete=ON").fetchall()
    raw.execute(f"PRAGMA journal_size_limit={WAL_BYTES}").fetchall()
    raw.execute(f"PRAGMA wal_autocheckpoint={WAL_PAGES}").fetchall()
