"""One small client for each dialect, so that the same test can be held in all three.

A `Speaker` builds a first request, continues it with an answer and its results, and reads what it gets, streamed or
not, into one `Heard`. It takes an answer as a careful client does: what it puts together from a stream must be what the
stream says at its end.
"""

import http.client
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llm_test_provider import ScriptedProvider

Json = dict[str, Any]


@dataclass(frozen=True)
class DialectAnswer:
    """An answer: `made` is what a client keeps of it, in the shape of the dialect."""

    text: str
    reasoning: str
    calls: list[tuple[str, Any]]
    ids: list[str]
    finish: str
    usage: tuple[int, int, int]
    """Prompt, cached part of it, completion."""
    made: list[Json]


def events_of(raw: bytes) -> list[Json]:
    """The JSON of every event, whatever its lines look like."""
    blocks = raw.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n\n")
    data = [b"\n".join(_data(line) for line in block.split(b"\n") if line.startswith(b"data:")) for block in blocks]
    return [json.loads(each) for each in data if each and each != b"[DONE]"]


def _data(line: bytes) -> bytes:
    return line.removeprefix(b"data:").removeprefix(b" ")


class DialectClient(ABC):
    """A client of one dialect."""

    path: str

    @abstractmethod
    def first(self, text: str, system: str = "", tools: Sequence[str] = ()) -> Json: ...

    @abstractmethod
    def then(self, body: Json, heard: DialectAnswer, *results: str, text: str = "") -> Json:
        """The next request: the answer sent back, the results of its calls, and what the user says."""

    @abstractmethod
    def whole(self, answer: Json) -> DialectAnswer: ...

    @abstractmethod
    def streamed(self, events: Sequence[Json]) -> DialectAnswer: ...

    def post(
        self, provider: ScriptedProvider, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(provider.host, provider.port, timeout=5)
        try:
            connection.request("POST", self.path, json.dumps(body), dict(headers or {}))
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def ask(self, provider: ScriptedProvider, body: Mapping[str, Any]) -> DialectAnswer:
        """An answer that must come, in the form the body asks for."""
        status, raw = self.post(provider, body)
        assert status == 200, raw
        return self.streamed(events_of(raw)) if body.get("stream") else self.whole(json.loads(raw))


class Chat(DialectClient):
    path = "/v1/chat/completions"

    def first(self, text: str, system: str = "", tools: Sequence[str] = ()) -> Json:
        head = [{"role": "system", "content": system}] if system else []
        offered = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in tools]
        body: Json = {"model": "m", "messages": [*head, {"role": "user", "content": text}]}
        return body | ({"tools": offered} if offered else {})

    def then(self, body: Json, heard: DialectAnswer, *results: str, text: str = "") -> Json:
        pairs = zip(heard.ids, results, strict=True)
        told = [{"role": "tool", "tool_call_id": call, "content": result} for call, result in pairs]
        said = [{"role": "user", "content": text}] if text else []
        return body | {"messages": [*body["messages"], *heard.made, *told, *said]}

    def whole(self, answer: Json) -> DialectAnswer:
        (choice,) = answer["choices"]
        return self._heard(choice["message"], choice["finish_reason"], answer["usage"])

    def streamed(self, events: Sequence[Json]) -> DialectAnswer:
        deltas = [choice["delta"] for event in events for choice in event["choices"]]
        finishes = [choice["finish_reason"] for event in events for choice in event["choices"]]
        message: Json = {"role": "assistant", "content": "".join(d.get("content") or "" for d in deltas)}
        message["reasoning_content"] = "".join(d.get("reasoning_content") or "" for d in deltas)
        calls: list[Json] = []
        for part in [part for delta in deltas for part in delta.get("tool_calls") or []]:
            if part["index"] == len(calls):
                calls.append(part)
            else:
                calls[part["index"]]["function"]["arguments"] += part["function"]["arguments"]
        message |= {"tool_calls": calls} if calls else {}
        return self._heard(message, next(filter(None, finishes)), events[-1].get("usage") or {})

    def _heard(self, message: Json, finish: str, usage: Json) -> DialectAnswer:
        calls = message.get("tool_calls") or []
        details = usage.get("prompt_tokens_details") or {}
        counted = (usage.get("prompt_tokens", 0), details.get("cached_tokens", 0), usage.get("completion_tokens", 0))
        made = [(call["function"]["name"], json.loads(call["function"]["arguments"] or "{}")) for call in calls]
        ids = [call["id"] for call in calls]
        text, thought = message["content"] or "", message.get("reasoning_content") or ""
        return DialectAnswer(text, thought, made, ids, finish, counted, [message])


class Messages(DialectClient):
    path = "/v1/messages"

    def first(self, text: str, system: str = "", tools: Sequence[str] = ()) -> Json:
        body: Json = {"model": "m", "max_tokens": 2000, "messages": [{"role": "user", "content": text}]}
        offered = [{"name": name, "input_schema": {"type": "object"}} for name in tools]
        return body | ({"system": system} if system else {}) | ({"tools": offered} if offered else {})

    def then(self, body: Json, heard: DialectAnswer, *results: str, text: str = "") -> Json:
        pairs = zip(heard.ids, results, strict=True)
        blocks: list[Json] = [{"type": "tool_result", "tool_use_id": call, "content": told} for call, told in pairs]
        blocks += [{"type": "text", "text": text}] if text else []
        said = [{"role": "assistant", "content": heard.made}, {"role": "user", "content": blocks}]
        return body | {"messages": [*body["messages"], *said]}

    def whole(self, answer: Json) -> DialectAnswer:
        return self._heard(answer["content"], answer["stop_reason"], answer["usage"])

    def streamed(self, events: Sequence[Json]) -> DialectAnswer:
        start, *_ = events
        blocks: dict[int, Json] = {}
        inputs: dict[int, str] = {}
        for event in events:
            at, delta = event.get("index", 0), event.get("delta", {})
            if event["type"] == "content_block_start":
                assert at not in blocks, "a block begins twice"
                blocks[at] = dict(event["content_block"])
            for key, value in delta.items() if event["type"] == "content_block_delta" else ():
                if key == "partial_json":
                    inputs[at] = inputs.get(at, "") + value
                elif key != "type":
                    blocks[at][key] += value
        for at, said in inputs.items():
            blocks[at]["input"] = json.loads(said or "{}")
        (closing,) = (event for event in events if event["type"] == "message_delta")
        usage = start["message"]["usage"] | closing["usage"]
        return self._heard([blocks[at] for at in sorted(blocks)], closing["delta"]["stop_reason"], usage)

    def _heard(self, blocks: list[Json], finish: str, usage: Json) -> DialectAnswer:
        calls = [block for block in blocks if block["type"] == "tool_use"]
        cached = usage["cache_read_input_tokens"]
        prompt = usage["input_tokens"] + usage["cache_creation_input_tokens"] + cached
        text = "".join(block.get("text", "") for block in blocks)
        thought = "".join(block.get("thinking", "") for block in blocks)
        made, ids = [(block["name"], block["input"]) for block in calls], [block["id"] for block in calls]
        return DialectAnswer(text, thought, made, ids, finish, (prompt, cached, usage["output_tokens"]), blocks)


class Responses(DialectClient):
    path = "/v1/responses"

    def first(self, text: str, system: str = "", tools: Sequence[str] = ()) -> Json:
        offered = [{"type": "function", "name": name, "parameters": {}, "strict": False} for name in tools]
        body: Json = {"model": "m", "input": [{"role": "user", "content": text}], "include": [SEALED]}
        return body | ({"instructions": system} if system else {}) | ({"tools": offered} if offered else {})

    def then(self, body: Json, heard: DialectAnswer, *results: str, text: str = "") -> Json:
        pairs = zip(heard.ids, results, strict=True)
        told = [{"type": "function_call_output", "call_id": call, "output": result} for call, result in pairs]
        said = [{"role": "user", "content": text}] if text else []
        return body | {"input": [*body["input"], *heard.made, *told, *said]}

    def whole(self, answer: Json) -> DialectAnswer:
        items = answer["output"]
        calls = [item for item in items if item["type"] == "function_call"]
        parts = [part for item in items for part in item.get("content") or []]
        thoughts = [part for item in items for part in item.get("summary") or []]
        usage = answer["usage"]
        cached = usage["input_tokens_details"]["cached_tokens"]
        return DialectAnswer(
            "".join(part["text"] for part in parts),
            "".join(part["text"] for part in thoughts),
            [(item["name"], json.loads(item["arguments"])) for item in calls],
            [item["call_id"] for item in calls],
            answer["status"],
            (usage["input_tokens"], cached, usage["output_tokens"]),
            items,
        )

    def streamed(self, events: Sequence[Json]) -> DialectAnswer:
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        heard = self.whole(events[-1]["response"])
        done = {event["output_index"]: event["item"] for event in events if event["type"].endswith("item.done")}
        assert [done[at] for at in sorted(done)] == heard.made or not done
        deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
        assert "".join(deltas) == heard.text or not deltas
        return heard


SEALED = "reasoning.encrypted_content"
SPEAKERS: dict[str, DialectClient] = {"chat": Chat(), "messages": Messages(), "responses": Responses()}
