"""Finds what does not work in the client's surroundings: a program that is not there, a tool of the client that cannot
run, a command that crashed. Each is told until a later call of its kind succeeds, or a command installs it.

A tool that refuses what it was asked (no such file, no match) works; one that fails in the same words whatever it is
asked does not. A wrong line is worse than none, so whatever is in doubt is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice

import msgspec
from msgspec.structs import replace

from proxy.core.frames import PathEntry
from proxy.core.observers.call_outcomes import call_failed, output_of, was_left_out
from proxy.core.observers.command_outcomes import (
    CommandOutcome,
    crash_line_of,
    is_missing,
    is_working_program,
    missing_names,
    outcome_of_line,
)
from proxy.core.observers.commands import command_lines_of
from proxy.core.observers.shell import ShellCommand, command_kind_of, family_of, parse_command_line
from proxy.core.observers.step import ToolExecution, head_and_tail_of, lines_containing, steps_of
from proxy.core.observers.tool_roles import ToolRole, ToolRoles
from proxy.core.text import cut_for_display

MAX_LINES = 4
"""Lines told at once; the newest."""
WORDS_CHARACTERS = 70
COMMAND_CHARACTERS = 60
RECENT_ENTRIES = 4_000
"""Only so many of the newest entries are read."""
_CANNOT_RUN = re.compile(
    r"""\b[\w.-]+\s(?:execution|process|server|binary)\s(?:failed|errored|crashed|timed\sout|not\sfound|is\snot\s\w+)\b
      | \bspawn\s\S+\sE[A-Z]+ | \bnot\sinstalled\b | \bexecutable\s(?:file\s)?not\sfound\b | \bcommand\snot\sfound\b
      | \bno\smodule\snamed\b | \bnot\s(?:available|supported|enabled|configured)\s(?:in|on|for)\sthis\b
      | \bECONNREFUSED\b | \bconnection\srefused\b | \bcould\snot\sresolve\shost\b | \bnetwork\sis\sunreachable\b
      | \bgetaddrinfo\b""",
    re.IGNORECASE | re.VERBOSE,
)
_REFUSES_ARGUMENTS = re.compile(
    r"\b(?:file|path|director(?:y|ies)|string|pattern|match(?:es)?|arguments?|parameters?|input|schema|required|must"
    r"|not found|exists?|read it|modified since|user|denied|rejected|cancell?ed|aborted|interrupted)\b",
    re.IGNORECASE,
)
_SPEAKER = re.compile(r"^(?:\S*/)?(?:\w{0,4}sh|python[\d.]*): (?:(?:line )?\d+: )?")
"""The shell or interpreter that says what is not there: `/bin/sh: 1: `."""
SAME_WORDS_CALLS = 2
"""Calls of a tool that has never worked which failed in the same words, though asked for different things."""
_MISSING_MARKS = ("no module named", "not found", "not recognized", "no such command", "unknown command", "missing")
_INSTALLS = frozenset(["install", "add", "sync", "i"])
_OF_TOOL = "tool "
"""Before the key of a client's tool: a program of the same name that runs in a shell says nothing about it."""


class BrokenTool(msgspec.Struct, frozen=True):
    """What did not work: its name, how that was said, the entries of the results that said it, the number of calls in a
    row that failed, and the entry of the result that showed it to work again."""

    name: str
    words: str
    entries: tuple[str, ...]
    calls: int = 1
    mended_at: str = ""

    @property
    def line(self) -> str:
        """`grep: "ripgrep execution failed" (4 of 4 calls)`, `rg: not found`."""
        count = f" ({len(self.entries)} of {self.calls} calls)" if self.calls > 1 else ""
        words = cut_for_display(_SPEAKER.sub("", self.words), WORDS_CHARACTERS)
        if words.startswith(f"{self.name}: "):
            return f"{words}{count}"
        return f'{self.name}: "{words}"{count}' if words else f"{self.name}: failed"


def broken_tools(path_entries: Sequence[PathEntry], tool_roles: ToolRoles) -> tuple[BrokenTool, ...]:
    """All that ever did not work among the newest entries, in the order in which it was last seen."""
    finder = _Finder(tool_roles)
    for step in steps_of(islice(path_entries, max(0, len(path_entries) - RECENT_ENTRIES), None)):
        for execution in step.executions:
            if execution.answered and not was_left_out(execution.result):
                finder.read(execution)
    return (*finder.mended, *finder.open.values())


def broken_lines(found: Iterable[BrokenTool], inside: frozenset[str]) -> tuple[str, ...]:
    """A line for each that was seen in the entries `inside` and does not work yet, and for each of others that works
    again since."""
    known_lines = [
        each.line if not each.mended_at else f"{each.name}: works again"
        for each in found
        if (not each.mended_at and not inside.isdisjoint(each.entries))
        or (each.mended_at in inside and inside.isdisjoint(each.entries))
    ]
    return tuple(dict.fromkeys(known_lines))[-MAX_LINES:]


class _Finder:
    def __init__(self, tool_roles: ToolRoles) -> None:
        self._tool_roles = tool_roles
        self.open: dict[str, BrokenTool] = {}
        """By the program's name, or by that of the tool behind `_OF_TOOL`."""
        self.mended: list[BrokenTool] = []
        self._worked: set[str] = set()
        self._failures: dict[str, list[tuple[str, str, str]]] = {}
        """By tool its failures since it last worked: words, arguments, entry."""

    def read(self, execution: ToolExecution) -> None:
        role = self._tool_roles.role_of(execution.call.name)
        if role is ToolRole.SHELL:
            self._read_commands(execution)
        elif role not in (ToolRole.PLAN, ToolRole.ITEM_CREATE, ToolRole.ITEM_UPDATE, ToolRole.GOAL):
            self._read_tool(execution)

    def _read_tool(self, execution: ToolExecution) -> None:
        name = execution.call.name
        if not call_failed(execution):
            self._worked.add(name)
            self._failures.pop(name, None)
            self._mend(_OF_TOOL + name, execution.entry)
            return
        words = _first_line(execution.result)
        failures = self._failures.setdefault(name, [])
        failures.append((words, execution.call.arguments, execution.entry))
        alike = [failure for failure in failures if failure[0] == words]
        asked = {arguments for _, arguments, _ in alike}
        never_works = name not in self._worked and len(asked) >= SAME_WORDS_CALLS
        if _CANNOT_RUN.search(words) or (never_works and not _REFUSES_ARGUMENTS.search(words)):
            self.open.pop(_OF_TOOL + name, None)
            self.open[_OF_TOOL + name] = BrokenTool(name, words, tuple(entry for *_, entry in alike), len(failures))

    def _read_commands(self, execution: ToolExecution) -> None:
        text = head_and_tail_of(execution.result)
        failed = call_failed(execution)
        lowered = text.lower()
        is_noted = any(name.split(" ")[0] in execution.call.arguments for name in self.open)
        says_missing = any(mark in lowered for mark in _MISSING_MARKS)
        if not (failed or is_noted or says_missing or "error" in lowered[-400:]):
            return
        commands = parse_command_line("\n".join(command_lines_of(execution, self._tool_roles)))
        missing = missing_names(text) if says_missing else frozenset[str]()
        lacking = [command for command in commands if is_missing(command, missing)]
        for name in [n.removeprefix("-m ") for n in sorted(missing) if any(is_missing(c, {n}) for c in lacking)]:
            lines = lines_containing(text, _MISSING_MARKS).splitlines()
            self._add(name, next((line.strip() for line in lines if name in line), ""), execution.entry)
        outcome = outcome_of_line(commands, execution)
        if not lacking and outcome is CommandOutcome.FAILED and (crashed := _only_program(commands)):
            shown, words = cut_for_display(" ".join(crashed.words), COMMAND_CHARACTERS), crash_line_of(execution)
            # Code in the line may crash by a fault of its own: only what it cannot load is not there.
            if crashed.words[1:2] not in (("-c",), ("-e",)) or _CANNOT_LOAD.search(words):
                self._add(family_of(crashed), words, execution.entry, shown)
        elif not failed:
            for command in commands:
                if not is_missing(command, missing):
                    self._mend_by(command, execution.entry)

    def _mend_by(self, command: ShellCommand, entry: str) -> None:
        family = family_of(command)
        installs = not _INSTALLS.isdisjoint(command.words)
        for name in tuple(self.open):
            if name == family or (installs and name in command.words) or name in _programs_in(command):
                self._mend(name, entry)

    def _add(self, key: str, words: str, entry: str, name: str = "") -> None:
        before = self.open.pop(key, None)
        self.open[key] = BrokenTool(name or key, words, (*(before.entries if before else ()), entry))

    def _mend(self, key: str, entry: str) -> None:
        if broken := self.open.pop(key, None):
            self.mended.append(replace(broken, mended_at=entry))


def _first_line(result: str) -> str:
    lines = (re.sub(r"</?[a-z_]+>", "", line).strip() for line in output_of(result)[:2_000].splitlines())
    return next(filter(None, lines), "")


def _programs_in(command: ShellCommand) -> tuple[str, ...]:
    """The program that a command runs, and the module or program that this one runs."""
    words = command.words
    modules = tuple(words[at + 1].partition(".")[0] for at in range(len(words) - 1) if words[at] == "-m")
    return (*(word.rpartition("/")[2] for word in words[:2]), *modules)


_CANNOT_LOAD = re.compile(r"import|module|load", re.IGNORECASE)


def _only_program(commands: Sequence[ShellCommand]) -> ShellCommand | None:
    """The last command of a line that does work of its own; none where a check or a reader failed."""
    if any(command_kind_of(command.words) for command in commands):
        return None
    working = [command for command in commands if is_working_program(command)]
    return working[-1] if len(working) == 1 else None
