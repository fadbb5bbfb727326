"""The responses API, as Codex and the SDK speak it.

The system text is `instructions`, every message an item with parts, nothing is stored by the provider: so reasoning is
asked for in its sealed form and given back as it came, in front of what was made with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from tests.client_dialects.tongue import (
    AS_CLIENTS_DO,
    JOINT,
    ClientAnswer,
    Json,
    TestDialect,
    answer,
    call,
    elements_in,
    object_in,
    offered,
    parted,
    request,
    spoken,
    told,
    value_in,
)
from tests.laws import elements, members

SEALED = "reasoning.encrypted_content"
FINISHES = {"max_output_tokens": "length"}
ENDS = ("response.completed", "response.incomplete")
FAILS = ("response.failed", "error")
OPTIONS = ("max_tokens", "tool_choice", "response_format")
"""Members of a chat request that are called otherwise here."""
LEAST = 16
"""Tokens that must be granted for an answer."""


class Responses(TestDialect):
    name = "openai_responses"
    short = "responses"
    path = "/v1/responses"
    opening = 4
    terminator = b"event: response.completed"
    signs = True

    def body(self, asked: Json) -> bytes:
        head, said, rest = parted(asked, OPTIONS)
        body: Json = {"model": rest.pop("model")}
        if head:
            body["instructions"] = JOINT.join(message["content"] for message in head)
        body["input"] = [item for message in said for item in _items(message)]
        if tools := rest.pop("tools", None):
            body["tools"] = [
                {"type": "function", **each["function"], "strict": False} if "function" in each else each
                for each in tools
            ]
        body |= {"store": False, "include": [SEALED]}
        return json.dumps(body | _options(asked) | rest, separators=AS_CLIENTS_DO).encode()

    def plain(self, answer: Json) -> ClientAnswer:
        assert answer["object"] == "response", answer
        return _heard(answer)

    def streamed(self, events: Sequence[Json]) -> ClientAnswer:
        return _Stream(events).heard()

    def neutral(self, body: bytes) -> bytes:
        fields = members(body.decode())
        tools = [_offered(raw) for raw in elements_in(fields, "tools")]
        instructions = fields.get("instructions", "null")
        head = [told("system", json.loads(instructions), instructions)] if instructions != "null" else []
        return request(fields, [*head, *_neutral(elements_in(fields, "input"))], tools)

    def kept(self, wire: str) -> Iterable[str]:
        return map(json.dumps, _neutral(elements(wire) if wire.startswith("[") else [wire]))


# ---------------------------------------------------------------------------------------------------- what a client
# says
def _options(asked: Json) -> Json:
    said: Json = {}
    if "max_tokens" in asked:
        said["max_output_tokens"] = max(LEAST, asked["max_tokens"])
    if choice := asked.get("tool_choice"):
        own = isinstance(choice, str) or "function" not in choice
        said["tool_choice"] = choice if own else {"type": "function", **choice["function"]}
    if "response_format" in asked:
        form = asked["response_format"]
        said["text"] = {"format": {"type": form["type"], **form.get("json_schema", {})}}
    return said


def _items(message: Json) -> list[Json]:
    if message["role"] == "tool":
        output = {"call_id": message["tool_call_id"], "output": message["content"]}
        return [{"type": "function_call_output", **output}]
    if message["role"] != "assistant":
        return [_message(message["role"], message["content"], "input_text")]
    text, calls = message.get("content"), list(message.get("tool_calls") or [])
    made = message.get("made")
    if made is None:
        said = [_message("assistant", text, "output_text")] if text else []
        return [*said, *({"type": "function_call", **_called(each["id"], each["function"])} for each in calls)]
    kept: list[Json] = []
    thinks = bool(message.get("reasoning_content"))
    for item in made:
        if item["type"] == "reasoning":
            kept += [item] if thinks else []
        elif item["type"] == "function_call":
            kept.append(_known(item | _called(item["call_id"], calls.pop(0)["function"]), thinks=thinks))
        elif item["type"] != "message" or text:
            kept.append(_known(item, thinks=thinks))
    return kept


def _message(role: str, content: Any, kind: str) -> Json:
    texts = [content] if isinstance(content, str) else [part["text"] for part in content]
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text} for text in texts]}


def _called(id_: str, function: Json) -> Json:
    return {"call_id": id_, "name": function["name"], "arguments": function["arguments"]}


def _known(item: Json, *, thinks: bool) -> Json:
    """An item by its id, which asks for the reasoning that was made with it."""
    return item if thinks else {name: value for name, value in item.items() if name != "id"}


# --------------------------------------------------------------------------------------------------- what a client
# hears
def _texts_of(item: Json, kinds: Sequence[str] = ("output_text", "refusal")) -> list[str]:
    parts = [part for part in item.get("content") or [] if part["type"] in kinds]
    return [text for part in parts if (text := part.get("text") or part.get("refusal"))]


def _spoken(items: Sequence[Json]) -> Json:
    texts = (text for item in items if item["type"] == "message" for text in _texts_of(item))
    summaries = (part["text"] for item in items if item["type"] == "reasoning" for part in item.get("summary") or [])
    made = [item for item in items if item["type"] == "function_call"]
    return spoken(texts, summaries, [call(i["call_id"], i["name"], i.get("arguments", "")) for i in made], items)


def _heard(response: Json) -> ClientAnswer:
    message = _spoken(response["output"])
    why = (response.get("incomplete_details") or {}).get("reason", "")
    ended = response["status"] in ("completed", "incomplete")
    assert ended or response["status"] in ("failed", "cancelled", "queued"), response["status"]
    finish = FINISHES.get(why, why) or ("tool_calls" if message.get("tool_calls") else "stop")
    return ClientAnswer(message, [finish] if ended else [], _usage(response.get("usage")), ended)


def _usage(usage: Json | None) -> Json | None:
    if usage is None:
        return None
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"], usage
    both = {"prompt_tokens": usage["input_tokens"], "completion_tokens": usage["output_tokens"]}
    return both | {"total_tokens": usage["total_tokens"]}


class _Stream:
    """Events put together by a client that stands no disorder."""

    def __init__(self, events: Sequence[Json]) -> None:
        self.id = ""
        self.items: list[Json] = []
        self.done: dict[int, Json] = {}
        self.last: Json | None = None
        self.failed = False
        for number, event in enumerate(events):
            assert self.last is None, f"behind the end: {event['type']}"
            assert not self.failed, f"behind an error: {event['type']}"
            assert event["sequence_number"] == number, f"event {number} has number {event['sequence_number']}"
            self._take(event)

    def heard(self) -> ClientAnswer:
        if self.last is not None:
            return _heard(self.last)
        return ClientAnswer(_spoken([self.done.get(at, item) for at, item in enumerate(self.items)]))

    def _take(self, event: Json) -> None:
        kind, at = event["type"], event.get("output_index", -1)
        if "response" in event:
            self._response(kind, event["response"])
        elif kind in FAILS:
            self.failed = True
        elif kind == "response.output_item.added":
            assert at == len(self.items), f"item {at} behind {len(self.items)} others"
            self.items.append(dict(event["item"]))
        elif kind == "response.output_item.done":
            assert at not in self.done, f"item {at} is done twice"
            assert (event["item"].get("id"), event["item"]["type"]) == (
                self.items[at].get("id"),
                self.items[at]["type"],
            )
            self.done[at] = event["item"]
        elif at >= 0:
            assert at < len(self.items), f"an event of an item that was not told: {event}"
            assert at not in self.done, f"an event of an item that is done: {event}"
            assert event.get("item_id", self.items[at].get("id")) == self.items[at].get("id")
            self._inside(self.items[at], event)

    def _inside(self, item: Json, event: Json) -> None:
        if event["type"] == "response.output_text.delta":
            parts = item.setdefault("content", [])
            if not parts:
                parts.append({"type": "output_text", "text": ""})
            parts[-1]["text"] += event["delta"]
        elif event["type"] == "response.content_part.added":
            item["content"] = [*item.get("content", []), dict(event["part"])]
        elif event["type"] == "response.function_call_arguments.delta":
            item["arguments"] = item.get("arguments", "") + event["delta"]

    def _response(self, kind: str, response: Json) -> None:
        assert self.id in ("", response["id"]), "another answer in the same stream"
        assert self.id or kind == "response.created", f"it begins with {kind}"
        self.id = response["id"]
        if kind in FAILS:
            self.failed = True
        elif kind in ENDS:
            assert sorted(self.done) == list(range(len(self.items))), "it ended with an item open"
            assert response["output"] == [self.done[at] for at in sorted(self.done)], "the end tells other items"
            assert kind == f"response.{response['status']}"
            self.last = response


# ----------------------------------------------------------------------------------------------------- what a judge
# reads
def _offered(raw: str) -> Json:
    fields = members(raw)
    return offered(value_in(fields, "name") or value_in(fields, "type"), raw)


def _neutral(raws: Sequence[str]) -> list[Json]:
    """Items as neutral messages: those that the model made in a row are one."""
    said: list[Json] = []
    for made, run in groupby(raws, _is_made):
        items = list(run)
        said += [_assistant(items)] if made else map(_other, items)
    return said


def _is_made(raw: str) -> bool:
    fields = members(raw)
    kind = value_in(fields, "type") or "message"
    return kind in ("reasoning", "item_reference") or kind.endswith("_call") or value_in(fields, "role") == "assistant"


def _other(raw: str) -> Json:
    fields = members(raw)
    written = object_in(raw)
    if "call_id" in fields:
        output = value_in(fields, "output")
        text = output if isinstance(output, str) else _parts(output)
        return told("tool", text, written, tool_call_id=value_in(fields, "call_id"))
    return told(value_in(fields, "role") or value_in(fields, "type"), _parts(value_in(fields, "content")), written)


def _parts(content: Any) -> str:
    return content if isinstance(content, str) else JOINT.join(part.get("text", "") for part in content or [])


def _assistant(raws: Sequence[str]) -> Json:
    """A run. The id of what was made with reasoning goes with it: a provider asks for the one by the other."""
    texts, thoughts, calls, written, reasoning = [], [], [], [], []
    for raw in raws:
        fields = members(raw)
        kind = value_in(fields, "type") or "message"
        if kind == "reasoning":
            thoughts += [part["text"] for part in value_in(fields, "summary") or []]
            reasoning.append(object_in(raw))
            continue
        if reasoning and "id" in fields:
            reasoning.append(fields["id"])
        written.append(object_in(raw, but=("id",) if reasoning else ()))
        if kind == "message":
            texts.append(_parts(value_in(fields, "content")))
        elif kind == "function_call":
            calls.append(call(*(value_in(fields, name) for name in ("call_id", "name", "arguments"))))
    return answer(filter(None, texts), calls, written, thoughts, reasoning)
