"""Decides how each command of a line ended, from evidence that is its own.

An exit code belongs to the last command, and to those that had to succeed before it (`&&`); behind a pipe it proves
nothing of the head. Output belongs to a command that is alone in printing; beside others only a summary in the form of
its kind counts, or a message that names its program. Silence means success only for tools that are silent when all is
well. Everything else is `unknown`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from enum import StrEnum

from proxy.core.memo import late_pattern
from proxy.core.observers.call_outcomes import call_failed, exit_code, output_of, was_left_out
from proxy.core.observers.shell import BUILD, CHECKS, LINT, TEST, TYPES, ShellCommand, command_kind_of
from proxy.core.observers.step import RESULT_HEAD_LENGTH, ToolExecution, head_and_tail_of, lines_containing


class CommandOutcome(StrEnum):
    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


OK, FAILED, UNKNOWN = CommandOutcome.OK, CommandOutcome.FAILED, CommandOutcome.UNKNOWN

_QUIET_NAMES = "cd export set unset source . true : echo printf mkdir rm cp mv touch chmod sleep ulimit alias shopt"
_QUIET = frozenset(_QUIET_NAMES.split())
"""They print nothing of their own, or what they were given."""
_PASSES_ALL = frozenset(["head", "tail", "cat", "tee"])
_FILTER_NAMES = "grep egrep fgrep rg sed awk sort uniq wc tr cut less more column nl jq fold"
_FILTERS = _PASSES_ALL | frozenset(_FILTER_NAMES.split())
_READER_NAMES = "ls find fd diff cmp strings file stat git tree du df env ps"
_READERS = _FILTERS | frozenset(_READER_NAMES.split())
"""They may print what others once said: an error in it is not theirs."""
_ANSWER_BY_CODE = frozenset(
    ["grep", "egrep", "fgrep", "rg", "ag", "pgrep", "diff", "cmp", "test", "[", "which", "type"]
)
"""Exit code 1 is an answer: nothing found, or different."""


def outcomes_of_checks(
    commands: Sequence[ShellCommand], execution: ToolExecution
) -> list[tuple[ShellCommand, str, CommandOutcome]]:
    """The tests, linters, builds and type checkers among the commands of a line, in order, with kind and outcome."""
    kinds = {at: kind for at, command in enumerate(commands) if (kind := command_kind_of(command.words))}
    has_run = execution.answered and not was_left_out(execution.result)
    found = dict.fromkeys(kinds, UNKNOWN) | _outcomes(commands, kinds, execution) if has_run else {}
    return [(commands[at], kind, found.get(at, UNKNOWN)) for at, kind in kinds.items()]


def outcome_of_line(commands: Sequence[ShellCommand], execution: ToolExecution) -> CommandOutcome:
    """How a line without a check ended as a whole."""
    if not execution.answered or was_left_out(execution.result):
        return UNKNOWN
    code = _reported_code(execution)
    if code is not None and code != 0:
        return UNKNOWN if code == 1 and commands and _program(commands[-1]) in _ANSWER_BY_CODE else FAILED
    noisy = [at for at, command in enumerate(commands) if _program(command) not in _QUIET]
    if code == 0:
        proven = _proven_by_exit_code(commands, 0)
        return OK if all(at in proven for at in noisy or [len(commands) - 1]) else UNKNOWN
    one_ending = all(command.operator in ("", "&&") for command in commands) or len(noisy) == 1
    missing = missing_names(execution.result)
    if one_ending and (call_failed(execution) or any(is_missing(commands[at], missing) for at in noisy)):
        return FAILED
    only_git = all(_program(command) in _QUIET | _READERS for command in commands)
    if only_git and _COMMITTED.search(head_and_tail_of(execution.result)):
        return OK
    alone = [at for at in noisy if not _reads_from_pipe(commands, at)]
    if len(alone) == 1 and _program(commands[alone[0]]) not in _READERS and _ends_in_failure(execution.result):
        return FAILED
    return UNKNOWN


_COMMITTED = late_pattern(r"^\[\S+ (?:\(root-commit\) )?[0-9a-f]{7,40}\] ", re.MULTILINE)
"""How `git commit` tells what it made."""


def summary_line_of(
    kind: str, outcome: CommandOutcome, execution: ToolExecution, *, place: int = 0, alike: int = 1
) -> str:
    """The line in which a check summed up that it ended so: `2 failed, 3 passed in 1s`. It is the check at `place`
    among `alike` checks of its kind in one output. Empty without such a line, or where it is not known whose it is."""
    output = _own_output_of(execution)
    pattern = (_FAILURE_BY_KIND if outcome is FAILED else _SUCCESS_BY_KIND)[kind]
    if alike == 1:
        lines = lines_containing(output, _FAILURE_WORDS if outcome is FAILED else _SUCCESS_WORDS).splitlines()
        found = sorted(filter(pattern.search, lines), key=lambda line: _TIMED_SUMMARY.match(line) is not None)
        return found[-1].strip(" =\t") if found else ""
    lines = lines_containing(output, (*_FAILURE_WORDS, *_SUCCESS_WORDS)).splitlines()
    lines = [line for line in lines if _FAILURE_BY_KIND[kind].search(line) or _SUCCESS_BY_KIND[kind].search(line)]
    return lines[place].strip(" =\t") if len(lines) == alike and pattern.search(lines[place]) else ""


def _reported_code(execution: ToolExecution) -> int | None:
    code = exit_code(execution.result)
    return 2 if code is None and execution.failed else code


def _program(command: ShellCommand) -> str:
    return command.words[0].rpartition("/")[2] if command.words else ":"


def _reads_from_pipe(commands: Sequence[ShellCommand], at: int) -> bool:
    return at > 0 and commands[at - 1].is_piped


# ------------------------------------------------------------------------------------------------------------ evidence
def _own_output_of(execution: ToolExecution) -> str:
    """What was printed, without lines that say nothing of a check whatever words they have."""
    return _OF_SOMETHING_ELSE.sub("", head_and_tail_of(output_of(execution.result)))


_OF_SOMETHING_ELSE = late_pattern(
    r"^(?:@@ -\d.*(?:\n[-+ \\].*)*|\+.*|.*\bHTTP/\d(?:\.\d)?\"? \d{3}\b.*)$", re.MULTILINE
)
"""Lines of a diff, the answer of a server, its access log."""


def _outcomes(
    commands: Sequence[ShellCommand], kinds: Mapping[int, str], execution: ToolExecution
) -> dict[int, CommandOutcome]:
    """What is known of each command, by its position."""
    code = _reported_code(execution)
    outcomes = _proven_by_exit_code(commands, code) if code is not None else {}
    output = _own_output_of(execution)
    missing = missing_names(output)
    shown: dict[int, CommandOutcome] = {}
    for at, kind in kinds.items():
        if outcomes.get(at) is None:
            shown[at] = _outcome_by_output(commands, kinds, at, kind, output, missing, execution)
    outcomes |= {at: outcome for at, outcome in shown.items() if outcome is not UNKNOWN}
    for at in tuple(outcomes):
        if outcomes[at] is not UNKNOWN:
            outcomes = dict.fromkeys(_needed_before(commands, at), OK) | outcomes
    if code:
        outcomes |= _only_one_left(commands, outcomes)
    return outcomes


def _proven_by_exit_code(commands: Sequence[ShellCommand], code: int) -> dict[int, CommandOutcome]:
    last = len(commands) - 1
    if last < 0:
        return {}
    if code == 0:
        proven = _needed_before(commands, last) if commands[last].operator != "&" else ()
        if any(command.operator == "||" for command in commands[_list_start(commands) :]):
            return {}
        return dict.fromkeys((*proven, last), OK)
    return _only_one_left(commands, {})


def _list_start(commands: Sequence[ShellCommand]) -> int:
    """Where the last and-or list begins: the exit code is told of this one alone."""
    ends = (at for at in range(len(commands) - 2, -1, -1) if commands[at].operator not in ("&&", "||", "|", "|&"))
    return next(ends, -1) + 1


def _needed_before(commands: Sequence[ShellCommand], at: int) -> list[int]:
    """The commands that succeeded if this one ran: those joined to it by `&&`; of a pipeline only its last command."""
    needed = []
    for before in range(at - 1, -1, -1):
        if commands[before].operator == "&&":
            needed.append(before)
        elif not commands[before].is_piped:
            break
    return needed


def _only_one_left(commands: Sequence[ShellCommand], known: Mapping[int, CommandOutcome]) -> dict[int, CommandOutcome]:
    """The one command of the last list that can have failed, if no other can. A filter fails for what it finds, so it
    hides which of its pipeline did; `head` and `tail` do not fail, so the shell told of the head (`pipefail`)."""
    span = range(_list_start(commands), len(commands))
    if any(known.get(at) is FAILED for at in span) or any(commands[at].operator == "||" for at in span):
        return {}
    left = [
        at
        for at in span
        if known.get(at) is not OK
        and _program(commands[at]) not in _QUIET
        and not (_reads_from_pipe(commands, at) and _program(commands[at]) in _PASSES_ALL)
    ]
    return {left[0]: FAILED} if len(left) == 1 else {}


def _outcome_by_output(  # noqa: PLR0913  one command, what stands around it, and what was printed
    commands: Sequence[ShellCommand],
    kinds: Mapping[int, str],
    at: int,
    kind: str,
    output: str,
    missing: frozenset[str],
    execution: ToolExecution,
) -> CommandOutcome:
    if is_missing(commands[at], missing):
        return FAILED
    if kind in _SILENT_ON_SUCCESS and _was_silent(commands, at, execution):
        return OK
    failure = lines_containing(output, _FAILURE_WORDS)
    success = lines_containing(output, _SUCCESS_WORDS)
    if _prints_alone(commands, at):
        if _FAILURE_OUTPUT.search(failure) or _FAILURE_BY_KIND[kind].search(failure):
            return FAILED
        if any(pattern.search(success) for pattern in (_SUCCESS_OUTPUT, *_SUCCESS_BY_KIND.values())):
            return OK
        return FAILED if _reported_code(execution) is None and call_failed(execution) else UNKNOWN
    alike = [position for position, other in kinds.items() if other == kind]
    shows_file = any(_program(command) == "cat" for command in commands)  # maybe with summaries of an earlier run
    if kind == TEST and not shows_file and len(summaries := _TIMED_SUMMARY.findall(output)) == len(alike):
        return FAILED if _FAILURE_BY_KIND[kind].search(summaries[alike.index(at)]) else OK
    if _FAILURE_BY_KIND[kind].search(failure):
        return FAILED if len(alike) == 1 else UNKNOWN
    return OK if len(_SUCCESS_BY_KIND[kind].findall(success)) >= len(alike) else UNKNOWN


def _prints_alone(commands: Sequence[ShellCommand], at: int) -> bool:
    """Whether all that was printed is this command's: the others are quiet, or filter its output."""
    end = at
    while end + 1 < len(commands) and commands[end].is_piped and _program(commands[end + 1]) in _FILTERS:
        end += 1
    others = [command for position, command in enumerate(commands) if not at <= position <= end]
    return all(_program(command) in _QUIET for command in others)


def _was_silent(commands: Sequence[ShellCommand], at: int, execution: ToolExecution) -> bool:
    """Whether nothing was printed that would have been seen: not into a file, and not through a filter."""
    if not _EMPTY_OUTPUT.match(output_of(execution.result)[:RESULT_HEAD_LENGTH]):
        return False
    end = at
    while end + 1 < len(commands) and commands[end].is_piped:
        end += 1
        if _program(commands[end]) not in _PASSES_ALL:
            return False
    return not any(command.output_files for command in commands)


_MISSING_WORDS = (
    "no module named",
    "not found",
    "not recognized",
    "failed to spawn",
    "no such command",
    "unknown command",
    "missing script",
    "no rule to make",
)
_MISSING_PROGRAM = late_pattern(
    r"""(?: ^(?:[^\n:]*:\s)?No\smodule\snamed\s['"]?(?P<module>[\w.-]+)
      | ([\w./-]+):\s(?:command\s)?not\sfound\b(?!:\s)
      | \bcommand\snot\sfound:\s([\w./-]+)
      | ['"]?([\w./-]+)['"]?:?\s(?:is\snot\srecognized|executable\sfile\snot\sfound)
      | (?:failed\sto\sspawn|no\ssuch\scommand|unknown\scommand|missing\sscript)[:\s]*[`'"]+([\w:./-]+)
      | no\srule\sto\smake\starget\s[`'"]([\w./-]+)
    )""",
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
_PROGRAM_WORDS = 4
"""Words of a command that can name what is run: `uv run --quiet pytest`."""


def crash_line_of(execution: ToolExecution) -> str:
    """The line in which a program said why it ended: the last one, else the first."""
    lines = [line.strip() for line in head_and_tail_of(output_of(execution.result)).splitlines() if line.strip()]
    failure_lines = (line for line in reversed(lines) if _LAST_LINE_FAILS.match(line))
    return next(failure_lines, lines[0] if lines else "")


def is_working_program(command: ShellCommand) -> bool:
    """Whether a command does something of its own: it neither only reads, nor prepares for others."""
    program = _program(command)
    return program not in _QUIET and program not in _READERS and program not in _ANSWER_BY_CODE


def missing_names(output: str) -> frozenset[str]:
    """Programs and modules (as `-m name`) that the output says are not there."""
    lines = lines_containing(head_and_tail_of(output), _MISSING_WORDS)
    names = set()
    for match in _MISSING_PROGRAM.finditer(lines):
        if module := match["module"]:
            names.add(f"-m {module.partition('.')[0]}")
        else:
            names.update(name.rpartition("/")[2] for name in match.groups()[1:] if name)
    return frozenset(names)


def is_missing(command: ShellCommand, missing: Set[str]) -> bool:
    if not missing:
        return False
    words = command.words
    modules = (f"-m {words[at + 1].partition('.')[0]}" for at in range(len(words) - 1) if words[at] == "-m")
    return any(word.rpartition("/")[2] in missing for word in words[:_PROGRAM_WORDS]) or any(
        module in missing for module in modules
    )


_LAST_LINE_FAILS = late_pattern(r"^(?:[\w.]*(?:Error|Exception|Exit|Interrupt)\b(?::|$)|(?:fatal|panic|error):\s)")
_TRACEBACK = late_pattern(
    r"^Traceback \(most recent call last\)|^\s+at .+:\d+|^panic: |^(?:fatal|error): |^\w*Error: ", re.MULTILINE
)


def _ends_in_failure(text: str) -> bool:
    """Whether a program's last words are those of a crash."""
    output = head_and_tail_of(output_of(text)).rstrip()
    last_line = output.rpartition("\n")[2].strip()
    return bool(_LAST_LINE_FAILS.match(last_line) and _TRACEBACK.search(output))


# ------------------------------------------------------------------------------------------------------------ patterns
_FLAGS = re.IGNORECASE | re.MULTILINE | re.VERBOSE
_TIMED_SUMMARY = late_pattern(
    r"^[= ]*((?:\d+ \w+, )*\d+ (?:passed|failed|errors?|skipped|x\w+)(?:, \d+ \w+)*) in \d[\d.]*s\b", re.MULTILINE
)
"""How pytest sums up one run."""
_FAILURE_BY_KIND = {name: late_pattern(kind.failure, _FLAGS) for name, kind in CHECKS.kinds.items()}
_SUCCESS_BY_KIND = {name: late_pattern(kind.success, _FLAGS) for name, kind in CHECKS.kinds.items()}
_FAILURE_OUTPUT, _SUCCESS_OUTPUT = late_pattern(CHECKS.any.failure, _FLAGS), late_pattern(CHECKS.any.success, _FLAGS)
_FAILURE_MARKS = "fail error err! issue problem traceback panic fault reformat *** ✘ ✗ ✕ offense found"
_FAILURE_WORDS = (*_FAILURE_MARKS.split(), ": ")
_SUCCESS_MARKS = "pass ok success succeed built file finished"
_SUCCESS_WORDS = (*_SUCCESS_MARKS.split(), "0 ", "no issues", "no problems", "no errors")
_SILENT_ON_SUCCESS = frozenset({LINT, BUILD, TYPES})
_EMPTY_OUTPUT = late_pattern(r"^\W*(?:no output|empty|done)?\W*$", re.IGNORECASE)
