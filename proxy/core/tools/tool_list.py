"""The list of the stack tools, the definitions to offer, and the dispatch of a call. To add a tool, write its module
and add one line to `TOOLS`. The offered definitions never change within one configuration, byte for byte, so they stay
in the provider's prompt cache. Every call of a `stack_*` name is answered, offered or not; a mistake by the model is
answered with text that says what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from proxy.core.ledger import STACK_PREFIX, Call
from proxy.core.observers import decode_json_or_text
from proxy.core.text import truncate_to_tokens
from proxy.core.tools import autonomy_tools as autonomy
from proxy.core.tools import branch_tools as branches
from proxy.core.tools import config_tool as configuring
from proxy.core.tools import context_tools as clearing
from proxy.core.tools import context_tools as contexts
from proxy.core.tools import frame_tools as moves
from proxy.core.tools import inspect_tools as looking
from proxy.core.tools import note_tools as notes
from proxy.core.tools import note_tools as summarizing
from proxy.core.tools import plan_tools as plans
from proxy.core.tools import recall_tool as recall
from proxy.core.tools import subagent_tools as completing
from proxy.core.tools import subagent_tools as subagents
from proxy.core.tools.base import Tool, ToolContext, ToolError, ToolResult

TOOLS: tuple[Tool, ...] = (
    *moves.TOOLS,
    *plans.TOOLS,
    *recall.TOOLS,
    *looking.TOOLS,
    *notes.RECORD_TOOLS,
    *contexts.TOOLS,
    *subagents.TOOLS,
    *branches.TOOLS,
    *autonomy.TOOLS,
    *summarizing.TOOLS,
    *completing.COMPLETE_TOOLS,
    *clearing.CLEAR_TOOLS,
    *configuring.TOOLS,
)
_BY_NAME: Mapping[str, Tool] = {
    name: tool
    for tool in TOOLS
    for name in (tool.name, tool.name.removeprefix(STACK_PREFIX), tool.op, f"{STACK_PREFIX}{tool.op}")
}
_DISPATCHED_TOOLS = tuple(tool for tool in TOOLS if not tool.is_core)
DISPATCHER = "stack"
NO_MORE_CALLS = "No more stack calls in this turn. Go on with the task, or answer the user."
TRUNCATED_NOTE = (
    "[the rest is left out: your context window has no room for it now. Ask for less, or make room: pop the frame you "
    "are in.]"
)
MIN_ANSWER_TOKENS = 80  # always answered whole: most error texts are shorter
BYTES_PER_CHARACTER = 4
_CORE_TOOL_ORDER = ("stack_frame_push", "stack_frame_pop", "stack_frame_plan", "stack_frame_activate", "stack_recall")


def tool_definitions(profile: str) -> tuple[Mapping[str, Any], ...]:
    """The definitions to offer, in constant order; `profile` is core, full, or passive (recall alone)."""
    if profile == "passive":
        return tuple(_definition(t.name, t.description, t.parameters) for t in recall.TOOLS if t.is_core)
    core = sorted((t for t in TOOLS if t.is_core), key=lambda t: _CORE_TOOL_ORDER.index(t.name))
    offered = [_definition(t.name, t.description, t.parameters) for t in core]
    if profile == "full":
        return (*offered, *(_definition(t.name, t.description, t.parameters) for t in _DISPATCHED_TOOLS))
    return (*offered, _dispatcher_definition())


def _definition(name: str, description: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"name": name, "description": description, "parameters": parameters}


def _dispatcher_definition() -> Mapping[str, Any]:
    listed_tools = [t for t in _DISPATCHED_TOOLS if t.is_listed]
    ops = [t.op for t in listed_tools]
    properties = {"op": {"type": "string", "enum": ops}, "args": {"type": "object"}}
    listed = "; ".join(f"{t.op}({', '.join(t.parameters.get('properties', {}))})" for t in listed_tools)
    return _definition(
        DISPATCHER,
        f"Other frame operations: {listed}.",
        {"type": "object", "properties": properties, "required": ["op"]},
    )


def run(tool_context: ToolContext, call: Call) -> ToolResult:
    """Answer one stack call. Never raises for a mistake of the model."""
    try:
        arguments = _decode_arguments(call)
        tool, arguments = _select_tool(call.name, arguments)
        outcome = tool.run(tool_context, arguments)
    except ToolError as mistake:
        return ToolResult(_truncate_to_free_tokens(tool_context, str(mistake)))
    return (
        outcome
        if tool.limits_own_length
        else replace(outcome, text=_truncate_to_free_tokens(tool_context, outcome.text))
    )


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
        found = msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        message = (
            f"Error: the arguments of {call.name} are not valid JSON ({error}). Send them again as one JSON object."
        )
        raise ToolError(message) from None
    if not isinstance(found, dict):
        raise ToolError(f"Error: the arguments of {call.name} must be a JSON object.")
    return found


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
