"""What happens when the disk, another process or a value is in the way: told by a word, never by hanging, and over
soon after the reason is."""

# ruff: noqa: ASYNC240 - a test may wait for its own disk

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError

from callstack_proxy.management.copy_store import copy_database, copy_store
from proxy.core.ledger.ledger import LedgerEvent, Round
from proxy.core.ledger.messages import ModelResponse
from proxy.errors import BadRequest, StoreError
from proxy.store.database import SqliteFile
from proxy.store.database_errors import as_store_error
from proxy.store.interface import LedgerRecord, Record, RequestRecord
from proxy.store.sql import SqlStore
from proxy.store.writer import QueueLimits
from tests.store.conftest import Making, locked, rows
from tests.store.values import entry, opened, said

SOON_S = 5.0
OPEN_FILES = Path("/proc/self/fd")
SWEPT = 25
"""Places at which the disk is full."""


async def told(awaiting: Awaitable[object]) -> str:
    """The code of the StoreError, or empty."""
    try:
        await awaiting
    except StoreError as error:
        return error.code
    return ""


async def writing(store: SqlStore, name: str, text: str = "") -> str:
    """The code that writing a conversation fails with, at once or when waited for."""
    try:
        ticket = store.write("a", opened(name, entry("m1", text=text)))
    except StoreError as error:
        return error.code
    return await told(store.wait_until_durable(ticket))


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    until = time.monotonic() + SOON_S
    while not await holds():
        assert time.monotonic() < until, "it did not come to that"
        await asyncio.sleep(0.01)


async def recovered(store: SqlStore, name: str = "afterwards") -> None:
    async def writes() -> bool:
        return await writing(store, name) == ""

    await eventually(writes)
    assert await store.load("a", name) is not None
    assert store.health().ok


async def until_the_circuit_opens(store: SqlStore, text: str = "") -> str:
    """Writes one conversation after the other until one is refused without being tried; the code."""
    until = time.monotonic() + SOON_S
    for number in count():
        assert time.monotonic() < until, "the circuit stayed closed"
        try:
            ticket = store.write("a", opened(f"any {number}", entry("m1", text=text)))
        except StoreError as error:
            return error.code
        await told(store.wait_until_durable(ticket))
        await asyncio.sleep(0.01)
    raise AssertionError("unreachable: counting has no end")


# -------------------------------------------------------------------------------------------------------------- locked
async def test_given_a_lock_when_waited_for_then_it_is_told_soon_and_the_next_one_at_once(
    store: SqlStore, path: Path
) -> None:
    """D5: at most 300 ms once, then under 5 ms (here with room for a busy machine)."""
    with locked(path):
        began = time.perf_counter()
        assert await writing(store, "c1") == "store_locked"
        first = time.perf_counter() - began
        began = time.perf_counter()
        assert await writing(store, "c2") == "store_locked"
        second = time.perf_counter() - began

    assert 0.2 < first < 0.6
    assert second < 0.05


async def test_given_a_short_lock_then_nothing_that_was_queued_is_lost(store: SqlStore, path: Path) -> None:
    with locked(path):
        first = store.write("a", opened("c1", entry("m1")))
        assert await told(store.wait_until_durable(first)) == "store_locked"
        store.write("a", [LedgerRecord("c1", entry("m2", "m1", seq=1))])

    async def written() -> bool:
        return await told(store.wait_until_durable(first)) == ""

    await eventually(written)
    ledger = await store.load("a", "c1")
    assert ledger is not None
    assert list(ledger.entries) == ["m1", "m2"]
    assert store.health().ok


async def test_given_a_long_lock_then_writing_is_refused_at_once_and_reading_goes_on(
    store: SqlStore, path: Path
) -> None:
    """D5: after five attempts the circuit opens."""
    await store.wait_until_durable(store.write("a", opened("before", entry("m1"))))
    with locked(path):
        assert await until_the_circuit_opens(store) == "store_locked"
        took: list[float] = []
        for _ in range(5):
            began = time.perf_counter()
            with pytest.raises(StoreError) as refused:
                store.write("a", opened("c1"))
            took.append(time.perf_counter() - began)
            assert refused.value.code == "store_locked"

        assert min(took) < 0.005
        assert await store.load("a", "before") is not None
        assert store.health().reason == "store_locked"
        assert not store.health().ok
        assert any("could not be written" in note for note in store.health().notes)
    await recovered(store)


async def test_however_much_is_lost_at_once_nobody_is_told_that_it_is_on_disk(
    store: SqlStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A patch: five and not 20,000, so that few records are more than are remembered.
    monkeypatch.setattr("proxy.store.writer.MAX_REMEMBERED_KEYS", 5)
    with locked(path):
        tickets = [store.write("a", opened(f"c{number}")) for number in range(50)]
        await until_the_circuit_opens(store)

        assert [await told(store.wait_until_durable(ticket)) for ticket in tickets] == ["store_locked"] * 50


async def test_given_an_open_circuit_when_the_reason_is_gone_then_it_closes_without_any_request(
    store: SqlStore, path: Path
) -> None:
    """D4: the writer tries by itself."""
    with locked(path):
        await until_the_circuit_opens(store)

    async def well() -> bool:
        return store.health().ok

    await eventually(well)


async def test_a_conversation_that_lost_a_record_takes_no_more_until_it_is_loaded_again(
    store: SqlStore, path: Path
) -> None:
    """L3: what would hang on a record that never reached the disk is refused, for as long as its writer does not
    know."""
    await store.wait_until_durable(store.write("a", opened("c1", entry("m1"))))
    with locked(path):
        store.write("a", [LedgerRecord("c1", entry("m2", "m1", seq=1))])
        await until_the_circuit_opens(store)
    await recovered(store)

    with pytest.raises(StoreError, match="loaded again"):
        store.write("a", [LedgerRecord("c1", entry("m3", "m2", seq=2))])
    ledger = await store.load("a", "c1")
    await store.wait_until_durable(store.write("a", [LedgerRecord("c1", entry("m2", "m1", seq=1))]))

    assert ledger is not None
    assert list(ledger.entries) == ["m1"]


LONG = "x" * 20_000
TOO_MUCH: dict[str, list[Record]] = {
    "many records": opened("c1", *(entry(f"m{n}") for n in range(10))),
    "a message": opened("c1", entry("m1", text=LONG)),
    "an event": opened("c1", entry("m1"), LedgerEvent("m1", 0, 1, "replaced", "", LONG.encode())),
    "what came beside a round": opened(
        "c1", Round("m1", 0, ModelResponse(said("x"), extra={"response": LONG.encode()}))
    ),
    "a receipt": [RequestRecord("r1", "", "", "", "", 1, "full", LONG.encode())],
}


@pytest.mark.parametrize("big", TOO_MUCH.values(), ids=TOO_MUCH.keys())
async def test_a_queue_that_is_full_refuses_and_takes_again_when_it_is_empty(
    making: Making, path: Path, big: list[Record]
) -> None:
    """D12: bounded by count and by bytes."""
    store = await making(bounds=QueueLimits(records=10, bytes=10_000))
    with locked(path):
        store.write("a", opened("first"))
        store.write("a", opened("second"))
        with pytest.raises(StoreError) as refused:
            store.write("a", big)
        assert refused.value.code == "store_busy"
    await recovered(store)


async def test_given_a_batch_beyond_the_bounds_when_nothing_waits_then_it_is_taken(making: Making) -> None:
    """A body of 64 MiB is written, whatever the bound."""
    store = await making(bounds=QueueLimits(records=10, bytes=10_000, group_records=5, group_bytes=100))

    await store.wait_until_durable(store.write("a", opened("c1", *(entry(f"m{n}", text="x" * 900) for n in range(40)))))

    assert await store.load("a", "c1") is not None


# ----------------------------------------------------------------------------------------------------- full, read-only
@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file may grow beyond `size`, which the system tells in the words of a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_given_a_full_disk_then_it_is_told_and_reading_goes_on_and_space_makes_it_well(
    store: SqlStore, path: Path
) -> None:
    """D4."""
    await store.wait_until_durable(store.write("a", opened("before", entry("m1"))))
    with full_disk(max(p.stat().st_size for p in path.parent.iterdir()) + 10_000):
        ticket = store.write("a", opened("c1", entry("m1", text="x" * 500_000)))
        assert await told(store.wait_until_durable(ticket)) == "store_full"
        assert await store.load("a", "before") is not None
        assert await store.load("a", "c1") is None
        assert await until_the_circuit_opens(store, text="x" * 500_000) == "store_full"
        assert await store.load("a", "before") is not None

    await recovered(store)
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


async def test_wherever_writing_breaks_off_the_store_is_whole_and_every_acknowledged_record_is_there(
    making: Making, path: Path
) -> None:
    """D3: the disk is full at another place each time, in the log, its index or the file."""
    store = await making()
    acknowledged = {"before"}
    await store.wait_until_durable(store.write("a", opened("before", entry("m1"))))
    for number in range(SWEPT):
        with full_disk(max(p.stat().st_size for p in path.parent.iterdir()) + number * 5_003):
            for part in range(4):
                name = f"c{number}-{part}"
                if await writing(store, name, text=f"{name} " * 2_000) == "":
                    acknowledged.add(name)
        await recovered(store, f"after {number}")
        acknowledged.add(f"after {number}")

    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    assert {c.id for c in await store.conversations("a", limit=1000)} == acknowledged
    assert len(acknowledged) > SWEPT + 5, "the limit always came before the first write"
    for name in acknowledged:
        assert await store.load("a", name) is not None


async def test_given_a_full_disk_when_the_log_is_checkpointed_then_what_was_acknowledged_is_there_and_it_recovers(
    making: Making, path: Path
) -> None:
    """The log has room, and the file that it is copied into has none."""
    store = await making()
    await store.wait_until_durable(store.write("a", opened("before", entry("m1", text="x" * 4_000_000))))
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    log = path.with_name(f"{path.name}-wal")
    acknowledged = {"before"}
    with full_disk(path.stat().st_size + 50_000):
        while not (code := await writing(store, name := f"c{len(acknowledged)}", text=f"{name} " * 4_000)):
            acknowledged.add(name)
        assert code == "store_full"
        with closing(sqlite3.connect(path)) as other, pytest.raises(sqlite3.OperationalError, match=r"full|disk I/O"):
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        assert {c.id for c in await store.conversations("a", limit=1000)} == acknowledged

    assert log.stat().st_size > 2_000_000, "it was never checkpointed"
    await recovered(store)
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    assert {c.id for c in await store.conversations("a", limit=1000)} == {*acknowledged, "afterwards"}


@pytest.mark.parametrize("room", [1, 20_000, 60_000, 1_000_000])
async def test_given_a_full_disk_then_a_copy_that_fails_leaves_nothing_of_itself(
    making: Making, path: Path, room: int
) -> None:
    store = await making()
    await store.wait_until_durable(store.write("a", opened("large", entry("m1", text="x" * 2_000_000))))
    await store.close()
    target = path.parent / "elsewhere" / "copy.db"
    with full_disk(room), pytest.raises(StoreError, match="the disk of the store is full") as refused:
        copy_store(f"sqlite:{path}", f"sqlite:{target}", path.parent)

    assert refused.value.code == "store_full"
    assert list(target.parent.iterdir()) == []
    assert copy_store(f"sqlite:{path}", f"sqlite:{target}", path.parent).conversations == 1
    with pytest.raises(BadRequest, match="holds conversations already"):
        copy_store(f"sqlite:{path}", f"sqlite:{target}", path.parent)
    assert rows(target, "SELECT count(*) FROM conversations") == [(1,)]


async def test_a_copy_leaves_what_another_one_has_written_into_the_file_that_it_began(
    making: Making, path: Path
) -> None:
    store = await making()
    await store.wait_until_durable(store.write("a", opened("c1", entry("m1"))))
    await store.close()
    target = SqliteFile(path.with_name("copy.db"))
    target.open()

    assert copy_database(SqliteFile(path), SqliteFile(target.path)).conversations == 1
    with pytest.raises(BadRequest, match="holds conversations already"):
        copy_database(SqliteFile(path), target)

    assert rows(target.path, "SELECT id FROM conversations") == [("c1",)]


@pytest.mark.parametrize("number", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE])
def test_each_way_of_sqlite_to_say_that_the_disk_is_full_is_told_as_that(number: int) -> None:
    said = sqlite3.OperationalError("disk I/O error")
    said.sqlite_errorcode = number

    assert as_store_error(said).code == "store_full"


def mark_written_by_a_later_sqlite(path: Path, version: bytes) -> None:
    """The header's write version: above 2, SQLite reads the file and refuses to write it, also for root."""
    with path.open("r+b") as file:
        file.seek(18)
        file.write(version)


async def test_given_a_store_that_may_not_be_written_then_it_is_told_and_read_and_it_recovers(
    making: Making, path: Path
) -> None:
    store = await making()
    await store.wait_until_durable(store.write("a", opened("before", entry("m1"))))
    await store.close()
    mark_written_by_a_later_sqlite(path, b"\x03")

    again = await making()
    assert await writing(again, "c1") == "store_readonly"
    assert await again.load("a", "before") is not None
    assert await writing(again, "c2") == "store_readonly"
    mark_written_by_a_later_sqlite(path, b"\x02")

    await recovered(again)


# ------------------------------------------------------------------------------------------------------------- damaged
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "garbage": lambda _: b"this is no database " * 1000,
    "a short file": lambda _: b"SQLite",
    "a damaged header": lambda raw: b"\xff" * 100 + raw[100:],
    "damaged first pages": lambda raw: raw[:100] + b"\xa5" * 40_000 + raw[40_100:],
    "cut off after its first page": lambda raw: raw[:4096],
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
async def test_given_a_damaged_file_then_it_is_set_aside_whole_and_a_new_store_begun(
    making: Making, path: Path, damage: Callable[[bytes], bytes]
) -> None:
    """D7: nothing is deleted, health tells, and it boots."""
    store = await making()
    await store.wait_until_durable(
        store.write("a", opened("before", *(entry(f"m{n}", text="x" * 900) for n in range(200))))
    )
    await store.close()
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)

    again = await making()

    (aside,) = [p for p in path.parent.iterdir() if ".corrupt-" in p.name and p.name.endswith("Z")]
    assert aside.read_bytes() == damaged
    assert any(aside.name in note for note in again.health().notes)
    assert again.health().ok
    assert await again.load("a", "before") is None
    await recovered(again)


async def test_given_damage_while_running_then_it_is_told_and_the_store_goes_on_with_a_new_file(
    making: Making, path: Path
) -> None:
    """D7."""
    before = await making()
    await before.wait_until_durable(before.write("a", opened("c1", entry("m1"))))
    await before.close()
    store = await making()
    secret = await store.secret()
    with path.open("r+b") as file:
        file.seek(4096)  # what the start has read already stays as it is
        file.write(b"\xa5" * (path.stat().st_size - 4096))

    assert await told(store.load("a", "c1")) == "store_corrupt"

    assert await writing(store, "c2") == ""
    await recovered(store)
    assert any(".corrupt-" in p.name for p in path.parent.iterdir())
    assert any("damaged" in note for note in store.health().notes)
    assert await store.load("a", "c1") is None
    assert await store.secret() == secret


async def test_given_damage_that_the_writer_finds_then_the_store_goes_on_with_a_new_file(
    making: Making, path: Path
) -> None:
    """D7: nobody reads before it writes."""
    before = await making()
    await before.wait_until_durable(
        before.write("a", opened("c1", *(entry(f"m{n}", text="x" * 900) for n in range(200))))
    )
    await before.close()
    store = await making()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (path.stat().st_size - 4096))

    assert await writing(store, "c2") == "store_corrupt"

    await recovered(store)
    assert any(".corrupt-" in p.name for p in path.parent.iterdir())


async def test_given_damage_that_nobody_asked_for_then_it_is_told_until_the_new_file_is_open(
    store: SqlStore, path: Path
) -> None:
    """Retention finds it, say, and a client's request comes in that moment."""
    held, told_then = threading.Event(), []

    def damaged() -> None:
        raise StoreError("the store's file is damaged", code="store_corrupt")

    def tell() -> None:
        told_then.append(store.write_error())
        held.set()

    with store._writer._changed:  # both at once, so that nothing comes between
        store._writer.enqueue_job(damaged)
        store._writer.enqueue_job(tell)
    await asyncio.to_thread(held.wait, 5)

    (trouble,) = told_then
    assert trouble is not None
    assert trouble.code == "store_corrupt"

    async def is_open() -> bool:
        return store._database.is_open

    await eventually(is_open)  # nobody reads or writes
    await recovered(store)


# --------------------------------------------------------------------------------------------------------------- words
SAID_NO: dict[str, str] = {
    "a table that is gone": "INSERT INTO gone VALUES (1)",
    "a row that breaks a rule": "INSERT INTO kept VALUES (NULL)",
    "a key that is there": "INSERT INTO kept VALUES (1)",
    "a value that is too big": "INSERT INTO kept VALUES (zeroblob(2000000000))",
    "no statement": "INSERT",
    "a file that may not be written": "PRAGMA query_only=ON; INSERT INTO kept VALUES (2)",
}


@pytest.mark.parametrize("refused", SAID_NO.values(), ids=SAID_NO.keys())
def test_an_error_of_the_driver_is_told_as_the_one_that_is_wrapped_around_it(refused: str) -> None:
    """What writes a group meets the one, who reads the other."""
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)
        raw.execute("CREATE TABLE kept (id INTEGER NOT NULL UNIQUE, CHECK (id IS NOT NULL))")
        raw.execute("INSERT INTO kept VALUES (1)")
        *before, statement = refused.split("; ")
        for said in before:
            raw.execute(said)
        with pytest.raises(sqlite3.Error) as bare:
            raw.executemany(statement, [()])
        with pytest.raises(DBAPIError) as wrapped:
            connection.exec_driver_sql(statement)
    engine.dispose()

    assert isinstance(wrapped.value.orig, type(bare.value))
    assert (str(as_store_error(bare.value)), as_store_error(bare.value).code) == (
        str(as_store_error(wrapped.value)),
        as_store_error(wrapped.value).code,
    )


@pytest.mark.parametrize("kind", [sqlite3.OperationalError, sqlite3.InterfaceError, sqlite3.DatabaseError])
def test_an_error_without_a_number_is_told_by_its_kind_alone(kind: type[sqlite3.Error]) -> None:
    bare = kind("said by the driver, not by SQLite")
    wrapped = DBAPIError.instance("", (), bare, sqlite3.Error)

    assert as_store_error(bare).code == as_store_error(wrapped).code


# ---------------------------------------------------------------------------------------------------------------- gone
async def test_given_a_table_that_somebody_dropped_then_the_circuit_opens_and_it_is_well_when_it_is_back(
    store: SqlStore, path: Path
) -> None:
    """An error of a statement, and not of the value in it, says something about the store."""
    await store.wait_until_durable(store.write("a", opened("before", entry("m1"))))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("ALTER TABLE entries RENAME TO elsewhere")

    assert await writing(store, "c1") == "store_failed"
    assert await until_the_circuit_opens(store) == "store_failed"
    assert store.write_error() is not None
    other.execute("ALTER TABLE elsewhere RENAME TO entries")
    other.close()

    await recovered(store)
    assert await store.load("a", "before") is not None


async def test_given_a_file_deleted_while_running_then_a_new_one_is_begun_and_what_was_lost_is_not_gone_on_with(
    store: SqlStore, path: Path
) -> None:
    await store.wait_until_durable(store.write("a", opened("c1", entry("m1"))))
    secret = await store.secret()
    for file in path.parent.iterdir():
        file.unlink()

    assert (
        await told(store.wait_until_durable(store.write("a", [LedgerRecord("c1", entry("m2", "m1"))])))
        == "store_failed"
    )
    assert await store.load("a", "c1") is None
    await recovered(store)
    assert store.health().conversations == 1
    assert await store.secret() == secret
    assert any("was gone" in note for note in store.health().notes)
    assert path.is_file()


async def test_given_a_directory_deleted_while_running_then_it_is_made_again(store: SqlStore, path: Path) -> None:
    shutil.rmtree(path.parent)

    await recovered(store)
    assert path.is_file()


async def test_given_a_directory_that_cannot_be_made_then_starting_says_so_and_it_is_well_when_it_can(
    making: Making, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("a file where the directory should be")
    store = await making(tmp_path / "taken" / "callstack.db", start=False)

    assert await told(store.start()) == "store_unreachable"
    assert store.health().reason == "store_unreachable"
    assert await writing(store, "c1") == "store_unreachable"
    assert await told(store.load("a", "c1")) == "store_unreachable"
    assert await told(store.secret()) == "store_unreachable"
    (tmp_path / "taken").unlink()

    await recovered(store)
    assert len(await store.secret()) == 32


async def test_an_unreachable_store_is_taken_up_by_a_read_too(making: Making, tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    store = await making(tmp_path / "taken" / "callstack.db", start=False)
    await told(store.start())
    (tmp_path / "taken").unlink()

    assert await store.load("a", "c1") is None


# -------------------------------------------------------------------------------------------------------------- values
async def test_a_value_that_cannot_be_written_takes_no_other_batch_with_it(store: SqlStore, path: Path) -> None:
    with locked(path):  # so that all of them go into one group
        first = store.write("a", opened("c1", entry("m1")))
        poison = replace(entry("m1"), message=replace(said("x"), tokens=2**70))
        bad = store.write("a", opened("c2", poison))
        last = store.write("a", opened("c3", entry("m1")))

    async def settled() -> bool:
        return await told(store.wait_until_durable(last)) == ""

    await eventually(settled)
    assert await told(store.wait_until_durable(first)) == ""
    assert await told(store.wait_until_durable(bad)) == "store_failed"
    assert [c.id for c in await store.conversations("a")] == ["c3", "c1"]


async def test_values_that_cannot_be_written_do_not_open_the_circuit(store: SqlStore) -> None:
    poison = replace(entry("m1"), seq=2**70)
    for number in range(8):
        assert await told(store.wait_until_durable(store.write("a", opened(f"c{number}", poison)))) == "store_failed"

    assert await writing(store, "well") == ""


async def test_writing_to_a_store_that_was_not_started_is_refused(making: Making) -> None:
    store = await making(start=False)

    with pytest.raises(StoreError, match="closed"):
        store.write("a", [])


async def test_a_waiter_that_leaves_takes_nobody_with_it(store: SqlStore, path: Path) -> None:
    with locked(path):
        ticket = store.write("a", opened("c1"))
        leaving = asyncio.create_task(store.wait_until_durable(ticket))
        staying = asyncio.create_task(store.wait_until_durable(ticket))
        await asyncio.sleep(0)
        leaving.cancel()
        assert await told(staying) == "store_locked"
    await recovered(store)


async def test_a_store_that_a_failure_closed_opens_again_while_nobody_writes(making: Making, path: Path) -> None:
    """D7: who hears of trouble passes its request on and writes nothing, so hearing of it must be enough."""
    store = await making()
    await store.wait_until_durable(store.write("a", opened("c1", entry("m1"))))
    path.unlink()
    path.mkdir()
    assert await writing(store, "c2") == "store_unreachable"
    path.rmdir()

    async def is_open() -> bool:
        return store.write_error() is None

    await eventually(is_open)


@pytest.mark.skipif(not OPEN_FILES.exists(), reason="only there a process sees its open files")
async def test_a_read_that_outlives_its_store_leaves_no_file_open(store: SqlStore, path: Path) -> None:
    """As where the process ends, or a failure closes the store, while somebody reads."""
    begun, goes_on = threading.Event(), threading.Event()

    def slow(connection: Connection) -> int:
        begun.set()
        goes_on.wait(SOON_S)
        return int(connection.execute(text("SELECT 7")).scalar_one())

    reading = asyncio.ensure_future(store._read(slow))
    await asyncio.to_thread(begun.wait, SOON_S)
    await store.close()
    goes_on.set()

    assert await reading == 7
    assert str(path) not in {os.path.realpath(file) for file in OPEN_FILES.iterdir()}


async def test_a_read_under_which_the_store_is_closed_is_done_again(store: SqlStore) -> None:
    """Another read found damage, or a write failed, in the moment between the look at the store and the read."""
    await store.wait_until_durable(store.write("a", opened("c1")))

    def closes_once(connection: Connection) -> int:
        if store._database.is_open and not closed:
            closed.append(True)
            store._database.close()
            connection.execute(text("SELECT * FROM of_another_time"))
        return int(connection.execute(text("SELECT count(*) FROM conversations")).scalar_one())

    closed: list[bool] = []
    assert await store._read(closes_once) == 1
    assert closed
