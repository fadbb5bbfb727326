"""Finds which messages leave the context together or not at all.

A group is an assistant's message with the results of its calls, and with every other group that shares a link with it:
a provider's own tool run that was called in one message and ended in another, an approval and what it allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from proxy.core.ledger import Message

NO_GROUP = 0
"""The number of messages that are in no group: a user's, and a result without its call."""


def group_numbers(messages: Iterable[Message | None], turns: Sequence[str] = ()) -> list[int]:
    """The number of each message's group, counted from 1. Messages next to each other with the same name in `turns` are
    of one group too. A result belongs to the nearest call before it, because ids repeat."""
    numbers: list[int] = []
    joined: list[int] = [NO_GROUP]
    """For each number the one it was joined to; its own where it was not."""
    by_call: dict[str, int] = {}
    by_link: dict[str, int] = {}
    turn = ""
    for at, message in enumerate(messages):
        if message is None or message.role != "assistant":
            numbers.append(by_call.get(message.answers, NO_GROUP) if message and message.answers else NO_GROUP)
            continue
        number = len(joined)
        joined.append(number)
        if turns:
            if turns[at] == turn:
                joined[number] = _first(joined, number - 1)
            turn = turns[at]
        for link in message.links:
            _join(joined, number, by_link.setdefault(link, number))
        by_call.update((call.id, number) for call in message.calls)
        numbers.append(number)
    return [_first(joined, number) for number in numbers]


def _join(joined: list[int], one: int, other: int) -> None:
    low, high = sorted((_first(joined, one), _first(joined, other)))
    joined[high] = low


def _first(joined: list[int], number: int) -> int:
    while joined[number] != number:
        number = joined[number]
    return number
