"""Reads one round of a messages response: the effect of each event, and the whole message at the end.

Content blocks that do not grow keep their bytes, so signatures, server tool results and unknown blocks go back exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from proxy.core.ledger import (
    CONTEXT_EDITS_KEY,
    PROVIDER_COMPACTIONS_KEY,
    Call,
    CallDelta,
    CallOwner,
    Chunk,
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
from proxy.dialects.body import object_in, value_of
from proxy.dialects.json_deltas import merge_delta
from proxy.dialects.messages.message import COMPACTION, REASONING, TEXT, TOOL_USE, read_message
from proxy.dialects.response_writer import RoundReader
from proxy.dialects.usage import merge_usage, usage_of

TRUNCATION_STOP_REASONS = ("max_tokens", "model_context_window_exceeded")
"""Words for: there was no room for the rest of the answer."""
# `pause_turn` wants the same messages back, with the server's tool call unfinished. A round of ours in between would
# part that call from its result.
FINAL_STOP_REASONS = ("pause_turn", "refusal")
"""Ends behind which no call of ours is answered: the client goes on from them, or does not."""
MEMBER_BY_DELTA_TYPE = {"text_delta": "text", "thinking_delta": "thinking"}
"""Deltas of one text, and the member of a block that it grows."""


class _Delta(msgspec.Struct, gc=False):
    type: str
    text: str | None = None
    partial_json: str | None = None


class _SimpleDelta(msgspec.Struct, gc=False):
    """One more piece of a block that is open, and nothing else: the shape of nearly every event."""

    type: str
    index: int
    delta: _Delta


_SIMPLE_DELTA_DECODER = msgspec.json.Decoder(_SimpleDelta)
_DECODE_ERRORS = (msgspec.DecodeError, RecursionError, UnicodeError)


# -------------------------------------------------------------------------------------------------------------- block
@dataclass(eq=False, slots=True)
class ContentBlock:
    """A content block while it arrives. `raw` is as it began; `call` is there where it is the call of a tool."""

    kind: str
    raw: bytes
    fields: dict[str, bytes]
    call: PartialCall | None = None
    input_parts: list[str] = field(default_factory=list)
    """The pieces of its input."""
    closed: bool = False
    """It has stopped."""
    _texts: dict[str, list[str]] = field(default_factory=dict)
    _cited: list[bytes] = field(default_factory=list)
    _has_grown: bool = False

    @property
    def text(self) -> str:
        """The words of a text block."""
        return raw_json.replace_surrogates("".join([_text_or_empty(self.fields, "text"), *self._texts.get("text", ())]))

    def add_text(self, text: str) -> None:
        self._texts.setdefault("text", []).append(text)
        self._has_grown = True

    def add_delta(self, delta: Mapping[str, bytes]) -> None:
        """Grow by one delta; of a kind we have no word for every member grows. Of the others nothing else is taken:
        what a delta tells beside its text, such as an estimate of its tokens, may not be sent back."""
        self._has_grown = True
        kind = _text_or_empty(delta, "type")
        if name := MEMBER_BY_DELTA_TYPE.get(kind):
            self._texts.setdefault(name, []).append(_text_or_empty(delta, name, mend=False))
        elif kind == "input_json_delta":
            self.input_parts.append(_text_or_empty(delta, "partial_json", mend=False))
        # Newer Claude models sign a block whose text may be empty. An altered signature is a 400 in the next request,
        # on every account (2026-08).
        elif kind == "signature_delta":
            self.fields["signature"] = delta.get("signature", b'""')
        elif kind == "citations_delta":
            self._cited.append(delta.get("citation", b"null"))
        else:
            for name in delta:
                if name != "type" and (new := value_of(delta, name)) is not None:
                    grown = merge_delta({name: value_of(self.fields, name)}, {name: new})
                    self.fields[name] = raw_json.encode(grown[name])

    @property
    def arguments(self) -> str:
        """The input as it was written, be it valid JSON or not."""
        written = raw_json.replace_surrogates("".join(self.input_parts)).strip()
        return written or self.fields.get("input", b"{}").decode("utf-8", "replace")

    @property
    def has_complete_input(self) -> bool:
        """Whether its input surely is all of it: nothing at all may be the beginning of something, and a value was
        closed by who told it, wherever the text of it broke off."""
        return are_valid_arguments(self.arguments) and bool("".join(self.input_parts).strip())

    @property
    def is_blank(self) -> bool:
        """A text without words: providers refuse to have it sent back."""
        return self.kind == TEXT and not self.text.strip()

    @property
    def is_unfinished_thinking(self) -> bool:
        """Thinking that broke off: it has no signature, and is worth nothing without one."""
        return self.kind in REASONING and not self.closed

    def encode(self) -> bytes:
        """The block as a later request carries it. An input that is no object becomes an empty one: nothing else may
        be sent."""
        fields = dict(self.fields)
        if self.call and self.call.provider_id != self.call.id:
            fields["id"] = raw_json.encode(self.call.provider_id)
        if self.call and self.call.provider_name != self.call.name:
            fields["name"] = raw_json.encode(self.call.provider_name)
        for name, texts in self._texts.items():
            fields[name] = raw_json.encode(
                raw_json.replace_surrogates("".join([_text_or_empty(self.fields, name, mend=False), *texts]))
            )
        if self.call or self.input_parts:
            written = self.arguments
            is_object = written.startswith("{") and are_valid_arguments(written)
            fields["input"] = written.encode() if is_object else b"{}"
        if self._cited:
            fields["citations"] = raw_json.join_array([*_items(fields.get("citations")), *self._cited])
        return self.raw if not self._has_grown and fields == self.fields else raw_json.join_object(fields)


def members_or_empty(raw: bytes | None) -> dict[str, bytes]:
    """The members of an object; none where it is no object."""
    try:
        return raw_json.members(raw or b"{}")
    except raw_json.JsonSplitError:
        return {}


def _items(raw: bytes | None) -> list[bytes]:
    """The items of an array; none where it is no array."""
    try:
        return raw_json.items(raw or b"[]")
    except raw_json.JsonSplitError:
        return []


def _text_or_empty(fields: Mapping[str, bytes], name: str, *, mend: bool = True) -> str:
    """A member that is a string; empty where it is none. Half of a surrogate pair whose other half may still come is
    left alone without `mend`."""
    try:
        said = raw_json.parse(fields.get(name, b"null"), mend=mend)
    except raw_json.JsonSplitError:
        return ""
    return said if isinstance(said, str) else ""


# -------------------------------------------------------------------------------------------------------------- round
class MessagesRoundReader(RoundReader):
    """What has arrived of one round so far; its usage is that of the beginning and the end together."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[ContentBlock] = []
        self._blocks_by_index: dict[int, ContentBlock] = {}
        self._edits = b""

    def take_simple_delta(self, data: bytes, *, text: bool = True, calls: bool = True) -> bool:
        """Whether this event is one more piece of a text (if `text`) or of the input of a call (if `calls`) and
        nothing else; if so it is taken.

        The path nearly every event goes, so it comes before everything that needs a decision.
        """
        try:
            more = _SIMPLE_DELTA_DECODER.decode(data)
        except _DECODE_ERRORS:
            return False
        block, delta = self._blocks_by_index.get(more.index), more.delta
        if block is None or more.type != "content_block_delta":
            return False
        if text and not self.has_ended and delta.type == "text_delta" and block.kind == TEXT and delta.text is not None:
            block.add_text(delta.text)
            return True
        if calls and delta.type == "input_json_delta" and block.call and delta.partial_json is not None:
            block.input_parts.append(delta.partial_json)
            return True
        return False

    def read(self, data: bytes) -> tuple[ChunkEvent, ...]:
        """What this event brings, in the order a client would take it in."""
        fields = members_or_empty(data)
        index = value_of(fields, "index")
        match _text_or_empty(fields, "type"):
            case "message_start":
                events = self._read_message_start(object_in(fields, "message"))
            case "content_block_start":
                events = (self._open(index, fields.get("content_block", b"")),)
            case "content_block_delta":
                events = (self._grow(index, members_or_empty(fields.get("delta"))),)
            case "content_block_stop":
                events = (self._close(index),)
            case "message_delta":
                events = self._read_message_delta(members_or_empty(fields.get("delta")), fields)
            case "message_stop":
                events = self._read_message_stop()
            case "error":
                self.failed = True
                self.error = self.error or fields.get("error", data)
                events = (StreamError(),)
            case _:
                events = ()
        return events or (UnknownEvent(),)

    def chunks_of_body(self, body: bytes) -> list[Chunk]:
        """A plain answer, each block a piece of its own with its bytes as the source; the last piece is the ending."""
        fields = members_or_empty(body)
        if "content" not in fields:
            self.failed = "error" in fields
            self.error = fields.get("error", b"")
            return []
        self.model = _text_or_empty(fields, "model")
        found = [Chunk((self._open(at, raw),), raw) for at, raw in enumerate(_items(fields["content"]))]
        self.has_ended = True
        return [*found, Chunk(self._read_message_delta(fields, fields), b"")]

    # --------------------------------------------------------------------------------------------------------- events
    def _read_message_start(self, message: Mapping[str, Any]) -> tuple[ChunkEvent, ...]:
        if isinstance(model := message.get("model"), str):
            self.model = model
        self._add_usage(message.get("usage"))
        return (ResponseStart(),)

    def _add_usage(self, usage: object) -> bool:
        if not isinstance(usage, dict) or not usage:
            return False
        self.usage = merge_usage(self.usage or {}, usage)
        return True

    def _open(self, index: object, raw: bytes) -> ChunkEvent:
        fields = members_or_empty(raw)
        if not fields or not isinstance(index, int):
            return UnknownEvent()
        block = ContentBlock(_text_or_empty(fields, "type"), raw, fields)
        self.blocks.append(block)
        self._blocks_by_index[index] = block
        if block.kind == TOOL_USE:
            block.call = self.calls.add_part(index, _text_or_empty(fields, "id"), _text_or_empty(fields, "name"), "")
            block.call.initial_arguments = block.arguments  # as yet those it began with
            block.input_parts = block.call.argument_parts
            self.calls.decide_owners()  # a name comes as a whole
        return self._block_event(index, block.text)

    def _grow(self, index: object, delta: Mapping[str, bytes]) -> ChunkEvent:
        block = self._blocks_by_index.get(index) if isinstance(index, int) else None
        if block is None:
            return UnknownEvent()
        if self.has_ended and not block.call:
            return self._block_event(
                index
            )  # behind the terminator nothing grows: a thought would not be what was signed
        block.add_delta(delta)
        return self._block_event(
            index, _text_or_empty(delta, "text", mend=False) if _text_or_empty(delta, "type") == "text_delta" else None
        )

    def _close(self, index: object) -> ChunkEvent:
        if isinstance(index, int) and index in self._blocks_by_index:
            self._blocks_by_index[index].closed = True
        return self._block_event(index)

    def _block_event(self, index: object, text: str | None = None) -> ChunkEvent:
        """What an event of the block at `index` is; `text` are the words it brought."""
        block = self._blocks_by_index.get(index) if isinstance(index, int) else None
        if block and block.call and isinstance(index, int):
            return CallDelta(0, block.call, index)
        if block and block.kind in REASONING:
            return ReasoningDelta(signed=True)
        return UnknownEvent() if text is None or block is None or block.kind != TEXT else TextDelta(text)

    def _read_message_delta(self, told: Mapping[str, bytes], around: Mapping[str, bytes]) -> tuple[ChunkEvent, ...]:
        """Why it ended (in `told`), what it cost and what was edited out of the request (in `around`)."""
        events: list[ChunkEvent] = []
        if reason := _text_or_empty(told, "stop_reason"):
            self.finish_reason = reason
            events.append(Finish(reason))
        if self._add_usage(value_of(around, "usage")):
            events.append(UsageReport())
        edits = members_or_empty(around.get("context_management")).get("applied_edits")
        if _items(edits):
            self._edits = edits or b""
        return tuple(events)

    def _read_message_stop(self) -> tuple[ChunkEvent, ...]:
        """A terminator with nothing before it: the provider failed and did not say so."""
        said = bool(self.blocks or self.finish_reason)
        self.has_ended = True
        self.is_empty = not said and not self.failed
        self.failed = self.failed or not said
        return (StreamEnd(),)

    # -------------------------------------------------------------------------------------------------------- the end
    def model_response(self, *, complete: bool) -> ModelResponse:
        """The round as it was produced. Without an ending of any kind it is not complete, however the connection
        closed."""
        whole = complete and not self.failed and bool(self.finish_reason or self.has_ended)
        calls = [b for b in self.blocks if b.call]
        ours = [b for b in calls if b.call and b.call.owner is CallOwner.OURS]
        dropped = {id(b) for b in ours if self.finish_reason in FINAL_STOP_REASONS or (b.call and b.call.is_too_late)}
        cut = [b for b in ours[-1:] if b is calls[-1] and id(b) not in dropped and not b.has_complete_input]
        if whole and self.finish_reason not in TRUNCATION_STOP_REASONS:
            cut = []
        extra = {"usage": raw_json.encode(self.usage)} if self.usage else {}
        return ModelResponse(
            self._build_message(
                [
                    b
                    for b in self.blocks
                    if id(b) not in dropped and b not in cut and (whole or not b.is_unfinished_thinking)
                ]
            ),
            self.finish_reason,
            usage_of(self.usage) if self.usage else None,
            self.model,
            whole,
            hidden_truncated=bool(cut),
            extra=extra | self._provider_changes(),
        )

    def _provider_changes(self) -> dict[str, bytes]:
        """What the provider edited out of the request, and that it compacted it."""
        edited = {CONTEXT_EDITS_KEY: self._edits} if self._edits else {}
        return edited | (
            {PROVIDER_COMPACTIONS_KEY: b"[]"} if any(block.kind == COMPACTION for block in self.blocks) else {}
        )

    def partial_response(self) -> ModelResponse:
        """What has arrived, while more is coming: nothing is settled by asking. A call begins with an empty input that
        stands for one to come."""
        said = self.model_response(complete=False)
        bare = {b.call.provider_id for b in self.blocks if b.call and not b.closed and not any(b.input_parts)}
        if not bare:
            return said
        calls = tuple(replace(call, arguments="") if call.id in bare else call for call in said.message.calls)
        return replace(said, message=replace(said.message, calls=calls))

    def _build_message(self, blocks: Sequence[ContentBlock]) -> Message:
        """The assistant message of these blocks, as a later request carries it."""
        self.calls.assign_provider_ids(raw_json.generated_call_id)
        content = raw_json.join_array([b.encode() for b in blocks if not b.is_blank])
        message = read_message(b'{"role":"assistant","content":' + content + b"}")
        # What is written for a tool is answered as it was written; the wire can only hold an object.
        written = (Call(b.call.provider_id, b.call.provider_name, b.arguments) for b in blocks if b.call)
        return replace(message, calls=tuple(written))
