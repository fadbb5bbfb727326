"""What a client sent, every body sent for it, and what came of it.

A receipt is passed on as it was written when the request was answered; its fields are those of `proxy.report`. Bodies
are the stored bytes as text.
"""

from __future__ import annotations

from typing import cast

import msgspec

from proxy.errors import UnknownFrame
from proxy.management.views.diff import difference
from proxy.management.views.logs import as_text
from proxy.management.views.lookup import Scope, shown
from proxy.management.views.schemas import ReceiptTold, RequestDetail, RequestDifference, RequestRow, SentBody
from proxy.store import RequestRecord, Store, StoredRequest


async def request_rows(store: Store, scope: Scope, conversation: str, limit: int, offset: int) -> list[RequestRow]:
    """The newest first, without bodies; of one conversation where it is named."""
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
        "receipt": receipt_of(record),
    }


async def stored_request(store: Store, scope: Scope, request: str) -> StoredRequest:
    """Raises UnknownFrame."""
    found = await store.request(scope, request) if request else None
    if found is None:
        raise UnknownFrame(
            f"There is no request {shown(request)}. GET /stack/requests lists the newest ones, and so does "
            "`callstack report --by request`."
        )
    return found


def request_detail(stored: StoredRequest) -> RequestDetail:
    """The row, the client's body, and each body sent in the order of rounds."""
    sent: list[SentBody] = [
        {"round": s.round, "created": s.created, "body": as_text(b"".join(s.body))} for s in stored.sent
    ]
    return {**request_row(stored.record), "body": as_text(b"".join(stored.record.body)), "sent": sent}


def request_difference(stored: StoredRequest) -> RequestDifference:
    """The client's body against each body sent."""
    client = b"".join(stored.record.body)
    return {
        "id": stored.record.id,
        "status": stored.record.status,
        "receipt": receipt_of(stored.record),
        "rounds": [{"round": sent.round, **difference(client, b"".join(sent.body))} for sent in stored.sent],
    }


def receipt_of(record: RequestRecord) -> ReceiptTold:
    """Empty while the request is still being answered."""
    try:
        found = msgspec.json.decode(record.receipt or b"{}")
    except msgspec.DecodeError:
        return {}
    return cast(ReceiptTold, found) if isinstance(found, dict) else {}
