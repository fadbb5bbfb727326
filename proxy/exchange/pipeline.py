"""Handles one client request, from parsing to the answer; read this first. `handle` parses the request, answers a
request to compact and slash commands, finds the conversation of the request and its place there, and decides whether
the proxy acts (both in `resolver`). Then the request is relayed as it came (`relay_unchanged_turn`), or runs through
the loop that answers the model's stack calls (`tool_loop`). If our own work fails before the first byte of the
answer, the client's original request is forwarded, and `x-stack-status` says so; with `fail_policy: closed` it is
refused. When a client disconnects, its upstream request is cancelled, and the part of the answer that had arrived is
stored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus

from msgspec.structs import replace

from proxy.core.ledger import Request
from proxy.dialects import RequestParseError
from proxy.errors import BadRequest, RequestCancelled, ShuttingDown, StoreError
from proxy.exchange.background.scheduler import in_own_time, let_others_run, with_timeout
from proxy.exchange.client_response import Reply, stopped_error
from proxy.exchange.passthrough_without_turn import (
    PassthroughRequest,
    bypass,
    strip_bound_reasoning,
    with_upstream_model,
)
from proxy.exchange.previous_responses import UNKNOWN_ANSWER, refuse_anothers_answer, resolve_references
from proxy.exchange.provider_history import read_provider_history
from proxy.exchange.relay_unchanged_turn import begin_relayed_turn, fall_back_to_relay, relay
from proxy.exchange.request_handler import FailClosedError, RequestHandler
from proxy.exchange.requested_compaction import (
    answer_requested_compaction,
    is_requested_compaction,
    place_requested_compaction,
)
from proxy.exchange.rounds import (
    HASHED_APART_BYTES,
    MAX_MESSAGES,
    ClientRequest,
    ContextRejected,
    Services,
    count_request_tokens,
    is_too_long,
    names_in,
    parse_client_request,
    placement_patience_s,
)
from proxy.exchange.slash_commands import handle_slash_commands
from proxy.exchange.thread.context_policy import RECALL_WINDOW_DIVISOR
from proxy.exchange.thread.placement import ParsedRequest, Placement
from proxy.exchange.tool_loop import tool_loop, update_refused_calls
from proxy.exchange.turn import Turn
from proxy.upstream import AskedElsewhere

log = logging.getLogger(__name__)

UNCHANGED_STATUSES = ("off", "shadow")
"""Statuses of requests that go upstream as the client wrote them, slash commands included."""


async def handle(services: Services, client_request: ClientRequest, reply: Reply) -> None:
    """Answer one request. Raises ProxyError if it is refused before anything is sent upstream."""
    if await is_too_long(client_request.body):
        await _pass_unread(services, client_request, reply)
    else:
        await _read_and_answer(services, client_request, reply)


async def _read_and_answer(services: Services, client_request: ClientRequest, reply: Reply) -> None:
    try:
        request = await parse_client_request(services, client_request.body)
    except RequestParseError:
        await _pass_unreadable(services, client_request, reply)
        return
    route = services.routes.choose(request.model, client_request.path)
    previous = services.dialect.references.previous_response_id(request) if services.dialect.references else ""
    await refuse_anothers_answer(services, client_request, route, previous)
    for_upstream = with_upstream_model(client_request, request.model, route)
    if is_requested_compaction(for_upstream.path, request):
        placed = await place_requested_compaction(PassthroughRequest(services, for_upstream, route, request), reply)
        if placed is not None:
            await _run(placed, answer_requested_compaction)
        return
    outcome = await handle_slash_commands(PassthroughRequest(services, for_upstream, route, request), reply)
    if outcome is None:
        return
    read_request, with_commands = outcome  # both have the upstream's name for the model
    without_commands, request = read_request.client_request, read_request.request or request
    try:
        placement = await _resolve_placement(services, without_commands, request)
    except StoreError as error:
        await _bypass_or_refuse(read_request, reply, error.code)
    except TimeoutError:
        await _bypass_or_refuse(read_request, reply, "too_slow")
    except ContextRejected as error:
        await bypass(read_request, reply, error.code)
    except BadRequest:
        raise
    except Exception:  # the outermost edge of our bookkeeping: the agent must not notice
        log.exception("request could not be placed", extra={"request": client_request.id})
        await _bypass_or_refuse(read_request, reply, "internal")
    else:
        # In mode off and shadow slash commands go to the model as they were typed, else they were taken out.
        to_send = with_commands if placement.status in UNCHANGED_STATUSES else without_commands
        if placement.request.body is not request.body:  # references were filled in from the ledger, whatever the mode
            to_send = with_upstream_model(replace(to_send, body=placement.request.body), request.model, route)
        handler = RequestHandler(services, to_send, reply, route, placement)
        await let_others_run(request)
        await _run(handler, _answer)


async def _pass_unreadable(services: Services, client_request: ClientRequest, reply: Reply) -> None:
    _, previous = await names_in(client_request.body)
    route = services.routes.choose(None, client_request.path)
    await refuse_anothers_answer(services, client_request, route, previous)
    await bypass(PassthroughRequest(services, client_request, route), reply, "unreadable")


async def _pass_unread(services: Services, client_request: ClientRequest, reply: Reply) -> None:
    """Forward a request that is too long to be read. Raises UnknownModel and FailClosedError."""
    model, previous = await names_in(client_request.body)
    route = services.routes.choose(model, client_request.path)
    await refuse_anothers_answer(services, client_request, route, previous)
    client_request = await asyncio.to_thread(with_upstream_model, client_request, model, route)  # it may be rewritten
    await _bypass_or_refuse(PassthroughRequest(services, client_request, route), reply, "too_long")


async def _resolve_placement(services: Services, client_request: ClientRequest, request: Request) -> Placement:
    if not request.messages:
        raise ContextRejected("there is no message to place", code="no_messages")
    if len(request.messages) > MAX_MESSAGES:
        raise ContextRejected("there are too many messages to place", code="too_many_messages")
    if (trouble := services.recorder.store.write_error()) is not None:
        raise StoreError("the store does not take records", code=trouble.code)
    patience_s = placement_patience_s(services)
    unresolved = request
    request, unplaced_reason = await with_timeout(patience_s, resolve_references(services, client_request, unresolved))
    if unplaced_reason == UNKNOWN_ANSWER and (
        earlier := await read_provider_history(services, client_request, unresolved)
    ):
        request, unplaced_reason = await with_timeout(
            patience_s, resolve_references(services, client_request, unresolved, earlier)
        )
    request = await count_request_tokens(services, request)
    if len(request.body) >= HASHED_APART_BYTES:
        await asyncio.to_thread(getattr, request, "digest")  # computes the cached property in a thread
    parsed = ParsedRequest(client_request.tenant, client_request.headers, request, services.now(), client_request.mode)
    if not unplaced_reason:
        return await with_timeout(patience_s, services.resolver.resolve(parsed))
    if apart := await with_timeout(patience_s, services.resolver.resolve_bypassed(parsed, unplaced_reason)):
        return apart
    raise ContextRejected("the request refers to content that only the provider has", code=unplaced_reason)


async def _run(handler: RequestHandler, answer: Callable[[RequestHandler], Awaitable[None]]) -> None:
    """Answer the client. Cancellations are recorded here: the client left, a person stopped the request, or the proxy
    stops."""
    try:
        handler.interrupts.register()
        handler.end_pause()
        try:
            await (handler.refuse_stopped() if handler.is_stopped else answer(handler))
        finally:
            handler.interrupts.unregister()
    except AskedElsewhere:
        handler.record.finish(HTTPStatus.OK)
        raise
    except asyncio.CancelledError:
        if not handler.client_response.writer.is_finished:  # some clients leave as soon as they have read the end
            handler.record.mark_failed(handler.cancel_reason)
        unstarted = (
            RequestCancelled.status
            if handler.interrupts.cancelled_by_user
            else 0
            if handler.reply.client_left
            else ShuttingDown.status
        )
        handler.record.finish(handler.record.upstream_status if handler.reply.started else unstarted)
        if handler.interrupts.cancelled_by_user:
            await handler.send_cancelled_error()
            return
        if not (handler.reply.client_left or handler.client_response.writer.is_finished):
            await handler.client_response.send_error(stopped_error())
        raise
    finally:
        if handler.services.summarizer is not None:
            handler.services.summarizer.enqueue_folds(handler.placement)
        handler.begin_pause()


async def _answer(handler: RequestHandler) -> None:
    if handler.services.config.fail_policy == "closed" and not await handler.ensure_stored():
        return
    if not handler.placement.is_rendered:
        turn = begin_relayed_turn(handler)
        if turn is not None and handler.placement.status == "shadow":
            estimate = partial(handler.context_fitter.estimate_active_tokens, turn)
            handler.record.tokens_would_send = await in_own_time(handler.request, estimate)
        await relay(handler, turn)
        return
    try:
        turn = Turn.begin(handler.placement, handler.services.conversation_cache, handler.services.toolkit)
        turn.max_recall_tokens = handler.context_fitter.window().tokens // RECALL_WINDOW_DIVISOR
        context = await handler.context_fitter.build(turn)
        await let_others_run(handler.request)
    except (StoreError, ContextRejected) as error:
        await fall_back_to_relay(handler, error.code)
    except Exception:  # assembling failed: the agent must not notice
        log.exception("line could not be assembled", extra={"request": handler.client_request.id})
        await fall_back_to_relay(handler, "internal")
    else:
        handler.interrupts.turn = turn
        # A person's waiting message leads to a second answer behind this one. Two JSON documents in a row are no valid
        # JSON, so with structured output the message waits for the next request.
        if not handler.request.wants_structured_output:
            handler.client_response.writer.should_continue = handler.interrupts.has_follow_up
        update_refused_calls(handler, turn)
        delivery = handler.client_response
        delivery.start_keep_alive(handler.services.config.keep_alive_s)
        try:
            await tool_loop(handler, turn, context)
        finally:
            delivery.stop_keep_alive()


async def _bypass_or_refuse(passing: PassthroughRequest, reply: Reply, reason: str) -> None:
    """Forward the request, unless `fail_policy` forbids it. Raises FailClosedError."""
    if passing.services.config.fail_policy == "closed":
        raise FailClosedError(reason)
    await bypass(await strip_bound_reasoning(passing), reply, reason)
