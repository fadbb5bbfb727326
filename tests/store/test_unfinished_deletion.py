"""T10: a deletion whose process was killed is finished by the next start, and copies that were set aside go too."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from proxy.store.database.sqlite import SqliteFile
from proxy.store.delete import Deletion, note_as_finished
from proxy.store.sql import SqlStore
from tests.management.api.small_ledger import written


def bytes_with(folder: Path, word: str) -> list[str]:
    return sorted(path.name for path in folder.glob("callstack.db*") if word.encode() in path.read_bytes())


async def filled(folder: Path) -> tuple[SqlStore, str, str]:
    """A store with two conversations: one to forget, one to keep."""
    store = SqlStore(SqliteFile(folder / "callstack.db"))
    await store.start()
    forgotten, kept = await written(store, "local", "a"), await written(store, "local", "b")
    return store, forgotten.conversation, kept.conversation


@pytest.mark.parametrize("sets_aside", [True, False], ids=["serve", "a command that looks"])
def test_a_deletion_whose_copies_were_left_is_finished_by_the_next_start_of_the_proxy(
    tmp_path: Path, sets_aside: bool
) -> None:
    async def scenario() -> None:
        store, forgotten, kept = await filled(tmp_path)
        await store._run_in_writer(partial(store._delete_batch, "local", forgotten, 0))
        await store.close()  # as after `kill -9`: the rows are gone, the file is as it was
        assert bytes_with(tmp_path, forgotten)

        again = SqlStore(SqliteFile(tmp_path / "callstack.db", sets_aside=sets_aside))
        await again.start()
        left = [name for name in bytes_with(tmp_path, forgotten) if name != "callstack.db-shm"]
        assert bool(left) is not sets_aside
        assert await again.load("local", kept) is not None
        await again.close()

    asyncio.run(scenario())


def test_the_name_of_what_was_forgotten_goes_with_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the end of a deletion and the cut of the log, which overwrites the note that named it."""
    killed = tmp_path / "killed"
    killed.mkdir()

    async def scenario() -> None:
        store, forgotten, kept = await filled(tmp_path)
        monkeypatch.setattr(store, "_note_as_finished", lambda asked: left_behind(store, asked))
        await store.delete_conversations("local", forgotten)
        await store.close()
        assert bytes_with(killed, forgotten)

        again = SqlStore(SqliteFile(killed / "callstack.db"))
        await again.start()
        assert bytes_with(killed, forgotten) == []
        assert await again.load("local", kept) is not None
        await again.close()

    def left_behind(store: SqlStore, asked: Deletion) -> None:
        """The files as `kill -9` leaves them."""
        note_as_finished(store._database.write_connection, asked)
        for file in tmp_path.glob("callstack.db*"):
            shutil.copy(file, killed)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("forget", "goes"),
    [(lambda name: (name, 0), True), (lambda _: ("another", 0), False), (lambda _: ("", 10**15), True)],
    ids=["its conversation", "another one", "by age"],
)
def test_a_file_that_was_set_aside_goes_with_what_it_holds(
    tmp_path: Path, forget: Callable[[str], tuple[str, int]], goes: bool
) -> None:
    async def scenario() -> None:
        store, forgotten, _ = await filled(tmp_path)
        await store._run_in_writer(store._database.set_aside)
        conversation, before = forget(forgotten)
        deleted = await store.delete_conversations("local", conversation, before)

        assert bool(deleted.bytes) is goes
        await store.close()

    asyncio.run(scenario())
    assert bool(list(tmp_path.glob("*.corrupt-*"))) is not goes
