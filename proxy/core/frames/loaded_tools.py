"""Finds the call groups that loaded tools: a tool search with its results.

A provider offers a deferred tool only while the message that loaded it is in the prompt, and the client believes it
loaded from then on. So such a group stays in the context when the work around it leaves, until another one loads the
same tools again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from proxy.core.ledger import Message


class LoadingGroup(NamedTuple):
    """`positions` of a call and its results, or of a message that loads tools by itself, in order; and the names of the
    tools."""

    positions: tuple[int, ...]
    tools: frozenset[str]


def groups_that_load(messages: Sequence[Message | None]) -> list[LoadingGroup]:
    """In the order of their calls. A result belongs to the nearest call before it, because ids repeat."""
    # Only the groups themselves are looked at: on a long path nearly no message loads anything.
    loading = [position for position, message in enumerate(messages) if message is not None and message.loaded_tools]
    tools: dict[int, frozenset[str]] = {}
    for position in loading:
        if (message := messages[position]) is not None:
            first = _call_position(messages, position, message.answers)
            tools[first] = tools.get(first, frozenset()) | {tool.name for tool in message.loaded_tools}
    return [LoadingGroup(tuple(_with_results(messages, first)), tools[first]) for first in sorted(tools)]


def _call_position(messages: Sequence[Message | None], position: int, call: str) -> int:
    for earlier in range(position - 1, -1, -1) if call else ():
        message = messages[earlier]
        if message is not None and any(made.id == call for made in message.calls):
            return earlier
    return position


def _with_results(messages: Sequence[Message | None], first: int) -> Iterator[int]:
    yield first
    said = messages[first]
    calls = {call.id for call in said.calls} if said is not None else frozenset[str]()
    for position in range(first + 1, len(messages)) if calls else ():
        message = messages[position]
        if message is not None and message.role == "assistant":
            return
        if message is not None and message.answers in calls:
            yield position


def groups_still_needed(messages: Sequence[Message | None]) -> list[LoadingGroup]:
    """Those that loaded a tool which no later one loaded again."""
    needed: list[LoadingGroup] = []
    loaded_later: frozenset[str] = frozenset()
    for group in reversed(groups_that_load(messages)):
        if group.tools - loaded_later:
            needed.append(group)
        loaded_later |= group.tools
    return needed[::-1]
