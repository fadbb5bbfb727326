"""Writes a group of batches as one transaction.

A batch for a conversation that is not in the store is refused as a whole, so that a deleted conversation does not come
back in pieces; only receipts are kept. The first writer wins for facts (entries, finished rounds, events, blobs), the
newest for states. Database errors pass through.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace
from sqlalchemy import Connection, Table

from proxy.core.ledger import Conversation, Entry, LedgerEvent, LedgerItem, Message, QueuedMessage, Round, Thread
from proxy.errors import StoreError
from proxy.store import rows, schema
from proxy.store.interface import (
    AnchorRecord,
    Body,
    LedgerRecord,
    Record,
    RequestRecord,
    ReservationEnd,
    SentRecord,
    SettingRecord,
    Settlement,
    UsageRecord,
    WrittenRows,
)
from proxy.store.statements import Driver, Statements, driver_of
from proxy.store.tasks_view import ConversationChanges, TaskRowUpdater

ConversationKey = tuple[str, str]
RoundKey = tuple[str, str, str, int]
RECORD_OVERHEAD_BYTES = 200
"""Memory of a record beside its text, roughly."""


class Batch(msgspec.Struct, frozen=True):
    """The records of one `write`."""

    ticket: int
    tenant: str
    records: tuple[Record, ...]
    size: int = 0

    @property
    def is_receipt(self) -> bool:
        """Whether it holds only request records, sent bodies, usage and ends of reservations, on which no context
        depends."""
        return all(
            isinstance(record, RequestRecord | SentRecord | UsageRecord | ReservationEnd | Settlement)
            for record in self.records
        )


# -------------------------------------------------------------------------------------------------------------- group
@dataclass(slots=True)
class CommitResult:
    """Refused tickets, the number of new conversations, the bytes of text written, shared text counted once, and the
    written rows of each conversation."""

    refused: dict[int, StoreError] = field(default_factory=dict)
    new_conversations: int = 0
    bytes: int = 0
    written: dict[ConversationKey, WrittenRows] = field(default_factory=dict)


class RowNumbers:
    """Numbers of rows in writing order, across restarts and processes: ns since the epoch, or one more than the
    last."""

    def __init__(self) -> None:
        self._last = 0

    def rise_to(self, number: int) -> None:
        """Number what follows above `number`."""
        self._last = max(self._last, number)

    def next(self) -> int:
        self._last += 1
        return self._last


@dataclass(frozen=True, slots=True)
class CommitContext:
    """State kept between groups. `begin_write` and `pipelined` are the database's, `announce` tells other processes.
    `drafted_rounds` have a stored draft, to be removed; `own_writes` are this process's newest rows by conversation.
    `task_updater` must forget after an error of `commit`."""

    begin_write: Callable[[Connection, Collection[str]], int]
    pipelined: Callable[[Connection], AbstractContextManager[object]]
    announce: Callable[[Connection], None]
    row_numbers: RowNumbers
    drafted_rounds: dict[RoundKey, None]
    own_writes: dict[ConversationKey, WrittenRows]
    task_updater: TaskRowUpdater


def commit(
    connection: Connection,
    statements: Statements,
    batches: Sequence[Batch],
    going: CommitContext,
) -> CommitResult:
    """Write `batches` in order, in one transaction."""
    done = CommitResult()
    with connection.begin():
        going.row_numbers.rise_to(going.begin_write(connection, {batch.tenant for batch in batches}))
        driver = driver_of(connection)
        owners = [conversation_keys_of(batch) for batch in batches]
        answered = [
            {(b.tenant, r.conversation) for r in b.records if isinstance(r, RequestRecord) and r.conversation}
            for b in batches
        ]
        known = _existing_conversations(driver, statements, set().union(*owners, *answered))
        going.row_numbers.rise_to(max(known.values(), default=0))
        gathered = _RowsByTable(going.row_numbers, going.drafted_rounds)
        news: dict[ConversationKey, ConversationChanges] = defaultdict(ConversationChanges)
        for batch, its_owners, its_asked in zip(batches, owners, answered, strict=True):
            if missing := gathered.missing_conversations(batch, its_owners, known.keys()):
                done.refused[batch.ticket] = StoreError(f"conversation {min(missing)} is not in the store any more")
            else:
                if forgotten := gathered.missing_conversations(batch, its_asked, known.keys()):
                    batch = replace(batch, records=without_bodies(batch.records, forgotten))
                gathered.add_batch(batch)
                _collect_changes(news, batch)
        for owner in gathered.created_conversations - known.keys():
            news[owner].is_new = True
        done.new_conversations = len(gathered.created_conversations - known.keys())
        for owner, upto in gathered.last_row_numbers.items():
            done.written[owner] = WrittenRows(known.get(owner, 0), upto)
            if owner in going.own_writes and going.own_writes[owner].upto != done.written[owner].after:
                going.task_updater.forget_conversation(owner)  # another process wrote to it
        _write_bodies(driver, statements, gathered)
        _settle(driver, statements, gathered)
        done.bytes = sum(len(blob["data"]) for blob in gathered.rows[schema.blobs])
        with going.pipelined(connection):
            for table, values in gathered.rows.items():
                statements.inserts[table].run(driver, values)
            statements.draft_upsert.run(driver, gathered.drafts)
            for tenant, digests in gathered.finished_drafts.items():
                for taken_away in statements.draft_deletions:
                    taken_away.run(driver, tenant, digests)
            statements.newest_update.run(driver, gathered.newest_rows())
            for tenant, ended in gathered.ended_reservations.items():
                statements.reservation_deletion.run(driver, tenant, ended)
            told = (
                {**row, "written": going.row_numbers.next()}
                for row in going.task_updater.changed_rows(connection, news)
            )
            statements.inserts[schema.task_rows].run(driver, told)
            going.announce(connection)
    return done


def conversation_key_of(tenant: str, record: Record) -> ConversationKey | None:
    match record:
        case LedgerRecord() | AnchorRecord():
            return tenant, record.conversation
        case _:
            return None


def conversation_keys_of(batch: Batch) -> set[ConversationKey]:
    owners: set[ConversationKey] = set()
    for record in batch.records:
        match record:
            case LedgerRecord() | AnchorRecord():
                owners.add((batch.tenant, record.conversation))
            case Conversation():
                owners.add((batch.tenant, record.id))
            case RequestRecord() | SentRecord() | SettingRecord() | UsageRecord() | ReservationEnd() | Settlement():
                pass
    return owners


def without_bodies(records: Sequence[Record], forgotten: Set[str]) -> tuple[Record, ...]:
    """`records` without bodies of missing conversations: deleting a conversation could not remove them."""
    bare = {r.id for r in records if isinstance(r, RequestRecord) and r.conversation in forgotten}
    remaining = (r for r in records if not (isinstance(r, SentRecord) and r.request in bare))
    return tuple(replace(r, body=()) if isinstance(r, RequestRecord) and r.id in bare else r for r in remaining)


def memory_size_of(record: Record) -> int:
    if isinstance(record, LedgerRecord):
        return RECORD_OVERHEAD_BYTES + _value_size(record.value)
    if isinstance(record, RequestRecord):
        return RECORD_OVERHEAD_BYTES + len(record.receipt) + sum(map(len, record.body))
    if isinstance(record, SentRecord):
        return RECORD_OVERHEAD_BYTES + sum(map(len, record.body))
    return RECORD_OVERHEAD_BYTES + (len(record.value) if isinstance(record, SettingRecord) else 0)


def _value_size(value: LedgerItem) -> int:
    """Bytes of text that people and models wrote."""
    if isinstance(value, Entry):
        return _message_size(value.message) if value.message else 0
    if isinstance(value, Round):
        spoken = _message_size(value.spoken.message) + sum(map(len, value.spoken.extra.values()))
        return spoken + sum(map(_message_size, value.results))
    if isinstance(value, LedgerEvent):
        return len(value.data)
    return len(value.text) if isinstance(value, QueuedMessage) else 0


def _message_size(message: Message) -> int:
    return len(message.wire) + len(message.text)


def _existing_conversations(
    driver: Driver, statements: Statements, owners: Iterable[ConversationKey]
) -> dict[ConversationKey, int]:
    """Those in the store, each with the number of its newest ledger row."""
    asked: dict[str, set[str]] = defaultdict(set)
    for tenant, conversation in owners:
        asked[tenant].add(conversation)
    found: dict[ConversationKey, int] = {}
    for tenant, ids in asked.items():
        spelled = {rows.escape_text(i): i for i in ids}
        for name, written in statements.existing_conversations.fetch(driver, rows.escape_text(tenant), spelled):
            found[tenant, spelled[name]] = written
    return found


def _collect_changes(news: dict[ConversationKey, ConversationChanges], batch: Batch) -> None:
    for record in batch.records:
        if isinstance(record, LedgerRecord):
            match record.value:
                case Entry() as entry:
                    news[batch.tenant, record.conversation].entries.append(entry)
                case LedgerEvent() as event:
                    news[batch.tenant, record.conversation].events.append(event)
                case Round() | Thread() | QueuedMessage():
                    pass


class _RowsByTable:
    """Rows of a group by table, in order; blobs and bodies once."""

    def __init__(self, row_numbers: RowNumbers, drafted: dict[RoundKey, None]) -> None:
        self.rows: dict[Table, list[rows.RowValues]] = defaultdict(list)
        self.newest: dict[ConversationKey, int] = {}
        self.pages: dict[tuple[str, bytes], rows.BodyPage] = {}
        self.last_row_numbers: dict[ConversationKey, int] = {}
        self._row_numbers = row_numbers
        self._drafted_rounds = drafted
        self.created_conversations: set[ConversationKey] = set()
        self.drafts: list[rows.RowValues] = []
        self.finished_drafts: dict[str, list[bytes]] = defaultdict(list)
        self.ended_reservations: dict[str, list[str]] = defaultdict(list)
        self.settlements: dict[str, dict[str, UsageRecord]] = defaultdict(dict)
        self._blobs: set[tuple[str, bytes]] = set()
        self._holds: set[tuple[str, str, bytes]] = set()

    def missing_conversations(
        self, batch: Batch, owners: set[ConversationKey], known: Set[ConversationKey]
    ) -> set[str]:
        if owners <= known:
            return set()
        made = {(batch.tenant, r.id) for r in batch.records if isinstance(r, Conversation)}
        return {conversation for _, conversation in owners - known - self.created_conversations - made}

    def add_batch(self, batch: Batch) -> None:
        tenant = rows.escape_text(batch.tenant)
        for record in batch.records:
            match record:
                case Conversation():
                    self.created_conversations.add((batch.tenant, record.id))
                    self.rows[schema.conversations].append({"tenant": tenant, **rows.conversation_row(record)})
                case LedgerRecord():
                    conversation = rows.escape_text(record.conversation)
                    number = self._row_numbers.next()
                    self._add_ledger_value(tenant, conversation, record.value, number)
                    self.last_row_numbers[batch.tenant, record.conversation] = number
                    self._update_newest(batch.tenant, record.conversation, getattr(record.value, "created", 0))
                case AnchorRecord():
                    self._add_anchors(tenant, record)
                    self._update_newest(batch.tenant, record.conversation, record.created)
                case RequestRecord():
                    body = self._add_body(tenant, f"r:{rows.escape_text(record.id)}", record.body)
                    self.rows[schema.requests].append({"tenant": tenant, **rows.request_row(record, body)})
                    self._update_newest(batch.tenant, record.conversation, record.created)
                case SentRecord():
                    body = self._add_body(tenant, f"r:{rows.escape_text(record.request)}", record.body)
                    self.rows[schema.sent].append({"tenant": tenant, **rows.sent_row(record, body)})
                case SettingRecord():
                    self.rows[schema.settings].append({"tenant": tenant, **rows.setting_row(record)})
                case UsageRecord():
                    self.add_usage(tenant, record)
                case Settlement():
                    self.settlements[tenant].setdefault(rows.escape_text(record.setting), record.used)
                case ReservationEnd():
                    self.ended_reservations[tenant].append(record.id)

    def add_usage(self, tenant: str, used: UsageRecord) -> None:
        self.rows[schema.usage_days].append({"tenant": tenant, **msgspec.structs.asdict(used)})

    def newest_rows(self) -> list[rows.RowValues]:
        return [
            {
                "of_tenant": rows.escape_text(owner[0]),
                "of_id": rows.escape_text(owner[1]),
                "is_newest": newest,
                "is_written": self.last_row_numbers.get(owner, 0),
            }
            for owner, newest in sorted(self.newest.items())
        ]

    def add_blob(self, tenant: str, holder: str, digest: bytes, data: bytes) -> None:
        if (tenant, digest) not in self._blobs:
            self._blobs.add((tenant, digest))
            self.rows[schema.blobs].append({"tenant": tenant, "digest": digest, "data": data})
        self.add_hold(tenant, holder, digest)

    def add_hold(self, tenant: str, holder: str, digest: bytes) -> None:
        if (tenant, holder, digest) not in self._holds:
            self._holds.add((tenant, holder, digest))
            self.rows[schema.holds].append({"tenant": tenant, "holder": holder, "digest": digest})

    def _add_ledger_value(self, tenant: str, conversation: str, value: LedgerItem, number: int) -> None:
        at = {"tenant": tenant, "conversation": conversation, "place": number}
        match value:
            case Entry():
                self.rows[schema.entries].append(at | rows.entry_row(value))
                if value.message is not None:
                    self._add_message(at, value.id, (rows.ENTRY_ROUND, 0), value.message)
            case Round():
                self.rows[schema.rounds].append(at | rows.round_row(value))
                self._add_round_messages(at, value)
            case LedgerEvent():
                self.rows[schema.events].append(at | rows.event_row(value))
            case Thread():
                self.rows[schema.threads].append(at | rows.thread_row(value))
            case QueuedMessage():
                self.rows[schema.queued].append(at | rows.queued_row(value))

    def _add_round_messages(self, at: rows.RowValues, done: Round) -> None:
        """A draft replaces the one before it, and goes when the round ends."""
        tenant, conversation = at["tenant"], at["conversation"]
        place = (tenant, conversation, done.turn, done.number)
        if done.spoken.complete:
            if place in self._drafted_rounds:
                self.finished_drafts[tenant].append(rows.draft_digest(*place[1:]))
            self._add_message(at, done.turn, (done.number, 0), done.spoken.message)
        else:
            draft = rows.draft_digest(*place[1:])
            self._drafted_rounds[place] = None
            self.drafts.append({"tenant": tenant, "digest": draft, "data": done.spoken.message.wire})
            self.add_hold(tenant, f"c:{conversation}", draft)
            self._add_message_row(
                at, done.turn, (done.number, 0), rows.message_row(done.spoken.message, draft), final=False
            )
        for position, message in enumerate(done.results, 1):
            self._add_message(at, done.turn, (done.number, position), message, final=done.spoken.complete)

    def _add_message(
        self, at: rows.RowValues, entry: str, where: tuple[int, int], message: Message, *, final: bool = True
    ) -> None:
        digest = rows.digest_of(message.wire)
        self.add_blob(at["tenant"], f"c:{at['conversation']}", digest, message.wire)
        self._add_message_row(at, entry, where, rows.message_row(message, digest), final=final)

    def _add_message_row(
        self, at: rows.RowValues, entry: str, where: tuple[int, int], said: rows.RowValues, *, final: bool
    ) -> None:
        row = {
            **said,
            "tenant": at["tenant"],
            "conversation": at["conversation"],
            "entry": rows.escape_text(entry),
            "round": where[0],
            "position": where[1],
            "final": int(final),
        }
        self.rows[schema.messages].append(row)

    def _add_anchors(self, tenant: str, record: AnchorRecord) -> None:
        at = {
            "tenant": tenant,
            "hint": rows.escape_text(record.hint),
            "conversation": rows.escape_text(record.conversation),
        }
        for key in record.keys:
            self.rows[schema.anchors].append({**at, "key": rows.escape_text(key), "created": record.created})

    def _add_body(self, tenant: str, holder: str, body: Body) -> bytes:
        made = rows.split_into_pages(body)
        for page in made:
            self.pages[tenant, page.digest] = page
            self.add_hold(tenant, holder, page.digest)
        return b"".join(page.digest for page in made)

    def _update_newest(self, tenant: str, conversation: str, created: int) -> None:
        owner = (tenant, conversation)
        if created >= self.newest.get(owner, 0):
            self.newest[owner] = created


def _settle(driver: Driver, statements: Statements, gathered: _RowsByTable) -> None:
    """Remove the settings that are settled, and add what was used by those that were there. Others who would settle
    them wait for the lock of the tenant."""
    for tenant, asked in gathered.settlements.items():
        there = list(statements.existing_settings.first_column(driver, tenant, asked))
        for name in dict.fromkeys(there):
            gathered.add_usage(tenant, asked[name])
        statements.setting_deletion.run(driver, tenant, there)


def _write_bodies(driver: Driver, statements: Statements, gathered: _RowsByTable) -> None:
    """Add the rows of new pages. Pages named by a known page are known too: they were written together."""
    asked: dict[str, list[bytes]] = defaultdict(list)
    for tenant, digest in gathered.pages:
        asked[tenant].append(digest)
    known: set[tuple[str, bytes]] = set()
    for tenant, digests in asked.items():
        known.update(
            (tenant, bytes(digest)) for digest in statements.existing_blobs.first_column(driver, tenant, digests)
        )
    for (tenant, digest), page in gathered.pages.items():
        if (tenant, digest) in known:
            continue
        holder = f"p:{digest.hex()}"
        gathered.rows[schema.blobs].append({"tenant": tenant, "digest": digest, "data": page.data})
        for piece, data in page.pieces.items():
            gathered.add_blob(tenant, holder, piece, data)
