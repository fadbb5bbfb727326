"""The figures of `metrics` in the text format of Prometheus, for `GET /metrics`.

Its law: **what is told is what was counted when it was asked for**; nothing is kept here between two scrapes. The
names below are an interface: `docs/operation.md` lists them, and dashboards are built on them.

The library writes the format. It costs 25 ms and 3 MB to import, which a proxy that nobody scrapes never needs; so
`app` imports this module when it is asked for the first time, and the counting itself knows no library.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from proxy import __version__
from proxy.store import Health
from proxy.telemetry.metrics import BYPASSED_AT_MOST, Histogram, Metrics, Sums

Rows = Iterable[tuple[tuple[str, ...], float]]
"""Values of labels, and the number that belongs to them."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What is not counted but is so now."""

    store: Health
    shelved: int
    started: int


def exposed(metrics: Metrics, store: Health, shelved: int, started: int) -> tuple[bytes, bytes]:
    """The page, its content type first. `shelved` are conversations in memory, `started` is in ms since the epoch."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(metrics, Moment(store, shelved, started)))
    ProcessCollector(registry=registry)  # memory, processor time, open files: where the system tells them
    return CONTENT_TYPE_LATEST.encode(), generate_latest(registry)


class _Collected(Collector):
    """The library's way of being told numbers that it did not count."""

    def __init__(self, metrics: Metrics, moment: Moment) -> None:
        self._metrics = metrics
        self._moment = moment

    def collect(self) -> Iterator[Metric]:
        yield from _requests(self._metrics)
        yield from _tokens_and_money(self._metrics)
        yield from _frames(self._metrics)
        yield from _times(self._metrics)
        yield from _recent(self._metrics)
        yield from _now(self._metrics, self._moment)


def _requests(metrics: Metrics) -> Iterator[Metric]:
    bypasses = [((reason,), count) for (status, reason), count in metrics.requests.items() if status == "bypass"]
    yield _counter("requests", "Requests by what the client was told", ("status", "reason"), metrics.requests.items())
    yield _counter("bypasses", "Requests that went upstream without the proxy", ("reason",), bypasses)
    yield _counter(
        "answers",
        "Requests by upstream, class of its last status, and class of the status the client was told",
        ("upstream", "upstream_status", "client_status"),
        metrics.answers.items(),
    )
    yield _gauge("open_requests", "Requests being answered, streams among them", metrics.open)


_BY_MODEL = ("upstream", "model")


def _tokens_and_money(metrics: Metrics) -> Iterator[Metric]:
    """Ours are estimates by one tokenizer; the provider's stand beside them as it reported them."""
    told = metrics.sums.items()
    kinds = {"in": "tokens_in", "sent": "tokens_sent", "own": "tokens_own"}
    yield _counter(
        "tokens",
        "Tokens as counted here: in from clients, sent upstream, and of those our own",
        (*_BY_MODEL, "kind"),
        _by_kind(told, kinds),
    )
    yield _counter(
        "reported_tokens",
        "Tokens as providers reported them; input contains cached and written",
        (*_BY_MODEL, "kind"),
        _by_kind(told, {kind: kind for kind in ("input", "cached", "written", "output")}),
    )
    yield _sums("saved_tokens", "Tokens in less tokens sent; falls where the proxy cost more", told, "tokens_saved")
    yield _counter("cost_usd", "What requests cost", _BY_MODEL, _one(told, "cost"))
    yield _counter(
        "cost_untouched_usd", "What they would have cost without the proxy", _BY_MODEL, _one(told, "untouched")
    )
    yield _sums("saved_usd", "The difference; falls where the proxy cost more", told, "saved")
    yield _counter("rounds", "Requests to providers", _BY_MODEL, _one(told, "rounds"))
    yield _counter(
        "hidden_rounds", "Of these, rounds that clients did not ask for", _BY_MODEL, _one(told, "hidden_rounds")
    )
    yield _counter("tries", "Of these, rounds that were refused and asked again", _BY_MODEL, _one(told, "tries"))


def _frames(metrics: Metrics) -> Iterator[Metric]:
    yield _counter("stack_calls", "Stack calls of models", ("tool",), _named(metrics.calls))
    yield _counter("recalls", "Of these, calls that asked for something back", (), [((), metrics.recalls)])
    yield _counter("regrets", "Files read again that had left the line", ("tool",), _named(metrics.regrets))
    yield _counter("frame_events", "What was decided about frames and lines", ("event",), _named(metrics.events))
    decisions = [((kind, "done" if done else "not_now"), count) for (kind, done), count in metrics.decisions.items()]
    yield _counter("gate_decisions", "What the cost gate was asked, and answered", ("kind", "outcome"), decisions)
    yield _counter(
        "summaries", "Folded spans by what came of summarising them", ("outcome",), _named(metrics.summaries)
    )
    yield _counter(
        "messages",
        "What people said into running conversations, by what became of it",
        ("event",),
        _named(metrics.messages),
    )


def _times(metrics: Metrics) -> Iterator[Metric]:
    yield _histogram("duration_seconds", "From a request's arrival to the end of its answer", metrics.duration)
    yield _histogram("overhead_seconds", "From a request's arrival to its first byte upstream", metrics.overhead)
    yield _histogram("event_loop_lag_seconds", "How late the event loop was, asked twice a second", metrics.lag)


def _recent(metrics: Metrics) -> Iterator[Metric]:
    """O1: the alarm is a number of its own, so that nobody has to know the threshold."""
    requests, bypasses = metrics.recent.told()
    share = sum(bypasses.values()) / requests if requests else 0.0
    yield _gauge("recent_requests", "Requests of the last 5 minutes that the proxy could have rewritten", requests)
    yield _labelled("recent_bypasses", "Of these, those that went around it", ("reason",), _named(bypasses))
    yield _gauge("recent_bypass_share", "Share of these", share)
    yield _gauge("bypass_alarm", "1 where more than 1 in 100 recent requests went around", share > BYPASSED_AT_MOST)


def _now(metrics: Metrics, moment: Moment) -> Iterator[Metric]:
    store = moment.store
    yield _gauge("shelf_conversations", "Conversations in memory", moment.shelved)
    yield _gauge("store_ok", "1 while records are written", store.ok)
    yield _labelled("store_trouble", "Why they are not", ("reason",), [((store.reason,), 1)] if store.reason else [])
    yield _gauge("store_queued_records", "Records that wait to be written", store.queued)
    yield _counter("store_dropped_records", "Records that were given up", (), [((), store.dropped)])
    yield _gauge("store_size_bytes", "The store on disk", store.size_bytes)
    yield _gauge("start_time_seconds", "When this process began, since the epoch", moment.started / 1000)
    yield _labelled("build_info", "The version that runs", ("version",), [((__version__,), 1)])


# --------------------------------------------------------------------------------------------------------------- forms
def _counter(name: str, said: str, labels: tuple[str, ...], rows: Rows) -> Metric:
    """The library adds `_total` to the name."""
    family = CounterMetricFamily(f"callstack_{name}", said, labels=labels)
    for values, number in rows:
        family.add_metric(values, number)
    return family


def _labelled(name: str, said: str, labels: tuple[str, ...], rows: Rows) -> Metric:
    family = GaugeMetricFamily(f"callstack_{name}", said, labels=labels)
    for values, number in rows:
        family.add_metric(values, number)
    return family


def _gauge(name: str, said: str, number: float) -> Metric:
    return _labelled(name, said, (), [((), number)])


def _sums(name: str, said: str, told: Iterable[tuple[tuple[str, str], Sums]], field: str) -> Metric:
    """A sum that may fall is no counter."""
    return _labelled(name, said, _BY_MODEL, _one(told, field))


def _histogram(name: str, said: str, histogram: Histogram) -> Metric:
    """Buckets hold everything up to their bound, so they add up on the way."""
    bounds = [*map(str, histogram.bounds), "+Inf"]
    buckets = list(zip(bounds, accumulate(histogram.counts), strict=True))
    family = HistogramMetricFamily(f"callstack_{name}", said)
    family.add_metric((), buckets=buckets, sum_value=histogram.sum)
    return family


def _named(counts: dict[str, int]) -> Rows:
    return [((name,), count) for name, count in counts.items()]


def _one(told: Iterable[tuple[tuple[str, str], Sums]], field: str) -> Rows:
    return [(key, getattr(sums, field)) for key, sums in told]


def _by_kind(told: Iterable[tuple[tuple[str, str], Sums]], kinds: dict[str, str]) -> Rows:
    return [((*key, kind), getattr(sums, field)) for key, sums in told for kind, field in kinds.items()]
