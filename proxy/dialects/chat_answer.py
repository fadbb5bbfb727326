"""Chat completions, the answer's side: what the provider sends, written for the client.

One object per client request, over all its upstream rounds, streamed or not:

    answer = Answer(stream=True, wants_usage=False, intercept=True)
    answer.begin_round(200, "text/event-stream")
    send(answer.feed(chunk))            # per chunk, nothing is sent for b""
    spoken = answer.end_round(complete=True)
    ...                                 # the exchange may begin another round here
    send(answer.finish())

The law: **what needs no change is not written again**. Without a call of ours the bytes that leave are the bytes that
came (less the usage that only we asked for), and with `intercept` off even the cuts are the same and the answer is
only read along. A failure passes as it is: no terminator is ever made up.

What this module does not do: it decides neither what is shown (`stack.intercept`) nor whether a round follows.
"""

from __future__ import annotations

from typing import Any

from proxy.dialects import slices
from proxy.dialects.chat_round import LEGACY, Round
from proxy.dialects.deltas import is_signed
from proxy.dialects.sse import Events, SseEvent
from proxy.dialects.usage import told_of
from proxy.stack.intercept import CallPart, Finish, Opening, Piece, Reasoning, Show, Shown, Text, UsageTold
from proxy.stack.transcript import Spoken

BODY_LIMIT = 64 * 1024 * 1024
"""Bytes of a plain answer that are read; a larger one passes unread."""
ERROR_LIMIT = 64 * 1024
"""Bytes kept of an error that cannot be shown because the client's stream has begun."""
KEEP_ALIVE = b": keep-alive\n\n"
CALLS_MADE = ("tool_calls", "function_call")
"""Ends that make no sense to a client that was shown no call."""
FIRST_OF_ALL = ("id", "created", "model")
"""Members that one answer has once, whatever its rounds say."""


class Answer:
    """The client's answer while it is made. `wants_usage`: the client itself asked for usage in its stream."""

    def __init__(self, *, stream: bool, wants_usage: bool, intercept: bool) -> None:
        self._stream = stream
        self._intercept = intercept
        self._wants_usage = wants_usage
        self._show = Show(wants_usage=wants_usage)
        self._round = Round()
        self._events = Events()
        self._usages: list[dict[str, Any]] = []
        self._rounds = 0
        self._read = False
        self._first: dict[str, Any] = {}
        self._body = bytearray()
        self._pending = b""
        self._told: list[Shown] = []
        self._names: list[tuple[bytes, bytes]] | None = None
        self._fault = b""
        self.round_shown = False
        """Something of this round has left for the client, so it cannot be repeated."""
        self.begun = False
        """Bytes of an answer have left for the client."""
        self.is_error = False
        """This round's reply is no completion: an error status, or a content type that is not read."""
        self.error_body = b""
        """The beginning of a reply that could not be shown, because the client's stream had begun before it."""

    # ---------------------------------------------------------------------------------------------------------- rounds
    def begin_round(self, status: int, content_type: str, *, encoded: bool = False) -> None:
        """An upstream reply begins. `encoded`: its body is compressed, so it is not read."""
        wanted = "text/event-stream" if self._stream else "json"
        kind = content_type.lower()
        self.is_error = not 200 <= status < 300
        self._read = not self.is_error and not encoded and (not kind.strip() or wanted in kind)
        self.is_error = self.is_error or not self._read
        self._rounds += 1
        self._round, self._events = Round(), Events()
        self._show.begin_round(self._round.calls)
        self._body.clear()
        self._fault = self.error_body = b""
        self._names = None
        self.round_shown = False

    @property
    def failed(self) -> bool:
        """The provider reported an error inside a reply that began well."""
        return self._round.failed

    @property
    def silent(self) -> bool:
        """This round ended without a word, and nothing of it has left: it can be asked again."""
        return self._intercept and self._round.silent and not self.round_shown

    def again(self) -> None:
        """Another round comes in the place of one that was silent."""
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
            self._end_of_body()
        if self._round.usage:
            self._usages.append(self._round.usage)
        return self._round.spoken(complete=complete and self._read)

    def so_far(self) -> Spoken:
        """What has arrived of the round that is under way; it changes nothing."""
        return self._round.so_far()

    def finish(self) -> bytes:
        """The end of the client's answer, after its last round: what was held, the usage of all rounds, the
        terminator. Nothing of that is made up for a round that failed."""
        out = self._pending + self._fault
        self._pending = self._fault = b""
        if self._read and self._intercept:
            out += self._stream_end() if self._stream else self._whole_body()
        self.begun = self.begun or bool(out)
        return out

    def keep_alive(self) -> bytes:
        """A comment for a client that waits between two rounds, or nothing where none may stand."""
        fits = self._stream and self._intercept and self.begun and self._events.between_events
        return KEEP_ALIVE if fits and not self._show.finish_left else b""

    def broken(self, message: str) -> bytes:
        """Nothing: a chat has no event that clients take for an end that failed (they go on, or wait for ever)."""
        return b""

    def _unread(self, chunk: bytes) -> bytes:
        """Replies that are not read pass as they are, but never into a stream that has begun as another's."""
        if self.begun and self._rounds > 1:
            self.error_body = (self.error_body + chunk)[:ERROR_LIMIT]
            return b""
        return chunk

    # ---------------------------------------------------------------------------------------------------------- stream
    def _streamed(self, chunk: bytes) -> bytes:
        events = self._events.feed(chunk)
        reading, plain = self._round, self._round.plain
        if not self._intercept:
            for event in events:
                if not plain(event.data):
                    reading.read(event.data)
            return chunk
        show = self._show
        out: list[bytes] = []
        for event in events:
            raw = event.raw if self._rounds == 1 else self._renamed(event.raw)
            if raw and show.passes and plain(event.data, text=show.passes_text, calls=show.passes_calls):
                out.append(raw)
            else:
                out += self._seen(event)
        return self._left(b"".join(out))

    def _left(self, out: bytes) -> bytes:
        """What really leaves now. A later round that fails before anything of it left may be repeated, so its error
        waits for `finish`; so does the terminator of one that said nothing."""
        if (self._rounds > 1 or self._round.silent) and self._round.failed and not self.round_shown:
            self._fault += out
            return b""
        self.round_shown = self.round_shown or bool(out)
        out, self._pending = self._pending + out, b""
        return out

    def _renamed(self, raw: bytes) -> bytes:
        """A later round's event under the names of the first, without reading it; b"" where that is not possible.

        Inside a JSON string a quote is escaped, so a member spelled with its quotes is found nowhere else.
        """
        if self._names is None:
            return b""
        for old, new in self._names:
            if raw.count(old) != 1:
                return b""
            raw = raw.replace(old, new)
        return raw

    def _learn_names(self, raw: bytes, chunk: dict[str, Any]) -> None:
        """How this round spells the members that `_renamed` replaces; unknown while one is spelled unusually."""
        names = []
        for name in FIRST_OF_ALL:
            old, new = chunk.get(name), self._first.get(name)
            spelled = [b'"%s":%s%s' % (name.encode(), gap, slices.encoded(old)) for gap in (b"", b" ")]
            found = next((s for s in spelled if raw.count(s) == 1), b"")
            if not found or new is None:
                return
            names.append((found, b'"%s":%s' % (name.encode(), slices.encoded(new))))
        self._names = names

    def _seen(self, event: SseEvent) -> list[bytes]:
        found = self._round.read(event.data)
        if not self._first and event.data.startswith(b"{"):
            self._first = _identity(event.data)
        return [self._written(shown) for shown in self._show.see(Piece(found, event))]

    def _end_of_stream(self) -> None:
        left = self._events.end()
        if not self._intercept:
            for event in left:
                self._round.read(event.data)
            return
        out = [piece for event in left for piece in self._seen(event)]
        out += [self._written(shown) for shown in self._show.end_round()]
        self._pending += b"".join(out)

    def _written(self, shown: Shown) -> bytes:
        """One event for the client: as it came, or with what is kept of it."""
        event = shown.piece.source
        if not isinstance(event, SseEvent):
            return b""
        if shown.whole or not event.data.startswith(b"{"):
            return event.raw
        chunk = _object(event.data)
        if not isinstance(chunk.get("choices"), list):
            return event.raw
        if self._rounds > 1:
            if self._names is None:
                self._learn_names(event.raw, chunk)
            chunk |= {name: self._first[name] for name in FIRST_OF_ALL if name in self._first}
        if not any(isinstance(e, UsageTold) for e in shown.events) and chunk.get("usage"):
            del chunk["usage"]
        if _choices(chunk):
            _rewrite(chunk, shown)
        return _sse(chunk)

    def _stream_end(self) -> bytes:
        if self._round.failed or not self._show.spliced:
            return b""
        out = b""
        if held := self._show.held_finish:
            out += self._last_finish(held)
        if self._wants_usage and self._round.usage:
            told = {"object": "chat.completion.chunk"} | self._first | {"choices": [], "usage": told_of(self._usages)}
            out += _sse(told)
        if (end := self._show.held_end) and isinstance(end.source, SseEvent):
            out += end.source.raw
        return out

    def _last_finish(self, held: Piece) -> bytes:
        event = held.source
        chunk = _object(event.data) if isinstance(event, SseEvent) else {}
        chunk |= {name: self._first[name] for name in FIRST_OF_ALL if name in self._first}
        chunk.pop("usage", None)
        for choice in _choices(chunk):
            choice |= {"delta": {}, "finish_reason": self._reason()}
            choice.pop("logprobs", None)
        return _sse(chunk)

    def _reason(self) -> str:
        """The provider's own word, but a client that was shown no call is not told that there are some."""
        told = self._round.finish
        return "stop" if told in CALLS_MADE and not self._show.shown_calls else told

    # ------------------------------------------------------------------------------------------------------ plain body
    def _gathered(self, chunk: bytes) -> bytes:
        self._body += chunk
        if len(self._body) <= BODY_LIMIT:
            return b"" if self._intercept else chunk
        out = bytes(self._body) if self._intercept else chunk
        self._body.clear()
        self._read, self.is_error = False, True
        return out

    def _end_of_body(self) -> None:
        body = bytes(self._body)
        found = self._round.read(body)
        self._round.ended = self._round.choices > 0
        if not self._intercept:
            return  # it has left as it came
        if not self._first:
            self._first = _identity(body)
        self._told += self._show.see(Piece(found, body)) + self._show.end_round()

    def _whole_body(self) -> bytes:
        """The last round's body, or the answer of all rounds in its shape."""
        body = bytes(self._body)
        if self._round.failed or not self._show.spliced or self._round.choices != 1:
            return body
        try:
            return self._joined(slices.members(body))
        except slices.NotSliced:
            return body

    def _joined(self, fields: dict[str, bytes]) -> bytes:
        choices = slices.items(fields["choices"])
        choice = slices.members(choices[0])
        choice["message"] = self._joined_message(slices.members(choice["message"]))
        choice["finish_reason"] = slices.encoded(self._reason() or None)
        if self._show.hides:
            choice.pop("logprobs", None)
        fields["choices"] = slices.array_of([slices.object_of(choice), *choices[1:]])
        fields |= {name: slices.encoded(self._first[name]) for name in FIRST_OF_ALL if name in self._first}
        if self._round.usage and "usage" in fields:
            fields["usage"] = slices.encoded(told_of(self._usages))
        return slices.object_of(fields)

    def _joined_message(self, message: dict[str, bytes]) -> bytes:
        events = [e for shown in self._told for e in shown.events]
        text = "".join(e.text for e in events if isinstance(e, Text))
        message["content"] = slices.encoded(text or None) if text else message.get("content", b"null")
        places = [e.at for e in events if isinstance(e, CallPart) and e.call in self._round.calls.all]
        listed = slices.items(message["tool_calls"]) if _is_array(message.get("tool_calls")) else []
        if kept := [listed[at] for at in places if at != LEGACY]:
            message["tool_calls"] = slices.array_of(kept)
        else:
            message.pop("tool_calls", None)
        if LEGACY not in places:
            message.pop("function_call", None)
        if self._show.hides and not places and not text:
            # Reasoning of a round of which nothing is shown is worthless to the client.
            message = {n: raw for n, raw in message.items() if not is_signed(slices.value(raw))}
        return slices.object_of(message)


# ------------------------------------------------------------------------------------------------------------- chunks
def _rewrite(chunk: dict[str, Any], shown: Shown) -> None:
    """Leave in `chunk` only what is shown of it."""
    choice = _choices(chunk)[0]
    delta = choice.get("delta")
    if isinstance(delta, dict):
        if len(shown.events) < len(shown.piece.events) and any(isinstance(e, CallPart) for e in shown.piece.events):
            choice.pop("logprobs", None)
        choice["delta"] = _kept(delta, shown)
    if not any(isinstance(e, Finish) for e in shown.events):
        choice["finish_reason"] = None


def _kept(delta: dict[str, Any], shown: Shown) -> dict[str, Any]:
    before, after = shown.piece.events, shown.events
    opens = any(isinstance(e, Opening) for e in after)
    left = {name: value for name, value in delta.items() if name not in ("tool_calls", "function_call")}
    if not opens and any(isinstance(e, Opening) for e in before):
        del left["role"]
    if any(isinstance(e, Text) for e in before):
        text = next((e.text for e in after if isinstance(e, Text)), None)
        left["content"] = _content(left.get("content"), text)
    if any(isinstance(e, Reasoning) and e.signed for e in before) and not any(isinstance(e, Reasoning) for e in after):
        left = {name: value for name, value in left.items() if not is_signed(value)}
    calls = [e for e in after if isinstance(e, CallPart)]
    listed = delta.get("tool_calls")
    if isinstance(listed, list) and (kept := [listed[e.at] | {"index": e.index} for e in calls if e.at != LEGACY]):
        left["tool_calls"] = kept
    if any(e.at == LEGACY for e in calls):
        left["function_call"] = delta["function_call"]
    return left if opens or left.get("content") is not None else {n: v for n, v in left.items() if n != "content"}


def _content(content: object, text: str | None) -> object:
    if text is None or isinstance(content, str):
        return text
    if not isinstance(content, list):
        return content
    # A content in parts keeps its parts; what joins it to the text before goes first.
    told = "".join(p.get("text") or "" for p in content if isinstance(p, dict) and p.get("type") == "text")
    joint = text[: len(text) - len(told)] if text.endswith(told) else ""
    return [{"type": "text", "text": joint}, *content] if joint else content


def _choices(chunk: dict[str, Any]) -> list[dict[str, Any]]:
    found = chunk.get("choices")
    return [c for c in found if isinstance(c, dict)] if isinstance(found, list) else []


def _object(data: bytes) -> dict[str, Any]:
    try:
        said = slices.value(data, mend=False)
    except slices.NotSliced:
        return {}
    return said if isinstance(said, dict) else {}


def _identity(data: bytes) -> dict[str, Any]:
    """What names the whole answer: id, time of creation and model of its first piece."""
    said = _object(data)
    return {name: said[name] for name in FIRST_OF_ALL if said.get(name) is not None} if said.get("choices") else {}


def _is_array(raw: bytes | None) -> bool:
    return raw is not None and raw.lstrip().startswith(b"[")


def _sse(chunk: dict[str, Any]) -> bytes:
    return b"data: " + slices.encoded(chunk) + b"\n\n"
