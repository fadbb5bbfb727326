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

from proxy.core.ledger.ledger import JOINT
from proxy.core.ledger.messages import STACK_PREFIX, is_stack_tool


# -------------------------------------------------------------------------------------------------------------- calls
class Owner(StrEnum):
    """Who answers a call."""

    UNKNOWN = "unknown"
    """Its name may still become one of ours."""
    OURS = "ours"
    CLIENT = "client"


@dataclass(eq=False, slots=True)
class OpenCall:
    """A call while it arrives. `order` counts the calls of the round from 0; `number` is what the client sees it
    counted as, None until the first part of it leaves."""

    order: int
    id: str = ""
    name: str = ""
    written: list[str] = field(default_factory=list)
    given: str = ""
    """Its arguments as they came with its beginning; they count where none are written."""
    owner: Owner = Owner.UNKNOWN
    number: int | None = None
    late: bool = False
    """It began after the ending had left: nothing can follow it any more."""

    @property
    def arguments(self) -> str:
        return "".join(self.written) or self.given


Following = Callable[[str], bool]
"""Whether another round follows one that has no call and ends with this word."""
Refusing = Callable[[str, str], bool]
"""Whether a call of the client's, by name and arguments, is answered here all the same."""
Repeating = Callable[[bytes], bool]
"""Whether a round that said nothing but an error in these words is asked for again."""


class Calls:
    """The calls of one round, put together from parts as providers really send them: without an index, with one index
    for all, with the id in every part, with the name late, split or repeated."""

    def __init__(self) -> None:
        self.refuses: Refusing | None = None
        """Where it is there, a call of the client's waits until it is whole, and is ours where this says so."""
        self.all: list[OpenCall] = []
        self._at: dict[int, OpenCall] = {}
        self._by_id: dict[str, OpenCall] = {}

    def take(self, index: int | None, id_: str, name: str, arguments: str) -> OpenCall:
        """The call a part belongs to, with the part added."""
        call = self._found(index, id_, name, arguments)
        if call is None:
            call = OpenCall(len(self.all))
            self._settle_others()
            self.all.append(call)
        if index is not None:
            self._at[index] = call
        if id_ and not call.id:
            call.id = id_
            self._by_id[id_] = call
        _name(call, name)
        if call.owner is Owner.UNKNOWN and self.refuses is None and _is_a_clients(call.name):
            call.owner = Owner.CLIENT
        if arguments:
            call.written.append(arguments)
            if call.owner is Owner.UNKNOWN and call.name:
                self._settle(call)
        return call

    def open_at(self, index: int) -> OpenCall | None:
        """The call that is counted as `index`, if its first part has come."""
        return self._at.get(index)

    def settle(self, *, over: bool = False) -> None:
        """No name can grow any more; a call that never had one is the client's. `over`: no arguments either."""
        for call in self.all:
            self._settle(call, over=over)

    def _settle_others(self) -> None:
        for call in self.all:
            if call.name:
                self._settle(call)

    def _settle(self, call: OpenCall, *, over: bool = False) -> None:
        if call.owner is not Owner.UNKNOWN:
            return
        if is_stack_tool(call.name):
            call.owner = Owner.OURS
        elif self.refuses is None:
            call.owner = Owner.CLIENT
        elif over or (call.written and call.written[-1].rstrip().endswith("}") and is_whole(call.arguments)):
            # Without an id the model could not be told the answer.
            call.owner = Owner.OURS if call.id and self.refuses(call.name, call.arguments) else Owner.CLIENT

    def _found(self, index: int | None, id_: str, name: str, arguments: str) -> OpenCall | None:
        if index is not None:
            call = self._at.get(index)
        elif id_:
            call = self._by_id.get(id_) or (None if name or not self.all else self.all[-1])
        else:
            call = self.all[-1] if self.all else None
        return None if call is None or _starts_anew(call, id_, name, arguments) else call


def _starts_anew(call: OpenCall, id_: str, name: str, arguments: str) -> bool:
    """Whether a part that seems to go on with `call` is the beginning of another one under the same index."""
    if not name or (id_ and id_ == call.id):
        return False
    if id_ and call.id:
        return True
    if not call.name or not call.written:
        return False
    return name != call.name or (arguments.lstrip().startswith("{") and is_whole(call.arguments))


def is_whole(arguments: str) -> bool:
    """Whether these are arguments a tool can be called with: none, or valid JSON."""
    try:
        msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return False
    return True


def _name(call: OpenCall, name: str) -> None:
    """Add a piece of the name. The whole name again is a repetition, and nothing grows once arguments came."""
    if not name or name == call.name or (call.name and call.written):
        return
    call.name += name
    if call.owner is Owner.UNKNOWN and call.name.startswith(STACK_PREFIX):
        call.owner = Owner.OURS


def _is_a_clients(name: str) -> bool:
    """Whether this beginning of a name, or all of it, can become none of ours."""
    return bool(name) and not STACK_PREFIX.startswith(name) and not name.startswith(STACK_PREFIX)


# ------------------------------------------------------------------------------------------------------------- events
class Opening(msgspec.Struct, frozen=True):
    """The answer begins: a role, and nothing said."""


class Text(msgspec.Struct, frozen=True):
    text: str


class Reasoning(msgspec.Struct, frozen=True):
    signed: bool = False
    """It carries a signature or is encrypted: bound to its place, worthless without its round."""


class CallPart(msgspec.Struct, frozen=True):
    """A part of a call. `at` is its position in the piece, `index` what the provider counted it as."""

    at: int
    call: OpenCall
    index: int | None = None


class UsageTold(msgspec.Struct, frozen=True):
    pass


class Finish(msgspec.Struct, frozen=True):
    reason: str


class Fault(msgspec.Struct, frozen=True):
    """The provider reports an error inside its answer."""


class End(msgspec.Struct, frozen=True):
    """The terminator of the stream."""


class Other(msgspec.Struct, frozen=True):
    """Anything we have no word for. It passes."""


Event = Opening | Text | Reasoning | CallPart | UsageTold | Finish | Fault | End | Other


UNSAID = (Opening, UsageTold, Fault, End)
"""What is no part of what is said."""


class Piece(msgspec.Struct, frozen=True):
    """One chunk of an answer. `source` is the dialect's own and not looked into."""

    events: tuple[Event, ...]
    source: object


class Shown(msgspec.Struct, frozen=True):
    """What leaves of a piece: all of it as it came (`whole`), or just these events, in their order. Calls carry the
    number they are counted as."""

    piece: Piece
    events: tuple[Event, ...]
    whole: bool


# --------------------------------------------------------------------------------------------------------------- show
MOST_WAITING = 4096
"""Pieces that wait for one name; then the call without a name is the client's."""
MOST_HELD = 16 * MOST_WAITING
"""Pieces of signed reasoning that wait for something of their round; a thought beyond it leaves, whatever follows."""


class Show:
    """The client's side of one answer, over all its rounds. What is of the newest one stands here as it begins."""

    _blank = ""
    _speaking = False
    _visible = False
    _over = False
    spoke = False
    """More of this round has left than that it begins."""
    hides = False
    """This round has a call of ours."""
    goes_on = False
    """This round has no call, and another one follows all the same."""
    held_finish: Piece | None = None
    held_end: Piece | None = None

    def __init__(self, *, wants_usage: bool, joint: str = JOINT) -> None:
        """`joint` is said between the texts of two rounds; nothing where each stands in a block of its own."""
        self._wants_usage = wants_usage
        self._joint = joint
        self._round = 0
        self._waiting: deque[Piece] = deque()
        self._highest = -1
        self._calls = Calls()
        self._finish_left = False
        self.said = False
        """A text that is not blank has left, in whatever round."""
        self.shown_calls = 0
        self.follows: Following | None = None
        """Where it is there, it is asked about every round that would end the answer."""

    def begin_round(self, calls: Calls) -> None:
        """`calls` are put together by whoever reads the pieces."""
        self._round += 1
        self._calls = calls
        self._waiting.clear()
        self._blank = ""
        self._speaking = self._visible = self._over = False
        self.spoke = self.hides = self.goes_on = False
        self.held_finish = self.held_end = None

    def again(self) -> None:
        """The next round stands in the place of this one, which said nothing."""
        self._round -= 1

    @property
    def spliced(self) -> bool:
        """The client's stream is no longer the provider's: it has a round behind another, or a call left out."""
        return self._round > 1 or self.hides or self.goes_on

    @property
    def finish_left(self) -> bool:
        """The client has been told that the answer is over."""
        return self._finish_left

    @property
    def passes(self) -> bool:
        """Nothing waits: reasoning without a signature needs no decision."""
        return not self._waiting

    @property
    def passes_text(self) -> bool:
        """Words were said in this round, so more of them need no decision."""
        return self._speaking and self.said and self._visible

    @property
    def passes_calls(self) -> bool:
        """More of a call that the client was shown needs no decision: it is counted as the provider counts it."""
        return not self.spliced

    def see(self, piece: Piece) -> list[Shown]:
        """What leaves now that `piece` has come: nothing, or this one, or those that waited for it."""
        for event in piece.events:
            self._note(event)
        self._look_at_calls()
        self._waiting.append(piece)
        if len(self._waiting) > MOST_WAITING:
            self._calls.settle(over=True)
            self._look_at_calls()
        return self._leave(last=len(self._waiting) > MOST_HELD)

    def end_round(self) -> list[Shown]:
        """What still leaves of a round that ended, or broke off: signed reasoning of a hidden round does not."""
        self._calls.settle(over=True)
        self._look_at_calls()
        return self._leave(last=True)

    def _note(self, event: Event) -> None:
        if isinstance(event, Text):
            self._visible = self._visible or bool(event.text.strip())
        elif isinstance(event, CallPart):
            event.call.late = event.call.late or (self._finish_left and event.call.number is None)
        elif isinstance(event, Finish | End | Fault):
            self._over = True
            self._calls.settle(over=True)
            if isinstance(event, Finish) and self.follows is not None and not self._calls.all:
                self.goes_on = self.goes_on or self.follows(event.reason)

    def _look_at_calls(self) -> None:
        """The round hides something, or shows a call, as soon as a name is known."""
        for call in self._calls.all:
            self.hides = self.hides or (call.owner is Owner.OURS)
            self._visible = self._visible or (call.owner is Owner.CLIENT)

    def _leave(self, *, last: bool) -> list[Shown]:
        left = []
        while self._waiting and (last or not self._waits(self._waiting[0])):
            shown = self._cut(self._waiting.popleft())
            if shown.whole or shown.events:
                left.append(shown)
        return left

    def _waits(self, piece: Piece) -> bool:
        """Signed reasoning of a round that ended without a call of ours waits no more: nothing else will come."""
        orphan = not self._visible and (self.hides or not self._over)
        for event in piece.events:
            if isinstance(event, CallPart) and event.call.owner is Owner.UNKNOWN:
                return True
            if orphan and isinstance(event, Reasoning) and event.signed:
                return True
        return False

    def _cut(self, piece: Piece) -> Shown:
        kept: list[Event] = []
        fault = False
        for event in piece.events:
            if (shown := self._shown(event, piece)) is not None:
                kept.append(shown)
                self.spoke = self.spoke or not isinstance(shown, UNSAID)
                fault = fault or isinstance(shown, Fault)
        events = tuple(kept)
        return Shown(piece, events, fault or (self._round == 1 and events == piece.events))

    def _shown(self, event: Event, piece: Piece) -> Event | None:
        match event:
            case Text():
                return self._text(event)
            case CallPart():
                return self._call(event)
            case Reasoning(signed=True):
                return event if self._visible or not self.hides else None
            case Opening():
                return event if self._round == 1 else None
            case Finish() | End() | UsageTold():
                return self._ending(event, piece)
            case _:
                return event

    def _text(self, event: Text) -> Text | None:
        """From the second round on a text is joined to the one before it; blank beginnings wait for words."""
        if self._speaking or self._round == 1:
            self._speaking = True
            self.said = self.said or bool(event.text.strip())
            return event
        self._blank += event.text
        if not event.text.strip():
            return None
        told = Text((self._joint if self.said else "") + self._blank)
        self._speaking = self.said = True
        return told

    def _call(self, event: CallPart) -> CallPart | None:
        call = event.call
        if call.owner is Owner.OURS:
            return None
        if call.number is None:
            self.shown_calls += 1
            keeps = event.index is not None and not self.spliced
            call.number = event.index if keeps and event.index is not None else self._highest + 1
            self._highest = max(self._highest, call.number)
        return event if event.index == call.number or not self.spliced else replace(event, index=call.number)

    def _ending(self, event: Finish | End | UsageTold, piece: Piece) -> Event | None:
        if isinstance(event, UsageTold):
            return event if self._wants_usage and not self.spliced else None
        if isinstance(event, End):
            self.held_end = piece if self.spliced else None
            return None if self.spliced else event
        if (self.hides or self.goes_on) and not self._finish_left:
            self.held_finish = piece
            return None
        again, self._finish_left = self._finish_left and self.spliced, True
        return None if again else event
