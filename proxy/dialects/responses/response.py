"""Writes the client's response in the responses API, over all upstream rounds.

One response has one id and one count of events and items. Our tools are removed from the echoed request. Reasoning
waits for the next visible item of its round, and is not shown if there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from proxy.core.ledger import (
    MAX_HELD_CHUNKS,
    Chunk,
    Finish,
    Interceptor,
    OutgoingChunk,
    Request,
    StreamEnd,
    StreamError,
    is_stack_tool,
)
from proxy.dialects import raw_json
from proxy.dialects.body import ALLOWED_TOOLS, value_of
from proxy.dialects.error_bodies import TOO_MANY_REQUESTS, ProviderFailure
from proxy.dialects.response_writer import BaseResponseWriter, OtherForm
from proxy.dialects.responses.items import REASONING
from proxy.dialects.responses.other_form import body_of_stream, stream_of_body
from proxy.dialects.responses.output import INCOMPLETE, OutputItem
from proxy.dialects.responses.stored_turn import Visibility, is_stored, visible_items
from proxy.dialects.responses.stream import ERROR_EVENTS, FINAL_EVENTS, ParsedEvent, ResponsesRoundReader
from proxy.dialects.sse import SseEvent, encode_event
from proxy.dialects.usage import usage_for_client

IDENTITY_MEMBERS = ("id", "created_at", "model", "tool_choice")
"""Members that one answer has once, whatever its rounds say. The last round may have been told to make no calls."""
PREVIOUS_ID_MEMBER = "previous_response_id"
STACK_NAME_START = b'"stack'
"""How the name of a tool of ours begins, as JSON."""


@dataclass(frozen=True, slots=True)
class ChunkSource:
    """An event, and what it brings: the source of a piece."""

    event: SseEvent
    parsed: ParsedEvent


class BoundItemsInterceptor(Interceptor):
    """What a client sees of an answer in which reasoning, and text that is held, is bound to the item behind it."""

    terminator_follows = False  # its ending lists the whole answer

    def __init__(self) -> None:
        super().__init__(wants_usage=True, joint="")
        self._bound_chunks: list[Chunk] = []

    @property
    def can_pass_reasoning(self) -> bool:
        return not self._bound_chunks and super().can_pass_reasoning

    def process(self, piece: Chunk) -> list[OutgoingChunk]:
        left: list[OutgoingChunk] = []
        for one in self._release_bound(piece):
            left += super().process(one)
        return left

    def end_round(self) -> list[OutgoingChunk]:
        left: list[OutgoingChunk] = []
        for one in self._release_remaining():
            left += super().process(one)
        return left + super().end_round()

    def _release_bound(self, piece: Chunk) -> list[Chunk]:
        """What need not wait now that `piece` has come, in order. What is hidden anyway waits for nothing."""
        if any(isinstance(e, Finish | StreamEnd | StreamError) for e in piece.events):
            return [*self._release_remaining(), piece]
        item = _item_of(piece)
        hidden, seen = (item is not None and item.is_visible is shown for shown in (False, True))
        if hidden or not (self._bound_chunks or (item is not None and is_bound(item))):
            return [piece]
        self._bound_chunks.append(piece)
        if not seen and len(self._bound_chunks) <= MAX_HELD_CHUNKS:
            return []
        left, self._bound_chunks = self._bound_chunks, []
        return left

    def _release_remaining(self) -> list[Chunk]:
        """What still waits when the round is over: in one with a call of ours, what is bound goes with that."""
        self._calls.decide_owners(over=True)
        hides = self._calls.has_stack_call
        left, self._bound_chunks = self._bound_chunks, []
        return [piece for piece in left if not (hides and self._goes_with_hidden(_item_of(piece)))]

    def _goes_with_hidden(self, item: OutputItem | None) -> bool:
        """Whether an item that still waits is left out where a call of ours is."""
        if item is None or not is_bound(item) or (item.is_held_text and self._calls.has_client_call):
            return False
        self.has_unshown_text = self.has_unshown_text or item.is_held_text
        return True


def _item_of(piece: Chunk) -> OutputItem | None:
    return piece.source.parsed.item if isinstance(piece.source, ChunkSource) else None


def is_bound(item: OutputItem) -> bool:
    """Whether the item goes with what stands behind it: bound reasoning, or text that waits for the end of its
    round."""
    return (item.type == REASONING or item.is_held_text) and not item.is_visible


class ResponsesResponseWriter(BaseResponseWriter[ResponsesRoundReader]):
    """The client's answer to `request` while it is made."""

    other_form = OtherForm(body_of_stream, stream_of_body)

    def __init__(self, request: Request, *, intercept: bool) -> None:
        super().__init__(ResponsesRoundReader, BoundItemsInterceptor(), stream=request.stream, intercept=intercept)
        self._client_members = request.fields
        self._first: dict[str, bytes] = {}
        self._opening = b""
        """The response as it was first announced."""
        self._earlier_items: list[OutputItem] = []
        """What the client was shown of the rounds before this one."""
        self._sequence = self._last_index = -1
        """The numbers of the last event and of the last item that the client was told."""
        self._sent_numbers = (-1, -1)
        """The same, as of what has really left."""
        self._numbers_before_error = (-1, -1)
        """The same, as of what came before the error of this round."""
        self._last = b""
        """The response that ended this round, as the provider told it."""

    def begin_round(self, status: int, content_type: str, *, encoded: bool = False) -> None:
        """An upstream reply begins. `encoded`: its body is compressed, so it is not read."""
        if self._held_error:
            self._sequence, self._last_index = self._sent_numbers  # what was written of a failed round has not left
        if not self._reader.failed:
            self._earlier_items += visible_items_of(self._reader.items)
        self._sent_numbers = (self._sequence, self._last_index)
        self._last = b""
        super().begin_round(status, content_type, encoded=encoded)

    @property
    def retrievable_response(self) -> bytes:
        """The response as the client is told it, where it may ask for it again: the provider has another one under
        its id."""
        if not (self._intercept and self._last and is_stored(self._client_members)):
            return b""
        try:
            return self._client_response(self._last, over=True)
        except raw_json.JsonSplitError:
            return b""

    def retry_round(self) -> None:
        """Another round comes in the place of one that said nothing."""
        super().retry_round()
        if not self.round_is_visible:
            self._first = {}

    def closing_error(self, message: str) -> bytes:
        """Nothing: clients ask again where the connection is closed, and fail where an event says so."""
        return b""

    def _encode_failure(self, failure: ProviderFailure) -> bytes:
        """`response.failed` with all that the client was shown; an `error` event where no response was announced."""
        code = _failure_code(failure)
        uncounted = self._reader.last_sequence_number
        last = self._sequence if uncounted is None else max(self._sequence, uncounted)
        if not self._opening:
            told = {"type": "error", "code": code, "message": failure.words, "param": None, "sequence_number": last + 1}
            return encode_event("error", raw_json.encode(told | failure.told_wait))
        fields = raw_json.members(self._opening)
        shown = (item.encode(INCOMPLETE) for item in (*self._earlier_items, *visible_items_of(self._reader.items)))
        usages = self._all_usages()
        fields |= changes_to_client_request(fields, self._client_members) | {
            "status": b'"failed"',
            "error": raw_json.encode({"code": code, "message": failure.words, **failure.told_wait}),
            "output": raw_json.join_array([item for item in shown if item]),
            "usage": raw_json.encode(usage_for_client(usages)) if usages else b"null",
        }
        event = {
            "type": b'"response.failed"',
            "sequence_number": raw_json.encode(last + 1),
            "response": raw_json.join_object(fields),
        }
        return encode_event("response.failed", raw_json.join_object(event))

    # ---------------------------------------------------------------------------------------------------------- stream
    def _with_client_ids(self, raw: bytes) -> bytes:
        return b"" if self._interceptor.is_spliced else raw

    def _process_event(self, event: SseEvent) -> list[bytes]:
        if not self._reader.failed:
            self._numbers_before_error = (self._sequence, self._last_index)
        heard = self._reader.read_event(event.data)
        if not self._first and heard.wire_event and heard.wire_event.response:
            self._opening = bytes(heard.wire_event.response)
            self._first = _names(self._opening)
        if heard.wire_event and heard.wire_event.type in (*FINAL_EVENTS, *ERROR_EVENTS):
            self._last = bytes(heard.wire_event.response)
        return [
            self._encode_outgoing(shown)
            for shown in self._interceptor.process(Chunk(heard.events, ChunkSource(event, heard)))
        ]

    def _encode_outgoing(self, shown: OutgoingChunk) -> bytes:
        return self._encode_renumbered(shown.chunk.source)

    def _encode_renumbered(self, source: object) -> bytes:
        """An event as the client is told it: the very same bytes where its numbers and names are right."""
        if not isinstance(source, ChunkSource):
            return b""
        heard, told = source.parsed, source.parsed.wire_event
        if told is None:
            return source.event.raw
        changes: dict[str, bytes] = {}
        if told.sequence_number is not None:
            # Deltas that needed no decision have left uncounted, under their own numbers.
            last = max(
                self._sequence, -1 if self._reader.last_sequence_number is None else self._reader.last_sequence_number
            )
            self._sequence = last + 1 if self._interceptor.is_spliced else told.sequence_number
            if self._sequence != told.sequence_number:
                changes["sequence_number"] = raw_json.encode(self._sequence)
        if (item := heard.item) is not None:
            place = self._client_index_of(item)
            if told.output_index not in (None, place):
                changes["output_index"] = raw_json.encode(place)
        if (response := bytes(told.response)).startswith(b"{"):
            told_anew = self._client_response(response, over=told.type in (*FINAL_EVENTS, *ERROR_EVENTS))
            if told_anew != response:
                changes["response"] = told_anew
        return _with_members(source.event, changes) if changes else source.event.raw

    def _client_index_of(self, item: OutputItem) -> int:
        """Where the client is told that the item stands: behind all it was shown before."""
        if item.client_index is None:
            item.client_index = (
                self._last_index + 1 if self._interceptor.is_spliced or item.index is None else item.index
            )
            self._last_index = max(self._last_index, item.client_index)
        return item.client_index

    def _final_stream_bytes(self) -> bytes:
        if self._reader.failed or not self._interceptor.is_spliced:
            return b""
        held = (self._interceptor.held_finish, self._interceptor.held_end)
        return b"".join(self._encode_renumbered(piece.source) for piece in held if piece)

    def _release(self, out: bytes, fault: bytes = b"") -> bytes:
        left = super()._release(out, fault)
        if left:  # an error that came with it may wait
            self._sent_numbers = self._numbers_before_error if self._held_error else (self._sequence, self._last_index)
        return left

    # ------------------------------------------------------------------------------------------------------- responses
    def _client_response(self, raw: bytes, *, over: bool) -> bytes:
        """A response as the client is told it. `over`: it ends the answer, so it lists all the client was shown."""
        fields = raw_json.members(raw)
        changes: dict[str, bytes] = {}
        if self._interceptor.is_spliced:
            changes |= {name: value for name, value in self._first.items() if name in fields}
        changes |= changes_to_client_request(fields, self._client_members)
        if self._interceptor.is_spliced and over and "output" in fields:
            shown = (item.encode(INCOMPLETE) for item in (*self._earlier_items, *visible_items_of(self._reader.items)))
            changes["output"] = raw_json.join_array([item for item in shown if item])
        if self._interceptor.is_spliced and over and "usage" in fields and self._reader.usage:
            changes["usage"] = raw_json.encode(usage_for_client(self._all_usages()))
        changed = any(fields.get(name) != value for name, value in changes.items())
        return raw_json.join_object(fields | changes) if changed else raw

    def _all_usages(self) -> list[dict[str, Any]]:
        """Of all rounds, this one among them; when it has ended it is listed already."""
        usage = self._reader.usage
        if usage is None or any(one is usage for one in self._round_usages):
            return self._round_usages
        return [*self._round_usages, usage]

    # ------------------------------------------------------------------------------------------------------ plain body
    def _end_body_round(self, body: bytes) -> None:
        heard = self._reader.read_event(body)
        if not self._intercept:
            return  # it has left as it came
        if not self._first:
            self._first = _names(body)
        if self._reader.has_ended:
            self._last = body
        self._interceptor.process(Chunk(heard.events, body))
        self._interceptor.end_round()

    def _final_body(self, body: bytes) -> bytes:
        try:
            return self._client_response(body, over=self._reader.has_ended or self._reader.failed)
        except raw_json.JsonSplitError:
            return body


def visible_items_of(items: Iterable[OutputItem]) -> list[OutputItem]:
    """The items of a round that the client sees, in order: by the rule of `BoundItemsInterceptor`."""
    return visible_items((item, _visibility_of(item)) for item in items)


def _visibility_of(item: OutputItem) -> Visibility:
    if item.is_visible:
        return Visibility.SHOWN
    return Visibility.WITH_NEXT if is_bound(item) else Visibility.HIDDEN


def changes_to_client_request(fields: Mapping[str, bytes], asked: Mapping[str, bytes]) -> dict[str, bytes]:
    """What a response says of its request in other words than the client's: neither our tools nor our guidance are its
    own, and the answer it goes on from is."""
    changes: dict[str, bytes] = {}
    if (tools := fields.get("tools", b"")).startswith(b"[") and STACK_NAME_START in tools:
        changes["tools"] = raw_json.join_array([tool for tool in raw_json.items(tools) if not _is_own_tool(tool)])
    own, told = value_of(asked, "instructions"), value_of(fields, "instructions")
    if isinstance(own, str) and isinstance(told, str) and told.startswith(own) and told != own:
        changes["instructions"] = asked["instructions"]
    if "tool_choice" in fields and ALLOWED_TOOLS.encode() in asked.get("tool_choice", b""):
        changes["tool_choice"] = asked["tool_choice"]  # ours joined the tools that it allows
    if PREVIOUS_ID_MEMBER in asked and PREVIOUS_ID_MEMBER in fields:
        changes[PREVIOUS_ID_MEMBER] = asked[PREVIOUS_ID_MEMBER]  # the provider was sent what it stands for
    return changes


def _is_own_tool(tool: bytes) -> bool:
    try:
        said = raw_json.parse(tool)
    except raw_json.JsonSplitError:
        return False
    if not isinstance(said, dict):
        return False
    inner = said.get("tools")
    names = [t.get("name") for t in inner if isinstance(t, dict)] if isinstance(inner, list) else [said.get("name")]
    return bool(names) and all(isinstance(name, str) and is_stack_tool(name) for name in names)


def _failure_code(failure: ProviderFailure) -> str:
    """The provider's own code, else the API's by status: clients wait as they are told where it is the rate, and do not
    ask again where the request is at fault."""
    own = failure.error.get("code")
    if isinstance(own, str) and own and not own.isdecimal():
        return own
    if failure.status == TOO_MANY_REQUESTS:
        return "rate_limit_exceeded"
    return "server_error" if failure.status >= 500 else "invalid_prompt"


def _names(response: bytes) -> dict[str, bytes]:
    """What names the whole answer, as its first response says it."""
    try:
        fields = raw_json.members(response)
    except raw_json.JsonSplitError:
        return {}
    return {name: fields[name] for name in IDENTITY_MEMBERS if name in fields}


def _with_members(event: SseEvent, changes: Mapping[str, bytes]) -> bytes:
    """The event with these members; all else of it, its line ends too, as it came."""
    fields = raw_json.members(event.data)
    data = raw_json.join_object({**fields, **changes})
    before, found, behind = event.raw.partition(event.data)
    if found:
        return before + data + behind
    return encode_event(str(raw_json.parse(fields.get("type", b'"message"'))), data)
