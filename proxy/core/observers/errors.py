"""Collects the errors in failed results: the exception, the failing test, the compiler's message. Results of successful
calls have no errors, whatever a file in them says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from proxy.core.frames import CHANGED, file_name_of
from proxy.core.observers.call_outcomes import call_failed, is_refused_by_user, output_of, was_left_out
from proxy.core.observers.command_outcomes import CommandOutcome
from proxy.core.observers.commands import CommandRun, observe_commands
from proxy.core.observers.effects import programs_in
from proxy.core.observers.files import files_touched_by
from proxy.core.observers.shell import BUILD, LINT, TEST, TYPES, covers
from proxy.core.observers.step import Step, ToolExecution, head_and_tail_of, lines_containing
from proxy.core.observers.tool_roles import DEFAULT_TOOL_ROLES, ToolRole, ToolRoles
from proxy.core.text import cut_for_display

MAX_ERRORS_PER_STEP = 4
MAX_ERROR_LENGTH = 160
FAILED_AT_THE_END = "failed when this part ended"
_RUN_NAMES: Mapping[str, str] = {TEST: "test run", LINT: "lint run", BUILD: "build", TYPES: "type check"}

_ERROR_LINE = re.compile(
    r"""^[ \t]*(?:E[ \t]+)?(?:[\w.]+\.)?\w*(?:Error|Exception|Panic)(?=[:!]|[ \t](?![ \t]*=)|$)[^\n]*  # KeyError: x
      | ^[^\n]{0,200}?\berror[ ](?:TS|CS|C)\d{3,5}\b[^\n]*                            # a.ts(1,2): error TS2739: ...
      | ^error(?:\[\w+\])?:[^\n]+ | ^[^\s:]+:\d+(?::\d+)?:[ ](?:fatal[ ])?error:[^\n]+  # compilers
      | ^[ \t]*---[ ]FAIL:[^\n]+ | ^FAILED[ ][^\n]+ | ^[ \t]*✘[^\n]+ | ^[ \t]*●[ ][^\n]+  # tests
      | ^(?:fatal|panic):[^\n]+
      | ^[^\n]{0,100}:[ ](?:No[ ]such[ ]file[ ]or[ ]directory|command[ ]not[ ]found|Permission[ ]denied
          |No[ ]module[ ]named[ ][^\n]+)
    """,
    re.MULTILINE | re.VERBOSE,
)
_FAILED_TEST = re.compile(r"---[ ]FAIL:|FAILED[ ]|[✘●][ ]?")
"""How a line begins that names a failed test."""
_TEST_OF_PYTEST = re.compile(r"FAILED (\S+::\S+)")
_NAMED_TEST = re.compile(rf"{_TEST_OF_PYTEST.pattern}|---[ ]FAIL:[ ](\S+)")
_MORE_FAILED = "more failed test"
_FAILED_COUNT = re.compile(r"\b(\d+) failed\b")
_FAILED_UNNAMED = re.compile(r"\b\d+ errors?\b|\[(?:build|setup) failed\]|^panic: ", re.MULTILINE)
"""What fails beside the tests that lines name: setups, files that do not load, tests behind a crash."""
_ERROR_WORDS = (
    "error",
    "exception",
    "panic",
    "fail",
    "fatal",
    "✘",
    "●",
    "no such file",
    "not found",
    "permission denied",
    "no module",
)
_SOURCE_LINE = re.compile(r"^\s*(?:raise|throw|except|catch|return|import|from|class|def)\b")
_CODE_OF_FRAME = re.compile(
    r'^([ \t|]*)File "[^"\n]*", line \d+, in [^\n]*\n(?:\1[ \t]+(?!File ")\S[^\n]*(?:\n|\Z)){1,4}', re.MULTILINE
)
"""A place of a traceback with the code that stands there."""
_TAG = re.compile(r"</?[a-z_]+>")
_EXIT_LINE = re.compile(r"^\W*(?:\w+\s){0,4}?exit(?:ed)?\s(?:with\s)?(?:code|status)\W*-?\d+\W*$", re.IGNORECASE)
_WORD = re.compile(r"\w")
_NUMBERS = re.compile(r"\d+|0x[0-9a-f]+")


class ObservedError(msgspec.Struct, frozen=True):
    """An error on one line, and the kind of command that reported it: test, lint, build, types, or empty. `path`: the
    file that a refused call was to change. `command`: the check that failed, or the family of another command."""

    line: str
    kind: str = ""
    path: str = ""
    command: str = ""

    @property
    def check(self) -> str:
        """The check that failed, with the test that the line names."""
        named = _NAMED_TEST.match(self.line)
        return f"{self.command} {named[1] or named[2]}" if named else self.command

    @property
    def told(self) -> str:
        """The line behind the file or the program that it is about, if it does not begin so itself."""
        about = "" if self.kind else file_name_of(self.path) or " ".join(self.command.split(" ")[:2])
        return self.line if self.line.startswith(f"{about}:") or not about else f"{about}: {self.line}"


def observe_errors(step: Step, tool_roles: ToolRoles = DEFAULT_TOOL_ROLES) -> tuple[ObservedError, ...]:
    """Distinct errors of a step, in order; lines that differ only in numbers are one, unless they name tests, and what
    the line of a failed test says is not told once more. Of too many the lines that name a failed test stay first, and
    the last one says how many more tests failed."""
    errors: dict[str, ObservedError] = {}
    for execution in step.executions:
        for error in _errors_of_call(execution, tool_roles):
            is_test = _FAILED_TEST.match(error.line)
            errors.setdefault(error.line if is_test else _NUMBERS.sub("0", error.line), error)
    tests = {error: None for error in errors.values() if _FAILED_TEST.match(error.line)}
    quoted = "\n".join(error.line for error in tests)
    observed = tuple(e for e in errors.values() if e in tests or e.line.removeprefix("E ").strip() not in quoted)
    if len(observed) <= MAX_ERRORS_PER_STEP:
        return observed
    chosen = {*[*tests, *(error for error in observed if error not in tests)][:MAX_ERRORS_PER_STEP]}
    beyond = [*tests][MAX_ERRORS_PER_STEP:]
    more = [replace(beyond[0], line=f"{len(beyond)} {_MORE_FAILED}{'s' if len(beyond) > 1 else ''}")] if beyond else []
    return (*(error for error in observed if error in chosen), *more)


def resolution_of(error: ObservedError, probes: Mapping[str, bool]) -> str:
    """What the last run of the error's kind of command said (`probes`); empty if unknown. It is told later, so it is in
    the past tense, and says no more than that run did: another test may have passed. Of a test that is named nothing
    is said: who reads on takes it for that one."""
    if error.kind not in probes or (probes[error.kind] and error.check != error.command):
        return ""
    run = _RUN_NAMES[error.kind]
    return f"a later {run} passed" if probes[error.kind] else f"the {run} {FAILED_AT_THE_END}"


def what_failed(step: Step, check: CommandRun, tool_roles: ToolRoles = DEFAULT_TOOL_ROLES) -> Sequence[str]:
    """The checks that have to pass for a failed one of the step to have passed: of each test that failed in it, where
    it names all of them, else itself."""
    errors = [error for error in observe_errors(step, tool_roles) if error.command == check.command]
    tests = [error.check for error in errors if error.check != error.command]
    counts = [int(number) for execution in step.executions for number in _FAILED_COUNT.findall(execution.result)]
    are_all = not any(_MORE_FAILED in error.line for error in errors) and all(len(tests) == each for each in counts)
    return tests if tests and are_all and all(map(_may_name_all, step.executions)) else (check.command,)


def _may_name_all(execution: ToolExecution) -> bool:
    """Whether lines may name all that failed: nothing without a name did, and without a count nothing is cut off."""
    result = execution.result
    is_cut = "|" in execution.call.arguments or head_and_tail_of(result) != result
    return not _FAILED_UNNAMED.search(result) and (not is_cut or bool(_FAILED_COUNT.search(result)))


def with_later_outcome(error: str, probes: Mapping[str, bool]) -> str:
    """An error as it was told in an earlier part, with what the last runs of a later one said; its own ending is no
    longer true. A run that passed says nothing of a test that is named: it may have left that out."""
    ended = _ENDED_IN_PART.search(error)
    if ended is None:
        return error
    kind = next((kind for kind, run in _RUN_NAMES.items() if run == ended[1]), "")
    passed = probes.get(kind) and not _NAMED_TEST.match(error)
    return error[: ended.start()] + (f" (a later {ended[1]} passed)" if passed else "")


def has_passed_later(error: str, passed: Iterable[str]) -> bool:
    """Whether one of these commands ran the test of pytest that an error names."""
    named = _TEST_OF_PYTEST.match(error)
    return named is not None and any(covers(command, f"pytest {named[1]}") for command in passed)


_ENDED_IN_PART = re.compile(rf" \((?:still failing|(?:the ([a-z ]{{4,12}}) )?{FAILED_AT_THE_END})\)\Z")


def _errors_of_call(execution: ToolExecution, tool_roles: ToolRoles) -> Iterator[ObservedError]:
    if not execution.answered or is_refused_by_user(execution.result) or was_left_out(execution.result):
        return
    runs = (
        observe_commands(Step("", (execution,)), tool_roles)
        if tool_roles.role_of(execution.call.name) is ToolRole.SHELL
        else ()
    )
    has_failed = any(run.outcome is CommandOutcome.FAILED for run in runs) if runs else call_failed(execution)
    if not has_failed or any(run.on_stash for run in runs):
        return  # what failed without the changes is no error of the work
    check = next((run for run in runs if run.kind and run.outcome is CommandOutcome.FAILED), None)
    path = "" if runs else next((f.path for f in files_touched_by(execution.call, tool_roles) if f.how == CHANGED), "")
    programs = (check.command,) if check else () if path else programs_in(execution, tool_roles)
    if not (path or programs):
        return  # it only looked for something
    text = head_and_tail_of(output_of(execution.result))
    marked = lines_containing(_CODE_OF_FRAME.sub("", text), _ERROR_WORDS)
    lines = [line for match in _ERROR_LINE.finditer(marked) if not _SOURCE_LINE.match(line := match[0])]
    if not lines and call_failed(execution):
        lines = _failure_line(text, last=bool(runs))
    for line in lines:
        shown = cut_for_display(_TAG.sub("", line), MAX_ERROR_LENGTH)
        named = next((program for program in programs if shown.startswith(f"{program}: ")), "".join(programs[-1:]))
        yield ObservedError(shown, check.kind if check else "", path, named)


def _failure_line(text: str, *, last: bool) -> list[str]:
    """The first line of a tool's own failure message, without exit codes and rulers; the last one for a command."""
    lines = [line for line in text.splitlines() if _WORD.search(line) and not _EXIT_LINE.match(line)]
    return lines[-1:] if last else lines[:1]
