"""What a call does beside its result: it may have changed something, or it only looks, or it only waits.

Read from the call: the role of its tool, the words of its commands, and of a tool nobody knows the name. The law: **a
call that failed, and one that only looks, changed nothing**; a command that is not known to only look may have.

What this module does not do: it does not say what was changed. Files are seen by `files`, commands by `commands`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from proxy.core.observers.call_outcomes import failed
from proxy.core.observers.commands import command_lines, kind_of
from proxy.core.observers.files import How, files_seen
from proxy.core.observers.shell import Simple, commands_in
from proxy.core.observers.step import Done, Step
from proxy.core.observers.tool_roles import Names, Role, plain_name

_WAITING = ("wait", "sleep", "poll", "stdin", "bashoutput", "taskoutput", "processoutput", "terminaloutput")
"""Parts of the plain names of tools that look whether something has come by now."""
_WAITING_COMMANDS = frozenset({"sleep", "wait", "watch"})
_LOOKING = frozenset(
    [
        "ls",
        "cat",
        "head",
        "tail",
        "less",
        "more",
        "grep",
        "egrep",
        "rg",
        "ag",
        "find",
        "fd",
        "tree",
        "pwd",
        "wc",
        "file",
        "stat",
        "du",
        "df",
        "echo",
        "printf",
        "which",
        "type",
        "whoami",
        "date",
        "env",
        "ps",
        "cd",
        "true",
        "test",
        "[",
        "sort",
        "uniq",
        "cut",
        "tr",
        "nl",
        "diff",
        "cmp",
        "jq",
        "awk",
        "sed",
        "sleep",
        "wait",
        "watch",
    ]
)
"""Commands that change nothing; with a file behind `>`, or `sed -i`, they are seen as changes first."""
_GIT_LOOKING = frozenset(
    {"status", "diff", "log", "show", "blame", "grep", "ls-files", "rev-parse", "branch", "describe"}
)
_CHANGING = re.compile(
    r"write|edit|update|create|delete|remove|replace|insert|append|apply|move|rename|add|set|patch|commit|save|put|post|"
    r"send|book|cancel|modify|exchange|return|transfer|install|run|exec|click|type|fill|navigate|task|agent"
)
"""Parts of the plain names of tools, of none we know, that may change something."""


def is_waiting(done: Done, names: Names) -> bool:
    """Whether the call asks if something has come by now, or waits for it."""
    name = plain_name(done.call.name)
    if any(part in name for part in _WAITING):
        return True
    return any(command.words[:1] and command.words[0] in _WAITING_COMMANDS for command in _commands(done, names))


def _commands(done: Done, names: Names) -> Iterator[Simple]:
    for line in command_lines(done, names):
        yield from commands_in(line)


def may_change(done: Done, names: Names) -> bool:
    """Whether the call may have changed something, as far as its name and its words tell. One that failed has not."""
    if failed(done) or done.call.is_ours:
        return False
    if any(seen.how is not How.READ for seen in files_seen(Step("", (done,)), names)):
        return True
    role = names.role(done.call.name)
    if role is Role.SHELL:
        return not all(_only_looks(command) for command in _commands(done, names))
    return role is None and _CHANGING.search(plain_name(done.call.name)) is not None


def _only_looks(command: Simple) -> bool:
    program, *rest = command.words or ("true",)
    if program.rpartition("/")[2] == "git":
        return next((word for word in rest if not word.startswith("-")), "") in _GIT_LOOKING
    return program.rpartition("/")[2] in _LOOKING or bool(kind_of(command.words))
