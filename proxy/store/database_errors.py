"""Database failures as `StoreError` codes, and the circuit breaker of the store.

SQLite's primary result codes, and PostgreSQL's SQLSTATE, decide the code. Anything that is not a database failure is
`store_failed`.
"""

from __future__ import annotations

import errno
import sqlite3
from collections import deque
from collections.abc import Callable

from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from proxy.errors import StoreError

DATABASE_ERRORS = (DBAPIError, sqlite3.Error)

CODE_BY_SQLITE_RESULT = {
    sqlite3.SQLITE_BUSY: "store_locked",
    sqlite3.SQLITE_LOCKED: "store_locked",
    sqlite3.SQLITE_FULL: "store_full",
    sqlite3.SQLITE_READONLY: "store_readonly",
    sqlite3.SQLITE_PERM: "store_readonly",
    sqlite3.SQLITE_CORRUPT: "store_corrupt",
    sqlite3.SQLITE_NOTADB: "store_corrupt",
    sqlite3.SQLITE_CANTOPEN: "store_unreachable",
    sqlite3.SQLITE_IOERR: "store_unreachable",
}

CODE_BY_SQLSTATE = {
    "53100": "store_full",
    "25006": "store_readonly",
    "42501": "store_readonly",
    "55P03": "store_locked",
    "40P01": "store_locked",
    "40001": "store_locked",
    "57014": "store_busy",
    "53300": "store_busy",
}
"""PostgreSQL's codes. Any other of an operational error, or none, means that the server cannot be reached."""

DISK_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
READ_ONLY_ERRNOS = {errno.EACCES, errno.EPERM, errno.EROFS}

TEXT_BY_CODE = {
    "store_locked": "another process holds the store's write lock",
    "store_full": "the disk of the store is full",
    "store_readonly": "the store may not be written",
    "store_corrupt": "the store's file is damaged",
    "store_unreachable": "the store cannot be reached",
    "store_busy": "the store is too busy",
}


def as_store_error(caught: BaseException) -> StoreError:
    """`caught` as StoreError; its message names the cause, never a stored value."""
    if isinstance(caught, StoreError):
        return caught
    if is_damaged_text(caught):
        return StoreError("a text in the store is damaged")  # the database's own words would quote it
    code = _error_code(caught)
    cause = caught.orig if isinstance(caught, DBAPIError) and caught.orig is not None else caught
    detail = str(cause) if isinstance(cause, sqlite3.Error | OSError) else _name_of(cause)
    return StoreError(f"{TEXT_BY_CODE.get(code, 'the store failed')} ({detail})", code=code)


def _name_of(cause: BaseException) -> str:
    """The kind of failure. PostgreSQL's own words may quote values."""
    state = getattr(cause, "sqlstate", None)
    return f"{type(cause).__name__}, SQLSTATE {state}" if state else type(cause).__name__


def is_session_ended(caught: BaseException) -> bool:
    """Whether PostgreSQL ended the session in mid-transaction: it shuts down, or a writer that waited for it had it
    ended. Nothing was committed."""
    cause = caught.orig if isinstance(caught, DBAPIError) else caught
    return getattr(cause, "sqlstate", None) == "57P01"


def is_damaged_text(caught: BaseException) -> bool:
    """Whether a stored text was read that is no UTF-8: one record is damaged, the file itself is whole."""
    cause = caught.orig if isinstance(caught, DBAPIError) else caught
    return isinstance(cause, sqlite3.OperationalError) and str(cause).startswith("Could not decode to UTF-8")


def _error_code(caught: BaseException) -> str:
    if isinstance(caught, OSError):
        return (
            "store_full"
            if caught.errno in DISK_FULL_ERRNOS
            else "store_readonly"
            if caught.errno in READ_ONLY_ERRNOS
            else ("store_unreachable")
        )
    if isinstance(caught, PoolTimeout):
        return "store_busy"
    cause = caught.orig if isinstance(caught, DBAPIError) else caught
    number = getattr(cause, "sqlite_errorcode", None)
    if number in (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE):
        return "store_full"  # also what a limit on the size of files gives; a disk that is broken looks the same
    if number is not None:
        return CODE_BY_SQLITE_RESULT.get(number & 0xFF, "store_failed")
    state = getattr(cause, "sqlstate", None)
    if state in CODE_BY_SQLSTATE:
        return CODE_BY_SQLSTATE[state]
    return "store_unreachable" if isinstance(caught, OperationalError | sqlite3.OperationalError) else "store_failed"


class CircuitBreaker:
    """Opens after `failures` within `window` seconds, or by `trip`. After `rest` seconds a probe is due, which closes
    or reopens it."""

    def __init__(
        self, clock: Callable[[], float], *, failures: int = 5, window: float = 30.0, rest: float = 10.0
    ) -> None:
        self._clock = clock
        self._window = window
        self._rest = rest
        self._failed: deque[float] = deque(maxlen=failures)
        self._opened: float | None = None

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    def record_failure(self) -> None:
        """Count a failure. A failed probe opens the circuit again."""
        now = self._clock()
        self._failed.append(now)
        full = len(self._failed) == self._failed.maxlen
        if self.is_open or (full and now - self._failed[0] <= self._window):
            self._opened = now

    def trip(self) -> None:
        """Open at once, for failures that do not pass by themselves."""
        self._opened = self._clock()

    def reset(self) -> None:
        self._opened = None
        self._failed.clear()

    def seconds_until_probe(self) -> float | None:
        """Seconds until a probe is due, 0 when it is, None while the circuit is closed."""
        if self._opened is None:
            return None
        return max(0.0, self._opened + self._rest - self._clock())
