"""An answer in the shape of OpenAI's chat completions: one JSON body, or the events of a stream.

`body_of` and `events_of` are pure: answer and facts in, a value or bytes out. Besides the documented fields both
carry some that a proxy has never heard of (`x_vendor`) or likes to forget (`service_tier`, `system_fingerprint`), so
that pass-through can be checked. Cutting, pacing and breaking the bytes is `delivery.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llm_test_provider.answer import AnswerFacts, JsonObject, ScriptedAnswer, Usage
from llm_test_provider.apis import chat_sse
from llm_test_provider.apis.chat_calls import call_deltas, extra_content, pieces_of
from llm_test_provider.apis.json import encoded, mapping


def body_of(answer: ScriptedAnswer, facts: AnswerFacts) -> JsonObject:
    """The unstreamed answer."""
    choices = [
        {
            "index": index,
            "message": _message(answer, facts),
            "logprobs": _logprobs(answer.text) if _wants_logprobs(facts) else None,
            "finish_reason": _finish(answer, facts),
        }
        for index in range(_choices(facts))
    ]
    return _frame(facts, "chat.completion") | {"choices": choices, "usage": usage_object(facts.usage)}


def events_of(answer: ScriptedAnswer, facts: AnswerFacts) -> list[bytes]:
    """The events of the streamed answer, as bytes, an error event in its place."""
    payloads = [encoded(chunk) for chunk in _chunks(answer, facts)]
    if answer.error is None:
        return chat_sse.events_of([*payloads, chat_sse.DONE], answer.events)
    error: JsonObject = {"error": dict(answer.error.error)}
    if answer.error.with_choices:
        failed: JsonObject = {"index": 0, "delta": {"content": ""}, "finish_reason": "error"}
        error = _frame(facts, "chat.completion.chunk") | {"choices": [failed]} | error
    done = [chat_sse.DONE] if answer.error.then_done else []
    return chat_sse.events_of([*payloads[: answer.error.after_events], encoded(error), *done], answer.events)


def usage_object(usage: Usage) -> JsonObject:
    details = {"cached_tokens": usage.cached, "audio_tokens": 0}
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": details | ({"cache_write_tokens": usage.written} if usage.written else {}),
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


# ----------------------------------------------------------------------------------------------------------- unstreamed
def _message(answer: ScriptedAnswer, facts: AnswerFacts) -> JsonObject:
    message: JsonObject = {"role": "assistant", "content": answer.text or None, "refusal": None}
    if answer.reasoning:
        message |= _reasoning(answer, answer.reasoning)
    if not answer.calls:
        return message
    if _is_legacy(facts):
        first = answer.calls[0]
        return message | {"function_call": {"name": first.name, "arguments": first.arguments_text()}}
    return message | {
        "tool_calls": [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments_text()},
                **extra_content(call),
            }
            for call in answer.calls
        ]
    }


# ------------------------------------------------------------------------------------------------------------- streamed
def _chunks(answer: ScriptedAnswer, facts: AnswerFacts) -> Iterator[JsonObject]:
    deltas = list(_deltas(answer, facts))
    for delta in deltas:
        yield from _for_each_choice(facts, delta, None)
    yield from _for_each_choice(facts, {}, _finish(answer, facts))
    if _wants_usage(facts):
        yield _frame(facts, "chat.completion.chunk") | {"choices": [], "usage": usage_object(facts.usage)}


def _deltas(answer: ScriptedAnswer, facts: AnswerFacts) -> Iterator[JsonObject]:
    yield {"role": "assistant", "content": "", "refusal": None}
    for piece in pieces_of(answer.reasoning, answer.piece):
        yield _reasoning(answer, piece)
    for piece in pieces_of(answer.text, answer.piece):
        yield {"content": piece}
    if _is_legacy(facts):
        yield from _function_deltas(answer)
        return
    for calls in call_deltas(answer.calls, answer.call_forms, answer.piece):
        yield {"tool_calls": calls}


def _function_deltas(answer: ScriptedAnswer) -> Iterator[JsonObject]:
    for call in answer.calls[:1]:
        yield {"function_call": {"name": call.name, "arguments": ""}}
        for piece in pieces_of(call.arguments_text(), answer.piece):
            yield {"function_call": {"arguments": piece}}


def _for_each_choice(facts: AnswerFacts, delta: JsonObject, finish: str | None) -> Iterator[JsonObject]:
    for index in range(_choices(facts)):
        logprobs = _logprobs(delta["content"]) if _wants_logprobs(facts) and delta.get("content") else None
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        usage: JsonObject = {"usage": None} if _wants_usage(facts) else {}
        yield _frame(facts, "chat.completion.chunk") | {"choices": [choice]} | usage


# --------------------------------------------------------------------------------------------------------------- shared
def _frame(facts: AnswerFacts, kind: str) -> JsonObject:
    return {
        "id": f"chatcmpl-scripted-{facts.number}",
        "object": kind,
        "created": facts.created,
        "model": facts.model,
        "service_tier": "default",
        "system_fingerprint": "fp_scripted",
        "x_vendor": {"answer": facts.number, "region": "loopback"},
    }


def _finish(answer: ScriptedAnswer, facts: AnswerFacts) -> str:
    made_by_calls = "function_call" if _is_legacy(facts) else "tool_calls"
    return answer.finish or (made_by_calls if answer.calls else "stop")


def _reasoning(answer: ScriptedAnswer, text: str) -> JsonObject:
    details = [{"type": "reasoning.text", "text": text, "format": "unknown", "index": 0}]
    carriers: JsonObject = {"reasoning_content": text, "reasoning": text, "reasoning_details": details}
    return {field: carriers[field] for field in answer.reasoning_fields}


def _logprobs(text: str) -> JsonObject:
    tokens: Sequence[str] = pieces_of(text, 4)
    content = [{"token": t, "logprob": -0.25, "bytes": list(t.encode()), "top_logprobs": []} for t in tokens]
    return {"content": content, "refusal": None}


# ---------------------------------------------------------------------------------------------- what the request wants
def _choices(facts: AnswerFacts) -> int:
    wanted = facts.request.get("n")
    return wanted if isinstance(wanted, int) and 0 < wanted <= 128 else 1


def _wants_usage(facts: AnswerFacts) -> bool:
    return mapping(facts.request.get("stream_options")).get("include_usage") is True


def _wants_logprobs(facts: AnswerFacts) -> bool:
    return facts.request.get("logprobs") is True


def _is_legacy(facts: AnswerFacts) -> bool:
    """The request offers `functions`, so a call comes back as `function_call`."""
    return bool(facts.request.get("functions")) and not facts.request.get("tools")
