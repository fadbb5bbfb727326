"""The vocabulary `o200k_base`, counted with tiktoken.

tiktoken downloads its vocabularies at the first use. The proxy must count offline, so the vocabulary lies beside this
module (`NOTICE` names its origin and licence), and the encoding is built from that file.
"""

from __future__ import annotations

import binascii
import gzip
import hashlib
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

VOCABULARY = Path(__file__).with_name("o200k_base.tiktoken.gz")
SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""Of the uncompressed file, as `tiktoken_ext/openai_public.py` states it. Pattern and special tokens are from there."""

SPECIAL_TOKENS = {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}
PATTERN = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)


@cache  # 50 MB that all counters of a process share
def load_o200k() -> Callable[[str], int]:
    """A function that returns the exact token count of a text. Special tokens count as the text they are written in.

    Loading takes 0.2 s. Raises ImportError without tiktoken, OSError if the vocabulary is missing or damaged.
    """
    from tiktoken import Encoding  # here, because the proxy must start where tiktoken has no wheel

    ranks = _read_ranks(VOCABULARY)
    encoding = Encoding("o200k_base", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=SPECIAL_TOKENS)
    ranks.clear()  # the encoding keeps the dictionary (30 MB), but counts with a copy of its own

    def count(text: str) -> int:
        # Clients send lone surrogates. Each counts as the question mark that "replace" puts in its place.
        return len(encoding.encode_ordinary(text.encode("utf-8", "replace").decode()))

    return count


def _read_ranks(path: Path) -> dict[bytes, int]:
    """The rank of each token. A line of the file is a token in base64, a space, and its rank."""
    try:
        vocabulary = gzip.decompress(path.read_bytes())
    except (EOFError, zlib.error) as error:
        raise OSError(f"{path} is damaged: {error}") from error
    if hashlib.sha256(vocabulary).hexdigest() != SHA256:
        raise OSError(f"{path} is damaged: its SHA-256 is not {SHA256}")
    fields = vocabulary.split()
    return dict(zip(map(binascii.a2b_base64, fields[::2]), map(int, fields[1::2]), strict=True))
