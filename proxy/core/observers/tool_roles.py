"""The table of client tools: what each is for, and which argument holds its object. Names are normalized: no case, `_`,
`-` or server prefix, so `mcp__disk__Read_File` is `readfile`. Configuration can add, change or remove names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from proxy.core.memo import memoize


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


PATH_ARGUMENTS = (
    "filePath",
    "file_path",
    "filepath",
    "path",
    "absolute_path",
    "target_file",
    "notebook_path",
    "filename",
    "files",
    "paths",
    "file_paths",
)
MOVE_ARGUMENTS = ("source", "old_path", "source_path", "from", "destination", "new_path", "destination_path", "to")
COMMAND_ARGUMENTS = ("command", "cmd", "commands", "script")
PLAN_ARGUMENTS = ("todos", "plan", "task_list", "items", "tasks", "checklist")
TITLE_ARGUMENTS = ("subject", "title", "content")
ID_ARGUMENTS = ("taskId", "task_id", "id")
GOAL_ARGUMENTS = ("objective", "goal")

# Argument names of known clients, in order of preference.
DEFAULT_ARGUMENTS: Mapping[ToolRole, tuple[str, ...]] = {
    ToolRole.READ: PATH_ARGUMENTS,
    ToolRole.WRITE: PATH_ARGUMENTS,
    ToolRole.EDIT: PATH_ARGUMENTS,
    ToolRole.DELETE: PATH_ARGUMENTS,
    ToolRole.MOVE: MOVE_ARGUMENTS,
    ToolRole.EDITOR: PATH_ARGUMENTS,
    ToolRole.PATCH: (),
    ToolRole.SHELL: COMMAND_ARGUMENTS,
    ToolRole.PLAN: PLAN_ARGUMENTS,
    ToolRole.ITEM_CREATE: TITLE_ARGUMENTS,
    ToolRole.ITEM_UPDATE: ID_ARGUMENTS,
    ToolRole.GOAL: GOAL_ARGUMENTS,
}

_BUILT_IN_TOOLS: Mapping[ToolRole, str] = {
    ToolRole.READ: "read readfile readfiles readmanyfiles readtextfile openfile viewfile view open",
    ToolRole.WRITE: "write writefile writetofile createfile create",
    ToolRole.EDIT: "edit editfile multiedit notebookedit editor replace replaceinfile insert strreplace searchreplace",
    ToolRole.DELETE: "delete deletefile removefile",
    ToolRole.MOVE: "move movefile renamefile",
    ToolRole.EDITOR: "strreplaceeditor strreplacebasededittool texteditor",
    ToolRole.PATCH: "applypatch patch",
    ToolRole.SHELL: "bash shell execcommand exec runshellcommand runcommand runcommands execute executebash "
    "executecommand localshell runinterminal runterminalcmd terminal",
    ToolRole.PLAN: "todowrite writetodos updateplan tasktracker checklist updatetodolist",
    ToolRole.ITEM_CREATE: "taskcreate",
    ToolRole.ITEM_UPDATE: "taskupdate",
    ToolRole.GOAL: "creategoal updategoal",
}


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


class ToolRoles(msgspec.Struct, frozen=True):
    """Tools by normalized name."""

    tools: Mapping[str, ToolSpec]

    def spec_of(self, name: str) -> ToolSpec | None:
        """None for a tool that no observer reads."""
        return self.tools.get(normalize_name(name))

    def role_of(self, name: str) -> ToolRole | None:
        spec = self.spec_of(name)
        return spec.role if spec else None

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
    {name: ToolSpec(role, DEFAULT_ARGUMENTS[role]) for role, names in _BUILT_IN_TOOLS.items() for name in names.split()}
)
