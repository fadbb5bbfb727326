"""How many tokens a text is: the exact count where a vocabulary is there, a named estimate where it is not.

Its law: the same text has the same count for as long as the process lives, and `name` says what counted. o200k by
rs-bpe is exact against tiktoken and brings its vocabulary along, so it works offline; without the package,
`ceil(characters / 4)`, which is right in sums and up to 60 % wrong for one message; other scripts take more or less.

A data URL is 1,000 tokens whatever its length: as text it would be meaningless, and 10 ms of work per 100 KB. So is a
picture, a document or a recording that a message holds as bare base64, which most wire formats have it as.

rs-bpe holds the interpreter's lock while it counts (measured: a thread waits 31 ms for 650 KB), so a thread would
stall the event loop all the same. `count_all` therefore counts on the loop, in slices, and lets others run in between.
Remembering counts by content is the caller's job.
"""

from __future__ import annotations

import asyncio
import importlib
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

from proxy.accounting.mapped import release_mapped_pages

DATA_URL_TOKENS = 1000
SLICE_CHARACTERS = 16 * 1024
"""Characters counted in one go: below 1 ms for English and code, about 3 ms at worst."""

_DATA_URL = re.compile(r"data:[^;,\s\"']{0,100}(?:;[^;,\s\"']{1,100}){0,5};base64,[A-Za-z0-9+/=_\-]+")
_BARE = re.compile(r"(\"(?:file_)?data\":\")[A-Za-z0-9+/=_\-]{1200,}(?=\")")
"""As a dialect tells a part that is no text. What is shorter counts less as it stands."""

_TOKEN_BOUNDARY = re.compile(r"[^\W\d_](?=[ \n\r\t.,;:!?(){}\[\]<>=\"/\\\uff0c\u3002\u3001])")
"""A letter before one of these always ends a token of o200k, whatever stands around the two: every rule of its pattern
that takes letters stops there, and none looks back. (Not before an apostrophe, which it may join.)"""


class TokenCounterProtocol(Protocol):
    """What the rest of the proxy knows of tokens."""

    @property
    def name(self) -> str:
        """What counts, for reports."""

    def count(self, text: str) -> int:
        """Tokens of `text`, at once. For texts of a message's usual size."""

    async def count_all(self, texts: Iterable[str]) -> list[int]:
        """Tokens of each text, in order, without holding the event loop for more than some milliseconds at a time."""


class TokenCounter:
    """o200k, or the estimate."""

    def __init__(self, load: Callable[[], Callable[[str], int]] | None = None) -> None:
        """`load` returns an exact counting function or raises ImportError; by default rs-bpe's."""
        self._load = load or _load_o200k
        self._count: Callable[[str], int] | None = None
        self._name = ""

    @property
    def name(self) -> str:
        """What counts: `o200k (rs-bpe)` or `estimate (characters / 4)`."""
        self._loaded_count()
        return self._name

    async def preload(self) -> None:
        """Load the vocabulary (60 ms) in a thread, at start; otherwise the first count does."""
        await asyncio.to_thread(self._loaded_count)

    def count(self, text: str) -> int:
        """Tokens of `text`, at once."""
        text, files = _remove_base64_files(text)
        counted = (
            self._loaded_count()(text)
            if len(text) <= SLICE_CHARACTERS
            else sum(map(self._loaded_count(), sliced(text)))
        )
        return counted + files * DATA_URL_TOKENS

    async def count_all(self, texts: Iterable[str]) -> list[int]:
        """Tokens of each text, in order. Others run after every `SLICE` characters."""
        counts, since = [], 0
        for text in texts:
            total = 0
            for count in self._count_slices(text):
                total += count
                since += min(len(text), SLICE_CHARACTERS)
                if since >= SLICE_CHARACTERS:
                    since = 0
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
                self._count, self._name = _accepting_surrogates(self._load()), "o200k (rs-bpe)"
            except (ImportError, OSError):
                self._count, self._name = estimate_tokens, "estimate (characters / 4)"
        return self._count


_ASCII = re.compile("[\x00-\x7f]+")
_CJK = re.compile("[\u1100-\u11ff\u2e80-\ua4cf\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")
_EMOJI = re.compile("[\u2600-\u27bf\U00010000-\U0001ffff]")


def estimate_tokens(text: str) -> int:
    """Tokens as a quarter of the characters, rounded up. Of what is not ASCII, a Chinese, Japanese or Korean
    character is 0.7 tokens, a picture 1.3, any other 0.3, as o200k has it on the average (S4-63)."""
    if text.isascii():
        return -(-len(text) // 4)
    wide, pictures = len(_CJK.findall(text)), len(_EMOJI.findall(text))
    latin = sum(map(len, _ASCII.findall(text)))
    others = len(text) - latin - wide - pictures
    return -(-(5 * latin + 14 * wide + 26 * pictures + 6 * others) // 20)


def sliced(text: str) -> Iterator[str]:
    """`text` in parts of about `SLICE` characters whose counts add up to that of the whole.

    They are cut where o200k has a border anyway. A stretch without one (a megabyte of digits) is cut all the same, and
    counts a token or two too many per slice.
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
    """The text less what in it is a file as base64, and how many of them there were."""
    urls = bare = 0
    if ";base64," in text:
        text, urls = _DATA_URL.subn("", text)
    if 'data":"' in text:
        text, bare = _BARE.subn(r"\1", text)
    return text, urls + bare


def _load_o200k() -> Callable[[str], int]:
    # Imported here: it costs 35 MiB, and the proxy must start where the package has no wheel.
    library = importlib.import_module("rs_bpe.bpe")
    counter: Callable[[str], int] = library.openai.o200k_base().count
    release_mapped_pages(Path(str(library.__file__)))  # 31 MiB more: the vocabulary as the file has it, read once
    return counter


def _accepting_surrogates(exact: Callable[[str], int]) -> Callable[[str], int]:
    """Counts half characters too (lone surrogates are real client traffic), as the question marks they become."""

    def count(text: str) -> int:
        try:
            return exact(text)
        except UnicodeEncodeError:
            return exact(text.encode("utf-8", "replace").decode())

    return count
