"""Requests that name what was said before instead of sending it again: an earlier answer, or items of one.

Some clients of the responses API keep nothing themselves. What they name is looked up in the ledger, and the request
becomes the one that a client would send which keeps everything: then it is placed, weighed and rendered like any
other.

The law: **what is not known whole is not placed**. A request whose beginning stays with the provider goes as it came,
and a header says so; so does one for an answer that is made in the background.

What a client may name later is kept with the turn (`remembered`): what opened its conversation, which stands on no
path, and the answer as the client was told it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from proxy.core.ledger import EntryKind, Ledger, Message, Request, Round, visible_calls
from proxy.dialects import CLIENT_RESPONSE_KEY, Dialect, ResponseReferences
from proxy.exchange.rounds import ClientRequest, Services
from proxy.exchange.thread import session_headers as clients
from proxy.exchange.thread.placement import Placement
from proxy.store import CachedConversation


async def resolve_references(parts: Services, client_request: ClientRequest, request: Request) -> tuple[Request, str]:
    """The request with all that it names put in, as far as that is known, the very same where it names nothing; and
    why it cannot be placed, empty where it can.

    Its body is the client's where it is not placed, and where the provider knows what the client was told under that
    name; a body with all of it where the turn is told otherwise there. Its members go on to tell what was named,
    because the answer does. Raises StoreError when the store cannot say.
    """
    references, tenant = parts.dialect.references, client_request.tenant
    if references is None:
        return request, ""
    previous, named = references.previous_response_id(request), references.referenced_item_ids(request)
    found = await find_turn_by_id(parts, tenant, previous) if previous else None
    if previous and (found is None or await is_deleted(parts, tenant, previous, *found)):
        return request, "previous_response"
    items = await _find_items(parts, references, tenant, named)
    told, turn = _messages_up_to(parts, references, *found) if found else ((), ())
    resolved = references.resolve(request, told, items) if previous or items else request
    if references.unresolvable_reason(resolved, ()):
        resolved = await _resolve_by_position(parts, references, client_request, resolved)
    if resolved is request:
        return request, references.unresolvable_reason(request, ())
    reason = references.unresolvable_reason(resolved, ())
    fields = {name: resolved.fields.get(name, raw) for name, raw in request.fields.items()}
    body = resolved.body if differs_from_provider(turn) and not reason else request.body
    return replace(resolved, fields=fields, body=body), reason


# -------------------------------------------------------------------------------------------------------------- turns
async def find_turn_by_id(parts: Services, tenant: str, name: str) -> tuple[CachedConversation, str] | None:
    """The conversation and the turn that the client knows by this id; None where it names no turn of this tenant's.
    Raises StoreError."""
    found = await parts.conversation_cache.find_by_answer_id(tenant, name)
    return found if found and found[1] else None


def differs_from_provider(rounds: Sequence[Round]) -> bool:
    """Whether the provider has something else under the id of this turn than the client was told: hidden calls, or an
    answer to a line of ours."""
    return len(rounds) > 1 or any(done.spoken.own_calls or CLIENT_RESPONSE_KEY in done.spoken.extra for done in rounds)


def tombstone(name: str) -> str:
    """What is remembered of an answer that its client has deleted, in the place of its id."""
    return f"deleted {name}"


async def is_deleted(parts: Services, tenant: str, name: str, cached: CachedConversation, turn: str) -> bool:
    """Whether the client has deleted this turn, which it knows by this name. Of one that the provider has as the client
    knows it, the provider says that. Raises StoreError."""
    if not differs_from_provider(cached.ledger.rounds[turn]):
        return False
    return await parts.conversation_cache.find_by_answer_id(tenant, tombstone(name)) is not None


def round_to_store(dialect: Dialect, placement: Placement, done: Round) -> Round:
    """A round as it is kept. With the last one of a turn that a client may name stands what it cannot be told without;
    what stands so on its path already is not repeated."""
    references, extra = dialect.references, dict(done.spoken.extra)
    told = extra.pop(CLIENT_RESPONSE_KEY, b"")
    if references is not None and done.last and references.is_answer_stored(placement.request):
        known = stored_extras_at(placement.ledger, placement.entry_id)
        lasting = references.members_to_store(placement.request, told)
        extra |= {name: raw for name, raw in lasting.items() if name == CLIENT_RESPONSE_KEY or known.get(name) != raw}
    elif not told:
        return done
    return replace(done, spoken=replace(done.spoken, extra=extra))


def stored_extras_at(ledger: Ledger, tip: str) -> Mapping[str, bytes]:
    """What stands with the turns of the path to `tip`, the newest of each kind."""
    found: dict[str, bytes] = {}
    for entry in ledger.path(tip):
        for done in ledger.rounds.get(entry.id, ())[-1:]:
            found |= done.spoken.extra
    return found


# ------------------------------------------------------------------------------------------------------ what is named
def has_references(dialect: Dialect, request: Request) -> bool:
    """Whether the request, as it came, stands for more than it holds: then nothing can be selected of it."""
    references = dialect.references
    return references is not None and bool(
        references.previous_response_id(request) or references.unresolvable_reason(request, ())
    )


async def _resolve_by_position(
    parts: Services, references: ResponseReferences, client_request: ClientRequest, request: Request
) -> Request:
    """The request with the items put in that are known by where they stand: a run that only names items, right behind
    a request that was answered with such. So they are found under names that somebody between changed. What is put in
    and leads no further was not what stood there, and is left out again."""
    hint = clients.session_hint(client_request.headers)
    before, depth = request, -1
    while True:
        cached, found = await parts.conversation_cache.locate(
            client_request.tenant, hint, request, parts.now(), parts.dialect.name
        )
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
    """The items that these names stand for, by their kind (`msg_`, `rs_`) and order; none where one is left over."""
    left = list(shown.items())
    found: dict[str, bytes] = {}
    for name in named:
        at = next((at for at, (own, _) in enumerate(left) if own.partition("_")[0] == name.partition("_")[0]), None)
        if at is None:
            return {}
        found[name] = left.pop(at)[1]
    return found


def _messages_up_to(
    parts: Services, references: ResponseReferences, cached: CachedConversation, turn: str
) -> tuple[tuple[Message, ...], Sequence[Round]]:
    """What the client sent and was shown up to this turn, oldest first; and the rounds of the turn."""
    ledger = cached.ledger
    messages = [
        parts.composer.with_token_count(message)
        for message in references.opening_messages(stored_extras_at(ledger, turn))
    ]
    for entry in ledger.path(turn):
        if entry.kind is EntryKind.TURN:
            messages.append(_visible_answer(parts, references, ledger.rounds.get(entry.id, ())))
        elif entry.message is not None:
            messages.append(entry.message)
    return tuple(messages), ledger.rounds.get(turn, ())


def _visible_answer(parts: Services, references: ResponseReferences, rounds: Sequence[Round]) -> Message:
    said = [done.spoken.visible_message for done in rounds]
    if len(said) == 1 and len(visible_calls(rounds)) == len(said[0].calls):
        return said[0]
    return parts.composer.with_token_count(references.client_view(said))


async def _find_items(
    parts: Services, references: ResponseReferences, tenant: str, named: Sequence[str]
) -> dict[str, bytes]:
    """The items by the ids they are named with, as far as they are known. One conversation holds them mostly all."""
    known: dict[str, bytes] = {}
    for name in named:
        if name in known or (found := await parts.conversation_cache.find_by_answer_id(tenant, name)) is None:
            continue
        for rounds in found[0].ledger.rounds.values():
            for done in rounds:
                known |= references.items_by_id(done.spoken.message)
    return known
