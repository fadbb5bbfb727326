"""Messages, the answer's side: what the provider sends, written for the client.

    answer = Answer(stream=True, wants_usage=True, intercept=True)

is used as `dialects.answering` tells. The client reads one message: that of the first round, whose blocks are those
that are shown of all rounds, counted on without a gap, with one ending. Two texts of two rounds are two blocks, so
nothing is said between them.

The law: **every block a client is shown begins once, stops once, and is counted as the one behind the last**. An event
that is written anew keeps the bytes of every member but its index, and in the ending the reason and the usage.

What this module does not do: it reads no event (`anthropic_round`), and it decides neither what is shown
(`stack.intercept`) nor whether a round follows.
"""

from __future__ import annotations

import msgspec

from proxy.core.ledger.tool_call_interceptor import Finish, Piece, Reasoning, Show, Shown, Text
from proxy.dialects import raw_json as slices
from proxy.dialects.body import object_in, value_of
from proxy.dialects.messages.stream import Round, members_of
from proxy.dialects.response_writer import Answering
from proxy.dialects.sse import SseEvent, written
from proxy.dialects.usage import told_of

THOUGHT = (Reasoning(signed=True),)
CALLS_MADE = "tool_use"
"""An end that makes no sense to a client that was shown no call."""
NO_CALLS = "end_turn"
FIRST_OF_ALL = ("id", "model")
"""Members that one answer has once, whatever its rounds say."""
TOLD_AT_THE_END = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
"""Figures of a stream's ending: its beginning told the input of the first round, and the client is to know the last."""


class _Head(msgspec.Struct, gc=False):
    """What an event is, and the block it belongs to."""

    type: str = ""
    index: int | None = None


_HEAD = msgspec.json.Decoder(_Head)
_REFUSED = (msgspec.DecodeError, RecursionError, UnicodeError)


class Answer(Answering[Round]):
    """The client's answer while it is made. `wants_usage` says nothing here: usage is a part of every stream."""

    def __init__(self, *, stream: bool, wants_usage: bool, intercept: bool) -> None:
        super().__init__(Round, Show(wants_usage=True, joint=""), stream=stream, intercept=intercept)
        self._next = 0
        """What the next block is counted as."""
        self._base = 0
        """What the first block of this round is counted as."""
        self._numbers: dict[int, int] = {}
        """What the blocks of this round are counted as by the provider, and by the client once it was shown them."""
        self._starts: dict[int, SseEvent] = {}
        """How blocks began that are not shown yet."""
        self._swap: tuple[bytes, bytes] = (b"", b"")
        """How the provider spells the index of the text that was shown last, and how it leaves."""
        self._thoughts: list[SseEvent] = []
        """Events of thinking without another between them: a piece that may be waiting, and to which more is added, for
        a thought has more events than pieces may wait."""
        self._ending: SseEvent | None = None
        self._blocks: list[bytes] = []
        """The blocks of a plain answer that are shown."""
        self._first: dict[str, bytes] = {}

    def begin_round(self, status: int, content_type: str, *, encoded: bool = False) -> None:
        """An upstream reply begins. `encoded`: its body is compressed, so it is not read."""
        # What a round said together with its error has not left where the round is asked again.
        self._base = self._next = self._base if self._fault else self._next
        super().begin_round(status, content_type, encoded=encoded)
        self._numbers, self._starts = {}, {}
        self._swap = (b"", b"")
        self._thoughts = []
        self._ending = None

    def broken(self, message: str) -> bytes:
        """An error as the provider itself tells it in a stream; clients end their turn on it, or ask again. Behind
        half an event it would be a part of that, which nobody could read."""
        if not self._stream or not self.begun or self._half_told:
            return b""
        error = {"type": "error", "error": {"type": "api_error", "message": message}}
        return written("error", slices.encoded(error))

    # ---------------------------------------------------------------------------------------------------------- stream
    def _renamed(self, raw: bytes) -> bytes:
        """More of the text that was shown last, under the index the client counts it as.

        Inside a JSON string a quote is escaped, so a member spelled with its quotes is found nowhere else.
        """
        if not self._show.spliced:
            return raw
        theirs, ours = self._swap
        return raw.replace(theirs, ours) if theirs and raw.count(theirs) == 1 else b""

    def _seen(self, event: SseEvent) -> list[bytes]:
        head = _head(event.data)
        if head.type == "content_block_start" and head.index is not None:
            self._starts[head.index] = event
        found = self._round.read(event.data)
        if found != THOUGHT:
            self._thoughts = []
            return self._told(Piece(found, [event]))
        self._thoughts.append(event)
        if len(self._thoughts) > 1:
            return []  # it waits with those before it
        return self._told(Piece(found, self._thoughts))

    def _told(self, piece: Piece) -> list[bytes]:
        """What leaves now that `piece` has come. Nothing is added any more to a piece that has left."""
        shown = self._show.see(piece)
        if any(s.piece.source is self._thoughts for s in shown):
            self._thoughts = []
        return [self._written(s) for s in shown]

    def _written(self, shown: Shown) -> bytes:
        """The events of a piece for the client: as they came, or with what is kept of them under the client's count."""
        events = shown.piece.source
        return b"".join(self._one(e, shown) for e in events) if isinstance(events, list) else b""

    def _one(self, event: SseEvent, shown: Shown) -> bytes:
        """One event of a piece."""
        head = _head(event.data)
        if any(isinstance(e, Finish) for e in shown.events) and self._show.spliced:
            self._ending = event  # usage may still follow it
            return b""
        if head.type == "ping" and self._rounds > 1 and not self.round_shown:
            return b""  # it says nothing, and a round of which something has left cannot be asked again
        if head.index is None or not (head.index in self._starts or head.index in self._numbers):
            return event.raw
        if head.type == "content_block_start":
            return self._started(head.index, _retold(shown))
        begun = b""
        if head.index not in self._numbers:
            if head.type == "content_block_stop":
                return b""  # a text of blanks, of which nothing is shown
            begun = self._started(head.index, "")  # a text that began blank begins with its first word
        number = self._numbers[head.index]
        if any(isinstance(e, Text) for e in shown.events):
            self._swap = _swap(event.raw, head.index, number)
        return begun + _numbered(event, head.index, number, "delta", _retold(shown))

    def _started(self, index: int, text: str | None) -> bytes:
        """How a block begins that is shown now; with these words in the place of its own, if any are given."""
        event = self._starts.pop(index)
        number = self._next if self._show.spliced else index
        self._numbers[index] = number
        self._next = max(self._next, number + 1)
        return _numbered(event, index, number, "content_block", text)

    def _stream_end(self) -> bytes:
        if self._round.failed or not self._show.spliced:
            return b""
        ending = _event(self._show.held_finish) or self._ending
        end = _event(self._show.held_end)
        return (self._last_finish(ending) if ending else b"") + (end.raw if end else b"")

    def _last_finish(self, event: SseEvent) -> bytes:
        fields = slices.members(event.data)
        delta = slices.members(fields["delta"])
        fields["delta"] = slices.object_of({**delta, "stop_reason": slices.encoded(self._reason())})
        if self._usages:
            told = told_of(self._usages)
            names = {*object_in(fields, "usage"), *TOLD_AT_THE_END}
            fields["usage"] = slices.encoded({name: said for name, said in told.items() if name in names})
        return written("message_delta", slices.object_of(fields))

    def _reason(self) -> str:
        """The provider's own word, but a client that was shown no call is not told that there are some."""
        told = self._round.finish
        return NO_CALLS if told == CALLS_MADE and not self._show.shown_calls else told

    # ------------------------------------------------------------------------------------------------------ plain body
    def _end_of_body(self, body: bytes) -> None:
        pieces = self._round.pieces(body)
        if not self._intercept or not pieces:
            return
        if not self._first:
            fields = slices.members(body)
            self._first = {name: fields[name] for name in FIRST_OF_ALL if name in fields}
        left = [shown for piece in pieces for shown in self._show.see(piece)] + self._show.end_round()
        self._blocks += [block for shown in left if (block := _block(shown))]

    def _whole_body(self, body: bytes) -> bytes:
        """The last round's body, or the answer of all rounds in its shape."""
        if not self._round.ended or not self._show.spliced:
            return body
        fields = {**slices.members(body), **self._first, "content": slices.array_of(self._blocks)}
        if self._round.finish:
            fields["stop_reason"] = slices.encoded(self._reason())
        if self._round.usage:
            fields["usage"] = slices.encoded(told_of(self._usages))
        return slices.object_of(fields)


# ------------------------------------------------------------------------------------------------------------- events
def _head(data: bytes) -> _Head:
    """An event whose members have unexpected types belongs to no block."""
    try:
        return _HEAD.decode(data)
    except _REFUSED:
        pass
    fields = members_of(data)
    kind, index = value_of(fields, "type"), value_of(fields, "index")
    return _Head(kind if isinstance(kind, str) else "", index if isinstance(index, int) else None)


def _event(piece: Piece | None) -> SseEvent | None:
    """The one event of a piece."""
    return piece.source[0] if piece and isinstance(piece.source, list) else None


def _retold(shown: Shown) -> str | None:
    """The words that are shown, where these are not the words that came."""
    came = next((e for e in shown.piece.events if isinstance(e, Text)), None)
    told = next((e for e in shown.events if isinstance(e, Text)), None)
    return told.text if told and told != came else None


def _numbered(event: SseEvent, index: int, number: int, member: str, text: str | None) -> bytes:
    """An event of a block, counted as `number`; with `text` in its `member`, where that is given."""
    if index == number and text is None:
        return event.raw
    fields = slices.members(event.data)
    if text is not None and member in fields:
        said = {**slices.members(fields[member]), "text": slices.encoded(text)}
        fields[member] = slices.object_of(said)
    fields["index"] = str(number).encode()
    return written(_head(event.data).type, slices.object_of(fields))


def _swap(raw: bytes, index: int, number: int) -> tuple[bytes, bytes]:
    """How this event spells its index, and how the client's is spelled; nothing where it does so unusually."""
    spelled = (b'"index":%s%d%s' % (gap, index, end) for gap in (b"", b" ") for end in (b",", b"}"))
    found = next((s for s in spelled if raw.count(s) == 1), b"")
    return found, b'"index":%d%s' % (number, found[-1:])


def _block(shown: Shown) -> bytes:
    """A block of a plain answer as it came, or with the words that are shown of it."""
    raw, text = shown.piece.source, _retold(shown)
    if not isinstance(raw, bytes):
        return b""
    return raw if text is None else slices.object_of({**slices.members(raw), "text": slices.encoded(text)})
