"""The client's answer over all its upstream rounds, as far as every dialect makes it alike.

Which replies are read, what of a round that failed waits, how a plain body is gathered, when a comment may be sent: all
of it stands here. A dialect adds how a round is read (`Reading`) and how what is shown of it is written (the abstract
methods). The law: **what needs no change is not written again**. Without a call of ours the bytes that leave are the
bytes that came, and with `intercept` off even the cuts are the same and the answer is only read along. A failure passes
as it is: no terminator is ever made up.

What this module does not do: it decides neither what is shown (`stack.intercept`) nor whether a round follows, and it
knows no wire format but server-sent events.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from proxy.core.ledger.messages import REFUSED, Spoken, is_stack_tool
from proxy.core.ledger.tool_call_interceptor import (
    Calls,
    Event,
    Following,
    Owner,
    Piece,
    Refusing,
    Repeating,
    Show,
    Shown,
)
from proxy.dialects import raw_json as slices
from proxy.dialects.sse import Events, SseEvent

BODY_LIMIT = 64 * 1024 * 1024
"""Bytes of a plain answer that are read; a larger one passes unread."""
ERROR_LIMIT = 64 * 1024
"""Bytes kept of an error that cannot be shown because the client's stream has begun."""
KEEP_ALIVE = b": keep-alive\n\n"


def says_nothing(event: SseEvent) -> bool:
    """Whether it is a comment, with which providers fill the time, or another event that no client is given: it leaves
    at once, and a round of which nothing else has left can still be asked again."""
    return not event.data and b"data" not in event.raw


class Reading(ABC):
    """One round while it is read, and what has arrived of it. `data` is that of one event, or a whole plain body."""

    def __init__(self) -> None:
        self.calls = Calls()
        self.model = ""
        self.finish = ""
        """Why it ended, in the provider's own words."""
        self.usage: dict[str, Any] | None = None
        """As the provider told it, in its own words."""
        self.failed = False
        """The provider reported an error inside a reply that began well."""
        self.ended = False
        """What ends a round of this dialect came."""
        self.silent = False
        """It ended without a word, not even of an error."""
        self.fault = b""
        """What the provider said of that error, as JSON."""

    @abstractmethod
    def plain(self, data: bytes, *, text: bool = True, calls: bool = True) -> bool:
        """Whether this is one more piece of what is open already (text if `text`, arguments of a client's call if
        `calls`) and nothing else; if so it is taken."""

    @abstractmethod
    def read(self, data: bytes) -> tuple[Event, ...]:
        """What `data` brings, in the order a client would take it in."""

    @abstractmethod
    def spoken(self, *, complete: bool) -> Spoken:
        """The round as it was produced. `complete`: its bytes have all come."""

    @abstractmethod
    def so_far(self) -> Spoken:
        """What has arrived, while more is coming: nothing is settled by asking."""


R = TypeVar("R", bound=Reading)


class Answering(ABC, Generic[R]):
    """The client's answer while it is made: `dialect.Writing` without the words of a dialect.

    `begin` makes the reading of a new round.
    """

    def __init__(self, begin: Callable[[], R], show: Show, *, stream: bool, intercept: bool) -> None:
        self._begin = begin
        self._show = show
        """Decides what leaves of an answer that is not only read along."""
        self._stream = stream
        self._intercept = intercept
        self._round = begin()
        self._events = Events()
        self._taken = False
        """A round is read by `_round` already, so the next one needs another."""
        self._rounds = 0
        self._usages: list[dict[str, Any]] = []
        """What the rounds that ended told as their usage, in order."""
        self._read = False
        self._body = bytearray()
        self._pending = b""
        self._fault = b""
        self._half_told = False
        """The last that left for the client is a part of an event, and nothing can be said behind it."""
        self.round_shown = False
        """Something of this round has left for the client, so it cannot be repeated."""
        self.begun = False
        """Bytes of an answer have left for the client."""
        self.repeats: Repeating | None = None
        """Whether a round can be asked again of which nothing was said but an error in these words."""
        self.is_error = False
        """This round's reply is no completion: an error status, or a content type that is not read."""
        self.error_body = b""
        """The beginning of a reply that could not be shown, because the client's stream had begun before it."""
        self.refuses: Refusing | None = None
        """Calls of the client's tools that it is not to see."""
        self.follows: Following | None = None
        """Whether a round without a call is followed by another one."""

    # ---------------------------------------------------------------------------------------------------------- rounds
    def begin_round(self, status: int, content_type: str, *, encoded: bool = False) -> None:
        """An upstream reply begins. `encoded`: its body is compressed, so it is not read."""
        wanted = "text/event-stream" if self._stream else "json"
        kind = content_type.lower()
        self._read = 200 <= status < 300 and not encoded and (wanted in kind or not kind.strip())
        self.is_error = not self._read
        self._rounds += 1
        if self._taken:
            self._round, self._events = self._begin(), Events()
            self._body.clear()
            self._fault = self.error_body = b""
            self.round_shown = False
        self._taken = True
        self._round.calls.refuses = self.refuses
        if self._intercept:
            self._show.follows = self.follows
            self._show.begin_round(self._round.calls)

    @property
    def failed(self) -> bool:
        """The provider reported an error inside a reply that began well."""
        return self._round.failed

    @property
    def wordless(self) -> bool:
        """This round ended without a word, not even of an error, whatever else of it has left."""
        return self._round.silent

    @property
    def silent(self) -> bool:
        """This round ended without a word, and nothing of it has left: it can be asked again."""
        return self._intercept and self.wordless and not self.round_shown

    @property
    def told(self) -> bytes:
        """The answer as its client may ask for it again; b"" in an API that has no such request."""
        return b""

    @property
    def goes_on(self) -> bool:
        """This round has no call, and its ending was held because another round is to follow."""
        return self._show.goes_on and not self._show.finish_left

    @property
    def refusal(self) -> bytes:
        """The error that is all this round said, where it can be asked again for that; else b""."""
        return self._round.fault if self._intercept and self._is_repeated() else b""

    def _is_repeated(self) -> bool:
        fault, repeats = self._round.fault, self.repeats
        return bool(fault) and not self._show.spoke and repeats is not None and repeats(fault)

    def again(self) -> None:
        """Another round comes in the place of one that said nothing. Where its beginning has left, that stays."""
        if self._round.usage:
            self._usages.pop()
        if not self.round_shown:
            self._rounds -= 1
            self._show.again()

    @property
    def finished(self) -> bool:
        """The client has been told that the answer is over: no round can follow."""
        return self._show.finish_left

    def feed(self, chunk: bytes) -> bytes:
        """What leaves for the client now that `chunk` has come; b"" for nothing yet."""
        if not self._read:
            return self._unread(chunk)
        out = self._streamed(chunk) if self._stream else self._gathered(chunk)
        self.begun = self.begun or bool(out)
        return out

    def end_round(self, *, complete: bool) -> Spoken:
        """The round as it was produced. `complete` is False when the upstream died or the client left.

        What still leaves of it comes with the next `feed` or `finish`.
        """
        if self._read and self._stream:
            self._end_of_stream()
        elif self._read:
            self._end_of_body(bytes(self._body))
        if self._round.usage:
            self._usages.append(self._round.usage)
        return self._with_refused(self._round.spoken(complete=complete and self._read))

    def _with_refused(self, spoken: Spoken) -> Spoken:
        """Told with the round are the calls that look like the client's and were kept from it."""
        if self.refuses is None:
            return spoken
        calls = self._round.calls.all
        kept = [call.id for call in calls if call.owner is Owner.OURS and not is_stack_tool(call.name)]
        return replace(spoken, extra={**spoken.extra, REFUSED: slices.encoded(kept)}) if kept else spoken

    def read_no_more(self) -> None:
        """Nothing can be told of this round: what comes of it passes unread, and what came is forgotten."""
        self._round, self._read, self.is_error = self._begin(), False, True

    def so_far(self) -> Spoken:
        """What has arrived of the round that is under way; it changes nothing."""
        return self._round.so_far()

    def finish(self) -> bytes:
        """The end of the client's answer, after its last round: what was held, the usage of all rounds, the
        terminator. Nothing of that is made up for a round that failed."""
        out = self._pending + self._fault
        self._pending = self._fault = b""
        if self._read and self._intercept:
            out += self._stream_end() if self._stream else self._whole_body(bytes(self._body))
        self.begun = self.begun or bool(out)
        return out

    def keep_alive(self) -> bytes:
        """A comment for a client that waits between two rounds, or nothing where none may stand."""
        fits = self._stream and self._intercept and self.begun and self._events.between_events
        return KEEP_ALIVE if fits and not self._show.finish_left else b""

    @abstractmethod
    def broken(self, message: str) -> bytes:
        """The last bytes of a stream that has begun and cannot go on; b"" where only a closed connection may say so."""

    def _unread(self, chunk: bytes) -> bytes:
        """Replies that are not read pass as they are, but never into a stream that has begun as another's."""
        if self.begun and self._rounds > 1:
            self.error_body = (self.error_body + chunk)[:ERROR_LIMIT]
            return b""
        return chunk

    # ---------------------------------------------------------------------------------------------------------- stream
    @abstractmethod
    def _renamed(self, raw: bytes) -> bytes:
        """An event that says nothing new, as it leaves: under the names and numbers the client was told before; b""
        where that takes reading it."""

    @abstractmethod
    def _written(self, shown: Shown) -> bytes:
        """One event for the client: as it came, or with what is kept of it. `shown.piece.source` is what `_seen` put
        there."""

    @abstractmethod
    def _stream_end(self) -> bytes:
        """What was held of the last round's ending."""

    def _streamed(self, chunk: bytes) -> bytes:
        reading, plain = self._round, self._round.plain
        if not self._intercept:
            for data in self._events.said(chunk):
                if not plain(data):
                    reading.read(data)
            return chunk
        quiet: list[bytes] = []
        out: list[bytes] = []
        passes, text, calls = self._passes()
        speaks, border = False, 0 if reading.failed else None
        for event in self._events.feed(chunk):
            if not event.data and passes and says_nothing(event) and not (self.round_shown or self._fault or any(out)):
                quiet.append(event.raw)
                continue
            raw = self._renamed(event.raw)
            if raw and passes and plain(event.data, text=text, calls=calls):
                speaks = True
                out.append(raw)
            else:
                # Before the event is read, so that an error in it finds the same whether or not it came with the rest.
                self.round_shown = self.round_shown or any(out)
                before = len(out)
                out += self._seen(event)
                if border is None and reading.failed:
                    border = before
                passes, text, calls = self._passes()
        self._show.spoke = self._show.spoke or speaks
        told, fault = (out, []) if border is None else (out[:border], out[border:])
        return b"".join(quiet) + self._left(b"".join(told), b"".join(fault))

    def _passes(self) -> tuple[bool, bool, bool]:
        """What of the next event needs no decision: anything plain, more of a text, more of a client's call. It stays
        so until one was seen."""
        show = self._show
        return show.passes, show.passes_text, show.passes_calls

    def _left(self, out: bytes, fault: bytes = b"") -> bytes:
        """What really leaves now of what came, the `fault` last. A later round that fails before anything of it left
        may be repeated, so its error waits for `finish`; so does the terminator of one that said nothing, and an error
        for which a round is repeated."""
        unshown = (self._rounds > 1 or self._round.silent) and self._round.failed and not self.round_shown
        if unshown:
            self._fault += out + fault
            return b""
        if self._is_repeated():
            self._fault += fault
        else:
            out += fault
        self.round_shown = self.round_shown or bool(out)
        out, self._pending = self._pending + out, b""
        return out

    def _seen(self, event: SseEvent) -> list[bytes]:
        found = self._round.read(event.data)
        return [self._written(shown) for shown in self._show.see(Piece(found, event))]

    def _end_of_stream(self) -> None:
        self._half_told = not self._events.between_events
        left = self._events.end()
        if not self._intercept:
            self._half_told = self._half_told or bool(left)
            for event in left:
                self._round.read(event.data)
            return
        out = [piece for event in left for piece in self._seen(event)]
        out += [self._written(shown) for shown in self._show.end_round()]
        self._pending += b"".join(out)

    # ------------------------------------------------------------------------------------------------------ plain body
    @abstractmethod
    def _end_of_body(self, body: bytes) -> None:
        """A round's plain body has come as a whole; with `intercept` off it has left already."""

    @abstractmethod
    def _whole_body(self, body: bytes) -> bytes:
        """The last round's body, or the answer of all rounds in its shape."""

    def _gathered(self, chunk: bytes) -> bytes:
        self._body += chunk
        if len(self._body) <= BODY_LIMIT:
            return b"" if self._intercept else chunk
        out = bytes(self._body) if self._intercept else chunk
        self._body.clear()
        self._read, self.is_error = False, True
        return out
