"""Creates the schema of a store, or gives an older store what it lacks, in one transaction. A store of a newer version
or another program raises StoreError and stays unchanged.

A version only adds tables, columns with a default, and indexes: in a rollout earlier versions go on writing to the same
store. So what an older store lacks is seen by comparing it with `schema`.
"""

from __future__ import annotations

import secrets

from sqlalchemy import Connection, Table, bindparam, delete, inspect, select, text
from sqlalchemy.schema import CreateColumn

from proxy.errors import StoreError
from proxy.store import schema, tasks_view

SECRET_NAME = "secret"  # noqa: S105 - the name of the row, not what is in it


def schema_version_of(connection: Connection) -> str:
    """The schema version of a store, empty for an empty one. Raises StoreError if this program must not touch it."""
    tables = set(inspect(connection).get_table_names())
    if not tables:
        return ""
    if schema.VERSION_TABLE not in tables or schema.meta.name not in tables:
        raise StoreError("the database holds something else than our store; name another file in `store`")
    found = connection.execute(text(f"SELECT version_num FROM {schema.VERSION_TABLE}")).scalar()  # noqa: S608 - a constant
    if found not in schema.VERSIONS:
        raise StoreError(
            f"the store has schema {found}, and this program knows {schema.VERSIONS[-1]} as the newest: it was written "
            "by a newer callstack; upgrade callstack, or name another `data` directory"
        )
    return str(found)


def is_current(version: str) -> bool:
    return version == schema.VERSIONS[-1]


def create_schema(connection: Connection, secret: bytes) -> None:
    """Create the newest version in the caller's transaction. The caller has checked that the store is empty."""
    schema.metadata.create_all(connection)
    connection.execute(text(f"CREATE TABLE {schema.VERSION_TABLE} (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"))
    stamped = text(f"INSERT INTO {schema.VERSION_TABLE} (version_num) VALUES (:version)")  # noqa: S608 - a constant
    connection.execute(stamped.bindparams(bindparam("version", schema.VERSIONS[-1])))
    connection.execute(
        schema.meta.insert().values(tenant="", name=SECRET_NAME, value=secret or secrets.token_bytes(32))
    )


def upgrade(connection: Connection) -> None:
    """Add the tables, columns and indexes that an older store lacks, in the caller's transaction."""
    there = inspect(connection)
    tables = set(there.get_table_names())
    for table in schema.metadata.sorted_tables:
        if table.name not in tables:
            table.create(connection)
        else:
            _add_columns(connection, table, {column["name"] for column in there.get_columns(table.name)})
    if "tasks" not in there.get_view_names():
        connection.execute(text(schema.TASKS_VIEW_SQL))
    rows = schema.task_rows
    if connection.execute(select(rows.c.id).limit(1)).first() is None:
        for row in tasks_view.all_task_rows(connection):
            connection.execute(rows.insert().values(row))
    stamped = text(f"UPDATE {schema.VERSION_TABLE} SET version_num = :version")  # noqa: S608 - a constant
    connection.execute(stamped.bindparams(bindparam("version", schema.VERSIONS[-1])))


def _add_columns(connection: Connection, table: Table, there: set[str]) -> None:
    added = [column for column in table.columns if column.name not in there]
    for column in added:
        column_sql = CreateColumn(column).compile(dialect=connection.dialect)
        connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {column_sql}"))
    for index in table.indexes:
        index.create(connection, checkfirst=True)
    if added and table is schema.task_rows:
        connection.execute(delete(table))  # derived: `upgrade` makes them anew, with the new columns


def secret_of(connection: Connection) -> bytes:
    found = select(schema.meta.c.value).where(schema.meta.c.tenant == "", schema.meta.c.name == SECRET_NAME)
    return bytes(connection.execute(found).scalar_one())
