"""Renders the metrics in the Prometheus text format, for `GET /metrics`. The names are an interface:
`docs/operation.md` lists them. The library costs 25 ms and 3 MB to import, so the app imports this module at the first
scrape."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from proxy import __version__
from proxy.store import Health
from proxy.telemetry import MAX_BYPASS_SHARE, Histogram, Metrics, ModelTotals

LabelledValues = Iterable[tuple[tuple[str, ...], float]]
"""Values of the labels, and their number."""


@dataclass(frozen=True, slots=True)
class ProcessState:
    """Current state that is not counted."""

    store: Health
    cached_conversations: int
    started_at: int


def render_metrics(metrics: Metrics, store: Health, cached: int, started: int) -> tuple[bytes, bytes]:
    """Content type and page. `cached` is the number of conversations in memory, `started` is in ms since the epoch."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_MetricsCollector(metrics, ProcessState(store, cached, started)))
    ProcessCollector(registry=registry)  # memory, processor time, open files: where the system tells them
    return CONTENT_TYPE_LATEST.encode(), generate_latest(registry)


class _MetricsCollector(Collector):
    """The library's interface for numbers that it did not count itself."""

    def __init__(self, metrics: Metrics, state: ProcessState) -> None:
        self._metrics = metrics
        self._state = state

    def collect(self) -> Iterator[Metric]:
        yield from _request_families(self._metrics)
        yield from _token_and_cost_families(self._metrics)
        yield from _frame_families(self._metrics)
        yield from _time_families(self._metrics)
        yield from _recent_families(self._metrics)
        yield from _process_families(self._metrics, self._state)


_MODEL_LABELS = ("upstream", "model")


def _request_families(metrics: Metrics) -> Iterator[Metric]:
    bypasses = [((reason,), count) for (status, reason), count in metrics.requests.items() if status == "bypass"]
    yield _counter("requests", "Requests by what the client was told", ("status", "reason"), metrics.requests.items())
    yield _counter("bypasses", "Requests that went upstream without the proxy", ("reason",), bypasses)
    yield _counter(
        "answers",
        "Requests by upstream, class of its last status, and class of the status the client was told",
        ("upstream", "upstream_status", "client_status"),
        metrics.answers.items(),
    )
    yield _counter(
        "milder_requests",
        "Requests in a milder form, because their provider refused the full one",
        (*_MODEL_LABELS, "form"),
        metrics.forms.items(),
    )
    yield _counts("spans", "Spans for the OpenTelemetry receiver, sent or lost", "outcome", metrics.spans)
    yield _gauge("open_requests", "Requests being answered, streams among them", metrics.open_requests)


def _token_and_cost_families(metrics: Metrics) -> Iterator[Metric]:
    """Our estimates, and the provider's reported numbers beside them."""
    sums = metrics.sums.items()
    yield _counter(
        "tokens",
        "Tokens as counted here: in from clients, sent upstream, and of those our own",
        (*_MODEL_LABELS, "kind"),
        _values_by_kind(sums, {"in": "tokens_in", "sent": "tokens_sent", "own": "tokens_own"}),
    )
    yield _counter(
        "reported_tokens",
        "Tokens as providers reported them; input contains cached and written",
        (*_MODEL_LABELS, "kind"),
        _values_by_kind(sums, {kind: kind for kind in ("input", "cached", "written", "output")}),
    )
    for family, name, description, field in _SUMS:
        yield family(name, description, _MODEL_LABELS, [(key, getattr(each, field)) for key, each in sums])


def _frame_families(metrics: Metrics) -> Iterator[Metric]:
    yield _counts("stack_calls", "Stack calls of models", "tool", metrics.calls)
    yield _counter("recalls", "Of these, calls that asked for something back", (), [((), metrics.recalls)])
    yield _counts("regrets", "Files read again that had left the line", "tool", metrics.rereads)
    yield _counts("frame_events", "What was decided about frames and lines", "event", metrics.events)
    decisions = [((kind, "done" if done else "not_now"), count) for (kind, done), count in metrics.decisions.items()]
    yield _counter("gate_decisions", "What the cost gate was asked, and answered", ("kind", "outcome"), decisions)
    yield _counts("summaries", "Folded spans by what came of summarising them", "outcome", metrics.summaries)
    pings = "Pings to keep the provider's prompt cache, by what came of them"
    yield _counts("cache_pings", pings, "outcome", metrics.cache_pings)
    said = "What people said into running conversations, by what became of it"
    yield _counts("messages", said, "event", metrics.messages)


def _time_families(metrics: Metrics) -> Iterator[Metric]:
    yield _histogram("duration_seconds", "From a request's arrival to the end of its answer", metrics.duration)
    yield _histogram("overhead_seconds", "From a request's arrival to its first byte upstream", metrics.overhead)
    yield _histogram("event_loop_lag_seconds", "How late the event loop was, asked twice a second", metrics.lag)


def _recent_families(metrics: Metrics) -> Iterator[Metric]:
    """The alarm is a number of its own, so that nobody has to know the threshold."""
    requests, bypasses = metrics.recent.counts()
    share = sum(bypasses.values()) / requests if requests else 0.0
    yield _gauge("recent_requests", "Requests of the last 5 minutes that the proxy could have rewritten", requests)
    yield _labelled_gauge(
        "recent_bypasses", "Of these, those that went around it", ("reason",), _values_by_name(bypasses)
    )
    yield _gauge("recent_bypass_share", "Share of these", share)
    yield _gauge("bypass_alarm", "1 where more than 1 in 100 recent requests went around", share > MAX_BYPASS_SHARE)


def _process_families(metrics: Metrics, state: ProcessState) -> Iterator[Metric]:
    store = state.store
    yield _gauge("shelf_conversations", "Conversations in memory", state.cached_conversations)
    yield _gauge("store_ok", "1 while records are written", store.ok)
    yield _labelled_gauge(
        "store_trouble", "Why they are not", ("reason",), [((store.reason,), 1)] if store.reason else []
    )
    yield _gauge("store_queued_records", "Records that wait to be written", store.queued)
    yield _counter("store_dropped_records", "Records that were given up", (), [((), store.dropped)])
    yield _gauge("store_size_bytes", "The store on disk", store.size_bytes)
    exhausted = [((), metrics.descriptor_exhaustions)]
    yield _counter("descriptors_exhausted", "Times that no file descriptor was left", (), exhausted)
    yield _counter("log_dropped_lines", "Lines of the log that nobody took", (), [((), metrics.dropped_log_lines())])
    yield _gauge("start_time_seconds", "When this process began, since the epoch", state.started_at / 1000)
    yield _labelled_gauge("build_info", "The version that runs", ("version",), [((__version__,), 1)])


# --------------------------------------------------------------------------------------------------------------- forms
def _family(family: CounterMetricFamily | GaugeMetricFamily, rows: LabelledValues) -> Metric:
    for values, number in rows:
        family.add_metric(values, number)
    return family


def _counter(name: str, description: str, labels: tuple[str, ...], rows: LabelledValues) -> Metric:
    return _family(CounterMetricFamily(f"callstack_{name}", description, labels=labels), rows)


def _labelled_gauge(name: str, description: str, labels: tuple[str, ...], rows: LabelledValues) -> Metric:
    return _family(GaugeMetricFamily(f"callstack_{name}", description, labels=labels), rows)


def _counts(name: str, description: str, label: str, counts: dict[str, int]) -> Metric:
    return _counter(name, description, (label,), _values_by_name(counts))


def _gauge(name: str, description: str, number: float) -> Metric:
    return _labelled_gauge(name, description, (), [((), number)])


def _histogram(name: str, description: str, histogram: Histogram) -> Metric:
    bounds = [*map(str, histogram.bounds), "+Inf"]
    buckets = list(zip(bounds, accumulate(histogram.counts), strict=True))
    family = HistogramMetricFamily(f"callstack_{name}", description)
    family.add_metric((), buckets=buckets, sum_value=histogram.sum)
    return family


def _values_by_name(counts: dict[str, int]) -> LabelledValues:
    return [((name,), count) for name, count in counts.items()]


def _values_by_kind(told: Iterable[tuple[tuple[str, str], ModelTotals]], kinds: dict[str, str]) -> LabelledValues:
    return [((*key, kind), getattr(sums, field)) for key, sums in told for kind, field in kinds.items()]


_SUMS = (
    (_labelled_gauge, "saved_tokens", "Tokens in less tokens sent; falls where the proxy cost more", "tokens_saved"),
    (_counter, "cost_usd", "What requests cost", "cost"),
    (_counter, "cost_untouched_usd", "What they would have cost without the proxy", "untouched"),
    (_labelled_gauge, "saved_usd", "The difference; falls where the proxy cost more", "saved"),
    (_counter, "rounds", "Requests to providers", "rounds"),
    (_counter, "hidden_rounds", "Of these, rounds that clients did not ask for", "hidden_rounds"),
    (_counter, "tries", "Of these, rounds that were refused and asked again", "tries"),
)
"""Figures by upstream and model, each a field of `ModelTotals`. A sum that may fall is not a counter."""
