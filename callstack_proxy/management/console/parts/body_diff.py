"""Aligns the messages of two request bodies of one API, and compares the words of those that changed.

Messages are aligned by identity: role, text, calls, and the call that they answer. Runs of equal messages are one row.
A message that left and one that came at the same place with the same role are shown as one that changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from proxy.core.ledger import Message
from proxy.dialects import Dialect, ParseCache, RequestParseError

Change = Literal["same", "first form", "left out", "inserted", "changed"]
"""`first form`: the same message, sent with the bytes of its first version."""
MAX_WORDS_COMPARED = 6_000
MIN_SIMILARITY = 0.3
"""A message that left and one that came are one changed message only if they share this much of their words."""

_WORDS = re.compile(r"\s+|\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class DiffRow:
    """One message, or a run of `count` equal ones. Positions count from 0 in the bodies; None where it is not there."""

    change: Change
    old: int | None
    new: int | None
    message: Message
    count: int = 1
    size: int = 0
    """Bytes, of the run together."""
    previous: Message | None = None
    """What a changed message was before."""


@dataclass(frozen=True, slots=True)
class WordChange:
    kind: Literal["same", "del", "ins"]
    text: str


def read_messages(body: bytes, dialect: Dialect) -> tuple[Message, ...] | None:
    """The messages of a body, the leading system messages first. None for one that the dialect cannot read."""
    try:
        request = dialect.parse_request(body, ParseCache())
    except RequestParseError:
        return None
    return (*request.head, *request.messages)


def diff_rows(old: Sequence[Message], new: Sequence[Message]) -> list[DiffRow]:
    """In the order of `new`; what left stands where it was."""
    rows: list[DiffRow] = []
    matcher = SequenceMatcher(None, [m.identity for m in old], [m.identity for m in new], autojunk=False)
    for tag, a, to_a, b, to_b in matcher.get_opcodes():
        if tag == "equal":
            rows += _equal_rows(old, new, (a, b, to_a - a))
        else:
            rows += _changed_rows(old, new, (a, to_a, b, to_b))
    return rows


def _equal_rows(old: Sequence[Message], new: Sequence[Message], run: tuple[int, int, int]) -> Iterator[DiffRow]:
    a, b, length = run
    start = 0
    while start < length:
        change: Change = "same" if old[a + start].wire == new[b + start].wire else "first form"
        end = start
        while end < length and (old[a + end].wire == new[b + end].wire) is (change == "same"):
            end += 1
        size = sum(len(message.wire) for message in new[b + start : b + end])
        yield DiffRow(change, a + start, b + start, new[b + start], end - start, size)
        start = end


def _changed_rows(
    old: Sequence[Message], new: Sequence[Message], place: tuple[int, int, int, int]
) -> Iterator[DiffRow]:
    a, to_a, b, to_b = place
    pairs = dict(_changed_pairs(old, new, place))
    for position in range(a, to_a):
        if position not in pairs:
            yield DiffRow("left out", position, None, old[position], size=len(old[position].wire))
    taken = {came: left for left, came in pairs.items()}
    for position in range(b, to_b):
        message = new[position]
        if position in taken:
            left = taken[position]
            yield DiffRow("changed", left, position, message, size=len(message.wire), previous=old[left])
        else:
            yield DiffRow("inserted", None, position, message, size=len(message.wire))


def _changed_pairs(
    old: Sequence[Message], new: Sequence[Message], place: tuple[int, int, int, int]
) -> Iterator[tuple[int, int]]:
    a, to_a, b, to_b = place
    came = b
    for left in range(a, to_a):
        for candidate in range(came, to_b):
            if _is_same_message(old[left], new[candidate]):
                yield left, candidate
                came = candidate + 1
                break


def _is_same_message(old: Message, new: Message) -> bool:
    if old.role != new.role or old.answers != new.answers or [c.id for c in old.calls] != [c.id for c in new.calls]:
        return False
    if old.answers or old.calls:
        return True
    matcher = SequenceMatcher(None, old.text[:2000], new.text[:2000], autojunk=False)
    return matcher.real_quick_ratio() > MIN_SIMILARITY and matcher.quick_ratio() > MIN_SIMILARITY


def word_changes(old: str, new: str) -> list[WordChange]:
    """What of the words left and came."""
    before, after = _WORDS.findall(old), _WORDS.findall(new)
    start = _equal_at_start(before, after)
    end = _equal_at_start(before[start:][::-1], after[start:][::-1])
    between = _changes_between(before[start : len(before) - end], after[start : len(after) - end])
    changes = [_same(after[:start]), *between, _same(after[len(after) - end :])]
    return [change for change in changes if change.text]


def _same(words: Sequence[str]) -> WordChange:
    return WordChange("same", "".join(words))


def _equal_at_start(one: Sequence[str], other: Sequence[str]) -> int:
    """How many words both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((count for count, (a, b) in pairs if a != b), min(len(one), len(other)))


def _changes_between(before: Sequence[str], after: Sequence[str]) -> list[WordChange]:
    """Beyond `MAX_WORDS_COMPARED` words the rest is one difference: the time grows with their square."""
    head_before, head_after = before[:MAX_WORDS_COMPARED], after[:MAX_WORDS_COMPARED]
    changes: list[WordChange] = []
    for tag, a, to_a, b, to_b in SequenceMatcher(None, head_before, head_after, autojunk=False).get_opcodes():
        if tag == "equal":
            changes.append(_same(head_after[b:to_b]))
            continue
        if to_a > a:
            changes.append(WordChange("del", "".join(head_before[a:to_a])))
        if to_b > b:
            changes.append(WordChange("ins", "".join(head_after[b:to_b])))
    if rest := "".join(before[MAX_WORDS_COMPARED:]):
        changes.append(WordChange("del", rest))
    if rest := "".join(after[MAX_WORDS_COMPARED:]):
        changes.append(WordChange("ins", rest))
    return changes


def cached_until(messages: Sequence[Message], cached: int, total: int, body_bytes: int) -> int | None:
    """How many of the messages the provider read from its cache, about: its `cached` of `total` input tokens, by bytes.
    None where it said nothing."""
    if not total or not body_bytes:
        return None
    in_messages = sum(len(message.wire) for message in messages)
    budget = body_bytes * min(1.0, cached / total) - (body_bytes - in_messages)
    for position, message in enumerate(messages):
        budget -= len(message.wire)
        if budget < 0:
            return position
    return len(messages)
