"""Parses a request of the messages API, and renders it for the upstream from the client's own bytes.

The system text is the head. User messages with tool results are split and joined again, and cache markers are removed
and set where this request needs them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import groupby
from typing import Any

import msgspec
from msgspec.structs import replace

from proxy.core.compaction import TRACE_START
from proxy.core.ledger import Message, Request, RequestSlice
from proxy.dialects import raw_json
from proxy.dialects.base import AppendedTools, Body, Dialect, Headers, RenderOptions
from proxy.dialects.body import list_in, object_in, offered_tools, tool_names, value_of, with_members, with_tools
from proxy.dialects.error_bodies import anthropic_error_body
from proxy.dialects.messages.cache_control import (
    CACHE_CONTROL_BYTES,
    markers_of,
    place_markers,
    tokens_behind_markers,
    unmarked_tokens,
    with_hour_markers,
)
from proxy.dialects.messages.message import (
    EMPTY_RUN,
    append_text,
    assistant_message,
    encode_tools_message,
    holds_compaction,
    joined,
    messages_in,
    read_message,
    read_system,
    tool_result,
    user_message,
    with_call_id,
    with_content,
    with_reasoning,
    without_calls,
    without_reasoning,
)
from proxy.dialects.messages.response import MessagesResponseWriter
from proxy.dialects.parse_cache import ParseCache, ParseSteps, RequestParseError, messages_of, raw_of
from proxy.dialects.synthetic_responses import encode_message

TOOL_CHOICES = {"auto": "auto", "any": "required", "none": "none", "tool": "forced"}
# Claude Code begins its system text with this line (2.1.197), which is about the request and not about the task:
# compared with the rest, every request would have another system text.
BILLING_HEADER = re.compile(r"\A\s*x-anthropic-billing-header:[^\n]*")
USER_MESSAGE_START = b'{"role":"user","content":'
"""A user message, up to its blocks."""


# --------------------------------------------------------------------------------------------------------------- read
def parse_in_steps(body: bytes, known: ParseCache) -> ParseSteps[Request]:
    """The request in `body`. Raises RequestParseError."""
    try:
        fields, messages = yield from known.bodies.split_in_steps(body, "messages")
        system = _system(fields)
        if not all(raw.startswith(b"{") for raw in messages):
            raise RequestParseError("every message is an object")
        sources = yield from known.parse_messages([*system, *messages], _read_messages)
    except raw_json.JsonSplitError as refused:
        raise RequestParseError(str(refused)) from refused
    model = value_of(fields, "model")
    if not isinstance(model, str) or not messages:
        raise RequestParseError("a model and at least one message")
    head = messages_of(sources[: len(system)])
    arrays = offered_tools(fields, ("tools",))
    tools = yield from known.tools(arrays, lambda: tool_names(list_in(fields, "tools")))
    return Request(
        body,
        fields,
        model,
        stream=value_of(fields, "stream") is True,
        wants_usage=True,
        head=head,
        messages=messages_of(sources[len(system) :]),
        tool_names=tools.names,
        tools_tokens=tools.tokens,
        deferred_tools=tools.deferred,
        tool_choice=_choice(fields),
        wants_structured_output=_wants_structured_output(fields),
        choice_count=1,
        system_hash=known.system_hash(head, _system_hash),
        slices=sources,
        raw_tools=arrays,
    )


def _system(fields: Mapping[str, bytes]) -> list[bytes]:
    """The system text, a string or blocks; none where the client sends none. Raises RequestParseError."""
    raw = fields.get("system", b"null")
    if raw == b"null":
        return []
    if not raw.startswith((b'"', b"[")):
        raise RequestParseError("a system text is a string or blocks")
    return [raw]


def _system_hash(head: Sequence[Message]) -> str:
    """Of the system text. What Claude Code says of itself for the bill is none of it."""
    text = BILLING_HEADER.sub("", "".join(m.text for m in head))
    return sha256(text.strip().encode()).hexdigest()[:32]


def _read_messages(raw: bytes) -> tuple[Message, ...]:
    return messages_in(raw) if raw.startswith(b"{") else (read_system(raw),)


def _choice(fields: Mapping[str, bytes]) -> str:
    kind = object_in(fields, "tool_choice").get("type", "auto")
    return TOOL_CHOICES.get(kind, "forced") if isinstance(kind, str) else "forced"


def _wants_structured_output(fields: Mapping[str, bytes]) -> bool:
    asked = object_in(fields, "output_config").get("format") or object_in(fields, "output_format")
    return isinstance(asked, dict) and asked.get("type") not in (None, "text")


def must_open_with_reasoning(request: Request) -> bool:
    """Whether thinking is on as a budget: then, and only then, the last answer of a tool loop must open with it."""
    return object_in(request.fields, "thinking").get("type") == "enabled"


def asks_to_drop_reasoning(request: Request) -> bool:
    """Whether the client asks for thoughts that fit nothing to be dropped instead of refused."""
    wanted = object_in(request.fields, "thinking").get("block_binding")
    return isinstance(wanted, dict) and wanted.get("prefix_mismatch_behavior") == "drop_block"


# ------------------------------------------------------------------------------------------------------------- render
def render(request: Request, messages: Sequence[Message], head: Sequence[bytes], wanted: RenderOptions) -> Body:
    """The body of an upstream request: the client's members in its order, with this system text and these messages."""
    fields = _with_system(with_tools(request.fields, wanted.extra_tools, behind="messages"), request, head)
    if wanted.tool_choice_none:
        fields["tool_choice"] = b'{"type":"none"}'
    order, fork = _sent_positions(messages, request.messages), wanted.fork
    if order is not None:
        messages = [messages[at] for at in order]
        fork = next((place for place, at in enumerate(order) if at >= fork), len(order)) if fork else 0
    wires = place_markers(messages, fork, markers_of(request.fields, _message_slices(request)))
    return raw_json.object_around(fields, "messages", _encode_messages(wires))


def _with_system(fields: dict[str, bytes], request: Request, head: Sequence[bytes]) -> dict[str, bytes]:
    """The members with this head for their system text; one of ours stands before the messages."""
    if head and "system" not in fields:
        before = {"system": head[0], "messages": fields["messages"]}
        return {
            n: r for name, raw in fields.items() for n, r in (before if name == "messages" else {name: raw}).items()
        }
    if head:
        return {**fields, "system": head[0]}
    return {name: raw for name, raw in fields.items() if name != "system" or not request.head}


def in_sent_order(messages: Sequence[Message], client_messages: Sequence[Message]) -> Sequence[Message]:
    """The messages in the order in which they are sent."""
    order = _sent_positions(messages, client_messages)
    return messages if order is None else [messages[at] for at in order]


def _sent_positions(messages: Sequence[Message], client_messages: Sequence[Message]) -> list[int] | None:
    """None where their order is that of the request."""
    if not any(m.role == "system" for m in messages) or [m.wire for m in messages] == [m.wire for m in client_messages]:
        return None
    return _order_system_messages(messages)


def _order_system_messages(messages: Sequence[Message]) -> list[int]:
    """Each system message stands in front of the assistant's next message or at the end: the API takes it nowhere else,
    and what stood behind it may have left. One without content says only how to answer, and may stand anywhere.

    Where all work between a system message and the assistant's closing words has left, what stands for it follows those
    words, so that the system message stays in the provider's cache. Nothing else moves behind an answer: it was sent in
    front of it. Two traces are none such case, because the first was there while the second part went on.

    Where the frame has returned that a system message stood in, and the user speaks next, it stands in front of the
    call that opened the frame: behind the user's words it would read as new."""
    # Claude Code puts `role: system` messages between others since 2.1.197 (beta mid-conversation-system). The API
    # takes them only in front of an answer or at the end, and a fold can take away the answer that one stood before: a
    # 400.
    order: list[int] = []
    waiting: list[int] = []
    held: list[int] = []
    stack_calls: set[str] = set()
    opening, returned = 0, False
    """Where the assistant's last message stands, and whether nothing but results of stack calls is behind it."""
    for at, message in enumerate(messages):
        if message.role == "system" and message.text:
            waiting.append(at)
        elif message.role == "assistant" and message.wire != EMPTY_RUN:
            follows = len(held) == 1 and not message.calls
            order += (*waiting, at, *held) if follows else (*held, *waiting, at)
            opening, returned = order.index(at, opening), False
            stack_calls = {call.id for call in message.calls if call.is_stack_call}
            waiting, held = [], []
        elif waiting and message.role == "user" and message.text.startswith(TRACE_START):
            held.append(at)
        else:
            if waiting and returned and opening and not message.answers:
                order[opening:opening] = waiting
                waiting = []
            order += (*held, at)
            held = []
            returned = bool(message.answers) and message.answers in stack_calls
    return [*order, *held, *waiting]


def _encode_messages(wires: Sequence[bytes]) -> list[bytes]:
    """The items of `messages` in pieces: objects as they are, each stretch of runs as one user message."""
    pieces: list[bytes] = []
    glue = comma = b""
    for is_run, stretch in groupby((wire for wire in wires if wire != EMPTY_RUN), key=lambda wire: wire[:1] == b"["):
        same = list(stretch)
        if not is_run:
            for wire in same:
                pieces += [glue + comma, wire]
                glue, comma = b"", b","
            continue
        glue += comma + USER_MESSAGE_START
        if len(same) == 1:  # the very same bytes every time, so that they are stored and hashed once
            pieces += [glue, same[0]]
            glue = b"}"
        else:
            glue += b"["
            for number, wire in enumerate(same):
                pieces += [glue if number == 0 else b",", wire[1:-1]]
            glue = b"]}"
        comma = b","
    return [piece for piece in (*pieces, glue) if piece]


def client_body(request: Request) -> Body:
    """The client's own body, cut at the borders of its messages."""
    return raw_json.cut(request.body, request.fields["messages"], list(map(raw_of, _message_slices(request))))


def _message_slices(request: Request) -> Sequence[RequestSlice]:
    """What the messages behind the system text were read from."""
    return request.slices[len(request.head) :]


def extend_head(request: Request, suffix: str) -> tuple[bytes, ...]:
    """The system text with `suffix` at its end; a system text of ours where the client sends none. Nothing to say
    changes nothing."""
    wires = tuple(m.wire for m in request.head)
    if not suffix:
        return wires
    return (append_text(wires[0] if wires else b"", suffix),)


def with_hour_head(request: Request, head: Sequence[bytes]) -> tuple[Request, tuple[bytes, ...]] | None:
    """Both with an hour for the markers of tools and system text; None where the system text has no marker, or the
    client asks for an hour itself."""
    longer = [with_hour_markers(wire) for wire in head]
    tools = request.fields.get("tools", b"")
    longer_tools = with_hour_markers(tools) if CACHE_CONTROL_BYTES in tools else tools
    if not longer or None in longer or longer_tools is None:
        return None
    fields = {**request.fields, "tools": longer_tools} if longer_tools else request.fields
    return replace(request, fields=fields), tuple(filter(None, longer))


def tools_json(definitions: Sequence[Mapping[str, Any]]) -> bytes:
    """The array of tools of ours, each with name, description and parameters: constant bytes for constant tools."""
    return msgspec.json.encode([_tool(definition) for definition in definitions])


def _tool(definition: Mapping[str, Any]) -> dict[str, Any]:
    return {("input_schema" if name == "parameters" else name): value for name, value in definition.items()}


INLINE_TOOLS_BETA = b"inline-tools-2026-09-15"
"""The beta under which tools may be defined inside a conversation. It is the client's to ask for it."""


def supports_appended_tools(_: Request, headers: Headers) -> bool:
    """Whether the client asks for that beta."""
    return any(name.lower() == b"anthropic-beta" and INLINE_TOOLS_BETA in value for name, value in headers)


def encode_appended_tools(_: Request, guidance: str, tools: str) -> bytes:
    """Guidance and tools of ours as a system message among the others."""
    return encode_tools_message(guidance, raw_json.items(tools.encode()))


def new_response_writer(request: Request, *, intercept: bool) -> MessagesResponseWriter:
    return MessagesResponseWriter(stream=request.stream, wants_usage=request.wants_usage, intercept=intercept)


def unmarked_tokens_of(request: Request, messages: Sequence[Message] | None) -> int:
    """Tokens behind the last cache marker of the client's request, or of the context that is sent for it."""
    sources = _message_slices(request)
    if messages is None:
        return unmarked_tokens(request, sources)
    return tokens_behind_markers(messages, markers_of(request.fields, sources))


def cache_ping(body: bytes) -> bytes | None:
    """With a limit of one token. None with thinking by a budget: that must be smaller than the limit, and another
    budget is another prefix."""
    if object_in(raw_json.members(body), "thinking").get("type") == "enabled":
        return None
    return with_members(body, {"stream": b"false", "max_tokens": b"1"})


ANTHROPIC_MESSAGES = Dialect(
    name="anthropic_messages",
    minimal_body={"max_tokens": 8192, "messages": [{"role": "user", "content": "-"}]},
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
    error_body=anthropic_error_body,
    new_response_writer=new_response_writer,
    encode_own_response=encode_message,
    holds_compaction=holds_compaction,
    must_open_with_reasoning=must_open_with_reasoning,
    asks_to_drop_reasoning=asks_to_drop_reasoning,
    appended_tools=AppendedTools("claude", supports_appended_tools, encode_appended_tools, read_message),
    has_signed_reasoning=True,
    in_sent_order=in_sent_order,
    unmarked_tokens=unmarked_tokens_of,
    cache_ping=cache_ping,
    with_hour_head=with_hour_head,
    with_reasoning=with_reasoning,
)
