"""Sends rounds to the provider, and again where that helps and the client cannot notice.

What is sent after a refusal is the first of `REMEDIES` that applies. If none does and the client has seen nothing,
ContextRejected makes the caller send the client's own request, which `shorten_request` can shorten. A round behind the
first whose request fails, or is refused for load, is sent again; one whose answer breaks off is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import msgspec
from msgspec.structs import replace

from proxy.accounting import ORGANIZATION, PromptChain
from proxy.core.context import Context
from proxy.core.ledger import Request
from proxy.core.observers import rounds_of
from proxy.dialects import COST_HEADER, RenderOptions, cost_of_header
from proxy.errors import UpstreamError
from proxy.exchange.background.recorder import RequestRecordBuilder, sent_chain
from proxy.exchange.client_response import ClientResponse
from proxy.exchange.rounds.client_request import ClientRequest, Services
from proxy.exchange.rounds.fallbacks import Fallbacks
from proxy.exchange.rounds.fit_context import ContextFitter, ContextRejected
from proxy.exchange.rounds.form_ladder import Refusal
from proxy.exchange.thread.bound_reasoning import wants_reasoning_back, with_reasoning_back
from proxy.exchange.turn import Turn
from proxy.upstream import Answer, RequestForm, Route, is_busy, overflow_errors, request_forms, retry_after_s

MAX_RETRIES = 2
"""Retries of a failed hidden round."""
BRIEF = "brief"
"""Keeps the head with brief tools apart from the same with whole ones, where caches are simulated."""
RETRY_DELAY_S = 0.5
"""Used where the provider names no time."""
# Mistral answers the option with a 422, and tells its usage unasked. It was our wish, so the refusal is ours to mend:
# the client cannot leave out what it never sent.
USAGE_OPTION_WORDS = (b"stream_options", b"include_usage")
"""Words in a refusal of the usage option, such as Mistral's."""


class Attempt(msgspec.Struct, frozen=True):
    """How a round is sent. `context` is `whole`, or what is left of it; `tries` are left for outages; with `may_trim`
    it may be shortened; `uncounted`: without the usage option; `wait_s`: seconds until it is sent."""

    context: Context
    whole: Context
    tries: int
    may_trim: bool
    uncounted: bool
    wait_s: float = 0

    def after_outage(self, told_wait_s: float | None = None) -> Attempt | None:
        """The same once more, later; None where it was sent often enough."""
        wait_s = RETRY_DELAY_S if told_wait_s is None else told_wait_s
        return replace(self, tries=self.tries - 1, wait_s=wait_s) if self.tries else None

    def trimmed(self, refused: Refusal) -> Attempt:
        """A round is shortened once: whatever is sent behind a refusal for its length."""
        return replace(self, may_trim=self.may_trim and not refused.is_too_long)


class RoundSender:
    """Sends the rounds of one request. `request` has the upstream's name for the model."""

    def __init__(
        self,
        services: Services,
        client_request: ClientRequest,
        route: Route,
        fitter: ContextFitter,
        record: RequestRecordBuilder,
    ) -> None:
        self._services = services
        self._route = route
        self._fitter = fitter
        self._request = fitter.request
        self._record = record
        asked = record.placement.request.model if record.placement else ""
        self.fallbacks = Fallbacks(services, client_request, route, asked or "", record.switch_route)
        self.sent_tokens = 0
        """Tokens of the last round sent."""
        self.sent_body, self.sent_at = b"", 0
        """Of the last round, if the cache keep-alive is on: its bytes, and when it left, in ms since the epoch."""

    async def send(
        self, turn: Turn, context: Context, delivery: ClientResponse, *, no_calls: bool, may_trim: bool = True
    ) -> Answer | None:
        """The provider's answer to the next round, which is shortened at most once, if it `may_trim`; None when the
        client has been answered with an error. Raises ContextRejected where the client's own request may be accepted,
        and nothing of the answer has left."""
        learned, model = self._services.learned_traits, self._fitter.model
        tries = MAX_RETRIES if turn.round_number else 0
        uncounted = self._request.stream and learned.has("no_usage", model)
        attempt = Attempt(context, context, tries, may_trim, uncounted)
        while True:
            body = self._render(turn, attempt, no_calls=no_calls)
            try:
                got, refused = await self._ask(body)
            except UpstreamError as error:
                following = attempt.after_outage()
                if following is None:
                    self._record.mark_failed(error.code)
                    self._record.finish(error.status)
                    await delivery.send_failure(error)
                    return None
            else:
                if refused is None:
                    if attempt.uncounted:
                        learned.learn("no_usage", model)
                    return got
                following = await _next_attempt(self._fitter, turn, attempt, refused)
                if following is None:
                    if (other := await self.send_to_larger(body, refused)) is not None:
                        return other
                    if not delivery.reply.started:
                        await self._reject_if_original_may_pass(attempt, refused)
                    await self._pass_refusal(delivery, got, refused)
                    return None
            attempt = following
            self._record.add_retry()
            await asyncio.sleep(attempt.wait_s)

    async def _ask(self, body: bytes) -> tuple[Answer, Refusal | None]:
        """The answer, and what it says if it is a refusal. Raises UpstreamError, also for an incomplete refusal."""
        got = await self._send_body(body)
        if got.status < 300:
            return got, None
        async with aclosing(got):
            refusal = await got.body()
        told_wait_s = retry_after_s(got.headers, self._services.now(), refusal) if is_busy(got.status) else None
        return got, Refusal(got.status, refusal, self.sent_tokens, told_wait_s)

    async def _reject_if_original_may_pass(self, attempt: Attempt, refused: Refusal) -> None:
        """Raises ContextRejected where the client's own request may be accepted."""
        if refused.is_put_off:
            return
        is_worth_it = await self._fitter.original_may_pass(refused, again=attempt.context is not attempt.whole)
        if not is_worth_it and not self._fitter.forms.client_form_remains(refused):
            return
        self._record.add_retry()
        await asyncio.sleep(refused.told_wait_s or 0)
        if is_worth_it:
            raise ContextRejected("the line was refused for its length, the client's body may fit", code="window")
        self._record.form = RequestForm.CLIENT
        raise ContextRejected("the line was refused for its form, the client's body may pass", code="form")

    async def _pass_refusal(self, delivery: ClientResponse, got: Answer, refused: Refusal) -> None:
        self._record.form = ""
        self._record.mark_failed("upstream_error")
        self._record.finish(got.status)
        await delivery.send_refusal(got, refused.body, self._services.now())

    # ----------------------------------------------------------------------------------------------- what was answered
    def is_retryable_error(self, error: bytes) -> bool:
        """Whether an error inside an answer says that the round was too long, or in a form that is not accepted."""
        if not error.strip():
            return False
        return overflow_errors.is_overflow(400, error) or (not self._record.form and _is_form_error(error))

    async def replace_after_error(self, turn: Turn, context: Context, error: bytes) -> Context | None:
        """A shorter or milder context after such an error inside an answer that had begun."""
        refused = Refusal(400, error, self.sent_tokens)
        if refused.is_too_long:
            return await self._fitter.shorten_refused(turn, context, refused)
        return self._fitter.in_milder_form(turn, refused) if _is_form_error(error) else None

    async def shorten_after_empty_answer(self, turn: Turn, context: Context) -> Context | None:
        """A shorter context after an empty answer, as some servers answer an overlong prompt. None if the prompt was
        far from filling the window."""
        window = self._fitter.window()
        enough = max(overflow_errors.MIN_UNEXPLAINED_OVERFLOW_TOKENS, window.tokens // 2 if window.is_binding else 0)
        return await self._fitter.shorten_below(turn, context, self.sent_tokens) if self.sent_tokens >= enough else None

    # ----------------------------------------------------------------------------------------------------------- bytes
    def _render(self, turn: Turn, attempt: Attempt, *, no_calls: bool) -> bytes:
        context, forms = attempt.context, self._fitter.forms
        waking = turn.path_state.tree.wake_state
        if waking is None:
            raise ContextRejected("an asleep thread is not rendered", code="internal")
        offered, guidance = forms.offer(turn)
        brief = forms.with_offered_tools(turn, self._request)
        request = replace(brief.request, wants_usage=True) if attempt.uncounted else brief.request
        head = self._services.dialect.extend_head(request, guidance)
        wanted = RenderOptions(
            offered.encode(), include_usage=True, tool_choice_none=no_calls, fork=context.inherited_message_count
        )
        messages = context.messages
        if self._services.learned_traits.has("no_reasoning", self._fitter.model):
            messages = tuple(
                m if m.role != "assistant" else self._services.dialect.without_reasoning(m) for m in messages
            )
        elif wants_reasoning_back(self._services.config, self._route.model):
            spoken = (m for p in turn.path_state.entries if (m := p.message))
            messages = with_reasoning_back(self._services.dialect, messages, (*self._request.messages, *spoken))
        tools, texts = self._fitter.stack_tokens(turn)
        sent = self._services.dialect.in_sent_order(messages, request.messages)
        in_front = f"{offered}\n{BRIEF}" if brief.saved_tokens else offered
        chain = sent_chain(request, guidance, in_front, tools + texts, sent)
        request, head = self._with_lasting_head(turn, chain, request, head)
        body = self._services.dialect.render(request, messages, head, wanted)
        marked = self._record.hash_chain(chain, request, sent)
        added_texts = texts + context.added_tokens
        saved = brief.saved_tokens
        self._record.add_sent_round(marked, body, added_tools=tools, added_texts=added_texts, brief_tools=saved)
        self.sent_tokens = self._fitter.request_tokens(turn, context)
        return b"".join(body)

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

    async def send_to_larger(self, body: bytes, refused: Refusal) -> Answer | None:
        """The answer of another model, where this one refused a body for its length and there is one that takes it."""
        if not self.fallbacks or refused.is_put_off or not refused.is_too_long:
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


# ---------------------------------------------------------------------------------------------------------- remedies
Remedy = Callable[[ContextFitter, Turn, Attempt, Refusal], Awaitable[Attempt | None]]


async def _without_usage_option(fitter: ContextFitter, _: Turn, attempt: Attempt, refused: Refusal) -> Attempt | None:
    """Where only we asked for usage."""
    ours = fitter.request.stream and not fitter.request.wants_usage and not attempt.uncounted
    message = refused.body[: overflow_errors.MAX_SCANNED_BYTES]
    if not ours or refused.status not in (400, 422) or not any(word in message for word in USAGE_OPTION_WORDS):
        return None
    return replace(attempt, uncounted=True, wait_s=refused.told_wait_s or 0)


async def _without_reasoning(fitter: ContextFitter, _: Turn, attempt: Attempt, refused: Refusal) -> Attempt | None:
    """From now on this model gets no reasoning that comes back. Where it is signed, other rules say what leaves."""
    signed = fitter.services.dialect.has_signed_reasoning
    if signed or not request_forms.is_reasoning_refusal(refused.status, refused.body):
        return None
    is_new = fitter.services.learned_traits.learn("no_reasoning", fitter.model)
    return replace(attempt, wait_s=refused.told_wait_s or 0) if is_new else None


async def _shorter(fitter: ContextFitter, turn: Turn, attempt: Attempt, refused: Refusal) -> Attempt | None:
    shorter = await fitter.shorten_refused(turn, attempt.context, refused) if attempt.may_trim else None
    if shorter is None:
        return None
    return replace(attempt, context=shorter, wait_s=refused.told_wait_s or 0).trimmed(refused)


async def _in_milder_form(fitter: ContextFitter, turn: Turn, attempt: Attempt, refused: Refusal) -> Attempt | None:
    """At once where the refusal says so, else after the outage that it may be."""
    if not refused.is_explained and is_busy(refused.status) and attempt.tries:
        return None
    milder = fitter.in_milder_form(turn, refused)
    if milder is None:
        return None
    return replace(attempt, context=milder, whole=milder, wait_s=refused.told_wait_s or 0).trimmed(refused)


async def _the_same_later(_: ContextFitter, __: Turn, attempt: Attempt, refused: Refusal) -> Attempt | None:
    later = attempt.after_outage(refused.told_wait_s) if is_busy(refused.status) else None
    return later.trimmed(refused) if later else None


REMEDIES: tuple[Remedy, ...] = (_without_usage_option, _without_reasoning, _shorter, _in_milder_form, _the_same_later)
"""In the order in which they are tried."""


async def _next_attempt(fitter: ContextFitter, turn: Turn, attempt: Attempt, refused: Refusal) -> Attempt | None:
    """How the round is sent again; None where nothing of ours can help."""
    if refused.is_put_off:
        fitter.learn_if_too_long(refused)  # for the next request
        return None
    for remedy in REMEDIES:
        if (following := await remedy(fitter, turn, attempt, refused)) is not None:
            return following
    return None


def _is_form_error(error: bytes) -> bool:
    """Whether an error inside an answer that began well says that the request's form is at fault."""
    return request_forms.is_form_refusal(500, error, knows_api=True)
