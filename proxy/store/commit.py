"""A group of batches as one transaction.

Two laws. **Nothing is written for a conversation that is not in the store**: it was forgotten, or lost with a file
that is gone, and must not come back in pieces; such a batch is refused as a whole, the others of the group go on. Of a
request that was answered meanwhile the receipt stays, for it was paid, and nothing that was said. And **the first
writer wins** for all that is a fact (entries, finished rounds, events, blobs), the newest for what is a state
(conversations, threads, drafts of rounds, requests, bodies sent).

What it does not do: it knows no thread, no retry and no circuit; errors of the database pass through.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace
from sqlalchemy import Connection, Table

from proxy.core.ledger.ledger import Conversation, Entry, Event, Round, Thread, Value
from proxy.core.ledger.messages import Message
from proxy.core.ledger.queued_messages import Queued
from proxy.errors import StoreError
from proxy.store import Anchored, Body, Owned, Record, RequestRecord, SentRecord, SettingRecord, rows, schema
from proxy.store.statements import Driver, Statements, driver_of
from proxy.store.tasks_view import News, Tasks

Owner = tuple[str, str]
"""Tenant and conversation."""
Place = tuple[str, str, str, int]
"""Of a round: tenant, conversation, turn and number."""
RECORD_BYTES = 200
"""What a record takes in memory beside what is said in it, about."""


class Batch(msgspec.Struct, frozen=True):
    """What one `write` handed over."""

    ticket: int
    tenant: str
    records: tuple[Record, ...]
    size: int = 0

    @property
    def is_receipt(self) -> bool:
        """What was sent for a request, and what it cost, and nothing else: no line depends on it."""
        return all(isinstance(record, RequestRecord | SentRecord) for record in self.records)


# -------------------------------------------------------------------------------------------------------------- group
@dataclass(slots=True)
class Committed:
    """What became of a group: the tickets that were refused, how many conversations are new, and the bytes of what was
    said in it, once where many records say the same."""

    refused: dict[int, StoreError] = field(default_factory=dict)
    conversations: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Ongoing:
    """What goes on from group to group. `place` numbers the rows. `drafted` are the rounds of which a draft was written
    so far: most end before there is one, and have nothing to take away. `tasks` follows what is written; whoever
    catches an error of `commit` has it forget."""

    place: Callable[[], int]
    drafted: dict[Place, None]
    tasks: Tasks


def commit(
    connection: Connection,
    statements: Statements,
    batches: Sequence[Batch],
    going: Ongoing,
) -> Committed:
    """Write `batches` in order, in one transaction."""
    done = Committed()
    with connection.begin():
        driver = driver_of(connection)
        owners = [owners_of(batch) for batch in batches]
        asked = [asked_in(batch) for batch in batches]
        known = _known(driver, statements, set().union(*owners, *asked))
        gathered = _Gathered(going.place, going.drafted)
        news: dict[Owner, News] = defaultdict(News)
        for batch, its_owners, its_asked in zip(batches, owners, asked, strict=True):
            if missing := gathered.missing(batch, its_owners, known):
                done.refused[batch.ticket] = StoreError(f"conversation {min(missing)} is not in the store any more")
            else:
                if forgotten := gathered.missing(batch, its_asked, known):
                    batch = replace(batch, records=without_bodies(batch.records, forgotten))
                gathered.take(batch)
                _tell(news, batch)
        for owner in gathered.made - known:
            news[owner].opened = True
        done.conversations = len(gathered.made - known)
        _write_bodies(driver, statements, gathered)
        done.bytes = sum(len(blob["data"]) for blob in gathered.rows[schema.blobs])
        for table, values in gathered.rows.items():
            statements.inserts[table].run(driver, values)
        statements.drafts.run(driver, gathered.drafts)
        for tenant, digests in gathered.finished.items():
            for taken_away in statements.finished:
                taken_away.run(driver, tenant, digests)
        statements.newest.run(driver, gathered.newest_rows())
        told = ({**row, "written": going.place()} for row in going.tasks.after(connection, news))
        statements.inserts[schema.task_rows].run(driver, told)
    return done


def owner_of(tenant: str, record: Record) -> Owner | None:
    """The conversation that `record` is a part of. Requests stand for themselves."""
    match record:
        case Owned() | Anchored():
            return tenant, record.conversation
        case _:
            return None


def owners_of(batch: Batch) -> set[Owner]:
    """Every conversation the batch writes to, new ones included."""
    owners: set[Owner] = set()
    for record in batch.records:
        match record:
            case Owned() | Anchored():
                owners.add((batch.tenant, record.conversation))
            case Conversation():
                owners.add((batch.tenant, record.id))
            case RequestRecord() | SentRecord() | SettingRecord():
                pass
    return owners


def asked_in(batch: Batch) -> set[Owner]:
    """The conversations that requests in the batch were answered in."""
    return {(batch.tenant, r.conversation) for r in batch.records if isinstance(r, RequestRecord) and r.conversation}


def without_bodies(records: Sequence[Record], forgotten: Set[str]) -> tuple[Record, ...]:
    """`records` as they are kept where these conversations are not there: nobody who asks for one of them to be
    forgotten would ever be rid of what a body holds of it."""
    bare = {r.id for r in records if isinstance(r, RequestRecord) and r.conversation in forgotten}
    kept = (r for r in records if not (isinstance(r, SentRecord) and r.request in bare))
    return tuple(replace(r, body=()) if isinstance(r, RequestRecord) and r.id in bare else r for r in kept)


def weight(record: Record) -> int:
    """About how many bytes of memory `record` holds on to."""
    if isinstance(record, Owned):
        return RECORD_BYTES + _held(record.value)
    if isinstance(record, RequestRecord):
        return RECORD_BYTES + len(record.receipt) + sum(map(len, record.body))
    if isinstance(record, SentRecord):
        return RECORD_BYTES + sum(map(len, record.body))
    return RECORD_BYTES + (len(record.value) if isinstance(record, SettingRecord) else 0)


def _held(value: Value) -> int:
    """Bytes of what people and models said in it."""
    if isinstance(value, Entry):
        return _size(value.message) if value.message else 0
    if isinstance(value, Round):
        spoken = _size(value.spoken.message) + sum(map(len, value.spoken.extra.values()))
        return spoken + sum(map(_size, value.results))
    if isinstance(value, Event):
        return len(value.data)
    return len(value.text) if isinstance(value, Queued) else 0


def _size(message: Message) -> int:
    return len(message.wire) + len(message.text)


def _known(driver: Driver, statements: Statements, owners: Iterable[Owner]) -> set[Owner]:
    """Which of these conversations are in the store."""
    asked: dict[str, set[str]] = defaultdict(set)
    for tenant, conversation in owners:
        asked[tenant].add(conversation)
    found: set[Owner] = set()
    for tenant, ids in asked.items():
        spelled = {rows.words(i): i for i in ids}
        there = statements.conversations.found(driver, rows.words(tenant), spelled)
        found.update((tenant, spelled[i]) for i in there)
    return found


def _tell(news: dict[Owner, News], batch: Batch) -> None:
    """What `batch` has for those who follow the frames."""
    for record in batch.records:
        if isinstance(record, Owned):
            match record.value:
                case Entry() as entry:
                    news[batch.tenant, record.conversation].entries.append(entry)
                case Event() as event:
                    news[batch.tenant, record.conversation].events.append(event)
                case Round() | Thread() | Queued():
                    pass


class _Gathered:
    """The rows of a group by table, in order; blobs and bodies once."""

    def __init__(self, place: Callable[[], int], drafted: dict[Place, None]) -> None:
        self.rows: dict[Table, list[rows.Values]] = defaultdict(list)
        self.newest: dict[Owner, int] = {}
        self.pages: dict[tuple[str, bytes], rows.Page] = {}
        self._place = place
        self._drafted = drafted
        self.made: set[Owner] = set()
        self.drafts: list[rows.Values] = []
        self.finished: dict[str, list[bytes]] = defaultdict(list)
        self._blobs: set[tuple[str, bytes]] = set()
        self._holds: set[tuple[str, str, bytes]] = set()

    def missing(self, batch: Batch, owners: set[Owner], known: set[Owner]) -> set[str]:
        """The conversations among `owners`, which `batch` is about, that nobody made."""
        if owners <= known:
            return set()
        made = {(batch.tenant, r.id) for r in batch.records if isinstance(r, Conversation)}
        return {conversation for _, conversation in owners - known - self.made - made}

    def take(self, batch: Batch) -> None:
        tenant = rows.words(batch.tenant)
        for record in batch.records:
            match record:
                case Conversation():
                    self.made.add((batch.tenant, record.id))
                    self.rows[schema.conversations].append({"tenant": tenant, **rows.conversation_row(record)})
                case Owned():
                    conversation = rows.words(record.conversation)
                    self._owned(tenant, conversation, record.value)
                    self._aged(tenant, conversation, getattr(record.value, "created", 0))
                case Anchored():
                    self._anchored(tenant, record)
                case RequestRecord():
                    body = self._body(tenant, f"r:{rows.words(record.id)}", record.body)
                    self.rows[schema.requests].append({"tenant": tenant, **rows.request_row(record, body)})
                    self._aged(tenant, rows.words(record.conversation), record.created)
                case SentRecord():
                    body = self._body(tenant, f"r:{rows.words(record.request)}", record.body)
                    self.rows[schema.sent].append({"tenant": tenant, **rows.sent_row(record, body)})
                case SettingRecord():
                    self.rows[schema.settings].append({"tenant": tenant, **rows.setting_row(record)})

    def newest_rows(self) -> list[rows.Values]:
        return [{"of_tenant": t, "of_id": c, "is_newest": newest} for (t, c), newest in self.newest.items()]

    def blob(self, tenant: str, holder: str, digest: bytes, data: bytes) -> None:
        if (tenant, digest) not in self._blobs:
            self._blobs.add((tenant, digest))
            self.rows[schema.blobs].append({"tenant": tenant, "digest": digest, "data": data})
        self.hold(tenant, holder, digest)

    def hold(self, tenant: str, holder: str, digest: bytes) -> None:
        if (tenant, holder, digest) not in self._holds:
            self._holds.add((tenant, holder, digest))
            self.rows[schema.holds].append({"tenant": tenant, "holder": holder, "digest": digest})

    def _owned(self, tenant: str, conversation: str, value: Value) -> None:
        at = {"tenant": tenant, "conversation": conversation, "place": self._place()}
        match value:
            case Entry():
                self.rows[schema.entries].append(at | rows.entry_row(value))
                if value.message is not None:
                    self._message(at, value.id, (rows.OF_ENTRY, 0), value.message)
            case Round():
                self.rows[schema.rounds].append(at | rows.round_row(value))
                self._spoken(at, value)
            case Event():
                self.rows[schema.events].append(at | rows.event_row(value))
            case Thread():
                self.rows[schema.threads].append(at | rows.thread_row(value))
            case Queued():
                self.rows[schema.queued].append(at | rows.queued_row(value))

    def _spoken(self, at: rows.Values, done: Round) -> None:
        """The messages of a round. A draft takes the room of the one before it and is gone when the round ended."""
        tenant, conversation = at["tenant"], at["conversation"]
        place = (tenant, conversation, done.turn, done.number)
        if done.spoken.complete:
            if place in self._drafted:
                self.finished[tenant].append(rows.draft_digest(*place[1:]))
            self._message(at, done.turn, (done.number, 0), done.spoken.message)
        else:
            draft = rows.draft_digest(*place[1:])
            self._drafted[place] = None
            self.drafts.append({"tenant": tenant, "digest": draft, "data": done.spoken.message.wire})
            self.hold(tenant, f"c:{conversation}", draft)
            self._row(at, done.turn, (done.number, 0), rows.message_row(done.spoken.message, draft), final=False)
        for position, message in enumerate(done.results, 1):
            self._message(at, done.turn, (done.number, position), message, final=done.spoken.complete)

    def _message(
        self, at: rows.Values, entry: str, where: tuple[int, int], message: Message, *, final: bool = True
    ) -> None:
        digest = rows.digest_of(message.wire)
        self.blob(at["tenant"], f"c:{at['conversation']}", digest, message.wire)
        self._row(at, entry, where, rows.message_row(message, digest), final=final)

    def _row(self, at: rows.Values, entry: str, where: tuple[int, int], said: rows.Values, *, final: bool) -> None:
        row = {
            **said,
            "tenant": at["tenant"],
            "conversation": at["conversation"],
            "entry": rows.words(entry),
            "round": where[0],
            "position": where[1],
            "final": int(final),
        }
        self.rows[schema.messages].append(row)

    def _anchored(self, tenant: str, record: Anchored) -> None:
        at = {"tenant": tenant, "hint": rows.words(record.hint), "conversation": rows.words(record.conversation)}
        for key in record.keys:
            self.rows[schema.anchors].append({**at, "key": rows.words(key), "created": record.created})
        self._aged(tenant, at["conversation"], record.created)

    def _body(self, tenant: str, holder: str, body: Body) -> bytes:
        made = rows.pages(body)
        for page in made:
            self.pages[tenant, page.digest] = page
            self.hold(tenant, holder, page.digest)
        return rows.page_list(made)

    def _aged(self, tenant: str, conversation: str, created: int) -> None:
        owner = (tenant, conversation)
        if created >= self.newest.get(owner, 0):
            self.newest[owner] = created


def _write_bodies(driver: Driver, statements: Statements, gathered: _Gathered) -> None:
    """Add the rows of the pages that are new. What a known page names is known too: both went in together."""
    asked: dict[str, list[bytes]] = defaultdict(list)
    for tenant, digest in gathered.pages:
        asked[tenant].append(digest)
    known: set[tuple[str, bytes]] = set()
    for tenant, digests in asked.items():
        known.update((tenant, bytes(digest)) for digest in statements.blobs.found(driver, tenant, digests))
    for (tenant, digest), page in gathered.pages.items():
        if (tenant, digest) in known:
            continue
        holder = f"p:{digest.hex()}"
        gathered.rows[schema.blobs].append({"tenant": tenant, "digest": digest, "data": page.data})
        for piece, data in page.pieces.items():
            gathered.blob(tenant, holder, piece, data)
