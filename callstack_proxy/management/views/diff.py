"""Compares a client's body with a body sent for it: messages, leading system messages (the head), tools, other fields.

Messages are equal if role, text, calls and answered call are. `kept` has the same bytes; `first bytes` was sent with
the bytes of its first version; `left out` is in the client's body alone, `inserted` in ours alone. Bodies that are no
chat requests are compared as bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

import msgspec

from callstack_proxy.management.views.schemas import BodyDiff, MessageChange, NamedChanges
from proxy.core.ledger import INSTRUCTION_ROLES, Call, identity_of

CHANGES = KEPT, FIRST_BYTES, LEFT_OUT, INSERTED = "kept", "first bytes", "left out", "inserted"
MESSAGE_EXCERPT_LENGTH = 160

_raw_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raw_list = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class BodyMessage:
    role: str
    text: str
    calls: tuple[Call, ...]
    answers: str
    wire: bytes
    position: int
    """Its index in `messages`."""

    @property
    def identity(self) -> str:
        return identity_of(self.role, self.text, self.calls, self.answers)


@dataclass(frozen=True, slots=True)
class ParsedBody:
    head: tuple[BodyMessage, ...]
    messages: tuple[BodyMessage, ...]
    tools: Mapping[str, bytes]
    fields: Mapping[str, bytes]


def diff_bodies(client: bytes, sent: bytes) -> BodyDiff:
    summary: BodyDiff = {
        "same": client == sent,
        "readable": False,
        "client_bytes": len(client),
        "sent_bytes": len(sent),
    }
    theirs, ours = parse_chat_body(client), parse_chat_body(sent)
    if theirs is None or ours is None:
        return summary
    rows = list(_message_changes(theirs.messages, ours.messages))
    return {
        **summary,
        "readable": True,
        "counts": {change: sum(row["change"] == change for row in rows) for change in CHANGES},
        "head": list(_message_changes(theirs.head, ours.head)),
        "messages": rows,
        "tools": _compare_by_name(theirs.tools, ours.tools),
        "fields": _compare_by_name(theirs.fields, ours.fields),
    }


# --------------------------------------------------------------------------------------------------------------- rows
def _message_changes(theirs: Sequence[BodyMessage], ours: Sequence[BodyMessage]) -> Iterator[MessageChange]:
    """In the order of the sent body; left out messages are where they were."""
    before, after = [m.identity for m in theirs], [m.identity for m in ours]
    for tag, a, to_a, b, to_b in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            for old, new in zip(theirs[a:to_a], ours[b:to_b], strict=True):
                yield _message_change(KEPT if old.wire == new.wire else FIRST_BYTES, old, new)
            continue
        yield from (_message_change(LEFT_OUT, old, None) for old in theirs[a:to_a])
        yield from (_message_change(INSERTED, None, new) for new in ours[b:to_b])


def _message_change(change: str, old: BodyMessage | None, new: BodyMessage | None) -> MessageChange:
    message = new or old
    assert message is not None  # noqa: S101 - one of the two is always there
    text = " ".join(message.text.split())
    return {
        "change": change,
        "role": message.role,
        "client": old.position if old else None,
        "sent": new.position if new else None,
        "bytes": len(message.wire),
        "calls": [call.name for call in message.calls],
        "text": text if len(text) <= MESSAGE_EXCERPT_LENGTH else f"{text[: MESSAGE_EXCERPT_LENGTH - 1]}…",
    }


def _compare_by_name(theirs: Mapping[str, bytes], ours: Mapping[str, bytes]) -> NamedChanges:
    return {
        "kept": [name for name in ours if theirs.get(name) == ours[name]],
        "changed": [name for name in ours if name in theirs and theirs[name] != ours[name]],
        "inserted": [name for name in ours if name not in theirs],
        "left_out": [name for name in theirs if name not in ours],
    }


# ------------------------------------------------------------------------------------------------------------ reading
def parse_chat_body(body: bytes) -> ParsedBody | None:
    """The parsed chat request, or None if the body is none."""
    try:
        fields = _raw_fields.decode(body)
        messages = [_parse_message(bytes(raw), index) for index, raw in enumerate(_raw_list.decode(fields["messages"]))]
        tools = {_tool_name(bytes(raw), number): bytes(raw) for number, raw in enumerate(_tools(fields))}
    except (msgspec.MsgspecError, KeyError, UnicodeError, RecursionError):
        return None
    head_length = next((number for number, m in enumerate(messages) if m.role not in INSTRUCTION_ROLES), len(messages))
    others = {name: bytes(raw) for name, raw in fields.items() if name not in {"messages", "tools"}}
    return ParsedBody(tuple(messages[:head_length]), tuple(messages[head_length:]), tools, others)


def _tools(fields: Mapping[str, msgspec.Raw]) -> list[msgspec.Raw]:
    raw = fields.get("tools")
    return _raw_list.decode(raw) if raw is not None and bytes(raw).startswith(b"[") else []


def _tool_name(wire: bytes, number: int) -> str:
    tool = msgspec.json.decode(wire)
    function = tool.get("function") if isinstance(tool, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else f"tool {number}"


def _parse_message(wire: bytes, position: int) -> BodyMessage:
    message = msgspec.json.decode(wire)
    if not isinstance(message, dict):
        return BodyMessage("", "", (), "", wire, position)
    calls = message.get("tool_calls")
    return BodyMessage(
        str(message.get("role", "")),
        _text(message.get("content")),
        tuple(_parse_call(call) for call in calls if isinstance(call, dict)) if isinstance(calls, list) else (),
        str(message.get("tool_call_id") or ""),
        wire,
        position,
    )


def _parse_call(call: Mapping[str, Any]) -> Call:
    function = call.get("function")
    fields = function if isinstance(function, dict) else {}
    return Call(str(call.get("id", "")), str(fields.get("name", "")), str(fields.get("arguments", "")))


def _text(content: object) -> str:
    """Strings unchanged; of content parts their texts, or JSON without cache markers."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    return "\n".join(_part(part) for part in parts)


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return str(part["text"])
    content = {k: v for k, v in part.items() if k != "cache_control"} if isinstance(part, dict) else part
    return json.dumps(content, sort_keys=True)
