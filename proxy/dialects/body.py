"""Top-level members of a request as raw bytes, its tools, and the texts inside a message.

A member that cannot be parsed counts as absent and is still passed on. The client's tools are never rewritten; ours are
appended. All bytes beside a text stay as they came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from proxy.dialects import raw_json

RawMembers = Mapping[str, bytes]


def value_of(fields: RawMembers, name: str) -> Any:
    """A small member, read; None when it is absent or no parser takes it."""
    try:
        return raw_json.parse(fields[name]) if name in fields else None
    except raw_json.JsonSplitError:
        return None


def object_in(fields: RawMembers, name: str) -> dict[str, Any]:
    """A member that is an object, read; an empty one where it is none."""
    found = value_of(fields, name)
    return found if isinstance(found, dict) else {}


def list_in(fields: RawMembers, name: str) -> list[Any]:
    """A member that is an array, read; an empty one where it is none."""
    found = value_of(fields, name)
    return found if isinstance(found, list) else []


def with_members(body: bytes, changed: Mapping[str, bytes | None]) -> bytes:
    """A JSON object with these members changed, added, or (None) left out; every other member byte for byte."""
    members = {**raw_json.members(body), **changed}
    return raw_json.join_object({name: value for name, value in members.items() if value is not None})


def offered_tools(fields: RawMembers, arrays: Sequence[str]) -> bytes:
    """These arrays as the client wrote them, in this order; nothing where all are empty."""
    found = b""
    for name in arrays:
        if name in fields:
            array = fields[name].strip()
            found += array if array.startswith(b"[") and array.strip(b"[] \t\r\n") else b""
    return found


def tool_names(tools: Iterable[object]) -> tuple[str, ...]:
    """The names of tools in order; of one that runs at the provider, its type."""
    return tuple(name for tool in tools if (name := _tool_name(tool)))


def _tool_name(tool: object) -> str:
    if not isinstance(tool, dict):
        return ""
    inner = next((tool[shape] for shape in ("function", "custom") if isinstance(tool.get(shape), dict)), tool)
    name = inner.get("name") or tool.get("type")
    return name if isinstance(name, str) else ""


def with_tools(fields: RawMembers, extra: bytes, behind: str) -> dict[str, bytes]:
    """`fields` with our array of tools behind the client's, or, when it offers none, an array of ours behind the
    member `behind`. Nothing to add changes nothing."""
    if extra in (b"", b"[]"):
        return dict(fields)
    theirs = fields.get("tools", b"").strip()
    inner = theirs[1:-1].rstrip() if theirs.startswith(b"[") else b""
    if inner.strip():
        return {**fields, "tools": b"[" + inner + b"," + extra[1:]}
    if "tools" in fields:
        return {**fields, "tools": extra}
    found: dict[str, bytes] = {}
    for name, raw in fields.items():
        found[name] = raw
        if name == behind:
            found["tools"] = extra
    return found


ALLOWED_TOOLS = "allowed_tools"
"""The choice that lets the model call some of the offered tools only."""


def allows_more_tools(choice: object) -> bool:
    """Whether this choice lists the tools that may be called, so that ours can join them."""
    return isinstance(choice, dict) and isinstance(choice.get("tools"), list)


def allow_tools(choice: bytes, names: Iterable[str], wrap: Callable[[str], dict[str, Any]]) -> bytes:
    """The choice with these tools behind the allowed ones; `wrap` tells a tool by its name. What is allowed already is
    not listed again, and all other members stay as they are."""
    fields = raw_json.members(choice)
    listed = raw_json.items(fields["tools"])
    known = {_tool_name(raw_json.parse(raw)) for raw in listed}
    added = [raw_json.encode(wrap(name)) for name in names if name not in known]
    return raw_json.join_object({**fields, "tools": raw_json.join_array([*listed, *added])})


CONTENT, TEXT = "content", "text"
NOTHING = b'""'


def longest_text(wire: bytes) -> bytes:
    """The longest text in a message, a JSON string as it is written; an empty one where there is none."""
    return max(_texts(wire), key=len, default=NOTHING)


TEXT_PARTS = frozenset({"text", "input_text", "output_text"})


def holds_text_alone(wire: bytes) -> bool:
    """Whether the content of a message, or of a run of one block, is text: no picture, file or reference."""
    try:
        said = raw_json.parse(wire)
    except raw_json.JsonSplitError:
        return False
    if isinstance(said, list):
        (said,) = said if len(said) == 1 else (None,)
    content = said.get(CONTENT, said.get("output")) if isinstance(said, dict) else None
    parts = content if isinstance(content, list) else ()
    return isinstance(content, str) or (
        bool(parts) and all(isinstance(part, dict) and part.get("type") in TEXT_PARTS for part in parts)
    )


def decode_text(written: bytes) -> str:
    """A JSON string as text."""
    said = raw_json.parse(written)
    return said if isinstance(said, str) else ""


def replace_text(wire: bytes, written: bytes, text: str) -> bytes:
    """The message with `text` in the place of one of its texts, told as it is `written`."""
    at = raw_json.find_slice(wire, written)
    if at < 0:
        return wire
    return wire[:at] + raw_json.encode(raw_json.replace_surrogates(text)) + wire[at + len(written) :]


def _texts(wire: bytes) -> list[bytes]:
    """Raises nothing: what cannot be taken apart has none."""
    wire = wire.strip(raw_json.SPACE)
    if wire.startswith(b'"'):
        return [wire]
    try:
        if wire.startswith(b"["):
            return [text for item in raw_json.items(wire) if (text := _member(item, TEXT)).startswith(b'"')]
        content = _member(wire, CONTENT)
    except raw_json.JsonSplitError:
        return []
    return _texts(content) if content[:1] in (b'"', b"[") else []


def _member(raw: bytes, name: str) -> bytes:
    return raw_json.members(raw).get(name, b"").strip(raw_json.SPACE) if raw.startswith(b"{") else b""
