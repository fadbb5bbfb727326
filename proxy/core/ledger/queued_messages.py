"""Messages that a person sends into a conversation without its client, and their text for the model.

A `steer` message waits for the next upstream request, which may be between two hidden rounds of a turn; a `follow_up`
message waits until the model has finished. All waiting messages of a lane are delivered once, as one user message with
a bullet each, or expire. Waiting messages do not change the context.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

HEADING = "Additional user input, given while you work:"
"""Stands above the bullets."""


class Lane(StrEnum):
    STEER = "steer"
    FOLLOW_UP = "follow_up"


class DeliveryState(StrEnum):
    WAITING = "waiting"
    DELIVERED = "delivered"
    REMOVED = "removed"


class QueuedMessage(msgspec.Struct, frozen=True):
    """One message. Times are ms since the epoch. `thread` is the only thread that may receive it, or empty. `settled`
    is when it was delivered or removed, `entry` the overlay that holds its words. A removed message has no text."""

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
    """Messages that still wait at `now` (ms), in the order in which they were queued."""
    return tuple(message for message in queue if message.state is DeliveryState.WAITING and now < message.expires)


def has_waiting_message(queue: Iterable[QueuedMessage], thread: str, now: int) -> bool:
    """Whether a message for this thread waits at `now` (ms)."""
    return any(message.thread in ("", thread) for message in waiting_messages(queue, now))


def render_queued_messages(messages: Sequence[QueuedMessage]) -> str:
    """One message for the model. Further lines of a text are indented under its bullet."""
    return "\n".join([HEADING, *("- " + message.text.strip().replace("\n", "\n  ") for message in messages)])
