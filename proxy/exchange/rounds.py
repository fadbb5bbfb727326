"""Asking the provider: the line of a round made fit to leave, sent, and asked again where that can be done unseen.

The laws: what a line leaves out, and what was decided about it, is on disk before it leaves; a call on it has its
result; it fits the window, and where the provider says it does not, it is made shorter, once: old outputs are cleared,
then the oldest groups leave. Where that is not enough and the client has seen nothing yet, its own request is asked
instead. A first round is asked once, and again only without what the provider refuses of ours. A hidden round that
fails is asked again, because no byte of it has left.

Where there is no line, a client's own history that cannot fit is shortened by itself, or what it quotes of one that
is kept is told in our words (`shortened_request`).

What this module does not do: it runs no stack call and shows the client nothing but the provider's refusals.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from proxy.accounting import TokenCounterProtocol
from proxy.config import Config
from proxy.core.compaction import (
    KEPT_WINDOW_SHARE,
    clear_old_outputs,
    cut_long_outputs,
    drop_oldest,
    drop_oldest_messages,
    droppable_tokens,
    withhold_results,
)
from proxy.core.context import Context, answers_with_stale_reasoning, unpaired_calls
from proxy.core.frames import FrameEvent, ReasoningRemoved
from proxy.core.ledger import Message, ModelResponse, Request
from proxy.core.observers import message_of
from proxy.core.tools import UNBOUNDED
from proxy.dialects import Body, Dialect, DialectComposer, ParseCache, RenderOptions, countable_texts
from proxy.dialects import with_token_counts as weighed_by
from proxy.errors import ProxyError, StoreError, UpstreamError
from proxy.exchange.background.in_flight import InFlight
from proxy.exchange.background.inbox import Inbox
from proxy.exchange.background.recorder import Recorder, RequestRecordBuilder, sent_chain
from proxy.exchange.background.scheduling import in_slices
from proxy.exchange.background.summarizer import Summarizer
from proxy.exchange.client_response import ClientResponse
from proxy.exchange.notes.people_messages import MessageDelivery
from proxy.exchange.resolver import Resolver
from proxy.exchange.thread.activation import (
    binds_reasoning,
    must_open_with_reasoning,
    newest_assistant_entry,
    strip_client_reasoning,
)
from proxy.exchange.thread.quoted_history import QuoteFinder, QuoteRenderOptions
from proxy.exchange.turn import Toolkit, Turn
from proxy.store import ConversationCache
from proxy.upstream import Answer, ContextWindow, ContextWindows, RawHeaders, Route, Routes, outgoing_headers
from proxy.upstream import overflow_errors as overflow

log = logging.getLogger(__name__)

MAX_RETRIES = 2
"""How often a hidden round that failed is asked again."""
RETRY_DELAY_S = 0.5
"""Between two tries where the provider names no time."""
MAX_RETRY_DELAY_S = 10.0
SHORTENED_PROMPT_SHARE = 0.75
"""Of what a prompt may fill, what a trimmed one does at most: one that just fits would be trimmed with every request.
"""
HUGE_BODY_BYTES = 24 << 20
"""Bytes of a body from which it is read in a thread, and nothing of it remembered: reading 60 MiB on the loop holds up
everybody for 0.4 s, and what is remembered of two such bodies pushes all else out."""
MAX_MESSAGES = 50_000
"""Messages of a request that is placed. To place one that is new takes 40 us, in which nobody else is served, and a
body may hold two million; the longest conversation that fits a window of a million tokens has a tenth of these."""
ROLE_KEY = b'"role"'
SUSPECT_WINDOW_SHARE = 0.5
"""Of a known window, what a request fills at least that our part of it could have made too long."""
AMPLE_ROOM_SHARE = 0.5
"""Of a window, room that no answers to a round fill: what may leave the line is not looked at then."""
COUNT_ERROR_SHARE = 0.02
"""Of a window, how far our count of what stands on a line may be off."""
SMALL_RESULT_TOKENS = 400
"""Tokens of an answer of ours for which half of what is kept for the answer of the model gives way."""
MIN_MESSAGE_BYTES = 16
"""Bytes of a message, at least."""
MAX_MODELS_WITHOUT_USAGE = 1024
"""Models that are remembered for taking no question for usage."""
USAGE_OPTION_WORDS = (b"stream_options", b"include_usage")
"""Words of a refusal of that question, such as Mistral's."""


class ClientRequest(msgspec.Struct, frozen=True):
    """A request of the client, its body read. `path` is raw, as the client wrote it."""

    id: str
    tenant: str
    method: str
    path: str
    query: bytes
    headers: RawHeaders
    body: bytes
    mode: str = ""
    """The one its client key was issued with, or empty."""
    arrived: float = msgspec.field(default_factory=time.perf_counter)


@dataclass(frozen=True)
class Services:
    """What an exchange is made of. `now` tells ms since the epoch."""

    config: Config
    dialect: Dialect
    conversation_cache: ConversationCache
    routes: Routes
    counter: TokenCounterProtocol
    composer: DialectComposer
    resolver: Resolver
    toolkit: Toolkit
    recorder: Recorder
    parse_cache: ParseCache
    count_memoized: Callable[[str], int]
    """Tokens of a text that is asked for with every request, remembered."""
    now: Callable[[], int]
    context_windows: ContextWindows
    message_delivery: MessageDelivery
    inbox: Inbox
    in_flight: InFlight
    summarizer: Summarizer | None = None
    """None where it is off."""
    models_without_usage: set[tuple[str, str]] = field(default_factory=set)
    """Models, each behind its upstream, that take no question for usage."""


class ContextRejected(ProxyError):
    """A line that may not leave; `code` says why. The client's own bytes go instead."""

    code = "internal"


class RoundSender:
    """Asks for the rounds of one request. `request` is under the upstream's name for the model; what came of it stands
    in `record`."""

    def __init__(
        self,
        parts: Services,
        client_request: ClientRequest,
        route: Route,
        request: Request,
        record: RequestRecordBuilder,
    ) -> None:
        self._services = parts
        self._client_request = client_request
        self._route = route
        self._request = request
        self._record = record
        conversation = record.placement.conversation if record.placement else ""
        self._window_key = (route.upstream.name, route.model, conversation)
        """What limits are known by."""
        self._sent_tokens = 0
        """Tokens of the round that left last."""

    def window(self) -> ContextWindow:
        return self._services.context_windows.window(*self._window_key)

    @cached_property
    def quotes(self) -> QuoteFinder:
        """What the client's own request quotes."""
        return quotes_of(self._services, self._client_request, self._request)

    async def build_context(self, turn: Turn) -> Context:
        """The line of the active frame, fit to leave: paired, within the window, what it leaves out on disk.

        Raises Unfit when it is not, StoreError when what it leaves out cannot be made durable. A hidden round has no
        client's body to go instead: what can leave it leaves, and the provider has the last word.
        """
        if not turn.round_number and self._loop_began_without_us(turn):
            raise ContextRejected(
                "the tool loop opens with reasoning that no line of ours was there for", code="in_loop"
            )
        line = turn.build_context()
        await turn.wait_until_durable(None if turn.round_number else line.left_out)
        window = self.window()
        line = await self._truncate_outputs(turn, line, window)
        if unpaired_calls(line.messages):
            raise ContextRejected("a call on the line has no result", code="law_pairing")
        tokens = self._request_tokens(turn, line)
        if not window.is_binding or tokens <= window.limit:
            return line
        if self._request.tokens <= window.limit and not turn.round_number:
            if tokens <= window.tokens:
                return line  # our tools and texts take of what is kept for the answer: no reason to stand aside
            raise ContextRejected("the line does not fit the window, the client's body does", code="window")
        shorter = await self._shorten(turn, line, window.limit, shortened_prompt_tokens(window))
        if shorter is None and self._request.tokens <= window.tokens and not turn.round_number:
            raise ContextRejected("the line does not fit the window, the client's body may", code="window")
        left = shorter or line
        left = await self._drop_stack_results(turn, left, int(window.tokens * (1 - COUNT_ERROR_SHARE))) or left
        too_long = not turn.round_number and self._request_tokens(turn, left) > window.tokens
        if too_long and await self._original_may_fit(self._request_tokens(turn, left)):
            raise ContextRejected(
                "the line does not fit the window, what is left of the client's body may", code="window"
            )
        return left

    def _loop_began_without_us(self, turn: Turn) -> bool:
        """L8: the loop that is under way was begun without us, and its last answer must open with its reasoning."""
        if not must_open_with_reasoning(
            self._services.config, self._services.dialect, self._request, self._route.model
        ):
            return False
        newest = newest_assistant_entry(turn.path_state.entries)
        said = message_of(newest) if newest else None
        reasons = said is not None and self._services.dialect.without_reasoning(said) is not said
        return newest is not None and reasons and newest.entry.id in turn.path_state.tree.without_reasoning

    async def _original_may_fit(self, refused: int) -> bool:
        """Whether the client's own request, or what can be left of it, is less than so many tokens, too many."""
        request = self._request
        if self._services.config.fail_policy == "closed":
            return False
        if request.tokens < refused or drop_oldest_messages(
            request.messages, 0, self._services.dialect.holds_compaction
        ):
            return True
        return await self.quotes.find() is not None

    async def _truncate_outputs(self, turn: Turn, line: Context, window: ContextWindow) -> Context:
        """The line with new outputs that alone are too long cut to `output_cap`, or as their rule says; for a window
        that nobody knows there is none (L4)."""
        config, most = self._services.config, window.max_output_tokens
        cap, rules = config.output_cap or most, config.output_rules
        events = (
            cut_long_outputs(turn.path_state, cap, self._services.counter.count, rules, most) if cap or rules else ()
        )
        return await self._apply_events(turn, line, events) or line

    def _stack_tokens(self, turn: Turn) -> tuple[int, int]:
        """Tokens of our tools and of our guidance."""
        waking = turn.path_state.tree.wake_state
        weigh = self._services.count_memoized
        return (weigh(waking.tools), weigh(waking.guidance)) if waking else (0, 0)

    def _request_tokens(self, turn: Turn, line: Context) -> int:
        """What a request with this line counts: head, tools and messages."""
        fixed = sum(m.tokens for m in self._request.head) + self._request.tools_tokens
        return fixed + sum(self._stack_tokens(turn)) + line.tokens

    def tokens_for_results(self, turn: Turn, spoken: ModelResponse) -> int:
        """Tokens that the answers to a round may take, for the next one to fit the window once all that may leave the
        line has left it."""
        window = self.window()
        if not window.is_binding:
            return UNBOUNDED
        left = window.limit - self._sent_tokens - spoken.message.tokens - int(window.tokens * COUNT_ERROR_SHARE)
        if left < window.tokens * AMPLE_ROOM_SHARE:
            left += droppable_tokens(turn.path_state, turn.build_context())
        return max(left, min(SMALL_RESULT_TOKENS, left + (window.tokens - window.limit) // 2))

    async def _shorten(self, turn: Turn, line: Context, enough: int, room: int) -> Context | None:
        """A shorter line: old outputs cleared, and where that does not bring it below `enough` tokens, the oldest
        groups trimmed, down to `room`. None where nothing can go."""
        cleared = await self._apply_events(
            turn, line, clear_old_outputs(turn.path_state, line, self._services.config.output_rules)
        )
        if cleared is not None and self._request_tokens(turn, cleared) <= enough:
            return cleared
        left = cleared or line
        fixed = self._request_tokens(turn, left) - left.tokens
        event = drop_oldest(turn.path_state, left, room - fixed)
        return await self._apply_events(turn, left, (event,) if event else ()) or cleared

    async def _drop_stack_results(self, turn: Turn, line: Context, most: int) -> Context | None:
        """The line without what our own tools answered, as far as it is more than `most` tokens: where all else has
        left it, that is what made it too long. None where nothing can go."""
        event = withhold_results(turn.path_state, line, self._request_tokens(turn, line) - most)
        return await self._apply_events(turn, line, (event,) if event else ())

    async def _apply_events(self, turn: Turn, line: Context, events: Sequence[FrameEvent]) -> Context | None:
        """What becomes of the line by these events, which are durable then; None without one. Reasoning that its
        provider binds to what stood before it goes where that is something else now (L8)."""
        if not events:
            return None
        for event in events:
            turn.record_event(event, self._services.now())
        changed = turn.build_context()
        if binds_reasoning(self._services.config, self._services.dialect, self._route.model):
            gone = self._without_open_loop_answer(
                turn, answers_with_stale_reasoning(turn.path_state, line, changed, self._services.composer)
            )
            if gone:
                turn.record_event(ReasoningRemoved(gone), self._services.now())
                changed = turn.build_context()
        await turn.wait_until_durable()
        return changed

    def _without_open_loop_answer(self, turn: Turn, gone: Sequence[str]) -> tuple[str, ...]:
        """These answers less the one that is under way in a tool loop that must open with its reasoning."""
        if not must_open_with_reasoning(
            self._services.config, self._services.dialect, self._request, self._route.model
        ):
            return tuple(gone)
        newest = newest_assistant_entry(turn.path_state.entries)
        return tuple(entry for entry in gone if newest is None or entry != newest.entry.id)

    def estimate_active_tokens(self, turn: Turn) -> int:
        """Shadow: tokens of the first round in mode active; 0 where that cannot be said."""
        try:
            if turn.path_state.tree.is_awake:
                return self._request_tokens(turn, turn.build_context())
            given = self._services.resolver.preview_wake(turn.placement)
        except Exception:  # only a figure: the request goes as it came
            log.exception("what would be sent cannot be told", extra={"request": self._client_request.id})
            return 0
        ours = sum(map(self._services.count_memoized, given.texts)) if given else 0
        return self._request.tokens + ours

    # ----------------------------------------------------------------------------------------------------------- ask
    async def send(
        self, turn: Turn, line: Context, delivery: ClientResponse, *, no_calls: bool, may_trim: bool = True
    ) -> Answer | None:
        """The provider's answer to the next round; None when the client has been answered with an error.

        A round is asked once, and once more where the provider refuses it for its length and it `may_trim`, or for the
        usage that only we asked for. A hidden round that fails is asked again, because no byte of it has left. Raises
        Unfit where it is too long and the client's own request may fit, of whose answer nothing has left.
        """
        tries, uncounted, whole = MAX_RETRIES if turn.round_number else 0, False, line
        while True:
            body = self._render(turn, line, no_calls=no_calls)
            try:
                got, refusal = await self._send_and_read_refusal(b"".join(body))
            except UpstreamError as error:
                if not tries:
                    self._record.mark_failed(error.code)
                    self._record.finish(error.status)
                    await delivery.send_error(error)
                    return None
                tries -= 1
                self._record.add_retry()
                await asyncio.sleep(RETRY_DELAY_S)
                continue
            if got.status < 300:
                if uncounted and len(self._services.models_without_usage) < MAX_MODELS_WITHOUT_USAGE:
                    self._services.models_without_usage.add((self._route.upstream.name, self._route.model))
                return got
            if self._was_refused_for_usage(got.status, refusal):
                uncounted = True
                self._record.add_retry()
                continue
            shorter = await self._shorten_refused(turn, line, got.status, refusal) if may_trim else None
            may_trim = False
            if shorter is not None:
                line = shorter
                self._record.add_retry()
            elif tries and (got.status == 429 or got.status >= 500):
                tries -= 1
                self._record.add_retry()
                await asyncio.sleep(_retry_delay(got))
            elif not delivery.reply.started and await self._original_is_worth_sending(
                got.status, refusal, again=line is not whole
            ):
                self._record.add_retry()
                raise ContextRejected("the line was refused for its length, the client's body may fit", code="window")
            else:
                await self._pass_refusal(delivery, got, refusal)
                return None

    async def _send_and_read_refusal(self, body: bytes) -> tuple[Answer, bytes]:
        """The provider's answer, and what it says where it is a refusal: one that is not whole is no answer either.
        Raises UpstreamError."""
        got = await self._send_body(body)
        if got.status < 300:
            return got, b""
        async with aclosing(got):
            return got, await got.body()

    def _was_refused_for_usage(self, status: int, refusal: bytes) -> bool:
        """Whether it was refused for the usage that only we asked for; if so, that is not asked for again."""
        request, told = self._request, refusal[: overflow.MAX_SCANNED_BYTES]
        ours = request.stream and not request.wants_usage
        if not ours or status not in (400, 422) or not any(word in told for word in USAGE_OPTION_WORDS):
            return False
        self._request = replace(request, wants_usage=True)
        return True

    async def _shorten_refused(self, turn: Turn, line: Context, status: int, refusal: bytes) -> Context | None:
        """A line that fits, where the provider refused this one for its length; what it said is remembered."""
        if not self.was_refused_for_length(status, refusal):
            return None
        return await self._shorten_below(turn, line, self._request_tokens(turn, line))

    def is_overflow_error(self, error: bytes) -> bool:
        """Whether an error inside an answer says that the last round was too long."""
        return bool(error.strip()) and overflow.is_overflow(400, error)

    async def shorten_after_refusal(self, turn: Turn, line: Context, error: bytes) -> Context | None:
        """A shorter line, where the answer to this one began well and was such an error."""
        return await self._shorten_refused(turn, line, 400, error)

    async def _shorten_below(self, turn: Turn, line: Context, refused: int) -> Context | None:
        window, enough = self.window(), int(refused * KEPT_WINDOW_SHARE)
        room = min(enough, shortened_prompt_tokens(window)) if window.is_binding else enough
        fits = int(window.tokens * (1 - COUNT_ERROR_SHARE))
        most = fits if window.source in ("table", "named") and fits < refused else enough
        enough = min(enough, window.limit) if window.is_binding else enough
        try:
            left = await self._truncate_outputs(turn, line, window)
            left = await self._shorten(turn, left, enough, room) or left
            left = await self._drop_stack_results(turn, left, most) or left
        except StoreError:
            return None  # nothing may leave the line that is not on disk: the refusal passes as it is
        return left if left is not line else None

    async def _original_is_worth_sending(self, status: int, refusal: bytes, *, again: bool) -> bool:
        """Whether what was refused for its length may fit without what is ours in it. Where it is far from filling the
        window, that is not what made it too long, and the client is told what it would be told without us; so it is
        where a shorter line was refused `again`."""
        if not overflow.is_overflow(status, refusal, self._sent_tokens):
            return False
        if again or self._sent_tokens < self.window().known_tokens * SUSPECT_WINDOW_SHARE:
            return await self.quotes.find() is not None
        return await self._original_may_fit(self._sent_tokens)

    def was_refused_for_length(self, status: int, refusal: bytes) -> bool:
        """Whether this is how the provider says that the last round was too long; if so, it is learned from."""
        if not overflow.is_overflow(status, refusal, self._sent_tokens):
            return False
        self._services.context_windows.learn_from_refusal(*self._window_key, self._sent_tokens, refusal)
        return True

    async def shorten_after_empty_answer(self, turn: Turn, line: Context) -> Context | None:
        """A shorter line, where the answer to this one ended without a word: so some servers answer what is too long
        (S9). One that is far from filling its window was answered so for another reason."""
        window = self.window()
        enough = max(overflow.MIN_UNEXPLAINED_OVERFLOW_TOKENS, window.tokens // 2 if window.is_binding else 0)
        return await self._shorten_below(turn, line, self._sent_tokens) if self._sent_tokens >= enough else None

    def learn_from_response(self, spoken: ModelResponse) -> None:
        """A round was answered: what the provider counted tells how much will fit."""
        self._services.context_windows.learn_from_usage(*self._window_key, self._sent_tokens, spoken.usage)

    async def _pass_refusal(self, delivery: ClientResponse, got: Answer, refusal: bytes) -> None:
        self._record.mark_failed("upstream_error")
        self._record.finish(got.status)
        await delivery.send_refusal(got, refusal)

    def _render(self, turn: Turn, line: Context, *, no_calls: bool) -> Body:
        waking = turn.path_state.tree.wake_state
        if waking is None:
            raise ContextRejected("an asleep thread is not rendered", code="internal")
        head = self._services.dialect.extend_head(self._request, waking.guidance)
        wanted = RenderOptions(
            waking.tools.encode(), include_usage=True, tool_choice_none=no_calls, fork=line.inherited_message_count
        )
        body = self._services.dialect.render(self._request, line.messages, head, wanted)
        tools, texts = self._stack_tokens(turn)
        chain = sent_chain(self._request, waking.guidance, tools + texts, line.messages)
        self._record.add_sent_round(chain, body, own_tools=tools, own_texts=texts + line.own_tokens)
        self._sent_tokens = self._request_tokens(turn, line)
        return body

    async def send_original(self, request: Request) -> Answer:
        """The provider's answer to the client's own request, or to what is left of it."""
        self._sent_tokens = request.tokens
        return await self._send_body(request.body)

    async def _send_body(self, body: bytes) -> Answer:
        client_request, upstream = self._client_request, self._route.upstream
        headers = outgoing_headers(client_request.headers, upstream.settings, readable=True)
        self._record.upstream_status = 0
        got = await upstream.send(client_request.method, client_request.path, client_request.query, headers, body)
        self._record.upstream_status = got.status
        return got


def without_refused_usage(parts: Services, route: Route, request: Request) -> Request:
    """The request as one whose usage is not asked for, where the provider refuses that: what it tells of it all the
    same is the client's."""
    refuses = (route.upstream.name, route.model) in parts.models_without_usage
    return replace(request, wants_usage=True) if refuses and request.stream else request


def shortened_prompt_tokens(window: ContextWindow) -> int:
    """Tokens that a shortened prompt fills at most."""
    return min(int(window.tokens * KEPT_WINDOW_SHARE), int(window.limit * SHORTENED_PROMPT_SHARE))


async def parse_client_request(parts: Services, body: bytes) -> Request:
    """The request in a body; its tokens are not counted yet. Raises Unreadable."""
    if len(body) < HUGE_BODY_BYTES and not _has_too_many_messages(body):
        return await in_slices(parts.dialect.parse_in_steps(body, parts.parse_cache))
    return await asyncio.to_thread(parts.dialect.parse_request, body, ParseCache())


def _has_too_many_messages(body: bytes) -> bool:
    """Whether there are more messages than are placed, as far as can be told without reading them: within a text of
    theirs the quotes of such a key would be escaped."""
    return len(body) > MIN_MESSAGE_BYTES * MAX_MESSAGES and body.count(ROLE_KEY) > MAX_MESSAGES


async def count_request_tokens(parts: Services, request: Request) -> Request:
    """The request with its tokens counted."""
    texts = countable_texts(request)
    if not texts:
        return request
    counts = await parts.counter.count_all(texts)
    if len(request.body) < HUGE_BODY_BYTES:
        return weighed_by(request, counts, parts.parse_cache)
    return await asyncio.to_thread(weighed_by, request, counts, ParseCache())


class OversizedRequest(NamedTuple):
    """A client's own request that does not fit, under the upstream's name for the model, what it may quote, and the
    conversation it stands in. `grown`: its history may be shortened, for its client saw how short our line is."""

    request: Request
    quotes: QuoteFinder
    conversation: str = ""
    can_shorten_history: bool = True


class ShortenedRequest(NamedTuple):
    """What is left of a client's own request, and how many of its tokens are ours."""

    request: Request
    own_tokens: int


def quotes_of(parts: Services, client_request: ClientRequest, request: Request) -> QuoteFinder:
    """What this request may quote; its tokens are counted."""
    return QuoteFinder(parts.conversation_cache, parts.dialect, client_request.tenant, client_request.headers, request)


async def shorten_request(parts: Services, route: Route, overlong: OversizedRequest) -> ShortenedRequest | None:
    """A client's own request, shortened to what the window leaves room for, and to well below its size: from itself
    alone, or where that is not to be done, or not enough, with what it quotes told in our words. None where nothing can
    leave it. Reasoning that is bound to what left goes too (L8)."""
    request, dialect = overlong.request, parts.dialect
    window = parts.context_windows.window(route.upstream.name, route.model, overlong.conversation)
    room = min(
        int(request.tokens * KEPT_WINDOW_SHARE),
        shortened_prompt_tokens(window) if window.is_binding else request.tokens,
    )
    room -= sum(m.tokens for m in request.head) + request.tools_tokens
    kept = (
        drop_oldest_messages(request.messages, room, dialect.holds_compaction) if overlong.can_shorten_history else None
    )
    is_too_long = kept is None or sum(m.tokens for m in (*kept.before, *kept.after)) > room
    if is_too_long and (
        told := await overlong.quotes.replace_quote(QuoteRenderOptions(room, parts.composer, parts.counter))
    ):
        return ShortenedRequest(_with_messages(parts, route, request, told.before, told.after), told.own_tokens)
    if kept is None:
        return None
    trace = replace(dialect.user_message(kept.trace), tokens=parts.count_memoized(kept.trace))
    return ShortenedRequest(_with_messages(parts, route, request, (*kept.before, trace), kept.after), trace.tokens)


def _with_messages(
    parts: Services, route: Route, request: Request, before: Sequence[Message], behind: Sequence[Message]
) -> Request:
    """The request with these messages; reasoning in those `behind` what changed goes where it is bound."""
    dialect = parts.dialect
    if binds_reasoning(parts.config, dialect, route.model):
        behind = strip_client_reasoning(parts.config, dialect, request, route.model, behind)
    messages = (*before, *behind)
    body = dialect.render(request, messages, [m.wire for m in request.head], RenderOptions(include_usage=False))
    return replace(request, body=b"".join(body), messages=messages)


def _retry_delay(got: Answer) -> float:
    """Seconds until a refused hidden round is asked again."""
    told = got.header(b"retry-after").decode("latin-1").strip()
    try:
        return min(max(float(told), 0.0), MAX_RETRY_DELAY_S)
    except ValueError:
        return RETRY_DELAY_S
