"""The list of the stack tools, the definitions to offer, and the dispatch of a call. To add a tool, write its module
and add one line to `TOOLS`. The offered definitions never change within one configuration, byte for byte, so they stay
in the provider's prompt cache. Every call of a `stack_*` name is answered, offered or not; a mistake by the model is
answered with text that says what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from proxy.core.ledger import BARE_RECALL, PARALLEL_TOOL, STACK_PREFIX, Call, Request, without_namespace
from proxy.core.observers import decode_json_or_text
from proxy.core.text import truncate_to_tokens
from proxy.core.tools import (
    autonomy_tools,
    branch_tools,
    config_tool,
    context_tools,
    frame_tools,
    inspect_tools,
    plan_tools,
    recall_tool,
    record_tools,
    subagent_tools,
)
from proxy.core.tools.base import Tool, ToolContext, ToolError, ToolResult, object_schema, text_schema

# The order is part of what the model reads: a change of it invalidates prompt caches.
TOOLS: tuple[Tool, ...] = (
    frame_tools.PUSH,
    frame_tools.POP,
    frame_tools.ACTIVATE,
    plan_tools.PLAN,
    plan_tools.PLAN_CHILDREN,
    plan_tools.INVALIDATE,
    recall_tool.RECALL,
    inspect_tools.STATUS,
    inspect_tools.TREE,
    inspect_tools.DETAILS,
    inspect_tools.GET_STATE,
    inspect_tools.GET_SUMMARY,
    record_tools.ADD_ARTIFACT,
    record_tools.ADD_DECISION,
    context_tools.CONTEXT_INFO,
    context_tools.CONTEXT_PREVIEW,
    context_tools.COMPACTION_INFO,
    subagent_tools.STATS,
    subagent_tools.SUBAGENT_LIST,
    branch_tools.CHECKPOINT,
    branch_tools.BRANCH,
    branch_tools.SWITCH,
    branch_tools.INJECT,
    autonomy_tools.AUTONOMY,
    autonomy_tools.SHOULD_PUSH,
    autonomy_tools.SHOULD_POP,
    autonomy_tools.AUTO_SUGGEST,
    autonomy_tools.AUTONOMY_STATS,
    record_tools.SUMMARIZE,
    subagent_tools.SUBAGENT_COMPLETE,
    context_tools.CACHE_CLEAR,
    config_tool.CONFIG,
)
FRAME_TOOLS = (
    frame_tools.PUSH,
    frame_tools.POP,
    recall_tool.RECALL,
)
"""What frames cannot do without, for clients that plan with a tool of their own."""
# Offered by themselves, in this order; the dispatcher reaches the others.
CORE_TOOLS = (
    frame_tools.PUSH,
    frame_tools.POP,
    plan_tools.PLAN,
    recall_tool.RECALL,
)
# Named by the dispatcher; it reaches every other tool too.
_DISPATCHER_OPS = ("activate", "invalidate", "add_decision", "details", "tree")
_BY_NAME: Mapping[str, Tool] = {
    name: tool
    for tool in TOOLS
    for name in (tool.name, tool.name.removeprefix(STACK_PREFIX), tool.op, f"{STACK_PREFIX}{tool.op}")
}
_DISPATCHED_TOOLS = tuple(tool for tool in TOOLS if tool not in CORE_TOOLS)
DISPATCHER = "stack"
NO_MORE_CALLS = "No more stack calls in this turn. Go on with the task, or answer the user."
TRUNCATED_NOTE = (
    "[the rest is left out: your context window has no room for it now. Ask for less, or make room: pop the frame you "
    "are in.]"
)
MIN_ANSWER_TOKENS = 80  # always answered whole: most error texts are shorter
BYTES_PER_CHARACTER = 4


def tool_definitions(profile: str) -> tuple[Mapping[str, Any], ...]:
    """The definitions to offer, in constant order; `profile` is full, core, frames (without a plan), or passive (recall
    alone)."""
    if profile == "passive":
        return (_core_definition_of(recall_tool.RECALL),)
    if profile == "frames":
        return tuple(map(_core_definition_of, FRAME_TOOLS))
    if profile == "full":
        tools = (*CORE_TOOLS, *_DISPATCHED_TOOLS)
        return tuple(_definition(tool.name, tool.description, tool.parameters) for tool in tools)
    return (*map(_core_definition_of, CORE_TOOLS), _DISPATCHER_DEFINITION)


def _core_definition_of(tool: Tool) -> Mapping[str, Any]:
    return _definition(tool.name, tool.description, tool.core_parameters or tool.parameters)


def _definition(name: str, description: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"name": name, "description": description, "parameters": parameters}


_DISPATCHER_DEFINITION = _definition(
    DISPATCHER,
    "Other frame operations.",
    object_schema(
        "op",
        op={
            "type": "string",
            "description": "activate begins a planned or blocked frame",
            "enum": list(_DISPATCHER_OPS),
        },
        frame=text_schema("id or title"),
        reason=text_schema("why"),
        decision=text_schema("what to note"),
        supersedes=text_schema("decision it replaces"),
    ),
)


def tool_meant(request: Request, name: str, arguments: str) -> str:
    """The tool of ours that a call under another name means: spelled otherwise, bare, with a prefix, or wrapped into a
    call of several. Empty where the client has a tool of this name."""
    names = _RECIPIENT.findall(arguments) if name == PARALLEL_TOOL else [name]
    if not any(map(_tool_named, names)):
        return ""
    loaded = (tool.name for message in request.messages for tool in message.loaded_tools)
    theirs = set(map(_squeezed, (*request.tool_names, *loaded)))
    others = [each for each in names if theirs.isdisjoint(map(_squeezed, (name, each, without_namespace(each))))]
    return next(filter(None, map(_tool_named, others)), "")


def _tool_named(name: str) -> str:
    squeezed = _squeezed(without_namespace(name))
    return _BARE_NAMES.get(squeezed) or _BY_SPELLING.get(_ANY_PREFIX.sub("", squeezed), "")


def _squeezed(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


_BARE_NAMES = {BARE_RECALL: recall_tool.RECALL.name, DISPATCHER: DISPATCHER}
_BY_SPELLING = {_squeezed(tool.name): tool.name for tool in TOOLS}
_ANY_PREFIX = re.compile(".*(?=stack)")
_RECIPIENT = re.compile(r'"recipient_name"\s*:\s*"([^"]*)"')


def run(tool_context: ToolContext, call: Call) -> ToolResult:
    """Answer one stack call. Never raises for a mistake of the model."""
    try:
        arguments = _decode_arguments(call)
        tool, arguments = _select_tool(call.name, arguments)
        result = tool.run(tool_context, arguments)
    except ToolError as mistake:
        return ToolResult(_truncate_to_free_tokens(tool_context, str(mistake)))
    if tool.limits_own_length:
        return result
    return replace(result, text=_truncate_to_free_tokens(tool_context, result.text))


def _truncate_to_free_tokens(tool_context: ToolContext, text: str) -> str:
    """Cut an answer that the window has no room for; the provider would refuse the next round for its length."""
    if len(text) * BYTES_PER_CHARACTER <= tool_context.free_tokens:  # no token is less than a byte
        return text
    return truncate_to_tokens(
        text, max(tool_context.free_tokens, MIN_ANSWER_TOKENS), tool_context.count_tokens, TRUNCATED_NOTE
    )


def _decode_arguments(call: Call) -> Mapping[str, Any]:
    if not call.arguments.strip():
        return {}
    try:
        arguments = msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        message = (
            f"Error: the arguments of {call.name} are not valid JSON ({error}). Send them again as one JSON object."
        )
        raise ToolError(message) from None
    if not isinstance(arguments, dict):
        raise ToolError(f"Error: the arguments of {call.name} must be a JSON object.")
    if "tool_uses" in arguments:
        raise ToolError("Error: none of these calls was run: call each tool by itself, under its own name.")
    return _without_nulls(arguments)


def _without_nulls(given: Mapping[str, Any]) -> dict[str, Any]:
    """What a strict schema makes a model send as null is absent."""
    return {name: _clean(member) for name, member in given.items() if member is not None}


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return _without_nulls(value)
    return [_clean(item) for item in value] if isinstance(value, list) else value


def _select_tool(name: str, arguments: Mapping[str, Any]) -> tuple[Tool, Mapping[str, Any]]:
    if name == DISPATCHER:
        name, arguments = str(arguments.get("op", "")), _dispatched_arguments(arguments)
    tool = _BY_NAME.get(name)
    if tool is None:
        raise ToolError(f"Error: there is no operation {name[:80]!r}. Known: {', '.join(t.op for t in TOOLS)}.")
    return tool, arguments


def _dispatched_arguments(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments for the operation, from `args` (which some models send as text) and from the fields beside it."""
    inner = arguments.get("args")
    if isinstance(inner, str):
        inner = decode_json_or_text(inner) if inner.strip() else None
    if inner is not None and not isinstance(inner, dict):
        raise ToolError("Error: args must be one JSON object: the arguments of the operation.")
    return {**{key: value for key, value in arguments.items() if key not in ("op", "args")}, **(inner or {})}
