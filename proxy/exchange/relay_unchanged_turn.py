"""Sends the client's own request upstream and the provider's bytes down, and records the answer as a turn."""

from __future__ import annotations

import logging
from contextlib import aclosing

from msgspec.structs import replace

from proxy.core.ledger import ModelResponse, Request
from proxy.errors import StoreError, UpstreamError
from proxy.exchange.background.recorder import client_chain
from proxy.exchange.passthrough_without_turn import is_refused_for_form, is_success, without_bound_reasoning
from proxy.exchange.request_handler import RequestHandler, is_unusable_round
from proxy.exchange.rounds import OversizedRequest, Refusal, shorten_request
from proxy.exchange.turn import Turn
from proxy.upstream import Answer, overflow_errors

log = logging.getLogger(__name__)


async def relay(handler: RequestHandler, turn: Turn | None) -> None:
    try:
        got = await _send_original_or_shortened(handler)
    except UpstreamError as error:
        handler.record.mark_failed(error.code)
        handler.record.finish(error.status)
        await handler.client_response.send_error(error)
        return
    if got is None:
        return
    if not is_success(got):
        handler.record.form = ""  # our additions were not the cause
    if not is_success(got) and not handler.placement.refers_to_providers_content:
        handler.record.mark_failed("upstream_error")
    _, spoken = await handler.receive_round(turn, got)
    await handler.store_last_round_in_steps(turn, spoken)
    _remember_side_answer(handler, spoken)
    await handler.finish(got.status)


def _remember_side_answer(handler: RequestHandler, spoken: ModelResponse) -> None:
    """A request that holds an answer given beside its thread is no side request any more."""
    placement, message = handler.placement, spoken.message
    if placement.status != "side" or placement.entry_id or not (message.text.strip() or message.calls):
        return
    try:
        handler.services.resolver.record_side_answer(placement, message)
    except StoreError as error:
        log.warning("side answer not kept", extra={"request": handler.client_request.id, "code": error.code})


async def fall_back_to_relay(handler: RequestHandler, reason: str) -> None:
    """Relay the client's own request after a failure. No turn is recorded: its place on the path is not certain."""
    if handler.services.config.fail_policy == "closed":
        await handler.refuse_unstored(reason)
        return
    handler.record.mark_bypassed(reason)
    handler.client_response = handler.new_client_response(intercept=False)
    await relay(handler, None)


async def continue_with_original(handler: RequestHandler, reason: str) -> None:
    """Answer the client's own request in a stream that has begun and of which nothing readable has left. As in
    `fall_back_to_relay`, no turn is recorded."""
    if handler.services.config.fail_policy == "closed":
        await handler.refuse_unstored(reason)
        return
    handler.record.mark_bypassed(reason)
    writer = handler.client_response.writer
    writer.should_refuse = writer.should_continue = writer.should_retry = None
    try:
        got = await _send_original_or_shortened(handler)
    except UpstreamError as error:
        await handler.fail_turn(error)
        return
    if got is None:
        return
    complete, spoken = await handler.receive_round(None, got)
    handler.record_response(spoken)
    if complete and (is_unusable_round(handler, spoken) or (spoken.proxy_calls and not spoken.client_calls)):
        await handler.fail_unusable_round(got)
        return
    await handler.finish(got.status)


async def _send_original_or_shortened(handler: RequestHandler) -> Answer | None:
    """The provider's answer to the client's own request; None if the client got the provider's refusal. A history that
    grew past the window because the client saw our short context, or that quotes another conversation, is shortened
    once: before it leaves or when the provider refuses it. What is refused without the reasoning that fails elsewhere
    goes once more as the client wrote it."""
    original, window = _original_request(handler), handler.context_fitter.window()
    kept_there = handler.placement.refers_to_providers_content
    grown = (handler.placement.path_state.tree.is_awake or handler.record.status == "bypass") and not kept_there
    too_long = window.is_binding and original.tokens > window.tokens and not kept_there
    if too_long and (shorter := await _shorten_original(handler, grown=grown)):
        return await handler.round_sender.send_original(shorter)
    handler.record.add_relayed_round(original)
    got = await handler.round_sender.send_original(original)
    is_stripped = original.body is not handler.client_request.body and not is_success(got)
    may_shorten = not kept_there and (grown or handler.context_fitter.quotes.is_possible)
    may_be_longer = may_shorten or bool(handler.round_sender.fallbacks)
    if not is_stripped and (got.status not in overflow_errors.OVERFLOW_STATUSES or not may_be_longer):
        return got
    async with aclosing(got):
        refused = Refusal(got.status, await got.body(), original.tokens)
    too_long = may_shorten and handler.context_fitter.learn_if_too_long(refused)
    if too_long and (shorter := await _shorten_original(handler, grown=grown, again=True)):
        return await handler.round_sender.send_original(shorter)
    if is_stripped and not too_long and is_refused_for_form(handler.services, handler.route, got.status, refused.body):
        handler.record.add_retry()
        untouched = replace(original, body=handler.client_request.body)
        handler.record.add_relayed_round(untouched)
        return await handler.round_sender.send_original(untouched)
    if other := await handler.round_sender.send_to_larger(original.body, refused):
        return other
    handler.record.form = ""
    handler.record.mark_failed("upstream_error")
    handler.record.finish(got.status)
    await handler.client_response.send_refusal(got, refused.body, handler.services.now())
    return None


async def _shorten_original(handler: RequestHandler, *, grown: bool, again: bool = False) -> Request | None:
    """What is left of the client's own request, recorded as sent; None if nothing can go. `grown`: the history itself
    may be shortened, else only what it quotes. `again`: the whole request was refused."""
    overlong = OversizedRequest(handler.request, handler.context_fitter.quotes, handler.placement.conversation, grown)
    if (shorter := await shorten_request(handler.services, handler.route, overlong)) is None:
        return None
    if again:
        handler.record.add_retry()
    handler.record.mark_stateless("" if handler.record.status == "bypass" else "window")
    left = shorter.request
    chain = handler.record.hash_chain(client_chain(left), left)
    handler.record.add_sent_round(chain, (left.body,), added_texts=shorter.added_tokens)
    return left


def _original_request(handler: RequestHandler) -> Request:
    original = handler.request
    if original.body is not handler.client_request.body:
        original = replace(original, body=handler.client_request.body)
    if handler.placement.refers_to_providers_content:
        return original
    return without_bound_reasoning(handler.services, handler.route, original, handler.placement)


def begin_relayed_turn(handler: RequestHandler) -> Turn | None:
    """The turn to record; None for a side request, which stands on no path."""
    if not handler.placement.entry_id:
        return None
    try:
        return Turn.begin(
            handler.placement, handler.services.conversation_cache, handler.services.toolkit, is_relayed=True
        )
    except StoreError as error:
        handler.record.mark_bypassed(error.code)
        return None
