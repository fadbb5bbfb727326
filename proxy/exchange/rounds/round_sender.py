"""Sends rounds to the provider: builds a context that fits, sends it, and retries where the client cannot notice.

What a context leaves out, and what was decided about it, is on disk before the request leaves. A context that the
provider refuses for its length is shortened once: old outputs are cleared, then the oldest groups are dropped. If that
is not enough and the client has seen nothing, ContextRejected makes the caller send the client's own request, which
`shorten_request` can shorten too. A hidden round that fails is retried, because no byte of it has left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing
from functools import cached_property

import msgspec
from msgspec.structs import replace

from proxy.accounting import ORGANIZATION, PromptChain
from proxy.core.compaction import (
    KEPT_WINDOW_SHARE,
    OverflowNotes,
    clear_old_outputs,
    cut_long_outputs,
    drop_oldest,
    drop_oldest_messages,
    droppable_tokens,
    leave_out_repeats,
    tell_whole_again,
    tidy_outputs,
    withhold_results,
)
from proxy.core.context import Context, answers_with_stale_reasoning, unpaired_calls
from proxy.core.frames import FrameEvent, ReasoningRemoved
from proxy.core.ledger import ModelResponse, Request
from proxy.core.observers import message_of, rounds_of
from proxy.core.tools import UNBOUNDED
from proxy.dialects import COST_HEADER, Body, RenderOptions, cost_of_header, holds_text_alone
from proxy.errors import ProxyError, StoreError, UpstreamError
from proxy.exchange.background.recorder import RequestRecordBuilder, sent_chain
from proxy.exchange.background.scheduler import let_others_run
from proxy.exchange.client_response import ClientResponse
from proxy.exchange.rounds.client_request import ClientRequest, Services
from proxy.exchange.rounds.fallbacks import Fallbacks
from proxy.exchange.rounds.form_ladder import FormLadder
from proxy.exchange.rounds.shorten_request import quotes_of, shortened_prompt_tokens
from proxy.exchange.thread.bound_reasoning import (
    binds_reasoning,
    must_open_with_reasoning,
    newest_assistant_entry,
    wants_reasoning_back,
    with_reasoning_back,
)
from proxy.exchange.thread.quoted_history import QuoteFinder
from proxy.exchange.turn import Turn
from proxy.upstream import (
    Answer,
    ContextWindow,
    RequestForm,
    Route,
    is_busy,
    overflow_errors,
    request_forms,
    retry_after_s,
)

log = logging.getLogger(__name__)

MAX_RETRIES = 2
"""Retries of a failed hidden round."""
RETRY_DELAY_S = 0.5
"""Used where the provider names no time."""
MAX_RETRY_DELAY_S = 10.0
"""A provider that wants to be left alone for longer is not asked again: the client is told."""
SUSPECT_WINDOW_SHARE = 0.5
"""Share of a known window from which our additions may have made a request too long."""
AMPLE_ROOM_SHARE = 0.5
"""Share of a window that no results of a round fill; with so much room, droppable tokens are not counted."""
COUNT_ERROR_SHARE = 0.02
"""Share of a window by which our token count may be off."""
SMALL_RESULT_TOKENS = 400
"""Tokens of a stack result that may use half of the room reserved for the model's answer."""
MAX_MODELS_WITHOUT_USAGE = MAX_MODELS_WITHOUT_REASONING = MAX_MODELS_IGNORING_REFUSALS = 1024
REFUSALS_IGNORED_MS = 3_600_000
"""So long no model is asked for a round without calls that has called our tools in one: each is paid for."""
BRIEF = "brief"
"""Keeps the head with brief tools apart from the same with whole ones, where caches are simulated."""
# Mistral answers the option with a 422, and tells its usage unasked. It was our wish, so the refusal is ours to mend:
# the client cannot leave out what it never sent.
USAGE_OPTION_WORDS = (b"stream_options", b"include_usage")
"""Words in a refusal of the usage option, such as Mistral's."""


class ContextRejected(ProxyError):
    """A context that may not leave; `code` says why. The client's own bytes go instead."""

    code = "internal"


class _Refused(msgspec.Struct, frozen=True):
    """A refusal. `told_wait_s`: seconds until the provider wants to be asked again, None where it names no time."""

    status: int
    body: bytes
    told_wait_s: float | None


class _Attempt(msgspec.Struct, frozen=True):
    """How a round is sent. `context` is `whole`, or what is left of it; `tries` are left for outages; with `may_trim`
    it may be shortened; `uncounted`: the usage option was refused."""

    context: Context
    whole: Context
    tries: int
    may_trim: bool
    uncounted: bool = False

    def may_wait_out(self, refused: _Refused) -> bool:
        return self.tries > 0 and is_busy(refused.status)


_Following = tuple[_Attempt, float]
"""The next attempt, and the seconds to wait before it."""


class RoundSender:
    """Sends the rounds of one request. `request` has the upstream's name for the model."""

    def __init__(
        self,
        services: Services,
        client_request: ClientRequest,
        route: Route,
        request: Request,
        record: RequestRecordBuilder,
    ) -> None:
        self._services = services
        self._client_request = client_request
        self._route = route
        self._request = request
        self._record = record
        conversation = record.placement.conversation if record.placement else ""
        asked = record.placement.request.model if record.placement else ""
        self.fallbacks = Fallbacks(services, client_request, route, asked or "", record.switch_route)
        self._window_key = (route.upstream.name, route.model, conversation)
        self.sent_tokens = 0
        """Tokens of the last round sent."""
        self.sent_body, self.sent_at = b"", 0
        """Of the last round, if the cache keep-alive is on: its bytes, and when it left, in ms since the epoch."""
        self._forms = FormLadder(services, route, request, record)

    def window(self) -> ContextWindow:
        return self._services.context_windows.window(*self._window_key)

    @cached_property
    def quotes(self) -> QuoteFinder:
        return quotes_of(self._services, self._client_request, self._request)

    async def build_context(self, turn: Turn) -> Context:
        """The context of the active frame: calls paired, within the window, what it leaves out on disk.

        Raises ContextRejected when it cannot be sent, StoreError when what it leaves out cannot be made durable. A
        hidden round has no client body to fall back to: it is shortened as far as possible, and the provider decides.
        """
        if not turn.round_number and self._loop_began_without_us(turn):
            raise ContextRejected(
                "the tool loop opens with reasoning that no line of ours was there for", code="in_loop"
            )
        if not turn.round_number:
            self._use_learned_form(turn)
        context = turn.build_context()
        await let_others_run(self._request)
        await turn.wait_until_durable(None if turn.round_number else context.left_out)
        window = self.window()
        if turn.form is RequestForm.BARE:
            return self._check_bare_context(turn, context, window)
        context = await self._truncate_outputs(turn, context, window)
        if unpaired_calls(context.messages):
            raise ContextRejected("a call on the line has no result", code="law_pairing")
        tokens = self._request_tokens(turn, context)
        if not window.is_binding or tokens <= window.limit:
            return context
        if self._request.tokens <= window.limit and not turn.round_number:
            if tokens <= window.tokens:
                return context  # our additions use room reserved for the answer: no reason to bypass
            raise ContextRejected("the line does not fit the window, the client's body does", code="window")
        shorter = await self._shorten(turn, context, window.limit, shortened_prompt_tokens(window))
        if shorter is None and self._request.tokens <= window.tokens and not turn.round_number:
            raise ContextRejected("the line does not fit the window, the client's body may", code="window")
        left = shorter or context
        left = await self._drop_stack_results(turn, left, int(window.tokens * (1 - COUNT_ERROR_SHARE))) or left
        too_long = not turn.round_number and self._request_tokens(turn, left) > window.tokens
        if too_long and await self._original_may_fit(self._request_tokens(turn, left)):
            raise ContextRejected(
                "the line does not fit the window, what is left of the client's body may", code="window"
            )
        return left

    def _check_bare_context(self, turn: Turn, context: Context, window: ContextWindow) -> Context:
        """The client's own messages, of which nothing can leave here. Raises ContextRejected where they do not fit."""
        if unpaired_calls(context.messages):
            raise ContextRejected("a call of the client's has no result", code="law_pairing")
        if window.is_binding and self._request_tokens(turn, context) > window.tokens and not turn.round_number:
            raise ContextRejected("the client's messages do not fit the window", code="window")
        return context

    def _loop_began_without_us(self, turn: Turn) -> bool:
        """Whether the current tool loop began before the proxy acted, and its last answer must open with its
        reasoning."""
        if not must_open_with_reasoning(
            self._services.config, self._services.dialect, self._request, self._route.model
        ):
            return False
        newest = newest_assistant_entry(turn.path_state.entries)
        said = message_of(newest) if newest else None
        reasons = said is not None and self._services.dialect.without_reasoning(said) is not said
        return newest is not None and reasons and newest.entry.id in turn.path_state.tree.without_reasoning

    async def _original_may_fit(self, refused: int) -> bool:
        """Whether the client's own request, or what can be left of it, is below `refused` tokens."""
        request = self._request
        if self._services.config.fail_policy == "closed":
            return False
        if request.tokens < refused or drop_oldest_messages(
            request.messages, 0, self._services.dialect.holds_compaction
        ):
            return True
        return await self.quotes.find() is not None

    async def _truncate_outputs(self, turn: Turn, context: Context, window: ContextWindow) -> Context:
        """The context with new outputs tidied where that is configured, and long ones cut to `output_cap` or by their
        rule; an unknown window has no default cap."""
        config, most = self._services.config, window.max_output_tokens
        count, cap, rules = self._services.counter.count, config.output_cap or most, config.output_rules
        is_recallable = self._forms.offers_recall(turn)
        context = await self._tell_whole_again(turn, context) or context
        if config.tidy_outputs != "off" and is_recallable:
            tidied = tidy_outputs(turn.path_state, holds_text_alone, count, rules, cap)
            context = await self._apply_events(turn, context, tidied) or context
        events = cut_long_outputs(turn.path_state, cap, count, rules, most) if cap or rules else ()
        context = await self._apply_events(turn, context, events) or context
        # In a request that may have to be shortened, the earlier copy of a block could leave.
        if config.tidy_outputs == "repeats" and is_recallable and self._request_tokens(turn, context) <= window.limit:
            repeats = leave_out_repeats(turn.path_state, context.entries, holds_text_alone, count, rules)
            context = await self._apply_events(turn, context, repeats) or context
        return context

    def _stack_tokens(self, turn: Turn) -> tuple[int, int]:
        """Tokens of our tools, and of our guidance."""
        weigh = self._services.count_memoized
        tools, guidance = self._forms.offer(turn)
        return weigh(tools), weigh(guidance)

    # -------------------------------------------------------------------------------------------------- milder forms
    def _use_learned_form(self, turn: Turn) -> None:
        """Raises ContextRejected where only the client's own request is accepted."""
        form = self._forms.learned_form()
        if form is RequestForm.FULL:
            return
        self._record.form = form
        if form is RequestForm.OWN:
            raise ContextRejected("the provider refuses every form but the client's own", code="form")
        turn.form = form

    def _milder_context(self, turn: Turn, status: int, refusal: bytes) -> Context | None:
        """The context in a milder form, if this one was refused for its form and there is one."""
        form = self._forms.form_after(turn, status, refusal, self.sent_tokens)
        if form is None:
            return None
        before = turn.build_context()
        turn.form = self._record.form = form
        if form is RequestForm.BARE:
            self._remove_stale_reasoning(turn, before, turn.build_context())
        return turn.build_context()

    def _remove_stale_reasoning(self, turn: Turn, before: Context, after: Context) -> None:
        """What was folded is back in `after`, in front of reasoning that was made without it."""
        same = [message.wire for message in before.messages] == [message.wire for message in after.messages]
        if same or not binds_reasoning(self._services.config, self._services.dialect, self._route.model):
            return
        without, gone = self._services.dialect.without_reasoning, turn.path_state.tree.without_reasoning
        spoken = ((p.entry.id, message_of(p)) for p in turn.path_state.entries)
        answers = (entry for entry, said in spoken if said and said.role == "assistant" and without(said) is not said)
        stale = self._without_open_loop_answer(turn, [e for e in dict.fromkeys(answers) if e not in gone])
        if stale:
            turn.record_event(ReasoningRemoved(stale), self._services.now())

    def _request_tokens(self, turn: Turn, context: Context) -> int:
        """Tokens of a request with this context: head, tools and messages."""
        request = self._forms.with_offered_tools(turn, self._request).request
        fixed = sum(m.tokens for m in request.head) + request.tools_tokens
        loaded = request.loaded_tokens(context.messages)
        return fixed + loaded + sum(self._stack_tokens(turn)) + context.tokens

    def tokens_for_results(self, turn: Turn, spoken: ModelResponse) -> int:
        """Tokens that the results of a round may take for the next round to fit, after all droppable content has
        left."""
        window = self.window()
        if not window.is_binding:
            return UNBOUNDED
        left = window.limit - self.sent_tokens - spoken.message.tokens - int(window.tokens * COUNT_ERROR_SHARE)
        if left < window.tokens * AMPLE_ROOM_SHARE:
            left += droppable_tokens(turn.path_state, turn.build_context(), self._overflow_notes(turn))
        return max(left, min(SMALL_RESULT_TOKENS, left + (window.tokens - window.limit) // 2))

    async def _shorten(self, turn: Turn, context: Context, enough: int, room: int) -> Context | None:
        """A shorter context: old outputs cleared and, if it is still above `enough` tokens, the oldest groups dropped
        down to `room`. None if nothing can go."""
        cleared = await self._apply_events(
            turn, context, clear_old_outputs(turn.path_state, context, self._services.config.output_rules)
        )
        if cleared is not None:
            cleared = await self._tell_whole_again(turn, cleared) or cleared
        if cleared is not None and self._request_tokens(turn, cleared) <= enough:
            return cleared
        left = cleared or context
        fixed = self._request_tokens(turn, left) - left.tokens
        event = drop_oldest(turn.path_state, left, room - fixed, self._overflow_notes(turn))
        dropped = await self._apply_events(turn, left, (event,) if event else ())
        whole = await self._tell_whole_again(turn, dropped) if dropped else None
        if whole is not None and self._request_tokens(turn, whole) > enough:
            return await self._shorten(turn, whole, enough, room) or whole
        return whole or dropped or cleared

    async def _tell_whole_again(self, turn: Turn, context: Context) -> Context | None:
        """The context with outputs whole that refer to what is not in it as it came. None if there are none."""
        return await self._apply_events(turn, context, tell_whole_again(turn.path_state, context.entries))

    def _overflow_notes(self, turn: Turn) -> OverflowNotes:
        kit = self._services.toolkit
        return OverflowNotes(kit.settings.tool_roles, kit.nonce_of(turn.placement.conversation))

    async def _drop_stack_results(self, turn: Turn, context: Context, most: int) -> Context | None:
        """The context without stack results, as far as it is above `most` tokens. None if nothing can go."""
        event = withhold_results(turn.path_state, context, self._request_tokens(turn, context) - most)
        return await self._apply_events(turn, context, (event,) if event else ())

    async def _apply_events(self, turn: Turn, context: Context, events: Sequence[FrameEvent]) -> Context | None:
        """The context after these events, which are durable then; None without events. Reasoning that its provider
        binds to a changed prefix is removed."""
        if not events:
            return None
        for event in events:
            turn.record_event(event, self._services.now())
        changed = turn.build_context()
        if binds_reasoning(self._services.config, self._services.dialect, self._route.model):
            gone = self._without_open_loop_answer(
                turn, answers_with_stale_reasoning(turn.path_state, context, changed, self._services.composer)
            )
            if gone:
                turn.record_event(ReasoningRemoved(gone), self._services.now())
                changed = turn.build_context()
        await turn.wait_until_durable()
        return changed

    def _without_open_loop_answer(self, turn: Turn, gone: Sequence[str]) -> tuple[str, ...]:
        """`gone` less the answer of a running tool loop that must open with its reasoning."""
        if not must_open_with_reasoning(
            self._services.config, self._services.dialect, self._request, self._route.model
        ):
            return tuple(gone)
        newest = newest_assistant_entry(turn.path_state.entries)
        return tuple(entry for entry in gone if newest is None or entry != newest.entry.id)

    def estimate_active_tokens(self, turn: Turn) -> int:
        """Shadow: tokens of the first round in mode active; 0 if unknown."""
        try:
            if turn.path_state.tree.is_awake:
                return self._request_tokens(turn, turn.build_context())
            given = self._services.resolver.preview_wake(turn.placement)
        except Exception:  # only a statistic: the request passes unchanged
            log.exception("what would be sent cannot be told", extra={"request": self._client_request.id})
            return 0
        ours = sum(map(self._services.count_memoized, given.texts)) if given else 0
        return self._request.tokens + ours

    # ----------------------------------------------------------------------------------------------------------- ask
    async def send(
        self, turn: Turn, context: Context, delivery: ClientResponse, *, no_calls: bool, may_trim: bool = True
    ) -> Answer | None:
        """The provider's answer to the next round; None when the client has been answered with an error.

        A round refused for its length is shortened and sent once more if it `may_trim`, one refused for the usage
        option, or for reasoning that comes back, is sent without it, and a failed hidden round is retried. Raises
        ContextRejected where the round is too long, the client's own request may fit, and nothing of the answer has
        left.
        """
        attempt = _Attempt(context, context, MAX_RETRIES if turn.round_number else 0, may_trim)
        while True:
            body = self._render(turn, attempt.context, no_calls=no_calls)
            try:
                got, refusal = await self._send_and_read_refusal(b"".join(body))
            except UpstreamError as error:
                if not attempt.tries:
                    self._record.mark_failed(error.code)
                    self._record.finish(error.status)
                    await delivery.send_failure(error)
                    return None
                attempt = replace(attempt, tries=attempt.tries - 1)
                self._record.add_retry()
                await asyncio.sleep(RETRY_DELAY_S)
                continue
            if got.status < 300:
                if attempt.uncounted and len(self._services.models_without_usage) < MAX_MODELS_WITHOUT_USAGE:
                    pair = self._route.upstream.name, self._route.model
                    self._services.models_without_usage.setdefault(pair, self._services.now())
                return got
            refused = _Refused(got.status, refusal, self._told_wait_s(got))
            if refused.told_wait_s is not None and refused.told_wait_s > MAX_RETRY_DELAY_S:
                self.learn_if_too_long(got.status, refusal)  # the limit is learned for the next request
                await self._pass_refusal(delivery, got, refusal)
                return None
            following = await self._remedy(turn, attempt, refused)
            if following is None:
                if (other := await self.send_to_larger(b"".join(body), got.status, refusal)) is not None:
                    return other
                await self._reject_if_original_may_pass(
                    delivery, got, refusal, again=attempt.context is not attempt.whole
                )
                await self._pass_refusal(delivery, got, refusal)
                return None
            attempt, wait_s = following
            self._record.add_retry()
            await asyncio.sleep(wait_s)

    # ------------------------------------------------------------------------------------------------------- remedies
    async def _remedy(self, turn: Turn, attempt: _Attempt, refused: _Refused) -> _Following | None:
        """How the round is sent again, and after how many seconds; None where nothing of ours can help."""
        for remedy in (
            self._without_usage,
            self._without_reasoning,
            self._shorter,
            self._in_milder_form,
            self._the_same_later,
        ):
            if (following := await remedy(turn, attempt, refused)) is not None:
                return following
        return None

    async def _without_usage(self, _: Turn, attempt: _Attempt, refused: _Refused) -> _Following | None:
        if not self._leave_usage_option_out(refused.status, refused.body):
            return None
        return replace(attempt, uncounted=True), refused.told_wait_s or 0

    async def _without_reasoning(self, _: Turn, attempt: _Attempt, refused: _Refused) -> _Following | None:
        if not self._leave_reasoning_out(refused.status, refused.body):
            return None
        return attempt, refused.told_wait_s or 0

    async def _shorter(self, turn: Turn, attempt: _Attempt, refused: _Refused) -> _Following | None:
        if not attempt.may_trim:
            return None
        shorter = await self._shorten_refused(turn, attempt.context, refused.status, refused.body)
        if shorter is None:
            return None
        return self._trimmed(replace(attempt, context=shorter), refused), refused.told_wait_s or 0

    async def _in_milder_form(self, turn: Turn, attempt: _Attempt, refused: _Refused) -> _Following | None:
        """At once where the refusal says so, else after the outage that it may be."""
        if not request_forms.is_explained(refused.status, refused.body) and attempt.may_wait_out(refused):
            return None
        milder = self._milder_context(turn, refused.status, refused.body)
        if milder is None:
            return None
        return self._trimmed(replace(attempt, context=milder, whole=milder), refused), refused.told_wait_s or 0

    async def _the_same_later(self, _: Turn, attempt: _Attempt, refused: _Refused) -> _Following | None:
        if not attempt.may_wait_out(refused):
            return None
        wait_s = RETRY_DELAY_S if refused.told_wait_s is None else refused.told_wait_s
        return self._trimmed(replace(attempt, tries=attempt.tries - 1), refused), wait_s

    def _trimmed(self, attempt: _Attempt, refused: _Refused) -> _Attempt:
        """A round is shortened once: whatever is sent behind a refusal for its length."""
        is_too_long = overflow_errors.is_overflow(refused.status, refused.body, self.sent_tokens)
        return replace(attempt, may_trim=attempt.may_trim and not is_too_long)

    def _told_wait_s(self, got: Answer) -> float | None:
        """Seconds until the provider wants to be asked again; None where it names no time, or means this request
        alone."""
        return retry_after_s(got.headers, self._services.now()) if is_busy(got.status) else None

    async def _reject_if_original_may_pass(
        self, delivery: ClientResponse, got: Answer, refusal: bytes, *, again: bool
    ) -> None:
        """Raises ContextRejected where the client's own request may be accepted and nothing of the answer has left."""
        if delivery.reply.started:
            return
        is_worth_it = await self._original_is_worth_sending(got.status, refusal, again=again)
        if not is_worth_it and not self._forms.own_form_is_left(got.status, refusal, self.sent_tokens):
            return
        self._record.add_retry()
        await asyncio.sleep(self._told_wait_s(got) or 0)
        if is_worth_it:
            raise ContextRejected("the line was refused for its length, the client's body may fit", code="window")
        self._record.form = RequestForm.OWN
        raise ContextRejected("the line was refused for its form, the client's body may pass", code="form")

    async def _send_and_read_refusal(self, body: bytes) -> tuple[Answer, bytes]:
        """The answer, and its body if it is a refusal. Raises UpstreamError, also for an incomplete refusal."""
        got = await self._send_body(body)
        if got.status < 300:
            return got, b""
        async with aclosing(got):
            return got, await got.body()

    def _leave_usage_option_out(self, status: int, refusal: bytes) -> bool:
        """Whether the usage option that only we set was refused; then it is not set again."""
        request, message = self._request, refusal[: overflow_errors.MAX_SCANNED_BYTES]
        ours = request.stream and not request.wants_usage
        if not ours or status not in (400, 422) or not any(word in message for word in USAGE_OPTION_WORDS):
            return False
        self._request = replace(request, wants_usage=True)
        return True

    def _leave_reasoning_out(self, status: int, refusal: bytes) -> bool:
        """Whether reasoning in messages was refused that can be left out; then this model gets none any more. Where
        reasoning is signed, other rules say what leaves."""
        known, pair = self._services.models_without_reasoning, (self._route.upstream.name, self._route.model)
        if self._services.dialect.has_signed_reasoning or pair in known or len(known) >= MAX_MODELS_WITHOUT_REASONING:
            return False
        if not request_forms.is_reasoning_refusal(status, refusal):
            return False
        known[pair] = self._services.now()
        return True

    async def _shorten_refused(self, turn: Turn, context: Context, status: int, refusal: bytes) -> Context | None:
        """A context that fits, if this one was refused for its length; the limit is remembered."""
        if not self.learn_if_too_long(status, refusal) or turn.form is RequestForm.BARE:
            return None
        return await self._shorten_below(turn, context, self._request_tokens(turn, context))

    def is_retryable_error(self, error: bytes) -> bool:
        """Whether an error inside an answer says that the round was too long, or in a form that is not accepted."""
        if not error.strip():
            return False
        return overflow_errors.is_overflow(400, error) or (not self._record.form and _is_form_error(error))

    async def replace_after_error(self, turn: Turn, context: Context, error: bytes) -> Context | None:
        """A shorter or milder context after such an error inside an answer that had begun."""
        if overflow_errors.is_overflow(400, error):
            return await self._shorten_refused(turn, context, 400, error)
        return self._milder_context(turn, 400, error) if _is_form_error(error) else None

    async def _shorten_below(self, turn: Turn, context: Context, refused: int) -> Context | None:
        window, enough = self.window(), int(refused * KEPT_WINDOW_SHARE)
        room = min(enough, shortened_prompt_tokens(window)) if window.is_binding else enough
        fits = int(window.tokens * (1 - COUNT_ERROR_SHARE))
        most = fits if window.source in ("table", "named") and fits < refused else enough
        enough = min(enough, window.limit) if window.is_binding else enough
        try:
            left = await self._truncate_outputs(turn, context, window)
            left = await self._shorten(turn, left, enough, room) or left
            left = await self._drop_stack_results(turn, left, most) or left
        except StoreError:
            return None  # nothing may leave the context that is not on disk: pass the refusal
        return left if left is not context else None

    async def _original_is_worth_sending(self, status: int, refusal: bytes, *, again: bool) -> bool:
        """Whether the refused request may fit without our additions. If it is far from filling the window, they are not
        the cause and the refusal passes; likewise if a shorter context was refused `again`. A quote may still be
        replaced then."""
        if not overflow_errors.is_overflow(status, refusal, self.sent_tokens):
            return False
        if again or self.sent_tokens < self.window().known_tokens * SUSPECT_WINDOW_SHARE:
            return await self.quotes.find() is not None
        return await self._original_may_fit(self.sent_tokens)

    def learn_if_too_long(self, status: int, refusal: bytes) -> bool:
        """Whether the provider refused the last round for its length; if so, the window limit is learned from it."""
        if not overflow_errors.is_overflow(status, refusal, self.sent_tokens):
            return False
        self._services.context_windows.learn_from_refusal(*self._window_key, self.sent_tokens, refusal)
        return True

    async def shorten_after_empty_answer(self, turn: Turn, context: Context) -> Context | None:
        """A shorter context after an empty answer, as some servers answer an overlong prompt. None if the prompt was
        far from filling the window."""
        if turn.form is RequestForm.BARE:
            return None
        window = self.window()
        enough = max(overflow_errors.MIN_UNEXPLAINED_OVERFLOW_TOKENS, window.tokens // 2 if window.is_binding else 0)
        return await self._shorten_below(turn, context, self.sent_tokens) if self.sent_tokens >= enough else None

    def learn_from_response(self, spoken: ModelResponse) -> None:
        """Learn from the provider's token count how much fits, and which form it accepts."""
        if self.fallbacks.is_switched:
            return
        self._services.context_windows.learn_from_usage(*self._window_key, self.sent_tokens, spoken.usage)
        self._forms.learn(complete=spoken.complete)

    async def _pass_refusal(self, delivery: ClientResponse, got: Answer, refusal: bytes) -> None:
        self._record.form = ""
        self._record.mark_failed("upstream_error")
        self._record.finish(got.status)
        await delivery.send_refusal(got, refusal, self._services.now())

    @property
    def calls_are_forbidden(self) -> bool:
        """Whether the client itself allows no call."""
        return self._request.tool_choice == "none"

    @property
    def listens_to_refusals(self) -> bool:
        """Whether a round without calls is worth asking for: not of a model that has just called our tools in one."""
        noted = self._services.models_ignoring_refusals.get((self._route.upstream.name, self._route.model))
        return noted is None or self._services.now() - noted > REFUSALS_IGNORED_MS

    def note_ignored_refusal(self) -> None:
        """The model called one of our tools in a round in which it was told that it may call none."""
        noted = self._services.models_ignoring_refusals
        if len(noted) >= MAX_MODELS_IGNORING_REFUSALS:
            noted.clear()
        noted[self._route.upstream.name, self._route.model] = self._services.now()

    def _render(self, turn: Turn, context: Context, *, no_calls: bool) -> Body:
        waking = turn.path_state.tree.wake_state
        if waking is None:
            raise ContextRejected("an asleep thread is not rendered", code="internal")
        offered, guidance = self._forms.offer(turn)
        brief = self._forms.with_offered_tools(turn, self._request)
        request = brief.request
        head = self._services.dialect.extend_head(request, guidance)
        wanted = RenderOptions(
            offered.encode(), include_usage=True, tool_choice_none=no_calls, fork=context.inherited_message_count
        )
        messages = context.messages
        if (self._route.upstream.name, self._route.model) in self._services.models_without_reasoning:
            messages = tuple(
                m if m.role != "assistant" else self._services.dialect.without_reasoning(m) for m in messages
            )
        elif wants_reasoning_back(self._services.config, self._route.model):
            spoken = (m for p in turn.path_state.entries if (m := message_of(p)))
            messages = with_reasoning_back(self._services.dialect, messages, (*self._request.messages, *spoken))
        tools, texts = self._stack_tokens(turn)
        sent = self._services.dialect.in_sent_order(messages, request.messages)
        in_front = f"{offered}\n{BRIEF}" if brief.saved_tokens else offered
        chain = sent_chain(request, guidance, in_front, tools + texts, sent)
        request, head = self._with_lasting_head(turn, chain, request, head)
        body = self._services.dialect.render(request, messages, head, wanted)
        marked = self._record.hash_chain(chain, request, sent)
        own_texts = texts + context.own_tokens
        saved = brief.saved_tokens
        self._record.add_sent_round(marked, body, own_tools=tools, own_texts=own_texts, brief_tools=saved)
        self.sent_tokens = self._request_tokens(turn, context)
        return body

    def _with_lasting_head(
        self, turn: Turn, chain: PromptChain, request: Request, head: tuple[bytes, ...]
    ) -> tuple[Request, tuple[bytes, ...]]:
        """Both with an hour for the cache of the head, where that is allowed and costs little beside what was paid.
        What an hour takes of a plan's windows nobody says."""
        account, plans = self._record.account, self._record.recorder.accountant.plans
        if not self._services.config.long_head_cache or account is None or plans.account_of(self._record.payer):
            return request, head
        longer = self._services.dialect.with_hour_head(request, head)
        rounds = rounds_of(turn.path_state.entries)
        paid = [(each.created, each.spoken.usage) for each in rounds if each.spoken.usage]
        return longer if longer and account.keeps_head_long(paid, chain) else (request, head)

    async def send_original(self, request: Request) -> Answer:
        """The provider's answer to the client's own, possibly shortened, request."""
        self.sent_tokens = request.tokens
        return await self._send_body(request.body)

    async def send_to_larger(self, body: bytes, status: int, refusal: bytes) -> Answer | None:
        """The answer of another model, where this one refused a body for its length and there is one that takes it."""
        if not self.fallbacks or not overflow_errors.is_overflow(status, refusal, self.sent_tokens):
            return None
        got = await self.fallbacks.send_to_next(body, readable=True)
        if got is not None:
            self._record.upstream_status = got.status
        return got

    async def _send_body(self, body: bytes) -> Answer:
        self._record.upstream_status = 0
        if self._services.cache_keep_alive is not None:  # else no body is held while its answer streams
            self.sent_body, self.sent_at = body, self._services.now()
        got = await self.fallbacks.send(body, readable=True)
        self._record.upstream_status = got.status
        headers = dict(got.headers)
        self._record.header_cost = cost_of_header(headers.get(COST_HEADER, b"").decode("latin-1"))
        if self._record.payer:
            self._record.add_windows(got.headers, headers.get(ORGANIZATION, b""))
        return got


def _is_form_error(error: bytes) -> bool:
    """Whether an error inside an answer that began well says that the request's form is at fault."""
    return request_forms.is_form_refusal(500, error, knows_api=True)
