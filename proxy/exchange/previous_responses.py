"""Resolves requests that name an earlier answer or its items by id instead of sending them again. They are looked up in
the ledger, and the request becomes the one that a client with the whole history would send. A request that cannot be
resolved completely is not placed: it goes upstream as it came, with a header that says so. `round_to_store` keeps with
a turn what a client may name later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from proxy.core.ledger import EntryKind, Ledger, Message, Request, Round, visible_calls
from proxy.dialects import CLIENT_RESPONSE_KEY, Dialect, ResponseReferences
from proxy.errors import ProxyError, StoreError
from proxy.exchange.background.scheduler import with_timeout
from proxy.exchange.rounds import ClientRequest, Services, placement_patience_s
from proxy.exchange.thread import session_headers
from proxy.exchange.thread.placement import Placement
from proxy.store import CachedConversation, ConversationQuery
from proxy.upstream import Route

MAX_TOLD_ID = 100
"""Characters of an id in a message."""
UNKNOWN_ANSWER = "previous_response"
"""Why a request is not placed that goes on from an answer which nobody here knows, or which was deleted."""


class ResponseNotFound(ProxyError):
    """An answer that was deleted, never completed, or given to somebody else."""

    status = 404
    code = "response_not_found"


class ResponseOwnerUnknown(ProxyError):
    """The store cannot say to which tenant an answer was given. What keeps tenants apart fails closed."""

    status = 503
    code = "response_owner_unknown"


async def refuse_anothers_answer(services: Services, client_request: ClientRequest, route: Route, name: str) -> None:
    """Raises ResponseNotFound for the id of an answer that was given to another tenant, where both ask the provider
    with the operator's key, so that it would tell; and ResponseOwnerUnknown where the store cannot say in time whose it
    is. An id that nobody here knows passes."""
    is_told_by_provider = services.dialect.references is not None and route.upstream.settings.key is not None
    if not name or services.config.tenancy == "single" or not is_told_by_provider:
        return
    try:
        is_anothers = await with_timeout(
            placement_patience_s(services), services.conversation_cache.is_anothers_answer(client_request.tenant, name)
        )
    except (StoreError, TimeoutError) as error:
        raise ResponseOwnerUnknown(
            f"Whether the response {name[:MAX_TOLD_ID]!r} is yours cannot be read from the store of this proxy now. "
            "Send the request again in a moment."
        ) from error
    if is_anothers:
        raise ResponseNotFound(f"Response with id {name[:MAX_TOLD_ID]!r} not found.")


async def resolve_references(
    services: Services, client_request: ClientRequest, request: Request, earlier: Sequence[Message] = ()
) -> tuple[Request, str]:
    """The request with all known references filled in (the same object if it has none), and the reason why it cannot be
    placed, or "". `earlier` is what the provider told of an answer that is not known here, oldest message first.

    The body stays the client's where the request is not placed or the provider knows the same answer by that id.
    `fields` keep the references, because the answer repeats them. Raises StoreError.
    """
    references, tenant = services.dialect.references, client_request.tenant
    if references is None:
        return request, ""
    previous, named = references.previous_response_id(request), references.referenced_item_ids(request)
    found = await find_turn_by_id(services, tenant, previous) if previous else None
    is_unknown = found is None and not earlier
    if previous and (is_unknown or (found and await is_deleted(services, tenant, previous, *found))):
        return request, UNKNOWN_ANSWER
    items = await _find_items(services, references, tenant, named)
    messages, turn = messages_up_to(services, references, *found) if found else (earlier, ())
    resolved = references.resolve(request, messages, items) if previous or items else request
    if references.unresolvable_reason(resolved, ()):
        resolved = await _resolve_by_position(services, references, client_request, resolved)
    if resolved is request:
        return request, references.unresolvable_reason(request, ())
    reason = references.unresolvable_reason(resolved, ())
    fields = {name: resolved.fields.get(name, raw) for name, raw in request.fields.items()}
    body = resolved.body if differs_from_provider(turn) and not reason else request.body
    return replace(resolved, fields=fields, body=body), reason


# -------------------------------------------------------------------------------------------------------------- turns
async def find_turn_by_id(services: Services, tenant: str, name: str) -> tuple[CachedConversation, str] | None:
    """The conversation and turn that the client knows by this id; None if no turn of this tenant has it. Raises
    StoreError."""
    found = await services.conversation_cache.find_by_answer_id(tenant, name)
    return found if found and found[1] else None


def differs_from_provider(rounds: Sequence[Round]) -> bool:
    """Whether the provider has another answer under this turn's id than the client was told: it has hidden calls, or
    answers a context of ours."""
    return len(rounds) > 1 or any(
        done.spoken.proxy_calls or CLIENT_RESPONSE_KEY in done.spoken.extra for done in rounds
    )


def tombstone(name: str) -> str:
    """The name under which a deleted answer is remembered."""
    return f"deleted {name}"


async def is_deleted(services: Services, tenant: str, name: str, cached: CachedConversation, turn: str) -> bool:
    """Whether the client has deleted this turn. False where the provider has the same turn and answers itself. Raises
    StoreError."""
    if not differs_from_provider(cached.ledger.rounds[turn]):
        return False
    return await services.conversation_cache.find_by_answer_id(tenant, tombstone(name)) is not None


def round_to_store(dialect: Dialect, placement: Placement, done: Round) -> Round:
    """A round as it is stored: the last one of a turn that a client may name carries what is needed to show it again,
    less what its path already has."""
    references, extra = dialect.references, dict(done.spoken.extra)
    client_answer = extra.pop(CLIENT_RESPONSE_KEY, b"")
    if references is not None and done.last and references.is_answer_stored(placement.request):
        known = stored_extras_at(placement.ledger, placement.entry_id)
        lasting = references.members_to_store(placement.request, client_answer)
        extra |= {name: raw for name, raw in lasting.items() if name == CLIENT_RESPONSE_KEY or known.get(name) != raw}
    elif not client_answer:
        return done
    return replace(done, spoken=replace(done.spoken, extra=extra))


def stored_extras_at(ledger: Ledger, tip: str) -> Mapping[str, bytes]:
    """What is stored with the turns of the path to `tip`, the newest of each kind."""
    found: dict[str, bytes] = {}
    for entry in ledger.path(tip):
        for done in ledger.rounds.get(entry.id, ())[-1:]:
            found |= done.spoken.extra
    return found


# ------------------------------------------------------------------------------------------------------ what is named
def has_references(dialect: Dialect, request: Request) -> bool:
    """Whether the request, as it came, refers to content that it does not hold; it cannot be shortened then."""
    references = dialect.references
    return references is not None and bool(
        references.previous_response_id(request) or references.unresolvable_reason(request, ())
    )


async def _resolve_by_position(
    services: Services, references: ResponseReferences, client_request: ClientRequest, request: Request
) -> Request:
    """Fill in items that are known by their position: a message that only names items, right after a request that was
    answered with such. This finds them where a client or gateway renamed them. A fill-in that does not extend the match
    is undone."""
    hint = session_headers.session_hint(client_request.headers)
    before, depth = request, -1
    while True:
        asked = ConversationQuery(client_request.tenant, hint, request, services.now(), services.dialect.name)
        cached, found = await services.conversation_cache.locate(asked)
        if found.depth <= depth:
            return before
        if cached is None or not found.path or found.depth == len(request.messages):
            return request
        named = references.referenced_item_ids(replace(request, messages=(request.messages[found.depth],)))
        turns = cached.ledger.turns_by_parent.get(found.path[-1].id, ())
        rounds = cached.ledger.rounds.get(turns[-1], ()) if turns else ()
        shown = references.items_by_id(references.client_view([done.spoken.visible_message for done in rounds]))
        items = _match_items(named, shown)
        if not items:
            return request
        before, depth, request = request, found.depth, references.resolve(request, (), items)


def _match_items(named: Sequence[str], shown: Mapping[str, bytes]) -> dict[str, bytes]:
    """The items that these names mean, by kind (`msg_`, `rs_`) and order; none if a name is left over."""
    left = list(shown.items())
    found: dict[str, bytes] = {}
    for name in named:
        at = next((at for at, (own, _) in enumerate(left) if own.partition("_")[0] == name.partition("_")[0]), None)
        if at is None:
            return {}
        found[name] = left.pop(at)[1]
    return found


def messages_up_to(
    services: Services, references: ResponseReferences, cached: CachedConversation, turn: str
) -> tuple[tuple[Message, ...], Sequence[Round]]:
    """What the client sent and saw up to this turn, oldest first; and the rounds of the turn."""
    ledger = cached.ledger
    messages = [
        services.composer.with_token_count(message)
        for message in references.opening_messages(stored_extras_at(ledger, turn))
    ]
    for entry in ledger.path(turn):
        if entry.kind is EntryKind.TURN:
            messages.append(_visible_answer(services, references, ledger.rounds.get(entry.id, ())))
        elif entry.message is not None:
            messages.append(entry.message)
    return tuple(messages), ledger.rounds.get(turn, ())


def _visible_answer(services: Services, references: ResponseReferences, rounds: Sequence[Round]) -> Message:
    said = [done.spoken.visible_message for done in rounds]
    if len(said) == 1 and len(visible_calls(rounds)) == len(said[0].calls):
        return said[0]
    return services.composer.with_token_count(references.client_view(said))


async def _find_items(
    services: Services, references: ResponseReferences, tenant: str, named: Sequence[str]
) -> dict[str, bytes]:
    """The known items by id; mostly one conversation holds them all."""
    known: dict[str, bytes] = {}
    for name in named:
        if name in known or (found := await services.conversation_cache.find_by_answer_id(tenant, name)) is None:
            continue
        for rounds in found[0].ledger.rounds.values():
            for done in rounds:
                known |= references.items_by_id(done.spoken.message)
    return known
