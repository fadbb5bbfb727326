"""Deletes conversations, and the blobs that no conversation, request or page needs any more. Runs in the writer's
thread, a few conversations a transaction, so that other writes get their turn."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, and_, delete, exists, func, select

from proxy.store import rows, schema
from proxy.store.commit import ConversationKey
from proxy.store.statements import chunks

DELETE_BATCH_SIZE = 20
"""Conversations deleted in one transaction."""


BeginWrite = Callable[[Connection, Collection[str]], int]
UNFINISHED_PREFIX = "forgetting:"
"""Names of the notes about deletions that may have left rows, or copies in the file and its log."""


class Deletion(NamedTuple):
    """What `delete_conversations` was asked for."""

    tenant: str | None
    conversation: str
    before: int


@dataclass(frozen=True, slots=True)
class DeletedBatch:
    """`has_more`: there is more to delete; `conversation_keys` are tenant and id of those deleted."""

    conversations: int
    bytes: int
    has_more: bool
    conversation_keys: tuple[ConversationKey, ...] = ()


def delete_batch(
    connection: Connection, begin_write: BeginWrite, tenant: str | None, conversation: str, before: int
) -> DeletedBatch:
    """Delete up to `DELETE_BATCH_SIZE` conversations: the named one, or those last written before `before`; at the end
    also requests of that name or age without a conversation."""
    with connection.begin():
        begin_write(connection, () if tenant is None else (tenant,))
        owners = _conversations_to_delete(connection, tenant, conversation, before)
        freed = sum(_delete_conversation(connection, *owner) for owner in owners)
        more = len(owners) == DELETE_BATCH_SIZE and not conversation
        if not more and (before or conversation):
            freed += _delete_orphan_requests(connection, tenant, conversation, before)
        if owners or freed:
            _note_as_unfinished(connection, Deletion(tenant, conversation, before))
    gone = tuple((rows.unescape_text(owner), rows.unescape_text(name)) for owner, name in owners)
    return DeletedBatch(len(owners), freed, more, gone)


def unfinished_deletions(connection: Connection) -> list[Deletion]:
    """Deletions that a killed process began."""
    table = schema.meta
    query = select(table.c.value).where(table.c.tenant == "", table.c.name.startswith(UNFINISHED_PREFIX))
    return [Deletion(*json.loads(value)) for value in connection.execute(query).scalars()]


def note_as_finished(connection: Connection, deletion: Deletion) -> None:
    with connection.begin():
        _remove_note(connection, _note_name(deletion))


def _note_as_unfinished(connection: Connection, deletion: Deletion) -> None:
    name = _note_name(deletion)
    _remove_note(connection, name)
    connection.execute(schema.meta.insert().values(tenant="", name=name, value=json.dumps(deletion).encode()))


def _remove_note(connection: Connection, name: str) -> None:
    table = schema.meta
    connection.execute(delete(table).where(table.c.tenant == "", table.c.name == name))


def _note_name(deletion: Deletion) -> str:
    return UNFINISHED_PREFIX + rows.digest_of(json.dumps(deletion).encode()).hex()


def _conversations_to_delete(
    connection: Connection, tenant: str | None, conversation: str, before: int
) -> list[tuple[str, str]]:
    table = schema.conversations
    query = select(table.c.tenant, table.c.id).limit(DELETE_BATCH_SIZE)
    if tenant is not None:
        query = query.where(table.c.tenant == rows.escape_text(tenant))
    if conversation:
        query = query.where(table.c.id == rows.escape_text(conversation))
    if before or not conversation:
        query = query.where(table.c.newest < before)
    return [(row.tenant, row.id) for row in connection.execute(query)]


def _delete_conversation(connection: Connection, tenant: str, conversation: str) -> int:
    requests = schema.requests
    of_it = and_(requests.c.tenant == tenant, requests.c.conversation == conversation)
    ids = list(connection.execute(select(requests.c.id).where(of_it)).scalars())
    for table in schema.CONVERSATION_TABLES:
        connection.execute(delete(table).where(table.c.tenant == tenant, table.c.conversation == conversation))
    told = schema.task_rows
    connection.execute(delete(told).where(told.c.tenant == tenant, told.c.session_id == conversation))
    table = schema.conversations
    connection.execute(delete(table).where(table.c.tenant == tenant, table.c.id == conversation))
    return _release_blobs(connection, tenant, [f"c:{conversation}"]) + _delete_requests(connection, tenant, ids)


def _delete_requests(connection: Connection, tenant: str, ids: list[str]) -> int:
    freed = 0
    for some in chunks(ids):
        connection.execute(delete(schema.sent).where(schema.sent.c.tenant == tenant, schema.sent.c.request.in_(some)))
        table = schema.requests
        connection.execute(delete(table).where(table.c.tenant == tenant, table.c.id.in_(some)))
        freed += _release_blobs(connection, tenant, [f"r:{request}" for request in some])
    return freed


def _delete_orphan_requests(connection: Connection, tenant: str | None, conversation: str, before: int) -> int:
    """Delete requests without a conversation, and sent bodies (by age) without a stored request."""
    requests, sent, conversations = schema.requests, schema.sent, schema.conversations
    owned = exists().where(conversations.c.tenant == requests.c.tenant, conversations.c.id == requests.c.conversation)
    has_request = exists().where(requests.c.tenant == sent.c.tenant, requests.c.id == sent.c.request)
    stray = select(requests.c.tenant, requests.c.id).where(~owned)
    unasked = select(sent.c.tenant, sent.c.request).where(sent.c.created < before, ~has_request)
    if before:
        stray = stray.where(requests.c.created < before)
    if conversation:
        stray = stray.where(requests.c.conversation == rows.escape_text(conversation))
    if tenant is not None:
        stray = stray.where(requests.c.tenant == rows.escape_text(tenant))
        unasked = unasked.where(sent.c.tenant == rows.escape_text(tenant))
    queries = (stray,) if conversation else (stray, unasked)
    found = [tuple(row) for query in queries for row in connection.execute(query)]
    return sum(_delete_requests(connection, of, [request]) for of, request in dict.fromkeys(found))


def _release_blobs(connection: Connection, tenant: str, holders: list[str]) -> int:
    """Remove the holds of `holders` and the blobs without any left. Returns the bytes freed."""
    holds, blobs = schema.holds, schema.blobs
    freed = 0
    while holders:
        orphans: list[bytes] = []
        for some in chunks(holders):
            gone = delete(holds).where(holds.c.tenant == tenant, holds.c.holder.in_(some)).returning(holds.c.digest)
            orphans.extend(dict.fromkeys(connection.execute(gone).scalars()))
        holders = []
        held = exists().where(holds.c.tenant == blobs.c.tenant, holds.c.digest == blobs.c.digest)
        for digests in chunks(orphans):
            gone_blobs = (
                delete(blobs)
                .where(blobs.c.tenant == tenant, blobs.c.digest.in_(digests), ~held)
                .returning(blobs.c.digest, func.length(blobs.c.data))
            )
            for digest, size in connection.execute(gone_blobs).all():
                freed += size
                holders.append(f"p:{bytes(digest).hex()}")
    return freed
