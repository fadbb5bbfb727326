"""Finds the part of a text that quotes a conversation.

Clients that summarise their history may write all of it into one prompt: as dialogue, as JSON within JSON, indented,
with long outputs cut. So texts are compared by pieces: runs of characters that survive each of these. The quote spans
the first to the last piece that both have exactly once, in the same order. In doubt there is no quote, or a user's
prompt would lose what only resembles the conversation: several messages of some length must be there in order, among
them words of a speaker, with hardly anything else between, and make up most of the text. The time is linear.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from proxy.core.frames import PathState

MIN_PIECE_CHARACTERS = 16
"""Shorter pieces occur everywhere."""
PIECE_KEY_CHARACTERS = 48
"""A piece is identified by so many characters; it may be cut off behind them."""
MIN_QUOTED_MESSAGES = 3
"""A quote holds at least so many messages with `MIN_MESSAGE_CHARACTERS` characters in order."""
MIN_MESSAGE_CHARACTERS = 200
MIN_COVERED_SHARE = 0.6
"""Share of the pieces in a quote, by length, that must be in the conversation: the rest are names of speakers, times,
and notes about cuts."""
MIN_ORDERED_SHARE = 0.8
"""Share of the pieces that both have exactly once, by length, that must be in the same order."""
MIN_QUOTE_SHARE = 0.5
"""Share of the whole text that a quote must be."""
MAX_COMPARED_CHARACTERS = 12 << 20
"""Longer texts and conversations are not compared."""
MAX_RUNS = 1_500_000
"""Texts with more runs of characters are not compared: a text of brackets has as many as characters."""
PROBED_MESSAGES = 48
"""Messages whose first piece is looked up before all are; one in `REQUIRED_HITS_ONE_IN` must be found."""
REQUIRED_HITS_ONE_IN = 8

_RUN = re.compile(r"""\\+(?:u[0-9a-fA-F]{4}|[bfnrt/])?|([^\\"<>\[\](){}|:;\x00-\x1f\x7f]+)""")
"""An escape sequence at any level of JSON in JSON, or (group 1) a run of words. Escapes are no part of a piece."""
_SPACE = " \xa0"


class Quote(NamedTuple):
    """The quoted part of a text, in characters."""

    start: int
    end: int


class MessageText(NamedTuple):
    """A message of a conversation, or the arguments of a call."""

    role: str
    text: str


class SplitText(NamedTuple):
    """A text and its pieces in order: where each starts and ends, its key, and how often each key occurs. Plain lists,
    because there may be 200,000 pieces."""

    text: str
    starts: list[int]
    ends: list[int]
    keys: list[str]
    counts: Mapping[str, int]


class _StoredPiece(NamedTuple):
    """A piece of a conversation: its words, the number of its message, and its place among all pieces."""

    words: str
    message: int
    order: int


class _SharedPiece(NamedTuple):
    """A piece that both have exactly once: its number in the text, the stored piece, and how many characters agree."""

    piece: int
    stored: _StoredPiece
    length: int


def split_into_pieces(text: str) -> SplitText | None:
    """The pieces of a text; None if it is too long to compare."""
    if len(text) > MAX_COMPARED_CHARACTERS:
        return None
    starts: list[int] = []
    ends: list[int] = []
    keys: list[str] = []
    for number, (start, words) in enumerate(_piece_positions(text)):
        if number == MAX_RUNS:
            return None
        if words:
            starts.append(start)
            ends.append(start + len(words))
            keys.append(words[:PIECE_KEY_CHARACTERS])
    return SplitText(text, starts, ends, keys, Counter(iter(keys)))


def message_texts_of(path_state: PathState) -> list[MessageText]:
    """The texts of a path, in order, without the last user messages: these may be the instruction behind a quote."""
    texts: list[MessageText] = []
    for path_entry in path_state.entries:
        message = path_entry.message
        if message is None or path_entry.entry.is_overlay:
            continue
        texts.append(MessageText(message.role, message.text))
        texts += [MessageText(message.role, call.arguments) for call in message.calls if not call.is_stack_call]
    while texts and texts[-1].role == "user":
        texts.pop()
    return texts


def find_quote(text: SplitText, said: Sequence[MessageText]) -> Quote | None:
    """The part of `text` that quotes the messages `said`, in order."""
    if not _is_worth_comparing(text, said) or sum(len(message.text) for message in said) > MAX_COMPARED_CHARACTERS:
        return None
    known, once = _index_pieces(said)
    lengths = [_common_prefix_length(text, at, known.get(key)) for at, key in enumerate(text.keys)]
    single = (at for at, key in enumerate(text.keys) if key in once and text.counts[key] == 1)
    anchors = [_SharedPiece(at, known[text.keys[at]], lengths[at]) for at in single]
    chain = _longest_ordered_subsequence(anchors)
    if not chain or not _quotes_several_messages(said, chain):
        return None
    first, last = chain[0].piece, chain[-1].piece
    quote = Quote(text.starts[first], text.ends[last])
    whole = sum(text.ends[at] - text.starts[at] for at in range(first, last + 1))
    in_order = sum(anchor.length for anchor in chain)
    unique = sum(anchor.length for anchor in anchors if first <= anchor.piece <= last)
    is_sure = (
        quote.end - quote.start >= MIN_QUOTE_SHARE * len(text.text)
        and sum(lengths[first : last + 1]) >= MIN_COVERED_SHARE * whole
        and in_order >= MIN_ORDERED_SHARE * unique
    )
    return quote if is_sure else None


# -------------------------------------------------------------------------------------------------------------- pieces
def _piece_positions(text: str) -> Iterator[tuple[int, str]]:
    """Start and words of each piece; `(0, "")` for a run that is too short."""
    for run in _RUN.finditer(text):
        start, end = run.span(1)
        words = run[1].strip(_SPACE) if end - start >= MIN_PIECE_CHARACTERS else ""
        if len(words) < MIN_PIECE_CHARACTERS:
            yield 0, ""
        else:
            yield end - len(run[1].lstrip(_SPACE)), words


def _pieces(text: str) -> Iterator[str]:
    return (words for _, words in _piece_positions(text) if words)


def _is_worth_comparing(text: SplitText, said: Sequence[MessageText]) -> bool:
    """Whether a sample of the messages occurs in the text."""
    step = -(-len(said) // PROBED_MESSAGES) or 1
    firsts = [first for message in said[::step] if (first := next(_pieces(message.text), ""))]
    hits = sum(first[:PIECE_KEY_CHARACTERS] in text.counts for first in firsts)
    return bool(hits) and hits * REQUIRED_HITS_ONE_IN >= len(firsts)


def _index_pieces(said: Iterable[MessageText]) -> tuple[dict[str, _StoredPiece], set[str]]:
    """Pieces of a conversation by key, and the keys that occur once."""
    known: dict[str, _StoredPiece] = {}
    once: set[str] = set()
    order = 0
    for number, message in enumerate(said):
        for words in _pieces(message.text):
            order += 1
            key = words[:PIECE_KEY_CHARACTERS]
            if key in known:
                once.discard(key)
            else:
                known[key] = _StoredPiece(words, number, order)
                once.add(key)
    return known, once


def _common_prefix_length(text: SplitText, at: int, stored: _StoredPiece | None) -> int:
    """How many leading characters a piece of the text, by number, shares with a stored one."""
    if stored is None:
        return 0
    start, words = text.starts[at], stored.words
    least, most = 0, min(text.ends[at] - start, len(words))
    if text.text.startswith(words[:most], start):
        return most
    while least < most:
        middle = (least + most + 1) // 2
        if text.text.startswith(words[least:middle], start + least):
            least = middle
        else:
            most = middle - 1
    return least


def _longest_ordered_subsequence(anchors: Sequence[_SharedPiece]) -> list[_SharedPiece]:
    """The longest subsequence in conversation order (patience sorting)."""
    tops: list[int] = []
    places: list[int] = []
    before: list[int] = []
    for at, anchor in enumerate(anchors):
        pile = bisect_left(tops, anchor.stored.order)
        before.append(places[pile - 1] if pile else -1)
        tops[pile : pile + 1] = [anchor.stored.order]
        places[pile : pile + 1] = [at]
    chain: list[_SharedPiece] = []
    at = places[-1] if places else -1
    while at >= 0:
        chain.append(anchors[at])
        at = before[at]
    return chain[::-1]


def _quotes_several_messages(said: Sequence[MessageText], chain: Iterable[_SharedPiece]) -> bool:
    """Whether several messages are quoted, the user once or the assistant twice among them: anybody may quote files."""
    quoted_lengths: Counter[int] = Counter()
    for anchor in chain:
        quoted_lengths[anchor.stored.message] += anchor.length
    roles = Counter(said[message].role for message in quoted_lengths)
    has_several = sum(length >= MIN_MESSAGE_CHARACTERS for length in quoted_lengths.values()) >= MIN_QUOTED_MESSAGES
    return has_several and (roles["user"] >= 1 or roles["assistant"] > 1)
