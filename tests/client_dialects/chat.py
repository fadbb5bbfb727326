"""Chat completions: the neutral form itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from tests.client_dialects.tongue import ClientAnswer, Json, TestDialect


class Chat(TestDialect):
    name = "openai_chat"
    short = "chat"
    path = "/v1/chat/completions"
    opening = 1
    terminator = b"data: [DONE]"

    def body(self, asked: Json) -> bytes:
        return json.dumps(asked).encode()

    def plain(self, answer: Json) -> ClientAnswer:
        (choice, *_) = answer["choices"]
        return ClientAnswer(dict(choice["message"]), [choice["finish_reason"]], answer.get("usage"), ended=True)

    def streamed(self, events: Sequence[Json]) -> ClientAnswer:
        """That nothing follows is told by the connection; a stream that tells of an error has failed."""
        said = [choice.get("finish_reason") for event in events for choice in event.get("choices", [])]
        usage = next((event["usage"] for event in reversed(events) if event.get("usage")), None)
        ended = not any(event.get("error") for event in events)
        return ClientAnswer(_gathered(events), [each for each in said if each], usage, ended=ended)

    def neutral(self, body: bytes) -> bytes:
        return body

    def kept(self, wire: str) -> Iterable[str]:
        return (wire,)


def _gathered(events: Sequence[Json]) -> Json:
    """The message that the deltas of a stream add up to."""
    message: Json = {"role": "assistant", "content": ""}
    calls: dict[int, Json] = {}
    deltas = (choice["delta"] for event in events for choice in event.get("choices", []))
    for delta in deltas:
        message["content"] += delta.get("content") or ""
        if delta.get("reasoning_content"):
            message["reasoning_content"] = message.get("reasoning_content", "") + delta["reasoning_content"]
        for part in delta.get("tool_calls") or []:
            made = calls.setdefault(part["index"], {"id": "", "type": "function", "function": {}})
            made["id"] = made["id"] or part.get("id") or ""
            for key in ("name", "arguments"):
                said = (part.get("function") or {}).get(key) or ""
                made["function"][key] = made["function"].get(key, "") + said
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
        message["content"] = message["content"] or None
    return message
