"""What is told and kept of a request: the headers, the receipt, the record with its bodies, one line in the log.

The law: **bookkeeping never fails a request, and keeps none waiting**. What cannot be kept is counted and said in the
log; the answer is the client's already, and what went well is told afterwards.

What this module does not do: it computes no money (`report` does) and logs neither content nor keys.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from hashlib import sha256
from operator import attrgetter
from time import perf_counter

import msgspec

from proxy.accounting import Account, Accountant, Chain, Decision, Outcome, Receipt, response_headers
from proxy.core import tools
from proxy.core.compaction import compaction_plan as folding
from proxy.core.compaction.segments import thoughts_of
from proxy.core.context.message_list import on_line
from proxy.core.frames.events import REASONING_REMOVED, Folded, ReasoningRemoved, read_event
from proxy.core.ledger.ledger import SEALED, Event
from proxy.core.ledger.messages import Message, Request, Spoken, Usage
from proxy.dialects import Dialect
from proxy.dialects.body import object_in
from proxy.dialects.raw_json import mended
from proxy.dialects.usage import compactions_in
from proxy.errors import StoreError
from proxy.exchange.background.scheduling import Afterwards
from proxy.exchange.thread.placement import Standing
from proxy.store import Body, RequestRecord, SentRecord, Store
from proxy.telemetry.event_bus import Feed
from proxy.telemetry.log_fields import LONGEST, Plain, plain, short
from proxy.telemetry.metrics import Metrics
from proxy.upstream.routing import RawHeaders

log = logging.getLogger(__name__)

LOOPING_CALL = "looping"
"""A call of the client's tools that was answered here because it runs in a loop, by the name it is counted as."""
CALLABLE = frozenset(
    {LOOPING_CALL, tools.DISPATCHER, *(t.name for t in tools.TOOLS), *(f"stack_{t.op}" for t in tools.TOOLS)}
)
HEADS = 256
"""Heads of requests whose identity is remembered: an agent sends the same with every one."""
MUTING = frozenset({"folded", REASONING_REMOVED})
"""Events by which answers stay without their reasoning."""
UNKNOWN_TOOL = "unknown"
"""A tool that there is not: its name is the model's own words, which are neither logged nor counted."""
TOLD_ASLEEP = frozenset({"name_clash", "legacy_functions"})
"""Why a thread sleeps is for the receipt and the log: it changes from request to request, and clients compare the word
`asleep`. Told in the header is only what somebody has to mend before it can ever wake."""


@dataclass
class Bookkeeper:
    """One per process. `now` tells ms since the epoch."""

    store: Store
    accountant: Accountant
    dialect: Dialect
    now: Callable[[], int]
    metrics: Metrics = field(default_factory=Metrics)
    feed: Feed = field(default_factory=Feed)
    afterwards: Afterwards = field(default_factory=lambda: Afterwards(0))


class Record(msgspec.Struct):
    """One request while it is carried out. `arrived` is a `perf_counter` value."""

    keeper: Bookkeeper
    id: str
    tenant: str
    arrived: float
    upstream: str
    model: str
    status: str
    """Empty for an endpoint that is none of ours."""
    reason: str = ""
    standing: Standing | None = None
    account: Account | None = None
    overhead_ms: float = 0.0
    hidden_calls: int = 0
    recalls: int = 0
    calls: dict[str, int] = {}
    """The hidden calls by name of the tool."""
    tries: int = 0
    """Rounds that got no answer and were asked again."""
    events: list[Event] = []
    decisions: list[Decision] = []
    usages: list[Usage | None] = []
    bodies: list[SentRecord] = []
    finish: str = ""
    upstream_status: int = 0
    """What the provider answered last; 0 while it has not."""
    would_send: int = 0
    """Shadow: tokens that would have been sent; 0 in any other mode."""
    outcome: Outcome | None = None
    """How it ended, once it has."""
    settled: Receipt | None = None
    """What that came to, once somebody has asked (`receipt`)."""

    def placed(self, standing: Standing) -> Record:
        """The record of a placed request, its account opened with what the client sent."""
        self.status, self.reason, self.standing = standing.status, standing.reason, standing
        self.account = self._opened(client_chain(standing.request))
        self.decided(map(in_a_receipt, standing.decisions))
        return self

    def addressed(self, standing: Standing) -> Record:
        """The record of what a person said to the proxy itself. The account is empty: nothing would have been sent for
        it without us, for nobody would have typed it."""
        self.standing = standing
        self.account = self._opened(())
        self.overhead_ms = (perf_counter() - self.arrived) * 1000
        return self

    def _opened(self, chain: Chain) -> Account:
        return self.keeper.accountant.open(chain, tenant=self.tenant, upstream=self.upstream, model=self.model)

    # ---------------------------------------------------------------------------------------------------------- note
    def sending(
        self, chain: Chain, body: Body | None, *, own_tools: int = 0, own_texts: int = 0, own_traces: int = 0
    ) -> None:
        """A round leaves; `body` None: the client's own bytes. What is ours in `chain`, in tokens: `own_traces` are
        contained in `own_texts`."""
        if not self.overhead_ms:
            self.overhead_ms = (perf_counter() - self.arrived) * 1000
        if self.account:
            self.account.note_sent(chain, own_tools=own_tools, own_texts=own_texts, own_traces=own_traces)
        if body is not None:
            self.bodies.append(SentRecord(self.id, len(self.usages), body, self.keeper.now()))

    def relaying(self, own: Request) -> None:
        """The client's own request leaves, in its own bytes."""
        came = self.account.chain if self.account and self.standing and own is self.standing.request else None
        self.sending(client_chain(own) if came is None else came, None)

    def spoke(self, spoken: Spoken) -> None:
        """A round was answered."""
        self.usages.append(spoken.usage)
        self.finish = spoken.finish
        # An answer that is a compaction and nothing else tells no figures besides: then we go by what was sent.
        if SEALED in spoken.extra and spoken.usage and spoken.usage.input and self.account:
            told = object_in(spoken.extra, "usage")
            self.account.note_compacted(compactions_in(told))

    def unanswered(self, usage: Usage | None = None) -> None:
        """A round got no answer and is asked again. `usage`: what the provider takes for it all the same."""
        self.usages.append(usage)
        self.tries += 1
        if self.account and not (usage and usage.input):
            self.account.note_refused()

    def ran(self, calls: Sequence[str], events: Sequence[Event]) -> None:
        """Stack calls were answered: their names, and what was decided."""
        self.hidden_calls += len(calls)
        self.recalls += sum(name == "stack_recall" for name in calls)
        for name in (name if name in CALLABLE else UNKNOWN_TOOL for name in calls):
            self.calls[name] = self.calls.get(name, 0) + 1
        self.events += events

    def decided(self, decisions: Iterable[Decision]) -> None:
        """The gate was asked; also "not now" is an answer."""
        self.decisions += decisions

    def bypassed(self, reason: str) -> None:
        """We stood aside, from here on or for all of it."""
        self.status, self.reason = "bypass", reason

    def shortened(self, reason: str = "") -> None:
        """The client's own request goes, less what does not fit; without a `reason` for the one we stand aside for."""
        self.status, self.reason = "stateless", reason or self.reason

    def failed(self, reason: str) -> None:
        """The client gets an error, or a broken connection."""
        self.status, self.reason = "error", reason

    # ---------------------------------------------------------------------------------------------------------- tell
    def headers(self) -> RawHeaders:
        """`x-stack-*` for the answer; money only where it is known, which is after the last round."""
        reason = self.reason if self.status != "asleep" or self.reason in TOLD_ASLEEP else ""
        told = f"{self.status}; reason={reason}" if reason else self.status
        headers = [(b"x-stack-status", told.encode())] if told else []
        headers.append((b"x-stack-request-id", self.id.encode()))
        if (standing := self.standing) is not None:
            headers += [
                (b"x-stack-conversation", standing.conversation.encode()),
                (b"x-stack-thread", standing.thread.encode()),
                (b"x-stack-frame", standing.frame.encode()),
            ]
        if told_of := self.receipt() or self.account:
            headers += response_headers(told_of, self.overhead_ms)
        if self.would_send:
            headers.append((b"x-stack-tokens-would-send", b"%d" % self.would_send))
        return headers

    def settle(self, client_status: int) -> None:
        """How it ended, once; afterwards the line in the log, kept with the receipt and the bodies in what time the
        store takes. `client_status` is 0 where the client left before it was told any."""
        if self.outcome is not None:
            return
        self.outcome = outcome = self._outcome(client_status)
        trouble = self.status in ("bypass", "error")
        level = logging.WARNING if trouble else logging.INFO
        self.keeper.afterwards.add(partial(self._book, outcome, level), now=trouble)

    def receipt(self) -> Receipt | None:
        """What it came to, once it has ended; None where nothing was to be paid. Only the headers of a plain answer
        tell of it, so that of a stream it is worked out when the client is served."""
        if self.settled is None and self.account is not None and self.outcome is not None:
            self.settled = self.account.settle(self.outcome, self.usages)
        return self.settled

    def _book(self, outcome: Outcome, level: int) -> None:
        if (receipt := self.receipt()) is not None:
            self.keeper.feed.answered(self.tenant, receipt)
        told = receipt or outcome
        self.keeper.metrics.settled(told, self.calls, self.tries)
        log.log(level, "request", extra={"stack": _line(told, self.calls, self.tries)})
        self._write()

    def _outcome(self, client_status: int) -> Outcome:
        standing = self.standing
        events = (*self._decided_on_arrival(), *self.events)
        return Outcome(
            id=self.id,
            conversation=standing.conversation if standing else "",
            thread=standing.thread if standing else "",
            frame=standing.frame if standing else "",
            model=mended(self.model),
            upstream=self.upstream,
            mode=standing.mode if standing else "",
            status=self.status,
            reason=self.reason,
            created=standing.arrival.now if standing else self.keeper.now(),
            duration_ms=(perf_counter() - self.arrived) * 1000,
            overhead_ms=self.overhead_ms,
            stream=bool(standing and standing.request.stream),
            hidden_calls=self.hidden_calls,
            recalls=self.recalls,
            events=tuple(map(_told, events)),
            client_status=client_status,
            upstream_status=self.upstream_status,
            finish_reason=mended(self.finish),
            would_send=self.would_send,
            decisions=tuple(self.decisions),
            lost_reasoning=self._lost_reasoning(events) if events else 0,
        )

    def _decided_on_arrival(self) -> list[Event]:
        """What hangs on the request and what is new with it, and not on a round: it opened a conversation, woke its
        thread, a frame was seen in it or left, its line was cut."""
        standing = self.standing
        if standing is None or not standing.ledger.events:
            return []
        ledger, since = standing.ledger, standing.arrival.now
        new, entry = [standing.node], ledger.entries.get(standing.node)
        while entry is not None and entry.created >= since:
            new.append(entry.parent)
            entry = ledger.entries.get(entry.parent)
        events = ledger.events
        return [event for node in reversed(new) for event in events.get(node, ()) if event.created >= since]

    def _lost_reasoning(self, events: Iterable[Event]) -> int:
        """Tokens of the reasoning that leaves the line by these events, about, and is not back on it ever."""
        standing, muted = self.standing, set(_muted_by(events))
        if standing is None or not muted:
            return 0
        ledger, since = standing.ledger, standing.arrival.now
        hanging = (event for entry in ledger.path(standing.node) for event in ledger.events.get(entry.id, ()))
        before = set(_muted_by(event for event in hanging if event.created < since))
        answers = [placed for placed in on_line(standing.story) if placed.entry.id in muted]
        return thoughts_of(answers, before, self.keeper.dialect.without_reasoning)

    def _write(self) -> None:
        standing, receipt = self.standing, self.settled
        if standing is None or receipt is None:
            return
        kept = RequestRecord(
            receipt.id,
            receipt.conversation,
            receipt.thread,
            receipt.frame,
            standing.node,
            receipt.created,
            receipt.status,
            msgspec.json.encode(receipt),
            self.keeper.dialect.client_body(standing.request),
        )
        try:
            self.keeper.store.write(self.tenant, (kept, *self.bodies))
        except StoreError as error:
            log.warning("receipt not kept", extra={"request": self.id, "reason": error.code})


def in_a_receipt(decided: folding.Decision) -> Decision:
    """What the gate said of a rewrite, flat: the words and figures a receipt keeps."""
    verdict = decided.verdict
    rewrite, prices = verdict.rewrite, verdict.prices
    return Decision(
        decided.kind,
        ", ".join(decided.subjects),
        verdict.worth,
        verdict.reason.value,
        rewrite.removed,
        rewrite.compaction,
        rewrite.behind,
        verdict.requests,
        prices.read,
        prices.write,
        verdict.cost,
        verdict.gain,
        rewrite.added,
        rewrite.reasoning,
    )


def client_chain(request: Request) -> Chain:
    """What the client sent: head and tools as one piece, then the messages."""
    return [_head_piece(request, "", 0), *[(m.identity, m.tokens) for m in request.messages]]


def sent_chain(request: Request, guidance: str, own: int, line: Sequence[Message]) -> Chain:
    """What leaves for an awake thread; `own` are the tokens of guidance and tools of ours."""
    return [_head_piece(request, guidance, own), *[(m.identity, m.tokens) for m in line]]


def _head_piece(request: Request, guidance: str, own: int) -> tuple[str, int]:
    identity = _identity_of_head(request.system_hash, request.tool_names, guidance)
    return identity, sum([m.tokens for m in request.head]) + request.tools_tokens + own


@lru_cache(HEADS)
def _identity_of_head(system_hash: str, tool_names: tuple[str, ...], guidance: str) -> str:
    said = "\n".join([system_hash, *tool_names, guidance])
    return sha256(said.encode()).hexdigest()[:32]


def _muted_by(events: Iterable[Event]) -> Iterator[str]:
    """The answers that stay without their reasoning from one of these on, by their entries."""
    for event in events:
        said = read_event(event) if event.kind in MUTING else None
        if isinstance(said, ReasoningRemoved):
            yield from said.turns
        elif isinstance(said, Folded):
            yield from said.muted


def _told(event: Event) -> str:
    """`popped f12`: the kind, and the frame where it is about one."""
    return f"{event.kind} {event.subject.partition('/')[0]}".rstrip()


_TEXTS = ("id", "conversation", "thread", "frame", "model", "upstream", "mode", "status", "reason", "finish_reason")
_SELDOM = ("recalls", "would_send", "lost_reasoning")
_texts = attrgetter(*_TEXTS)


def _line(told: Outcome, calls: Mapping[str, int], tries: int) -> Plain:
    """The story of a request for the log: ids, figures and names of ours. What is seldom is there when it happened."""
    line = Plain(
        {
            "id": told.id,
            "conversation": told.conversation,
            "thread": told.thread,
            "frame": told.frame,
            "model": told.model,
            "upstream": told.upstream,
            "mode": told.mode,
            "status": told.status,
            "reason": told.reason,
            "client_status": told.client_status,
            "upstream_status": told.upstream_status,
            "finish_reason": told.finish_reason,
            "stream": told.stream,
        }
    )
    if isinstance(told, Receipt):
        line["rounds"] = told.rounds
    line["hidden_calls"] = told.hidden_calls
    line["duration_ms"], line["overhead_ms"] = plain(told.duration_ms), plain(told.overhead_ms)
    if isinstance(told, Receipt):
        line["tokens_in"], line["tokens_sent"] = told.tokens_in, told.tokens_sent
        line["tokens_saved"] = told.tokens_saved
        line["cost"], line["cost_untouched"] = plain(told.cost), plain(told.cost_untouched)
        line["saved"], line["basis"] = plain(told.saved), told.basis
        if (usage := told.usage).input:
            line["reported_input"], line["reported_cached"] = usage.input, usage.cached
            line["reported_written"], line["reported_output"] = usage.written, usage.output
    if max(map(len, _texts(told))) > LONGEST:
        line |= {name: short(line[name]) for name in _TEXTS}
    for name in _SELDOM:
        if figure := getattr(told, name):
            line[name] = figure
    if tries:
        line["tries"] = tries
    if calls:
        line["calls"] = dict(calls)
    if told.events:
        line["events"] = list(map(short, told.events))
    if told.decisions:
        asked = (f"{d.kind} {'done' if d.done else 'not now'} {d.reason}".rstrip() for d in told.decisions)
        line["decisions"] = dict(Counter(asked))
    return line
