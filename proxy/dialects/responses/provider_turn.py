"""Reads what a provider tells of a response that it stores: the response itself, and the items of its input.

Where the request was one of a proxy like this one, it has tools of ours: their calls and offers are taken out, and what
a call returned stays as a text. Every function returns None for what is not whole or cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from proxy.core.ledger import is_stack_tool
from proxy.dialects import raw_json
from proxy.dialects.body import value_of
from proxy.dialects.responses.items import (
    ADDITIONAL_TOOLS,
    ASSISTANT,
    CALL_SUFFIX,
    OUTPUT_SUFFIX,
    STACK_NAMESPACE,
    content_text,
    name_of_tool,
    user_message,
)
from proxy.dialects.responses.stored_turn import ID_PREFIX_BY_TYPE

WHOLE_STATUSES = ("completed", "incomplete")
"""Statuses of a response that can be continued."""


class StoredResponse(NamedTuple):
    """A stored response: the id of the one that it goes on from, or empty, and its items."""

    previous: str
    output: tuple[bytes, ...]


class InputPage(NamedTuple):
    """A part of an input, oldest first. `next` is the id behind which the rest stands, empty at the end."""

    items: tuple[bytes, ...]
    next: str


def read_stored_response(body: bytes) -> StoredResponse | None:
    """None also for one that calls tools of ours (who answered them knows the rest of that turn) and for one of a
    conversation that the provider keeps."""
    try:
        fields = raw_json.members(body)
        output = tuple(raw_json.items(fields["output"]))
    except (raw_json.JsonSplitError, KeyError):
        return None
    if value_of(fields, "status") not in WHOLE_STATUSES or value_of(fields, "conversation") or not output:
        return None
    if any(is_own_call(told) for told in map(_told, output)):
        return None
    previous = value_of(fields, "previous_response_id")
    return StoredResponse(previous if isinstance(previous, str) else "", output)


def read_input_page(body: bytes) -> InputPage | None:
    """A page of the items of an input, as it was told."""
    try:
        fields = raw_json.members(body)
        items = tuple(raw_json.items(fields["data"]))
    except (raw_json.JsonSplitError, KeyError):
        return None
    if value_of(fields, "has_more") is not True:
        return InputPage(items, "")
    last = value_of(fields, "last_id") or (_told(items[-1]).get("id") if items else None)
    return InputPage(items, last) if isinstance(last, str) and last else None


def item_ids(items: Sequence[bytes]) -> frozenset[str]:
    """The ids of these items, as far as they have any."""
    return frozenset(ident for item in items if isinstance(ident := _told(item).get("id"), str) and ident)


def as_client_sends(items: Sequence[bytes]) -> list[bytes]:
    """These items as a client with the whole history sends them: without ids that are not taken back, and without calls
    and offers of tools of ours. What such a call returned stays as a text."""
    ours: set[str] = set()
    return [_without_odd_id(kept) for item in items for kept in _without_ours(item, ours)]


def _without_odd_id(item: bytes) -> bytes:
    """Providers number what came without an id, and refuse such numbers. Only the model's items need theirs."""
    told = _told(item)
    if not isinstance(ident := told.get("id"), str):
        return item
    kind = str(told.get("type") or "message")
    is_clients = isinstance(told.get("role"), str) and told["role"] != ASSISTANT
    is_odd = not ident.startswith(ID_PREFIX_BY_TYPE.get(kind, ""))
    if not (is_clients or is_odd or kind.endswith(OUTPUT_SUFFIX)):
        return item
    return raw_json.join_object({name: raw for name, raw in raw_json.members(item).items() if name != "id"})


def _without_ours(item: bytes, ours: set[str]) -> Iterator[bytes]:
    """`ours` are the ids of our calls so far."""
    told = _told(item)
    kind, call_id = str(told.get("type")), told.get("call_id")
    if is_own_call(told):
        ours.update([call_id] if isinstance(call_id, str) else [])
    elif kind.endswith(OUTPUT_SUFFIX) and call_id in ours:
        yield user_message(content_text(told.get("output"))).wire
    elif kind == ADDITIONAL_TOOLS:
        fields = raw_json.members(item)
        offered = raw_json.items(fields.get("tools", b"[]"))
        kept = [tool for tool in offered if not _is_own_tool(_told(tool))]
        if len(kept) == len(offered):
            yield item
        elif kept:
            yield raw_json.join_object({**fields, "tools": raw_json.join_array(kept)})
    else:
        yield item


def is_own_call(told: Mapping[str, Any]) -> bool:
    name = told.get("name")
    return (
        str(told.get("type")).endswith(CALL_SUFFIX)
        and isinstance(name, str)
        and is_stack_tool(name_of_tool(name, told.get("namespace")))
    )


def _is_own_tool(told: Mapping[str, Any]) -> bool:
    name = told.get("name")
    return isinstance(name, str) and (is_stack_tool(name) or name == STACK_NAMESPACE)


def _told(raw: bytes) -> Mapping[str, Any]:
    found = raw_json.parse_or_none(raw)
    return found if isinstance(found, dict) else {}
