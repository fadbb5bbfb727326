"""Stored texts as they are given back: in pages between marker lines.

The law: **the pages together are the texts**. A long text is cut between two lines (or, where one line is longer than
a page, inside it), the marker says which part it is, and the parts joined are the text. A page is made when it is
asked for; of a text of many megabytes only so many pages are counted as are needed.

What this module does not do: it finds no texts (that is `recall`), and changes none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from proxy.core.recall.stored_texts import StoredPiece, wrap_in_markers
from proxy.core.text import CHARACTERS_PER_TOKEN, CountTokens, longest_fitting

MIN_PAGE_TEXT_TOKENS = 32
"""Tokens of text a page holds at least, however small a page is configured."""
LARGEST_PART_NUMBER = (999, 999)
WIDEST_PAGE_LABEL = "999/999"
"""Stands for a page or part whose number is not known yet, where tokens are counted."""
MAX_CHARACTERS_PER_TOKEN = 16
"""Characters for each token of room that are looked at for the next cut: more hardly ever fit."""
MAX_CHARACTERS_FOR_PART_COUNT = 1_000_000
"""Of a longer text it is not counted how many parts it has: that would take seconds."""
UNKNOWN_PART_COUNT = 0
MAX_GUESSES = 6
GUESS_MARGIN = 0.97
"""Of what fits by the density of the text, what is tried."""


class PagePart(msgspec.Struct, frozen=True):
    """A piece, or one part of it: number `number` of `of`, or of an unknown number."""

    piece: StoredPiece
    text: str
    part_number: int = 1
    part_count: int = 1

    def render(self, nonce: str, page: str = WIDEST_PAGE_LABEL) -> str:
        """The part between its two marker lines. `page` is `2/5`."""
        part = (
            ""
            if self.part_count == 1
            else f"{self.part_number}/{self.part_count}"
            if self.part_count
            else str(self.part_number)
        )
        return wrap_in_markers(self.piece, self.text, nonce, part=part, page=page)


class PageSize(msgspec.Struct, frozen=True):
    """Tokens of a page, markers included, and of one that a single text without line breaks may take alone."""

    page_tokens: int
    single_text_tokens: int


def pages_of(
    pieces: Sequence[StoredPiece], size: PageSize, nonce: str, count: CountTokens
) -> Iterator[tuple[PagePart, ...]]:
    """The pieces in pages. A piece that fits a page of its own is not cut."""
    page: list[PagePart] = []
    left = size.page_tokens
    for piece in pieces:
        for part, cost in _parts_of_piece(piece, left, size, nonce, count):
            if cost > left and page:
                yield tuple(page)
                page, left = [], size.page_tokens
            page.append(part)
            left -= cost
    if page:
        yield tuple(page)


def _parts_of_piece(
    piece: StoredPiece, left: int, size: PageSize, nonce: str, count: CountTokens
) -> Iterator[tuple[PagePart, int]]:
    """The piece whole, or in parts of which the first fits what is `left` of a page; with their tokens as they are
    written."""
    whole = PagePart(piece, piece.text)
    most = size.page_tokens if "\n" in piece.text.rstrip("\n") else size.single_text_tokens
    if len(piece.text) <= most * MAX_CHARACTERS_PER_TOKEN and (tokens := count(whole.render(nonce)) + 1) <= most:
        yield whole, tokens
        return
    markers = count(PagePart(piece, "", *LARGEST_PART_NUMBER).render(nonce)) + 1
    room = max(MIN_PAGE_TEXT_TOKENS, size.page_tokens - markers)
    first = left - markers if left - markers >= MIN_PAGE_TEXT_TOKENS else room
    texts: Iterable[str] = _cut_text(piece.text, first, room, count)
    of = UNKNOWN_PART_COUNT
    if len(piece.text) <= MAX_CHARACTERS_FOR_PART_COUNT:
        texts = tuple(texts)
        of = len(texts)
    for number, text in enumerate(texts, 1):
        part = PagePart(piece, text, number, of)
        yield part, count(part.render(nonce)) + 1


def _cut_text(text: str, first: int, room: int, count: CountTokens) -> Iterator[str]:
    """`text` in parts of at most `room` tokens (the first of at most `first`), which joined are the text: cut between
    lines where lines fit."""
    start, limit = 0, first
    while start < len(text):
        ahead = text[start : start + limit * MAX_CHARACTERS_PER_TOKEN]
        length = _fitting_length(ahead, limit, count)
        border = ahead.rfind("\n", 0, length) + 1
        length = border if start + length < len(text) and border else length
        yield ahead[:length]
        start, limit = start + length, room


def _fitting_length(text: str, limit: int, count: CountTokens) -> int:
    """About as many characters as fit `limit` tokens, at least one: guessed by how dense the text is, for a search
    that counts every half of it costs ten times as much."""
    fitting, guess = 0, min(len(text), limit * CHARACTERS_PER_TOKEN)
    for _ in range(MAX_GUESSES):
        tokens = count(text[:guess])
        if tokens > limit:
            guess = int(guess * limit / tokens * GUESS_MARGIN)
            continue
        fitting = max(fitting, guess)
        if guess == len(text) or tokens >= limit * GUESS_MARGIN:
            break
        guess = min(len(text), int(guess * limit / max(1, tokens) * GUESS_MARGIN) + 1)
    return fitting or max(1, longest_fitting(text, lambda kept: count(kept) <= limit))
