"""What a running proxy counts of itself, as plain numbers: requests, tokens, money, stack calls, decisions, time.

Its laws: **nothing of anybody is in a label**: no tenant, key, conversation, id or word of a message; and **labels are
few**: of whatever comes from outside, at most `MOST_NAMES` different names are kept, all others count as `other`. Each
line `request` of the log is one request counted here.

To count is to add to a number: nothing is locked (one event loop counts) and nothing is kept of a single request.
Counters only grow; what may be negative (a saving) is told as a gauge. `exposition` writes all of it down for whoever
asks; this module knows no format.
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
"""Different names a label may have before the rest is `other`."""
MAX_LABEL_CHARS = 80
"""Characters of a name: a model's name is whatever a client wrote."""
OTHER_LABEL = "other"
UNANSWERED_LABEL = "unanswered"
"""The model of requests that no provider accepted: a name only counts as one once a provider has answered to it."""

DURATION_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
OVERHEAD_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
LAG_BUCKETS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""Upper bounds of the buckets, in seconds; one more holds what is beyond them."""

RECENT_WINDOW_S = 300
"""What is recent: a bypass now and then is the product at work, one in a hundred for five minutes is a fault (O1)."""
SLOT_S = 10
MAX_BYPASS_SHARE = 0.01


class Histogram:
    """How many values fell into each bucket, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class LabelNames:
    """The first so many names there are; for later ones, `other`."""

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
    """Receipts added up for one model of one upstream: tokens by our count, those the provider reported, USD."""

    tokens_in: int = 0
    tokens_sent: int = 0
    tokens_own: int = 0
    """Of `tokens_sent`, our tools, texts and hidden rounds."""
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

    def add(self, told: Receipt, tries: int) -> None:
        self.tokens_in += told.tokens_in
        self.tokens_sent += told.tokens_sent
        self.tokens_own += told.own_tools + told.own_texts + told.own_rounds
        self.tokens_saved += told.tokens_saved
        usage = told.usage
        self.input += usage.input
        self.cached += usage.cached
        self.written += usage.written
        self.output += usage.output
        self.cost += told.cost
        self.untouched += told.cost_untouched
        self.saved += told.saved
        self.rounds += told.rounds
        self.tries += tries
        if told.rounds > tries + 1:
            self.hidden_rounds += told.rounds - tries - 1


@dataclass(slots=True)
class TimeSlot:
    """`number` counts slots of `SLOT_S` seconds."""

    number: int
    requests: int = 0
    bypasses: dict[str, int] = field(default_factory=dict)


class RecentRequests:
    """Requests that could have been rewritten in the last five minutes, and how many of them went around us."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._slots: deque[TimeSlot] = deque()

    def count(self, bypass: str) -> None:
        """One request; `bypass` is the reason why it went around us, or empty."""
        number = int(self._clock() / SLOT_S)
        if not self._slots or self._slots[-1].number != number:
            self._slots.append(TimeSlot(number))
            self._forget(number)
        slot = self._slots[-1]
        slot.requests += 1
        if bypass:
            slot.bypasses[bypass] = slot.bypasses.get(bypass, 0) + 1

    def counts(self) -> tuple[int, dict[str, int]]:
        """How many requests, and the bypasses among them by reason."""
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
    """One per process. `clock` gives seconds, only forward."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.requests: dict[tuple[str, str], int] = {}
        """By what the client was told: status and reason. Both empty for an endpoint that is none of ours."""
        self.answers: dict[tuple[str, str, str], int] = {}
        """By upstream, class of its last status (`2xx`, or `none`), class of the status the client was told."""
        self.sums: dict[tuple[str, str], ModelTotals] = {}
        """By upstream and the model's name there."""
        self.calls: dict[str, int] = {}
        """Stack calls of models, by tool."""
        self.recalls = 0
        self.rereads: dict[str, int] = {}
        """Reads of what had left the line, by tool."""
        self.events: dict[str, int] = {}
        """What was decided about frames and lines: pushed, popped, woken, trim and so on."""
        self.decisions: dict[tuple[str, bool], int] = {}
        """Of the cost gate: its kind, and whether it was done."""
        self.summaries: dict[str, int] = {}
        """What came of folded spans that were to be summarised: `kept`, or the word for why not."""
        self.messages: dict[str, int] = {}
        """What people said into running conversations: `queued`, `dequeued` when the model was told, or `removed`."""
        self.duration = Histogram(DURATION_BUCKETS_S)
        self.overhead = Histogram(OVERHEAD_BUCKETS_S)
        self.lag = Histogram(LAG_BUCKETS_S)
        self.open_requests = 0
        """Requests that are being answered, streams among them."""
        self.recent = RecentRequests(clock)
        self._reasons, self._models, self._kinds, self._tools = LabelNames(), LabelNames(), LabelNames(), LabelNames()

    def count_request(self, told: RequestOutcome, calls: Mapping[str, int], tries: int = 0) -> None:
        """A request is over. `calls` counts its stack calls by tool; `tries` of its rounds got no answer and were asked
        again."""
        reason = self._reasons.label_for(told.reason)
        _increment(self.requests, (told.status, reason))
        if told.upstream:
            _increment(
                self.answers, (told.upstream, _status_class(told.upstream_status), _status_class(told.client_status))
            )
            self.duration.observe(told.duration_ms / 1000)
        if told.status == "bypass":
            if not _is_client_mistake(told):
                self.recent.count(reason)
        elif told.conversation:
            self.recent.count("")
        self.recalls += told.recalls
        self._count_events(told, calls)
        if isinstance(told, Receipt):
            self.overhead.observe(told.overhead_ms / 1000)
            self._add_receipt(told, tries)

    def count_rereads(self, tools: Iterable[str]) -> None:
        """The model read again by these tools what had left the line."""
        for tool in tools:
            _increment(self.rereads, self._tools.label_for(tool))

    def count_refusal(self, reason: str) -> None:
        """A request that got no further than the door."""
        _increment(self.requests, ("error", self._reasons.label_for(reason)))

    def count_messages(self, what: str, count: int = 1) -> None:
        """Messages from beside a client were taken in, told or taken back."""
        _increment(self.messages, what, count)

    def count_summary(self, outcome: str) -> None:
        """A folded span was summarised, or was not."""
        _increment(self.summaries, outcome)

    def count_summary_cost(self, told: Receipt) -> None:
        """A question to the summariser: no request of a client, but tokens and money."""
        self._add_receipt(told, 0)

    def _add_receipt(self, told: Receipt, tries: int) -> None:
        key = (told.upstream, self._model_label(told))
        sums = self.sums.get(key)
        if sums is None:
            sums = self.sums[key] = ModelTotals()
        sums.add(told, tries)

    def _model_label(self, told: RequestOutcome) -> str:
        return self._models.label_for(told.model) if 200 <= told.upstream_status < 300 else UNANSWERED_LABEL

    def _count_events(self, told: RequestOutcome, calls: Mapping[str, int]) -> None:
        """What the model called, what became of frames and lines, and what the gate was asked."""
        for tool, count in calls.items():
            _increment(self.calls, tool, count)
        for event in told.events:
            _increment(self.events, self._kinds.label_for(event.partition(" ")[0]))
        for asked in told.decisions:
            _increment(self.decisions, (asked.kind, asked.done))


def _is_client_mistake(told: RequestOutcome) -> bool:
    """A body that the provider refused as we did: the client's own mistake, which no proxy could have rewritten."""
    return told.reason == "unreadable" and 400 <= told.upstream_status < 500


def _increment(counts: dict[CountKey, int], key: CountKey, count: int = 1) -> None:
    counts[key] = counts.get(key, 0) + count


_STATUS_CLASSES = {0: "none", **{number: f"{number}xx" for number in range(1, 6)}}


def _status_class(status: int) -> str:
    """`2xx` and so on; `none` where there was no answer."""
    return _STATUS_CLASSES.get(status // 100, OTHER_LABEL)
