"""What a scripted model says, and how well or badly the wire carries it.

An `Answer` is one value: the words (text, reasoning, calls), how they are cut and paced, and at most one way in which
the delivery goes wrong. Builders below make the common ones readable in a test; `Answer.but` changes any field of
one.

Its one law: an answer knows nothing of the request it will meet, not even its dialect. What depends on the request
(ids, token counts, templates) is filled in by `model.py`; what the bytes look like is decided by the writer of each
dialect: `completion.py`, `messages_wire.py`, `responses_wire.py`.

What the request and the provider decide about an answer, for whichever dialect writes it down.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from llm_test_provider.error_texts import Wording, overflow_wording, throttle_wording

JsonObject = dict[str, Any]
Headers = tuple[tuple[str, str], ...]
Framing = Literal["chunked", "length", "close"]
How = Literal["close", "truncate", "reset", "half_close", "stall"]

JSON_TYPE = ("content-type", "application/json")
EVENT_STREAM_TYPE = ("content-type", "text/event-stream; charset=utf-8")


# ------------------------------------------------------------------------------------------------------------- values
@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """One tool call. A string as `arguments` is sent as it stands, so a model that writes broken JSON can be played.

    An empty `id` is numbered by the provider. `signature` travels as `extra_content.google.thought_signature`.
    """

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str = ""
    signature: str = ""

    def arguments_text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts to report. `prompt` contains `cached` and `written`, `completion` contains `reasoning`, and
    `written` contains `written_long`: what a request wanted stored for an hour."""

    prompt: int
    completion: int
    cached: int = 0
    written: int = 0
    reasoning: int = 0
    written_long: int = 0


@dataclass(frozen=True, slots=True)
class Cut:
    """How the body is divided into writes. `size` 0 keeps events whole; with a `seed`, `size` is the longest piece."""

    size: int = 0
    seed: int | None = None


WHOLE_EVENTS = Cut()
EVERY_BYTE = Cut(1)


@dataclass(frozen=True, slots=True)
class Ending:
    """How the delivery breaks, after so many bytes or events of the body; with neither, right behind the head.

    close: FIN. truncate: FIN inside an announced chunk. reset: RST. half_close: FIN, but the socket stays open for
    reading. stall: silence for `seconds` (infinity: until the client leaves) or, where it is given, until `until` says
    True; then the rest follows.
    """

    how: How
    after_bytes: int | None = None
    after_events: int | None = None
    seconds: float = float("inf")
    until: Callable[[], bool] | None = None


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """An error in the middle of a stream that began as 200. What would have followed it is not sent."""

    error: Mapping[str, Any]
    after_events: int = 0
    with_choices: bool = False
    """Chat completions: put an empty choice with the finish "error" beside it, as OpenRouter does."""
    then_done: bool = False
    as_failed: bool = False
    """Responses: say `response.failed` in place of `error`."""


@dataclass(frozen=True, slots=True)
class ApiError:
    """An error as every API tells it: words, and what kind of error it is where the status does not say so."""

    message: str
    kind: str = "invalid_request_error"
    code: int | str | None = None
    param: str | None = None


@dataclass(frozen=True, slots=True)
class FixedReply:
    """A fixed HTTP reply that stands in for a model's answer."""

    status: int
    body: bytes = b""
    headers: Headers = (JSON_TYPE,)
    error: ApiError | None = None
    """What `body` says, for an API that puts its errors into another shape; `None` sends the body as it stands."""


@dataclass(frozen=True, slots=True)
class LengthRefusal:
    """A refusal for length in the words of whichever API is asked. Counts are tokens."""

    used: int
    window: int


@dataclass(frozen=True, slots=True)
class ScriptedAnswer:
    """One answer of the scripted model and how it travels."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    finish: str | None = None
    """`None` says `tool_calls` where there are calls, else `stop`."""
    usage: Usage | None = None
    """`None` reports what the provider counted."""

    redacted: bool = False
    """Messages: the reasoning is data that nobody can read."""
    own: tuple[JsonObject, ...] = ()
    """Messages, responses: blocks or items of the API's own making, such as what its tools did or a compaction. They
    stand between reasoning and text, as they are."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further members of the answer's object; in streams of the messages API they come with its end."""

    instead: FixedReply | LengthRefusal | bytes | None = None
    """A fixed reply; as bytes, what to write on the socket in place of any HTTP."""
    error: ErrorEvent | None = None
    ending: Ending | None = None

    cut: Cut = WHOLE_EVENTS
    pace_ms: float = 0
    """Milliseconds between two writes."""
    delay_s: float = 0
    """Seconds of silence before the first byte, the status line included."""
    piece: int = 12
    """Characters of text, reasoning and arguments in one delta."""
    events: tuple[str, ...] = ()
    """Names from `event_forms.FORMS`."""
    call_forms: tuple[str, ...] = ()
    """Names from `call_forms.FORMS`."""
    reasoning_fields: tuple[str, ...] = ("reasoning_content",)
    """Any of `reasoning_content`, `reasoning`, `reasoning_details`."""
    encoding: tuple[str, ...] = ()
    """Content codings in the order applied: `gzip`, `deflate`; twice `gzip` is gzip inside gzip."""
    framing: Framing | None = None
    """`None`: chunked for streams, `content-length` for the rest."""
    headers: Headers = ()
    """Added to the response, replacing one of the same name."""
    trailers: Headers = ()
    """Headers behind a chunked body."""

    def but(self, **changes: Any) -> ScriptedAnswer:
        """The same answer with some fields changed."""
        return replace(self, **changes)


# ------------------------------------------------------------------------------------------------------- plain answers
def says(text: str, **options: Any) -> ScriptedAnswer:
    return ScriptedAnswer(text=text, **options)


def call(name: str, /, **arguments: Any) -> ScriptedCall:
    return ScriptedCall(name, arguments)


def calls(name: str, /, **arguments: Any) -> ScriptedAnswer:
    """An answer that is one tool call."""
    return ScriptedAnswer(calls=(call(name, **arguments),))


def answers(text: str = "", calls: Sequence[ScriptedCall] = (), reasoning: str = "", **options: Any) -> ScriptedAnswer:
    return ScriptedAnswer(text=text, calls=tuple(calls), reasoning=reasoning, **options)


# -------------------------------------------------------------------------------------------------------------- faults
def status(
    code: int, *, headers: Mapping[str, str] | None = None, body: JsonObject | str | bytes | None = None
) -> ScriptedAnswer:
    """An error reply. `body` as text or bytes is sent as it stands; left out, it is the API's own error object."""
    if body is not None:
        return ScriptedAnswer(instead=FixedReply(code, _encoded(body), _with_type(headers)))
    error = ApiError(f"Scripted status {code}.", "scripted_error", str(code))
    return ScriptedAnswer(instead=error_reply(code, error, _with_type(headers)))


def cut(answer: ScriptedAnswer, *, after_bytes: int | None = None, after_events: int | None = None) -> ScriptedAnswer:
    """The connection ends (FIN) in mid-answer."""
    return answer.but(ending=Ending("close", after_bytes, after_events))


def truncated(
    answer: ScriptedAnswer, *, after_bytes: int | None = None, after_events: int | None = None
) -> ScriptedAnswer:
    """The connection ends inside a chunk whose announced length was greater."""
    return answer.but(ending=Ending("truncate", after_bytes, after_events))


def reset(answer: ScriptedAnswer, *, after_bytes: int | None = None, after_events: int | None = None) -> ScriptedAnswer:
    """The connection is reset (RST) in mid-answer."""
    return answer.but(ending=Ending("reset", after_bytes, after_events))


def half_close(
    answer: ScriptedAnswer, *, after_bytes: int | None = None, after_events: int | None = None
) -> ScriptedAnswer:
    """The provider stops sending but keeps the socket open."""
    return answer.but(ending=Ending("half_close", after_bytes, after_events))


def stall(
    answer: ScriptedAnswer,
    seconds: float = float("inf"),
    *,
    after_bytes: int | None = None,
    after_events: int | None = None,
    until: Callable[[], bool] | None = None,
) -> ScriptedAnswer:
    """Silence in mid-answer for `seconds`, or until `until` says True; for silence before the first byte use
    `delay_s`."""
    return answer.but(ending=Ending("stall", after_bytes, after_events, seconds, until))


def error_chunk(
    answer: ScriptedAnswer, message: str = "Provider returned error", *, code: int | str = 502, after_events: int = 0
) -> ScriptedAnswer:
    """A stream that turns into an error event. For its odder shapes set `Answer.error` yourself."""
    error = {"message": message, "type": "server_error", "code": code}
    return answer.but(error=ErrorEvent(error, after_events))


def overflow(wording: int | str | None = None, *, used: int = 210_000, window: int = 200_000) -> ScriptedAnswer:
    """A refusal for length: in the words of the API that is asked, or in those of a provider, by its name or number in
    `wordings.OVERFLOWS`. Counts are tokens."""
    if wording is None:
        return ScriptedAnswer(instead=LengthRefusal(used, window))
    return refused(overflow_wording(wording), used=used, window=window)


def throttled(wording: int | str = 0) -> ScriptedAnswer:
    """A refusal for haste that speaks of tokens and so looks like an overflow."""
    return refused(throttle_wording(wording))


def refused(wording: Wording, *, used: int = 0, window: int = 0) -> ScriptedAnswer:
    """A provider's refusal, in its words."""
    return ScriptedAnswer(instead=refusal(wording, used, window))


def refusal(wording: Wording, used: int, window: int) -> FixedReply:
    """The reply with these words. What has OpenAI's shape is put into that of the API that is asked."""
    error = ApiError(wording.text(used, window), wording.kind, wording.code) if wording.shape == "openai" else None
    return FixedReply(wording.status, wording.body(used, window), error=error)


def only_done() -> ScriptedAnswer:
    """A stream with nothing in it but its terminator: how some servers answer a prompt that is too long."""
    return ScriptedAnswer(instead=FixedReply(200, b"data: [DONE]\n\n", (EVENT_STREAM_TYPE,)))


def json_error(message: str = "internal error", code: int | str = 500) -> ScriptedAnswer:
    """Status 200 with an error as its JSON body."""
    return ScriptedAnswer(instead=error_reply(200, ApiError(message, "server_error", code)))


def html(page: str = "<html><body><h1>502 Bad Gateway</h1></body></html>", code: int = 200) -> ScriptedAnswer:
    return ScriptedAnswer(instead=FixedReply(code, page.encode(), (("content-type", "text/html"),)))


def empty(code: int = 200) -> ScriptedAnswer:
    return ScriptedAnswer(instead=FixedReply(code, b""))


def wrong_type(answer: ScriptedAnswer, content_type: str = "text/plain") -> ScriptedAnswer:
    """The right body under another content type."""
    return answer.but(headers=(*answer.headers, ("content-type", content_type)))


def gzip_bomb(size: int = 64 * 1024 * 1024) -> ScriptedAnswer:
    """A small gzip body of `size` bytes of zeros once decoded, about 1000 : 1."""
    return ScriptedAnswer(
        instead=FixedReply(200, gzip.compress(bytes(size)), (JSON_TYPE, ("content-encoding", "gzip")))
    )


def raw(data: bytes) -> ScriptedAnswer:
    """Exactly these bytes on the socket, then FIN."""
    return ScriptedAnswer(instead=data)


def error_reply(status_code: int, error: ApiError, headers: Headers = (JSON_TYPE,)) -> FixedReply:
    """The reply that tells an error, in OpenAI's shape until it is known which API was asked."""
    return FixedReply(status_code, error_body(error.message, error.kind, error.code, error.param), headers, error)


def error_body(message: str, kind: str, code: int | str | None, param: str | None = None) -> bytes:
    """OpenAI's error object as bytes."""
    return json.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}}).encode()


def _encoded(body: JsonObject | str | bytes) -> bytes:
    if isinstance(body, bytes):
        return body
    return (body if isinstance(body, str) else json.dumps(body)).encode()


def _with_type(headers: Mapping[str, str] | None) -> Headers:
    given = tuple((headers or {}).items())
    return given if any(name.lower() == "content-type" for name, _ in given) else (JSON_TYPE, *given)


@dataclass(frozen=True, slots=True)
class AnswerFacts:
    """Everything an answer needs to know beside its own words."""

    number: int
    """Running number of the answer, from 1."""
    model: str
    created: int
    """Seconds since 1970."""
    usage: Usage
    request: Mapping[str, Any] = field(default_factory=dict)
    """The body that is answered; some dialects repeat parts of it."""
    readable: str = ""
    """The answer's reasoning as far as this request gets to read it."""
    token: str = ""
    """What makes the answer's reasoning a sealed item; empty where it has none."""
    transformations: tuple[Mapping[str, str], ...] = ()
    """What the provider left out of the request, as `binding.Verdict` tells it."""

    @property
    def answer_id(self) -> str:
        """What the ids of this answer's parts end with."""
        return f"scripted_{self.number}"
