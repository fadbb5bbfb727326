"""Turns a stream of chat completions into a plain answer and back, for providers that answer in the form nobody asked
for. Unknown members of messages survive; what cannot be turned is returned as it came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proxy.dialects import raw_json
from proxy.dialects.chat.stream import DONE, ChatRoundReader

IDENTITY_MEMBERS = ("id", "created", "model", "system_fingerprint", "service_tier")


def body_of_stream(events: Sequence[bytes]) -> bytes:
    """The plain answer that a stream tells, from the data of its events."""
    reader = ChatRoundReader()
    first: dict[str, Any] = {}
    for data in events:
        reader.read(data)
        chunk = raw_json.object_or_empty(data)
        first = first or ({n: chunk[n] for n in IDENTITY_MEMBERS if n in chunk} if chunk.get("choices") else {})
    if reader.failed and reader.error:
        return b'{"error":' + reader.error + b"}"
    choice = {
        "index": b"0",
        "message": reader.build_message().wire,
        "finish_reason": raw_json.encode(reader.finish_reason or None),
    }
    told = {name: raw_json.encode(value) for name, value in {**first, "object": "chat.completion"}.items()}
    told["choices"] = raw_json.join_array([raw_json.join_object(choice)])
    if reader.usage:
        told["usage"] = raw_json.encode(reader.usage)
    return raw_json.join_object(told)


def stream_of_body(body: bytes) -> bytes:
    """The events that tell a plain answer."""
    said = raw_json.object_or_empty(body)
    choices = said.get("choices")
    if not isinstance(choices, list):
        return _event(body) if said else body
    first = {n: said[n] for n in IDENTITY_MEMBERS if n in said} | {"object": "chat.completion.chunk"}
    told: list[bytes] = []
    for choice in (c for c in choices if isinstance(c, dict)):
        message = choice.get("message")
        place = {"index": choice.get("index", 0)}
        delta = _delta(message) if isinstance(message, dict) else {}
        told.append(raw_json.encode({**first, "choices": [{**place, "delta": delta, "finish_reason": None}]}))
        ending = {**place, "delta": {}, "finish_reason": choice.get("finish_reason")}
        told.append(raw_json.encode({**first, "choices": [ending]}))
    if isinstance(said.get("usage"), dict):
        told.append(raw_json.encode({**first, "choices": [], "usage": said["usage"]}))
    return b"".join(map(_event, (*told, DONE)))


def without_whole_messages(data: bytes, *, repeated: bool) -> bytes:
    """A chunk whose choices tell their content as deltas alone: some servers put the whole message into a chunk.
    `repeated`: the deltas before have said it already."""
    chunk = raw_json.object_or_empty(data)
    choices = chunk.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        message = choice.pop("message", None) if isinstance(choice, dict) else None
        if isinstance(message, dict) and not choice.get("delta"):
            choice["delta"] = {} if repeated else _delta(message)
    return raw_json.encode(chunk)


def _delta(message: dict[str, Any]) -> dict[str, Any]:
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return {name: value for name, value in message.items() if name != "tool_calls"}
    return {**message, "tool_calls": [{"index": at, **c} for at, c in enumerate(calls) if isinstance(c, dict)]}


def _event(data: bytes) -> bytes:
    return b"data: " + data.strip().replace(b"\r", b" ").replace(b"\n", b" ") + b"\n\n"
