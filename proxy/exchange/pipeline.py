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

from proxy.core.context.message_list import Line
from proxy.core.ledger.messages import Request, Spoken
from proxy.dialects import Unreadable
from proxy.errors import BadRequest, Ending, ProxyError, Stopped, StoreError, UpstreamError, UpstreamUnreadable
from proxy.exchange.background.recorder import LOOPING_CALL, client_chain
from proxy.exchange.background.scheduling import within
from proxy.exchange.client_response import Delivery, Reply, why_cancelled
from proxy.exchange.interrupts import Meanwhile
from proxy.exchange.notes.warnings import refuses
from proxy.exchange.passthrough import Passing, bypass, is_fine, less_bound, record_of, renamed, unbound, under_its_name
from proxy.exchange.previous_responses import whole
from proxy.exchange.recall_sources import beside, elsewhere
from proxy.exchange.rounds import (
    MOST_MESSAGES,
    Asker,
    Incoming,
    Overlong,
    Parts,
    Unfit,
    as_countable,
    read_request,
    shortened_request,
    weighed,
)
from proxy.exchange.slash_commands import overheard
from proxy.exchange.thread.activation import RECALL_PART
from proxy.exchange.thread.placement import Arrival, Standing
from proxy.exchange.turn import Turn
from proxy.upstream import overflow_errors as overflow
from proxy.upstream.routing import Answer, Route

log = logging.getLogger(__name__)

DRAFT_S = 0.25
"""What has arrived of a round is on its way to disk at most this much later (S4-11)."""
UNFINISHED = "The turn could not be finished; send the request again."
UNTOUCHED = ("off", "shadow")
"""The status of a request that passes with what was typed to the proxy itself still in it."""


class Withheld(ProxyError):
    """The operator's `fail_policy` lets no request pass that is not on disk."""

    status = 503

    def __init__(self, reason: str) -> None:
        words = (
            f"The proxy cannot keep this conversation now ({reason}), and its fail_policy is closed. Try again later."
        )
        super().__init__(words, code=reason)


async def serve(parts: Parts, incoming: Incoming, reply: Reply) -> None:
    """One client turn. Raises ProxyError for what is refused before anything was sent upstream."""
    try:
        request = await read_request(parts, incoming.body)
    except Unreadable:
        await bypass(Passing(parts, incoming, parts.routes.choose(None, incoming.path)), reply, "unreadable")
        return
    route = parts.routes.choose(request.model, incoming.path)
    incoming = under_its_name(incoming, request.model, route)
    heard = await overheard(Passing(parts, incoming, route, request), reply)
    if heard is None:
        return
    passing, came = heard
    incoming, request = passing.incoming, passing.request or request
    try:
        standing = await _stand(parts, incoming, request)
    except StoreError as error:
        await _without_us(passing, reply, error.code)
    except TimeoutError:
        await _without_us(passing, reply, "too_slow")
    except Unfit as error:
        await bypass(passing, reply, error.code)
    except BadRequest:
        raise
    except Exception:  # the outermost edge of our bookkeeping: the agent must not notice
        log.exception("request could not be placed", extra={"request": incoming.id})
        await _without_us(passing, reply, "internal")
    else:
        incoming = came if standing.status in UNTOUCHED else incoming
        if standing.request.body is not request.body:  # it named what only we know
            incoming = under_its_name(replace(incoming, body=standing.request.body), request.model, route)
        await Call(parts, incoming, reply, route, standing).carry_out()


async def _stand(parts: Parts, incoming: Incoming, request: Request) -> Standing:
    if not request.messages:
        raise Unfit("there is no message to place", code="no_messages")
    if len(request.messages) > MOST_MESSAGES:
        raise Unfit("there are too many messages to place", code="too_many_messages")
    if (trouble := parts.keeper.store.trouble()) is not None:
        raise StoreError("the store does not take records", code=trouble.code)
    patience_s = parts.config.assembly_budget_ms / 1000
    request, kept_there = await within(patience_s, whole(parts, incoming, request))
    request = await weighed(parts, request)
    arrival = Arrival(incoming.tenant, incoming.headers, request, parts.now(), incoming.mode)
    if not kept_there:
        return await within(patience_s, parts.reception.stand(arrival))
    if apart := await within(patience_s, parts.reception.beside(arrival, kept_there)):
        return apart
    raise Unfit("a part of the request is kept by the provider", code=kept_there)


async def _without_us(passing: Passing, reply: Reply, reason: str) -> None:
    """Our bookkeeping failed: pass, unless the operator's policy forbids it. Raises Withheld."""
    if passing.parts.config.fail_policy == "closed":
        raise Withheld(reason)
    await bypass(await unbound(passing), reply, reason)


class Call:
    """One placed request on its way."""

    def __init__(self, parts: Parts, incoming: Incoming, reply: Reply, route: Route, standing: Standing) -> None:
        self._parts = parts
        self._incoming = incoming
        self._reply = reply
        self._route = route
        self._standing = standing
        self._request = as_countable(parts, route, renamed(standing.request, route.model))
        self._record = record_of(parts, incoming, route, standing.status).placed(standing)
        self._asker = Asker(parts, incoming, route, self._request, self._record)
        self._deadline = time.monotonic() + parts.config.stack_seconds
        self._drafting: asyncio.TimerHandle | None = None
        self._lost: UpstreamError | None = None
        self._meanwhile = Meanwhile(parts, incoming, standing, self._asker, lambda: self._delivery.writing)
        self._delivery = self._delivered(intercept=standing.rendered)

    def _delivered(self, *, intercept: bool) -> Delivery:
        parts = self._parts
        return Delivery(parts.dialect, self._request, self._reply, self._record.headers, intercept=intercept)

    async def carry_out(self) -> None:
        """Answer the client. Cancelled, the client has left, a person stopped it, or the process ends; that is told
        once, wherever it happened."""
        try:
            self._meanwhile.begin()
            try:
                await self._answered()
            finally:
                self._meanwhile.end()
        except asyncio.CancelledError:
            if not self._delivery.writing.finished:  # some clients go as soon as they have been told the end
                self._record.failed(self._why)
            unstarted = Stopped.status if self._meanwhile.stopped else 0 if self._reply.gone else Ending.status
            self._record.settle(self._record.upstream_status if self._reply.started else unstarted)
            if self._meanwhile.stopped:
                await self._tell_stopped()
                return
            if not (self._reply.gone or self._delivery.writing.finished):
                await self._delivery.fail(Ending("The proxy was stopped before the answer was whole. Send it again."))
            raise
        finally:
            if self._parts.summaries is not None:
                self._parts.summaries.offer(self._standing)

    @property
    def _why(self) -> str:
        """The reason of a request that was cancelled."""
        return Stopped.code if self._meanwhile.stopped else why_cancelled(self._reply)

    async def _tell_stopped(self) -> None:
        """The client is still there, and gets an error, or a broken connection where it has read a part of the
        answer."""
        if (task := asyncio.current_task()) is not None:
            task.uncancel()
        await self._delivery.fail(Stopped("A person stopped this request. What had arrived of the answer is kept."))

    async def _answered(self) -> None:
        """What our bookkeeping cannot do before the first byte makes a relay of it."""
        if self._parts.config.fail_policy == "closed" and not await self._is_kept():
            return
        if not self._standing.rendered:
            turn = self._turn_or_none()
            if turn is not None and self._standing.status == "shadow":
                self._record.would_send = self._asker.would_send(turn)
            await self.relay(turn)
            return
        try:
            turn = Turn.begin(self._standing, self._parts.shelf, self._parts.kit)
            turn.recallable = self._asker.window().tokens // RECALL_PART
            line = await self._asker.line(turn)
        except (StoreError, Unfit) as error:
            await self._relay_instead(error.code)
        except Exception:  # assembling failed: the agent must not notice
            log.exception("line could not be assembled", extra={"request": self._incoming.id})
            await self._relay_instead("internal")
        else:
            self._meanwhile.turn, self._delivery.writing.follows = turn, self._meanwhile.follows
            self._refuse_loops(turn)
            delivery = self._delivery
            delivery.keep_alive(self._parts.config.keep_alive_s)
            try:
                await self.converse(turn, line)
            finally:
                delivery.keep_no_more()

    # --------------------------------------------------------------------------------------------------------- relay
    async def relay(self, turn: Turn | None) -> None:
        """The client's bytes up and the provider's down; the answer is read along, and recorded as a turn."""
        try:
            got = await self._relayed()
        except UpstreamError as error:
            self._record.failed(error.code)
            self._record.settle(error.status)
            await self._delivery.fail(error)
            return
        if got is None:
            return
        if not is_fine(got) and self._standing.status != "bypass":
            self._record.failed("upstream_error")
        _, spoken = await self._read_along(turn, got)
        self._keep_last(turn, spoken)
        await self._finish(got.status)

    async def _relayed(self) -> Answer | None:
        """The provider's answer to the client's own request. A client that sees how short the line is lets its history
        grow past the window: then that is shortened, before it leaves or when the provider says so, once; also where
        another conversation quotes it. None when the client has been answered with the provider's refusal."""
        own, window = self._own_request(), self._asker.window()
        kept_there = self._standing.status == "bypass"  # what is left of it would not be what it stands for
        grown = (self._standing.story.tree.awake or self._record.status == "bypass") and not kept_there
        too_long = window.binds and own.tokens > window.tokens and not kept_there
        if too_long and (shorter := await self._stateless(grown=grown)):
            return await self._asker.own(shorter)
        self._record.relaying(own)
        got = await self._asker.own(own)
        if got.status not in overflow.STATUSES or kept_there or not (grown or self._asker.quotes.possible):
            return got
        async with aclosing(got):
            refusal = await got.body()
        too_long = self._asker.refused_for_length(got.status, refusal)
        if too_long and (shorter := await self._stateless(grown=grown, again=True)):
            return await self._asker.own(shorter)
        self._record.failed("upstream_error")
        self._record.settle(got.status)
        await self._delivery.refuse(got, refusal)
        return None

    async def _stateless(self, *, grown: bool, again: bool = False) -> Request | None:
        """What is left of the client's own request, noted as what leaves; None where nothing can be left out. `grown`:
        the history is the client's own; else it can only be quoted. `again`: all of it has been refused."""
        overlong = Overlong(self._request, self._asker.quotes, self._standing.conversation, grown)
        if (shorter := await shortened_request(self._parts, self._route, overlong)) is None:
            return None
        if again:
            self._record.unanswered()
        self._record.shortened("" if self._record.status == "bypass" else "window")
        left = shorter.request
        self._record.sending(client_chain(left), (left.body,), own_texts=shorter.own_tokens)
        return left

    def _own_request(self) -> Request:
        """The client's request, less the reasoning that its provider binds to a prefix only a line of ours has (L8)."""
        own = self._request
        if own.body is not self._incoming.body:
            own = replace(own, body=self._incoming.body)
        if self._standing.status == "bypass":
            return own
        return less_bound(self._parts, self._route, own, self._standing)

    def _turn_or_none(self) -> Turn | None:
        """A turn is recorded where the request stands on a path; a side request leaves none."""
        if not self._standing.node:
            return None
        try:
            return Turn.begin(self._standing, self._parts.shelf, self._parts.kit, past_us=True)
        except StoreError as error:
            self._record.bypassed(error.code)
            return None

    async def _is_kept(self) -> bool:
        """Whether the request is on disk; where it is not, and must be, the client has been refused."""
        try:
            await self._parts.shelf.durable(self._standing.shelved)
        except StoreError as error:
            await self._withhold(error.code)
            return False
        return True

    async def _withhold(self, reason: str) -> None:
        self._record.failed(reason)
        self._record.settle(Withheld.status)
        await self._delivery.fail(Withheld(reason))

    async def _relay_instead(self, reason: str) -> None:
        """Nothing has left yet. No turn is made of it: what the client will echo has no sure place on the path."""
        if self._parts.config.fail_policy == "closed":
            await self._withhold(reason)
            return
        self._record.bypassed(reason)
        self._delivery = self._delivered(intercept=False)
        await self.relay(None)

    # ------------------------------------------------------------------------------------------------------ converse
    async def converse(self, turn: Turn, line: Line) -> None:
        """Ask, run what is ours, ask again, until a round is for the client."""
        last_one, silent = False, False
        self._delivery.writing.repeats = self._asker.is_overflow
        while True:
            try:
                got = await self._asker.ask(turn, line, self._delivery, no_calls=last_one, may_trim=not silent)
            except Unfit as error:
                await self._stand_aside(error.code)
                return
            if got is None:
                return
            complete, spoken = await self._read_along(turn, got)
            if complete and not silent and (shorter := await self._after_silence(turn, line, spoken)):
                line, silent = shorter, True
                continue
            if complete and turn.number and self._is_no_answer(spoken):
                self._heard(spoken)
                await self._break_off(UpstreamUnreadable(UNFINISHED))
                return
            goes_on = complete and self._delivery.writing.goes_on and not self._is_over()
            if goes_on and self._meanwhile.follows(spoken.finish):
                self._heard(spoken)
                try:
                    line, last_one = await self._meanwhile.follow_up(turn, spoken, self._record), False
                except (StoreError, Unfit) as error:  # the client is told the end that was held
                    self._not_kept(error.code)
                    await self._finish(got.status)
                    return
                self._deadline = time.monotonic() + self._parts.config.stack_seconds
                continue
            if not complete or last_one or not spoken.own_calls or self._is_over():
                await self._end_turn(turn, spoken, got.status, complete=complete)
                return
            # Behind a call of the client's no round follows, so there is nothing to bound.
            last_one = not spoken.client_calls and self._bound_is_reached(turn)
            try:
                await self._run(turn, spoken, refuse=last_one)
                if spoken.client_calls:
                    await self._finish(got.status)
                    return
                self._refuse_loops(turn)
                if not last_one:
                    self._meanwhile.hear(turn, self._record)
                line = await self._asker.line(turn)
            except (StoreError, Unfit) as error:
                await self._stand_aside(error.code)
                return

    def _refuse_loops(self, turn: Turn) -> None:
        """Which calls the next round may not make: a push or a pop of the round before may have ended a loop."""
        if self._standing.refused:  # else there is nothing to fold the turn for
            names, window = self._parts.reception.actor.watch.names, self._parts.config.loop_window
            self._delivery.writing.refuses = refuses(self._standing, turn.story, names, window)

    def _bound_is_reached(self, turn: Turn) -> bool:
        """One round more may be asked for, and that without calls."""
        return turn.number + 1 >= self._parts.config.stack_rounds or time.monotonic() > self._deadline

    async def _after_silence(self, turn: Turn, line: Line, spoken: Spoken) -> Line | None:
        """The line to ask with again, where the answer to this one ended without a word because it was too long, or
        with the word that it was."""
        writing = self._delivery.writing
        if writing.silent:
            shorter = await self._asker.shorter_than_silence(turn, line)
        elif refusal := writing.refusal:
            shorter = await self._asker.shorter_than_refused(turn, line, refusal)
        else:
            return None
        if shorter is not None:
            writing.again()
            self._record.unanswered(spoken.usage)
        return shorter

    async def _stand_aside(self, reason: str) -> None:
        """A hidden round could not be kept. Where the client has seen nothing yet, its own request is asked instead."""
        if self._reply.started:
            await self._break_off(ProxyError(UNFINISHED, code=reason))
        else:
            await self._relay_instead(reason)

    def _is_no_answer(self, spoken: Spoken) -> bool:
        """What came in the place of a round is nothing to read on with: nothing that is said and no end either, or in a
        stream a page or a compressed body. That cannot be shown behind a stream that has begun, and ending there would
        look like a good end (S10); a plain answer passes as it is if there is something in it that only we cannot read.
        So does a failure that the provider told."""
        writing, message = self._delivery.writing, spoken.message
        if writing.is_error:
            return self._request.stream or not self._reply.started
        return writing.wordless or not (spoken.complete or writing.failed or message.text.strip() or message.calls)

    def _is_over(self) -> bool:
        """The provider reported a failure, or the client has been told the end: no round can follow."""
        writing = self._delivery.writing
        return writing.is_error or writing.failed or writing.finished

    async def _run(self, turn: Turn, spoken: Spoken, *, refuse: bool) -> None:
        """Run the stack calls of a round. It is durable before anything that depends on it leaves."""
        self._heard(spoken)
        now = self._parts.now()
        weighed = replace(spoken, message=self._parts.writer.weighed(spoken.message))
        ledgers = await beside(self._parts, turn, spoken)
        others = await elsewhere(self._parts, turn, spoken, ledgers)
        turn.room = self._asker.room(turn, weighed)
        results, events = turn.run(weighed, now, refuse=refuse, beside=ledgers, elsewhere=others)
        self._record.ran([c.name if c.is_ours else LOOPING_CALL for c in spoken.own_calls], events)
        turn.keep(weighed, results, events, now, last=bool(spoken.client_calls))
        await turn.durable()

    async def _end_turn(self, turn: Turn, spoken: Spoken, status: int, *, complete: bool) -> None:
        """The round for the client has ended."""
        if complete and spoken.own_calls and not spoken.client_calls and not spoken.message.text.strip():
            self._heard(spoken)
            await self._break_off(ProxyError(UNFINISHED, code="stack_calls_only"))
            return
        hidden = turn.number > 0
        self._keep_last(turn, spoken)
        if hidden:
            try:
                await turn.durable()
            except StoreError as error:
                self._not_kept(error.code)
        await self._finish(status)

    async def _break_off(self, error: ProxyError) -> None:
        """What the client would be told next depends on something that could not be kept or made: it must ask again."""
        self._record.failed(error.code)
        self._record.settle(error.status)
        await self._delivery.fail(error)

    # -------------------------------------------------------------------------------------------------------- stream
    async def _read_along(self, turn: Turn | None, got: Answer) -> tuple[bool, Spoken]:
        """One round, passed on as it may leave: whether all of it came, and what it said."""
        try:
            await self._delivery.begin_round(got)
            complete = await self._stream(turn, got)
            return complete, self._delivery.end_round(complete=complete)
        finally:
            await got.aclose()

    async def _stream(self, turn: Turn | None, got: Answer) -> bool:
        """Pass on what may leave as it arrives. False when the upstream died. Cancelled, what had arrived is kept."""
        try:
            async for chunk in got.chunks():
                await self._delivery.feed(chunk)
                self._draft_soon(turn)
        except UpstreamError as error:
            self._lost = error
            self._record.failed(error.code)
            return False
        except asyncio.CancelledError:
            await got.aclose()
            told_the_end = self._delivery.writing.finished
            spoken = self._delivery.end_round(complete=told_the_end)
            if not told_the_end:
                self._record.failed(self._why)
                spoken = replace(spoken, finish="cancelled") if self._meanwhile.stopped else spoken
            self._keep_last(turn, spoken)
            raise
        finally:
            self._draft_no_more()
        return True

    def _draft_soon(self, turn: Turn | None) -> None:
        """Persist a long answer while it arrives, also where nothing follows what came. One that does not stream can
        be read only when all of it is here."""
        if turn is not None and self._drafting is None and self._request.stream:
            self._drafting = asyncio.get_running_loop().call_later(DRAFT_S, self._draft, turn)

    def _draft_no_more(self) -> None:
        if self._drafting is not None:
            self._drafting.cancel()
            self._drafting = None

    def _draft(self, turn: Turn) -> None:
        self._drafting = None
        writing = self._delivery.writing
        if not writing.begun or writing.is_error:
            return
        try:
            turn.draft(writing.so_far(), self._parts.now())
        except StoreError:
            log.warning("draft not kept", extra={"request": self._incoming.id})

    def _keep_last(self, turn: Turn | None, spoken: Spoken) -> None:
        """Record the last round as it ended. Nothing said is nothing to keep, but for the end of a turn with hidden
        rounds: what was done in them is done."""
        self._heard(spoken)
        message = spoken.message
        if turn is None or self._delivery.writing.is_error:
            return
        if not (message.text or message.calls or (turn.number and spoken.complete)):
            return
        try:
            weighed = replace(spoken, message=self._parts.writer.weighed(message))
            turn.keep(weighed, (), [], self._parts.now(), last=True)
        except StoreError as error:
            self._not_kept(error.code)

    def _not_kept(self, reason: str) -> None:
        """The answer is the client's, and not on disk. Where a line had left for it, that was no bypass: the client is
        told so with its next request."""
        log.warning("answer not kept", extra={"request": self._incoming.id, "code": reason})
        if not self._standing.rendered:
            self._record.bypassed(reason)

    def _heard(self, spoken: Spoken) -> None:
        self._record.spoke(spoken)
        self._asker.heard(spoken)

    async def _finish(self, status: int) -> None:
        """The end of the client's answer; a broken one has none. Where nothing of it has left, the error is told."""
        if self._lost is not None:
            self._record.settle(status if self._reply.started else self._lost.status)
            await self._delivery.fail(self._lost)
            return
        last = self._delivery.last_bytes()
        self._record.settle(status)
        await self._delivery.end(last)
