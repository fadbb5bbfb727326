"""Several statements to a PostgreSQL server in one round trip, by the pipeline of its driver. SQLAlchemy would wait for
the rows of each. Raises the errors of SQLAlchemy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

if TYPE_CHECKING:
    import psycopg


@contextmanager
def pipelined(connection: Connection) -> Iterator[psycopg.Connection[Any]]:
    """Statements inside go to the server without waiting for each other. An error of any of them is raised at its
    end."""
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
