"""Messages that are ours, written in the dialect of the line and weighed.

The law: the same text is the same bytes, always. What was written once is remembered, because a line is assembled
anew for every request and a result must not be written, read and counted each time. Threads may write at the same time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from functools import partial

from msgspec.structs import replace

from proxy.core.ledger.messages import Message
from proxy.dialects import Dialect
from proxy.dialects.parse_cache import countable

REMEMBERED = 4096
"""Written messages kept."""


class Writer:
    """A `stack.context.Scribe`. `count` counts the tokens of a text."""

    def __init__(self, dialect: Dialect, count: Callable[[str], int]) -> None:
        self._dialect = dialect
        self._count = count
        self._written: OrderedDict[tuple[str, str, str], Message] = OrderedDict()

    def tool_result(self, call: str, text: str) -> Message:
        return self._kept("tool", call, text, lambda: self._dialect.tool_result(call, text))

    def user_message(self, text: str) -> Message:
        return self._kept("user", "", text, lambda: self._dialect.user_message(text))

    def without_reasoning(self, message: Message) -> Message:
        return self._dialect.without_reasoning(message)

    def without_calls(self, message: Message, calls: Collection[str]) -> Message:
        """A produced message less these calls."""
        fewer = partial(self._dialect.without_calls, message, calls)
        return self._kept("fewer", ",".join(sorted(calls)), message.wire.decode("latin-1"), fewer)

    def retold(self, message: Message, text: str) -> Message:
        """A stored result in other words."""
        return self._kept(message.role, message.identity, text, lambda: self._dialect.retold(message, text))

    def appended(self, wire: str) -> Message:
        """What a thread was given when it woke, where that stands among its messages."""
        how = self._dialect.appending
        return self._kept(
            "appended", "", wire, lambda: how.read(wire.encode()) if how else self._dialect.user_message("")
        )

    def weighed(self, message: Message) -> Message:
        """A produced message with its tokens counted."""
        return replace(message, tokens=self._count(countable(message)))

    def _kept(self, role: str, call: str, text: str, write: Callable[[], Message]) -> Message:
        """Any thread may ask, so each step leaves nothing for another one to trip over: two may write the same."""
        key = (role, call, text)
        made = self._written.pop(key, None)
        if made is None:
            made = self.weighed(write())
        self._written[key] = made
        if len(self._written) > REMEMBERED:
            self._written.popitem(last=False)
        return made
