"""What a store needs of a database: one connection that writes, a pool of connections that read, and what deletions
and health ask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager

from sqlalchemy import Connection, Engine

from proxy.errors import StoreError

READERS = 4
SEARCHERS = 1
"""Further connections for searches, which may take seconds, so that no request waits for one."""
MAX_NOTES = 20
"""Newest notes to the operator that are kept."""


class Database(ABC):
    """`write_connection` is for one thread, `read_engine` for any. Opening raises StoreError. What a database has no
    need of does nothing here."""

    is_shared = False
    """Whether several proxies may write to it at once."""

    def __init__(self, *, may_set_aside: bool) -> None:
        self.may_set_aside = may_set_aside
        """Whether this process may replace a damaged store and finish deletions; a command that only looks may not."""
        self.notes: deque[str] = deque(maxlen=MAX_NOTES)
        """What an operator should know, oldest first."""
        self.secret = b""
        """Empty until the store was open once; unchanged afterwards, even if it is made anew."""
        self._engine: Engine | None = None
        self._write_connection: Connection | None = None
        self._read_engine: Engine | None = None

    @property
    @abstractmethod
    def location(self) -> str:
        """Where it is, for people, without credentials."""

    @property
    def is_open(self) -> bool:
        return self._read_engine is not None

    @property
    def read_engine(self) -> Engine:
        """Raises StoreError if the store is not open."""
        if self._read_engine is None:
            raise StoreError("the store is not open", code="store_unreachable")
        return self._read_engine

    @property
    @abstractmethod
    def write_connection(self) -> Connection:
        """The write connection, opened if necessary."""

    def _give_up_connections(self) -> list[Callable[[], None]]:
        """What closes them. They are forgotten first, because a reader that is done looks for them."""
        closing: list[Callable[[], None]] = [self._write_connection.close] if self._write_connection else []
        closing += [engine.dispose for engine in (self._engine, self._read_engine) if engine]
        self._write_connection = self._engine = self._read_engine = None
        return closing

    @abstractmethod
    def close(self) -> None: ...

    def remove_if_begun(self) -> None:  # noqa: B027 - a database on a server was there before
        """Close, and delete what this object has created: what it was created for has failed."""

    @abstractmethod
    def begin_write(self, connection: Connection, tenants: Collection[str]) -> int:
        """Called first in every transaction that writes: until it ends, nobody else writes to these tenants (all, if
        there are none). Returns the time in ns by the clock that all writers share."""

    @abstractmethod
    def pipelined(self, connection: Connection) -> AbstractContextManager[object]:
        """Statements inside go to the server without waiting for each other; none may return rows. An error of any of
        them is raised at its end."""

    def announce(self, connection: Connection, news: Sequence[str]) -> None:  # noqa: B027 - a file has nobody to tell
        """Tell other processes when this transaction is committed. Called among statements that are `pipelined`."""

    def listen(self, hear: Callable[[str], None], is_over: Callable[[], bool]) -> None:  # noqa: B027 - as `announce`
        """Call `hear` with what is announced, until `is_over`. Raises when the connection breaks."""

    def count_log_pages(self, records: int, size: int) -> None:  # noqa: B027 - a server counts its own
        """Count a committed transaction of so many records and bytes of text."""

    @abstractmethod
    def checkpoint_if_large(self, *, waited_for: bool) -> None:
        """Upkeep after a commit. Errors are ignored: the next commit reports them."""

    @abstractmethod
    def set_aside(self) -> None:
        """Put a damaged store aside, if allowed, so that a new one can begin."""

    def forget_set_aside(self, conversation: str, before: int) -> int:
        """Delete set-aside copies that hold this conversation, or are older than `before` (ms). Returns bytes freed."""
        return 0

    def compact(self) -> bool:
        """Give back the space of deleted rows; False if somebody was in the way."""
        return True

    def truncate_log(self) -> bool:
        """Remove deleted rows from the log; False if somebody was in the way."""
        return True

    @abstractmethod
    def size_bytes(self) -> int:
        """Bytes on disk; asks no table."""
