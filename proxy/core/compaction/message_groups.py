"""Finds which messages leave the context together or not at all.

A group is an assistant's message with the results of its calls, and with every other group that shares a link with it:
a provider's own tool run that was called in one message and ended in another, an approval and what it allowed. What the
client notes beside it of the state of files leaves with it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from proxy.core.compaction.client_notes import files_noted_in
from proxy.core.ledger import Message

NO_GROUP = 0
"""The number of messages that are in no group: a user's, and a result without its call."""
MAX_NOTES_IN_A_ROW = 20
MAX_DISTANCE_OF_A_NOTE = 200
"""Messages in front of a note in which the call is looked for that named its file last."""


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
            low, high = sorted((_first(joined, number), _first(joined, by_link.setdefault(link, number))))
            joined[high] = low
        by_call.update((call.id, number) for call in message.calls)
        numbers.append(number)
    return [_first(joined, number) for number in numbers]


def _first(joined: list[int], number: int) -> int:
    while joined[number] != number:
        number = joined[number]
    return number


def notes_beside(messages: Sequence[Message | None], groups: Mapping[int, int]) -> dict[int, int]:
    """Positions of a client's notes on the state of files, each with the number of the group that it stands beside: the
    one before it, or behind words of the user the next one. `groups` are the numbers of what may leave, by position."""
    found: dict[int, int] = {}
    for position, message in enumerate(messages):
        if message is None or message.role == "assistant" or message.answers:
            continue
        if files_noted_in(message) is not None and (group := _group_beside(messages, groups, found, position)):
            found[position] = group
    return found


def is_needed_without(messages: Sequence[Message | None], note: int, leaving: Container[int]) -> bool:
    """Whether the client's note at a position is about a text that stays when `leaving` leave: the last call that named
    one of its files is none of theirs."""
    message = messages[note]
    files = (files_noted_in(message) if message else None) or ()
    return any(at >= 0 and at not in leaving for at in (_last_naming(messages, note, file) for file in files))


def _group_beside(
    messages: Sequence[Message | None], groups: Mapping[int, int], found: Mapping[int, int], position: int
) -> int:
    before = position - 1
    if before in groups and (message := messages[before]) and (message.calls or message.answers):
        return groups[before]
    if before in found:
        return found[before]
    behind = position + 1
    last = min(len(messages), behind + MAX_NOTES_IN_A_ROW)
    while behind < last and (message := messages[behind]) and files_noted_in(message) is not None:
        behind += 1
    return groups.get(behind, NO_GROUP)


def _last_naming(messages: Sequence[Message | None], position: int, file: str) -> int:
    """The position of the newest message before `position` with a call that names the file; -1 if there is none."""
    for at in range(position - 1, max(-1, position - MAX_DISTANCE_OF_A_NOTE), -1):
        message = messages[at]
        if message is not None and any(file in call.arguments for call in message.calls):
            return at
    return -1
