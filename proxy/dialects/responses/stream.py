"""Reads one round of the responses API: the effect of each event, and the items at the end.

The whole item counts, from its `done` event or the final response; announcements and deltas may be missing. A plain
response is read as the final response alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

from proxy.core.ledger import (
    PROVIDER_COMPACTIONS_KEY,
    CallDelta,
    CallOwner,
    ChunkEvent,
    Finish,
    Message,
    ModelResponse,
    ResponseStart,
    StreamEnd,
    StreamError,
    UnknownEvent,
    are_valid_arguments,
)
from proxy.dialects import raw_json
from proxy.dialects.chat.stream import DONE
from proxy.dialects.json_deltas import is_signed
from proxy.dialects.response_writer import RoundReader
from proxy.dialects.responses.events import (
    ItemFields,
    ResponseFields,
    ResponsesEvent,
    parse_event,
    parse_event_strictly,
    parse_item,
    parse_response,
)
from proxy.dialects.responses.items import CALL_SUFFIX, REASONING, compaction_identities, name_of_tool, read_run
from proxy.dialects.responses.output import (
    CUSTOM_TOOL_CALL,
    FUNCTION_CALL,
    INCOMPLETE,
    OutputItem,
    StreamedItems,
    is_readable_reasoning,
)
from proxy.dialects.usage import usage_of

OPENING_EVENTS = ("response.created", "response.queued", "response.in_progress")
FINAL_EVENTS = ("response.completed", "response.incomplete", "response.cancelled", "response.done")
"""Events that end an answer, each with all of it."""
ERROR_EVENTS = ("response.failed", "error")
ITEM_DONE_EVENT = "response.output_item.done"
MESSAGE = "message"
PART_TYPE_BY_EVENT = {"response.output_text": "output_text", "response.refusal": "refusal"}
"""Kinds of content parts, by the events that tell them."""
ARGUMENT_EVENTS = ("response.function_call_arguments", "response.custom_tool_call_input")
REASONING_TEXT_EVENT = "response.reasoning_text"
REASONING_EVENTS = (REASONING_TEXT_EVENT, "response.reasoning_summary_text")
ITEM_TYPE_BY_EVENT = {
    "response.output_text": MESSAGE,
    "response.content_part": MESSAGE,
    "response.refusal": MESSAGE,
    "response.reasoning": REASONING,
    "response.function_call": "function_call",
    "response.custom_tool_call": "custom_tool_call",
}
"""Of an item that was never announced, its type by how its events begin."""
TRUNCATION_REASONS = ("max_output_tokens", INCOMPLETE)
"""Words for: the output limit ended the answer."""
FINAL_REASONS = ("content_filter",)
"""Ends behind which no call of ours is answered: the provider wants nothing to follow."""
FINAL_STATUSES = ("completed", INCOMPLETE, "cancelled")
"""Statuses of a plain answer to which nothing will be added."""


@dataclass(frozen=True, slots=True)
class ParsedEvent:
    """What one event brings: `told` is how it reads, `item` what it is about."""

    events: tuple[ChunkEvent, ...]
    wire_event: ResponsesEvent | None = None
    item: OutputItem | None = None


class ResponsesRoundReader(RoundReader):
    """What has arrived of one round so far. Its `finish` is why an answer is incomplete, or its status; it has ended
    where the final response came, or the terminator."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[OutputItem] = []
        self.id = ""
        self.last_sequence_number: int | None = None
        """The sequence number of the last event that `plain` took."""
        self._has_content = False
        self._by_id: dict[str, OutputItem] = {}
        self._items_by_index: dict[int, OutputItem] = {}

    def take_simple_delta(self, data: bytes, *, text: bool = True, calls: bool = True) -> bool:
        """Whether this is one more delta of an item that the client sees; if so it is taken. Each item is a block by
        itself, so neither words nor calls need a decision more."""
        told = parse_event_strictly(data)
        item = self._by_id.get(told.item_id) if told and told.item_id and told.delta is not None else None
        if told is None or item is None or not item.is_visible or not self._add_delta(item, told):
            return False
        self.last_sequence_number = told.sequence_number
        return True

    def read(self, data: bytes) -> tuple[ChunkEvent, ...]:
        """What this event, or this whole answer, brings."""
        return self.read_event(data).events

    def read_event(self, data: bytes) -> ParsedEvent:
        """The same, with how it reads."""
        if data.strip() == DONE:
            return self._read_stream_end()
        told = parse_event(data) if data else None
        if told is None:
            return ParsedEvent((UnknownEvent(),))
        self._has_content = True
        type_ = told.type or ""
        response = bytes(told.response)
        if not type_ and (told.object == "response" or told.output):
            return ParsedEvent(self._read_final_response(data, type_), told)
        if type_ in ERROR_EVENTS or (not type_ and told.error):
            said = self._read_response_fields(response)
            self.failed = True
            self.error = self.error or _error_of(data, told, said)
            return ParsedEvent((StreamError(),), told)
        if type_ in FINAL_EVENTS:
            return ParsedEvent(self._read_final_response(response, type_), told)
        if type_ in OPENING_EVENTS:
            self._read_response_fields(response)
            return ParsedEvent((ResponseStart(),), told)
        return self._read_item_event(told)

    def _read_stream_end(self) -> ParsedEvent:
        """A terminator with nothing before it is how some servers say that they failed."""
        self.has_ended = True
        self.is_empty = not self._has_content and not self.failed
        self.failed = self.failed or not self._has_content
        return ParsedEvent((StreamEnd(),))

    # ----------------------------------------------------------------------------------------------------------- items
    def _read_item_event(self, told: ResponsesEvent) -> ParsedEvent:
        said = parse_item(bytes(told.item)) if told.item else None
        item = self._update_item(said, told) if said else self._find_or_begin_item(told)
        if item is None:
            return ParsedEvent((UnknownEvent(),), told)
        if said is None:
            self._add_delta(item, told)
        return ParsedEvent((CallDelta(0, item.call) if item.call else UnknownEvent(),), told, item)

    def _find_or_begin_item(self, told: ResponsesEvent) -> OutputItem | None:
        """The item an event is about; one that was never announced begins with it."""
        if told.item_id and (item := self._by_id.get(told.item_id)):
            return item
        if told.output_index is not None and (item := self._items_by_index.get(told.output_index)):
            return item
        if told.output_index is None and not told.item_id:
            return self.items[-1] if self.items and (told.type or "").startswith(ARGUMENT_EVENTS) else None
        type_ = next((t for start, t in ITEM_TYPE_BY_EVENT.items() if (told.type or "").startswith(start)), "")
        return self._begin_item(OutputItem(type_, told.item_id or "", index=told.output_index))

    def _update_item(self, said: ItemFields, told: ResponsesEvent) -> OutputItem:
        """The item that this event announces, or tells as a whole."""
        item = self._by_id.get(said.id or "")
        if item is None and told.output_index is not None:
            there = self._items_by_index.get(told.output_index)
            # Some count all of their items as 0.
            may_be_same = there and not there.raw and there.type in ("", said.type) and not (there.id and said.id)
            item = there if may_be_same else None
        if item is None:
            item = self._begin_item(OutputItem(said.type or "", said.id or "", index=told.output_index))
        raw = bytes(told.item)
        if told.type == ITEM_DONE_EVENT:
            self._complete_item(item, said, raw)
        else:
            item.announcement = item.announcement or raw
            item.is_announced_signed = item.type == REASONING and is_signed(raw_json.parse_or_none(raw))
            self._update_call(item, said)
        return item

    def _begin_item(self, item: OutputItem) -> OutputItem:
        item.order = len(self.items)
        item.is_held_text = self.hides_text and item.type == MESSAGE
        self.items.append(item)
        if item.id:
            self._by_id[item.id] = item
        if item.index is not None:
            self._items_by_index[item.index] = item
        if item.type in (FUNCTION_CALL, CUSTOM_TOOL_CALL):
            item.call = self.calls.add_part(item.order, "", "", "")
        return item

    def _complete_item(self, item: OutputItem, said: ItemFields, raw: bytes) -> None:
        """All of an item has come. Told once more, the first time counts."""
        if item.raw:
            return
        item.raw = raw
        self._update_call(item, said, whole=True)
        item.readable = item.readable or (item.type == REASONING and is_readable_reasoning(raw))

    def _update_call(self, item: OutputItem, said: ItemFields, *, whole: bool = False) -> None:
        item.type, item.call_id = item.type or said.type or "", item.call_id or said.call_id or ""
        if said.id and not item.id:
            item.id = said.id
            self._by_id[said.id] = item
        asks = item.type in (FUNCTION_CALL, CUSTOM_TOOL_CALL) or (
            item.type.endswith(CALL_SUFFIX) and said.name and said.call_id
        )
        if item.call is None and asks:
            item.call = self.calls.add_part(item.order, "", "", "")
        if (call := item.call) is None:
            return
        call.id = call.id or item.call_id
        written = _arguments_text(said.arguments if said.input is None else said.input)
        if whole:
            call.argument_parts.clear()
        elif call.argument_parts:
            written = ""
        # A name that is told again is no second piece of it.
        self.calls.add_part(item.order, "", "" if call.name else name_of_tool(said.name or "", said.namespace), written)

    def _add_delta(self, item: OutputItem, told: ResponsesEvent) -> bool:
        """Take in what an event says of the inside of an item: a delta (True), or all of a part."""
        kind, _, end = (told.type or "").rpartition(".")
        delta = end == "delta"
        if kind in PART_TYPE_BY_EVENT:
            texts = item.content_parts.setdefault(told.content_index or 0, (PART_TYPE_BY_EVENT[kind], []))[1]
            _add_text(texts, told.delta if delta else told.text or told.refusal, whole=not delta)
        elif kind in ARGUMENT_EVENTS and item.call:
            whole = told.arguments if told.input is None else told.input
            if not delta and whole is not None:
                item.call.argument_parts.clear()
            self.calls.add_part(item.order, "", "", (told.delta if delta else whole) or "")
        elif kind in REASONING_EVENTS:
            item.readable = item.readable or (kind == REASONING_TEXT_EVENT and not item.is_announced_signed)
        else:
            return False
        return delta

    # ------------------------------------------------------------------------------------------------------- responses
    def _read_response_fields(self, raw: bytes) -> ResponseFields | None:
        """A response, of which the names are known from now on."""
        said = parse_response(raw)
        if said is not None:
            self.id, self.model = self.id or said.id or "", self.model or said.model or ""
        return said

    def _read_final_response(self, raw: bytes, type_: str) -> tuple[ChunkEvent, ...]:
        """The whole response: of an event of this type, or a plain answer (no type)."""
        said = self._read_response_fields(raw) or ResponseFields()
        self.usage = said.usage or self.usage
        with suppress(raw_json.JsonSplitError):  # where no output is listed, what was streamed counts
            self._update_from_output(raw_json.items(bytes(said.output)))
        if said.error or said.status == "failed":
            self.failed = True
            self.error = self.error or raw_json.encode(said.error)
            return (StreamError(),)
        if not type_ and said.status and said.status not in FINAL_STATUSES:
            return (UnknownEvent(),)
        self.has_ended = True
        reason = (said.incomplete_details or {}).get("reason")
        self.finish_reason = reason if isinstance(reason, str) else said.status or type_.removeprefix("response.")
        return (Finish(self.finish_reason),)

    def _update_from_output(self, raws: Sequence[bytes]) -> None:
        """The items as the final response lists them. One that no event has told stands behind the one before it."""
        streamed = StreamedItems(self.items)
        begun_behind: dict[OutputItem | None, list[OutputItem]] = {}
        for place, (raw, said) in enumerate((raw, said) for raw in raws if (said := parse_item(raw))):
            item = streamed.take(said.id or "", said.call_id or "", said.type or "", place)
            if item is None:
                item = self._begin_item(OutputItem(said.type or "", said.id or ""))
                begun_behind.setdefault(streamed.last_taken, []).append(item)
            self._complete_item(item, said, raw)
        if begun_behind:
            known = chain.from_iterable((item, *begun_behind.get(item, ())) for item in streamed.items)
            self.items = [*begun_behind.get(None, ()), *known]

    # --------------------------------------------------------------------------------------------------------- the end
    def model_response(self, *, complete: bool) -> ModelResponse:
        """The round as it was produced. Without an ending of any kind it is not complete, however the connection
        closed."""
        self.calls.decide_owners(over=True)
        whole = complete and not self.failed and self.has_ended
        return self._build_response(self._unanswerable_calls(whole=whole), whole=whole)

    def partial_response(self) -> ModelResponse:
        """What has arrived, while more is coming: nothing is settled by asking. A call whose name may still become one
        of ours is not in it."""
        unnamed = [item for item in self.items if item.call and item.call.owner is CallOwner.UNKNOWN]
        return self._build_response([*self._unanswerable_calls(whole=False), *unnamed], whole=False)

    def _build_response(self, dropped: Sequence[OutputItem], *, whole: bool) -> ModelResponse:
        usage = {"usage": raw_json.encode(self.usage)} if self.usage else {}
        named = {"response_id": raw_json.encode(raw_json.replace_surrogates(self.id))} if self.id else {}
        message = self._message(dropped)
        sealed = {PROVIDER_COMPACTIONS_KEY: raw_json.encode(found)} if (found := compaction_identities(message)) else {}
        return ModelResponse(
            message,
            self.finish_reason,
            usage_of(self.usage) if self.usage else None,
            self.model,
            whole,
            hidden_truncated=self.finish_reason not in FINAL_REASONS
            and any(i.call and not i.call.is_too_late for i in dropped),
            extra=usage | named | sealed,
        )

    def _unanswerable_calls(self, *, whole: bool) -> list[OutputItem]:
        """Calls of ours that cannot be answered: cut off by the output limit or a broken stream, begun behind the
        ending, or all of them where it ends the turn."""
        ours = [(item, item.call) for item in self.items if item.call and item.call.owner is CallOwner.OURS]
        found = [item for item, call in ours if call.is_too_late or self.finish_reason in FINAL_REASONS]
        if ours and ours[-1][0] is self.items[-1] and (self.finish_reason in TRUNCATION_REASONS or not whole):
            item, call = ours[-1]
            if item not in found and not (call.argument_parts and are_valid_arguments(call.arguments)):
                found.append(item)
        return found

    def _message(self, dropped: Sequence[OutputItem]) -> Message:
        """The items as one run, without those that are `dropped`. Reasoning at the end that was made with one of these
        goes with it: providers refuse reasoning that nothing follows."""
        self.calls.assign_provider_ids(raw_json.generated_call_id)
        left_out = {id(item) for item in dropped}
        kept = [item for item in self.items if id(item) not in left_out]
        while dropped and kept and kept[-1].type == REASONING:
            kept.pop()
        status = "completed" if self.has_ended else INCOMPLETE
        return read_run(raw_json.join_array([raw for item in kept if (raw := item.encode_for_provider(status))]))


def _add_text(texts: list[str], said: str | None, *, whole: bool) -> None:
    if whole and said is not None:
        texts.clear()
    if said is not None:
        texts.append(said)


def _arguments_text(arguments: object) -> str:
    """Arguments are text; some servers send them as an object."""
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else raw_json.encode(arguments).decode()


def _error_of(data: bytes, told: ResponsesEvent, said: ResponseFields | None) -> bytes:
    """What an event that tells of a failure says of it: a whole response also repeats what was asked."""
    error = told.error or (said.error if said else None)
    return raw_json.encode(error) if error or said else data
