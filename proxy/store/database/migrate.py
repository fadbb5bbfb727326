"""Creates the schema of a store, or migrates it in one transaction after copying an existing store. A store of a newer
version or another program raises StoreError and stays unchanged."""

from __future__ import annotations

import secrets
from pathlib import Path

from sqlalchemy import Connection, bindparam, inspect, select, text

from proxy.errors import StoreError
from proxy.store import schema, tasks_view

MIGRATIONS_FOLDER = Path(__file__).parents[1] / "migrations"
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
    """Run the missing migrations in the caller's transaction."""
    # Imported here: it costs a quarter of a second, and is needed once in the life of a version.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS_FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    table = schema.task_rows
    if connection.execute(select(table.c.id).limit(1)).first() is None:  # they are derived, and were not kept before
        for row in tasks_view.all_task_rows(connection):
            connection.execute(table.insert().values(row))


def secret_of(connection: Connection) -> bytes:
    found = select(schema.meta.c.value).where(schema.meta.c.tenant == "", schema.meta.c.name == SECRET_NAME)
    return bytes(connection.execute(found).scalar_one())
