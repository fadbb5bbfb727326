"""The part of writing a client's response that all dialects share, over all upstream rounds.

It decides which replies are read, gathers plain bodies, holds back what a failed round began, and sends comments. A
dialect adds how a round is read and how its visible parts are written. Without a call of ours the client gets the
provider's bytes; with `intercept` off even the chunks are the same. Errors pass unchanged, and no end is made up.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from proxy.core.ledger import (
    REFUSED_CALLS_KEY,
    UNSHOWN_TEXT_KEY,
    CallAssembler,
    CallOwner,
    Chunk,
    ChunkEvent,
    Interceptor,
    ModelResponse,
    OutgoingChunk,
    ShouldContinue,
    ShouldRefuse,
    ShouldRetry,
    ToolMeant,
    is_stack_tool,
)
from proxy.dialects import raw_json
from proxy.dialects.error_bodies import ProviderFailure
from proxy.dialects.sse import BOM, SseDecoder, SseEvent
from proxy.errors import UpstreamInvalidResponse

MAX_BODY_BYTES_READ = 64 * 1024 * 1024
"""Bytes of a plain answer that are read; a larger one passes unread."""
MAX_ERROR_BYTES = 64 * 1024
"""Bytes kept of an error that cannot be shown because the client's stream has begun."""
EVENT_STREAM_TYPE = "text/event-stream"
_STACK_TOOL = re.compile(rb'"\s*(?:[\w.:/-]{0,64}stack|multi_tool_use)', re.IGNORECASE)
"""How the name of a tool of ours begins in JSON."""
LEADING_BYTES = b" \t\r\n\xef\xbb\xbf"
"""White space and a byte order mark."""
EVENT_BEGINNINGS = (b"data:", b"event:", b"id:", b"retry:", b":")
"""What a stream of events begins with."""
# A comment, which the format lets everybody ignore: nine agents were tried, all go on (2026-11). Without it, a proxy in
# between or the client itself ends a stream that says nothing while a hidden round runs.
KEEP_ALIVE = b": keep-alive\n\n"


def may_name_stack_tool(data: bytes) -> bool:
    """Whether a tool of ours may be called in this JSON."""
    return _STACK_TOOL.search(data) is not None


def _data_of_events(stream: bytes) -> list[bytes]:
    decoder = SseDecoder()
    return [event.data for event in (*decoder.feed(stream), *decoder.end()) if event.data]


class RoundReader(ABC):
    """One round while it is read, and what has arrived of it. `data` is that of one event, or a whole plain body."""

    def __init__(self) -> None:
        self.calls = CallAssembler()
        self.hides_text = False
        """The text of this round may be kept from the client."""
        self.model = ""
        self.finish_reason = ""
        """Why it ended, in the provider's own words."""
        self.usage: dict[str, Any] | None = None
        """As the provider told it, in its own words."""
        self.failed = False
        """The provider reported an error inside a reply that began well."""
        self.has_ended = False
        """What ends a round of this dialect came."""
        self.is_empty = False
        """It ended without a word, not even of an error."""
        self.error = b""
        """What the provider said of that error, as JSON."""

    @abstractmethod
    def take_simple_delta(self, data: bytes, *, text: bool = True, calls: bool = True) -> bool:
        """Whether this is one more piece of what is open already (text if `text`, arguments of a client's call if
        `calls`) and nothing else; if so it is taken."""

    @abstractmethod
    def read(self, data: bytes) -> tuple[ChunkEvent, ...]:
        """What `data` brings, in the order a client would take it in."""

    @abstractmethod
    def model_response(self, *, complete: bool) -> ModelResponse:
        """The round as it was produced. `complete`: its bytes have all come."""

    @abstractmethod
    def partial_response(self) -> ModelResponse:
        """What has arrived, while more is coming: nothing is settled by asking."""


class OtherForm(NamedTuple):
    """Turns answers of a dialect that came in the form nobody asked for."""

    body_of_stream: Callable[[Sequence[bytes]], bytes]
    """The plain answer that a stream tells, from the data of its events."""
    stream_of_body: Callable[[bytes], bytes]
    """The events that tell a plain answer."""


R = TypeVar("R", bound=RoundReader)


class BaseResponseWriter(ABC, Generic[R]):
    """The client's answer while it is made: a `ResponseWriter` without the words of a dialect.

    `begin` makes the reading of a new round.
    """

    other_form: ClassVar[OtherForm]

    def __init__(self, begin: Callable[[], R], show: Interceptor, *, stream: bool, intercept: bool) -> None:
        self._new_reader = begin
        self._interceptor = show
        """Decides what leaves of an answer that is not only read along."""
        self._stream = stream
        self._intercept = intercept
        self._reader = begin()
        self._sse_decoder = SseDecoder()
        self._reader_is_used = False
        """A round is read by `_reader` already, so the next one needs another."""
        self._round_count = 0
        self._round_usages: list[dict[str, Any]] = []
        """What the rounds that ended told as their usage, in order."""
        self._is_parsed = False
        self._form_is_known = False
        """Whether the answer is a stream or a plain body was seen in its first bytes."""
        self._is_other_form = False
        """It is the form that nobody asked for: it is gathered, and turned when it is whole."""
        self._body = bytearray()
        self._pending = b""
        self._held_error = b""
        self._ends_inside_event = False
        """The last that left for the client is a part of an event, and nothing can be said behind it."""
        self.round_is_visible = False
        """Something of this round has left for the client, so it cannot be repeated."""
        self.has_sent_bytes = False
        """Bytes of an answer have left for the client."""
        self.should_retry: ShouldRetry | None = None
        """Whether a round can be asked again of which nothing was said but an error in these words."""
        self.is_error = False
        """This round's reply is no completion: an error status, or a content type that is not read."""
        self.error_body = b""
        """The beginning of a reply that could not be shown, because the client's stream had begun before it."""
        self.should_refuse: ShouldRefuse | None = None
        """Calls of the client's tools that it is not to see."""
        self.tool_meant: ToolMeant | None = None
        """What tools of ours are called in another spelling."""
        self.hides_text = False
        """The text of a round is not shown if another round follows."""
        self.should_continue: ShouldContinue | None = None
        """Whether a round without a call is followed by another one."""

    @property
    def call_count(self) -> int:
        return len(self._reader.calls.calls)

    # ---------------------------------------------------------------------------------------------------------- rounds
    def begin_round(self, status: int, content_type: str, *, encoded: bool = False) -> None:
        """An upstream reply begins. `encoded`: its body is compressed, so it is not read."""
        wanted = EVENT_STREAM_TYPE if self._stream else "json"
        kind = content_type.lower()
        self._is_parsed = 200 <= status < 300 and not encoded and (wanted in kind or not kind.strip())
        self._form_is_known, self._is_other_form = not (self._is_parsed and self._intercept), False
        self.is_error = not self._is_parsed
        self._round_count += 1
        if self._reader_is_used:
            self._reader, self._sse_decoder = self._new_reader(), SseDecoder()
            self._body.clear()
            self._held_error = self.error_body = b""
            self.round_is_visible = False
        self._reader_is_used = True
        self._reader.calls.should_refuse = self.should_refuse
        self._reader.calls.tool_meant = self.tool_meant
        self._reader.hides_text = self._interceptor.hides_text = self._intercept and self.hides_text
        if self._intercept:
            self._interceptor.should_continue = self.should_continue
            self._interceptor.begin_round(self._reader.calls)

    @property
    def round_failed(self) -> bool:
        """The provider reported an error inside a reply that began well."""
        return self._reader.failed

    @property
    def round_is_empty(self) -> bool:
        """This round ended without a word, not even of an error, whatever else of it has left."""
        return self._reader.is_empty

    @property
    def can_retry_empty_round(self) -> bool:
        """This round ended without a word, and nothing of it has left: it can be asked again."""
        return self._intercept and self.round_is_empty and not self.round_is_visible

    @property
    def retrievable_response(self) -> bytes:
        """The answer as its client may ask for it again; b"" in an API that has no such request."""
        return b""

    @property
    def another_round_follows(self) -> bool:
        """This round has no call, and its ending was held because another round is to follow."""
        return self._interceptor.continues and not self._interceptor.finish_sent

    @property
    def retryable_error(self) -> bytes:
        """The error that is all this round said, where it can be asked again for that; else b""."""
        return self._reader.error if self._intercept and self._error_is_retried() else b""

    def _error_is_retried(self) -> bool:
        fault, repeats = self._reader.error, self.should_retry
        return bool(fault) and not self._interceptor.has_content and repeats is not None and repeats(fault)

    def retry_round(self) -> None:
        """Another round comes in the place of one that said nothing. Where its beginning has left, that stays."""
        if self._reader.usage:
            self._round_usages.pop()
        if not self.round_is_visible:
            self._round_count -= 1
            self._interceptor.replace_round()

    @property
    def is_finished(self) -> bool:
        """The client has been told that the answer is over: no round can follow."""
        return self._interceptor.finish_sent

    @property
    def end_has_come(self) -> bool:
        """Of this round all has come that a client waits for, and what `feed` returned has the end of the answer."""
        return self._interceptor.finish_sent if self._intercept else self._reader.has_ended

    def feed(self, chunk: bytes) -> bytes:
        """What leaves for the client now that `chunk` has come; b"" for nothing yet."""
        if not self._is_parsed:
            return self._feed_unparsed(chunk)
        if not self._form_is_known:
            chunk = self._find_form(chunk)
        if not self._form_is_known:
            return b""
        if self._is_other_form:
            return self._gather_other_form(chunk)
        out = self._feed_stream(chunk) if self._stream else self._feed_body(chunk)
        self.has_sent_bytes = self.has_sent_bytes or bool(out)
        return out

    def in_asked_form(self, came: bytes, content_type: str, *, packed: bool) -> bytes | None:
        """A whole answer that came under another label than asked, as it was asked for; None where it passes as it
        came. `packed`: it was compressed. What holds a call of ours never passes, nor what is
        a later round of an answer that has begun."""
        begun = came.lstrip(LEADING_BYTES)
        is_body, is_stream = begun.startswith(b"{"), begun.startswith(EVENT_BEGINNINGS)
        is_labelled = not packed and ("json" in content_type.lower() if is_body else EVENT_STREAM_TYPE in content_type)
        must_turn = self._round_count > 0 or may_name_stack_tool(came)
        if not (is_body or is_stream) or not (is_labelled or must_turn):
            return None
        try:
            events = came if is_stream else self.other_form.stream_of_body(came)
            reader = self._new_reader()
            for data in _data_of_events(events):
                reader.read(data)
            spoken = reader.model_response(complete=True)
            plain = came if is_body else self.other_form.body_of_stream(_data_of_events(came))
        except (raw_json.JsonSplitError, AttributeError, LookupError, TypeError, ValueError):
            return None
        if reader.failed or not (spoken.message.text.strip() or spoken.message.calls):
            return None
        return events if self._stream else plain

    def _find_form(self, chunk: bytes) -> bytes:
        """See in the first bytes whether this is a stream or a plain body, and return what is to be read now: nothing
        while they do not tell."""
        whole = bytes(self._body) + chunk
        begun = whole.lstrip(LEADING_BYTES)
        if not begun or (not self._stream and any(b.startswith(begun) and b != begun for b in EVENT_BEGINNINGS)):
            self._body = bytearray(whole if begun else whole[-1024:])  # blanks may go on for ever
            return b""
        self._body.clear()
        self._form_is_known = True
        self._is_other_form = begun.startswith(b"{") if self._stream else begun.startswith(EVENT_BEGINNINGS)
        has_mark = not self._stream and whole.startswith(BOM)  # which no reader of JSON takes
        return begun if self._is_other_form or has_mark else whole

    def _gather_other_form(self, chunk: bytes) -> bytes:
        self._body += chunk
        if len(self._body) > MAX_BODY_BYTES_READ:
            raise UpstreamInvalidResponse(
                "The provider answered in another form than asked, at too great length to be read. Send it again."
            )
        return b""

    def _turn_other_form(self) -> None:
        """Read the gathered answer as the form that was asked for. What leaves of it waits for `finish`."""
        came, self._is_other_form = bytes(self._body), False
        label = "json" if self._stream else EVENT_STREAM_TYPE
        if self.in_asked_form(came, label, packed=False) is None:
            return self._pass_unread(came)
        self._body.clear()
        if self._stream:
            self._pending += self._feed_stream(self.other_form.stream_of_body(came))
            return None
        self._body += self.other_form.body_of_stream(_data_of_events(came))
        return None

    def _pass_unread(self, came: bytes) -> None:
        """Nothing that we know is in it: it leaves as it came."""
        self._is_parsed, self.is_error = False, True
        self._pending += came

    def end_round(self, *, complete: bool) -> ModelResponse:
        """The round as it was produced. `complete` is False when the upstream died or the client left.

        What still leaves of it comes with the next `feed` or `finish`.
        """
        if self._is_parsed and self._is_other_form:
            self._turn_other_form()
        if self._is_parsed and self._stream:
            self._end_stream_round()
        elif self._is_parsed:
            self._end_body_round(bytes(self._body))
        if self._reader.usage:
            self._round_usages.append(self._reader.usage)
        spoken = self._with_refused_calls(self._reader.model_response(complete=complete and self._is_parsed))
        if not self._interceptor.has_unshown_text:
            return spoken
        return replace(spoken, extra={**spoken.extra, UNSHOWN_TEXT_KEY: b"true"})

    def _with_refused_calls(self, spoken: ModelResponse) -> ModelResponse:
        """Told with the round are the calls that look like the client's and were kept from it."""
        if self.should_refuse is None:
            return spoken
        calls = self._reader.calls.calls
        kept = [
            call.provider_id for call in calls if call.owner is CallOwner.OURS and not is_stack_tool(call.provider_name)
        ]
        return replace(spoken, extra={**spoken.extra, REFUSED_CALLS_KEY: raw_json.encode(kept)}) if kept else spoken

    def stop_reading(self) -> None:
        """Nothing can be told of this round: what comes of it passes unread, and what came is forgotten."""
        self._reader, self._is_parsed, self.is_error = self._new_reader(), False, True

    def partial_response(self) -> ModelResponse:
        """What has arrived of the round that is under way; it changes nothing."""
        return self._reader.partial_response()

    def finish(self) -> bytes:
        """The end of the client's answer, after its last round: what was held, the usage of all rounds, the
        terminator. Nothing of that is made up for a round that failed."""
        out = self._pending + self._held_error
        self._pending = self._held_error = b""
        if self._is_parsed and self._intercept:
            out += self._final_stream_bytes() if self._stream else self._final_body(bytes(self._body))
        self.has_sent_bytes = self.has_sent_bytes or bool(out)
        return out

    def keep_alive(self) -> bytes:
        """A comment for a client that waits between two rounds, or for the first event of a stream whose head has come;
        nothing where none may stand. Behind an ending whose terminator does not come, the ending."""
        begun = self.has_sent_bytes or (self._reader_is_used and self._is_parsed and not self._is_other_form)
        fits = self._stream and self._intercept and begun and self._sse_decoder.is_between_events
        if not fits or self._interceptor.finish_sent:
            return b""
        ending = [self._encode_outgoing(shown) for shown in self._interceptor.stop_waiting_for_terminator()]
        return b"".join(ending) or KEEP_ALIVE

    @abstractmethod
    def closing_error(self, message: str) -> bytes:
        """The last bytes of a stream that has begun and cannot go on; b"" where only a closed connection may say so."""

    def failed_end(self, failure: ProviderFailure) -> bytes:
        """The end of a stream that has begun and of which a later round was refused, as the API ends one that failed.
        b"" where that cannot be said: behind half an event, or behind an end."""
        fits = self._stream and self._intercept and self._round_count and not self._ends_inside_event
        if not fits or not self._sse_decoder.is_between_events or self._interceptor.finish_sent:
            return b""
        left, self._pending = self._pending, b""
        return left + self._encode_failure(failure)

    @abstractmethod
    def _encode_failure(self, failure: ProviderFailure) -> bytes:
        """The event with which this API ends a stream that failed."""

    def _feed_unparsed(self, chunk: bytes) -> bytes:
        """Replies that are not read pass as they are, but never into a stream that has begun as another's."""
        if self.has_sent_bytes and self._round_count > 1:
            self.error_body = (self.error_body + chunk)[:MAX_ERROR_BYTES]
            return b""
        return chunk

    # ---------------------------------------------------------------------------------------------------------- stream
    @abstractmethod
    def _with_client_ids(self, raw: bytes) -> bytes:
        """An event that says nothing new, as it leaves: under the names and numbers the client was told before; b""
        where that takes reading it."""

    @abstractmethod
    def _encode_outgoing(self, shown: OutgoingChunk) -> bytes:
        """One event for the client: as it came, or with what is kept of it. `shown.piece.source` is the event."""

    @abstractmethod
    def _final_stream_bytes(self) -> bytes:
        """What was held of the last round's ending."""

    def _feed_stream(self, chunk: bytes) -> bytes:
        reading, plain = self._reader, self._reader.take_simple_delta
        if not self._intercept:
            for data in self._sse_decoder.feed_data(chunk):
                if data and not plain(data):
                    reading.read(data)
            return chunk
        quiet: list[bytes] = []
        out: list[bytes] = []
        passes, text, calls = self._fast_path_flags()
        speaks, border = False, 0 if reading.failed else None
        for event in self._sse_decoder.feed(chunk):
            # A comment, with which providers fill the time: a round of which nothing else has left can be asked again.
            if not event.data and passes and b"data" not in event.raw:
                is_first = not (self.round_is_visible or self._held_error or any(out))
                (quiet if is_first else out).append(event.raw)
                continue
            raw = self._with_client_ids(event.raw)
            if raw and passes and plain(event.data, text=text, calls=calls):
                speaks = True
                out.append(raw)
            else:
                # Before the event is read, so that an error in it finds the same whether or not it came with the rest.
                self.round_is_visible = self.round_is_visible or any(out)
                before = len(out)
                out += self._process_event(event)
                if border is None and reading.failed:
                    border = before
                passes, text, calls = self._fast_path_flags()
        self._interceptor.has_content = self._interceptor.has_content or speaks
        told, fault = (out, []) if border is None else (out[:border], out[border:])
        return b"".join(quiet) + self._release(b"".join(told), b"".join(fault))

    def _fast_path_flags(self) -> tuple[bool, bool, bool]:
        """What of the next event needs no decision: anything plain, more of a text, more of a client's call. It stays
        so until one was seen."""
        show = self._interceptor
        return show.can_pass_reasoning, show.can_pass_text, show.can_pass_calls

    def _release(self, out: bytes, fault: bytes = b"") -> bytes:
        """What really leaves now of what came, the `fault` last. A later round that fails before anything of it left
        may be repeated, so its error waits for `finish`; so does the terminator of one that said nothing, and an error
        for which a round is repeated."""
        unshown = (self._round_count > 1 or self._reader.is_empty) and self._reader.failed and not self.round_is_visible
        if unshown:
            self._held_error += out + fault
            return b""
        if self._error_is_retried():
            self._held_error += fault
        else:
            out += fault
        self.round_is_visible = self.round_is_visible or bool(out)
        out, self._pending = self._pending + out, b""
        return out

    def _process_event(self, event: SseEvent) -> list[bytes]:
        found = self._reader.read(event.data)
        return [self._encode_outgoing(shown) for shown in self._interceptor.process(Chunk(found, event))]

    def _end_stream_round(self) -> None:
        self._ends_inside_event = not self._sse_decoder.is_between_events
        left = self._sse_decoder.end()
        if not self._intercept:
            self._ends_inside_event = self._ends_inside_event or bool(left)
            for event in left:
                self._reader.read(event.data)
            return
        out = [piece for event in left for piece in self._process_event(event)]
        out += [self._encode_outgoing(shown) for shown in self._interceptor.end_round()]
        self._pending += b"".join(out)

    # ------------------------------------------------------------------------------------------------------ plain body
    @abstractmethod
    def _end_body_round(self, body: bytes) -> None:
        """A round's plain body has come as a whole; with `intercept` off it has left already."""

    @abstractmethod
    def _final_body(self, body: bytes) -> bytes:
        """The last round's body, or the answer of all rounds in its shape."""

    def _feed_body(self, chunk: bytes) -> bytes:
        self._body += chunk
        if len(self._body) <= MAX_BODY_BYTES_READ:
            return b"" if self._intercept else chunk
        out = bytes(self._body) if self._intercept else chunk
        self._body.clear()
        self._is_parsed, self.is_error = False, True
        return out
