"""The texts in a message of a client, as they are written in it: JSON strings, whole, or one to a part or block.

All dialects write them alike, in `content` or as items with a `text`. The law: **what is not the text stays as it
came**, byte for byte.
"""

from __future__ import annotations

from proxy.dialects import raw_json as slices

CONTENT, TEXT = "content", "text"
NOTHING = b'""'


def longest(wire: bytes) -> bytes:
    """The longest text in a message, a JSON string as it is written; an empty one where there is none."""
    return max(_texts(wire), key=len, default=NOTHING)


def words_of(written: bytes) -> str:
    """A JSON string as text."""
    said = slices.value(written)
    return said if isinstance(said, str) else ""


def exchanged(wire: bytes, written: bytes, text: str) -> bytes:
    """The message with `text` in the place of one of its texts, told as it is `written`."""
    at = slices.found(wire, written)
    if at < 0:
        return wire
    return wire[:at] + slices.encoded(slices.mended(text)) + wire[at + len(written) :]


def _texts(wire: bytes) -> list[bytes]:
    """Raises nothing: what cannot be taken apart has none."""
    wire = wire.strip(slices.SPACE)
    if wire.startswith(b'"'):
        return [wire]
    try:
        if wire.startswith(b"["):
            return [text for item in slices.items(wire) if (text := _member(item, TEXT)).startswith(b'"')]
        content = _member(wire, CONTENT)
    except slices.NotSliced:
        return []
    return _texts(content) if content[:1] in (b'"', b"[") else []


def _member(raw: bytes, name: str) -> bytes:
    return slices.members(raw).get(name, b"").strip(slices.SPACE) if raw.startswith(b"{") else b""
