"""Values as rows, rows as values; nothing here touches a database.

The law: **what is read is what was written**, to the byte: NUL, lone surrogates and bytes that are no UTF-8 included.
Databases refuse some of these in text, so `words` spells them with an escape that ordinary text never meets.

A message's wire, and every long piece of a body, is a blob under its sha256. A body is a list of pages, a page a list
of pieces: what two bodies have in common from the start on is stored once, so a conversation that is resent with every
request does not grow the store with the square of its length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import msgspec
from sqlalchemy.engine import Row

from proxy.core.ledger.ledger import Conversation, Entry, Event, Kind, Round, Thread
from proxy.core.ledger.messages import Call, Message, Spoken, Usage
from proxy.core.ledger.queued_messages import Lane, Queued, State
from proxy.dialects.messages.message import says_failed
from proxy.store import Body, RequestRecord, SentRecord, SettingRecord

Values = dict[str, Any]
"""One row by column names."""

PAGE = 32
"""Pieces per page of a body. Smaller pages share more between bodies, larger ones make shorter lists of pages."""

LONG = 96
"""Bytes from which a piece is stored under its digest instead of in its page."""

OF_ENTRY = -1
"""The round under which an entry's own message stands."""

NUL = "\x00"
ESCAPE = "\x10"
"""Data link escape: four hex digits of the character that is meant follow."""

_REFUSED = re.compile("[\x00\x10\ud800-\udfff]")
_WRITER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_SPELLED = re.compile("\x10([0-9a-f]{4})")


# --------------------------------------------------------------------------------------------------------------- text
def words(text: str) -> str:
    """`text` as every database takes it: itself, unless it holds NUL, a lone surrogate, or the escape."""
    if text.isascii() and NUL not in text and ESCAPE not in text:  # 0.1 us, where the search takes 3 us per 1,000
        return text
    return _REFUSED.sub(lambda found: f"{ESCAPE}{ord(found[0]):04x}", text)


def plain(stored: str) -> str:
    """The inverse of `words`."""
    if ESCAPE not in stored:
        return stored
    return _SPELLED.sub(lambda found: chr(int(found[1], 16)), stored)


def readable(raw: bytes) -> str:
    """Bytes that are nearly always text, as text; `bytes_of` gives exactly them back."""
    return words(raw.decode("utf-8", "surrogateescape"))


def bytes_of(stored: str) -> bytes:
    """The inverse of `readable`."""
    return plain(stored).encode("utf-8", "surrogateescape")


def as_json(value: object) -> str:
    """Readable JSON: only what databases refuse is escaped. Raw surrogates stay as they are for `words` to spell, for
    an ASCII spelling would join two lone ones into a character."""
    try:
        return words(msgspec.json.encode(value).decode())
    except UnicodeEncodeError:  # a lone surrogate
        return words(_WRITER.encode(value))


def from_json(stored: str) -> Any:
    return json.loads(plain(stored))


def digest_of(data: bytes) -> bytes:
    return sha256(data).digest()


def draft_digest(conversation: str, turn: str, number: int) -> bytes:
    """Where the draft of a round is kept, whatever it holds at the moment."""
    return digest_of(f"draft\n{as_json([conversation, turn, number])}".encode())


# ----------------------------------------------------------------------------------------------------------- messages
class _Spelling(msgspec.Struct):
    """A message whose content is one string."""

    content: str


_spelling = msgspec.json.Decoder(_Spelling)


def spelled(wire: bytes) -> str | None:
    """The string `content` of a message in JSON, or None: then its text has to be stored beside it."""
    try:
        return _spelling.decode(wire).content
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None


def message_row(message: Message, digest: bytes) -> Values:
    """Without the columns that say where it stands."""
    return {
        "role": words(message.role),
        "wire": digest,
        "identity": words(message.identity),
        "text": None if spelled(message.wire) == message.text else words(message.text),
        "calls": as_json([[c.id, c.name, c.arguments] for c in message.calls]) if message.calls else "[]",
        "answers": words(message.answers),
        "tokens": message.tokens,
    }


def message_of(row: Row[Any]) -> Message:
    """From a row of `messages` joined with its blob."""
    text = plain(row.text) if row.text is not None else spelled(row.data) or ""
    calls = tuple(Call(*parts) for parts in from_json(row.calls)) if row.calls != "[]" else ()
    failed = bool(row.answers) and says_failed(row.data)
    return Message(plain(row.role), row.data, plain(row.identity), text, calls, plain(row.answers), row.tokens, failed)


# ------------------------------------------------------------------------------------------------------------- ledger
def conversation_row(value: Conversation) -> Values:
    return {
        "id": words(value.id),
        "hint": words(value.hint),
        "parent": words(value.parent),
        "parent_entry": words(value.parent_entry),
        "created": value.created,
        "mode": words(value.mode),
        "dialect": words(value.dialect),
        "newest": value.created,
    }


def conversation_of(row: Row[Any]) -> Conversation:
    return Conversation(
        id=plain(row.id),
        tenant=plain(row.tenant),
        hint=plain(row.hint),
        parent=plain(row.parent),
        parent_entry=plain(row.parent_entry),
        created=row.created,
        mode=plain(row.mode),
        dialect=plain(row.dialect),
    )


def entry_row(value: Entry) -> Values:
    return {
        "id": words(value.id),
        "parent": words(value.parent),
        "seq": value.seq,
        "kind": str(value.kind),
        "thread": words(value.thread),
        "adopts": words(value.adopts),
        "alias": words(value.alias),
        "created": value.created,
    }


def entry_of(row: Row[Any], message: Message | None) -> Entry:
    return Entry(
        id=plain(row.id),
        parent=plain(row.parent),
        seq=row.seq,
        kind=Kind(row.kind),
        thread=plain(row.thread),
        message=message,
        adopts=plain(row.adopts),
        alias=plain(row.alias),
        created=row.created,
    )


def round_row(value: Round) -> Values:
    spoken, usage = value.spoken, value.spoken.usage
    return {
        "turn": words(value.turn),
        "number": value.number,
        "results": len(value.results),
        "last": int(value.last),
        "finish": words(spoken.finish),
        "usage": as_json(_told(usage)) if usage else None,
        "model": words(spoken.model),
        "complete": int(spoken.complete),
        "hidden_truncated": int(spoken.hidden_truncated),
        "extra": as_json({name: raw.decode("utf-8", "surrogateescape") for name, raw in spoken.extra.items()})
        if spoken.extra
        else "{}",
        "created": value.created,
    }


def _told(usage: Usage) -> list[int]:
    """As older versions read it, where there is no more to tell."""
    told = [usage.input, usage.output, usage.cached, usage.written, usage.written_long]
    return told if usage.written_long else told[:-1]


def round_of(row: Row[Any], spoken: Message, results: tuple[Message, ...]) -> Round:
    extra: Mapping[str, str] = from_json(row.extra)
    return Round(
        turn=plain(row.turn),
        number=row.number,
        spoken=Spoken(
            message=spoken,
            finish=plain(row.finish),
            usage=Usage(*from_json(row.usage)) if row.usage else None,
            model=plain(row.model),
            complete=bool(row.complete),
            hidden_truncated=bool(row.hidden_truncated),
            extra={name: text.encode("utf-8", "surrogateescape") for name, text in extra.items()},
        ),
        results=results,
        last=bool(row.last),
        created=row.created,
    )


def event_row(value: Event) -> Values:
    return {
        "entry": words(value.entry),
        "kind": words(value.kind),
        "subject": words(value.subject),
        "round": value.round,
        "seq": value.seq,
        "data": readable(value.data),
        "created": value.created,
    }


def event_of(row: Row[Any]) -> Event:
    return Event(
        plain(row.entry), row.round, row.seq, plain(row.kind), plain(row.subject), bytes_of(row.data), row.created
    )


def thread_row(value: Thread) -> Values:
    return {
        "id": words(value.id),
        "system_hash": words(value.system_hash),
        "tool_names": as_json(list(value.tool_names)),
        "tools_hash": words(value.tools_hash),
        "model": words(value.model),
    }


def thread_of(row: Row[Any]) -> Thread:
    names = tuple(from_json(row.tool_names))
    return Thread(plain(row.id), plain(row.system_hash), names, plain(row.tools_hash), plain(row.model))


def queued_row(value: Queued) -> Values:
    return {
        "id": words(value.id),
        "lane": str(value.lane),
        "thread": words(value.thread),
        "text": words(value.text),
        "state": str(value.state),
        "created": value.created,
        "expires": value.expires,
        "settled": value.settled,
        "entry": words(value.entry),
    }


def queued_of(row: Row[Any]) -> Queued:
    return Queued(
        id=plain(row.id),
        text=plain(row.text),
        lane=Lane(row.lane),
        thread=plain(row.thread),
        created=row.created,
        expires=row.expires,
        state=State(row.state),
        settled=row.settled,
        entry=plain(row.entry),
    )


# ----------------------------------------------------------------------------------------------------------- requests
def request_row(value: RequestRecord, body: bytes) -> Values:
    return {
        "id": words(value.id),
        "conversation": words(value.conversation),
        "thread": words(value.thread),
        "frame": words(value.frame),
        "entry": words(value.entry),
        "created": value.created,
        "status": words(value.status),
        "receipt": readable(value.receipt),
        "body": body,
    }


def request_of(row: Row[Any], body: Body = ()) -> RequestRecord:
    return RequestRecord(
        id=plain(row.id),
        conversation=plain(row.conversation),
        thread=plain(row.thread),
        frame=plain(row.frame),
        entry=plain(row.entry),
        created=row.created,
        status=plain(row.status),
        receipt=bytes_of(row.receipt),
        body=body,
    )


def sent_row(value: SentRecord, body: bytes) -> Values:
    return {"request": words(value.request), "round": value.round, "body": body, "created": value.created}


# ----------------------------------------------------------------------------------------------------------- settings
def setting_row(value: SettingRecord) -> Values:
    return {"name": words(value.name), "value": readable(value.value), "created": value.created}


def setting_of(row: Row[Any]) -> SettingRecord:
    return SettingRecord(plain(row.name), bytes_of(row.value), row.created)


# ------------------------------------------------------------------------------------------------------------- bodies
@dataclass(frozen=True, slots=True)
class Page:
    """Up to `PAGE` pieces of a body: `data` is what is stored, `pieces` the long ones it names, by digest."""

    digest: bytes
    data: bytes
    pieces: dict[bytes, bytes]


class _Digests:
    """Digests of pieces seen lately: a conversation resends the very same objects with every request, and a dictionary
    knows an object it holds without reading it. Belongs to the writer's thread."""

    def __init__(self, most_bytes: int = 16 << 20) -> None:
        self._most = most_bytes
        self._held: dict[bytes, bytes] = {}
        self._size = 0

    def of(self, piece: bytes) -> bytes:
        digest = self._held.get(piece)
        if digest is None:
            if self._size > self._most:
                self._held, self._size = {}, 0
            digest = self._held[piece] = digest_of(piece)
            self._size += len(piece)
        return digest


class _Pages:
    """Pages made lately, by their pieces: the beginning of a conversation is the same pages with every request. The
    pieces are known without reading them, as in `_Digests`. Belongs to the writer's thread."""

    def __init__(self, most_bytes: int = 16 << 20) -> None:
        self._most = most_bytes
        self._made: dict[Body, Page] = {}
        self._size = 0

    def of(self, pieces: Body) -> Page:
        page = self._made.get(pieces)
        if page is None:
            if self._size > self._most:
                self._made, self._size = {}, 0
            page = self._made[pieces] = _page_of(pieces)
            self._size += sum(map(len, pieces))
        return page


_digests = _Digests()
_pages = _Pages()
_page = msgspec.msgpack.Decoder(list[tuple[bool, bytes]])


def pages(body: Body) -> tuple[Page, ...]:
    return tuple(_pages.of(body[at : at + PAGE]) for at in range(0, len(body), PAGE))


def _page_of(pieces: Sequence[bytes]) -> Page:
    long: dict[bytes, bytes] = {}
    listed: list[tuple[bool, bytes]] = []
    for piece in pieces:
        if len(piece) < LONG:
            listed.append((False, piece))
            continue
        digest = _digests.of(piece)
        long[digest] = piece
        listed.append((True, digest))
    data = msgspec.msgpack.encode(listed)
    # Of another kind than a piece's digest: a client's piece must never pass for a page that is known.
    return Page(digest_of(b"page\n" + data), data, long)


def page_list(made: Iterable[Page]) -> bytes:
    """The column `body`: the digests of the pages, joined."""
    return b"".join(page.digest for page in made)


def digests_in(body: bytes) -> list[bytes]:
    """The inverse of `page_list`."""
    return [body[at : at + 32] for at in range(0, len(body), 32)]


def pieces_of(page: bytes) -> list[tuple[bool, bytes]]:
    """(is a digest, digest or the piece itself) of a stored page, in order."""
    return _page.decode(page)
