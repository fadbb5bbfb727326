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

from proxy.core.context.message_list import owner_of
from proxy.core.frames.path_state import Placed
from proxy.core.frames.tree import Tree
from proxy.core.ledger.ledger import Ledger
from proxy.core.ledger.messages import Message
from proxy.core.observers.step import said_by
from proxy.management.views.logs import Place, item_of, place_of, states_of
from proxy.management.views.lookup import stories
from proxy.management.views.schemas import LogItem, PartState


class Line(TypedDict):
    """One line of a log: where the item stands, and the item itself with its `wire`. `seq` is the order of creation in
    the conversation, `round` the number of the round in a turn (-1: it is none)."""

    frame: str
    seq: int
    round: int
    after: str
    item: LogItem


@dataclass(frozen=True, slots=True)
class Item:
    """One message on its way into a log. `frame` owns it now; empty before there was any."""

    placed: Placed
    message: Message
    frame: str
    after: str
    states: Sequence[PartState]
    current: bool

    @property
    def place(self) -> Place:
        """By entry and round; the order of creation is (`placed.entry.seq`, round)."""
        return place_of(self.placed)

    @property
    def at(self) -> int:
        """When it was said, in ms."""
        return (self.placed.round.created if self.placed.round else 0) or self.placed.entry.created

    def line(self) -> Line:
        item = item_of(self.placed, self.message, self.states, current=self.current, raw=True)
        return {"frame": self.frame, "seq": self.placed.entry.seq, "round": self.place[1], "after": self.after,
                "item": item}  # fmt: skip


def items_of(ledger: Ledger, tree: Tree) -> list[Item]:
    """All of a conversation, in the order of creation. `tree` says whose is what nobody owns: the first root's."""
    found: dict[Place, Item] = {}
    nobodys = next((f.id for f in tree.frames.values() if not f.parent), "")
    for number, story in enumerate(stories(ledger)):
        states: Mapping[Place, Sequence[PartState]] = states_of(story.placed)
        after = ""
        for placed in story.placed:
            message, at = said_by(placed), place_of(placed)
            if message is None:
                continue
            frame = owner_of(story, placed).partition("#")[0] or nobodys
            if at not in found:
                found[at] = Item(placed, message, frame, after, states.get(at, ()), current=number == 0)
            if not placed.entry.is_beside:
                after = name_of(placed)
    return sorted(found.values(), key=lambda item: (item.placed.entry.seq, item.place[1]))


def name_of(placed: Placed) -> str:
    """The id an item goes by: of its entry, and of the round where it is one."""
    return f"{placed.entry.id}/{placed.round.number}" if placed.round else placed.entry.id


def as_line(value: Any) -> bytes:
    """JSON on one line, in ASCII: stored text may hold half of a surrogate pair, which UTF-8 cannot say."""
    return json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"


def as_document(value: Any) -> bytes:
    """JSON to be read by people too."""
    return json.dumps(value, indent=2).encode("ascii") + b"\n"


def log_lines(items: Iterable[Item]) -> Iterator[bytes]:
    """One line for each."""
    return (as_line(item.line()) for item in items)
