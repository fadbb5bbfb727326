"""A conversation of our own store as a recording: what a client sent, request by request, when it did.

The law: **what the client sent is replayed, not what was sent for it**. What the proxy did then is the receipts' story;
this asks what it would do now, in another mode or for another model.
"""

from __future__ import annotations

import json
from dataclasses import replace

from proxy.accounting import SUMMARY
from proxy.core.ledger.ledger import Ledger, answer_of
from proxy.management.views import lookup
from proxy.replay.api import api_of
from proxy.replay.api.base import Api
from proxy.replay.captures import Capture, capture_of, captured
from proxy.replay.formats import check_own
from proxy.replay.recording import Clock, Json, NotReplayable, Recording
from proxy.store import RequestRecord, Store

MOST = 100_000
"""Requests of one conversation that are replayed: the newest."""


async def stored_recording(
    store: Store, reference: str, *, model: str = "", clock: Clock = "recorded", dialect: str = ""
) -> Recording:
    """The conversation `reference` names (an id, or its beginning), in the API it was held in; `dialect` is the one
    that is wanted, empty for that. Raises UnknownFrame, NotReplayable, StoreError."""
    ledger = await lookup.ledger_named(store, None, reference)
    tenant, conversation = ledger.conversation.tenant, ledger.conversation.id
    api = api_of(ledger.conversation.dialect)
    check_own(api.name, dialect, f"conversation {conversation}")
    records = list(reversed(await store.requests(tenant, conversation, MOST)))
    shared: dict[bytes, bytes] = {}
    captures: list[Capture] = []
    without_body = 0
    for record in records:
        body = await _body(store, tenant, record, api)
        if body is None:
            without_body += record.status != SUMMARY  # that was no request of a client
        else:
            one = capture_of(body, api, f"request {record.id}", shared)
            told = _answer(ledger, record, api) if record is records[-1] or api.dialect.references else None
            captures.append(replace(one, answer=told, at_s=record.created / 1000))
    if not captures:
        raise NotReplayable(f"conversation {conversation}: none of its requests is stored with its body")
    recording = captured(conversation[:12], captures, model=model, clock=clock)
    return replace(recording, without_body=without_body)


async def _body(store: Store, tenant: str, record: RequestRecord, api: Api) -> Json | None:
    stored = await store.request(tenant, record.id)
    body = _json(b"".join(stored.record.body)) if stored else None
    return body if body and body.get(api.listing) else None


def _answer(ledger: Ledger, record: RequestRecord, api: Api) -> Json | None:
    """What a request was answered with, as the client was shown it where it may name it later; else its last round,
    which no later request echoes."""
    turns = ledger.turns_under.get(record.entry, ())
    rounds = ledger.rounds.get(turns[-1], ()) if turns else ()
    if not rounds:
        return None
    said = [done.spoken.message for done in rounds]
    references = api.dialect.references
    message = references.seen(said) if references else said[-1]
    answer = api.known(message.wire, None)
    return {**answer, "id": answer_of(rounds)} if answer and references else answer


def _json(raw: bytes) -> Json | None:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
