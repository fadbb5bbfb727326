"""The statements that write a group of batches, compiled once for each kind of database.

Many rows go into one insert: SQLite releases the interpreter lock at every step, and under load the writer's thread
waits up to 5 ms to get it back; PostgreSQL reads and plans each statement. On SQLite the statements run on its own
driver, because SQLAlchemy took a third of the writer's time in small groups. To a PostgreSQL server several go in one
round trip, by the pipeline of its driver; SQLAlchemy would wait for the rows of each.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from itertools import chain, islice, zip_longest
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    ARRAY,
    Column,
    ColumnElement,
    Connection,
    Delete,
    Double,
    Select,
    Table,
    Text,
    Update,
    and_,
    bindparam,
    case,
    delete,
    func,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.dml import UpdateBase
from sqlalchemy.types import TypeEngine

from proxy.store import rows, schema

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy.dialects.postgresql import Insert as PostgresInsert
    from sqlalchemy.dialects.sqlite import Insert as SqliteInsert

ZERO: ColumnElement[int] = literal_column("0")
"""A literal, so that the parameters of a statement are exactly the columns of a row."""
MIN_BLOCK_ROWS = 1_000
"""Rows of a table from which they are inserted in blocks. Single inserts are up to a third faster for fewer."""
MIN_ARRAY_ROWS = 4
"""Rows of a table from which they are inserted as arrays (PostgreSQL)."""
BLOCK_SIZES = (64, 8)
"""Rows of one insert, largest first; the rest goes one by one. 64 rows need fewer than SQLite's 999 parameters."""
KEYS_PER_QUERY = 500
"""Keys in one query that a caller builds itself."""
MAX_ANCHORS = 256
"""Anchors that one query tells; of popular keys, such as those of a benchmark's first prompt, there are more."""
KEY_BATCH_SIZES = (1, 8, 64)
"""Keys of one statement: the smallest size that takes all, or the largest repeatedly. Spare places repeat a key."""


def chunks(items: Iterable[Any]) -> Iterator[list[Any]]:
    left = iter(items)
    while some := list(islice(left, KEYS_PER_QUERY)):
        yield some


Driver = sqlite3.Connection | Connection


def driver_of(connection: Connection) -> Driver:
    """SQLite's own connection in the open transaction of `connection`; for another database, `connection`."""
    driver = connection.connection.driver_connection
    return driver if isinstance(driver, sqlite3.Connection) else connection


class PreparedStatement:
    """A statement in the driver's form, and its parameters in the driver's order. `binary_arrays`: arrays go as bytes;
    as text, which psycopg sends otherwise, 100 KB take it 1.6 ms (measured), and the server as long to read."""

    def __init__(
        self,
        statement: UpdateBase | Select[Any],
        dialect: Dialect,
        columns: Iterable[str] = (),
        *,
        binary_arrays: bool = False,
    ) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=list(columns) or None)
        self._sql = str(compiled).replace(")s::", ")b::") if binary_arrays else str(compiled)
        self._parameters_of: Callable[[rows.RowValues], Any] = (
            itemgetter(*compiled.positiontup) if compiled.positiontup else dict
        )

    def run(self, driver: Driver, values: Iterable[rows.RowValues]) -> None:
        """Run once for each of `values`, which name every parameter."""
        if given := list(map(self._parameters_of, values)):
            _execute_many(driver, self._sql, given)

    def fetch(self, driver: Driver, values: rows.RowValues) -> Iterable[Sequence[Any]]:
        if isinstance(driver, sqlite3.Connection):
            return driver.execute(self._sql, self._parameters_of(values)).fetchall()
        return driver.exec_driver_sql(self._sql, self._parameters_of(values)).all()


class QueryBatch:
    """Queries of a fixed form, whose rows are read together. A server is asked for all of them in one round trip."""

    def __init__(self, *statements: Select[Any]) -> None:
        self._statements = statements
        self._compiled: list[str] = []

    def fetch(self, connection: Connection, values: Mapping[str, object]) -> list[Sequence[Any]]:
        """The rows of each query, with their columns as attributes. `values` name every parameter."""
        if connection.dialect.name == "sqlite":
            return [connection.execute(statement, values).all() for statement in self._statements]
        if not self._compiled:
            self._compiled = [str(statement.compile(dialect=connection.dialect)) for statement in self._statements]
        return fetch_pipelined(connection, [(sql, values) for sql in self._compiled])


class ArrayInsert:
    """Inserts many rows in one step, in order: each column is an array (PostgreSQL). Few rows, and those of which a key
    is repeated, go one by one: an upsert takes no key twice."""

    def __init__(self, insert: SqliteInsert | PostgresInsert, table: Table, dialect: Dialect) -> None:
        self._names = table.columns.keys()
        self._floats = [column.name for column in table.columns if isinstance(column.type, Double)]
        self._one_by_one = PreparedStatement(insert, dialect, self._names)
        arrays = [bindparam(column.name, type_=ARRAY(_without_collation(column))) for column in table.columns]
        given = func.unnest(*arrays).table_valued(*self._names, name="given").render_derived()
        self._at_once = PreparedStatement(
            insert.from_select(self._names, select(*given.columns)), dialect, binary_arrays=True
        )
        self._key_of = itemgetter(*table.primary_key.columns.keys())

    def run(self, driver: Driver, values: Iterable[rows.RowValues]) -> None:
        """Insert `values`, which name every column."""
        given = list(values)
        if len(given) >= MIN_ARRAY_ROWS and len(set(map(self._key_of, given))) == len(given):
            arrays = {name: [row[name] for row in given] for name in self._names}
            for name in self._floats:  # the driver refuses an array with whole numbers among them
                arrays[name] = list(map(float, arrays[name]))
            self._at_once.run(driver, [arrays])
        else:
            self._one_by_one.run(driver, given)


def _without_collation(column: Column[Any]) -> TypeEngine[Any]:
    """The type of a parameter: a text has its collation where it is stored."""
    return Text() if isinstance(column.type, Text) else column.type


class BlockInsert:
    """Inserts many rows in one step, in order (SQLite)."""

    def __init__(self, insert: SqliteInsert | PostgresInsert, dialect: Dialect, columns: Iterable[str]) -> None:
        compiled = insert.compile(dialect=dialect, column_keys=list(columns))
        self._order = itemgetter(*compiled.positiontup or ())
        self._one_by_one = str(compiled)
        row = "(" + ", ".join("?" * len(compiled.positiontup or ())) + ")"
        # SQLAlchemy would write the rows out as well, and take 50 ms of every start for it.
        self._blocks = [(size, self._one_by_one.replace(row, ", ".join([row] * size), 1)) for size in BLOCK_SIZES]

    def run(self, driver: Driver, values: Iterable[rows.RowValues]) -> None:
        """Insert `values`, which name every column."""
        left = list(map(self._order, values))
        for size, sql in self._blocks if len(left) >= MIN_BLOCK_ROWS else ():
            whole = len(left) - len(left) % size
            if whole:
                _execute_many(
                    driver, sql, [tuple(chain.from_iterable(left[at : at + size])) for at in range(0, whole, size)]
                )
            left = left[whole:]
        if left:
            _execute_many(driver, self._one_by_one, left)


def _execute_many(driver: Driver, sql: str, given: list[Any]) -> None:
    if isinstance(driver, sqlite3.Connection):
        driver.executemany(sql, given)
    else:
        driver.exec_driver_sql(sql, given)


class KeyedStatement:
    """A query or deletion for many keys of one tenant at once. `given` holds the other parameters."""

    def __init__(
        self, statement: Select[Any] | Delete, table: Table, key: ColumnElement[Any], dialect: Dialect
    ) -> None:
        self._names = [f"key_{number}" for number in range(KEY_BATCH_SIZES[-1])]
        of_tenant = statement.where(table.c.tenant == bindparam("of_tenant"))
        self._prepared = {
            size: PreparedStatement(of_tenant.where(key.in_([bindparam(name) for name in self._names[:size]])), dialect)
            for size in KEY_BATCH_SIZES
        }

    def fetch(self, driver: Driver, tenant: str, keys: Iterable[Any], **given: str) -> Iterator[Sequence[Any]]:
        for prepared, values in self._batches(tenant, keys):
            yield from prepared.fetch(driver, values | given)

    def first_column(self, driver: Driver, tenant: str, keys: Iterable[Any], **given: str) -> Iterator[Any]:
        return (row[0] for row in self.fetch(driver, tenant, keys, **given))

    def run(self, driver: Driver, tenant: str, keys: Iterable[Any]) -> None:
        for prepared, values in self._batches(tenant, keys):
            prepared.run(driver, [values])

    def _batches(self, tenant: str, keys: Iterable[Any]) -> Iterator[tuple[PreparedStatement, rows.RowValues]]:
        left = iter(keys)
        while some := list(islice(left, KEY_BATCH_SIZES[-1])):
            size = next(size for size in KEY_BATCH_SIZES if size >= len(some))
            filled = zip_longest(self._names[:size], some, fillvalue=some[-1])
            yield self._prepared[size], {"of_tenant": tenant, **dict(filled)}


class Statements:
    """The insert of every table with its conflict rule, and the queries and deletions used in the same transaction."""

    def __init__(self, dialect: Dialect) -> None:
        insert = _insert_function_of(dialect)
        self.inserts = {
            table: _insert_of(table, statement, dialect) for table, statement in _inserts_by_table(insert).items()
        }
        self.draft_upsert = PreparedStatement(
            _upsert(schema.blobs, insert(schema.blobs)), dialect, schema.blobs.columns.keys()
        )
        self.newest_update = PreparedStatement(_update_of_times(schema.conversations), dialect)
        keyed = partial(KeyedStatement, dialect=dialect)
        conversations, settings, blobs = schema.conversations, schema.settings, schema.blobs
        reservations, anchors = schema.reservations, schema.anchors
        self.draft_deletions = [keyed(delete(table), table, table.c.digest) for table in (schema.holds, blobs)]
        self.existing_conversations = keyed(
            select(conversations.c.id, conversations.c.written), conversations, conversations.c.id
        )
        self.reservation_deletion = keyed(delete(reservations), reservations, reservations.c.id)
        self.existing_settings = keyed(select(settings.c.name), settings, settings.c.name)
        self.setting_deletion = keyed(delete(settings), settings, settings.c.name)
        self.anchors = keyed(_anchors_with_hint(anchors, conversations), anchors, anchors.c.key)
        self.existing_blobs = keyed(select(blobs.c.digest), blobs, blobs.c.digest)


def _inserts_by_table(
    insert: Callable[[Table], SqliteInsert | PostgresInsert],
) -> dict[Table, SqliteInsert | PostgresInsert]:
    """Where a row is there already: it stays, unless a rule is named here."""

    def upsert(table: Table, **rule: Any) -> SqliteInsert | PostgresInsert:
        return _upsert(table, insert(table), **rule)

    rules = {
        schema.conversations: upsert(schema.conversations, keep=("newest", "written")),
        schema.rounds: upsert(schema.rounds, where=schema.rounds.c.complete == ZERO),
        schema.messages: upsert(schema.messages, where=schema.messages.c.final == ZERO),
        schema.threads: upsert(schema.threads),
        schema.queued: upsert(schema.queued, keep=("place",)),
        schema.task_rows: upsert(schema.task_rows, unless_empty="criteria"),
        schema.sent: upsert(schema.sent),
        schema.settings: upsert(schema.settings),
        schema.usage_days: _adding(schema.usage_days, insert(schema.usage_days)),
        schema.requests: upsert(schema.requests, unless_empty="body"),
        schema.anchors: _upsert_if_newer(schema.anchors, insert(schema.anchors)),
    }
    tables = schema.metadata.tables.values()
    return {table: rules[table] if table in rules else insert(table).on_conflict_do_nothing() for table in tables}


def _upsert_if_newer(table: Table, insert: SqliteInsert | PostgresInsert) -> SqliteInsert | PostgresInsert:
    return insert.on_conflict_do_update(
        index_elements=list(table.primary_key.columns),
        set_={"created": insert.excluded.created},
        where=insert.excluded.created > table.c.created,
    )


def _update_of_times(table: Table) -> Update:
    """The times of a conversation, of which each only grows."""
    newest: ColumnElement[int] = bindparam("is_newest")
    written: ColumnElement[int] = bindparam("is_written")
    return (
        update(table)
        .where(table.c.tenant == bindparam("of_tenant"), table.c.id == bindparam("of_id"))
        .where(or_(table.c.newest < newest, table.c.written < written))
        .values(
            newest=case((table.c.newest < newest, newest), else_=table.c.newest),
            written=case((table.c.written < written, written), else_=table.c.written),
        )
    )


def _anchors_with_hint(anchors: Table, conversations: Table) -> Select[Any]:
    """Anchors of conversations that are there still, and one more than are wanted."""
    existing = and_(conversations.c.tenant == anchors.c.tenant, conversations.c.id == anchors.c.conversation)
    return (
        select(anchors.c.key, anchors.c.created, anchors.c.conversation)
        .join(conversations, existing)
        .where(anchors.c.hint == bindparam("of_hint"))
        .limit(literal_column(str(MAX_ANCHORS + 1)))
        .offset(ZERO)  # SQLite would add it as a parameter
    )


def _insert_of(table: Table, statement: SqliteInsert | PostgresInsert, dialect: Dialect) -> BlockInsert | ArrayInsert:
    if dialect.name == "sqlite":
        return BlockInsert(statement, dialect, table.columns.keys())
    return ArrayInsert(statement, table, dialect)


_statements_by_dialect: dict[str, Statements] = {}


def statements_for(dialect: Dialect) -> Statements:
    """Statements for a kind of database. Compiled once a process, which takes 25 ms."""
    if dialect.name not in _statements_by_dialect:
        _statements_by_dialect[dialect.name] = Statements(dialect)
    return _statements_by_dialect[dialect.name]


def _insert_function_of(dialect: Dialect) -> Callable[[Table], SqliteInsert | PostgresInsert]:
    """The dialect's insert with `ON CONFLICT`. Imports only the one in use: PostgreSQL's takes 2 MB and 25 ms."""
    insert: Callable[[Table], SqliteInsert | PostgresInsert]
    insert = import_module(f"sqlalchemy.dialects.{dialect.name}").insert
    return insert


def _adding(table: Table, insert: SqliteInsert | PostgresInsert) -> SqliteInsert | PostgresInsert:
    """What the row brings is added to what is there."""
    keys = list(table.primary_key.columns)
    sums = {c.name: c + insert.excluded[c.name] for c in table.columns if c not in keys}
    return insert.on_conflict_do_update(index_elements=keys, set_=sums)


def _upsert(
    table: Table,
    insert: SqliteInsert | PostgresInsert,
    *,
    keep: tuple[str, ...] = (),
    unless_empty: str = "",
    where: ColumnElement[bool] | None = None,
) -> SqliteInsert | PostgresInsert:
    """The newer row wins, except in the columns `keep`, in the column `unless_empty` if its value is empty, and only
    over a row that fulfils `where`."""
    keys = list(table.primary_key.columns)
    changed: dict[str, Any] = {
        c.name: insert.excluded[c.name] for c in table.columns if c not in keys and c.name not in keep
    }
    if unless_empty:
        brought, there = insert.excluded[unless_empty], table.c[unless_empty]
        changed[unless_empty] = case((func.length(brought) == ZERO, there), else_=brought)
    return insert.on_conflict_do_update(index_elements=keys, set_=changed, where=where)


# ------------------------------------------------------------------------------------------------ several at once
@contextmanager
def pipelined(connection: Connection) -> Iterator[psycopg.Connection[Any]]:
    """Statements inside go to the server without waiting for each other. An error of any of them is raised at its end,
    as one of SQLAlchemy."""
    import psycopg  # an extra

    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)  # noqa: S101 - the URL's driver says so
    try:
        with driver.pipeline():
            yield driver
    except psycopg.Error as caught:  # SQLAlchemy has left the statement that it belongs to
        lost = driver.closed
        # In a pipeline the server's last words are not read. Nothing was committed, so it may be written again.
        said = psycopg.errors.AdminShutdown(str(caught)) if lost else caught
        if lost:  # else the end of the transaction tries to roll back, and its error hides this one
            connection.invalidate(caught)
        raise DBAPIError.instance(
            None, None, said, psycopg.Error, connection_invalidated=lost, dialect=connection.dialect
        ) from caught


def fetch_pipelined(connection: Connection, asked: Sequence[tuple[str, Mapping[str, object]]]) -> list[Sequence[Any]]:
    """The rows of each of these queries, with their columns as attributes. The SQL is in the driver's form."""
    from psycopg.rows import namedtuple_row  # an extra

    if not connection.in_transaction():
        connection.begin()  # else SQLAlchemy would not end the transaction that the driver begins
    with pipelined(connection) as driver:
        cursors = [driver.cursor(row_factory=namedtuple_row).execute(sql, values) for sql, values in asked]
    return [cursor.fetchall() for cursor in cursors]
