"""Every message of a conversation once, oldest first, with the frame that owns it now, as lines of JSON.

The law: **each message stands in one place**. A log that people look at shows a message that was handed on in both
frames; here the frame that has it now has it alone, so that the logs of all frames together are the conversation.

What lies on branches that were given up is here too, and says so (`current`); `after` names the item before it on its
path, so the branches can be told apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import TypedDict

from proxy.core.context import owner_of
from proxy.core.frames import PathEntry, Tree
from proxy.core.ledger import Ledger, Message
from proxy.core.observers import message_of
from proxy.management.views import (
    CallState,
    LogItem,
    MessagePosition,
    all_path_states,
    call_states_of,
    log_item_of,
    message_position_of,
)


class LogLine(TypedDict):
    """One line of a log: where the item stands, and the item itself with its `wire`. `seq` is the order of creation in
    the conversation, `round` the number of the round in a turn (-1: it is none)."""

    frame: str
    seq: int
    round: int
    after: str
    item: LogItem


@dataclass(frozen=True, slots=True)
class ExportItem:
    """One message on its way into a log. `frame` owns it now; empty before there was any."""

    path_entry: PathEntry
    message: Message
    frame: str
    previous: str
    states: Sequence[CallState]
    is_current: bool

    @property
    def position(self) -> MessagePosition:
        """By entry and round; the order of creation is (`placed.entry.seq`, round)."""
        return message_position_of(self.path_entry)

    @property
    def created_at(self) -> int:
        """When it was said, in ms."""
        return (self.path_entry.round.created if self.path_entry.round else 0) or self.path_entry.entry.created

    def log_line(self) -> LogLine:
        item = log_item_of(self.path_entry, self.message, self.states, current=self.is_current, raw=True)
        entry = self.path_entry.entry
        return {"frame": self.frame, "seq": entry.seq, "round": self.position[1], "after": self.previous, "item": item}


def items_of(ledger: Ledger, tree: Tree) -> list[ExportItem]:
    """All of a conversation, in the order of creation. `tree` says whose is what nobody owns: the first root's."""
    found: dict[MessagePosition, ExportItem] = {}
    nobodys = next((f.id for f in tree.frames.values() if not f.parent), "")
    for number, path_state in enumerate(all_path_states(ledger)):
        states: Mapping[MessagePosition, Sequence[CallState]] = call_states_of(path_state.entries)
        after = ""
        for placed in path_state.entries:
            message, at = message_of(placed), message_position_of(placed)
            if message is None:
                continue
            frame = owner_of(path_state, placed).partition("#")[0] or nobodys
            if at not in found:
                found[at] = ExportItem(placed, message, frame, after, states.get(at, ()), is_current=number == 0)
            if not placed.entry.is_overlay:
                after = item_id(placed)
    return sorted(found.values(), key=lambda item: (item.path_entry.entry.seq, item.position[1]))


def item_id(placed: PathEntry) -> str:
    """The id an item goes by: of its entry, and of the round where it is one."""
    return f"{placed.entry.id}/{placed.round.number}" if placed.round else placed.entry.id


def json_line(value: Any) -> bytes:
    """JSON on one line, in ASCII: stored text may hold half of a surrogate pair, which UTF-8 cannot say."""
    return json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"


def json_document(value: Any) -> bytes:
    """JSON to be read by people too."""
    return json.dumps(value, indent=2).encode("ascii") + b"\n"


def log_lines(items: Iterable[ExportItem]) -> Iterator[bytes]:
    """One line for each."""
    return (json_line(item.log_line()) for item in items)
