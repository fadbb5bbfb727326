"""Turns a stream of the messages API into a plain answer and back, for providers that answer in the form nobody asked
for. What cannot be turned is returned as it came."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from proxy.dialects import raw_json
from proxy.dialects.messages.stream import MessagesRoundReader
from proxy.dialects.sse import encode_event

STREAMED_MEMBERS = {"text": "text_delta", "thinking": "thinking_delta", "signature": "signature_delta"}
"""Members of blocks that travel in deltas, and the type of these."""


def body_of_stream(events: Sequence[bytes]) -> bytes:
    """The plain answer that a stream tells, from the data of its events."""
    reader = MessagesRoundReader()
    message: dict[str, Any] = {}
    for data in events:
        reader.read(data)
        said = raw_json.object_or_empty(data)
        if said.get("type") == "error":
            return data
        if said.get("type") == "message_start" and isinstance(said.get("message"), dict):
            message = said["message"]
        elif said.get("type") == "message_delta":
            usage = {**(message.get("usage") or {}), **(said.get("usage") or {})}
            message = {**message, **(said.get("delta") or {}), "usage": usage}
    fields = {name: raw_json.encode(value) for name, value in message.items()}
    wire = reader.model_response(complete=True).message.wire
    return raw_json.join_object({**fields, "content": raw_json.members(wire).get("content", b"[]")})


def stream_of_body(body: bytes) -> bytes:
    """The events that tell a plain answer."""
    said = raw_json.object_or_empty(body)
    if said.get("type") == "error":
        return encode_event("error", raw_json.encode(said))
    blocks = said.get("content")
    if not isinstance(blocks, list):
        return encode_event("message", body) if said else body
    return b"".join(
        encode_event(kind, raw_json.encode({"type": kind, **event})) for kind, event in _events(said, blocks)
    )


def opening_of_whole_message(data: bytes) -> bytes:
    """The events that tell a `message_start` which holds the whole content, up to its last block."""
    message = raw_json.object_or_empty(data).get("message")
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        return b""
    told = list(_events(message, message["content"]))[:-2]
    return b"".join(encode_event(kind, raw_json.encode({"type": kind, **event})) for kind, event in told)


def _events(message: dict[str, Any], blocks: Sequence[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    usage = message.get("usage") if isinstance(message.get("usage"), dict) else {}
    begun = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    yield "message_start", {"message": begun}
    for index, block in enumerate(block for block in blocks if isinstance(block, dict)):
        deltas = [
            {"type": kind, name: block[name]}
            for name, kind in STREAMED_MEMBERS.items()
            if isinstance(block.get(name), str) and block[name]
        ]
        empty = {name: "" for name in STREAMED_MEMBERS if name in block}
        if "input" in block:
            deltas.append({"type": "input_json_delta", "partial_json": raw_json.encode(block["input"]).decode()})
            empty["input"] = {}  # type: ignore[assignment] # the other members are texts
        yield "content_block_start", {"index": index, "content_block": {**block, **empty}}
        for delta in deltas:
            yield "content_block_delta", {"index": index, "delta": delta}
        yield "content_block_stop", {"index": index}
    ending = {name: message.get(name) for name in ("stop_reason", "stop_sequence")}
    yield "message_delta", {"delta": ending, "usage": usage}
    yield "message_stop", {}
