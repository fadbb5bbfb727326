"""Parses one streamed event of the responses API.

If a provider writes a known member with another type, members are read one by one and the unfit ones count as absent.
Items and responses stay raw bytes.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from proxy.dialects import raw_json
from proxy.dialects.chat.stream import parse_index

ABSENT = msgspec.Raw(b"")


class ResponsesEvent(msgspec.Struct, gc=False):
    """An event, or a whole plain answer (which has an `object` and an `output`, and no type)."""

    type: str | None = None
    sequence_number: int | None = None
    output_index: int | None = None
    content_index: int | None = None
    item_id: str | None = None
    delta: str | None = None
    text: str | None = None
    refusal: str | None = None
    arguments: str | None = None
    input: str | None = None
    item: msgspec.Raw = ABSENT
    response: msgspec.Raw = ABSENT
    object: str | None = None
    output: msgspec.Raw = ABSENT
    error: Any = None


class ItemFields(msgspec.Struct, gc=False):
    """What of an output item decides who sees it."""

    type: str | None = None
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: Any = None
    input: Any = None


class ResponseFields(msgspec.Struct, gc=False):
    """What of a response is about all of its items."""

    id: str | None = None
    model: str | None = None
    status: str | None = None
    incomplete_details: dict[str, Any] | None = None
    error: Any = None
    usage: dict[str, Any] | None = None
    output: msgspec.Raw = ABSENT


T = TypeVar("T", ResponsesEvent, ItemFields, ResponseFields)
_DECODE_ERRORS = (msgspec.DecodeError, RecursionError, UnicodeError)
_EVENT_DECODER = msgspec.json.Decoder(ResponsesEvent)
_ITEM = msgspec.json.Decoder(ItemFields)
_RESPONSE = msgspec.json.Decoder(ResponseFields)


def parse_event_strictly(data: bytes) -> ResponsesEvent | None:
    """The event in `data` where its members have the types they should have."""
    try:
        return _EVENT_DECODER.decode(data)
    except _DECODE_ERRORS:
        return None


def parse_event(data: bytes) -> ResponsesEvent | None:
    """None: it is no object."""
    return parse_event_strictly(data) or _parse_leniently(data, ResponsesEvent)


def parse_item(raw: bytes) -> ItemFields | None:
    return _read(raw, _ITEM, ItemFields)


def parse_response(raw: bytes) -> ResponseFields | None:
    return _read(raw, _RESPONSE, ResponseFields)


def _read(raw: bytes, decoder: msgspec.json.Decoder[T], shape: type[T]) -> T | None:
    try:
        return decoder.decode(raw)
    except _DECODE_ERRORS:
        return _parse_leniently(raw, shape)


def _parse_leniently(raw: bytes, shape: type[T]) -> T | None:
    """An object whose members have unexpected types: each is taken where it makes sense."""
    try:
        fields = raw_json.members(raw)
    except raw_json.JsonSplitError:
        return None
    known = {f.name: f.type for f in msgspec.structs.fields(shape) if f.name in fields}
    found = {name: _member_of_type(fields[name], wanted) for name, wanted in known.items()}
    return shape(**{name: value for name, value in found.items() if value is not None})


def _member_of_type(raw: bytes, wanted: Any) -> Any:
    """The member as its type wants it, or None. Half a surrogate pair stays: the other half may come with the next
    delta."""
    if wanted is msgspec.Raw:
        return msgspec.Raw(raw)
    try:
        said = raw_json.parse(raw, mend=False)
    except raw_json.JsonSplitError:
        return None
    if wanted == int | None:
        return parse_index(said)
    if wanted is Any or (wanted == str | None and isinstance(said, str)):
        return said
    return said if wanted == dict[str, Any] | None and isinstance(said, dict) else None
