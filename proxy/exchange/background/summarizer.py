"""The optional summarizer: asks a model, off the request path, to summarize a compacted span.

`enqueue_folds` notes the spans of a request; `run` takes them one by one, checks the budget, asks, and stores the
answer as an event. A later compaction uses it; no context changes because a summary arrived. It uses only the
operator's key and at most `usd_per_day` per UTC day, estimated before and booked after each question, and read back
from the receipts at a restart. No request waits for it or fails by it, and no content is logged.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from proxy import __version__
from proxy.accounting import SUMMARY_STATUS, Accountant, Receipt, Tariff, TokenCounterProtocol
from proxy.config import Config, SummarySettings
from proxy.core.compaction import (
    MIN_SPAN_TOKENS,
    SummarySpan,
    newest_fitting,
    quote_message,
    span_of,
    summary_heading,
    summary_instructions,
    usable_summary,
)
from proxy.core.frames import FoldSummarized, as_ledger_event, replay
from proxy.core.ledger import Usage
from proxy.dialects import usage_of
from proxy.errors import ProxyError, UpstreamUnreachable
from proxy.exchange.background.own_requests import OwnRequest, OwnRequests, Place, read_bounded
from proxy.exchange.thread.placement import Placement
from proxy.store import CachedConversation, SentRecord
from proxy.upstream import RawHeaders, Routes, Upstream, is_resting, note_rest, outgoing_headers

log = logging.getLogger(__name__)

COMPLETIONS_PATH = "/v1/chat/completions"
MAX_WAITING_FOLDS = 32
"""Folds beyond are not summarized."""
MAX_ANSWER_BYTES = 1 << 18
"""A summary is some KB."""
DAY_MS = 86_400_000
RECEIPTS_READ_FIRST = 1_000
"""Receipts read first to find today's."""
MILLION = 1_000_000


class SummarySkipped(ProxyError):
    """There is no summary of a span; the error's code says why."""


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    id: str
    body: bytes
    tokens: int


@dataclass
class Summarizer:
    """One per process. A fold waits as the place where its span left the context."""

    settings: SummarySettings
    upstream: Upstream
    model: str
    tariff: Tariff
    own_requests: OwnRequests
    counter: TokenCounterProtocol
    _folds: asyncio.Queue[Place] = field(default_factory=lambda: asyncio.Queue(MAX_WAITING_FOLDS), init=False)
    _day: int = field(default=-1, init=False)
    """Days since the epoch; -1: the receipts have not been read."""
    _spent_usd: float = field(default=0.0, init=False)

    # --------------------------------------------------------------------------------------------------------- offered
    def enqueue_folds(self, placement: Placement) -> None:
        """Never raises and never waits."""
        if not placement.is_rendered:
            return
        conversation, mode = placement.ledger.conversation, placement.mode
        for event in placement.ledger.events.get(placement.entry_id, ()):
            if event.kind == "folded" and event.created >= placement.parsed_request.now:
                place = (conversation.tenant, conversation.id, placement.thread, mode, placement.entry_id)
                self._enqueue(Place(*place, event.subject))

    def _enqueue(self, fold: Place) -> None:
        try:
            self._folds.put_nowait(fold)
        except asyncio.QueueFull:
            self._report(fold, "queue_full")

    # ------------------------------------------------------------------------------------------------------------ work
    async def run(self) -> None:
        """Runs as long as the process."""
        while True:
            fold = await self._folds.get()
            try:
                await self._summarize(fold)
            except ProxyError as error:
                self._report(fold, error.code)
            except Exception as error:  # the outermost edge: no request hangs on it, the next fold has its turn
                # Without the error's words: they may be content.
                self._report(fold, "internal", type(error).__name__)

    async def _summarize(self, fold: Place) -> None:
        """Raises SummarySkipped or StoreError where nothing is asked or stored."""
        if is_resting(self.upstream):
            raise SummarySkipped("the provider wants to be left alone", code="resting")
        span = await self._read_span(fold)
        question = await self._build_request(span)
        await self._check_budget(question)
        text, reason = await self._request_summary(fold, span, question)
        cached = await self._load_conversation(fold)
        if not reason:
            written = as_ledger_event(
                FoldSummarized(fold.frame, text), fold.entry_id, 0, cached.ledger.next_seq, self.own_requests.now()
            )
            self.own_requests.conversation_cache.record(cached, [written])
            cached.path_states.clear()  # each of them was folded without it
        self._report(fold, reason or "kept")

    async def _load_conversation(self, fold: Place) -> CachedConversation:
        """Raises SummarySkipped for a deleted conversation: none of its content may be stored."""
        cached = await self.own_requests.conversation_cache.get(fold.tenant, fold.conversation)
        if cached is None or fold.entry_id not in cached.ledger.entries:
            raise SummarySkipped("it was deleted meanwhile", code="gone")
        return cached

    async def _read_span(self, fold: Place) -> SummarySpan:
        cached = await self._load_conversation(fold)
        ledger = cached.ledger
        span = span_of(
            ledger, replay(ledger, ledger.path(fold.entry_id), cached.path_states), fold.entry_id, fold.frame
        )
        if span is None:
            raise SummarySkipped("it was not folded after all", code="gone")
        if span.tokens < MIN_SPAN_TOKENS:
            raise SummarySkipped("so little is not worth a question", code="small")
        return span

    async def _build_request(self, span: SummarySpan) -> SummaryRequest:
        task = summary_instructions(span, self.settings.template)
        head = summary_heading(span, _iso_date(self.own_requests.now()), _iso_date(span.frame.created_at))
        texts = [quote_message(message) for message in span.messages]
        fixed, *counts = await self.counter.count_all([task + head, *texts])
        room = self.settings.input_tokens - fixed
        if not counts or room < counts[-1]:
            raise SummarySkipped("the span does not fit a question", code="input_full")
        said = head + newest_fitting(texts, counts, room)
        messages = [{"role": "system", "content": task}, {"role": "user", "content": said}]
        fields = {"model": self.model, "messages": messages, self.settings.output_field: self.settings.output_tokens}
        (tokens,) = await self.counter.count_all([task + said])
        return SummaryRequest(self.own_requests.new_id(), msgspec.json.encode(fields), tokens)

    # ----------------------------------------------------------------------------------------------------------- money
    async def _check_budget(self, question: SummaryRequest) -> None:
        """Raises SummarySkipped where the question's highest cost exceeds the rest of the day's budget."""
        await self._start_day()
        tariff = self.tariff.for_input(question.tokens)
        dearest = question.tokens * max(1.0, tariff.write) * tariff.input
        dearest += self.settings.output_tokens * (tariff.output or 0.0)
        if self._spent_usd + dearest / MILLION > self.settings.usd_per_day:
            raise SummarySkipped("the money of this day is spent", code="no_money")

    async def _start_day(self) -> None:
        today = self.own_requests.now() // DAY_MS
        if self._day == today:
            return
        self._spent_usd = await self._read_spent_since(today * DAY_MS) if self._day < 0 else 0.0
        self._day = today

    async def _read_spent_since(self, midnight: int) -> float:
        limit = RECEIPTS_READ_FIRST
        while True:
            rows = await self.own_requests.store.requests(None, limit=limit)
            if len(rows) < limit or rows[-1].created < midnight:
                break
            limit *= 4
        ours = (row.receipt for row in rows if row.status == SUMMARY_STATUS and row.created >= midnight)
        return sum(msgspec.json.decode(receipt, type=Receipt).cost for receipt in ours)

    def _record_cost(self, call: _SummaryCall, question: SummaryRequest, usage: Usage | None, *, assumed: int) -> None:
        """Write the receipt. `assumed` are output tokens that the provider did not report."""
        added_cost = assumed * (self.tariff.for_input(question.tokens).output or 0.0) / MILLION
        receipt = self.own_requests.settle(call, [(question.id, question.tokens)], usage, added_cost)
        self._spent_usd += receipt.cost
        asked = SentRecord(question.id, 0, (question.body,), self.own_requests.now())
        self.own_requests.store_receipt(call.place, receipt, (asked,))

    # ------------------------------------------------------------------------------------------------------------- ask
    async def _request_summary(self, fold: Place, span: SummarySpan, question: SummaryRequest) -> tuple[str, str]:
        """The summary, and the reason where there is none. A question without an answer is booked at its highest
        cost."""
        call = _SummaryCall(
            id=question.id,
            kind=SUMMARY_STATUS,
            place=fold,
            model=(self.upstream.name, self.model),
            created=self.own_requests.now(),
        )
        text, usage, summary, assumed = "", None, "", self.settings.output_tokens
        try:
            async with asyncio.timeout(self.settings.timeout_s):
                await self._send(call, question)
            text, usage = parse_answer(call.body) if call.status < 300 else ("", None)
            summary = usable_summary(text, span, self.counter.count)
            assumed = 0 if usage else self.counter.count(text)
            call.reason = self._rejection_reason(call, text, summary)
        except TimeoutError:
            call.reason = "timeout"
        except UpstreamUnreachable as error:
            call.reason, call.may_have_been_read = error.code, False
        except ProxyError as error:
            call.reason = error.code
        finally:
            if call.may_have_been_read:
                self._record_cost(call, question, usage, assumed=assumed)
        return summary, call.reason

    def _rejection_reason(self, call: _SummaryCall, text: str, summary: str) -> str:
        """Why an answer is not used, or empty."""
        if call.status >= 300:
            return "upstream_error"
        if not text.strip():
            return "empty"
        return "" if summary else "too_long"

    async def _send(self, call: _SummaryCall, question: SummaryRequest) -> None:
        call.may_have_been_read = True
        got = await self.upstream.send("POST", COMPLETIONS_PATH, b"", self._headers(), question.body)
        call.status = got.status
        note_rest(self.upstream, got, self.own_requests.now())
        async with aclosing(got):
            body = await read_bounded(got, MAX_ANSWER_BYTES)
        if body is None:
            raise SummarySkipped("the answer is no summary", code="too_large")
        call.body = body

    def _headers(self) -> RawHeaders:
        own = [
            (b"content-type", b"application/json"),
            (b"accept", b"application/json"),
            (b"user-agent", f"callstack-proxy/{__version__}".encode()),
        ]
        return outgoing_headers(own, self.upstream.settings, readable=True)

    def _report(self, fold: Place, outcome: str, error: str = "") -> None:
        self.own_requests.metrics.count_summary(outcome)
        ids = {"conversation": fold.conversation, "frame": fold.frame}
        level = logging.INFO if outcome in ("kept", "small", "gone") else logging.WARNING
        log.log(level, "summary", extra={**ids, "reason": outcome, **({"error": error} if error else {})})


@dataclass(kw_only=True)
class _SummaryCall(OwnRequest):
    """`reason` is why nothing came of it."""

    body: bytes = b""


def build_summarizer(
    config: Config, routes: Routes, own_requests: OwnRequests, counter: TokenCounterProtocol
) -> Summarizer | None:
    """None where it is off."""
    settings = config.summaries
    if not settings.is_enabled:
        return None
    upstream = routes.upstreams[settings.upstream]
    model = upstream.settings.aliases.get(settings.model, settings.model)
    # Its prompts are in no cache of a client, so they are no part of what is known of these.
    accountant = Accountant(own_requests.now, counter.name, config.tariff_of)
    own_requests = replace(own_requests, accountant=accountant)
    return Summarizer(settings, upstream, model, config.tariff_of(model), own_requests, counter)


# -------------------------------------------------------------------------------------------------------------- answer
class _AnswerMessage(msgspec.Struct):
    content: str | None = None


class _AnswerChoice(msgspec.Struct):
    message: _AnswerMessage = msgspec.field(default_factory=_AnswerMessage)


class _AnswerBody(msgspec.Struct):
    choices: list[_AnswerChoice] = []
    usage: dict[str, Any] | None = None


def parse_answer(body: bytes) -> tuple[str, Usage | None]:
    """The text and usage of an answer; no text where the body is no completion."""
    try:
        answer = msgspec.json.decode(body, type=_AnswerBody)
    except (msgspec.DecodeError, RecursionError):
        return "", None
    text = answer.choices[0].message.content if answer.choices else None
    return text or "", usage_of(answer.usage) if answer.usage else None


def _iso_date(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
