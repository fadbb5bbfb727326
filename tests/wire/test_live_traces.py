"""Live traces, as a receiver of OpenTelemetry gets them: the SDK's own protocol, and a real socket."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from llm_test_provider import ScriptedProvider, answers, says, status
from tests.harness import does, pop, push
from tests.wire.proxied import LogCapture, ServedProxy
from tests.wire.stage import Starting
from tests.wire.talking import ask, body_of

SECRET = "canary-content-0003"
SOON_S = 10.0


class Receiver:
    """Takes what is posted to `/v1/traces`, and answers `status`."""

    def __init__(self) -> None:
        self.status = 200
        self.raw: list[bytes] = []
        self.resources: list[dict[str, Any]] = []
        self.spans: list[Span] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if receiver.status == 200 and self.path == "/v1/traces":
                    receiver.take(gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body)
                self.send_response(receiver.status if self.path == "/v1/traces" else 404)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        self.raw.append(body)
        for batch in request.resource_spans:
            self.resources.append(values(batch.resource.attributes))
            self.spans += [span for scope in batch.scope_spans for span in scope.spans]

    def named(self, operation: str) -> list[Span]:
        return [span for span in self.spans if told(span)["gen_ai.operation.name"] == operation]


def values(attributes: Any) -> dict[str, Any]:
    found = {}
    for each in attributes:
        kind = each.value.WhichOneof("value")
        value = getattr(each.value, kind)
        found[each.key] = [one.string_value for one in value.values] if kind == "array_value" else value
    return found


def told(span: Span) -> dict[str, Any]:
    return values(span.attributes)


@contextmanager
def listening() -> Iterator[Receiver]:
    receiver = Receiver()
    threading.Thread(target=receiver.server.serve_forever, daemon=True).start()
    try:
        yield receiver
    finally:
        receiver.server.shutdown()
        receiver.server.server_close()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")  # ms; the SDK's own is five seconds
    with listening() as running:
        yield running


def eventually(holds: Callable[[], object]) -> None:
    until = time.monotonic() + SOON_S
    while not holds():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.02)


def work_in_a_frame(proxy: ServedProxy, provider: ScriptedProvider) -> None:
    provider.will(does(push("Fix the rounding")), does(pop("done")), answers("fine"))
    assert ask(proxy.origin, body_of(SECRET, awake=True)).status == 200


def second_turn(first: str) -> dict[str, Any]:
    body = body_of(first, awake=True)
    return {
        **body,
        "messages": [*body["messages"], {"role": "assistant", "content": "hi"}, {"role": "user", "content": "go on"}],
    }


def test_a_request_and_the_frame_that_it_ended_are_spans_of_one_trace(
    start: Starting, provider: ScriptedProvider, receiver: Receiver
) -> None:
    work_in_a_frame(start(otel={"endpoint": receiver.url}), provider)
    eventually(lambda: receiver.named("chat") and receiver.named("invoke_agent"))

    (request,), (frame,) = receiver.named("chat"), receiver.named("invoke_agent")
    assert request.trace_id == frame.trace_id
    assert (request.name, request.kind, frame.name, frame.kind) == ("chat m", Span.SPAN_KIND_CLIENT, "invoke_agent", 1)
    assert frame.parent_span_id == request.parent_span_id != b"", "both stand in the root, which has not ended"
    assert 0 < frame.start_time_unix_nano <= frame.end_time_unix_nano <= request.end_time_unix_nano
    assert told(frame)["callstack.frame.status"] == "completed"
    figures = told(request)
    assert figures["callstack.rounds"] == 3
    assert figures["callstack.tokens.in"] > 0
    assert figures["callstack.saved.usd"] == pytest.approx(
        figures["callstack.cost_untouched.usd"] - figures["callstack.cost.usd"]
    )
    assert receiver.resources[0]["service.name"] == "callstack"


def test_no_word_of_the_conversation_is_sent(start: Starting, provider: ScriptedProvider, receiver: Receiver) -> None:
    work_in_a_frame(start(otel={"endpoint": receiver.url}), provider)
    eventually(lambda: receiver.named("chat") and receiver.named("invoke_agent"))

    sent = b"".join(receiver.raw)
    assert not any(words.encode() in sent for words in (SECRET, "Fix the rounding", "done", "fine"))


def test_titles_are_sent_where_they_are_asked_for(
    start: Starting, provider: ScriptedProvider, receiver: Receiver
) -> None:
    work_in_a_frame(start(otel={"endpoint": receiver.url, "titles": True}), provider)
    eventually(lambda: receiver.named("invoke_agent"))

    (frame,) = receiver.named("invoke_agent")
    assert (frame.name, told(frame)["gen_ai.agent.name"]) == ("invoke_agent Fix the rounding", "Fix the rounding")
    assert SECRET.encode() not in b"".join(receiver.raw)


def test_an_export_has_the_same_spans(start: Starting, provider: ScriptedProvider, receiver: Receiver) -> None:
    """So that a conversation that was traced live may be sent again."""
    proxy = start(otel={"endpoint": receiver.url, "titles": True})
    work_in_a_frame(proxy, provider)
    eventually(lambda: receiver.named("chat") and receiver.named("invoke_agent"))
    (conversation,) = proxy.page("/stack/conversations")["conversations"]
    raw = ask(proxy.origin, method="GET", path=f"/stack/conversations/{conversation['id']}/export?format=otel").body
    exported = {
        (span["traceId"], span["spanId"], span.get("parentSpanId", ""), span["name"])
        for line in raw.splitlines()
        for span in json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    }

    live = {(s.trace_id.hex(), s.span_id.hex(), s.parent_span_id.hex(), s.name) for s in receiver.spans}
    assert live <= exported


def test_a_refused_request_is_a_span_with_an_error(
    start: Starting, provider: ScriptedProvider, receiver: Receiver
) -> None:
    proxy = start(otel={"endpoint": receiver.url})
    provider.will(says("hi"), status(500))
    ask(proxy.origin, body_of("one", awake=True))
    assert ask(proxy.origin, second_turn("one")).status == 500
    eventually(lambda: len(receiver.named("chat")) == 2)

    assert [told(span).get("error.type", "") for span in receiver.named("chat")] == ["", "500"]


def test_a_receiver_that_is_away_costs_spans_and_no_request(
    start: Starting, provider: ScriptedProvider, receiver: Receiver, journal: LogCapture
) -> None:

    def ours() -> list[str]:
        return [
            line.getMessage()
            for line in journal.records
            if line.name.startswith("callstack_proxy.management.telemetry")
        ]

    receiver.status = 400  # an answer that the SDK does not repeat
    proxy = start(otel={"endpoint": receiver.url})
    for _ in range(3):
        provider.will(says("hi"))
        assert ask(proxy.origin, body_of("one")).status == 200
        eventually(lambda: b'callstack_spans_total{outcome="lost"} 0' not in metrics(proxy))
    receiver.status = 200
    provider.will(says("hi"))
    ask(proxy.origin, body_of("two"))
    eventually(lambda: b'callstack_spans_total{outcome="sent"} 0' not in metrics(proxy) and len(ours()) > 1)

    assert receiver.spans
    assert ours() == ["spans cannot be sent to otel.endpoint and are lost until it answers", "spans are sent again"]


def metrics(proxy: ServedProxy) -> bytes:
    return ask(proxy.origin, method="GET", path="/metrics").body


def test_a_sampler_takes_a_conversation_whole_or_not_at_all(
    tmp_path: Path, provider: ScriptedProvider, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK's own variables hold."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    with ServedProxy(provider.url, tmp_path / "sampled", otel={"endpoint": receiver.url}) as proxy:
        for number in range(12):
            provider.will(says("hi"), says("again"))
            ask(proxy.origin, body_of(f"job {number}", awake=True))
            ask(proxy.origin, second_turn(f"job {number}"))

    by_trace = [
        sum(s.trace_id == trace for s in receiver.named("chat")) for trace in {s.trace_id for s in receiver.spans}
    ]
    assert 0 < len(by_trace) < 12
    assert set(by_trace) == {2}


def test_what_is_left_is_sent_at_the_end(
    tmp_path: Path, provider: ScriptedProvider, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")
    with ServedProxy(provider.url, tmp_path / "ending", otel={"endpoint": receiver.url}) as proxy:
        provider.will(says("hi"))
        ask(proxy.origin, body_of("one"))

    assert [span.name for span in receiver.spans] == ["chat m"]


def test_without_the_package_the_start_says_what_to_install(tmp_path: Path) -> None:
    hidden = (
        "import sys, importlib.util as u\n"
        "found = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name.startswith('opentelemetry') else found(name, *a)\n"
        "from callstack_proxy.__main__ import main\n"
        "sys.argv = ['callstack', 'serve', '--upstream', 'http://127.0.0.1:9', '--data', sys.argv[1], '--set',"
        " 'otel.endpoint=http://127.0.0.1:4318']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", hidden, str(tmp_path)], capture_output=True, text=True, timeout=30, check=False,
        env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip

    assert done.returncode == 2
    assert "pip install 'callstack-proxy[otel]'" in done.stderr
    assert "Traceback" not in done.stderr
