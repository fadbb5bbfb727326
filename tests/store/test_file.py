"""The SQLite file: where it lies, who may read it, what stands in it, and what `forget` leaves of it."""

# ruff: noqa: ASYNC240 - a test may wait for its own disk

from __future__ import annotations

import asyncio
import os
import stat
import time
from pathlib import Path

import pytest
from msgspec.structs import replace
from sqlalchemy import Connection

from proxy.core.ledger.ledger import Conversation, EntryKind, LedgerEvent, Round
from proxy.core.ledger.messages import Call, ModelResponse
from proxy.errors import StoreError
from proxy.store.database import migrate
from proxy.store.database.sqlite import SqliteFile
from proxy.store.interface import AnchorRecord, DeletionResult, LedgerRecord, RequestRecord, SentRecord
from proxy.store.rows import split_into_pages
from proxy.store.sql import SqlStore, open_store
from proxy.store.statements import MIN_BLOCK_ROWS
from tests.store.conftest import Making, being_read, locked, rows
from tests.store.values import entry, grown_to, opened, said

MARKER = "a-marker-nobody-else-writes"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def remains(path: Path, marker: str) -> list[str]:
    """Files beside the store that still hold `marker`."""
    return [p.name for p in path.parent.iterdir() if marker.encode() in p.read_bytes()]


# ---------------------------------------------------------------------------------------------------------------- modes
async def test_the_file_and_all_beside_it_are_the_owners_alone(store: SqlStore, path: Path) -> None:
    """T10: 0600 in a directory of 0700, whatever the umask says."""
    before = os.umask(0)
    try:
        await store.wait_until_durable(store.write("a", opened("c1", entry("m1"))))
    finally:
        os.umask(before)

    assert mode(path.parent) == 0o700
    assert {p.name: mode(p) for p in path.parent.iterdir()} == {
        "callstack.db": 0o600,
        "callstack.db-wal": 0o600,
        "callstack.db-shm": 0o600,
    }


async def test_a_file_that_others_could_read_is_closed_to_them(making: Making, path: Path) -> None:
    await (await making()).close()
    path.chmod(0o644)

    await making()

    assert mode(path) == 0o600


async def test_a_symbolic_link_in_the_place_of_the_file_is_refused(making: Making, path: Path, tmp_path: Path) -> None:
    """T9."""
    path.parent.mkdir()
    path.symlink_to(tmp_path / "elsewhere.db")

    with pytest.raises(StoreError, match="not a regular file") as refused:
        await making()

    assert refused.value.code == "store_unreachable"
    assert not (tmp_path / "elsewhere.db").exists()


@pytest.mark.rows("S1-13")
async def test_ids_of_clients_are_never_used_in_paths(store: SqlStore, tmp_path: Path, path: Path) -> None:
    """S1-13: a session or conversation named like a path makes no file."""
    await store.wait_until_durable(
        store.write("../../x", opened("../../x", entry("../x"), hint="../../x", tenant="../../x"))
    )

    assert [p.name for p in tmp_path.iterdir()] == ["data"]
    assert {p.name for p in path.parent.iterdir()} <= {"callstack.db", "callstack.db-wal", "callstack.db-shm"}


async def test_the_default_file_lies_in_the_data_directory_and_another_where_it_is_named(tmp_path: Path) -> None:
    for url in ("sqlite", f"sqlite:{tmp_path}/named #1?.db"):
        store = open_store(url, tmp_path / "deep" / "data")
        await store.start()
        await store.close()

    assert (tmp_path / "deep" / "data" / "callstack.db").is_file()
    assert (tmp_path / "named #1?.db").is_file()
    assert len(list(tmp_path.iterdir())) == 2


async def test_a_database_of_somebody_else_is_left_alone(making: Making, path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    rows(path, "CREATE TABLE theirs (a)")

    with pytest.raises(StoreError, match="something else"):
        await making()

    assert rows(path, "SELECT name FROM sqlite_master") == [("theirs",)]


# ------------------------------------------------------------------------------------------------------------- content
@pytest.mark.rows("S0-08", "S2-35")
async def test_a_conversation_is_readable_with_sqlite_alone(store: SqlStore, path: Path) -> None:
    """S0-08, S2-35: words as text, the wire as JSON, the event's data as JSON."""
    spoken = ModelResponse(
        replace(said("reading", "assistant"), calls=(Call("k1", "read", '{"path":"ü"}'),)), "tool_calls"
    )
    told = replace(said("hello"), text="hello, as told")
    values = (replace(entry("m1"), message=told), entry("m2", "m1", text="second"))
    await store.wait_until_durable(
        store.write(
            "a", opened("c1", *values, Round("m2", 0, spoken), LedgerEvent("m1", 0, 1, "pushed", "f1", b'{"t":1}'))
        )
    )

    assert rows(path, "SELECT text FROM messages WHERE entry = 'm1'") == [("hello, as told",)]
    assert rows(path, "SELECT calls FROM messages WHERE calls <> '[]'") == [('[["k1","read","{\\"path\\":\\"ü\\"}"]]',)]
    assert rows(path, "SELECT kind, subject, data FROM events") == [("pushed", "f1", '{"t":1}')]
    spelled = (
        "SELECT json_extract(CAST(data AS TEXT), '$.content') FROM messages JOIN blobs ON digest = wire"
        " WHERE text IS NULL AND entry = 'm2' AND round = -1"
    )
    assert rows(path, spelled) == [("second",)]


async def test_what_is_sent_again_with_every_request_is_stored_once(store: SqlStore, path: Path) -> None:
    """A session of 200 requests that each resend all before them takes little more than its messages."""
    pieces = [f'{{"role":"user","content":"{n} {"x" * 2000}"}}'.encode() for n in range(200)]
    for n in range(200):
        body = (b'{"messages":[', *pieces[: n + 1], b"]}")
        store.write("a", [RequestRecord(f"r{n}", "", "", "", "", n, "full", body=body), SentRecord(f"r{n}", 0, body)])
    await store.wait_until_durable(store.write("a", []))

    (told,) = rows(path, "SELECT sum(length(data)) FROM blobs")

    assert isinstance(told[0], int)
    assert told[0] < 2.5 * sum(map(len, pieces))
    found = await store.request("a", "r199")
    assert found is not None
    assert found.sent[0].body == (b'{"messages":[', *pieces, b"]}")


async def test_a_piece_that_looks_like_a_page_of_another_body_is_not_taken_for_it(store: SqlStore) -> None:
    """Whoever forges one would make the other body unreadable."""
    body = tuple(bytes([n]) * 200 for n in range(5))
    (page,) = split_into_pages(body)
    store.write("a", [RequestRecord("forged", "", "", "", "", 1, "full", body=(page.data,))])
    await store.wait_until_durable(store.write("a", []))
    await store.wait_until_durable(store.write("a", [RequestRecord("real", "", "", "", "", 1, "full", body=body)]))

    found = await store.request("a", "real")

    assert found is not None
    assert found.record.body == body


async def test_drafts_of_a_round_take_the_room_of_one_and_none_when_it_is_finished(store: SqlStore, path: Path) -> None:
    store.write("a", opened("c1", replace(entry("turn"), kind=EntryKind.TURN, message=None)))
    for length in range(1, 200):
        draft = ModelResponse(said("word " * length, "assistant"), complete=False)
        await store.wait_until_durable(store.write("a", [LedgerRecord("c1", Round("turn", 0, draft))]))
    assert rows(path, "SELECT count(*) FROM blobs") == [(1,)]

    answer = ModelResponse(said("word " * 200, "assistant"), "stop")
    await store.wait_until_durable(store.write("a", [LedgerRecord("c1", Round("turn", 0, answer, last=True))]))

    assert rows(path, "SELECT data FROM blobs") == [(answer.message.wire,)]
    assert rows(path, "SELECT count(*) FROM holds") == [(1,)]


async def test_rows_that_are_written_in_blocks_meet_those_before_them_as_if_they_came_one_by_one(
    store: SqlStore,
) -> None:
    """Of a finished round and its drafts, all in one block, the finished one stays; and nothing is left out."""
    turns = [replace(entry(f"turn-{n}", seq=n), kind=EntryKind.TURN, message=None) for n in range(MIN_BLOCK_ROWS)]
    answers = [Round(turn.id, 0, ModelResponse(said(f"answer {turn.id}", "assistant"), "stop")) for turn in turns]
    drafts = [replace(done, spoken=replace(done.spoken, complete=False)) for done in answers]
    values = [each for three in zip(turns, answers, drafts, strict=True) for each in three]
    made, *owned = opened("c1", *values)

    await store.wait_until_durable(store.write("a", [made, *owned]))

    assert isinstance(made, Conversation)
    assert await store.load("a", "c1") == grown_to(made, values)


async def test_every_table_has_the_tenant_first_in_its_key(store: SqlStore, path: Path) -> None:
    """T1."""
    await store.wait_until_durable(store.write("a", []))
    tables = [str(name) for (name,) in rows(path, "SELECT name FROM sqlite_master WHERE type = 'table'")]

    first = {t: rows(path, f"SELECT name FROM pragma_table_info('{t}') WHERE pk = 1") for t in tables}

    assert {t for t, key in first.items() if key != [("tenant",)]} == {"alembic_version"}


# -------------------------------------------------------------------------------------------------------------- forget
@pytest.mark.parametrize("rewritten", [0, 2**30], ids=["a large file", "a small file"])
async def test_after_forget_no_byte_of_a_conversation_is_left_in_any_file(
    store: SqlStore, path: Path, monkeypatch: pytest.MonkeyPatch, rewritten: int
) -> None:
    """T10: rows, blobs, free pages, the write-ahead log and the copy kept at a migration."""
    monkeypatch.setattr("proxy.store.database.sqlite.MAX_REWRITE_BYTES", rewritten)
    for number in range(60):
        name = f"c{number}"
        text = MARKER if number % 2 else "harmless"
        message = entry("m1", text=f"{text} {number} {'filling ' * (number % 7) * 40}")
        values = (message, LedgerEvent("m1", 0, 1, "pushed", text + name, text.encode()))
        store.write("a", [*opened(name, *values, hint=text), AnchorRecord(name, text, (text,), 1)])
        store.write("a", [RequestRecord(f"r{number}", name, "", "", "", 1, text, body=(text.encode() * 20,))])
        store.write("a", [SentRecord(f"r{number}", 0, (text.encode() * 30,))])
    await store.wait_until_durable(store.write("a", []))
    (path.parent / "callstack.db.before-0000").write_text(MARKER)
    assert remains(path, MARKER)

    for number in range(1, 60, 2):
        await store.delete_conversations("a", f"c{number}")

    assert remains(path, MARKER) == []
    assert len(await store.conversations("a")) == 30


async def test_after_retention_the_log_is_empty_and_the_file_smaller(store: SqlStore, path: Path) -> None:
    text = MARKER * 200
    for number in range(100):
        store.write("a", opened(f"c{number}", entry("m1", text=f"{number} {text}", created=5)))
    await store.wait_until_durable(store.write("a", opened("young", entry("m1", created=100))))
    before = store.health().size_bytes

    gone = await store.delete_conversations(None, before=50)

    assert gone.conversations == 100
    assert gone.bytes > 100 * len(text)
    assert store.health().size_bytes < before / 3
    assert remains(path, MARKER) == []


async def test_forget_says_so_when_a_reader_keeps_a_copy_in_the_log_and_finishes_when_asked_again(
    store: SqlStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleting fails closed: no word of success while a byte may be left."""
    # A patch: who asks need not wait for five seconds.
    monkeypatch.setattr("proxy.store.sql.SHRINK_TIMEOUT_S", 0.05)
    await store.wait_until_durable(store.write("a", opened("c1", entry("m1", text=MARKER))))
    with locked(path), pytest.raises(StoreError, match="lock"):
        await store.delete_conversations("a", "c1")

    await store.delete_conversations("a", "c1")

    assert remains(path, MARKER) == []


async def test_while_forget_waits_for_a_reader_others_write_and_it_goes_on_when_that_one_stops(
    store: SqlStore, path: Path
) -> None:
    await store.wait_until_durable(store.write("a", opened("c1", entry("m1", text=MARKER))))
    with being_read(path):
        forgetting = asyncio.create_task(store.delete_conversations("a", "c1"))
        for number in range(5):
            await asyncio.sleep(0.05)
            await store.wait_until_durable(store.write("a", opened(f"meanwhile {number}", entry("m1"))))
        assert not forgetting.done()

    assert (await forgetting).conversations == 1
    assert remains(path, MARKER) == []


async def test_while_somebody_reads_forget_may_be_asked_again_and_again(
    store: SqlStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D5: a reader is no failure of the store, so no circuit opens, and nothing that is queued is lost."""
    # A patch: six times five seconds show no more.
    monkeypatch.setattr("proxy.store.sql.SHRINK_TIMEOUT_S", 0.0)
    await store.wait_until_durable(store.write("a", opened("c1", entry("m1", text=MARKER))))
    with being_read(path):
        for number in range(6):
            forgetting = asyncio.create_task(store.delete_conversations("a", "c1"))
            await asyncio.sleep(0)
            store.write("a", opened(f"meanwhile {number}", entry("m1")))
            with pytest.raises(StoreError, match="copies may stay"):
                await forgetting
        assert remains(path, MARKER)

    assert await store.delete_conversations("a", "c1") == DeletionResult()
    assert remains(path, MARKER) == []
    assert store.health().ok
    assert len(await store.conversations("a")) == 6


# --------------------------------------------------------------------------------------------------------- start, speed
@pytest.mark.rows("S3-30")
async def test_what_was_written_is_there_after_a_restart_with_the_same_secret(making: Making) -> None:
    """S3-30."""
    first = await making()
    first.write("a", opened("c1", entry("m1")))
    secret = await first.secret()
    await first.close()

    second = await making()
    second.write("a", [LedgerRecord("c1", entry("m2", "m1", seq=1))])
    ledger = await second.load("a", "c1")

    assert ledger is not None
    assert [e.id for e in ledger.path("m2")] == ["m1", "m2"]
    assert await second.secret() == secret
    assert second.health().conversations == 1


async def test_close_writes_what_is_queued(making: Making, path: Path) -> None:
    store = await making()
    for number in range(300):
        store.write("a", opened(f"c{number}"))
    await store.close()

    assert rows(path, "SELECT count(*) FROM conversations") == [(300,)]
    with pytest.raises(StoreError, match="closed"):
        store.write("a", [])


async def test_two_stores_on_one_file_see_each_others_conversations(making: Making) -> None:
    """Started at the same moment on no file at all."""
    stores = await asyncio.gather(*(making() for _ in range(3)))
    for number, store in enumerate(stores):
        await store.wait_until_durable(store.write("a", opened(f"c{number}", created=number)))

    assert [[c.id for c in await s.conversations("a")] for s in stores] == [["c2", "c1", "c0"]] * 3
    assert len({await s.secret() for s in stores}) == 1


async def test_the_first_of_two_stores_to_write_an_event_wins_for_both(making: Making) -> None:
    one, two = await making(), await making()
    await one.wait_until_durable(one.write("a", opened("c1", entry("m1"))))
    for store, data in ((two, b"first"), (one, b"second")):
        await store.wait_until_durable(
            store.write("a", [LedgerRecord("c1", LedgerEvent("m1", 0, 1, "wake", "", data))])
        )

    for store in (one, two):
        ledger = await store.load("a", "c1")
        assert ledger is not None
        assert [e.data for e in ledger.events["m1"]] == [b"first"]


async def test_a_thousand_turns_that_end_together_are_durable_soon(store: SqlStore) -> None:
    """D0, grouped: one by one they would take over three seconds; the bound leaves room for a busy machine."""
    for number in range(1000):
        store.write("a", opened(f"c{number}", entry("m1")))
    await store.wait_until_durable(store.write("a", []))
    answer = ModelResponse(said("done " * 400, "assistant"), "stop")

    began = time.perf_counter()
    tickets = [store.write("a", [LedgerRecord(f"c{n}", Round("m1", 0, answer, last=True))]) for n in range(1000)]
    handed_over = time.perf_counter() - began
    await asyncio.gather(*map(store.wait_until_durable, tickets))

    assert time.perf_counter() - began < 2
    assert handed_over < 0.2


async def test_a_large_store_is_ready_at_once(making: Making, path: Path) -> None:
    """D8, scaled: nothing is scanned at the start."""
    store = await making()
    megabyte = b"x" * 1_000_000
    for number in range(60):
        body = (megabyte + str(number).encode(),)
        store.write("a", [*opened(f"c{number}"), RequestRecord(f"r{number}", "", "", "", "", 1, "full", body=body)])
    await store.close()

    began = time.perf_counter()
    again = await making()

    assert time.perf_counter() - began < 2
    assert again.health().size_bytes > 60_000_000
    assert again.health().conversations == 60


@pytest.mark.rows("X-14")
def test_x_14_a_file_is_read_only_once_its_tables_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that met a store in the middle of being begun anew was told that it fails."""
    database = SqliteFile(tmp_path / "callstack.db")
    seen: list[bool] = []
    create = migrate.create_schema

    def looked_at(connection: Connection, secret: bytes) -> None:
        seen.append(database.is_open)
        create(connection, secret)
        seen.append(database.is_open)

    monkeypatch.setattr(migrate, "create_schema", looked_at)  # nobody else can look between two statements of it

    database.open()
    assert (seen, database.is_open) == ([False, False], True)
    database.close()
