"""Wire formats: bytes to values and back, no I/O.

A dialect is one entry of DIALECTS, by the end of the path its requests are posted to: how a request is taken apart and
written again, how messages of ours look in it, and the object that writes an answer. The law: **what is not changed is
not written again**, in both directions.

What this package does not do: it decides nothing. What goes upstream is decided by `stack.context`, what a client sees
of an answer by `stack.intercept`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.dialects import chat_message, openai_chat, slices
from proxy.dialects.chat_answer import Answer
from proxy.dialects.openai_chat import Body, Known, Wanted
from proxy.stack.transcript import Message, Request


@dataclass(frozen=True, slots=True)
class Dialect:
    """All that the exchange needs to speak one wire format."""

    name: str
    read: Callable[[bytes, Known], Request]
    countables: Callable[[Request], list[str]]
    weighed: Callable[[Request, Sequence[int], Known], Request]
    render: Callable[[Request, Sequence[bytes], Sequence[bytes], Wanted], Body]
    client_body: Callable[[Request], Body]
    extended_head: Callable[[Request, str], tuple[bytes, ...]]
    tools_json: Callable[[Sequence[Mapping[str, Any]]], bytes]
    countable: Callable[[Message], str]
    tool_result: Callable[[str, str], Message]
    user_message: Callable[[str], Message]
    without_reasoning: Callable[[Message], Message]
    retold: Callable[[Message, str], Message]
    name_json: Callable[[str], bytes]
    answer: type[Answer]


OPENAI_CHAT = Dialect(
    "openai_chat",
    openai_chat.read,
    openai_chat.countables,
    openai_chat.weighed,
    openai_chat.render,
    openai_chat.client_body,
    openai_chat.extended_head,
    openai_chat.tools_json,
    chat_message.countable,
    chat_message.tool_result,
    chat_message.user_message,
    chat_message.without_reasoning,
    chat_message.retold,
    slices.encoded,
    Answer,
)

DIALECTS: Mapping[str, Dialect] = {"/chat/completions": OPENAI_CHAT}
"""By the end of the path."""
