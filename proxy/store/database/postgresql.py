"""A PostgreSQL database, which several proxies may share.

Writers take turns by tenant: a transaction first takes an advisory lock, so that rows of a tenant are numbered in the
order in which others see them, two writers never block each other row by row, and a blob is not deleted while somebody
begins to use it. Readers take no lock and see one state for the length of a transaction.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, suppress
from hashlib import sha256
from importlib.util import find_spec

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool, QueuePool

from proxy.errors import InvalidConfiguration
from proxy.store.database import migrate
from proxy.store.database.interface import READERS, SEARCHERS, Database
from proxy.store.database_errors import as_store_error
from proxy.store.statements import pipelined

CONNECT_TIMEOUT_S = 5
LOCK_TIMEOUT_MS = 10_000
"""How long a transaction waits for other writers of the same tenant. Then it is tried again, and requests that need it
written fail, so this is longer than several replicas take for their turns when a thousand streams end at once. A writer
that died holds no lock: the server ends its transaction."""
STATEMENT_TIMEOUT_MS = 30_000
"""Longest statement: a search or a deletion in a large store takes seconds, a lost server no answer at all."""
STANDING_MS = 1_500
"""A writer for which the server has waited so long in mid-transaction stands still: its process is stopped, or its
machine frozen. Who waits for its locks ends its session, so that no answer to a client waits for two seconds; when it
goes on it writes the same again. `idle_in_transaction_session_timeout` would not do: it does not count in the middle of
a pipeline, nor behind one, because the driver sends a Flush after the Sync (PostgreSQL 16, psycopg 3.3)."""
MIGRATION_STANDING_MS = 5_000
"""The same for a process that opens the store: a migration works between two statements."""
POOL_TIMEOUT_S = 5
SIZE_INTERVAL_S = 60.0
"""How often the size of the database is asked for: PostgreSQL adds up the sizes of all files."""
KEEPALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 15_000}
"""A server that vanished without a word is noticed within half a minute (s, s, attempts, ms)."""
DRIVER = "postgresql+psycopg"

LOCK_NOT_AVAILABLE = "55P03"
CHANNEL = "callstack_news"
LISTEN_POLL_S = 1.0
"""How often a listener looks whether it is to end."""
LOCK_SQL = "pg_advisory_xact_lock({})"
SHARE_SQL = "pg_advisory_xact_lock_shared({})"
END_STANDING_SQL = """
    SELECT pg_terminate_backend(held.pid) FROM pg_locks held JOIN pg_stat_activity session USING (pid)
    WHERE held.locktype = 'advisory' AND held.granted AND held.objsubid = 1
      AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND ((held.classid::bigint << 32) | held.objid::bigint) = ANY(%s)
      AND session.wait_event = 'ClientRead' AND session.state <> 'idle'
      AND session.state_change < clock_timestamp() - %s * interval '1 ms'"""
CLOCK_SQL = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"  # us; evaluated last, when the locks are held


def _lock_key(name: str) -> int:
    """A key of an advisory lock: 64 bits with a sign, the same in every process."""
    return int.from_bytes(sha256(f"callstack {name}".encode()).digest()[:8], "big", signed=True)


EVERYONE = _lock_key("everyone")
SCHEMA_KEY = _lock_key("schema")


def _lock(connection: Connection, locks: Sequence[str], keys: Sequence[int], standing_ms: int = STANDING_MS) -> int:
    """Begin the transaction with these locks, which have `keys`; who stands still with one of them for `standing_ms`
    loses it. Returns the server's time in ns."""
    waits = "set_config('lock_timeout', '{}', true)".format
    asked = f"SELECT {waits(standing_ms)}, {', '.join(locks)}, {waits(LOCK_TIMEOUT_MS)}, {CLOCK_SQL}"
    until = time.monotonic() + LOCK_TIMEOUT_MS / 1_000
    while True:
        try:
            with pipelined(connection) as driver:  # with the BEGIN that the driver sends before it
                told = driver.execute(asked)
            return int(told.fetchall()[0][-1]) * 1_000
        except DBAPIError as caught:
            if getattr(caught.orig, "sqlstate", "") != LOCK_NOT_AVAILABLE or time.monotonic() > until:
                raise
        connection.connection.rollback()  # nothing else is in the transaction yet
        connection.exec_driver_sql(END_STANDING_SQL, (list(keys), standing_ms))
        connection.connection.rollback()


class PostgresDatabase(Database):
    """On a server, which checkpoints, vacuums and recycles its log by itself. `url` is
    `postgresql://user:password@host:port/name`, with libpq's parameters behind a question mark. Raises
    InvalidConfiguration for another form, or where the driver is not installed."""

    is_shared = True

    def __init__(self, url: str, *, may_finish: bool = True) -> None:
        super().__init__(may_set_aside=may_finish)
        self._url = _checked_url(url)
        self._size = 0
        self._size_known_until = 0.0

    @property
    def location(self) -> str:
        host = self._url.host or self._url.query.get("host") or "localhost"
        return f"postgresql://{host}{f':{self._url.port}' if self._url.port else ''}/{self._url.database or ''}"

    @property
    def write_connection(self) -> Connection:
        """The write connection; a new one if the server closed the last, as when it was restarted since."""
        if self._write_connection is not None and _is_closed(self._write_connection):
            self.close()
        if self._write_connection is None:
            self._open()
        assert self._write_connection is not None  # noqa: S101 - `_open` made it or raised
        return self._write_connection

    def _open(self) -> None:
        try:
            self._engine = create_engine(
                self._url, poolclass=NullPool, connect_args=self._connect_arguments(writes=True)
            )
            self._write_connection = self._engine.connect()
            self._migrate(self._write_connection)
            self._read_engine = create_engine(
                self._url,
                poolclass=QueuePool,
                pool_size=READERS + SEARCHERS,
                max_overflow=0,
                pool_timeout=POOL_TIMEOUT_S,
                isolation_level="REPEATABLE READ",
                connect_args=self._connect_arguments(writes=False),
            )
            self._measure()
        except Exception as caught:
            self.close()
            raise as_store_error(caught) from caught

    def _connect_arguments(self, *, writes: bool) -> dict[str, object]:
        """What the URL says comes last, so that it wins."""
        options = f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c lock_timeout={LOCK_TIMEOUT_MS}"
        if not writes:
            # A plan made once, for tables that were small then, would be used on until the server gathers statistics.
            options += " -c default_transaction_read_only=on -c plan_cache_mode=force_custom_plan"
        ours = {"connect_timeout": CONNECT_TIMEOUT_S, "application_name": "callstack", **KEEPALIVE}
        said = self._url.query
        return {**ours, **said, "options": f"{options} {said.get('options', '')}".rstrip()}

    def _migrate(self, connection: Connection) -> None:
        """One process at a time: replicas start together."""
        with connection.begin():
            _lock(connection, [LOCK_SQL.format(SCHEMA_KEY)], [SCHEMA_KEY], MIGRATION_STANDING_MS)
            version = migrate.schema_version_of(connection)
            if not version:
                migrate.create_schema(connection, self.secret)
            elif not migrate.is_current(version):
                migrate.upgrade(connection)
                self.notes.append(f"the store was migrated from schema {version}")
            self.secret = migrate.secret_of(connection)

    def close(self) -> None:
        for close in self._give_up_connections():
            with suppress(SQLAlchemyError):
                close()

    # --------------------------------------------------------------------------------------------------------- writing
    def begin_write(self, connection: Connection, tenants: Collection[str]) -> int:
        keys = sorted(set(map(_lock_key, tenants)))  # sorted, so that two writers never wait for each other
        everyone = (SHARE_SQL if keys else LOCK_SQL).format(EVERYONE)
        return _lock(connection, [everyone, *map(LOCK_SQL.format, keys)], [EVERYONE, *keys])

    def pipelined(self, connection: Connection) -> AbstractContextManager[object]:
        return pipelined(connection)

    def announce(self, connection: Connection, news: Sequence[str]) -> None:
        """On the driver, because SQLAlchemy would wait for the rows."""
        cursor = connection.connection.cursor()
        for each in news:
            cursor.execute("SELECT pg_notify(%s, %s)", (CHANNEL, each))

    def listen(self, hear: Callable[[str], None], is_over: Callable[[], bool]) -> None:
        import psycopg  # an extra

        url = self._url.set(drivername="postgresql").update_query_dict({n: str(v) for n, v in KEEPALIVE.items()})
        with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as connection:
            connection.execute(f"LISTEN {CHANNEL}")
            while not is_over():
                for note in connection.notifies(timeout=LISTEN_POLL_S):
                    hear(note.payload)

    def checkpoint_if_large(self, *, waited_for: bool) -> None:
        with suppress(SQLAlchemyError):
            self._measure()

    def _measure(self) -> None:
        connection = self._write_connection
        if connection is None or time.monotonic() < self._size_known_until:
            return
        self._size_known_until = time.monotonic() + SIZE_INTERVAL_S
        with connection.begin():
            self._size = int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())

    def size_bytes(self) -> int:
        return self._size

    # -------------------------------------------------------------------------------------------------------- deleting
    def set_aside(self) -> None:
        """A server is not a file: its administrator decides. The store stays closed until it can be used."""
        self.close()


def _is_closed(connection: Connection) -> bool:
    """Asks nothing of the server: it says nothing to an idle connection but that it ends (and what was configured anew,
    where a new connection does no harm)."""
    if connection.closed or connection.invalidated:
        return True
    with selectors.DefaultSelector() as asked:
        asked.register(connection.connection.driver_connection.fileno(), selectors.EVENT_READ)  # type: ignore[union-attr]
        return bool(asked.select(0))


def _checked_url(url: str) -> URL:
    try:
        made = make_url(url)
    except (ArgumentError, ValueError):  # a port that is no number
        raise InvalidConfiguration("store: not a URL of the form postgresql://user:password@host:5432/name") from None
    if find_spec("psycopg") is None:
        raise InvalidConfiguration("store: PostgreSQL needs a driver: pip install 'callstack-proxy[postgres]'")
    return made.set(drivername=DRIVER)
