"""The responses API in a replay: a recorded chat as clients write it that keep the whole history themselves.

System messages at the head become the instructions. Every other message becomes one item or several: an answer has
items for its reasoning, its text and its calls. Items have the same bytes and the same ids in every request.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from callstack_proxy.replay.api.base import (
    NOTHING_MORE_TEXT,
    RecordedConversation,
    ReplayApi,
    ReplyMetadata,
    is_own_call,
)
from callstack_proxy.replay.recording import Json, encode_json
from callstack_proxy.replay.validation import (
    call_arguments,
    call_name,
    head_length,
    parts_of,
    stable_digest,
    tool_definition,
)
from proxy.accounting import CacheUse
from proxy.core.ledger import Message
from proxy.dialects import OPENAI_RESPONSES, raw_json
from proxy.dialects.chat import text_of
from proxy.dialects.responses import REASONING, read_run
from proxy.exchange import client_chain

ITEM_REFERENCE = "item_reference"
TYPE_BY_ID_PREFIX = {"rs": REASONING, "msg": "message", "fc": "function_call", "ctc": "custom_tool_call"}
"""The type of an item by the prefix of its id."""
Item = dict[str, Any]


# -------------------------------------------------------------------------------------------------------------- write
class ResponsesConversation:
    """A chat recording; each message is the bytes of its items, separated by commas."""

    def __init__(self, recorded: RecordedConversation) -> None:
        messages = recorded.messages
        self.others = _other_members(messages[: head_length(messages)], recorded.tools)
        freeform = {call["id"] for m in messages for call in m.get("tool_calls") or () if "custom" in call}
        self._answers = {at: answer_from_chat(m, f"{at} ") for at, m in enumerate(messages) if m["role"] == "assistant"}
        items = (
            self._answers[at]["output"] if at in self._answers else [_item(message, freeform)]
            for at, message in enumerate(messages)
        )
        self._wires = [b",".join(map(encode_json, made)) for made in items]

    def messages_between(self, start: int, end: int) -> tuple[bytes, ...]:
        return tuple(self._wires[start:end])

    def answer_at(self, at: int) -> Json:
        return self._answers[at]


def _other_members(head: Sequence[Json], tools: Sequence[Json]) -> Json:
    members: dict[str, Any] = {"store": False, "include": ["reasoning.encrypted_content"]}
    if head:
        members["instructions"] = "\n\n".join(text_of(message.get("content")) for message in head)
    if tools:
        members["tools"] = [_tool(tool) for tool in tools]
    return members


def _tool(tool: Json) -> Json:
    if isinstance(custom := tool.get("custom"), dict):
        return {"type": "custom", **custom}
    return {"type": "function", **tool_definition(tool), "strict": False}


def _item(message: Json, freeform: Collection[str]) -> Item:
    """The item of a message that is not an assistant's. `freeform` has the ids of calls with free text."""
    role, content = message["role"], message.get("content")
    parts = [_part(part) for part in parts_of(content)]
    if role != "tool":
        return {"type": "message", "role": role, "content": parts}
    call = message["tool_call_id"]
    kind = "custom_tool_call_output" if call in freeform else "function_call_output"
    return {"type": kind, "call_id": call, "output": content if isinstance(content, str) else parts}


def _part(part: Json) -> Item:
    if part.get("type") != "image_url":
        return {"type": "input_text", "text": text_of([part])}
    return {"type": "input_image", "image_url": str((part.get("image_url") or {}).get("url", ""))}


def answer_from_chat(message: Json, place: str = "") -> Json:
    """An assistant message of chat completions as items. `place` keeps their ids apart from those of another message
    with the same content."""
    text, thought = text_of(message.get("content")), message.get("reasoning_content")
    items = [_reasoning(thought, place)] if thought else []
    calls = [_call(call, place) for call in message.get("tool_calls") or ()]
    if text or not calls:
        items.append(_message(text, place))
    return {"output": [*items, *calls]}


def _reasoning(thought: str, place: str) -> Item:
    seal = stable_digest(place + thought)
    summary = [{"type": "summary_text", "text": thought}]
    return {"type": REASONING, "id": f"rs_{seal[:24]}", "summary": summary, "encrypted_content": seal}


def _message(text: str, place: str = "") -> Item:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    name = f"msg_{stable_digest(place + text)[:24]}"
    return {"type": "message", "id": name, "status": "completed", "role": "assistant", "content": content}


def _call(call: Json, place: str) -> Item:
    of_it = {"status": "completed", "call_id": call["id"], "name": call_name(call)}
    seal = stable_digest(place + str(call["id"]))[:24]
    if "custom" in call:
        return {"type": "custom_tool_call", "id": f"ctc_{seal}", **of_it, "input": call_arguments(call)}
    return {"type": "function_call", "id": f"fc_{seal}", **of_it, "arguments": call_arguments(call)}


# ------------------------------------------------------------------------------------------------------------- answer
def as_message(answer: Json) -> Message:
    return read_run(encode_json(answer["output"]))


def reply_body(answer: Json, around: ReplyMetadata, use: CacheUse, output: int) -> Json:
    return {
        "id": answer.get("id") or f"resp_recorded_{around.number}",
        "object": "response",
        "created_at": around.created,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": around.model,
        "output": answer["output"],
        "usage": {
            "input_tokens": use.total,
            "input_tokens_details": {"cached_tokens": use.cached, "cache_write_tokens": use.written},
            "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": use.total + output,
        },
    }


def without_own_calls(answer: Json) -> Json:
    items = [item for item in answer["output"] if not is_own_call(item)]
    heard = [item for item in items if item.get("type") != REASONING]
    return {"output": items if heard else [*items, _message(NOTHING_MORE_TEXT)]}


def answer_in(body: Any) -> Json | None:
    output = body.get("output") if isinstance(body, dict) else None
    return {"id": body.get("id"), "output": output} if isinstance(output, list) else None


def answer_from_echo(echo: bytes | None, beside: Json | None) -> Json | None:
    """Prefers the echo, which has the API's own ids. Items that it only references are taken from `beside`; None where
    they are not there."""
    if echo is None or (beside and beside.get("id")):
        return beside
    left = list(beside["output"]) if beside else []
    items = [_resolve_reference(item, left) for item in map(raw_json.parse, raw_json.items(echo))]
    return {"output": items} if all(items) else None


def _resolve_reference(item: Item, left: list[Item]) -> Item | None:
    """The item that `item` is or references; a referenced one is removed from `left`."""
    if item.get("type") != ITEM_REFERENCE:
        return item
    kind = TYPE_BY_ID_PREFIX.get(str(item.get("id")).partition("_")[0])
    meant = next((each for each in left if each.get("type") == kind), None)
    if meant is None:
        return None
    left.remove(meant)
    return {**meant, "id": item["id"]}


RESPONSES = ReplayApi(
    name="responses",
    dialect=OPENAI_RESPONSES,
    path="/v1/responses",
    messages_key="input",
    cache_pieces=client_chain,
    write=ResponsesConversation,
    as_message=as_message,
    reply=reply_body,
    without_own_calls=without_own_calls,
    answer_from_chat=answer_from_chat,
    answer_in=answer_in,
    answer_from_echo=answer_from_echo,
)
