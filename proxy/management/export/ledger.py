"""The format `ledger`: everything that is known of a conversation, a record a line, in the order it may be written
again.

    {"callstack": 1, "conversation": {...}}             first
    {"thread": {...}}
    {"entry": {...}} {"round": {...}} {"event": {...}}  each entry with what hangs on it
    {"request": {...}}                                  with its receipt; the newest one with the client's body

The law: **what comes back is what was there**, to the byte and by the same ids, so a client goes on with it as if
nothing had happened. Bytes are written as text that gives the same bytes back. Who it belonged to is left out: it will
belong to whoever imports it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn, TypeVar

import msgspec
from msgspec.structs import replace

from proxy.core.ledger.ledger import Conversation, Entry, Event, Round, Thread
from proxy.errors import BadRequest
from proxy.management.export.items import as_line
from proxy.management.export.redaction import without_credentials
from proxy.management.export.source import Material
from proxy.management.views.logs import as_text
from proxy.store import Owned, Record, RequestRecord

VERSION = 1
"""Of this format. A newer one is refused: half of what it means could be missing."""
MARK = "callstack"
"""The member by which the first line tells what this is."""
BYTES = frozenset({"wire", "data", "receipt"})
"""Members that are bytes; in `extra` all are, and of a `body` every piece is."""
Value = TypeVar("Value")
KINDS: dict[str, type[Entry | Round | Event | Thread]] = {
    "thread": Thread,
    "entry": Entry,
    "round": Round,
    "event": Event,
}


# -------------------------------------------------------------------------------------------------------------- write
def lines(material: Material) -> Iterator[bytes]:
    """All records, whichever path they are on."""
    ledger = material.ledger
    about = _told(ledger.conversation)
    del about["tenant"]
    yield as_line({MARK: VERSION, "conversation": about})
    for thread in ledger.threads.values():
        yield as_line({"thread": _told(thread)})
    for entry in ledger.entries.values():
        yield as_line({"entry": _told(entry)})
        for done in ledger.rounds.get(entry.id, ()):
            yield as_line({"round": _told(done)})
        for event in ledger.events.get(entry.id, ()):
            yield as_line({"event": _told(event)})
    for record in material.records:
        newest = material.request if material.request and material.request.id == record.id else None
        body = (without_credentials(b"".join(newest.body)),) if newest else ()
        yield as_line({"request": _told(replace(record, body=body))})


def _told(value: Any) -> dict[str, Any]:
    """A record as plain values; bytes as text."""
    plain = msgspec.to_builtins(value, builtin_types=(bytes,))
    told: dict[str, Any] = _texts(plain)
    return told


def _texts(value: Any) -> Any:
    if isinstance(value, bytes):
        return as_text(value)
    if isinstance(value, dict):
        return {name: _texts(member) for name, member in value.items()}
    return [_texts(member) for member in value] if isinstance(value, list | tuple) else value


# --------------------------------------------------------------------------------------------------------------- read
def is_whole(first: bytes) -> bool:
    """Whether a file that begins with this line is in this format."""
    try:
        told = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(told, dict) and MARK in told


def records(rows: Iterable[bytes]) -> tuple[Conversation, list[Record]]:
    """The conversation, without an owner, and what belongs to it, in order. Raises BadRequest, which names the line."""
    numbered = enumerate(rows, start=1)
    conversation = _conversation(_read(1, next(numbered, (1, b""))[1]))
    found: list[Record] = []
    for number, row in numbered:
        if row.strip():
            found.append(_record(number, _read(number, row), conversation.id))
    return conversation, found


def _conversation(told: dict[str, Any]) -> Conversation:
    version = told.get(MARK)
    if not isinstance(version, int) or version > VERSION:
        raise BadRequest(
            f"line 1: version {version!r} of this format is newer than this proxy reads ({VERSION}). Update the proxy.",
            code="not_importable",
        )
    return _converted(1, {**_object(1, told, "conversation"), "tenant": ""}, Conversation)


def _record(number: int, told: dict[str, Any], conversation: str) -> Record:
    kind = next(iter(told), "")
    if kind == "request":
        request = _converted(number, _object(number, told, kind), RequestRecord)
        return replace(request, conversation=conversation)
    if kind not in KINDS:
        _unreadable(number, f"a record of the kind {kind!r} is not known")
    return Owned(conversation, _converted(number, _object(number, told, kind), KINDS[kind]))


def _read(number: int, row: bytes) -> dict[str, Any]:
    try:
        told = json.loads(row)
    except (ValueError, RecursionError):
        _unreadable(number, "it is no JSON, as where a file was cut off")
    return told if isinstance(told, dict) else _unreadable(number, "it is no object")


def _object(number: int, told: dict[str, Any], name: str) -> dict[str, Any]:
    found = told.get(name)
    return found if isinstance(found, dict) else _unreadable(number, f"{name!r} is no object")


def _converted(number: int, told: dict[str, Any], kind: type[Value]) -> Value:
    try:
        return msgspec.convert(_raw(told), kind, builtin_types=(bytes,))
    except (msgspec.ValidationError, UnicodeError) as error:
        _unreadable(number, str(error))


def _raw(told: dict[str, Any]) -> dict[str, Any]:
    """The same with bytes where a record has them."""
    return {name: _member(name, value) for name, value in told.items()}


def _member(name: str, value: Any) -> Any:
    if name in BYTES and isinstance(value, str):
        return as_bytes(value)
    if name == "extra" and isinstance(value, dict):
        return {key: as_bytes(text) if isinstance(text, str) else text for key, text in value.items()}
    if name == "body" and isinstance(value, list):
        return [as_bytes(piece) if isinstance(piece, str) else piece for piece in value]
    if isinstance(value, dict):
        return _raw(value)
    return [_raw(each) if isinstance(each, dict) else each for each in value] if isinstance(value, list) else value


def as_bytes(text: str) -> bytes:
    """The inverse of `views.logs.as_text`. Raises UnicodeError for a text that no bytes were written as."""
    return text.encode("utf-8", "surrogateescape")


def _unreadable(number: int, why: str) -> NoReturn:
    raise BadRequest(f"line {number}: {why}. Nothing was imported.", code="not_importable")
