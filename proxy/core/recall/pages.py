"""Divides stored texts into pages between marker lines.

A long text is cut between lines, or inside a line longer than a page; its numbered parts joined are the text. Pages are
made lazily, so of a text of many megabytes only the requested pages are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from proxy.core.recall.stored_texts import StoredPiece, wrap_in_markers
from proxy.core.text import CHARACTERS_PER_TOKEN, CountTokens, longest_fitting

MIN_PAGE_TEXT_TOKENS = 32
"""Minimum tokens of text on a page, however small the configured page is."""
MIN_PAGE_TOKENS = 200
"""A page of this size or less is not halved: it would hold little but its markers."""
LARGEST_PART_NUMBER = (999, 999)
MAX_CHARACTERS_PER_TOKEN = 16
"""Characters per token examined for the next cut; more hardly ever fit."""
MAX_CHARACTERS_FOR_PART_COUNT = 1_000_000
"""Parts of longer texts are not counted in advance: that would take seconds."""
UNKNOWN_PART_COUNT = 0
MAX_GUESSES = 6
GUESS_MARGIN = 0.97
"""Share of the estimated fitting length that is tried."""


class PagePart(msgspec.Struct, frozen=True):
    """A piece or one part of it; `part_count` is 0 if unknown."""

    piece: StoredPiece
    text: str
    part_number: int = 1
    part_count: int = 1

    def render(self, nonce: str) -> str:
        """The part between its marker lines. The page of the answer stands there in no form: beside a text it would be
        taken for that text's."""
        if self.part_count == 1:
            return wrap_in_markers(self.piece, self.text, nonce)
        part = f"{self.part_number}/{self.part_count}" if self.part_count else str(self.part_number)
        return wrap_in_markers(self.piece, self.text, nonce, part=part)


class PageSize(msgspec.Struct, frozen=True):
    """Tokens of a page with markers, and the larger limit for a single text without line breaks."""

    page_tokens: int
    single_text_tokens: int


def fit_page_size(page: int, most: int) -> int:
    """Tokens of a recall page, halved until it fits `most`, so that small changes of the window do not change it."""
    while page > max(most, MIN_PAGE_TOKENS):
        page //= 2
    return page


def pages_of(
    pieces: Sequence[StoredPiece], size: PageSize, nonce: str, count: CountTokens
) -> Iterator[tuple[PagePart, ...]]:
    """A piece that fits a page is not cut. On a page the places of one text stand together, in its order."""
    page: list[PagePart] = []
    room = size.page_tokens
    for piece in pieces:
        for part, cost in _parts_of_piece(piece, room, size, nonce, count):
            if cost > room and page:
                yield _in_line_order(page)
                page, room = [], size.page_tokens
            page.append(part)
            room -= cost
    if page:
        yield _in_line_order(page)


def _in_line_order(page: Sequence[PagePart]) -> tuple[PagePart, ...]:
    places = {part.piece.key: at for at, part in reversed(tuple(enumerate(page)))}
    # Of "80-93" and of "80, characters 1-15", a stretch of one line, the 80; of a whole text 0.
    first_lines = [int(part.piece.lines.replace(",", "-").partition("-")[0] or 0) for part in page]
    order = sorted(range(len(page)), key=lambda at: (places[page[at].piece.key], first_lines[at]))
    return tuple(page[at] for at in order)


def _parts_of_piece(
    piece: StoredPiece, room_left: int, size: PageSize, nonce: str, count: CountTokens
) -> Iterator[tuple[PagePart, int]]:
    """The piece, or its parts of which the first fits the `room_left` tokens; each with its rendered tokens."""
    whole = PagePart(piece, piece.text)
    limit = size.page_tokens if "\n" in piece.text.rstrip("\n") else size.single_text_tokens
    if len(piece.text) <= limit * MAX_CHARACTERS_PER_TOKEN and (tokens := count(whole.render(nonce)) + 1) <= limit:
        yield whole, tokens
        return
    markers = count(PagePart(piece, "", *LARGEST_PART_NUMBER).render(nonce)) + 1
    room = max(MIN_PAGE_TEXT_TOKENS, size.page_tokens - markers)
    first = room_left - markers if room_left - markers >= MIN_PAGE_TEXT_TOKENS else room
    texts: Iterable[str] = _cut_text(piece.text, first, room, count)
    part_count = UNKNOWN_PART_COUNT
    if len(piece.text) <= MAX_CHARACTERS_FOR_PART_COUNT:
        texts = tuple(texts)
        part_count = len(texts)
    for number, text in enumerate(texts, 1):
        part = PagePart(piece, text, number, part_count)
        yield part, count(part.render(nonce)) + 1


def _cut_text(text: str, first: int, room: int, count: CountTokens) -> Iterator[str]:
    """Parts of at most `room` tokens (the first of at most `first`), cut between lines if possible."""
    start, limit = 0, first
    while start < len(text):
        ahead = text[start : start + limit * MAX_CHARACTERS_PER_TOKEN]
        length = _fitting_length(ahead, limit, count)
        border = ahead.rfind("\n", 0, length) + 1
        length = border if start + length < len(text) and border else length
        yield ahead[:length]
        start, limit = start + length, room


def _fitting_length(text: str, limit: int, count: CountTokens) -> int:
    """About as many characters as fit `limit` tokens, at least one. Guessing from the density of the text costs a tenth
    of a bisection."""
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
