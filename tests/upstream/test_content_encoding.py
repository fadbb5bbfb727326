"""Compressed bodies of any size are unpacked whole, piece by piece, and never beyond the limit."""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Callable

import brotli
import pytest

from proxy.upstream import BrokenCoding, DecodedTooLarge, decode_body
from proxy.upstream.content_encoding import PACKED_PIECE_BYTES, PIECE_BYTES

RANDOM = random.Random(35).randbytes(2 * PIECE_BYTES + 5)
PLAIN: dict[str, bytes] = {
    "random": RANDOM,
    "a letter": b"a" * (3 * PIECE_BYTES),
    "a letter more than pieces": b"a" * (3 * PIECE_BYTES + 1),
    "a letter behind the unpackable": RANDOM[: PACKED_PIECE_BYTES + 3] + b"a" * (2 * PIECE_BYTES),
    "empty": b"",
}
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "gzip of members": lambda plain: b"".join(gzip.compress(plain[at::7]) for at in range(7)),
    "deflate": zlib.compress,
    "deflate without a header": lambda plain: zlib.compress(plain)[2:-4],
    "br": lambda plain: brotli.compress(plain, quality=1),
}


@pytest.mark.rows("X-35")
@pytest.mark.parametrize("form", PACKERS)
def test_a_body_is_unpacked_piece_by_piece_to_its_last_byte_and_not_beyond_the_limit(form: str) -> None:
    coding = form.split()[0]
    for name, plain in PLAIN.items():
        packed = PACKERS[form](plain)
        whole = b"".join(plain[at::7] for at in range(7)) if form == "gzip of members" else plain
        assert decode_body(packed, [coding], len(plain)) == whole, name
        if plain:
            with pytest.raises(DecodedTooLarge):
                decode_body(packed, [coding], len(plain) - 1)
        with pytest.raises(BrokenCoding):
            decode_body(packed[:-9], [coding], len(plain) or 1)
