"""Decides what a client sees of a streamed answer: text at once, our tool calls never, one ending.

A dialect says what each chunk holds (text, reasoning, parts of calls, usage, an ending), the interceptor what leaves
and when. Several rounds of the model are one answer: calls of our tools are dropped, the others renumbered, and the
ending and usage of a round that continues are held back. Chunks leave in the order in which they came; one waits only
while a call in it has no name yet, while it holds signed reasoning of a round of which nothing is visible (clients
store such orphans, and providers refuse them), or from the ending to the terminator: some servers tell calls between
the two.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from proxy.core.ledger.ledger import ROUND_SEPARATOR
from proxy.core.ledger.messages import (
    BARE_RECALL,
    NAMESPACE_PREFIXES,
    PARALLEL_TOOL,
    STACK_PREFIX,
    canonical_arguments,
    is_stack_tool,
    without_namespace,
)


# -------------------------------------------------------------------------------------------------------------- calls
class CallOwner(StrEnum):
    """Who answers a call."""

    UNKNOWN = "unknown"
    """The name may still become one of ours."""
    OURS = "ours"
    CLIENT = "client"


@dataclass(eq=False, slots=True)
class PartialCall:
    """A call while it arrives. `position` counts the calls of the round from 0; `client_index` is the index that the
    client sees, None until the first part of the call leaves."""

    position: int
    id: str = ""
    provider_id: str = ""
    """The id of the call in later requests to the provider, set when the round is read to its end."""
    name: str = ""
    argument_parts: list[str] = field(default_factory=list)
    initial_arguments: str = ""
    """Arguments from the call's start event, used if no deltas follow."""
    own_name: str = ""
    """The name of the tool of ours that is meant, if it is called by another name."""
    owner: CallOwner = CallOwner.UNKNOWN
    client_index: int | None = None
    is_too_late: bool = False
    """The call began after the ending had left, so no round can follow it."""
    checked_parts: int = 0
    """Parts of the arguments when they were last checked for being complete."""

    @property
    def arguments(self) -> str:
        return "".join(self.argument_parts) or self.initial_arguments

    @property
    def provider_name(self) -> str:
        """The name of the call in later requests to the provider. One of ours goes by the name under which it is
        offered: a name that is no tool's, or has a dot in it, is refused by some. A client's is its own business."""
        return self.own_name or (without_namespace(self.name) if is_stack_tool(self.name) else self.name)

    def may_be_complete(self) -> bool:
        """Whether the arguments that have come are valid JSON. Not checked again before there are twice as many parts,
        because a long argument closes many brackets; the end of the round settles the rest."""
        part_count = len(self.argument_parts)
        if not part_count or not self.argument_parts[-1].rstrip().endswith("}"):
            return False
        if part_count < 2 * self.checked_parts and part_count > MAX_PARTS_CHECKED_SINGLY:
            return False
        self.checked_parts = part_count
        return are_valid_arguments(self.arguments)


MAX_PARTS_OF_REPEATED_CALLS = 4096
"""Parts of a call up to which a part with a name may begin another call under the same index or id."""
MAX_PARTS_CHECKED_SINGLY = 256
"""Parts of one call's arguments up to which each may be the last."""
ToolMeant = Callable[[str, str], str]
"""The tool of ours that a call under another name means, given by name and arguments; empty for one of the client's."""
ShouldContinue = Callable[[str], bool]
"""Whether another round follows one that has no call and this finish reason."""
ShouldRefuse = Callable[[str, str], bool]
"""Whether the proxy itself answers this client call, given by name and arguments."""
ShouldRetry = Callable[[bytes], bool]
"""Whether a round that holds nothing but this error is tried again."""


class CallAssembler:
    """Assembles the calls of one round from parts as providers send them: without an index, with one index for all,
    with the id in every part, with the name late, split or repeated. What a part costs does not depend on how many
    calls there are."""

    def __init__(self) -> None:
        self.should_refuse: ShouldRefuse | None = None
        """If set, a client call waits until it is complete, and becomes ours if this says so."""
        self.tool_meant: ToolMeant | None = None
        self.calls: list[PartialCall] = []
        self.has_stack_call = False
        """A call is known to be ours."""
        self.has_client_call = False
        """A call is known to be the client's."""
        self._by_index: dict[int, PartialCall] = {}
        self._by_id: dict[str, PartialCall] = {}
        self._undecided: list[PartialCall] = []
        """Calls whose owner was not known when they began."""
        self._changed: list[PartialCall] = []
        """Undecided calls with a name to which something was added since the last new call."""

    def add_part(self, index: int | None, id_: str, name: str, arguments: str) -> PartialCall:
        """Adds a part and returns the call that it belongs to."""
        call = self._found(index, id_, name, arguments)
        if call is None:
            call = PartialCall(len(self.calls))
            self._decide_named_calls()
            self.calls.append(call)
            self._undecided.append(call)
        if index is not None:
            self._by_index[index] = call
        call.id = call.id or id_
        if id_ and id_ == call.id:
            self._by_id[id_] = call
        _add_name_part(call, name)
        if arguments:
            call.argument_parts.append(arguments)
        if call.owner is CallOwner.UNKNOWN and call.name:
            self._decide_early(call, has_new_arguments=bool(arguments))
        return call

    def call_at(self, index: int) -> PartialCall | None:
        return self._by_index.get(index)

    def decide_owners(self, *, over: bool = False) -> None:
        """Names are complete now: a call without a name is the client's. `over`: arguments are complete too."""
        for call in self._undecided:
            self._decide_owner(call, over=over)
        self._undecided = [call for call in self._undecided if call.owner is CallOwner.UNKNOWN]

    def assign_provider_ids(self, make_id: Callable[[int, str, str], str]) -> None:
        """Sets the id under which each call goes back to the provider. A call of ours that came without an id, or under
        the id of another call of the round, gets one of its own from `make_id` (position, name, arguments): else nobody
        could tell whose result is whose."""
        counts = Counter(call.id for call in self.calls)
        for call in self.calls:
            is_ambiguous = call.owner is CallOwner.OURS and (not call.id or counts[call.id] > 1)
            arguments = canonical_arguments(call.arguments) if is_ambiguous else ""
            call.provider_id = make_id(call.position, call.name, arguments) if is_ambiguous else call.id

    def _decide_named_calls(self) -> None:
        for call in self._changed:
            self._decide_owner(call)
        self._changed.clear()

    def _decide_early(self, call: PartialCall, *, has_new_arguments: bool) -> None:
        if without_namespace(call.name).startswith(STACK_PREFIX):
            self._set_owner(call, CallOwner.OURS)
        elif self.should_refuse is None and _is_client_tool_name(call.name):
            self._set_owner(call, CallOwner.CLIENT)
        elif has_new_arguments:
            self._decide_owner(call)
        if call.owner is CallOwner.UNKNOWN and not (self._changed and self._changed[-1] is call):
            self._changed.append(call)

    def _decide_owner(self, call: PartialCall, *, over: bool = False) -> None:
        if call.owner is not CallOwner.UNKNOWN:
            return
        if is_stack_tool(call.name):
            self._set_owner(call, CallOwner.OURS)
        elif over or call.may_be_complete() or (self.should_refuse is None and call.name != PARALLEL_TOOL):
            call.own_name = self.tool_meant(call.name, call.arguments) if self.tool_meant else ""
            refused = self.should_refuse is not None and self.should_refuse(call.name, call.arguments)
            self._set_owner(call, CallOwner.OURS if call.own_name or refused else CallOwner.CLIENT)

    def _set_owner(self, call: PartialCall, owner: CallOwner) -> None:
        call.owner = owner
        self.has_stack_call = self.has_stack_call or owner is CallOwner.OURS
        self.has_client_call = self.has_client_call or owner is CallOwner.CLIENT

    def _found(self, index: int | None, id_: str, name: str, arguments: str) -> PartialCall | None:
        if index is not None:
            call = self._by_index.get(index)
        elif id_:
            call = self._by_id.get(id_) or (None if name or not self.calls else self.calls[-1])
        else:
            call = self.calls[-1] if self.calls else None
        return None if call is None or _starts_new_call(call, id_, name, arguments) else call


def _starts_new_call(call: PartialCall, id_: str, name: str, arguments: str) -> bool:
    """Whether a part that seems to continue `call` starts another call under the same index, or under the same id."""
    if not name:
        return False
    if id_ and call.id and id_ != call.id:
        return True
    if not call.name or not call.argument_parts:
        return False
    begins = arguments.lstrip().startswith("{")
    if id_ and id_ == call.id:  # some repeat both in every part
        return (name != call.name or begins) and _has_whole_arguments(call)
    return name != call.name or (begins and _has_whole_arguments(call))


def _has_whole_arguments(call: PartialCall) -> bool:
    few = len(call.argument_parts) <= MAX_PARTS_OF_REPEATED_CALLS
    return few and call.argument_parts[-1].rstrip().endswith("}") and are_valid_arguments(call.arguments)


def are_valid_arguments(arguments: str) -> bool:
    """Whether a tool can be called with these arguments: none, or valid JSON."""
    try:
        msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return False
    return True


def _add_name_part(call: PartialCall, name: str) -> None:
    """A repeated whole name is ignored, and so is a name after arguments."""
    if not name or name == call.name or (call.name and call.argument_parts):
        return
    call.name += name


_BEGUN_AS_OURS = re.compile(r"(?i:stack)(?![a-z])|__$")


def _is_client_tool_name(name: str) -> bool:
    """Whether this start of a name cannot become one of ours."""
    if not name or any(prefix.startswith(name) for prefix in (*NAMESPACE_PREFIXES, PARALLEL_TOOL)):
        return False
    bare = without_namespace(name).lower()
    return not (STACK_PREFIX.startswith(bare) or BARE_RECALL.startswith(bare) or _BEGUN_AS_OURS.search(name))


# ------------------------------------------------------------------------------------------------------------- events
class ResponseStart(msgspec.Struct, frozen=True):
    """The answer begins: a role, and no content."""


class TextDelta(msgspec.Struct, frozen=True):
    text: str


class ReasoningDelta(msgspec.Struct, frozen=True):
    signed: bool = False
    """The reasoning is signed or encrypted: it is bound to its place, and useless without its round."""


class CallDelta(msgspec.Struct, frozen=True):
    """A part of a call. `position` is its place in the chunk, `index` the provider's index."""

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
    """An event that we do not know; passed on."""


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
"""Events without content."""


class Chunk(msgspec.Struct, frozen=True):
    """One chunk of an answer. `source` belongs to the dialect and is never read here."""

    events: tuple[ChunkEvent, ...]
    source: object


class OutgoingChunk(msgspec.Struct, frozen=True):
    """The part of a chunk that leaves: all of it (`is_unchanged`), or these events in order."""

    chunk: Chunk
    events: tuple[ChunkEvent, ...]
    is_unchanged: bool


# --------------------------------------------------------------------------------------------------------------- show
MAX_WAITING_CHUNKS = 4096
"""Chunks that wait for one name; after that a call without a name is the client's."""
MAX_HELD_CHUNKS = 16 * MAX_WAITING_CHUNKS
"""Chunks that wait behind signed reasoning; after that it leaves, whatever follows."""


class Interceptor:
    """The client's view of one answer over all its rounds. The class attributes describe the current round."""

    _pending_whitespace = ""
    _text_started = False
    _is_visible = False
    _has_ended = False
    has_content = False
    """More of this round has left than its start."""
    has_stack_call = False
    """This round has a call of ours."""
    continues = False
    """This round has no call, but another round follows."""
    hides_text = False
    """The text of this round is shown only if the round ends the answer, so it waits until that is known."""
    has_unshown_text = False
    """Text of this round was left out."""
    terminator_follows = True
    """The ending is not the last event of a round, so a call may still stand behind it."""
    held_finish: Chunk | None = None
    held_end: Chunk | None = None

    def __init__(self, *, wants_usage: bool, joint: str = ROUND_SEPARATOR) -> None:
        """`joint` separates the texts of two rounds; empty if each round has a block of its own."""
        self._wants_usage = wants_usage
        self._text_separator = joint
        self._round = 0
        self._waiting: deque[Chunk] = deque()
        self._highest_index = -1
        self._calls = CallAssembler()
        self._finish_sent = False
        self.text_sent = False
        """Text that is not blank has left, in any round."""
        self.client_call_count = 0
        self.should_continue: ShouldContinue | None = None
        """If set, it is called for each round that would end the answer."""

    def begin_round(self, calls: CallAssembler) -> None:
        """The dialect fills `calls` while it reads the chunks."""
        self._round += 1
        self._calls = calls
        self._waiting.clear()
        self._pending_whitespace = ""
        self._text_started = self._is_visible = self._has_ended = False
        self.has_content = self.has_stack_call = self.continues = self.has_unshown_text = False
        self.held_finish = self.held_end = None

    def replace_round(self) -> None:
        """The next round replaces this one, which had no content."""
        self._round -= 1

    @property
    def is_spliced(self) -> bool:
        """The client's stream differs from the provider's: it has several rounds, or a call was dropped."""
        return self._round > 1 or self.has_stack_call or self.continues

    @property
    def finish_sent(self) -> bool:
        """The client has received the ending."""
        return self._finish_sent

    @property
    def can_pass_reasoning(self) -> bool:
        """Nothing waits, so unsigned reasoning needs no decision."""
        return not self._waiting

    @property
    def can_pass_text(self) -> bool:
        """This round has visible text already, so more text needs no decision."""
        return self._text_started and self.text_sent and self._is_visible and not self._waiting

    @property
    def can_pass_calls(self) -> bool:
        """The client sees the provider's own call indexes, so further parts need no decision."""
        return not (self.is_spliced or self._waiting)

    def process(self, piece: Chunk) -> list[OutgoingChunk]:
        """The chunks that leave now that `piece` has come, which may include earlier ones that waited."""
        for event in piece.events:
            self._update_from_event(event)
        self._update_from_calls()
        self._waiting.append(piece)
        if len(self._waiting) > (MAX_HELD_CHUNKS if self.hides_text else MAX_WAITING_CHUNKS):
            self._calls.decide_owners(over=True)
            self._update_from_calls()
        return self._release(last=len(self._waiting) > MAX_HELD_CHUNKS)

    def end_round(self) -> list[OutgoingChunk]:
        """The chunks that still leave when a round ends or breaks off; signed reasoning of a hidden round does not."""
        self._calls.decide_owners(over=True)
        self._update_from_calls()
        return self._release(last=True)

    def stop_waiting_for_terminator(self) -> list[OutgoingChunk]:
        """The chunks that leave because a server that told the ending lets the terminator wait."""
        has_finish = any(isinstance(event, Finish) for piece in self._waiting for event in piece.events)
        self._has_ended = self._has_ended or has_finish
        return self._release(last=False)

    def _update_from_event(self, event: ChunkEvent) -> None:
        if isinstance(event, TextDelta):
            self._is_visible = self._is_visible or (not self.hides_text and bool(event.text.strip()))
        elif isinstance(event, CallDelta):
            event.call.is_too_late = event.call.is_too_late or (self._finish_sent and event.call.client_index is None)
        elif isinstance(event, Finish | StreamEnd | StreamError):
            self._has_ended = self._has_ended or not (self.terminator_follows and isinstance(event, Finish))
            if self._has_ended:
                self._calls.decide_owners(over=True)
            if isinstance(event, Finish) and self.should_continue is not None:
                self.continues = self.continues or self.should_continue(event.reason)

    def _update_from_calls(self) -> None:
        self.has_stack_call = self.has_stack_call or self._calls.has_stack_call
        self._is_visible = self._is_visible or self._calls.has_client_call
        self.continues = self.continues and not self._calls.calls

    def _release(self, *, last: bool) -> list[OutgoingChunk]:
        outgoing = []
        while self._waiting and (last or not self._waits(self._waiting[0])):
            shown = self._filter_chunk(self._waiting.popleft())
            if shown.is_unchanged or shown.events:
                outgoing.append(shown)
        return outgoing

    def _waits(self, piece: Chunk) -> bool:
        """Signed reasoning of a round that ended without a call of ours stops waiting: nothing else will come. An
        ending waits for the terminator."""
        orphan = not self._is_visible and (self.has_stack_call or not self._has_ended)
        holds_text = self.hides_text and not (self._has_ended or self._calls.has_client_call)
        for event in piece.events:
            if holds_text and isinstance(event, TextDelta):
                return True
            if isinstance(event, CallDelta) and event.call.owner is CallOwner.UNKNOWN:
                return True
            if orphan and isinstance(event, ReasoningDelta) and event.signed:
                return True
            if isinstance(event, Finish) and not self._has_ended:
                return True
        return False

    def _filter_chunk(self, piece: Chunk) -> OutgoingChunk:
        released: list[ChunkEvent] = []
        has_error = False
        for event in piece.events:
            if (shown := self._filter_event(event, piece)) is not None:
                released.append(shown)
                self.has_content = self.has_content or not isinstance(shown, NON_CONTENT_EVENTS)
                has_error = has_error or isinstance(shown, StreamError)
        events = tuple(released)
        return OutgoingChunk(piece, events, has_error or (self._round == 1 and events == piece.events))

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
        """From the second round on, a separator joins the text to the one before; leading blanks wait for words."""
        if self.hides_text and self.has_stack_call and not self._calls.has_client_call:
            self.has_unshown_text = self.has_unshown_text or bool(event.text.strip())
            return None
        if self._text_started or self._round == 1:
            self._text_started = True
            self.text_sent = self.text_sent or bool(event.text.strip())
            return event
        self._pending_whitespace += event.text
        if not event.text.strip():
            return None
        joined = TextDelta((self._text_separator if self.text_sent else "") + self._pending_whitespace)
        self._text_started = self.text_sent = True
        return joined

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
