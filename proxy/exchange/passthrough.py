"""Requests that go upstream without us: the client's bytes up, the provider's bytes down.

    bypass         our bookkeeping failed, or nothing can be read: a header says why
    pass_through   a request to an endpoint that is none of ours

The law: **what passes is not touched**, and what the provider answers neither. With two exceptions, both for threads
that had lines of ours. Their clients may send more than fits: where the provider refuses a request for its length, it
is asked once more with what is left of it (stateless). And reasoning that was made behind our tools and texts is bound
to them: the provider would refuse it in the client's own history, so it is left out there (L8).

What this module does not do: it records no turn. What the client will echo has no place on any path.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing

import msgspec
from msgspec.structs import replace

from proxy.core.ledger.messages import Request
from proxy.dialects import Wanted, dialect_at
from proxy.dialects import raw_json as slices
from proxy.errors import StoreError, UpstreamError
from proxy.exchange.background.recorder import Record
from proxy.exchange.background.scheduling import within
from proxy.exchange.client_response import Reply, fail, why_cancelled
from proxy.exchange.previous_responses import names_more
from proxy.exchange.rounds import Incoming, Overlong, Parts, quotes_of, shortened_request, weighed
from proxy.exchange.thread.activation import binds, without_bound
from proxy.exchange.thread.placement import Arrival, Standing, made_behind_ours
from proxy.upstream import overflow_errors as overflow
from proxy.upstream.routing import Answer, Route, outgoing_headers

log = logging.getLogger(__name__)

AT_HAND_S = 0.1
"""How long a request waits to be found in its conversation before it passes; what is at hand is found at once."""


class Passing(msgspec.Struct, frozen=True):
    """A request on its way. `request` is what it says, where it was read and may be shortened."""

    parts: Parts
    incoming: Incoming
    route: Route
    request: Request | None = None


async def bypass(passing: Passing, reply: Reply, reason: str) -> None:
    """Without us, and a header that says why."""
    record = record_of(passing.parts, passing.incoming, passing.route, "bypass", reason)
    await _pass(passing, reply, record)


async def unbound(passing: Passing) -> Passing:
    """The same without the reasoning that its provider would refuse (L8), where its conversation is at hand: what keeps
    a request from being placed may keep the store from being read."""
    parts, incoming, route, request = passing.parts, passing.incoming, passing.route, passing.request
    if request is None or not binds(parts.config, parts.dialect, route.model):
        return passing
    arrival = Arrival(incoming.tenant, incoming.headers, request, parts.now(), incoming.mode)
    try:
        standing = await within(AT_HAND_S, parts.reception.beside(arrival, ""))
        if standing is None:
            return passing
        own = replace(renamed(request, route.model), body=incoming.body)
        left = less_bound(parts, route, own, standing)
    except (StoreError, TimeoutError):
        return passing
    except Exception:  # our bookkeeping has failed once already, and the agent must not notice
        log.exception("what is bound cannot be told", extra={"request": incoming.id})
        return passing
    return replace(passing, incoming=replace(incoming, body=left.body))


def less_bound(parts: Parts, route: Route, own: Request, standing: Standing) -> Request:
    """A client's own request, less the reasoning that its provider binds to a prefix only a line of ours has (L8)."""
    config, dialect, model = parts.config, parts.dialect, route.model
    behind = made_behind_ours(standing.ledger, standing.story, len(own.messages))
    if not behind or not binds(config, dialect, model):
        return own
    bare = without_bound(config, dialect, own, model, own.messages)
    messages = tuple(bare[at] if at in behind else message for at, message in enumerate(own.messages))
    if messages == own.messages:
        return own
    head = [m.wire for m in own.head]
    return replace(own, body=b"".join(dialect.render(own, messages, head, Wanted(include_usage=False))))


async def pass_through(parts: Parts, incoming: Incoming, reply: Reply, model: str | None) -> None:
    """A request to an endpoint that is none of ours. Raises UnknownModel."""
    route = parts.routes.choose(model, incoming.path)
    await pass_along(Passing(parts, under_its_name(incoming, model, route), route), reply)


async def pass_along(passing: Passing, reply: Reply) -> None:
    """The same on its way: it goes as it stands."""
    await _pass(passing, reply, record_of(passing.parts, passing.incoming, passing.route, ""))


def record_of(parts: Parts, incoming: Incoming, route: Route, status: str, reason: str = "") -> Record:
    upstream, model = route.upstream.name, route.model
    return Record(parts.keeper, incoming.id, incoming.tenant, incoming.arrived, upstream, model, status, reason)


async def _pass(passing: Passing, reply: Reply, record: Record) -> None:
    """An upstream that fails is told before the first byte, a broken connection after it."""
    record.sending((), None)
    try:
        await _carried(passing, reply, record)
    except UpstreamError as error:
        record.failed(error.code)
        record.settle(record.upstream_status or error.status)
        await fail(reply, error, record.headers(), dialect_at(passing.incoming.path))
    except asyncio.CancelledError:
        record.failed(why_cancelled(reply))
        record.settle(record.upstream_status)
        raise
    else:
        record.settle(record.upstream_status)


async def _carried(passing: Passing, reply: Reply, record: Record) -> None:
    got = await _sent(passing, passing.incoming.body)
    record.upstream_status = got.status
    if passing.request is not None and got.status in overflow.STATUSES:
        async with aclosing(got):
            refusal = await got.body()
        shorter = await _shorter(passing, passing.request, got.status, refusal)
        if shorter is None:
            await reply.start(got.status, [*got.headers, *record.headers()])
            await reply.end(refusal)
            return
        record.shortened()
        got = await _sent(passing, shorter.body)
        record.upstream_status = got.status
    if not record.status and not is_fine(got):
        record.failed("upstream_error")
    async with aclosing(got):
        await reply.start(got.status, [*got.headers, *record.headers()])
        async for chunk in got.chunks():
            await reply.send(chunk)
        await reply.end()


async def _sent(passing: Passing, body: bytes) -> Answer:
    """A refusal that is looked into must be readable."""
    incoming, upstream = passing.incoming, passing.route.upstream
    headers = outgoing_headers(incoming.headers, upstream.settings, readable=passing.request is not None)
    return await upstream.send(incoming.method, incoming.path, incoming.query, headers, body)


async def _shorter(passing: Passing, request: Request, status: int, refusal: bytes) -> Request | None:
    """What is left of a request that was refused for its length; None where it was refused for something else, or not
    all of it is here."""
    parts, route = passing.parts, passing.route
    if names_more(parts.dialect, request):
        return None
    request = renamed(await weighed(parts, request), route.model)
    if not overflow.is_overflow(status, refusal, request.tokens):
        return None
    parts.limits.refused(route.upstream.name, route.model, "", request.tokens, refusal)
    shorter = await shortened_request(parts, route, Overlong(request, quotes_of(parts, passing.incoming, request)))
    return shorter.request if shorter else None


# --------------------------------------------------------------------------------------------------------------- names
def under_its_name(incoming: Incoming, asked: str | None, route: Route) -> Incoming:
    """The request under the name that the upstream knows the model by; mostly that is the client's, and it stays as
    it came."""
    if asked is None or asked == route.model:
        return incoming
    body = slices.object_of({**slices.members(incoming.body), "model": slices.encoded(route.model)})
    return replace(incoming, body=body)


def renamed(request: Request, model: str) -> Request:
    """The request, to be rendered under the upstream's name for the model."""
    if model == request.model:
        return request
    return replace(request, fields={**request.fields, "model": slices.encoded(model)})


def is_fine(got: Answer) -> bool:
    return 200 <= got.status < 300
