"""Serves requests below `/responses/{id}`: reading and deleting stored answers. A client is told what it was told
before: where a turn has hidden rounds or our own context, the answer comes from the ledger; any other id goes to the
provider that made it. Another tenant's ids are unknown. Raises ResponseNotFound and BadRequest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from urllib.parse import parse_qs, quote, unquote

from proxy.core.ledger import RESPONSE_ID_KEY, EntryKind, Message, Round, response_id_of
from proxy.core.matching import lookup_keys
from proxy.dialects import CLIENT_RESPONSE_KEY
from proxy.dialects.responses import client_view, stored_turn
from proxy.errors import BadRequest, StoreError
from proxy.exchange.background.recorder import RequestRecordBuilder
from proxy.exchange.client_response import Reply
from proxy.exchange.passthrough_without_turn import PassthroughRequest, bypass, forward, is_success, new_request_record
from proxy.exchange.previous_responses import (
    ResponseNotFound,
    differs_from_provider,
    find_turn_by_id,
    is_deleted,
    refuse_anothers_answer,
    stored_extras_at,
    tombstone,
)
from proxy.exchange.rounds import ClientRequest, Services, names_in
from proxy.store import AnchorRecord, CachedConversation
from proxy.upstream import outgoing_headers

STORED_RESPONSE_PATH = re.compile(r"(?P<before>.*/responses/)(?P<name>[^/]+)(?P<rest>/cancel|/input_items)?/?")
RESPONSES_STEP = "responses"
SERVED_REQUESTS = {("GET", None), ("GET", "/input_items"), ("DELETE", None), ("POST", "/cancel")}
MAX_PAGE_ITEMS, DEFAULT_PAGE_ITEMS = 100, 20
"""Most and default number of items on a page."""


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """A turn of the ledger, with the id that the client knows it by."""

    response_id: str
    cached_conversation: CachedConversation
    turn_id: str

    @property
    def rounds(self) -> tuple[Round, ...]:
        return self.cached_conversation.ledger.rounds[self.turn_id]

    @property
    def stored_extras(self) -> Mapping[str, bytes]:
        return stored_extras_at(self.cached_conversation.ledger, self.turn_id)


def is_stored_response_request(method: str, path: str) -> bool:
    """Whether this is a request about a stored answer. `path` is as the client wrote it."""
    found = STORED_RESPONSE_PATH.fullmatch(_plain_path(path))
    return found is not None and (method, found["rest"]) in SERVED_REQUESTS


async def refuse_anothers_names(services: Services, client_request: ClientRequest) -> None:
    """Raises ResponseNotFound if a request that nothing here handles names an answer of another tenant, in a path below
    `/responses` however written, or in its body: an upstream may read it as one of the requests that we handle."""
    steps = _plain_path(client_request.path).split("/")
    at = next((at for at, step in enumerate(steps) if step.lower() == RESPONSES_STEP), None)
    if at is None:
        return
    model, previous = await names_in(client_request.body)
    route = services.routes.choose_for_endpoint(model, client_request.path, client_request.headers)
    for name in (*steps[at + 1 : at + 2], previous):
        await refuse_anothers_answer(services, client_request, route, name)


def _plain_path(path: str) -> str:
    """The path as an upstream may read it that decodes it and leaves out empty steps and those of one dot."""
    return "/" + "/".join(step for step in unquote(path).split("/") if step not in ("", "."))


async def handle_stored_response(services: Services, client_request: ClientRequest, reply: Reply) -> None:
    """Raises ProxyError for what is refused before anything was sent."""
    try:
        stored = await _find_turn(services, client_request)
        passes = stored is None or await _provider_can_answer(services, client_request, stored)
    except StoreError as error:
        route = services.routes.choose(None, client_request.path)
        await refuse_anothers_answer(services, client_request, route, _match_path(client_request)["name"])
        await bypass(PassthroughRequest(services, client_request, route), reply, error.code)
        return
    if stored is None:
        route = services.routes.choose(None, client_request.path)
        await refuse_anothers_answer(services, client_request, route, _match_path(client_request)["name"])
    if stored is None or passes:
        model = stored_turn.client_model(stored.stored_extras) if stored else None
        await forward(
            PassthroughRequest(services, client_request, services.routes.choose(model, client_request.path)), reply
        )
        return
    if client_request.method == "DELETE":
        await _delete_response(services, client_request, reply, stored)
        return
    if client_request.method == "POST":
        raise BadRequest(
            "This response is complete, and only one made in the background can be cancelled. Ask for it by GET."
        )
    body = (
        _input_items_page(services, client_request, stored)
        if _match_path(client_request)["rest"]
        else _response_body(client_request, stored)
    )
    record = RequestRecordBuilder(
        services.recorder, client_request.id, client_request.tenant, client_request.arrived, "", "", ""
    )
    await _send_json(reply, record, stored, body)


async def _find_turn(services: Services, client_request: ClientRequest) -> StoredTurn | None:
    name = _match_path(client_request)["name"]
    found = await find_turn_by_id(services, client_request.tenant, name)
    return StoredTurn(name, *found) if found else None


async def _provider_can_answer(services: Services, client_request: ClientRequest, stored: StoredTurn) -> bool:
    """Whether the provider has the turn as the client knows it. Raises ResponseNotFound and StoreError."""
    if not differs_from_provider(stored.rounds):
        return True
    is_over = any(CLIENT_RESPONSE_KEY in done.spoken.extra for done in stored.rounds)
    if not is_over or await is_deleted(
        services, client_request.tenant, stored.response_id, stored.cached_conversation, stored.turn_id
    ):
        raise ResponseNotFound(f"Response with id {stored.response_id!r} not found.")
    return False


def _match_path(client_request: ClientRequest) -> re.Match[str]:
    found = STORED_RESPONSE_PATH.fullmatch(_plain_path(client_request.path))
    if found is None:
        raise BadRequest("This path names no answer. Write its id behind /responses/.")
    return found


def _query_parameters(client_request: ClientRequest) -> Mapping[str, str]:
    return {name: values[-1] for name, values in parse_qs(client_request.query.decode("latin-1")).items()}


async def _send_json(reply: Reply, record: RequestRecordBuilder, stored: StoredTurn, body: bytes) -> None:
    record.finish(200)
    conversation = stored.cached_conversation.ledger.conversation.id
    sized = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await reply.start(200, [*sized, *record.headers(), (b"x-stack-conversation", conversation.encode())])
    await reply.end(body)


# --------------------------------------------------------------------------------------------------------- the answer
def _response_body(client_request: ClientRequest, stored: StoredTurn) -> bytes:
    if _query_parameters(client_request).get("stream", "").lower() in ("true", "1"):
        raise BadRequest("This response was not made in the background; ask for it without stream.")
    shown = client_view([done.spoken.visible_message for done in stored.rounds])
    return stored_turn.restore_response(stored.stored_extras, shown)


# ---------------------------------------------------------------------------------------------------------- its input
def _input_items_page(services: Services, client_request: ClientRequest, stored: StoredTurn) -> bytes:
    asked = _query_parameters(client_request)
    limit, order = asked.get("limit", str(DEFAULT_PAGE_ITEMS)), asked.get("order", "desc")
    if limit not in map(str, range(1, MAX_PAGE_ITEMS + 1)):
        raise BadRequest(f"limit: {limit[:40]!r} is no number from 1 to {MAX_PAGE_ITEMS}.")
    if order not in ("asc", "desc"):
        raise BadRequest(f"order: {order[:40]!r} is neither asc nor desc.")
    items = stored_turn.input_items(_input_messages(stored))
    try:
        return stored_turn.page(items, int(limit), oldest_first=order == "asc", after=asked.get("after", ""))
    except KeyError as missing:
        raise BadRequest(f"after: there is no item {missing} in this input.") from missing


def _input_messages(stored: StoredTurn) -> Iterator[tuple[str, Message]]:
    """The messages of the client's request with ids of ours: the whole path to the turn, or what follows the previous
    turn if the request continued that by id."""
    ledger = stored.cached_conversation.ledger
    path = ledger.path(ledger.entries[stored.turn_id].parent)
    known = stored.stored_extras
    if stored_turn.continues_previous(known):
        turns = [at for at, entry in enumerate(path, 1) if entry.kind is EntryKind.TURN]
        path = path[turns[-1] if turns else 0 :]
    else:
        yield from (
            (f"{stored.turn_id}h{at}", message) for at, message in enumerate(stored_turn.opening_messages(known))
        )
    for entry in path:
        if entry.message is not None:
            yield entry.id, entry.message
        else:
            yield entry.id, client_view([done.spoken.visible_message for done in ledger.rounds.get(entry.id, ())])


# ----------------------------------------------------------------------------------------------------------- deletion
async def _delete_response(services: Services, client_request: ClientRequest, reply: Reply, stored: StoredTurn) -> None:
    """Delete every round at the provider, the one whose id the client knows last. If one is refused, the client gets
    that refusal and may ask again."""
    route = services.routes.choose(stored_turn.client_model(stored.stored_extras), client_request.path)
    record = new_request_record(services, client_request, route, "")
    record.add_sent_round((), None)
    headers = outgoing_headers(client_request.headers, route.upstream.settings, readable=True)
    before = quote(_match_path(client_request)["before"])
    for done in reversed(stored.rounds):
        if RESPONSE_ID_KEY not in done.spoken.extra:
            continue
        path = before + quote(response_id_of((done,)), safe="")
        got = await route.upstream.send("DELETE", path, client_request.query, headers, b"")
        record.upstream_status = got.status
        async with aclosing(got):
            refusal = await got.body()
        if not is_success(got) and got.status != 404:
            record.mark_failed("upstream_error")
            record.finish(got.status)
            await reply.start(got.status, [*got.headers, *record.headers()])
            await reply.end(refusal)
            return
    await _store_tombstone(services, stored)
    await _send_json(reply, record, stored, stored_turn.deleted(stored.response_id))


async def _store_tombstone(services: Services, stored: StoredTurn) -> None:
    """Remember the deletion across restarts. Raises StoreError."""
    keys = (lookup_keys.response_anchor(tombstone(stored.response_id)),)
    buried = AnchorRecord(stored.cached_conversation.ledger.conversation.id, "", keys, services.now())
    services.conversation_cache.record(stored.cached_conversation, [], [buried])
    await services.conversation_cache.wait_until_durable(stored.cached_conversation)
