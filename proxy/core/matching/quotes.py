"""Does a text quote a conversation, and from where to where?

Clients that summarise their history may write all of it into one prompt: as lines of a dialogue, as JSON within JSON,
indented, with long outputs cut short. So texts are compared by their **pieces**: runs of characters that come through
each of these as they are. The quote reaches from the first to the last piece that both have only once, in the same
order.

The law: **when in doubt it is no quote.** Several messages of some length must stand there, in their order, words of a
speaker among them and not only what tools read; between them hardly anything that was not said there; and all of it is
most of the text. Otherwise somebody's prompt would lose what only looks like the conversation.

What this module does not do: it reads no wire and chooses no conversation. Its work grows with the length of what it is
given, and with nothing else, whatever is repeated in there.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from proxy.core.frames import PathState

MIN_PIECE_CHARACTERS = 16
"""Characters of a piece; shorter ones are everywhere."""
PIECE_KEY_CHARACTERS = 48
"""Characters by which a piece is known: it may have been cut off behind them."""
MIN_QUOTED_MESSAGES = 3
"""So many messages must stand in a quote, each with `FOUND` characters in order."""
MIN_MESSAGE_CHARACTERS = 200
MIN_COVERED_SHARE = 0.6
"""Of the pieces from the first find to the last, by their length, what the conversation must have too: the rest are
names of speakers, times, and notes that something was cut."""
MIN_ORDERED_SHARE = 0.8
"""Of the pieces that both have only once, by their length, what must stand in the same order."""
MIN_QUOTE_SHARE = 0.5
"""Of the whole text, what the quote must be."""
MAX_COMPARED_CHARACTERS = 12 << 20
"""Characters of a text, or of a conversation, that are looked at."""
MAX_RUNS = 1_500_000
"""Runs of characters of a text that are looked at: what is all brackets has as many as characters."""
PROBED_MESSAGES = 48
"""Messages of a conversation of which a piece is looked up before all of them are; of them, one in `ONE_IN` must be
there."""
REQUIRED_HITS_ONE_IN = 8

_RUN = re.compile(r"""\\+(?:u[0-9a-fA-F]{4}|[bfnrt/])?|([^\\"<>\[\](){}|:;\x00-\x1f\x7f]+)""")
"""A stretch of words, or what stands for a character in a string of a string of ...: escapes are no part of a piece."""
_SPACE = " \xa0"


class Quote(NamedTuple):
    """The quoted part of a text, in characters."""

    start: int
    end: int


class MessageText(NamedTuple):
    """A message of a conversation, or the arguments of its calls."""

    role: str
    text: str


class SplitText(NamedTuple):
    """A text and its pieces in order, without space around them: where each begins and ends, in characters, and what it
    is known by; and how often each of these is there. Lists of plain values, for there may be 200,000."""

    text: str
    starts: list[int]
    ends: list[int]
    keys: list[str]
    counts: Mapping[str, int]


class _StoredPiece(NamedTuple):
    """A piece of a conversation: of which message, and where in the order of all."""

    words: str
    message: int
    order: int


class _SharedPiece(NamedTuple):
    """A piece that both have only once: its number in the text, whose it is, and how many of its characters are."""

    piece: int
    stored: _StoredPiece
    length: int


def split_into_pieces(text: str) -> SplitText | None:
    """The pieces of a text; None for one that is too long to be looked at."""
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
    """What was said on a path, in order, less what the user said last and nobody has answered: it may be the very
    instruction that stands behind a quote."""
    said: list[MessageText] = []
    for path_entry in path_state.entries:
        message = path_entry.round.spoken.message if path_entry.round else path_entry.entry.message
        if message is None or path_entry.entry.is_overlay:
            continue
        said.append(MessageText(message.role, message.text))
        said += [MessageText(message.role, call.arguments) for call in message.calls if not call.is_stack_call]
    while said and said[-1].role == "user":
        said.pop()
    return said


def find_quote(text: SplitText, said: Sequence[MessageText]) -> Quote | None:
    """The part of the text that quotes what was `said`, in that order."""
    if not _is_worth_comparing(text, said) or sum(len(one.text) for one in said) > MAX_COMPARED_CHARACTERS:
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
    """Where each piece of a text begins, and its words; none for what is too short for one."""
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
    """Whether it is worth while to look at all that was said."""
    step = -(-len(said) // PROBED_MESSAGES) or 1
    firsts = [first for one in said[::step] if (first := next(_pieces(one.text), ""))]
    hits = sum(first[:PIECE_KEY_CHARACTERS] in text.counts for first in firsts)
    return bool(hits) and hits * REQUIRED_HITS_ONE_IN >= len(firsts)


def _index_pieces(said: Iterable[MessageText]) -> tuple[dict[str, _StoredPiece], set[str]]:
    """The pieces of a conversation by what they begin with, and those that only one begins with."""
    known: dict[str, _StoredPiece] = {}
    once: set[str] = set()
    order = 0
    for number, one in enumerate(said):
        for words in _pieces(one.text):
            order += 1
            key = words[:PIECE_KEY_CHARACTERS]
            if key in known:
                once.discard(key)
            else:
                known[key] = _StoredPiece(words, number, order)
                once.add(key)
    return known, once


def _common_prefix_length(text: SplitText, at: int, stored: _StoredPiece | None) -> int:
    """How many characters a piece of the text, by its number, begins with in common with a stored one."""
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
    """The longest run of anchors, not all neighbours, that stand in the conversation in the same order (patience)."""
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
    """Whether several messages stand there, and somebody speaks among them: files alone may be quoted by anybody who
    has them. The user is heard once, the assistant more than once."""
    found: Counter[int] = Counter()
    for anchor in chain:
        found[anchor.stored.message] += anchor.length
    roles = Counter(said[message].role for message in found)
    several = sum(length >= MIN_MESSAGE_CHARACTERS for length in found.values()) >= MIN_QUOTED_MESSAGES
    return several and (roles["user"] >= 1 or roles["assistant"] > 1)
