"""One event of a streamed answer of the responses API, as a value: what it tells of an item, or of the whole response.

The law: **every event can be read**. The fast reader knows the types of the members that matter; where a provider
writes one of them otherwise (an index as a string, null, half a surrogate pair), the members are read one by one and
what does not fit is absent. An item and a response stay the bytes they came as.

What this module does not do: it remembers nothing. What several events say together is the business of
`responses_round`.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from proxy.dialects import raw_json as slices
from proxy.dialects.chat.stream import index_of

NOTHING = msgspec.Raw(b"")


class Told(msgspec.Struct, gc=False):
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
    item: msgspec.Raw = NOTHING
    response: msgspec.Raw = NOTHING
    object: str | None = None
    output: msgspec.Raw = NOTHING
    error: Any = None


class TellsItem(msgspec.Struct, gc=False):
    """What of an output item decides who sees it."""

    type: str | None = None
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: Any = None
    input: Any = None


class TellsResponse(msgspec.Struct, gc=False):
    """What of a response is about all of its items."""

    id: str | None = None
    model: str | None = None
    status: str | None = None
    incomplete_details: dict[str, Any] | None = None
    error: Any = None
    usage: dict[str, Any] | None = None
    output: msgspec.Raw = NOTHING


T = TypeVar("T", Told, TellsItem, TellsResponse)
_REFUSED = (msgspec.DecodeError, RecursionError, UnicodeError)
_TOLD = msgspec.json.Decoder(Told)
_ITEM = msgspec.json.Decoder(TellsItem)
_RESPONSE = msgspec.json.Decoder(TellsResponse)


def quickly_told(data: bytes) -> Told | None:
    """The event in `data` where its members have the types they should have."""
    try:
        return _TOLD.decode(data)
    except _REFUSED:
        return None


def told_in(data: bytes) -> Told | None:
    """None: it is no object."""
    return quickly_told(data) or _leniently(data, Told)


def item_in(raw: bytes) -> TellsItem | None:
    return _read(raw, _ITEM, TellsItem)


def response_in(raw: bytes) -> TellsResponse | None:
    return _read(raw, _RESPONSE, TellsResponse)


def _read(raw: bytes, decoder: msgspec.json.Decoder[T], shape: type[T]) -> T | None:
    try:
        return decoder.decode(raw)
    except _REFUSED:
        return _leniently(raw, shape)


def _leniently(raw: bytes, shape: type[T]) -> T | None:
    """An object whose members have unexpected types: each is taken where it makes sense."""
    try:
        fields = slices.members(raw)
    except slices.NotSliced:
        return None
    known = {f.name: f.type for f in msgspec.structs.fields(shape) if f.name in fields}
    found = {name: _fitting(fields[name], wanted) for name, wanted in known.items()}
    return shape(**{name: value for name, value in found.items() if value is not None})


def _fitting(raw: bytes, wanted: Any) -> Any:
    """The member as its type wants it, or None. Half a surrogate pair stays: the other half may come with the next
    delta."""
    if wanted is msgspec.Raw:
        return msgspec.Raw(raw)
    try:
        said = slices.value(raw, mend=False)
    except slices.NotSliced:
        return None
    if wanted == int | None:
        return index_of(said)
    if wanted is Any or (wanted == str | None and isinstance(said, str)):
        return said
    return said if wanted == dict[str, Any] | None and isinstance(said, dict) else None
