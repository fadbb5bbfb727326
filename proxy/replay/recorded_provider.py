"""The upstream of a replay: it answers every request with what was recorded, and has a prompt cache as providers do.

What it is asked is kept, because that is what a replay is about. The law: **it knows nothing of the proxy**. It counts
and prices the bytes it got, and reports its usage as a provider would, cached and written tokens included, so that a
receipt and the economics stand on the same footing as behind `serve`.

What this module does not do: it refuses nothing and streams nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from proxy.accounting import PromptCacheModel, Tariff, tariff_for
from proxy.config import UpstreamSettings
from proxy.core.ledger import Request
from proxy.dialects import ParseCache, countable_text, countable_texts, with_token_counts
from proxy.replay.api.base import ReplayApi, ReplyMetadata
from proxy.replay.recording import Json, RecordedStep, encode_json
from proxy.upstream import Answer, RawHeaders, Upstream

UPSTREAM_NAME = "recorded"
UNRECORDED_ANSWER: Json = {"role": "assistant", "content": "(the answer to this request was not recorded)"}


class WholeAnswer(Answer):
    """A whole answer that is here already."""

    __slots__ = ("_body",)

    def __init__(self, body: bytes) -> None:
        self.status = 200
        self.headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        self._body = body

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._body

    async def aclose(self) -> None:
        """There is no connection to close."""


class RecordedProvider(Upstream):
    """Expects one step after the other, in one API. `count` counts the tokens of a text, `now` tells ms."""

    def __init__(
        self,
        api: ReplayApi,
        count: Callable[[str], int],
        now: Callable[[], int],
        tariff_of: Callable[[str], Tariff] = tariff_for,
    ) -> None:
        super().__init__(UPSTREAM_NAME, UpstreamSettings(url="http://recorded.invalid"))
        self._api, self._count, self._now, self._tariff_of = api, count, now, tariff_of
        self._known, self._cache = ParseCache(), PromptCacheModel()
        self._answer = self._unknown = api.answer_from_chat(UNRECORDED_ANSWER)
        self._told = 0
        self.received: list[Request] = []
        """What was asked in this step, in order: one request, and one more for each hidden round."""
        self.outputs: list[int] = []
        """The tokens that answered each of them."""

    def expect(self, step: RecordedStep) -> None:
        """The next request is the one of `step`."""
        self._answer = step.answer if step.answer is not None else self._unknown
        self.received, self.outputs = [], []

    async def send(self, method: str, path: str, query: bytes, headers: RawHeaders, body: bytes) -> Answer:
        """The recorded answer. A second round of the same turn gets it without calls of ours, which ran already."""
        request = self._parse_with_token_counts(body)
        answer = self._api.without_own_calls(self._answer) if self.received else self._answer
        self.received.append(request)
        return WholeAnswer(encode_json(self._reply(request, answer)))

    def _parse_with_token_counts(self, body: bytes) -> Request:
        request = self._api.dialect.parse_request(body, self._known)
        counts = [self._count(text) for text in countable_texts(request)]
        return with_token_counts(request, counts, self._known) if counts else request

    def _reply(self, request: Request, answer: Json) -> Json:
        key, tariff = ("", UPSTREAM_NAME, request.model), self._tariff_of(request.model)
        use = self._cache.record_request(key, self._api.cache_pieces(request), tariff, self._now())
        output = self._count(countable_text(self._api.as_message(answer)))
        self.outputs.append(output)
        self._told += 1
        return self._api.reply(answer, ReplyMetadata(self._told, request.model, self._now() // 1000), use, output)
