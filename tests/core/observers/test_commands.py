"""S3-05: commands, how they ended, and the probes they leave; errors and decisions beside them."""

import pytest

from proxy.core.observers.call_outcomes import call_failed
from proxy.core.observers.command_outcomes import CommandOutcome
from proxy.core.observers.commands import CommandRun, last_outcome_by_kind, observe_commands
from proxy.core.observers.decisions import observe_decisions
from proxy.core.observers.errors import ObservedError, observe_errors, resolution_of
from proxy.core.observers.files import observe_files
from proxy.core.observers.step import ToolExecution
from proxy.core.observers.tool_roles import DEFAULT_TOOL_ROLES
from proxy.core.observers.work_log import step_line
from tests.core.observers.steps import done, raw, step

HEADER = "Chunk ID: c34c81\nWall time: 0.0 seconds\nProcess exited with code 1\nOriginal token count: 9\nOutput:\n"
"""What Codex writes above an output."""
SILENT = HEADER.replace("code 1", "code 0")
OK, FAILED, UNKNOWN = CommandOutcome.OK, CommandOutcome.FAILED, CommandOutcome.UNKNOWN


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (done("bash", "Exit code 1\nx", command="cat a"), [("cat a", FAILED, "")]),
        (done("bash", "x", command="cat a"), [("cat a", UNKNOWN, "")]),
        (done("exec_command", "Wall time: 0\nProcess exited with code 0\nOutput:\n", cmd="ls"), [("ls", OK, "")]),
        (done("shell", "x", command=["bash", "-lc", "ls -la"]), [("ls -la", UNKNOWN, "")]),
        (done("shell", "x", command=["ls", "-la"]), [("ls -la", UNKNOWN, "")]),
        (done("bash", '{"returncode": 0, "output": ""}', command="ls"), [("ls", OK, "")]),
        (done("bash", "<returncode>1</returncode>\n<output>x</output>", command="ls"), [("ls", FAILED, "")]),
        (done("bash", "<output>\n</output>\n<Return_Code>0</Return_Code>", command="ls"), [("ls", OK, "")]),
        (done("bash", "x\nEXIT STATUS 3", command="ls"), [("ls", FAILED, "")]),
        (
            done(
                "run_commands",
                '[{"query":"a","result":"","success":true},{"query":"b","success":false}]',
                commands=["a", "b"],
            ),
            [("a", OK, ""), ("b", FAILED, "")],
        ),
        (raw("exec", 'await tools.exec_command({"cmd": "ls -la"})'), [("ls -la", UNKNOWN, "")]),
        (done("read", command="ls"), []),
        (raw("bash", "{}"), []),
        (raw("bash", '{"command": 7}'), []),
        (done("bash", "5 passed in 1s", command="cd app && pytest -q"), [("pytest -q", OK, "test")]),
        (done("bash", "2 failed, 5 passed", command="pytest | tail -3"), [("pytest", FAILED, "test")]),
        (done("bash", "1 failed\n\nExit code: 0", command="pytest | tail -3"), [("pytest", FAILED, "test")]),
        (done("bash", "1 failed\n\nExit code: 0", command="pytest"), [("pytest", OK, "test")]),
        (done("bash", "0 failed, 5 passed", command="npx jest"), [("npx jest", OK, "test")]),
        (done("bash", "--- FAIL: TestX (0.1s)\nFAIL", command="go test ./..."), [("go test ./...", FAILED, "test")]),
        (done("bash", "ok  \tshop/api\t0.3s", command="go test ./..."), [("go test ./...", OK, "test")]),
        (
            done("bash", "a.ts(1,2): error TS2345: no", command="npx tsc --noEmit"),
            [("npx tsc --noEmit", FAILED, "types")],
        ),
        (done("bash", "", command="npx tsc --noEmit"), [("npx tsc --noEmit", OK, "types")]),
        (done("bash", "", command="pytest"), [("pytest", UNKNOWN, "test")]),
        (done("bash", "(no output)", command="go build ./... 2>&1 | head"), [("go build ./...", OK, "build")]),
        (done("bash", "(no output)", command="go build ./... > log.txt"), [("go build ./...", UNKNOWN, "build")]),
        (
            done("bash", "All checks passed!\nSuccess: no issues found", command="ruff check . && mypy ."),
            [("ruff check .", OK, "lint"), ("mypy .", OK, "types")],
        ),
        (done("bash", "bash: pytest: command not found", command="pytest"), [("pytest", FAILED, "test")]),
        (
            done("bash", "x", command="CI=1 timeout 60 uv run pytest tests"),
            [("timeout 60 uv run pytest tests", UNKNOWN, "test")],
        ),
        (done("bash", "Exit code 2", command="make build"), [("make build", FAILED, "build")]),
        (done("bash", "", command="pytest", answered=False), [("pytest", UNKNOWN, "test")]),
        (done("bash", "x", command="grep pytest setup.cfg"), [("grep pytest setup.cfg", UNKNOWN, "")]),
        (done("bash", "3 passed in 1s", command="py -3 -m pytest"), [("py -3 -m pytest", OK, "test")]),
        (done("exec_command", SILENT, cmd="npx tsc | tail"), [("npx tsc", OK, "types")]),
        (
            done("exec_command", f"{HEADER}/usr/bin/python3", cmd="which python3 pytest"),
            [("which python3 pytest", UNKNOWN, "")],
        ),
    ],
)
def test_a_command_and_how_it_ended(made: ToolExecution, told: list[tuple[str, CommandOutcome, str]]) -> None:
    assert observe_commands(step(made), DEFAULT_TOOL_ROLES) == tuple(CommandRun(*each) for each in told)


CHECKS = {
    "pytest -q": "test",
    "pytest -q a": "test",
    "pytest -q b": "test",
    "ruff check .": "lint",
    "python -m flake8 agate": "lint",
    "mypy .": "types",
    "go test ./a": "test",
}


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    ("line", "output", "told"),
    [
        # each its own: the summary is the test's, the missing module the linter's
        ("pytest -q | tail -1; python -m flake8 agate", "393 passed\npython: No module named flake8", [OK, FAILED]),
        ("pytest -q; ruff check .", "393 passed in 2s\n/bin/sh: ruff: command not found", [OK, FAILED]),
        ("pytest -q; ruff check .", "393 passed in 2s\nzsh: command not found: ruff", [OK, FAILED]),
        ("ruff check . ; pytest -q", "393 passed", [UNKNOWN, OK]),
        ("cat old.log; pytest -q a; pytest -q b", "1 failed in 1s\nCrash\n2 passed in 1s", [UNKNOWN, UNKNOWN]),
        (
            "pytest -q a | tail -5; pytest -q b",
            "FAILED a::x\n1 failed, 9 passed in 2s\n17 passed in 0.1s",
            [FAILED, OK],
        ),
        ("pytest -q a; pytest -q b", "=== 17 passed in 0.1s ===\n=== 2 failed in 2.03s ===", [OK, FAILED]),
        (
            "pytest -q a; ./more.sh; pytest -q b",
            "1 failed in 1s\n2 passed in 1s\n3 passed in 1s",
            [UNKNOWN] * 2,
        ),
        ("pytest -q; mypy .", "393 passed\nFound 3 errors in 2 files (checked 5 source files)", [OK, FAILED]),
        ("pytest -q; ruff check .", "3 passed\na.py:1:2: F401 unused\nFound 1 error.", [OK, FAILED]),
        # what ran later says that what it waited for succeeded, and the exit code only tells of the last
        ("ruff check . && pytest -q", "2 failed, 3 passed", [OK, FAILED]),
        ("ruff check . && mypy .", "x\nExit code: 0", [OK, OK]),
        ("ruff check . ; mypy .", "x\nExit code: 0", [UNKNOWN, OK]),
        ("ruff check . || mypy .", "x\nExit code: 0", [UNKNOWN, UNKNOWN]),
        ("ruff check . && mypy .", "x\nExit code: 1", [UNKNOWN, UNKNOWN]),
        ("ruff check . && mypy .", "All checks passed!\nx\nExit code: 1", [OK, FAILED]),
        ("pytest -q | tail -1", "...\nExit code: 0", [UNKNOWN]),
        ("pytest -q | grep -c x", "0\nExit code: 1", [UNKNOWN]),
        ("cd app && pytest -q 2>&1 | tail -5", "x\nExit code: 1", [FAILED]),
        # a filter may have hidden it
        ("mypy . 2>&1 | grep error", "", [UNKNOWN]),
        ("mypy . 2>&1 | tail -3", "", [OK]),
        ("cat old.log; pytest -q", "x: error: y", [UNKNOWN]),
        ("pytest -q > log; python sum.py log", "Passed: 89, Failed: 1", [FAILED]),
        # a status of HTTP, a line of an access log and one of a diff are no summary
        ("pytest -q | tail -3; curl -si localhost", "E   assert 1 == 2\nHTTP/1.1 200 OK", [UNKNOWN]),
        ("pytest -q | grep GET", 'INFO: "GET / HTTP/1.1" 200 OK\n"GET /a HTTP/1.0" 200 2 passed', [UNKNOWN]),
        ("pytest -q | tail -3; curl -s localhost/health", "E   assert 1 == 2\nok", [UNKNOWN]),
        ("go test ./a; ./b.sh", "ok  \tm/a\t0.012s\nready", [OK]),
        ("pytest -q; cat notes", "it is served with ``200 OK``", [UNKNOWN]),
        ("pytest -q | tail -1; git diff", "...\n@@ -1,2 +1,3 @@\n 9 passed\n-2 failed\n+3 passed", [UNKNOWN]),
        ("pytest -q | tail -1; git diff | grep '^+'", "...\n+3 passed", [UNKNOWN]),
        ("git diff; pytest -q", "@@ -1 +1 @@\n-3 passed\n+2 failed\n\n2 passed", [OK]),
    ],
)
def test_each_command_of_a_line_has_its_own_evidence_or_none(
    line: str, output: str, told: list[CommandOutcome]
) -> None:
    runs = observe_commands(step(done("bash", output, command=line)), DEFAULT_TOOL_ROLES)

    assert [run.outcome for run in runs] == told
    assert all(CHECKS[run.command] == run.kind for run in runs)


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    ("line", "output", "told"),
    [
        ('python -c "from glom import OneOf"', "Traceback (most recent call last):\nImportError: x", FAILED),
        ("python run.py", "begun\nTraceback (most recent call last):\n  File\nImportError: x", FAILED),
        ("cat notes.log", "begun\nTraceback (most recent call last):\n  File\nImportError: x", UNKNOWN),
        ("python run.py; ls", "begun\nTraceback (most recent call last):\nImportError: x\na.py", UNKNOWN),
        ("python run.py | tail -1", "x\nExit code: 0", UNKNOWN),
        ("make docs; echo done", "done\nExit code: 0", UNKNOWN),
        ("cd docs && make docs", "x\nExit code: 0", OK),
        ("frobnicate --all", "bash: line 1: frobnicate: command not found", FAILED),
        ("git add -A && git commit -m x", "[main 12e2d10] x\n 1 file changed", OK),
        ("git commit -m x && ./deploy.sh", "[main 12e2d10] x\n 1 file changed", UNKNOWN),
    ],
)
def test_a_line_without_a_check_ended_as_its_evidence_says(line: str, output: str, told: CommandOutcome) -> None:
    (run,) = observe_commands(step(done("bash", output, command=line)), DEFAULT_TOOL_ROLES)

    assert run.outcome is told


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    "behind",
    [
        "diff --git a/news.txt b/news.txt\n@@ -1,2 +1,2 @@\n 3 passed\n+it is served with ``200 OK``\n-2 passed",
        "HTTP/1.1 200 OK",
        "12 passed of those that were asked",
    ],
)
def test_a_test_is_told_by_its_own_summary_whatever_was_printed_behind_it(behind: str) -> None:
    summary = "2517 passed, 9 skipped, 1 xfailed, 12 warnings in 9.14s"
    ran = step(done("bash", f"{summary}\n{behind}\n", command="pytest -q | tail -1; ./show.sh"))

    assert step_line(ran, DEFAULT_TOOL_ROLES) == f"pytest -q: ok ({summary})"


@pytest.mark.rows("S0-55")
def test_commands_of_one_call_share_no_evidence() -> None:
    made = done(
        "run_commands", "5 passed\npython: No module named flake8", commands=["pytest -q", "python -m flake8 ."]
    )

    assert [run.outcome for run in observe_commands(step(made), DEFAULT_TOOL_ROLES)] == [OK, FAILED]


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize("text", ["ripgrep execution failed", "Search process crashed", "browser request timed out: x"])
def test_a_tool_that_broke_has_failed(text: str) -> None:
    assert call_failed(done("grep", text, pattern="x"))


@pytest.mark.rows("S0-55")
def test_a_line_that_the_client_never_ran_did_nothing() -> None:
    refused = 'exec_command failed: CreateProcess { message: "Rejected(\\"rm -f is not permitted\\")" }'
    line = "pytest -q | tail -2; git status --short; rm -f made.py"

    ran = step(done("exec_command", refused, cmd=line))

    assert observe_files(ran, DEFAULT_TOOL_ROLES) == ()
    assert last_outcome_by_kind(observe_commands(ran, DEFAULT_TOOL_ROLES)) == {}
    assert step_line(ran, DEFAULT_TOOL_ROLES) == "pytest -q: not run"


def test_a_patch_that_was_refused_is_told_by_its_file() -> None:
    patch = "*** Begin Patch\n*** Update File: src/a.py\n@@ def f():\n-    1\n+    2\n*** End Patch\n"
    refused = "apply_patch verification failed: Failed to find expected lines in src/a.py:\n    1"

    told = step_line(step(raw("apply_patch", patch, refused)), DEFAULT_TOOL_ROLES)

    assert told.startswith("apply_patch a.py: failed (apply_patch verification failed")


@pytest.mark.rows("S3-05")
def test_the_last_known_state_of_a_kind_is_its_probe() -> None:
    """S3-05: fails, then passes."""
    first = observe_commands(step(done("bash", "1 failed", command="pytest")), DEFAULT_TOOL_ROLES)
    then = observe_commands(
        step(done("bash", "1 passed", command="pytest"), done("bash", "...", command="pytest -x")), DEFAULT_TOOL_ROLES
    )

    assert last_outcome_by_kind(first) == {"test": False}
    assert last_outcome_by_kind((*first, *then)) == {"test": True}


def test_the_errors_of_a_run_that_failed_are_told_and_how_they_ended() -> None:
    out = "FAILED tests/test_a.py::test_x - assert 1 == 2\nE   KeyError: 'a'\nE   KeyError: 'a'\n1 failed"
    ran = step(done("bash", out, command="pytest"))

    errors = observe_errors(ran)

    assert errors == (
        ObservedError("FAILED tests/test_a.py::test_x - assert 1 == 2", "test", command="pytest"),
        ObservedError("E KeyError: 'a'", "test", command="pytest"),
    )
    assert [resolution_of(error, {"test": True}) for error in errors] == ["", "a later test run passed"]
    assert resolution_of(errors[0], {"test": False}) == "the test run failed when this part ended"
    assert resolution_of(errors[0], {}) == ""


@pytest.mark.rows("S0-55")
def test_a_source_line_of_a_traceback_is_no_error() -> None:
    out = (
        'Traceback (most recent call last):\n  File "tests/test_a.py", line 160, in test_x\n'
        "    self.assertError(parse, ['--al=2'], '', longopts,\n                     strict=False)\n"
        '  File "tests/test_a.py", line 19, in assertError\n    ParseError: type = known[name]\n'
        '    ^^^^^^^^^^^^^^\n  File "<string>", line 1\nAssertionError: ParseError not raised\n'
        "    t.Error(err)\n    LastError = None\nTypeError\nError [ERR_X]: no\nFAILED (failures=1)"
    )

    errors = observe_errors(step(done("bash", out, command="python -m unittest")))

    assert [error.line for error in errors] == [
        "AssertionError: ParseError not raised",
        "TypeError",
        "Error [ERR_X]: no",
        "FAILED (failures=1)",
    ]


def test_a_failed_call_without_a_known_error_tells_its_first_line() -> None:
    assert observe_errors(step(done("edit", "<tool_use_error>Found 3 matches</tool_use_error>", path="a"))) == (
        ObservedError("Found 3 matches", path="a"),
    )


@pytest.mark.rows("S0-55")
def test_what_a_client_writes_above_an_output_is_no_error() -> None:
    assert observe_errors(step(done("exec_command", f"{HEADER}it broke", cmd="./run.sh"))) == (
        ObservedError("it broke", command="run.sh"),
    )
    assert observe_errors(step(done("exec_command", HEADER, cmd="./run.sh"))) == ()


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    "form",
    ["FAILED tests/test_a.py::test_{} - AssertionError", "--- FAIL: TestCase{} (0.00s)", "  ● the shop sells {}"],
)
def test_failed_tests_are_told_before_what_they_said_and_those_beyond_are_counted(form: str) -> None:
    named = [form.format(n) for n in range(6)]
    reasons = [f"E   ValueError: {name}" for name in "abcdef"]

    few = observe_errors(step(done("bash", "\n".join([*reasons[:2], *named[:2], "2 failed"]), command="pytest -q")))
    many = observe_errors(step(done("bash", "\n".join([*reasons, *named, "6 failed"]), command="pytest -q")))

    stripped = [name.strip() for name in named]
    assert [e.line for e in few] == ["E ValueError: a", "E ValueError: b", *stripped[:2]]
    assert [e.line for e in many] == [*stripped[:4], "2 more failed tests"]


def test_a_file_full_of_errors_has_none() -> None:
    assert observe_errors(step(done("read", "1\tValueError: x\n2\tTypeError: y\n", path="errors.log"))) == ()
    assert observe_errors(step(done("bash", "we raise here:\nValueError: x\n", command="cat notes"))) == ()


@pytest.mark.rows("S0-17")
@pytest.mark.parametrize(
    ("said", "decided"),
    [
        ("Decision: keep HS256", ("keep HS256",)),
        (
            "I looked at both. I'll use Redis instead of memory because it is shared.",
            ("I'll use Redis instead of memory because it is shared.",),
        ),
        ("We decided to drop Python 3.8. Next, the tests.", ("We decided to drop Python 3.8.",)),
        ("Should we use Redis instead of memory?", ()),
        ("If that fails, I'll use Redis instead of memory.", ()),
        ("I could use Redis rather than memory.", ()),
        ("The function uses a list instead of a set.", ()),
        ("```\nI'll use Redis instead of memory\n```", ()),
        ("Let me look at the file.", ()),
    ],
)
def test_only_what_is_clearly_decided_is_a_decision(said: str, decided: tuple[str, ...]) -> None:
    """S0-17."""
    assert observe_decisions(step(said=said)) == decided
