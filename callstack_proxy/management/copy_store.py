"""Copies all rows of one database to another, as they are, in one transaction."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, Table, delete, func, select

from proxy.errors import BadRequest, ProxyError, StoreError
from proxy.store import schema
from proxy.store.database import Database
from proxy.store.database_errors import as_store_error
from proxy.store.sql import database_at

ROWS_PER_INSERT = 500


class CopyResult(NamedTuple):
    """What was copied, and from where to where, without credentials."""

    source: str
    target: str
    conversations: int
    requests: int
    rows: int


def copy_store(source: str, target: str, data: Path) -> CopyResult:
    """Copy all that is in one store to another one, which must be empty. Both are URLs, as in `open_store`. Raises
    BadRequest, InvalidConfiguration, StoreError; the target is then as it was."""
    return copy_database(database_at(source, data, sets_aside=False), database_at(target, data, sets_aside=False))


def copy_database(source: Database, target: Database) -> CopyResult:
    """Copy every row, with the secret. Raises BadRequest where the target holds conversations or requests, StoreError
    where rows are missing afterwards or a database fails; then the target is as it was."""
    try:
        counts = _copy_all(source, target)
    except BadRequest:
        raise  # what the target holds is somebody else's, also in a file that was begun here
    except BaseException as caught:
        target.remove_if_begun()
        if isinstance(caught, ProxyError) or not isinstance(caught, Exception):
            raise
        error = as_store_error(caught)
        advice = f"nothing was copied to {target.location}; mend that, or name another place"
        raise StoreError(f"{error}; {advice}", code=error.code) from caught
    finally:
        source.close()
        target.close()
    return CopyResult(
        source.location,
        target.location,
        counts[schema.conversations],
        counts[schema.requests],
        sum(counts.values()),
    )


def _copy_all(source: Database, target: Database) -> dict[Table, int]:
    writing = target.write_connection
    _ = source.write_connection  # opens it, and brings an older one to the present schema
    with source.read_engine.connect() as reading, writing.begin():
        target.begin_write(writing, ())
        for table in (schema.conversations, schema.requests):
            if _count(writing, table):
                raise BadRequest(f"{target.location} holds {table.name} already; name an empty store")
        writing.execute(delete(schema.meta))
        counts = {table: _copy_table(reading, writing, table) for table in schema.metadata.sorted_tables}
        short = [table.name for table, count in counts.items() if _count(writing, table) != count]
        if short:
            raise StoreError(f"not all rows of {', '.join(short)} arrived; nothing was copied")
    return counts


def _copy_table(reading: Connection, writing: Connection, table: Table) -> int:
    """The number of rows."""
    copied = 0
    rows = reading.execution_options(yield_per=ROWS_PER_INSERT).execute(select(table))
    for some in rows.mappings().partitions(ROWS_PER_INSERT):
        writing.execute(table.insert(), [dict(row) for row in some])
        copied += len(some)
    return copied


def _count(connection: Connection, table: Table) -> int:
    return int(connection.execute(select(func.count()).select_from(table)).scalar_one())
