"""Requests that name what was said before instead of sending it again: an earlier answer, or items of one.

Some clients of the responses API keep nothing themselves. What they name is looked up in the ledger, and the request
becomes the one that a client would send which keeps everything: then it is placed, weighed and rendered like any
other.

The law: **what is not known whole is not placed**. A request whose beginning stays with the provider goes as it came,
and a header says so; so does one for an answer that is made in the background.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from proxy import clients
from proxy.asking import Incoming, Parts
from proxy.dialects import References
from proxy.shelf import Shelved
from proxy.stack.ledger import Kind, Round, seen_calls
from proxy.stack.transcript import Message, Request


async def whole(parts: Parts, incoming: Incoming, request: Request) -> tuple[Request, str]:
    """The request with all that it names put in, the very same where it names nothing; and why it cannot be placed,
    empty where it can.

    Its body is the client's where the provider knows what the client was told under that name, and a body with all of
    it where hidden rounds stand behind it. Raises StoreError when the store cannot say.
    """
    references, tenant = parts.dialect.references, incoming.tenant
    if references is None:
        return request, ""
    previous, named = references.previous(request), references.referred(request)
    found = await parts.shelf.answered(tenant, previous) if previous else None
    if previous and not (found and found[1]):
        return request, "previous_response"
    items = await _items(parts, references, tenant, named)
    told, turn = _told(parts, references, *found) if found else ((), ())
    resolved = references.resolved(request, told, items) if previous or items else request
    if references.unplaceable(resolved, ()):
        resolved = await _by_place(parts, references, incoming, resolved)
    if reason := references.unplaceable(resolved, ()):
        return request, reason
    return (resolved if len(turn) > 1 else replace(resolved, body=request.body)), ""


async def _by_place(parts: Parts, references: References, incoming: Incoming, request: Request) -> Request:
    """The request with the items put in that are known by where they stand: a run that only names items, right behind
    a request that was answered with such. So they are found under names that somebody between changed."""
    hint = clients.session_hint(incoming.headers)
    while True:
        shelved, found = await parts.shelf.locate(incoming.tenant, hint, request, parts.now(), parts.dialect.name)
        if shelved is None or not found.path or found.depth == len(request.messages):
            return request
        named = references.referred(replace(request, messages=(request.messages[found.depth],)))
        turns = shelved.ledger.turns_under.get(found.path[-1].id, ())
        rounds = shelved.ledger.rounds.get(turns[-1], ()) if turns else ()
        shown = references.items(references.seen([done.spoken.message for done in rounds]))
        items = _alike(named, shown)
        if not items:
            return request
        request = references.resolved(request, (), items)


def _alike(named: Sequence[str], shown: Mapping[str, bytes]) -> dict[str, bytes]:
    """The items that these names stand for, by their kind (`msg_`, `rs_`) and order; none where one is left over."""
    left = list(shown.items())
    found: dict[str, bytes] = {}
    for name in named:
        at = next((at for at, (own, _) in enumerate(left) if own.partition("_")[0] == name.partition("_")[0]), None)
        if at is None:
            return {}
        found[name] = left.pop(at)[1]
    return found


def _told(
    parts: Parts, references: References, shelved: Shelved, turn: str
) -> tuple[tuple[Message, ...], Sequence[Round]]:
    """What the client sent and was shown up to this turn, oldest first; and the rounds of the turn."""
    ledger = shelved.ledger
    messages: list[Message] = []
    for entry in ledger.path(turn):
        if entry.kind is Kind.TURN:
            messages.append(_seen(parts, references, ledger.rounds.get(entry.id, ())))
        elif entry.message is not None:
            messages.append(entry.message)
    return tuple(messages), ledger.rounds.get(turn, ())


def _seen(parts: Parts, references: References, rounds: Sequence[Round]) -> Message:
    said = [done.spoken.message for done in rounds]
    if len(said) == 1 and len(seen_calls(rounds)) == len(said[0].calls):
        return said[0]
    return parts.writer.weighed(references.seen(said))


async def _items(parts: Parts, references: References, tenant: str, named: Sequence[str]) -> dict[str, bytes]:
    """The items by the ids they are named with, as far as they are known. One conversation holds them mostly all."""
    known: dict[str, bytes] = {}
    for name in named:
        if name in known or (found := await parts.shelf.answered(tenant, name)) is None:
            continue
        for rounds in found[0].ledger.rounds.values():
            for done in rounds:
                known |= references.items(done.spoken.message)
    return known
