"""The tool loop: send a round, run its stack calls, and ask again until a round is for the client."""

from __future__ import annotations

import logging
import time

from msgspec.structs import replace

from proxy.core.context import Context
from proxy.core.ledger import ModelResponse
from proxy.errors import ProxyError, StoreError
from proxy.exchange.background.recorder import LOOPING_CALL
from proxy.exchange.notes.warnings import loop_refusal
from proxy.exchange.recall_sources import find_related_ledgers, search_other_conversations
from proxy.exchange.relay_unchanged_turn import continue_with_original, fall_back_to_relay
from proxy.exchange.request_handler import UNFINISHED_TURN_TEXT, RequestHandler, is_unusable_round
from proxy.exchange.rounds import ContextRejected
from proxy.exchange.turn import Turn

log = logging.getLogger(__name__)

MAX_STACK_CALLS = 128
"""Calls of ours in one round: of 20,000 recalls, each round held all other requests up for 10 s."""


async def tool_loop(handler: RequestHandler, turn: Turn, context: Context) -> None:
    calls_are_refused, was_shortened, has_spoken = False, False, False
    handler.client_response.writer.should_retry = handler.round_sender.is_retryable_error
    while True:
        handler.client_response.writer.hides_text = handler.shows_last_text_only and not calls_are_refused
        try:
            got = await handler.round_sender.send(
                turn, context, handler.client_response, no_calls=calls_are_refused, may_trim=not was_shortened
            )
        except ContextRejected as error:
            await _fall_back_or_fail(handler, error.code, has_spoken=has_spoken)
            return
        if got is None:
            return
        complete, spoken = await handler.receive_round(turn, got)
        has_spoken = has_spoken or (bool(spoken.message.text.strip()) and not handler.client_response.writer.hides_text)
        if complete and not was_shortened and (shorter := await _shorten_failed_round(handler, turn, context, spoken)):
            context, was_shortened = shorter, True
            continue
        failure = _too_many_calls(handler, spoken)
        if failure or (complete and turn.round_number and is_unusable_round(handler, spoken)):
            handler.record_response(spoken)
            await handler.fail_unusable_round(got, failure)
            return
        goes_on = complete and handler.client_response.writer.another_round_follows and not _response_has_ended(handler)
        if goes_on and handler.interrupts.has_follow_up(spoken.finish):
            handler.record_response(spoken)
            try:
                context = await handler.interrupts.build_follow_up_context(turn, spoken, handler.record)
                calls_are_refused = False
            except (StoreError, ContextRejected) as error:  # send the client the end that was held back
                handler.report_unstored_round(error.code)
                await handler.finish(got.status)
                return
            handler.deadline = time.monotonic() + handler.services.config.stack_seconds
            continue
        if not complete or not spoken.proxy_calls or _response_has_ended(handler):
            await _end_turn(handler, turn, spoken, got.status)
            return
        if not turn.round_number:  # a model may think for minutes before its first call
            handler.deadline = time.monotonic() + handler.services.config.stack_seconds
        turn_ends, calls_are_refused = _judge_calls(handler, turn, spoken, were_refused=calls_are_refused)
        try:
            next_context = await _run_hidden_round(handler, turn, spoken, refuse=calls_are_refused, last=turn_ends)
        except (StoreError, ContextRejected) as error:
            await _fall_back_or_fail(handler, error.code, has_spoken=has_spoken)
            return
        if next_context is None:
            await _end_with_stack_calls(handler, got.status, has_spoken=has_spoken)
            return
        context = next_context


async def _run_hidden_round(
    handler: RequestHandler, turn: Turn, spoken: ModelResponse, *, refuse: bool, last: bool
) -> Context | None:
    """Run the stack calls of a round, or `refuse` them; returns the context of the next one, None if this is the `last`
    of its turn. Raises StoreError and ContextRejected."""
    try:
        if await _run_stack_calls(handler, turn, spoken, refuse=refuse, last=last):
            return None
        update_refused_calls(handler, turn)
        if not refuse:
            handler.interrupts.deliver_steering_messages(turn, handler.record)
        return await handler.context_fitter.build(turn)
    except ProxyError:
        raise
    except Exception as error:  # our bookkeeping failed: the agent must not notice
        log.exception("hidden round could not be carried out", extra={"request": handler.client_request.id})
        raise ContextRejected("a hidden round failed inside the proxy", code="internal") from error


def _too_many_calls(handler: RequestHandler, spoken: ModelResponse) -> ProxyError | None:
    is_flood = spoken.complete and len(spoken.proxy_calls) > MAX_STACK_CALLS
    return handler.endless(f"{MAX_STACK_CALLS} calls of the proxy's own tools") if is_flood else None


def update_refused_calls(handler: RequestHandler, turn: Turn) -> None:
    """Set which calls the next round may not make: a push or pop in the last round may have ended a loop."""
    if handler.placement.refused_signatures:  # else computing the path state is wasted
        names, window = handler.services.resolver.policy.inference_rules.tool_roles, handler.services.config.loop_window
        handler.client_response.writer.should_refuse = loop_refusal(handler.placement, turn.path_state, names, window)


def _judge_calls(
    handler: RequestHandler, turn: Turn, spoken: ModelResponse, *, were_refused: bool
) -> tuple[bool, bool]:
    """Whether the turn ends with this round, and whether its stack calls are refused. `were_refused`: the model was
    told that it may make none. A model that goes on calling then is not paid for another such round, and where the
    client itself forbids calls, none follows an answer."""
    learned, model = handler.services.learned_traits, handler.context_fitter.model
    if were_refused:
        learned.learn("calls_anyway", model)
    forbidden_by_client = handler.request.tool_choice == "none"
    forbidden = were_refused or forbidden_by_client
    if spoken.client_calls:  # no round follows a call of the client's, so there is nothing to limit
        return True, forbidden
    is_last = turn.round_number + 1 >= handler.services.config.stack_rounds or time.monotonic() > handler.deadline
    if not (forbidden or is_last):
        return False, False
    answered = forbidden_by_client and bool(turn.snapshot(spoken.message).text.strip())
    return were_refused or answered or learned.has("calls_anyway", model), True


async def _shorten_failed_round(
    handler: RequestHandler, turn: Turn, context: Context, spoken: ModelResponse
) -> Context | None:
    """The context to retry with, if the answer was empty or an error because the context was too long."""
    writing = handler.client_response.writer
    if writing.can_retry_empty_round:
        shorter = await handler.round_sender.shorten_after_empty_answer(turn, context)
    elif refusal := writing.retryable_error:
        shorter = await handler.round_sender.replace_after_error(turn, context, refusal)
    else:
        return None
    if shorter is not None:
        writing.retry_round()
        handler.record.add_retry(spoken.usage)
    return shorter


async def _fall_back_or_fail(handler: RequestHandler, reason: str, *, has_spoken: bool) -> None:
    """A hidden round could not be stored: answer the client's own request instead, in the same stream where one has
    begun. If the client has read words of this answer (`has_spoken`), they would come twice: the request fails."""
    if not handler.reply.started:
        await fall_back_to_relay(handler, reason)
    elif has_spoken:
        await handler.fail_turn(ProxyError(UNFINISHED_TURN_TEXT, code=reason))
    else:
        await continue_with_original(handler, reason)


def _response_has_ended(handler: RequestHandler) -> bool:
    """Whether the provider reported a failure or the client has its end: no round can follow."""
    writing = handler.client_response.writer
    return writing.is_error or writing.round_failed or writing.is_finished


async def _run_stack_calls(
    handler: RequestHandler, turn: Turn, spoken: ModelResponse, *, refuse: bool, last: bool
) -> bool:
    """Run the stack calls of a round, and make it durable before anything that depends on it leaves. `last`: no round
    follows it. Returns whether it is the last one, which it also is where the client's budget has no room for
    another."""
    handler.record_response(spoken)
    now = handler.services.now()
    weighed = replace(spoken, message=handler.services.composer.with_token_count(spoken.message))
    ledgers = await find_related_ledgers(handler.services, turn, spoken)
    others = await search_other_conversations(handler.services, turn, spoken, ledgers)
    turn.free_tokens = handler.context_fitter.room_for_results(turn, weighed, handler.round_sender.sent_tokens)
    results, events = turn.run_stack_calls(weighed, now, refuse=refuse, beside=ledgers, elsewhere=others)
    if not last:
        await handler.reserve_round(sum(result.tokens for result in results))
        last = handler.round_refusal is not None
    handler.record.add_stack_calls([c.name if c.is_stack_call else LOOPING_CALL for c in spoken.proxy_calls], events)
    turn.store_round(weighed, results, events, now, last=last)
    await turn.wait_until_durable()
    return last


async def _end_with_stack_calls(handler: RequestHandler, status: int, *, has_spoken: bool) -> None:
    """End the answer with a round of stack calls. Where the budget of the client's key ended it before the client could
    read a word, the client learns why."""
    if handler.round_refusal is not None and not has_spoken:
        await handler.fail_turn(handler.round_refusal)
    else:
        await handler.finish(status)


async def _end_turn(handler: RequestHandler, turn: Turn, spoken: ModelResponse, status: int) -> None:
    hidden = turn.round_number > 0
    await handler.store_last_round_in_steps(turn, spoken)
    if hidden:
        try:
            await turn.wait_until_durable()
        except StoreError as error:
            handler.report_unstored_round(error.code)
    await handler.finish(status)
