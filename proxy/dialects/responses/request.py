"""Parses a request of the responses API, and renders it for the upstream from the client's own bytes.

`instructions` are the first message of the head. A client may name stored turns (`previous_response_id`) and items
(`item_reference`) instead of sending them; this module reports them and inserts what the caller found.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from itertools import chain, takewhile
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from proxy.core.context import TOLD_CALL_RESULT, UNANSWERED_CALL_RESULT
from proxy.core.ledger import INSTRUCTION_ROLES, Message, Request, RequestSlice, identity_of
from proxy.dialects import raw_json
from proxy.dialects.base import AppendedTools, Body, Dialect, Headers, RenderOptions, ResponseReferences
from proxy.dialects.body import (
    ALLOWED_TOOLS,
    allow_tools,
    allows_more_tools,
    list_in,
    object_in,
    offered_tools,
    tool_names,
    value_of,
    with_members,
    with_tools,
)
from proxy.dialects.error_bodies import openai_error_body
from proxy.dialects.parse_cache import READ_APART_BYTES, ParseCache, ParseSteps, RequestParseError
from proxy.dialects.responses.items import (
    ADDITIONAL_TOOLS,
    ItemKind,
    ItemOutline,
    add_tools_to_item,
    as_result_of,
    assistant_message,
    call_types,
    dereference,
    encode_tools_run,
    holds_compaction,
    is_run,
    is_tools_item,
    items_by_id,
    joined,
    message_item,
    name_of_tool,
    own_tools_in,
    parse_outlines,
    parse_tools_run,
    read_item,
    read_run,
    referenced_ids,
    text_item,
    tool_result,
    tools_in,
    user_message,
    with_call_id,
    with_content,
    without_brackets,
    without_calls,
    without_reasoning,
    without_unneeded_reasoning,
    without_unreadable_reasoning,
)
from proxy.dialects.responses.response import ResponsesResponseWriter
from proxy.dialects.responses.stored_turn import client_view, is_stored, members_to_store, opening_messages
from proxy.dialects.synthetic_responses import encode_response

PREVIOUS_RESPONSE_ID = "previous_response_id"
ENCRYPTED_REASONING = "reasoning.encrypted_content"
"""What a client asks to be included when it keeps reasoning itself."""
ALLOWED_TOOLS_BYTES = ALLOWED_TOOLS.encode()
LEAST_OUTPUT_TOKENS = 16
"""`max_output_tokens` may not be smaller."""
NO_ITEMS: Mapping[str, bytes] = MappingProxyType({})


# --------------------------------------------------------------------------------------------------------------- read
def parse_in_steps(body: bytes, known: ParseCache) -> ParseSteps[Request]:
    """The request in `body`. Raises RequestParseError."""
    try:
        if len(body) <= READ_APART_BYTES:
            fields = raw_json.body_members(body)
            raws, added = _split_input(fields)
        else:  # others have their turn between the two
            fields = yield partial(raw_json.body_members, body)
            raws, added = yield partial(_split_input, fields)
        said = fields.get("instructions", b"").strip()
        instructions = [said] if said.startswith(b'"') else []
        sources = yield from known.parse_messages([*instructions, *raws], _read_messages)
    except raw_json.JsonSplitError as refused:
        raise RequestParseError(str(refused)) from refused
    model = value_of(fields, "model")
    if not isinstance(model, str) or not raws:
        raise RequestParseError("a model and at least one item")
    head, messages = _split_head(sources)
    tools = offered_tools(fields, ("tools",)) + b"".join(added)
    known_tools = yield from known.tools(tools, lambda: tool_names(_tools(fields, added)))
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
        deferred_tools=known_tools.deferred,
        tool_choice=_choice(fields),
        wants_structured_output=_wants_structured_output(fields),
        choice_count=1,
        system_hash=known.system_hash(head, _system_hash),
        slices=sources,
        raw_tools=tools,
        wants_json_object=b'"json_object"' in fields.get("text", b""),
    )


def _read_messages(raw: bytes) -> tuple[Message, ...]:
    if raw.startswith(b'"'):
        return (_read_instructions(raw),)
    return (read_run(raw) if is_run(raw) else read_item(raw),)


def _read_instructions(raw: bytes) -> Message:
    try:
        text = raw_json.parse(raw)
    except raw_json.JsonSplitError:
        text = raw.decode("utf-8", "replace")
    return Message("system", raw, identity_of("system", text), text)


def _split_input(fields: Mapping[str, bytes]) -> tuple[list[bytes], list[bytes]]:
    """The input in pieces, each the bytes of one message: the client's items, and runs of the model's as arrays with
    all that stands between their items. Then the items that offer tools."""
    array = fields.get("input", b"").strip()
    if array.startswith(b'"'):
        return [text_item(array)], []
    raws = raw_json.items(array)
    items = parse_outlines(array, raws)
    places = _item_offsets(array, raws)
    pieces = [
        b"[" + array[places[first] : places[last] + len(raws[last])] + b"]" if run else raws[first]
        for first, last, run in _runs(items)
    ]
    return pieces, [raw for raw, item in zip(raws, items, strict=True) if item.type == ADDITIONAL_TOOLS]


def _item_offsets(array: bytes, raws: Sequence[bytes]) -> list[int]:
    """Where each item begins."""
    places, at = [], 1
    for raw in raws:
        while array[at] in raw_json.BETWEEN_ITEMS:
            at += 1
        places.append(at)
        at += len(raw)
    return places


def _runs(items: Sequence[ItemOutline]) -> Iterator[tuple[int, int, bool]]:
    """The first and the last item of each message, and whether it is a run."""
    kinds = [item.kind for item in items]
    at = 0
    while at < len(kinds):
        last = at
        if kinds[at] is ItemKind.MODEL:
            for ahead in range(at + 1, len(kinds)):
                if kinds[ahead] is ItemKind.MODEL:
                    last = ahead
                elif kinds[ahead] is not ItemKind.UNKNOWN:
                    break
        yield at, last, kinds[at] in (ItemKind.MODEL, ItemKind.COMPACTION)
        at = last + 1


def _split_head(sources: Iterable[RequestSlice]) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    messages = tuple(source.messages[0] for source in sources)
    head = tuple(takewhile(lambda message: message.role in INSTRUCTION_ROLES, messages))
    return head, messages[len(head) :]


def _system_hash(head: Sequence[Message]) -> str:
    return sha256("\n".join(m.text.strip() for m in head if m.text).encode()).hexdigest()[:32]


def _tools(fields: Mapping[str, bytes], added: Sequence[bytes]) -> Iterator[Any]:
    """The tools of the member and of the input, those in namespaces by themselves."""
    for tool in chain(list_in(fields, "tools"), *map(tools_in, added)):
        inside = tool.get("tools") if isinstance(tool, dict) and tool.get("type") == "namespace" else None
        yield from (_in_namespace(each, tool) for each in inside) if isinstance(inside, list) else [tool]


def _in_namespace(tool: Any, namespace: Mapping[str, Any]) -> Any:
    name = tool.get("name") if isinstance(tool, dict) else None
    known = name_of_tool(name, namespace.get("name")) if isinstance(name, str) else name
    return tool if known == name else {**tool, "name": known}


def _choice(fields: Mapping[str, bytes]) -> str:
    asked = value_of(fields, "tool_choice") or "auto"
    if isinstance(asked, dict):
        asked = asked.get("mode") if asked.get("type") == ALLOWED_TOOLS and allows_more_tools(asked) else "forced"
    return asked if asked in ("auto", "none", "required") else "forced"


def _wants_structured_output(fields: Mapping[str, bytes]) -> bool:
    asked = object_in(fields, "text").get("format")
    return isinstance(asked, dict) and asked.get("type") not in (None, "text")


# ------------------------------------------------------------------------------------------------------------- render
def render(request: Request, messages: Sequence[Message], head: Sequence[bytes], wanted: RenderOptions) -> Body:
    """The body of an upstream request: the client's members in its order, with head and messages as the input. What the
    client named stands in the messages."""
    instructions = [wire for wire in head[:1] if wire.startswith(b'"')]
    items = list(head[len(instructions) :])
    fields = _without_previous_id(request.fields)
    if wanted.extra_tools not in (b"", b"[]") and not _add_tools_to_head(items, fields, wanted.extra_tools):
        fields = with_tools(fields, wanted.extra_tools, behind="input")
    if wanted.tool_choice_none:
        fields["tool_choice"] = b'"none"'
    elif ALLOWED_TOOLS_BYTES in fields.get("tool_choice", b""):
        _allow_tools(fields, wanted.extra_tools or _appended_tools(messages))
    if instructions:
        fields["instructions"] = instructions[0]
    if not is_answer_stored(request) and ENCRYPTED_REASONING not in list_in(fields, "include"):
        messages = [without_unreadable_reasoning(message) for message in messages]
    items = [piece for wire in chain(items, _wires_of(messages)) if (piece := without_brackets(wire))]
    if (told := fields["input"].strip()).startswith(b'"') and items == [text_item(told)]:
        return (raw_json.join_object(fields),)
    return raw_json.object_around(fields, "input", raw_json.comma_separated(items))


def _allow_tools(fields: dict[str, bytes], extra: bytes) -> None:
    """Allow our tools where the client allows some of its own only."""
    choice = object_in(fields, "tool_choice")
    if choice.get("type") == ALLOWED_TOOLS and allows_more_tools(choice):
        names = tool_names(raw_json.parse(extra))
        fields["tool_choice"] = allow_tools(
            fields["tool_choice"], names, lambda name: {"type": "function", "name": name}
        )


def _appended_tools(messages: Sequence[Message]) -> bytes:
    """Our tools where they are offered among the messages."""
    offers = (
        message.wire for message in messages if ADDITIONAL_TOOLS.encode() in message.wire and is_run(message.wire)
    )
    return next((raw_json.encode(own_tools_in(wire)) for wire in offers), b"[]")


def _add_tools_to_head(head: list[bytes], fields: Mapping[str, bytes], extra: bytes) -> bool:
    """Put our tools into the item of the head that offers the client's; False where they are offered otherwise."""
    if offered_tools(fields, ("tools",)):
        return False
    at = next((at for at, wire in reversed(list(enumerate(head))) if is_tools_item(wire)), None)
    if at is None:
        return False
    head[at] = add_tools_to_item(head[at], extra)
    return True


def _wires_of(messages: Sequence[Message]) -> Iterator[bytes]:
    """The messages as they travel. A result of ours for a call that the client never answered is of the call's kind,
    which only the call tells."""
    if not any(_is_unanswered(message) for message in messages):
        yield from (message.wire for message in messages)
        return
    types: dict[str, str] = {}
    for message in messages:
        types |= call_types(message)
        yield as_result_of(message, types.get(message.answers, "")) if _is_unanswered(message) else message.wire


def _is_unanswered(message: Message) -> bool:
    return bool(message.answers) and message.text in (UNANSWERED_CALL_RESULT, TOLD_CALL_RESULT)


def client_body(request: Request) -> Body:
    """The client's own body, cut at the borders of its messages."""
    array = request.fields["input"].strip()
    if not array.startswith(b"["):
        return (request.body,)
    return raw_json.cut(request.body, array, [without_brackets(source.raw) for source in _input_slices(request)])


def _input_slices(request: Request) -> tuple[RequestSlice, ...]:
    """The pieces of the input: `instructions` are none."""
    return request.slices[1:] if request.slices[0].raw.startswith(b'"') else request.slices


def extend_head(request: Request, suffix: str) -> tuple[bytes, ...]:
    """The head with `suffix` at the end of the instructions; where there are none, in one more item behind it, of the
    role of the last one. Nothing to say changes nothing."""
    wires = [message.wire for message in request.head]
    if not suffix:
        return tuple(wires)
    if wires and wires[0].startswith(b'"'):
        gap = b"" if wires[0] == b'""' else b"\\n\\n"
        return (wires[0][:-1] + gap + raw_json.encode(raw_json.replace_surrogates(suffix))[1:], *wires[1:])
    return (*wires, message_item(request.head[-1].role if wires else "developer", suffix))


def tools_json(definitions: Sequence[Mapping[str, Any]]) -> bytes:
    """The array of tools of ours, each with name, description and parameters: constant bytes for constant tools."""
    return msgspec.json.encode([{"type": "function", **definition, "strict": False} for definition in definitions])


def supports_appended_tools(_: Request, __: Headers) -> bool:
    """Input items may offer tools without more ado."""
    return True


def encode_appended_tools(request: Request, guidance: str, tools: str) -> bytes:
    """Guidance and tools of ours as items of the input."""
    added = [tools_in(message.wire) for message in request.head if is_tools_item(message.wire)]
    return encode_tools_run(guidance, tools.encode(), list(chain(list_in(request.fields, "tools"), *added)))


# ----------------------------------------------------------------------------------------------------------- resolved
def is_answer_stored(request: Request) -> bool:
    """Whether the provider keeps the answer, so that the client may name it; it does unless it is told not to."""
    return is_stored(request.fields)


def previous_response_id(request: Request) -> str:
    """The id of the answer that the request goes on from, or empty."""
    found = value_of(request.fields, PREVIOUS_RESPONSE_ID)
    return found if isinstance(found, str) else ""


def referenced_item_ids(request: Request) -> tuple[str, ...]:
    """The ids of the items that the request refers to instead of holding them, in order."""
    return tuple(chain.from_iterable(referenced_ids(message) for message in request.messages))


def unresolvable_reason(request: Request, items: Container[str] = ()) -> str:
    """Why the request cannot be placed among the conversations known here, or empty: an answer made in the background,
    a conversation the provider keeps, or an item it keeps that is none of `items` (by id) in a run that no call
    tells of."""
    if value_of(request.fields, "background") is True:
        return "background"
    if value_of(request.fields, "conversation"):
        return "conversation"
    unknown = (m for m in request.messages if not m.calls and any(found not in items for found in referenced_ids(m)))
    return "item_reference" if any(unknown) else ""


def resolve_references(request: Request, before: Sequence[Message], items: Mapping[str, bytes] = NO_ITEMS) -> Request:
    """The request as a client would send it that keeps everything itself: the messages of the earlier turns (`before`,
    oldest first, their tokens counted) before its own, each item of `items` (by id) in the place of the reference to
    it, and no `previous_response_id`. Its tokens are not counted where items were put in."""
    own = [_dereference_slice(source, items) for source in _input_slices(request)]
    earlier = [RequestSlice(message.wire, (message,), has_token_counts=True) for message in before]
    pieces = [without_brackets(source.raw) for source in (*earlier, *own)]
    fields = _without_previous_id(request.fields)
    fields["input"] = raw_json.join_array([piece for piece in pieces if piece])
    sources = (*request.slices[: len(request.slices) - len(own)], *earlier, *own)
    head, messages = _split_head(sources)
    whole = replace(
        request,
        body=raw_json.join_object(fields),
        fields=fields,
        head=head,
        messages=messages,
        system_hash=_system_hash(head),
        slices=sources,
    )
    return _with_input_tools(whole) if any(is_tools_item(message.wire) for message in before) else whole


def _without_previous_id(fields: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: raw for name, raw in fields.items() if name != PREVIOUS_RESPONSE_ID}


def _with_input_tools(request: Request) -> Request:
    """The request with the tools that its input offers. Their tokens are not counted."""
    added = [m.wire for m in (*request.head, *request.messages) if is_tools_item(m.wire)]
    tools = offered_tools(request.fields, ("tools",)) + b"".join(added)
    return replace(request, raw_tools=tools, tool_names=tool_names(_tools(request.fields, added)), tools_tokens=0)


def _dereference_slice(source: RequestSlice, items: Mapping[str, bytes]) -> RequestSlice:
    whole = dereference(source.messages[0], items)
    return source if whole is source.messages[0] else RequestSlice(whole.wire, (whole,), has_token_counts=False)


def cache_ping(body: bytes) -> bytes | None:
    """With the least limit that the API takes, and not kept by the provider. None for an answer in the background."""
    if value_of(raw_json.members(body), "background"):
        return None
    changed = {"stream": b"false", "stream_options": None, "store": b"false"}
    return with_members(body, {**changed, "max_output_tokens": b"%d" % LEAST_OUTPUT_TOKENS})


OPENAI_RESPONSES = Dialect(
    name="openai_responses",
    minimal_body={"input": [{"role": "user", "content": "-"}]},
    parse_in_steps=parse_in_steps,
    render=render,
    client_body=client_body,
    extend_head=extend_head,
    tools_json=tools_json,
    tool_result=tool_result,
    user_message=user_message,
    without_reasoning=without_reasoning,
    without_calls=without_calls,
    with_content=with_content,
    with_call_id=with_call_id,
    joined=joined,
    assistant_message=assistant_message,
    error_body=openai_error_body,
    new_response_writer=ResponsesResponseWriter,
    encode_own_response=encode_response,
    references=ResponseReferences(
        is_answer_stored=is_answer_stored,
        previous_response_id=previous_response_id,
        referenced_item_ids=referenced_item_ids,
        unresolvable_reason=unresolvable_reason,
        resolve=resolve_references,
        items_by_id=items_by_id,
        client_view=client_view,
        members_to_store=members_to_store,
        opening_messages=opening_messages,
    ),
    holds_compaction=holds_compaction,
    appended_tools=AppendedTools("gpt", supports_appended_tools, encode_appended_tools, parse_tools_run),
    cache_ping=cache_ping,
    without_unneeded_reasoning=without_unneeded_reasoning,
    has_signed_reasoning=True,
)
