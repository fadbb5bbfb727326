"""What an observer looks at: one call group with its results, complete, and the words that stand around it.

The law: **a step is a value**; what was seen in it is a function of it and of the table of names alone. Arguments are
what a model wrote, so nothing here trusts them: what is not JSON is taken as the text it is.

What this module does not do: it knows no tool and judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from proxy.core.frames import PathEntry, Tree, call_key
from proxy.core.ledger import Call, Message, Round

RESULT_HEAD_LENGTH = 3_000
RESULT_TAIL_LENGTH = 3_000
"""Characters looked at, at both ends of a result: what a tool says of its own outcome stands there."""
MAX_LINES_PER_WORD = 20
MAX_LINE_LENGTH = 240
"""Lines in which one word is found, and characters of each, that are looked at more closely."""


class ToolExecution(msgspec.Struct, frozen=True):
    """A call of the client's tools and its result; `entry` is the id of the result's entry, `result` its text, answered
    False where none came. `failed`: the client says that the call went wrong, whatever the text tells."""

    call: Call
    result: str
    entry: str = ""
    answered: bool = True
    failed: bool = False


class Step(msgspec.Struct, frozen=True):
    """One call group with its results, complete, and what stands around it."""

    assistant_text: str
    """The assistant's text in the same message."""
    executions: tuple[ToolExecution, ...]


def decode_json_or_text(text: str) -> object:
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


def lines_containing(text: str, marks: tuple[str, ...]) -> str:
    """The lines of a text that hold one of `marks`, which are in small letters, in order; of each mark the last
    `LINES`, for what came of it all stands at the end. Looking for a few words first keeps the expressions that follow
    off the rest, which is nearly everything."""
    small = text.lower()
    if len(small) != len(text):
        text = small  # a few letters change their length, and then the places are no longer the same
    found: dict[int, int] = {}
    for mark in marks:
        at = small.rfind(mark)
        for _ in range(MAX_LINES_PER_WORD):
            if at < 0:
                break
            start, end = small.rfind("\n", 0, at) + 1, small.find("\n", at)
            found[start] = end if end >= 0 else len(small)
            at = small.rfind(mark, 0, start)
    return "\n".join(text[start:end][:MAX_LINE_LENGTH] for start, end in sorted(found.items()))


def head_and_tail_of(text: str) -> str:
    """Both ends of a text, as far as anyone looks into it."""
    return (
        text
        if len(text) <= RESULT_HEAD_LENGTH + RESULT_TAIL_LENGTH
        else f"{text[:RESULT_HEAD_LENGTH]}\n{text[-RESULT_TAIL_LENGTH:]}"
    )


_ROUND = attrgetter("round")


def message_of(path_entry: PathEntry) -> Message | None:
    """The message that stands for it on the line."""
    return path_entry.round.spoken.message if path_entry.round else path_entry.entry.message


def rounds_of(path_entries: Iterable[PathEntry]) -> Iterator[Round]:
    """The rounds of turns among them, in order."""
    return filter(None, map(_ROUND, path_entries))


def messages_of(tree: Tree, path_entries: Iterable[PathEntry]) -> Iterator[Message]:
    """What is said in a span, results of ours behind their calls, in the words in which they are told by now."""
    for placement in path_entries:
        message = message_of(placement)
        if message is not None:
            yield message
        if made := placement.round:
            for result in made.results:
                told = tree.result_texts.get((placement.entry.id, call_key(made.number, result.answers)))
                yield replace(result, text=told) if told else result


def steps_of(path_entries: Iterable[PathEntry]) -> Iterator[Step]:
    """The call groups of the client's tools, in order, each with the results that followed it."""
    opened: Message | None = None
    results: dict[str, tuple[Message, str]] = {}
    for placement in path_entries:
        message = message_of(placement)
        if message is None:
            continue
        if message.role == "assistant":
            if opened is not None:
                yield step_of(opened, results)
            opened, results = message, {}
        elif message.answers:
            results.setdefault(message.answers, (message, placement.entry.id))
    if opened is not None:
        yield step_of(opened, results)


def step_of(message: Message, results: Mapping[str, tuple[Message, str]]) -> Step:
    """One call group; `results` are messages, and the ids of their entries, by the id of their call."""
    done = (_execution_of(call, results.get(call.id)) for call in message.calls if not call.is_stack_call)
    return Step(message.text, tuple(done))


def _execution_of(call: Call, came: tuple[Message, str] | None) -> ToolExecution:
    if came is None:
        return ToolExecution(call, "", answered=False)
    result, entry = came
    return ToolExecution(call, result.text, entry, failed=result.failed)
