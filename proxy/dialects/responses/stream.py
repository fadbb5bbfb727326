"""One round of an answer of the responses API, read: what each event brings, and the items at the end.

An answer is a list of output items (messages, reasoning, calls, whatever runs at the provider), each announced, told in
deltas and told again as a whole. The law: **what counts is the whole item**, as its `done` event or else the final
response says it; announcements and deltas only tell it sooner, and may be left out. A plain answer is the final
response and nothing else.

What this module does not do: it writes nothing to a client (`responses_answer`) and decides nothing
(`stack.intercept`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from proxy.core.ledger.ledger import SEALED
from proxy.core.ledger.messages import Message, Spoken
from proxy.core.ledger.tool_call_interceptor import CallPart, End, Event, Fault, Finish, Opening, Other, Owner, is_whole
from proxy.dialects import raw_json as slices
from proxy.dialects.chat.stream import DONE
from proxy.dialects.json_deltas import is_signed
from proxy.dialects.response_writer import Reading
from proxy.dialects.responses.events import TellsItem, TellsResponse, Told, item_in, quickly_told, response_in, told_in
from proxy.dialects.responses.items import CALL, REASONING, read_run, sealed_in
from proxy.dialects.responses.output import CUSTOM, FUNCTION, INCOMPLETE, Item, is_open, value
from proxy.dialects.usage import usage_of

OPENINGS = ("response.created", "response.queued", "response.in_progress")
FINALS = ("response.completed", "response.incomplete", "response.cancelled", "response.done")
"""Events that end an answer, each with all of it."""
FAULTS = ("response.failed", "error")
ADDED, WHOLE = "response.output_item.added", "response.output_item.done"
SAID = {"response.output_text": "output_text", "response.refusal": "refusal"}
"""Kinds of content parts, by the events that tell them."""
CALLED = ("response.function_call_arguments", "response.custom_tool_call_input")
READABLE = "response.reasoning_text"
THOUGHT = (READABLE, "response.reasoning_summary_text")
BEGINNINGS = {
    "response.output_text": "message",
    "response.content_part": "message",
    "response.refusal": "message",
    "response.reasoning": REASONING,
    "response.function_call": "function_call",
    "response.custom_tool_call": "custom_tool_call",
}
"""Of an item that was never announced, its type by how its events begin."""
CUT = ("max_output_tokens", INCOMPLETE)
"""Words for: the output limit ended the answer."""
ENDS_THE_TURN = ("content_filter",)
"""Ends behind which no call of ours is answered: the provider wants nothing to follow."""
OVER = ("completed", INCOMPLETE, "cancelled")
"""Statuses of a plain answer to which nothing will be added."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What one event brings: `told` is how it reads, `item` what it is about."""

    events: tuple[Event, ...]
    told: Told | None = None
    item: Item | None = None


class Round(Reading):
    """What has arrived of one round so far. Its `finish` is why an answer is incomplete, or its status; it has ended
    where the final response came, or the terminator."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[Item] = []
        self.id = ""
        self.latest: int | None = None
        """The sequence number of the last event that `plain` took."""
        self._said = False
        self._by_id: dict[str, Item] = {}
        self._at: dict[int, Item] = {}

    def plain(self, data: bytes, *, text: bool = True, calls: bool = True) -> bool:
        """Whether this is one more delta of an item that the client sees; if so it is taken. Each item is a block by
        itself, so neither words nor calls need a decision more."""
        told = quickly_told(data)
        item = self._by_id.get(told.item_id) if told and told.item_id and told.delta is not None else None
        if told is None or item is None or not item.shows or not self._grows(item, told):
            return False
        self.latest = told.sequence_number
        return True

    def read(self, data: bytes) -> tuple[Event, ...]:
        """What this event, or this whole answer, brings."""
        return self.heard(data).events

    def heard(self, data: bytes) -> Heard:
        """The same, with how it reads."""
        if data.strip() == DONE:
            return self._end()
        told = told_in(data) if data else None
        if told is None:
            return Heard((Other(),))
        self._said = True
        type_ = told.type or ""
        response = bytes(told.response)
        if not type_ and (told.object == "response" or told.output):
            return Heard(self._final(data, type_), told)
        if type_ in FAULTS or (not type_ and told.error):
            said = self._named(response)
            self.failed = True
            self.fault = self.fault or _fault(data, told, said)
            return Heard((Fault(),), told)
        if type_ in FINALS:
            return Heard(self._final(response, type_), told)
        if type_ in OPENINGS:
            self._named(response)
            return Heard((Opening(),), told)
        return self._of_item(told)

    def _end(self) -> Heard:
        """A terminator with nothing before it is how some servers say that they failed."""
        self.ended = True
        self.silent = not self._said and not self.failed
        self.failed = self.failed or not self._said
        return Heard((End(),))

    # ----------------------------------------------------------------------------------------------------------- items
    def _of_item(self, told: Told) -> Heard:
        said = item_in(bytes(told.item)) if told.item else None
        item = self._told(said, told) if said else self._located(told)
        if item is None:
            return Heard((Other(),), told)
        if said is None:
            self._grows(item, told)
        return Heard((CallPart(0, item.call) if item.call else Other(),), told, item)

    def _located(self, told: Told) -> Item | None:
        """The item an event is about; one that was never announced begins with it."""
        if told.item_id and (item := self._by_id.get(told.item_id)):
            return item
        if told.output_index is not None and (item := self._at.get(told.output_index)):
            return item
        if told.output_index is None and not told.item_id:
            return self.items[-1] if self.items and (told.type or "").startswith(CALLED) else None
        type_ = next((t for start, t in BEGINNINGS.items() if (told.type or "").startswith(start)), "")
        return self._begun(Item(type_, told.item_id or "", index=told.output_index))

    def _told(self, said: TellsItem, told: Told) -> Item:
        """The item that this event announces, or tells as a whole."""
        item = self._by_id.get(said.id or "")
        if item is None and told.output_index is not None:
            there = self._at.get(told.output_index)
            item = there if there and _may_be(there, said) else None
        if item is None:
            item = self._begun(Item(said.type or "", said.id or "", index=told.output_index))
        raw = bytes(told.item)
        if told.type == WHOLE:
            self._ends(item, said, raw)
        else:
            item.opened = item.opened or raw
            item.bound = item.type == REASONING and is_signed(value(raw))
            self._learn(item, said)
        return item

    def _begun(self, item: Item) -> Item:
        item.order = len(self.items)
        self.items.append(item)
        if item.id:
            self._by_id[item.id] = item
        if item.index is not None:
            self._at[item.index] = item
        if item.type in (FUNCTION, CUSTOM):
            item.call = self.calls.take(item.order, "", "", "")
        return item

    def _ends(self, item: Item, said: TellsItem, raw: bytes) -> None:
        """All of an item has come. Told once more, the first time counts."""
        if item.raw:
            return
        item.raw = raw
        self._learn(item, said, whole=True)
        item.readable = item.readable or (item.type == REASONING and is_open(raw))

    def _learn(self, item: Item, said: TellsItem, *, whole: bool = False) -> None:
        item.type, item.call_id = item.type or said.type or "", item.call_id or said.call_id or ""
        if said.id and not item.id:
            item.id = said.id
            self._by_id[said.id] = item
        asks = item.type in (FUNCTION, CUSTOM) or (item.type.endswith(CALL) and said.name and said.call_id)
        if item.call is None and asks:
            item.call = self.calls.take(item.order, "", "", "")
        if (call := item.call) is None:
            return
        call.id = call.id or item.call_id
        written = _words(said.arguments if said.input is None else said.input)
        if whole:
            call.written.clear()
        elif call.written:
            written = ""
        # A name that is told again is no second piece of it.
        self.calls.take(item.order, "", "" if call.name else said.name or "", written)

    def _grows(self, item: Item, told: Told) -> bool:
        """Take in what an event says of the inside of an item: a delta (True), or all of a part."""
        kind, _, end = (told.type or "").rpartition(".")
        delta = end == "delta"
        if kind in SAID:
            texts = item.said.setdefault(told.content_index or 0, (SAID[kind], []))[1]
            _grow(texts, told.delta if delta else told.text or told.refusal, whole=not delta)
        elif kind in CALLED and item.call:
            whole = told.arguments if told.input is None else told.input
            if not delta and whole is not None:
                item.call.written.clear()
            self.calls.take(item.order, "", "", (told.delta if delta else whole) or "")
        elif kind in THOUGHT:
            item.readable = item.readable or (kind == READABLE and not item.bound)
        else:
            return False
        return delta

    # ------------------------------------------------------------------------------------------------------- responses
    def _named(self, raw: bytes) -> TellsResponse | None:
        """A response, of which the names are known from now on."""
        said = response_in(raw)
        if said is not None:
            self.id, self.model = self.id or said.id or "", self.model or said.model or ""
        return said

    def _final(self, raw: bytes, type_: str) -> tuple[Event, ...]:
        """The whole response: of an event of this type, or a plain answer (no type)."""
        said = self._named(raw) or TellsResponse()
        self.usage = said.usage or self.usage
        with suppress(slices.NotSliced):  # where no output is listed, what was streamed counts
            self._list(slices.items(bytes(said.output)))
        if said.error or said.status == "failed":
            self.failed = True
            self.fault = self.fault or slices.encoded(said.error)
            return (Fault(),)
        if not type_ and said.status and said.status not in OVER:
            return (Other(),)
        self.ended = True
        reason = (said.incomplete_details or {}).get("reason")
        self.finish = reason if isinstance(reason, str) else said.status or type_.removeprefix("response.")
        return (Finish(self.finish),)

    def _list(self, raws: Sequence[bytes]) -> None:
        """The items as the final response lists them. One that no event has told stands behind the one before it."""
        listed: list[Item] = []
        for raw in raws:
            if (said := item_in(raw)) is None:
                continue
            item = self._listed(said, listed)
            if item is None:
                item = self._begun(Item(said.type or "", said.id or ""))
                self.items.insert(self.items.index(listed[-1]) + 1 if listed else 0, self.items.pop())
            self._ends(item, said, raw)
            listed.append(item)

    def _listed(self, said: TellsItem, listed: Collection[Item]) -> Item | None:
        """The item that is listed here: by its id, by its call, or by its place among those of its type."""
        left = [item for item in self.items if item not in listed]
        same_id = (i for i in left if said.id and i.id == said.id)
        same_call = (i for i in left if said.call_id and i.call_id == said.call_id)
        same_place = (i for i in left if i.order == len(listed) and i.type == said.type)
        return next(same_id, None) or next(same_call, None) or next(same_place, None)

    # --------------------------------------------------------------------------------------------------------- the end
    def spoken(self, *, complete: bool) -> Spoken:
        """The round as it was produced. Without an ending of any kind it is not complete, however the connection
        closed."""
        self.calls.settle(over=True)
        whole = complete and not self.failed and self.ended
        return self._spoken(self._dropped(whole=whole), whole=whole)

    def so_far(self) -> Spoken:
        """What has arrived, while more is coming: nothing is settled by asking. A call whose name may still become one
        of ours is not in it."""
        unnamed = [item for item in self.items if item.call and item.call.owner is Owner.UNKNOWN]
        return self._spoken([*self._dropped(whole=False), *unnamed], whole=False)

    def _spoken(self, dropped: Sequence[Item], *, whole: bool) -> Spoken:
        usage = {"usage": slices.encoded(self.usage)} if self.usage else {}
        named = {"response_id": slices.encoded(slices.mended(self.id))} if self.id else {}
        message = self._message(dropped)
        sealed = {SEALED: slices.encoded(found)} if (found := sealed_in(message)) else {}
        return Spoken(
            message,
            self.finish,
            usage_of(self.usage) if self.usage else None,
            self.model,
            whole,
            hidden_truncated=self.finish not in ENDS_THE_TURN and any(i.call and not i.call.late for i in dropped),
            extra=usage | named | sealed,
        )

    def _dropped(self, *, whole: bool) -> list[Item]:
        """Calls of ours that cannot be answered: cut off by the output limit or a broken stream, begun behind the
        ending, or all of them where it ends the turn."""
        ours = [(item, item.call) for item in self.items if item.call and item.call.owner is Owner.OURS]
        found = [item for item, call in ours if call.late or self.finish in ENDS_THE_TURN]
        if ours and ours[-1][0] is self.items[-1] and (self.finish in CUT or not whole):
            item, call = ours[-1]
            if item not in found and not (call.written and is_whole(call.arguments)):
                found.append(item)
        return found

    def _message(self, dropped: Collection[Item]) -> Message:
        """The items as one run, without those that are `dropped`. Reasoning at the end that was made with one of these
        goes with it: providers refuse reasoning that nothing follows."""
        kept = [item for item in self.items if item not in dropped]
        while dropped and kept and kept[-1].type == REASONING:
            kept.pop()
        status = "completed" if self.ended else INCOMPLETE
        return read_run(slices.array_of([raw for item in kept if (raw := item.answerable(status))]))


def _may_be(item: Item, said: TellsItem) -> bool:
    """Whether an item that stands at the same place is the one that is told about; some count all of theirs as 0."""
    return not item.raw and item.type in ("", said.type) and not (item.id and said.id)


def _grow(texts: list[str], said: str | None, *, whole: bool) -> None:
    if whole and said is not None:
        texts.clear()
    if said is not None:
        texts.append(said)


def _words(arguments: object) -> str:
    """Arguments are text; some servers send them as an object."""
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else slices.encoded(arguments).decode()


def _fault(data: bytes, told: Told, said: TellsResponse | None) -> bytes:
    """What an event that tells of a failure says of it: a whole response also repeats what was asked."""
    error = told.error or (said.error if said else None)
    return slices.encoded(error) if error or said else data
