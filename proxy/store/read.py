"""All reads, as functions of a connection, and ledgers rebuilt from their records.

Every query filters by tenant, unless an operator passes None. Each read is one transaction. Where records were lost,
the values that depend on them are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select, Table, and_, bindparam, func, select
from sqlalchemy.engine import Row

from proxy.core.ledger import Conversation, Ledger, LedgerItem, Message, rebuild_ledger
from proxy.errors import StoreError
from proxy.store import rows, schema
from proxy.store.interface import (
    Body,
    Changes,
    RequestRecord,
    SentRecord,
    SettingRecord,
    StoredRequest,
    UsageRecord,
    WrittenRows,
)
from proxy.store.statements import MAX_ANCHORS, QueryBatch, chunks, driver_of, statements_for

LEDGER_TABLES = (schema.entries, schema.rounds, schema.events, schema.threads, schema.queued)
_LAST_CHARACTER = "\U0010ffff"


def find_by_anchors(connection: Connection, tenant: str, hint: str, keys: Sequence[str], limit: int) -> tuple[str, ...]:
    """Usually none of the keys is known, or all are of the same few conversations: one query tells that."""
    escaped_keys = list(dict.fromkeys(map(rows.escape_text, keys)))
    place = rows.escape_text(tenant), rows.escape_text(hint)
    with connection.begin():
        anchors = statements_for(connection.dialect).anchors
        found = list(anchors.fetch(driver_of(connection), place[0], escaped_keys, of_hint=place[1]))
        if len(found) > MAX_ANCHORS:
            return _anchored_conversations(connection, place, escaped_keys, limit)
    anchored: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for key, created, conversation in found:
        anchored[key].append((created, conversation))
    newest_first = (sorted(anchored[key], reverse=True)[:limit] for key in escaped_keys if key in anchored)
    conversations = dict.fromkeys(conversation for group in newest_first for _, conversation in group)
    return tuple(map(rows.unescape_text, list(conversations)[:limit]))


def _anchored_conversations(
    connection: Connection, place: tuple[str, str], keys: Sequence[str], limit: int
) -> tuple[str, ...]:
    """Existing conversations under these keys; `place` is tenant and hint."""
    anchors, conversations = schema.anchors, schema.conversations
    existing = anchors.join(
        conversations,
        and_(conversations.c.tenant == anchors.c.tenant, conversations.c.id == anchors.c.conversation),
    )
    found: dict[str, None] = {}
    of_tenant = select(anchors.c.conversation).select_from(existing).where(anchors.c.tenant == place[0])
    for key in keys:
        query = of_tenant.where(anchors.c.hint == place[1], anchors.c.key == key)
        newest_first = query.order_by(anchors.c.created.desc(), anchors.c.conversation.desc()).limit(limit)
        found.update(dict.fromkeys(connection.execute(newest_first).scalars()))
        if len(found) >= limit:
            break
    return tuple(map(rows.unescape_text, list(found)[:limit]))


def is_anchor_of_others(connection: Connection, tenant: str, key: str) -> bool:
    """Looks under each tenant that has anchors, one found behind the other: no index begins with the key."""
    anchors = schema.anchors
    owners = select(func.min(anchors.c.tenant).label("tenant")).cte("owners", recursive=True)
    behind = select(func.min(anchors.c.tenant)).where(anchors.c.tenant > owners.c.tenant).scalar_subquery()
    owners = owners.union_all(select(behind).where(owners.c.tenant.is_not(None)))
    query = (
        select(anchors.c.tenant)
        .join(owners, owners.c.tenant == anchors.c.tenant)
        .where(
            owners.c.tenant != rows.escape_text(tenant), anchors.c.hint == "", anchors.c.key == rows.escape_text(key)
        )
    )
    return connection.execute(query.limit(1)).first() is not None


def conversations_in_session(connection: Connection, tenant: str, hint: str, limit: int) -> tuple[str, ...]:
    table = schema.conversations
    query = select(table.c.id).where(table.c.tenant == rows.escape_text(tenant), table.c.hint == rows.escape_text(hint))
    newest_first = query.order_by(table.c.created.desc(), table.c.id.desc()).limit(limit)
    return tuple(map(rows.unescape_text, connection.execute(newest_first).scalars()))


def load(connection: Connection, tenant: str, conversation: str) -> Ledger | None:
    owner = (rows.escape_text(tenant), rows.escape_text(conversation))
    found, messages, *of_tables = _WHOLE.fetch(connection, _parameters(owner))
    return _build_ledger(found, of_tables, _messages_by_round(messages))


def load_outline(connection: Connection, tenant: str, conversation: str) -> Ledger | None:
    """A conversation without texts: of every message only the role. Frames can be replayed from it."""
    owner = (rows.escape_text(tenant), rows.escape_text(conversation))
    found, roles, *of_tables = _OUTLINE.fetch(connection, _parameters(owner))
    messages: dict[tuple[str, int], list[Message]] = defaultdict(list)
    for row in roles:
        messages[row.entry, row.round].append(Message(rows.unescape_text(row.role), b"", ""))
    return _build_ledger(found, of_tables, messages)


def first_messages(connection: Connection, tenant: str, conversation: str, entries: int) -> tuple[Message, ...]:
    table, owner = schema.entries, _parameters((rows.escape_text(tenant), rows.escape_text(conversation)))
    first = connection.execute(_of_owner(select(table.c.id), table).order_by(table.c.place).limit(entries), owner)
    ids = list(first.scalars())
    found = _messages_by_round(connection.execute(_MESSAGES.where(schema.messages.c.entry.in_(ids)), owner))
    return tuple(found[each, rows.ENTRY_ROUND][0] for each in ids if (each, rows.ENTRY_ROUND) in found)


def _build_ledger(
    conversation: Sequence[Row[Any]],
    of_tables: Sequence[Sequence[Row[Any]]],
    messages: Mapping[tuple[str, int], Sequence[Message]],
) -> Ledger | None:
    if not conversation:
        return None
    rows_by_table = dict(zip(LEDGER_TABLES, of_tables, strict=True))
    ledger = rebuild_ledger(rows.conversation_of(conversation[0]), _ledger_items(rows_by_table, messages))
    ledger.read_upto = conversation[0].written
    return ledger


def _ledger_items(
    rows_by_table: Mapping[Table, Sequence[Row[Any]]], messages: Mapping[tuple[str, int], Sequence[Message]]
) -> list[LedgerItem]:
    """The values of these rows, in writing order."""
    placed: list[tuple[int, LedgerItem]] = []
    for row_of_entry in rows_by_table[schema.entries]:
        message = next(iter(messages.get((row_of_entry.id, rows.ENTRY_ROUND), ())), None)
        placed.append((row_of_entry.place, rows.entry_of(row_of_entry, message)))
    for done in rows_by_table[schema.rounds]:
        spoken, *results = messages[done.turn, done.number]
        placed.append((done.place, rows.round_of(done, spoken, tuple(results[: done.results]))))
    placed.extend((r.place, rows.event_of(r)) for r in rows_by_table[schema.events])
    placed.extend((r.place, rows.thread_of(r)) for r in rows_by_table[schema.threads])
    placed.extend((r.place, rows.queued_of(r)) for r in rows_by_table[schema.queued])
    placed.sort(key=lambda item: item[0])
    return [value for _, value in placed]


def changes_without_items(
    connection: Connection,
    tenant: str,
    known: Mapping[str, int],
    own_writes: Callable[[str], WrittenRows | None],
) -> tuple[dict[str, Changes | None], list[str]]:
    """As `changes`, for those conversations to which only this process wrote; and the others, whose rows have to be
    read. One query."""
    found: dict[str, Changes | None] = dict.fromkeys(known)
    behind: list[str] = []
    for name, (written, mode) in _newest_rows(connection, tenant, known).items():
        own = own_writes(name)
        if written == known[name]:
            del found[name]
        elif own is not None and own.after <= known[name] and own.upto == written:
            found[name] = Changes((), written, mode)
        else:
            del found[name]
            behind.append(name)
    return found, behind


def changes(connection: Connection, tenant: str, known: Mapping[str, int]) -> dict[str, Changes | None]:
    """What other processes wrote to these conversations behind the row numbers `known`; None for one that is not in
    the store."""
    found: dict[str, Changes | None] = dict.fromkeys(known)
    for name, (written, mode) in _newest_rows(connection, tenant, known).items():
        owner = (rows.escape_text(tenant), rows.escape_text(name))
        found[name] = Changes(_items_behind(connection, owner, known[name]), written, mode)
    return found


def _newest_rows(connection: Connection, tenant: str, names: Iterable[str]) -> dict[str, tuple[int, str]]:
    """The number of the newest row of each conversation in the store, and its mode."""
    table = schema.conversations
    asked = {rows.escape_text(name): name for name in names}
    query = select(table.c.id, table.c.written, table.c.mode)
    of_these = query.where(table.c.tenant == rows.escape_text(tenant), table.c.id.in_(asked))
    return {asked[row.id]: (row.written, rows.unescape_text(row.mode)) for row in connection.execute(of_these)}


def _items_behind(connection: Connection, owner: tuple[str, str], number: int) -> tuple[LedgerItem, ...]:
    """All values written behind a row number. Queued messages are read whole: they change where they stand."""
    rows_by_table = dict(zip(LEDGER_TABLES, _BEHIND.fetch(connection, _parameters(owner, number)), strict=True))
    named = [r.id for r in rows_by_table[schema.entries]] + [r.turn for r in rows_by_table[schema.rounds]]
    messages: dict[tuple[str, int], list[Message]] = {}
    for some in chunks(dict.fromkeys(named)):
        query = _MESSAGES.where(schema.messages.c.entry.in_(some))
        messages |= _messages_by_round(connection.execute(query, _parameters(owner)))
    return tuple(_ledger_items(rows_by_table, messages))


def _messages_by_round(found: Iterable[Row[Any]]) -> dict[tuple[str, int], list[Message]]:
    messages: dict[tuple[str, int], list[Message]] = defaultdict(list)
    for row in found:
        if not rows.is_intact(row):
            raise StoreError("a message in the store is damaged")
        messages[row.entry, row.round].append(rows.message_of(row))
    return messages


def _of_owner(query: Select[Any], table: Table) -> Select[Any]:
    return query.where(table.c.tenant == bindparam("tenant"), table.c.conversation == bindparam("conversation"))


def _rows_of(table: Table) -> Select[Any]:
    return _of_owner(select(table), table)


def _parameters(owner: tuple[str, str], behind: int = 0) -> dict[str, object]:
    return {"tenant": owner[0], "conversation": owner[1], "behind": behind}


_CONVERSATION = select(schema.conversations).where(
    schema.conversations.c.tenant == bindparam("tenant"), schema.conversations.c.id == bindparam("conversation")
)
_MESSAGES = _of_owner(
    select(schema.messages, schema.blobs.c.data).join(
        schema.blobs,
        and_(schema.blobs.c.tenant == schema.messages.c.tenant, schema.blobs.c.digest == schema.messages.c.wire),
    ),
    schema.messages,
).order_by(schema.messages.c.position)
_ROLES = _of_owner(
    select(schema.messages.c.entry, schema.messages.c.round, schema.messages.c.role), schema.messages
).order_by(schema.messages.c.position)
_WHOLE = QueryBatch(_CONVERSATION, _MESSAGES, *map(_rows_of, LEDGER_TABLES))
_OUTLINE = QueryBatch(_CONVERSATION, _ROLES, *map(_rows_of, LEDGER_TABLES))
_BEHIND = QueryBatch(
    *(
        _rows_of(table) if table is schema.queued else _rows_of(table).where(table.c.place > bindparam("behind"))
        for table in LEDGER_TABLES
    )
)


def conversations(connection: Connection, tenant: str | None, limit: int, offset: int) -> tuple[Conversation, ...]:
    table = schema.conversations
    query = _scoped(select(table), table, tenant).order_by(table.c.created.desc(), table.c.id.desc())
    return tuple(map(rows.conversation_of, connection.execute(query.limit(limit).offset(offset))))


def recently_active(connection: Connection, tenant: str | None, limit: int) -> tuple[Conversation, ...]:
    """Uses no index: it would be written with every commit, and only people ask this."""
    table = schema.conversations
    query = _scoped(select(table), table, tenant).order_by(table.c.newest.desc(), table.c.id.desc())
    return tuple(map(rows.conversation_of, connection.execute(query.limit(limit))))


def newest_record_time(connection: Connection) -> int:
    return int(connection.execute(select(func.max(schema.conversations.c.newest))).scalar_one() or 0)


def conversation_with_event(connection: Connection, tenant: str | None, kind: str, subject: str) -> Conversation | None:
    events, table = schema.events, schema.conversations
    query = (
        select(table)
        .join(events, and_(events.c.tenant == table.c.tenant, events.c.conversation == table.c.id))
        .where(events.c.subject == rows.escape_text(subject), events.c.kind == rows.escape_text(kind))
        .order_by(table.c.created.desc(), table.c.id.desc())
        .limit(1)
    )
    row = connection.execute(_scoped(query, table, tenant)).one_or_none()
    return rows.conversation_of(row) if row is not None else None


def conversation_with_entry(connection: Connection, tenant: str | None, beginning: str) -> Conversation | None:
    """By a range of ids; `g` is behind all hex digits."""
    entries, table = schema.entries, schema.conversations
    query = (
        select(table)
        .join(entries, and_(entries.c.tenant == table.c.tenant, entries.c.conversation == table.c.id))
        .where(entries.c.id >= rows.escape_text(beginning), entries.c.id < rows.escape_text(f"{beginning}g"))
        .order_by(table.c.created.desc(), table.c.id.desc())
        .limit(1)
    )
    row = connection.execute(_scoped(query, table, tenant)).one_or_none()
    return rows.conversation_of(row) if row is not None else None


def requests(
    connection: Connection, tenant: str | None, conversation: str, limit: int, offset: int
) -> tuple[RequestRecord, ...]:
    table = schema.requests
    columns = [column for column in table.c if column is not table.c.body]  # of thousands, bodies are half the time
    query = _scoped(select(*columns), table, tenant).order_by(table.c.created.desc(), table.c.id.desc())
    if conversation:
        query = query.where(table.c.conversation == rows.escape_text(conversation))
    return tuple(map(rows.request_of, connection.execute(query.limit(limit).offset(offset))))


def request(connection: Connection, tenant: str | None, beginning: str) -> StoredRequest | None:
    row = _request_row(connection, tenant, rows.escape_text(beginning))
    if row is None:
        return None
    table = schema.sent
    query = select(table).where(table.c.tenant == row.tenant, table.c.request == row.id).order_by(table.c.round)
    all_sent = connection.execute(query).all()
    bodies = _bodies(connection, row.tenant, [row.body, *(s.body for s in all_sent)])
    sent = tuple(
        SentRecord(rows.unescape_text(s.request), s.round, body, s.created)
        for s, body in zip(all_sent, bodies[1:], strict=True)
    )
    return StoredRequest(rows.request_of(row, bodies[0]), sent)


def usage_days(connection: Connection, tenant: str | None, since: int) -> tuple[tuple[str, UsageRecord], ...]:
    table = schema.usage_days
    query = _scoped(select(table).where(table.c.day >= since), table, tenant).order_by(table.c.tenant, table.c.day)
    return tuple((rows.unescape_text(row[0]), UsageRecord(*row[1:])) for row in connection.execute(query))


def settings(connection: Connection, tenant: str) -> tuple[SettingRecord, ...]:
    table = schema.settings
    query = select(table).where(table.c.tenant == rows.escape_text(tenant)).order_by(table.c.name)
    return tuple(map(rows.setting_of, connection.execute(query)))


def _request_row(connection: Connection, tenant: str | None, beginning: str) -> Row[Any] | None:
    table = schema.requests
    if not beginning:
        return None
    exact = connection.execute(_scoped(select(table).where(table.c.id == beginning), table, tenant).limit(2)).all()
    if exact:
        return exact[0] if len(exact) == 1 else None
    begun = select(table).where(
        table.c.id >= beginning,
        table.c.id < beginning + _LAST_CHARACTER,
        func.substr(table.c.id, 1, len(beginning)) == beginning,
    )
    found = connection.execute(_scoped(begun, table, tenant).limit(2)).all()
    return found[0] if len(found) == 1 else None


def _bodies(connection: Connection, tenant: str, stored: Sequence[bytes]) -> list[Body]:
    pages = _blobs(connection, tenant, (digest for body in stored for digest in rows.split_digests(body)))
    pieces = {digest: rows.decode_page(data) for digest, data in pages.items()}
    long = _blobs(connection, tenant, (piece for page in pieces.values() for is_digest, piece in page if is_digest))
    return [
        tuple(
            long[piece] if is_digest else piece
            for digest in rows.split_digests(body)
            for is_digest, piece in pieces[digest]
        )
        for body in stored
    ]


def _blobs(connection: Connection, tenant: str, digests: Iterable[bytes]) -> dict[bytes, bytes]:
    table = schema.blobs
    found: dict[bytes, bytes] = {}
    for some in chunks(dict.fromkeys(digests)):
        query = select(table.c.digest, table.c.data).where(table.c.tenant == tenant, table.c.digest.in_(some))
        found.update({bytes(digest): bytes(data) for digest, data in connection.execute(query)})
    return found


def count_conversations(connection: Connection) -> int:
    return int(connection.execute(select(func.count()).select_from(schema.conversations)).scalar_one())


def _scoped(query: Select[Any], table: Table, tenant: str | None) -> Select[Any]:
    return query if tenant is None else query.where(table.c.tenant == rows.escape_text(tenant))
