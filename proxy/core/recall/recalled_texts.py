"""What the model asked to see again, and how long it stays.

The law (H8): **what was recalled is not taken away in the next turns**. A model that fetched a text is about to use
it; were it folded, cleared or trimmed at once, it would fetch it again, and again. After `KEPT_TURNS` further turns it
leaves with its frame like everything else.

What this module does not do: it recalls nothing, and takes nothing off the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from proxy.core.frames import PathEntry
from proxy.core.ledger import Call
from proxy.core.observers import decode_json_or_text

KEPT_TURNS = 2
"""Turns after the one that recalled in which the recalled text stays whole on the line."""
FRAME_ID_PATTERN = re.compile(r"\bf[a-z2-7]{8}\b")
"""As `events.frame_id` makes them."""
REF_ARGUMENTS = ("ref", "frame", "frameID", "path")
"""What models call the argument, in the order they are looked at."""
QUERY_ARGUMENT = "query"
DISPATCHER_TOOL = "stack"
RECALL_NAMES = frozenset({"stack_recall", "recall"})
"""Names by which the model may call the tool; the dispatcher takes the second as its `op`."""


def is_recall(call: Call) -> bool:
    """Whether this call asks for stored texts: by the tool's own name, or through the dispatcher."""
    if call.name == DISPATCHER_TOOL:
        return str(_decoded_arguments(call).get("op")) in RECALL_NAMES
    return call.is_stack_call and call.name in RECALL_NAMES


def _decoded_arguments(call: Call) -> Mapping[str, Any]:
    try:
        arguments = msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return {}
    return arguments if isinstance(arguments, dict) else {}


def recall_queries(calls: Iterable[Call]) -> tuple[str, ...]:
    """What these calls look for everywhere, each once: without a ref, which would say where."""
    return tuple(
        dict.fromkeys(
            q
            for given in _recall_arguments(calls)
            if not _ref_values(given) and (q := _argument_text(given.get(QUERY_ARGUMENT)))
        )
    )


def recalled_frame_ids(calls: Iterable[Call]) -> tuple[str, ...]:
    """Refs of these calls that look like the full id of a frame. It may be one of an earlier conversation: a client
    that compacts and says no session begins a new one."""
    return tuple(dict.fromkeys(frame for ref in recall_refs(calls) for frame in FRAME_ID_PATTERN.findall(ref)))


def recall_refs(calls: Iterable[Call]) -> tuple[str, ...]:
    """Refs of these calls as they were written, each once: an id, a title, a path."""
    return tuple(dict.fromkeys(ref for given in _recall_arguments(calls) for ref in _ref_values(given)))


def _recall_arguments(calls: Iterable[Call]) -> list[Mapping[str, Any]]:
    """The arguments of those that recall: their own, and what they hand on to an operation."""
    given = [_decoded_arguments(call) for call in calls if is_recall(call)]
    handed_on = (decode_json_or_text(a) if isinstance(a := arguments.get("args"), str) else a for arguments in given)
    return [*given, *(each for each in handed_on if isinstance(each, dict))]


def _ref_values(arguments: Mapping[str, Any]) -> list[str]:
    return [ref for name in REF_ARGUMENTS if (ref := _argument_text(arguments.get(name)))]


def _argument_text(value: object) -> str:
    """As tools read an argument (`desk.text_of`)."""
    return str(value).strip() if isinstance(value, str | int | float) and not isinstance(value, bool) else ""


def is_recall_round(path_entry: PathEntry) -> bool:
    """Whether this is a round in which stored texts were asked for; their results are part of it."""
    return path_entry.round is not None and any(is_recall(call) for call in path_entry.round.spoken.message.calls)


def recently_recalled_entries(path_entries: Sequence[PathEntry], turns: int = KEPT_TURNS) -> frozenset[str]:
    """Entries of `path_entry` (oldest first) that hold texts recalled in the newest turn or the `turns` turns
    before it: they may be neither folded, nor cleared, nor trimmed now."""
    counted: dict[str, None] = {}
    kept: set[str] = set()
    for placement in reversed(path_entries):
        if placement.round is None:
            continue
        counted[placement.entry.id] = None
        if len(counted) > turns + 1:
            break
        if is_recall_round(placement):
            kept |= {placement.entry.id, placement.path_id}
    return frozenset(kept)
