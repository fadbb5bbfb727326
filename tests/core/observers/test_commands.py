"""S3-05: commands, how they ended, and the probes they leave; errors and decisions beside them."""

import pytest

from proxy.core.observers.commands import CommandOutcome, CommandRun, last_outcome_by_kind, observe_commands
from proxy.core.observers.decisions import observe_decisions
from proxy.core.observers.errors import ObservedError, observe_errors, resolution_of
from proxy.core.observers.step import ToolExecution
from proxy.core.observers.tool_roles import DEFAULT_TOOL_ROLES
from tests.core.observers.steps import done, raw, step

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
    ],
)
def test_a_command_and_how_it_ended(made: ToolExecution, told: list[tuple[str, CommandOutcome, str]]) -> None:
    assert observe_commands(step(made), DEFAULT_TOOL_ROLES) == tuple(CommandRun(*each) for each in told)


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
        ObservedError("FAILED tests/test_a.py::test_x - assert 1 == 2", "test"),
        ObservedError("E KeyError: 'a'", "test"),
    )
    assert resolution_of(errors[0], {"test": True}) == "fixed"
    assert resolution_of(errors[0], {"test": False}) == "still failing"
    assert resolution_of(errors[0], {}) == ""


def test_a_failed_call_without_a_known_error_tells_its_first_line() -> None:
    assert observe_errors(step(done("edit", "<tool_use_error>Found 3 matches</tool_use_error>", path="a"))) == (
        ObservedError("Found 3 matches"),
    )


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
