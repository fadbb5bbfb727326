"""Counters of a running proxy: requests, tokens, money, stack calls, decisions, time.

Labels contain no tenant, key, conversation, id or text; after `MAX_LABEL_NAMES`, further names count as `other`. Only
the event loop counts, so nothing is locked.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from proxy.accounting import Receipt, RequestOutcome

CountKey = TypeVar("CountKey")

MAX_LABEL_NAMES = 50
"""Different values of a label before the rest is `other`."""
MAX_LABEL_CHARS = 80
"""Clients choose the names of models, so they are cut."""
OTHER_LABEL = "other"
UNANSWERED_LABEL = "unanswered"
"""Model label of requests that no provider accepted: a model's name counts once a provider has answered to it."""

DURATION_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
OVERHEAD_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
LAG_BUCKETS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""Upper bounds in seconds; one more bucket holds the rest."""

RECENT_WINDOW_S = 300
"""Window of the bypass alarm: one bypass in a hundred requests for five minutes is a fault."""
SLOT_S = 10
MAX_BYPASS_SHARE = 0.01


class Histogram:
    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class LabelNames:
    """Keeps the first names and replaces later ones by "other"."""

    def __init__(self, most: int = MAX_LABEL_NAMES) -> None:
        self._max_names = most
        self._known: dict[str, str] = {}

    def label_for(self, name: str) -> str:
        known = self._known.get(name)
        if known is not None:
            return known
        if len(self._known) >= self._max_names:
            return OTHER_LABEL
        return self._known.setdefault(name, "".join(c if c.isprintable() else "?" for c in name[:MAX_LABEL_CHARS]))


@dataclass(slots=True)
class ModelTotals:
    """Totals of one model at one upstream: tokens by our count, tokens as reported, USD."""

    tokens_in: int = 0
    tokens_sent: int = 0
    tokens_own: int = 0
    """Part of `tokens_sent`: our tools, texts and hidden rounds."""
    tokens_saved: int = 0
    input: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    cost: float = 0.0
    untouched: float = 0.0
    saved: float = 0.0
    rounds: int = 0
    hidden_rounds: int = 0
    tries: int = 0

    def add(self, receipt: Receipt, tries: int) -> None:
        self.tokens_in += receipt.tokens_in
        self.tokens_sent += receipt.tokens_sent
        self.tokens_own += receipt.own_tools + receipt.own_texts + receipt.own_rounds
        self.tokens_saved += receipt.tokens_saved
        usage = receipt.usage
        self.input += usage.input
        self.cached += usage.cached
        self.written += usage.written
        self.output += usage.output
        self.cost += receipt.cost
        self.untouched += receipt.cost_untouched
        self.saved += receipt.saved
        self.rounds += receipt.rounds
        self.tries += tries
        if receipt.rounds > tries + 1:
            self.hidden_rounds += receipt.rounds - tries - 1


@dataclass(slots=True)
class TimeSlot:
    """`number` counts slots of `SLOT_S` seconds."""

    number: int
    requests: int = 0
    bypasses: dict[str, int] = field(default_factory=dict)


class RecentRequests:
    """Requests of the last five minutes that could have been rewritten, and how many bypassed the proxy's work."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._slots: deque[TimeSlot] = deque()

    def count(self, bypass: str) -> None:
        """Count a request; `bypass` is the reason of a bypass, or empty."""
        number = int(self._clock() / SLOT_S)
        if not self._slots or self._slots[-1].number != number:
            self._slots.append(TimeSlot(number))
            self._forget(number)
        slot = self._slots[-1]
        slot.requests += 1
        if bypass:
            slot.bypasses[bypass] = slot.bypasses.get(bypass, 0) + 1

    def counts(self) -> tuple[int, dict[str, int]]:
        """Number of requests, and of bypasses by reason."""
        self._forget(int(self._clock() / SLOT_S))
        reasons: dict[str, int] = {}
        for slot in self._slots:
            for reason, count in slot.bypasses.items():
                reasons[reason] = reasons.get(reason, 0) + count
        return sum(slot.requests for slot in self._slots), reasons

    def _forget(self, now: int) -> None:
        while self._slots and self._slots[0].number <= now - RECENT_WINDOW_S // SLOT_S:
            self._slots.popleft()


class Metrics:
    """One per process. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.requests: dict[tuple[str, str], int] = {}
        """By status and reason in `x-stack-status`; both empty for other endpoints."""
        self.answers: dict[tuple[str, str, str], int] = {}
        """By upstream, class of its last status (`2xx` or `none`), class of the status for the client."""
        self.sums: dict[tuple[str, str], ModelTotals] = {}
        """By upstream and the model's name there."""
        self.calls: dict[str, int] = {}
        """Stack calls of models, by tool."""
        self.recalls = 0
        self.rereads: dict[str, int] = {}
        """Reads of compacted content, by tool."""
        self.events: dict[str, int] = {}
        """Events of frames and contexts: pushed, popped, woken, trim and so on."""
        self.decisions: dict[tuple[str, bool], int] = {}
        """Decisions of the cost gate: kind, and whether carried out."""
        self.summaries: dict[str, int] = {}
        """Summaries of folded spans: `kept`, or the reason for none."""
        self.cache_pings: dict[str, int] = {}
        """`kept`, or why the provider's cache was not."""
        self.messages: dict[str, int] = {}
        """Messages of people to running conversations: `queued`, `dequeued` (delivered) or `removed`."""
        self.forms: dict[tuple[str, str, str], int] = {}
        """Requests in another form than the full one, which was refused: upstream, model there, and form."""
        self.spans = {"sent": 0, "lost": 0}
        """Spans for the receiver of `otel.endpoint`. One thread counts them, which adds no key."""
        self.duration = Histogram(DURATION_BUCKETS_S)
        self.overhead = Histogram(OVERHEAD_BUCKETS_S)
        self.lag = Histogram(LAG_BUCKETS_S)
        self.open_requests = 0
        self.descriptor_exhaustions = 0
        """How often the process had no file descriptor left."""
        self.dropped_log_lines: Callable[[], int] = lambda: 0
        self.recent = RecentRequests(clock)
        self._reasons, self._models, self._kinds, self._tools = LabelNames(), LabelNames(), LabelNames(), LabelNames()

    def count_spans(self, outcome: str, spans: int) -> None:
        self.spans[outcome] += spans

    def count_request(self, outcome: RequestOutcome, calls: Mapping[str, int], tries: int = 0) -> None:
        """`calls` are stack calls by tool; `tries` are rounds without an answer that were retried."""
        reason = self._reasons.label_for(outcome.reason)
        _increment(self.requests, (outcome.status, reason))
        if outcome.upstream:
            _increment(
                self.answers,
                (outcome.upstream, _status_class(outcome.upstream_status), _status_class(outcome.client_status)),
            )
            self.duration.observe(outcome.duration_ms / 1000)
        if outcome.status == "bypass":
            # Where the provider refused the body too, it could not have been rewritten.
            if outcome.reason != "unreadable" or not 400 <= outcome.upstream_status < 500:
                self.recent.count(reason)
        elif outcome.conversation:
            self.recent.count("")
        if outcome.form:
            _increment(self.forms, (outcome.upstream, self._models.label_for(outcome.model), outcome.form))
        self.recalls += outcome.recalls
        self._count_events(outcome, calls)
        if isinstance(outcome, Receipt):
            self.overhead.observe(outcome.overhead_ms / 1000)
            self._add_receipt(outcome, tries)

    def count_rereads(self, tools: Iterable[str]) -> None:
        for tool in tools:
            _increment(self.rereads, self._tools.label_for(tool))

    def count_refusal(self, reason: str) -> None:
        _increment(self.requests, ("error", self._reasons.label_for(reason)))

    def count_messages(self, what: str, count: int = 1) -> None:
        _increment(self.messages, what, count)

    def count_summary(self, outcome: str) -> None:
        _increment(self.summaries, outcome)

    def count_cache_ping(self, outcome: str) -> None:
        _increment(self.cache_pings, self._reasons.label_for(outcome))

    def count_own_request(self, receipt: Receipt) -> None:
        """Count a summary or a cache ping: tokens and money, but no client request."""
        self._add_receipt(receipt, 0)

    def _add_receipt(self, receipt: Receipt, tries: int) -> None:
        is_answered = 200 <= receipt.upstream_status < 300
        key = (receipt.upstream, self._models.label_for(receipt.model) if is_answered else UNANSWERED_LABEL)
        sums = self.sums.get(key)
        if sums is None:
            sums = self.sums[key] = ModelTotals()
        sums.add(receipt, tries)

    def _count_events(self, outcome: RequestOutcome, calls: Mapping[str, int]) -> None:
        for tool, count in calls.items():
            _increment(self.calls, tool, count)
        for event in outcome.events:
            _increment(self.events, self._kinds.label_for(event.partition(" ")[0]))
        for decision in outcome.decisions:
            _increment(self.decisions, (decision.kind, decision.done))


def _increment(counts: dict[CountKey, int], key: CountKey, count: int = 1) -> None:
    counts[key] = counts.get(key, 0) + count


_STATUS_CLASSES = {0: "none", **{number: f"{number}xx" for number in range(1, 6)}}


def _status_class(status: int) -> str:
    return _STATUS_CLASSES.get(status // 100, OTHER_LABEL)
