"""D2, D9, T10: a process that dies at a named point while it migrates a store, forgets, imports or copies.

Afterwards the store is as before or as it was to become, never between; the next start, or the same command given
again, ends what was begun.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from llm_test_provider import ScriptedProvider, says
from proxy.store import schema
from proxy.store.database import SqliteFile
from proxy.store.sql import SqlStore
from tests.crash.killable import DyingProxy
from tests.crash.killed_at import DyingCommands, KillPoint
from tests.crash.test_points import COMMIT, has_settled, told_of
from tests.harness import Conversation, Stage
from tests.management.api.small_ledger import written
from tests.properties import disk
from tests.store.conftest import build_old_store

pytestmark = pytest.mark.crash

OLDER = "0005"
"""The schema that is migrated from; the three behind it add columns, an index and tables."""
SQLITE = "proxy.store.database.sqlite"
MANY = 22
"""More conversations than are deleted in one transaction."""


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as running:
        running.when(lambda _: True, says("Done, as you said."), loop=True)
        yield running


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[DyingCommands]:
    running = DyingCommands(tmp_path / "armed", tmp_path / "commands.log")
    yield running
    running.close()


def ran(commands: DyingCommands, *words: str, dies_at: KillPoint | None = None) -> int:
    """The exit code of a command that is armed from its start."""
    commands.begin(dies_at, *words, armed=True)
    return commands.end()


def files_with(folder: Path, words: str) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and words.encode() in path.read_bytes())


# ------------------------------------------------------------------------------------------------------------ migration
MIGRATION = {
    "the old store is not copied": KillPoint("before", f"{SQLITE}:SqliteFile._back_up"),
    "its copy has begun": KillPoint("after", f"{SQLITE}:_create_file"),
    "it is copied": KillPoint("after", f"{SQLITE}:SqliteFile._back_up"),
    "the first table has its columns": KillPoint("after", "proxy.store.database.migrate:_add_columns"),
    "most tables have their columns": KillPoint("after", "proxy.store.database.migrate:_add_columns", 11),
    "all steps are done": KillPoint("after", "proxy.store.database.migrate:upgrade"),
    "it is about to be committed": KillPoint("before", COMMIT),
    "it is committed": KillPoint("after", COMMIT),
}


def tables(database: Path) -> dict[str, list[str]]:
    """Tables, views and indexes with the names of their columns."""
    with closing(sqlite3.connect(database)) as reading:
        assert reading.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        names = [name for (name,) in reading.execute("SELECT name FROM sqlite_master ORDER BY name")]
        return {name: [row[1] for row in reading.execute(f"PRAGMA table_info({name})")] for name in names}


def version(database: Path) -> str:
    with closing(sqlite3.connect(database)) as reading:
        return str(reading.execute("SELECT version_num FROM alembic_version").fetchone()[0])


def as_older(new: Path, old: Path) -> None:
    """The rows of `new` in a store of the older schema."""
    build_old_store(old, OLDER)
    with closing(sqlite3.connect(old)) as writing:
        writing.execute("ATTACH ? AS new", (str(new),))
        for (table,) in writing.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'").fetchall():
            if table in schema.metadata.tables and table != schema.task_rows.name:
                columns = ", ".join(row[1] for row in writing.execute(f"PRAGMA main.table_info({table})"))
                writing.execute(f"DELETE FROM main.{table}")
                writing.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM new.{table}")
        writing.commit()


@pytest.mark.rows("S1-07")
def test_a_store_is_of_one_version_wherever_its_migration_died(stage: Stage) -> None:
    """The next start ends it: all that was acknowledged is there, beside the copy of the old store."""
    proxy = DyingProxy(stage, wake_at_tokens=0).start()
    chat = Conversation(proxy, streamed=False)
    chat.says("Build a parser.")
    has_settled(proxy, chat.last)
    proxy.kill()
    acknowledged = disk.texts(proxy.data)
    older = stage.folder / "older.db"
    as_older(proxy.database, older)
    before, after = tables(older), tables(proxy.database)

    for name, point in MIGRATION.items():
        with told_of(name):
            shutil.rmtree(proxy.data)
            proxy.data.mkdir(mode=0o700)
            shutil.copy(older, proxy.database)
            proxy.dies_while_it_starts(point)
            is_committed = version(proxy.database) == schema.VERSIONS[-1]
            assert tables(proxy.database) == (after if is_committed else before)
            assert is_committed is (name == "it is committed")
            proxy.start()
            chat.says("Go on.")
            has_settled(proxy, chat.last)
            proxy.kill()

            assert tables(proxy.database) == after
            (copy,) = proxy.data.glob("callstack.db.before-*")
            assert (version(copy), tables(copy)) == (OLDER, before)
            ((conversation, kept),) = disk.texts(proxy.data).items()
            assert kept >= acknowledged[conversation]
            del chat.history[2:]


# ----------------------------------------------------------------------------------------------------------- forgetting
BY_NAME = {
    "nothing of the deletion is committed": KillPoint("before", COMMIT),
    "its rows are gone, and the copies that were set aside are not": KillPoint(
        "before", f"{SQLITE}:SqliteFile.forget_set_aside"
    ),
    "the file is not compacted": KillPoint("before", f"{SQLITE}:SqliteFile.compact"),
    "the file is compacted, and the log not cut": KillPoint("before", f"{SQLITE}:SqliteFile.truncate_log"),
    "the log is cut, and the deletion not noted as finished": KillPoint(
        "before", "proxy.store.delete:note_as_finished"
    ),
    "the note in the log names it": KillPoint("after", "proxy.store.delete:note_as_finished"),
}
BY_AGE = {
    "one batch of several is deleted": KillPoint("after", "proxy.store.sql:SqlStore._delete_batch"),
    "all are deleted, and the file is not compacted": KillPoint("before", f"{SQLITE}:SqliteFile.compact"),
    "the file is compacted, and the log not cut": KillPoint("before", f"{SQLITE}:SqliteFile.truncate_log"),
}


def has_copies(proxy: DyingProxy) -> None:
    """A copy from before a migration, and a damaged file that was set aside long ago: both hold all of the store."""
    with closing(sqlite3.connect(proxy.database)) as reading:
        for suffix in ("before-0007", "corrupt-20260101T000000000000Z"):
            copy = f"{proxy.database}.{suffix}"
            reading.execute("VACUUM INTO ?", (copy,))
            os.utime(copy, (1, 1))


def is_asked_to_forget(proxy: DyingProxy, path: str) -> None:
    proxy.arm()
    with pytest.raises((OSError, http.client.HTTPException)):
        proxy.asked("DELETE", path)
    proxy.has_died()


def test_a_conversation_that_is_forgotten_is_nowhere_after_the_next_start(stage: Stage) -> None:
    proxy = DyingProxy(stage, wake_at_tokens=0).start(next(iter(BY_NAME.values())))
    stays = Conversation(proxy, streamed=False)
    stays.says("This one stays.")
    for number, (name, dies_next_at) in enumerate(zip(BY_NAME, [*list(BY_NAME.values())[1:], None], strict=True)):
        with told_of(name):
            secret = f"SESAME-{number}"
            chat = Conversation(proxy, streamed=False)
            chat.says(f"The password is {secret}.")
            has_settled(proxy, chat.last)
            assert chat.last is not None
            at = chat.last.headers["x-stack-conversation"]
            has_copies(proxy)
            is_asked_to_forget(proxy, f"/stack/conversations/{at}")
            assert files_with(proxy.data, at)
            proxy.start(dies_next_at)
            if name == "nothing of the deletion is committed":
                proxy.manage("DELETE", f"/stack/conversations/{at}")

            assert proxy.asked("GET", f"/stack/conversations/{at}")[0] == 404
            assert (files_with(proxy.data, secret), files_with(proxy.data, at)) == ([], [])
            assert stays.says(f"Still here, {number}.").stack_status == "full"
    assert len(proxy.conversations) == 1


def test_what_is_forgotten_by_age_is_nowhere_after_the_next_start(stage: Stage) -> None:
    proxy = DyingProxy(stage, wake_at_tokens=0).start(next(iter(BY_AGE.values())))
    stays = Conversation(proxy, streamed=False)
    stays.says("This one stays.")
    for number, (name, dies_next_at) in enumerate(zip(BY_AGE, [*list(BY_AGE.values())[1:], None], strict=True)):
        with told_of(name):
            secret = f"SESAME-{number}"
            for one in range(MANY):
                chat = Conversation(proxy, streamed=False)
                chat.says(f"Password {one} is {secret}.")
            time.sleep(0.002)
            until = time.time_ns() // 1_000_000
            stays.says(f"Still here, {number}.")
            has_settled(proxy, stays.last)
            has_copies(proxy)
            is_asked_to_forget(proxy, f"/stack/conversations?before={until}")
            assert files_with(proxy.data, secret)
            proxy.start(dies_next_at)

            assert [row["title"] for row in proxy.conversations] == ["This one stays."]
            assert files_with(proxy.data, secret) == []


# --------------------------------------------------------------------------------------------------- import and copying
WRITING = {
    "half of the transaction is written": KillPoint("after", "proxy.store.statements:BlockInsert.run", 3),
    "it is not committed": KillPoint("before", COMMIT),
    "it is committed": KillPoint("after", COMMIT),
}
COPYING = {
    "some tables are copied": KillPoint("after", "callstack_proxy.management.copy_store:_copy_table", 3),
    "it is not committed": KillPoint("before", COMMIT, 2),
    "it is committed": KillPoint("after", COMMIT, 2),
}
"""The first commit makes the tables of the new store."""


@pytest.fixture
def filled(stage: Stage) -> Path:
    """A data directory with a conversation, after its proxy."""
    proxy = DyingProxy(stage, wake_at_tokens=0).start()
    chat = Conversation(proxy, streamed=False)
    chat.says("Build a parser.")
    chat.says("And a lexer.")
    has_settled(proxy, chat.last)
    proxy.kill()
    return proxy.data


async def holds_another(data: Path) -> str:
    """Makes a store; the conversation in it."""
    store = SqlStore(SqliteFile(data / "callstack.db"))
    await store.start()
    made = await written(store, "local", "b")
    await store.close()
    return made.conversation


def test_an_import_is_whole_or_not_there_wherever_it_died(
    filled: Path, commands: DyingCommands, tmp_path: Path
) -> None:
    """The same command then ends it; where it was whole, it says so."""
    file = tmp_path / "exported.jsonl"
    assert ran(commands, "export", "--format", "ledger", "--out", str(file), "--data", str(filled)) == 0
    original = disk.texts(filled)

    for number, (name, point) in enumerate(WRITING.items()):
        with told_of(name):
            data = tmp_path / f"import{number}"
            other = asyncio.run(holds_another(data))
            words = ("import", str(file), "--data", str(data))
            assert ran(commands, *words, dies_at=point) == -signal.SIGKILL
            is_committed = name == "it is committed"
            assert disk.texts(data).keys() == {other, *(original if is_committed else ())}

            assert (ran(commands, *words) == 0) is not is_committed
            assert {at: kept for at, kept in disk.texts(data).items() if at != other} == original


def test_a_copy_of_a_store_is_whole_or_empty_wherever_it_died(
    filled: Path, commands: DyingCommands, tmp_path: Path
) -> None:
    """The same command then ends it, or refuses to write to what is whole already; the old store stays as it is."""
    original = disk.texts(filled)
    for number, (name, point) in enumerate(COPYING.items()):
        with told_of(name):
            target = f"sqlite:{tmp_path / f'copy{number}.db'}"
            words = ("migrate", "--to", target, "--data", str(filled))
            assert ran(commands, *words, dies_at=point) == -signal.SIGKILL
            is_committed = name == "it is committed"
            assert disk.texts(filled, target) == (original if is_committed else {})

            assert (ran(commands, *words) == 0) is not is_committed
            assert disk.texts(filled, target) == disk.texts(filled) == original
