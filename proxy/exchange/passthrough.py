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

from proxy.core.ledger import Request
from proxy.dialects import RenderOptions, dialect_at
from proxy.dialects import raw_json as slices
from proxy.errors import StoreError, UpstreamError
from proxy.exchange.background.recorder import RequestRecordBuilder
from proxy.exchange.background.scheduling import with_timeout
from proxy.exchange.client_response import Reply, cancel_reason, send_error_response
from proxy.exchange.previous_responses import has_references
from proxy.exchange.rounds import (
    ClientRequest,
    OversizedRequest,
    Services,
    count_request_tokens,
    quotes_of,
    shorten_request,
)
from proxy.exchange.thread.activation import binds_reasoning, strip_client_reasoning
from proxy.exchange.thread.placement import ParsedRequest, Placement, positions_made_behind_ours
from proxy.upstream import Answer, Route, outgoing_headers
from proxy.upstream import overflow_errors as overflow

log = logging.getLogger(__name__)

RESOLVE_TIMEOUT_S = 0.1
"""How long a request waits to be found in its conversation before it passes; what is at hand is found at once."""


class PassthroughRequest(msgspec.Struct, frozen=True):
    """A request on its way. `request` is what it says, where it was read and may be shortened."""

    services: Services
    client_request: ClientRequest
    route: Route
    request: Request | None = None


async def bypass(passing: PassthroughRequest, reply: Reply, reason: str) -> None:
    """Without us, and a header that says why."""
    record = new_request_record(passing.services, passing.client_request, passing.route, "bypass", reason)
    await _forward_recorded(passing, reply, record)


async def strip_bound_reasoning(passing: PassthroughRequest) -> PassthroughRequest:
    """The same without the reasoning that its provider would refuse (L8), where its conversation is at hand: what keeps
    a request from being placed may keep the store from being read."""
    parts, incoming, route, request = passing.services, passing.client_request, passing.route, passing.request
    if request is None or not binds_reasoning(parts.config, parts.dialect, route.model):
        return passing
    parsed = ParsedRequest(incoming.tenant, incoming.headers, request, parts.now(), incoming.mode)
    try:
        placement = await with_timeout(RESOLVE_TIMEOUT_S, parts.resolver.resolve_bypassed(parsed, ""))
        if placement is None:
            return passing
        own = replace(with_model(request, route.model), body=incoming.body)
        left = without_bound_reasoning(parts, route, own, placement)
    except (StoreError, TimeoutError):
        return passing
    except Exception:  # our bookkeeping has failed once already, and the agent must not notice
        log.exception("what is bound cannot be told", extra={"request": incoming.id})
        return passing
    return replace(passing, client_request=replace(incoming, body=left.body))


def without_bound_reasoning(parts: Services, route: Route, own: Request, placement: Placement) -> Request:
    """A client's own request, less the reasoning that its provider binds to a prefix only a line of ours has (L8)."""
    config, dialect, model = parts.config, parts.dialect, route.model
    behind = positions_made_behind_ours(placement.ledger, placement.path_state, len(own.messages))
    if not behind or not binds_reasoning(config, dialect, model):
        return own
    bare = strip_client_reasoning(config, dialect, own, model, own.messages)
    messages = tuple(bare[at] if at in behind else message for at, message in enumerate(own.messages))
    if messages == own.messages:
        return own
    head = [m.wire for m in own.head]
    return replace(own, body=b"".join(dialect.render(own, messages, head, RenderOptions(include_usage=False))))


async def pass_through(parts: Services, incoming: ClientRequest, reply: Reply, model: str | None) -> None:
    """A request to an endpoint that is none of ours. Raises UnknownModel."""
    route = parts.routes.choose(model, incoming.path)
    await forward(PassthroughRequest(parts, with_upstream_model(incoming, model, route), route), reply)


async def forward(passing: PassthroughRequest, reply: Reply) -> None:
    """The same on its way: it goes as it stands."""
    await _forward_recorded(
        passing, reply, new_request_record(passing.services, passing.client_request, passing.route, "")
    )


def new_request_record(
    parts: Services, incoming: ClientRequest, route: Route, status: str, reason: str = ""
) -> RequestRecordBuilder:
    upstream, model = route.upstream.name, route.model
    return RequestRecordBuilder(
        parts.recorder, incoming.id, incoming.tenant, incoming.arrived, upstream, model, status, reason
    )


async def _forward_recorded(passing: PassthroughRequest, reply: Reply, record: RequestRecordBuilder) -> None:
    """An upstream that fails is told before the first byte, a broken connection after it."""
    record.add_sent_round((), None)
    try:
        await _send_and_copy(passing, reply, record)
    except UpstreamError as error:
        record.mark_failed(error.code)
        record.finish(record.upstream_status or error.status)
        await send_error_response(reply, error, record.headers(), dialect_at(passing.client_request.path))
    except asyncio.CancelledError:
        record.mark_failed(cancel_reason(reply))
        record.finish(record.upstream_status)
        raise
    else:
        record.finish(record.upstream_status)


async def _send_and_copy(passing: PassthroughRequest, reply: Reply, record: RequestRecordBuilder) -> None:
    got = await _send_upstream(passing, passing.client_request.body)
    record.upstream_status = got.status
    if passing.request is not None and got.status in overflow.OVERFLOW_STATUSES:
        async with aclosing(got):
            refusal = await got.body()
        shorter = await _shorten_refused(passing, passing.request, got.status, refusal)
        if shorter is None:
            await reply.start(got.status, [*got.headers, *record.headers()])
            await reply.end(refusal)
            return
        record.mark_stateless()
        got = await _send_upstream(passing, shorter.body)
        record.upstream_status = got.status
    if not record.status and not is_success(got):
        record.mark_failed("upstream_error")
    async with aclosing(got):
        await reply.start(got.status, [*got.headers, *record.headers()])
        async for chunk in got.chunks():
            await reply.send(chunk)
        await reply.end()


async def _send_upstream(passing: PassthroughRequest, body: bytes) -> Answer:
    """A refusal that is looked into must be readable."""
    incoming, upstream = passing.client_request, passing.route.upstream
    headers = outgoing_headers(incoming.headers, upstream.settings, readable=passing.request is not None)
    return await upstream.send(incoming.method, incoming.path, incoming.query, headers, body)


async def _shorten_refused(
    passing: PassthroughRequest, request: Request, status: int, refusal: bytes
) -> Request | None:
    """What is left of a request that was refused for its length; None where it was refused for something else, or not
    all of it is here."""
    parts, route = passing.services, passing.route
    if has_references(parts.dialect, request):
        return None
    request = with_model(await count_request_tokens(parts, request), route.model)
    if not overflow.is_overflow(status, refusal, request.tokens):
        return None
    parts.context_windows.learn_from_refusal(route.upstream.name, route.model, "", request.tokens, refusal)
    shorter = await shorten_request(
        parts, route, OversizedRequest(request, quotes_of(parts, passing.client_request, request))
    )
    return shorter.request if shorter else None


# --------------------------------------------------------------------------------------------------------------- names
def with_upstream_model(incoming: ClientRequest, asked: str | None, route: Route) -> ClientRequest:
    """The request under the name that the upstream knows the model by; mostly that is the client's, and it stays as
    it came."""
    if asked is None or asked == route.model:
        return incoming
    body = slices.join_object({**slices.members(incoming.body), "model": slices.encode(route.model)})
    return replace(incoming, body=body)


def with_model(request: Request, model: str) -> Request:
    """The request, to be rendered under the upstream's name for the model."""
    if model == request.model:
        return request
    return replace(request, fields={**request.fields, "model": slices.encode(model)})


def is_success(got: Answer) -> bool:
    return 200 <= got.status < 300
