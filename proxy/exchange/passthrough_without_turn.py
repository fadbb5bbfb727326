"""Requests that go upstream as they came, and the provider's bytes back. No turn is recorded. There are two exceptions,
both for threads that the proxy has acted in: a request refused for its length is shortened and sent once more, and
reasoning that the provider binds to our context is left out, because it would refuse it elsewhere. Where the provider
refuses that as well, the client's own bytes go."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from http import HTTPStatus

import msgspec
from msgspec.structs import replace

from proxy.core.ledger import Request
from proxy.dialects import RenderOptions, dialect_at, raw_json
from proxy.errors import StoreError, UpstreamError
from proxy.exchange.background.recorder import RequestRecordBuilder
from proxy.exchange.background.scheduler import with_timeout
from proxy.exchange.client_response import Reply, cancel_reason, send_error_response, stopped_error, stream_comment
from proxy.exchange.previous_responses import has_references
from proxy.exchange.rounds import (
    ClientRequest,
    Fallbacks,
    OversizedRequest,
    Services,
    count_request_tokens,
    quotes_of,
    shorten_request,
)
from proxy.exchange.thread.bound_reasoning import binds_reasoning, strip_client_reasoning
from proxy.exchange.thread.placement import ParsedRequest, Placement, positions_made_behind_ours
from proxy.upstream import Answer, AskedElsewhere, Route, note_rest, outgoing_headers, overflow_errors, request_forms

log = logging.getLogger(__name__)

RESOLVE_TIMEOUT_S = 0.1
"""Longest wait for the conversation of a request that passes; a cached one is found at once."""


class PassthroughRequest(msgspec.Struct, frozen=True):
    """A request to forward. `request` is the parsed form, if it was read and may be shortened."""

    services: Services
    client_request: ClientRequest
    route: Route
    request: Request | None = None
    untouched_body: bytes = b""
    """The client's own bytes, where reasoning is left out of the request; else empty."""


async def bypass(passing: PassthroughRequest, reply: Reply, reason: str) -> None:
    """Forward the request as it came; a header says why."""
    record = new_request_record(passing.services, passing.client_request, passing.route, "bypass", reason)
    await _forward_recorded(passing, reply, record)


async def strip_bound_reasoning(passing: PassthroughRequest) -> PassthroughRequest:
    """The request without reasoning that its provider would refuse, if its conversation is found in time: what kept the
    request from being placed may keep the store from being read."""
    services, incoming, route, request = passing.services, passing.client_request, passing.route, passing.request
    if request is None or not binds_reasoning(services.config, services.dialect, route.model):
        return passing
    parsed = ParsedRequest(incoming.tenant, incoming.headers, request, services.now(), incoming.mode)
    try:
        placement = await with_timeout(RESOLVE_TIMEOUT_S, services.resolver.resolve_bypassed(parsed, ""))
        if placement is None:
            return passing
        own = replace(with_model(request, route.model), body=incoming.body)
        left = without_bound_reasoning(services, route, own, placement)
    except (StoreError, TimeoutError):
        return passing
    except Exception:  # our bookkeeping has failed once already, and the agent must not notice
        log.exception("what is bound cannot be told", extra={"request": incoming.id})
        return passing
    if left is own:
        return passing
    return replace(passing, client_request=replace(incoming, body=left.body), untouched_body=incoming.body)


def without_bound_reasoning(services: Services, route: Route, own: Request, placement: Placement) -> Request:
    """A client's own request, less the reasoning that its provider binds to a prefix of our context."""
    config, dialect, model = services.config, services.dialect, route.model
    behind = positions_made_behind_ours(placement.ledger, placement.path_state, len(own.messages))
    if not behind or not binds_reasoning(config, dialect, model):
        return own
    bare = strip_client_reasoning(config, dialect, own, model, own.messages)
    messages = tuple(bare[at] if at in behind else message for at, message in enumerate(own.messages))
    if messages == own.messages:
        return own
    head = [m.wire for m in own.head]
    return replace(own, body=b"".join(dialect.render(own, messages, head, RenderOptions(include_usage=False))))


def is_refused_for_form(services: Services, route: Route, status: int, refusal: bytes) -> bool:
    """Whether a provider may take the client's own bytes where it refused them without some reasoning."""
    knows_api = services.config.tariff_of(route.model).roles == "any"
    return request_forms.is_form_refusal(status, refusal, knows_api=knows_api)


async def pass_through(services: Services, incoming: ClientRequest, reply: Reply, model: str | None) -> None:
    """Forward a request to an endpoint that the proxy does not handle. Raises UnknownModel."""
    route = services.routes.choose_for_endpoint(model, incoming.path, incoming.headers)
    await forward(PassthroughRequest(services, with_upstream_model(incoming, model, route), route), reply)


async def forward(passing: PassthroughRequest, reply: Reply) -> None:
    await _forward_recorded(
        passing, reply, new_request_record(passing.services, passing.client_request, passing.route, "")
    )


def new_request_record(
    services: Services, incoming: ClientRequest, route: Route, status: str, reason: str = ""
) -> RequestRecordBuilder:
    upstream, model = route.upstream.name, route.model
    return RequestRecordBuilder(
        services.recorder, incoming.id, incoming.tenant, incoming.arrived, upstream, model, status, reason
    )


async def _forward_recorded(passing: PassthroughRequest, reply: Reply, record: RequestRecordBuilder) -> None:
    """Before the first byte an upstream failure is an error response, after it a broken connection."""
    record.add_sent_round((), None)
    try:
        await _send_and_copy(passing, reply, record)
    except UpstreamError as error:
        record.mark_failed(error.code)
        record.finish(record.upstream_status or error.status)
        await send_error_response(reply, error, record.headers(), dialect_at(passing.client_request.path))
    except AskedElsewhere:
        record.finish(HTTPStatus.OK)
        raise
    except asyncio.CancelledError:
        record.mark_failed(cancel_reason(reply))
        stopped = stopped_error()
        record.finish(record.upstream_status if reply.started or reply.client_left else stopped.status)
        if not reply.client_left:
            await send_error_response(reply, stopped, record.headers(), dialect_at(passing.client_request.path))
        raise
    else:
        record.finish(record.upstream_status)


async def _send_and_copy(passing: PassthroughRequest, reply: Reply, record: RequestRecordBuilder) -> None:
    got = await _send_upstream(passing, passing.client_request.body, record)
    record.upstream_status = got.status
    is_stripped = bool(passing.untouched_body) and not is_success(got)
    if passing.request is not None and (is_stripped or got.status in overflow_errors.OVERFLOW_STATUSES):
        async with aclosing(got):
            refusal = await got.body()
        shorter = await _shorten_refused(passing, passing.request, got.status, refusal)
        if shorter is not None:
            record.mark_stateless()
        elif not is_stripped or not is_refused_for_form(passing.services, passing.route, got.status, refusal):
            await reply.start(got.status, [*got.headers, *record.headers()])
            await reply.end(refusal)
            return
        got = await _send_upstream(passing, shorter.body if shorter else passing.untouched_body, record)
        record.upstream_status = got.status
    if not record.status and not is_success(got):
        record.mark_failed("upstream_error")
    async with aclosing(got):
        await reply.start(got.status, [*got.headers, *record.headers()])
        sent = b""  # the end of it
        try:
            async for chunk in got.chunks():
                end, sent = (sent + chunk[-4:])[-4:], b""  # a large chunk may leave by half
                await reply.send(chunk)
                sent = end
        except asyncio.CancelledError:
            if not reply.client_left and _is_plain_stream(got) and sent.endswith((b"\n\n", b"\r\n\r\n")):
                await reply.send(stream_comment(str(stopped_error())))
            raise
        await reply.end()


def _is_plain_stream(got: Answer) -> bool:
    """Whether a comment of ours may stand behind its events."""
    is_other = got.header(b"content-length") or got.header(b"content-encoding")
    return not is_other and b"event-stream" in got.header(b"content-type")


async def _send_upstream(passing: PassthroughRequest, body: bytes, record: RequestRecordBuilder) -> Answer:
    incoming, upstream = passing.client_request, passing.route.upstream
    if passing.request is not None:
        others = Fallbacks(passing.services, incoming, passing.route, passing.request.model or "", record.switch_route)
        return await others.send(body, readable=True)
    headers = outgoing_headers(incoming.headers, upstream.settings, readable=False)
    got = await upstream.send(incoming.method, incoming.path, incoming.query, headers, body)
    note_rest(upstream, got, passing.services.now())
    return got


async def _shorten_refused(
    passing: PassthroughRequest, request: Request, status: int, refusal: bytes
) -> Request | None:
    """A shorter request, or None if it was refused for another reason than length, or parts of it are not here."""
    services, route = passing.services, passing.route
    if has_references(services.dialect, request):
        return None
    request = with_model(await count_request_tokens(services, request), route.model)
    if not overflow_errors.is_overflow(status, refusal, request.tokens):
        return None
    services.context_windows.learn_from_refusal(route.upstream.name, route.model, "", request.tokens, refusal)
    shorter = await shorten_request(
        services, route, OversizedRequest(request, quotes_of(services, passing.client_request, request))
    )
    return shorter.request if shorter else None


# --------------------------------------------------------------------------------------------------------------- names
def with_upstream_model(incoming: ClientRequest, asked: str | None, route: Route) -> ClientRequest:
    """The request under the upstream's name for the model; unchanged if the client's name is the same."""
    if asked is None or asked == route.model:
        return incoming
    body = raw_json.join_object({**raw_json.members(incoming.body), "model": raw_json.encode(route.model)})
    return replace(incoming, body=body)


def with_model(request: Request, model: str) -> Request:
    """The request, to be rendered with the upstream's name for the model."""
    if model == request.model:
        return request
    return replace(request, fields={**request.fields, "model": raw_json.encode(model)})


def is_success(got: Answer) -> bool:
    return 200 <= got.status < 300
