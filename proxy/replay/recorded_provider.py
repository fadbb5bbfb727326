"""The upstream of a replay: it answers every request with what was recorded, and has a prompt cache as providers do.

What it is asked is kept, because that is what a replay is about. The law: **it knows nothing of the proxy**. It counts
and prices the bytes it got, and reports its usage as a provider would, cached and written tokens included, so that a
receipt and the economics stand on the same footing as behind `serve`.

What this module does not do: it refuses nothing and streams nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from proxy.accounting import PrefixCache
from proxy.accounting.pricing import Tariff, tariff_for
from proxy.config.sections import UpstreamSettings
from proxy.core.ledger.messages import Request
from proxy.dialects import Known
from proxy.dialects.parse_cache import countable, countables, weighed
from proxy.replay.api.base import Api, Told
from proxy.replay.recording import Json, Step, encoded
from proxy.upstream.routing import Answer, RawHeaders, Upstream

NAME = "recorded"
NOT_RECORDED: Json = {"role": "assistant", "content": "(the answer to this request was not recorded)"}


class Whole(Answer):
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
        api: Api,
        count: Callable[[str], int],
        now: Callable[[], int],
        tariff_of: Callable[[str], Tariff] = tariff_for,
    ) -> None:
        super().__init__(NAME, UpstreamSettings(url="http://recorded.invalid"))
        self._api, self._count, self._now, self._tariff_of = api, count, now, tariff_of
        self._known, self._cache = Known(), PrefixCache()
        self._answer = self._unknown = api.spoken(NOT_RECORDED)
        self._told = 0
        self.received: list[Request] = []
        """What was asked in this step, in order: one request, and one more for each hidden round."""
        self.outputs: list[int] = []
        """The tokens that answered each of them."""

    def expect(self, step: Step) -> None:
        """The next request is the one of `step`."""
        self._answer = step.answer if step.answer is not None else self._unknown
        self.received, self.outputs = [], []

    async def send(self, method: str, path: str, query: bytes, headers: RawHeaders, body: bytes) -> Answer:
        """The recorded answer. A second round of the same turn gets it without calls of ours, which ran already."""
        request = self._weighed(body)
        answer = self._api.less_own_calls(self._answer) if self.received else self._answer
        self.received.append(request)
        return Whole(encoded(self._reply(request, answer)))

    def _weighed(self, body: bytes) -> Request:
        request = self._api.dialect.read(body, self._known)
        counts = [self._count(text) for text in countables(request)]
        return weighed(request, counts, self._known) if counts else request

    def _reply(self, request: Request, answer: Json) -> Json:
        key, tariff = ("", NAME, request.model), self._tariff_of(request.model)
        use = self._cache.use(key, self._api.pieces(request), tariff, self._now())
        output = self._count(countable(self._api.said(answer)))
        self.outputs.append(output)
        self._told += 1
        return self._api.reply(answer, Told(self._told, request.model, self._now() // 1000), use, output)
