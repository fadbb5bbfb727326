"""Finds the call groups that loaded tools: a tool search with its results.

A provider offers a deferred tool only while the message that loaded it is in the prompt, and the client believes it
loaded from then on. So such a group stays in the context when the work around it leaves, until another one loads the
same tools again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from proxy.core.ledger import Message


class LoadingGroup(NamedTuple):
    """`positions` of a call and its results, or of a message that loads tools by itself, in order; and the names of the
    tools."""

    positions: tuple[int, ...]
    tools: frozenset[str]


def groups_that_load(messages: Sequence[Message | None]) -> list[LoadingGroup]:
    """In the order of their calls. A result belongs to the nearest call before it, because ids repeat."""
    if not any(m is not None and m.loaded_tools for m in messages):
        return []
    callers: dict[str, int] = {}
    members: dict[int, list[int]] = {}
    tools: dict[int, frozenset[str]] = {}
    for position, message in enumerate(messages):
        if message is None:
            continue
        callers.update((call.id, position) for call in message.calls)
        first = callers.get(message.answers, position) if message.answers else position
        members.setdefault(first, []).append(position)
        if message.loaded_tools:
            tools[first] = tools.get(first, frozenset()) | {tool.name for tool in message.loaded_tools}
    return [LoadingGroup(tuple(members[first]), tools[first]) for first in sorted(tools)]


def groups_still_needed(messages: Sequence[Message | None]) -> list[LoadingGroup]:
    """Those that loaded a tool which no later one loaded again."""
    needed: list[LoadingGroup] = []
    loaded_later: frozenset[str] = frozenset()
    for group in reversed(groups_that_load(messages)):
        if group.tools - loaded_later:
            needed.append(group)
        loaded_later |= group.tools
    return needed[::-1]
