"""Requests: what a client sent, every body sent for it, and the receipt as it was stored. Bodies are the stored bytes
as text."""

from __future__ import annotations

from callstack_proxy.management.find_by_id import quote_reference
from callstack_proxy.management.views.diff import diff_bodies
from callstack_proxy.management.views.logs import decode_lossless
from callstack_proxy.management.views.schemas import RequestDetail, RequestDiff, RequestRow, SentBody
from callstack_proxy.management.views.totals import decode_receipt
from proxy.errors import NotFound
from proxy.store import RequestRecord, Store, StoredRequest, TenantScope


async def request_rows(
    store: Store, scope: TenantScope, conversation: str, limit: int, offset: int
) -> list[RequestRow]:
    """Newest first, without bodies; `conversation` selects one."""
    return [request_row(record) for record in await store.requests(scope, conversation, limit, offset)]


def request_row(record: RequestRecord) -> RequestRow:
    return {
        "id": record.id,
        "conversation": record.conversation,
        "thread": record.thread,
        "frame": record.frame,
        "entry": record.entry,
        "created": record.created,
        "status": record.status,
        "receipt": decode_receipt(record) or {},
    }


async def stored_request(store: Store, scope: TenantScope, request: str) -> StoredRequest:
    """Raises NotFound."""
    stored = await store.request(scope, request) if request else None
    if stored is None:
        raise NotFound(
            f"There is no request {quote_reference(request)}. GET /stack/requests lists the newest ones, and so does "
            "`callstack report --by request`."
        )
    return stored


def request_detail(stored: StoredRequest) -> RequestDetail:
    """The row, the client's body, and each body sent in the order of rounds."""
    sent: list[SentBody] = [
        {"round": s.round, "created": s.created, "body": decode_lossless(b"".join(s.body))} for s in stored.sent
    ]
    return {**request_row(stored.record), "body": decode_lossless(b"".join(stored.record.body)), "sent": sent}


def request_diff(stored: StoredRequest) -> RequestDiff:
    """Compares the client's body with each body sent."""
    client = b"".join(stored.record.body)
    return {
        "id": stored.record.id,
        "status": stored.record.status,
        "receipt": decode_receipt(stored.record) or {},
        "rounds": [{"round": sent.round, **diff_bodies(client, b"".join(sent.body))} for sent in stored.sent],
    }
