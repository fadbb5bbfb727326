"""The messages API in a replay: a recorded chat as its clients write it.

System messages at the head become the system text. The results of one group and the user's text behind them become one
user message. As agents do it, a cache marker is set on the system text (on the tools where there is none) and on the
last block of every request. Apart from that marker, which moves, a message has the same bytes in every request.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from callstack_proxy.replay.api.base import (
    NOTHING_MORE_TEXT,
    RecordedConversation,
    ReplayApi,
    ReplyMetadata,
    is_own_call,
)
from callstack_proxy.replay.cache_markers import cache_pieces
from callstack_proxy.replay.recording import Json, encode_json
from callstack_proxy.replay.validation import (
    CallPairing,
    call_arguments,
    call_name,
    head_length,
    parts_of,
    stable_digest,
    tool_definition,
)
from proxy.accounting import CacheUse, tariff_for
from proxy.core.ledger import Message
from proxy.dialects import ANTHROPIC_MESSAGES
from proxy.dialects.chat import text_of
from proxy.dialects.messages import REASONING, TEXT, TOOL_RESULT, TOOL_USE, messages_in, read_message, with_marker

CACHE_MARKER: Json = {"type": "ephemeral"}
MAX_OUTPUT_TOKENS = 32_000
"""`max_tokens`, which this API requires; no replay depends on it."""
Block = dict[str, Any]


# -------------------------------------------------------------------------------------------------------------- write
class MessagesConversation:
    """A chat recording, written once in this API."""

    def __init__(self, recorded: RecordedConversation) -> None:
        messages = self._messages = recorded.messages
        head = head_length(messages)
        self.others = {**_other_members(messages[:head], recorded.tools), **_thinking(recorded)}
        self._wires: list[bytes] = []
        self._ends: list[int] = []
        """By recorded message: how many of the wires exist once it is written."""
        for first, last in _message_groups(messages, head, recorded.request_starts):
            self._wires += [encode_json(_as_api_message(messages[first:last]))]
            self._ends += [len(self._wires)] * (last - first)

    def messages_between(self, start: int, end: int) -> tuple[bytes, ...]:
        wires = self._wires[self._ends[start] - 1 : self._ends[end - 1]] if start < end else []
        return _with_marker(wires)

    def answer_at(self, at: int) -> Json:
        return answer_from_chat(self._messages[at])


class RecordedMessages:
    """A conversation that was recorded in this API. `body` has its other members."""

    def __init__(self, messages: Sequence[Json], body: Json) -> None:
        kept = {name: body[name] for name in ("system", "tools", "thinking") if body.get(name)}
        self.others: Json = {"max_tokens": MAX_OUTPUT_TOKENS, **kept}
        self._messages = messages
        self._wires = [encode_json(message) for message in messages]
        self._head = self._wires[: head_length(messages)]

    def messages_between(self, start: int, end: int) -> tuple[bytes, ...]:
        return _with_marker([*self._head, *self._wires[start:end]]) if start < end else ()

    def answer_at(self, at: int) -> Json:
        return _answer(self._messages[at])


def call_pairings(messages: Sequence[Json]) -> list[CallPairing]:
    """The calls and the answered call of each message, and of each result within a message."""
    read = (found for message in messages for found in messages_in(encode_json(message)))
    return [([call.id for call in found.calls], found.answers) for found in read]


def _with_marker(wires: Sequence[bytes]) -> tuple[bytes, ...]:
    return (*wires[:-1], *(with_marker(wire, encode_json(CACHE_MARKER)) for wire in wires[-1:]))


def _other_members(head: Sequence[Json], tools: Sequence[Json]) -> Json:
    """The members beside the messages, with a cache marker on the last part that never changes."""
    system: list[Block] = [{"type": TEXT, "text": text_of(message.get("content"))} for message in head]
    offered: list[Block] = [
        {("input_schema" if name == "parameters" else name): value for name, value in tool_definition(tool).items()}
        for tool in tools
    ]
    for last in (system or offered)[-1:]:
        last["cache_control"] = CACHE_MARKER
    members: dict[str, Any] = {"max_tokens": MAX_OUTPUT_TOKENS, "system": system, "tools": offered}
    return {name: value for name, value in members.items() if value}


def _thinking(recorded: RecordedConversation) -> Json:
    """How a client asks for the thinking that was recorded: with a budget, or adaptive, by the model."""
    if not any(message.get("reasoning_content") for message in recorded.messages):
        return {}
    budget = tariff_for(recorded.model).thinking_in_loop == "required"
    return {
        "thinking": {"type": "enabled", "budget_tokens": MAX_OUTPUT_TOKENS // 2} if budget else {"type": "adaptive"}
    }


def _message_groups(messages: Sequence[Json], head: int, beginnings: Collection[int]) -> Iterator[tuple[int, int]]:
    """Start and end of the recorded messages that become one message of this API; those of the head stay single."""
    yield from ((at, at + 1) for at in range(head))
    first = head
    for at in range(head, len(messages)):
        follows = at + 1 < len(messages) and at + 1 not in beginnings
        joins = follows and messages[at]["role"] == "tool" and messages[at + 1]["role"] in ("tool", "user")
        if not joins:
            yield first, at + 1
            first = at + 1


def _as_api_message(messages: Sequence[Json]) -> Json:
    """One message of this API, from one of chat, or from results and the user's text behind them."""
    first = messages[0]
    if first["role"] == "assistant":
        return answer_from_chat(first)
    blocks = [block for message in messages for block in _blocks(message)]
    return {"role": "user" if first["role"] in ("tool", "user") else "system", "content": blocks}


def _blocks(message: Json) -> list[Block]:
    content = message.get("content")
    if message["role"] != "tool":
        return [_part(part) for part in parts_of(content)]
    told = content if isinstance(content, str) else [_part(part) for part in parts_of(content)]
    return [{"type": TOOL_RESULT, "tool_use_id": message["tool_call_id"], "content": told}]


def _part(part: Json) -> Block:
    if part.get("type") != "image_url":
        return {"type": TEXT, "text": text_of([part])}
    url = str((part.get("image_url") or {}).get("url", ""))
    opening, _, data = url.partition(";base64,")
    if not opening.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    return {"type": "image", "source": {"type": "base64", "media_type": opening[len("data:") :], "data": data}}


def answer_from_chat(message: Json) -> Json:
    """An assistant message of chat completions as thinking, text and tool use blocks."""
    thought = message.get("reasoning_content")
    blocks: list[Block] = (
        [{"type": "thinking", "thinking": thought, "signature": stable_digest(thought)}] if thought else []
    )
    said = map(_part, parts_of(message.get("content")))
    blocks += [block for block in said if block.get("text", "picture").strip()]  # a text that is blank is refused
    blocks += [
        {"type": TOOL_USE, "id": call["id"], "name": call_name(call), "input": _input(call_arguments(call))}
        for call in message.get("tool_calls") or ()
    ]
    return {"role": "assistant", "content": blocks or [{"type": TEXT, "text": ""}]}


def _input(arguments: str) -> Json:
    """The arguments of a call as an object, which this API requires; anything else is wrapped in one."""
    try:
        found = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return {"input": arguments}
    return found if isinstance(found, dict) else {"input": found}


# ------------------------------------------------------------------------------------------------------------- answer
def as_message(answer: Json) -> Message:
    return read_message(encode_json(answer))


def reply_body(answer: Json, around: ReplyMetadata, use: CacheUse, output: int) -> Json:
    calls = any(block.get("type") == TOOL_USE for block in answer["content"])
    return {
        "id": f"msg_recorded_{around.number}",
        "type": "message",
        "role": "assistant",
        "model": around.model,
        "content": answer["content"],
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": use.uncached,
            "cache_creation_input_tokens": use.written,
            "cache_read_input_tokens": use.cached,
            "output_tokens": output,
        },
    }


def without_own_calls(answer: Json) -> Json:
    blocks = [block for block in answer["content"] if block.get("type") != TOOL_USE or not is_own_call(block)]
    heard = [block for block in blocks if block.get("type") not in REASONING]
    return {**answer, "content": blocks if heard else [*blocks, {"type": TEXT, "text": NOTHING_MORE_TEXT}]}


def answer_in(body: Any) -> Json | None:
    content = body.get("content") if isinstance(body, dict) and body.get("role") == "assistant" else None
    return {"role": "assistant", "content": content} if isinstance(content, list) else None


def answer_from_echo(echo: bytes | None, beside: Json | None) -> Json | None:
    """Prefers the echo: only it has signed thinking and the API's own ids."""
    return beside if echo is None else _answer(json.loads(echo))


def _answer(message: Json) -> Json:
    """An assistant message whose content is a list of blocks."""
    content = message.get("content")
    blocks = content if isinstance(content, list) else [{"type": TEXT, "text": content or ""}]
    return {"role": "assistant", "content": blocks}


MESSAGES = ReplayApi(
    name="messages",
    dialect=ANTHROPIC_MESSAGES,
    path="/v1/messages",
    messages_key="messages",
    cache_pieces=cache_pieces,
    write=MessagesConversation,
    as_message=as_message,
    reply=reply_body,
    without_own_calls=without_own_calls,
    answer_from_chat=answer_from_chat,
    answer_in=answer_in,
    answer_from_echo=answer_from_echo,
)
