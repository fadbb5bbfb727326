"""From an answer to the writes on the socket: content coding, cuts, and where the delivery breaks.

Pure: `Delivery` is a plan. `server.py` carries it out and adds only time.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from llm_test_provider.answer import Cut, Ending, Framing, Headers, ScriptedAnswer


@dataclass(frozen=True, slots=True)
class Delivery:
    """One HTTP response, ready to be written. `ending` breaks it off where `pieces` stop."""

    status: int
    headers: Headers
    pieces: tuple[bytes, ...]
    rest: tuple[bytes, ...] = ()
    """What follows a stall."""
    framing: Framing = "length"
    ending: Ending | None = None
    pace_ms: float = 0
    delay_s: float = 0
    trailers: Headers = ()

    @property
    def length(self) -> int:
        """Bytes of the whole body, what a break keeps back included where it was announced."""
        return sum(map(len, self.pieces)) + sum(map(len, self.rest))


def deliver(
    answer: ScriptedAnswer, status: int, headers: Headers, events: Sequence[bytes], *, streamed: bool
) -> Delivery:
    """Plan the response with this body. A fixed or unstreamed body is one event."""
    coded = list(events)
    for coding in answer.encoding:
        coded = _coded(coded, coding)
    if answer.encoding:
        headers = (*headers, ("content-encoding", ", ".join(answer.encoding)))
    kept, rest = _divided(coded, answer.ending)
    return Delivery(
        status,
        _merged(headers, answer.headers),
        tuple(pieces(kept, answer.cut)),
        tuple(pieces(rest, answer.cut)),
        answer.framing or ("chunked" if streamed else "length"),
        answer.ending,
        answer.pace_ms,
        answer.delay_s,
        answer.trailers,
    )


def pieces(events: Sequence[bytes], cut: Cut) -> Iterator[bytes]:
    """The bytes of `events` in the writes that `cut` asks for."""
    if not cut.size:
        yield from filter(None, events)
        return
    body = b"".join(events)
    # Not for secrets: the seed makes the same cuts again.
    lengths = random.Random(cut.seed) if cut.seed is not None else None  # noqa: S311
    start = 0
    while start < len(body):
        size = lengths.randint(1, cut.size) if lengths else cut.size
        yield body[start : start + size]
        start += size


def _divided(events: list[bytes], ending: Ending | None) -> tuple[list[bytes], list[bytes]]:
    """What is sent before the delivery breaks, and what is not."""
    if ending is None:
        return events, []
    if ending.after_bytes is not None:
        body = b"".join(events)
        return [body[: ending.after_bytes]], [body[ending.after_bytes :]]
    count = ending.after_events or 0
    return events[:count], events[count:]


def _coded(events: Iterable[bytes], coding: str) -> list[bytes]:
    """Each event compressed and flushed, so that it can be read when it arrives."""
    packer = zlib.compressobj(wbits={"gzip": 31, "deflate": 15}[coding])
    coded = [packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH) for event in events]
    if not coded:
        return [packer.flush()]
    return [*coded[:-1], coded[-1] + packer.flush()]


def _merged(headers: Headers, others: Headers) -> Headers:
    replaced = {name.lower() for name, _ in others}
    return (*(header for header in headers if header[0].lower() not in replaced), *others)
