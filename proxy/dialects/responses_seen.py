"""A turn of several rounds as the client of a responses API was shown it.

The law: what the client never saw is in none of it: calls of ours, their results, and the reasoning of a round of
which nothing else was shown.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.dialects import slices
from proxy.dialects.responses_item import REASONING, read_run
from proxy.stack.transcript import Message, is_stack_tool


def seen(rounds: Sequence[Message]) -> Message:
    """What these rounds were for the client: one run of items. Its tokens are not counted."""
    return read_run(slices.array_of([item for said in rounds for item in _shown(said)]))


def _shown(said: Message) -> list[bytes]:
    kept: list[tuple[bytes, str]] = []
    for item in slices.items(said.wire):
        told = slices.value(item)
        kind, name = (told.get("type"), told.get("name")) if isinstance(told, dict) else (None, None)
        if kind != "function_call" or not isinstance(name, str) or not is_stack_tool(name):
            kept.append((item, str(kind)))
    visible = any(kind != REASONING for _, kind in kept)
    return [item for item, _ in kept] if visible else []
