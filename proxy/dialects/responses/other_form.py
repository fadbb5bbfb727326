"""Turns a stream of the responses API into a plain answer and back, for providers that answer in the form nobody asked
for. What cannot be turned is returned as it came."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from proxy.dialects import raw_json
from proxy.dialects.sse import encode_event

ENDINGS = {"completed": "response.completed", "incomplete": "response.incomplete", "failed": "response.failed"}
"""What ends a stream, by the status of the response."""


def body_of_stream(events: Sequence[bytes]) -> bytes:
    """The plain answer that a stream tells, from the data of its events."""
    response: dict[str, Any] = {}
    items: list[Any] = []
    for data in events:
        said = raw_json.object_or_empty(data)
        if said.get("type") == "error":
            return data
        if isinstance(said.get("response"), dict):
            response = said["response"]
        elif said.get("type") == "response.output_item.done":
            items.append(said.get("item"))
    return raw_json.encode({**response, "output": response.get("output") or items})


def stream_of_body(body: bytes) -> bytes:
    """The events that tell a plain answer."""
    said = raw_json.object_or_empty(body)
    output = said.get("output")
    if not isinstance(output, list):
        return encode_event("error", raw_json.encode({**said, "type": "error"})) if said else body
    numbered = enumerate(_events(said, output))
    return b"".join(
        encode_event(kind, raw_json.encode({"type": kind, "sequence_number": number, **event}))
        for number, (kind, event) in numbered
    )


def _events(response: dict[str, Any], output: Sequence[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    yield "response.created", {"response": begun}
    yield "response.in_progress", {"response": begun}
    for index, item in enumerate(item for item in output if isinstance(item, dict)):
        place = {"output_index": index}
        parts = item.get("content") if item.get("type") == "message" and isinstance(item.get("content"), list) else []
        begins = {**item, "status": "in_progress"} if "status" in item else dict(item)
        yield "response.output_item.added", {**place, "item": {**begins, **({"content": []} if parts else {})}}
        for at, part in enumerate(part for part in parts or () if isinstance(part, dict)):
            yield from _part_events({"item_id": item.get("id", ""), **place, "content_index": at}, part)
        yield "response.output_item.done", {**place, "item": item}
    yield ENDINGS.get(str(response.get("status")), "response.completed"), {"response": response}


def _part_events(place: dict[str, Any], part: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    text = part.get("text")
    if part.get("type") != "output_text" or not isinstance(text, str):
        yield "response.content_part.added", {**place, "part": part}
        yield "response.content_part.done", {**place, "part": part}
        return
    yield "response.content_part.added", {**place, "part": {**part, "text": ""}}
    yield "response.output_text.delta", {**place, "delta": text}
    yield "response.output_text.done", {**place, "text": text}
    yield "response.content_part.done", {**place, "part": part}
