"""The messages API, as Claude Code and the SDK speak it.

The system text is a list of blocks with a cache marker on the last one, the last tool has one, and two move along
with the end of the conversation: all four that the API takes. Results of a group and the words behind them travel in
one user message; text is a string until a marker must stand on it. Thinking is given back as it came.

Beyond the laws: at most four markers in a request and none where the client has none; the results of a group all lead
the very next message, in the order of the calls.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from types import MappingProxyType
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
    input_of,
    object_in,
    offered,
    parted,
    request,
    spoken,
    told,
    value_in,
)
from tests.laws import elements, members

FINISHES = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"}
CHOICES = {"auto": "auto", "none": "none", "required": "any"}
THINKING = ("thinking", "redacted_thinking")
PARTIAL = "partial_json"
DELTAS = ("text", "thinking", "signature", PARTIAL)
"""Members of a delta that add to the member of their name in the block."""
MARKER = "cache_control"
MARK = {"type": "ephemeral"}
LASTING = {"type": "ephemeral", "ttl": "1h"}
MOST_MARKERS = 4
LIMIT = 8_000
"""Tokens of an answer, where a scenario names none: this API wants to be told."""


class Messages(TestDialect):
    name = "anthropic_messages"
    short = "messages"
    path = "/v1/messages"
    headers = MappingProxyType({"anthropic-version": "2023-06-01"})
    opening = 3
    terminator = b"event: message_stop"
    signs = True

    def body(self, asked: Json) -> bytes:
        head, said, rest = parted(asked, OPTIONS)
        body: Json = {"model": rest.pop("model"), "max_tokens": asked.get("max_tokens", LIMIT)}
        body["messages"] = _marked(_messages(said))
        if head:
            body["system"] = [{"type": "text", "text": m["content"]} for m in head]
            body["system"][-1][MARKER] = LASTING
        if tools := rest.pop("tools", None):
            body["tools"] = [_tool(each["function"]) for each in tools]
            body["tools"][-1][MARKER] = LASTING
        return json.dumps(body | _options(asked) | rest, separators=AS_CLIENTS_DO).encode()

    def plain(self, answer: Json) -> ClientAnswer:
        assert (answer["type"], answer["role"]) == ("message", "assistant"), answer
        blocks = [
            block | {"arguments": json.dumps(block["input"])} if _is_call(block) else block
            for block in answer["content"]
        ]
        return ClientAnswer(_spoken(blocks), [_finish(answer)], _usage(answer["usage"]), ended=True)

    def streamed(self, events: Sequence[Json]) -> ClientAnswer:
        return _Stream(events).heard()

    def neutral(self, body: bytes) -> bytes:
        fields = members(body.decode())
        tools = [
            offered(value_in(members(raw), "name"), object_in(raw, but=(MARKER,)) if f'"{MARKER}"' in raw else raw)
            for raw in elements_in(fields, "tools")
        ]
        head = _system(fields["system"]) if "system" in fields else []
        said = [each for raw in elements_in(fields, "messages") for each in _neutral(raw)]
        return request(fields, [*head, *said], tools)

    def kept(self, wire: str) -> Iterable[str]:
        said = [_from_user(raw, "user") for raw in elements(wire)] if wire.startswith("[") else _neutral(wire)
        return map(json.dumps, said)

    def breaches(self, asked: bytes, left: bytes) -> Iterator[str]:
        theirs, ours = markers(json.loads(asked)), markers(json.loads(left))
        if ours > MOST_MARKERS or (ours and not theirs):
            yield f"{ours} cache markers left, the client has {theirs}"
        for place in ("system", "tools"):
            came, went = (markers(json.loads(body).get(place)) for body in (asked, left))
            if came != went:
                yield f"{went} cache markers left in {place}, the client has {came}"
        yield from _groups(json.loads(left)["messages"])


# ---------------------------------------------------------------------------------------------------- what a client
# says
OPTIONS = ("max_tokens", "stop", "tool_choice", "parallel_tool_calls", "response_format")
"""Members of a chat request that are called otherwise here."""


def _options(asked: Json) -> Json:
    said: Json = {}
    choice = asked.get("tool_choice")
    if isinstance(choice, str):
        said["tool_choice"] = {"type": CHOICES[choice]}
    elif choice:
        said["tool_choice"] = {"type": "tool", "name": choice[choice["type"]]["name"]}
    if asked.get("parallel_tool_calls") is False:
        said["tool_choice"] = {"type": "auto", **said.get("tool_choice", {}), "disable_parallel_tool_use": True}
    if "stop" in asked:
        said["stop_sequences"] = asked["stop"]
    if "response_format" in asked:
        said["output_config"] = {"format": asked["response_format"]}
    return said


def _tool(function: Json) -> Json:
    return {"name": function["name"], "description": function["description"], "input_schema": function["parameters"]}


def _messages(history: Sequence[Json]) -> list[Json]:
    """The messages; results, and the words right behind them, in one."""
    written: list[Json] = []
    for message in history:
        joins = bool(written) and written[-1]["role"] == "user" and isinstance(written[-1]["content"], list)
        if message["role"] == "tool":
            result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
            if not joins:
                written.append({"role": "user", "content": []})
            written[-1]["content"].append(result)
        elif message["role"] == "assistant":
            written += [{"role": "assistant", "content": blocks}] if (blocks := _blocks(message)) else []
        elif message["role"] == "user" and joins:
            written[-1]["content"] += _texts(message["content"])
        else:
            written.append({"role": message["role"], "content": message["content"]})
    return written


def _texts(content: Any) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _blocks(message: Json) -> list[Json]:
    """The blocks of an answer: as they came, less what this client does not keep of them."""
    text, calls = message.get("content"), list(message.get("tool_calls") or [])
    made = message.get("made")
    if made is None:
        texts = _texts(text) if text else []
        return [*texts, *(_tool_use(each["id"], each["function"]) for each in calls)]
    kept: list[Json] = []
    for block in made:
        if block["type"] == "tool_use":
            kept.append(block | _tool_use(block["id"], calls.pop(0)["function"]))
        elif block["type"] in THINKING:
            kept += [block] if message.get("reasoning_content") else []
        elif block["type"] != "text" or (text and block["text"]):
            kept.append(block)
    return kept


def _tool_use(id_: str, function: Json) -> Json:
    return {"type": "tool_use", "id": id_, "name": function["name"], "input": input_of(function["arguments"])}


def _marked(messages: list[Json]) -> list[Json]:
    """The markers that move: at the end, and where the request before this one ended. A string becomes a block for
    one."""
    users = [at for at, message in enumerate(messages) if message["role"] == "user"]
    for at in {*users[-2:], len(messages) - 1} if messages else ():
        content = [dict(block) for block in _texts(messages[at]["content"])]
        if content and content[-1]["type"] not in THINKING and content[-1] != {"type": "text", "text": ""}:
            content[-1][MARKER] = MARK
            messages[at] = {**messages[at], "content": content}
    return messages


# --------------------------------------------------------------------------------------------------- what a client
# hears
def _is_call(block: Json) -> bool:
    return bool(block["type"] == "tool_use")


def _spoken(blocks: Sequence[Json]) -> Json:
    """The neutral message; calls have their arguments as text in `arguments`, which is no member of the API."""
    calls = [call(b["id"], b["name"], str(b.get("arguments", b.get(PARTIAL, "")))) for b in blocks if _is_call(b)]
    texts = (b["text"] for b in blocks if b["type"] == "text" and b["text"])
    thoughts = (b.get("thinking") or b.get("data", "") for b in blocks if b["type"] in THINKING)
    made = [{name: value for name, value in b.items() if name not in ("arguments", PARTIAL)} for b in blocks]
    return spoken(texts, thoughts, calls, made)


def _finish(said: Json) -> str:
    return FINISHES.get(said["stop_reason"], str(said["stop_reason"]))


def _usage(usage: Json) -> Json:
    cached = usage.get("cache_read_input_tokens") or 0
    prompt = usage["input_tokens"] + (usage.get("cache_creation_input_tokens") or 0) + cached
    both = {"prompt_tokens": prompt, "completion_tokens": usage["output_tokens"]}
    return both | {"total_tokens": sum(both.values())}


class _Stream:
    """Events put together by a client that stands no disorder."""

    def __init__(self, events: Sequence[Json]) -> None:
        self.start: Json = {}
        self.blocks: list[Json] = []
        self.open: set[int] = set()
        self.closing: Json = {}
        self.over = self.failed = False
        for event in events:
            assert not self.over, f"behind the end: {event}"
            getattr(self, f"_{event['type']}", self._other)(event)
        whole = not self.open and self.closing
        assert self.failed or not self.over or whole, "it ended with a block open, or without a reason"

    def heard(self) -> ClientAnswer:
        usage = self.start.get("usage", {}) | self.closing.get("usage", {})
        finishes = [_finish(self.closing["delta"])] if self.closing else []
        ended = self.over and not self.failed
        return ClientAnswer(_spoken(self.blocks), finishes, _usage(usage) if self.closing else None, ended)

    def _message_start(self, event: Json) -> None:
        assert not self.start, "it began twice"
        self.start = event["message"]
        assert self.start["content"] == []
        assert self.start["id"]

    def _content_block_start(self, event: Json) -> None:
        assert self.start, "a block before the message"
        assert not self.closing, "a block behind the reason of the end"
        assert event["index"] == len(self.blocks), f"block {event['index']} behind {len(self.blocks)} others"
        self.blocks.append({PARTIAL: "", **event["content_block"]})
        self.open.add(event["index"])

    def _content_block_delta(self, event: Json) -> None:
        assert event["index"] in self.open, f"a delta of a block that is not open: {event}"
        block = self.blocks[event["index"]]
        for name, value in event["delta"].items():
            if name in DELTAS:
                block[name] = block.get(name, "") + value

    def _content_block_stop(self, event: Json) -> None:
        assert event["index"] in self.open, f"a block that is not open ends: {event}"
        self.open.remove(event["index"])
        block = self.blocks[event["index"]]
        said = block.pop(PARTIAL)
        if _is_call(block):
            block["arguments"] = said or json.dumps(block.get("input", {}))
            block["input"] = input_of(block["arguments"])

    def _message_delta(self, event: Json) -> None:
        assert not self.closing, "two reasons of the end"
        assert event["delta"]["stop_reason"]
        self.closing = event

    def _message_stop(self, _: Json) -> None:
        self.over = True

    def _error(self, _: Json) -> None:
        self.over = self.failed = True

    def _other(self, event: Json) -> None:
        """Pings, and what we do not know, may stand anywhere."""


# ----------------------------------------------------------------------------------------------------- what a judge
# reads
def _system(raw: str) -> list[Json]:
    blocks = elements(raw) if raw.startswith("[") else [f'{{"type":"text","text":{raw}}}']
    text = JOINT.join(value_in(members(block), "text") or "" for block in blocks)
    return [told("system", text, ",".join(object_in(block, but=(MARKER,)) for block in blocks))]


def _neutral(raw: str) -> list[Json]:
    """A message as neutral ones: of a user's, each block is one."""
    fields = members(raw)
    role, content = value_in(fields, "role"), fields["content"]
    blocks = elements(content) if content.startswith("[") else [f'{{"type":"text","text":{content}}}']
    return [_assistant(blocks)] if role == "assistant" else [_from_user(block, role) for block in blocks]


def _from_user(raw: str, role: str) -> Json:
    fields = members(raw)
    written = _unmarked(raw)
    if value_in(fields, "type") != "tool_result":
        return told(role, value_in(fields, "text") or "", written)
    content = value_in(fields, "content") or ""
    text = content if isinstance(content, str) else JOINT.join(part.get("text", "") for part in content)
    return told("tool", text, written, tool_call_id=value_in(fields, "tool_use_id"))


def _assistant(raws: Sequence[str]) -> Json:
    texts, thoughts, calls, written, reasoning = [], [], [], [], []
    for raw in raws:
        fields = members(raw)
        kind = value_in(fields, "type")
        if kind in THINKING:
            thoughts.append(value_in(fields, "thinking") or "")
            reasoning.append(object_in(raw))
            continue
        written.append(_unmarked(raw))
        if kind == "text":
            texts.append(value_in(fields, "text"))
        elif kind == "tool_use":
            calls.append(call(value_in(fields, "id"), value_in(fields, "name"), fields["input"]))
    return answer(texts, calls, written, thoughts, reasoning)


def _unmarked(raw: str) -> str:
    """A block less its marker, and those of the blocks in it."""
    fields = members(raw)
    if fields.get("content", "").startswith("["):
        inner = ",".join(object_in(block, but=(MARKER,)) for block in elements(fields["content"]))
        raw = object_in(raw, but=("content", MARKER))[:-1] + f',"content":[{inner}]}}'
    return object_in(raw, but=(MARKER,))


def markers(said: Any) -> int:
    """How many cache markers stand anywhere in a value."""
    if isinstance(said, Mapping):
        return sum(markers(value) + (name == MARKER and value is not None) for name, value in said.items())
    return sum(map(markers, said)) if isinstance(said, list) else 0


def _groups(messages: Sequence[Json]) -> Iterator[str]:
    for made, answered in pairwise([*messages, {"role": "nobody", "content": ""}]):
        if made["role"] != "assistant":
            continue
        asked = [block["id"] for block in _texts(made["content"]) if block["type"] == "tool_use"]
        blocks = _texts(answered["content"])
        leading = takewhile(lambda block: block["type"] == "tool_result", blocks)
        given = [block["tool_use_id"] for block in leading]
        if given != asked:
            yield f"L1: the calls {asked} are answered by {given} in the next message"
