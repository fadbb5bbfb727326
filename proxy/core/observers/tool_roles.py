"""The table of client tools, `tool_roles.toml`: what each is for, and which argument holds its object. Names are
normalized: no case, `_`, `-` or server prefix, so `mcp__disk__Read_File` is `readfile`. Configuration can add, change
or remove names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from proxy.core.memo import memoize
from proxy.core.word_lists import read_table


class ToolRole(StrEnum):
    """What a tool is for. The comments say what its `arguments` name."""

    READ = "read"  # paths
    WRITE = "write"  # paths; the whole content is replaced
    EDIT = "edit"  # paths
    DELETE = "delete"  # paths
    MOVE = "move"  # the old path, then the new one
    EDITOR = "editor"  # paths; an argument `command` says what is done to them
    PATCH = "patch"  # nothing: the headers of a patch name the paths
    SHELL = "shell"  # commands
    PLAN = "plan"  # the whole list: items, JSON or a markdown checklist
    ITEM_CREATE = "item_create"  # the title of one item
    ITEM_UPDATE = "item_update"  # the id of one item
    GOAL = "goal"  # the title of the one goal; without it the call changes the goal's state


class _Role(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`tools` are normalized names with white space between them; `arguments` is a list by its name, if any."""

    tools: str
    arguments: str = ""


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`tool_roles.toml`."""

    arguments: Mapping[str, tuple[str, ...]]
    roles: Mapping[ToolRole, _Role]


_TABLE = read_table(__package__, "tool_roles.toml", _Table)
PATH_ARGUMENTS, ID_ARGUMENTS = _TABLE.arguments["paths"], _TABLE.arguments["ids"]
DEFAULT_ARGUMENTS: Mapping[ToolRole, tuple[str, ...]] = {
    role: _TABLE.arguments[listed.arguments] if listed.arguments else () for role, listed in _TABLE.roles.items()
}
"""Argument names of known clients, in order of preference."""


class ToolSpec(msgspec.Struct, frozen=True):
    role: ToolRole
    arguments: tuple[str, ...]  # in order of preference


CACHED_TOOL_NAMES = 1_024  # normalized names: every look at a call asks for one
_SERVER_PREFIX = re.compile(r"^.*(?:__|[./:])(?=.)", re.DOTALL)
_NAME_SEPARATORS = str.maketrans("", "", "_- ")


@memoize(CACHED_TOOL_NAMES)
def normalize_name(name: str) -> str:
    """Without server prefix, case, `_`, `-` and spaces."""
    return _SERVER_PREFIX.sub("", name).translate(_NAME_SEPARATORS).casefold()


class ToolRoles(msgspec.Struct, frozen=True, eq=False):
    """Tools by normalized name. Two of them are never equal, so what was observed by one can be remembered."""

    tools: Mapping[str, ToolSpec]

    def spec_of(self, name: str) -> ToolSpec | None:
        """None for a tool that no observer reads."""
        return self.tools.get(normalize_name(name))

    def role_of(self, name: str) -> ToolRole | None:
        spec = self.spec_of(name)
        return spec.role if spec else None

    def is_plan_tool(self, name: str) -> bool:
        """Whether it states the client's plan, or an item of it. A goal is set by the user, so goal tools are none."""
        return self.role_of(name) in (ToolRole.PLAN, ToolRole.ITEM_CREATE, ToolRole.ITEM_UPDATE)

    def with_entries(self, entries: Mapping[str, object]) -> ToolRoles:
        """This table with the entries of a configuration on top, each a tool's name and what it is:

        - a role: `apply_change: edit`
        - a role and the names of its arguments, which go before the usual ones:
          `store: {role: write, arguments: [target]}`
        - `none`, for a tool that only sounds like one of ours: `view: none`

        Raises ValueError, its text naming the key.
        """
        tools = dict(self.tools)
        for name, entry in entries.items():
            if not (plain := normalize_name(str(name))):
                raise ValueError(f"{name!r}: a tool's name is wanted here")
            if entry == "none" or entry is None:
                tools.pop(plain, None)
            else:
                tools[plain] = _parse_entry(name, entry)
        return replace(self, tools=tools)


def _parse_entry(name: str, entry: object) -> ToolSpec:
    fields = {"role": entry} if isinstance(entry, str) else entry
    if not isinstance(fields, Mapping):
        raise ValueError(  # noqa: TRY004  what a configuration says is a value, of whatever type
            f"{name}: a role, or a mapping with `role` and `arguments`, is wanted here, not {entry!r}"
        )
    if unknown := [key for key in fields if key not in {"role", "arguments"}]:
        raise ValueError(f"{name}.{unknown[0]}: not a key here; there are `role` and `arguments`")
    role = fields.get("role")
    if not isinstance(role, str) or role not in set(ToolRole):
        raise ValueError(f"{name}.role: {role!r} is none of {', '.join(ToolRole)}, none")
    arguments = fields.get("arguments", ())
    listed = [arguments] if isinstance(arguments, str) else arguments
    if not isinstance(listed, list | tuple) or not all(isinstance(each, str) and each for each in listed):
        raise ValueError(f"{name}.arguments: a list of argument names is wanted here, not {arguments!r}")
    return ToolSpec(ToolRole(role), tuple(dict.fromkeys((*listed, *DEFAULT_ARGUMENTS[ToolRole(role)]))))


DEFAULT_TOOL_ROLES = ToolRoles(
    {
        name: ToolSpec(role, DEFAULT_ARGUMENTS[role])
        for role, listed in _TABLE.roles.items()
        for name in listed.tools.split()
    }
)
