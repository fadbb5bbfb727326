"""The responses API, the client's side: a request taken apart, and written again for the upstream.

The law: **bytes in, the same bytes out**. A body is an envelope of raw members; its `input` is cut into the client's
items and runs of the model's (`responses_item`), each read once, when its bytes are first seen. `instructions` are the
first message of the head, known by their raw string. What is rendered is spliced from slices the client sent and
messages as they were produced.

A client of this API may leave out what the server keeps for it: whole turns (`previous_response_id`) and single items
(`item_reference`). What is missing is told here and put in by `resolved`; where it lies is known to others.

What this module does not do: it counts no tokens (`known`) and reads no answers (`responses_answer`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import chain, takewhile
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from proxy.core.context.message_list import NEVER_ANSWERED
from proxy.core.ledger.messages import HEAD_ROLES, Message, Request, Source, identity_of
from proxy.dialects import raw_json as slices
from proxy.dialects.body import list_in, object_in, offered, tool_names, value_of, with_tools
from proxy.dialects.chat.request import error_body
from proxy.dialects.dialect import Appending, Body, Dialect, Headers, References, Wanted
from proxy.dialects.parse_cache import Known, Reading, Unreadable
from proxy.dialects.responses.items import (
    ADDED_TOOLS,
    Kind,
    Outline,
    appended,
    as_answer_to,
    call_types,
    dereferenced,
    inner,
    is_added_tools,
    is_run,
    items_by_id,
    message_item,
    outlines,
    read_appended,
    read_item,
    read_run,
    references,
    retold,
    seals,
    text_item,
    tool_result,
    tools_in,
    user_message,
    with_tools_inside,
    without_calls,
    without_reasoning,
    without_unreadable,
)
from proxy.dialects.responses.response import Answer
from proxy.dialects.responses.stored import keeps, lasting, opening, seen
from proxy.dialects.synthetic_responses import response_said

PREVIOUS = "previous_response_id"
READABLE = "reasoning.encrypted_content"
"""What a client asks to be included when it keeps reasoning itself."""
NO_ITEMS: Mapping[str, bytes] = MappingProxyType({})


# --------------------------------------------------------------------------------------------------------------- read
def reading(body: bytes, known: Known) -> Reading[Request]:
    """The request in `body`. Raises Unreadable."""
    try:
        fields = slices.members(body)
        raws, added = _input(fields)
        sources = yield from known.reading([*_instructions(fields), *raws], _read_one)
    except slices.NotSliced as refused:
        raise Unreadable(str(refused)) from refused
    model = value_of(fields, "model")
    if not isinstance(model, str) or not raws:
        raise Unreadable("a model and at least one item")
    head, messages = _parted(sources)
    tools = offered(fields, ("tools",)) + b"".join(added)
    known_tools = known.tools(tools, lambda: tool_names(_tools(fields, added)))
    return Request(
        body,
        fields,
        model,
        stream=value_of(fields, "stream") is True,
        wants_usage=True,  # it is always part of a stream
        head=head,
        messages=messages,
        tool_names=known_tools.names,
        tools_tokens=known_tools.tokens,
        choice=_choice(fields),
        structured=_structured(fields),
        answers_wanted=1,
        system_hash=known.system_hash(head, _system_hash),
        sources=sources,
        offered=tools,
    )


def _read_one(raw: bytes) -> tuple[Message, ...]:
    if raw.startswith(b'"'):
        return (_read_instructions(raw),)
    return (read_run(raw) if is_run(raw) else read_item(raw),)


def _instructions(fields: Mapping[str, bytes]) -> list[bytes]:
    raw = fields.get("instructions", b"").strip()
    return [raw] if raw.startswith(b'"') else []


def _read_instructions(raw: bytes) -> Message:
    try:
        text = slices.value(raw)
    except slices.NotSliced:
        text = raw.decode("utf-8", "replace")
    return Message("system", raw, identity_of("system", text), text)


def _input(fields: Mapping[str, bytes]) -> tuple[list[bytes], list[bytes]]:
    """The input in pieces, each the bytes of one message: the client's items, and runs of the model's as arrays with
    all that stands between their items. Then the items that offer tools."""
    array = fields.get("input", b"").strip()
    if array.startswith(b'"'):
        return [text_item(array)], []
    raws = slices.items(array)
    items = outlines(array, raws)
    places = _places(array, raws)
    pieces = [
        b"[" + array[places[first] : places[last] + len(raws[last])] + b"]" if run else raws[first]
        for first, last, run in _runs(items)
    ]
    return pieces, [raw for raw, item in zip(raws, items, strict=True) if item.type == ADDED_TOOLS]


def _places(array: bytes, raws: Sequence[bytes]) -> list[int]:
    """Where each item begins."""
    places, at = [], 1
    for raw in raws:
        while array[at] in slices.GLUE:
            at += 1
        places.append(at)
        at += len(raw)
    return places


def _runs(items: Sequence[Outline]) -> Iterator[tuple[int, int, bool]]:
    """The first and the last item of each message, and whether it is a run."""
    kinds = [item.kind for item in items]
    at = 0
    while at < len(kinds):
        last = at
        if kinds[at] is Kind.MODEL:
            for ahead in range(at + 1, len(kinds)):
                if kinds[ahead] is Kind.MODEL:
                    last = ahead
                elif kinds[ahead] is not Kind.UNKNOWN:
                    break
        yield at, last, kinds[at] in (Kind.MODEL, Kind.SEALED)
        at = last + 1


def _parted(sources: Iterable[Source]) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """The head, and the messages behind it."""
    messages = tuple(source.messages[0] for source in sources)
    head = tuple(takewhile(lambda message: message.role in HEAD_ROLES, messages))
    return head, messages[len(head) :]


def _system_hash(head: Sequence[Message]) -> str:
    return sha256("\n".join(m.text.strip() for m in head if m.text).encode()).hexdigest()[:32]


def _tools(fields: Mapping[str, bytes], added: Sequence[bytes]) -> Iterator[Any]:
    """The tools of the member and of the input, those in namespaces by themselves."""
    for tool in chain(list_in(fields, "tools"), *map(tools_in, added)):
        inside = tool.get("tools") if isinstance(tool, dict) and tool.get("type") == "namespace" else None
        yield from inside if isinstance(inside, list) else [tool]


def _choice(fields: Mapping[str, bytes]) -> str:
    asked = value_of(fields, "tool_choice") or "auto"
    if isinstance(asked, dict):
        asked = asked.get("mode") if asked.get("type") == "allowed_tools" else "forced"
    return asked if asked in ("auto", "none", "required") else "forced"


def _structured(fields: Mapping[str, bytes]) -> bool:
    asked = object_in(fields, "text").get("format")
    return isinstance(asked, dict) and asked.get("type") not in (None, "text")


# ------------------------------------------------------------------------------------------------------------- render
def render(request: Request, line: Sequence[Message], head: Sequence[bytes], wanted: Wanted) -> Body:
    """The body of an upstream request: the client's members in its order, with head and line as the input. What the
    client named stands in the line."""
    instructions = [wire for wire in head[:1] if wire.startswith(b'"')]
    items = list(head[len(instructions) :])
    fields = _less_previous(request.fields)
    if wanted.extra_tools not in (b"", b"[]") and not _offer_inside(items, fields, wanted.extra_tools):
        fields = with_tools(fields, wanted.extra_tools, behind="input")
    if wanted.tool_choice_none:
        fields["tool_choice"] = b'"none"'
    if instructions:
        fields["instructions"] = instructions[0]
    if not kept(request) and READABLE not in list_in(fields, "include"):
        line = [without_unreadable(message) for message in line]
    items = [piece for wire in chain(items, _wires(line)) if (piece := inner(wire))]
    if (told := fields["input"].strip()).startswith(b'"') and items == [text_item(told)]:
        return (slices.object_of(fields),)
    pieces: list[bytes] = []
    glue = b"{"
    for name, raw in fields.items():
        glue += slices.encoded(name) + b":"
        if name == "input":
            pieces += [glue + b"[", *_with_commas(items)]
            glue = b"],"
        else:
            glue += raw + b","
    return (*pieces, glue[:-1] + b"}")


def _offer_inside(head: list[bytes], fields: Mapping[str, bytes], extra: bytes) -> bool:
    """Put our tools into the item of the head that offers the client's; False where they are offered otherwise."""
    if offered(fields, ("tools",)):
        return False
    at = next((at for at, wire in reversed(list(enumerate(head))) if is_added_tools(wire)), None)
    if at is None:
        return False
    head[at] = with_tools_inside(head[at], extra)
    return True


def _wires(line: Sequence[Message]) -> Iterator[bytes]:
    """The messages as they travel. A result of ours for a call that the client never answered is of the call's kind,
    which only the call tells."""
    if not any(_is_unanswered(message) for message in line):
        yield from (message.wire for message in line)
        return
    types: dict[str, str] = {}
    for message in line:
        types |= call_types(message)
        yield as_answer_to(message, types.get(message.answers, "")) if _is_unanswered(message) else message.wire


def _is_unanswered(message: Message) -> bool:
    return bool(message.answers) and message.text == NEVER_ANSWERED


def _with_commas(wires: Sequence[bytes]) -> list[bytes]:
    pieces = [b","] * max(0, len(wires) * 2 - 1)
    pieces[::2] = wires
    return pieces


def client_body(request: Request) -> Body:
    """The client's own body, cut at the borders of its messages."""
    array = request.fields["input"].strip()
    if not array.startswith(b"["):
        return (request.body,)
    return slices.cut(request.body, array, [inner(source.raw) for source in _items(request)])


def _items(request: Request) -> tuple[Source, ...]:
    """The pieces of the input: `instructions` are none."""
    return request.sources[1:] if request.sources[0].raw.startswith(b'"') else request.sources


def extended_head(request: Request, suffix: str) -> tuple[bytes, ...]:
    """The head with `suffix` at the end of the instructions; where there are none, in one more item behind it, of the
    role of the last one. Nothing to say changes nothing."""
    wires = [message.wire for message in request.head]
    if not suffix:
        return tuple(wires)
    if wires and wires[0].startswith(b'"'):
        gap = b"" if wires[0] == b'""' else b"\\n\\n"
        return (wires[0][:-1] + gap + slices.encoded(slices.mended(suffix))[1:], *wires[1:])
    return (*wires, message_item(request.head[-1].role if wires else "developer", suffix))


def tools_json(definitions: Sequence[Mapping[str, Any]]) -> bytes:
    """The array of tools of ours, each with name, description and parameters: constant bytes for constant tools."""
    return msgspec.json.encode([{"type": "function", **definition, "strict": False} for definition in definitions])


def takes_tools_inside(_: Request, __: Headers) -> bool:
    """Input items may offer tools without more ado."""
    return True


def tools_inside(request: Request, guidance: str, tools: str) -> bytes:
    """Guidance and tools of ours as items of the input."""
    added = [tools_in(message.wire) for message in request.head if is_added_tools(message.wire)]
    return appended(guidance, tools.encode(), list(chain(list_in(request.fields, "tools"), *added)))


# ----------------------------------------------------------------------------------------------------------- resolved
def kept(request: Request) -> bool:
    """Whether the provider keeps the answer, so that the client may name it; it does unless it is told not to."""
    return keeps(request.fields)


def previous(request: Request) -> str:
    """The id of the answer that the request goes on from, or empty."""
    found = value_of(request.fields, PREVIOUS)
    return found if isinstance(found, str) else ""


def referred(request: Request) -> tuple[str, ...]:
    """The ids of the items that the request refers to instead of holding them, in order."""
    return tuple(chain.from_iterable(references(message) for message in request.messages))


def unplaceable(request: Request, items: Container[str] = ()) -> str:
    """Why the request cannot be placed among the conversations known here, or empty: an answer made in the background,
    a conversation the provider keeps, or an item it keeps that is none of `items` (by id) in a run that no call
    tells of."""
    if value_of(request.fields, "background") is True:
        return "background"
    if value_of(request.fields, "conversation"):
        return "conversation"
    unknown = (m for m in request.messages if not m.calls and any(found not in items for found in references(m)))
    return "item_reference" if any(unknown) else ""


def resolved(request: Request, before: Sequence[Message], items: Mapping[str, bytes] = NO_ITEMS) -> Request:
    """The request as a client would send it that keeps everything itself: the messages of the earlier turns (`before`,
    oldest first, their tokens counted) before its own, each item of `items` (by id) in the place of the reference to
    it, and no `previous_response_id`. Its tokens are not counted where items were put in."""
    own = [_filled(source, items) for source in _items(request)]
    earlier = [Source(message.wire, (message,), weighed=True) for message in before]
    pieces = [inner(source.raw) for source in (*earlier, *own)]
    fields = _less_previous(request.fields)
    fields["input"] = slices.array_of([piece for piece in pieces if piece])
    sources = (*request.sources[: len(request.sources) - len(own)], *earlier, *own)
    head, messages = _parted(sources)
    whole = replace(
        request,
        body=slices.object_of(fields),
        fields=fields,
        head=head,
        messages=messages,
        system_hash=_system_hash(head),
        sources=sources,
    )
    return _offering(whole) if any(is_added_tools(message.wire) for message in before) else whole


def _less_previous(fields: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: raw for name, raw in fields.items() if name != PREVIOUS}


def _offering(request: Request) -> Request:
    """The request with the tools that its input offers. Their tokens are not counted."""
    added = [m.wire for m in (*request.head, *request.messages) if is_added_tools(m.wire)]
    tools = offered(request.fields, ("tools",)) + b"".join(added)
    return replace(request, offered=tools, tool_names=tool_names(_tools(request.fields, added)), tools_tokens=0)


def _filled(source: Source, items: Mapping[str, bytes]) -> Source:
    whole = dereferenced(source.messages[0], items)
    return source if whole is source.messages[0] else Source(whole.wire, (whole,), weighed=False)


OPENAI_RESPONSES = Dialect(
    "openai_responses",
    reading,
    render,
    client_body,
    extended_head,
    tools_json,
    tool_result,
    user_message,
    without_reasoning,
    without_calls,
    retold,
    error_body,
    Answer,
    response_said,
    References(kept, previous, referred, unplaceable, resolved, items_by_id, seen, lasting, opening),
    seals=seals,
    appending=Appending("gpt", takes_tools_inside, tools_inside, read_appended),
    signs=True,
)
