"""Messages of ours in the wire format of a dialect, with token counts.

The same text is always the same bytes. Written messages are cached, because the context is built anew per request.
Safe to call from several threads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

from msgspec.structs import replace

from proxy.core.ledger import Message
from proxy.core.memo import RecentCache
from proxy.dialects import Dialect
from proxy.dialects.parse_cache import countable_text

MAX_CACHED_BYTES = 2 << 20
"""Of all written messages kept, and as much again of joined ones."""


class DialectComposer:
    """A `MessageComposer` of the core. `count` counts the tokens of a text."""

    def __init__(self, dialect: Dialect, count: Callable[[str], int], max_bytes: int = MAX_CACHED_BYTES) -> None:
        self._dialect = dialect
        self._count = count
        self._written = RecentCache[tuple[str, str, str], Message](max_bytes)
        self._joined = RecentCache[tuple[bytes, bytes], Message](max_bytes)

    def tool_result(self, call: str, text: str) -> Message:
        return self._cached("tool", call, text, lambda: self._dialect.tool_result(call, text))

    def user_message(self, text: str) -> Message:
        return self._cached("user", "", text, lambda: self._dialect.user_message(text))

    def without_reasoning(self, message: Message) -> Message:
        return self._dialect.without_reasoning(message)

    def without_unneeded_reasoning(self, message: Message) -> Message:
        return (self._dialect.without_unneeded_reasoning or self._dialect.without_reasoning)(message)

    def without_calls(self, message: Message, calls: Collection[str]) -> Message:
        """A produced message less these calls."""
        fewer = partial(self._dialect.without_calls, message, calls)
        return self._cached("fewer", ",".join(sorted(calls)), message.wire.decode("latin-1"), fewer)

    def with_content(self, message: Message, text: str) -> Message:
        """A stored result in other words."""
        return self._cached(message.role, message.identity, text, lambda: self._dialect.with_content(message, text))

    def joined(self, first: Message, second: Message) -> Message | None:
        """A user message or a result with the content of a user message behind its own; None where that cannot be
        written."""
        key = (first.wire, second.wire)
        if (known := self._joined.find(key)) is not None:
            return known
        made = self._dialect.joined(first, second)
        return made and self._joined.keep(key, made, _kept_bytes(key, made))

    def assistant_message(self, text: str) -> Message:
        return self._cached("assistant", "", text, lambda: self._dialect.assistant_message(text))

    def parse_appended_tools(self, wire: str) -> Message:
        """What a thread was given when it woke, where that stands among its messages."""
        how = self._dialect.appended_tools
        return self._cached(
            "appended", "", wire, lambda: how.parse(wire.encode()) if how else self._dialect.user_message("")
        )

    def with_token_count(self, message: Message) -> Message:
        """A produced message with its tokens counted."""
        return replace(message, tokens=self._count(countable_text(message)))

    def _cached(self, role: str, call: str, text: str, write: Callable[[], Message]) -> Message:
        key = (role, call, text)
        if (known := self._written.find(key)) is not None:
            return known
        made = self.with_token_count(write())
        return self._written.keep(key, made, _kept_bytes(key, made))


def _kept_bytes(key: Sequence[str | bytes], message: Message) -> int:
    return message.memory_bytes + sum(map(len, key))
