"""The full log of a frame, oldest first, and the state of each call in it.

The log includes trimmed messages, hidden rounds, earlier attempts and abandoned branches; `current` marks items on the
newest path. A result belongs to the newest earlier call with its id, because ids repeat.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain

import msgspec

from callstack_proxy.management.find_by_id import all_path_states, newest_path_state
from callstack_proxy.management.views.schemas import CallState, FrameLog, FrameLogItem, LogItem, MessageView
from proxy.core.context import owner_of
from proxy.core.frames import FrameFolded, FrameSplit, PathEntry, PathState, decode_event, frame_id_of
from proxy.core.ledger import Call, Ledger, Message
from proxy.core.observers import is_failure_text

_ERROR_START = re.compile(
    r"[\s<\[(*#]*(?:tool[ _-]?)?(?:error|fatal|traceback|exception|permission denied)\b", re.IGNORECASE
)

LEAVING_KINDS = frozenset({"parted", "folded"})
MessagePosition = tuple[str, int]
"""The id of an entry and the number of the round in it (-1 for an entry that is no turn)."""


def message_position_of(path_entry: PathEntry) -> MessagePosition:
    return path_entry.entry.id, path_entry.round.number if path_entry.round else -1


def is_error(result: Message) -> bool:
    """Whether a call failed: the client says so, or the start or wording of its result does."""
    return result.failed or _ERROR_START.match(result.text) is not None or is_failure_text(result.text)


def call_states_of(path: Iterable[PathEntry]) -> Mapping[MessagePosition, tuple[CallState, ...]]:
    """The states of all calls on a path, by position of the message, in call order."""
    states_by_position: dict[MessagePosition, list[CallState]] = {}
    pending: dict[str, deque[tuple[MessagePosition, int]]] = defaultdict(deque)
    for path_entry in path:
        message = path_entry.message
        if message is None:
            continue
        if message.answers:
            _record_result(states_by_position, pending, message)
            continue
        position = message_position_of(path_entry)
        is_complete = path_entry.round is None or path_entry.round.spoken.complete
        states_by_position[position] = [state_without_result(call, whole=is_complete) for call in message.calls]
        new_calls: dict[str, deque[tuple[MessagePosition, int]]] = defaultdict(deque)
        for number, call in enumerate(message.calls):
            new_calls[call.id].append((position, number))
        pending.update(new_calls)
        for result in path_entry.round.results if path_entry.round else ():
            _record_result(states_by_position, pending, result)
    return {position: tuple(states) for position, states in states_by_position.items()}


def state_without_result(call: Call, *, whole: bool) -> CallState:
    return "running" if whole or _is_json(call.arguments) else "pending"


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return False
    return True


def _record_result(
    states_by_position: Mapping[MessagePosition, list[CallState]],
    pending: Mapping[str, deque[tuple[MessagePosition, int]]],
    result: Message,
) -> None:
    calls = pending.get(result.answers)
    if calls:
        position, number = calls.popleft()
        states_by_position[position][number] = "error" if is_error(result) else "completed"


def frame_log(ledger: Ledger, path_state: PathState, frame: str, *, raw: bool = False) -> FrameLog:
    """Entries in order of creation, one per message; hidden calls include their results. `path_state` is a path with
    the frame."""
    details = path_state.tree.as_shown.frames[frame]
    return {
        "frame": frame,
        "conversation": ledger.conversation.id,
        "title": details.title,
        "status": str(details.status),
        "entries": _log_items(ledger, frame, raw=raw),
    }


def _log_items(ledger: Ledger, frame: str, *, raw: bool) -> list[FrameLogItem]:
    """Those of the frame; where a later one has taken over all its work, what left the context with it."""
    own = _collect_items(ledger, lambda path_state: _path_entries_of_frame(path_state, frame), raw=raw)
    left = () if own else _entries_left_with(ledger, frame)
    if not left:
        return own
    return _collect_items(ledger, lambda path_state: (e for e in path_state.entries if e.entry.id in left), raw=raw)


def _entries_left_with(ledger: Ledger, frame: str) -> Set[str]:
    """Ids of entries that were cut off as this frame, or left the context when it was folded."""
    found: set[str] = set()
    for event in chain.from_iterable(ledger.events.values()):
        if event.subject == frame and event.kind in LEAVING_KINDS:
            said = decode_event(event)
            found.update(said.taking if isinstance(said, FrameSplit) else ())
            found.update(said.entries if isinstance(said, FrameFolded) else ())
    return found


def _collect_items(
    ledger: Ledger, entries_of: Callable[[PathState], Iterable[PathEntry]], *, raw: bool
) -> list[FrameLogItem]:
    current = {message_position_of(path_entry) for path_entry in newest_path_state(ledger).entries}
    items: dict[tuple[int, int], FrameLogItem] = {}
    for path_state in all_path_states(ledger):
        states = call_states_of(path_state.entries)
        for path_entry in entries_of(path_state):
            position = message_position_of(path_entry)
            message = path_entry.message
            if message is not None and (path_entry.entry.seq, position[1]) not in items:
                item = log_item_of(path_entry, message, states.get(position, ()), current=position in current, raw=raw)
                items[path_entry.entry.seq, position[1]] = {
                    **item,
                    "frame": frame_id_of(owner_of(path_state, path_entry)),
                }
    return [items[place] for place in sorted(items)]


def _path_entries_of_frame(path_state: PathState, frame: str) -> Iterator[PathEntry]:
    """Entries that any segment of the frame owns, or owned before a pop passed them on."""
    for path_entry in path_state.entries:
        owners = {path_entry.owner, owner_of(path_state, path_entry)}
        if any(frame_id_of(owner) == frame for owner in owners):
            yield path_entry


def log_item_of(
    path_entry: PathEntry, message: Message, states: Sequence[CallState], *, current: bool, raw: bool
) -> LogItem:
    entry, round_ = path_entry.entry, path_entry.round
    rendered = _message(message, states, raw=raw)
    return {
        "id": f"{entry.id}/{round_.number}" if round_ else entry.id,
        "kind": str(entry.kind),
        "thread": entry.thread,
        "created": (round_.created if round_ else 0) or entry.created,
        "current": current,
        **rendered,
        "results": [_message(result, (), raw=raw) for result in round_.results] if round_ else [],
        "finish": round_.spoken.finish if round_ else "",
        "complete": round_.spoken.complete if round_ else True,
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
    """Text that encodes to the same bytes (`surrogateescape`)."""
    return data.decode("utf-8", "surrogateescape")
