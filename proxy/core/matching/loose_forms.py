"""Compares messages that are the same in other words: what translators and clients do to a history on its way back.

Call ids made anew, numbers that a double cannot hold, line endings, decomposed accents, blocks trimmed or joined, calls
and results told as text. Slower than identities, so only what no identity finds is compared, with few candidates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from unicodedata import is_normalized, normalize

import msgspec

from proxy.core.ledger import INVALID_TOOL_NAME, Call, Message, without_thinking
from proxy.core.observers import decode_json_or_text

MAX_EXACT_INTEGER = 2**53
"""Clients that read numbers as doubles round larger integers."""
MAX_WORDS_PER_CALL = 160
"""Characters, without white space, that may introduce a call or a result told as text, beside its own."""
MAX_WORDS_PER_ARGUMENT = 60
"""Characters that may stand around an argument told as text: its name and tags."""
MAX_COMPARED_CHARACTERS = 256 * 1024
"""Arguments of a call that are compared in other forms: 4.5 MB took 0.6 s."""
MAX_COMPARED_TEXT = 1 << 20
"""The same for a text: 15 ms."""
MAX_REORDERED_CALLS = 32
"""So many calls of one answer are looked for in another order; more in their own alone."""
RESULT_LABEL = re.compile(r"tool|result|output|function|observ|return|response|call", re.IGNORECASE)
"""Words that introduce a result told as text."""
MAX_LABEL_CHARACTERS = 120
"""The introduction is looked for in so many first characters."""

_ID = re.compile(r"\b(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{6,}")


# --------------------------------------------------------------------------------------------------------------- texts
def same_text(ours: str, theirs: str) -> bool:
    """Whether two texts differ at most in line endings, trailing white space, and how accents are composed."""
    return ours == theirs or (len(ours) <= MAX_COMPARED_TEXT and _tidied(ours) == _tidied(theirs))


def _tidied(text: str) -> str:
    lines = _composed(text).replace("\r\n", "\n").split("\n")  # a pattern took minutes for 40 KB of blanks
    return "\n".join([line.rstrip(" \t") for line in lines]).replace("\r", "\n").strip()


def _composed(text: str) -> str:
    return text if text.isascii() or is_normalized("NFC", text) else normalize("NFC", text)


def squeezed(text: str) -> str:
    """A text without white space and with composed accents: equal for blocks trimmed, joined or separated."""
    return "".join(_composed(text).split())


# --------------------------------------------------------------------------------------------------------------- calls
def same_calls(ours: Sequence[Call], theirs: Sequence[Call]) -> bool:
    """Whether these are the same calls in the same order, whatever their ids. Arguments may be added."""
    return len(ours) == len(theirs) and all(
        t.name == INVALID_TOOL_NAME or (t.name == o.name and _arguments_cover(t.arguments, o.arguments))
        for o, t in zip(ours, theirs, strict=True)
    )


def have_same_ids(ours: Sequence[Call], theirs: Sequence[Call]) -> bool:
    """Whether these are the same calls by id and name, whatever a client made of their arguments."""
    keys = [(call.id, call.name) for call in theirs]
    return bool(keys) and all(i for i, _ in keys) and keys == [(call.id, call.name) for call in ours]


def _arguments_cover(larger: str, smaller: str) -> bool:
    if larger == smaller:
        return True
    if len(larger) > MAX_COMPARED_CHARACTERS:
        return False
    more, less = _arguments(larger), _arguments(smaller)
    if isinstance(more, dict) and isinstance(less, dict):
        return all(name in more and more[name] == value for name, value in less.items())
    return bool(more == less)


def _arguments(text: str) -> object:
    try:
        return _canonical(msgspec.json.decode(text or "{}"))
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return squeezed(text)


def _canonical(value: object) -> object:
    """A JSON value as a client tells it that reads numbers as doubles, and texts as lines."""
    if isinstance(value, str):
        return _tidied(value)
    if isinstance(value, dict):
        return {_composed(name): _canonical(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_canonical(member) for member in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > MAX_EXACT_INTEGER:
        try:
            return float(value)
        except OverflowError:
            return str(value)
    return value


# ------------------------------------------------------------------------------------------------------------- answers
def same_answer(text: str, calls: Sequence[Call], message: Message) -> bool:
    """Whether `message` is an answer of this text and these calls, in other words. Beside calls a client may drop the
    text."""
    if message.role != "assistant":
        return False
    theirs = squeezed(message.text)
    if not same_calls(calls, message.calls):
        return bool(calls) and not message.calls and _tells_calls(text, calls, theirs)
    if not theirs:
        return bool(calls)
    return theirs in (squeezed(text), squeezed(without_thinking(text)))


def _tells_calls(text: str, calls: Sequence[Call], theirs: str) -> bool:
    """Whether `theirs` tells all of a text and then of its calls, in any order, and hardly anything else."""
    ours = squeezed(without_thinking(text))
    at = theirs.find(ours)
    if at < 0 or sum(len(call.arguments) for call in calls) > MAX_COMPARED_CHARACTERS:
        return False
    at += len(ours)
    allowed = sum(MAX_WORDS_PER_CALL + MAX_WORDS_PER_ARGUMENT * len(_told_values(call)) for call in calls)
    told_characters = _told_in_order(calls, theirs, at)
    if told_characters < 0 and 1 < len(calls) <= MAX_REORDERED_CALLS:
        told_characters = _told_in_any_order(calls, theirs, at)
    return told_characters >= 0 and len(theirs) - len(ours) - told_characters <= allowed


def _told_in_order(calls: Sequence[Call], theirs: str, at: int) -> int:
    """Characters of `theirs` behind `at` that tell of the calls, one after the other; -1 where one is not found."""
    told_characters = 0
    for call in calls:
        if (found := _find_told_call(call, theirs, at)) is None:
            return -1
        at, told_characters = found[0], told_characters + found[1]
    return told_characters


def _told_in_any_order(calls: Sequence[Call], theirs: str, at: int) -> int:
    """As `_told_in_order`. Clients that run calls side by side tell them as they finish: the one whose telling ends
    first comes next."""
    waiting, told_characters = list(calls), 0
    while waiting:
        found = [(*ends, place) for place, call in enumerate(waiting) if (ends := _find_told_call(call, theirs, at))]
        if not found:
            return -1
        at, characters, place = min(found)
        told_characters += characters
        del waiting[place]
    return told_characters


def _find_told_call(call: Call, theirs: str, at: int) -> tuple[int, int] | None:
    """Where the telling of a call ends that begins behind `at`, and how many of its characters are the call's."""
    name = squeezed(call.name)
    begin = theirs.find(name, at)
    if begin < 0:
        return None
    end, told_characters = begin + len(name), len(name)
    for value in _told_values(call):
        found = [(place, form) for form in _spellings(value) if (place := theirs.find(form, begin)) >= 0]
        if not found:
            return None
        place, form = min(found)
        end, told_characters = max(end, place + len(form)), told_characters + len(form)
    return end, told_characters


def _told_values(call: Call) -> tuple[object, ...]:
    return tuple(_leaves(decode_json_or_text(call.arguments or "{}")))


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        for member in value.values():
            yield from _leaves(member)
    elif isinstance(value, list):
        for member in value:
            yield from _leaves(member)
    elif value not in (None, ""):
        yield value


def _spellings(value: object) -> Iterator[str]:
    """How a value may stand in a text: as it is, as JSON, as JSON within JSON."""
    if isinstance(value, str):
        yield squeezed(value)
        for ascii_only in (False, True):
            once = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
            yield squeezed(once)
            yield squeezed(json.dumps(once, ensure_ascii=ascii_only)[1:-1])
    else:
        yield msgspec.json.encode(value).decode()
        if isinstance(value, bool):
            yield str(value)
        elif isinstance(value, int) and abs(value) > MAX_EXACT_INTEGER:
            yield msgspec.json.encode(_canonical(value)).decode()


# ------------------------------------------------------------------------------------------------------------- results
def same_told_result(ours: str, theirs: str) -> bool:
    """Whether two texts tell the same output behind an introduction that differs in the ids of calls alone."""
    if RESULT_LABEL.search(ours[:MAX_LABEL_CHARACTERS]) is None:
        return False
    pairs = [_ID.sub("#", text[:MAX_LABEL_CHARACTERS]) + text[MAX_LABEL_CHARACTERS:] for text in (ours, theirs)]
    return squeezed(pairs[0]) == squeezed(pairs[1])


def count_told_results(results: Sequence[str], text: str) -> int:
    """How many of these outputs, from the first on, a user's message tells as text, and nothing else. 0 for any other
    message."""
    theirs = squeezed(text)
    if RESULT_LABEL.search(text[:MAX_LABEL_CHARACTERS]) is None and not (results and squeezed(results[0]) == theirs):
        return 0
    at = told_characters = count = 0
    for result in results:
        ours = squeezed(result)
        place = theirs.find(ours, at)
        if place < 0 or place - at > MAX_WORDS_PER_CALL:
            break
        at, told_characters, count = place + len(ours), told_characters + len(ours), count + 1
    return count if count and len(theirs) - told_characters <= MAX_WORDS_PER_CALL * count else 0
