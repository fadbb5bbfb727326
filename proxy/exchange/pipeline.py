"""One client turn, from the request to the answer. Read this first.

    serve     a completion request: taken apart, weighed, placed (`reception`); what cannot be goes without us
              (`passing`)
    relay     asleep, side, off, shadow, bypass: the client's bytes up, the provider's bytes down, read along, recorded
    converse  awake: ask for a round with the line of the active frame (`asking`), run its stack calls (`turn`), ask
              again; one answer to the client (`delivery`)

Its laws: what goes wrong in our bookkeeping sends the request upstream without us and says so; an error of the
provider reaches the client unchanged; nothing is asked again once a byte of the answer has left; a client that goes
away, by cancelling this, closes the upstream at once, and what had arrived is kept as partial.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing

from msgspec.structs import replace

from proxy.core.context import Context
from proxy.core.ledger import ModelResponse, Request
from proxy.dialects import RequestParseError
from proxy.errors import (
    BadRequest,
    ProxyError,
    RequestCancelled,
    ShuttingDown,
    StoreError,
    UpstreamError,
    UpstreamInvalidResponse,
)
from proxy.exchange.background.recorder import LOOPING_CALL, client_chain
from proxy.exchange.background.scheduling import with_timeout
from proxy.exchange.client_response import ClientResponse, Reply, cancel_reason
from proxy.exchange.interrupts import Interrupts
from proxy.exchange.notes.warnings import loop_refusal
from proxy.exchange.passthrough import (
    PassthroughRequest,
    bypass,
    is_success,
    new_request_record,
    strip_bound_reasoning,
    with_model,
    with_upstream_model,
    without_bound_reasoning,
)
from proxy.exchange.previous_responses import resolve_references
from proxy.exchange.recall_sources import find_related_ledgers, search_other_conversations
from proxy.exchange.rounds import (
    MAX_MESSAGES,
    ClientRequest,
    ContextRejected,
    OversizedRequest,
    RoundSender,
    Services,
    count_request_tokens,
    parse_client_request,
    shorten_request,
    without_refused_usage,
)
from proxy.exchange.slash_commands import handle_slash_commands
from proxy.exchange.thread.activation import RECALL_WINDOW_DIVISOR
from proxy.exchange.thread.placement import ParsedRequest, Placement
from proxy.exchange.turn import Turn
from proxy.upstream import Answer, Route
from proxy.upstream import overflow_errors as overflow

log = logging.getLogger(__name__)

DRAFT_DELAY_S = 0.25
"""What has arrived of a round is on its way to disk at most this much later (S4-11)."""
UNFINISHED_TURN_TEXT = "The turn could not be finished; send the request again."
UNCHANGED_STATUSES = ("off", "shadow")
"""The status of a request that passes with what was typed to the proxy itself still in it."""


class FailClosedError(ProxyError):
    """The operator's `fail_policy` lets no request pass that is not on disk."""

    status = 503

    def __init__(self, reason: str) -> None:
        words = (
            f"The proxy cannot keep this conversation now ({reason}), and its fail_policy is closed. Try again later."
        )
        super().__init__(words, code=reason)


async def handle(parts: Services, client_request: ClientRequest, reply: Reply) -> None:
    """One client turn. Raises ProxyError for what is refused before anything was sent upstream."""
    try:
        request = await parse_client_request(parts, client_request.body)
    except RequestParseError:
        await bypass(
            PassthroughRequest(parts, client_request, parts.routes.choose(None, client_request.path)),
            reply,
            "unreadable",
        )
        return
    route = parts.routes.choose(request.model, client_request.path)
    client_request = with_upstream_model(client_request, request.model, route)
    heard = await handle_slash_commands(PassthroughRequest(parts, client_request, route, request), reply)
    if heard is None:
        return
    passing, came = heard
    client_request, request = passing.client_request, passing.request or request
    try:
        placement = await _resolve_placement(parts, client_request, request)
    except StoreError as error:
        await _bypass_or_refuse(passing, reply, error.code)
    except TimeoutError:
        await _bypass_or_refuse(passing, reply, "too_slow")
    except ContextRejected as error:
        await bypass(passing, reply, error.code)
    except BadRequest:
        raise
    except Exception:  # the outermost edge of our bookkeeping: the agent must not notice
        log.exception("request could not be placed", extra={"request": client_request.id})
        await _bypass_or_refuse(passing, reply, "internal")
    else:
        client_request = came if placement.status in UNCHANGED_STATUSES else client_request
        if placement.request.body is not request.body:  # it named what only we know
            client_request = with_upstream_model(
                replace(client_request, body=placement.request.body), request.model, route
            )
        await RequestHandler(parts, client_request, reply, route, placement).run()


async def _resolve_placement(parts: Services, client_request: ClientRequest, request: Request) -> Placement:
    if not request.messages:
        raise ContextRejected("there is no message to place", code="no_messages")
    if len(request.messages) > MAX_MESSAGES:
        raise ContextRejected("there are too many messages to place", code="too_many_messages")
    if (trouble := parts.recorder.store.write_error()) is not None:
        raise StoreError("the store does not take records", code=trouble.code)
    patience_s = parts.config.assembly_budget_ms / 1000
    request, kept_there = await with_timeout(patience_s, resolve_references(parts, client_request, request))
    request = await count_request_tokens(parts, request)
    parsed = ParsedRequest(client_request.tenant, client_request.headers, request, parts.now(), client_request.mode)
    if not kept_there:
        return await with_timeout(patience_s, parts.resolver.resolve(parsed))
    if apart := await with_timeout(patience_s, parts.resolver.resolve_bypassed(parsed, kept_there)):
        return apart
    raise ContextRejected("a part of the request is kept by the provider", code=kept_there)


async def _bypass_or_refuse(passing: PassthroughRequest, reply: Reply, reason: str) -> None:
    """Our bookkeeping failed: pass, unless the operator's policy forbids it. Raises Withheld."""
    if passing.services.config.fail_policy == "closed":
        raise FailClosedError(reason)
    await bypass(await strip_bound_reasoning(passing), reply, reason)


class RequestHandler:
    """One placed request on its way."""

    def __init__(
        self, parts: Services, client_request: ClientRequest, reply: Reply, route: Route, placement: Placement
    ) -> None:
        self._services = parts
        self._client_request = client_request
        self._reply = reply
        self._route = route
        self._placement = placement
        self._request = without_refused_usage(parts, route, with_model(placement.request, route.model))
        self._record = new_request_record(parts, client_request, route, placement.status).set_placement(placement)
        self._round_sender = RoundSender(parts, client_request, route, self._request, self._record)
        self._deadline = time.monotonic() + parts.config.stack_seconds
        self._draft_timer: asyncio.TimerHandle | None = None
        self._stream_failure: UpstreamError | None = None
        self._interrupts = Interrupts(
            parts, client_request, placement, self._round_sender, lambda: self._client_response.writer
        )
        self._client_response = self._new_client_response(intercept=placement.is_rendered)

    def _new_client_response(self, *, intercept: bool) -> ClientResponse:
        parts = self._services
        return ClientResponse(parts.dialect, self._request, self._reply, self._record.headers, intercept=intercept)

    async def run(self) -> None:
        """Answer the client. Cancelled, the client has left, a person stopped it, or the process ends; that is told
        once, wherever it happened."""
        try:
            self._interrupts.register()
            try:
                await self._answer()
            finally:
                self._interrupts.unregister()
        except asyncio.CancelledError:
            if not self._client_response.writer.is_finished:  # some clients go as soon as they have been told the end
                self._record.mark_failed(self._cancel_reason)
            unstarted = (
                RequestCancelled.status
                if self._interrupts.cancelled_by_user
                else 0
                if self._reply.client_left
                else ShuttingDown.status
            )
            self._record.finish(self._record.upstream_status if self._reply.started else unstarted)
            if self._interrupts.cancelled_by_user:
                await self._send_cancelled_error()
                return
            if not (self._reply.client_left or self._client_response.writer.is_finished):
                await self._client_response.send_error(
                    ShuttingDown("The proxy was stopped before the answer was whole. Send it again.")
                )
            raise
        finally:
            if self._services.summarizer is not None:
                self._services.summarizer.enqueue_folds(self._placement)

    @property
    def _cancel_reason(self) -> str:
        """The reason of a request that was cancelled."""
        return RequestCancelled.code if self._interrupts.cancelled_by_user else cancel_reason(self._reply)

    async def _send_cancelled_error(self) -> None:
        """The client is still there, and gets an error, or a broken connection where it has read a part of the
        answer."""
        if (task := asyncio.current_task()) is not None:
            task.uncancel()
        await self._client_response.send_error(
            RequestCancelled("A person stopped this request. What had arrived of the answer is kept.")
        )

    async def _answer(self) -> None:
        """What our bookkeeping cannot do before the first byte makes a relay of it."""
        if self._services.config.fail_policy == "closed" and not await self._ensure_stored():
            return
        if not self._placement.is_rendered:
            turn = self._begin_relayed_turn()
            if turn is not None and self._placement.status == "shadow":
                self._record.tokens_would_send = self._round_sender.estimate_active_tokens(turn)
            await self.relay(turn)
            return
        try:
            turn = Turn.begin(self._placement, self._services.conversation_cache, self._services.toolkit)
            turn.recallable_tokens = self._round_sender.window().tokens // RECALL_WINDOW_DIVISOR
            line = await self._round_sender.build_context(turn)
        except (StoreError, ContextRejected) as error:
            await self._fall_back_to_relay(error.code)
        except Exception:  # assembling failed: the agent must not notice
            log.exception("line could not be assembled", extra={"request": self._client_request.id})
            await self._fall_back_to_relay("internal")
        else:
            self._interrupts.turn, self._client_response.writer.should_continue = turn, self._interrupts.has_follow_up
            self._update_refused_calls(turn)
            delivery = self._client_response
            delivery.start_keep_alive(self._services.config.keep_alive_s)
            try:
                await self.tool_loop(turn, line)
            finally:
                delivery.stop_keep_alive()

    # --------------------------------------------------------------------------------------------------------- relay
    async def relay(self, turn: Turn | None) -> None:
        """The client's bytes up and the provider's down; the answer is read along, and recorded as a turn."""
        try:
            got = await self._send_original_or_shortened()
        except UpstreamError as error:
            self._record.mark_failed(error.code)
            self._record.finish(error.status)
            await self._client_response.send_error(error)
            return
        if got is None:
            return
        if not is_success(got) and self._placement.status != "bypass":
            self._record.mark_failed("upstream_error")
        _, spoken = await self._receive_round(turn, got)
        self._store_last_round(turn, spoken)
        await self._finish(got.status)

    async def _send_original_or_shortened(self) -> Answer | None:
        """The provider's answer to the client's own request. A client that sees how short the line is lets its history
        grow past the window: then that is shortened, before it leaves or when the provider says so, once; also where
        another conversation quotes it. None when the client has been answered with the provider's refusal."""
        own, window = self._original_request(), self._round_sender.window()
        kept_there = self._placement.status == "bypass"  # what is left of it would not be what it stands for
        grown = (self._placement.path_state.tree.is_awake or self._record.status == "bypass") and not kept_there
        too_long = window.is_binding and own.tokens > window.tokens and not kept_there
        if too_long and (shorter := await self._shorten_original(grown=grown)):
            return await self._round_sender.send_original(shorter)
        self._record.add_relayed_round(own)
        got = await self._round_sender.send_original(own)
        if (
            got.status not in overflow.OVERFLOW_STATUSES
            or kept_there
            or not (grown or self._round_sender.quotes.is_possible)
        ):
            return got
        async with aclosing(got):
            refusal = await got.body()
        too_long = self._round_sender.was_refused_for_length(got.status, refusal)
        if too_long and (shorter := await self._shorten_original(grown=grown, again=True)):
            return await self._round_sender.send_original(shorter)
        self._record.mark_failed("upstream_error")
        self._record.finish(got.status)
        await self._client_response.send_refusal(got, refusal)
        return None

    async def _shorten_original(self, *, grown: bool, again: bool = False) -> Request | None:
        """What is left of the client's own request, noted as what leaves; None where nothing can be left out. `grown`:
        the history is the client's own; else it can only be quoted. `again`: all of it has been refused."""
        overlong = OversizedRequest(self._request, self._round_sender.quotes, self._placement.conversation, grown)
        if (shorter := await shorten_request(self._services, self._route, overlong)) is None:
            return None
        if again:
            self._record.add_retry()
        self._record.mark_stateless("" if self._record.status == "bypass" else "window")
        left = shorter.request
        self._record.add_sent_round(client_chain(left), (left.body,), own_texts=shorter.own_tokens)
        return left

    def _original_request(self) -> Request:
        """The client's request, less the reasoning that its provider binds to a prefix only a line of ours has (L8)."""
        own = self._request
        if own.body is not self._client_request.body:
            own = replace(own, body=self._client_request.body)
        if self._placement.status == "bypass":
            return own
        return without_bound_reasoning(self._services, self._route, own, self._placement)

    def _begin_relayed_turn(self) -> Turn | None:
        """A turn is recorded where the request stands on a path; a side request leaves none."""
        if not self._placement.entry_id:
            return None
        try:
            return Turn.begin(self._placement, self._services.conversation_cache, self._services.toolkit, past_us=True)
        except StoreError as error:
            self._record.mark_bypassed(error.code)
            return None

    async def _ensure_stored(self) -> bool:
        """Whether the request is on disk; where it is not, and must be, the client has been refused."""
        try:
            await self._services.conversation_cache.wait_until_durable(self._placement.cached_conversation)
        except StoreError as error:
            await self._refuse_unstored(error.code)
            return False
        return True

    async def _refuse_unstored(self, reason: str) -> None:
        self._record.mark_failed(reason)
        self._record.finish(FailClosedError.status)
        await self._client_response.send_error(FailClosedError(reason))

    async def _fall_back_to_relay(self, reason: str) -> None:
        """Nothing has left yet. No turn is made of it: what the client will echo has no sure place on the path."""
        if self._services.config.fail_policy == "closed":
            await self._refuse_unstored(reason)
            return
        self._record.mark_bypassed(reason)
        self._client_response = self._new_client_response(intercept=False)
        await self.relay(None)

    # ------------------------------------------------------------------------------------------------------ converse
    async def tool_loop(self, turn: Turn, line: Context) -> None:
        """Ask, run what is ours, ask again, until a round is for the client."""
        last_one, silent = False, False
        self._client_response.writer.should_retry = self._round_sender.is_overflow_error
        while True:
            try:
                got = await self._round_sender.send(
                    turn, line, self._client_response, no_calls=last_one, may_trim=not silent
                )
            except ContextRejected as error:
                await self._fall_back_or_fail(error.code)
                return
            if got is None:
                return
            complete, spoken = await self._receive_round(turn, got)
            if complete and not silent and (shorter := await self._shorten_failed_round(turn, line, spoken)):
                line, silent = shorter, True
                continue
            if complete and turn.round_number and self._is_unusable_round(spoken):
                self._record_response(spoken)
                await self._fail_turn(UpstreamInvalidResponse(UNFINISHED_TURN_TEXT))
                return
            goes_on = complete and self._client_response.writer.another_round_follows and not self._response_has_ended()
            if goes_on and self._interrupts.has_follow_up(spoken.finish):
                self._record_response(spoken)
                try:
                    line, last_one = await self._interrupts.build_follow_up_context(turn, spoken, self._record), False
                except (StoreError, ContextRejected) as error:  # the client is told the end that was held
                    self._report_unstored_round(error.code)
                    await self._finish(got.status)
                    return
                self._deadline = time.monotonic() + self._services.config.stack_seconds
                continue
            if not complete or last_one or not spoken.own_calls or self._response_has_ended():
                await self._end_turn(turn, spoken, got.status, complete=complete)
                return
            # Behind a call of the client's no round follows, so there is nothing to bound.
            last_one = not spoken.client_calls and self._limit_is_reached(turn)
            try:
                await self._run_stack_calls(turn, spoken, refuse=last_one)
                if spoken.client_calls:
                    await self._finish(got.status)
                    return
                self._update_refused_calls(turn)
                if not last_one:
                    self._interrupts.deliver_steering_messages(turn, self._record)
                line = await self._round_sender.build_context(turn)
            except (StoreError, ContextRejected) as error:
                await self._fall_back_or_fail(error.code)
                return

    def _update_refused_calls(self, turn: Turn) -> None:
        """Which calls the next round may not make: a push or a pop of the round before may have ended a loop."""
        if self._placement.refused_signatures:  # else there is nothing to fold the turn for
            names, window = self._services.resolver.policy.inference_rules.tool_roles, self._services.config.loop_window
            self._client_response.writer.should_refuse = loop_refusal(self._placement, turn.path_state, names, window)

    def _limit_is_reached(self, turn: Turn) -> bool:
        """One round more may be asked for, and that without calls."""
        return turn.round_number + 1 >= self._services.config.stack_rounds or time.monotonic() > self._deadline

    async def _shorten_failed_round(self, turn: Turn, line: Context, spoken: ModelResponse) -> Context | None:
        """The line to ask with again, where the answer to this one ended without a word because it was too long, or
        with the word that it was."""
        writing = self._client_response.writer
        if writing.can_retry_empty_round:
            shorter = await self._round_sender.shorten_after_empty_answer(turn, line)
        elif refusal := writing.retryable_error:
            shorter = await self._round_sender.shorten_after_refusal(turn, line, refusal)
        else:
            return None
        if shorter is not None:
            writing.retry_round()
            self._record.add_retry(spoken.usage)
        return shorter

    async def _fall_back_or_fail(self, reason: str) -> None:
        """A hidden round could not be kept. Where the client has seen nothing yet, its own request is asked instead."""
        if self._reply.started:
            await self._fail_turn(ProxyError(UNFINISHED_TURN_TEXT, code=reason))
        else:
            await self._fall_back_to_relay(reason)

    def _is_unusable_round(self, spoken: ModelResponse) -> bool:
        """What came in the place of a round is nothing to read on with: nothing that is said and no end either, or in a
        stream a page or a compressed body. That cannot be shown behind a stream that has begun, and ending there would
        look like a good end (S10); a plain answer passes as it is if there is something in it that only we cannot read.
        So does a failure that the provider told."""
        writing, message = self._client_response.writer, spoken.message
        if writing.is_error:
            return self._request.stream or not self._reply.started
        return writing.round_is_empty or not (
            spoken.complete or writing.round_failed or message.text.strip() or message.calls
        )

    def _response_has_ended(self) -> bool:
        """The provider reported a failure, or the client has been told the end: no round can follow."""
        writing = self._client_response.writer
        return writing.is_error or writing.round_failed or writing.is_finished

    async def _run_stack_calls(self, turn: Turn, spoken: ModelResponse, *, refuse: bool) -> None:
        """Run the stack calls of a round. It is durable before anything that depends on it leaves."""
        self._record_response(spoken)
        now = self._services.now()
        weighed = replace(spoken, message=self._services.composer.with_token_count(spoken.message))
        ledgers = await find_related_ledgers(self._services, turn, spoken)
        others = await search_other_conversations(self._services, turn, spoken, ledgers)
        turn.free_tokens = self._round_sender.tokens_for_results(turn, weighed)
        results, events = turn.run_stack_calls(weighed, now, refuse=refuse, beside=ledgers, elsewhere=others)
        self._record.add_stack_calls([c.name if c.is_stack_call else LOOPING_CALL for c in spoken.own_calls], events)
        turn.store_round(weighed, results, events, now, last=bool(spoken.client_calls))
        await turn.wait_until_durable()

    async def _end_turn(self, turn: Turn, spoken: ModelResponse, status: int, *, complete: bool) -> None:
        """The round for the client has ended."""
        if complete and spoken.own_calls and not spoken.client_calls and not spoken.message.text.strip():
            self._record_response(spoken)
            await self._fail_turn(ProxyError(UNFINISHED_TURN_TEXT, code="stack_calls_only"))
            return
        hidden = turn.round_number > 0
        self._store_last_round(turn, spoken)
        if hidden:
            try:
                await turn.wait_until_durable()
            except StoreError as error:
                self._report_unstored_round(error.code)
        await self._finish(status)

    async def _fail_turn(self, error: ProxyError) -> None:
        """What the client would be told next depends on something that could not be kept or made: it must ask again."""
        self._record.mark_failed(error.code)
        self._record.finish(error.status)
        await self._client_response.send_error(error)

    # -------------------------------------------------------------------------------------------------------- stream
    async def _receive_round(self, turn: Turn | None, got: Answer) -> tuple[bool, ModelResponse]:
        """One round, passed on as it may leave: whether all of it came, and what it said."""
        try:
            await self._client_response.begin_round(got)
            complete = await self._forward_chunks(turn, got)
            return complete, self._client_response.end_round(complete=complete)
        finally:
            await got.aclose()

    async def _forward_chunks(self, turn: Turn | None, got: Answer) -> bool:
        """Pass on what may leave as it arrives. False when the upstream died. Cancelled, what had arrived is kept."""
        try:
            async for chunk in got.chunks():
                await self._client_response.feed(chunk)
                self._schedule_draft(turn)
        except UpstreamError as error:
            self._stream_failure = error
            self._record.mark_failed(error.code)
            return False
        except asyncio.CancelledError:
            await got.aclose()
            told_the_end = self._client_response.writer.is_finished
            spoken = self._client_response.end_round(complete=told_the_end)
            if not told_the_end:
                self._record.mark_failed(self._cancel_reason)
                spoken = replace(spoken, finish="cancelled") if self._interrupts.cancelled_by_user else spoken
            self._store_last_round(turn, spoken)
            raise
        finally:
            self._cancel_draft()
        return True

    def _schedule_draft(self, turn: Turn | None) -> None:
        """Persist a long answer while it arrives, also where nothing follows what came. One that does not stream can
        be read only when all of it is here."""
        if turn is not None and self._draft_timer is None and self._request.stream:
            self._draft_timer = asyncio.get_running_loop().call_later(DRAFT_DELAY_S, self._write_draft, turn)

    def _cancel_draft(self) -> None:
        if self._draft_timer is not None:
            self._draft_timer.cancel()
            self._draft_timer = None

    def _write_draft(self, turn: Turn) -> None:
        self._draft_timer = None
        writing = self._client_response.writer
        if not writing.has_sent_bytes or writing.is_error:
            return
        try:
            turn.store_draft(writing.partial_response(), self._services.now())
        except StoreError:
            log.warning("draft not kept", extra={"request": self._client_request.id})

    def _store_last_round(self, turn: Turn | None, spoken: ModelResponse) -> None:
        """Record the last round as it ended. Nothing said is nothing to keep, but for the end of a turn with hidden
        rounds: what was done in them is done."""
        self._record_response(spoken)
        message = spoken.message
        if turn is None or self._client_response.writer.is_error:
            return
        if not (message.text or message.calls or (turn.round_number and spoken.complete)):
            return
        try:
            weighed = replace(spoken, message=self._services.composer.with_token_count(message))
            turn.store_round(weighed, (), [], self._services.now(), last=True)
        except StoreError as error:
            self._report_unstored_round(error.code)

    def _report_unstored_round(self, reason: str) -> None:
        """The answer is the client's, and not on disk. Where a line had left for it, that was no bypass: the client is
        told so with its next request."""
        log.warning("answer not kept", extra={"request": self._client_request.id, "code": reason})
        if not self._placement.is_rendered:
            self._record.mark_bypassed(reason)

    def _record_response(self, spoken: ModelResponse) -> None:
        self._record.add_response(spoken)
        self._round_sender.learn_from_response(spoken)

    async def _finish(self, status: int) -> None:
        """The end of the client's answer; a broken one has none. Where nothing of it has left, the error is told."""
        if self._stream_failure is not None:
            self._record.finish(status if self._reply.started else self._stream_failure.status)
            await self._client_response.send_error(self._stream_failure)
            return
        last = self._client_response.last_bytes()
        self._record.finish(status)
        await self._client_response.end(last)
