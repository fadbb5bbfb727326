"""The format `otel`: the spans of `callstack_proxy.management.telemetry` as OTLP in JSON, one batch per line.

Of texts only frame titles are exported. OTLP in JSON writes ids in hex and 64-bit numbers as strings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from callstack_proxy.management.export.base import LINES, ExportFormat
from callstack_proxy.management.export.items import json_line
from callstack_proxy.management.export.jetbox import actions_of
from callstack_proxy.management.export.source import ExportInput
from callstack_proxy.management.telemetry import AttributeValue, Span, frame_span, request_span, tool_span
from proxy import __version__

SPANS_PER_BATCH = 256
"""Spans per line."""
SPAN_KIND_INTERNAL, SPAN_KIND_CLIENT = 1, 3
STATUS_OK, STATUS_ERROR = 1, 2


def span_batches(export_input: ExportInput) -> Iterator[bytes]:
    """All spans: frames, then requests, then calls."""
    frames = export_input.path_state.tree.frames
    encoded = (_encode_span(span, has_parent=span.parent_frame in frames) for span in _spans(export_input))
    while batch := list(islice(encoded, SPANS_PER_BATCH)):
        scope = {"scope": {"name": "callstack", "version": __version__}, "spans": batch}
        resource = {"attributes": _encode_attributes({"service.name": "callstack", "service.version": __version__})}
        yield json_line({"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]})


def _spans(export_input: ExportInput) -> Iterator[Span]:
    conversation = export_input.id
    for frame in export_input.path_state.tree.frames.values():
        yield frame_span(
            conversation,
            frame.id,
            title=frame.title,
            parent=frame.parent,
            origin=frame.origin,
            status=frame.status,
            span_ms=(frame.created_at, frame.updated_at),
        )
    for receipt in export_input.receipts:
        yield request_span(receipt)
    for number, action in enumerate(actions_of(export_input)):
        yield tool_span(
            conversation,
            number,
            tool=action.call.name,
            call=action.call.id,
            frame=action.frame,
            span_ms=(action.started_at, action.ended_at or action.started_at),
            has_failed=action.has_failed,
        )


def _encode_span(span: Span, *, has_parent: bool) -> dict[str, Any]:
    return {
        "traceId": f"{span.trace_id:032x}",
        "spanId": f"{span.span_id:016x}",
        **({"parentSpanId": f"{span.parent_id:016x}"} if has_parent else {}),
        "name": span.name,
        "kind": SPAN_KIND_CLIENT if span.is_client else SPAN_KIND_INTERNAL,
        "startTimeUnixNano": str(span.begun_ms * 1_000_000),
        "endTimeUnixNano": str(span.ended_ms * 1_000_000),
        "attributes": _encode_attributes(span.attributes),
        "status": {"code": STATUS_ERROR if span.has_failed else STATUS_OK},
    }


def _encode_attributes(attributes: Mapping[str, AttributeValue]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _encode_value(value)} for key, value in attributes.items()]


def _encode_value(value: object) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [_encode_value(each) for each in value]}}
        case _:
            return {"stringValue": str(value)}


OTEL = ExportFormat(
    "OpenTelemetry spans, as OTLP in JSON", LINES, ".otlp.jsonl", lambda export_input, _: span_batches(export_input)
)
