"""Which commands were run, and how they ended.

A result names an exit code or it does not; where it does not, the output of tests, linters, compilers and type checkers
is understood. The law: **what is not known is `unknown`**: silence is success only for tools that are silent when all
is well, and an exit code behind a pipe is that of the last command, so a failing output outweighs it.

What this module does not do: it keeps nothing. `probes` folds what was run into the last known state of each kind
(S3-05).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum

import msgspec

from proxy.core.observers.call_outcomes import exit_code, failed, output_of, parts_of
from proxy.core.observers.shell import LONGEST, commands_in
from proxy.core.observers.step import HEAD, Done, Step, decoded, ends_of, lines_with
from proxy.core.observers.tool_roles import Known, Names, Role

MOST = 20
"""Commands of one step that are told apart."""
LONGEST_SHOWN = 200
"""Characters of a command as it is told."""


class State(StrEnum):
    """How a command ended."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


TEST, LINT, BUILD, TYPES = "test", "lint", "build", "types"


class Ran(msgspec.Struct, frozen=True):
    """A command on one line, how it ended, and what kind it is: test, lint, build, types, or empty."""

    command: str
    state: State
    kind: str = ""


def commands_seen(step: Step, names: Names) -> tuple[Ran, ...]:
    """The commands of a step, in order. A line of several that are of a kind gives one for each of these."""
    found: list[Ran] = []
    for done in step.done:
        lines = command_lines(done, names)
        results = parts_of(done.result)
        for at, line in enumerate(lines):
            answer = _part(done, results[at]) if len(results) == len(lines) else done
            found += _ran(line, answer)
            if len(found) >= MOST:
                return tuple(found[:MOST])
    return tuple(found)


def probes(ran: Iterable[Ran]) -> Mapping[str, bool]:
    """The last known state of each kind of command: `{"test": False, "lint": True}` (S3-05). A command whose end is
    unknown changes nothing."""
    return {each.kind: each.state is State.OK for each in ran if each.kind and each.state is not State.UNKNOWN}


# ---------------------------------------------------------------------------------------------------- lines of commands
_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "fish", "pwsh", "powershell", "cmd", "cmd.exe"})
_SCRIPTED = re.compile(r"""["']?(?:cmd|command)["']?\s*:\s*("(?:[^"\\]|\\.)*")""")


def command_lines(done: Done, names: Names) -> tuple[str, ...]:
    """The command lines of a call, as they were given; an argv is one line. A script that calls a shell tool (code
    mode) gives the command texts that stand in it."""
    known = names.known(done.call.name)
    if known is None or known.role is not Role.SHELL:
        return ()
    arguments = decoded(done.call.arguments)
    if isinstance(arguments, str):
        texts = (decoded(text) for text in _SCRIPTED.findall(arguments[: 4 * LONGEST]))
        return tuple(text for text in texts if isinstance(text, str))
    return tuple(_lines(arguments, known)) if isinstance(arguments, dict) else ()


def _lines(arguments: Mapping[str, object], known: Known) -> Iterator[str]:
    for name in known.arguments:
        value = arguments.get(name)
        if isinstance(value, str) and value.strip():
            yield value
        elif isinstance(value, list):
            words = [word for word in value if isinstance(word, str)]
            if name == "commands":
                yield from words
            elif words:
                yield _argv(words)
        else:
            continue
        return


def _argv(words: list[str]) -> str:
    """`["bash", "-lc", "make test"]` is the line `make test`."""
    if len(words) > 2 and words[0].rpartition("/")[2] in _SHELLS and words[1].startswith("-"):
        return words[2]
    return " ".join(words)


# ------------------------------------------------------------------------------------------------------------ the state
def _part(done: Done, record: Mapping[str, object]) -> Done:
    """One part of a result of several as a result of its own."""
    said = record.get("result")
    text = said if isinstance(said, str) else ""
    if exit_code(text) is None:
        text = f"{text}\n[exit code {0 if record.get('success') else 1}]"
    return Done(done.call, text, done.entry, done.answered)


def _ran(line: str, done: Done) -> Iterator[Ran]:
    simple = commands_in(line)
    kinds = {kind: command for command in simple if (kind := kind_of(command.words))}
    hidden = any(command.piped for command in simple) or "||" in line or ";" in line or "\n" in line.strip()
    shown = not any(command.written for command in simple)
    for kind, command in kinds.items():
        state = _state_of(done, hidden=hidden)
        if (
            state is State.UNKNOWN
            and shown
            and kind in _SILENT
            and done.answered
            and _NOTHING.match(done.result[:HEAD])
        ):
            state = State.OK
        yield Ran(_shown(" ".join(command.words)), state, kind)
    if not kinds and simple:
        yield Ran(_shown(line), _state(done))


def _shown(line: str) -> str:
    text = " ".join(line[:LONGEST].split())
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"


def _state(done: Done) -> State:
    if not done.answered:
        return State.UNKNOWN
    if failed(done):
        return State.FAILED
    return State.OK if exit_code(done.result) == 0 else State.UNKNOWN


_BROKEN = re.compile(
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
_WELL = re.compile(
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
_BROKEN_MARKS = (
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
_WELL_MARKS = (
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
_SILENT = frozenset({LINT, BUILD, TYPES})
"""Kinds of tools that say nothing when all is well, through a pipe too, but not into a file."""
_NOTHING = re.compile(r"^\W*(?:no output|empty|done)?\W*$", re.IGNORECASE)


def _state_of(done: Done, *, hidden: bool) -> State:
    """`hidden`: the exit code may be that of another command of the line."""
    if not done.answered:
        return State.UNKNOWN
    code = exit_code(done.result)
    if code is not None and (code != 0 or not hidden):
        return State.OK if code == 0 else State.FAILED
    output = ends_of(output_of(done.result))
    if _BROKEN.search(lines_with(output, _BROKEN_MARKS)):
        return State.FAILED
    if _WELL.search(lines_with(output, _WELL_MARKS)):
        return State.OK
    return State.FAILED if failed(done) else State.UNKNOWN


# ------------------------------------------------------------------------------------------------------------- the kind
_LEADING = re.compile(
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
_RUN = (
    r"(?:npm|pnpm|yarn|bun|deno|mise|just|task|make|rake|invoke|composer|nx|turbo|lerna)\s+"
    r"(?:-C\s\S+\s+|--prefix\s\S+\s+|-\S+\s+)*(?:run\s+|task\s+)?"
)
_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        TYPES,
        re.compile(
            rf"(?:mypy|dmypy|pyright|basedpyright|pytype|pyre|tsc|vue-tsc|tsgo|srb|flow|dialyzer|"
            rf"mix\s+dialyzer|phpstan|psalm|"
            rf"cargo\s+check|ty\s+check|{_RUN}(?:type-?check|check-?types|types?|tsc|mypy)(?::\S+)?)(?:\s|$)"
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
            rf"(?:node|tsx|deno)\s+(?:--\S+\s+)*--test|npm\s+(?:t|tst)|{_RUN}(?:tests?)(?:[:_-]\S+)?)(?:\s|$)"
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
            rf"{_RUN}(?:lint|check|format[:-]check|fmt[:-]check)(?:[:_-]\S+)?)(?:\s|$)"
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
            rf"build(?:\s|$)|{_RUN}(?:build|compile)(?:[:_-]\S+)?)(?:\s|$)?"
        ),
    ),
)


def kind_of(words: tuple[str, ...]) -> str:
    """Test, lint, build, types, or empty: by the words of one command."""
    text = " ".join(words)[:LONGEST_SHOWN]
    for _ in range(4):
        shorter = _LEADING.sub("", text, count=1)
        if shorter == text:
            break
        text = shorter
    return next((kind for kind, pattern in _KINDS if pattern.match(text)), "")
