"""Reads what the model recalled from its calls, and protects recalled texts: for `KEPT_TURNS` further turns they are
neither folded nor cleared, or the model would fetch them again and again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from proxy.core.frames import PathEntry
from proxy.core.ledger import Call
from proxy.core.observers import decode_json_or_text

KEPT_TURNS = 2
"""Turns after the recall during which the text stays in the context."""
FRAME_ID_PATTERN = re.compile(r"\bf[a-z2-7]{8}\b")
"""The format of `frames.frame_id`."""
REF_ARGUMENTS = ("ref", "frame", "frameID", "path")
"""Names that models use for the argument, in order of precedence."""
QUERY_ARGUMENT = "query"
DISPATCHER_TOOL = "stack"
RECALL_NAMES = frozenset({"stack_recall", "recall"})
"""Names of the recall tool; the dispatcher takes the second as its `op`."""


def is_recall(call: Call) -> bool:
    """Whether the call recalls stored texts, directly or through the dispatcher."""
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
    """Queries of recalls without a ref, each once."""
    return tuple(
        dict.fromkeys(
            q
            for arguments in _recall_arguments(calls)
            if not _ref_values(arguments) and (q := _argument_text(arguments.get(QUERY_ARGUMENT)))
        )
    )


def recalled_frame_ids(calls: Iterable[Call]) -> tuple[str, ...]:
    """Full frame ids among the refs. They may belong to an earlier conversation: a client that compacts without sending
    a session id starts a new one."""
    return tuple(dict.fromkeys(frame for ref in recall_refs(calls) for frame in FRAME_ID_PATTERN.findall(ref)))


def recall_refs(calls: Iterable[Call]) -> tuple[str, ...]:
    """The refs as written, each once: ids, titles or paths."""
    return tuple(dict.fromkeys(ref for arguments in _recall_arguments(calls) for ref in _ref_values(arguments)))


def _recall_arguments(calls: Iterable[Call]) -> list[Mapping[str, Any]]:
    """Arguments of the recall calls, including those nested under the dispatcher's `args`."""
    given = [_decoded_arguments(call) for call in calls if is_recall(call)]
    handed_on = (decode_json_or_text(a) if isinstance(a := arguments.get("args"), str) else a for arguments in given)
    return [*given, *(nested for nested in handed_on if isinstance(nested, dict))]


def _ref_values(arguments: Mapping[str, Any]) -> list[str]:
    return [ref for name in REF_ARGUMENTS if (ref := _argument_text(arguments.get(name)))]


def _argument_text(value: object) -> str:
    """The same rule as for arguments of stack tools."""
    return str(value).strip() if isinstance(value, str | int | float) and not isinstance(value, bool) else ""


def is_recall_round(path_entry: PathEntry) -> bool:
    """Whether this round recalled stored texts."""
    return path_entry.round is not None and any(is_recall(call) for call in path_entry.round.spoken.message.calls)


def recently_recalled_entries(path_entries: Sequence[PathEntry]) -> frozenset[str]:
    """Entries of `path_entries` (oldest first) with texts recalled in the newest turn or the `KEPT_TURNS` before it."""
    counted: dict[str, None] = {}
    kept: set[str] = set()
    for path_entry in reversed(path_entries):
        if path_entry.round is None:
            continue
        counted[path_entry.entry.id] = None
        if len(counted) > KEPT_TURNS + 1:
            break
        if is_recall_round(path_entry):
            kept |= {path_entry.entry.id, path_entry.path_id}
    return frozenset(kept)
