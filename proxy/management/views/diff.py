"""A client's body against a body sent for it: message by message, then the head, the tools, and the other fields.

A message is the same one where its meaning is: role, text, calls and what it answers. `kept` stands there byte for
byte; `first bytes` is kept in the bytes it was first sent in (the client has tidied it since); `left out` was sent by
the client alone, `inserted` by us alone. The head are the system messages in front.

What this module does not do: it changes no body, and what it cannot read as a chat request it compares as bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

import msgspec

from proxy.core.ledger import INSTRUCTION_ROLES, Call, identity_of
from proxy.management.views.schemas import BodyDiff, MessageChange, NamedChanges

CHANGES = KEPT, FIRST_BYTES, LEFT_OUT, INSERTED = "kept", "first bytes", "left out", "inserted"
MESSAGE_EXCERPT_LENGTH = 160
"""Characters of a message shown in a difference."""

_raw_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raw_list = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class BodyMessage:
    """A message of a body: what it means, and its bytes."""

    role: str
    text: str
    calls: tuple[Call, ...]
    answers: str
    wire: bytes
    position: int
    """Its position in `messages`."""

    @property
    def identity(self) -> str:
        return identity_of(self.role, self.text, self.calls, self.answers)


@dataclass(frozen=True, slots=True)
class ParsedBody:
    """A chat request taken apart for looking at."""

    head: tuple[BodyMessage, ...]
    messages: tuple[BodyMessage, ...]
    tools: Mapping[str, bytes]
    fields: Mapping[str, bytes]


def diff_bodies(client: bytes, sent: bytes) -> BodyDiff:
    """`same`: byte for byte."""
    about: BodyDiff = {
        "same": client == sent,
        "readable": False,
        "client_bytes": len(client),
        "sent_bytes": len(sent),
    }
    theirs, ours = parse_chat_body(client), parse_chat_body(sent)
    if theirs is None or ours is None:
        return about
    rows = list(_message_changes(theirs.messages, ours.messages))
    return {
        **about,
        "readable": True,
        "counts": {what: sum(row["change"] == what for row in rows) for what in CHANGES},
        "head": list(_message_changes(theirs.head, ours.head)),
        "messages": rows,
        "tools": _compare_by_name(theirs.tools, ours.tools),
        "fields": _compare_by_name(theirs.fields, ours.fields),
    }


# --------------------------------------------------------------------------------------------------------------- rows
def _message_changes(theirs: Sequence[BodyMessage], ours: Sequence[BodyMessage]) -> Iterator[MessageChange]:
    """In the order of what was sent; what was left out stands where it was."""
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
    """A chat request, or None where it is none."""
    try:
        fields = _raw_fields.decode(body)
        messages = [_parse_message(bytes(raw), place) for place, raw in enumerate(_raw_list.decode(fields["messages"]))]
        tools = {_tool_name(bytes(raw), at): bytes(raw) for at, raw in enumerate(_tools(fields))}
    except (msgspec.MsgspecError, KeyError, UnicodeError, RecursionError):
        return None
    behind = next((at for at, m in enumerate(messages) if m.role not in INSTRUCTION_ROLES), len(messages))
    others = {name: bytes(raw) for name, raw in fields.items() if name not in {"messages", "tools"}}
    return ParsedBody(tuple(messages[:behind]), tuple(messages[behind:]), tools, others)


def _tools(fields: Mapping[str, msgspec.Raw]) -> list[msgspec.Raw]:
    listed = fields.get("tools")
    return _raw_list.decode(listed) if listed is not None and bytes(listed).startswith(b"[") else []


def _tool_name(wire: bytes, at: int) -> str:
    tool = msgspec.json.decode(wire)
    function = tool.get("function") if isinstance(tool, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else f"tool {at}"


def _parse_message(wire: bytes, place: int) -> BodyMessage:
    message = msgspec.json.decode(wire)
    if not isinstance(message, dict):
        return BodyMessage("", "", (), "", wire, place)
    calls = message.get("tool_calls")
    return BodyMessage(
        str(message.get("role", "")),
        _text(message.get("content")),
        tuple(_parse_call(call) for call in calls if isinstance(call, dict)) if isinstance(calls, list) else (),
        str(message.get("tool_call_id") or ""),
        wire,
        place,
    )


def _parse_call(call: Mapping[str, Any]) -> Call:
    function = call.get("function")
    named = function if isinstance(function, dict) else {}
    return Call(str(call.get("id", "")), str(named.get("name", "")), str(named.get("arguments", "")))


def _text(content: object) -> str:
    """A string as it is; of parts their texts, and what is no text as JSON without its cache markers."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    return "\n".join(_part(part) for part in parts)


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return str(part["text"])
    kept = {k: v for k, v in part.items() if k != "cache_control"} if isinstance(part, dict) else part
    return json.dumps(kept, sort_keys=True)
