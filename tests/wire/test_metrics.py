"""`/metrics` over a socket: what it tells, to whom, and that it tells nothing of anybody."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from callstack_proxy.management.issued_keys import issue_key
from llm_test_provider import ScriptedProvider, answers, call, says, status
from tests.harness import does, pop, push
from tests.wire.proxied import TOKEN, LogCapture, ServedProxy
from tests.wire.stage import Starting
from tests.wire.talking import CHAT, ReceivedAnswer, ask, body_of, connection, exchange, heard

CONTENT = "canary-content-0001"
KEY = "canary-key-0002"


def page(proxy: ServedProxy) -> dict[str, float]:
    """Every sample by its name and labels, read by the parser of the library that scrapers are written with."""
    told = ask(proxy.origin, method="GET", path="/metrics")
    assert (told.status, told.header("content-type").partition(";")[0]) == (200, "text/plain")
    return numbers(told)


def numbers(told: ReceivedAnswer) -> dict[str, float]:
    families = list(text_string_to_metric_families(told.body.decode()))
    assert all(family.documentation for family in families)
    assert len({family.name for family in families}) == len(families)
    found: dict[str, float] = {}
    for sample in (sample for family in families for sample in family.samples):
        labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
        found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def total(told: dict[str, float], name: str) -> float:
    return sum(value for key, value in told.items() if key.partition("{")[0] == name)


def test_every_line_of_a_request_in_the_log_is_one_request_counted(
    start: Starting, provider: ScriptedProvider, journal: LogCapture
) -> None:
    """O1, O3: whatever became of it and whoever refused it."""
    proxy = start()
    provider.will(does(push("x")), says("hi"), status(500))
    ask(proxy.origin, body_of("one", awake=True))
    ask(proxy.origin, body_of("two"))
    ask(proxy.origin, b"no json")
    ask(proxy.origin, body_of("three"), headers={"x-stack-mode": "loud"})
    ask(proxy.origin, body_of("four"), headers={"host": "evil.example"})
    ask(proxy.origin, method="GET", path="/stack/conversations/nothing")
    exchange(proxy.port, b"no http at all\r\n\r\n")
    lines = journal.wait_for_requests(7)
    told = page(proxy)

    assert total(told, "callstack_requests_total") == len(lines) == 7
    for line in lines:
        labels = f"reason={line['stack_reason']},status={line['stack_status']}"
        assert told[f"callstack_requests_total{{{labels}}}"] >= 1
    assert told["callstack_bypasses_total{reason=unreadable}"] == 1
    assert told["callstack_bypass_alarm"] == 0, "the provider could not read it either"


def test_hidden_rounds_calls_and_what_became_of_frames_are_counted(start: Starting, provider: ScriptedProvider) -> None:
    proxy = start()
    provider.will(does(push("work")), does(pop("done")), answers("fine"))
    ask(proxy.origin, body_of(CONTENT, awake=True))
    told = page(proxy)

    assert told["callstack_stack_calls_total{tool=stack_frame_push}"] == 1
    assert told["callstack_stack_calls_total{tool=stack_frame_pop}"] == 1
    assert told["callstack_hidden_rounds_total{model=m,upstream=default}"] == 2
    events = ("woken", "pushed", "popped")
    assert [told[f"callstack_frame_events_total{{event={event}}}"] for event in events] == [1, 1, 1]
    assert told["callstack_answers_total{client_status=2xx,upstream=default,upstream_status=2xx}"] == 1
    assert told["callstack_shelf_conversations"] == 1
    assert told["callstack_tokens_total{kind=own,model=m,upstream=default}"] > 0
    assert told["callstack_duration_seconds_count"] == 1


def test_what_is_decided_on_arrival_is_counted_with_the_request_it_came_with(
    start: Starting, provider: ScriptedProvider, journal: LogCapture
) -> None:
    """Several messages may be new at once: what hangs on any of them happened now, and not with the next request."""
    proxy = start()
    provider.will(says("one"), says("two"))
    several = [{"role": "user", "content": f"part {number}"} for number in range(3)]
    answered = {"role": "assistant", "content": "one"}
    ask(proxy.origin, body_of(awake=True, messages=several))
    ask(proxy.origin, body_of(awake=True, messages=[*several, answered, {"role": "user", "content": "more"}]))
    first, second = (line.get("stack_events", []) for line in journal.wait_for_requests(2))

    assert first[0].startswith("rooted ")
    assert "woken" in first
    assert [event for event in second if event.split()[0] in ("rooted", "woken")] == []


def test_a_tool_the_model_invented_is_no_label_and_no_word_in_the_log(
    start: Starting, provider: ScriptedProvider, journal: LogCapture
) -> None:
    proxy = start()
    provider.will(does(call(f"stack_{CONTENT}")), says("hi"))
    ask(proxy.origin, body_of("x", awake=True))
    told = page(proxy)
    [line] = journal.wait_for_requests(1)

    assert told["callstack_stack_calls_total{tool=unknown}"] == 1
    assert line["stack_calls"] == {"unknown": 1}
    assert CONTENT not in journal.text


def test_a_request_under_way_is_open_and_then_it_is_not(start: Starting, provider: ScriptedProvider) -> None:
    proxy, arrived, go_on = start(), threading.Event(), threading.Event()

    def when_asked(_: object) -> bool:
        arrived.set()
        return go_on.wait(10)

    provider.when(when_asked, says("hi"))
    with connection(proxy.origin) as connected:
        connected.request("POST", CHAT, json.dumps(body_of()))
        assert arrived.wait(10)
        during = page(proxy)["callstack_open_requests"]
        go_on.set()
        assert heard(connected).status == 200

    assert (during, page(proxy)["callstack_open_requests"]) == (1, 0)


def test_the_page_names_nobody(start: Starting, provider: ScriptedProvider, tmp_path: Path) -> None:
    """No tenant, no key, no conversation, no word of a message; the model's name is all that clients decide."""
    key = issue_key(tmp_path / "data" / "keys.json", "somebodys-name")
    proxy = start(tenancy="key")
    provider.will(does(push(CONTENT)), answers("", [call("read_file", path=CONTENT)]))
    headers = {"x-stack-key": key, "authorization": f"Bearer {KEY}", "x-stack-session": CONTENT}
    answer = ask(proxy.origin, body_of(CONTENT, awake=True, user=CONTENT), headers=headers)
    told = ask(proxy.origin, method="GET", path="/metrics", headers={"x-stack-key": TOKEN})

    ids = [answer.header(f"x-stack-{name}") for name in ("conversation", "frame", "request-id")]
    assert all(ids)
    text = told.body.decode()
    assert numbers(told)["callstack_stack_calls_total{tool=stack_frame_push}"] == 1
    assert [word for word in (CONTENT, KEY, key, "somebodys-name", *ids) if word in text] == []


def test_figures_of_all_tenants_are_for_operators(
    start: Starting, provider: ScriptedProvider, journal: LogCapture, tmp_path: Path
) -> None:
    file = tmp_path / "data" / "keys.json"
    ours, admin = issue_key(file, "ours"), issue_key(file, "admin", admin=True)
    proxy = start(tenancy="key")
    asked = [{}, {"x-stack-key": ours}, {"authorization": f"Bearer {admin}"}, {"x-stack-key": TOKEN}]
    told = [ask(proxy.origin, method="GET", path="/metrics", headers=headers) for headers in asked]

    assert [heard.status for heard in told] == [401, 403, 200, 200]
    assert [line["stack_reason"] for line in journal.wait_for_requests(2)] == ["unauthorized", "forbidden"]
    assert provider.received == []


def test_head_tells_the_length_and_nothing_passes_upstream(proxy: ServedProxy, provider: ScriptedProvider) -> None:
    told = ask(proxy.origin, method="HEAD", path="/metrics")
    posted = ask(proxy.origin, b"x", path="/metrics")

    assert (told.status, told.body, int(told.header("content-length")) > 1_000) == (200, b"", True)
    assert (posted.status, provider.received) == (404, [])


# ---------------------------------------------------------------------------------------------------------- dashboard
DASHBOARD = json.loads((Path(__file__).resolve().parents[2] / "deploy" / "grafana.json").read_text())
OF_SCRAPER = {"job", "instance", "le"}
"""Labels that Prometheus adds, and that of a histogram."""


def test_the_dashboard_asks_for_what_the_page_has(start: Starting, provider: ScriptedProvider) -> None:
    """Names of metrics and labels, also of those that only a busy proxy has."""
    proxy = start()
    provider.will(does(push("x")), says("hi"))
    ask(proxy.origin, body_of("one", awake=True))
    families = list(text_string_to_metric_families(ask(proxy.origin, method="GET", path="/metrics").body.decode()))
    samples = [sample for family in families for sample in family.samples]
    names = {sample.name for sample in samples} | {f"{f.name}_total" for f in families if f.type == "counter"}
    names |= {family.name for family in families}
    labels = {label for sample in samples for label in sample.labels} | OF_SCRAPER

    asked = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    asked += [each["query"] for each in DASHBOARD["templating"]["list"]]
    found = {name for query in asked for name in re.findall(r"\b(?:callstack|process)_\w+", query)}
    grouped = {
        label for query in asked for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(", ")
    }

    assert found - names == set()
    assert grouped - labels == set()
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
