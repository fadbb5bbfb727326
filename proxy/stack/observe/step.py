"""What an observer looks at: one call group with its results, complete, and the words that stand around it.

The law: **a step is a value**; what was seen in it is a function of it and of the table of names alone. Arguments are
what a model wrote, so nothing here trusts them: what is not JSON is taken as the text it is.

What this module does not do: it knows no tool and judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import msgspec

from proxy.stack.transcript import Call

HEAD = 3_000
TAIL = 3_000
LINES = 40
LONGEST_LINE = 240
"""Characters looked at, at both ends of a result: what a tool says of its own outcome stands there."""


@dataclass(frozen=True, slots=True)
class Done:
    """A call of the client's tools and its result; `entry` is the id of the result's entry, `result` its text, answered
    False where none came."""

    call: Call
    result: str
    entry: str = ""
    answered: bool = True


@dataclass(frozen=True, slots=True)
class Step:
    """One call group with its results, complete, and what stands around it."""

    said: str
    """The assistant's text in the same message."""
    done: tuple[Done, ...]


def decoded(text: str) -> object:
    """JSON as values; what is none stands for itself (a custom tool's arguments are plain text)."""
    try:
        value: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return text
    return value


def texts_in(value: object) -> Iterator[str]:
    """All texts inside decoded arguments, in order."""
    waiting = [value]
    while waiting:
        at = waiting.pop()
        if isinstance(at, str):
            yield at
        elif isinstance(at, dict):
            waiting.extend(reversed(at.values()))
        elif isinstance(at, list):
            waiting.extend(reversed(at))


def lines_with(text: str, marks: tuple[str, ...]) -> str:
    """The lines of a text that hold one of `marks`, which are small letters; at most `LINES`. Looking for a few words
    first keeps the expressions that follow off the rest, which is nearly everything."""
    small = text.casefold()
    if not any(mark in small for mark in marks):
        return ""
    lines = (line[:LONGEST_LINE] for line in text.splitlines())
    found = (line for line in lines if any(mark in line.casefold() for mark in marks))
    return "\n".join(islice(found, LINES))


def ends_of(text: str) -> str:
    """Both ends of a text, as far as anyone looks into it."""
    return text if len(text) <= HEAD + TAIL else f"{text[:HEAD]}\n{text[-TAIL:]}"
