"""Finds the call that a result answers. Ids repeat: in the next message, and with some servers within one message. A
result belongs to the newest message that made a call under its id, and there to the first call that has none yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class OpenCalls(Generic[T]):
    """Calls, each as a value of its user's choice, by the id under which their results come."""

    def __init__(self) -> None:
        self._by_id: dict[str, deque[T]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_id)

    def add(self, calls: Iterable[tuple[str, T]]) -> None:
        """The calls of one message, in order, each with its id."""
        added: dict[str, deque[T]] = {}
        for ident, call in calls:
            added.setdefault(ident, deque()).append(call)
        self._by_id |= added

    def take(self, ident: str) -> T | None:
        """The call that the next result under this id answers; it waits no longer. None if there is none."""
        waiting = self._by_id.get(ident)
        if waiting is None:
            return None
        call = waiting.popleft()
        if not waiting:
            del self._by_id[ident]
        return call

    def find(self, ident: str) -> T | None:
        """As `take`, but the last call under an id goes on answering: clients send a result again in other words."""
        waiting = self._by_id.get(ident)
        if waiting is None:
            return None
        return waiting.popleft() if len(waiting) > 1 else waiting[0]
