"""Cuts the descriptions of a client's rarely used tools to their first line; names, parameters and all other members
keep their bytes.

Left alone are tools with a strict schema, tools that the provider runs or loads on demand, and tools without a schema,
whose description is all that the model knows of their input. The same array always gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from proxy.core.ledger import name_in_namespace
from proxy.dialects import raw_json

SCHEMA_MEMBERS = ("parameters", "input_schema")
FUNCTION_TYPES = ("function", "custom", None)
"""What a tool says of its `type` that the client itself runs; None: it says nothing."""


class BriefTools(msgspec.Struct, frozen=True):
    """An array of tools as it is sent, and the whole descriptions of those that were cut, by name."""

    array: bytes
    descriptions: Mapping[str, str]


def brief_tools(array: bytes, is_kept: Callable[[str], bool]) -> BriefTools:
    """A JSON array of tools with brief descriptions. Tools for which `is_kept` says so by their name stay whole; so
    does an array that no parser takes."""
    descriptions: dict[str, str] = {}
    try:
        tools = [_brief_tool(raw, "", is_kept, descriptions) for raw in raw_json.items(array)]
    except raw_json.JsonSplitError:
        return BriefTools(array, {})
    return BriefTools(raw_json.join_array(tools) if descriptions else array, descriptions)


def _brief_tool(raw: bytes, namespace: str, is_kept: Callable[[str], bool], descriptions: dict[str, str]) -> bytes:
    if not raw.startswith(b"{"):
        return raw
    members = raw_json.members(raw)
    if members.get("function", b"").startswith(b"{"):
        if not _is_run_by_client(members):
            return raw
        function = _brief_tool(members["function"], namespace, is_kept, descriptions)
        return raw if function == members["function"] else raw_json.join_object({**members, "function": function})
    name = _read(members, "name")
    if not isinstance(name, str):
        return raw
    name = name_in_namespace(namespace, name)
    if members.get("tools", b"").startswith(b"["):
        inner = [_brief_tool(each, name, is_kept, descriptions) for each in raw_json.items(members["tools"])]
        is_same = inner == raw_json.items(members["tools"])
        return raw if is_same else raw_json.join_object({**members, "tools": raw_json.join_array(inner)})
    description = _read(members, "description")
    has_schema = any(members.get(member, b"").startswith(b"{") for member in SCHEMA_MEMBERS)
    if not isinstance(description, str) or not has_schema or not _is_run_by_client(members) or is_kept(name):
        return raw
    brief = first_line(description)
    if brief == description.strip():
        return raw
    descriptions[name] = description
    return raw_json.join_object({**members, "description": raw_json.encode(brief)})


def first_line(description: str) -> str:
    """The first line that says something."""
    return description.strip().partition("\n")[0].rstrip()


def _is_run_by_client(members: Mapping[str, bytes]) -> bool:
    """Whether the client runs the tool, it is in the prompt from the start, and its schema is not strict."""
    if _read(members, "type") not in FUNCTION_TYPES:
        return False
    # A deferred tool is not in the prompt until a search loads it, and a strict one is compiled: there is nothing to
    # save.
    return _read(members, "strict") is not True and _read(members, "defer_loading") is not True


def _read(members: Mapping[str, bytes], name: str) -> Any:
    return raw_json.parse(members[name]) if name in members else None
