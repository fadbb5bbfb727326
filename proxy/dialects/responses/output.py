"""One output item of the responses API while it arrives: whether the client sees it, and the whole item.

An item that the provider sent whole keeps its bytes; otherwise it is built from its announcement and deltas.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.core.ledger import CallOwner, PartialCall
from proxy.dialects import raw_json
from proxy.dialects.json_deltas import is_signed
from proxy.dialects.responses.items import REASONING

FUNCTION_CALL, CUSTOM_TOOL_CALL = "function_call", "custom_tool_call"
"""Calls of which the name decides who answers them, even while it has not come."""
INCOMPLETE = "incomplete"


@dataclass(eq=False, slots=True)
class OutputItem:
    """One output item while it arrives. `raw` is all of it as it was produced, empty until that has come;
    `announcement` is how it was announced."""

    type: str
    id: str = ""
    call_id: str = ""
    index: int | None = None
    """Where the provider counts it."""
    order: int = 0
    """Its place in the round, in the order of beginning."""
    announcement: bytes = b""
    raw: bytes = b""
    call: PartialCall | None = None
    is_announced_signed: bool = False
    """It was announced with a signature."""
    readable: bool = False
    """It is reasoning that is bound to nothing: said in plain words, and unsigned."""
    content_parts: dict[int, tuple[str, list[str]]] = field(default_factory=dict)
    """The kind of each content part, and what has come of it."""
    is_held_text: bool = False
    """It is text that is shown only if its round ends the answer."""
    client_index: int | None = None
    """Where the client was told it stands; None while nothing of it has left."""

    @property
    def is_visible(self) -> bool | None:
        """Whether the client sees it. None while that is open: a call has no name yet, the reasoning is bound to what
        it was made with, or the text waits for the end of its round."""
        if self.call is not None:
            return None if self.call.owner is CallOwner.UNKNOWN else self.call.owner is CallOwner.CLIENT
        is_free = not self.is_held_text and (self.type != REASONING or self.readable)
        return True if is_free or self.client_index is not None else None

    @property
    def _arguments_member(self) -> str:
        return "input" if self.type == CUSTOM_TOOL_CALL else "arguments"

    def encode(self, status: str) -> bytes:
        """All of it, put together from what has come where it has not been told as a whole; nothing while there is
        nothing to tell."""
        if self.raw or not self.type:
            return self.raw
        fields = raw_json.members(self.announcement) if self.announcement else {"type": raw_json.encode(self.type)}
        if self.call is not None:
            fields[self._arguments_member] = raw_json.encode(raw_json.replace_surrogates(self.call.arguments))
        elif self.content_parts:
            parts = [
                _part(kind, raw_json.replace_surrogates("".join(texts)))
                for _, (kind, texts) in sorted(self.content_parts.items())
            ]
            fields = {"role": b'"assistant"'} | fields | {"content": raw_json.encode(parts)}
        elif not self.announcement or self.type == REASONING:
            return b""  # reasoning that was cut off is of use to nobody
        if "status" in fields:
            fields["status"] = raw_json.encode(status)
        return raw_json.join_object(fields)

    def encode_for_provider(self, status: str) -> bytes:
        """As it goes back to the provider. A call of ours needs an id for its result, and goes without the item's own:
        providers demand the reasoning of an item that they know by its id, and that may have to leave the context. All
        else stays as it was sent."""
        raw = self.encode(status)
        if not raw or self.call is None or self.call.owner is not CallOwner.OURS:
            return raw
        fields = {name: member for name, member in raw_json.members(raw).items() if name != "id"}
        if not fields.get(self._arguments_member, b"").startswith(b'"'):  # an object or null; providers take text
            fields[self._arguments_member] = raw_json.encode(self.call.arguments)
        if self.call.provider_id != self.call_id:
            fields["call_id"] = raw_json.encode(self.call.provider_id)
        if self.call.provider_name != self.call.name:
            fields["name"] = raw_json.encode(self.call.provider_name)
        return raw_json.join_object(fields)


class StreamedItems:
    """The items that were streamed, to be found in the final response, each once."""

    def __init__(self, items: Sequence[OutputItem]) -> None:
        self.items = tuple(items)
        self.last_taken: OutputItem | None = None
        self._taken: set[OutputItem] = set()
        self._by_id: defaultdict[str, deque[OutputItem]] = defaultdict(deque)
        self._by_call: defaultdict[str, deque[OutputItem]] = defaultdict(deque)
        self._by_order = {item.order: item for item in items}
        for item in items:
            self._by_id[item.id].append(item)
            self._by_call[item.call_id].append(item)

    def take(self, ident: str, call: str, type_: str, place: int) -> OutputItem | None:
        """The item that is listed at `place`: by its id, by its call, or by its place among those of its type."""
        found = self._first_left(self._by_id[ident] if ident else deque())
        found = found or self._first_left(self._by_call[call] if call else deque())
        if found is None:
            there = self._by_order.get(place)
            found = there if there and there not in self._taken and there.type == type_ else None
        if found is not None:
            self._taken.add(found)
            self.last_taken = found
        return found

    def _first_left(self, waiting: deque[OutputItem]) -> OutputItem | None:
        while waiting and waiting[0] in self._taken:
            waiting.popleft()
        return waiting[0] if waiting else None


def _part(kind: str, text: str) -> dict[str, Any]:
    return {"type": kind, "refusal": text} if kind == "refusal" else {"type": kind, "text": text, "annotations": []}


def is_readable_reasoning(raw: bytes) -> bool:
    """Whether reasoning stands in plain words. What is signed is bound to its place; so is what has no words, or only
    a summary: the provider keeps the rest under its id."""
    said = raw_json.parse_or_none(raw)
    return isinstance(said, dict) and bool(said.get("content")) and not is_signed(said)
