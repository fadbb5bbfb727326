"""Chat completions, the answer's side: what the provider sends, written for the client.

One object per client request, over all its upstream rounds, streamed or not:

    answer = Answer(stream=True, wants_usage=False, intercept=True)
    answer.begin_round(200, "text/event-stream")
    send(answer.feed(chunk))            # per chunk, nothing is sent for b""
    spoken = answer.end_round(complete=True)
    ...                                 # the exchange may begin another round here
    send(answer.finish())

The law of `dialects.answering` holds, less the usage that only we asked for: the client does not see that.

What this module does not do: it reads no chunk (`chat_round`), and it decides neither what is shown (`stack.intercept`)
nor whether a round follows.
"""

from __future__ import annotations

from typing import Any

from proxy.core.ledger.tool_call_interceptor import (
    CallPart,
    Finish,
    Opening,
    Piece,
    Reasoning,
    Show,
    Shown,
    Text,
    UsageTold,
)
from proxy.dialects import raw_json as slices
from proxy.dialects.chat.message import text_of
from proxy.dialects.chat.stream import LEGACY, Round
from proxy.dialects.json_deltas import is_signed
from proxy.dialects.response_writer import Answering
from proxy.dialects.sse import SseEvent
from proxy.dialects.usage import told_of

CALLS_MADE = ("tool_calls", "function_call")
"""Ends that make no sense to a client that was shown no call."""
FIRST_OF_ALL = ("id", "created", "model")
"""Members that one answer has once, whatever its rounds say."""


class Answer(Answering[Round]):
    """The client's answer while it is made. `wants_usage`: the client itself asked for usage in its stream."""

    def __init__(self, *, stream: bool, wants_usage: bool, intercept: bool) -> None:
        super().__init__(Round, Show(wants_usage=wants_usage), stream=stream, intercept=intercept)
        self._wants_usage = wants_usage
        self._first: dict[str, Any] = {}
        self._told: list[Shown] = []
        self._names: list[tuple[bytes, bytes]] | None = None
        self._left_with: dict[str, Any] | None = None
        """The usage that left with an ending."""

    def begin_round(self, status: int, content_type: str, *, encoded: bool = False) -> None:
        """An upstream reply begins. `encoded`: its body is compressed, so it is not read."""
        super().begin_round(status, content_type, encoded=encoded)
        self._names = None

    def again(self) -> None:
        """Another round comes in the place of one that said nothing."""
        super().again()
        if not self.round_shown:
            self._first = {}

    def broken(self, message: str) -> bytes:
        """Nothing: a chat has no event that clients take for an end that failed (they go on, or wait for ever)."""
        return b""

    # ---------------------------------------------------------------------------------------------------------- stream
    def _renamed(self, raw: bytes) -> bytes:
        """A later round's event under the names of the first, without reading it; b"" where that is not possible.

        Inside a JSON string a quote is escaped, so a member spelled with its quotes is found nowhere else.
        """
        if self._rounds == 1:
            return raw
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
        if not self._first and event.data.startswith(b"{"):
            self._first = _identity(event.data)
        return super()._seen(event)

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
            chunk |= self._told_with(shown)
        if _choices(chunk):
            _rewrite(chunk, shown)
        return _sse(chunk)

    def _told_with(self, shown: Shown) -> dict[str, Any]:
        """The usage, where the provider tells it with its ending: so its clients look for it there."""
        if not (self._wants_usage and self._round.usage and any(isinstance(e, Finish) for e in shown.events)):
            return {}
        self._left_with = self._round.usage
        return {"usage": told_of([*self._usages, self._round.usage])}

    def _stream_end(self) -> bytes:
        if self._round.failed or not self._show.spliced:
            return b""
        out = b""
        if held := self._show.held_finish:
            out += self._last_finish(held)
        if self._wants_usage and self._round.usage and self._round.usage is not self._left_with:
            told = {"object": "chat.completion.chunk"} | self._first | {"choices": [], "usage": told_of(self._usages)}
            out += _sse(told)
        if (end := self._show.held_end) and isinstance(end.source, SseEvent):
            out += end.source.raw
        return out

    def _last_finish(self, held: Piece) -> bytes:
        event = held.source
        chunk = _object(event.data) if isinstance(event, SseEvent) else {}
        chunk |= {name: self._first[name] for name in FIRST_OF_ALL if name in self._first}
        if chunk.pop("usage", None) and self._wants_usage and self._usages:
            chunk["usage"], self._left_with = told_of(self._usages), self._round.usage
        for choice in _choices(chunk):
            choice |= {"delta": {}, "finish_reason": self._reason()}
            choice.pop("logprobs", None)
        return _sse(chunk)

    def _reason(self) -> str:
        """The provider's own word, but a client that was shown no call is not told that there are some."""
        told = self._round.finish
        return "stop" if told in CALLS_MADE and not self._show.shown_calls else told

    # ------------------------------------------------------------------------------------------------------ plain body
    def _end_of_body(self, body: bytes) -> None:
        found = self._round.read(body)
        self._round.ended = self._round.choices > 0
        if not self._intercept:
            return  # it has left as it came
        if not self._first:
            self._first = _identity(body)
        self._told += self._show.see(Piece(found, body)) + self._show.end_round()

    def _whole_body(self, body: bytes) -> bytes:
        """The last round's body, or the answer of all rounds in its shape."""
        if self._round.failed or not self._show.spliced or self._round.choices != 1:
            return body
        try:
            return self._joined(slices.members(body))
        except slices.NotSliced:
            return body

    def _joined(self, fields: dict[str, bytes]) -> bytes:
        choices = slices.items(fields["choices"])
        choice = slices.members(choices[0])
        choice["message"] = self._joined_message(slices.members(choice.get("message", b"null")))
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
        content = message.get("content", b"null")
        message["content"] = _told(content, text) if text else content
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
    lead = _before(content, text)
    return [{"type": "text", "text": lead}, *content] if lead else content


def _told(content: bytes, text: str) -> bytes:
    """The content of a plain answer with `text` for its words."""
    lead = _before(slices.value(content), text) if _is_array(content) else None
    if lead is None:
        return slices.encoded(text)
    parts = slices.items(content)
    return slices.array_of([slices.encoded({"type": "text", "text": lead}), *parts] if lead else parts)


def _before(parts: list[Any], text: str) -> str | None:
    """What `text` says before the words of these parts; None where it does not end with them."""
    return text.removesuffix(told) if text.endswith(told := text_of(parts)) else None


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
