"""Checks the messages of a recording.

A message that no provider could read (an unknown role, a number as content) stops its file. What a provider would
refuse for its meaning, such as a result without its call, is only noted, because real clients send it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import takewhile
from typing import Any

from callstack_proxy.replay.recording import Json, NotReplayable
from proxy.core.ledger import INSTRUCTION_ROLES

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
MAX_NOTES_PER_KIND = 3
"""Oddities of one kind that are listed; more are counted."""


def check_messages(messages: object, place: str) -> list[Json]:
    """The list of messages itself. Raises NotReplayable for the first faulty one."""
    if not isinstance(messages, list):
        raise NotReplayable(f"{place}: `messages` is {_kind(messages)}, and must be a list of messages")
    if not messages:
        raise NotReplayable(f"{place}: `messages` is empty: there is nothing to replay")
    for number, message in enumerate(messages, 1):
        if (wrong := _fault_of_message(message)) is not None:
            raise NotReplayable(f"{place}: message {number}: {wrong}")
    return messages


def _fault_of_message(message: object) -> str | None:
    if not isinstance(message, dict):
        return f"it is {_kind(message)}, and must be an object with a role"
    role = message.get("role")
    if role not in ROLES:
        shown = "it has no role" if role is None else f"its role is {str(role)[:40]!r}"
        return f"{shown}; known roles: {', '.join(ROLES)}"
    content = message.get("content")
    parts = content if isinstance(content, list) else ()
    if not isinstance(content, str | list | None) or not all(isinstance(part, str | dict) for part in parts):
        return "its content must be a text, a list of parts, or null"
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        return "it is the result of a tool call, and `tool_call_id` does not say which"
    return _fault_of_calls(message.get("tool_calls"))


def _fault_of_calls(calls: object) -> str | None:
    if calls is None:
        return None
    if not isinstance(calls, list):
        return f"its `tool_calls` is {_kind(calls)}, and must be a list"
    for number, call in enumerate(calls, 1):
        if not isinstance(call, dict) or not isinstance(call.get("id"), str):
            return f"its call {number} must be an object with an `id`"
        if "custom" in call:
            continue
        function = call.get("function")
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            return f"its call {number} names no function"
        if not isinstance(function.get("arguments"), str):
            return f"the arguments of its call {number} must be a JSON text, not {_kind(function.get('arguments'))}"
    return None


CallPairing = tuple[Sequence[str], str]
"""The ids of the calls in a message, and the id of the call it answers, or empty."""


def pairing_of(message: Json) -> CallPairing:
    calls = [call["id"] for call in message.get("tool_calls") or ()]
    return calls, message["tool_call_id"] if message["role"] == "tool" else ""


def oddities(messages: Iterable[CallPairing], place: str) -> list[str]:
    """Notes on results without calls and calls without results, which are replayed as they are."""
    asked: dict[str, int] = {}
    orphans: list[str] = []
    last = 0
    for last, (calls, answers) in enumerate(messages, 1):
        asked |= dict.fromkeys(calls, last)
        if answers and asked.pop(answers, None) is None:
            orphans.append(f"message {last} is a result of {answers[:60]!r}, which no message calls")
    unanswered = [
        f"message {number} calls {call[:60]!r}, which has no result" for call, number in asked.items() if number < last
    ]
    return [note for found in (orphans, unanswered) for note in _shortened(found, place)]


def _shortened(found: Sequence[str], place: str) -> list[str]:
    more = [f"{place}: {len(found) - MAX_NOTES_PER_KIND} more like this"] if len(found) > MAX_NOTES_PER_KIND else []
    return [f"{place}: {note}" for note in found[:MAX_NOTES_PER_KIND]] + more


def _kind(value: Any) -> str:
    names = {
        bool: "a truth value",
        int: "a number",
        float: "a number",
        str: "a text",
        list: "a list",
        dict: "an object",
    }
    return "missing" if value is None else names.get(type(value), "something else")


# ---------------------------------------------------------------------------------------------------- what they hold
def head_length(messages: Sequence[Json]) -> int:
    """How many system messages come before all others."""
    return sum(1 for _ in takewhile(lambda message: message["role"] in INSTRUCTION_ROLES, messages))


def parts_of(content: object) -> list[Json]:
    """The parts of a content that passed `check_messages`; a text is one part."""
    parts = content if isinstance(content, list) else [content]
    return [part if isinstance(part, dict) else {"type": "text", "text": part or ""} for part in parts]


def tool_definition(tool: Json) -> Json:
    """Name, description and parameters of a tool; a free-text tool gets one parameter `input`."""
    custom = tool.get("custom")
    if not isinstance(custom, dict):
        return tool["function"] if isinstance(tool.get("function"), dict) else tool
    text = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    return {**{name: custom[name] for name in ("name", "description") if name in custom}, "parameters": text}


def call_name(call: Json) -> str:
    return str((call.get("custom") or call["function"]).get("name", ""))


def call_arguments(call: Json) -> str:
    """The arguments of a call as JSON text, or the free text of a custom call."""
    return str(call["custom"].get("input", "") if "custom" in call else call["function"]["arguments"])


def stable_digest(text: str) -> str:
    """Stands for a provider's signature or id: always the same for the same text."""
    return sha256(text.encode("utf-8", "replace")).hexdigest()


def check_expressible(messages: Sequence[Json], place: str) -> None:
    """Raises NotReplayable for a message that only chat completions can express."""
    for number, message in enumerate(messages, 1):
        if message["role"] == "function" or message.get("function_call"):
            raise NotReplayable(
                f"{place}: message {number} has a call of the old form (`function_call`), which no other API has; "
                "replay it as chat"
            )
