"""A conversation of the store as a recording.

What the client sent is replayed, not what was sent upstream for it: receipts tell what the proxy did then, a replay
what it would do now, in another mode or for another model.
"""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec

from callstack_proxy.management import find_by_id
from callstack_proxy.replay.api.base import ReplayApi
from callstack_proxy.replay.api.replay_api_list import api_of
from callstack_proxy.replay.captures import CapturedRequest, captured_request_of, recording_of_requests
from callstack_proxy.replay.recording import ClockMode, Json, NotReplayable, Recording
from callstack_proxy.replay.recording_formats import check_same_api
from proxy.accounting import OWN_REQUEST_STATUSES
from proxy.core.ledger import Ledger, response_id_of
from proxy.store import RequestRecord, Store

MAX_REQUESTS = 100_000
"""At most so many requests of a conversation are replayed, the newest."""


async def stored_recording(
    store: Store, reference: str, *, model: str = "", clock: ClockMode = "recorded", dialect: str = ""
) -> Recording:
    """The conversation with this id, or beginning of an id, in its own API; `dialect`, where it is not empty, must name
    that API. Raises NotFound, NotReplayable, StoreError."""
    ledger = await find_by_id.find_ledger(store, None, reference)
    tenant, conversation = ledger.conversation.tenant, ledger.conversation.id
    api = api_of(ledger.conversation.dialect)
    check_same_api(api.name, dialect, f"conversation {conversation}")
    records = list(reversed(await store.requests(tenant, conversation, MAX_REQUESTS)))
    shared: dict[bytes, bytes] = {}
    captures: list[CapturedRequest] = []
    without_body = 0
    for record in records:
        body = await _body(store, tenant, record, api)
        if body is None:
            without_body += record.status not in OWN_REQUEST_STATUSES  # that was no request of a client
        else:
            one = captured_request_of(body, api, f"request {record.id}", shared)
            told = _answer(ledger, record, api) if record is records[-1] or api.dialect.references else None
            captures.append(replace(one, answer=told, at_s=record.created / 1000))
    if not captures:
        raise NotReplayable(f"conversation {conversation}: none of its requests is stored with its body")
    recording = recording_of_requests(conversation[:12], captures, model=model, clock=clock)
    return msgspec.structs.replace(recording, without_body=without_body)


async def _body(store: Store, tenant: str, record: RequestRecord, api: ReplayApi) -> Json | None:
    stored = await store.request(tenant, record.id)
    body = _json(b"".join(stored.record.body)) if stored else None
    return body if body and body.get(api.messages_key) else None


def _answer(ledger: Ledger, record: RequestRecord, api: ReplayApi) -> Json | None:
    """The answer to a request: as the client saw it, where a later request may reference it; else its last round, which
    no later request echoes."""
    turns = ledger.turns_by_parent.get(record.entry, ())
    rounds = ledger.rounds.get(turns[-1], ()) if turns else ()
    if not rounds:
        return None
    said = [done.spoken.message for done in rounds]
    references = api.dialect.references
    message = references.client_view(said) if references else said[-1]
    answer = api.answer_from_echo(message.wire, None)
    return {**answer, "id": response_id_of(rounds)} if answer and references else answer


def _json(raw: bytes) -> Json | None:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
