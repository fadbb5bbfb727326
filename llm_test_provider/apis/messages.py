"""An answer in the shape of the messages API: one message, or the events of a stream.

`body_of` and `events_of` are pure: answer and facts in, a value or bytes out. As in `completion.py` both carry fields
that a proxy has never heard of. Reasoning is a `thinking` block with a signature, or, where the answer says
`redacted`, a block of data alone.

Its one law: the blocks of a stream, put together, are the blocks of the unstreamed answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llm_test_provider.answer import (
    AnswerFacts,
    ErrorEvent,
    FixedReply,
    JsonObject,
    ScriptedAnswer,
    ScriptedCall,
    Usage,
)
from llm_test_provider.apis import typed_sse
from llm_test_provider.apis.chat_calls import pieces_of
from llm_test_provider.apis.json import encoded

GRAMMAR = typed_sse.Grammar(
    text="content_block_delta",
    text_key=("delta", "text"),
    finish="message_delta",
    end="message_stop",
    piece="content_block_delta",
    close="content_block_stop",
    idle={"type": "ping"},
    indexes=("index",),
    numbered=False,
)
STOP_REASONS: Mapping[str, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}
"""What the words of chat completions are called here; every other word is sent as the script has it."""
KINDS: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""What an error is called, by its status; all others are the client's (4xx) or the API's (5xx)."""
UNKNOWN_BLOCK: JsonObject = {"type": "vendor_block", "x_vendor": {"note": "of a type that no client knows"}}


def body_of(answer: ScriptedAnswer, facts: AnswerFacts) -> JsonObject:
    """The unstreamed answer."""
    return _frame(facts) | {
        "content": blocks_of(answer, facts),
        "stop_reason": stop_reason(answer),
        "stop_sequence": None,
        "usage": usage_object(facts.usage),
        **answer.extra,
    }


def events_of(answer: ScriptedAnswer, facts: AnswerFacts) -> list[bytes]:
    """The events of the streamed answer, as bytes, an error event in its place."""
    events = list(_events(answer, facts))
    if answer.error is not None:
        events = [*events[: answer.error.after_events], failure(answer.error)]
    forms = answer.events if answer.error is None or not answer.error.then_done else (*answer.events, "done")
    return typed_sse.events_of(events, forms, GRAMMAR)


def error_body(reply: FixedReply) -> bytes:
    """The body of a reply that tells an error, in the shape of this API."""
    return encoded(_error(reply.status, reply.error.message)) if reply.error else reply.body


def failure(event: ErrorEvent) -> JsonObject:
    """The error that ends a stream; its code, where it is a number, is the status it would have had."""
    code = event.error.get("code")
    return _error(code if isinstance(code, int) else 500, str(event.error.get("message")))


def _error(status: int, message: str) -> JsonObject:
    """This API names an error by its status."""
    kind = KINDS.get(status) or ("invalid_request_error" if 400 <= status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_scripted"}


def usage_object(usage: Usage) -> JsonObject:
    """Here the prompt is told in three parts: what was paid in full, written to the cache, and read from it."""
    short = usage.written - usage.written_long
    return {
        "input_tokens": max(usage.prompt - usage.cached - usage.written, 0),
        "cache_creation_input_tokens": usage.written,
        "cache_read_input_tokens": usage.cached,
        "cache_creation": {"ephemeral_5m_input_tokens": short, "ephemeral_1h_input_tokens": usage.written_long},
        "output_tokens": usage.completion,
        "service_tier": "standard",
    }


def stop_reason(answer: ScriptedAnswer) -> str:
    finish = answer.finish or ("tool_calls" if answer.calls else "stop")
    return STOP_REASONS.get(finish, finish)


# --------------------------------------------------------------------------------------------------------------- blocks
def blocks_of(answer: ScriptedAnswer, facts: AnswerFacts) -> list[JsonObject]:
    """The content blocks, complete: thinking, the API's own, text, calls."""
    blocks = [UNKNOWN_BLOCK] if "unknown_blocks" in answer.events else []
    if answer.reasoning:
        blocks = [*blocks, _thinking(answer, facts)]
    blocks = [*blocks, *answer.own]
    if answer.text:
        blocks = [*blocks, {"type": "text", "text": answer.text}]
    return [*blocks, *(_tool_use(call) for call in answer.calls)]


def _thinking(answer: ScriptedAnswer, facts: AnswerFacts) -> JsonObject:
    if answer.redacted:
        return {"type": "redacted_thinking", "data": facts.token}
    return {"type": "thinking", "thinking": facts.readable, "signature": facts.token}


def _tool_use(call: ScriptedCall) -> JsonObject:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call)}


def _input(call: ScriptedCall) -> Any:
    """The arguments as a value; text that is no JSON, which only a stream can say, stays a text."""
    if not isinstance(call.arguments, str):
        return dict(call.arguments)
    try:
        return json.loads(call.arguments or "{}")
    except ValueError:
        return call.arguments


# --------------------------------------------------------------------------------------------------------------- events
def _events(answer: ScriptedAnswer, facts: AnswerFacts) -> Iterator[JsonObject]:
    usage = usage_object(facts.usage)
    opening: JsonObject = {
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage | {"output_tokens": 1},
    }
    yield {"type": "message_start", "message": _frame(facts) | opening}
    yield GRAMMAR.idle
    yield from _content(answer, facts)
    closing = {"stop_reason": stop_reason(answer), "stop_sequence": None}
    told = {key: usage[key] for key in usage if key not in ("cache_creation", "service_tier")}
    yield {"type": "message_delta", "delta": closing, "usage": told, **answer.extra}
    yield {"type": "message_stop"}


def _content(answer: ScriptedAnswer, facts: AnswerFacts) -> Iterator[JsonObject]:
    """The events of all blocks; calls of the form `interleaved` are told side by side."""
    blocks = blocks_of(answer, facts)  # the calls stand at the end
    texts = [call.arguments_text() for call in answer.calls]
    each = [
        list(_block_events(block, index, answer, text))
        for index, (block, text) in enumerate(zip(blocks, [*[""] * (len(blocks) - len(texts)), *texts], strict=True))
    ]
    return typed_sse.in_turn(each, len(answer.calls), answer.call_forms)


def _block_events(block: JsonObject, index: int, answer: ScriptedAnswer, arguments: str) -> Iterator[JsonObject]:
    whole = "no_deltas" in answer.events or (block["type"] == "tool_use" and "whole_call" in answer.call_forms)
    opened, deltas = (block, []) if whole else _opened(block, answer, arguments)
    yield {"type": "content_block_start", "index": index, "content_block": opened}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _opened(block: JsonObject, answer: ScriptedAnswer, arguments: str) -> tuple[JsonObject, Sequence[JsonObject]]:
    """The block as its start tells it, and the deltas that complete it."""
    if block["type"] == "text":
        pieces = pieces_of(answer.text, answer.piece)
        return block | {"text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces]
    if block["type"] == "thinking":
        pieces = pieces_of(block["thinking"], answer.piece)
        thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
        signed = {"type": "signature_delta", "signature": block["signature"]}
        return block | {"thinking": "", "signature": ""}, [*thoughts, signed]
    if block["type"] == "tool_use":
        # The API opens with an empty piece, and says nothing more for a tool that takes no arguments.
        pieces = ["", *typed_sse.fragments("" if arguments == "{}" else arguments, answer)]
        opened = {key: block[key] for key in block if key != "input"}
        absent = "arguments_absent" in answer.call_forms
        return opened if absent else opened | {"input": {}}, [
            {"type": "input_json_delta", "partial_json": piece} for piece in pieces
        ]
    return block, []


# --------------------------------------------------------------------------------------------------------------- shared
def _frame(facts: AnswerFacts) -> JsonObject:
    dropped = [dict(each) for each in facts.transformations]
    return {
        "id": f"msg_{facts.answer_id}",
        "type": "message",
        "role": "assistant",
        "model": facts.model,
        **({"input_transformations": dropped} if dropped else {}),
        "x_vendor": {"answer": facts.number, "region": "loopback"},
    }
