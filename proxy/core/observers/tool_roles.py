"""The table: which tool of which client does what, and under which argument its object stands (X-17).

A tool is known by its plain name: without case, `_`, `-` and the name of a server in front, so `mcp__disk__Read_File`
is `readfile`. The law: **a name says what a tool is for, its arguments say to what**; a tool whose arguments do not
fit the table is seen as nothing. Configuration adds names, changes them or takes them away.

What this module does not do: it reads no call; each observer does that for the roles it knows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from proxy.core.memo import remembered


class Role(StrEnum):
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


PATHS = (
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
OLD_AND_NEW_PATH = ("source", "old_path", "source_path", "from", "destination", "new_path", "destination_path", "to")
COMMANDS = ("command", "cmd", "commands", "script")
ITEMS = ("todos", "plan", "task_list", "items", "tasks", "checklist")
TITLES = ("subject", "title", "content")
IDS = ("taskId", "task_id", "id")
GOALS = ("objective", "goal")

USUAL: Mapping[Role, tuple[str, ...]] = {
    Role.READ: PATHS,
    Role.WRITE: PATHS,
    Role.EDIT: PATHS,
    Role.DELETE: PATHS,
    Role.MOVE: OLD_AND_NEW_PATH,
    Role.EDITOR: PATHS,
    Role.PATCH: (),
    Role.SHELL: COMMANDS,
    Role.PLAN: ITEMS,
    Role.ITEM_CREATE: TITLES,
    Role.ITEM_UPDATE: IDS,
    Role.GOAL: GOALS,
}
"""The argument names of the clients we know, by role, in order of preference."""

_BUILT_IN: Mapping[Role, str] = {
    Role.READ: "read readfile readfiles readmanyfiles readtextfile openfile viewfile view open",
    Role.WRITE: "write writefile writetofile createfile create",
    Role.EDIT: "edit editfile multiedit notebookedit editor replace replaceinfile insert strreplace searchreplace",
    Role.DELETE: "delete deletefile removefile",
    Role.MOVE: "move movefile renamefile",
    Role.EDITOR: "strreplaceeditor strreplacebasededittool texteditor",
    Role.PATCH: "applypatch patch",
    Role.SHELL: "bash shell execcommand exec runshellcommand runcommand runcommands execute executebash "
    "executecommand localshell runinterminal runterminalcmd terminal",
    Role.PLAN: "todowrite writetodos updateplan tasktracker checklist updatetodolist",
    Role.ITEM_CREATE: "taskcreate",
    Role.ITEM_UPDATE: "taskupdate",
    Role.GOAL: "creategoal updategoal",
}


class Known(msgspec.Struct, frozen=True):
    """What the table says of one tool."""

    role: Role
    arguments: tuple[str, ...]
    """Names of the arguments that hold what the role is about, in order of preference."""


REMEMBERED = 1_024
"""Names whose plain form is remembered: it is asked for with every call that anybody looks at."""
_SERVER = re.compile(r"^.*(?:__|[./:])(?=.)", re.DOTALL)
_JOINTS = str.maketrans("", "", "_- ")


@remembered(REMEMBERED)
def plain_name(name: str) -> str:
    """A tool's name without the name of a server in front, and without case, `_`, `-` and spaces."""
    return _SERVER.sub("", name).translate(_JOINTS).casefold()


class Names(msgspec.Struct, frozen=True):
    """Tools by plain name."""

    tools: Mapping[str, Known]

    def known(self, name: str) -> Known | None:
        """What the tool called `name` is for, None for a tool that no observer looks at."""
        return self.tools.get(plain_name(name))

    def role(self, name: str) -> Role | None:
        known = self.known(name)
        return known.role if known else None

    def extended(self, entries: Mapping[str, object]) -> Names:
        """This table with the entries of a configuration on top, each a tool's name and what it is:

        - a role: `apply_change: edit`
        - a role and the names of its arguments, which go before the usual ones:
          `store: {role: write, arguments: [target]}`
        - `none`, for a tool that only sounds like one of ours: `view: none`

        Raises ValueError, its text naming the key.
        """
        tools = dict(self.tools)
        for name, entry in entries.items():
            if not (plain := plain_name(str(name))):
                raise ValueError(f"{name!r}: a tool's name is wanted here")
            if entry == "none" or entry is None:
                tools.pop(plain, None)
            else:
                tools[plain] = _entry(name, entry)
        return replace(self, tools=tools)


def _entry(name: str, entry: object) -> Known:
    fields = {"role": entry} if isinstance(entry, str) else entry
    if not isinstance(fields, Mapping):
        raise ValueError(  # noqa: TRY004  what a configuration says is a value, of whatever type
            f"{name}: a role, or a mapping with `role` and `arguments`, is wanted here, not {entry!r}"
        )
    if unknown := [key for key in fields if key not in {"role", "arguments"}]:
        raise ValueError(f"{name}.{unknown[0]}: not a key here; there are `role` and `arguments`")
    role = fields.get("role")
    if not isinstance(role, str) or role not in set(Role):
        raise ValueError(f"{name}.role: {role!r} is none of {', '.join(Role)}, none")
    arguments = fields.get("arguments", ())
    listed = [arguments] if isinstance(arguments, str) else arguments
    if not isinstance(listed, list | tuple) or not all(isinstance(each, str) and each for each in listed):
        raise ValueError(f"{name}.arguments: a list of argument names is wanted here, not {arguments!r}")
    return Known(Role(role), tuple(dict.fromkeys((*listed, *USUAL[Role(role)]))))


NAMES = Names({name: Known(role, USUAL[role]) for role, names in _BUILT_IN.items() for name in names.split()})
"""The tools of the clients we know."""
