"""Reads which commands were run and how they ended: by exit code, or else by the output of tests, linters, compilers
and type checkers. Without evidence the outcome is `unknown`. Silence means success only for tools that are silent when
all is well. Behind a pipe the exit code is the last command's, so failing output outweighs it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum

import msgspec

from proxy.core.observers.call_outcomes import batch_parts_of, call_failed, exit_code, output_of
from proxy.core.observers.shell import MAX_COMMAND_LINE_LENGTH, parse_command_line
from proxy.core.observers.step import (
    RESULT_HEAD_LENGTH,
    Step,
    ToolExecution,
    decode_json_or_text,
    head_and_tail_of,
    lines_containing,
)
from proxy.core.observers.tool_roles import ToolRole, ToolRoles, ToolSpec

MAX_COMMANDS_PER_STEP = 20  # of one step
MAX_DISPLAYED_COMMAND_LENGTH = 200


class CommandOutcome(StrEnum):
    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


TEST, LINT, BUILD, TYPES = "test", "lint", "build", "types"


class CommandRun(msgspec.Struct, frozen=True):
    """A command on one line, its outcome, and its kind: test, lint, build, types, or empty."""

    command: str
    outcome: CommandOutcome
    kind: str = ""


def observe_commands(step: Step, tool_roles: ToolRoles) -> tuple[CommandRun, ...]:
    """The commands of a step, in order. A line with several known kinds of command gives one run for each."""
    runs: list[CommandRun] = []
    for execution in step.executions:
        lines = command_lines_of(execution, tool_roles)
        results = batch_parts_of(execution.result)
        for index, line in enumerate(lines):
            answer = _execution_of_part(execution, results[index]) if len(results) == len(lines) else execution
            runs += _runs_in_line(line, answer)
            if len(runs) >= MAX_COMMANDS_PER_STEP:
                return tuple(runs[:MAX_COMMANDS_PER_STEP])
    return tuple(runs)


def last_outcome_by_kind(runs: Iterable[CommandRun]) -> Mapping[str, bool]:
    """The last known outcome by kind: `{"test": False, "lint": True}`. Unknown outcomes are skipped."""
    return {
        run.kind: run.outcome is CommandOutcome.OK
        for run in runs
        if run.kind and run.outcome is not CommandOutcome.UNKNOWN
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


def _runs_in_line(line: str, execution: ToolExecution) -> Iterator[CommandRun]:
    commands = parse_command_line(line)
    kinds = {kind: command for command in commands if (kind := command_kind_of(command.words))}
    hidden = any(command.is_piped for command in commands) or "||" in line or ";" in line or "\n" in line.strip()
    is_displayed = not any(command.output_files for command in commands)
    for kind, command in kinds.items():
        outcome = _outcome_of_check(execution, hidden=hidden)
        if (
            outcome is CommandOutcome.UNKNOWN
            and is_displayed
            and kind in _SILENT_ON_SUCCESS
            and execution.answered
            and _EMPTY_OUTPUT.match(execution.result[:RESULT_HEAD_LENGTH])
        ):
            outcome = CommandOutcome.OK
        yield CommandRun(_shorten_command(" ".join(command.words)), outcome, kind)
    if not kinds and commands:
        yield CommandRun(_shorten_command(line), _outcome_of_call(execution))


def _shorten_command(line: str) -> str:
    text = " ".join(line[:MAX_COMMAND_LINE_LENGTH].split())
    return text if len(text) <= MAX_DISPLAYED_COMMAND_LENGTH else text[: MAX_DISPLAYED_COMMAND_LENGTH - 1] + "…"


def _outcome_of_call(execution: ToolExecution) -> CommandOutcome:
    if not execution.answered:
        return CommandOutcome.UNKNOWN
    if call_failed(execution):
        return CommandOutcome.FAILED
    return CommandOutcome.OK if exit_code(execution.result) == 0 else CommandOutcome.UNKNOWN


_FAILURE_OUTPUT = re.compile(
    r"""(?: \b[1-9]\d*\s(?:(?:test|spec|suite)s?\s)?(?:failed|failing|failures?|errored|errors?|problems?|issues?)\b
          | \b(?:failed|failures?|errors|issues)\s*[:=]\s*[1-9]
          | ^\s*(?:---\s)?FAIL(?:ED)?\b | \bBUILD\sFAIL(?:ED|URE)\b | \btest\sresult:\sFAILED
          | ^\s*(?:\x1b\[[\d;]*m)*error(?:\[\w+\])?\s*: | \berror\s(?:TS|CS|C)\d{3,5}\b
          | \):\serror\b | :\d+:\s(?:fatal\s)?error:
          | ^Traceback\s\(most\srecent\scall\slast\) | ^panic: | \bsegmentation\sfault\b
          | ^\s*would\sreformat\b | ^npm\s(?:ERR!|error)\b | ^make(?:\[\d+\])?:\s\*\*\* | \btask\sfailed\b
          | \bcommand\snot\sfound\b | ^\s*✘
        )""",
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
_SUCCESS_OUTPUT = re.compile(
    r"""(?: \b[1-9]\d*\s(?:tests?\s|specs?\s|suites?\s)?(?:passed|passing|succeeded|ok)\b
          | \b0\s(?:tests?\s)?(?:failed|failures?|errors?|issues|problems|offenses|warnings)\b
          | \b(?:passed|pass)\s*[:=]\s*[1-9]
          | ^ok\b | ^PASS(?:ED)?\b | ^OK\b | \btest\sresult:\sok\b
          | \bpassed\ssuccessfully\b | \bAll\schecks\spassed\b | \bSuccess:\sno\sissues\b
          | \bno\s(?:issues|problems|errors)\sfound\b
          | \bBUILD\sSUCCESS(?:FUL)?\b | \bBuild\ssucceeded\b | \bbuilt\sin\s\d | \bCompiled\ssuccessfully\b
          | \bfiles?\s(?:already\sformatted|left\sunchanged|would\sbe\sleft\sunchanged)\b
          | ^\s*Finished\b.*\bprofile\b
        )""",
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
_FAILURE_WORDS = (
    "fail",
    "error",
    "err!",
    "issue",
    "problem",
    "traceback",
    "panic",
    "fault",
    "reformat",
    "***",
    "✘",
    "not found",
)
_SUCCESS_WORDS = (
    "pass",
    "ok",
    "success",
    "succeed",
    "0 ",
    "no issues",
    "no problems",
    "no errors",
    "built",
    "file",
    "finished",
)
_SILENT_ON_SUCCESS = frozenset({LINT, BUILD, TYPES})  # silent when all is well, also behind a pipe, but not into a file
_EMPTY_OUTPUT = re.compile(r"^\W*(?:no output|empty|done)?\W*$", re.IGNORECASE)


def _outcome_of_check(execution: ToolExecution, *, hidden: bool) -> CommandOutcome:
    """`hidden`: the exit code may be another command's."""
    if not execution.answered:
        return CommandOutcome.UNKNOWN
    code = exit_code(execution.result)
    if code is not None and (code != 0 or not hidden):
        return CommandOutcome.OK if code == 0 else CommandOutcome.FAILED
    output = head_and_tail_of(output_of(execution.result))
    if _FAILURE_OUTPUT.search(lines_containing(output, _FAILURE_WORDS)):
        return CommandOutcome.FAILED
    if _SUCCESS_OUTPUT.search(lines_containing(output, _SUCCESS_WORDS)):
        return CommandOutcome.OK
    return CommandOutcome.FAILED if call_failed(execution) else CommandOutcome.UNKNOWN


_WRAPPER_PREFIX = re.compile(
    r"""^(?: (?:sudo|time|nohup|env|command|exec|npx|bunx|uvx|xvfb-run|winpty|stdbuf\s-\w+)\s+
          | timeout\s+(?:-\S+\s+)*\S+\s+
          | [A-Za-z_]\w*=\S*\s+
          | (?:uv|poetry|pipenv|pdm|hatch|rye|conda|pixi)\s+run\s+(?:-\S+\s+)*
          | (?:pnpm|yarn|npm|bun)\s+(?:exec|dlx|x)\s+(?:--\s+)?
          | bundle\s+exec\s+
          | (?:\S*/)?python[\d.]*\s+(?:-[XWu]\S*\s+)*-m\s+
          | (?:\S*/)?(?:node_modules/\.bin|bin|\.venv/bin|venv/bin)/
          | \./ )""",
    re.VERBOSE,
)
_TASK_RUNNER = (
    r"(?:npm|pnpm|yarn|bun|deno|mise|just|task|make|rake|invoke|composer|nx|turbo|lerna)\s+"
    r"(?:-C\s\S+\s+|--prefix\s\S+\s+|-\S+\s+)*(?:run\s+|task\s+)?"
)
_KIND_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        TYPES,
        re.compile(
            rf"(?:mypy|dmypy|pyright|basedpyright|pytype|pyre|tsc|vue-tsc|tsgo|srb|flow|dialyzer|"
            rf"mix\s+dialyzer|phpstan|psalm|"
            rf"cargo\s+check|ty\s+check|{_TASK_RUNNER}(?:type-?check|check-?types|types?|tsc|mypy)(?::\S+)?)(?:\s|$)"
        ),
    ),
    (
        TEST,
        re.compile(
            rf"(?:pytest|py\.test|unittest|nose2?|tox|nox|jest|vitest|mocha|ava|karma|rspec|phpunit|pest|ctest|"
            rf"bats|prove|go\s+test|gotestsum|cargo\s+(?:test|nextest)|mix\s+test|swift\s+test|dotnet\s+test|"
            rf"(?:playwright|bazel|hatch|zig|flutter|dart)\s+test|cypress\s+run|(?:\S*/)?(?:mvnw?|"
            rf"gradlew?)\s.*\b(?:test|verify|check)|"
            rf"\S*python[\d.]*\s+\S*(?:runtests?|manage|setup)\.py\s+test|"
            rf"\S*python[\d.]*\s+\S*runtests?\.py|(?:\S*/)?runtests?\.py|"
            rf"(?:node|tsx|deno)\s+(?:--\S+\s+)*--test|npm\s+(?:t|tst)|{_TASK_RUNNER}(?:tests?)(?:[:_-]\S+)?)(?:\s|$)"
        ),
    ),
    (
        LINT,
        re.compile(
            rf"(?:ruff|flake8|pylint|pycodestyle|eslint|biome|oxlint|golangci-lint|staticcheck|revive|"
            rf"rubocop|standardrb|"
            rf"shellcheck|stylelint|swiftlint|ktlint|detekt|hadolint|credo|mix\s+(?:credo|format\s+--check\S*)|"
            rf"go\s+vet|gofmt\s+-l|cargo\s+(?:clippy|fmt\s.*--check)|pre-commit|lint-imports|"
            rf"(?:prettier|black|isort)\s.*(?:--check|-c\b|--diff).*|"
            rf"{_TASK_RUNNER}(?:lint|check|format[:-]check|fmt[:-]check)(?:[:_-]\S+)?)(?:\s|$)"
        ),
    ),
    (
        BUILD,
        re.compile(
            rf"(?:make(?:\s+-\S+)*(?:\s+(?:all|build|install))?\s*$|cmake|ninja|meson\s+compile|"
            rf"cargo\s+build|go\s+(?:build|install)|"
            rf"(?:\S*/)?(?:mvnw?|gradlew?)\s.*\b(?:package|compile\w*|install|build|assemble\w*)|"
            rf"dotnet\s+build|docker\s+(?:buildx\s+)?build|"
            rf"mix\s+compile|(?:vite|next|nuxt|astro|ng|bazel|swift|zig|flutter|hatch|poetry|uv)\s+build|"
            rf"webpack|rollup|esbuild|tsup|"
            rf"build(?:\s|$)|{_TASK_RUNNER}(?:build|compile)(?:[:_-]\S+)?)(?:\s|$)?"
        ),
    ),
)


def command_kind_of(words: tuple[str, ...]) -> str:
    """The kind of a command by its words: test, lint, build, types, or empty."""
    text = " ".join(words)[:MAX_DISPLAYED_COMMAND_LENGTH]
    for _ in range(4):
        shorter = _WRAPPER_PREFIX.sub("", text, count=1)
        if shorter == text:
            break
        text = shorter
    return next((kind for kind, pattern in _KIND_PATTERNS if pattern.match(text)), "")
