"""Parses a request of chat completions, and renders it for the upstream.

The rendered body is spliced from the client's own slices and the produced messages, so white space, unknown members and
large numbers survive, and the same request is always the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec

from proxy.core.ledger import INSTRUCTION_ROLES, Message, Request
from proxy.dialects import raw_json
from proxy.dialects.base import Body, Dialect, RenderOptions
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
from proxy.dialects.chat.message import (
    append_text,
    assistant_message,
    joined,
    read_message,
    system_message,
    tool_result,
    user_message,
    with_call_id,
    with_content,
    with_reasoning,
    without_calls,
    without_reasoning,
)
from proxy.dialects.chat.response import ChatResponseWriter
from proxy.dialects.error_bodies import openai_error_body
from proxy.dialects.parse_cache import ParseCache, ParseSteps, RequestParseError, messages_of, raw_of
from proxy.dialects.synthetic_responses import encode_chat_completion

LEGACY_TOOLS_MEMBER = "functions"
"""How tools were offered once. Beside them the API takes neither `tools` nor messages with `tool_calls`, so none of
ours."""
TOOL_ARRAYS = ("tools", LEGACY_TOOLS_MEMBER)
ALLOWED_TOOLS_BYTES = ALLOWED_TOOLS.encode()
LIMIT_MEMBERS = ("max_completion_tokens", "max_tokens")
LIMITED_BY_COMPLETION = re.compile(r"gpt-|chatgpt-|o\d")
"""Models whose API takes the first of these; the others are limited by the second."""
PING_OUTPUT_TOKENS = 16
"""Some models that think refuse a limit that leaves them no word."""
_wire_of = attrgetter("wire")


# --------------------------------------------------------------------------------------------------------------- read
def parse_in_steps(body: bytes, known: ParseCache) -> ParseSteps[Request]:
    """The request in `body`. Raises RequestParseError."""
    try:
        fields, raws = yield from known.bodies.split_in_steps(body, "messages")
        sources = yield from known.parse_messages(raws, _read_messages)
    except raw_json.JsonSplitError as refused:
        raise RequestParseError(str(refused)) from refused
    model = value_of(fields, "model")
    if not isinstance(model, str) or not sources:
        raise RequestParseError("a model and at least one message")
    messages = messages_of(sources)
    head = _head_of(messages)
    tools = offered_tools(fields, TOOL_ARRAYS)
    known_tools = yield from known.tools(tools, lambda: tool_names(chain(*(list_in(fields, n) for n in TOOL_ARRAYS))))
    stream, answers = value_of(fields, "stream") is True, value_of(fields, "n")
    return Request(
        body,
        fields,
        model,
        stream,
        stream and object_in(fields, "stream_options").get("include_usage") is True,
        head,
        messages[len(head) :],
        known_tools.names,
        known_tools.tokens,
        _choice(fields),
        "response_format" in fields and object_in(fields, "response_format").get("type") not in (None, "text"),
        answers if isinstance(answers, int) else 1,
        known.system_hash(head, _system_hash),
        sources,
        tools,
        rejects_own_tools=LEGACY_TOOLS_MEMBER in fields and bool(offered_tools(fields, (LEGACY_TOOLS_MEMBER,))),
        wants_json_object=b'"json_object"' in fields.get("response_format", b""),
        deferred_tools=known_tools.deferred,
    )


def _read_messages(raw: bytes) -> tuple[Message, ...]:
    return (read_message(raw),)


def _head_of(messages: Sequence[Message]) -> tuple[Message, ...]:
    length = 0
    while length < len(messages) and messages[length].role in INSTRUCTION_ROLES:
        length += 1
    return tuple(messages[:length])


def _system_hash(head: Sequence[Message]) -> str:
    return sha256("\n".join([m.text.strip() for m in head]).encode()).hexdigest()[:32]


def _choice(fields: Mapping[str, bytes]) -> str:
    if "tool_choice" not in fields and "function_call" not in fields:
        return "auto"
    asked = value_of(fields, "tool_choice") or value_of(fields, "function_call") or "auto"
    if isinstance(asked, dict):
        allowed = asked.get(ALLOWED_TOOLS) if asked.get("type") == ALLOWED_TOOLS else None
        asked = allowed.get("mode") if isinstance(allowed, dict) and allows_more_tools(allowed) else "forced"
    if asked == "any":
        return "required"
    return asked if asked in ("auto", "none", "required") else "forced"


# ------------------------------------------------------------------------------------------------------------- render
def render(request: Request, messages: Sequence[Message], head: Sequence[bytes], wanted: RenderOptions) -> Body:
    """The body of an upstream request: the client's members in its order, with head and messages as its messages."""
    fields = with_tools(request.fields, wanted.extra_tools, behind="messages")
    # aider, langchain and llama-index stream without asking for usage (2026-11), and a receipt needs it: so we ask, and
    # the client does not see the chunk.
    if wanted.include_usage and request.stream and not request.wants_usage:
        _set(fields, "stream_options", b"include_usage", b"true")
    if wanted.tool_choice_none:
        fields["tool_choice"] = b'"none"'
        if "function_call" in fields:
            fields["function_call"] = b'"none"'
    elif ALLOWED_TOOLS_BYTES in fields.get("tool_choice", b""):
        _allow_tools(fields, wanted.extra_tools)
    return raw_json.object_around(fields, "messages", raw_json.comma_separated([*head, *map(_wire_of, messages)]))


def _allow_tools(fields: dict[str, bytes], extra: bytes) -> None:
    """Allow our tools where the client allows some of its own only."""
    choice = object_in(fields, "tool_choice")
    if extra and choice.get("type") == ALLOWED_TOOLS and allows_more_tools(choice.get(ALLOWED_TOOLS)):
        told = raw_json.members(fields["tool_choice"])
        names = tool_names(raw_json.parse(extra))
        told[ALLOWED_TOOLS] = allow_tools(
            told[ALLOWED_TOOLS], names, lambda name: {"type": "function", "function": {"name": name}}
        )
        fields["tool_choice"] = raw_json.join_object(told)


def _set(fields: dict[str, bytes], name: str, member: bytes, raw: bytes) -> None:
    """Set one member of an object, which is created behind all others when there is none."""
    try:
        inner = raw_json.members(fields[name]) if name in fields else {}
    except raw_json.JsonSplitError:
        inner = {}
    fields[name] = raw_json.join_object(inner | {member.decode(): raw})


def client_body(request: Request) -> Body:
    """The client's own body, cut at the borders of its messages."""
    return raw_json.cut(request.body, request.fields["messages"], list(map(raw_of, request.slices)))


def extend_head(request: Request, suffix: str) -> tuple[bytes, ...]:
    """The system messages at the head with `suffix` at the end of the last one's text; a system message of ours where
    the client sends none. Nothing to say changes nothing."""
    wires = [m.wire for m in request.head]
    if not suffix:
        return tuple(wires)
    if not wires:
        return (system_message(suffix).wire,)
    return (*wires[:-1], append_text(wires[-1], suffix))


def tools_json(definitions: Sequence[Mapping[str, Any]]) -> bytes:
    """The array of tools of ours, each with name, description and parameters: constant bytes for constant tools."""
    return msgspec.json.encode([{"type": "function", "function": definition} for definition in definitions])


def new_response_writer(request: Request, *, intercept: bool) -> ChatResponseWriter:
    return ChatResponseWriter(stream=request.stream, wants_usage=request.wants_usage, intercept=intercept)


def cache_ping(body: bytes) -> bytes:
    """With a limit of `PING_OUTPUT_TOKENS`, in the member that the client or else the model's API names it by."""
    fields = raw_json.members(body)
    model = str(value_of(fields, "model") or "").rpartition("/")[2]
    is_named = [name for name in LIMIT_MEMBERS if name in fields]
    limit = is_named or [LIMIT_MEMBERS[0] if LIMITED_BY_COMPLETION.match(model) else LIMIT_MEMBERS[1]]
    limits = dict.fromkeys(limit, b"%d" % PING_OUTPUT_TOKENS)
    return with_members(body, {"stream": b"false", "stream_options": None, "n": None, **limits})


OPENAI_CHAT = Dialect(
    name="openai_chat",
    minimal_body={"messages": [{"role": "user", "content": "-"}]},
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
    new_response_writer=new_response_writer,
    encode_own_response=encode_chat_completion,
    cache_ping=cache_ping,
    with_reasoning=with_reasoning,
)
