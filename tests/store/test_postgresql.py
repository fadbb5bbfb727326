"""A PostgreSQL server under the store: two processes on it, the server away, and moving there and back (D15)."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine, event, make_url
from sqlalchemy.exc import IntegrityError, OperationalError

from callstack_proxy.config_sources import load_config
from callstack_proxy.management.copy_store import copy_store
from proxy.core.ledger import ModelResponse
from proxy.core.ledger.ledger import Entry, EntryKind, LedgerEvent, Round
from proxy.errors import BadRequest, InvalidConfiguration, StoreError
from proxy.store.conversation_cache import CachedConversation, ConversationCache
from proxy.store.database import PostgresDatabase
from proxy.store.database.postgresql import LOCK_SQL, SCHEMA_KEY
from proxy.store.database_errors import CircuitBreaker, as_store_error
from proxy.store.interface import LedgerRecord
from proxy.store.sql import SqlStore, open_store
from tests.pace import slowness
from tests.postgresql_server import PostgresServer
from tests.store.values import entry, opened, said

pytestmark = pytest.mark.long
SOON_S = 10.0
Opening = Callable[..., Awaitable[SqlStore]]


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture
async def opening(url: str) -> AsyncIterator[Opening]:
    """Stores on the same database, each as a process of its own has it."""
    made: list[SqlStore] = []

    async def open_one(at: str = url) -> SqlStore:
        store = SqlStore(PostgresDatabase(at), circuit=CircuitBreaker(time.monotonic, rest=0.2))
        made.append(store)
        await store.start()
        return store

    yield open_one
    for store in made:
        await store.close()


async def cached(cache: ConversationCache, conversation: str = "c1") -> CachedConversation:
    found = await cache.get("a", conversation)
    assert found is not None
    return found


def decided(conversation: str, data: bytes) -> LedgerRecord:
    return LedgerRecord(conversation, LedgerEvent("m1", 0, 1, "folded", "f1", data, 1))


async def failure(awaiting: Awaitable[object]) -> str:
    try:
        await awaiting
    except StoreError as error:
        return error.code
    return ""


# -------------------------------------------------------------------------------------------------------- two processes
async def test_processes_that_start_together_make_one_store(opening: Opening) -> None:
    stores = await asyncio.gather(*(opening() for _ in range(4)))

    assert len({await store.secret() for store in stores}) == 1


async def test_what_another_process_wrote_is_in_the_same_object_at_the_next_request(opening: Opening) -> None:
    here, there = await opening(), await opening()
    ours, theirs = ConversationCache(here), ConversationCache(there)
    await here.wait_until_durable(here.write("a", opened("c1", entry("m1"))))
    held = await cached(ours)
    beside = await cached(theirs)

    theirs.record(beside, [entry("m2", "m1", seq=2)])
    await theirs.wait_until_durable(beside)

    assert "m2" not in held.ledger.entries
    assert await cached(ours) is held
    assert "m2" in held.ledger.entries


@pytest.mark.rows("X-55")
async def test_a_process_that_stands_still_while_it_opens_the_store_keeps_no_other_one_out(
    opening: Opening, url: str
) -> None:
    await opening()
    standing = create_engine(url.replace("postgresql:", "postgresql+psycopg:", 1))
    with standing.connect() as connection:  # as one that was stopped before it had looked at the schema
        connection.exec_driver_sql(f"SELECT {LOCK_SQL.format(SCHEMA_KEY)}")
        there = await opening()
        await there.wait_until_durable(there.write("a", opened("c1", entry("m1"))))
        connection.invalidate()
    standing.dispose()


@pytest.mark.rows("X-55")
@pytest.mark.parametrize("where", ["in a pipeline", "behind it"])
async def test_x_55_a_process_that_stands_still_in_a_commit_holds_nobody_up_and_loses_nothing(
    opening: Opening, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    here, there = await opening(), await opening()
    await here.wait_until_durable(here.write("a", opened("c1", entry("m1"))))
    stands, goes_on = threading.Event(), threading.Event()
    announce, context = here._database.announce, here._writer._commit_context

    def stand_still() -> None:
        if not stands.is_set():
            stands.set()
            goes_on.wait(SOON_S)

    def announce_late(connection: Connection, news: Sequence[str]) -> None:
        stand_still()
        announce(connection, news)

    @contextmanager
    def pipelined_late(connection: Connection) -> Iterator[None]:
        with context.pipelined(connection):
            yield
            connection.connection.cursor().execute("SELECT 1").fetchone()  # the server has all before it, and no Sync
            stand_still()

    # No signal meets a process between two chosen statements; `rel_paused_replica` stops a real one anywhere.
    if where == "in a pipeline":
        monkeypatch.setattr(here._writer, "_commit_context", replace(context, pipelined=pipelined_late))
    else:
        monkeypatch.setattr(here._database, "announce", announce_late)
    ticket = here.write("a", [LedgerRecord("c1", entry("m2", "m1", seq=2))])
    news = asyncio.create_task(here.wait_until_durable(ticket))
    here.announce("something to say")
    await asyncio.to_thread(stands.wait, SOON_S)
    began = time.monotonic()
    await there.wait_until_durable(there.write("a", [LedgerRecord("c1", entry("m3", "m1", seq=3))]))
    waited = time.monotonic() - began
    goes_on.set()
    await asyncio.gather(news, return_exceptions=True)  # whoever waited for it may have been told that it is late

    assert waited < 2.0 * slowness()
    caches = ConversationCache(there)
    async with asyncio.timeout(SOON_S):
        while "m2" not in (await cached(caches)).ledger.entries:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert {"m1", "m2", "m3"} <= set((await cached(caches)).ledger.entries)


async def test_only_what_is_new_is_read(opening: Opening) -> None:
    """Of a conversation that two processes continue in turns, each reads what the other wrote and no more."""
    here, there = await opening(), await opening()
    caches = ConversationCache(here), ConversationCache(there)
    await here.wait_until_durable(here.write("a", opened("c1", entry("m1"))))
    for cache in caches:
        await cached(cache)
    known = (await cached(caches[1])).ledger.read_upto
    for number in range(2, 8):
        turn = caches[number % 2]
        held = await cached(turn)
        turn.record(held, [entry(f"m{number}", f"m{number - 1}", seq=number)])
        await turn.wait_until_durable(held)

    changes = (await there.changes("a", {"c1": known}))["c1"]
    assert changes is not None
    assert [value.id for value in changes.values if hasattr(value, "id")] == [f"m{n}" for n in range(2, 8)]
    assert set((await cached(caches[0])).ledger.entries) == {f"m{n}" for n in range(1, 8)}
    upto = (await cached(caches[0])).ledger.read_upto
    assert await here.changes("a", {"c1": upto}) == {}


async def test_own_writes_are_not_read_again(opening: Opening) -> None:
    store = await opening()
    cache = ConversationCache(store)
    await store.wait_until_durable(store.write("a", opened("c1", entry("m1"))))
    held = await cached(cache)
    before = held.ledger.read_upto
    cache.record(held, [entry("m2", "m1", seq=2)])
    await cache.wait_until_durable(held)

    changes = (await store.changes("a", {"c1": before}))["c1"]

    assert changes is not None
    assert changes.values == ()
    assert changes.upto > before


async def test_of_two_decisions_about_one_frame_the_first_holds_everywhere(opening: Opening) -> None:
    here, there = await opening(), await opening()
    ours, theirs = ConversationCache(here), ConversationCache(there)
    await here.wait_until_durable(here.write("a", opened("c1", entry("m1"))))
    first, second = await cached(ours), await cached(theirs)
    ours.record(first, [decided("c1", b"first").value])
    await ours.wait_until_durable(first)
    theirs.record(second, [decided("c1", b"second").value])
    await theirs.wait_until_durable(second)

    events = [(await cached(cache)).ledger.events["m1"] for cache in (ours, theirs)]

    assert [[event.data for event in held] for held in events] == [[b"first"], [b"first"]]


@pytest.mark.rows("X-55")
async def test_answers_of_two_processes_to_one_request_are_two_turns_everywhere(opening: Opening) -> None:
    """A client asked again at another process, and the first one, which stood still, stores its answer later."""
    here, there = await opening(), await opening()
    caches = ConversationCache(here), ConversationCache(there)
    await here.wait_until_durable(here.write("a", opened("c1", entry("m1"))))
    held = [await cached(cache) for cache in caches]
    turns = [each.next_turn_id("m1") for each in held]
    for cache, each, turn, text in zip(caches, held, turns, ("late", "heard"), strict=True):
        spoken = Round(turn, 1, ModelResponse(said(text, "assistant")), last=True)
        cache.record(each, [Entry(turn, "m1", 2, EntryKind.TURN, "t1"), spoken])
    await caches[1].wait_until_durable(held[1])
    await caches[0].wait_until_durable(held[0])

    for cache in caches:
        ledger = (await cached(cache)).ledger
        assert [ledger.rounds[turn][0].spoken.message.text for turn in turns] == ["late", "heard"]


async def test_what_another_process_deleted_is_gone_here_too(opening: Opening) -> None:
    here, there = await opening(), await opening()
    cache = ConversationCache(here)
    await here.wait_until_durable(here.write("a", opened("c1", entry("m1"))))
    await cached(cache)
    await there.delete_conversations("a", "c1")

    assert await cache.get("a", "c1") is None


async def test_writers_of_one_tenant_take_turns_and_lose_nothing(opening: Opening) -> None:
    """Many conversations with the same messages at once: no deadlock, and no blob lost to a deletion beside it."""
    stores = await asyncio.gather(*(opening() for _ in range(3)))

    async def works(store: SqlStore, number: int) -> None:
        for at in range(15):
            name = f"c{number}-{at}"
            await store.wait_until_durable(store.write("a", opened(name, entry("m1", text="the same words " * 40))))
            if at % 3 == 0:
                await store.delete_conversations("a", name)

    await asyncio.gather(*(works(store, number) for number, store in enumerate(stores)))

    left = await stores[0].conversations("a", 100)
    assert len(left) == 30
    for conversation in left:
        ledger = await stores[1].load("a", conversation.id)
        assert ledger is not None
        assert len(ledger.entries) == 1
    assert [store.health().dropped for store in stores] == [0, 0, 0]


# ------------------------------------------------------------------------------------------------------ the server away
async def test_a_server_that_was_restarted_is_used_again(opening: Opening, postgres: PostgresServer) -> None:
    store = await opening()
    await store.wait_until_durable(store.write("a", opened("c1", entry("m1"))))
    postgres.stop(signal.SIGKILL)
    postgres.start()

    assert await store.load("a", "c1") is not None


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
async def test_what_is_written_first_after_a_restart_of_the_server_is_kept(
    opening: Opening, postgres: PostgresServer, how: signal.Signals
) -> None:
    store = await opening()
    await store.wait_until_durable(store.write("a", opened("c1", entry("m1"))))
    postgres.stop(how)
    postgres.start()

    await store.wait_until_durable(store.write("a", [LedgerRecord("c1", entry("m2", "m1", seq=1))]))
    ledger = await store.load("a", "c1")
    assert ledger is not None
    assert set(ledger.entries) == {"m1", "m2"}
    assert store.write_error() is None


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
async def test_a_server_that_is_away_is_named_and_comes_back_by_itself(
    opening: Opening, postgres: PostgresServer, how: signal.Signals
) -> None:
    store = await opening()
    await store.wait_until_durable(store.write("a", opened("c1", entry("m1"))))
    postgres.stop(how)
    try:
        begun = time.monotonic()
        assert await failure(store.wait_until_durable(store.write("a", opened("c2")))) == "store_unreachable"
        assert await failure(store.load("a", "c1")) == "store_unreachable"
        assert time.monotonic() - begun < SOON_S
    finally:
        postgres.start()
    until = time.monotonic() + SOON_S
    while await _refuses(store):
        assert time.monotonic() < until, "it did not come back"
        await asyncio.sleep(0.05)
    ledger = await store.load("a", "c1")
    assert ledger is not None
    assert set(ledger.entries) == {"m1"}


async def test_a_read_that_ends_while_the_store_closes_leaves_no_connection(
    opening: Opening, postgres: PostgresServer, url: str
) -> None:
    store = await opening()
    database = store._database

    def closing_as_it_is_given_back(connection: Connection) -> None:
        event.listen(connection.engine, "reset", lambda *_: database.close(), once=True)

    await store._read(closing_as_it_is_given_back)

    until = time.monotonic() + SOON_S
    ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'callstack' AND datname = '{}'"
    while postgres.run(ours.format(make_url(url).database)) != [(0,)]:
        assert time.monotonic() < until, "a connection stayed open"
        await asyncio.sleep(0.05)


async def test_an_error_among_statements_that_do_not_wait_is_raised_and_undoes_the_transaction(url: str) -> None:
    database = PostgresDatabase(url)
    connection = database.write_connection

    def write(settings: str) -> None:
        with connection.begin(), database.pipelined(connection):
            for name in settings:
                connection.exec_driver_sql(f"INSERT INTO settings VALUES ('a', '{name}', 'null', 1)")

    write("ab")
    with pytest.raises(IntegrityError):
        write("cad")
    write("e")

    with connection.begin():
        names = connection.exec_driver_sql("SELECT name FROM settings ORDER BY name").scalars().all()
    assert names == ["a", "b", "e"]
    database.close()


async def test_a_server_that_goes_away_among_statements_that_do_not_wait_is_named(
    url: str, postgres: PostgresServer
) -> None:
    database = PostgresDatabase(url)
    connection = database.write_connection

    def write() -> None:
        with connection.begin(), database.pipelined(connection):
            connection.exec_driver_sql("INSERT INTO settings VALUES ('a', 'a', 'null', 1)")
            postgres.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'callstack'")
            connection.exec_driver_sql("INSERT INTO settings VALUES ('a', 'b', 'null', 1)")

    with pytest.raises(OperationalError) as caught:
        write()

    assert caught.value.connection_invalidated
    assert as_store_error(caught.value).code == "store_unreachable"
    database.close()


async def _refuses(store: SqlStore) -> bool:
    try:
        await store.wait_until_durable(store.write("a", opened("c3")))
    except StoreError:
        return True
    return False


async def test_no_server_is_an_error_with_its_place_and_without_its_password(tmp_path: Path) -> None:
    store = open_store("postgresql://someone:geheim@127.0.0.1:1/callstack", tmp_path)
    try:
        with pytest.raises(StoreError, match="cannot be reached") as refused:
            await store.start()
    finally:
        await store.close()

    assert refused.value.code == "store_unreachable"
    assert "geheim" not in str(refused.value) + store.health().where
    assert "127.0.0.1:1/callstack" in store.health().where


async def test_a_database_of_another_program_is_left_alone(
    url: str, postgres: PostgresServer, opening: Opening
) -> None:
    postgres.run("CREATE TABLE customers (name text)", url)

    with pytest.raises(StoreError, match="something else"):
        await opening()

    assert postgres.run("SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'", url) == [(1,)]


def test_a_url_that_is_none_says_its_form() -> None:
    with pytest.raises(InvalidConfiguration, match="postgresql://user:password@host"):
        PostgresDatabase("postgresql://host:port/name")


def test_the_configuration_shows_where_it_is_without_credentials(tmp_path: Path) -> None:
    config = load_config(
        {"data": str(tmp_path), "store": "postgresql://me:geheim@db.example:5433/stack?sslmode=require"}
    )

    assert config.store_place == "postgresql://db.example:5433/stack"
    assert config.is_store_shared


# --------------------------------------------------------------------------------------------------------------- moving
async def test_a_store_moves_to_the_server_and_back(url: str, tmp_path: Path) -> None:
    old = open_store("sqlite", tmp_path)
    await old.start()
    await old.wait_until_durable(old.write("a", opened("c1", entry("m1", text="with \x00 in it"))))
    secret, before = await old.secret(), await old.load("a", "c1")
    await old.close()

    there = copy_store("sqlite", url, tmp_path)
    back = copy_store(url, f"sqlite:{tmp_path}/back.db", tmp_path)
    new = open_store(f"sqlite:{tmp_path}/back.db", tmp_path)
    await new.start()

    assert (there.conversations, back.rows) == (1, there.rows)
    assert await new.load("a", "c1") == before
    assert await new.secret() == secret
    await new.close()


async def test_a_store_that_holds_something_is_not_overwritten(url: str, tmp_path: Path, opening: Opening) -> None:
    store = await opening()
    await store.wait_until_durable(store.write("a", opened("c1", entry("m1"))))
    old = open_store("sqlite", tmp_path)
    await old.start()
    await old.close()

    with pytest.raises(BadRequest, match="conversations already"):
        copy_store("sqlite", url, tmp_path)

    assert await store.load("a", "c1") is not None
