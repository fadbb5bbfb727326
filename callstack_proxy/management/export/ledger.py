"""The format `ledger`: all records of a conversation, one JSON object a line, in an order in which they can be written.

The first line is the conversation without its tenant; each entry is followed by its rounds and events. An import
restores the same bytes and ids, so the client can continue. Bytes are written as text with surrogate escapes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn, TypeVar

import msgspec
from msgspec.structs import replace

from callstack_proxy.management.export.base import LINES, ExportFormat
from callstack_proxy.management.export.items import json_line
from callstack_proxy.management.export.redaction import without_credentials
from callstack_proxy.management.export.source import ExportInput
from callstack_proxy.management.views import decode_lossless
from proxy.core.ledger import Conversation, Entry, LedgerEvent, Round, Thread
from proxy.errors import BadRequest
from proxy.store import LedgerRecord, Record, RequestRecord

FORMAT_VERSION = 1
"""A newer version is refused, because parts of it could be missing here."""
FORMAT_MARK = "callstack"
"""The member that identifies the format in the first line."""
BYTE_FIELDS = frozenset({"wire", "data", "receipt"})
"""Members that hold bytes. All members of `extra` and all pieces of `body` are bytes too."""
Value = TypeVar("Value")
RECORD_TYPES: dict[str, type[Entry | Round | LedgerEvent | Thread]] = {
    "thread": Thread,
    "entry": Entry,
    "round": Round,
    "event": LedgerEvent,
}


# -------------------------------------------------------------------------------------------------------------- write
def ledger_lines(export_input: ExportInput) -> Iterator[bytes]:
    ledger = export_input.ledger
    about = _as_plain_values(ledger.conversation)
    del about["tenant"]
    yield json_line({FORMAT_MARK: FORMAT_VERSION, "conversation": about})
    for thread in ledger.threads.values():
        yield json_line({"thread": _as_plain_values(thread)})
    for entry in ledger.entries.values():
        yield json_line({"entry": _as_plain_values(entry)})
        for done in ledger.rounds.get(entry.id, ()):
            yield json_line({"round": _as_plain_values(done)})
        for event in ledger.events.get(entry.id, ()):
            yield json_line({"event": _as_plain_values(event)})
    for record in export_input.records:
        newest = (
            export_input.newest_request
            if export_input.newest_request and export_input.newest_request.id == record.id
            else None
        )
        body = (without_credentials(b"".join(newest.body)),) if newest else ()
        yield json_line({"request": _as_plain_values(replace(record, body=body))})


def _as_plain_values(value: Any) -> dict[str, Any]:
    plain = msgspec.to_builtins(value, builtin_types=(bytes,))
    text_values: dict[str, Any] = _bytes_as_text(plain)
    return text_values


def _bytes_as_text(value: Any) -> Any:
    if isinstance(value, bytes):
        return decode_lossless(value)
    if isinstance(value, dict):
        return {name: _bytes_as_text(member) for name, member in value.items()}
    return [_bytes_as_text(member) for member in value] if isinstance(value, list | tuple) else value


# --------------------------------------------------------------------------------------------------------------- read
def is_ledger_export(first: bytes) -> bool:
    """Whether `first`, the first line of a file, is in this format."""
    try:
        first_object = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(first_object, dict) and FORMAT_MARK in first_object


def read_records(rows: Iterable[bytes]) -> tuple[Conversation, list[Record]]:
    """The conversation without an owner, and its records in order. Raises BadRequest, which names the line."""
    numbered = enumerate(rows, start=1)
    conversation = _parse_conversation(_decode_row(1, next(numbered, (1, b""))[1]))
    records: list[Record] = []
    for number, row in numbered:
        if row.strip():
            records.append(_parse_record(number, _decode_row(number, row), conversation.id))
    return conversation, records


def _parse_conversation(fields: dict[str, Any]) -> Conversation:
    version = fields.get(FORMAT_MARK)
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise BadRequest(
            f"line 1: version {version!r} of this format is newer than this proxy reads "
            f"({FORMAT_VERSION}). Update the proxy.",
            code="not_importable",
        )
    return _convert(1, {**_object_member(1, fields, "conversation"), "tenant": ""}, Conversation)


def _parse_record(number: int, fields: dict[str, Any], conversation: str) -> Record:
    kind = next(iter(fields), "")
    if kind == "request":
        request = _convert(number, _object_member(number, fields, kind), RequestRecord)
        return replace(request, conversation=conversation)
    if kind not in RECORD_TYPES:
        _refuse_line(number, f"a record of the kind {kind!r} is not known")
    return LedgerRecord(conversation, _convert(number, _object_member(number, fields, kind), RECORD_TYPES[kind]))


def _decode_row(number: int, row: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(row)
    except (ValueError, RecursionError):
        _refuse_line(number, "it is no JSON, as where a file was cut off")
    return fields if isinstance(fields, dict) else _refuse_line(number, "it is no object")


def _object_member(number: int, fields: dict[str, Any], name: str) -> dict[str, Any]:
    member = fields.get(name)
    return member if isinstance(member, dict) else _refuse_line(number, f"{name!r} is no object")


def _convert(number: int, fields: dict[str, Any], kind: type[Value]) -> Value:
    try:
        return msgspec.convert(_with_bytes(fields), kind, builtin_types=(bytes,))
    except (msgspec.ValidationError, UnicodeError) as error:
        _refuse_line(number, str(error))


def _with_bytes(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: _member_value(name, value) for name, value in fields.items()}


def _member_value(name: str, value: Any) -> Any:
    if name in BYTE_FIELDS and isinstance(value, str):
        return as_bytes(value)
    if name == "extra" and isinstance(value, dict):
        return {key: as_bytes(text) if isinstance(text, str) else text for key, text in value.items()}
    if name == "body" and isinstance(value, list):
        return [as_bytes(piece) if isinstance(piece, str) else piece for piece in value]
    if isinstance(value, dict):
        return _with_bytes(value)
    return (
        [_with_bytes(item) if isinstance(item, dict) else item for item in value] if isinstance(value, list) else value
    )


def as_bytes(text: str) -> bytes:
    """The inverse of `decode_lossless`. Raises UnicodeError."""
    return text.encode("utf-8", "surrogateescape")


def _refuse_line(number: int, why: str) -> NoReturn:
    raise BadRequest(f"line {number}: {why}. Nothing was imported; export it anew.", code="not_importable")


LEDGER = ExportFormat(
    "everything, a record a line; comes back exactly",
    LINES,
    ".ledger.jsonl",
    lambda export_input, _: ledger_lines(export_input),
    is_importable=True,
)
