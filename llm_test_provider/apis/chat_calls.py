"""The many ways in which providers stream a tool call.

`call_deltas` turns complete calls into the `tool_calls` arrays of successive deltas. Each name in `FORMS` changes one
habit; names combine. Pure values; the chunk around a delta is `completion.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import Any, Literal

from llm_test_provider.answer import JsonObject, ScriptedCall


@dataclass(frozen=True, slots=True)
class CallStyle:
    """How one provider streams calls."""

    index: Literal["counted", "missing", "null", "same", "from_3", "string"] = "counted"
    every_id: bool = False
    name: Literal["first", "late", "split", "every"] = "first"
    opening: str | None = ""
    """`arguments` of a call's first delta."""
    opening_has_arguments: bool = True
    fragment: int = 0
    """Characters of arguments in one delta; 0 takes the answer's own piece size."""
    order: Literal["one_by_one", "interleaved", "whole", "together"] = "one_by_one"


FORMS: dict[str, dict[str, Any]] = {
    "index_missing": {"index": "missing"},
    "index_null": {"index": "null"},
    "index_same": {"index": "same"},
    "index_from_3": {"index": "from_3"},
    "index_string": {"index": "string"},
    "id_in_every_chunk": {"every_id": True},
    "name_late": {"name": "late"},
    "name_split": {"name": "split"},
    "name_in_every_chunk": {"name": "every"},
    "arguments_null": {"opening": None},
    "arguments_absent": {"opening_has_arguments": False},
    "one_character": {"fragment": 1},
    "interleaved": {"order": "interleaved"},
    "whole_call": {"order": "whole"},
    "calls_together": {"order": "together"},
}
"""Every name a scenario may use, and the habit it stands for. The default is OpenAI's own manner."""


def call_deltas(calls: Sequence[ScriptedCall], forms: Sequence[str], piece: int) -> list[list[JsonObject]]:
    """The `tool_calls` arrays of successive deltas. A call whose arguments are `{}` opens and says nothing more."""
    habit = CallStyle()
    for form in forms:
        habit = replace(habit, **FORMS[form])
    size = habit.fragment or piece
    if habit.order in ("whole", "together"):
        complete = [_complete(call, number, habit) for number, call in enumerate(calls)]
        return [complete] if habit.order == "together" else [[call] for call in complete]
    each = [list(_one_call(call, number, habit, size)) for number, call in enumerate(calls)]
    if habit.order == "interleaved":
        return [[delta] for turn in zip_longest(*each) for delta in turn if delta is not None]
    return [[delta] for delta in chain.from_iterable(each)]


def _one_call(call: ScriptedCall, number: int, habit: CallStyle, size: int) -> Iterator[JsonObject]:
    fragments = pieces_of(call.arguments_text(), size) if call.arguments else []
    names: dict[str, Sequence[str | None]] = {
        "first": [call.name],
        "late": [None, call.name],
        "split": pieces_of(call.name, 5),
        "every": [call.name],
    }
    function: JsonObject = {"arguments": habit.opening} if habit.opening_has_arguments else {}
    for position, name in enumerate(names[habit.name]):
        yield _delta(call, number, habit, ({} if name is None else {"name": name}) | function, first=position == 0)
    again = {"name": call.name} if habit.name == "every" else {}
    for fragment in fragments:
        yield _delta(call, number, habit, {**again, "arguments": fragment}, first=False)


def _complete(call: ScriptedCall, number: int, habit: CallStyle) -> JsonObject:
    said = bool(call.arguments)
    arguments: JsonObject = {"arguments": call.arguments_text() if said else habit.opening}
    function = {"name": call.name} | (arguments if said or habit.opening_has_arguments else {})
    return _delta(call, number, habit, function, first=True)


def _delta(call: ScriptedCall, number: int, habit: CallStyle, function: JsonObject, *, first: bool) -> JsonObject:
    identity = {"id": call.id, "type": "function"} if first or habit.every_id else {}
    extra = extra_content(call) if first else {}
    return {**_index(number, habit), **identity, "function": function, **extra}


def _index(number: int, habit: CallStyle) -> JsonObject:
    if habit.index == "missing":
        return {}
    values = {"counted": number, "null": None, "same": 0, "from_3": number + 3, "string": str(number)}
    return {"index": values[habit.index]}


def extra_content(call: ScriptedCall) -> JsonObject:
    """Where Gemini's OpenAI endpoint carries the signature of a call."""
    return {"extra_content": {"google": {"thought_signature": call.signature}}} if call.signature else {}


def pieces_of(text: str, size: int) -> list[str]:
    """`text` in pieces of `size` characters, the last one shorter; none for no text."""
    return [text[start : start + size] for start in range(0, len(text), size)]
