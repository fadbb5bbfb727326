"""JSON taken apart without reading it: the members of an object and the items of an array, as the bytes they are.

The law: **what a parser thinks of a value never decides whether its neighbours can be read**. The fast reader refuses
a whole body for one lone surrogate, one `NaN`, or one value nested too deep; then a scanner that only knows strings
and brackets finds the same slices. A slice is never changed and never re-encoded.

What this module does not do: it does not validate. A slice may hold something no parser accepts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec

SCAN_LIMIT = 8 * 1024 * 1024
"""Bytes the slow scanner takes on (about a second); the fast reader has no limit of its own."""

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],:]', re.DOTALL)
_LONE = re.compile("[\ud800-\udfff]")
SPACE = b" \t\r\n"
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])
_ANY = msgspec.json.Decoder()
_UNWRITTEN = (UnicodeError, RecursionError, OverflowError)
_REFUSED = (msgspec.DecodeError, RecursionError, UnicodeError)


class NotSliced(ValueError):
    """The bytes are not an object (or array) that can be taken apart."""


def members(raw: bytes) -> dict[str, bytes]:
    """The members of an object, in its order. Of members with the same key the last one counts."""
    try:
        return {key: bytes(value) for key, value in _MEMBERS.decode(raw).items()}
    except _REFUSED:
        pass
    found: dict[str, bytes] = {}
    for key, value in _scanned(raw, b"{", b"}"):
        found[_key(key)] = value
    return found


def items(raw: bytes) -> list[bytes]:
    """The items of an array, in order."""
    try:
        return [bytes(item) for item in _ITEMS.decode(raw)]
    except _REFUSED:
        return [value for _, value in _scanned(raw, b"[", b"]")]


def value(raw: bytes, *, mend: bool = True) -> Any:
    """Any JSON as Python has it. Lone surrogates become U+FFFD, unless the other half may still come (`mend` False).
    Raises NotSliced when no parser takes it."""
    try:
        return _ANY.decode(raw)
    except _REFUSED:
        pass
    try:
        said = json.loads(raw.decode("utf-8", "replace"), strict=False)
        return _mended(said) if mend else said
    except (ValueError, RecursionError) as refused:
        raise NotSliced("no parser takes it") from refused


def mended(text: str) -> str:
    """`text` that can be encoded: halves of a pair that arrived apart are joined, lone ones become U+FFFD."""
    if text.isascii() or not _LONE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def made_id(order: int, name: str, arguments: str) -> str:
    """The id of a call of ours that came without one; the same for the same call."""
    return "call_" + sha256(mended(f"{order}\n{name}\n{arguments}").encode()).hexdigest()[:24]


def encoded(said: object) -> bytes:
    """JSON without white space, in the order given; the same for the same value, always. Half a surrogate pair, or a
    value nested too deep for the fast writer, is written by the slow one."""
    try:
        return msgspec.json.encode(said)
    except _UNWRITTEN:
        return json.dumps(said, separators=(",", ":")).encode()


def object_of(fields: dict[str, bytes]) -> bytes:
    """An object of raw members, in their order."""
    return b"{" + b",".join(encoded(key) + b":" + raw for key, raw in fields.items()) + b"}"


def array_of(raws: list[bytes]) -> bytes:
    return b"[" + b",".join(raws) + b"]"


def cut(body: bytes, array: bytes, raws: Sequence[bytes]) -> tuple[bytes, ...]:
    """`body` in pieces, cut at the borders of `raws`, the items of `array`; whole where `array` is no slice of it."""
    at, border = 0, found(body, array) + 1
    if not border:
        return (body,)
    inside = len(array) - len(b"[]")
    if inside == sum(map(len, raws)) + len(raws) - 1:  # a comma between each two, and nothing else
        return (body[:border], *with_commas(raws), body[border + inside :])
    pieces: list[bytes] = []
    for raw in raws:
        while body[border] in GLUE:
            border += 1
        pieces.append(body[at:border])
        pieces.append(raw)
        at = border = border + len(raw)
    return (*pieces, body[at:])


def with_commas(raws: Sequence[bytes]) -> list[bytes]:
    """These items as they stand in an array, in pieces: each by itself."""
    pieces = [b","] * max(0, len(raws) * 2 - 1)
    pieces[::2] = raws
    return pieces


GLUE = b" \t\r\n,"
"""What may stand between two items of an array."""


def found(body: bytes, slice_: bytes) -> int:
    """Where `slice_` stands, or -1. By its beginning: looking for something that long costs more than reading it."""
    start = slice_[:BEGINNING]
    at = body.find(start)
    while at >= 0 and not body.startswith(slice_, at):
        at = body.find(start, at + 1)
    return at


BEGINNING = 48
"""Bytes by which a slice is looked for."""


def _mended(said: Any) -> Any:
    if isinstance(said, str):
        return mended(said)
    if isinstance(said, list):
        return [_mended(item) for item in said]
    if isinstance(said, dict):
        return {mended(key): _mended(item) for key, item in said.items()}
    return said


def _key(raw: bytes) -> str:
    try:
        return mended(str(json.loads(raw.decode("utf-8", "replace"), strict=False)))
    except ValueError:
        return raw.decode("utf-8", "replace")


def _scanned(raw: bytes, opening: bytes, closing: bytes) -> list[tuple[bytes, bytes]]:
    """(key, value) pairs one level down; keys are empty in an array."""
    body = raw.strip(SPACE)
    if not body.startswith(opening) or not body.endswith(closing) or len(body) > SCAN_LIMIT:
        raise NotSliced("not an object or array that can be taken apart")
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
        raise NotSliced("brackets that do not close, or something behind them")
    return found


def _take(found: list[tuple[bytes, bytes]], key: bytes, raw: bytes, *, keyed: bool) -> None:
    slice_ = raw.strip(SPACE)
    if not slice_ and not key and not found:
        return
    if not slice_ or (keyed and not key):
        raise NotSliced("a member without a key or a value")
    found.append((key, slice_))
