"""Finds what holds a message to others beside its calls and their results.

A tool that the provider runs itself may be called in one message and end in a later one: in a turn that was paused, or
in a program that waits for the client's tools. What a client approves runs in a later message than the request for it.
Providers refuse one half without the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from proxy.core.ledger import INSTRUCTION_ROLES, Message
from proxy.dialects import raw_json

APPROVAL_REQUEST_ID = "approval_request_id"
"""The member that names the request for approval, in the answer to it and in what was run then."""
APPROVAL_REQUEST = "mcp_approval_request"
SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
SERVER_RESULT_SUFFIX = "_tool_result"
"""How the type of a block ends that holds what a server's tool gave."""
MARKERS = (b"server_tool_use", b"mcp_tool_use", b'_tool_result"', b'"caller"', b"approval_request")
"""A message without any of these has no links."""


def links_of(parts: Iterable[object]) -> tuple[str, ...]:
    """Ids that parts of an assistant's message (blocks or items) share with parts of other messages, sorted."""
    begun: set[str] = set()
    ended: set[str] = set()
    shared: set[str] = set()
    for part in parts:
        if not isinstance(part, dict):
            continue
        type_ = _text(part, "type")
        if type_ in SERVER_CALLS:
            begun.add(_text(part, "id"))
        elif type_.endswith(SERVER_RESULT_SUFFIX):
            ended.add(_text(part, "tool_use_id"))
        elif isinstance(caller := part.get("caller"), dict):
            shared.add(_text(caller, "tool_id"))
        elif type_ == APPROVAL_REQUEST:
            shared.add(_text(part, "id"))
        else:
            shared.add(_text(part, APPROVAL_REQUEST_ID))
    return tuple(sorted(((begun ^ ended) | (shared - begun)) - {""}))


# A request for approval and its answer, a server's call and its result: parted by a fold, the API refuses what is left.
def links_in(wire: bytes) -> tuple[str, ...]:
    """The same of an assistant's message as it is stored, in any dialect."""
    return links_of(_parts_of(wire)) if any(marker in wire for marker in MARKERS) else ()


def answers_program(messages: Sequence[Message]) -> bool:
    """Whether they end with results for a program that runs at the provider, which takes results alone."""
    newest_first = (m for m in reversed(messages) if m.role not in INSTRUCTION_ROLES and not m.is_result)
    said = next(newest_first, None)
    if said is None or said.role != "assistant" or b'"caller"' not in said.wire:
        return False
    callers = (part.get("caller") for part in _parts_of(said.wire) if isinstance(part, dict))
    return any(isinstance(caller, dict) and _text(caller, "tool_id") for caller in callers)


def _parts_of(wire: bytes) -> list[Any]:
    try:
        said = raw_json.parse(wire)
    except raw_json.JsonSplitError:
        return []
    parts = said.get("content") if isinstance(said, dict) else said
    return parts if isinstance(parts, list) else []


def _text(part: Mapping[str, Any], name: str) -> str:
    said = part.get(name)
    return said if isinstance(said, str) else ""
