"""Asks an embedding model for vectors of finished frames, beside the requests, and of queries, for the search by
meaning (`embeddings` in the configuration; off until a model is named there).

What is sent: title, criteria, results, files and decisions of a frame, and the words of a query, to that model's
upstream with the operator's key. No content is logged, and no request waits for a frame's vector.
"""

from __future__ import annotations

import asyncio
import logging
import math
import struct
import time
from collections import deque
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from hashlib import sha256

import msgspec

from proxy import __version__
from proxy.config import Config
from proxy.errors import ProxyError, UpstreamError
from proxy.exchange.background.own_requests import read_bounded
from proxy.store import FinishedFrame, FrameVector, QueryVector, Store
from proxy.upstream import Routes, Upstream, outgoing_headers

log = logging.getLogger(__name__)

EMBEDDINGS_PATH = "/v1/embeddings"
CHECK_INTERVAL_S = 1.0
KNOWN_INTERVAL_S = 0.05
"""Behind rows that have vectors: looking at them again must not slow down the filling of old ones."""
LOOK_AGAIN_S = 15.0
"""On a shared store, rows of the last two such times are looked at again: another replica may commit a row later than
one with a higher number. A transaction that stands still is ended within 2 s."""
FRAMES_PER_CHECK = 32
MAX_CHARACTERS = 4_000
"""Of a frame, from its beginning: about 1,000 tokens. The smallest windows of such models are 512."""
MAX_NUMBERS = 4_096
"""Of one vector; the largest models of 2026 make so many."""
MAX_ANSWER_BYTES = FRAMES_PER_CHECK * MAX_NUMBERS * 32
FRAMES_TIMEOUT_S = 60.0
QUERY_TIMEOUT_S = 1.5
"""A recall waits so long before it searches."""
PAUSE_S = 30.0
"""After a failure, in which nothing is asked: searches go by words alone, and at once."""
REFUSALS_OF_TEXT = frozenset({400, 413, 422, 500})
"""Statuses that may be about a text, such as one that is longer than the window: llama.cpp says 500."""
SHORTENED_CHARACTERS = 1_000
"""Of a frame whose text was refused, and of each query."""
ANY_WORD = "word"
"""Where this is refused too, it is not for the texts."""


class _TextRefused(UpstreamError):
    """The model does not take these texts, or at least one of them."""


class _Embedding(msgspec.Struct):
    embedding: list[float]
    index: int = 0


class _Answer(msgspec.Struct):
    data: list[_Embedding]


class RowCursor:
    """Numbers of rows that were looked at, on a store that others write to. Times are in seconds."""

    def __init__(self) -> None:
        self._upto = self._furthest = 0
        self._earlier = deque([0, 0], maxlen=2)
        self._goes_back_at = LOOK_AGAIN_S

    def next_after(self, now_s: float) -> int:
        """The row behind which to look on; from time to time one that was passed before."""
        if now_s >= self._goes_back_at:
            self._goes_back_at = now_s + LOOK_AGAIN_S
            self._upto = self._earlier[0]
            self._earlier.append(self._furthest)
        return self._upto

    def reached(self, number: int) -> None:
        self._upto, self._furthest = number, max(number, self._furthest)


@dataclass
class FrameEmbedder:
    """One per process."""

    upstream: Upstream
    model: str
    least_similarity: float
    store: Store
    _rests_until: float = field(default=0.0, init=False)
    """By the monotonic clock."""

    async def run(self) -> None:
        """Runs as long as the process."""
        cursor, began, pause_s = RowCursor(), time.monotonic(), CHECK_INTERVAL_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = CHECK_INTERVAL_S
            if time.monotonic() >= self._rests_until:
                passed_s = time.monotonic() - began if self.store.is_shared else 0.0
                try:
                    number, are_known = await self._embed_next(cursor.next_after(passed_s))
                    cursor.reached(number)
                    pause_s = KNOWN_INTERVAL_S if are_known else CHECK_INTERVAL_S
                except Exception as error:  # the outermost edge: no request hangs on it
                    self._rest(error)

    async def _embed_next(self, after: int) -> tuple[int, bool]:
        """The number of the last row that was looked at, and whether all had vectors and there are more."""
        found = await self.store.frames_to_embed(after, FRAMES_PER_CHECK)
        texts = [_text_of(each.frame) for each in found]
        digests = [sha256(f"{self.model}\n{text}".encode("utf-8", "replace")).digest() for text in texts]
        new = [number for number, each in enumerate(found) if each.made_of != digests[number]]
        if new:
            vectors = await self._ask_for_frames([texts[number] for number in new])
            await self.store.keep_vectors(
                [
                    FrameVector(found[number], self.model, digests[number], struct.pack(f"<{len(vector)}f", *vector))
                    for number, vector in zip(new, vectors, strict=True)
                    if vector is not None
                ]
            )
        return (found[-1].number if found else after), not new and len(found) == FRAMES_PER_CHECK

    async def _ask_for_frames(self, texts: Sequence[str]) -> Sequence[list[float] | None]:
        """None for a text that is refused. Raises as `_ask`, also where the model refuses every text."""
        try:
            return await self._ask(texts, FRAMES_TIMEOUT_S)
        except _TextRefused:
            await self._ask([ANY_WORD], FRAMES_TIMEOUT_S)
            return [await self._ask_alone(text) for text in texts]

    async def _ask_alone(self, text: str) -> list[float] | None:
        """A vector for the whole text, or for its beginning; None where both are refused. Raises as `_ask`."""
        for some in dict.fromkeys((text, text[:SHORTENED_CHARACTERS])):
            with suppress(_TextRefused):
                return (await self._ask([some], FRAMES_TIMEOUT_S))[0]
        return None

    async def query_vector(self, query: str) -> QueryVector | None:
        """None where the model does not answer: then there are words alone."""
        if time.monotonic() < self._rests_until:
            return None
        try:
            (vector,) = await self._ask([query[:SHORTENED_CHARACTERS]], QUERY_TIMEOUT_S)
        except _TextRefused as error:
            self._warn(error)  # this query's: frames, and the searches of others, go on
            return None
        except Exception as error:  # a search by words is better than none
            self._rest(error)
            return None
        return QueryVector(self.model, tuple(vector), self.least_similarity)

    def _rest(self, error: Exception) -> None:
        self._rests_until = time.monotonic() + PAUSE_S
        self._warn(error)

    def _warn(self, error: Exception) -> None:
        reason = error.code if isinstance(error, ProxyError) else type(error).__name__
        # Without the error's words: they may be content.
        log.warning("no vectors of finished frames", extra={"upstream": self.upstream.name, "reason": reason})

    async def _ask(self, texts: Sequence[str], timeout_s: float) -> list[list[float]]:
        """A vector of length 1 for each text. Raises ProxyError or TimeoutError."""
        asked = {"model": self.model, "input": [text.encode("utf-8", "replace").decode() for text in texts]}
        own = [
            (b"content-type", b"application/json"),
            (b"accept", b"application/json"),
            (b"user-agent", f"callstack-proxy/{__version__}".encode()),
        ]
        headers = outgoing_headers(own, self.upstream.settings, readable=True)
        async with asyncio.timeout(timeout_s):
            got = await self.upstream.send("POST", EMBEDDINGS_PATH, b"", headers, msgspec.json.encode(asked))
            async with aclosing(got):
                body = await read_bounded(got, MAX_ANSWER_BYTES)
        if got.status in REFUSALS_OF_TEXT:
            raise _TextRefused(f"the embedding model answered {got.status}", code=f"status_{got.status}")
        if got.status != 200 or body is None:
            raise UpstreamError(f"the embedding model answered {got.status}", code=f"status_{got.status}")
        return parse_vectors(body, len(texts))


def parse_vectors(body: bytes, count: int) -> list[list[float]]:
    """The vectors of an answer in the order of the texts, each of length 1. Raises UpstreamError where the answer is no
    such thing."""
    try:
        found = sorted(msgspec.json.decode(body, type=_Answer).data, key=lambda each: each.index)
    except (msgspec.DecodeError, RecursionError):
        found = []
    lengths = [math.hypot(*each.embedding) for each in found]
    if len(found) != count or not all(0 < length < math.inf for length in lengths):
        raise UpstreamError("the embedding model did not answer with a vector for each text", code="no_vectors")
    if any(len(each.embedding) > MAX_NUMBERS for each in found):
        raise UpstreamError(f"vectors of more than {MAX_NUMBERS} numbers are not kept", code="vectors_too_long")
    return [[number / length for number in each.embedding] for each, length in zip(found, lengths, strict=True)]


def _text_of(frame: FinishedFrame) -> str:
    parts = (frame.title, frame.criteria, frame.results, frame.noted)
    return "\n".join(part.strip() for part in parts if part.strip())[:MAX_CHARACTERS]


def build_frame_embedder(config: Config, routes: Routes, store: Store) -> FrameEmbedder | None:
    """None where it is off."""
    settings = config.embeddings
    if not settings.model:
        return None
    upstream = routes.upstreams[settings.upstream]
    return FrameEmbedder(
        upstream, upstream.settings.upstream_model_of(settings.model), settings.least_similarity, store
    )
