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

from proxy.accounting.token_counter import Counter
from proxy.config.model import Config
from proxy.core.compaction.drop_oldest import KEPT, shortened, spare, trimmed, withheld
from proxy.core.compaction.truncate_outputs import candidates, cuts
from proxy.core.context.message_list import Line, unbound, unpaired
from proxy.core.frames.events import FrameEvent, ReasoningRemoved
from proxy.core.ledger.messages import Message, Request, Spoken
from proxy.core.observers.step import said_by
from proxy.core.tools.base import UNBOUNDED
from proxy.dialects import Body, Dialect, Known, Wanted
from proxy.dialects.compose import Writer
from proxy.dialects.parse_cache import countables
from proxy.dialects.parse_cache import weighed as weighed_by
from proxy.errors import ProxyError, StoreError, UpstreamError
from proxy.exchange.background.in_flight import Flights
from proxy.exchange.background.inbox import Speaking
from proxy.exchange.background.recorder import Bookkeeper, Record, sent_chain
from proxy.exchange.background.scheduling import bit_by_bit
from proxy.exchange.background.summarizer import Summaries
from proxy.exchange.client_response import Delivery
from proxy.exchange.notes.people_messages import Hearing
from proxy.exchange.resolver import Reception
from proxy.exchange.thread.activation import binds, must_open, newest_answer, without_bound
from proxy.exchange.thread.quoted_history import Means, Quotes
from proxy.exchange.turn import Toolkit, Turn
from proxy.store.conversation_cache import Shelf
from proxy.upstream import overflow_errors as overflow
from proxy.upstream.context_windows import Limits, Window
from proxy.upstream.routing import Answer, RawHeaders, Route, Routes, outgoing_headers

log = logging.getLogger(__name__)

TRIES = 2
"""How often a hidden round that failed is asked again."""
PAUSE_S = 0.5
"""Between two tries where the provider names no time."""
LONGEST_PAUSE_S = 10.0
ROOM = 0.75
"""Of what a prompt may fill, what a trimmed one does at most: one that just fits would be trimmed with every request.
"""
HUGE = 24 << 20
"""Bytes of a body from which it is read in a thread, and nothing of it remembered: reading 60 MiB on the loop holds up
everybody for 0.4 s, and what is remembered of two such bodies pushes all else out."""
MOST_MESSAGES = 50_000
"""Messages of a request that is placed. To place one that is new takes 40 us, in which nobody else is served, and a
body may hold two million; the longest conversation that fits a window of a million tokens has a tenth of these."""
ROLE = b'"role"'
NEAR = 0.5
"""Of a known window, what a request fills at least that our part of it could have made too long."""
PLENTY = 0.5
"""Of a window, room that no answers to a round fill: what may leave the line is not looked at then."""
MARGIN = 0.02
"""Of a window, how far our count of what stands on a line may be off."""
FEW = 400
"""Tokens of an answer of ours for which half of what is kept for the answer of the model gives way."""
SHORTEST = 16
"""Bytes of a message, at least."""
UNCOUNTED = 1024
"""Models that are remembered for taking no question for usage."""
ASKS_USAGE = (b"stream_options", b"include_usage")
"""Words of a refusal of that question, such as Mistral's."""


class Incoming(msgspec.Struct, frozen=True):
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
class Parts:
    """What an exchange is made of. `now` tells ms since the epoch."""

    config: Config
    dialect: Dialect
    shelf: Shelf
    routes: Routes
    counter: Counter
    writer: Writer
    reception: Reception
    kit: Toolkit
    keeper: Bookkeeper
    known: Known
    weigh: Callable[[str], int]
    """Tokens of a text that is asked for with every request, remembered."""
    now: Callable[[], int]
    limits: Limits
    hearing: Hearing
    speaking: Speaking
    flights: Flights
    summaries: Summaries | None = None
    """None where it is off."""
    uncounted: set[tuple[str, str]] = field(default_factory=set)
    """Models, each behind its upstream, that take no question for usage."""


class Unfit(ProxyError):
    """A line that may not leave; `code` says why. The client's own bytes go instead."""

    code = "internal"


class Asker:
    """Asks for the rounds of one request. `request` is under the upstream's name for the model; what came of it stands
    in `record`."""

    def __init__(self, parts: Parts, incoming: Incoming, route: Route, request: Request, record: Record) -> None:
        self._parts = parts
        self._incoming = incoming
        self._route = route
        self._request = request
        self._record = record
        conversation = record.standing.conversation if record.standing else ""
        self._place = (route.upstream.name, route.model, conversation)
        """What limits are known by."""
        self._sent = 0
        """Tokens of the round that left last."""

    def window(self) -> Window:
        return self._parts.limits.window(*self._place)

    @cached_property
    def quotes(self) -> Quotes:
        """What the client's own request quotes."""
        return quotes_of(self._parts, self._incoming, self._request)

    async def line(self, turn: Turn) -> Line:
        """The line of the active frame, fit to leave: paired, within the window, what it leaves out on disk.

        Raises Unfit when it is not, StoreError when what it leaves out cannot be made durable. A hidden round has no
        client's body to go instead: what can leave it leaves, and the provider has the last word.
        """
        if not turn.number and self._must_open_past_us(turn):
            raise Unfit("the tool loop opens with reasoning that no line of ours was there for", code="in_loop")
        line = turn.line()
        await turn.durable(None if turn.number else line.left_out)
        window = self.window()
        line = await self._cut(turn, line, window)
        if unpaired(line.messages):
            raise Unfit("a call on the line has no result", code="law_pairing")
        tokens = self._tokens(turn, line)
        if not window.binds or tokens <= window.limit:
            return line
        if self._request.tokens <= window.limit and not turn.number:
            if tokens <= window.tokens:
                return line  # our tools and texts take of what is kept for the answer: no reason to stand aside
            raise Unfit("the line does not fit the window, the client's body does", code="window")
        shorter = await self._shortened(turn, line, window.limit, room_in(window))
        if shorter is None and self._request.tokens <= window.tokens and not turn.number:
            raise Unfit("the line does not fit the window, the client's body may", code="window")
        left = shorter or line
        left = await self._without_answers(turn, left, int(window.tokens * (1 - MARGIN))) or left
        too_long = not turn.number and self._tokens(turn, left) > window.tokens
        if too_long and await self._may_fit_otherwise(self._tokens(turn, left)):
            raise Unfit("the line does not fit the window, what is left of the client's body may", code="window")
        return left

    def _must_open_past_us(self, turn: Turn) -> bool:
        """L8: the loop that is under way was begun without us, and its last answer must open with its reasoning."""
        if not must_open(self._parts.config, self._parts.dialect, self._request, self._route.model):
            return False
        newest = newest_answer(turn.story.placed)
        said = said_by(newest) if newest else None
        reasons = said is not None and self._parts.dialect.without_reasoning(said) is not said
        return newest is not None and reasons and newest.entry.id in turn.story.tree.mute

    async def _may_fit_otherwise(self, refused: int) -> bool:
        """Whether the client's own request, or what can be left of it, is less than so many tokens, too many."""
        request = self._request
        if self._parts.config.fail_policy == "closed":
            return False
        if request.tokens < refused or shortened(request.messages, 0, self._parts.dialect.seals):
            return True
        return await self.quotes.found() is not None

    async def _cut(self, turn: Turn, line: Line, window: Window) -> Line:
        """The line with new outputs that alone are too long cut to `output_cap`, or as their rule says; for a window
        that nobody knows there is none (L4)."""
        config, most = self._parts.config, window.longest_output
        cap, rules = config.output_cap or most, config.output_rules
        events = cuts(turn.story, cap, self._parts.counter.count, rules, most) if cap or rules else ()
        return await self._decided(turn, line, events) or line

    def _own_tokens(self, turn: Turn) -> tuple[int, int]:
        """Tokens of our tools and of our guidance."""
        waking = turn.story.tree.waking
        weigh = self._parts.weigh
        return (weigh(waking.tools), weigh(waking.guidance)) if waking else (0, 0)

    def _tokens(self, turn: Turn, line: Line) -> int:
        """What a request with this line counts: head, tools and messages."""
        fixed = sum(m.tokens for m in self._request.head) + self._request.tools_tokens
        return fixed + sum(self._own_tokens(turn)) + line.tokens

    def room(self, turn: Turn, spoken: Spoken) -> int:
        """Tokens that the answers to a round may take, for the next one to fit the window once all that may leave the
        line has left it."""
        window = self.window()
        if not window.binds:
            return UNBOUNDED
        left = window.limit - self._sent - spoken.message.tokens - int(window.tokens * MARGIN)
        if left < window.tokens * PLENTY:
            left += spare(turn.story, turn.line())
        return max(left, min(FEW, left + (window.tokens - window.limit) // 2))

    async def _shortened(self, turn: Turn, line: Line, enough: int, room: int) -> Line | None:
        """A shorter line: old outputs cleared, and where that does not bring it below `enough` tokens, the oldest
        groups trimmed, down to `room`. None where nothing can go."""
        cleared = await self._decided(turn, line, candidates(turn.story, line, self._parts.config.output_rules))
        if cleared is not None and self._tokens(turn, cleared) <= enough:
            return cleared
        left = cleared or line
        fixed = self._tokens(turn, left) - left.tokens
        event = trimmed(turn.story, left, room - fixed)
        return await self._decided(turn, left, (event,) if event else ()) or cleared

    async def _without_answers(self, turn: Turn, line: Line, most: int) -> Line | None:
        """The line without what our own tools answered, as far as it is more than `most` tokens: where all else has
        left it, that is what made it too long. None where nothing can go."""
        event = withheld(turn.story, line, self._tokens(turn, line) - most)
        return await self._decided(turn, line, (event,) if event else ())

    async def _decided(self, turn: Turn, line: Line, events: Sequence[FrameEvent]) -> Line | None:
        """What becomes of the line by these events, which are durable then; None without one. Reasoning that its
        provider binds to what stood before it goes where that is something else now (L8)."""
        if not events:
            return None
        for event in events:
            turn.note(event, self._parts.now())
        changed = turn.line()
        if binds(self._parts.config, self._parts.dialect, self._route.model):
            gone = self._without_opening(turn, unbound(turn.story, line, changed, self._parts.writer))
            if gone:
                turn.note(ReasoningRemoved(gone), self._parts.now())
                changed = turn.line()
        await turn.durable()
        return changed

    def _without_opening(self, turn: Turn, gone: Sequence[str]) -> tuple[str, ...]:
        """These answers less the one that is under way in a tool loop that must open with its reasoning."""
        if not must_open(self._parts.config, self._parts.dialect, self._request, self._route.model):
            return tuple(gone)
        newest = newest_answer(turn.story.placed)
        return tuple(entry for entry in gone if newest is None or entry != newest.entry.id)

    def would_send(self, turn: Turn) -> int:
        """Shadow: tokens of the first round in mode active; 0 where that cannot be said."""
        try:
            if turn.story.tree.awake:
                return self._tokens(turn, turn.line())
            given = self._parts.reception.would_wake(turn.standing)
        except Exception:  # only a figure: the request goes as it came
            log.exception("what would be sent cannot be told", extra={"request": self._incoming.id})
            return 0
        ours = sum(map(self._parts.weigh, given.texts)) if given else 0
        return self._request.tokens + ours

    # ----------------------------------------------------------------------------------------------------------- ask
    async def ask(
        self, turn: Turn, line: Line, delivery: Delivery, *, no_calls: bool, may_trim: bool = True
    ) -> Answer | None:
        """The provider's answer to the next round; None when the client has been answered with an error.

        A round is asked once, and once more where the provider refuses it for its length and it `may_trim`, or for the
        usage that only we asked for. A hidden round that fails is asked again, because no byte of it has left. Raises
        Unfit where it is too long and the client's own request may fit, of whose answer nothing has left.
        """
        tries, uncounted, whole = TRIES if turn.number else 0, False, line
        while True:
            body = self._rendered(turn, line, no_calls=no_calls)
            try:
                got, refusal = await self._answered(b"".join(body))
            except UpstreamError as error:
                if not tries:
                    self._record.failed(error.code)
                    self._record.settle(error.status)
                    await delivery.fail(error)
                    return None
                tries -= 1
                self._record.unanswered()
                await asyncio.sleep(PAUSE_S)
                continue
            if got.status < 300:
                if uncounted and len(self._parts.uncounted) < UNCOUNTED:
                    self._parts.uncounted.add((self._route.upstream.name, self._route.model))
                return got
            if self._asked_too_much(got.status, refusal):
                uncounted = True
                self._record.unanswered()
                continue
            shorter = await self._shorter(turn, line, got.status, refusal) if may_trim else None
            may_trim = False
            if shorter is not None:
                line = shorter
                self._record.unanswered()
            elif tries and (got.status == 429 or got.status >= 500):
                tries -= 1
                self._record.unanswered()
                await asyncio.sleep(_pause(got))
            elif not delivery.reply.started and await self._is_less_by_itself(
                got.status, refusal, again=line is not whole
            ):
                self._record.unanswered()
                raise Unfit("the line was refused for its length, the client's body may fit", code="window")
            else:
                await self._refused(delivery, got, refusal)
                return None

    async def _answered(self, body: bytes) -> tuple[Answer, bytes]:
        """The provider's answer, and what it says where it is a refusal: one that is not whole is no answer either.
        Raises UpstreamError."""
        got = await self.send(body)
        if got.status < 300:
            return got, b""
        async with aclosing(got):
            return got, await got.body()

    def _asked_too_much(self, status: int, refusal: bytes) -> bool:
        """Whether it was refused for the usage that only we asked for; if so, that is not asked for again."""
        request, told = self._request, refusal[: overflow.LOOKED_AT]
        ours = request.stream and not request.wants_usage
        if not ours or status not in (400, 422) or not any(word in told for word in ASKS_USAGE):
            return False
        self._request = replace(request, wants_usage=True)
        return True

    async def _shorter(self, turn: Turn, line: Line, status: int, refusal: bytes) -> Line | None:
        """A line that fits, where the provider refused this one for its length; what it said is remembered."""
        if not self.refused_for_length(status, refusal):
            return None
        return await self._shorter_than(turn, line, self._tokens(turn, line))

    def is_overflow(self, error: bytes) -> bool:
        """Whether an error inside an answer says that the last round was too long."""
        return bool(error.strip()) and overflow.is_overflow(400, error)

    async def shorter_than_refused(self, turn: Turn, line: Line, error: bytes) -> Line | None:
        """A shorter line, where the answer to this one began well and was such an error."""
        return await self._shorter(turn, line, 400, error)

    async def _shorter_than(self, turn: Turn, line: Line, refused: int) -> Line | None:
        window, enough = self.window(), int(refused * KEPT)
        room = min(enough, room_in(window)) if window.binds else enough
        fits = int(window.tokens * (1 - MARGIN))
        most = fits if window.source in ("table", "named") and fits < refused else enough
        enough = min(enough, window.limit) if window.binds else enough
        try:
            left = await self._cut(turn, line, window)
            left = await self._shortened(turn, left, enough, room) or left
            left = await self._without_answers(turn, left, most) or left
        except StoreError:
            return None  # nothing may leave the line that is not on disk: the refusal passes as it is
        return left if left is not line else None

    async def _is_less_by_itself(self, status: int, refusal: bytes, *, again: bool) -> bool:
        """Whether what was refused for its length may fit without what is ours in it. Where it is far from filling the
        window, that is not what made it too long, and the client is told what it would be told without us; so it is
        where a shorter line was refused `again`."""
        if not overflow.is_overflow(status, refusal, self._sent):
            return False
        if again or self._sent < self.window().known * NEAR:
            return await self.quotes.found() is not None
        return await self._may_fit_otherwise(self._sent)

    def refused_for_length(self, status: int, refusal: bytes) -> bool:
        """Whether this is how the provider says that the last round was too long; if so, it is learned from."""
        if not overflow.is_overflow(status, refusal, self._sent):
            return False
        self._parts.limits.refused(*self._place, self._sent, refusal)
        return True

    async def shorter_than_silence(self, turn: Turn, line: Line) -> Line | None:
        """A shorter line, where the answer to this one ended without a word: so some servers answer what is too long
        (S9). One that is far from filling its window was answered so for another reason."""
        window = self.window()
        enough = max(overflow.SILENT, window.tokens // 2 if window.binds else 0)
        return await self._shorter_than(turn, line, self._sent) if self._sent >= enough else None

    def heard(self, spoken: Spoken) -> None:
        """A round was answered: what the provider counted tells how much will fit."""
        self._parts.limits.answered(*self._place, self._sent, spoken.usage)

    async def _refused(self, delivery: Delivery, got: Answer, refusal: bytes) -> None:
        self._record.failed("upstream_error")
        self._record.settle(got.status)
        await delivery.refuse(got, refusal)

    def _rendered(self, turn: Turn, line: Line, *, no_calls: bool) -> Body:
        waking = turn.story.tree.waking
        if waking is None:
            raise Unfit("an asleep thread is not rendered", code="internal")
        head = self._parts.dialect.extended_head(self._request, waking.guidance)
        wanted = Wanted(waking.tools.encode(), include_usage=True, tool_choice_none=no_calls, fork=line.fork)
        body = self._parts.dialect.render(self._request, line.messages, head, wanted)
        tools, texts = self._own_tokens(turn)
        chain = sent_chain(self._request, waking.guidance, tools + texts, line.messages)
        self._record.sending(chain, body, own_tools=tools, own_texts=texts + line.own_tokens)
        self._sent = self._tokens(turn, line)
        return body

    async def own(self, request: Request) -> Answer:
        """The provider's answer to the client's own request, or to what is left of it."""
        self._sent = request.tokens
        return await self.send(request.body)

    async def send(self, body: bytes) -> Answer:
        incoming, upstream = self._incoming, self._route.upstream
        headers = outgoing_headers(incoming.headers, upstream.settings, readable=True)
        self._record.upstream_status = 0
        got = await upstream.send(incoming.method, incoming.path, incoming.query, headers, body)
        self._record.upstream_status = got.status
        return got


def as_countable(parts: Parts, route: Route, request: Request) -> Request:
    """The request as one whose usage is not asked for, where the provider refuses that: what it tells of it all the
    same is the client's."""
    refuses = (route.upstream.name, route.model) in parts.uncounted
    return replace(request, wants_usage=True) if refuses and request.stream else request


def room_in(window: Window) -> int:
    """Tokens that a shortened prompt fills at most."""
    return min(int(window.tokens * KEPT), int(window.limit * ROOM))


async def read_request(parts: Parts, body: bytes) -> Request:
    """The request in a body; its tokens are not counted yet. Raises Unreadable."""
    if len(body) < HUGE and not _holds_too_many(body):
        return await bit_by_bit(parts.dialect.reading(body, parts.known))
    return await asyncio.to_thread(parts.dialect.read, body, Known())


def _holds_too_many(body: bytes) -> bool:
    """Whether there are more messages than are placed, as far as can be told without reading them: within a text of
    theirs the quotes of such a key would be escaped."""
    return len(body) > SHORTEST * MOST_MESSAGES and body.count(ROLE) > MOST_MESSAGES


async def weighed(parts: Parts, request: Request) -> Request:
    """The request with its tokens counted."""
    texts = countables(request)
    if not texts:
        return request
    counts = await parts.counter.count_all(texts)
    if len(request.body) < HUGE:
        return weighed_by(request, counts, parts.known)
    return await asyncio.to_thread(weighed_by, request, counts, Known())


class Overlong(NamedTuple):
    """A client's own request that does not fit, under the upstream's name for the model, what it may quote, and the
    conversation it stands in. `grown`: its history may be shortened, for its client saw how short our line is."""

    request: Request
    quotes: Quotes
    conversation: str = ""
    grown: bool = True


class Shorter(NamedTuple):
    """What is left of a client's own request, and how many of its tokens are ours."""

    request: Request
    own_tokens: int


def quotes_of(parts: Parts, incoming: Incoming, request: Request) -> Quotes:
    """What this request may quote; its tokens are counted."""
    return Quotes(parts.shelf, parts.dialect, incoming.tenant, incoming.headers, request)


async def shortened_request(parts: Parts, route: Route, overlong: Overlong) -> Shorter | None:
    """A client's own request, shortened to what the window leaves room for, and to well below its size: from itself
    alone, or where that is not to be done, or not enough, with what it quotes told in our words. None where nothing can
    leave it. Reasoning that is bound to what left goes too (L8)."""
    request, dialect = overlong.request, parts.dialect
    window = parts.limits.window(route.upstream.name, route.model, overlong.conversation)
    room = min(int(request.tokens * KEPT), room_in(window) if window.binds else request.tokens)
    room -= sum(m.tokens for m in request.head) + request.tools_tokens
    kept = shortened(request.messages, room, dialect.seals) if overlong.grown else None
    is_too_long = kept is None or sum(m.tokens for m in (*kept.before, *kept.behind)) > room
    if is_too_long and (told := await overlong.quotes.told(Means(room, parts.writer, parts.counter))):
        return Shorter(_written_anew(parts, route, request, told.before, told.behind), told.tokens)
    if kept is None:
        return None
    trace = replace(dialect.user_message(kept.trace), tokens=parts.weigh(kept.trace))
    return Shorter(_written_anew(parts, route, request, (*kept.before, trace), kept.behind), trace.tokens)


def _written_anew(
    parts: Parts, route: Route, request: Request, before: Sequence[Message], behind: Sequence[Message]
) -> Request:
    """The request with these messages; reasoning in those `behind` what changed goes where it is bound."""
    dialect = parts.dialect
    if binds(parts.config, dialect, route.model):
        behind = without_bound(parts.config, dialect, request, route.model, behind)
    messages = (*before, *behind)
    body = dialect.render(request, messages, [m.wire for m in request.head], Wanted(include_usage=False))
    return replace(request, body=b"".join(body), messages=messages)


def _pause(got: Answer) -> float:
    """Seconds until a refused hidden round is asked again."""
    told = got.header(b"retry-after").decode("latin-1").strip()
    try:
        return min(max(float(told), 0.0), LONGEST_PAUSE_S)
    except ValueError:
        return PAUSE_S
