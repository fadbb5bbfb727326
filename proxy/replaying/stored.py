"""A conversation of our own store as a recording: what a client sent, request by request, when it did.

The law: **what the client sent is replayed, not what was sent for it**. What the proxy did then is the receipts' story;
this asks what it would do now, in another mode or for another model.
"""

from __future__ import annotations

import json
from dataclasses import replace

from proxy.replaying.formats import Capture, capture_of, captured
from proxy.replaying.recording import Clock, Json, NotReplayable, Recording
from proxy.stack.ledger import Ledger
from proxy.store import RequestRecord, Store
from proxy.views import lookup

MOST = 100_000
"""Requests of one conversation that are replayed: the newest."""


async def stored_recording(store: Store, reference: str, *, model: str = "", clock: Clock = "recorded") -> Recording:
    """The conversation `reference` names (an id, or its beginning). Raises UnknownFrame, NotReplayable, StoreError."""
    ledger = await lookup.ledger_named(store, None, reference)
    tenant, conversation = ledger.conversation.tenant, ledger.conversation.id
    records = list(reversed(await store.requests(tenant, conversation, MOST)))
    shared: dict[bytes, bytes] = {}
    captures: list[Capture] = []
    for record in records:
        body = await _body(store, tenant, record)
        if body is not None:
            answer = _answer(ledger, record) if record is records[-1] else None
            one = capture_of(body, f"request {record.id}", shared)
            captures.append(replace(one, answer=answer, at_s=record.created / 1000))
    if not captures:
        raise NotReplayable(f"conversation {conversation}: none of its requests is stored with its body")
    return captured(conversation[:12], captures, model=model, clock=clock)


async def _body(store: Store, tenant: str, record: RequestRecord) -> Json | None:
    stored = await store.request(tenant, record.id)
    body = _json(b"".join(stored.record.body)) if stored else None
    return body if body and body.get("messages") else None


def _answer(ledger: Ledger, record: RequestRecord) -> Json | None:
    """What the newest request was answered with, which no later request echoes."""
    turns = ledger.turns_under.get(record.entry, ())
    rounds = ledger.rounds.get(turns[-1], ()) if turns else ()
    return _json(rounds[-1].spoken.message.wire) if rounds else None


def _json(raw: bytes) -> Json | None:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
