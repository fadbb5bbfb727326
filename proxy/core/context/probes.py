"""How things stand, as named yes and no: what the newest run of each kind of command came to, and which files are there
(S3-05).

Tests, linters, builds and type checks are known by their commands; configuration names others. A file is there where a
call of the client's wrote it, and is not where one took it away.

The law: **only what a result says is told**. A command whose end is unknown changes nothing, and of a file that nobody
wrote nothing is said.

What this module does not do: it runs nothing and looks at no disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from proxy.core.frames.path_state import Story
from proxy.core.observers.commands import BUILD, LINT, TEST, TYPES, Ran, State, commands_seen
from proxy.core.observers.files import How, files_seen
from proxy.core.observers.step import steps_of
from proxy.core.observers.tool_roles import Names

Patterns = Sequence[tuple[str, Sequence[str]]]
"""Globs of command lines, by the name that is told of them."""
CALLED = {TEST: "tests", LINT: "lint", BUILD: "build", TYPES: "types"}
"""The kinds that are known without configuration, by the names they are told by."""
STEPS = 200
"""The newest call groups that are looked at."""
FILES = 5
"""Files that are told, the newest ones."""


def probe_state(story: Story, names: Names, patterns: Patterns = ()) -> tuple[tuple[str, bool], ...]:
    """What is known at the end of a path: the kinds of commands in a fixed order, then the files."""
    ended: dict[str, bool] = {}
    files: dict[str, bool] = {}
    for step in list(steps_of(story.placed))[-STEPS:]:
        for ran in commands_seen(step, names):
            if ran.state is not State.UNKNOWN:
                ended |= dict.fromkeys(_called(ran, patterns), ran.state is State.OK)
        for file in files_seen(step, names):
            if file.sure and file.how is not How.READ:
                files.pop(file.path, None)
                files[file.path] = file.how is not How.DELETED
    order = dict.fromkeys((*CALLED.values(), *(name for name, _ in patterns)))
    return (*((name, ended[name]) for name in order if name in ended), *list(files.items())[-FILES:])


def _called(ran: Ran, patterns: Patterns) -> list[str]:
    """The names that a command is a probe of."""
    known = [CALLED[ran.kind]] if ran.kind in CALLED else []
    return known + [name for name, globs in patterns if any(fnmatchcase(ran.command, glob) for glob in globs)]
