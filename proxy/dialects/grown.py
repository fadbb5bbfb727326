"""Bodies that grow: clients send their whole history with every request, and behind it what is new.

A body is taken apart (`slices`) from where the one before it had its last message; what stands before that is told by
comparing the bytes, which takes a tenth of reading them. The law: **what is told of a body is what taking it apart
alone would tell.** Where the two bodies do not part between two items of the array that grows, and wherever there is
doubt, the body is taken apart alone.

What this module does not do: it reads no message. Those are known by their own bytes (`known`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import lru_cache

from proxy.dialects import raw_json as slices

BODIES = 32
"""Bodies that are remembered, the newest of each conversation."""
BYTES = 6 * 1024 * 1024
"""Bytes of all of them together."""
NOUGHT = b"0"
"""What stands for the known items while the rest is read: no API takes a number for a message."""

Opened = tuple[dict[str, bytes], list[bytes]]
"""The members of a body, and the items of its array."""


@dataclass(frozen=True, slots=True)
class _Body:
    """What a later body may begin with: all up to the end of the last item. The array begins at `start`; `front` are
    the members before it."""

    beginning: bytes
    start: int
    front: dict[str, bytes]
    items: list[bytes]


class Bodies:
    """Bodies taken apart lately. Each has one array that grows, by its name."""

    def __init__(self, most_bytes: int = BYTES) -> None:
        self._most = most_bytes
        self._known: deque[_Body] = deque()
        self.size = 0
        """Bytes held."""

    def opened(self, body: bytes, name: str) -> Opened:
        """`body` taken apart; no items where it has no member `name`. Raises NotSliced."""
        for known in self._known:
            if body.startswith(known.beginning) and (grown := _grown(known, body, name)):
                opened, later = grown
                if later is not self._known[0]:
                    self._known.remove(known)
                    self.size -= len(known.beginning)
                    self._keep(later)
                return opened
        fields = slices.members(body)
        items = slices.items(fields.get(name, b""))
        if items and (fresh := _remembered(body, name, fields[name], items)):
            self._keep(fresh)
        return fields, items

    def _keep(self, body: _Body) -> None:
        """The newest stands first."""
        self._known.appendleft(body)
        self.size += len(body.beginning)
        while len(self._known) > BODIES or (self._known and self.size > self._most):
            self.size -= len(self._known.pop().beginning)


def _grown(known: _Body, body: bytes, name: str) -> tuple[Opened, _Body] | None:
    """`body`, which begins as `known`, read from there on; None where something else is there than more items."""
    border, opening = len(known.beginning), _opening(name)
    rest = opening + b"[" + NOUGHT + body[border:]
    try:
        behind = slices.members(rest)
        array = behind.pop(name)
        items = slices.items(array)
    except slices.NotSliced:
        return None
    if items[:1] != [NOUGHT] or not rest.startswith(array, len(opening)):
        return None  # no border of items, or the member is there twice
    end = border + len(array) - len(b"[" + NOUGHT)
    fields = {**known.front, name: body[known.start : end], **behind}
    if len(items) == 1:
        return (fields, known.items), known
    items = [*known.items, *items[1:]]
    return (fields, items), _Body(body[: _last(body, end)], known.start, known.front, items)


@lru_cache
def _opening(name: str) -> bytes:
    """An object up to the value of its first member."""
    return b"{" + slices.encoded(name) + b":"


def _remembered(body: bytes, name: str, array: bytes, items: list[bytes]) -> _Body | None:
    """`body` for those that go on from it; None where it cannot be told that the array stands where it seems to."""
    if (start := slices.found(body, array)) < 0:
        return None
    try:
        front = slices.members(body[:start] + b"[]}")
    except slices.NotSliced:
        return None
    if next(reversed(front)) != name or front.pop(name) != b"[]":
        return None
    return _Body(body[: _last(body, start + len(array))], start, front, items)


def _last(body: bytes, end: int) -> int:
    """Where the last item of an array ends that ends at `end`."""
    end -= 1
    while body[end - 1] in slices.SPACE:
        end -= 1
    return end
