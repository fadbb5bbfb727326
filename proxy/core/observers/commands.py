"""Reads which commands were run and how they ended. Of several commands in a line each has the outcome that its own
evidence tells (`command_outcomes.py`); without evidence it is `unknown`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from proxy.core.observers.call_outcomes import batch_parts_of, exit_code
from proxy.core.observers.command_outcomes import (
    CommandOutcome,
    is_missing,
    missing_names,
    outcome_of_line,
    outcomes_of_checks,
)
from proxy.core.observers.shell import (
    MAX_COMMAND_LINE_LENGTH,
    TreeMove,
    away_at_each,
    changed_around,
    command_kind_of,
    parse_command_line,
    tree_move_of,
)
from proxy.core.observers.step import Step, ToolExecution, decode_json_or_text
from proxy.core.observers.tool_roles import ToolRole, ToolRoles, ToolSpec

MAX_COMMANDS_PER_STEP = 20  # of one step
MAX_DISPLAYED_COMMAND_LENGTH = 200


class CommandRun(msgspec.Struct, frozen=True):
    """A command on one line, its outcome, and its kind: test, lint, build, types, or empty. `on_stash`: it ran while
    the changes of the working tree were stashed, so it says nothing of them. `behind_changes`: its line changed files
    before it, so it says nothing of an edit before the line."""

    command: str
    outcome: CommandOutcome
    kind: str = ""
    on_stash: bool = False
    behind_changes: bool = False


def was_missing(run: CommandRun, step: Step) -> bool:
    """Whether the program or module of this run of the step was not there: then it says nothing about the work."""
    missing = frozenset[str]().union(*(missing_names(execution.result) for execution in step.executions))
    return bool(missing) and any(is_missing(command, missing) for command in parse_command_line(run.command))


def observe_commands(step: Step, tool_roles: ToolRoles, *, away: bool = False) -> tuple[CommandRun, ...]:
    """The commands of a step, in order. A line with several known kinds of command gives one run for each. `away`: the
    changes were stashed before the step."""
    runs: list[CommandRun] = []
    for execution in step.executions:
        lines = command_lines_of(execution, tool_roles)
        results = batch_parts_of(execution.result)
        if len(results) == len(lines):
            for line, result in zip(lines, results, strict=True):
                runs += _runs_in_line(line, _execution_of_part(execution, result), away=away)
        elif lines:
            runs += _runs_in_line("\n".join(lines), execution, away=away)  # one result tells of all of them
        if any("git" in line for line in lines):
            away = away_at_each(parse_command_line("\n".join(lines)), execution.result, away=away)[-1]
        if len(runs) >= MAX_COMMANDS_PER_STEP:
            return tuple(runs[:MAX_COMMANDS_PER_STEP])
    return tuple(runs)


def tree_moves_of(step: Step, tool_roles: ToolRoles) -> Iterator[tuple[TreeMove, str]]:
    """What the commands of a step did to the changes of the working tree, in order, each with the result of its
    call."""
    for execution in step.executions:
        lines = command_lines_of(execution, tool_roles)
        if any("git" in line for line in lines):
            for command in parse_command_line("\n".join(lines)):
                if move := tree_move_of(command):
                    yield move, execution.result


def last_outcome_by_kind(runs: Iterable[CommandRun]) -> Mapping[str, bool]:
    """The last known outcome by kind: `{"test": False, "lint": True}`. Unknown outcomes are skipped, and what ran while
    the changes were stashed."""
    return {
        run.kind: run.outcome is CommandOutcome.OK
        for run in runs
        if run.kind and not run.on_stash and run.outcome is not CommandOutcome.UNKNOWN
    }


_SHELL_PROGRAMS = frozenset({"sh", "bash", "zsh", "dash", "fish", "pwsh", "powershell", "cmd", "cmd.exe"})
_COMMAND_IN_SCRIPT = re.compile(r"""["']?(?:cmd|command)["']?\s*:\s*("(?:[^"\\]|\\.)*")""")


def command_lines_of(execution: ToolExecution, tool_roles: ToolRoles) -> tuple[str, ...]:
    """The command lines of a call as they were given; an argv becomes one line. A script that calls a shell tool (code
    mode) gives the command texts in it."""
    spec = tool_roles.spec_of(execution.call.name)
    if spec is None or spec.role is not ToolRole.SHELL:
        return ()
    arguments = decode_json_or_text(execution.call.arguments)
    if isinstance(arguments, str):
        texts = (
            decode_json_or_text(text) for text in _COMMAND_IN_SCRIPT.findall(arguments[: 4 * MAX_COMMAND_LINE_LENGTH])
        )
        return tuple(text for text in texts if isinstance(text, str))
    return tuple(_lines_in_arguments(arguments, spec)) if isinstance(arguments, dict) else ()


def _lines_in_arguments(arguments: Mapping[str, object], spec: ToolSpec) -> Iterator[str]:
    for name in spec.arguments:
        value = arguments.get(name)
        if isinstance(value, str) and value.strip():
            yield value
        elif isinstance(value, list):
            words = [word for word in value if isinstance(word, str)]
            if name == "commands":
                yield from words
            elif words:
                yield _join_argv(words)
        else:
            continue
        return


def _join_argv(words: list[str]) -> str:
    """`["bash", "-lc", "make test"]` becomes `make test`."""
    if len(words) > 2 and words[0].rpartition("/")[2] in _SHELL_PROGRAMS and words[1].startswith("-"):
        return words[2]
    return " ".join(words)


def _execution_of_part(execution: ToolExecution, record: Mapping[str, object]) -> ToolExecution:
    """One part of a batched result as an execution of its own."""
    part_result = record.get("result")
    text = part_result if isinstance(part_result, str) else ""
    if exit_code(text) is None:
        text = f"{text}\n[exit code {0 if record.get('success') else 1}]"
    return ToolExecution(execution.call, text, execution.entry, execution.answered)


def _runs_in_line(line: str, execution: ToolExecution, *, away: bool) -> Iterator[CommandRun]:
    """The checks and commits of a line, in order; a line without a check is a run itself. A check between two changes
    of files has no outcome: it tells of a state that the line itself left."""
    commands = parse_command_line(line)
    if not any(command_kind_of(command.words) for command in commands):
        if commands:
            on_stash = away and not any(map(tree_move_of, commands))
            yield CommandRun(_shorten_command(line), outcome_of_line(commands, execution), on_stash=on_stash)
        return
    flags = away_at_each(commands, execution.result, away=away)
    away_by_command = {id(command): flag for command, flag in zip(commands, flags[:-1], strict=True)}
    around = {id(command): sides for command, sides in zip(commands, changed_around(commands), strict=True)}
    listed = outcomes_of_checks(commands, execution)
    listed += ((c, "", CommandOutcome.UNKNOWN) for c in commands if (move := tree_move_of(c)) and move.commits)
    for command, kind, outcome in sorted(listed, key=lambda each: commands.index(each[0])):
        on_stash = away_by_command[id(command)]
        before, behind = around[id(command)]
        stays = on_stash or not (before and behind)
        shown_outcome = outcome if stays else CommandOutcome.UNKNOWN
        words = " ".join(command.words) if kind else "git commit"
        yield CommandRun(_shorten_command(words), shown_outcome, kind, on_stash, before)


def _shorten_command(line: str) -> str:
    text = " ".join(line[:MAX_COMMAND_LINE_LENGTH].split())
    return text if len(text) <= MAX_DISPLAYED_COMMAND_LENGTH else text[: MAX_DISPLAYED_COMMAND_LENGTH - 1] + "…"
