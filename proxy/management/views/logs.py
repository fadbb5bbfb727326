"""Everything a frame did, oldest first: what `stack_recall` reads from, whole and for people.

Its law: **nothing is left out**. What left the line is here, messages that were trimmed, hidden rounds, earlier
attempts at a resumed frame, and what lies on branches that were given up; `current` says whether an item stands on the
path that grew last. The wire is the stored text, byte for byte.

What became of each call: whether its arguments are still arriving, its tool runs, or it came back, and how.

Its law: **a result belongs to the newest call of its id before it**; ids repeat, also within one conversation. Whether
a tool failed is judged as the observers judge it, so what is shown is what frames go by.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from proxy.core.context import owner_of
from proxy.core.frames import PathEntry, PathState
from proxy.core.ledger import Call, Ledger, Message
from proxy.core.observers import is_failure_text
from proxy.management.views.lookup import all_path_states, newest_path_state
from proxy.management.views.schemas import CallState, FrameLog, FrameLogItem, LogItem, MessageView

_ERROR_START = re.compile(
    r"[\s<\[(*#]*(?:tool[ _-]?)?(?:error|fatal|traceback|exception|permission denied)\b", re.IGNORECASE
)

MessagePosition = tuple[str, int]
"""An entry, and the number of the round in it (-1: it is no turn)."""


def message_position_of(path_entry: PathEntry) -> MessagePosition:
    return path_entry.entry.id, path_entry.round.number if path_entry.round else -1


def is_error(result: Message) -> bool:
    """Whether a call went wrong: the client says so, or the result does, by its first word or in one of the ways that
    tools have."""
    return result.failed or _ERROR_START.match(result.text) is not None or is_failure_text(result.text)


def call_states_of(path: Iterable[PathEntry]) -> Mapping[MessagePosition, tuple[CallState, ...]]:
    """The state of every call on a path, oldest first, by the place of its message and in call order."""
    found: dict[MessagePosition, list[CallState]] = {}
    waiting: dict[str, deque[tuple[MessagePosition, int]]] = defaultdict(deque)
    for path_entry in path:
        said = path_entry.round.spoken.message if path_entry.round else path_entry.entry.message
        if said is None:
            continue
        if said.answers:
            _record_result(found, waiting, said)
            continue
        at = message_position_of(path_entry)
        whole = path_entry.round is None or path_entry.round.spoken.complete
        found[at] = [state_without_result(call, whole=whole) for call in said.calls]
        asked: dict[str, deque[tuple[MessagePosition, int]]] = defaultdict(deque)
        for number, call in enumerate(said.calls):
            asked[call.id].append((at, number))
        waiting.update(asked)
        for result in path_entry.round.results if path_entry.round else ():
            _record_result(found, waiting, result)
    return {at: tuple(states) for at, states in found.items()}


def state_without_result(call: Call, *, whole: bool) -> CallState:
    """Before its result: pending while its arguments arrive, running once they are whole."""
    return "running" if whole or _is_json(call.arguments) else "pending"


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return False
    return True


def _record_result(
    found: Mapping[MessagePosition, list[CallState]],
    waiting: Mapping[str, deque[tuple[MessagePosition, int]]],
    result: Message,
) -> None:
    asked = waiting.get(result.answers)
    if asked:
        at, number = asked.popleft()
        found[at][number] = "error" if is_error(result) else "completed"


def frame_log(ledger: Ledger, path_state: PathState, frame: str, *, raw: bool = False) -> FrameLog:
    """Its entries in the order of creation, one per message; a hidden call's result stands with the message that made
    the call. `path_state` is a path that knows the frame."""
    found = path_state.tree.frames[frame]
    return {
        "frame": frame,
        "conversation": ledger.conversation.id,
        "title": found.title,
        "status": str(found.status),
        "entries": _log_items(ledger, frame, raw=raw),
    }


def _log_items(ledger: Ledger, frame: str, *, raw: bool) -> list[FrameLogItem]:
    current = {message_position_of(path_entry) for path_entry in newest_path_state(ledger).entries}
    found: dict[tuple[int, int], FrameLogItem] = {}
    for path_state in all_path_states(ledger):
        states = call_states_of(path_state.entries)
        for path_entry in _path_entries_of_frame(path_state, frame):
            at = message_position_of(path_entry)
            message = path_entry.round.spoken.message if path_entry.round else path_entry.entry.message
            if message is not None and (path_entry.entry.seq, at[1]) not in found:
                item = log_item_of(path_entry, message, states.get(at, ()), current=at in current, raw=raw)
                found[path_entry.entry.seq, at[1]] = {
                    **item,
                    "frame": owner_of(path_state, path_entry).partition("#")[0],
                }
    return [found[place] for place in sorted(found)]


def _path_entries_of_frame(path_state: PathState, frame: str) -> Iterator[PathEntry]:
    """What any segment of the frame owns, or owned before a pop handed it on."""
    for path_entry in path_state.entries:
        owners = {path_entry.owner, owner_of(path_state, path_entry)}
        if any(owner.partition("#")[0] == frame for owner in owners):
            yield path_entry


def log_item_of(
    path_entry: PathEntry, said: Message, states: Sequence[CallState], *, current: bool, raw: bool
) -> LogItem:
    """One line of a log: what was said there, with the states of its calls."""
    entry, done = path_entry.entry, path_entry.round
    shown = _message(said, states, raw=raw)
    return {
        "id": f"{entry.id}/{done.number}" if done else entry.id,
        "kind": str(entry.kind),
        "thread": entry.thread,
        "created": (done.created if done else 0) or entry.created,
        "current": current,
        **shown,
        "results": [_message(result, (), raw=raw) for result in done.results] if done else [],
        "finish": done.spoken.finish if done else "",
        "complete": done.spoken.complete if done else True,
    }


def _message(message: Message, states: Sequence[CallState], *, raw: bool) -> MessageView:
    item: MessageView = {
        "role": message.role,
        "text": message.text,
        "calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments, "state": state}
            for call, state in zip(message.calls, states, strict=True)
        ],
        "answers": message.answers,
        "error": bool(message.answers) and is_error(message),
        "tokens": message.tokens,
    }
    if raw:
        item["wire"] = decode_lossless(message.wire)
    return item


def decode_lossless(data: bytes) -> str:
    """Bytes as text that gives the same bytes back (`surrogateescape`), whatever they are."""
    return data.decode("utf-8", "surrogateescape")
