"""A turn of several rounds as the client of a responses API was shown it.

The law: what the client never saw is in none of it: calls of ours, their results, and reasoning that was made with them
(`visible`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from typing import TypeVar

from proxy.core.ledger.messages import Message, is_stack_tool
from proxy.dialects import raw_json as slices
from proxy.dialects.responses.items import CALL, REASONING, read_run
from proxy.dialects.responses.output import is_open, value

T = TypeVar("T")


class Fate(Enum):
    """What becomes of an item of a round."""

    SHOWN = auto()
    BOUND = auto()
    """It goes with the item behind it."""
    HIDDEN = auto()


def visible(items: Iterable[tuple[T, Fate]]) -> list[T]:
    """The items of one round that the client sees, in order. What is bound goes with the next one that is shown; at the
    end, in a round with something hidden, with that."""
    found: list[T] = []
    bound: list[T] = []
    hides = False
    for item, fate in items:
        if fate is Fate.BOUND:
            bound.append(item)
        elif fate is Fate.SHOWN:
            found += [*bound, item]
            bound = []
        else:
            hides = True
    return found if hides else found + bound


def seen(rounds: Sequence[Message]) -> Message:
    """What these rounds were for the client: one run of items. Its tokens are not counted."""
    return read_run(slices.array_of([item for said in rounds for item in visible(_fates(said))]))


def _fates(said: Message) -> Iterator[tuple[bytes, Fate]]:
    """A call that is in the bytes and not among `calls` was kept from the client."""
    kept = {call.id for call in read_run(said.wire).calls} - {call.id for call in said.calls}
    for item in slices.items(said.wire):
        told = value(item)
        kind, name = (told.get("type"), told.get("name")) if isinstance(told, dict) else (None, None)
        if (isinstance(told, dict) and told.get("call_id") in kept) or (
            str(kind).endswith(CALL) and isinstance(name, str) and is_stack_tool(name)
        ):
            yield item, Fate.HIDDEN
        else:
            yield item, Fate.BOUND if kind == REASONING and not is_open(item) else Fate.SHOWN
