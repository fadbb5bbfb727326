"""Which files an agent would have to read again before its edits, because the text that they replace had left.

A recorded agent had all of it in sight, so its recording holds no such step: it is counted here, and priced as one more
request. An edit names the exact lines that it replaces. Lines that stood in what the client sent, and not in what was
sent for it, have left. A file that was read again need not be read once more for a while.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from callstack_proxy.filemap import FileEdit, file_changes_of
from callstack_proxy.replay.loss import ObservedRequest
from proxy.accounting import Tariff
from proxy.core.ledger import Message, Request
from proxy.core.observers import ToolExecution, ToolRoles, decode_json_or_text, texts_in

MIN_LINE = 12
"""Characters of a line from which on it counts: braces and `return` are everywhere."""
REQUESTS_WITHOUT_READING = 15
"""For so many requests a file that was read again is taken to be in sight."""
MAX_READ_TOKENS, REQUESTS_IN_CONTEXT, CALL_TOKENS = 8_000, 10, 80
"""Of a file that is read again: at most so many tokens, in the context for so many requests; the call that reads it."""
MILLION = 1_000_000
_LINE_NUMBER = re.compile(r"^\s*\d+[→\t|:]")


class ReadsNeeded:
    """Tracks one recording. `tariff` prices its model; `times` and `cost` (USD) are so far."""

    def __init__(self, tariff: Tariff, names: ToolRoles) -> None:
        self._tariff, self._names = tariff, names
        self._lines: dict[str, frozenset[int]] = {}
        self._read_at: dict[tuple[str, str], int] = {}
        self.times = 0
        self.cost = 0.0

    def observe(self, seen: ObservedRequest) -> None:
        """A request and its recorded answer, in their order."""
        if seen.answer is None or seen.sent.body == seen.client.body:
            return
        for path, wanted in self._edits_in(seen.answer):
            here = (seen.conversation, path)
            if self._read_at.get(here, -REQUESTS_WITHOUT_READING) + REQUESTS_WITHOUT_READING > seen.number:
                continue
            source, held = self._newest_source(wanted, seen.client.messages)
            if source is not None and not self._stand_in(held, seen.sent):
                self._read_at[here] = seen.number
                self.times += 1
                self.cost += self._price(seen.sent, source)

    def _edits_in(self, answer: Message) -> Iterator[tuple[str, frozenset[int]]]:
        """Each edited file, with the lines that the edit replaces."""
        for call in answer.calls:
            for change in file_changes_of(ToolExecution(call, ""), self._names):
                if isinstance(change, FileEdit) and (lines := frozenset(_long_lines(change.old))):
                    yield change.path, lines

    def _newest_source(
        self, wanted: frozenset[int], messages: Iterable[Message]
    ) -> tuple[Message | None, frozenset[int]]:
        """The newest message that holds most of the lines, and those that stand in any message."""
        source, most, held = None, 0, frozenset[int]()
        for message in messages:
            here = wanted & self._lines_of(message)
            if len(here) >= most and here:
                source, most = message, len(here)
            held |= here
        return source, held

    def _stand_in(self, lines: frozenset[int], sent: Request) -> bool:
        for message in reversed(sent.messages):
            lines -= self._lines_of(message)
            if not lines:
                return True
        return False

    def _lines_of(self, message: Message) -> frozenset[int]:
        known = self._lines.get(message.identity)
        if known is None:
            texts = [message.text, *(t for c in message.calls for t in texts_in(decode_json_or_text(c.arguments)))]
            known = self._lines[message.identity] = frozenset(line for text in texts for line in _long_lines(text))
        return known

    def _price(self, sent: Request, source: Message) -> float:
        """One more request: what was sent from the cache, the call, and the file, which then stays for a while."""
        tariff, size = self._tariff, min(source.tokens, MAX_READ_TOKENS)
        before = sent.tokens
        read = tariff.read * (before + REQUESTS_IN_CONTEXT * size) + tariff.write * (size + CALL_TOKENS)
        return (read * tariff.input + CALL_TOKENS * (tariff.output or 0.0)) / MILLION


def _long_lines(text: str) -> Iterator[int]:
    """By a hash: texts are large, and many."""
    for line in text.splitlines():
        bare = _LINE_NUMBER.sub("", line, count=1).strip()
        if len(bare) >= MIN_LINE:
            yield hash(bare)
