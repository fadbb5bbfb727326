"""One answer played through its rounds, in whatever dialect: shared by the tests of this folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from proxy.core.ledger.messages import ModelResponse
from proxy.dialects import ResponseWriter

SSE = "text/event-stream; charset=utf-8"
JSON = "application/json"


@dataclass
class StreamResult:
    """What came of it: the client's bytes, all of them and with every chunk, and each round as it was produced."""

    out: bytes
    pieces: list[bytes]
    spoken: list[ModelResponse]
    answer: ResponseWriter


def cut(stream: bytes, places: Sequence[int]) -> list[bytes]:
    borders = [0, *sorted(p % (len(stream) + 1) for p in places), len(stream)]
    return [stream[a:b] for a, b in pairwise(borders)]


def played(
    answer: ResponseWriter, rounds: Sequence[bytes], places: Sequence[int], kind: str = SSE, *, encoded: bool = False
) -> StreamResult:
    """All `rounds` through one answer, each cut at `places`. `kind` is their content type."""
    pieces, spoken = [], []
    for body in rounds:
        answer.begin_round(200, kind, encoded=encoded)
        pieces += [answer.feed(chunk) for chunk in cut(body, places)]
        spoken.append(answer.end_round(complete=True))
    pieces.append(answer.finish())
    return StreamResult(b"".join(pieces), pieces, spoken, answer)
