"""Stored texts as they are given back: passages that a query hits, and pages between marker lines.

The law: **what stands between two markers is data, byte for byte as it was stored**; only our own attributes are
escaped. So a long text is cut between two lines (or, where one line is longer than a page, inside it), the marker says
which part it is, and the parts joined are the text.

What this module does not do: it finds no texts (that is `recall`), and ranks no meaning; a query is words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from proxy.stack.ranking import Count, cut_for_display, escape_xml, longest_fitting
from proxy.stack.transcript import Call

SOURCE_SHOWN = 60
WHOLE_ENTRY = 300
"""A text of at most so many tokens that a query hits is given whole; of a longer one the lines around the hits."""
AROUND = 4
"""Lines before and after a hit."""
LEAST_TEXT = 32
"""Tokens of text a page holds at least, however small a page is configured."""
LARGEST = (999, 999)
WIDEST = "999/999"
"""Stands for a page or part whose number is not known yet, where tokens are counted."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One stored text. `ref` is the frame that owns it, `at` the entry of the path it stands for, `lines` which of its
    lines these are (empty: all)."""

    ref: str
    entry: str
    at: str
    owner: str
    role: str
    source: str
    text: str
    call: Call | None = None
    lines: str = ""


# --------------------------------------------------------------------------------------------------------------- query
def matching(pieces: Sequence[Piece], query: str, count: Count) -> tuple[Piece, ...]:
    """The pieces that contain all words of `query` (case does not count), best first: the words as they stand
    together, then how often they come; a long one is cut to the whole lines around its hits."""
    words = tuple(dict.fromkeys(query.casefold().split()))
    scored: list[tuple[float, int, Piece]] = []
    for at, piece in enumerate(pieces):
        text = piece.text.casefold()
        if not all(word in text for word in words):
            continue
        passages = _passages(piece, words, count)
        scored += [(_merit(p.text.casefold(), query.casefold(), words), -at, p) for p in passages]
    scored.sort(key=lambda found: found[:2], reverse=True)
    return tuple(piece for _, _, piece in scored)


def _merit(text: str, query: str, words: Sequence[str]) -> float:
    together = 1_000.0 * (query.strip() in text)
    return together + 100.0 * sum(word in text for word in words) + min(99, sum(text.count(w) for w in words))


def _passages(piece: Piece, words: Sequence[str], count: Count) -> Iterator[Piece]:
    if count(piece.text) <= WHOLE_ENTRY:
        yield piece
        return
    lines = piece.text.splitlines(keepends=True)
    hits = [at for at, line in enumerate(lines) if any(word in line.casefold() for word in words)]
    if not hits:  # the words only come together across a border of lines
        yield piece
    for first, last in _windows(hits, len(lines)):
        yield replace(piece, text="".join(lines[first:last]), lines=f"{first + 1}-{last}")


def _windows(hits: Sequence[int], length: int) -> Iterator[tuple[int, int]]:
    """Ranges of lines around hits, those that touch joined."""
    opened: tuple[int, int] | None = None
    for hit in hits:
        first, last = max(0, hit - AROUND), min(length, hit + AROUND + 1)
        if opened and first <= opened[1]:
            opened = (opened[0], last)
            continue
        if opened:
            yield opened
        opened = (first, last)
    if opened:
        yield opened


# --------------------------------------------------------------------------------------------------------------- pages
@dataclass(frozen=True, slots=True)
class Part:
    """A piece, or one part of it: number `number` of `of`."""

    piece: Piece
    text: str
    number: int = 1
    of: int = 1

    def written(self, nonce: str, page: str = WIDEST) -> str:
        """The part between its two marker lines. `page` is `2/5`."""
        piece = self.piece
        told = {"ref": piece.ref, "entry": piece.entry, "role": piece.role, "source": piece.source}
        told |= {"lines": piece.lines, "part": f"{self.number}/{self.of}" if self.of > 1 else ""}
        told |= {"page": page, "nonce": nonce}
        shown = " ".join(f'{name}="{_attribute(value)}"' for name, value in told.items() if value)
        return f'<<recall {shown}>>\n{self.text}\n<<end nonce="{_attribute(nonce)}">>'


def _attribute(value: str) -> str:
    return escape_xml(cut_for_display(value, SOURCE_SHOWN))


def pages_of(pieces: Sequence[Piece], limit: int, nonce: str, count: Count) -> tuple[tuple[Part, ...], ...]:
    """The pieces in pages of at most `limit` tokens, markers included. A piece that fits a page of its own is not
    cut."""
    pages: list[list[Part]] = [[]]
    left = limit
    for piece in pieces:
        for part in _parts(piece, left, limit, nonce, count):
            cost = count(part.written(nonce)) + 1
            if cost > left and pages[-1]:
                pages.append([])
                left = limit
            pages[-1].append(part)
            left -= cost
    return tuple(tuple(page) for page in pages)


def _parts(piece: Piece, left: int, limit: int, nonce: str, count: Count) -> tuple[Part, ...]:
    """The piece whole, or in parts of which the first fits what is `left` of a page."""
    whole = Part(piece, piece.text)
    if count(whole.written(nonce)) < limit:
        return (whole,)
    markers = count(Part(piece, "", *LARGEST).written(nonce)) + 1
    room = max(LEAST_TEXT, limit - markers)
    first = left - markers if left - markers >= LEAST_TEXT else room
    texts = tuple(_cuts(piece.text, first, room, count))
    return tuple(Part(piece, text, number, len(texts)) for number, text in enumerate(texts, 1))


def _cuts(text: str, first: int, room: int, count: Count) -> Iterator[str]:
    """`text` in parts of at most `room` tokens (the first of at most `first`), which joined are the text: cut between
    lines where lines fit."""
    limit = first
    while text:
        length = max(1, longest_fitting(text, partial(_fits, count, limit)))
        border = text.rfind("\n", 0, length) + 1
        length = border if length < len(text) and border else length
        yield text[:length]
        text, limit = text[length:], room


def _fits(count: Count, limit: int, text: str) -> bool:
    return count(text) <= limit
