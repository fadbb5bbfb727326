"""Reads one round of a chat response: the effect of each chunk, and the whole message at the end.

Deltas are merged with all unknown members. `message()` is what a later request must carry, however it was cut. A plain
response is read as a single delta.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

import msgspec

from proxy.core.ledger import (
    CallDelta,
    CallOwner,
    ChunkEvent,
    Finish,
    Message,
    ModelResponse,
    PartialCall,
    ReasoningDelta,
    ResponseStart,
    StreamEnd,
    StreamError,
    TextDelta,
    UnknownEvent,
    UsageReport,
    are_valid_arguments,
)
from proxy.dialects import raw_json
from proxy.dialects.chat.message import is_thinking_part, read_message, text_message, text_of, text_or_empty
from proxy.dialects.json_deltas import CONSTANT, is_signed, merge_delta
from proxy.dialects.response_writer import RoundReader
from proxy.dialects.usage import usage_of, usage_of_timings

ASSISTANT = "assistant"
DONE = b"[DONE]"
# "length" is OpenAI's word; gateways leave those of Claude and Gemini. A call that was cut off here is dropped: its
# arguments are half a JSON.
TRUNCATION_FINISH_REASONS = ("length", "max_tokens", "MAX_TOKENS")
"""Words for: the output limit ended the answer."""
FINAL_FINISH_REASONS = ("content_filter", "refusal")
"""Ends behind which no call of ours is answered: the provider wants nothing to follow."""
MEMBERS = frozenset({"role", "content", "tool_calls", "function_call"})
"""What of a message we have words for."""
# DeepSeek and its imitators stream `reasoning_content`, OpenRouter `reasoning`. opencode, pi and pydantic-ai send it
# back, Qwen Code drops it for models it does not know (2026-11), and DeepSeek V4 then refuses the next call.
READABLE_REASONING_MEMBERS = ("reasoning_content", "reasoning", "reasoning_text")
REASONING_DETAIL_MEMBERS = ("reasoning_details", "thinking_blocks")
# Some servers leave out the index of a call, number from 1, or send the same twice; taking a missing one for 0 merges
# parallel calls into one (openai-python#2806, #3246).
MAX_INDEX_DIGITS = 18
"""The most that are read of an index."""


class _Choice(msgspec.Struct, gc=False):
    index: int = 0
    delta: dict[str, Any] | None = None
    message: dict[str, Any] | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct, gc=False):
    """A chunk, or a whole plain answer. Typed, because that is as fast as looking for a substring."""

    model: str | None = None
    choices: list[_Choice] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None
    timings: Any = None
    """llama.cpp's, in the last chunk."""


class _TextDelta(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    content: str


class _TextChoice(msgspec.Struct, gc=False):
    delta: _TextDelta
    index: Literal[0] = 0
    finish_reason: None = None
    message: None = None


class _TextChunk(msgspec.Struct, gc=False):
    """One more piece of a text, and nothing else: two thirds of the time that a chunk of any kind takes."""

    choices: tuple[_TextChoice]
    usage: None = None
    error: None = None


_DECODE_ERRORS = (msgspec.DecodeError, RecursionError, UnicodeError)
_CHUNK = msgspec.json.Decoder(_Chunk)
_TEXT_CHUNK = msgspec.json.Decoder(_TextChunk)


def _chunk(data: bytes) -> _Chunk | None:
    """None: it is no object, or no parser takes it."""
    try:
        return _CHUNK.decode(data)
    except _DECODE_ERRORS:
        pass
    try:
        said = raw_json.parse(data, mend=False)  # a pair may be cut in half between two chunks
    except raw_json.JsonSplitError:
        return None
    return _parse_chunk_leniently(said) if isinstance(said, dict) else None


def _parse_chunk_leniently(said: Mapping[str, Any]) -> _Chunk:
    """A chunk whose members have unexpected types: each is taken where it makes sense."""
    listed = said.get("choices")
    choices = [_parse_choice_leniently(c) for c in listed if isinstance(c, dict)] if isinstance(listed, list) else []
    model, usage = said.get("model"), said.get("usage")
    return _Chunk(
        model if isinstance(model, str) else None,
        choices,
        usage if isinstance(usage, dict) else None,
        said.get("error"),
        said.get("timings"),
    )


def _parse_choice_leniently(said: Mapping[str, Any]) -> _Choice:
    delta, message, finish = said.get("delta"), said.get("message"), said.get("finish_reason")
    return _Choice(
        parse_index(said.get("index")) or 0,
        delta if isinstance(delta, dict) else None,
        message if isinstance(message, dict) else None,
        finish if isinstance(finish, str) else None,
    )


def parse_index(said: object) -> int | None:
    """What a delta is counted as: some servers write a string, null, or nothing. What no answer counts to is nothing:
    Python refuses to read a number of that many digits."""
    if isinstance(said, str) and said.isdecimal() and len(said) <= MAX_INDEX_DIGITS:
        return int(said)
    return said if isinstance(said, int) and not isinstance(said, bool) else None


# -------------------------------------------------------------------------------------------------------------- round
class ChatRoundReader(RoundReader):
    """What has arrived of one round so far."""

    def __init__(self) -> None:
        super().__init__()
        self.choice_count = 0
        """The most choices seen in one piece; of several only the first is gathered."""
        self._role = ""
        self._has_content = False
        self._expects_text = False
        """The last piece was one of a text, so the next one is expected to be."""
        self._texts: list[str] = []
        self._no_text: str | None = None
        """The content of calls without a word: an empty text where the provider said one, and may refuse null."""
        self._parts: list[Any] = []
        self._streamed_members: dict[str, list[str]] = {}
        self._extras: dict[str, Any] = {}
        self._timings: Mapping[str, Any] = {}
        self._call_extras: dict[int, dict[str, Any]] = {}

    @property
    def has_begun(self) -> bool:
        """Whether words or calls of the message have come."""
        return bool(self._texts or self._parts or self.calls.calls)

    def take_simple_delta(self, data: bytes, *, text: bool = True, calls: bool = True) -> bool:
        """Whether this chunk is one more piece of what is open already (text if `text`, arguments of a client's call
        if `calls`, readable reasoning) and nothing else; if so it is taken.

        The path nearly every chunk goes, so it comes before everything that needs a decision.
        """
        if self._expects_text and text and not self._parts:
            try:
                self._texts.append(_TEXT_CHUNK.decode(data).choices[0].delta.content)
            except _DECODE_ERRORS:
                self._expects_text = False
            else:
                return True
        try:
            chunk = _CHUNK.decode(data)
        except _DECODE_ERRORS:
            return False
        if chunk.usage or chunk.error or not chunk.choices or len(chunk.choices) > 1:
            return False
        choice = chunk.choices[0]
        delta = choice.delta
        if not delta or len(delta) > 1 or choice.finish_reason or choice.index or choice.message:
            return False
        ((name, value),) = delta.items()
        if name == "content":
            taken = text and value.__class__ is str and not self._parts
            if taken:
                self._texts.append(value)
        elif name == "tool_calls":
            taken = calls and self._take_arguments(value)
        else:
            taken = name in READABLE_REASONING_MEMBERS and value.__class__ is str
            if taken:
                self._streamed_members.setdefault(name, []).append(value)
        if taken:
            self._has_content = True
            self.model = self.model or chunk.model or ""
            self._expects_text = name == "content" and bool(self.model)
        return taken

    def _take_arguments(self, listed: object) -> bool:
        """Arguments, and nothing else, for a call that is known to be the client's."""
        item = listed[0] if isinstance(listed, list) and len(listed) == 1 else None
        inner = item.get("function") if isinstance(item, dict) and len(item) == 2 else None
        if item is None or not isinstance(inner, dict) or len(inner) != 1:
            return False
        index, arguments = item.get("index"), inner.get("arguments")
        call = self.calls.call_at(index) if index.__class__ is int else None
        if call is None or arguments.__class__ is not str or call.owner is not CallOwner.CLIENT or not call.name:
            return False
        call.argument_parts.append(arguments)
        return True

    def read(self, data: bytes) -> tuple[ChunkEvent, ...]:
        """What this chunk brings, in the order a client would take it in."""
        if not data:
            return (UnknownEvent(),)
        if data.strip() == DONE:
            return self._read_stream_end()
        chunk = _chunk(data)
        if chunk is None:
            return (UnknownEvent(),)
        self.model = self.model or chunk.model or ""
        events: list[ChunkEvent] = []
        choices = chunk.choices or ()
        for choice in choices:
            self.choice_count = max(self.choice_count, len(choices), choice.index + 1)
            if choice.index == 0:
                events += self._choice(choice)
        if chunk.error:  # OpenRouter puts the finish "error" beside it, which ends nothing that can be asked again
            self.failed = True
            self.error = self.error or raw_json.encode(chunk.error)
            events = [StreamError(), *(event for event in events if not isinstance(event, Finish))]
        if chunk.usage:
            self.usage = chunk.usage
            events.append(UsageReport())
        if isinstance(chunk.timings, dict):
            self._timings = chunk.timings
        return tuple(events) or (UnknownEvent(),)

    def _read_stream_end(self) -> tuple[ChunkEvent, ...]:
        """A terminator with nothing before it is how some servers say that they failed."""
        self.has_ended = True
        self.is_empty = not self._has_content and not self.failed
        self.failed = self.failed or not self._has_content
        return (StreamEnd(),)

    def _choice(self, choice: _Choice) -> list[ChunkEvent]:
        self._has_content = True
        # A whole message behind deltas says again what they said.
        message = None if self.has_begun else choice.message
        events = self.add_delta(choice.delta or message or {}, whole=not choice.delta)
        if choice.finish_reason:
            self.finish_reason = choice.finish_reason
            events.append(Finish(choice.finish_reason))
        return events

    def add_delta(self, delta: Mapping[str, Any], *, whole: bool = False) -> list[ChunkEvent]:
        """Take in one delta, or a `whole` message, in which every call stands by itself."""
        events: list[ChunkEvent] = []
        if isinstance(role := delta.get("role"), str) and not self._role:
            self._role = role
            events.append(ResponseStart())
        if not delta.keys() <= MEMBERS:
            for name, value in delta.items():
                if value is not None and name not in MEMBERS:
                    events += self._read_other_member(name, value)
        if content := delta.get("content"):
            events += self._content(content)
        elif content == "":
            self._no_text = content
        if "tool_calls" in delta or "function_call" in delta:
            events += self._read_calls(delta, whole=whole)
        return events

    def _content(self, content: object) -> list[ChunkEvent]:
        """A content may think and speak in one; only what it says is text."""
        if isinstance(content, str) and not self._parts:
            self._texts.append(content)
            return [TextDelta(content)]
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        self._parts = merge_delta(self._parts, parts)
        thoughts = [p for p in content if is_thinking_part(p)] if isinstance(content, list) else []
        told = TextDelta(text_of(content))
        if not thoughts:
            return [told]
        return [ReasoningDelta(signed=is_signed(thoughts)), *([told] if told.text else [])]

    def _read_other_member(self, name: str, value: object) -> list[ChunkEvent]:
        if isinstance(value, str) and name not in CONSTANT:
            self._streamed_members.setdefault(name, []).append(value)
            return [ReasoningDelta()] if name in READABLE_REASONING_MEMBERS and value else []
        self._extras[name] = merge_delta(self._extras.get(name), value)
        if is_signed(value):
            return [ReasoningDelta(signed=True)]
        return [ReasoningDelta()] if name in REASONING_DETAIL_MEMBERS else []

    def _read_calls(self, delta: Mapping[str, Any], *, whole: bool) -> list[ChunkEvent]:
        listed = delta.get("tool_calls")
        events: list[ChunkEvent] = []
        for at, item in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(item, dict):
                events.append(self._read_call_part(at, item | {"index": at} if whole else item))
        if isinstance(legacy := delta.get("function_call"), dict):
            events.append(self._read_call_part(LEGACY_CALL_POSITION, {"function": legacy}))
        return events

    def _read_call_part(self, at: int, item: Mapping[str, Any]) -> CallDelta:
        shape = "custom" if isinstance(item.get("custom"), dict) else "function"
        inner = item.get(shape)
        inner = inner if isinstance(inner, dict) else {}
        told = inner.get("input" if shape == "custom" else "arguments")
        written = told if isinstance(told, str) else "" if told is None else raw_json.encode(told).decode()
        # A legacy call has neither index nor id; it is one call, kept apart from those in the list.
        index = parse_index(item.get("index")) if at != LEGACY_CALL_POSITION else LEGACY_CALL_POSITION
        call = self.calls.add_part(index, text_or_empty(item.get("id")), text_or_empty(inner.get("name")), written)
        extras = self._call_extras.setdefault(
            call.position, {"shape": "legacy" if at == LEGACY_CALL_POSITION else shape}
        )
        _keep_unknown_members(extras, item, ("index", "id", shape))
        _keep_unknown_members(extras.setdefault("inner", {}), inner, ("name", "arguments", "input"))
        return CallDelta(at, call, index)

    # --------------------------------------------------------------------------------------------------------- the end
    def model_response(self, *, complete: bool) -> ModelResponse:
        """The round as it was produced. Without an ending of any kind it is not complete, however the connection
        closed."""
        self.calls.decide_owners(over=True)
        whole = complete and not self.failed and bool(self.finish_reason or self.has_ended)
        return self._build_response(self._unanswerable_calls(whole=whole), whole=whole)

    def partial_response(self) -> ModelResponse:
        """What has arrived, while more is coming: nothing is settled by asking. A call whose name may still become one
        of ours is not in it."""
        unnamed = [c for c in self.calls.calls if c.owner is CallOwner.UNKNOWN]
        return self._build_response([*self._unanswerable_calls(whole=False), *unnamed], whole=False)

    def _build_response(self, dropped: list[PartialCall], *, whole: bool) -> ModelResponse:
        return ModelResponse(
            self.build_message(dropped),
            self.finish_reason,
            usage_of(self.usage) if self.usage else usage_of_timings(self._timings),
            self.model,
            whole,
            hidden_truncated=bool(dropped)
            and self.finish_reason not in FINAL_FINISH_REASONS
            and any(not c.is_too_late for c in dropped),
            extra={"usage": raw_json.encode(self.usage)} if self.usage else {},
        )

    def _unanswerable_calls(self, *, whole: bool) -> list[PartialCall]:
        """Calls of ours that cannot be answered: cut off by the output limit or a broken stream, begun behind the
        ending, or all of them where it ends the turn."""
        if not self.calls.calls:
            return []
        found = [
            c
            for c in self.calls.calls
            if c.owner is CallOwner.OURS and (c.is_too_late or self.finish_reason in FINAL_FINISH_REASONS)
        ]
        last = self.calls.calls[-1]
        cut = self.finish_reason in TRUNCATION_FINISH_REASONS or not whole
        if (
            cut
            and last.owner is CallOwner.OURS
            and last not in found
            and not (last.argument_parts and are_valid_arguments(last.arguments))
        ):
            found.append(last)
        return found

    def build_message(self, dropped: Collection[PartialCall] = ()) -> Message:
        """The whole assistant message, without the calls that were `dropped`."""
        left_out = {c.position for c in dropped}
        calls = [c for c in self.calls.calls if c.position not in left_out]
        self.calls.assign_provider_ids(raw_json.generated_call_id)
        role, content = self._role or ASSISTANT, self._whole_content(calls=bool(calls))
        said: dict[str, Any] = {"role": role, "content": content}
        if self._streamed_members or self._extras:
            extras = {
                name: raw_json.replace_surrogates("".join(texts)) for name, texts in self._streamed_members.items()
            } | self._extras
            said |= {name: extras[name] for name in sorted(extras)}
        elif not calls and role == ASSISTANT and isinstance(content, str):
            return text_message(role, content)
        if listed := [self._encode_call(c) for c in calls if not self._is_legacy(c)]:
            said["tool_calls"] = listed
        for call in calls:
            if self._is_legacy(call):
                said["function_call"] = {"name": call.provider_name, "arguments": call.arguments}
        return read_message(raw_json.encode(said))

    def _whole_content(self, *, calls: bool) -> object:
        text = raw_json.replace_surrogates("".join(self._texts))
        if self._parts:
            return [{"type": "text", "text": text}, *self._parts] if text else self._parts
        return self._no_text if calls and not text else text

    def _is_legacy(self, call: PartialCall) -> bool:
        return bool(self._call_extras[call.position]["shape"] == "legacy")

    def _encode_call(self, call: PartialCall) -> dict[str, Any]:
        extras = dict(self._call_extras[call.position])
        shape, inner = extras.pop("shape"), extras.pop("inner")
        body = {
            "name": call.provider_name,
            "input" if shape == "custom" else "arguments": raw_json.replace_surrogates(call.arguments),
        }
        told = {"id": call.provider_id, "type": extras.pop("type", shape), shape: body | inner}
        return {name: value for name, value in told.items() if value != ""} | extras


LEGACY_CALL_POSITION = -1
"""Where a `function_call` stands, in place of a position in `tool_calls`."""


def _keep_unknown_members(into: dict[str, Any], told: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Members of a call that we have no word for; said again, the newest counts."""
    into |= {name: value for name, value in told.items() if name not in known and value is not None}
