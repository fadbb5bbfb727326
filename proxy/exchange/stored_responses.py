"""Answers that a client asks for again, or wants deleted: the requests below `/responses/{id}`.

The law: **what is told of an answer is what its client was told of it**. Where hidden rounds or a line of ours stand
behind the id, the provider would tell of those: such a turn is told from the ledger. Any other id is the provider's
to answer, of the one that made it where that is known. Another tenant's is as good as unknown.

What this module does not do: it reads no request for an answer (`exchange`), and it knows no wire form
(`dialects.responses_kept`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from urllib.parse import parse_qs, quote, unquote

from proxy.core.ledger.ledger import ANSWER, Kind, Round, answer_of
from proxy.core.ledger.messages import Message
from proxy.core.matching import lookup_keys as anchors
from proxy.dialects import TOLD
from proxy.dialects.responses import stored as responses_kept
from proxy.dialects.responses.stored import seen
from proxy.errors import BadRequest, ProxyError, StoreError
from proxy.exchange.background.recorder import Record
from proxy.exchange.client_response import Reply
from proxy.exchange.passthrough import Passing, bypass, is_fine, pass_along, record_of
from proxy.exchange.previous_responses import is_deleted, is_ours, kept_at, tombstone, turn_named
from proxy.exchange.rounds import Incoming, Parts
from proxy.store import Anchored
from proxy.store.conversation_cache import Shelved
from proxy.upstream.routing import outgoing_headers

PATH = re.compile(r"(?P<before>.*/responses/)(?P<name>[^/]+)(?P<rest>/cancel|/input_items)?/?")
ASKED = {("GET", None), ("GET", "/input_items"), ("DELETE", None), ("POST", "/cancel")}
MOST_ITEMS, ITEMS = 100, 20
"""Of a page: how many it may have, and how many it has where nobody says."""


class UnknownAnswer(ProxyError):
    """An answer that was deleted, or never came to its end."""

    status = 404
    code = "response_not_found"


@dataclass(frozen=True, slots=True)
class Kept:
    """A turn of the ledger, under the name the client knows it by."""

    name: str
    shelved: Shelved
    turn: str

    @property
    def rounds(self) -> tuple[Round, ...]:
        return self.shelved.ledger.rounds[self.turn]

    @property
    def beside(self) -> Mapping[str, bytes]:
        """What is kept beside its rounds, on its path."""
        return kept_at(self.shelved.ledger, self.turn)


def is_about_an_answer(method: str, path: str) -> bool:
    """Whether this is a request about an answer that was made before. `path` is as the client wrote it."""
    found = PATH.fullmatch(path)
    return found is not None and (method, found["rest"]) in ASKED


async def serve(parts: Parts, incoming: Incoming, reply: Reply) -> None:
    """One such request. Raises ProxyError for what is refused before anything was sent."""
    try:
        kept = await _kept(parts, incoming)
        passes = kept is None or await _is_the_providers(parts, incoming, kept)
    except StoreError as error:
        route = parts.routes.choose(None, incoming.path)
        await bypass(Passing(parts, incoming, route), reply, error.code)
        return
    if kept is None or passes:
        model = responses_kept.model(kept.beside) if kept else None
        await pass_along(Passing(parts, incoming, parts.routes.choose(model, incoming.path)), reply)
        return
    if incoming.method == "DELETE":
        await _delete(parts, incoming, reply, kept)
        return
    if incoming.method == "POST":
        raise BadRequest("This response is complete; only one made in the background can be cancelled.")
    told = _input_items(parts, incoming, kept) if _parted(incoming)["rest"] else _response(incoming, kept)
    record = Record(parts.keeper, incoming.id, incoming.tenant, incoming.arrived, "", "", "")
    await _tell(reply, record, kept, told)


async def _kept(parts: Parts, incoming: Incoming) -> Kept | None:
    """The turn that is asked about, where it is known here. Raises StoreError."""
    name = unquote(_parted(incoming)["name"])
    found = await turn_named(parts, incoming.tenant, name)
    return Kept(name, *found) if found else None


async def _is_the_providers(parts: Parts, incoming: Incoming, kept: Kept) -> bool:
    """Whether the provider has the turn as its client knows it. Raises UnknownAnswer for one that nobody is to be told
    of, StoreError."""
    if not is_ours(kept.rounds):
        return True
    is_over = any(TOLD in done.spoken.extra for done in kept.rounds)
    if not is_over or await is_deleted(parts, incoming.tenant, kept.name, kept.shelved, kept.turn):
        raise UnknownAnswer(f"Response with id {kept.name!r} not found.")
    return False


def _parted(incoming: Incoming) -> re.Match[str]:
    found = PATH.fullmatch(incoming.path)
    if found is None:
        raise BadRequest("This path names no answer.")
    return found


def _asked(incoming: Incoming) -> Mapping[str, str]:
    return {name: values[-1] for name, values in parse_qs(incoming.query.decode("latin-1")).items()}


async def _tell(reply: Reply, record: Record, kept: Kept, told: bytes) -> None:
    record.settle(200)
    conversation = kept.shelved.ledger.conversation.id
    sized = [(b"content-type", b"application/json"), (b"content-length", str(len(told)).encode())]
    await reply.start(200, [*sized, *record.headers(), (b"x-stack-conversation", conversation.encode())])
    await reply.end(told)


# --------------------------------------------------------------------------------------------------------- the answer
def _response(incoming: Incoming, kept: Kept) -> bytes:
    """The answer itself."""
    if _asked(incoming).get("stream", "").lower() in ("true", "1"):
        raise BadRequest("This response was not made in the background; ask for it without stream.")
    shown = seen([done.spoken.shown for done in kept.rounds])
    return responses_kept.response(kept.beside, shown)


# ---------------------------------------------------------------------------------------------------------- its input
def _input_items(parts: Parts, incoming: Incoming, kept: Kept) -> bytes:
    """A page of what the client asked it with."""
    asked = _asked(incoming)
    limit, order = asked.get("limit", str(ITEMS)), asked.get("order", "desc")
    if limit not in map(str, range(1, MOST_ITEMS + 1)):
        raise BadRequest(f"limit: {limit[:40]!r} is no number from 1 to {MOST_ITEMS}.")
    if order not in ("asc", "desc"):
        raise BadRequest(f"order: {order[:40]!r} is neither asc nor desc.")
    items = responses_kept.input_items(_said(kept))
    try:
        return responses_kept.page(items, int(limit), oldest_first=order == "asc", after=asked.get("after", ""))
    except KeyError as missing:
        raise BadRequest(f"after: there is no item {missing} in this input.") from missing


def _said(kept: Kept) -> Iterator[tuple[str, Message]]:
    """The messages of the client's request by names of ours: all of the path to the turn, or what is behind the turn
    before it where the request went on from that by its id."""
    ledger = kept.shelved.ledger
    path = ledger.path(ledger.entries[kept.turn].parent)
    known = kept.beside
    if responses_kept.goes_on(known):
        turns = [at for at, entry in enumerate(path, 1) if entry.kind is Kind.TURN]
        path = path[turns[-1] if turns else 0 :]
    else:
        yield from ((f"{kept.turn}h{at}", message) for at, message in enumerate(responses_kept.opening(known)))
    for entry in path:
        if entry.message is not None:
            yield entry.id, entry.message
        else:
            yield entry.id, seen([done.spoken.shown for done in ledger.rounds.get(entry.id, ())])


# ----------------------------------------------------------------------------------------------------------- deletion
async def _delete(parts: Parts, incoming: Incoming, reply: Reply, kept: Kept) -> None:
    """Every round is deleted at the provider, the one that the client knows last: where one cannot be, the client is
    told how the provider refused, and may ask again."""
    route = parts.routes.choose(responses_kept.model(kept.beside), incoming.path)
    record = record_of(parts, incoming, route, "")
    record.sending((), None)
    headers = outgoing_headers(incoming.headers, route.upstream.settings, readable=True)
    before = _parted(incoming)["before"]
    for done in reversed(kept.rounds):
        if ANSWER not in done.spoken.extra:
            continue
        path = before + quote(answer_of((done,)), safe="")
        got = await route.upstream.send("DELETE", path, incoming.query, headers, b"")
        record.upstream_status = got.status
        async with aclosing(got):
            refusal = await got.body()
        if not is_fine(got) and got.status != 404:
            record.failed("upstream_error")
            record.settle(got.status)
            await reply.start(got.status, [*got.headers, *record.headers()])
            await reply.end(refusal)
            return
    await _bury(parts, kept)
    await _tell(reply, record, kept, responses_kept.deleted(kept.name))


async def _bury(parts: Parts, kept: Kept) -> None:
    """The provider has forgotten the answer, and so do we, also after a restart. Raises StoreError."""
    keys = (anchors.of_answer(tombstone(kept.name)),)
    buried = Anchored(kept.shelved.ledger.conversation.id, "", keys, parts.now())
    parts.shelf.record(kept.shelved, [], [buried])
    await parts.shelf.durable(kept.shelved)
