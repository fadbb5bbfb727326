"""The upstream of a replay: answers every request with the recorded answer, and has a prompt cache as providers do.

It counts and prices only the bytes it receives, and reports usage as a provider does, with cached and written tokens,
so that receipts mean the same as behind `serve`. It keeps the requests it received.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from callstack_proxy.replay.api.base import ReplayApi, ReplyMetadata
from callstack_proxy.replay.recording import Json, RecordedStep, encode_json
from proxy.accounting import PromptCacheModel, Tariff, hash_chain, tariff_for
from proxy.config import UpstreamSettings
from proxy.core.ledger import Request
from proxy.dialects import ParseCache, SliceCache, countable_text, countable_texts, with_token_counts
from proxy.upstream import Answer, RawHeaders, Upstream

UPSTREAM_NAME = "recorded"
UNRECORDED_ANSWER: Json = {"role": "assistant", "content": "(the answer to this request was not recorded)"}


class WholeAnswer(Answer):
    """An answer whose whole body is in memory."""

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
    """Expects one step after the other, in one API. `count` counts the tokens of a text, `now` returns ms, `slices` are
    the messages that the proxy has read and counted: what it passes on need not be read again."""

    def __init__(
        self,
        api: ReplayApi,
        count: Callable[[str], int],
        now: Callable[[], int],
        slices: SliceCache,
        tariff_of: Callable[[str], Tariff] = tariff_for,
    ) -> None:
        super().__init__(UPSTREAM_NAME, UpstreamSettings(url="http://recorded.invalid"))
        self._api, self._count, self._now, self._tariff_of = api, count, now, tariff_of
        self._known, self._cache = ParseCache(slices, api.dialect.name), PromptCacheModel()
        self._answer = self._unknown = api.answer_from_chat(UNRECORDED_ANSWER)
        self._told = 0
        self.received: list[Request] = []
        """The requests of this step, in order: one, and one more for each hidden round."""
        self.outputs: list[int] = []
        """The output tokens of each of their answers."""

    def expect(self, step: RecordedStep) -> None:
        """Take `step` as the next request."""
        self._answer = step.answer if step.answer is not None else self._unknown
        self.received, self.outputs = [], []

    async def send(self, method: str, path: str, query: bytes, headers: RawHeaders, body: bytes) -> Answer:
        """The recorded answer; from the second round of a turn without calls of stack tools, which already ran."""
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
        line = hash_chain(self._api.cache_pieces(request), self._api.dialect.unmarked_tokens(request, None))
        use = self._cache.record_request(key, line, tariff, self._now())
        output = self._count(countable_text(self._api.as_message(answer)))
        self.outputs.append(output)
        self._told += 1
        return self._api.reply(answer, ReplyMetadata(self._told, request.model, self._now() // 1000), use, output)
