"""The format `otel`: spans by the GenAI semantic conventions 1.41, as OTLP in JSON, one batch per line.

A span `invoke_agent` is a frame, `chat` a request with all its rounds, `execute_tool` a call of the client's tools. Of
texts only frame titles are exported. The same conversation always gives the same ids. Input tokens include cached and
written ones; our attributes begin with `callstack.`. OTLP in JSON writes ids in hex and 64-bit numbers as strings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import islice
from typing import Any

from proxy import __version__
from proxy.accounting import Receipt, family_of
from proxy.core.frames import Frame, Status
from proxy.core.text import cut_for_display
from proxy.management.export.items import json_line
from proxy.management.export.jetbox import ToolAction, actions_of
from proxy.management.export.source import ExportInput

SPANS_PER_BATCH = 256
"""Spans per line."""
SPAN_KIND_INTERNAL, SPAN_KIND_CLIENT = 1, 3
STATUS_OK, STATUS_ERROR = 1, 2
SPAN_TITLE_CHARACTERS = 60
PROVIDER_NAMES: Mapping[str, str] = {
    "claude": "anthropic",
    "command": "cohere",
    "deepseek": "deepseek",
    "gemini": "gcp.gemini",
    "gpt": "openai",
    "grok": "x_ai",
    "mistral": "mistral_ai",
    "o": "openai",
    "sonar": "perplexity",
}
"""Provider names of the conventions by model family."""

Attributes = Mapping[str, str | int | float | bool | list[str] | None]
Span = dict[str, Any]


def span_batches(export_input: ExportInput) -> Iterator[bytes]:
    """All spans: frames, then requests, then calls."""
    spans = _spans(export_input)
    while batch := list(islice(spans, SPANS_PER_BATCH)):
        scope = {"scope": {"name": "callstack", "version": __version__}, "spans": batch}
        resource = {"attributes": _encode_attributes({"service.name": "callstack", "service.version": __version__})}
        yield json_line({"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]})


def _spans(export_input: ExportInput) -> Iterator[Span]:
    tree = export_input.path_state.tree
    for frame in tree.frames.values():
        yield _frame_span(export_input, frame)
    for receipt in export_input.receipts:
        yield _request_span(export_input, receipt)
    for number, action in enumerate(actions_of(export_input)):
        yield _tool_span(export_input, action, number)


def _frame_span(export_input: ExportInput, frame: Frame) -> Span:
    attributes: Attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.id": frame.id,
        "gen_ai.agent.name": cut_for_display(frame.title, SPAN_TITLE_CHARACTERS),
        "callstack.frame.status": str(frame.status),
        "callstack.frame.origin": frame.origin,
        "error.type": "_OTHER" if frame.status is Status.FAILED else None,
    }
    title = cut_for_display(frame.title, SPAN_TITLE_CHARACTERS)
    return _make_span(
        export_input, f"invoke_agent {title}", f"frame {frame.id}", frame.parent,
        (frame.created_at, frame.updated_at), attributes,
    )  # fmt: skip


def _request_span(export_input: ExportInput, receipt: Receipt) -> Span:
    failed = receipt.status == "error" or receipt.client_status >= 400
    attributes: Attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": PROVIDER_NAMES.get(family_of(receipt.model), receipt.upstream or "_OTHER"),
        "gen_ai.request.model": receipt.model,
        "gen_ai.response.finish_reasons": [receipt.finish_reason] if receipt.finish_reason else None,
        "gen_ai.usage.input_tokens": receipt.usage.input,
        "gen_ai.usage.output_tokens": receipt.usage.output,
        "gen_ai.usage.cache_read.input_tokens": receipt.usage.cached,
        "gen_ai.usage.cache_creation.input_tokens": receipt.usage.written,
        "error.type": str(receipt.upstream_status or receipt.client_status or receipt.reason) if failed else None,
        "callstack.request.id": receipt.id,
        "callstack.status": receipt.status,
        "callstack.rounds": receipt.rounds,
        "callstack.tokens.in": receipt.tokens_in,
        "callstack.tokens.sent": receipt.tokens_sent,
        "callstack.cost.usd": receipt.cost,
        "callstack.cost_untouched.usd": receipt.cost_untouched,
    }
    span = (receipt.created, receipt.created + round(receipt.duration_ms))
    name = f"chat {receipt.model}".rstrip()
    return _make_span(
        export_input, name, f"request {receipt.id}", receipt.frame, span, attributes, kind=SPAN_KIND_CLIENT
    )


def _tool_span(export_input: ExportInput, action: ToolAction, number: int) -> Span:
    attributes: Attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": action.call.name,
        "gen_ai.tool.call.id": action.call.id or None,
        "gen_ai.tool.type": "function",
        "error.type": "_OTHER" if action.has_failed else None,
    }
    span = (action.started_at, action.ended_at or action.started_at)
    return _make_span(
        export_input, f"execute_tool {action.call.name}", f"call {number}", action.frame, span, attributes
    )


def _make_span(  # noqa: PLR0913  what a span has
    export_input: ExportInput, name: str, key: str, frame: str, span_ms: tuple[int, int], attributes: Attributes, *,
    kind: int = SPAN_KIND_INTERNAL,
) -> Span:  # fmt: skip
    """The id is derived from `key`; `frame` is the parent if it has a span."""
    parent = (
        {"parentSpanId": _stable_id(export_input, f"frame {frame}", 16)}
        if frame in export_input.path_state.tree.frames
        else {}
    )
    begun, ended = span_ms
    return {
        "traceId": _stable_id(export_input, "trace", 32),
        "spanId": _stable_id(export_input, key, 16),
        **parent,
        "name": name,
        "kind": kind,
        "startTimeUnixNano": str(begun * 1_000_000),
        "endTimeUnixNano": str(max(begun, ended) * 1_000_000),
        "attributes": _encode_attributes({**attributes, "gen_ai.conversation.id": export_input.id}),
        "status": {"code": STATUS_ERROR if attributes.get("error.type") else STATUS_OK},
    }


def _stable_id(export_input: ExportInput, key: str, digits: int) -> str:
    return sha256(f"{export_input.id}\n{key}".encode()).hexdigest()[:digits]


def _encode_attributes(attributes: Attributes) -> list[dict[str, Any]]:
    return [{"key": key, "value": _encode_value(value)} for key, value in attributes.items() if value is not None]


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
