"""Responses that the proxy writes itself, in the shape of the client's API, streamed or plain.

A client can treat one as any other response: it has an id, one text, a regular end, and no token usage. In the
responses API a client may continue from it by its id, so the id names the response before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from proxy.core.ledger import Request
from proxy.dialects import raw_json

OWN_ID_PREFIX = "resp_callstack_"
"""What the id of an answer of ours begins with in the responses API."""
UNPLACED_ID_PREFIX = "resp_callstack-"
"""The same for one whose place nobody could say: it names nothing, and the provider refuses it."""
ECHOED_MEMBERS: Mapping[str, Any] = {
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
ZERO_USAGE: Mapping[str, Any] = {
    "input_tokens": 0,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 0,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 0,
}


@dataclass(frozen=True, slots=True)
class OwnResponse:
    """What is said. `name` is part of every id, letters and digits; `created` is in seconds since the epoch;
    `previous_id` is the id of the answer that this one stands behind, None where that cannot be said."""

    name: str
    text: str
    created: int
    previous_id: str | None = ""


# ---------------------------------------------------------------------------------------------------- chat completions
def encode_chat_completion(request: Request, saying: OwnResponse) -> bytes:
    """A completion, or its chunks."""
    named = {"id": f"chatcmpl-callstack{saying.name}", "created": saying.created, "model": request.model}
    usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    said = {"role": "assistant", "content": saying.text}
    if not request.stream:
        choice = {"index": 0, "message": said, "logprobs": None, "finish_reason": "stop"}
        return raw_json.encode({**named, "object": "chat.completion", "choices": [choice], "usage": usage})
    chunk = {**named, "object": "chat.completion.chunk"}
    chunks = [
        {**chunk, "choices": [{"index": 0, "delta": said, "finish_reason": None}]},
        {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        *([{**chunk, "choices": [], "usage": usage}] if request.wants_usage else []),
    ]
    # Without a finish reason Qwen Code sends the request again, and the Vercel SDK ends with an error (2026-11).
    return b"".join(b"data: " + raw_json.encode(each) + b"\n\n" for each in chunks) + b"data: [DONE]\n\n"


# ------------------------------------------------------------------------------------------------------------ messages
def encode_message(request: Request, saying: OwnResponse) -> bytes:
    """A message, or its events."""
    block = {"type": "text", "text": saying.text}
    usage = {"input_tokens": 0, "output_tokens": 0}
    named = {"id": f"msg_callstack{saying.name}", "type": "message", "role": "assistant", "model": request.model}
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    if not request.stream:
        return raw_json.encode({**named, "content": [block], **ended, "usage": usage})
    opening: dict[str, Any] = {**named, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    delta = {"type": "text_delta", "text": saying.text}
    return _typed(
        [
            {"type": "message_start", "message": opening},
            {"type": "content_block_start", "index": 0, "content_block": {**block, "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": ended, "usage": usage},
            {"type": "message_stop"},
        ]
    )


# ----------------------------------------------------------------------------------------------------------- responses
def encode_response(request: Request, saying: OwnResponse) -> bytes:
    """A response, or its events."""
    part = {"type": "output_text", "text": saying.text, "annotations": [], "logprobs": []}
    item = {
        "id": f"msg_callstack{saying.name}",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [part],
    }
    response = {**_framed(request, saying), "status": "completed", "output": [item], "usage": ZERO_USAGE}
    if not request.stream:
        return raw_json.encode(response)
    opening = {**response, "status": "in_progress", "output": [], "usage": None}
    at = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": opening},
        {"type": "response.in_progress", "response": opening},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **at, "part": {**part, "text": ""}},
        {"type": "response.output_text.delta", **at, "delta": saying.text, "logprobs": []},
        {"type": "response.output_text.done", **at, "text": saying.text, "logprobs": []},
        {"type": "response.content_part.done", **at, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response},
    ]
    return _typed({**event, "sequence_number": number} for number, event in enumerate(events))


def _framed(request: Request, saying: OwnResponse) -> dict[str, Any]:
    """The response less what it says, with the members of the request that it repeats."""
    echoed = {name: raw_json.parse(request.fields[name]) for name in ECHOED_MEMBERS if name in request.fields}
    named = (
        UNPLACED_ID_PREFIX + saying.name
        if saying.previous_id is None
        else f"{OWN_ID_PREFIX}{saying.name}_{saying.previous_id}"
    )
    return {
        "id": named,
        "object": "response",
        "created_at": saying.created,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "model": request.model,
        **ECHOED_MEMBERS,
        **echoed,
    }


def previous_id_in(name: str) -> str | None:
    """The id of the answer that an answer of ours by this id stands behind, empty where it is none; None where the id
    is none of ours."""
    if not name.startswith(OWN_ID_PREFIX):
        return None
    return name.removeprefix(OWN_ID_PREFIX).partition("_")[2]


def _typed(events: Iterable[Mapping[str, Any]]) -> bytes:
    """Events that are named by their type."""
    return b"".join(
        b"event: %s\ndata: %s\n\n" % (str(event["type"]).encode(), raw_json.encode(event)) for event in events
    )
