"""What an observer looks at: one call group with its results, complete, and the words that stand around it.

The law: **a step is a value**; what was seen in it is a function of it and of the table of names alone. Arguments are
what a model wrote, so nothing here trusts them: what is not JSON is taken as the text it is.

What this module does not do: it knows no tool and judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from proxy.core.ledger.messages import Call

HEAD = 3_000
TAIL = 3_000
"""Characters looked at, at both ends of a result: what a tool says of its own outcome stands there."""
LINES = 20
LONGEST_LINE = 240
"""Lines in which one word is found, and characters of each, that are looked at more closely."""


class Done(msgspec.Struct, frozen=True):
    """A call of the client's tools and its result; `entry` is the id of the result's entry, `result` its text, answered
    False where none came. `failed`: the client says that the call went wrong, whatever the text tells."""

    call: Call
    result: str
    entry: str = ""
    answered: bool = True
    failed: bool = False


class Step(msgspec.Struct, frozen=True):
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
    """The lines of a text that hold one of `marks`, which are in small letters, in order; of each mark the last
    `LINES`, for what came of it all stands at the end. Looking for a few words first keeps the expressions that follow
    off the rest, which is nearly everything."""
    small = text.lower()
    if len(small) != len(text):
        text = small  # a few letters change their length, and then the places are no longer the same
    found: dict[int, int] = {}
    for mark in marks:
        at = small.rfind(mark)
        for _ in range(LINES):
            if at < 0:
                break
            start, end = small.rfind("\n", 0, at) + 1, small.find("\n", at)
            found[start] = end if end >= 0 else len(small)
            at = small.rfind(mark, 0, start)
    return "\n".join(text[start:end][:LONGEST_LINE] for start, end in sorted(found.items()))


def ends_of(text: str) -> str:
    """Both ends of a text, as far as anyone looks into it."""
    return text if len(text) <= HEAD + TAIL else f"{text[:HEAD]}\n{text[-TAIL:]}"
