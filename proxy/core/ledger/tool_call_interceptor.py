"""What a client sees of an answer: text at once, calls of ours never, one ending.

An answer of the provider arrives in pieces; a dialect says what is in each (text, reasoning, parts of calls, usage, an
ending) and this engine says what of it leaves, and when. The model may speak in several rounds, of which the client
sees one answer: calls by the names of ours are swallowed, the others counted on, the ending and the usage of a round
that goes on are held.

The law: **pieces leave in the order they came, and a round without a call of ours leaves exactly as it came.** A piece
waits only while a call in it has no name yet, or while it carries signed reasoning of a round of which nothing is
visible: clients store such orphans, and providers refuse them.

What this module does not do: it knows no wire format. It never looks into `Piece.source`; it says which events of a
piece are kept, and the dialect writes them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from proxy.core.ledger.ledger import ROUND_SEPARATOR
from proxy.core.ledger.messages import STACK_PREFIX, is_stack_tool


# -------------------------------------------------------------------------------------------------------------- calls
class CallOwner(StrEnum):
    """Who answers a call."""

    UNKNOWN = "unknown"
    """Its name may still become one of ours."""
    OURS = "ours"
    CLIENT = "client"


@dataclass(eq=False, slots=True)
class PartialCall:
    """A call while it arrives. `order` counts the calls of the round from 0; `number` is what the client sees it
    counted as, None until the first part of it leaves."""

    position: int
    id: str = ""
    name: str = ""
    argument_parts: list[str] = field(default_factory=list)
    initial_arguments: str = ""
    """Its arguments as they came with its beginning; they count where none are written."""
    owner: CallOwner = CallOwner.UNKNOWN
    client_index: int | None = None
    is_too_late: bool = False
    """It began after the ending had left: nothing can follow it any more."""

    @property
    def arguments(self) -> str:
        return "".join(self.argument_parts) or self.initial_arguments


ShouldContinue = Callable[[str], bool]
"""Whether another round follows one that has no call and ends with this word."""
ShouldRefuse = Callable[[str, str], bool]
"""Whether a call of the client's, by name and arguments, is answered here all the same."""
ShouldRetry = Callable[[bytes], bool]
"""Whether a round that said nothing but an error in these words is asked for again."""


class CallAssembler:
    """The calls of one round, put together from parts as providers really send them: without an index, with one index
    for all, with the id in every part, with the name late, split or repeated."""

    def __init__(self) -> None:
        self.should_refuse: ShouldRefuse | None = None
        """Where it is there, a call of the client's waits until it is whole, and is ours where this says so."""
        self.calls: list[PartialCall] = []
        self._by_index: dict[int, PartialCall] = {}
        self._by_id: dict[str, PartialCall] = {}

    def add_part(self, index: int | None, id_: str, name: str, arguments: str) -> PartialCall:
        """The call a part belongs to, with the part added."""
        call = self._found(index, id_, name, arguments)
        if call is None:
            call = PartialCall(len(self.calls))
            self._decide_named_calls()
            self.calls.append(call)
        if index is not None:
            self._by_index[index] = call
        if id_ and not call.id:
            call.id = id_
            self._by_id[id_] = call
        _add_name_part(call, name)
        if call.owner is CallOwner.UNKNOWN and self.should_refuse is None and _is_client_tool_name(call.name):
            call.owner = CallOwner.CLIENT
        if arguments:
            call.argument_parts.append(arguments)
            if call.owner is CallOwner.UNKNOWN and call.name:
                self._decide_owner(call)
        return call

    def call_at(self, index: int) -> PartialCall | None:
        """The call that is counted as `index`, if its first part has come."""
        return self._by_index.get(index)

    def decide_owners(self, *, over: bool = False) -> None:
        """No name can grow any more; a call that never had one is the client's. `over`: no arguments either."""
        for call in self.calls:
            self._decide_owner(call, over=over)

    def _decide_named_calls(self) -> None:
        for call in self.calls:
            if call.name:
                self._decide_owner(call)

    def _decide_owner(self, call: PartialCall, *, over: bool = False) -> None:
        if call.owner is not CallOwner.UNKNOWN:
            return
        if is_stack_tool(call.name):
            call.owner = CallOwner.OURS
        elif self.should_refuse is None:
            call.owner = CallOwner.CLIENT
        elif over or (
            call.argument_parts
            and call.argument_parts[-1].rstrip().endswith("}")
            and are_valid_arguments(call.arguments)
        ):
            # Without an id the model could not be told the answer.
            call.owner = (
                CallOwner.OURS if call.id and self.should_refuse(call.name, call.arguments) else CallOwner.CLIENT
            )

    def _found(self, index: int | None, id_: str, name: str, arguments: str) -> PartialCall | None:
        if index is not None:
            call = self._by_index.get(index)
        elif id_:
            call = self._by_id.get(id_) or (None if name or not self.calls else self.calls[-1])
        else:
            call = self.calls[-1] if self.calls else None
        return None if call is None or _starts_new_call(call, id_, name, arguments) else call


def _starts_new_call(call: PartialCall, id_: str, name: str, arguments: str) -> bool:
    """Whether a part that seems to go on with `call` is the beginning of another one under the same index."""
    if not name or (id_ and id_ == call.id):
        return False
    if id_ and call.id:
        return True
    if not call.name or not call.argument_parts:
        return False
    return name != call.name or (arguments.lstrip().startswith("{") and are_valid_arguments(call.arguments))


def are_valid_arguments(arguments: str) -> bool:
    """Whether these are arguments a tool can be called with: none, or valid JSON."""
    try:
        msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return False
    return True


def _add_name_part(call: PartialCall, name: str) -> None:
    """Add a piece of the name. The whole name again is a repetition, and nothing grows once arguments came."""
    if not name or name == call.name or (call.name and call.argument_parts):
        return
    call.name += name
    if call.owner is CallOwner.UNKNOWN and call.name.startswith(STACK_PREFIX):
        call.owner = CallOwner.OURS


def _is_client_tool_name(name: str) -> bool:
    """Whether this beginning of a name, or all of it, can become none of ours."""
    return bool(name) and not STACK_PREFIX.startswith(name) and not name.startswith(STACK_PREFIX)


# ------------------------------------------------------------------------------------------------------------- events
class ResponseStart(msgspec.Struct, frozen=True):
    """The answer begins: a role, and nothing said."""


class TextDelta(msgspec.Struct, frozen=True):
    text: str


class ReasoningDelta(msgspec.Struct, frozen=True):
    signed: bool = False
    """It carries a signature or is encrypted: bound to its place, worthless without its round."""


class CallDelta(msgspec.Struct, frozen=True):
    """A part of a call. `at` is its position in the piece, `index` what the provider counted it as."""

    position: int
    call: PartialCall
    index: int | None = None


class UsageReport(msgspec.Struct, frozen=True):
    pass


class Finish(msgspec.Struct, frozen=True):
    reason: str


class StreamError(msgspec.Struct, frozen=True):
    """The provider reports an error inside its answer."""


class StreamEnd(msgspec.Struct, frozen=True):
    """The terminator of the stream."""


class UnknownEvent(msgspec.Struct, frozen=True):
    """Anything we have no word for. It passes."""


ChunkEvent = (
    ResponseStart
    | TextDelta
    | ReasoningDelta
    | CallDelta
    | UsageReport
    | Finish
    | StreamError
    | StreamEnd
    | UnknownEvent
)


NON_CONTENT_EVENTS = (ResponseStart, UsageReport, StreamError, StreamEnd)
"""What is no part of what is said."""


class Chunk(msgspec.Struct, frozen=True):
    """One chunk of an answer. `source` is the dialect's own and not looked into."""

    events: tuple[ChunkEvent, ...]
    source: object


class OutgoingChunk(msgspec.Struct, frozen=True):
    """What leaves of a piece: all of it as it came (`whole`), or just these events, in their order. Calls carry the
    number they are counted as."""

    chunk: Chunk
    events: tuple[ChunkEvent, ...]
    is_unchanged: bool


# --------------------------------------------------------------------------------------------------------------- show
MAX_WAITING_CHUNKS = 4096
"""Pieces that wait for one name; then the call without a name is the client's."""
MAX_HELD_CHUNKS = 16 * MAX_WAITING_CHUNKS
"""Pieces of signed reasoning that wait for something of their round; a thought beyond it leaves, whatever follows."""


class Interceptor:
    """The client's side of one answer, over all its rounds. What is of the newest one stands here as it begins."""

    _pending_whitespace = ""
    _text_started = False
    _is_visible = False
    _has_ended = False
    has_content = False
    """More of this round has left than that it begins."""
    has_stack_call = False
    """This round has a call of ours."""
    continues = False
    """This round has no call, and another one follows all the same."""
    held_finish: Chunk | None = None
    held_end: Chunk | None = None

    def __init__(self, *, wants_usage: bool, joint: str = ROUND_SEPARATOR) -> None:
        """`joint` is said between the texts of two rounds; nothing where each stands in a block of its own."""
        self._wants_usage = wants_usage
        self._text_separator = joint
        self._round = 0
        self._waiting: deque[Chunk] = deque()
        self._highest_index = -1
        self._calls = CallAssembler()
        self._finish_sent = False
        self.text_sent = False
        """A text that is not blank has left, in whatever round."""
        self.client_call_count = 0
        self.should_continue: ShouldContinue | None = None
        """Where it is there, it is asked about every round that would end the answer."""

    def begin_round(self, calls: CallAssembler) -> None:
        """`calls` are put together by whoever reads the pieces."""
        self._round += 1
        self._calls = calls
        self._waiting.clear()
        self._pending_whitespace = ""
        self._text_started = self._is_visible = self._has_ended = False
        self.has_content = self.has_stack_call = self.continues = False
        self.held_finish = self.held_end = None

    def replace_round(self) -> None:
        """The next round stands in the place of this one, which said nothing."""
        self._round -= 1

    @property
    def is_spliced(self) -> bool:
        """The client's stream is no longer the provider's: it has a round behind another, or a call left out."""
        return self._round > 1 or self.has_stack_call or self.continues

    @property
    def finish_sent(self) -> bool:
        """The client has been told that the answer is over."""
        return self._finish_sent

    @property
    def can_pass_reasoning(self) -> bool:
        """Nothing waits: reasoning without a signature needs no decision."""
        return not self._waiting

    @property
    def can_pass_text(self) -> bool:
        """Words were said in this round, so more of them need no decision."""
        return self._text_started and self.text_sent and self._is_visible

    @property
    def can_pass_calls(self) -> bool:
        """More of a call that the client was shown needs no decision: it is counted as the provider counts it."""
        return not self.is_spliced

    def process(self, piece: Chunk) -> list[OutgoingChunk]:
        """What leaves now that `piece` has come: nothing, or this one, or those that waited for it."""
        for event in piece.events:
            self._update_from_event(event)
        self._update_from_calls()
        self._waiting.append(piece)
        if len(self._waiting) > MAX_WAITING_CHUNKS:
            self._calls.decide_owners(over=True)
            self._update_from_calls()
        return self._release(last=len(self._waiting) > MAX_HELD_CHUNKS)

    def end_round(self) -> list[OutgoingChunk]:
        """What still leaves of a round that ended, or broke off: signed reasoning of a hidden round does not."""
        self._calls.decide_owners(over=True)
        self._update_from_calls()
        return self._release(last=True)

    def _update_from_event(self, event: ChunkEvent) -> None:
        if isinstance(event, TextDelta):
            self._is_visible = self._is_visible or bool(event.text.strip())
        elif isinstance(event, CallDelta):
            event.call.is_too_late = event.call.is_too_late or (self._finish_sent and event.call.client_index is None)
        elif isinstance(event, Finish | StreamEnd | StreamError):
            self._has_ended = True
            self._calls.decide_owners(over=True)
            if isinstance(event, Finish) and self.should_continue is not None and not self._calls.calls:
                self.continues = self.continues or self.should_continue(event.reason)

    def _update_from_calls(self) -> None:
        """The round hides something, or shows a call, as soon as a name is known."""
        for call in self._calls.calls:
            self.has_stack_call = self.has_stack_call or (call.owner is CallOwner.OURS)
            self._is_visible = self._is_visible or (call.owner is CallOwner.CLIENT)

    def _release(self, *, last: bool) -> list[OutgoingChunk]:
        left = []
        while self._waiting and (last or not self._waits(self._waiting[0])):
            shown = self._filter_chunk(self._waiting.popleft())
            if shown.is_unchanged or shown.events:
                left.append(shown)
        return left

    def _waits(self, piece: Chunk) -> bool:
        """Signed reasoning of a round that ended without a call of ours waits no more: nothing else will come."""
        orphan = not self._is_visible and (self.has_stack_call or not self._has_ended)
        for event in piece.events:
            if isinstance(event, CallDelta) and event.call.owner is CallOwner.UNKNOWN:
                return True
            if orphan and isinstance(event, ReasoningDelta) and event.signed:
                return True
        return False

    def _filter_chunk(self, piece: Chunk) -> OutgoingChunk:
        kept: list[ChunkEvent] = []
        fault = False
        for event in piece.events:
            if (shown := self._filter_event(event, piece)) is not None:
                kept.append(shown)
                self.has_content = self.has_content or not isinstance(shown, NON_CONTENT_EVENTS)
                fault = fault or isinstance(shown, StreamError)
        events = tuple(kept)
        return OutgoingChunk(piece, events, fault or (self._round == 1 and events == piece.events))

    def _filter_event(self, event: ChunkEvent, piece: Chunk) -> ChunkEvent | None:
        match event:
            case TextDelta():
                return self._filter_text(event)
            case CallDelta():
                return self._filter_call(event)
            case ReasoningDelta(signed=True):
                return event if self._is_visible or not self.has_stack_call else None
            case ResponseStart():
                return event if self._round == 1 else None
            case Finish() | StreamEnd() | UsageReport():
                return self._filter_ending(event, piece)
            case _:
                return event

    def _filter_text(self, event: TextDelta) -> TextDelta | None:
        """From the second round on a text is joined to the one before it; blank beginnings wait for words."""
        if self._text_started or self._round == 1:
            self._text_started = True
            self.text_sent = self.text_sent or bool(event.text.strip())
            return event
        self._pending_whitespace += event.text
        if not event.text.strip():
            return None
        told = TextDelta((self._text_separator if self.text_sent else "") + self._pending_whitespace)
        self._text_started = self.text_sent = True
        return told

    def _filter_call(self, event: CallDelta) -> CallDelta | None:
        call = event.call
        if call.owner is CallOwner.OURS:
            return None
        if call.client_index is None:
            self.client_call_count += 1
            keeps = event.index is not None and not self.is_spliced
            call.client_index = event.index if keeps and event.index is not None else self._highest_index + 1
            self._highest_index = max(self._highest_index, call.client_index)
        return (
            event
            if event.index == call.client_index or not self.is_spliced
            else replace(event, index=call.client_index)
        )

    def _filter_ending(self, event: Finish | StreamEnd | UsageReport, piece: Chunk) -> ChunkEvent | None:
        if isinstance(event, UsageReport):
            return event if self._wants_usage and not self.is_spliced else None
        if isinstance(event, StreamEnd):
            self.held_end = piece if self.is_spliced else None
            return None if self.is_spliced else event
        if (self.has_stack_call or self.continues) and not self._finish_sent:
            self.held_finish = piece
            return None
        again, self._finish_sent = self._finish_sent and self.is_spliced, True
        return None if again else event
