"""Decompresses bodies by their `content-encoding`: gzip, deflate, br, and zstd (by the standard library from Python
3.14 on). The size of what comes out is bounded while it is decompressed."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Protocol

import brotli

MAX_CODINGS = 3
"""Codings of one body; clients use one."""
MAX_MEMBERS = 64
"""Compressed streams that one body may join. Each copies what follows it: thousands of empty ones would take long."""
PACKED_PIECE_BYTES = 64 << 10
PIECE_BYTES = 1 << 20
"""Bytes unpacked in one go. zlib copies what it unpacked, and holds the interpreter meanwhile: 40 ms for 60 MB."""
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


class _BrotliDecompressor:
    """brotli's own, in the words of zlib's. Its pieces may be twice as long as asked. A body is one stream."""

    unused_data = b""

    def __init__(self) -> None:
        self._brotli = brotli.Decompressor()

    @property
    def eof(self) -> bool:
        return bool(self._brotli.is_finished())

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return bytes(self._brotli.process(data, output_buffer_limit=max_length))


_ZSTD = _zstd_module()
_ERRORS: tuple[type[Exception], ...] = (zlib.error, EOFError, brotli.error, *([_ZSTD.ZstdError] if _ZSTD else ()))
_DECOMPRESSORS: dict[str, Callable[[], _Decompressor]] = {
    "gzip": lambda: zlib.decompressobj(_AUTOMATIC_HEADER),
    "x-gzip": lambda: zlib.decompressobj(_AUTOMATIC_HEADER),
    "deflate": lambda: zlib.decompressobj(_AUTOMATIC_HEADER),
    "br": _BrotliDecompressor,
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
            # "deflate" is zlib's format by the RFC and bare deflate by the habit of old servers and clients.
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
    for _ in range(MAX_MEMBERS):
        body = _unpack_stream(begin(), body, pieces, limit)
        if not body:
            return b"".join(pieces)  # from 1 MB on, this lets go of the interpreter
    raise BrokenCoding("too many streams in one body")


def _unpack_stream(unpacker: _Decompressor, packed: bytes, pieces: list[bytes], limit: int) -> bytes:
    """What follows the stream in `packed`; that is added to `pieces`, at most `limit` bytes with those before."""
    room = limit - sum(map(len, pieces))
    for at in range(0, len(packed), PACKED_PIECE_BYTES):
        waiting = packed[at : at + PACKED_PIECE_BYTES]
        while not unpacker.eof:
            most = min(room + 1, PIECE_BYTES)
            piece = unpacker.decompress(waiting, most)
            room -= len(piece)
            if room < 0:
                raise DecodedTooLarge
            pieces.append(piece)
            waiting = getattr(unpacker, "unconsumed_tail", b"")  # zlib gives back what zstd keeps
            if not waiting and len(piece) < most:
                break
        if unpacker.eof:
            return unpacker.unused_data + packed[at + PACKED_PIECE_BYTES :]
    raise BrokenCoding("ends too early")
