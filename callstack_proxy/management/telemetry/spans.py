"""Spans of a conversation, named by the GenAI semantic conventions 0.1.0 (open-telemetry/semantic-conventions-genai).

A span `invoke_agent` is a frame, `chat` a request with all its rounds, `execute_tool` a call of the client's tools. The
export and live tracing make the same spans: ids are hashes of the conversation's and the frame's, request's or call's
id. A conversation is one trace. No span contains a message, an argument or a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256

import msgspec

from proxy.accounting import Receipt, family_of
from proxy.core.frames import Status
from proxy.core.text import cut_for_display

TITLE_CHARACTERS = 60

AttributeValue = str | int | float | bool | list[str]


class Name(StrEnum):
    """Every attribute that a span may have. Those below `callstack.` are ours; the others are the conventions'."""

    OPERATION = "gen_ai.operation.name"
    CONVERSATION = "gen_ai.conversation.id"
    COMPACTED = "gen_ai.conversation.compacted"
    PROVIDER = "gen_ai.provider.name"
    MODEL = "gen_ai.request.model"
    STREAM = "gen_ai.request.stream"
    FINISH_REASONS = "gen_ai.response.finish_reasons"
    INPUT_TOKENS = "gen_ai.usage.input_tokens"
    OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
    CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
    CACHE_WRITE_TOKENS = "gen_ai.usage.cache_write.input_tokens"
    AGENT = "gen_ai.agent.name"
    TOOL = "gen_ai.tool.name"
    TOOL_CALL = "gen_ai.tool.call.id"
    TOOL_TYPE = "gen_ai.tool.type"
    ERROR = "error.type"
    FRAME = "callstack.frame.id"
    FRAME_STATUS = "callstack.frame.status"
    FRAME_ORIGIN = "callstack.frame.origin"
    REQUEST = "callstack.request.id"
    STATUS = "callstack.status"
    REASON = "callstack.reason"
    TENANT = "callstack.tenant"
    ROUNDS = "callstack.rounds"
    TOKENS_IN = "callstack.tokens.in"
    TOKENS_SENT = "callstack.tokens.sent"
    TOKENS_SAVED = "callstack.tokens.saved"
    COST_USD = "callstack.cost.usd"
    COST_UNTOUCHED_USD = "callstack.cost_untouched.usd"
    SAVED_USD = "callstack.saved.usd"
    OVERHEAD_MS = "callstack.overhead_ms"


PROVIDER_NAMES: Mapping[str, str] = {
    "claude": "anthropic",
    "command": "cohere",
    "deepseek": "deepseek",
    "gemini": "gcp.gemini",
    "gpt": "openai",
    "grok": "x_ai",
    "kimi": "moonshot_ai",
    "mistral": "mistral_ai",
    "o": "openai",
    "sonar": "perplexity",
}
"""Provider names of the conventions by model family."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A finished span. Times are ms since the epoch; `parent_frame` is a frame's id or empty."""

    conversation: str
    key: str
    name: str
    begun_ms: int
    ended_ms: int
    attributes: dict[str, AttributeValue]
    parent_frame: str = ""
    is_client: bool = False
    """Of kind CLIENT: it waited for a provider."""

    @property
    def trace_id(self) -> int:
        return _stable_id(self.conversation, "trace", 16)

    @property
    def span_id(self) -> int:
        return _stable_id(self.conversation, self.key, 8)

    @property
    def parent_id(self) -> int:
        """0 without a parent."""
        return _stable_id(self.conversation, f"frame {self.parent_frame}", 8) if self.parent_frame else 0

    @property
    def has_failed(self) -> bool:
        return Name.ERROR in self.attributes


def frame_span(  # noqa: PLR0913 - what a span has
    conversation: str, frame: str, *, title: str, parent: str, origin: str, status: Status, span_ms: tuple[int, int]
) -> Span:
    """Without a `title` the span has no agent's name."""
    shown = cut_for_display(title, TITLE_CHARACTERS)
    return _make_span(
        conversation, f"frame {frame}", "invoke_agent", shown, parent, span_ms,
        {
            Name.AGENT: shown or None,
            Name.FRAME: frame,
            Name.FRAME_STATUS: str(status),
            Name.FRAME_ORIGIN: origin,
            Name.ERROR: "_OTHER" if status is Status.FAILED else None,
        },
    )  # fmt: skip


def request_span(receipt: Receipt, tenant: str = "") -> Span:
    """Input tokens contain cached and written ones."""
    failed = receipt.status == "error" or receipt.client_status >= 400
    span = _make_span(
        receipt.conversation, f"request {receipt.id}", "chat", receipt.model, receipt.frame,
        (receipt.created, receipt.created + round(receipt.duration_ms)),
        {
            Name.PROVIDER: PROVIDER_NAMES.get(family_of(receipt.model), receipt.upstream or "_OTHER"),
            Name.MODEL: receipt.model,
            Name.STREAM: receipt.stream or None,
            Name.COMPACTED: receipt.own_traces > 0 or None,
            Name.FINISH_REASONS: [receipt.finish_reason] if receipt.finish_reason else None,
            Name.INPUT_TOKENS: receipt.usage.input,
            Name.OUTPUT_TOKENS: receipt.usage.output,
            Name.CACHE_READ_TOKENS: receipt.usage.cached,
            Name.CACHE_WRITE_TOKENS: receipt.usage.written,
            Name.ERROR: str(receipt.upstream_status or receipt.client_status or receipt.reason) if failed else None,
            Name.REQUEST: receipt.id,
            Name.STATUS: receipt.status,
            Name.REASON: receipt.reason or None,
            Name.TENANT: tenant or None,
            Name.ROUNDS: receipt.rounds,
            Name.TOKENS_IN: receipt.tokens_in,
            Name.TOKENS_SENT: receipt.tokens_sent,
            Name.TOKENS_SAVED: receipt.tokens_saved,
            Name.COST_USD: receipt.cost,
            Name.COST_UNTOUCHED_USD: receipt.cost_untouched,
            Name.SAVED_USD: receipt.saved,
            Name.OVERHEAD_MS: round(receipt.overhead_ms, 3),
        },
    )  # fmt: skip
    return msgspec.structs.replace(span, is_client=True)


def tool_span(  # noqa: PLR0913 - what a span has
    conversation: str, number: int, *, tool: str, call: str, frame: str, span_ms: tuple[int, int], has_failed: bool
) -> Span:
    return _make_span(
        conversation, f"call {number}", "execute_tool", tool, frame, span_ms,
        {
            Name.TOOL: tool,
            Name.TOOL_CALL: call or None,
            Name.TOOL_TYPE: "function",
            Name.ERROR: "_OTHER" if has_failed else None,
        },
    )  # fmt: skip


def _make_span(  # noqa: PLR0913 - what a span has
    conversation: str, key: str, operation: str, named: str, parent: str, span_ms: tuple[int, int],
    attributes: Mapping[Name, AttributeValue | None],
) -> Span:  # fmt: skip
    begun, ended = span_ms
    told = {Name.OPERATION: operation, **attributes, Name.CONVERSATION: conversation}
    return Span(
        conversation=conversation,
        key=key,
        name=f"{operation} {named}".rstrip(),
        begun_ms=begun,
        ended_ms=max(begun, ended),
        attributes={str(name): value for name, value in told.items() if value is not None},
        parent_frame=parent,
    )


def _stable_id(conversation: str, key: str, size: int) -> int:
    return int.from_bytes(sha256(f"{conversation}\n{key}".encode()).digest()[:size])
