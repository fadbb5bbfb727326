"""What a store needs of a database: one connection that writes, a pool of connections that read, and what deletions
and health ask."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from sqlalchemy import Connection, Engine

READERS = 4
SEARCHERS = 1
"""Further connections for searches, which may take seconds, so that no request waits for one."""
MAX_NOTES = 20
"""Newest notes to the operator that are kept."""


class Database(Protocol):
    """`write_connection` is for one thread, `read_engine` for any. Opening raises StoreError."""

    @property
    def is_shared(self) -> bool:
        """Whether several proxies may write to it at once."""

    @property
    def location(self) -> str:
        """Where it is, for people, without credentials."""

    @property
    def notes(self) -> Collection[str]:
        """What an operator should know, oldest first."""

    @property
    def secret(self) -> bytes:
        """Empty until the store was open once."""

    @property
    def is_open(self) -> bool: ...

    @property
    def read_engine(self) -> Engine:
        """Raises StoreError if the store is not open."""

    @property
    def write_connection(self) -> Connection:
        """The write connection, opened if necessary."""

    @property
    def may_set_aside(self) -> bool:
        """Whether this process may replace a damaged store and finish deletions; a command that only looks may not."""

    def close(self) -> None: ...

    def begin_write(self, connection: Connection, tenants: Collection[str]) -> int:
        """Called first in every transaction that writes: until it ends, nobody else writes to these tenants (all, if
        there are none). Returns the time in ns by the clock that all writers share."""

    def pipelined(self, connection: Connection) -> AbstractContextManager[object]:
        """Statements inside go to the server without waiting for each other; none may return rows. An error of any of
        them is raised at its end."""

    def announce(self, connection: Connection, news: Sequence[str]) -> None:
        """Tell other processes when this transaction is committed. Called among statements that are `pipelined`."""

    def listen(self, hear: Callable[[str], None], is_over: Callable[[], bool]) -> None:
        """Call `hear` with what is announced, until `is_over`. Raises when the connection breaks."""

    def count_log_pages(self, records: int, size: int) -> None:
        """Count a committed transaction of so many records and bytes of text."""

    def checkpoint_if_large(self, *, waited_for: bool) -> None:
        """Upkeep after a commit. Errors are ignored: the next commit reports them."""

    def set_aside(self) -> None:
        """Put a damaged store aside, if allowed, so that a new one can begin."""

    def forget_set_aside(self, conversation: str, before: int) -> int:
        """Delete set-aside copies that hold this conversation, or are older than `before` (ms). Returns bytes freed."""

    def compact(self) -> bool:
        """Give back the space of deleted rows; False if somebody was in the way."""

    def truncate_log(self) -> bool:
        """Remove deleted rows from the log; False if somebody was in the way."""

    def size_bytes(self) -> int:
        """Bytes on disk; asks no table."""
