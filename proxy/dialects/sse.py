"""Splits a stream of server-sent events into events, as bytes.

The raw bytes of all events, joined, are the input, and the result does not depend on how the network cuts it. An event
that is passed on unchanged is exact to its last line ending, and only `data` is read. Line ends are LF, CRLF or CR;
U+2028 and U+0085 are text. Nothing is decoded, so half a character or invalid UTF-8 does no harm.
"""

from __future__ import annotations

import re

import msgspec

MAX_EVENT_BYTES = 8 * 1024 * 1024
"""Bytes of one event that are held back; a longer one passes as raw bytes whose data is not read."""
SHORT = 256 * 1024
"""Bytes that are split at once; beyond, a long event would be copied again with each of its pieces."""
# Read as text it hides the first event, which in messages is the one with the id and the usage of the prompt; common
# libraries drop that event.
BOM = b"\xef\xbb\xbf"
_LF, _CR = b"\n\r"
"""As numbers: to look for one so takes a tenth of the time, for CPython first tries to make a number of bytes."""

# A blank line: a line end behind a line end. The last one may be CR whose LF is still on its way, so it waits for one
# more byte; that byte never comes behind a second CR, which ends its line alone.
# The last event of a stream may lack its blank line; libraries drop it, and with it `[DONE]` or the usage. U+2028 is no
# line end here: inside of a JSON string it would cut the event in two (httpx does).
_BLANK_LINE = re.compile(rb"\n\n|\n\r\n|\n\r(?=[^\n])|\r\r")
_LINE_END = re.compile(rb"\r\n|\n|\r")


class SseEvent(msgspec.Struct, frozen=True, gc=False):
    """One event up to and including its blank line. `data` is empty for comments, blank lines and what was too long.

    A Struct and not a dataclass because one is made per token of an answer: a fifth of the time.
    """

    raw: bytes
    data: bytes


class SseDecoder:
    """Bytes in, whole events out. `feed` or `said`, and `end`, may be called with any cut of a stream."""

    __slots__ = ("_begun", "_held", "_passing")

    def __init__(self) -> None:
        self._held = bytearray()
        self._begun = False
        self._passing = False
        """An event beyond LIMIT is being passed in pieces."""

    @property
    def is_between_events(self) -> bool:
        """Nothing of a started event has been given out yet: a comment may be put here."""
        return not self._passing

    def feed(self, chunk: bytes) -> list[SseEvent]:
        if self._passing or len(self._held) + len(chunk) > SHORT:
            return self._split_any_line_ends(chunk)
        joined = bytes(self._held) + chunk if self._held else chunk
        return self._split_any_line_ends(chunk) if _CR in joined else self._split_lf(joined)

    def feed_data(self, chunk: bytes) -> list[bytes]:
        """The data of the events that `feed` would give, for who wants nothing else: a sixth of the time."""
        if self._held or not self._begun or self._passing or len(chunk) > SHORT or _CR in chunk:
            return [event.data for event in self.feed(chunk)]
        if chunk.startswith(b"data: ") and chunk.endswith(b"\n\n"):
            said = chunk[6:-2].split(b"\n\ndata: ")
            if chunk.count(b"\n") == 2 * len(said):  # every event is one line
                return said
        parts = chunk.split(b"\n\n")
        self._held += parts.pop()
        return [part[6:] if part.startswith(b"data: ") and _LF not in part else data_of(part) for part in parts]

    def end(self) -> list[SseEvent]:
        """What is left when the stream ends: an event without its blank line."""
        raw, self._held = bytes(self._held), bytearray()
        return [self._event(raw)] if raw else []

    def _split_lf(self, joined: bytes) -> list[SseEvent]:
        """The common shape, LF line ends: a blank line is two of them."""
        parts = joined.split(b"\n\n")
        self._held[:] = parts.pop()
        found = []
        for part in parts:
            if part.startswith(b"data: ") and _LF not in part:
                self._begun = True
                found.append(SseEvent(part + b"\n\n", part[6:]))
            else:
                found.append(self._event(part + b"\n\n"))
        return found

    def _split_any_line_ends(self, chunk: bytes) -> list[SseEvent]:
        held = self._held
        # Two bytes before the new ones may be the first half of a blank line.
        searched = max(0, len(held) - 2)
        held += chunk
        found: list[SseEvent] = []
        start = 0
        while border := _BLANK_LINE.search(held, max(start, searched)):
            raw = bytes(held[start : border.end()])
            start = searched = border.end()
            found.append(self._rest(raw) if self._passing else self._event(raw))
        del held[:start]
        if self._passing or len(held) > MAX_EVENT_BYTES:
            self._passing = True
            if len(held) > 2:
                found.append(SseEvent(bytes(held[:-2]), b""))
                del held[:-2]
        return found

    def _rest(self, raw: bytes) -> SseEvent:
        self._passing = False
        return SseEvent(raw, b"")

    def _event(self, raw: bytes) -> SseEvent:
        first, self._begun = not self._begun, True
        if len(raw) > MAX_EVENT_BYTES or self._passing:
            return SseEvent(raw, b"")
        return SseEvent(raw, data_of(raw.removeprefix(BOM) if first else raw))


def encode_event(kind: str, data: bytes) -> bytes:
    """An event of this type. JSON that came in several lines leaves in one: between its tokens a line end says nothing,
    and inside a text there is none."""
    return b"event: " + kind.encode() + b"\ndata: " + data.replace(b"\n", b" ") + b"\n\n"


def data_of(raw: bytes) -> bytes:
    """The data lines of one event, joined by LF."""
    lines = []
    for line in _LINE_END.split(raw):
        field, _, said = line.partition(b":")
        if field == b"data":
            lines.append(said.removeprefix(b" "))
    return b"\n".join(lines)
