"""The parts of a turn of the responses API that are stored, so that a client may continue or retrieve it by id.

They hold what the client saw, under the ids it knows: no calls of ours, no results of them, and no reasoning bound to
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Any, TypeVar

from proxy.core.ledger import Message, Request, is_stack_tool
from proxy.dialects import raw_json
from proxy.dialects.base import CLIENT_RESPONSE_KEY
from proxy.dialects.body import RawMembers, value_of
from proxy.dialects.responses.items import ASSISTANT, CALL_SUFFIX, REASONING, is_run, read_item, read_run
from proxy.dialects.responses.output import is_readable_reasoning

HEAD = "head"
"""The items that open the conversation; `instructions` are not carried on from answer to answer."""
MODEL = "asked"
"""The model as the client names it."""
SEPARATE_MEMBERS = ("tools", "instructions")
"""Members of an answer that are the same turn after turn, and long."""
EMPTY_ARRAY = b"[]"
ID_PREFIX_BY_TYPE = {"message": "msg", "function_call": "fc", "reasoning": "rs"}
"""What the id of an item begins with, by its type."""


# --------------------------------------------------------------------------------------------------------------- keep
def is_stored(fields: RawMembers) -> bool:
    """Whether the provider keeps the answer to a request with these members; it does unless it is told not to."""
    return value_of(fields, "store") is not False


def members_to_store(request: Request, told: bytes) -> dict[str, bytes]:
    """What outlasts an answer to this request, each as JSON by its name. `told`: all of the response that the client
    was given, empty where that is what the provider has. Raises JsonSplitError where it is no object."""
    opening = [message.wire for message in request.head if not message.wire.startswith(b'"')]
    found = {HEAD: raw_json.join_array(opening), MODEL: raw_json.encode(request.model)}
    if told:
        fields = raw_json.members(told)
        apart = {name: fields[name] for name in SEPARATE_MEMBERS if name in fields}
        found |= apart | {
            CLIENT_RESPONSE_KEY: raw_json.join_object(fields | dict.fromkeys((*apart, "output"), EMPTY_ARRAY))
        }
    return found


# --------------------------------------------------------------------------------------------------------------- tell
def opening_messages(kept: Mapping[str, bytes]) -> list[Message]:
    """The messages that open the conversation of a turn with which this is kept. Their tokens are not counted."""
    return [read_item(item) for item in raw_json.items(kept.get(HEAD, EMPTY_ARRAY))]


def client_model(kept: Mapping[str, bytes]) -> str | None:
    found = value_of(kept, MODEL)
    return found if isinstance(found, str) else None


def continues_previous(kept: Mapping[str, bytes]) -> bool:
    """Whether the request of the answer named the one before it, and so held nothing of what was before."""
    return bool(value_of(raw_json.members(kept[CLIENT_RESPONSE_KEY]), "previous_response_id"))


def restore_response(kept: Mapping[str, bytes], shown: Message) -> bytes:
    """The answer as the client was told it, with the items it was shown."""
    fields = raw_json.members(kept[CLIENT_RESPONSE_KEY])
    again = {name: kept.get(name, EMPTY_ARRAY) for name in SEPARATE_MEMBERS if name in fields}
    return raw_json.join_object(fields | again | {"output": shown.wire})


def input_items(messages: Iterable[tuple[str, Message]]) -> list[tuple[str, bytes]]:
    """The items of an input with their ids, in order. One that has none gets an id from the name of its message."""
    return [
        _item(raw, f"{name}{at:02}")
        for name, message in messages
        for at, raw in enumerate(raw_json.items(message.wire) if is_run(message.wire) else [message.wire])
    ]


def _item(raw: bytes, name: str) -> tuple[str, bytes]:
    """An item as the API tells it: with an id and a type, its words in a part."""
    fields = raw_json.members(raw)
    type_ = value_of(fields, "type")
    type_ = type_ if isinstance(type_, str) else "message"
    ident = value_of(fields, "id")
    ident = ident if isinstance(ident, str) else f"{ID_PREFIX_BY_TYPE.get(type_, 'item')}_{name}"
    said = {"id": raw_json.encode(ident), "type": raw_json.encode(type_)}
    if type_ == "message" and (text := fields.get("content", b"").strip()).startswith(b'"'):
        part = b"output_text" if value_of(fields, "role") == ASSISTANT else b"input_text"
        said["content"] = b'[{"type":"' + part + b'","text":' + text + b"}]"
    return ident, raw_json.join_object({**said, **fields, **said})


def page(items: Sequence[tuple[str, bytes]], limit: int, *, oldest_first: bool, after: str = "") -> bytes:
    """A page of an input: at most `limit` items behind the one with the id `after`. Raises KeyError where there is no
    such item."""
    ordered = items if oldest_first else items[::-1]
    names = [ident for ident, _ in ordered]
    if after and after not in names:
        raise KeyError(after)
    start = names.index(after) + 1 if after else 0
    some = names[start : start + limit]
    listed: dict[str, Any] = {
        "first_id": some[0] if some else None,
        "last_id": some[-1] if some else None,
        "has_more": start + len(some) < len(names),
    }
    data = raw_json.join_array([raw for _, raw in ordered[start : start + limit]])
    return raw_json.join_object(
        {"object": b'"list"', "data": data} | {name: raw_json.encode(told) for name, told in listed.items()}
    )


def deleted(answer: str) -> bytes:
    return raw_json.encode({"id": answer, "object": "response", "deleted": True})


T = TypeVar("T")


class Visibility(Enum):
    """What becomes of an item of a round."""

    SHOWN = auto()
    WITH_NEXT = auto()
    """It goes with the item behind it."""
    HIDDEN = auto()


def visible_items(items: Iterable[tuple[T, Visibility]]) -> list[T]:
    """The items of one round that the client sees, in order. What is bound goes with the next one that is shown; at the
    end, in a round with something hidden, with that."""
    found: list[T] = []
    bound: list[T] = []
    hides = False
    for item, fate in items:
        if fate is Visibility.WITH_NEXT:
            bound.append(item)
        elif fate is Visibility.SHOWN:
            found += [*bound, item]
            bound = []
        else:
            hides = True
    return found if hides else found + bound


def client_view(rounds: Sequence[Message]) -> Message:
    """What these rounds were for the client: one run of items. Its tokens are not counted."""
    return read_run(raw_json.join_array([item for said in rounds for item in visible_items(_visibilities(said))]))


def _visibilities(said: Message) -> Iterator[tuple[bytes, Visibility]]:
    """A call that is in the bytes and not among `calls` was kept from the client, and so was text that is not in
    `text`."""
    whole = read_run(said.wire)
    kept = {call.id for call in whole.calls} - {call.id for call in said.calls}
    text_is_kept = bool(whole.text) and not said.text
    for item in raw_json.items(said.wire):
        told = raw_json.parse_or_none(item)
        kind, name = (told.get("type"), told.get("name")) if isinstance(told, dict) else (None, None)
        is_own_call = str(kind).endswith(CALL_SUFFIX) and isinstance(name, str) and is_stack_tool(name)
        is_kept_text = text_is_kept and isinstance(told, dict) and told.get("role") == ASSISTANT
        if is_own_call or is_kept_text or (isinstance(told, dict) and told.get("call_id") in kept):
            yield item, Visibility.HIDDEN
        else:
            yield (
                item,
                Visibility.WITH_NEXT if kind == REASONING and not is_readable_reasoning(item) else Visibility.SHOWN,
            )
