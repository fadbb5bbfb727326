"""Every message of a conversation exactly once, oldest first, with the frame that owns it now, as lines of JSON.
Messages on abandoned branches are included; only items on the newest path are `current`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import TypedDict

from callstack_proxy.management.export.base import LINES, ExportFormat
from callstack_proxy.management.find_by_id import all_path_states
from callstack_proxy.management.views import (
    CallState,
    LogItem,
    MessagePosition,
    call_states_of,
    log_item_of,
    message_position_of,
)
from proxy.core.context import owner_of
from proxy.core.frames import PathEntry, Tree, frame_id_of
from proxy.core.ledger import Ledger, Message


class LogLine(TypedDict):
    """A log line: the position of an item, and the item with its bytes. `seq` is the order of creation, `round`
    the number of the round in its turn (-1 for entries that are no round)."""

    frame: str
    seq: int
    round: int
    after: str
    item: LogItem


@dataclass(frozen=True, slots=True)
class ExportItem:
    """A message for a log. `frame` is its present owner, empty before the first frame."""

    path_entry: PathEntry
    message: Message
    frame: str
    previous: str
    states: Sequence[CallState]
    is_current: bool

    @property
    def position(self) -> MessagePosition:
        """Entry and round number."""
        return message_position_of(self.path_entry)

    @property
    def created_at(self) -> int:
        return (self.path_entry.round.created if self.path_entry.round else 0) or self.path_entry.entry.created

    def log_line(self) -> LogLine:
        item = log_item_of(self.path_entry, self.message, self.states, current=self.is_current, raw=True)
        entry = self.path_entry.entry
        return {"frame": self.frame, "seq": entry.seq, "round": self.position[1], "after": self.previous, "item": item}


def items_of(ledger: Ledger, tree: Tree) -> list[ExportItem]:
    """All items in order of creation. Items without an owner go to the first root of `tree`."""
    items: dict[MessagePosition, ExportItem] = {}
    default_frame = next((f.id for f in tree.frames.values() if not f.parent), "")
    for number, path_state in enumerate(all_path_states(ledger)):
        states: Mapping[MessagePosition, Sequence[CallState]] = call_states_of(path_state.entries)
        previous = ""
        for path_entry in path_state.entries:
            message, position = path_entry.message, message_position_of(path_entry)
            if message is None:
                continue
            frame = frame_id_of(owner_of(path_state, path_entry)) or default_frame
            if position not in items:
                items[position] = ExportItem(
                    path_entry, message, frame, previous, states.get(position, ()), is_current=number == 0
                )
            if not path_entry.entry.is_overlay:
                previous = item_id(path_entry)
    return sorted(items.values(), key=lambda item: (item.path_entry.entry.seq, item.position[1]))


def item_id(path_entry: PathEntry) -> str:
    """The id of the entry, with the round number if it is a round."""
    return f"{path_entry.entry.id}/{path_entry.round.number}" if path_entry.round else path_entry.entry.id


def json_line(value: Any) -> bytes:
    """JSON on one line, in ASCII: stored text may contain half of a surrogate pair, which UTF-8 cannot encode."""
    return json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"


def json_document(value: Any) -> bytes:
    return json.dumps(value, indent=2).encode("ascii") + b"\n"


def log_lines(items: Iterable[ExportItem]) -> Iterator[bytes]:
    return (json_line(item.log_line()) for item in items)


LOGS = ExportFormat(
    "every message once, a line each, with its frame",
    LINES,
    ".jsonl",
    lambda export_input, _: log_lines(items_of(export_input.ledger, export_input.path_state.tree)),
)
