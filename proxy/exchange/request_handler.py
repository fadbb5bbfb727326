"""The state of one client request, and what `relay_unchanged_turn` and `tool_loop` both do with an answer."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from msgspec.structs import replace

from proxy.core.ledger import Message, ModelResponse, Usage
from proxy.errors import (
    AgentStopped,
    BudgetReserved,
    BudgetSpent,
    BudgetUnknown,
    ProxyError,
    RequestCancelled,
    StoreError,
    UpstreamError,
    UpstreamInvalidResponse,
)
from proxy.exchange.background.cache_pings import SentRequest
from proxy.exchange.background.scheduler import pause
from proxy.exchange.client_response import MANY_CALLS, ClientResponse, Reply, cancel_reason
from proxy.exchange.interrupts import Interrupts
from proxy.exchange.passthrough_without_turn import new_request_record, with_model
from proxy.exchange.rounds import ClientRequest, ContextFitter, RoundSender, Services, without_refused_usage
from proxy.exchange.thread.gate_prices import payer_headers
from proxy.exchange.thread.placement import Placement
from proxy.exchange.turn import Turn
from proxy.upstream import Answer, Route

log = logging.getLogger(__name__)

SHARED_WRITE_TIMEOUT_S = 1.0
"""How long the end of an answer waits for a store that other processes share; after that the client has it anyway."""
NAMED_WRITE_TIMEOUT_S = 5.0
"""How long the end of an answer that the client may name waits for the store; after that the client has it anyway."""
AFTER_END_TIMEOUT_S = 0.5
"""How long a provider may take to close a stream whose end is held. It is due at once, and the client waits."""
LONG_ANSWER_BYTES = 16 * 1024
"""An answer from this size on is recorded in steps, if its end has not left. 1,000 calls are 110 KB: 4 ms to build, 2
to count, 5 to store."""
MAX_CALLS = 25_000
"""Calls in one answer; each takes 3 KB of memory, and its result a message of the next request."""
CACHED_STATUSES = frozenset({"full", "asleep"})
"""Statuses of requests in the context that the provider's cache holds for a thread."""
UNFINISHED_TURN_TEXT = "The turn could not be finished; send the request again."
DRAFT_DELAY_S = 0.25
"""Longest delay before received output is written to the store."""
MAX_DRAFT_BYTES = 8 << 20
"""Bytes of an answer (some 20,000 tokens) up to which there are drafts: each has all that came."""


class DraftTimer:
    """Calls `write` with a turn at most `DRAFT_DELAY_S` after the first piece that was not written yet.

    The timer alone holds `write`: kept here, a request would hold itself and live until the next garbage collection.
    """

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    def schedule(self, turn: Turn, write: Callable[[Turn], None]) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(DRAFT_DELAY_S, self._fire, turn, write)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self, turn: Turn, write: Callable[[Turn], None]) -> None:
        self._timer = None
        write(turn)


class FailClosedError(ProxyError):
    """`fail_policy` is closed, and the request could not be stored."""

    status = 503

    def __init__(self, reason: str) -> None:
        words = (
            f"The proxy cannot keep this conversation now ({reason}), and its fail_policy is closed. Try again later."
        )
        super().__init__(words, code=reason)


class RequestHandler:
    def __init__(
        self, services: Services, client_request: ClientRequest, reply: Reply, route: Route, placement: Placement
    ) -> None:
        self.services = services
        self.client_request = client_request
        self.reply = reply
        self.route = route
        self.placement = placement
        self.request = without_refused_usage(services, route, with_model(placement.request, route.model))
        self.record = new_request_record(services, client_request, route, placement.status).set_placement(placement)
        self.record.payer = payer_headers(client_request.headers, route.upstream.settings)
        self._has_stored_answer = False
        self.context_fitter = ContextFitter(services, client_request, route, self.request, self.record)
        self.round_sender = RoundSender(services, client_request, route, self.context_fitter, self.record)
        self.deadline = math.inf
        """Until when calls of ours are answered, by `time.monotonic`; set with the first of them."""
        self.round_refusal: ProxyError | None = None
        """Why the budget of the client's key has no room for another round."""
        self.stream_failure: UpstreamError | None = None
        self.interrupts = Interrupts(
            services, client_request, placement, self.context_fitter, lambda: self.client_response.writer
        )
        self.client_response = self.new_client_response(intercept=placement.is_rendered)
        self._drafts = DraftTimer()
        self._last_response: ModelResponse | None = None

    def new_client_response(self, *, intercept: bool) -> ClientResponse:
        services = self.services
        return ClientResponse(services.dialect, self.request, self.reply, self.record.headers, intercept=intercept)

    @property
    def cancel_reason(self) -> str:
        return RequestCancelled.code if self.interrupts.cancelled_by_user else cancel_reason(self.reply)

    @property
    def shows_last_text_only(self) -> bool:
        """Whether the answer is one JSON document, in which the text of a round that another one follows has no
        place."""
        return self.request.wants_structured_output and self.request.tool_choice != "none"

    async def refuse_unstored(self, reason: str) -> None:
        self.record.mark_failed(reason)
        self.record.finish(FailClosedError.status)
        await self.client_response.send_error(FailClosedError(reason))

    @property
    def is_stopped(self) -> bool:
        """Whether a person has stopped the conversation. Asked once the request can be cancelled: a stop that comes
        later cuts it off."""
        return self.placement.ledger.conversation.is_stopped

    async def refuse_stopped(self) -> None:
        self.record.mark_failed(AgentStopped.code)
        self.record.finish(AgentStopped.status)
        await self.client_response.send_error(
            AgentStopped(
                "A person stopped this agent. Press Resume on the console's page of this conversation, then send the "
                "request again."
            )
        )

    async def ensure_stored(self) -> bool:
        """Whether the request is on disk; if not, the client has been refused."""
        try:
            await self.services.conversation_cache.wait_until_durable(self.placement.cached_conversation)
        except StoreError as error:
            await self.refuse_unstored(error.code)
            return False
        return True

    async def send_cancelled_error(self) -> None:
        """Send an error, or close the connection if a part of the answer was sent already."""
        if (task := asyncio.current_task()) is not None:
            task.uncancel()
        await self.client_response.send_error(
            RequestCancelled(
                "A person stopped this request. What had arrived of the answer is kept. Send it again to go on."
            )
        )

    async def fail_turn(self, error: ProxyError) -> None:
        """Fail the request because something the answer depends on could not be stored or made."""
        self.record.mark_failed(error.code)
        self.record.finish(error.status)
        await self.client_response.send_failure(error)

    async def fail_unusable_round(self, got: Answer, failure: ProxyError | None = None) -> None:
        """Fail the request because a round is no answer: in the provider's words, where it said any."""
        if not (said := self.client_response.writer.error_body):
            await self.fail_turn(failure or UpstreamInvalidResponse(UNFINISHED_TURN_TEXT))
            return
        self.record.mark_failed(UpstreamInvalidResponse.code)
        self.record.finish(got.status if got.status >= 400 else UpstreamInvalidResponse.status)
        await self.client_response.send_refusal(got, said, self.services.now())

    async def receive_round(self, turn: Turn | None, got: Answer) -> tuple[bool, ModelResponse]:
        """Forward one round; returns whether it arrived completely, and what it said."""
        if turn is not None:
            turn.is_by_other_maker = turn.is_by_other_maker or self.round_sender.fallbacks.is_by_other_maker
        try:
            await self.client_response.begin_round(got)
            complete = await self.forward_chunks(turn, got)
            await self.client_response.release_odd()
            return complete, self.client_response.end_round(complete=complete)
        finally:
            await got.aclose()

    async def forward_chunks(self, turn: Turn | None, got: Answer) -> bool:
        """Forward chunks as they arrive. Returns False when the upstream died; when cancelled, what had arrived is
        stored."""
        size = 0
        chunks = got.chunks()
        try:
            async for chunk in chunks:
                size += len(chunk)
                await self.client_response.feed(chunk)
                self._refuse_endless(size)
                if self.client_response.end_is_held:
                    await self._receive_rest(chunks)
                    break
                if turn is not None and self.request.stream and size <= MAX_DRAFT_BYTES:  # a plain one is parsed whole
                    self._drafts.schedule(turn, self._write_draft)
            if self._may_pause(size):
                await pause()  # building the message comes next
        except UpstreamError as error:
            self.stream_failure = error
            self.record.mark_failed(error.code)
            return False
        except asyncio.CancelledError:
            await got.aclose()
            told_the_end = self.client_response.writer.is_finished or self.client_response.end_is_held
            spoken = self.client_response.end_round(complete=told_the_end)
            if not told_the_end:
                self.record.mark_failed(self.cancel_reason)
                spoken = replace(spoken, finish="cancelled") if self.interrupts.cancelled_by_user else spoken
            self.store_last_round(turn, spoken)
            raise
        finally:
            self._drafts.cancel()
        return True

    def _refuse_endless(self, size: int) -> None:
        """Raises UpstreamInvalidResponse if an answer is longer than any model writes."""
        limit = self.services.config.answer_limit_bytes
        if size <= limit and self.client_response.writer.call_count <= MAX_CALLS:
            return
        over = f"{limit} bytes (answer_limit_bytes)" if size > limit else f"{MAX_CALLS} calls"
        raise self.endless(over)

    def endless(self, over: str) -> UpstreamInvalidResponse:
        upstream = self.route.upstream.name
        return UpstreamInvalidResponse(
            f"upstream {upstream} went on beyond {over} in one answer, which no model writes. Send the request again, "
            "or have the operator look at that provider."
        )

    async def _receive_rest(self, chunks: AsyncIterator[bytes]) -> None:
        """Take what still comes behind the end of a stream. The answer is whole without it, so a provider that breaks
        off now, or leaves the connection open, changes nothing."""
        with suppress(TimeoutError, UpstreamError):
            async with asyncio.timeout(AFTER_END_TIMEOUT_S):
                async for chunk in chunks:
                    await self.client_response.feed(chunk)

    async def store_last_round_in_steps(self, turn: Turn | None, spoken: ModelResponse) -> None:
        """As `store_last_round`; other requests have their turn between building a long answer, counting its tokens
        and storing it. It is stored even when the client leaves meanwhile."""
        try:
            if self._may_pause(len(spoken.message.wire)):
                await pause()
                spoken = replace(spoken, message=self._counted(spoken.message))
                await pause()
        finally:
            self.store_last_round(turn, spoken)

    def _may_pause(self, size: int) -> bool:
        """Whether other requests may have their turn before an answer of `size` bytes is stored. Not once its end has
        left: the client's next request must find the answer."""
        answer = self.client_response
        has_left = self.request.stream and answer.writer.is_finished and not answer.end_is_held
        return size >= LONG_ANSWER_BYTES and not has_left

    def store_last_round(self, turn: Turn | None, spoken: ModelResponse) -> None:
        """Record the last round. An empty one is not stored, unless it ends a turn with hidden rounds."""
        self.record_response(spoken)
        message = spoken.message
        if turn is None or self.client_response.writer.is_error:
            return
        if not (message.text or message.calls or (turn.round_number and spoken.complete)):
            return
        try:
            weighed = replace(spoken, message=self._counted(message))
            turn.store_round(weighed, (), [], self.services.now(), last=True)
            self._has_stored_answer = True
        except StoreError as error:
            self.report_unstored_round(error.code)

    def report_unstored_round(self, reason: str) -> None:
        """The answer went out but is not on disk. For a relayed request that is a bypass; otherwise the client learns
        of it with its next request."""
        log.warning("answer not kept", extra={"request": self.client_request.id, "code": reason})
        if not self.placement.is_rendered:
            self.record.mark_bypassed(reason)

    def record_response(self, spoken: ModelResponse) -> None:
        """An answer that broke off tells no figures, or those of its beginning: then each event counts as a token, if
        the text has no more."""
        self._last_response, usage = spoken, spoken.usage
        came = self._counted(spoken.message).tokens if spoken.message.text or spoken.message.calls else 0
        if not spoken.complete:
            came = max(came, self.client_response.round_events)
            if usage is not None:
                spoken = replace(spoken, usage=replace(usage, output=max(usage.output, came)))
        self.record.add_response(spoken, came if usage is None else 0)
        if not self.round_sender.fallbacks.is_switched:
            self.context_fitter.learn_from_response(spoken, self.round_sender.sent_tokens)

    def _counted(self, message: Message) -> Message:
        """The message with its tokens; one that has them is not counted again."""
        return message if message.tokens else self.services.composer.with_token_count(message)

    async def finish(self, status: int) -> None:
        """End the client's answer, or send the error if the stream failed."""
        await self._wait_until_stored()
        if self.stream_failure is not None:
            self.record.finish(status if self.reply.started else self.stream_failure.status)
            await self.client_response.send_error(self.stream_failure)
            return
        last = self.client_response.last_bytes()
        self.record.finish(status)
        await self.client_response.end(last)

    async def reserve_round(self, added_tokens: int) -> None:
        """Make room in the budget of the client's key for another round, which sends so many tokens more than the last
        one and its answer; `round_refusal` says why where there is none."""
        if (reserve := self.client_request.reserve_round) is None or self._last_response is None:
            return
        newest = self._last_response
        estimated = Usage(self.round_sender.sent_tokens, self._counted(newest.message).tokens)
        used = [usage or estimated for usage in self.record.usages]
        try:
            await reserve(used, used[-1].input + used[-1].output + added_tokens)
        except (BudgetReserved, BudgetSpent, BudgetUnknown) as error:
            self.round_refusal = error

    def end_pause(self) -> None:
        """The client is back, so no ping is needed to keep the provider's cache."""
        keep_alive, at = self.services.cache_keep_alive, self.placement
        if keep_alive is not None and at.status in CACHED_STATUSES:
            keep_alive.end_pause(self.client_request.tenant, at.conversation, at.thread)

    def begin_pause(self) -> None:
        """The answer has ended, and until the client is back a ping may be due."""
        keep_alive = self.services.cache_keep_alive
        if keep_alive is None or (receipt := self.record.receipt()) is None or self.record.account is None:
            return
        at, client_request, spoken, sender = self.placement, self.client_request, self._last_response, self.round_sender
        keep_alive.add_to_balance(client_request.tenant, at.conversation, receipt.saved)
        if receipt.status not in CACHED_STATUSES or spoken is None or not spoken.complete:
            return
        sent = SentRequest(
            tenant=client_request.tenant,
            entry_id=at.entry_id,
            dialect=self.services.dialect,
            upstream=self.route.upstream,
            path=client_request.path,
            query=client_request.query,
            headers=client_request.headers,
            body=sender.sent_body,
            chain=self.record.account.newest_chain,
            sent_at=sender.sent_at,
            entries=len(at.ledger.entries),
            waits_for_tools=bool(spoken.client_calls),
            user_messages=sum(message.role == "user" for message in self.request.messages),
            is_delegated=bool(at.ledger.conversation.parent),
        )
        keep_alive.begin_pause(sent, receipt)

    async def _wait_until_stored(self) -> None:
        """Wait until an answer that the client may name is on disk. On a shared store wait for any: the next request
        may reach another process as soon as the client has the end."""
        is_named = self.client_response.can_be_named and self._has_stored_answer
        if not (is_named or self.services.conversation_cache.is_shared):
            return
        try:
            async with asyncio.timeout(NAMED_WRITE_TIMEOUT_S if is_named else SHARED_WRITE_TIMEOUT_S):
                await self.services.conversation_cache.wait_until_durable(self.placement.cached_conversation)
        except (StoreError, TimeoutError) as error:
            log.warning("answer not on disk yet", extra={"request": self.client_request.id, "cause": str(error)})
            if is_named and isinstance(error, StoreError) and not self.placement.is_rendered:
                self.record.mark_bypassed(error.code)

    def _write_draft(self, turn: Turn) -> None:
        writing = self.client_response.writer
        if not writing.has_sent_bytes or writing.is_error or writing.call_count > MANY_CALLS:
            return
        try:
            turn.store_draft(writing.partial_response(), self.services.now())
        except StoreError:
            log.warning("draft not kept", extra={"request": self.client_request.id})


def is_unusable_round(handler: RequestHandler, spoken: ModelResponse) -> bool:
    """Whether the answer is no usable round: it has neither content nor an end, or a stream carries an HTML page or a
    compressed body. Ending a begun stream there would look like success. A plain answer with content that only we
    cannot read passes unchanged, and so does a failure that the provider reported."""
    # An empty answer ends the task as a success in opencode, Codex, continue and pi; the others ask again (2026-11).
    writing, message = handler.client_response.writer, spoken.message
    if writing.is_error:
        return handler.request.stream or not handler.reply.started
    return writing.round_is_empty or not (
        spoken.complete or writing.round_failed or message.text.strip() or message.calls
    )
