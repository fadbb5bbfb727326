"""Reads which tools a message loads: those that a tool search found, and those that a message adds by itself.

Providers offer a deferred tool to the model only while the message that loaded it is in the prompt. Forms: a reference
(`tool_reference`) in a tool's result or in a result of the provider's own search, a `tool_search_output` and an
`additional_tools` item, which hold definitions, and changes of the tools in a system message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from proxy.core.ledger import LoadedTool, name_in_namespace
from proxy.dialects import raw_json

# Claude Code searches its MCP tools where it believes to speak with Anthropic: 107 tools cost it 30,600 tokens
# otherwise (2.1.330). Without the message that loaded a tool, its next call is one of a tool that nobody offered.
TOOL_REFERENCE, SEARCH_OUTPUT, ADDED_TOOLS = "tool_reference", "tool_search_output", "additional_tools"
TOOL_CHANGES = ("tool_addition", "tool_removal")
_MARKS = tuple(f'"{kind}"'.encode() for kind in (TOOL_REFERENCE, SEARCH_OUTPUT, ADDED_TOOLS, *TOOL_CHANGES))
NO_TOOLS: tuple[LoadedTool, ...] = ()


def loaded_tools(wire: bytes) -> tuple[LoadedTool, ...]:
    """The tools that the messages, blocks or items in `wire` load, each once."""
    # Nearly no message loads any, and each is asked: a parser would be a hundred times as slow.
    if not any(mark in wire for mark in _MARKS):
        return NO_TOOLS
    try:
        said = raw_json.parse(wire)
    except raw_json.JsonSplitError:
        return NO_TOOLS
    return tuple(dict.fromkeys(_loaded_by(said)))


def _loaded_by(said: Any) -> Iterator[LoadedTool]:
    """The tools loaded by a message, a block or an item, or by each of a list of them."""
    if isinstance(said, list):
        for each in said:
            yield from _loaded_by(each)
    if not isinstance(said, dict):
        return
    kind = said.get("type")
    if kind == TOOL_REFERENCE:
        yield from _named(said)
    elif kind in TOOL_CHANGES and isinstance(tool := said.get("tool"), dict):
        yield from _named(tool)
        yield from _defined(tool.get("definition"), "", is_counted=True)
    elif kind in (SEARCH_OUTPUT, ADDED_TOOLS):
        # What the provider found itself stands inside its answer, whose tokens are those of its words and calls.
        yield from _defined(said.get("tools"), "", is_counted=said.get("execution") != "server")
    else:
        for name in ("content", "tool_references"):
            yield from _loaded_by(said.get(name))


def _named(reference: dict[str, Any]) -> Iterator[LoadedTool]:
    name = reference.get("tool_name") or reference.get("name")
    if isinstance(name, str):
        yield LoadedTool(name)


def _defined(tools: Any, namespace: str, *, is_counted: bool) -> Iterator[LoadedTool]:
    for tool in tools if isinstance(tools, list) else [tools]:
        if not isinstance(tool, dict):
            continue
        inner = tool["function"] if isinstance(tool.get("function"), dict) else tool
        name = next((said for key in ("name", "server_label", "type") if isinstance(said := inner.get(key), str)), "")
        name = name_in_namespace(namespace, name)
        if isinstance(tool.get("tools"), list):
            yield from _defined(tool["tools"], name, is_counted=is_counted)
        elif name:
            yield LoadedTool(name, is_counted)
