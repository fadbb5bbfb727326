"""What is counted, as values: names are few, what is recent ends, and a saving may fall."""

import re
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from callstack_proxy.management.telemetry.prometheus import render_metrics
from proxy.accounting import GateDecision, Receipt, RequestOutcome
from proxy.accounting.prompt_cache import CacheUse
from proxy.core.ledger.messages import Usage
from proxy.store.interface import Health
from proxy.telemetry.metrics import MAX_LABEL_CHARS, MAX_LABEL_NAMES, OTHER_LABEL, RECENT_WINDOW_S, SLOT_S, Metrics
from tests.pace import slowness

OPERATION = Path(__file__).parents[2] / "docs" / "operation.md"
BUDGET_US = 5
NO_CALLS: dict[str, int] = {}
FINE = Health(ok=True, where="memory")


def receipt(**more: object) -> Receipt:
    """An awake request of two rounds, one of them hidden."""
    usual: dict[str, object] = {
        "id": "r1", "conversation": "c1", "model": "gpt-5", "upstream": "default", "status": "full",
        "client_status": 200, "upstream_status": 200, "duration_ms": 900.0, "overhead_ms": 3.0, "rounds": 2,
        "tokens_in": 100, "tokens_sent": 130, "tokens_last": 70, "tokens_saved": -30, "fixed_in": 10, "fixed_sent": 20,
        "own_tools": 5, "own_texts": 6, "own_rounds": 60, "sent": CacheUse(), "untouched": CacheUse(),
        "usage": Usage(130, 20, 50, 10), "usage_by_round": (), "cost": 0.5, "cost_untouched": 0.25, "saved": -0.25,
        "basis": "reported", "priced": True, "output_priced": True,
    }  # fmt: skip
    return Receipt(**usual | more)  # type: ignore[arg-type]


def samples(metrics: Metrics, store: Health = FINE) -> dict[str, float]:
    """Every line of the page: `name{label=value,...}` and its number. The library's own parser reads it."""
    _, page = render_metrics(metrics, store, 3, 7_000)
    found = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            key = f"{sample.name}{{{labels}}}" if labels else sample.name
            assert key not in found, f"{key} is told twice"
            found[key] = sample.value
    return found


def test_a_receipt_is_added_to_its_model() -> None:
    metrics = Metrics()
    for _ in range(2):
        metrics.count_request(receipt(), {"stack_recall": 1, "stack": 2})
    told = samples(metrics)

    at = "model=gpt-5,upstream=default"
    assert told["callstack_requests_total{reason=,status=full}"] == 2
    assert told["callstack_answers_total{client_status=2xx,upstream=default,upstream_status=2xx}"] == 2
    assert [told[f"callstack_tokens_total{{kind={kind},{at}}}"] for kind in ("in", "sent", "own")] == [200, 260, 142]
    reported = ("input", "cached", "written", "output")
    assert [told[f"callstack_reported_tokens_total{{kind={kind},{at}}}"] for kind in reported] == [260, 100, 20, 40]
    assert told[f"callstack_cost_usd_total{{{at}}}"] == 1.0
    assert told[f"callstack_cost_untouched_usd_total{{{at}}}"] == 0.5
    assert (told[f"callstack_rounds_total{{{at}}}"], told[f"callstack_hidden_rounds_total{{{at}}}"]) == (4, 2)
    assert told["callstack_stack_calls_total{tool=stack}"] == 4
    assert told["callstack_duration_seconds_bucket{le=1.0}"] == 2
    assert told["callstack_duration_seconds_bucket{le=0.5}"] == 0
    assert told["callstack_overhead_seconds_count"] == 2


def test_a_saving_may_be_a_loss() -> None:
    """O2: negative is shown as negative, so it is no counter."""
    metrics = Metrics()
    metrics.count_request(receipt(), NO_CALLS)
    told = samples(metrics)

    assert told["callstack_saved_tokens{model=gpt-5,upstream=default}"] == -30
    assert told["callstack_saved_usd{model=gpt-5,upstream=default}"] == -0.25


def test_a_round_that_was_asked_again_is_no_hidden_one() -> None:
    metrics = Metrics()
    metrics.count_request(receipt(rounds=3), NO_CALLS, tries=1)
    told = samples(metrics)

    assert told["callstack_hidden_rounds_total{model=gpt-5,upstream=default}"] == 1
    assert told["callstack_tries_total{model=gpt-5,upstream=default}"] == 1


def test_what_the_gate_answered_and_what_became_of_frames_is_counted_by_kind() -> None:
    metrics = Metrics()
    asked = (GateDecision("fold", "f1", True, "gate"), GateDecision("fold", "f2", False, "not_yet"))
    metrics.count_request(receipt(events=("woken", "pushed f1", "popped f1"), decisions=asked), NO_CALLS)
    told = samples(metrics)

    assert told["callstack_gate_decisions_total{kind=fold,outcome=done}"] == 1
    assert told["callstack_gate_decisions_total{kind=fold,outcome=not_now}"] == 1
    assert [told[f"callstack_frame_events_total{{event={kind}}}"] for kind in ("woken", "pushed", "popped")] == [1] * 3
    assert not [name for name in told if "f1" in name or "f2" in name]


def test_labels_are_few_whatever_clients_write() -> None:
    metrics = Metrics()
    for number in range(MAX_LABEL_NAMES * 3):
        metrics.count_request(receipt(model=f"model-{number}", reason=f"reason-{number}"), NO_CALLS)
    models = {model for _, model in metrics.sums}

    assert len(models) == MAX_LABEL_NAMES + 1
    assert OTHER_LABEL in models
    assert len(metrics.requests) == MAX_LABEL_NAMES + 1
    assert sum(sums.tokens_in for sums in metrics.sums.values()) == 100 * MAX_LABEL_NAMES * 3


def test_a_model_that_no_provider_accepted_takes_no_name() -> None:
    """Else anybody could fill the list of names with words of his own."""
    metrics = Metrics()
    for number in range(MAX_LABEL_NAMES * 3):
        metrics.count_request(receipt(model=f"guess-{number}", client_status=404, upstream_status=404), NO_CALLS)
    metrics.count_request(receipt(model="gpt-5"), NO_CALLS)

    assert {model for _, model in metrics.sums} == {"unanswered", "gpt-5"}


def test_a_name_is_short_and_breaks_no_line() -> None:
    metrics = Metrics()
    metrics.count_request(receipt(model='a"b\\\n' + "x" * 1_000), NO_CALLS)
    [(_, model)] = metrics.sums

    assert len(model) == MAX_LABEL_CHARS
    assert samples(metrics)[f"callstack_rounds_total{{model={model},upstream=default}}"] == 2


def test_an_endpoint_that_is_none_of_ours_costs_no_tokens_and_is_no_chance_to_act() -> None:
    metrics = Metrics()
    metrics.count_request(RequestOutcome(id="r", upstream="default", client_status=200, upstream_status=200), NO_CALLS)
    told = samples(metrics)

    assert told["callstack_requests_total{reason=,status=}"] == 1
    assert told["callstack_recent_requests"] == 0
    assert not [name for name in told if name.startswith("callstack_tokens")]


# ---------------------------------------------------------------------------------------------------------------- O1
class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_o1_more_than_one_in_a_hundred_recent_bypasses_is_an_alarm() -> None:
    metrics = Metrics(Clock())
    for _ in range(99):
        metrics.count_request(receipt(), NO_CALLS)
    metrics.count_request(RequestOutcome(id="r", status="bypass", reason="store_locked"), NO_CALLS)
    at_the_border = samples(metrics)
    metrics.count_request(RequestOutcome(id="r", status="bypass", reason="too_slow"), NO_CALLS)
    beyond = samples(metrics)

    assert (at_the_border["callstack_recent_bypass_share"], at_the_border["callstack_bypass_alarm"]) == (0.01, 0)
    assert beyond["callstack_bypass_alarm"] == 1
    assert beyond["callstack_recent_bypasses{reason=too_slow}"] == 1
    assert beyond["callstack_bypasses_total{reason=store_locked}"] == 1


@pytest.mark.parametrize(("upstream_status", "counted"), [(400, 0), (422, 0), (200, 1), (500, 1), (0, 1)])
def test_o1_a_body_that_the_provider_refuses_too_is_none_that_we_could_have_rewritten(
    upstream_status: int, counted: int
) -> None:
    metrics = Metrics(Clock())
    metrics.count_request(
        RequestOutcome(id="r", status="bypass", reason="unreadable", upstream_status=upstream_status), NO_CALLS
    )
    told = samples(metrics)

    assert (told["callstack_recent_requests"], told["callstack_bypass_alarm"]) == (counted, counted)
    assert told["callstack_bypasses_total{reason=unreadable}"] == 1


def test_o1_what_is_older_than_five_minutes_is_not_recent() -> None:
    clock = Clock()
    metrics = Metrics(clock)
    metrics.count_request(RequestOutcome(id="r", status="bypass", reason="store_locked"), NO_CALLS)
    clock.now += RECENT_WINDOW_S - SLOT_S
    metrics.count_request(receipt(), NO_CALLS)
    still = samples(metrics)
    clock.now += SLOT_S
    gone = samples(metrics)

    assert (still["callstack_recent_requests"], still["callstack_bypass_alarm"]) == (2, 1)
    assert (gone["callstack_recent_requests"], gone["callstack_bypass_alarm"]) == (1, 0)
    assert gone["callstack_bypasses_total{reason=store_locked}"] == 1


def test_a_store_in_trouble_is_told_with_its_word() -> None:
    store = Health(ok=False, where="x", reason="store_full", size_bytes=9, queued=4, dropped=2)
    told = samples(Metrics(), store)

    assert (told["callstack_store_ok"], told["callstack_store_trouble{reason=store_full}"]) == (0, 1)
    assert (told["callstack_store_queued_records"], told["callstack_store_dropped_records_total"]) == (4, 2)
    assert (told["callstack_shelf_conversations"], told["callstack_start_time_seconds"]) == (3, 7)


def test_counting_a_request_costs_next_to_nothing() -> None:
    """Measured: 2 us. The best of several runs, for others use the machine too."""
    metrics, told = Metrics(), receipt(events=("pushed f1",), decisions=(GateDecision("fold", "f1", False, "gate"),))

    def spent() -> float:
        began = time.process_time()
        for _ in range(2_000):
            metrics.count_request(told, {"stack_recall": 1})
        return (time.process_time() - began) / 2_000 * 1e6

    assert min(spent() for _ in range(10)) < BUDGET_US * slowness()


def test_the_page_on_operation_names_every_metric_there_is() -> None:
    metrics = Metrics()
    metrics.count_request(receipt(), NO_CALLS)
    _, page = render_metrics(metrics, Health(ok=False, where="x", reason="store_full"), 0, 0)
    told = set(re.findall(r"^# TYPE (callstack_\w+)", page.decode(), re.MULTILINE))
    written = re.findall(r"^\| `(callstack_\w+)` \|", OPERATION.read_text(), re.MULTILINE)

    assert sorted(told) == sorted(written)
