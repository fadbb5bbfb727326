"""Writes the client's response in the messages API, streamed or plain, over all upstream rounds.

The client reads one message: the first round's, with the visible blocks of all rounds and one ending. Each block starts
and stops once, and indexes have no gap. A rewritten event keeps every byte but its index, stop reason and usage.
"""

from __future__ import annotations

import msgspec

from proxy.core.ledger import Chunk, Finish, Interceptor, OutgoingChunk, ReasoningDelta, TextDelta
from proxy.dialects import raw_json
from proxy.dialects.body import object_in, value_of
from proxy.dialects.error_bodies import ProviderFailure, anthropic_error_type
from proxy.dialects.messages.other_form import body_of_stream, opening_of_whole_message, stream_of_body
from proxy.dialects.messages.stream import MessagesRoundReader, members_or_empty
from proxy.dialects.response_writer import BaseResponseWriter, OtherForm, may_name_stack_tool
from proxy.dialects.sse import SseDecoder, SseEvent, encode_event
from proxy.dialects.usage import usage_for_client

SIGNED_REASONING = (ReasoningDelta(signed=True),)
TOOL_USE_STOP_REASON = "tool_use"
"""An end that makes no sense to a client that was shown no call."""
END_TURN_STOP_REASON = "end_turn"
IDENTITY_MEMBERS = ("id", "model")
"""Members that one answer has once, whatever its rounds say."""
FINAL_USAGE_MEMBERS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
"""Figures of a stream's ending: its beginning told the input of the first round, and the client is to know the last."""


class _Head(msgspec.Struct, gc=False):
    """What an event is, and the block it belongs to."""

    type: str = ""
    index: int | None = None


_HEAD = msgspec.json.Decoder(_Head)
_DECODE_ERRORS = (msgspec.DecodeError, RecursionError, UnicodeError)


class MessagesResponseWriter(BaseResponseWriter[MessagesRoundReader]):
    """The client's answer while it is made. `wants_usage` says nothing here: usage is a part of every stream."""

    other_form = OtherForm(body_of_stream, stream_of_body)

    def __init__(self, *, stream: bool, wants_usage: bool, intercept: bool) -> None:
        super().__init__(
            MessagesRoundReader, Interceptor(wants_usage=True, joint=""), stream=stream, intercept=intercept
        )
        self._next_index = 0
        """What the next block is counted as."""
        self._round_first_index = 0
        """What the first block of this round is counted as."""
        self._client_indexes: dict[int, int] = {}
        """What the blocks of this round are counted as by the provider, and by the client once it was shown them."""
        self._unsent_block_starts: dict[int, SseEvent] = {}
        """How blocks began that are not shown yet."""
        self._index_replacement: tuple[bytes, bytes] = (b"", b"")
        """How the provider spells the index of the text that was shown last, and how it leaves."""
        self._thinking_events: list[SseEvent] = []
        """Events of thinking without another between them: a piece that may be waiting, and to which more is added, for
        a thought has more events than pieces may wait."""
        self._held_message_delta: SseEvent | None = None
        self._blocks: list[bytes] = []
        """The blocks of a plain answer that are shown."""
        self._first: dict[str, bytes] = {}

    def begin_round(self, status: int, content_type: str, *, encoded: bool = False) -> None:
        """An upstream reply begins. `encoded`: its body is compressed, so it is not read."""
        # What a round said together with its error has not left where the round is asked again.
        self._round_first_index = self._next_index = self._round_first_index if self._held_error else self._next_index
        super().begin_round(status, content_type, encoded=encoded)
        self._client_indexes, self._unsent_block_starts = {}, {}
        self._index_replacement = (b"", b"")
        self._thinking_events = []
        self._held_message_delta = None

    def closing_error(self, message: str) -> bytes:
        """An error as the provider itself tells it in a stream; clients end their turn on it, or ask again. Behind
        half an event it would be a part of that, which nobody could read."""
        if not self._stream or not self.has_sent_bytes or self._ends_inside_event:
            return b""
        error = {"type": "error", "error": {"type": "api_error", "message": message}}
        return encode_event("error", raw_json.encode(error))

    def _encode_failure(self, failure: ProviderFailure) -> bytes:
        told = {"type": "error", "error": failure.told_error(anthropic_error_type(failure.status))}
        named = {"request_id": failure.request_id} if failure.request_id else {}
        return encode_event("error", raw_json.encode(told | named))

    # ---------------------------------------------------------------------------------------------------------- stream
    def _with_client_ids(self, raw: bytes) -> bytes:
        """More of the text that was shown last, under the index the client counts it as.

        Inside a JSON string a quote is escaped, so a member spelled with its quotes is found nowhere else.
        """
        if not self._interceptor.is_spliced:
            return raw
        theirs, ours = self._index_replacement
        return raw.replace(theirs, ours) if theirs and raw.count(theirs) == 1 else b""

    def _process_event(self, event: SseEvent) -> list[bytes]:
        head = _head(event.data)
        if head.type == "message_start" and may_name_stack_tool(event.data):
            parts = SseDecoder().feed(opening_of_whole_message(event.data))
            if len(parts) > 1:  # some servers put the whole message into its start
                return [told for part in parts for told in self._process_event(part)]
        if head.type == "content_block_start" and head.index is not None:
            self._unsent_block_starts[head.index] = event
        found = self._reader.read(event.data)
        if found != SIGNED_REASONING:
            self._thinking_events = []
            return self._process_chunk(Chunk(found, [event]))
        self._thinking_events.append(event)
        if len(self._thinking_events) > 1:
            return []  # it waits with those before it
        return self._process_chunk(Chunk(found, self._thinking_events))

    def _process_chunk(self, piece: Chunk) -> list[bytes]:
        """What leaves now that `piece` has come. Nothing is added any more to a piece that has left."""
        shown = self._interceptor.process(piece)
        if any(s.chunk.source is self._thinking_events for s in shown):
            self._thinking_events = []
        return [self._encode_outgoing(s) for s in shown]

    def _encode_outgoing(self, shown: OutgoingChunk) -> bytes:
        """The events of a piece for the client: as they came, or with what is kept of them under the client's count."""
        events = shown.chunk.source
        return b"".join(self._encode_one_event(e, shown) for e in events) if isinstance(events, list) else b""

    def _encode_one_event(self, event: SseEvent, shown: OutgoingChunk) -> bytes:
        head = _head(event.data)
        if any(isinstance(e, Finish) for e in shown.events) and self._interceptor.is_spliced:
            self._held_message_delta = event  # usage may still follow it
            return b""
        if head.type == "ping" and self._round_count > 1 and not self.round_is_visible:
            return b""  # it says nothing, and a round of which something has left cannot be asked again
        if head.index is None or not (head.index in self._unsent_block_starts or head.index in self._client_indexes):
            return event.raw
        if head.type == "content_block_start":
            return self._encode_block_start(head.index, _changed_text(shown))
        begun = b""
        if head.index not in self._client_indexes:
            if head.type == "content_block_stop":
                return b""  # a text of blanks, of which nothing is shown
            begun = self._encode_block_start(head.index, "")  # a text that began blank begins with its first word
        number = self._client_indexes[head.index]
        if any(isinstance(e, TextDelta) for e in shown.events):
            self._index_replacement = _index_spellings(event.raw, head.index, number)
        return begun + _encode_with_index(event, head.index, number, "delta", _changed_text(shown))

    def _encode_block_start(self, index: int, text: str | None) -> bytes:
        """How a block begins that is shown now; with these words in the place of its own, if any are given."""
        event = self._unsent_block_starts.pop(index)
        number = self._next_index if self._interceptor.is_spliced else index
        self._client_indexes[index] = number
        self._next_index = max(self._next_index, number + 1)
        return _encode_with_index(event, index, number, "content_block", text)

    def _final_stream_bytes(self) -> bytes:
        if self._reader.failed or not self._interceptor.is_spliced:
            return b""
        ending = _event(self._interceptor.held_finish) or self._held_message_delta
        end = _event(self._interceptor.held_end)
        return (self._encode_final_message_delta(ending) if ending else b"") + (end.raw if end else b"")

    def _encode_final_message_delta(self, event: SseEvent) -> bytes:
        fields = raw_json.members(event.data)
        delta = raw_json.members(fields["delta"])
        fields["delta"] = raw_json.join_object({**delta, "stop_reason": raw_json.encode(self._reason())})
        if self._round_usages:
            told = usage_for_client(self._round_usages)
            names = {*object_in(fields, "usage"), *FINAL_USAGE_MEMBERS}
            fields["usage"] = raw_json.encode({name: said for name, said in told.items() if name in names})
        return encode_event("message_delta", raw_json.join_object(fields))

    def _reason(self) -> str:
        """The provider's own word, but a client that was shown no call is not told that there are some."""
        told = self._reader.finish_reason
        return (
            END_TURN_STOP_REASON if told == TOOL_USE_STOP_REASON and not self._interceptor.client_call_count else told
        )

    # ------------------------------------------------------------------------------------------------------ plain body
    def _end_body_round(self, body: bytes) -> None:
        pieces = self._reader.chunks_of_body(body)
        if not self._intercept or not pieces:
            return
        if not self._first:
            fields = raw_json.members(body)
            self._first = {name: fields[name] for name in IDENTITY_MEMBERS if name in fields}
        left = [shown for piece in pieces for shown in self._interceptor.process(piece)] + self._interceptor.end_round()
        self._blocks += [block for shown in left if (block := _block(shown))]

    def _final_body(self, body: bytes) -> bytes:
        """The last round's body, or the answer of all rounds in its shape."""
        if not self._reader.has_ended or not self._interceptor.is_spliced:
            return body
        fields = {**raw_json.members(body), **self._first, "content": raw_json.join_array(self._blocks)}
        if self._reader.finish_reason:
            fields["stop_reason"] = raw_json.encode(self._reason())
        if self._reader.usage:
            fields["usage"] = raw_json.encode(usage_for_client(self._round_usages))
        return raw_json.join_object(fields)


# ------------------------------------------------------------------------------------------------------------- events
def _head(data: bytes) -> _Head:
    """An event whose members have unexpected types belongs to no block."""
    try:
        return _HEAD.decode(data)
    except _DECODE_ERRORS:
        pass
    fields = members_or_empty(data)
    kind, index = value_of(fields, "type"), value_of(fields, "index")
    return _Head(kind if isinstance(kind, str) else "", index if isinstance(index, int) else None)


def _event(piece: Chunk | None) -> SseEvent | None:
    return piece.source[0] if piece and isinstance(piece.source, list) else None


def _changed_text(shown: OutgoingChunk) -> str | None:
    """The words that are shown, where these are not the words that came."""
    came = next((e for e in shown.chunk.events if isinstance(e, TextDelta)), None)
    told = next((e for e in shown.events if isinstance(e, TextDelta)), None)
    return told.text if told and told != came else None


def _encode_with_index(event: SseEvent, index: int, number: int, member: str, text: str | None) -> bytes:
    """An event of a block, counted as `number`; with `text` in its `member`, where that is given."""
    if index == number and text is None:
        return event.raw
    fields = raw_json.members(event.data)
    if text is not None and member in fields:
        said = {**raw_json.members(fields[member]), "text": raw_json.encode(text)}
        fields[member] = raw_json.join_object(said)
    fields["index"] = str(number).encode()
    return encode_event(_head(event.data).type, raw_json.join_object(fields))


def _index_spellings(raw: bytes, index: int, number: int) -> tuple[bytes, bytes]:
    """How this event spells its index, and how the client's is spelled; nothing where it does so unusually."""
    spelled = (b'"index":%s%d%s' % (gap, index, end) for gap in (b"", b" ") for end in (b",", b"}"))
    found = next((s for s in spelled if raw.count(s) == 1), b"")
    return found, b'"index":%d%s' % (number, found[-1:])


def _block(shown: OutgoingChunk) -> bytes:
    """A block of a plain answer as it came, or with the words that are shown of it."""
    raw, text = shown.chunk.source, _changed_text(shown)
    if not isinstance(raw, bytes):
        return b""
    return raw if text is None else raw_json.join_object({**raw_json.members(raw), "text": raw_json.encode(text)})
