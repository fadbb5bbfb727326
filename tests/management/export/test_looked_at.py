"""Exports that are looked at: flame graphs, spans, the hand-over, and what is kept out of all of them."""

import dataclasses
import json
import re

import msgspec
import pytest
from msgspec.structs import replace

from callstack_proxy.management.export import flamegraph as flames
from callstack_proxy.management.export import handover
from callstack_proxy.management.export import otel as spans
from callstack_proxy.management.export.export_formats import export_formats, format_named, measure_named
from callstack_proxy.management.export.redaction import without_credentials
from callstack_proxy.management.export.source import ExportInput
from callstack_proxy.management.reports import sum_receipts
from proxy.accounting import Receipt
from proxy.core.frames.events import (
    DecisionAdded,
    FrameInvalidated,
    FramePlanned,
    FramePopped,
    FramePushed,
    RootStarted,
)
from proxy.core.frames.tree import Status
from proxy.core.ledger.ledger import EntryKind
from proxy.core.ledger.messages import Call
from proxy.errors import BadRequest
from proxy.store.interface import RequestRecord
from tests.management.api.small_ledger import Writing, message
from tests.management.export.conftest import ExportStores, Json, Small

HOSTILE = "</details> # Big\n> out `of` [it](x) <script>alert(1)</script>; a | b"
UNITS = {"none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"}


@pytest.fixture
def busy(stores: ExportStores, small: Small) -> ExportInput:
    """Three requests, paid for by two frames and by one that is not on this path."""
    (receipt,) = small.material.receipts
    paid = [(small.written.root, 1), (small.written.child, 2), ("gone", 4)]
    records = [
        _record(small.material.records[0], replace_receipt(receipt, frame, times, number))
        for number, (frame, times) in enumerate(paid)
    ]
    return dataclasses.replace(small.material, records=tuple(records))


def replace_receipt(receipt: Receipt, frame: str, times: int, number: int) -> Receipt:
    return msgspec.structs.replace(
        receipt, id=f"r{number}", frame=frame, tokens_sent=receipt.tokens_sent * times, cost=0.001 * times,
        duration_ms=100.0 * times, client_status=500 if number == 2 else 200,
    )  # fmt: skip


def _record(like: RequestRecord, receipt: Receipt) -> RequestRecord:
    return replace(like, id=receipt.id, frame=receipt.frame, receipt=msgspec.json.encode(receipt))


# --------------------------------------------------------------------------------------------------------------- flames
@pytest.mark.rows("S1-167")
def test_a_speedscope_file_is_what_speedscope_reads(busy: ExportInput) -> None:
    """S1-167. Every rule of the file format: members, units, indexes in range, as many weights as samples."""
    told = json.loads(b"".join(flames.render_speedscope(busy)))

    assert told["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert set(told) <= {"$schema", "shared", "profiles", "name", "activeProfileIndex", "exporter"}
    frames = told["shared"]["frames"]
    assert all(set(frame) <= {"name", "file", "line", "col"} and frame["name"] for frame in frames)
    assert 0 <= told["activeProfileIndex"] < len(told["profiles"])
    for profile in told["profiles"]:
        assert set(profile) == {"type", "name", "unit", "startValue", "endValue", "samples", "weights"}
        assert (profile["type"], profile["unit"] in UNITS) == ("sampled", True)
        assert len(profile["samples"]) == len(profile["weights"])
        assert all(0 <= at < len(frames) for stack in profile["samples"] for at in stack)
        assert all(weight >= 0 for weight in profile["weights"])
        assert profile["endValue"] - profile["startValue"] == pytest.approx(sum(profile["weights"]))


@pytest.mark.rows("S1-167")
def test_the_widths_add_up_to_the_totals(busy: ExportInput) -> None:
    """S1-167: the same figures as `callstack report`."""
    profiles = {p["name"]: p for p in json.loads(b"".join(flames.render_speedscope(busy)))["profiles"]}
    every = sum_receipts(busy.receipts)

    assert sum(profiles["tokens sent"]["weights"]) == every.tokens_sent
    assert sum(profiles["cost in millionths of a USD"]["weights"]) == pytest.approx(every.cost * 1e6)
    assert sum(profiles["time in ms"]["weights"]) == pytest.approx(700)
    assert sum(profiles["tokens the model wrote"]["weights"]) == every.reported_output


@pytest.mark.rows("S1-167")
def test_a_stack_is_the_way_from_the_root_to_the_frame_that_paid(busy: ExportInput, small: Small) -> None:
    """S1-167, collapsed: frames joined by semicolons, then the width; what is not on the path stands apart."""
    (receipt,) = small.material.receipts
    rows = b"".join(flames.render_collapsed(busy)).decode().splitlines()

    root, child = (f"Make the suite green [{small.written.root}]", f"Fix rounding [{small.written.child}]")
    assert rows == [
        f"{root} {receipt.tokens_sent}",
        f"{root};{child} {receipt.tokens_sent * 2}",
        f"(no frame) {receipt.tokens_sent * 4}",
    ]
    assert b"".join(flames.render_collapsed(busy, "cost")).decode().splitlines()[1] == f"{root};{child} 2000"


# ---------------------------------------------------------------------------------------------------------------- spans
def all_spans(export_input: ExportInput) -> list[Json]:
    batches = [json.loads(line) for line in spans.span_batches(export_input)]
    return [span for b in batches for r in b["resourceSpans"] for s in r["scopeSpans"] for span in s["spans"]]


def told(span: Json) -> Json:
    """Attributes by name, as their values."""
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


def test_spans_have_the_form_of_otlp_in_json(busy: ExportInput) -> None:
    """Ids are hex of 16 and 8 bytes, 64-bit numbers are strings, a span does not end before it begins."""
    found = all_spans(busy)

    assert len({span["spanId"] for span in found}) == len(found)
    assert len({span["traceId"] for span in found}) == 1
    for span in found:
        assert re.fullmatch("[0-9a-f]{32}", span["traceId"])
        assert re.fullmatch("[0-9a-f]{16}", span["spanId"])
        assert span.get("parentSpanId", "0" * 16) in {"0" * 16, *(other["spanId"] for other in found)}
        assert 0 < int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
        assert all(set(one) == {"key", "value"} and len(one["value"]) == 1 for one in span["attributes"])
        ints = [one["value"]["intValue"] for one in span["attributes"] if "intValue" in one["value"]]
        assert all(isinstance(number, str) for number in ints)


def test_frames_requests_and_calls_are_told_by_the_genai_conventions(busy: ExportInput, small: Small) -> None:
    found = all_spans(busy)
    by_operation: dict[str, list[Json]] = {}
    for span in found:
        by_operation.setdefault(told(span)["gen_ai.operation.name"], []).append(span)

    assert {name: len(spans_of) for name, spans_of in by_operation.items()} == {
        "invoke_agent": 3, "chat": 3, "execute_tool": 1
    }  # fmt: skip
    request = by_operation["chat"][1]
    assert (request["name"], request["kind"]) == ("chat gpt-5", 3)
    assert told(request).items() >= {
        "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-5", "gen_ai.usage.input_tokens": "2100",
        "gen_ai.usage.output_tokens": "50", "gen_ai.conversation.id": small.written.conversation,
    }.items()  # fmt: skip
    child = next(s for s in by_operation["invoke_agent"] if told(s)["callstack.frame.id"] == small.written.child)
    assert request["parentSpanId"] == child["spanId"]
    (call,) = by_operation["execute_tool"]
    assert (call["name"], told(call)["gen_ai.tool.name"], told(call)["gen_ai.tool.call.id"]) == (
        "execute_tool read", "read", "call_read"
    )  # fmt: skip
    assert call["parentSpanId"] == child["spanId"]


def test_what_failed_says_so(busy: ExportInput) -> None:
    failed = [span for span in all_spans(busy) if span["status"]["code"] == 2]

    assert [told(span)["error.type"] for span in failed] == ["500"]


def test_no_span_holds_what_was_said(busy: ExportInput) -> None:
    """Arguments, results and texts stay out; titles are told."""
    raw = b"".join(spans.span_batches(busy))

    assert b"Fix rounding" in raw
    assert not any(text in raw for text in (b"billing.py", b"round(total", b"Billing is green", b"Decimal until"))


def test_the_same_conversation_makes_the_same_spans(busy: ExportInput) -> None:
    assert list(spans.span_batches(busy)) == list(spans.span_batches(busy))


# ------------------------------------------------------------------------------------------------------------- hand-
# over
def hostile() -> Writing:
    at = Writing("local", "conversation")
    at.entry(EntryKind.MESSAGE, message("user", f"make it work\n{HOSTILE}"))
    at.event(RootStarted("froot", HOSTILE, "it works"))
    at.event(FramePlanned("fplan", "froot", "Write it down", "a page"))
    at.event(FramePushed("fa", "froot", "Build", "it builds", "t", "c1", "block"))
    at.event(DecisionAdded("fa", f"use make {HOSTILE}"))
    at.event(FramePopped("fa", Status.COMPLETED, "built with make", "", artifacts=("Makefile",)))
    at.event(FramePushed("fb", "froot", "Test", "tests pass", "t", "c2", "block"))
    at.event(FramePopped("fb", Status.FAILED, "two tests hang", ""))
    at.event(FramePushed("fc", "froot", "Ship", "shipped", "t", "c3", "block"))
    at.event(FramePopped("fc", Status.BLOCKED, "no credentials", ""))
    at.event(FramePlanned("fd", "froot", "Fireworks", "boom"))
    at.event(FrameInvalidated("fd", "no budget"))
    at.entry(EntryKind.MESSAGE, message("assistant", "I wait for credentials."))
    return at


@pytest.fixture
def page(stores: ExportStores) -> str:
    stores.fill("from", hostile().records)
    return b"".join(handover.render_page(stores.material("from", "conversation"))).decode()


def sections(page: str) -> dict[str, str]:
    parts = re.split(r"^## (.+)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_a_hand_over_says_what_whoever_goes_on_has_to_know(page: str) -> None:
    """S2-28..31 for people: what was asked, what came of it, decisions, files, what is open, where the rest is."""
    found = sections(page)

    assert list(found) == [
        "What was asked", "What was done", "Decisions", "Files and other artifacts", "What is open", "Where the rest is"
    ]  # fmt: skip
    assert "> make it work" in found["What was asked"]
    done = ("built with make", "two tests hang", "no credentials", "no budget", "Write it down")
    assert all(text in found["What was done"] for text in done)
    assert "use make" in found["Decisions"]
    assert "Makefile" in found["Files and other artifacts"]
    assert "I wait for credentials." in found["What is open"]
    assert all(
        name in found["Where the rest is"] for name in ("callstack log", "stack\\_recall"[:5], "callstack import")
    )


def test_what_is_open_begins_with_what_is_under_way(page: str) -> None:
    rows = re.findall(r"^\d+\. ([a-z ]+):", sections(page)["What is open"], re.MULTILINE)

    assert rows == ["under way", "blocked", "planned", "failed"]


def test_no_text_of_a_conversation_becomes_markup(page: str) -> None:
    """S1-156 for Markdown: no heading, tag, link or end of a quote comes from what was said."""
    assert len(re.findall("^# ", page, re.MULTILINE)) == 1
    assert not re.search(r"(?<!\\)<", page)
    assert not re.search(r"(?<!\\)\[it", page)
    assert not re.search("^> out", page, re.MULTILINE)


# ---------------------------------------------------------------------------------------------------------- credentials
def test_credentials_in_a_body_leave_no_export() -> None:
    """A8: tokens for tool servers, and keys that libraries put beside the messages."""
    body = json.dumps({
        "model": "m", "api_key": "sk-1", "extra_headers": {"x": "sk-2"}, "messages": [{"role": "user", "content": "x"}],
        "mcp_servers": [{"type": "url", "url": "u", "name": "n", "authorization_token": "sk-3"}],
        "tools": [{"type": "mcp", "server_label": "l", "headers": {"authorization": "sk-4"}, "authorization": "sk-5"},
                  {"type": "function", "function": {"name": "f", "parameters": {"properties": {"headers": {}}}}}],
    }).encode()  # fmt: skip

    left = without_credentials(body)

    assert b"sk-" not in left
    assert json.loads(left)["mcp_servers"] == [{"type": "url", "url": "u", "name": "n"}]
    assert json.loads(left)["tools"][1]["function"]["parameters"] == {"properties": {"headers": {}}}


@pytest.mark.parametrize("body", [b'{"model" : "m",  "tools":[ {"type":"function"} ]}', b"no json", b"[1]", b""])
def test_a_body_without_credentials_stays_as_it_is(body: bytes) -> None:
    assert without_credentials(body) is body


def test_the_newest_body_in_a_ledger_has_no_credentials(stores: ExportStores, small: Small) -> None:
    """A8."""
    request = small.material.newest_request
    assert request is not None
    body = json.dumps({"model": "m", "api_key": "sk-1", "messages": []}).encode()
    export_input = dataclasses.replace(small.material, newest_request=replace(request, body=(body,)))

    assert b"sk-1" not in stores.export(export_input, "ledger", "out.jsonl").read_bytes()


# ---------------------------------------------------------------------------------------------------------------
# formats
@pytest.mark.parametrize(("asked", "near"), [("speedscop", "speedscope"), ("OTEL", "otel"), ("hand-over", "handover")])
def test_an_unknown_format_is_answered_with_the_nearest(asked: str, near: str) -> None:
    with pytest.raises(BadRequest, match=f"Did you mean '{near}'") as refused:
        format_named(asked)

    assert all(name in str(refused.value) for name in export_formats())


def test_an_unknown_measure_is_answered_with_those_there_are() -> None:
    with pytest.raises(BadRequest, match="tokens, output, cost, time"):
        measure_named("zzz")


@pytest.mark.rows("S3-27")
def test_a_call_whose_arguments_are_no_json_is_told_as_it_is(stores: ExportStores) -> None:
    """S3-27: a line for it like for any other."""
    at = Writing("local", "conversation")
    at.entry(EntryKind.MESSAGE, message("user", "go", ()))
    at.event(RootStarted("froot", "Go", "done"))
    at.entry(EntryKind.MESSAGE, message("assistant", "", (Call("c", "bash", '{"cut of'),)))
    stores.fill("from", at.records)

    place = stores.export(stores.material("from", "conversation"), "jetbox", "out")

    (line,) = [json.loads(row) for row in (place / "history.jsonl").read_bytes().splitlines()]
    assert (line["args"], line["result"], line["status"]) == ('{"cut of', None, "pending")
    assert line["timestamp"].startswith("2023-11-14T22:13")
