"""Stored texts as they are given back: in pages between marker lines.

The law: **the pages together are the texts**. A long text is cut between two lines (or, where one line is longer than
a page, inside it), the marker says which part it is, and the parts joined are the text. A page is made when it is
asked for; of a text of many megabytes only so many pages are counted as are needed.

What this module does not do: it finds no texts (that is `recall`), and changes none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from proxy.core.recall.stored_texts import Piece, between_markers
from proxy.core.text import CHARACTERS_PER_TOKEN, Count, longest_fitting

LEAST_TEXT = 32
"""Tokens of text a page holds at least, however small a page is configured."""
LARGEST = (999, 999)
WIDEST = "999/999"
"""Stands for a page or part whose number is not known yet, where tokens are counted."""
CHARACTERS_AHEAD = 16
"""Characters for each token of room that are looked at for the next cut: more hardly ever fit."""
COUNTED_CHARACTERS = 1_000_000
"""Of a longer text it is not counted how many parts it has: that would take seconds."""
UNCOUNTED = 0
GUESSES = 6
CAREFUL = 0.97
"""Of what fits by the density of the text, what is tried."""


class Part(msgspec.Struct, frozen=True):
    """A piece, or one part of it: number `number` of `of`, or of an unknown number."""

    piece: Piece
    text: str
    number: int = 1
    of: int = 1

    def written(self, nonce: str, page: str = WIDEST) -> str:
        """The part between its two marker lines. `page` is `2/5`."""
        part = "" if self.of == 1 else f"{self.number}/{self.of}" if self.of else str(self.number)
        return between_markers(self.piece, self.text, nonce, part=part, page=page)


class Size(msgspec.Struct, frozen=True):
    """Tokens of a page, markers included, and of one that a single text without line breaks may take alone."""

    page: int
    alone: int


def pages_of(pieces: Sequence[Piece], size: Size, nonce: str, count: Count) -> Iterator[tuple[Part, ...]]:
    """The pieces in pages. A piece that fits a page of its own is not cut."""
    page: list[Part] = []
    left = size.page
    for piece in pieces:
        for part, cost in _parts(piece, left, size, nonce, count):
            if cost > left and page:
                yield tuple(page)
                page, left = [], size.page
            page.append(part)
            left -= cost
    if page:
        yield tuple(page)


def _parts(piece: Piece, left: int, size: Size, nonce: str, count: Count) -> Iterator[tuple[Part, int]]:
    """The piece whole, or in parts of which the first fits what is `left` of a page; with their tokens as they are
    written."""
    whole = Part(piece, piece.text)
    most = size.page if "\n" in piece.text.rstrip("\n") else size.alone
    if len(piece.text) <= most * CHARACTERS_AHEAD and (tokens := count(whole.written(nonce)) + 1) <= most:
        yield whole, tokens
        return
    markers = count(Part(piece, "", *LARGEST).written(nonce)) + 1
    room = max(LEAST_TEXT, size.page - markers)
    first = left - markers if left - markers >= LEAST_TEXT else room
    texts: Iterable[str] = _cuts(piece.text, first, room, count)
    of = UNCOUNTED
    if len(piece.text) <= COUNTED_CHARACTERS:
        texts = tuple(texts)
        of = len(texts)
    for number, text in enumerate(texts, 1):
        part = Part(piece, text, number, of)
        yield part, count(part.written(nonce)) + 1


def _cuts(text: str, first: int, room: int, count: Count) -> Iterator[str]:
    """`text` in parts of at most `room` tokens (the first of at most `first`), which joined are the text: cut between
    lines where lines fit."""
    start, limit = 0, first
    while start < len(text):
        ahead = text[start : start + limit * CHARACTERS_AHEAD]
        length = _fitting(ahead, limit, count)
        border = ahead.rfind("\n", 0, length) + 1
        length = border if start + length < len(text) and border else length
        yield ahead[:length]
        start, limit = start + length, room


def _fitting(text: str, limit: int, count: Count) -> int:
    """About as many characters as fit `limit` tokens, at least one: guessed by how dense the text is, for a search
    that counts every half of it costs ten times as much."""
    fitting, guess = 0, min(len(text), limit * CHARACTERS_PER_TOKEN)
    for _ in range(GUESSES):
        tokens = count(text[:guess])
        if tokens > limit:
            guess = int(guess * limit / tokens * CAREFUL)
            continue
        fitting = max(fitting, guess)
        if guess == len(text) or tokens >= limit * CAREFUL:
            break
        guess = min(len(text), int(guess * limit / max(1, tokens) * CAREFUL) + 1)
    return fitting or max(1, longest_fitting(text, lambda kept: count(kept) <= limit))
