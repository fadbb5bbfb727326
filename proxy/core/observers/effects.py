"""Classifies a call as changing something, only reading, or only waiting: by the role of its tool, the words of its
commands, and the name of an unknown tool. A failed or read-only call changed nothing; a command that is not known to be
read-only may have."""

from __future__ import annotations

import re
from collections.abc import Iterator

from proxy.core.observers.call_outcomes import call_failed
from proxy.core.observers.command_outcomes import is_working_program
from proxy.core.observers.commands import command_lines_of
from proxy.core.observers.files import FileAction, observe_files
from proxy.core.observers.shell import ShellCommand, changes_files, command_kind_of, family_of, parse_command_line
from proxy.core.observers.step import Step, ToolExecution
from proxy.core.observers.tool_roles import ToolRole, ToolRoles, normalize_name

_WAITING_TOOL_NAMES = ("wait", "sleep", "poll", "stdin", "bashoutput", "taskoutput", "processoutput", "terminaloutput")
"""Parts of normalized tool names."""
_WAITING_COMMANDS = frozenset({"sleep", "wait", "watch"})
# With a file behind `>`, or `sed -i`, they are recognised as changes first.
_READ_ONLY_NAMES = (
    "ls cat head tail less more grep egrep rg ag find fd tree pwd wc file stat du df echo printf which "
    "type whoami date env ps cd true test [ sort uniq cut tr nl diff cmp jq awk sed sleep wait watch"
)
_READ_ONLY_COMMANDS = frozenset(_READ_ONLY_NAMES.split())
_READ_ONLY_GIT_COMMANDS = frozenset(
    {"status", "diff", "log", "show", "blame", "grep", "ls-files", "rev-parse", "branch", "describe"}
)
# Parts of normalized names of unknown tools.
_CHANGING_TOOL_NAMES = re.compile(
    r"write|edit|update|create|delete|remove|replace|insert|append|apply|move|rename|add|set|patch|commit|save|put|post|"
    r"send|book|cancel|modify|exchange|return|transfer|install|run|exec|click|type|fill|navigate|task|agent"
)


def is_waiting(execution: ToolExecution, tool_roles: ToolRoles) -> bool:
    """Whether the call polls, or waits for something."""
    name = normalize_name(execution.call.name)
    if any(part in name for part in _WAITING_TOOL_NAMES):
        return True
    return any(
        command.words[:1] and command.words[0] in _WAITING_COMMANDS
        for command in _commands_of_call(execution, tool_roles)
    )


def _commands_of_call(execution: ToolExecution, tool_roles: ToolRoles) -> Iterator[ShellCommand]:
    for line in command_lines_of(execution, tool_roles):
        yield from parse_command_line(line)


def runs_program(execution: ToolExecution, tool_roles: ToolRoles) -> bool:
    """Whether the call runs a program that does more than show files, or has git change something."""
    return any(map(_does_work, _commands_of_call(execution, tool_roles)))


def programs_in(execution: ToolExecution, tool_roles: ToolRoles) -> tuple[str, ...]:
    """The families of the commands of a call that do more than show files, in order; of a tool that runs none its name,
    unless it reads files."""
    role = tool_roles.role_of(execution.call.name)
    if role is ToolRole.SHELL:
        commands = _commands_of_call(execution, tool_roles)
        return tuple(family_of(each) for each in commands if _does_work(each) or changes_files(each))
    return () if role is ToolRole.READ else (execution.call.name,)


def _does_work(command: ShellCommand) -> bool:
    return is_working_program(command) or (_is_git(command) and not _is_read_only(command))


def may_have_side_effects(execution: ToolExecution, tool_roles: ToolRoles) -> bool:
    """Whether the call may have changed something. False for a failed call."""
    if call_failed(execution) or execution.call.is_stack_call:
        return False
    if any(seen.action is not FileAction.READ for seen in observe_files(Step("", (execution,)), tool_roles)):
        return True
    role = tool_roles.role_of(execution.call.name)
    if role is ToolRole.SHELL:
        return not all(_is_read_only(command) for command in _commands_of_call(execution, tool_roles))
    return role is None and _CHANGING_TOOL_NAMES.search(normalize_name(execution.call.name)) is not None


def _is_read_only(command: ShellCommand) -> bool:
    program, *rest = command.words or ("true",)
    if _is_git(command):
        return next((word for word in rest if not word.startswith("-")), "") in _READ_ONLY_GIT_COMMANDS
    return program.rpartition("/")[2] in _READ_ONLY_COMMANDS or bool(command_kind_of(command.words))


def _is_git(command: ShellCommand) -> bool:
    return bool(command.words) and command.words[0].rpartition("/")[2] == "git"
