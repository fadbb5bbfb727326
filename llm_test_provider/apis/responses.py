"""An answer in the shape of the responses API: one response object, or the events of a stream.

`body_of` and `events_of` are pure: answer and facts in, a value or bytes out. As in `completion.py` both carry fields
that a proxy has never heard of. Reasoning is an item whose summary is the scripted text; its encrypted content is shown
to a request that asks for it, and kept by the provider in any case (`output_of`).

Its one law: the last event of a stream holds the unstreamed answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from llm_test_provider.answer import AnswerFacts, ErrorEvent, JsonObject, ScriptedAnswer, ScriptedCall, Usage
from llm_test_provider.apis import typed_sse
from llm_test_provider.apis.chat_calls import pieces_of
from llm_test_provider.apis.json import canonical
from llm_test_provider.apis.responses_request import FREEFORM, Offered, known_as, tools_of
from llm_test_provider.reasoning_binding import Kind

SEALED = "reasoning.encrypted_content"
"""What a request includes to be shown the encrypted content of reasoning."""
INCOMPLETE: Mapping[str, str] = {
    "length": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "max_output_tokens": "max_output_tokens",
    "content_filter": "content_filter",
}
"""Finish reasons that leave an answer incomplete, and what that is called here."""
ECHOED: Mapping[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
}
"""Members of a request that its response repeats, and what stands there where the request has none."""
WORDS: Mapping[Kind, str] = {
    "prefix": "Item '{path}' of type 'reasoning' is bound to a different conversation: {why}.",
    "gap": "Item '{path}' of type 'reasoning' is bound to a different conversation: {why}.",
    "tampered": "The encrypted content for item {path} could not be verified. Reason: {why}.",
    "orphan": "Item '{path}' of type 'reasoning' was provided without its required following item.",
}
"""How this API refuses reasoning."""
GRAMMAR = typed_sse.Grammar(
    text="response.output_text.delta",
    text_key=("delta",),
    finish="response.completed",
    end="response.completed",
    piece=".delta",
    close=".done",
    idle={"type": "keepalive"},
    indexes=("output_index",),
    numbered=True,
)


def body_of(answer: ScriptedAnswer, facts: AnswerFacts) -> JsonObject:
    """The unstreamed answer."""
    incomplete = INCOMPLETE.get(answer.finish or "")
    return _frame(facts) | {
        "status": "incomplete" if incomplete else "completed",
        "incomplete_details": {"reason": incomplete} if incomplete else None,
        "output": _shown(answer, facts),
        "usage": usage_object(facts.usage),
        **answer.extra,
    }


def events_of(answer: ScriptedAnswer, facts: AnswerFacts) -> list[bytes]:
    """The events of the streamed answer, as bytes, an error event in its place."""
    last = body_of(answer, facts)
    kind = f"response.{last['status']}"
    opening = _frame(facts) | {"status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    opened = [{"type": f"response.{word}", "response": opening} for word in ("created", "in_progress")]
    items = [] if "only_last" in answer.events else list(_items(answer, last["output"]))
    events = [*opened, *items, {"type": kind, "response": last}]
    forms = answer.events
    if answer.error is not None:
        events = [*events[: answer.error.after_events], _failed(answer.error, opening)]
        forms = (*forms, "done") if answer.error.then_done else forms
    return typed_sse.events_of(events, forms, replace(GRAMMAR, finish=kind, end=kind))


def failure(event: ErrorEvent) -> JsonObject:
    """What stands in place of an unstreamed answer: an error as all of OpenAI's APIs tell it."""
    return {"error": dict(event.error)}


def usage_object(usage: Usage) -> JsonObject:
    written = {"cache_write_tokens": usage.written} if usage.written else {}
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached} | written,
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.completion,
    }


def together(answer: ScriptedAnswer) -> bytes:
    """What the reasoning of an answer is followed by, as `responses_view.known_as` tells it; empty for nothing."""
    if answer.own:
        return known_as(canonical(answer.own[0]))
    if answer.text:
        return canonical(answer.text)
    return canonical(answer.calls[0].id) if answer.calls else b""


# ---------------------------------------------------------------------------------------------------------------- items
def output_of(answer: ScriptedAnswer, facts: AnswerFacts) -> list[JsonObject]:
    """The output items, complete: reasoning with its encrypted content, the API's own, the message, the calls."""
    offered = {tool.name: tool for tool in tools_of(facts.request)}
    items = [_unknown_item(facts)] if "unknown_blocks" in answer.events else []
    if answer.reasoning:
        items.append(_reasoning(facts))
    items += [dict(item) for item in answer.own]
    if answer.text:
        items.append(_message(answer, facts))
    items += [_call(call, f"{facts.answer_id}_{at}", offered.get(call.name)) for at, call in enumerate(answer.calls)]
    if items and (answer.finish or "") in INCOMPLETE:
        items[-1] |= {"status": "incomplete"}
    return items


def _shown(answer: ScriptedAnswer, facts: AnswerFacts) -> list[JsonObject]:
    """The items as this request gets them."""
    items, wanted = output_of(answer, facts), facts.request.get("include")
    if isinstance(wanted, list) and SEALED in wanted:
        return items
    return [
        {key: item[key] for key in item if key != "encrypted_content"} if item.get("type") == "reasoning" else item
        for item in items
    ]


def _reasoning(facts: AnswerFacts) -> JsonObject:
    summary = [{"type": "summary_text", "text": facts.readable}] if facts.readable else []
    token = facts.token
    return {"id": f"rs_{facts.answer_id}", "type": "reasoning", "summary": summary, "encrypted_content": token}


def _message(answer: ScriptedAnswer, facts: AnswerFacts) -> JsonObject:
    content = [{"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}]
    return {
        "id": f"msg_{facts.answer_id}",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": content,
    }


def _call(call: ScriptedCall, number: str, offered: Offered | None) -> JsonObject:
    """A function call, or a freeform one where the tool was offered as such."""
    inside = {"namespace": offered.namespace} if offered and offered.namespace else {}
    known = {"status": "completed", "call_id": call.id, "name": call.name, **inside}
    if offered and offered.kind == FREEFORM:
        return {"id": f"ctc_{number}", "type": "custom_tool_call", **known, "input": call.arguments_text()}
    return {"id": f"fc_{number}", "type": "function_call", **known, "arguments": call.arguments_text()}


def _unknown_item(facts: AnswerFacts) -> JsonObject:
    said = {"note": "of a type that no client knows"}
    return {"id": f"vc_{facts.answer_id}", "type": "vendor_call", "status": "completed", "x_vendor": said}


# --------------------------------------------------------------------------------------------------------------- events
def _items(answer: ScriptedAnswer, items: Sequence[JsonObject]) -> Iterator[JsonObject]:
    """The events of all items; calls of the form `interleaved` are told side by side."""
    each = [list(_item_events(item, at, answer)) for at, item in enumerate(items)]
    return typed_sse.in_turn(each, len(answer.calls), answer.call_forms)


def _item_events(item: JsonObject, index: int, answer: ScriptedAnswer) -> Iterator[JsonObject]:
    at = {"output_index": index}
    opened, inner = _INNER.get(item["type"], _nothing_inside)(item, answer)
    yield {"type": "response.output_item.added", **at, "item": opened}
    for event in inner:
        yield {"type": event["type"], "item_id": item["id"], **at, **event}
    yield {"type": "response.output_item.done", **at, "item": item}


Inside = tuple[JsonObject, list[JsonObject]]
"""An item as it is first told, and the events that complete it."""


def _inside_message(item: JsonObject, answer: ScriptedAnswer) -> Inside:
    (part,) = item["content"]
    at: JsonObject = {"content_index": 0}
    deltas = [{"delta": piece, "logprobs": []} for piece in pieces_of(part["text"], answer.piece)]
    return item | {"status": "in_progress", "content": []}, [
        {"type": "response.content_part.added", **at, "part": part | {"text": ""}},
        *({"type": "response.output_text.delta", **at, **delta} for delta in deltas),
        {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []},
        {"type": "response.content_part.done", **at, "part": part},
    ]


def _inside_reasoning(item: JsonObject, answer: ScriptedAnswer) -> Inside:
    events: list[JsonObject] = []
    for index, part in enumerate(item["summary"]):
        at = {"summary_index": index}
        pieces = pieces_of(part["text"], answer.piece)
        events += [
            {"type": "response.reasoning_summary_part.added", **at, "part": part | {"text": ""}},
            *({"type": "response.reasoning_summary_text.delta", **at, "delta": piece} for piece in pieces),
            {"type": "response.reasoning_summary_text.done", **at, "text": part["text"]},
            {"type": "response.reasoning_summary_part.done", **at, "part": part},
        ]
    return item | {"summary": []}, events


def _inside_call(item: JsonObject, answer: ScriptedAnswer) -> Inside:
    key, stem = ("input", "custom_tool_call_input") if "input" in item else ("arguments", "function_call_arguments")
    done = {"type": f"response.{stem}.done", key: item[key]}
    opened = {name: item[name] for name in item if name != key} | {"status": "in_progress"}
    if "whole_call" in answer.call_forms:
        return opened | {key: item[key]}, [done]
    deltas = [{"type": f"response.{stem}.delta", "delta": piece} for piece in typed_sse.fragments(item[key], answer)]
    return opened if "arguments_absent" in answer.call_forms else opened | {key: ""}, [*deltas, done]


def _nothing_inside(item: JsonObject, _: ScriptedAnswer) -> Inside:
    return item | {"status": "in_progress"}, []


_INNER = {
    "message": _inside_message,
    "reasoning": _inside_reasoning,
    "function_call": _inside_call,
    "custom_tool_call": _inside_call,
}


def _failed(event: ErrorEvent, response: JsonObject) -> JsonObject:
    code, message = event.error.get("code"), event.error.get("message")
    if event.as_failed:
        error = {"code": str(code), "message": message}
        return {"type": "response.failed", "response": response | {"status": "failed", "error": error}}
    return {"type": "error", "code": None if code is None else str(code), "message": message, "param": None}


# --------------------------------------------------------------------------------------------------------------- shared
def _frame(facts: AnswerFacts) -> JsonObject:
    dropped = [dict(each) for each in facts.transformations]
    echoed = {key: facts.request.get(key, default) for key, default in ECHOED.items()}
    return {
        "id": f"resp_{facts.answer_id}",
        "object": "response",
        "created_at": facts.created,
        "background": facts.request.get("background") is True,
        "error": None,
        "model": facts.model,
        "service_tier": "default",
        **echoed,
        **({"input_transformations": dropped} if dropped else {}),
        "x_vendor": {"answer": facts.number, "region": "loopback"},
    }
