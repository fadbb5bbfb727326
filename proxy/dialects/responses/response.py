"""The responses API, the answer's side: what the provider sends, written for the client.

One answer has one id, one count of events and one of items, however many rounds it takes. The law of
`dialects.answering` holds, but for what a response says of the request it answers (its tools, its instructions): that
is what the client asked, so ours are taken out. And **reasoning goes with what was made with it**: an item that is
bound to its place waits for the next thing of its round that the client sees, and in a round of which it sees nothing
it is never shown.

What this module does not do: it reads no event (`responses_round`), and it decides neither what is shown
(`stack.intercept`) nor whether a round follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from proxy.core.ledger.messages import Request, is_stack_tool
from proxy.core.ledger.tool_call_interceptor import MOST_HELD, End, Fault, Finish, Owner, Piece, Show, Shown
from proxy.dialects import raw_json as slices
from proxy.dialects.body import value_of
from proxy.dialects.response_writer import Answering
from proxy.dialects.responses.items import REASONING
from proxy.dialects.responses.output import INCOMPLETE, Item
from proxy.dialects.responses.stored import Fate, keeps, visible
from proxy.dialects.responses.stream import FAULTS, FINALS, Heard, Round
from proxy.dialects.sse import SseEvent, written
from proxy.dialects.usage import told_of

FIRST_OF_ALL = ("id", "created_at", "model", "tool_choice")
"""Members that one answer has once, whatever its rounds say. The last round may have been told to make no calls."""
PREVIOUS = "previous_response_id"
OURS = b'"stack'
"""How the name of a tool of ours begins, as JSON."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """An event, and what it brings: the source of a piece."""

    event: SseEvent
    heard: Heard


class BoundShow(Show):
    """What a client sees of an answer in which reasoning is bound to the item behind it."""

    def __init__(self) -> None:
        super().__init__(wants_usage=True, joint="")
        self._bound: list[Piece] = []

    @property
    def passes(self) -> bool:
        return not self._bound and super().passes

    def see(self, piece: Piece) -> list[Shown]:
        left: list[Shown] = []
        for one in self._released(piece):
            left += super().see(one)
        return left

    def end_round(self) -> list[Shown]:
        left: list[Shown] = []
        for one in self._rest():
            left += super().see(one)
        return left + super().end_round()

    def _released(self, piece: Piece) -> list[Piece]:
        """What need not wait now that `piece` has come, in order. What is hidden anyway waits for nothing."""
        if any(isinstance(e, Finish | End | Fault) for e in piece.events):
            return [*self._rest(), piece]
        item = _item_of(piece)
        hidden, seen = (item is not None and item.shows is shown for shown in (False, True))
        if hidden or not (self._bound or _is_bound(item)):
            return [piece]
        self._bound.append(piece)
        if not seen and len(self._bound) <= MOST_HELD:
            return []
        left, self._bound = self._bound, []
        return left

    def _rest(self) -> list[Piece]:
        """What still waits when the round is over: in one with a call of ours, what is bound goes with that."""
        self._calls.settle(over=True)
        hides = any(call.owner is Owner.OURS for call in self._calls.all)
        left, self._bound = self._bound, []
        return [piece for piece in left if not (hides and _is_bound(_item_of(piece)))]


def _item_of(piece: Piece) -> Item | None:
    return piece.source.heard.item if isinstance(piece.source, Arrived) else None


def _is_bound(item: Item | None) -> bool:
    return item is not None and item.type == REASONING and not item.shows


class Answer(Answering[Round]):
    """The client's answer to `request` while it is made."""

    def __init__(self, request: Request, *, intercept: bool) -> None:
        super().__init__(Round, BoundShow(), stream=request.stream, intercept=intercept)
        self._asked = request.fields
        self._first: dict[str, bytes] = {}
        self._before: list[Item] = []
        """What the client was shown of the rounds before this one."""
        self._sequence = self._place = -1
        """The numbers of the last event and of the last item that the client was told."""
        self._counted = (-1, -1)
        """The same, as of what has really left."""
        self._unfailed = (-1, -1)
        """The same, as of what came before the error of this round."""
        self._last = b""
        """The response that ended this round, as the provider told it."""

    def begin_round(self, status: int, content_type: str, *, encoded: bool = False) -> None:
        """An upstream reply begins. `encoded`: its body is compressed, so it is not read."""
        if self._fault:
            self._sequence, self._place = self._counted  # what was written of a failed round has not left
        if not self._round.failed:
            self._before += shown_of(self._round.items)
        self._counted = (self._sequence, self._place)
        self._last = b""
        super().begin_round(status, content_type, encoded=encoded)

    @property
    def told(self) -> bytes:
        """The response as the client is told it, where it may ask for it again: the provider has another one under
        its id."""
        if not (self._intercept and self._last and keeps(self._asked)):
            return b""
        try:
            return self._response(self._last, over=True)
        except slices.NotSliced:
            return b""

    def again(self) -> None:
        """Another round comes in the place of one that said nothing."""
        super().again()
        if not self.round_shown:
            self._first = {}

    def broken(self, message: str) -> bytes:
        """Nothing: clients ask again where the connection is closed, and fail where an event says so."""
        return b""

    # ---------------------------------------------------------------------------------------------------------- stream
    def _renamed(self, raw: bytes) -> bytes:
        return b"" if self._show.spliced else raw

    def _seen(self, event: SseEvent) -> list[bytes]:
        if not self._round.failed:
            self._unfailed = (self._sequence, self._place)
        heard = self._round.heard(event.data)
        if not self._first and heard.told and heard.told.response:
            self._first = _names(bytes(heard.told.response))
        if heard.told and heard.told.type in (*FINALS, *FAULTS):
            self._last = bytes(heard.told.response)
        return [self._written(shown) for shown in self._show.see(Piece(heard.events, Arrived(event, heard)))]

    def _written(self, shown: Shown) -> bytes:
        return self._counted_on(shown.piece.source)

    def _counted_on(self, source: object) -> bytes:
        """An event as the client is told it: the very same bytes where its numbers and names are right."""
        if not isinstance(source, Arrived):
            return b""
        heard, told = source.heard, source.heard.told
        if told is None:
            return source.event.raw
        changes: dict[str, bytes] = {}
        if told.sequence_number is not None:
            # Deltas that needed no decision have left uncounted, under their own numbers.
            last = max(self._sequence, -1 if self._round.latest is None else self._round.latest)
            self._sequence = last + 1 if self._show.spliced else told.sequence_number
            if self._sequence != told.sequence_number:
                changes["sequence_number"] = slices.encoded(self._sequence)
        if (item := heard.item) is not None:
            place = self._place_of(item)
            if told.output_index not in (None, place):
                changes["output_index"] = slices.encoded(place)
        if (response := bytes(told.response)).startswith(b"{"):
            told_anew = self._response(response, over=told.type in (*FINALS, *FAULTS))
            if told_anew != response:
                changes["response"] = told_anew
        return _with(source.event, changes) if changes else source.event.raw

    def _place_of(self, item: Item) -> int:
        """Where the client is told that the item stands: behind all it was shown before."""
        if item.told is None:
            item.told = self._place + 1 if self._show.spliced or item.index is None else item.index
            self._place = max(self._place, item.told)
        return item.told

    def _stream_end(self) -> bytes:
        if self._round.failed or not self._show.spliced:
            return b""
        held = (self._show.held_finish, self._show.held_end)
        return b"".join(self._counted_on(piece.source) for piece in held if piece)

    def _left(self, out: bytes, fault: bytes = b"") -> bytes:
        left = super()._left(out, fault)
        if left:  # an error that came with it may wait
            self._counted = self._unfailed if self._fault else (self._sequence, self._place)
        return left

    # ------------------------------------------------------------------------------------------------------- responses
    def _response(self, raw: bytes, *, over: bool) -> bytes:
        """A response as the client is told it. `over`: it ends the answer, so it lists all the client was shown."""
        fields = slices.members(raw)
        changes = as_asked(fields, self._asked)
        if self._show.spliced:
            changes |= {name: value for name, value in self._first.items() if name in fields}
        if self._show.spliced and over and "output" in fields:
            shown = (item.written(INCOMPLETE) for item in (*self._before, *shown_of(self._round.items)))
            changes["output"] = slices.array_of([item for item in shown if item])
        if self._show.spliced and over and "usage" in fields and self._round.usage:
            changes["usage"] = slices.encoded(told_of(self._all_usages()))
        changed = any(fields.get(name) != value for name, value in changes.items())
        return slices.object_of(fields | changes) if changed else raw

    def _all_usages(self) -> list[dict[str, Any]]:
        """Of all rounds, this one among them; when it has ended it is listed already."""
        usage = self._round.usage
        if usage is None or any(one is usage for one in self._usages):
            return self._usages
        return [*self._usages, usage]

    # ------------------------------------------------------------------------------------------------------ plain body
    def _end_of_body(self, body: bytes) -> None:
        heard = self._round.heard(body)
        if not self._intercept:
            return  # it has left as it came
        if not self._first:
            self._first = _names(body)
        if self._round.ended:
            self._last = body
        self._show.see(Piece(heard.events, body))
        self._show.end_round()

    def _whole_body(self, body: bytes) -> bytes:
        try:
            return self._response(body, over=self._round.ended or self._round.failed)
        except slices.NotSliced:
            return body


def shown_of(items: Iterable[Item]) -> list[Item]:
    """The items of a round that the client sees, in order: by the rule of `BoundShow`."""
    return visible((item, _fate(item)) for item in items)


def _fate(item: Item) -> Fate:
    if item.shows:
        return Fate.SHOWN
    return Fate.BOUND if _is_bound(item) else Fate.HIDDEN


def as_asked(fields: Mapping[str, bytes], asked: Mapping[str, bytes]) -> dict[str, bytes]:
    """What a response says of its request in other words than the client's: neither our tools nor our guidance are its
    own, and the answer it goes on from is."""
    changes: dict[str, bytes] = {}
    if (tools := fields.get("tools", b"")).startswith(b"[") and OURS in tools:
        changes["tools"] = slices.array_of([tool for tool in slices.items(tools) if not _is_ours(tool)])
    own, told = value_of(asked, "instructions"), value_of(fields, "instructions")
    if isinstance(own, str) and isinstance(told, str) and told.startswith(own) and told != own:
        changes["instructions"] = asked["instructions"]
    if PREVIOUS in asked and PREVIOUS in fields:
        changes[PREVIOUS] = asked[PREVIOUS]  # the provider was sent what it stands for
    return changes


def _is_ours(tool: bytes) -> bool:
    try:
        said = slices.value(tool)
    except slices.NotSliced:
        return False
    if not isinstance(said, dict):
        return False
    inner = said.get("tools")
    names = [t.get("name") for t in inner if isinstance(t, dict)] if isinstance(inner, list) else [said.get("name")]
    return bool(names) and all(isinstance(name, str) and is_stack_tool(name) for name in names)


def _names(response: bytes) -> dict[str, bytes]:
    """What names the whole answer, as its first response says it."""
    try:
        fields = slices.members(response)
    except slices.NotSliced:
        return {}
    return {name: fields[name] for name in FIRST_OF_ALL if name in fields}


def _with(event: SseEvent, changes: Mapping[str, bytes]) -> bytes:
    """The event with these members; all else of it, its line ends too, as it came."""
    fields = slices.members(event.data)
    data = slices.object_of({**fields, **changes})
    before, found, behind = event.raw.partition(event.data)
    return before + data + behind if found else written(_type(fields), data)


def _type(fields: Mapping[str, bytes]) -> str:
    return str(slices.value(fields.get("type", b'"message"')))
