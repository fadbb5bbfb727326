"""One round of a messages answer, read: what each event brings, and the whole message at the end.

An answer is a row of content blocks. Each begins as an object, grows by deltas and stops; a plain answer is the same
row, grown. The law: **a block is what it was produced as**. What did not grow keeps its bytes, so a signature, the
result of a server's tool or a block nobody has heard of goes back exactly as it came.

What this module does not do: it writes nothing to a client (`anthropic_answer`) and decides nothing
(`stack.intercept`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from proxy.core.ledger.ledger import EDITED, SEALED
from proxy.core.ledger.messages import Call, Message, Spoken
from proxy.core.ledger.tool_call_interceptor import (
    CallPart,
    End,
    Event,
    Fault,
    Finish,
    OpenCall,
    Opening,
    Other,
    Owner,
    Piece,
    Reasoning,
    Text,
    UsageTold,
    is_whole,
)
from proxy.dialects import raw_json as slices
from proxy.dialects.body import object_in, value_of
from proxy.dialects.json_deltas import merged
from proxy.dialects.messages.message import CALL, COMPACTION, REASONING, TEXT, read_message
from proxy.dialects.response_writer import Reading
from proxy.dialects.usage import merged_usage, usage_of

CUT = ("max_tokens", "model_context_window_exceeded")
"""Words for: there was no room for the rest of the answer."""
ENDS_THE_TURN = ("pause_turn", "refusal")
"""Ends behind which no call of ours is answered: the client goes on from them, or does not."""
GROWING = {"text_delta": "text", "thinking_delta": "thinking"}
"""Deltas of one text, and the member of a block that it grows."""


class _Delta(msgspec.Struct, gc=False):
    type: str
    text: str | None = None
    partial_json: str | None = None


class _More(msgspec.Struct, gc=False):
    """One more piece of a block that is open, and nothing else: the shape of nearly every event."""

    type: str
    index: int
    delta: _Delta


_MORE = msgspec.json.Decoder(_More)
_REFUSED = (msgspec.DecodeError, RecursionError, UnicodeError)


# -------------------------------------------------------------------------------------------------------------- block
@dataclass(eq=False, slots=True)
class Block:
    """A content block while it arrives. `raw` is as it began; `call` is there where it is the call of a tool."""

    kind: str
    raw: bytes
    fields: dict[str, bytes]
    call: OpenCall | None = None
    written: list[str] = field(default_factory=list)
    """The pieces of its input."""
    closed: bool = False
    """It has stopped."""
    _texts: dict[str, list[str]] = field(default_factory=dict)
    _cited: list[bytes] = field(default_factory=list)
    _grew: bool = False

    @property
    def text(self) -> str:
        """The words of a text block."""
        return slices.mended("".join([_word(self.fields, "text"), *self._texts.get("text", ())]))

    def say(self, text: str) -> None:
        self._texts.setdefault("text", []).append(text)
        self._grew = True

    def take(self, delta: Mapping[str, bytes]) -> None:
        """Grow by one delta; of a kind we have no word for every member grows. Of the others nothing else is taken:
        what a delta tells beside its text, such as an estimate of its tokens, may not be sent back."""
        self._grew = True
        kind = _word(delta, "type")
        if name := GROWING.get(kind):
            self._texts.setdefault(name, []).append(_word(delta, name, mend=False))
        elif kind == "input_json_delta":
            self.written.append(_word(delta, "partial_json", mend=False))
        elif kind == "signature_delta":
            self.fields["signature"] = delta.get("signature", b'""')
        elif kind == "citations_delta":
            self._cited.append(delta.get("citation", b"null"))
        else:
            self._merge(delta)

    def _merge(self, delta: Mapping[str, bytes]) -> None:
        for name in delta:
            if name != "type" and (new := value_of(delta, name)) is not None:
                grown = merged({name: value_of(self.fields, name)}, {name: new})
                self.fields[name] = slices.encoded(grown[name])

    @property
    def arguments(self) -> str:
        """The input as it was written, be it valid JSON or not."""
        written = slices.mended("".join(self.written)).strip()
        return written or self.fields.get("input", b"{}").decode("utf-8", "replace")

    @property
    def has_whole_input(self) -> bool:
        """Whether its input surely is all of it: nothing at all may be the beginning of something, and a value was
        closed by who told it, wherever the text of it broke off."""
        return is_whole(self.arguments) and bool("".join(self.written).strip())

    @property
    def is_blank(self) -> bool:
        """A text without words: providers refuse to have it sent back."""
        return self.kind == TEXT and not self.text.strip()

    @property
    def is_half(self) -> bool:
        """Thinking that broke off: it has no signature, and is worth nothing without one."""
        return self.kind in REASONING and not self.closed

    def wire(self) -> bytes:
        """The block as a later request carries it. An input that is no object becomes an empty one: nothing else may
        be sent."""
        fields = dict(self.fields)
        for name, texts in self._texts.items():
            fields[name] = slices.encoded(slices.mended("".join([_word(self.fields, name, mend=False), *texts])))
        if self.call or self.written:
            fields["input"] = _object(self.arguments)
        if self._cited:
            fields["citations"] = slices.array_of([*_items(fields.get("citations")), *self._cited])
        return self.raw if not self._grew and fields == self.fields else slices.object_of(fields)


def _object(arguments: str) -> bytes:
    return arguments.encode() if arguments.startswith("{") and is_whole(arguments) else b"{}"


def members_of(raw: bytes | None) -> dict[str, bytes]:
    """The members of an object; none where it is no object."""
    try:
        return slices.members(raw or b"{}")
    except slices.NotSliced:
        return {}


def _items(raw: bytes | None) -> list[bytes]:
    """The items of an array; none where it is no array."""
    try:
        return slices.items(raw or b"[]")
    except slices.NotSliced:
        return []


def _word(fields: Mapping[str, bytes], name: str, *, mend: bool = True) -> str:
    """A member that is a string; empty where it is none. Half of a surrogate pair whose other half may still come is
    left alone without `mend`."""
    try:
        said = slices.value(fields.get(name, b"null"), mend=mend)
    except slices.NotSliced:
        return ""
    return said if isinstance(said, str) else ""


# -------------------------------------------------------------------------------------------------------------- round
class Round(Reading):
    """What has arrived of one round so far; its usage is that of the beginning and the end together."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[Block] = []
        self._at: dict[int, Block] = {}
        self._edits = b""

    def plain(self, data: bytes, *, text: bool = True, calls: bool = True) -> bool:
        """Whether this event is one more piece of a text (if `text`) or of the input of a call (if `calls`) and
        nothing else; if so it is taken.

        The path nearly every event goes, so it comes before everything that needs a decision.
        """
        try:
            more = _MORE.decode(data)
        except _REFUSED:
            return False
        block, delta = self._at.get(more.index), more.delta
        if block is None or more.type != "content_block_delta":
            return False
        if text and not self.ended and delta.type == "text_delta" and block.kind == TEXT and delta.text is not None:
            block.say(delta.text)
            return True
        if calls and delta.type == "input_json_delta" and block.call and delta.partial_json is not None:
            block.written.append(delta.partial_json)
            return True
        return False

    def read(self, data: bytes) -> tuple[Event, ...]:
        """What this event brings, in the order a client would take it in."""
        fields = members_of(data)
        index = value_of(fields, "index")
        match _word(fields, "type"):
            case "message_start":
                events = self._start(object_in(fields, "message"))
            case "content_block_start":
                events = (self._open(index, fields.get("content_block", b"")),)
            case "content_block_delta":
                events = (self._grow(index, members_of(fields.get("delta"))),)
            case "content_block_stop":
                events = (self._close(index),)
            case "message_delta":
                events = self._ending(members_of(fields.get("delta")), fields)
            case "message_stop":
                events = self._end()
            case "error":
                self.failed = True
                self.fault = self.fault or fields.get("error", data)
                events = (Fault(),)
            case _:
                events = ()
        return events or (Other(),)

    def pieces(self, body: bytes) -> list[Piece]:
        """A plain answer, each block a piece of its own with its bytes as the source; the last piece is the ending."""
        fields = members_of(body)
        if "content" not in fields:
            self.failed = "error" in fields
            self.fault = fields.get("error", b"")
            return []
        self.model = _word(fields, "model")
        found = [Piece((self._open(at, raw),), raw) for at, raw in enumerate(_items(fields["content"]))]
        self.ended = True
        return [*found, Piece(self._ending(fields, fields), b"")]

    # --------------------------------------------------------------------------------------------------------- events
    def _start(self, message: Mapping[str, Any]) -> tuple[Event, ...]:
        if isinstance(model := message.get("model"), str):
            self.model = model
        self._told(message.get("usage"))
        return (Opening(),)

    def _told(self, usage: object) -> bool:
        if not isinstance(usage, dict) or not usage:
            return False
        self.usage = merged_usage(self.usage or {}, usage)
        return True

    def _open(self, index: object, raw: bytes) -> Event:
        fields = members_of(raw)
        if not fields or not isinstance(index, int):
            return Other()
        block = Block(_word(fields, "type"), raw, fields)
        self.blocks.append(block)
        self._at[index] = block
        if block.kind == CALL:
            block.call = self.calls.take(index, _word(fields, "id"), _word(fields, "name"), "")
            block.call.given = block.arguments  # as yet those it began with
            block.written = block.call.written
            self.calls.settle()  # a name comes as a whole
        return self._said(index, block.text)

    def _grow(self, index: object, delta: Mapping[str, bytes]) -> Event:
        block = self._at.get(index) if isinstance(index, int) else None
        if block is None:
            return Other()
        if self.ended and not block.call:
            return self._said(index)  # behind the terminator nothing grows: a thought would not be what was signed
        block.take(delta)
        return self._said(index, _word(delta, "text", mend=False) if _word(delta, "type") == "text_delta" else None)

    def _close(self, index: object) -> Event:
        if isinstance(index, int) and index in self._at:
            self._at[index].closed = True
        return self._said(index)

    def _said(self, index: object, text: str | None = None) -> Event:
        """What an event of the block at `index` is; `text` are the words it brought."""
        block = self._at.get(index) if isinstance(index, int) else None
        if block and block.call and isinstance(index, int):
            return CallPart(0, block.call, index)
        if block and block.kind in REASONING:
            return Reasoning(signed=True)
        return Other() if text is None or block is None or block.kind != TEXT else Text(text)

    def _ending(self, told: Mapping[str, bytes], around: Mapping[str, bytes]) -> tuple[Event, ...]:
        """Why it ended (in `told`), what it cost and what was edited out of the request (in `around`)."""
        events: list[Event] = []
        if reason := _word(told, "stop_reason"):
            self.finish = reason
            events.append(Finish(reason))
        if self._told(value_of(around, "usage")):
            events.append(UsageTold())
        edits = members_of(around.get("context_management")).get("applied_edits")
        if _items(edits):
            self._edits = edits or b""
        return tuple(events)

    def _end(self) -> tuple[Event, ...]:
        """A terminator with nothing before it: the provider failed and did not say so."""
        said = bool(self.blocks or self.finish)
        self.ended = True
        self.silent = not said and not self.failed
        self.failed = self.failed or not said
        return (End(),)

    # -------------------------------------------------------------------------------------------------------- the end
    def spoken(self, *, complete: bool) -> Spoken:
        """The round as it was produced. Without an ending of any kind it is not complete, however the connection
        closed."""
        whole = complete and not self.failed and bool(self.finish or self.ended)
        ours = [b for b in self.blocks if b.call and b.call.owner is Owner.OURS]
        dropped = [b for b in ours if self.finish in ENDS_THE_TURN or (b.call and b.call.late)]
        cut = [b for b in ours if b is self._last_call and b not in dropped and not b.has_whole_input]
        if whole and self.finish not in CUT:
            cut = []
        extra = {"usage": slices.encoded(self.usage)} if self.usage else {}
        return Spoken(
            self._message([b for b in self.blocks if b not in dropped and b not in cut and (whole or not b.is_half)]),
            self.finish,
            usage_of(self.usage) if self.usage else None,
            self.model,
            whole,
            hidden_truncated=bool(cut),
            extra=extra | self._provider_did(),
        )

    def _provider_did(self) -> dict[str, bytes]:
        """What the provider edited out of the request, and that it compacted it."""
        edited = {EDITED: self._edits} if self._edits else {}
        return edited | ({SEALED: b"[]"} if any(block.kind == COMPACTION for block in self.blocks) else {})

    def so_far(self) -> Spoken:
        """What has arrived, while more is coming: nothing is settled by asking. A call begins with an empty input that
        stands for one to come."""
        said = self.spoken(complete=False)
        bare = {b.call.id for b in self.blocks if b.call and not b.closed and not any(b.written)}
        if not bare:
            return said
        calls = tuple(replace(call, arguments="") if call.id in bare else call for call in said.message.calls)
        return replace(said, message=replace(said.message, calls=calls))

    @property
    def _last_call(self) -> Block | None:
        return next((b for b in reversed(self.blocks) if b.call), None)

    def _message(self, blocks: Sequence[Block]) -> Message:
        """The assistant message of these blocks, as a later request carries it."""
        content = slices.array_of([b.wire() for b in blocks if not b.is_blank])
        message = read_message(b'{"role":"assistant","content":' + content + b"}")
        # What is written for a tool is answered as it was written; the wire can only hold an object.
        written = (Call(b.call.id, b.call.name, b.arguments) for b in blocks if b.call)
        return replace(message, calls=tuple(written))
