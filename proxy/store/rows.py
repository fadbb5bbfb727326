"""Values as rows and rows as values, without a database.

Bytes are read as they were written, including NUL, lone surrogates and invalid UTF-8. A message's wire and every long
piece of a body is a blob under its sha256. A body is a list of pages, a page a list of pieces: bodies with a common
beginning share pages, so a resent conversation does not grow the store quadratically.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Generic, TypeVar

import msgspec
from sqlalchemy.engine import Row

from proxy.core.ledger import (
    Call,
    Conversation,
    DeliveryState,
    Entry,
    EntryKind,
    Lane,
    LedgerEvent,
    Message,
    ModelResponse,
    QueuedMessage,
    Round,
    Thread,
    Usage,
)
from proxy.dialects import links_in, loaded_tools
from proxy.dialects.messages import is_failed_result
from proxy.store.interface import Body, RequestRecord, SentRecord, SettingRecord

RowValues = dict[str, Any]

PIECES_PER_PAGE = 32
"""Smaller pages share more between bodies, larger ones make shorter lists of pages."""

MIN_BLOB_BYTES = 96
"""Least length of a piece that is stored under its digest instead of in its page."""

ENTRY_ROUND = -1
"""Round number of an entry's own message."""

NUL = "\x00"
ESCAPE = "\x10"
"""Data link escape; four hex digits of the escaped character follow."""

_NEEDS_ESCAPE = re.compile("[\x00\x10\ud800-\udfff]")
_JSON_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_ESCAPED = re.compile("\x10([0-9a-f]{4})")


# --------------------------------------------------------------------------------------------------------------- text
def escape_text(text: str) -> str:
    """`text`, with NUL, lone surrogates and the escape itself escaped."""
    if text.isascii() and NUL not in text and ESCAPE not in text:  # 0.1 us, where the search takes 3 us per 1,000
        return text
    return _NEEDS_ESCAPE.sub(lambda found: f"{ESCAPE}{ord(found[0]):04x}", text)


def unescape_text(stored: str) -> str:
    if ESCAPE not in stored:
        return stored
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), stored)


def bytes_to_text(raw: bytes) -> str:
    """Bytes that are nearly always UTF-8, as text; `text_to_bytes` is the exact inverse."""
    return escape_text(raw.decode("utf-8", "surrogateescape"))


def text_to_bytes(stored: str) -> bytes:
    return unescape_text(stored).encode("utf-8", "surrogateescape")


def to_json(value: object) -> str:
    """Readable JSON. Surrogates stay raw for `escape_text`: as ASCII, two lone ones would join into one character."""
    try:
        return escape_text(msgspec.json.encode(value).decode())
    except UnicodeEncodeError:  # a lone surrogate
        return escape_text(_JSON_ENCODER.encode(value))


def from_json(stored: str) -> Any:
    return json.loads(unescape_text(stored))


def digest_of(data: bytes) -> bytes:
    return sha256(data).digest()


def draft_digest(conversation: str, turn: str, number: int) -> bytes:
    """Digest under which the draft of a round is stored, whatever it contains."""
    return digest_of(f"draft\n{to_json([conversation, turn, number])}".encode())


# ----------------------------------------------------------------------------------------------------------- messages
class _ContentMessage(msgspec.Struct):
    content: str


_content_decoder = msgspec.json.Decoder(_ContentMessage)


def content_string_of(wire: bytes) -> str | None:
    """The string `content` of a message in JSON; None if there is none, so that its text is stored beside it."""
    try:
        return _content_decoder.decode(wire).content
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None


def message_row(message: Message, digest: bytes) -> RowValues:
    """Without the columns of its position."""
    return {
        "role": escape_text(message.role),
        "wire": digest,
        "identity": escape_text(message.identity),
        "text": None if content_string_of(message.wire) == message.text else escape_text(message.text),
        "calls": to_json([[c.id, c.name, c.arguments] for c in message.calls]) if message.calls else "[]",
        "answers": escape_text(message.answers),
        "tokens": message.tokens,
    }


def message_of(row: Row[Any]) -> Message:
    """From a row of `messages` joined with its blob."""
    text = unescape_text(row.text) if row.text is not None else content_string_of(row.data) or ""
    calls = tuple(Call(*parts) for parts in from_json(row.calls)) if row.calls != "[]" else ()
    failed = bool(row.answers) and is_failed_result(row.data)
    links = links_in(row.data) if row.role == "assistant" else ()
    return Message(
        unescape_text(row.role),
        row.data,
        unescape_text(row.identity),
        text,
        calls,
        unescape_text(row.answers),
        row.tokens,
        failed,
        loaded_tools(row.data),
        links,
    )


def is_intact(row: Row[Any]) -> bool:
    """Whether the bytes of a row of `messages`, joined with its blob, are those that were written. A draft cannot tell:
    its bytes are replaced under one digest."""
    if row.wire == digest_of(row.data):
        return True
    return bool(row.wire == draft_digest(row.conversation, row.entry, row.round))


# ------------------------------------------------------------------------------------------------------------- ledger
def conversation_row(value: Conversation) -> RowValues:
    return {
        "id": escape_text(value.id),
        "hint": escape_text(value.hint),
        "parent": escape_text(value.parent),
        "parent_entry": escape_text(value.parent_entry),
        "created": value.created,
        "mode": escape_text(value.mode),
        "dialect": escape_text(value.dialect),
        "newest": value.created,
        "written": 0,
    }


def conversation_of(row: Row[Any]) -> Conversation:
    return Conversation(
        id=unescape_text(row.id),
        tenant=unescape_text(row.tenant),
        hint=unescape_text(row.hint),
        parent=unescape_text(row.parent),
        parent_entry=unescape_text(row.parent_entry),
        created=row.created,
        mode=unescape_text(row.mode),
        dialect=unescape_text(row.dialect),
    )


def entry_row(value: Entry) -> RowValues:
    return {
        "id": escape_text(value.id),
        "parent": escape_text(value.parent),
        "seq": value.seq,
        "kind": str(value.kind),
        "thread": escape_text(value.thread),
        "adopts": escape_text(value.adopts),
        "alias": escape_text(value.alias),
        "created": value.created,
    }


def entry_of(row: Row[Any], message: Message | None) -> Entry:
    return Entry(
        id=unescape_text(row.id),
        parent=unescape_text(row.parent),
        seq=row.seq,
        kind=EntryKind(row.kind),
        thread=unescape_text(row.thread),
        message=message,
        adopts=unescape_text(row.adopts),
        alias=unescape_text(row.alias),
        created=row.created,
    )


def round_row(value: Round) -> RowValues:
    spoken, usage = value.spoken, value.spoken.usage
    return {
        "turn": escape_text(value.turn),
        "number": value.number,
        "results": len(value.results),
        "last": int(value.last),
        "finish": escape_text(spoken.finish),
        "usage": to_json(_usage_list(usage)) if usage else None,
        "model": escape_text(spoken.model),
        "complete": int(spoken.complete),
        "hidden_truncated": int(spoken.hidden_truncated),
        "extra": to_json({name: raw.decode("utf-8", "surrogateescape") for name, raw in spoken.extra.items()})
        if spoken.extra
        else "{}",
        "created": value.created,
    }


def _usage_list(usage: Usage) -> list[int]:
    told = [usage.input, usage.output, usage.cached, usage.written, usage.written_long]
    return told if usage.written_long else told[:-1]


def round_of(row: Row[Any], spoken: Message, results: tuple[Message, ...]) -> Round:
    extra: Mapping[str, str] = from_json(row.extra)
    return Round(
        turn=unescape_text(row.turn),
        number=row.number,
        spoken=ModelResponse(
            message=spoken,
            finish=unescape_text(row.finish),
            usage=Usage(*from_json(row.usage)) if row.usage else None,
            model=unescape_text(row.model),
            complete=bool(row.complete),
            hidden_truncated=bool(row.hidden_truncated),
            extra={name: text.encode("utf-8", "surrogateescape") for name, text in extra.items()},
        ),
        results=results,
        last=bool(row.last),
        created=row.created,
    )


def event_row(value: LedgerEvent) -> RowValues:
    return {
        "entry": escape_text(value.entry),
        "kind": escape_text(value.kind),
        "subject": escape_text(value.subject),
        "round": value.round,
        "seq": value.seq,
        "data": bytes_to_text(value.data),
        "created": value.created,
    }


def event_of(row: Row[Any]) -> LedgerEvent:
    return LedgerEvent(
        unescape_text(row.entry),
        row.round,
        row.seq,
        unescape_text(row.kind),
        unescape_text(row.subject),
        text_to_bytes(row.data),
        row.created,
    )


def thread_row(value: Thread) -> RowValues:
    return {
        "id": escape_text(value.id),
        "system_hash": escape_text(value.system_hash),
        "tool_names": to_json(list(value.tool_names)),
        "tools_hash": escape_text(value.tools_hash),
        "model": escape_text(value.model),
    }


def thread_of(row: Row[Any]) -> Thread:
    names = tuple(from_json(row.tool_names))
    return Thread(
        unescape_text(row.id),
        unescape_text(row.system_hash),
        names,
        unescape_text(row.tools_hash),
        unescape_text(row.model),
    )


def queued_row(value: QueuedMessage) -> RowValues:
    return {
        "id": escape_text(value.id),
        "lane": str(value.lane),
        "thread": escape_text(value.thread),
        "text": escape_text(value.text),
        "state": str(value.state),
        "created": value.created,
        "expires": value.expires,
        "settled": value.settled,
        "entry": escape_text(value.entry),
    }


def queued_of(row: Row[Any]) -> QueuedMessage:
    return QueuedMessage(
        id=unescape_text(row.id),
        text=unescape_text(row.text),
        lane=Lane(row.lane),
        thread=unescape_text(row.thread),
        created=row.created,
        expires=row.expires,
        state=DeliveryState(row.state),
        settled=row.settled,
        entry=unescape_text(row.entry),
    )


# ----------------------------------------------------------------------------------------------------------- requests
def request_row(value: RequestRecord, body: bytes) -> RowValues:
    return {
        "id": escape_text(value.id),
        "conversation": escape_text(value.conversation),
        "thread": escape_text(value.thread),
        "frame": escape_text(value.frame),
        "entry": escape_text(value.entry),
        "created": value.created,
        "status": escape_text(value.status),
        "receipt": bytes_to_text(value.receipt),
        "body": body,
    }


def request_of(row: Row[Any], body: Body = ()) -> RequestRecord:
    return RequestRecord(
        id=unescape_text(row.id),
        conversation=unescape_text(row.conversation),
        thread=unescape_text(row.thread),
        frame=unescape_text(row.frame),
        entry=unescape_text(row.entry),
        created=row.created,
        status=unescape_text(row.status),
        receipt=text_to_bytes(row.receipt),
        body=body,
    )


def sent_row(value: SentRecord, body: bytes) -> RowValues:
    return {"request": escape_text(value.request), "round": value.round, "body": body, "created": value.created}


# ----------------------------------------------------------------------------------------------------------- settings
def setting_row(value: SettingRecord) -> RowValues:
    return {"name": escape_text(value.name), "value": bytes_to_text(value.value), "created": value.created}


def setting_of(row: Row[Any]) -> SettingRecord:
    return SettingRecord(unescape_text(row.name), text_to_bytes(row.value), row.created)


# ------------------------------------------------------------------------------------------------------------- bodies
@dataclass(frozen=True, slots=True)
class BodyPage:
    """Up to `PIECES_PER_PAGE` pieces of a body: `data` is stored, `pieces` are the long ones by digest."""

    digest: bytes
    data: bytes
    pieces: dict[bytes, bytes]


Key = TypeVar("Key")
Made = TypeVar("Made")
MAX_CACHED_PIECES_BYTES = 4 << 20
"""Of pieces whose digests are kept, and of pieces of the pages that are kept. They outlive their conversations."""


class _CacheOfMade(Generic[Key, Made]):
    """What was made of recent keys; emptied when full. For the writer's thread."""

    def __init__(self, make: Callable[[Key], Made], bytes_of: Callable[[Key], int]) -> None:
        self._make, self._bytes_of = make, bytes_of
        self._made: dict[Key, Made] = {}
        self._size = 0

    def get(self, key: Key) -> Made:
        made = self._made.get(key)
        if made is None:
            if self._size > MAX_CACHED_PIECES_BYTES:
                self._made, self._size = {}, 0
            made = self._made[key] = self._make(key)
            self._size += self._bytes_of(key)
        return made


_page_decoder = msgspec.msgpack.Decoder(list[tuple[bool, bytes]])


def split_into_pages(body: Body) -> tuple[BodyPage, ...]:
    return tuple(_page_cache.get(body[at : at + PIECES_PER_PAGE]) for at in range(0, len(body), PIECES_PER_PAGE))


def _build_page(pieces: Sequence[bytes]) -> BodyPage:
    long: dict[bytes, bytes] = {}
    listed: list[tuple[bool, bytes]] = []
    for piece in pieces:
        if len(piece) < MIN_BLOB_BYTES:
            listed.append((False, piece))
            continue
        digest = _digest_cache.get(piece)
        long[digest] = piece
        listed.append((True, digest))
    data = msgspec.msgpack.encode(listed)
    # Of another kind than a piece's digest: a client's piece must never pass for a page that is known.
    return BodyPage(digest_of(b"page\n" + data), data, long)


_digest_cache = _CacheOfMade(digest_of, len)
"""Of recent pieces by object, so that resent bytes are not hashed again."""
_page_cache: _CacheOfMade[Body, BodyPage] = _CacheOfMade(_build_page, lambda pieces: sum(map(len, pieces)))
"""Of recent pieces together: requests of a conversation begin with the same pages."""


def split_digests(body: bytes) -> list[bytes]:
    return [body[at : at + 32] for at in range(0, len(body), 32)]


def decode_page(page: bytes) -> list[tuple[bool, bytes]]:
    """(is a digest, digest or the piece itself) of a stored page, in order."""
    return _page_decoder.decode(page)
