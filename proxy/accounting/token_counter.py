"""Token counts of texts: exact for `o200k_base`, or an estimate if tiktoken or the vocabulary cannot be loaded.

A text has the same count as long as the process lives, and `TokenCounter.name` says which of the two counts.
Of a text longer than `MAX_COUNTED_CHARACTERS`, evenly spread parts are counted, and stand for the rest.
A data URL counts as 1,000 tokens whatever its length: as text its count would mean nothing, and cost time.
The same holds for an image, document or recording that a message carries as bare base64, as most wire formats do.
`TokenCounter` remembers nothing: callers cache counts by content.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from proxy.accounting.o200k import load_o200k
from proxy.core.text import shorten_base64

DATA_URL_TOKENS = 1000
SLICE_CHARACTERS = 16 * 1024
"""Characters counted in one go: about 1 ms for English and code, 3 ms for most else, 12 ms at worst."""
COUNTED_APART_CHARACTERS = 128 * 1024
"""A longer text is counted in a thread; the library lets other threads run meanwhile."""

MAX_COUNTED_CHARACTERS = 1024 * 1024
"""Characters of one text that are counted: more than the windows of most models. All of 60 MB would take half a
minute."""

LEAST_CHARACTERS = 64
"""To find the count of a shorter text takes as long as to count so many characters."""

_DATA_URL = re.compile(r"data:[^;,\s\"']{0,100}(?:;[^;,\s\"']{1,100}){0,5};base64,[A-Za-z0-9+/=_\-]+")
_BARE = re.compile(r"(\"(?:file_)?data\":\")[A-Za-z0-9+/=_\-]{1200,}(?=\")")
"""A file in the JSON of a content part. Shorter ones count less as text than `DATA_URL_TOKENS`."""

_TOKEN_BOUNDARY = re.compile(r"[^\W\d_](?=[ \n\r\t.,;:!?(){}\[\]<>=\"/\\\uff0c\u3002\u3001])")
"""A letter before one of these characters always ends a token of o200k: every rule of its pattern that takes letters
stops there, and none looks back. The apostrophe is missing because a token may continue with it."""


class TokenCounterProtocol(Protocol):
    """The token counter that the exchange works with."""

    @property
    def name(self) -> str:
        """The method of counting, for reports."""

    def count(self, text: str) -> int:
        """Tokens of `text`, counted in one go: for texts as long as a usual message."""

    async def count_all(self, texts: Iterable[str]) -> list[int]:
        """Tokens of each text, in order. Lets other tasks run every few milliseconds."""


class TokenCounter:
    """Counts with o200k, or by the estimate."""

    def __init__(self, load: Callable[[], Callable[[str], int]] = load_o200k) -> None:
        """`load` returns an exact counting function, or raises ImportError or OSError."""
        self._load = load
        self._count: Callable[[str], int] | None = None
        self._name = ""

    @property
    def name(self) -> str:
        """`o200k (tiktoken)` or `estimate (characters / 4)`."""
        self._loaded_count()
        return self._name

    async def preload(self) -> None:
        """Load the vocabulary in a thread (0.2 s). Otherwise the first count loads it."""
        await asyncio.to_thread(self._loaded_count)

    def count(self, text: str) -> int:
        text, files = _remove_base64_files(text)
        if len(text) <= SLICE_CHARACTERS:
            counted = self._loaded_count()(text)
        else:
            parts = parts_to_count(text)
            counted = sum(map(self._loaded_count(), parts.texts))
            counted = counted if parts.share == 1.0 else round(counted / parts.share)
        return counted + files * DATA_URL_TOKENS

    async def count_all(self, texts: Iterable[str]) -> list[int]:
        """Tokens of each text, in order. Other tasks run after every `SLICE_CHARACTERS`."""
        counts, since_pause = [], 0
        for text in texts:
            if len(text) > COUNTED_APART_CHARACTERS:
                counts.append(await asyncio.to_thread(self.count, text))
                continue
            total = 0
            for count in self._count_slices(text):
                total += count
                since_pause += max(LEAST_CHARACTERS, min(len(text), SLICE_CHARACTERS))
                if since_pause >= SLICE_CHARACTERS:
                    since_pause = 0
                    await asyncio.sleep(0)
            counts.append(total)
        return counts

    def _count_slices(self, text: str) -> Iterator[int]:
        count = self._loaded_count()
        text, files = _remove_base64_files(text)
        if files:
            yield files * DATA_URL_TOKENS
        for part in sliced(text):
            yield count(part)

    def _loaded_count(self) -> Callable[[str], int]:
        if self._count is None:
            try:
                self._count, self._name = self._load(), "o200k (tiktoken)"
            except (ImportError, OSError):
                self._count, self._name = estimate_tokens, "estimate (characters / 4)"
        return self._count


_ASCII = re.compile("[\x00-\x7f]+")
_CJK = re.compile("[\u1100-\u11ff\u2e80-\ua4cf\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")
_EMOJI = re.compile("[\u2600-\u27bf\U00010000-\U0001ffff]")


def estimate_tokens(text: str) -> int:
    """A quarter of a token for each ASCII character, rounded up. For others the averages of o200k: a Chinese, Japanese
    or Korean character is 0.7 tokens, an emoji 1.3, any other character 0.3."""
    if text.isascii():
        return -(-len(text) // 4)
    ascii_length = sum(map(len, _ASCII.findall(text)))
    cjk, emoji = len(_CJK.findall(text)), len(_EMOJI.findall(text))
    others = len(text) - ascii_length - cjk - emoji
    return -(-(5 * ascii_length + 14 * cjk + 26 * emoji + 6 * others) // 20)


def estimate_request_tokens(body: bytes) -> int:
    """About the tokens of a whole request, by its size. A file in base64 counts as `DATA_URL_TOKENS`."""
    if b";base64," not in body and b'data":"' not in body:
        return -(-len(body) // 4)
    text, files = _remove_base64_files(body.decode("utf-8", "replace"))
    return -(-len(text) // 4) + files * DATA_URL_TOKENS


class CountedParts(NamedTuple):
    """Parts of a text, and what share of it they are."""

    texts: Iterable[str]
    share: float


def parts_to_count(text: str) -> CountedParts:
    """All of `text`, or of a very long one evenly spread parts; the same for the same text."""
    if len(text) <= MAX_COUNTED_CHARACTERS:
        return CountedParts(sliced(text), 1.0)
    number = MAX_COUNTED_CHARACTERS // SLICE_CHARACTERS
    starts = (at * (len(text) - SLICE_CHARACTERS) // (number - 1) for at in range(number))
    return CountedParts(
        (text[start : start + SLICE_CHARACTERS] for start in starts), number * SLICE_CHARACTERS / len(text)
    )


def sliced(text: str) -> Iterator[str]:
    """`text` in parts of at most `SLICE_CHARACTERS`, whose counts add up to the count of the whole.

    It is cut where a token of o200k ends anyway. A text without such a place (a megabyte of digits) is cut all the
    same, and each cut may add a token or two.
    """
    start = 0
    while len(text) - start > SLICE_CHARACTERS:
        middle = start + SLICE_CHARACTERS // 2
        border = _TOKEN_BOUNDARY.search(text, middle, start + SLICE_CHARACTERS)
        end = border.end() if border else start + SLICE_CHARACTERS
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def _remove_base64_files(text: str) -> tuple[str, int]:
    """The text without its base64 files, and the number of these."""
    urls = bare = 0
    text = shorten_base64(text)
    if ";base64," in text:
        text, urls = _DATA_URL.subn("", text)
    if 'data":"' in text:
        text, bare = _BARE.subn(r"\1", text)
    return text, urls + bare
