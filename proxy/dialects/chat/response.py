"""Writes the client's response in chat completions, streamed or plain, over all upstream rounds.

Usage that only the proxy asked for is left out.
"""

from __future__ import annotations

from typing import Any

from proxy.core.ledger import (
    CallDelta,
    Chunk,
    Finish,
    Interceptor,
    OutgoingChunk,
    ReasoningDelta,
    ResponseStart,
    TextDelta,
    UsageReport,
)
from proxy.dialects import raw_json
from proxy.dialects.chat.message import text_of
from proxy.dialects.chat.other_form import body_of_stream, stream_of_body, without_whole_messages
from proxy.dialects.chat.stream import LEGACY_CALL_POSITION, ChatRoundReader
from proxy.dialects.error_bodies import TOO_MANY_REQUESTS, ProviderFailure
from proxy.dialects.json_deltas import is_signed
from proxy.dialects.response_writer import BaseResponseWriter, OtherForm, may_name_stack_tool
from proxy.dialects.sse import SseEvent
from proxy.dialects.usage import usage_for_client

TOOL_CALL_FINISH_REASONS = ("tool_calls", "function_call")
"""Ends that make no sense to a client that was shown no call."""
IDENTITY_MEMBERS = ("id", "created", "model")
"""Members that one answer has once, whatever its rounds say."""


class ChatResponseWriter(BaseResponseWriter[ChatRoundReader]):
    """The client's answer while it is made. `wants_usage`: the client itself asked for usage in its stream."""

    other_form = OtherForm(body_of_stream, stream_of_body)

    def __init__(self, *, stream: bool, wants_usage: bool, intercept: bool) -> None:
        super().__init__(ChatRoundReader, Interceptor(wants_usage=wants_usage), stream=stream, intercept=intercept)
        self._wants_usage = wants_usage
        self._first: dict[str, Any] = {}
        self._outgoing_chunks: list[OutgoingChunk] = []
        self._names: list[tuple[bytes, bytes]] | None = None
        self._sent_usage: dict[str, Any] | None = None
        """The usage that left with an ending."""

    def begin_round(self, status: int, content_type: str, *, encoded: bool = False) -> None:
        """An upstream reply begins. `encoded`: its body is compressed, so it is not read."""
        super().begin_round(status, content_type, encoded=encoded)
        self._names = None

    def retry_round(self) -> None:
        """Another round comes in the place of one that said nothing."""
        super().retry_round()
        if not self.round_is_visible:
            self._first = {}

    def closing_error(self, message: str) -> bytes:
        """Nothing: a chat has no event that clients take for an end that failed (they go on, or wait for ever)."""
        return b""

    def _encode_failure(self, failure: ProviderFailure) -> bytes:
        """A chunk with an error, which the SDKs raise, and no terminator. Without `choices`: clients that know the form
        of a chunk would take it for one, and drop the error."""
        is_rate = failure.status == TOO_MANY_REQUESTS
        kind = "rate_limit_error" if is_rate else "api_error" if failure.status >= 500 else "invalid_request_error"
        told = {"param": None, **failure.told_error(kind)}
        if told.get("code") is None:
            told["code"] = failure.status
        return _sse({"object": "chat.completion.chunk"} | self._first | {"error": told})

    # ---------------------------------------------------------------------------------------------------------- stream
    def _with_client_ids(self, raw: bytes) -> bytes:
        """A later round's event under the names of the first, without reading it; b"" where that is not possible.

        Inside a JSON string a quote is escaped, so a member spelled with its quotes is found nowhere else.
        """
        if self._round_count == 1:
            return raw
        if self._names is None:
            return b""
        for old, new in self._names:
            if raw.count(old) != 1:
                return b""
            raw = raw.replace(old, new)
        return raw

    def _learn_identity_spelling(self, raw: bytes, chunk: dict[str, Any]) -> None:
        """How this round spells what `_with_client_ids` replaces; unknown while a member is spelled unusually."""
        names = []
        for name in IDENTITY_MEMBERS:
            old, new = chunk.get(name), self._first.get(name)
            spelled = [b'"%s":%s%s' % (name.encode(), gap, raw_json.encode(old)) for gap in (b"", b" ")]
            found = next((s for s in spelled if raw.count(s) == 1), b"")
            if not found or new is None:
                return
            names.append((found, b'"%s":%s' % (name.encode(), raw_json.encode(new))))
        self._names = names

    def _process_event(self, event: SseEvent) -> list[bytes]:
        if not self._first and event.data.startswith(b"{"):
            self._first = _identity(event.data)
        if b'"message"' in event.data and (self._interceptor.has_stack_call or may_name_stack_tool(event.data)):
            data = without_whole_messages(event.data, repeated=self._reader.has_begun)
            event = SseEvent(b"data: " + data + b"\n\n", data)
        return super()._process_event(event)

    def _encode_outgoing(self, shown: OutgoingChunk) -> bytes:
        """One event for the client: as it came, or with what is kept of it."""
        event = shown.chunk.source
        if not isinstance(event, SseEvent):
            return b""
        if shown.is_unchanged or not event.data.startswith(b"{"):
            return event.raw
        chunk = _object(event.data)
        if not isinstance(chunk.get("choices"), list):
            return event.raw
        if self._round_count > 1:
            if self._names is None:
                self._learn_identity_spelling(event.raw, chunk)
            chunk |= {name: self._first[name] for name in IDENTITY_MEMBERS if name in self._first}
        if not any(isinstance(e, UsageReport) for e in shown.events) and chunk.get("usage"):
            del chunk["usage"]
            chunk |= self._usage_with_finish(shown)
        if _choices(chunk):
            _keep_outgoing_events(chunk, shown)
        return _sse(chunk)

    def _usage_with_finish(self, shown: OutgoingChunk) -> dict[str, Any]:
        """The usage, where the provider tells it with its ending: so its clients look for it there."""
        if not (self._wants_usage and self._reader.usage and any(isinstance(e, Finish) for e in shown.events)):
            return {}
        self._sent_usage = self._reader.usage
        return {"usage": usage_for_client([*self._round_usages, self._reader.usage])}

    def _final_stream_bytes(self) -> bytes:
        if self._reader.failed or not self._interceptor.is_spliced:
            return b""
        out = b""
        if held := self._interceptor.held_finish:
            out += self._encode_final_chunk(held)
        if self._wants_usage and self._reader.usage and self._reader.usage is not self._sent_usage:
            told = (
                {"object": "chat.completion.chunk"}
                | self._first
                | {"choices": [], "usage": usage_for_client(self._round_usages)}
            )
            out += _sse(told)
        if (end := self._interceptor.held_end) and isinstance(end.source, SseEvent):
            out += end.source.raw
        return out

    def _encode_final_chunk(self, held: Chunk) -> bytes:
        event = held.source
        chunk = _object(event.data) if isinstance(event, SseEvent) else {}
        chunk |= {name: self._first[name] for name in IDENTITY_MEMBERS if name in self._first}
        if chunk.pop("usage", None) and self._wants_usage and self._round_usages:
            chunk["usage"], self._sent_usage = usage_for_client(self._round_usages), self._reader.usage
        for choice in _choices(chunk):
            choice |= {"delta": {}, "finish_reason": self._reason()}
            choice.pop("logprobs", None)
        return _sse(chunk)

    def _reason(self) -> str:
        """The provider's own word, but a client that was shown no call is not told that there are some."""
        told = self._reader.finish_reason
        return "stop" if told in TOOL_CALL_FINISH_REASONS and not self._interceptor.client_call_count else told

    # ------------------------------------------------------------------------------------------------------ plain body
    def _end_body_round(self, body: bytes) -> None:
        found = self._reader.read(body)
        self._reader.has_ended = self._reader.choice_count > 0
        if not self._intercept:
            return  # it has left as it came
        if not self._first:
            self._first = _identity(body)
        self._outgoing_chunks += self._interceptor.process(Chunk(found, body)) + self._interceptor.end_round()

    def _final_body(self, body: bytes) -> bytes:
        """The last round's body, or the answer of all rounds in its shape."""
        if self._reader.failed or not self._interceptor.is_spliced or self._reader.choice_count != 1:
            return body
        try:
            return self._merge_rounds(raw_json.members(body))
        except raw_json.JsonSplitError:
            return body

    def _merge_rounds(self, fields: dict[str, bytes]) -> bytes:
        choices = raw_json.items(fields["choices"])
        choice = raw_json.members(choices[0])
        choice["message"] = self._merge_messages(raw_json.members(choice.get("message", b"null")))
        choice["finish_reason"] = raw_json.encode(self._reason() or None)
        if self._interceptor.has_stack_call:
            choice.pop("logprobs", None)
        fields["choices"] = raw_json.join_array([raw_json.join_object(choice), *choices[1:]])
        fields |= {name: raw_json.encode(self._first[name]) for name in IDENTITY_MEMBERS if name in self._first}
        if self._reader.usage and "usage" in fields:
            fields["usage"] = raw_json.encode(usage_for_client(self._round_usages))
        return raw_json.join_object(fields)

    def _merge_messages(self, message: dict[str, bytes]) -> bytes:
        events = [e for shown in self._outgoing_chunks for e in shown.events]
        text = "".join(e.text for e in events if isinstance(e, TextDelta))
        content = message.get("content", b"null")
        message["content"] = _content_with_text(content, text) if text else content
        of_this_round = {id(call) for call in self._reader.calls.calls}
        places = [e.position for e in events if isinstance(e, CallDelta) and id(e.call) in of_this_round]
        listed = raw_json.items(message["tool_calls"]) if _is_array(message.get("tool_calls")) else []
        if kept := [listed[at] for at in places if at != LEGACY_CALL_POSITION]:
            message["tool_calls"] = raw_json.join_array(kept)
        else:
            message.pop("tool_calls", None)
        if LEGACY_CALL_POSITION not in places:
            message.pop("function_call", None)
        if self._interceptor.has_stack_call and not places and not text:
            # Reasoning of a round of which nothing is shown is worthless to the client.
            message = {n: raw for n, raw in message.items() if not is_signed(raw_json.parse(raw))}
        return raw_json.join_object(message)


# ------------------------------------------------------------------------------------------------------------- chunks
def _keep_outgoing_events(chunk: dict[str, Any], shown: OutgoingChunk) -> None:
    """Leave in `chunk` only what is shown of it."""
    choice = _choices(chunk)[0]
    delta = choice.get("delta")
    if isinstance(delta, dict):
        if len(shown.events) < len(shown.chunk.events) and any(isinstance(e, CallDelta) for e in shown.chunk.events):
            choice.pop("logprobs", None)
        choice["delta"] = _outgoing_delta(delta, shown)
    if not any(isinstance(e, Finish) for e in shown.events):
        choice["finish_reason"] = None


def _outgoing_delta(delta: dict[str, Any], shown: OutgoingChunk) -> dict[str, Any]:
    before, after = shown.chunk.events, shown.events
    opens = any(isinstance(e, ResponseStart) for e in after)
    left = {name: value for name, value in delta.items() if name not in ("tool_calls", "function_call")}
    if not opens and any(isinstance(e, ResponseStart) for e in before):
        del left["role"]
    if any(isinstance(e, TextDelta) for e in before):
        text = next((e.text for e in after if isinstance(e, TextDelta)), None)
        left["content"] = _outgoing_content(left.get("content"), text)
    if any(isinstance(e, ReasoningDelta) and e.signed for e in before) and not any(
        isinstance(e, ReasoningDelta) for e in after
    ):
        left = {name: value for name, value in left.items() if not is_signed(value)}
    calls = [e for e in after if isinstance(e, CallDelta)]
    listed = delta.get("tool_calls")
    if isinstance(listed, list) and (
        kept := [listed[e.position] | {"index": e.index} for e in calls if e.position != LEGACY_CALL_POSITION]
    ):
        left["tool_calls"] = kept
    if any(e.position == LEGACY_CALL_POSITION for e in calls):
        left["function_call"] = delta["function_call"]
    return left if opens or left.get("content") is not None else {n: v for n, v in left.items() if n != "content"}


def _outgoing_content(content: object, text: str | None) -> object:
    if text is None or isinstance(content, str):
        return text
    if not isinstance(content, list):
        return content
    # A content in parts keeps its parts; what joins it to the text before goes first.
    lead = _text_before_parts(content, text)
    return [{"type": "text", "text": lead}, *content] if lead else content


def _content_with_text(content: bytes, text: str) -> bytes:
    """The content of a plain answer with `text` for its words."""
    lead = _text_before_parts(raw_json.parse(content), text) if _is_array(content) else None
    if lead is None:
        return raw_json.encode(text)
    parts = raw_json.items(content)
    return raw_json.join_array([raw_json.encode({"type": "text", "text": lead}), *parts] if lead else parts)


def _text_before_parts(parts: list[Any], text: str) -> str | None:
    """What `text` says before the words of these parts; None where it does not end with them."""
    return text.removesuffix(told) if text.endswith(told := text_of(parts)) else None


def _choices(chunk: dict[str, Any]) -> list[dict[str, Any]]:
    found = chunk.get("choices")
    return [c for c in found if isinstance(c, dict)] if isinstance(found, list) else []


def _object(data: bytes) -> dict[str, Any]:
    try:
        said = raw_json.parse(data, mend=False)
    except raw_json.JsonSplitError:
        return {}
    return said if isinstance(said, dict) else {}


def _identity(data: bytes) -> dict[str, Any]:
    """What names the whole answer: id, time of creation and model of its first piece."""
    said = _object(data)
    return {name: said[name] for name in IDENTITY_MEMBERS if said.get(name) is not None} if said.get("choices") else {}


def _is_array(raw: bytes | None) -> bool:
    return raw is not None and raw.lstrip().startswith(b"[")


def _sse(chunk: dict[str, Any]) -> bytes:
    return b"data: " + raw_json.encode(chunk) + b"\n\n"
