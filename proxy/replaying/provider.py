"""The upstream of a replay: it answers every request with what was recorded, and has a prompt cache as providers do.

What it is asked is kept, because that is what a replay is about. The law: **it knows nothing of the proxy**. It counts
and prices the bytes it got, and reports its usage as a provider would, cached and written tokens included, so that a
receipt and the economics stand on the same footing as behind `serve`.

What this module does not do: it refuses nothing and streams nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from proxy.bookkeeping import client_chain
from proxy.config import UpstreamSettings
from proxy.dialects import OPENAI_CHAT, Known
from proxy.dialects.chat_message import read_message
from proxy.dialects.known import countable, countables, weighed
from proxy.replaying.recording import Json, Step, encoded
from proxy.report import CacheUse, PrefixCache
from proxy.stack.transcript import Request, is_stack_tool
from proxy.tariffs import Tariff, tariff_for
from proxy.upstream import Answer, RawHeaders, Upstream

NAME = "recorded"
NOT_RECORDED: Json = {"role": "assistant", "content": "(the answer to this request was not recorded)"}
NOTHING_MORE = "(nothing more of this turn was recorded)"


class Told(Answer):
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
    """Expects one step after the other. `count` counts the tokens of a text, `now` tells ms."""

    def __init__(
        self, count: Callable[[str], int], now: Callable[[], int], tariff_of: Callable[[str], Tariff] = tariff_for
    ) -> None:
        super().__init__(NAME, UpstreamSettings(url="http://recorded.invalid"))
        self._count, self._now, self._tariff_of = count, now, tariff_of
        self._known, self._cache = Known(), PrefixCache()
        self._answer: Json = NOT_RECORDED
        self.received: list[Request] = []
        """What was asked in this step, in order: one request, and one more for each hidden round."""

    def expect(self, step: Step) -> None:
        """The next request is the one of `step`."""
        self._answer = step.answer if step.answer is not None else NOT_RECORDED
        self.received = []

    async def send(self, method: str, path: str, query: bytes, headers: RawHeaders, body: bytes) -> Answer:
        """The recorded answer. A second round of the same turn gets it without calls of ours, which ran already."""
        request = self._weighed(body)
        message = _without_own_calls(self._answer) if self.received else self._answer
        self.received.append(request)
        return Told(encoded(self._completion(request, message)))

    def _weighed(self, body: bytes) -> Request:
        request = OPENAI_CHAT.read(body, self._known)
        counts = [self._count(text) for text in countables(request)]
        return weighed(request, counts, self._known) if counts else request

    def _completion(self, request: Request, message: Json) -> dict[str, Any]:
        key, tariff = ("", NAME, request.model), self._tariff_of(request.model)
        use = self._cache.use(key, client_chain(request), tariff, self._now())
        output = self._count(countable(read_message(encoded(message))))
        return {
            "id": f"chatcmpl-recorded-{len(self.received)}",
            "object": "chat.completion",
            "created": self._now() // 1000,
            "model": request.model,
            "choices": [{"index": 0, "message": message, "finish_reason": _finish(message)}],
            "usage": _usage(use, output),
        }


def _usage(use: CacheUse, output: int) -> dict[str, Any]:
    return {
        "prompt_tokens": use.total,
        "completion_tokens": output,
        "total_tokens": use.total + output,
        "prompt_tokens_details": {"cached_tokens": use.cached, "cache_write_tokens": use.written},
    }


def _finish(message: Json) -> str:
    return "tool_calls" if message.get("tool_calls") else "stop"


def _without_own_calls(message: Json) -> Json:
    """What is left of a recorded answer for the client."""
    calls = [call for call in message.get("tool_calls") or () if not is_stack_tool(_name(call))]
    rest = {name: value for name, value in message.items() if name != "tool_calls"}
    if calls:
        return {**rest, "tool_calls": calls}
    return {**rest, "content": rest.get("content") or NOTHING_MORE}


def _name(call: Json) -> str:
    function = call.get("function")
    return str(function.get("name", "")) if isinstance(function, dict) else ""
