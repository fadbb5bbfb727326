"""Splits JSON into the raw bytes of an object's members or an array's items.

A value that no parser accepts never makes its neighbours unreadable: if the fast reader refuses a body (a lone
surrogate, `NaN`, deep nesting), a scanner of strings and brackets finds the same slices. Slices are not validated
or re-encoded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

SCAN_LIMIT = 8 * 1024 * 1024
"""Bytes the slow scanner takes on (about a second); the fast reader has no limit of its own."""
MAX_BODY_MEMBERS = 2_000
"""Members of a body that is taken apart; no API has a hundred. 800,000 in 8 MB took the fast reader 0.4 s, in which
Python lets nobody else run, and each step over all of them as long again."""

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],:]', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
SPACE = b" \t\r\n"


class _MemberName:
    """A key that equals no other one, so that a dictionary keeps members of the same name apart."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ALL_MEMBERS = msgspec.json.Decoder(dict[_MemberName, msgspec.Raw], dec_hook=lambda _, name: _MemberName(name))
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])
_ANY = msgspec.json.Decoder()
_ENCODE_ERRORS = (UnicodeError, RecursionError, OverflowError)
_DECODE_ERRORS = (msgspec.DecodeError, RecursionError, UnicodeError)


class _TooManyMembers(Exception):
    """Ends the fast reader in the middle of a body."""


class JsonSplitError(ValueError):
    """The bytes are not an object (or array) that can be taken apart."""


def members(raw: bytes) -> dict[str, bytes]:
    """The members of an object, in its order. Of members with the same key the last one counts."""
    try:
        return {key: bytes(value) for key, value in _MEMBERS.decode(raw).items()}
    except _DECODE_ERRORS:
        pass
    found: dict[str, bytes] = {}
    for key, value in _scan(raw, b"{", b"}"):
        found[_key(key)] = value
    return found


def body_members(body: bytes) -> dict[str, bytes]:
    """As `members`, for a whole body. Raises JsonSplitError also where it has more than MAX_BODY_MEMBERS."""
    left = MAX_BODY_MEMBERS

    def count(_: type, name: str) -> _MemberName:
        nonlocal left
        left -= 1
        if left < 0:
            raise _TooManyMembers
        return _MemberName(name)

    try:
        found = msgspec.json.Decoder(dict[_MemberName, msgspec.Raw], dec_hook=count).decode(body)
        return {key.name: bytes(value) for key, value in found.items()}
    except _TooManyMembers:
        raise JsonSplitError("more members than any API has") from None
    except _DECODE_ERRORS:
        pass
    scanned = members(body)
    if len(scanned) > MAX_BODY_MEMBERS:
        raise JsonSplitError("more members than any API has")
    return scanned


def all_members(raw: bytes) -> list[tuple[str, bytes]]:
    """The members of an object, in its order, also those whose key comes more than once. Raises JsonSplitError."""
    try:
        return [(key.name, bytes(value)) for key, value in _ALL_MEMBERS.decode(raw).items()]
    except _DECODE_ERRORS:
        return [(_key(key), value) for key, value in _scan(raw, b"{", b"}")]


def items(raw: bytes) -> list[bytes]:
    """The items of an array, in order."""
    try:
        return [bytes(item) for item in _ITEMS.decode(raw)]
    except _DECODE_ERRORS:
        return [value for _, value in _scan(raw, b"[", b"]")]


def parse(raw: bytes, *, mend: bool = True) -> Any:
    """Any JSON as Python has it. Lone surrogates become U+FFFD, unless the other half may still come (`mend` False).
    Raises JsonSplitError when no parser takes it."""
    try:
        return _ANY.decode(raw)
    except _DECODE_ERRORS:
        pass
    try:
        said = json.loads(raw.decode("utf-8", "replace"), strict=False)
        return _replace_surrogates_in(said) if mend else said
    except (ValueError, RecursionError) as refused:
        raise JsonSplitError("no parser takes it") from refused


def parse_or_none(raw: bytes) -> Any:
    """As `parse`; None when no parser takes it."""
    try:
        return parse(raw)
    except JsonSplitError:
        return None


def object_or_empty(raw: bytes) -> dict[str, Any]:
    """As `parse`; empty where it is no object, or no parser takes it."""
    said = parse_or_none(raw)
    return said if isinstance(said, dict) else {}


def replace_surrogates(text: str) -> str:
    """`text` that can be encoded: halves of a pair that arrived apart are joined, lone ones become U+FFFD."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    # Half a pair is real traffic: clients cut outputs by UTF-16 units (claude-code#2108, opencode#13985). Encoded as it
    # is, it can neither be stored nor counted.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def generated_call_id(order: int, name: str, arguments: str) -> str:
    """The id of a call of ours that came without one; the same for the same call."""
    return "call_" + sha256(replace_surrogates(f"{order}\n{name}\n{arguments}").encode()).hexdigest()[:24]


def encode(said: object) -> bytes:
    """JSON without white space, in the order given; the same for the same value, always. Half a surrogate pair, or a
    value nested too deep for the fast writer, is written by the slow one."""
    try:
        return msgspec.json.encode(said)
    except _ENCODE_ERRORS:
        return json.dumps(said, separators=(",", ":")).encode()


def join_object(fields: dict[str, bytes]) -> bytes:
    """An object of raw members, in their order."""
    return b"{" + b",".join(encode(key) + b":" + raw for key, raw in fields.items()) + b"}"


def object_around(fields: Mapping[str, bytes], array: str, items: Sequence[bytes]) -> tuple[bytes, ...]:
    """An object of raw members, in their order and in pieces: of the member `array` these are all that stands between
    its brackets, each by itself."""
    written = [encode(key) + b":" + (b"[" if key == array else raw) for key, raw in fields.items()]
    at = list(fields).index(array) + 1
    behind = b"".join(b"," + member for member in written[at:])
    return (b"{" + b",".join(written[:at]), *items, b"]" + behind + b"}")


def join_array(raws: list[bytes]) -> bytes:
    return b"[" + b",".join(raws) + b"]"


def cut(body: bytes, array: bytes, raws: Sequence[bytes]) -> tuple[bytes, ...]:
    """`body` in pieces, cut at the borders of `raws`, the items of `array`; whole where `array` is no slice of it."""
    at, border = 0, find_slice(body, array) + 1
    if not border:
        return (body,)
    inside = len(array) - len(b"[]")
    if inside == sum(map(len, raws)) + len(raws) - 1:  # a comma between each two, and nothing else
        return (body[:border], *comma_separated(raws), body[border + inside :])
    pieces: list[bytes] = []
    for raw in raws:
        while body[border] in BETWEEN_ITEMS:
            border += 1
        pieces.append(body[at:border])
        pieces.append(raw)
        at = border = border + len(raw)
    return (*pieces, body[at:])


def comma_separated(raws: Sequence[bytes]) -> list[bytes]:
    """These items as they stand in an array, in pieces: each by itself."""
    pieces = [b","] * max(0, len(raws) * 2 - 1)
    pieces[::2] = raws
    return pieces


BETWEEN_ITEMS = b" \t\r\n,"
"""What may stand between two items of an array."""


def find_slice(body: bytes, slice_: bytes) -> int:
    """Where `slice_` stands, or -1. By its beginning: looking for something that long costs more than reading it."""
    start = slice_[:BEGINNING]
    at = body.find(start)
    while at >= 0 and not body.startswith(slice_, at):
        at = body.find(start, at + 1)
    return at


BEGINNING = 48
"""Bytes by which a slice is looked for."""


def _replace_surrogates_in(said: Any) -> Any:
    if isinstance(said, str):
        return replace_surrogates(said)
    if isinstance(said, list):
        return [_replace_surrogates_in(item) for item in said]
    if isinstance(said, dict):
        return {replace_surrogates(key): _replace_surrogates_in(item) for key, item in said.items()}
    return said


def _key(raw: bytes) -> str:
    try:
        return replace_surrogates(str(json.loads(raw.decode("utf-8", "replace"), strict=False)))
    except ValueError:
        return raw.decode("utf-8", "replace")


def _scan(raw: bytes, opening: bytes, closing: bytes) -> list[tuple[bytes, bytes]]:
    """(key, value) pairs one level down; keys are empty in an array."""
    body = raw.strip(SPACE)
    if not body.startswith(opening) or not body.endswith(closing) or len(body) > SCAN_LIMIT:
        raise JsonSplitError("not an object or array that can be taken apart")
    found: list[tuple[bytes, bytes]] = []
    depth, start, key, closed = 0, 1, b"", 0
    for token in _TOKEN.finditer(body):
        mark = body[token.start()]
        if mark in b"{[":
            depth += 1
        elif mark in b"}]":
            depth -= 1
            if depth == 0:
                _take(found, key, body[start : token.start()], keyed=opening == b"{")
                closed = token.end()
                break
        elif depth == 1 and mark in b":" and not key:
            key, start = body[start : token.start()].strip(SPACE), token.end()
        elif depth == 1 and mark in b",":
            _take(found, key, body[start : token.start()], keyed=opening == b"{")
            key, start = b"", token.end()
    if closed != len(body):
        raise JsonSplitError("brackets that do not close, or something behind them")
    return found


def _take(found: list[tuple[bytes, bytes]], key: bytes, raw: bytes, *, keyed: bool) -> None:
    slice_ = raw.strip(SPACE)
    if not slice_ and not key and not found:
        return
    if not slice_ or (keyed and not key):
        raise JsonSplitError("a member without a key or a value")
    found.append((key, slice_))
