"""What a person says into a conversation from beside its client, and how it is told to the model.

A message waits in its lane: `steer` for the next request to the provider, also between two hidden rounds of a turn;
`follow_up` for the moment at which the model has nothing more to do. It is told once, or it expires.

The laws: **nothing said is told before it is asked for**, so what waits changes no line; and **all that waits in a lane
is told at once**, as one message of the user's with a bullet for each.

What this module does not do: it knows no request and no line; `proxy.speaking` puts the words there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

HEADING = "Additional user input, given while you work:"
"""What stands above the bullets; the user's own words follow as they were written."""


class Lane(StrEnum):
    STEER = "steer"
    FOLLOW_UP = "follow_up"


class DeliveryState(StrEnum):
    WAITING = "waiting"
    DELIVERED = "delivered"
    REMOVED = "removed"


class QueuedMessage(msgspec.Struct, frozen=True):
    """One message. Times are ms since the epoch; `expires` is when it is no longer told. `thread` is the only one that
    may be told, or empty. `settled` is when it was delivered or removed, `entry` the words of the ledger it became.

    Of one that was removed nothing is left but that: its text is empty.
    """

    id: str
    text: str
    lane: Lane
    thread: str
    created: int
    expires: int
    state: DeliveryState = DeliveryState.WAITING
    settled: int = 0
    entry: str = ""


def waiting_messages(queue: Iterable[QueuedMessage], now: int) -> tuple[QueuedMessage, ...]:
    """What still waits at `now` (ms), in the order in which it was said."""
    return tuple(said for said in queue if said.state is DeliveryState.WAITING and now < said.expires)


def has_waiting_message(queue: Iterable[QueuedMessage], thread: str, now: int) -> bool:
    """Whether something waits at `now` (ms) that this thread may be told."""
    return any(said.thread in ("", thread) for said in waiting_messages(queue, now))


def render_queued_messages(said: Sequence[QueuedMessage]) -> str:
    """One message for the model. A text of several lines stays under its bullet."""
    return "\n".join([HEADING, *("- " + each.text.strip().replace("\n", "\n  ") for each in said)])
