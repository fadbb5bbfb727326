"""Decompresses bodies by their `content-encoding`: gzip, deflate, and zstd (by the standard library from Python 3.14
on). The size of what comes out is bounded while it is decompressed."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Protocol

MAX_CODINGS = 3
"""Codings of one body; clients use one."""
MAX_MEMBERS = 64
"""Compressed streams that one body may join. Each copies what follows it: thousands of empty ones would take long."""
_AUTOMATIC_HEADER = zlib.MAX_WBITS | 32
"""gzip or zlib, by its own header."""


class UnknownCoding(Exception):
    """The body has a coding that cannot be read here; the text is its name."""


class BrokenCoding(Exception):
    """The body is not what its coding says, or ends too early."""


class DecodedTooLarge(Exception):
    """The decompressed body passes the limit."""


class _Decompressor(Protocol):
    """What zlib and zstd have in common. `decompress` returns at most `max_length` bytes."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def _zstd_module() -> ModuleType | None:
    """None where a Python from 3.14 on was built without it."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return import_module(name)
        except ImportError:
            continue
    return None


_ZSTD = _zstd_module()
_ERRORS: tuple[type[Exception], ...] = (zlib.error, EOFError, *([_ZSTD.ZstdError] if _ZSTD else ()))
_DECOMPRESSORS: dict[str, Callable[[], _Decompressor]] = {
    "gzip": lambda: zlib.decompressobj(_AUTOMATIC_HEADER),
    "x-gzip": lambda: zlib.decompressobj(_AUTOMATIC_HEADER),
    "deflate": lambda: zlib.decompressobj(_AUTOMATIC_HEADER),
}
if _ZSTD:
    _DECOMPRESSORS["zstd"] = _ZSTD.ZstdDecompressor

READABLE_CODINGS = tuple(name for name in _DECOMPRESSORS if name != "x-gzip")
"""Names for people."""


def codings_of(headers: Iterable[tuple[bytes, bytes]]) -> list[str]:
    """The codings of a body in the order in which they were applied, in lower case; empty for a plain body."""
    values = [value for name, value in headers if name == b"content-encoding"]
    if not values:
        return []
    named = (coding.strip().lower() for coding in b",".join(values).decode("latin-1").split(","))
    return [coding for coding in named if coding not in ("", "identity")]


def decode_body(body: bytes, codings: Sequence[str], limit: int) -> bytes:
    """The plain body. Raises UnknownCoding, BrokenCoding, or DecodedTooLarge above `limit` bytes."""
    if len(codings) > MAX_CODINGS:
        raise UnknownCoding(", ".join(codings))
    for coding in reversed(codings):
        if coding not in _DECOMPRESSORS:
            raise UnknownCoding(coding)
        try:
            body = _decompress(body, _DECOMPRESSORS[coding], limit)
        except _ERRORS as error:
            if coding != "deflate":
                raise BrokenCoding(coding) from error
            body = _decompress_bare(body, limit)
    return body


def _decompress_bare(body: bytes, limit: int) -> bytes:
    """Some clients send `deflate` without the header of zlib that belongs to it."""
    try:
        return _decompress(body, lambda: zlib.decompressobj(-zlib.MAX_WBITS), limit)
    except zlib.error as error:
        raise BrokenCoding("deflate") from error


def _decompress(body: bytes, begin: Callable[[], _Decompressor], limit: int) -> bytes:
    pieces: list[bytes] = []
    room = limit
    for _ in range(MAX_MEMBERS):
        unpacker = begin()
        piece = unpacker.decompress(body, room + 1)
        if len(piece) > room:
            raise DecodedTooLarge
        if not unpacker.eof:
            raise BrokenCoding("ends too early")
        pieces.append(piece)
        room -= len(piece)
        body = unpacker.unused_data
        if not body:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
    raise BrokenCoding("too many streams in one body")
