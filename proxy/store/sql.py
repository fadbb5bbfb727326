"""The store over a SQL database: the writer's thread, a pool of readers, and what joins them; and the list of kinds of
stores.

A read sees everything this process queued before it: it waits until the writes it could find are settled, then runs in
a thread on a read-only connection. Reading and writing do not block each other. A new kind of database is one function
and one line in `DATABASE_BY_SCHEME`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from proxy.core.ledger import Conversation, Ledger, Message
from proxy.errors import InvalidConfiguration, StoreError
from proxy.store import delete
from proxy.store import read as reading
from proxy.store.commit import Batch
from proxy.store.database import READERS, SEARCHERS, Database, PostgresDatabase, SqliteFile, replacing_damaged_text
from proxy.store.database_errors import CircuitBreaker, as_store_error, is_damaged_text
from proxy.store.interface import (
    AnchorRecord,
    Changes,
    DeletionResult,
    EmbeddableFrame,
    FrameSearchResult,
    FrameVector,
    Health,
    QueryVector,
    Record,
    RequestRecord,
    SettingRecord,
    Settlement,
    Store,
    StoredRequest,
    UsageRecord,
)
from proxy.store.memory import MemoryStore
from proxy.store.reservations import ReservationTable
from proxy.store.search_index import FrameSearch, frames_to_embed, with_near_frames, write_vectors
from proxy.store.writer import QueueLimits, StoreWriter

log = logging.getLogger(__name__)

ReadResult = TypeVar("ReadResult")

MAX_OPEN_ATTEMPTS = 4
"""Attempts to open while another process creates the same store."""
REOPEN_INTERVAL_S = 0.5
"""Time between attempts to open a store that a failure closed."""
SHRINK_TIMEOUT_S = 5.0
"""How long a deletion tries to remove the last copies from the file and its log before it reports failure."""
MAX_NEWS_BYTES = 7_000
"""Of one announcement; PostgreSQL takes 8,000."""
ORIGIN_CHARACTERS = 16
"""An announcement begins with the name of the process that it comes from."""
LISTEN_PAUSE_S = 1.0
SHRINK_INTERVAL_S = 0.1
"""Time between these attempts, in which others can write."""


class SqlStore:
    """A `Store` over one database. A StoreError of `wait_until_durable` may pass; `loss_count` reports losses."""

    def __init__(
        self, database: Database, *, circuit: CircuitBreaker | None = None, bounds: QueueLimits | None = None
    ) -> None:
        self._database = database
        self._writer = StoreWriter(database, circuit or CircuitBreaker(time.monotonic), bounds or QueueLimits())
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="store-reader")
        self._searchers = ThreadPoolExecutor(SEARCHERS, thread_name_prefix="store-searcher")
        self._frame_search = FrameSearch()
        self._must_shrink = self._must_compact = False
        self._last_reopen = 0.0
        self._damaged_records = 0
        self._origin = secrets.token_hex(ORIGIN_CHARACTERS // 2)
        self._unfinished: set[delete.Deletion] = set()
        """Deletions of which rows are gone, and copies may be left."""

    @property
    def is_shared(self) -> bool:
        return self._database.is_shared

    @property
    def shared_reservations(self) -> ReservationTable | None:
        return ReservationTable(self._read) if self._database.is_shared else None

    async def start(self) -> None:
        """Open, migrate, start the writer, which goes on trying; then finish deletions that a killed process began.
        Raises StoreError if the store cannot be used now."""
        await self._open()
        if self._database.may_set_aside:  # not where a command only looks, beside a proxy that runs
            with suppress(StoreError):
                await self._finish_deletions()

    async def _open(self) -> None:
        ticket = self._writer.start()
        for _ in range(MAX_OPEN_ATTEMPTS - 1):
            try:
                return await self._writer.wait(ticket)
            except StoreError as caught:
                if caught.code != "store_locked":
                    raise
                ticket = self._writer.reopen()
        return await self._writer.wait(ticket)

    async def close(self) -> None:
        await self._writer.close()
        self._readers.shutdown(wait=False)
        self._searchers.shutdown(wait=False)
        await asyncio.to_thread(self._frame_search.forget)

    # --------------------------------------------------------------------------------------------------------- writing
    def write(self, tenant: str, records: Sequence[Record]) -> int:
        return self._writer.enqueue(tenant, records)

    async def wait_until_durable(self, ticket: int) -> None:
        await self._writer.wait(ticket)

    def loss_count(self, tenant: str, conversation: str) -> int:
        return self._writer.loss_count(tenant, conversation)

    # --------------------------------------------------------------------------------------------------------- reading
    async def find_by_anchors(self, tenant: str, hint: str, keys: Sequence[str], limit: int = 8) -> tuple[str, ...]:
        wanted = frozenset(keys)

        def anchors(batch: Batch) -> bool:
            held = (r.keys for r in batch.records if isinstance(r, AnchorRecord) and r.hint == hint)
            return batch.tenant == tenant and not all(map(wanted.isdisjoint, held))

        return await self._read(
            lambda c: reading.find_by_anchors(c, tenant, hint, keys, limit), concerns=anchors, is_one_query=True
        )

    async def is_anchor_of_others(self, tenant: str, key: str) -> bool:
        def tells(batch: Batch) -> bool:
            return batch.tenant != tenant and any(isinstance(r, AnchorRecord) and key in r.keys for r in batch.records)

        return await self._read(
            lambda c: reading.is_anchor_of_others(c, tenant, key), concerns=tells, is_one_query=True
        )

    async def conversations_in_session(self, tenant: str, hint: str, limit: int = 8) -> tuple[str, ...]:
        def opens(batch: Batch) -> bool:
            return batch.tenant == tenant and any(isinstance(r, Conversation) and r.hint == hint for r in batch.records)

        return await self._read(
            lambda c: reading.conversations_in_session(c, tenant, hint, limit), concerns=opens, is_one_query=True
        )

    async def load(self, tenant: str, conversation: str) -> Ledger | None:
        try:
            found = await self._read(lambda c: reading.load(c, tenant, conversation), may_repair=False)
        except StoreError as error:
            self._damaged_records += error.code == StoreError.code
            raise
        self._writer.clear_lost(tenant, conversation)
        return found

    async def first_messages(self, tenant: str, conversation: str, entries: int) -> tuple[Message, ...]:
        return await self._read(lambda c: reading.first_messages(c, tenant, conversation, entries), may_repair=False)

    async def changes(self, tenant: str, known: Mapping[str, int]) -> dict[str, Changes | None]:
        if not self._database.is_shared or not known:
            return {}
        own = partial(self._writer.own_writes, tenant)
        found, behind = await self._read(
            lambda c: reading.changes_without_items(c, tenant, known, own),
            concerns=lambda _: False,
            is_one_query=True,
        )
        if behind:
            rest = {name: known[name] for name in behind}
            found |= await self._read(lambda c: reading.changes(c, tenant, rest), concerns=lambda _: False)
        return found

    def announce(self, news: str) -> None:
        if self._database.is_shared and len(news.encode()) <= MAX_NEWS_BYTES:
            with suppress(StoreError):
                self._writer.announce(self._origin + news)

    async def announcements(self) -> AsyncIterator[str]:
        if not self._database.is_shared:
            return
        heard: asyncio.Queue[str] = asyncio.Queue()
        over, loop = threading.Event(), asyncio.get_running_loop()

        def hear(news: str) -> None:
            if not over.is_set() and not news.startswith(self._origin):
                loop.call_soon_threadsafe(heard.put_nowait, news[ORIGIN_CHARACTERS:])

        threading.Thread(target=self._listen, args=(hear, over), name="store-listener", daemon=True).start()
        try:
            while True:
                yield await heard.get()
        finally:
            over.set()

    def _listen(self, hear: Callable[[str], None], over: threading.Event) -> None:
        """Listens again after every failure, until `over`."""
        while not over.is_set():
            try:
                self._database.listen(hear, over.is_set)
            except Exception as caught:
                log.debug("other processes not heard", extra={"cause": type(caught).__name__})
                over.wait(LISTEN_PAUSE_S)

    async def conversations(
        self, tenant: str | None, limit: int = 100, offset: int = 0, *, awaits_writes: bool = True
    ) -> tuple[Conversation, ...]:
        return await self._read(
            lambda c: reading.conversations(c, tenant, limit, offset),
            concerns=lambda _: awaits_writes,
            is_one_query=True,
        )

    async def recently_active(self, tenant: str | None, limit: int = 1) -> tuple[Conversation, ...]:
        return await self._read(lambda c: reading.recently_active(c, tenant, limit))

    async def newest_record_time(self) -> int:
        return await self._read(reading.newest_record_time)

    async def conversation_with_event(self, tenant: str | None, kind: str, subject: str) -> Conversation | None:
        return await self._read(lambda c: reading.conversation_with_event(c, tenant, kind, subject), is_one_query=True)

    async def conversation_with_entry(self, tenant: str | None, beginning: str) -> Conversation | None:
        return await self._read(lambda c: reading.conversation_with_entry(c, tenant, beginning), is_one_query=True)

    async def search_finished_frames(
        self,
        tenant: str | None,
        query: str,
        limit: int = 10,
        without: Collection[str] = (),
        near: QueryVector | None = None,
    ) -> FrameSearchResult:
        def search(connection: Connection) -> FrameSearchResult:
            found = self._frame_search.search(connection, tenant, query, limit, without)
            return found if near is None else with_near_frames(connection, found, tenant, near, limit, without)

        return await self._read(search, self._searchers)

    async def frames_to_embed(self, after: int, limit: int) -> tuple[EmbeddableFrame, ...]:
        return await self._read(lambda c: frames_to_embed(c, after, limit), self._searchers)

    async def keep_vectors(self, vectors: Sequence[FrameVector]) -> None:
        database = self._database
        await self._run_in_writer(lambda: write_vectors(database.write_connection, database.begin_write, vectors))

    async def requests(
        self, tenant: str | None, conversation: str = "", limit: int = 100, offset: int = 0
    ) -> tuple[RequestRecord, ...]:
        return await self._read(lambda c: reading.requests(c, tenant, conversation, limit, offset))

    async def request(self, tenant: str | None, request: str) -> StoredRequest | None:
        return await self._read(lambda c: reading.request(c, tenant, request))

    async def usage_days(self, tenant: str | None, since: int = 0) -> tuple[tuple[str, UsageRecord], ...]:
        def uses(batch: Batch) -> bool:
            return tenant in (None, batch.tenant) and any(
                isinstance(r, UsageRecord | Settlement) for r in batch.records
            )

        return await self._read(lambda c: reading.usage_days(c, tenant, since), concerns=uses, is_one_query=True)

    async def settings(self, tenant: str) -> tuple[SettingRecord, ...]:
        return await self._read(lambda c: reading.settings(c, tenant), is_one_query=True)

    async def secret(self) -> bytes:
        if not self._database.secret:
            await self._writer.wait(self._writer.reopen())
        return self._database.secret

    # -------------------------------------------------------------------------------------------------------- deleting
    async def delete_conversations(self, tenant: str | None, conversation: str = "", before: int = 0) -> DeletionResult:
        """Overwrites the rows and empties the log. Raises StoreError if a copy may remain; then call it again. If the
        process is killed meanwhile, the next start finishes it."""
        asked = delete.Deletion(tenant, conversation, before)
        conversations = freed = 0
        more = True
        while more:
            some = await self._run_in_writer(partial(self._delete_batch, tenant, conversation, before))
            conversations, freed, more = conversations + some.conversations, freed + some.bytes, some.has_more
        await asyncio.to_thread(self._frame_search.forget)
        if self._must_shrink:
            await self._shrink_until_done()
        if asked in self._unfinished:
            await self._run_in_writer(partial(self._note_as_finished, asked))
        return DeletionResult(conversations, freed)

    def _note_as_finished(self, asked: delete.Deletion) -> None:
        delete.note_as_finished(self._database.write_connection, asked)
        self._database.truncate_log()  # the note named the conversation
        self._unfinished.discard(asked)

    async def _finish_deletions(self) -> None:
        unfinished = await self._read(delete.unfinished_deletions)
        if not unfinished:
            # Where a process was killed behind the end of a deletion, the note that named it is overwritten in the log.
            await self._run_in_writer(self._database.truncate_log)
        for asked in unfinished:
            self._must_shrink = self._must_compact = True
            self._unfinished.add(asked)
            await self.delete_conversations(*asked)

    def _delete_batch(self, tenant: str | None, conversation: str, before: int) -> delete.DeletedBatch:
        some = delete.delete_batch(
            self._database.write_connection, self._database.begin_write, tenant, conversation, before
        )
        self._writer.conversation_count -= some.conversations
        self._writer.record_losses(some.conversation_keys)
        if some.conversations or some.bytes:
            self._must_shrink = self._must_compact = True
            self._unfinished.add(delete.Deletion(tenant, conversation, before))
        set_aside = self._database.forget_set_aside(conversation, before)
        return replace(some, bytes=some.bytes + set_aside)

    async def _shrink_until_done(self) -> None:
        """A busy reader is not a failure of the store, so the circuit breaker does not hear of it."""
        until = time.monotonic() + SHRINK_TIMEOUT_S
        while not await self._run_in_writer(self._try_shrink):
            if time.monotonic() > until:
                raise StoreError(
                    "deleted, but another process is reading the store, so copies may stay in its log until it stops",
                    code="store_locked",
                )
            await asyncio.sleep(SHRINK_INTERVAL_S)

    def _try_shrink(self) -> bool:
        """One attempt. When only the log is left, the file is not compacted again, which would refill the log."""
        if self._must_compact and self._database.compact():
            self._must_compact = False
        self._must_shrink = self._must_compact or not self._database.truncate_log()
        return not self._must_shrink

    # ---------------------------------------------------------------------------------------------------------- health
    def write_error(self) -> StoreError | None:
        """Also reopens a store that a failure closed: after an error callers ask it for nothing else."""
        trouble = self._writer.write_error()
        if trouble is None and not self._database.is_open:
            self._reopen_soon()
            trouble = self._writer.closed_by or StoreError("the store is not open", code="store_unreachable")
        return trouble

    def _reopen_soon(self) -> None:
        now = time.monotonic()
        if now - self._last_reopen >= REOPEN_INTERVAL_S:
            self._last_reopen = now
            with suppress(StoreError):
                self._writer.reopen()

    def health(self) -> Health:
        trouble = self.write_error()
        notes = list(self._database.notes)
        if self._writer.dropped_records:
            notes.append(f"{self._writer.dropped_records} records could not be written since the start")
        return Health(
            ok=trouble is None,
            where=self._database.location,
            reason=trouble.code if trouble else "",
            size_bytes=self._database.size_bytes(),
            conversations=self._writer.conversation_count,
            notes=tuple(notes),
            queued=self._writer.queued_records,
            dropped=self._writer.dropped_records,
            damaged=self._damaged_records,
        )

    # ------------------------------------------------------------------------------------------------------- underneath
    async def _read(
        self,
        read: Callable[[Connection], ReadResult],
        thread: ThreadPoolExecutor | None = None,
        concerns: Callable[[Batch], bool] = lambda _: True,
        *,
        may_repair: bool = True,
        is_one_query: bool = False,
    ) -> ReadResult:
        """What `read` returns. `may_repair`: a damaged text is read with replacement characters, so that a list has all
        its other rows; otherwise it raises StoreError. `is_one_query`: on a server it needs no transaction, which
        would begin and end with round trips of its own."""
        await self._writer.wait_for_pending(concerns)
        run, thread = asyncio.get_running_loop().run_in_executor, thread or self._readers
        read_on = partial(self._with_connection, read=read, may_repair=may_repair, is_one_query=is_one_query)
        engine = await self._open_engine()
        try:
            return await run(thread, read_on, engine)
        except StoreError as error:
            if error.code == "store_corrupt" or self._is_current_engine(engine):
                raise
        engine = await self._open_engine()  # another one closed the store, or set it aside, under this read
        return await run(thread, read_on, engine)

    async def _open_engine(self) -> Engine:
        if not self._database.is_open:
            await self._writer.wait(self._writer.reopen())
        return self._database.read_engine

    def _with_connection(
        self, engine: Engine, read: Callable[[Connection], ReadResult], *, may_repair: bool, is_one_query: bool
    ) -> ReadResult:
        read_on = partial(self._read_on, engine, read, may_repair=may_repair, is_one_query=is_one_query)
        try:
            try:
                return read_on()
            except DBAPIError as caught:
                if not caught.connection_invalidated:
                    raise
                return read_on()  # the server was restarted since the last read
        except Exception as caught:
            error = as_store_error(caught)
            if error.code == "store_corrupt":
                self._writer.enqueue_job(partial(self._report_damage, engine, error))
            raise error from caught

    def _read_on(
        self, engine: Engine, read: Callable[[Connection], ReadResult], *, may_repair: bool, is_one_query: bool
    ) -> ReadResult:
        pool = engine.pool
        try:
            with engine.connect() as connection:
                if is_one_query and self._database.is_shared:
                    connection = connection.execution_options(isolation_level="AUTOCOMMIT")
                found = self._read_repaired(connection, read) if may_repair else read(connection)
                if self._database.is_shared:
                    connection.commit()  # after a rollback, PostgreSQL's driver prepares its statements anew
                return found
        finally:
            if not self._is_current_engine(engine):  # closed meanwhile: nobody else closes what came back since
                pool.dispose()
                engine.dispose()

    def _read_repaired(self, connection: Connection, read: Callable[[Connection], ReadResult]) -> ReadResult:
        try:
            return read(connection)
        except Exception as caught:
            if not is_damaged_text(caught):
                raise
            self._damaged_records += 1
            connection.rollback()
            with replacing_damaged_text(connection):
                return read(connection)

    def _report_damage(self, engine: Engine, error: StoreError) -> None:
        """Have the writer set the file aside after a reader found damage; otherwise reads fail until the next write."""
        if self._is_current_engine(engine):
            raise error

    def _is_current_engine(self, engine: Engine) -> bool:
        try:
            return self._database.read_engine is engine
        except StoreError:  # it is closed
            return False

    async def _run_in_writer(self, work: Callable[[], ReadResult]) -> ReadResult:
        done: list[ReadResult] = []
        await self._writer.wait(self._writer.enqueue_job(lambda: done.append(work())))
        return done[0]


ALLOWED_STORES = "sqlite, sqlite:/a/path.db, postgresql://user@host/name, memory:"
DATABASE_FILE = "callstack.db"


DATABASE_BY_SCHEME: dict[str, Callable[[str, Path, bool], Database]] = {
    "sqlite": lambda rest, data, sets_aside: SqliteFile(
        Path(rest).expanduser() if rest else data / DATABASE_FILE, sets_aside=sets_aside
    ),
    "postgresql": lambda rest, _, sets_aside: PostgresDatabase(f"postgresql:{rest}", may_finish=sets_aside),
}
"""Makes a database from: the rest of the URL, the data directory, and whether a damaged file is set aside."""
MEMORY_SCHEME = "memory"


def open_store(url: str, data: Path, *, sets_aside: bool = True) -> Store:
    """The store that `url` names, not started: `sqlite` (a file in `data`), `sqlite:/a/path.db`, `postgresql://...`, or
    `memory:`. Without `sets_aside` a damaged file stays where it is and cannot be used."""
    if url.partition(":")[0] == MEMORY_SCHEME:
        return MemoryStore()
    return SqlStore(database_at(url, data, sets_aside=sets_aside))


def database_at(url: str, data: Path, *, sets_aside: bool) -> Database:
    scheme, _, rest = url.partition(":")
    if scheme not in DATABASE_BY_SCHEME:
        raise InvalidConfiguration(f"store: {url.split('@')[-1]!r} is not a store; allowed: {ALLOWED_STORES}")
    return DATABASE_BY_SCHEME[scheme](rest, data, sets_aside)
