"""Searches stored texts by words, without case, and selects the lines to show.

Short texts, and longer ones if the page has room, are shown whole; otherwise the lines around the hits, or the stretch
around the first hit of a very long line. Texts that contain the words as a phrase rank first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from math import log

import msgspec
from msgspec.structs import replace

from proxy.core.recall.pages import PageSize
from proxy.core.recall.stored_texts import StoredPiece
from proxy.core.text import CountTokens, longest_fitting

WHOLE_TEXT_TOKENS = 300
"""Texts of at most so many tokens are shown whole."""
LINES_AROUND_HIT = 4
"""Lines shown before and after a hit."""
MAX_PASSAGE_LINES = 60
"""Longer passages are split."""
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
    """Passages, best first, and the number of texts they come from."""

    passages: tuple[StoredPiece, ...]
    text_count: int


def search(pieces: Sequence[StoredPiece], query: str, count: CountTokens, size: PageSize) -> SearchHits:
    """Passages from those `pieces` (oldest first) that contain all words of `query`."""
    sought = SearchQuery.parse(query)
    return _rank_passages(
        [(at, piece) for at, piece in enumerate(pieces) if sought.matches(piece)], sought, count, size
    )


def pieces_with_all_words(pieces: Sequence[StoredPiece], query: str) -> tuple[StoredPiece, ...]:
    """Whole pieces that contain all words."""
    sought = SearchQuery.parse(query)
    return tuple(piece for piece in pieces if sought.matches(piece))


def search_closest(pieces: Sequence[StoredPiece], query: str, count: CountTokens, size: PageSize) -> SearchHits:
    """For when no piece has all words: the pieces that come closest; rare words count more."""
    sought = SearchQuery.parse(query)
    held = [sought.words_in(searchable_text(piece).casefold()) for piece in pieces]
    having: dict[str, int] = {}
    for words in held:
        for word in words:
            having[word] = having.get(word, 0) + 1
    weight = {word: log(1 + len(held) / texts) for word, texts in having.items()}
    scores = [sum(weight[word] for word in words) for words in held]
    enough = CLOSE_SCORE_SHARE * max(scores, default=0.0)
    close = [(at, piece) for at, piece in enumerate(pieces) if scores[at] and scores[at] >= enough]
    return _rank_passages(close, sought, count, size)


def _rank_passages(
    chosen: Sequence[tuple[int, StoredPiece]], sought: SearchQuery, count: CountTokens, size: PageSize
) -> SearchHits:
    """Best first; of equal texts only the newest."""
    ranked = [
        (_passage_rank(passage, sought, at, size), passage)
        for at, piece in chosen
        for passage in _passages_of(piece, sought, count, size)
    ]
    ranked.sort(key=lambda found: found[0], reverse=True)
    distinct: dict[str, StoredPiece] = {}
    for _, passage in ranked:
        distinct.setdefault(passage.text, passage)
    best = tuple(distinct.values())[:MAX_PASSAGES]
    return SearchHits(_widen_to_whole_texts(best, {piece.key: piece for _, piece in chosen}, count, size), len(chosen))


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
        at = waiting.pop()
        if isinstance(at, str):
            yield at
        elif isinstance(at, dict):
            waiting += at.values()
        elif isinstance(at, list):
            waiting += at


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

    def is_phrase_in(self, text: str) -> bool:
        """Whether the words stand together, whatever space is between them. `text` must be in lower case."""
        return self.phrase in text or (len(self.words) > 1 and " ".join(self.words) in " ".join(text.split()))


PassageRank = tuple[bool, bool, bool, int, bool, int, int]
"""Compared in this order: exact phrase, phrase without case, number of words, fits a page, number of hits, newest."""


def _passage_rank(passage: StoredPiece, sought: SearchQuery, at: int, size: PageSize) -> PassageRank:
    text = searchable_text(passage)
    plain = text.casefold()
    alone = re.search(rf"(?<!\w){re.escape(sought.exact)}(?!\w)", text) is not None
    repeats = min(MAX_REPEATS, sum(plain.count(word) for word in sought.words))
    fits = len(passage.text) <= size.page_tokens * 4
    return (alone, sought.exact in text, sought.is_phrase_in(plain), len(sought.words_in(plain)), fits, repeats, at)


# ------------------------------------------------------------------------------------------------------------ passages
def _passages_of(piece: StoredPiece, sought: SearchQuery, count: CountTokens, size: PageSize) -> Iterator[StoredPiece]:
    if _fits_tokens(count, WHOLE_TEXT_TOKENS, piece.text):
        yield piece
        return
    lines = [line + "\n" for line in piece.text.split("\n")]
    lines[-1] = lines[-1][:-1]
    plain = piece.text.casefold().split("\n")
    hits = [at for at, line in enumerate(plain) if sought.phrase in line]
    hits = hits or [at for at, line in enumerate(plain) if any(word in line for word in sought.words)]
    shown = line_windows(hits, [len(line) for line in lines]) if hits else iter([(0, len(lines))])
    for first, last in islice(shown, MAX_PASSAGES):
        numbers = f"{first + 1}-{last}" if last > first + 1 else str(last)
        whole = last - first == len(lines)
        passage = replace(piece, text="".join(lines[first:last]), lines="" if whole else numbers)
        yield _excerpt_of_line(passage, sought, count, size) if last == first + 1 else passage


def line_windows(hits: Sequence[int], lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ranges of lines around hits; touching ranges are joined up to a maximum. No extra lines if the lines are long.
    `lengths` are characters per line."""
    first = last = 0
    for hit in hits:
        start, end = max(0, hit - LINES_AROUND_HIT), min(len(lengths), hit + LINES_AROUND_HIT + 1)
        if sum(lengths[start:end]) > LONG_LINES_CHARACTERS:
            start, end = hit, hit + 1
        if last and start <= last and end - first <= MAX_PASSAGE_LINES:
            last = max(last, end)
        elif hit >= last:
            if last:
                yield first, last
            first, last = max(start, last), end
    if last:
        yield first, last


def _excerpt_of_line(line: StoredPiece, sought: SearchQuery, count: CountTokens, size: PageSize) -> StoredPiece:
    """The stretch around the first hit of a line that is too long for one result."""
    if _fits_tokens(count, size.single_text_tokens, line.text):
        return line
    plain = line.text.casefold()
    places = [at for at in (plain.find(sought.phrase), *map(plain.find, sought.words)) if at >= 0]
    hit = min(len(line.text) - 1, places[0] if places else 0)
    behind = longest_fitting(
        line.text[hit : hit + size.page_tokens * 8], partial(_fits_tokens, count, size.page_tokens // 2)
    )
    ahead = longest_fitting(
        line.text[max(0, hit - size.page_tokens * 8) : hit][::-1], partial(_fits_tokens, count, size.page_tokens // 3)
    )
    first, last = hit - ahead, hit + behind
    return replace(line, text=line.text[first:last], lines=f"{line.lines or 1}, characters {first + 1}-{last}")


def _widen_to_whole_texts(
    passages: Sequence[StoredPiece],
    wholes: Mapping[tuple[str, str, str, str], StoredPiece],
    count: CountTokens,
    size: PageSize,
) -> tuple[StoredPiece, ...]:
    """Replace passages by their whole texts, best first, while one page has room for all."""
    costs = [count(passage.text) + MARKER_TOKENS for passage in passages[: size.page_tokens // MARKER_TOKENS]]
    left = size.page_tokens - sum(costs)
    if left <= 0 or len(costs) < len(passages):
        return tuple(passages)
    parts: dict[tuple[str, str, str, str], list[int]] = {}
    for at, passage in enumerate(passages):
        parts.setdefault(passage.key, []).append(at)
    widened: dict[int, StoredPiece] = dict(enumerate(passages))
    for key, positions in parts.items():
        if not any(passages[at].lines for at in positions) or key not in wholes:
            continue
        more = count(wholes[key].text) + MARKER_TOKENS - sum(costs[at] for at in positions)
        if more <= left:
            left -= more
            widened[positions[0]] = wholes[key]
            for at in positions[1:]:
                del widened[at]
    return tuple(widened[at] for at in sorted(widened))


def _fits_tokens(count: CountTokens, limit: int, text: str) -> bool:
    """Texts that are far too long are not counted."""
    return len(text) <= limit * LONGEST_TOKEN_CHARACTERS and count(text) <= limit
