"""The upstream that asks a provider through litellm.

An answer is passed on only when its first event has come, so that a refusal keeps its status; a later failure breaks
the stream. Closing an answer closes the provider's connection.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from proxy.config import UpstreamSettings
from proxy.dialects import OPENAI_CHAT, dialect_at
from proxy.errors import BadRequest, InvalidConfiguration, UpstreamClosed, UpstreamError
from proxy.upstream.http import Answer, RawHeaders, Upstream
from proxy.upstream.litellm.errors import ProviderRefusal, client_headers_of, refusal_of, stream_error_of
from proxy.upstream.litellm.loader import LibraryLoader, LitellmLibrary, unavailable_reason
from proxy.upstream.litellm.requests import LitellmFunction, build_arguments, function_at
from proxy.upstream.litellm.responses import STREAM_ENCODERS, StreamEncoder, UnfinishedStream, encode_body

JSON_HEADER = (b"content-type", b"application/json")
EVENT_STREAM_HEADER = (b"content-type", b"text/event-stream; charset=utf-8")
MAX_BUFFERED_EVENTS = 1000
"""Most events buffered between the provider's socket and us when a stream is closed."""


class CompleteAnswer(Answer):
    """An answer that has arrived completely."""

    __slots__ = ("_body",)

    def __init__(self, status: int, headers: RawHeaders, body: bytes) -> None:
        self.status = status
        self.headers = [JSON_HEADER, (b"content-length", str(len(body)).encode()), *headers]
        self._body = body

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._body

    async def aclose(self) -> None:
        """There is no connection to close."""


class StreamedAnswer(Answer):
    """An answer in progress. `first` is its first event; `idle_timeout_s` bounds the wait for the next."""

    __slots__ = ("_first", "_name", "_silence_s", "_stream", "_telling")

    def __init__(self, stream: Any, first: bytes, telling: StreamEncoder, upstream: LitellmUpstream) -> None:
        self.status = 200
        self.headers = [EVENT_STREAM_HEADER, *_answer_headers(stream)]
        self._stream = stream
        self._first = first
        self._telling = telling
        self._name = upstream.name
        self._silence_s = upstream.settings.idle_timeout_s

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._first
        try:
            while (event := await _next_event(self._stream, self._silence_s)) is not None:
                yield self._telling.encode(event)
            yield self._telling.finish()
        except Exception as error:  # litellm raises what its providers' own clients raise
            raise stream_error_of(error, self._name) from error
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """litellm's own `close` leaves some providers' connections open if the stream is between two events. Cancelling
        a read closes every one, so a read is started for that."""
        stream, self._stream = self._stream, None
        for _ in range(MAX_BUFFERED_EVENTS if stream is not None else 0):
            reading = asyncio.ensure_future(anext(stream, None))
            await asyncio.sleep(0)
            over = not reading.done()
            reading.cancel()
            await asyncio.wait([reading])
            if over or reading.cancelled() or reading.exception() or reading.result() is None:
                break
        if hasattr(stream, "aclose"):
            await stream.aclose()


class LitellmUpstream(Upstream):
    """One or several providers behind litellm. Raises InvalidConfiguration if litellm cannot be used."""

    def __init__(self, name: str, settings: UpstreamSettings) -> None:
        super().__init__(name, settings)
        if reason := unavailable_reason():
            raise InvalidConfiguration(f"upstreams.{name}.kind: {reason}")
        self._loader = LibraryLoader()

    def warm(self) -> None:
        self._loader.begin()

    async def send(self, method: str, path: str, query: bytes, headers: RawHeaders, body: bytes) -> Answer:
        entry = function_at(method, path)
        if entry is None:
            return _refusal_answer(
                path, ProviderRefusal(404, f"{method} {path} is not there through litellm.", "not_found", [])
            )
        library = await self._loader.library()
        if library.function(entry.name) is None:
            return _refusal_answer(
                path, ProviderRefusal(404, f"This version of litellm has no {entry.wire_format}.", "not_found", [])
            )
        try:
            given = build_arguments(entry, _parse_body(body), headers, self.settings, library)
            return await self._call(entry, library, given)
        except BadRequest as error:
            return _refusal_answer(path, ProviderRefusal(error.status, str(error), error.code, []))
        except UnfinishedStream as error:
            raise UpstreamClosed(f"upstream {self.name} ended its answer before it began. Ask again.") from error
        except UpstreamError:
            raise
        except Exception as error:  # litellm raises what its providers' own clients raise; each is an answer
            return _refusal_answer(path, refusal_of(error, self.name))

    async def _call(self, entry: LitellmFunction, library: LitellmLibrary, given: dict[str, Any]) -> Answer:
        async with asyncio.timeout(self.settings.connect_timeout_s + self.settings.idle_timeout_s):
            got = await library.function(entry.name)(**given)
        if not given.get("stream"):
            return CompleteAnswer(200, _answer_headers(got), encode_body(got))
        stream = aiter(got)
        telling = STREAM_ENCODERS[entry.wire_format](stream)
        event = await _next_event(stream, self.settings.idle_timeout_s)
        return StreamedAnswer(stream, telling.finish() if event is None else telling.encode(event), telling, self)

    async def aclose(self) -> None:
        """Close litellm's connections. All its upstreams share one pool."""
        library = self._loader.loaded
        close = library.function("close_litellm_async_clients") if library is not None else None
        if close is not None:
            await close()


async def _next_event(stream: Any, silence_s: float) -> Any:
    """The next event; None at the end."""
    async with asyncio.timeout(silence_s):
        return await anext(stream, None)


def _parse_body(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError as error:
        raise BadRequest(f"The body is not JSON: {error}. Send an object as this API has it.") from error
    if not isinstance(found, dict):
        raise BadRequest("The body is JSON, but no object. Send an object as this API has it.")
    return found


def _refusal_answer(path: str, refusal: ProviderRefusal) -> CompleteAnswer:
    """A refusal in the shape of the requested API."""
    dialect = dialect_at(path) or OPENAI_CHAT
    return CompleteAnswer(
        refusal.status, refusal.headers, dialect.error_body(refusal.status, refusal.message, refusal.code)
    )


def _answer_headers(got: Any) -> RawHeaders:
    hidden = getattr(got, "_hidden_params", None)
    return client_headers_of(hidden.get("additional_headers")) if isinstance(hidden, dict) else []
