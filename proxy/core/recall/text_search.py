"""Searches stored texts by words, without case, and selects the lines to show.

Short texts, and longer ones if the page has room, are shown whole; otherwise the lines around the hits, or the stretch
around the first hit of a very long line. Texts that contain the words as a phrase rank first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import islice
from math import log

import msgspec
from msgspec.structs import replace

from proxy.core.definitions import MAX_DEFINITION_LENGTH, defined_in, indent_of, language_of
from proxy.core.recall.pages import PageSize
from proxy.core.recall.stored_texts import StoredPiece, count_lines, has_numbered_lines
from proxy.core.text import CountTokens, longest_fitting

WHOLE_TEXT_TOKENS = 300
"""Texts of at most so many tokens are shown whole."""
LINES_AROUND_HIT = 4
"""Lines shown before and after a hit."""
MAX_PASSAGE_LINES = 60
"""Longer passages are split."""
MAX_DEFINITION_LINES = 40
"""A definition around a hit that is no longer is shown whole."""
MAX_FOUND_LINES = 100
"""The same where the hit is its first line: it was asked for by name."""
LONG_LINES_CHARACTERS = 3_000
"""From this length on no lines around a hit are added."""
MAX_PASSAGES = 100
"""Passages kept per search, best first."""
MARKER_TOKENS = 60
"""Estimated tokens of the two marker lines."""
LONGEST_TOKEN_CHARACTERS = 128
"""The longest token there is: a run of spaces."""
CLOSE_SCORE_SHARE = 0.5
"""Share of the best score that a text without all the words needs."""
MAX_REPEATS = 99


class SearchHits(msgspec.Struct, frozen=True):
    """Passages, best first, and the number of texts that match. Of `copies` and `overlapping` nothing is shown, newest
    first: a copy is the same as a text of which something is shown, and of an overlapping text only the places with the
    words are."""

    passages: tuple[StoredPiece, ...]
    text_count: int
    copies: tuple[StoredPiece, ...] = ()
    overlapping: tuple[StoredPiece, ...] = ()


def search(pieces: Sequence[StoredPiece], query: str, count: CountTokens, size: PageSize) -> SearchHits:
    """Passages from those `pieces` (oldest first) that contain all words of `query`."""
    search_query = SearchQuery.parse(query)
    return _rank_passages(
        [(i, piece) for i, piece in enumerate(pieces) if search_query.matches(piece)], search_query, count, size
    )


def pieces_with_all_words(pieces: Sequence[StoredPiece], query: str) -> tuple[StoredPiece, ...]:
    """Whole pieces that contain all words."""
    search_query = SearchQuery.parse(query)
    return tuple(piece for piece in pieces if search_query.matches(piece))


def pieces_with_word_alone(pieces: Iterable[StoredPiece], query: str) -> tuple[StoredPiece, ...]:
    """The pieces that have the query by itself, as it is written, not as a part of a longer word."""
    search_query = SearchQuery.parse(query)
    return tuple(piece for piece in pieces if search_query.stands_alone_in(searchable_text(piece)))


def search_closest(pieces: Sequence[StoredPiece], query: str, count: CountTokens, size: PageSize) -> SearchHits:
    """For when no piece has all words: the pieces that come closest; rare words count more."""
    search_query = SearchQuery.parse(query)
    words_by_piece = [search_query.words_in(searchable_text(piece).casefold()) for piece in pieces]
    piece_counts: dict[str, int] = {}
    for words in words_by_piece:
        for word in words:
            piece_counts[word] = piece_counts.get(word, 0) + 1
    weight = {word: log(1 + len(words_by_piece) / texts) for word, texts in piece_counts.items()}
    scores = [sum(weight[word] for word in words) for words in words_by_piece]
    enough = CLOSE_SCORE_SHARE * max(scores, default=0.0)
    close = [(i, piece) for i, piece in enumerate(pieces) if scores[i] and scores[i] >= enough]
    return _rank_passages(close, search_query, count, size)


def _rank_passages(
    chosen: Sequence[tuple[int, StoredPiece]], search_query: SearchQuery, count: CountTokens, size: PageSize
) -> SearchHits:
    """Best first; of equal texts only the newest."""
    ranked = [
        (_passage_rank(passage, search_query, i, size), passage)
        for i, piece in chosen
        for passage in _passages_of(piece, search_query, count, size)
    ]
    ranked.sort(key=lambda pair: pair[0], reverse=True)
    distinct: dict[str, StoredPiece] = {}
    for _, passage in ranked:
        distinct.setdefault(passage.text, passage)
    best = tuple(distinct.values())[:MAX_PASSAGES]
    wholes = {piece.key: piece for _, piece in chosen}
    not_shown = _repeated_among([piece for _, piece in chosen], [passage for _, passage in ranked], best)
    shown = {wholes[passage.key].text for passage in best}
    return SearchHits(
        _widen_to_whole_texts(best, wholes, count, size),
        len(chosen),
        tuple(piece for piece in not_shown if piece.text in shown),
        tuple(piece for piece in not_shown if piece.text not in shown),
    )


def _repeated_among(
    chosen: Sequence[StoredPiece], passages: Sequence[StoredPiece], shown: Sequence[StoredPiece]
) -> tuple[StoredPiece, ...]:
    """The chosen texts that are not shown, though all of their passages are, from other texts. Newest first."""
    shown_keys = {passage.key for passage in shown}
    shown_texts = {passage.text for passage in shown}
    differing = {passage.key for passage in passages if passage.text not in shown_texts}
    return tuple(piece for piece in reversed(chosen) if piece.key not in shown_keys and piece.key not in differing)


def searchable_text(piece: StoredPiece) -> str:
    """The text in which words are searched. For calls also the tool name and the argument strings without JSON
    escapes."""
    if not piece.is_call_arguments or piece.call is None:
        return piece.text
    named = f"{piece.call.name}\n{piece.text}"
    if "\\" not in piece.text:
        return named
    try:
        arguments = msgspec.json.decode(piece.text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return named
    return "\n".join([named, *_strings_in(arguments)])


def _strings_in(value: object) -> Iterator[str]:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item


# --------------------------------------------------------------------------------------------------------------- words
class SearchQuery(msgspec.Struct, frozen=True):
    """The query as written, in lower case, and its words."""

    exact: str
    phrase: str
    words: tuple[str, ...]

    @classmethod
    def parse(cls, query: str) -> SearchQuery:
        """Quotes around the whole query are ignored."""
        exact = query.strip()
        if len(exact) > 2 and exact[0] == exact[-1] and exact[0] in "\"'`":
            exact = exact[1:-1].strip()
        phrase = exact.casefold()
        return cls(exact, phrase, tuple(dict.fromkeys(phrase.split())))

    def words_in(self, text: str) -> frozenset[str]:
        """`text` must be in lower case."""
        return frozenset(word for word in self.words if word in text)

    def matches(self, piece: StoredPiece) -> bool:
        text = searchable_text(piece).casefold() if self.words else ""
        return bool(self.words) and all(word in text for word in self.words)

    def stands_alone_in(self, text: str) -> bool:
        """Whether the query stands there as written, and no letter before or behind it."""
        return self.exact in text and re.search(rf"(?<!\w){re.escape(self.exact)}(?!\w)", text) is not None


PassageRank = tuple[bool, bool, bool, bool, int, bool, int, int]
"""Compared in this order: no plan (each tick repeats all of it), exact phrase, phrase without case, number of words,
fits a page, number of hits, newest."""


def _passage_rank(passage: StoredPiece, search_query: SearchQuery, at: int, size: PageSize) -> PassageRank:
    text = searchable_text(passage)
    plain = text.casefold()
    words = search_query.words
    repeats = min(MAX_REPEATS, sum(plain.count(word) for word in words))
    fits = len(passage.text) <= size.page_tokens * 4
    return (
        not passage.is_of_plan,
        search_query.stands_alone_in(text),
        search_query.exact in text,
        search_query.phrase in plain or (len(words) > 1 and " ".join(words) in " ".join(plain.split())),
        len(search_query.words_in(plain)),
        fits,
        repeats,
        at,
    )


# ------------------------------------------------------------------------------------------------------------ passages
def _passages_of(
    piece: StoredPiece, search_query: SearchQuery, count: CountTokens, size: PageSize
) -> Iterator[StoredPiece]:
    if _fits_tokens(count, WHOLE_TEXT_TOKENS, piece.text):
        yield piece
        return
    lines = [line + "\n" for line in piece.text.split("\n")]
    lines[-1] = lines[-1][:-1]
    plain = piece.text.casefold().split("\n")
    hits = [i for i, line in enumerate(plain) if search_query.phrase in line]
    hits = hits or [i for i, line in enumerate(plain) if any(word in line for word in search_query.words)]
    has_numbers = has_numbered_lines(piece)
    line_count = count_lines(piece.text, numbered=has_numbers)
    around: Iterable[tuple[int, int]] = ()
    if piece.is_of_file:
        around = definitions_around(hits, _code_of(lines, numbered=has_numbers), language_of(piece.source))
    shown = line_windows(hits, [len(line) for line in lines], around) if hits else iter([(0, len(lines))])
    for first, last in islice(shown, MAX_PASSAGES):
        numbers = f"{first + 1}-{last}" if last > first + 1 else str(last)
        whole = last - first == len(lines)
        passage = (
            piece
            if whole
            else replace(
                piece,
                text="".join(lines[first:last]),
                lines=numbers,
                line_count=line_count,
                has_numbers=has_numbers,
            )
        )
        yield _excerpt_of_line(passage, search_query, count, size) if last == first + 1 else passage


def definitions_around(hits: Sequence[int], code: Sequence[str], language: str) -> Iterator[tuple[int, int]]:
    """For each hit the range of the function or class that it stands in, if that is short, else the hit alone. One at a
    time, because most hits of a long text are not shown."""
    indents = [indent_of(line) if line.strip() else _BLANK for line in code]
    is_definition = cache(lambda at: bool(defined_in(code[at], language)))
    first = last = 0
    for hit in hits:
        if not first <= hit < last:
            first, last = _definition_around(code, indents, hit, is_definition) or (hit, hit + 1)
        yield first, last


def _code_of(lines: Sequence[str], *, numbered: bool) -> Sequence[str]:
    """How the lines of a file begin, without the numbers that its tool printed."""
    heads = [line[:MAX_DEFINITION_LENGTH] for line in lines]
    return [_LINE_NUMBER.sub("", head) for head in heads] if numbered else heads


_BLANK = 1 << 30  # wider than any indent
_LINE_NUMBER = re.compile(r"\A[ \t]*\d{1,7}(?:→|\t| ?\| ?|: ?)")
_SIGNATURE_END = re.compile(r"\s*\).*[:{]\s*$")
_CLOSING = ("}", ")", "]", "end")


def _definition_around(
    code: Sequence[str], indents: Sequence[int], hit: int, is_definition: Callable[[int], bool]
) -> tuple[int, int] | None:
    indent = indents[hit] + 1
    for first in range(hit, max(-1, hit - MAX_DEFINITION_LINES), -1):
        if indents[first] < indent and not _SIGNATURE_END.match(code[first]):
            indent = indents[first]
            if is_definition(first):
                break
    else:
        return None
    most = MAX_FOUND_LINES if first == hit else MAX_DEFINITION_LINES
    for at in range(max(hit, first + 1), min(len(code), first + most)):
        if indents[at] <= indent and not _SIGNATURE_END.match(code[at]):
            closes = code[at].strip().startswith(_CLOSING)
            return first, at + 1 if closes else next(e for e in range(at, first, -1) if indents[e - 1] < _BLANK)
    return None


def line_windows(
    hits: Sequence[int], lengths: Sequence[int], around: Iterable[tuple[int, int]] = ()
) -> Iterator[tuple[int, int]]:
    """Ranges of lines around hits; touching ranges are joined up to a maximum. No extra lines if the lines are long.
    `lengths` are characters per line, `around` what a range has at least, for each hit."""
    first = last = 0
    for hit, (begin, stop) in zip(hits, around or [(hit, hit + 1) for hit in hits], strict=True):
        near = max(0, hit - LINES_AROUND_HIT), min(len(lengths), hit + LINES_AROUND_HIT + 1)
        whole = min(begin, near[0]), max(stop, near[1])
        fitting = (each for each in (whole, near) if sum(lengths[slice(*each)]) <= LONG_LINES_CHARACTERS)
        start, end = next(fitting, (hit, hit + 1))
        if last and start <= last and end - first <= MAX_PASSAGE_LINES:
            last = max(last, end)
        elif hit >= last:
            if last:
                yield first, last
            first, last = max(start, last), end
    if last:
        yield first, last


def _excerpt_of_line(line: StoredPiece, search_query: SearchQuery, count: CountTokens, size: PageSize) -> StoredPiece:
    """The stretch around the first hit of a line that is too long for one result."""
    if _fits_tokens(count, size.single_text_tokens, line.text):
        return line
    plain = line.text.casefold()
    positions = [
        position
        for position in (plain.find(search_query.phrase), *map(plain.find, search_query.words))
        if position >= 0
    ]
    hit = min(len(line.text) - 1, positions[0] if positions else 0)
    after = longest_fitting(
        line.text[hit : hit + size.page_tokens * 8], partial(_fits_tokens, count, size.page_tokens // 2)
    )
    before = longest_fitting(
        line.text[max(0, hit - size.page_tokens * 8) : hit][::-1], partial(_fits_tokens, count, size.page_tokens // 3)
    )
    first, last = hit - before, hit + after
    return replace(line, text=line.text[first:last], lines=f"{line.lines or 1}, characters {first + 1}-{last}")


def _widen_to_whole_texts(
    passages: Sequence[StoredPiece],
    wholes: Mapping[tuple[str, str, str, str], StoredPiece],
    count: CountTokens,
    size: PageSize,
) -> tuple[StoredPiece, ...]:
    """Replace passages by their whole texts, best first, while one page has room for all."""
    costs = [count(passage.text) + MARKER_TOKENS for passage in passages[: size.page_tokens // MARKER_TOKENS]]
    room = size.page_tokens - sum(costs)
    if room <= 0 or len(costs) < len(passages):
        return tuple(passages)
    parts: dict[tuple[str, str, str, str], list[int]] = {}
    for i, passage in enumerate(passages):
        parts.setdefault(passage.key, []).append(i)
    widened: dict[int, StoredPiece] = dict(enumerate(passages))
    for key, positions in parts.items():
        if not any(passages[i].lines for i in positions) or key not in wholes:
            continue
        extra = count(wholes[key].text) + MARKER_TOKENS - sum(costs[i] for i in positions)
        if extra <= room:
            room -= extra
            widened[positions[0]] = wholes[key]
            for i in positions[1:]:
                del widened[i]
    return tuple(widened[i] for i in sorted(widened))


def _fits_tokens(count: CountTokens, limit: int, text: str) -> bool:
    """Texts that are far too long are not counted."""
    return len(text) <= limit * LONGEST_TOKEN_CHARACTERS and count(text) <= limit
