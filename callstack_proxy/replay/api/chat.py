"""Chat completions in a replay. Recordings mostly hold such messages already; they are written as they are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from callstack_proxy.replay.api.base import (
    NOTHING_MORE_TEXT,
    RecordedConversation,
    ReplayApi,
    ReplyMetadata,
    is_own_call,
)
from callstack_proxy.replay.recording import Json, encode_json
from callstack_proxy.replay.validation import head_length
from proxy.accounting import CacheUse
from proxy.core.ledger import Message
from proxy.dialects import OPENAI_CHAT
from proxy.dialects.chat import read_message
from proxy.exchange import client_chain


class ChatConversation:
    """The messages as they are, each encoded once."""

    def __init__(self, recorded: RecordedConversation) -> None:
        self.others: Json = {"tools": recorded.tools} if recorded.tools else {}
        self._messages = recorded.messages
        self._wires = tuple(map(encode_json, recorded.messages))
        self._head = self._wires[: head_length(recorded.messages)]

    def messages_between(self, start: int, end: int) -> tuple[bytes, ...]:
        return (*self._head, *self._wires[start:end])

    def answer_at(self, at: int) -> Json:
        return self._messages[at]


def as_message(answer: Json) -> Message:
    return read_message(encode_json(answer))


def reply_body(answer: Json, around: ReplyMetadata, use: CacheUse, output: int) -> Json:
    return {
        "id": f"chatcmpl-recorded-{around.number}",
        "object": "chat.completion",
        "created": around.created,
        "model": around.model,
        "choices": [
            {"index": 0, "message": answer, "finish_reason": "tool_calls" if answer.get("tool_calls") else "stop"}
        ],
        "usage": {
            "prompt_tokens": use.total,
            "completion_tokens": output,
            "total_tokens": use.total + output,
            "prompt_tokens_details": {"cached_tokens": use.cached, "cache_write_tokens": use.written},
        },
    }


def without_own_calls(answer: Json) -> Json:
    calls = [call for call in answer.get("tool_calls") or () if not is_own_call(_function(call))]
    rest = {name: value for name, value in answer.items() if name != "tool_calls"}
    if calls:
        return {**rest, "tool_calls": calls}
    return {**rest, "content": rest.get("content") or NOTHING_MORE_TEXT}


def _function(call: Json) -> Json:
    function = call.get("function")
    return function if isinstance(function, Mapping) else {}


def answer_in(body: Any) -> Json | None:
    """The message of a chat completion."""
    choices = body.get("choices") if isinstance(body, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    return message if isinstance(message, dict) and message.get("role") == "assistant" else None


def answer_from_echo(echo: bytes | None, beside: Json | None) -> Json | None:
    """Prefers `beside`, because it has the reasoning, which few clients echo."""
    if beside is not None or echo is None:
        return beside
    message: Json = json.loads(echo)
    return message


CHAT = ReplayApi(
    name="chat",
    dialect=OPENAI_CHAT,
    path="/v1/chat/completions",
    messages_key="messages",
    cache_pieces=client_chain,
    write=ChatConversation,
    as_message=as_message,
    reply=reply_body,
    without_own_calls=without_own_calls,
    answer_from_chat=lambda message: message,
    answer_in=answer_in,
    answer_from_echo=answer_from_echo,
)
