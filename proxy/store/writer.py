"""The thread that writes queued batches in order, as many as fit in one transaction. On a failure:

    locked       waiters fail after the first attempt (250 ms); the batches are tried again until the circuit opens
    ended        PostgreSQL ended the session in mid-transaction; the batches are tried again once, on another
    other error  the group is dropped and counted, and its waiters fail; for a bad value it is tried batch by batch
    circuit      opens after 5 failures in 30 s, drops the queue and refuses for 10 s; then this thread probes

A conversation that lost a record takes no more until it is loaded again: its cached copy knows more than the disk.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Any

from sqlalchemy import Connection, delete

from proxy.errors import StoreError
from proxy.store import read, schema
from proxy.store.commit import (
    Batch,
    CommitContext,
    CommitResult,
    ConversationKey,
    RoundKey,
    RowNumbers,
    commit,
    conversation_key_of,
    conversation_keys_of,
    memory_size_of,
)
from proxy.store.database import Database
from proxy.store.database_errors import (
    DATABASE_ERRORS,
    CircuitBreaker,
    as_store_error,
    is_damaged_text,
    is_session_ended,
)
from proxy.store.interface import Record, WrittenRows
from proxy.store.pending_writes import PendingWork, ReceiptDelay, Waiter, WriterJob, copy_of_error, notify_waiters
from proxy.store.statements import Statements, statements_for
from proxy.store.tasks_view import TaskRowUpdater

log = logging.getLogger(__name__)

MAX_GROUPING_DELAY_S = 0.1
"""How long a batch that nobody waits for may wait for others. Batches are promised to be on disk within 250 ms."""
MAX_NEWS = 1_000
"""Announcements that wait for a commit; older ones are dropped."""
MAX_REMEMBERED_KEYS = 20_000
"""Failed tickets, conversations with losses and drafted rounds that are remembered. Failed tickets have room for a full
queue on top: a ticket that is not remembered counts as written."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Limits of the queue, and of one transaction."""

    records: int = 100_000
    bytes: int = 256 * 1024 * 1024
    group_records: int = 5_000
    group_bytes: int = 16 * 1024 * 1024


class StoreWriter:
    """Every method except `_run` and what it calls may be called from any thread."""

    def __init__(self, database: Database, circuit: CircuitBreaker, bounds: QueueLimits = QueueLimits()) -> None:
        self._database = database
        self._circuit = circuit
        self._limits = bounds
        self._connection: Connection | None = None
        self._statements: Statements | None = None
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._queue: deque[Batch | WriterJob] = deque()
        self._records = 0
        self._bytes = 0
        self._pending = PendingWork()
        self._receipt_delay = ReceiptDelay(MAX_GROUPING_DELAY_S)
        self._error_by_ticket: dict[int, StoreError] = {}
        self._lost_conversations: dict[ConversationKey, None] = {}
        """Conversations with losses that were not loaded since."""
        self._loss_counts: dict[ConversationKey, int] = {}
        self._waiters: list[Waiter] = []
        self._stall_error: StoreError | None = None
        self.closed_by: StoreError | None = None
        """The failure that closed the store, until it is open again."""
        self._closing = False
        self._drafted_rounds: dict[RoundKey, None] = {}
        self._news: deque[str] = deque(maxlen=MAX_NEWS)
        self._own_writes: dict[ConversationKey, WrittenRows] = {}
        self._commit_context = CommitContext(
            database.begin_write,
            database.pipelined,
            self._announce_on,
            RowNumbers(),
            self._drafted_rounds,
            self._own_writes,
            TaskRowUpdater(),
        )
        self._thread: threading.Thread | None = None
        self.dropped_records = 0
        self.conversation_count = 0

    # ----------------------------------------------------------------------------------------------------- from outside
    def start(self) -> int:
        """Start the thread. Returns a ticket for the opening of the store."""
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()
        return self.reopen()

    def enqueue(self, tenant: str, records: Sequence[Record]) -> int:
        """Queue one transaction and return its ticket. Raises StoreError if the queue is full or writing fails."""
        size = sum(map(memory_size_of, records))
        with self._lock:  # as with `_changed`, which is entered in Python: this is done with every request
            self._refuse_if_closed()
            if self._circuit.is_open:
                raise copy_of_error(self._stall_error or StoreError("the store keeps failing"))
            if self._lost_conversations:
                self._refuse_if_lost(tenant, records)
            too_many = self._records + len(records) > self._limits.records or self._bytes + size > self._limits.bytes
            if too_many and self._queue:
                raise StoreError("too much waits to be written to the store", code="store_busy")
            self._records += len(records)
            self._bytes += size
            ticket = self._append_work(Batch(self._pending.next_ticket, tenant, tuple(records), size))
            if len(self._queue) == 1:
                self._changed.notify()
            return ticket

    def enqueue_job(self, run: Callable[[], None]) -> int:
        """Queue a job for the writer's thread and return its ticket."""
        with self._changed:
            self._refuse_if_closed()
            ticket = self._append_work(WriterJob(self._pending.next_ticket, run))
            self._changed.notify()
            return ticket

    def announce(self, news: str) -> None:
        """Tell other processes of something with the next commit."""
        with self._changed:
            self._news.append(news)
            if not self._queue:
                self.enqueue_job(self._announce)

    def _announce(self) -> None:
        connection, _ = self._ensure_connection()
        with connection.begin(), self._database.pipelined(connection):
            self._announce_on(connection)

    def _announce_on(self, connection: Connection) -> None:
        with self._changed:
            news = list(self._news)
            self._news.clear()
        if news:
            self._database.announce(connection, news)

    def _append_work(self, work: Batch | WriterJob) -> int:
        self._queue.append(work)
        return self._pending.add(work)

    def reopen(self) -> int:
        """Queue the opening of a store that is closed after a failure. Returns a ticket."""
        return self.enqueue_job(self._open)

    async def wait(self, ticket: int) -> None:
        """Return when `ticket` is on disk. Raises StoreError if it will not be, or not soon."""
        await self._wait(ticket, settled_only=False)

    async def wait_for_pending(self, concerns: Callable[[Batch], bool] = lambda _: True) -> None:
        """Wait until all batches that `concerns` selects are written or dropped. Raises StoreError if slow."""
        with self._changed:
            under_way, stalled = self._pending, self._stall_error is not None
            ticket = under_way.newest_ticket if stalled else under_way.newest_ticket_for(concerns)
        await self._wait(ticket, settled_only=True)

    def clear_lost(self, tenant: str, conversation: str) -> None:
        """Allow writing to a conversation again, after it was loaded."""
        with self._changed:
            self._lost_conversations.pop((tenant, conversation), None)

    def loss_count(self, tenant: str, conversation: str) -> int:
        return self._loss_counts.get((tenant, conversation), 0)

    def record_losses(self, owners: Iterable[ConversationKey]) -> None:
        """Count a loss or a deletion of these conversations: cached copies from before must not be written on."""
        with self._changed:
            for owner in owners:
                self._loss_counts[owner] = self._loss_counts.pop(owner, 0) + 1
            _forget_oldest(self._loss_counts)

    def write_error(self) -> StoreError | None:
        return self._stall_error

    @property
    def queued_records(self) -> int:
        return self._records

    async def close(self) -> None:
        """Write what is queued, then stop."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    async def _wait(self, ticket: int, *, settled_only: bool) -> None:
        with self._changed:
            if not settled_only and (error := self._error_by_ticket.get(ticket)):
                raise copy_of_error(error)
            loop = asyncio.get_running_loop()
            waiter = Waiter(ticket, settled_only, loop, loop.create_future())
            if self._pending.is_done_for(waiter):
                return
            if self._stall_error is not None:
                raise copy_of_error(self._stall_error)
            self._waiters.append(waiter)
            self._changed.notify()
        await waiter.future

    def _refuse_if_closed(self) -> None:
        if self._closing or self._thread is None:
            raise StoreError("the store is closed", code="store_unreachable")

    def _refuse_if_lost(self, tenant: str, records: Sequence[Record]) -> None:
        for record in records:
            if conversation_key_of(tenant, record) in self._lost_conversations:
                raise StoreError("records of this conversation were lost; it has to be loaded again")

    # ------------------------------------------------------------------------------------------------------- the thread
    def _run(self) -> None:
        while True:
            work = self._next_group()
            if work is None:
                break
            if not work:
                self._probe()
            elif isinstance(work[0], WriterJob):
                self._run_job(work[0])
            else:
                self._write([batch for batch in work if isinstance(batch, Batch)])
                self._database.checkpoint_if_large(waited_for=bool(self._waiters))
        self._database.close()

    def _next_group(self) -> Sequence[Batch | WriterJob] | None:
        """The next group or job; empty when a probe is due; None at the end."""
        with self._changed:
            while not self._queue:
                if self._closing:
                    return None
                due = self._circuit.seconds_until_probe()
                if due == 0:
                    return []
                self._changed.wait(due)
            self._wait_for_more()
            return self._take_group()

    def _wait_for_more(self) -> None:
        """Wait for more batches while nobody waits: a transaction costs as much as twenty batches (measured)."""
        until = (self._receipt_delay.waiting_since or time.monotonic()) + MAX_GROUPING_DELAY_S
        while (left := until - time.monotonic()) > 0 and not self._must_write_now():
            self._changed.wait(left)

    def _must_write_now(self) -> bool:
        full = self._records > self._limits.group_records or self._bytes > self._limits.group_bytes
        return full or self._closing or bool(self._waiters) or any(isinstance(w, WriterJob) for w in self._queue)

    def _take_group(self) -> Sequence[Batch | WriterJob]:
        """As many batches as fit in one transaction, or one job. Receipts yield to batches that somebody waits for."""
        if isinstance(self._queue[0], WriterJob):
            return [self._queue.popleft()]
        batches = [w for w in takewhile(lambda each: isinstance(each, Batch), self._queue) if isinstance(w, Batch)]
        waited_for = any(not waiter.ignores_failure for waiter in self._waiters)
        may_wait = waited_for and self._receipt_delay.may_delay
        urgent = [batch for batch in batches if not batch.is_receipt] if may_wait else []
        group = self._first_fitting(urgent or batches)
        self._receipt_delay.record_group(time.monotonic(), gave_way=bool(urgent), left=len(group) < len(batches))
        if urgent:
            taken = {batch.ticket for batch in group}
            self._queue = deque(work for work in self._queue if work.ticket not in taken)
        else:
            self._queue = deque(islice(self._queue, len(group), None))
        return group

    def _first_fitting(self, batches: Sequence[Batch]) -> list[Batch]:
        records = size = 0
        for count, batch in enumerate(batches):
            records, size = records + len(batch.records), size + batch.size
            if count and (records > self._limits.group_records or size > self._limits.group_bytes):
                return list(batches[:count])
        return list(batches)

    def _open(self) -> None:
        self._ensure_connection()

    def _ensure_connection(self) -> tuple[Connection, Statements]:
        """The write connection. A new one has its conversations counted again."""
        connection = self._database.write_connection
        if self._statements is None or connection is not self._connection:
            self._statements = statements_for(connection.dialect)
            with self._database.read_engine.connect() as reader:
                self.conversation_count = read.count_conversations(reader)
            self._connection = connection
            self.closed_by = None
        return connection, self._statements

    def _run_job(self, job: WriterJob) -> None:
        try:
            job.run()
        except Exception as caught:
            error = self._handle_failure(caught)
            if self._circuit.is_open:
                self._drop_queue(error)
            self._finish_work([job], {job.ticket: error})
        else:
            self._finish_work([job], {})

    def _write(self, batches: list[Batch]) -> None:
        may_repeat = True
        while True:
            fit, refused = self._split_off_lost(batches)
            try:
                done = self._commit(fit)
            except Exception as caught:
                error = self._handle_failure(caught)
                if error.code == "store_locked" and not self._circuit.is_open:
                    self._stall(error)
                    continue
                if may_repeat and is_session_ended(caught):
                    may_repeat = False
                    continue
                if error.code == "store_failed" and len(batches) > 1:
                    for batch in batches:
                        self._write([batch])
                    return
                self._drop_batches(batches, dict.fromkeys((b.ticket for b in batches), error))
                if self._circuit.is_open:
                    self._drop_queue(error)
                return
            self.conversation_count += done.new_conversations
            self._drop_batches(batches, refused | done.refused)
            return

    def _commit(self, batches: Sequence[Batch]) -> CommitResult:
        connection, statements = self._ensure_connection()
        done = commit(connection, statements, batches, self._commit_context)
        _forget_oldest(self._drafted_rounds)
        self._note_own_writes(done.written)
        self._database.count_log_pages(sum(len(batch.records) for batch in batches), done.bytes)
        return done

    def _note_own_writes(self, written: Mapping[ConversationKey, WrittenRows]) -> None:
        with self._changed:
            for owner, new in written.items():
                before = self._own_writes.pop(owner, None)
                is_next = before is not None and before.upto == new.after
                self._own_writes[owner] = WrittenRows(before.after, new.upto) if before and is_next else new
            _forget_oldest(self._own_writes)

    def own_writes(self, tenant: str, conversation: str) -> WrittenRows | None:
        """The newest ledger rows of this conversation that this process wrote with nobody between."""
        return self._own_writes.get((tenant, conversation))

    def _probe(self) -> None:
        """One small transaction with a real write: an empty one succeeds on a full disk."""
        try:
            connection, _ = self._ensure_connection()
            with connection.begin():
                table = schema.meta
                row = {"tenant": "", "name": "probe", "value": str(time.time_ns()).encode()}
                connection.execute(delete(table).where(table.c.tenant == "", table.c.name == "probe"))
                connection.execute(table.insert(), row)
        except Exception as caught:
            error = self._handle_failure(caught)
            with self._changed:
                self._circuit.record_failure()
                self._stall_error = error
        else:
            with self._changed:
                self._circuit.reset()
                self._stall_error = None

    # --------------------------------------------------------------------------------------------------------- failures
    def _handle_failure(self, caught: Exception) -> StoreError:
        """Count the failure; the next attempt starts clean. A bad value says nothing about the store. On a full disk
        reading goes on, but nothing is accepted until a probe succeeds."""
        self._commit_context.task_updater.forget()
        error = as_store_error(caught)
        log.warning("store write failed", extra={"code": error.code, "cause": type(caught).__name__})
        if not isinstance(caught, (*DATABASE_ERRORS, OSError, StoreError)) or is_damaged_text(caught):
            return error
        with self._changed:
            self._circuit.record_failure()
            if error.code == "store_full":
                self._circuit.trip()
        if error.code == "store_corrupt":
            self.closed_by = error
            self._set_aside()
            if not self._closing:
                self.reopen()
        elif error.code not in {"store_locked", "store_full"}:
            self.closed_by = error
            self._database.close()
        return error

    def _set_aside(self) -> None:
        try:
            self._database.set_aside()
        except Exception as caught:
            log.warning("damaged store could not be set aside", extra={"cause": type(caught).__name__})
            self._database.close()

    def _split_off_lost(self, batches: Sequence[Batch]) -> tuple[list[Batch], dict[int, StoreError]]:
        with self._changed:
            if not self._lost_conversations:
                return list(batches), {}
            refused = {
                b.ticket: StoreError("an earlier record of the same conversation was lost")
                for b in batches
                if any(conversation_key_of(b.tenant, record) in self._lost_conversations for record in b.records)
            }
        return [b for b in batches if b.ticket not in refused], refused

    def _stall(self, error: StoreError) -> None:
        with self._changed:
            self._stall_error = error
            told, self._waiters = self._waiters, []
        notify_waiters([(waiter, error) for waiter in told])

    def _drop_queue(self, error: StoreError) -> None:
        with self._changed:
            self._stall_error = error
            dropped, self._queue = list(self._queue), deque()
        self._drop_batches(dropped, dict.fromkeys((item.ticket for item in dropped), error))

    def _drop_batches(self, batches: Sequence[Batch | WriterJob], failed: dict[int, StoreError]) -> None:
        """Drop the `batches` whose tickets are in `failed`; their conversations have to be loaded again."""
        lost = [b for b in batches if isinstance(b, Batch) and b.ticket in failed]
        with self._changed:
            self.dropped_records += sum(len(batch.records) for batch in lost)
            for batch in lost:
                owners = conversation_keys_of(batch)
                self._lost_conversations.update(dict.fromkeys(owners))
                self.record_losses(owners)
            _forget_oldest(self._lost_conversations)
        self._finish_work(batches, failed)

    def _finish_work(self, items: Sequence[Batch | WriterJob], failed: dict[int, StoreError]) -> None:
        if not items:
            return
        with self._changed:
            self._error_by_ticket |= failed
            for item in items:
                self._pending.remove(item.ticket)
                if isinstance(item, Batch):
                    self._records -= len(item.records)
                    self._bytes -= item.size
            if not self._circuit.is_open:
                self._stall_error = None
            told = [w for w in self._waiters if self._pending.is_done_for(w)]
            self._waiters = [w for w in self._waiters if not self._pending.is_done_for(w)]
            news = [(w, None if w.ignores_failure else self._error_by_ticket.get(w.ticket)) for w in told]
            _forget_oldest(self._error_by_ticket, MAX_REMEMBERED_KEYS + self._limits.records)
        notify_waiters(news)


def _forget_oldest(kept: dict[Any, Any], most: int = MAX_REMEMBERED_KEYS) -> None:
    """In one pass: finding the first key of a dictionary walks over all keys removed before it."""
    for oldest in list(islice(kept, max(0, len(kept) - most))):
        kept.pop(oldest)
