"""Streams whose events have a type: the messages and the responses API, and the odd ways in which they are sent.

A dialect's events are objects with a `type`; its `Grammar` says which of them begin, say text, finish and end a
stream. `events_of` puts them into bytes. The forms of `chat_sse.py` mean the same here; those in `FORMS` exist
here alone. Pure.

Its one law: forms change the objects first, and numbers are given last, so that a stream with odd events in it still
counts rightly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from llm_test_provider.answer import JsonObject, ScriptedAnswer
from llm_test_provider.apis import chat_sse
from llm_test_provider.apis.chat_calls import pieces_of
from llm_test_provider.apis.json import encoded


@dataclass(frozen=True, slots=True)
class Grammar:
    """What the events of one dialect mean. `text_key` leads to the words in an event of the type `text`."""

    text: str
    text_key: tuple[str, ...]
    finish: str
    end: str
    piece: str
    """How the types end whose events say a piece of something."""
    close: str
    """How the types end whose events say that a piece is complete."""
    idle: JsonObject
    """The event that only says that the connection lives."""
    indexes: tuple[str, ...]
    """The keys that count blocks or items."""
    numbered: bool
    """Every event carries its `sequence_number`."""


UNKNOWN_EVENT: JsonObject = {"type": "vendor.note", "x_vendor": {"note": "of a type that no client knows"}}
Change = Callable[[list[JsonObject], Grammar], list[JsonObject]]


def events_of(events: Sequence[JsonObject], forms: Sequence[str], grammar: Grammar) -> list[bytes]:
    """The bytes of each event, in order, each with the blank line that ends it."""
    sequence = list(events)
    for form in forms:
        sequence = SEQUENCES[form](sequence, grammar) if form in SEQUENCES else sequence
    if grammar.numbered:
        sequence = [event | {"sequence_number": number} for number, event in enumerate(sequence)]
    payloads = [(str(event["type"]), encoded(event)) for event in sequence]
    if "invalid_utf8" in forms:
        payloads = _invalid_utf8(payloads, grammar)
    if "done" in forms:
        payloads.append(("", chat_sse.DONE))
    return chat_sse.written(payloads, forms)


def in_turn(each: Sequence[Sequence[JsonObject]], calls: int, call_forms: Sequence[str]) -> Iterator[JsonObject]:
    """The events of an answer's blocks or items, one after the other; of the form `interleaved`, its `calls` last ones
    are told side by side."""
    spoken = len(each) - calls if "interleaved" in call_forms else len(each)
    yield from chain.from_iterable(each[:spoken])
    for turn in zip_longest(*each[spoken:]):
        yield from (event for event in turn if event is not None)


def fragments(text: str, answer: ScriptedAnswer) -> list[str]:
    """The arguments of a call in the pieces in which this answer sends them."""
    return pieces_of(text, 1 if "one_character" in answer.call_forms else answer.piece)


# --------------------------------------------------------------------------------------------------- forms of all kinds
def _no_done(events: list[JsonObject], grammar: Grammar) -> list[JsonObject]:
    return [event for event in events if event["type"] != grammar.end]


def _after_done(events: list[JsonObject], grammar: Grammar) -> list[JsonObject]:
    late = next((event for event in events if event["type"] == grammar.text), grammar.idle)
    return [*events, late]


def _two_finishes(events: list[JsonObject], grammar: Grammar) -> list[JsonObject]:
    """The event with the stop reason twice in a row."""
    return [copy for event in events for copy in [event] * (2 if event["type"] == grammar.finish else 1)]


def _calls_behind_finish(events: list[JsonObject], grammar: Grammar) -> list[JsonObject]:
    """The blocks of the calls stand behind the event with the stop reason, where another event ends the answer."""
    if grammar.finish == grammar.end:
        return events
    called = {event["index"] for event in events if event.get("content_block", {}).get("type") == "tool_use"}
    calls = [event for event in events if event.get("index") in called]
    others = [event for event in events if event not in calls]
    at = next((n + 1 for n, event in enumerate(others) if event["type"] == grammar.finish), len(others))
    return [*others[:at], *calls, *others[at:]]


def _long_line(events: list[JsonObject], _: Grammar) -> list[JsonObject]:
    """The first event carries a vendor field of ten megabytes."""
    return [events[0] | {"x_padding": "x" * chat_sse.LONG_LINE}, *events[1:]]


def _invalid_utf8(payloads: list[tuple[str, bytes]], grammar: Grammar) -> list[tuple[str, bytes]]:
    """The first text delta opens with two bytes that no UTF-8 text holds."""
    at = next((n for n, (kind, _) in enumerate(payloads) if kind == grammar.text), None)
    if at is None:
        return payloads
    kind, payload = payloads[at]
    opening = b'"%s":"' % grammar.text_key[-1].encode()
    broken = payload.replace(opening, opening + b"\xff\xfe", 1)
    return [*payloads[:at], (kind, broken), *payloads[at + 1 :]]


# ------------------------------------------------------------------------------------------------- forms of these alone
def _pings(events: list[JsonObject], grammar: Grammar) -> list[JsonObject]:
    """A sign of life behind every event but the last."""
    return [each for event in events for each in (event, grammar.idle)][:-1]


def _unknown_events(events: list[JsonObject], _: Grammar) -> list[JsonObject]:
    """An event of an unknown type behind every event but the last."""
    return [each for event in events for each in (event, UNKNOWN_EVENT)][:-1]


def _no_deltas(events: list[JsonObject], grammar: Grammar) -> list[JsonObject]:
    """Nothing comes in pieces. Where the whole stands instead is the dialect's own."""
    return [event for event in events if not event["type"].endswith(grammar.piece)]


def _no_stops(events: list[JsonObject], grammar: Grammar) -> list[JsonObject]:
    """Nothing is said to be complete but the whole."""
    return [event for event in events if not event["type"].endswith(grammar.close)]


def _from_1(events: list[JsonObject], grammar: Grammar) -> list[JsonObject]:
    """Blocks or items are counted from 1."""
    return [event | {key: event[key] + 1 for key in grammar.indexes if key in event} for event in events]


SEQUENCES: Mapping[str, Change] = {
    "no_done": _no_done,
    "data_after_done": _after_done,
    "two_finish_reasons": _two_finishes,
    "calls_behind_finish": _calls_behind_finish,
    "long_line": _long_line,
    "pings": _pings,
    "unknown_events": _unknown_events,
    "no_deltas": _no_deltas,
    "no_stops": _no_stops,
    "from_1": _from_1,
}

FORMS: frozenset[str] = frozenset(
    {"done", "from_1", "no_deltas", "no_stops", "only_last", "pings", "unknown_blocks", "unknown_events"}
)
"""The names that mean something in these dialects alone; `unknown_blocks` and `only_last` are done by the dialects."""
