"""Stores of other versions: older ones are migrated or left as they were, newer ones refused (S1-07, D9)."""

# ruff: noqa: ASYNC240 - a test may wait for its own disk

from __future__ import annotations

import re
from pathlib import Path
from typing import NoReturn

import pytest
from sqlalchemy import Column, Engine, MetaData, Table, Text, create_engine, event, inspect, text

from proxy import store
from proxy.errors import StoreError
from proxy.store import schema
from proxy.store.database import SqliteFile
from proxy.store.database import migrate as migrating
from tests.store.conftest import Making, build_old_store, rows
from tests.store.values import entry, opened

NEWEST = schema.VERSIONS[-1]


@pytest.fixture
def next_version(monkeypatch: pytest.MonkeyPatch) -> Table:
    """The program as it is after one more version, which adds a column and two tables; the last of these."""
    newer = MetaData()
    for table in schema.metadata.sorted_tables:
        table.to_metadata(newer)
    newer.tables["threads"].append_column(Column("note", Text))
    Table("first_half", newer, Column("tenant", Text, primary_key=True))
    last = Table("second_half", newer, Column("tenant", Text, primary_key=True))
    # Both are facts of the program that runs, set nowhere else: a program with one more version is not to be had.
    monkeypatch.setattr(schema, "VERSIONS", (*schema.VERSIONS, "9999"))
    monkeypatch.setattr(schema, "metadata", newer)
    return last


def described(engine: Engine) -> dict[str, object]:
    """Tables with their columns, keys and indexes."""
    seen = inspect(engine)
    return {
        table: (
            [(c["name"], str(c["type"]), c["nullable"]) for c in seen.get_columns(table)],
            seen.get_pk_constraint(table)["constrained_columns"],
            sorted((i["name"] or "", i["column_names"]) for i in seen.get_indexes(table)),
        )
        for table in seen.get_table_names()
    }


@pytest.mark.parametrize("version", schema.VERSIONS)
def test_a_store_of_any_version_becomes_as_a_new_store_is(tmp_path: Path, version: str) -> None:
    """All columns, keys, indexes and views; what `old_schemas` holds of the newest version is what the schema says."""
    made, older = (create_engine(f"sqlite:///{tmp_path}/{name}.db") for name in ("made", "older"))
    with made.begin() as connection:
        migrating.create_schema(connection, b"")
    build_old_store(tmp_path / "older.db", version)
    assert (described(older) == described(made)) is (version == schema.VERSIONS[-1])
    with older.begin() as connection:
        migrating.upgrade(connection)
        stamped = migrating.schema_version_of(connection)

    assert described(older) == described(made)
    assert inspect(older).get_view_names() == inspect(made).get_view_names() == ["tasks"]
    assert stamped == schema.VERSIONS[-1]
    made.dispose()
    older.dispose()


@pytest.mark.parametrize("version", schema.VERSIONS[:-1])
async def test_a_store_of_any_version_is_written_on(making: Making, path: Path, version: str) -> None:
    path.parent.mkdir(mode=0o700)
    build_old_store(path, version)

    store = await making()
    store.write("a", opened("c1", entry("m1")))

    assert await store.load("a", "c1") is not None
    assert any(f"migrated from schema {version}" in note for note in store.health().notes)


@pytest.mark.rows("S1-07")
async def test_a_store_of_a_newer_program_is_refused_and_left_as_it_is(making: Making, path: Path) -> None:
    await (await making()).close()
    upgraded = create_engine(f"sqlite:///{path}")
    with upgraded.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0999'"))
    upgraded.dispose()
    before = path.read_bytes()

    with pytest.raises(StoreError, match=r"schema 0999.*newer callstack"):
        await making()

    assert path.read_bytes() == before


@pytest.mark.rows("S1-07")
async def test_an_older_store_is_migrated_with_its_data_and_a_copy_is_kept(
    making: Making, path: Path, request: pytest.FixtureRequest
) -> None:
    """S1-07."""
    old = await making()
    old.write("a", opened("c1", entry("m1")))
    await old.close()
    request.getfixturevalue("next_version")

    new = await making()

    assert await new.load("a", "c1") is not None
    assert rows(path, "SELECT version_num FROM alembic_version") == [("9999",)]
    assert any(f"migrated from schema {NEWEST}" in note for note in new.health().notes)
    copy = path.with_name(f"callstack.db.before-{NEWEST}")
    assert copy.stat().st_mode & 0o777 == 0o600
    assert rows(copy, "SELECT version_num FROM alembic_version") == [(NEWEST,)]
    assert rows(copy, "SELECT id FROM conversations") == [("c1",)]
    await new.delete_conversations("a", "c1")
    assert not copy.exists()


async def test_a_migration_that_breaks_off_leaves_the_old_version_whole(
    making: Making, path: Path, request: pytest.FixtureRequest
) -> None:
    """D9: killed between two steps, nothing of the first is left."""
    old = await making()
    old.write("a", opened("c1", entry("m1")))
    await old.close()
    last: Table = request.getfixturevalue("next_version")

    def breaks_off(*_: object, **__: object) -> NoReturn:
        raise RuntimeError("killed here")

    event.listen(last, "before_create", breaks_off)
    with pytest.raises(StoreError):
        await making()

    assert rows(path, "SELECT version_num FROM alembic_version") == [(NEWEST,)]
    assert rows(path, "SELECT name FROM sqlite_master WHERE name LIKE '%_half'") == []
    assert rows(path, "SELECT count(*) FROM pragma_table_info('threads') WHERE name = 'note'") == [(0,)]
    event.remove(last, "before_create", breaks_off)
    assert await (await making()).load("a", "c1") is not None


def test_every_transaction_that_writes_is_immediate() -> None:
    """D6: said where the engines are made, and nowhere else is a transaction begun."""
    folder = Path(store.__file__).parent
    begun = {path.name: sorted(re.findall(r'sql\("(BEGIN[^"]*)', path.read_text())) for path in folder.rglob("*.py")}

    assert {name: words for name, words in begun.items() if words} == {"sqlite.py": ["BEGIN", "BEGIN IMMEDIATE"]}


async def test_the_connection_that_writes_begins_immediate_and_those_that_read_cannot_write(making: Making) -> None:
    """D6."""
    store = await making()
    database = store._database
    assert isinstance(database, SqliteFile)
    said: list[str] = []

    def listen(_c: object, _cursor: object, statement: str, *_: object) -> None:
        said.append(statement)

    event.listen(database.read_engine, "before_cursor_execute", listen)
    assert database._engine is not None
    event.listen(database._engine, "before_cursor_execute", listen)
    await store.wait_until_durable(store.write("a", opened("c1")))
    assert said[0] == "BEGIN IMMEDIATE"
    said.clear()
    await store.load("a", "c1")
    assert said[0] == "BEGIN"
    with database.read_engine.connect() as connection, pytest.raises(Exception, match="readonly"):
        connection.execute(text("DELETE FROM conversations"))
