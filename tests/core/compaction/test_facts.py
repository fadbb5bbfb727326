"""What is known exactly of a span: only what its calls and their results say."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.compaction.facts import artifacts_in_facts, facts_of, facts_of_span
from proxy.core.compaction.fold_events import _open_plan_items
from proxy.core.compaction.trace import SpanFacts, merge_facts
from proxy.core.context import entries_owned_by
from proxy.core.frames.events import FramePopped, FramePushed, call_key
from proxy.core.frames.tree import Status
from proxy.core.observers.files import touched_file_labels
from proxy.core.observers.observe_step import DEFAULT_TOOL_ROLES
from proxy.core.observers.step import steps_of
from tests.core.forest import LedgerBuilder, call, rooted
from tests.core.working import GrowingConversation, bash, todo

Made = tuple[str, dict[str, Any]]


def known(*groups: tuple[list[Made], list[str]]) -> SpanFacts:
    """The facts of a conversation of these call groups with their results."""
    watched = GrowingConversation(folds=False).user("Build it.")
    for made, results in groups:
        watched.does(*made, results=results)
    watched.says("Done.")
    return facts_of(watched.story.entries, DEFAULT_TOOL_ROLES)


def edit(path: str) -> Made:
    return "edit", {"filePath": path, "oldString": "a", "newString": "b"}


def write(path: str) -> Made:
    return "write", {"filePath": path, "content": "x"}


def read(path: str) -> Made:
    return "read", {"filePath": path}


@pytest.mark.rows("S1-104", "S0-16")
def test_files_that_were_changed_and_read() -> None:
    """S1-104, S0-16: confirmed by the result; a file that was read and changed is told as changed."""
    facts = known(
        ([read("a.py")], ["content"]),
        ([edit("a.py")], ["The file a.py has been updated."]),
        ([read("b.py")], ["content"]),
        ([edit("c.py")], ["Error: file not found"]),
    )

    assert (facts.changed, facts.read) == (("a.py",), ("b.py",))
    assert artifacts_in_facts(facts) == ("a.py",)


def test_what_was_created_here_stays_so_when_it_is_worked_on() -> None:
    facts = known(
        ([write("new.py")], ["File created successfully at: new.py"]),
        ([edit("new.py")], ["The file new.py has been updated."]),
    )

    assert facts.changed == ("new.py (created)",)
    assert artifacts_in_facts(facts) == ("new.py",)


@pytest.mark.rows("S0-55")
def test_a_file_is_told_once_however_its_calls_spell_it() -> None:
    facts = known(
        ([read("src/a.py")], ["content"]),
        ([edit("/repo/src/a.py")], ["The file /repo/src/a.py has been updated."]),
        ([read("/repo/src/b.py"), read("src/b.py")], ["content", "content"]),
        ([bash("sed -i s/a/b/ src/a.py")], [""]),
    )
    earlier = SpanFacts(changed=("src/b.py (created)",), read=("src/a.py", "c.py"))

    assert (facts.changed, facts.read) == (("/repo/src/a.py",), ("/repo/src/b.py",))
    assert merge_facts(earlier, facts).changed == ("/repo/src/b.py (created)", "/repo/src/a.py")
    assert merge_facts(earlier, facts).read == ("/repo/src/a.py", "c.py", "/repo/src/b.py")


FAILED_OUTPUT = "KeyError: 'x'\n2 failed, 1 passed\nExit code: 1"
IN_STEPS = (
    ([bash("git stash")], ["Saved working directory\n[This command modified 1 file: a.py]"]),
    ([bash("pytest -q")], [FAILED_OUTPUT]),
    ([bash("git stash pop")], ["Dropped refs/stash@{0}\n[This command modified 1 file: a.py]"]),
)
IN_A_LINE = (([bash("git stash -q && pytest -q; git stash pop -q")], [FAILED_OUTPUT]),)


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize("baseline", [IN_STEPS, IN_A_LINE])
def test_a_check_while_the_changes_are_stashed_says_nothing_of_them(baseline: Any) -> None:
    edited = ([edit("a.py")], ["The file a.py has been updated."])
    passing = ([bash("pytest -q")], ["3 passed\nExit code: 0"])

    facts = known(edited, *baseline)
    checked = known(edited, *baseline, passing)

    assert (facts.changed, facts.errors) == (("a.py",), ())
    assert facts.edits == ("a.py: a -> b",)
    assert "pytest -q (changes stashed): failed" in facts.commands
    assert "pytest -q: failed (2 failed, 1 passed), with your changes stashed" in facts.told_steps
    assert checked.edits == ("a.py: a -> b (then pytest -q: ok)",)
    assert "pytest -q: ok" in checked.commands


@pytest.mark.rows("S0-55")
def test_an_edit_that_git_undid_is_told_as_undone() -> None:
    edited = [([edit(f"src/{name}.py")], ["The file has been updated."]) for name in "ab"]
    committed = ([bash("git commit -qam x")], ["[main 1] x\nExit code: 0"])
    undone = ([bash("git checkout -- src/a.py")], [""])
    reset = ([bash("git reset --hard")], ["HEAD is now at 1"])

    facts = known(*edited, undone)
    assert facts.changed == ("src/b.py", "src/a.py (undone)")
    assert facts.edits == ("a.py: a -> b (undone later)", "b.py: a -> b")
    assert artifacts_in_facts(facts) == ("src/b.py",)
    assert known(*edited, undone, edited[0]).changed == ("src/b.py", "src/a.py")

    assert known(*edited, committed, reset).changed == ("src/a.py", "src/b.py")
    facts = known(edited[0], committed, edited[1], reset)
    assert facts.changed == ("src/a.py", "src/b.py (undone)")
    assert facts.edits == ("a.py: a -> b", "b.py: a -> b (undone later)")
    assert known(*edited, ([bash("git stash")], ["Saved"]), ([bash("git stash drop")], [""])).changed == (
        "src/a.py (undone)",
        "src/b.py (undone)",
    )
    assert merge_facts(known(*edited), SpanFacts(changed=("src/a.py (undone)",))).changed == (
        "src/b.py",
        "src/a.py (undone)",
    )


def test_a_deleted_file_is_no_artifact() -> None:
    facts = known(([("delete", {"path": "old.py"})], ["Deleted old.py"]))

    assert facts.changed == ("old.py (deleted)",)
    assert artifacts_in_facts(facts) == ()


def test_what_is_known_of_a_thing_later_takes_the_place_of_what_was_known() -> None:
    """In whatever words its state is told: a trace is merged from those words."""
    failing = ([bash("pytest -q")], ["KeyError: 'sub'\n1 failed, 3 passed\nExit code: 1"])
    before = known(([write("new.py")], ["File created successfully at: new.py"]), failing)
    after = known(
        ([("delete", {"path": "new.py"})], ["Deleted new.py"]),
        failing,
        ([bash("pytest -q")], ["4 passed\nExit code: 0"]),
    )

    assert before.errors != after.errors
    both = merge_facts(before, after)
    assert (both.changed, both.commands) == (after.changed, after.commands)
    assert (both.errors, after.errors) == (("KeyError: 'sub' (a later test run passed)",), ())


def test_a_command_has_the_state_of_its_newest_run() -> None:
    facts = known(
        ([bash("pytest -q")], ["1 failed, 3 passed\nExit code: 1"]),
        ([bash("ls")], ["a.py"]),
        ([bash("pytest -q")], ["4 passed\nExit code: 0"]),
    )

    assert [command.partition(":")[0] for command in facts.commands] == ["ls", "pytest -q"]
    assert "failed" not in facts.commands[-1]
    assert facts.steps == 3


def test_a_call_without_a_result_changed_nothing() -> None:
    watched = GrowingConversation(folds=False).user("Build it.").does(edit("a.py")).user("stop").says("Stopped.")

    assert facts_of(watched.story.entries, DEFAULT_TOOL_ROLES).changed == ()


def test_a_repeated_id_is_answered_by_what_followed_it() -> None:
    watched = GrowingConversation(folds=False).user("Build it.")
    for command in ("one", "two"):
        watched.calls = 0
        watched.does(bash(command), results=[f"{command} is done"])
    watched.says("Done.")

    done = [(each.call.arguments, each.result) for step in steps_of(watched.story.entries) for each in step.executions]
    assert done == [('{"command": "one"}', "one is done"), ('{"command": "two"}', "two is done")]


def test_a_result_without_a_call_is_nobodys_fact() -> None:
    watched = GrowingConversation(folds=False).user("Build it.")
    watched.tells("tool", "The file a.py has been updated.", "call_9")
    watched.says("Done.")

    assert facts_of(watched.story.entries, DEFAULT_TOOL_ROLES) == SpanFacts(said=("Done.",))


FAILING = ([bash("pytest -q")], ["E   KeyError: 'sub'\n1 failed, 3 passed"])


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    ("later", "ending"),
    [
        ([([bash("pytest -q tests/other")], ["4 passed"])], " (a later test run passed)"),
        ([], " (the test run failed when this part ended)"),
        ([([bash("pytest -q > log.txt")], [""])], ""),
        ([([bash("ruff check .")], ["All checks passed!"])], " (the test run failed when this part ended)"),
    ],
)
def test_of_an_error_it_is_told_what_the_last_run_said_and_no_more(later: list[Any], ending: str) -> None:
    assert known(FAILING, *later).errors == (f"E KeyError: 'sub'{ending}",)


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    ("run", "result"),
    [("pytest -q tests/test_a.py", "2 passed"), ("pytest tests/test_a.py::test_one -x", "1 passed")],
)
def test_a_failed_test_is_mended_by_a_run_of_it_and_by_no_other(run: str, result: str) -> None:
    """ "A later test run passed" behind a test that it left out reads as if that passed."""
    failed = "FAILED tests/test_a.py::test_one - assert 1\nFAILED tests/test_b.py::test_two - KeyError\n2 failed"

    facts = known(([bash("pytest -q")], [failed]), ([edit("a.py")], ["ok"]), ([bash(run)], [result]))

    assert facts.errors == ("FAILED tests/test_b.py::test_two - KeyError",)


TWO_FAILED = "FAILED tests/test_a.py::test_one - assert 1\nFAILED tests/test_b.py::test_two - KeyError\n2 failed"
ONE_FAILED = "FAILED tests/test_a.py::test_one - assert 1\n1 failed"
GO_FAILED = "--- FAIL: TestOne (0.00s)\n    a_test.go:3: no\nFAIL\tshop\t0.1s\nFAIL"


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    ("first", "failed", "runs", "ending"),
    [
        (
            "pytest -q",
            TWO_FAILED,
            ["pytest tests/test_a.py", "pytest tests/test_b.py::test_two"],
            "failed, passed later",
        ),
        ("pytest -q", TWO_FAILED, ["pytest tests/test_a.py"], "failed"),
        ("pytest -q", TWO_FAILED.replace("2 failed", "5 failed"), ["pytest tests"], "failed"),
        ("pytest -q", "KeyError\n1 failed", ["pytest tests/test_a.py"], "failed"),
        ("go test ./...", GO_FAILED, ["go test ./... -run TestOne"], "failed, passed later"),
        ("go test ./...", GO_FAILED, ["go test ./... -run TestTwo"], "failed"),
        ("pytest -q", ONE_FAILED, ["pytest tests/test_a.py::test_one"], "failed, passed later"),
        ("pytest -q", ONE_FAILED + ", 1 error", ["pytest tests/test_a.py::test_one"], "failed"),
        ("pytest -q | head -1", ONE_FAILED[:-9], ["pytest tests/test_a.py::test_one"], "failed"),
        ("go test ./...", "panic: index out of range\n" + GO_FAILED, ["go test ./... -run TestOne"], "failed"),
        ("go test ./...", GO_FAILED + "\tapi [build failed]", ["go test ./... -run TestOne"], "failed"),
        ("go test ./...", GO_FAILED + "\n" + "ok" * 9_000, ["go test ./... -run TestOne"], "failed"),
    ],
)
def test_the_check_of_an_edit_passed_later_where_each_test_that_failed_in_it_did(
    first: str, failed: str, runs: list[str], ending: str
) -> None:
    passed = [([bash(run)], ["1 passed" if "pytest" in run else "ok  \tshop\t0.1s"]) for run in runs]

    told = first.partition(" | ")[0]
    assert known(EDITED, ([bash(first)], [failed]), *passed).edits == (f"a.py: a -> b (then {told}: {ending})",)


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize("before", [(), (([bash("make test")], [""]),)])
def test_a_check_behind_an_edit_that_git_undid_says_nothing_of_the_edit(before: tuple[Any, ...]) -> None:
    facts = known(EDITED, *before, ([bash("git restore a.py")], [""]), PASSING)

    assert facts.edits[0].endswith(" (undone later)")


@pytest.mark.rows("S0-55")
def test_an_edit_is_told_with_the_first_check_whose_outcome_is_known() -> None:
    hidden, lint = ([bash("pytest -q > log")], [""]), ([bash("ruff check .")], ["All checks passed!"])

    assert known(EDITED, hidden, lint, PASSING).edits == ("a.py: a -> b (then ruff check .: ok)",)
    assert known(EDITED, hidden).edits == ("a.py: a -> b (then pytest -q was run)",)
    assert known(EDITED, hidden, EDITED, PASSING).edits == (
        "a.py: a -> b (then pytest -q was run)",
        "a.py: a -> b (then pytest -q: ok)",
    )


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    ("run", "errors"),
    [
        ("pytest -q", ()),
        ("pytest tests/test_a.py", ("FAILED tests/test_b.py::test_two - KeyError",)),
        ("make test", tuple(TWO_FAILED.splitlines()[:2])),
    ],
)
def test_a_failed_test_of_an_earlier_part_is_mended_by_a_run_of_it_and_by_no_other(
    run: str, errors: tuple[str, ...]
) -> None:
    failed = known(([bash("pytest -q")], [TWO_FAILED]))

    assert merge_facts(failed, known(([bash(run)], ["2 passed\nExit code: 0"]))).errors == errors


REFUSED = ([bash("git add -A && git commit -m one")], ["Pre-commit validation failed:\nRun the formatter."])
COMMITTED = ([bash("git commit -q -m 'two: more'")], ["[main 12e2d10] two: more"])
CRASHED = ([bash("node assets/build.js 2>&1")], ["Exit code 1\nError: Build failed with 1 error:"])
FAILS = "FAILED tests/test_a.py::test_one - assert 1\nFAILED tests/test_a.py::test_two - assert 2\n2 failed"


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    ("made", "errors"),
    [
        ([([bash("pytest tests/test_a.py")], [FAILS]), ([bash("python -m pytest -q tests")], ["9 passed"])], ()),
        (
            [([bash("pytest tests -x")], [FAILS]),
             ([bash("pytest tests")], ["FAILED tests/b.py::test_c - no\n1 failed"])],
            ("FAILED tests/b.py::test_c - no (the test run failed when this part ended)",),
        ),
        (
            [([bash("pytest tests/b.py")], ["FAILED tests/b.py::test_c - no\n1 failed"]), ([edit("b.py")], ["ok"]),
             ([bash("pytest tests/a.py")], ["FAILED tests/a.py::test_a - no\n1 failed"])],
            ("FAILED tests/b.py::test_c - no",
             "FAILED tests/a.py::test_a - no (the test run failed when this part ended)"),
        ),
        ([REFUSED], ("git commit: Run the formatter.",)),
        ([REFUSED, ([bash("git add b.py")], ["fatal: pathspec 'b.py' did not match\n[exit code 128]"])],
         ("git commit: Run the formatter.", "git add: fatal: pathspec 'b.py' did not match")),
        ([REFUSED, COMMITTED], ()),
        ([COMMITTED, REFUSED], ("git commit: Run the formatter.",)),
        ([CRASHED, ([bash("cd assets && node build.js")], ["(no output)"])], ()),
        ([([bash("mkdir b && cp $(npm root)/x/a.json b/")], ["cp: /x/a.json: No such file or directory\nExit code 1"]),
          ([bash("cp src/a.json b/")], ["(no output)"])], ()),
        ([([bash("python3 -c 'import one; one.run(2)'")], ["Traceback (most recent call last):\nValueError: no"])],
         ("python3 -c: ValueError: no",)),
        ([CRASHED, ([bash("node other.js")], ["done"])], ("node build.js: Error: Build failed with 1 error:",)),
        ([([read("c.py")], ["File does not exist."]),
          ([bash("ls nothing")], ["ls: nothing: No such file or directory\n[exit code 2]"])], ()),
    ],
    ids=["wider", "anew", "another", "refused", "two", "made", "undone", "elsewhere", "copied", "code", "other",
         "look"],
)  # fmt: skip
def test_an_error_is_told_until_its_command_works(made: list[Any], errors: tuple[str, ...]) -> None:
    assert known(*made).errors == errors


@pytest.mark.rows("S0-55")
def test_an_error_of_an_earlier_part_goes_when_its_program_works_in_the_next() -> None:
    assert merge_facts(known(REFUSED), known(COMMITTED)).errors == ()
    assert merge_facts(known(REFUSED), known(CRASHED)).errors[0] == "git commit: Run the formatter."


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(("run", "ending"), [("pytest -q", ", passed later"), ("pytest -q tests/other", "")])
def test_the_check_of_an_edit_passed_later_also_where_another_edit_mended_it(run: str, ending: str) -> None:
    """A list that names the newest edits alone leaves that one out, and the failure would be the last word."""
    mended = ([edit("b.py")], ["The file b.py has been updated."]), ([bash(run)], ["4 passed"])

    assert known(EDITED, FAILING, *mended).edits == (
        f"a.py: a -> b (then pytest -q: failed{ending})",
        f"b.py: a -> b (then {run}: ok)",
    )


@pytest.mark.rows("S0-55")
def test_a_check_that_runs_again_without_another_edit_is_told_behind_the_edit() -> None:
    formatted = ([bash("make fmt && pytest -q")], ["4 passed"])

    assert known(EDITED, FAILING, formatted).edits == ("a.py: a -> b (then pytest -q: failed, passed later)",)
    assert known(EDITED, FAILING, ([bash("pytest -q tests/other")], ["4 passed"])).edits[0].endswith(": failed)")


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    ("later", "ending"),
    [("npm run build 2>&1 | tail -3", ""), ("npx eslint .", " (the type check failed when this part ended)")],
)
def test_a_type_error_failed_at_the_end_only_where_no_build_came_behind_it(later: str, ending: str) -> None:
    error = "src/a.ts(1,2): error TS2353: no such property"
    facts = known(([bash("npx tsc --noEmit")], [error]), ([bash(later)], ["Waiting for the debugger"]))

    assert facts.errors == (f"{error}{ending}",)


@pytest.mark.rows("S0-55")
def test_what_only_git_reports_may_have_been_changed_before() -> None:
    stat = " src/a.py | 12 +++---\n old.py | 2 +-\n 2 files changed, 9 insertions(+)"
    facts = known(([edit("/repo/src/a.py")], ["updated"]), ([bash("make fmt && git diff --stat")], [stat]))

    assert facts.changed == ("/repo/src/a.py", "old.py (by command or earlier)")
    assert artifacts_in_facts(facts) == ("/repo/src/a.py",)
    assert merge_facts(facts, facts).changed == facts.changed


@pytest.mark.rows("S0-55")
def test_of_what_git_reports_only_what_was_not_changed_before_is_told() -> None:
    watched = GrowingConversation(folds=False).user("Build it.")
    watched.does(edit("/repo/a.py"), results=["updated"])
    watched.does(bash("pytest -q; git diff --stat"), results=[" a.py | 2 +-\n notes.md | 4 ++\n b.rst | 1 +"])
    watched.does(edit("/repo/c.py"), results=["updated"])
    watched.says("Built.").user("Format it.")
    begun = len(watched.story.entries)
    stat = " a.py | 2 +-\n b.rst | 5 ++\n c.py | 2 +-\n new.rst | 3 +\n notes.md | 4 ++"
    watched.does(bash("python fix.py && git diff --stat"), results=[stat])
    watched.says("Done.")
    own = watched.story.entries[begun:]

    facts = facts_of(own, DEFAULT_TOOL_ROLES, path=watched.story.entries)

    assert facts.changed == ("b.rst (by command)", "new.rst (by command)")
    assert touched_file_labels(own, path=watched.story.entries) == (
        "b.rst (changed by command)",
        "new.rst (changed by command)",
    )


@pytest.mark.rows("S0-55")
def test_a_report_of_git_says_nothing_of_what_was_changed_before_a_commit() -> None:
    stat = " log.md | 1 +"
    watched = GrowingConversation(folds=False).user("Build it.")
    watched.does(bash("./note.sh && git diff --stat && git commit -am x"), results=[stat])
    watched.says("Noted.").user("Once more.")
    begun = len(watched.story.entries)
    watched.does(bash("./note.sh && git diff --stat"), results=[stat])
    watched.says("Done.")

    facts = facts_of(watched.story.entries[begun:], DEFAULT_TOOL_ROLES, path=watched.story.entries)

    assert facts.changed == ("log.md (by command or earlier)",)


@pytest.mark.rows("S0-55")
def test_a_folder_that_was_made_anew_is_not_told_as_deleted() -> None:
    facts = known(
        ([bash("cd /repo && rm -rf demo old && mkdir demo")], [""]),
        ([write("/repo/demo/a.sh")], ["File created"]),
    )

    assert facts.changed == ("old (deleted by command)", "/repo/demo/a.sh (created)")


EDITED = ([edit("a.py")], ["The file a.py has been updated."])
PASSING = ([bash("pytest -q")], ["4 passed"])
BROKEN_ON_PURPOSE = (
    "sed -i s/b/c/ a.py && pytest -q 2>&1 | tail -3; sed -i s/c/b/ a.py",
    "cp a.py a.bak; sed -i s/b/c/ a.py; pytest -q; mv a.bak a.py",
    "patch -p1 < x.diff && pytest -q; patch -R -p1 < x.diff",
    "git apply x.diff && pytest -q; git checkout a.py",
    "echo 'raise KeyError' > conftest.py; pytest -q; rm conftest.py",
)


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize("line", BROKEN_ON_PURPOSE)
@pytest.mark.parametrize("in_one_step", [True, False])
def test_a_check_of_a_state_that_its_line_left_again_says_nothing_of_the_work(line: str, in_one_step: bool) -> None:
    groups = [EDITED, PASSING, ([bash(line)], FAILING[1])]
    if in_one_step:
        groups = [([made for calls, _ in groups for made in calls], [text for _, texts in groups for text in texts])]

    facts = known(*groups)

    assert facts.edits == ("a.py: a -> b (then pytest -q: ok)",)
    assert facts.errors == ()
    assert not any("failed" in told for told in (*facts.told_steps, *facts.commands))


@pytest.mark.rows("S0-55")
def test_an_edit_is_told_with_the_first_check_behind_it() -> None:
    broken = ([bash("sed -i s/b/c/ a.py && pytest -q")], FAILING[1])
    mended = ([bash("sed -i s/c/b/ a.py")], [""])
    together = (
        [edit("a.py"), bash("pytest -q"), edit("b.py"), bash("pytest -q")],
        [*EDITED[1], *FAILING[1], "ok", "4 passed"],
    )

    assert known(EDITED, PASSING, broken, mended).edits == ("a.py: a -> b (then pytest -q: ok)",)
    assert known(EDITED, PASSING, broken, mended).errors == ("E KeyError: 'sub'",)
    assert known(EDITED, PASSING, broken).errors == ("E KeyError: 'sub' (the test run failed when this part ended)",)
    assert known(EDITED, broken, PASSING).edits == ("a.py: a -> b (then pytest -q: ok)",)
    assert known(together).edits == (
        "a.py: a -> b (then pytest -q: failed, passed later)",
        "b.py: a -> b (then pytest -q: ok)",
    )
    assert known(FAILING, EDITED).errors == ("E KeyError: 'sub'",)


PUSHED_AND_MENDED = (("edit", {"filePath": "a.py", "oldString": "c", "newString": "d"}), "The file has been updated.")


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize("behind_the_push", [True, False])
@pytest.mark.parametrize(
    ("inside", "ending", "steps", "check"),
    [
        (
            [PUSHED_AND_MENDED, (bash("pytest -q"), "4 passed")],
            None,
            ("in a frame inside: pytest -q: ok (4 passed)",),
            "failed, passed later",
        ),
        ([(bash("pytest -q"), "1 failed, 3 passed")], " (the test run failed when this part ended)", (), "failed"),
        ([PUSHED_AND_MENDED], "", (), "failed"),
        ([PUSHED_AND_MENDED, (bash("pytest -q > log"), "")], "", (), "failed"),
        ([(bash("ls"), "a.py")], " (the test run failed when this part ended)", (), "failed"),
    ],
)
def test_a_check_in_a_frame_pushed_and_popped_inside_says_how_it_ended(
    inside: list[Any], ending: str | None, steps: tuple[str, ...], check: str, behind_the_push: bool
) -> None:
    talk = LedgerBuilder()
    talk.client("user", "Build it.")
    talk.happens(rooted())
    made = (edit("a.py"), bash("pytest -q"))
    talk.model(("", tuple(call(f"o{n}", name, **given) for n, (name, given) in enumerate(made))))
    talk.client("tool", "The file a.py has been updated.", "o0")
    talk.client("tool", FAILING[1][0], "o1")
    calls = [call(f"i{n}", name, **given) for n, ((name, given), _) in enumerate(inside)]
    push = call("p", "stack_frame_push", title="Mend it")
    rounds = [("", (push, *calls))] if behind_the_push else [("", (push,)), ("", tuple(calls))]
    turn = talk.model(*rounds)
    talk.happens(FramePushed("fa", "froot", "A", "It works.", turn, call_key(1, "p"), "block"), turn, 1)
    for n, (_, result) in enumerate(inside):
        talk.client("tool", result, f"i{n}")
    turn = talk.model(("", (call("q", "stack_frame_pop"),)), ("Goes on.", ()))
    talk.happens(FramePopped("fa", Status.COMPLETED, "done", "done", call_result="it is done"), turn, 1)
    story = talk.story

    facts = facts_of_span(story, entries_owned_by(story, {"froot"}, story.entries), DEFAULT_TOOL_ROLES)

    assert facts.errors == (() if ending is None else (f"E KeyError: 'sub'{ending}",))
    assert facts.told_steps == ("edited a.py; pytest -q: failed (1 failed, 3 passed)", *steps)
    assert facts.edits == (f"a.py: a -> b (then pytest -q: {check})",)
    assert facts.steps == 2


@pytest.mark.rows("S0-55")
def test_a_command_that_was_not_there_is_told_beside_the_one_that_passed() -> None:
    facts = known(
        ([bash("pytest -q | tail -1; python -m flake8 agate")], ["393 passed\npython: No module named flake8"])
    )

    assert facts.commands == ("pytest -q: ok", "python -m flake8 agate: failed")
    assert facts.errors == ("python: No module named flake8 (the lint run failed when this part ended)",)


@pytest.mark.rows("S0-55")
def test_a_change_by_the_shell_is_told_as_such_and_is_no_artifact() -> None:
    facts = known(
        ([edit("a.py")], ["The file a.py has been updated."]),
        ([bash("sed -i 's/a/b/' a.py b.py && git rm c.py")], ["rm 'c.py'"]),
    )

    assert facts.changed == ("a.py", "b.py (by command)", "c.py (deleted by command)")
    assert artifacts_in_facts(facts) == ("a.py",)


@pytest.mark.rows("S0-54")
def test_steps_are_told_in_order_and_edits_with_the_check_after_them() -> None:
    facts = known(
        ([read("src/a.py")], ["content"]),
        ([read("src/b.py")], ["content"]),
        ([("grep", {"pattern": "extend="})], ["ripgrep execution failed"]),
        (
            [
                (
                    "edit",
                    {"filePath": "src/a.py", "oldString": "def f():\n    x = 1", "newString": "def f():\n    x = 2"},
                )
            ],
            ["ok, the file has been updated."],
        ),
        ([bash("pytest -q")], ["1 failed, 3 passed"]),
        ([write("src/new.py")], ["File created"]),
        ([bash("pytest -q")], ["4 passed in 1s"]),
        ([bash("pytest -q")], ["4 passed in 2s"]),
        ([bash("pytest -q a; pytest -q b")], ["6 passed in 1s\n..\n56 passed in 3s"]),
        ([bash("pytest -q a; pytest -q b")], ["...\n56 passed in 3s"]),
        ([bash("ls")], ["a.py"]),
        ([bash("ls")], ["a.py"]),
    )

    assert facts.told_steps == (
        "read a.py, b.py",
        "grep extend=: failed (ripgrep execution failed)",
        "edited a.py",
        "pytest -q: failed (1 failed, 3 passed)",
        "wrote new.py",
        "pytest -q: ok (4 passed in 1s)",
        "pytest -q: ok (4 passed in 2s)",
        "pytest -q a: ok (6 passed in 1s); pytest -q b: ok (56 passed in 3s)",
        "pytest -q a; pytest -q b",
        "ls (2 times)",
    )
    assert facts.edits == (
        "a.py, f: x = 1 -> x = 2 (then pytest -q: failed, passed later)",
        "new.py: written whole, 1 line (then pytest -q: ok)",
    )


SCRIPT = "python - <<'P'\nfrom pathlib import Path\np = Path('docs/changes.rst')\np.write_text(p.read_text() + 'x')\nP"


@pytest.mark.rows("S0-54")
def test_a_script_is_told_by_what_its_call_says_of_it_and_a_commit_beside_the_check() -> None:
    described = ("bash", {"command": SCRIPT, "description": "Add the changelog entry"})
    facts = known(
        ([described], [""]),
        ([bash(f"{SCRIPT}\npytest -q; git commit -qm 'Tell of it'")], ["1 failed, 3 passed"]),
    )

    assert facts.told_steps == (
        'bash "Add the changelog entry"',
        "pytest -q: failed (1 failed, 3 passed); git commit",
    )


@pytest.mark.rows("S0-54")
@pytest.mark.parametrize(
    ("line", "told"),
    [
        (f"{SCRIPT}\npytest -q 2>&1 | tail -1", 'bash "Write and check"; pytest -q: ok (9 passed)'),
        ("python -c 'import a; a.f()'; pytest -q", 'bash "Write and check"; pytest -q: ok (9 passed)'),
        ("pytest -q | tail -1; git diff; sed -n 1,9p a.py", "pytest -q: ok (9 passed)"),
        ("cd src && pytest -q | grep passed", "pytest -q: ok (9 passed)"),
    ],
)
def test_what_a_command_did_beside_its_check_is_told_as_its_call_says_it(line: str, told: str) -> None:
    made = ("bash", {"command": line, "description": "Write and check"})

    assert known(([made], ["9 passed"])).told_steps == (told,)


@pytest.mark.rows("S0-54", "S0-55")
@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('\tprint("a  b")', '\tprint("a   b")\n', 'print("a  b") -> print("a   b")'),
        ("x = 1\ny = 2", "    x = 1\n    y = 2", "other blanks around x = 1 (and 1 more line)"),
        ("x = 1\ny = 2", "y = 2\nx = 1", "the same lines in other places or numbers: y = 2 (and 1 more line)"),
        ("x = 1\n\ny = 2", "x = 1\ny = 2", "blank lines"),
        (
            f"call({'first_argument, ' * 6}old)",
            f"call({'first_argument, ' * 6}new)",
            "…first_argument, first_argument, old) -> …first_argument, first_argument, new)",
        ),
        ("全" * 80 + "旧", "全" * 80 + "新", f"…{'全' * 35}旧 -> …{'全' * 35}新"),
        (
            "from shop import tax",
            "import re\n\nfrom shop import tax, vat",
            "from shop import tax -> from shop import tax, vat (and 1 more line)",
        ),
        ("x = 1", "# why\nx = 2\ny = 3", "x = 1 -> x = 2 (and 2 more lines)"),
        ("x = 1", "x = 1\n@property\ndef label(self):\n    return 1", "added def label(self): (and 2 more lines)"),
        (
            "if x:\n    return None\ny = 3",
            "if z:\n    return None\nif a:\n    return None\ny = 4",
            "if x: (and 1 more line) -> if z: (and 3 more lines)",
        ),
    ],
)
def test_an_edit_is_quoted_with_the_blanks_of_the_file(old: str, new: str, told: str) -> None:
    made = ("edit", {"filePath": "a.py", "oldString": old, "newString": new})

    assert known(([made], ["ok, the file has been updated."])).edits == (f"a.py: {told}",)


def test_a_line_of_marks_alone_tells_no_edit() -> None:
    new = "//\n// The limit is in bytes.\n// Zero is none."
    made = ("edit", {"filePath": "a.go", "oldString": "x := 1", "newString": f"{new}\nx := 1"})

    assert known(([made], ["ok, updated."])).edits == ("a.go: added // The limit is in bytes. (and 2 more lines)",)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (("task", {"subagent_type": "dev", "description": "Review it", "prompt": "Look."}), "task Review it"),
        (("search", {"query": "limit", "description": ""}), "search limit"),
        (("create_issue", {"title": "Login", "description": "It fails."}), "create_issue Login"),
        (bash("node x.js 12>&1"), "node x.js 12>&1"),
        (bash("node x.js 2>&1 | head -3"), "node x.js | head -3"),
        (bash("node x.js 2>/dev/null > out.txt"), "node x.js > out.txt"),
    ],
)
def test_a_step_is_told_by_what_it_is_about(made: Made, told: str) -> None:
    assert known(([made], ["ok"])).told_steps == (told,)


def test_steps_of_two_parts_that_are_alike_are_one_line() -> None:
    both = merge_facts(known(([edit("a.py")], ["ok"])), known(([edit("a.py")], ["ok"]), PASSING))

    assert both.told_steps == ("edited a.py (2 times)", "pytest -q: ok (4 passed)")


@pytest.mark.rows("S0-54", "S0-55")
@pytest.mark.parametrize("path", ["CHANGES.md", "docs/guide.rst"])
def test_a_heading_and_a_list_of_a_text_are_no_comments(path: str) -> None:
    new = "## [Unreleased]\n\n* Add the option `limit`, which\n  cuts what is longer."
    made = ("edit", {"filePath": path, "oldString": "## [1.0]", "newString": f"{new}\n\n## [1.0]"})
    name = path.rpartition("/")[2]

    assert known(([made], ["ok, updated."])).edits == (f"{name}: added ## [Unreleased] (and 2 more lines)",)


@pytest.mark.rows("S0-55")
def test_two_files_of_one_name_are_told_apart() -> None:
    facts = known(
        ([edit("/repo/web/app.py"), edit("api/app.py"), read("/repo/web/app.py")], ["ok, updated."] * 2 + ["text"]),
        ([edit("/repo/core.py")], ["ok, updated."]),
        ([bash("git checkout -- api/app.py")], [""]),
    )

    assert facts.told_steps[:2] == ("edited web/app.py; edited api/app.py; read web/app.py", "edited core.py")
    assert facts.edits == ("web/app.py: a -> b", "api/app.py: a -> b (undone later)", "core.py: a -> b")


@pytest.mark.rows("S0-55")
def test_a_file_is_told_apart_from_one_of_its_name_in_another_part_of_the_path() -> None:
    talk = GrowingConversation(folds=False).user("Build it.").does(read("cli/hooks.go"), results=["text"])
    before = len(talk.story.entries)
    talk.does(edit("core/hooks.go"), results=["ok, updated."]).says("Done.")

    facts = facts_of_span(talk.story, talk.story.entries[before:], DEFAULT_TOOL_ROLES)

    assert (facts.told_steps, facts.edits) == (("edited core/hooks.go",), ("core/hooks.go: a -> b",))
    assert facts.shared_names["core/hooks.go"] == "core/hooks.go"


USER_SAID = "Telemetry is on by default; write the steps first."


@pytest.mark.rows("S0-55", "S2-20")
@pytest.mark.parametrize(
    "refusal",
    [
        "The user doesn't want to proceed with this tool use. The tool use was rejected (if it was a file edit, the "
        "new text was NOT written to the file). To tell you how to proceed, the user said:\n" + USER_SAID,
        f"The user denied this operation and provided the following feedback:\n<feedback>\n{USER_SAID}\n</feedback>",
        f"Error: The user rejected permission to use this tool call with the following feedback: {USER_SAID}",
    ],
)
def test_what_the_user_said_of_a_call_that_they_refused_stays(refusal: str) -> None:
    path = "/repo/projects/telemetry/a/very/long/way/to/the/config.go"
    facts = known(([edit(path)], [refusal]), ([edit(path)], ["The user declined this."]))
    of_command = known(([bash("git gc")], [refusal]))
    assert of_command.told_steps == ("git gc: refused by the user",)
    assert (of_command.errors, of_command.decisions) == ((), (f"The user refused bash git gc: {USER_SAID}",))

    shown = "edit …/telemetry/a/very/long/way/to/the/config.go"
    assert facts.told_steps == (f"{shown}: refused by the user (2 times)",)
    assert facts.decisions == (f"The user refused {shown}: {USER_SAID}",)
    assert (facts.errors, facts.edits, facts.changed) == ((), (), ())


@pytest.mark.rows("S0-55")
def test_a_ruler_is_no_error() -> None:
    facts = known(([bash("frob a; echo ---; frob b")], ["Exit code 1\nfrob broke down\n---"]))

    assert facts.errors == ("frob: frob broke down",)


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("    async def load(self):", "load"),
        ("export default function render(x) {", "render"),
        ("pub(crate) fn parse<T>(x: T) {", "parse"),
        ("func (s *Store) Save(x int) error {", "Store.Save"),
        ("public static class Parser {", "Parser"),
        ("    Enum.map(lines, fn line -> line end)", ""),
        ("  fn line, acc -> acc end", ""),
        ("# the function in question", ""),
        ("// this class is old", ""),
    ],
)
def test_the_place_of_an_edit_is_a_definition(line: str, place: str) -> None:
    made = ("edit", {"filePath": "a.x", "oldString": f"{line}\n\t\t\t\t\told", "newString": f"{line}\n\t\t\t\t\tnew"})
    (told,) = known(([made], ["ok, updated."])).edits

    assert told == (f"a.x, {place}: old -> new" if place else "a.x: old -> new")


MODELS = {
    "a.py": """class A:
    def size(self):
        return 1


class B:
    def size(self):
        return 2
""",
    "a.ts": """export class A {
  size(): number {
    return 1;
  }
}

class B extends A {
  size() {
    return 2;
  }
}
""",
    "a.cs": """namespace X
{
  class B
  {
    public int size()
    {
      return 2;
    }
  }
}
""",
    "a.rs": """impl A {
    fn size(&self) {
        return 1;
    }
}
impl<'a, F: Fn() -> T> Size for &'a mut B<F> {
    fn size(&self) {
        return 2;
""",
    "a.rb": """class A
  def size
    return 1
  end
end
class B
  def self.size
    return 2
  end
end
""",
    "a.cpp": """int A::size() {
  return 1;
}

int B::size() {
  return 2;
}
""",
    "a.go": """func (a A) size() int {
\treturn 1
}

func (b *B) size() int {
\treturn 2
}
""",
    "a.ex": """defmodule B do
  def size() do
    return 2
  end
end
""",
}


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize("path", MODELS)
def test_methods_of_one_name_are_told_apart_by_their_classes(path: str) -> None:
    numbered = "\n".join(f"{n:>5}\t{line}" for n, line in enumerate(MODELS[path].split("\n"), 1))
    made = ("edit", {"filePath": path, "oldString": "return 2", "newString": "return 3"})

    assert known(([read(path)], [numbered]), ([made], ["ok"])).edits == (f"{path}, B.size: return 2 -> return 3",)


@pytest.mark.rows("S0-55")
def test_what_stands_above_an_edit_at_the_same_level_is_not_its_place() -> None:
    before = "def first():\n    return 1\n\n\n"
    made = ("edit", {"filePath": "a.py", "oldString": f"{before}limit = 1", "newString": f"{before}limit = 2"})

    assert known(([made], ["ok"])).edits == ("a.py: limit = 1 -> limit = 2",)


PATCH = """*** Begin Patch
*** Update File: src/grouping.py
@@ def group_arrays(table):
 x = 1
-    return _group(table, extend=False)
+    return _group(table, extend=True)
@@
     return rows
+def first(rows):
*** Add File: docs/new.md
+# Title
+text
*** End Patch"""


@pytest.mark.rows("S0-54")
def test_the_hunks_of_a_patch_are_edits() -> None:
    facts = known(([("apply_patch", {"input": PATCH})], ["Success."]))

    assert facts.edits == (
        "grouping.py, group_arrays: return _group(table, extend=False) -> return _group(table, extend=True)",
        "grouping.py: added def first(rows):",
        "new.md: added # Title (and 1 more line)",
    )
    assert facts.told_steps == ("edited grouping.py; wrote new.md",)


@pytest.mark.rows("S0-54")
def test_a_here_document_is_an_edit() -> None:
    command = "cat >> tests/test_a.py <<'E'\n\n\ndef test_b():\n    assert b\nE\npytest -q"
    facts = known(([bash(command)], ["3 passed in 0.1s"]), ([bash("cat > n.md <<'E'\na\nE")], [""]))

    assert facts.edits == (
        "test_a.py: added def test_b(): (and 1 more line)",
        "n.md: written whole, 1 line",
    )
    assert facts.changed == ("tests/test_a.py (by command)", "n.md (by command)")


@pytest.mark.rows("S0-54")
def test_no_edit_of_a_large_patch_is_left_out() -> None:
    changes = "".join(f"*** Update File: m{n}.py\n@@\n-a = {n}\n+b = {n}\n" for n in range(9))
    patch = f"*** Begin Patch\n{changes}*** End Patch"
    facts = known(([("apply_patch", {"patchText": patch})], ["Success."]))

    assert facts.edits == tuple(f"m{n}.py: a = {n} -> b = {n}" for n in range(9))
    assert facts.told_steps[0].endswith("edited m5.py; edited 3 more")


@pytest.mark.rows("S0-54", "S0-55")
def test_an_edit_that_failed_is_no_edit() -> None:
    facts = known(([edit("a.py")], ["Error: string to replace not found"]))

    assert (facts.edits, facts.changed) == ((), ())
    assert facts.told_steps == ("edit a.py: failed (Error: string to replace not found)",)


@pytest.mark.rows("S0-55")
def test_what_is_said_with_a_tick_belongs_to_what_it_ends() -> None:
    """The group that ticks one item off and begins the next is the next one's first: only what it announces is."""
    watched = GrowingConversation(folds=False).user("Build it.")
    watched.does(todo("[>] Lexer | [ ] Parser"), results=["ok"], text="I begin with the lexer.")
    watched.does(bash("lex"), results=["x"], text="The lexer drops tabs: that is the bug.")
    watched.does(
        todo("[x] Lexer | [>] Parser | [ ] Docs"), results=["ok"], text="Tabs are kept now; 3 passed. Now the parser:"
    )
    watched.does(bash("parse"), results=["x"])
    watched.does(todo("[x] Lexer | [x] Parser | [>] Docs"), results=["ok"], text="The parser is done.")
    watched.does(bash("docs"), results=["x"]).does(todo("[x] Lexer | [x] Parser | [x] Docs"), results=["ok"])
    watched.says("Done.")

    frames = [f for f in watched.story.tree.frames.values() if f.origin == "plan"]
    assert [f.results for f in frames] == ["Tabs are kept now; 3 passed.", "The parser is done.", ""]
    owned = {f.title: entries_owned_by(watched.story, {f.id}, watched.story.entries) for f in frames}
    said = {title: facts_of(entries, DEFAULT_TOOL_ROLES).said for title, entries in owned.items()}
    assert said == {
        "Lexer": ("I begin with the lexer.", "The lexer drops tabs: that is the bug."),
        "Parser": ("Now the parser:",),
        "Docs": (),
    }


def test_waiting_for_a_command_is_not_told() -> None:
    wait = "write_stdin", {"session_id": 5914, "yield_time_ms": 15000}
    facts = known(([bash("make")], ["Process running with session ID 5914"]), ([wait], ["done"]))

    assert (facts.steps, facts.told_steps) == (2, ("make",))
    assert known(([("write_stdin", {"session_id": 1, "chars": "y"})], ["done"])).told_steps == ("write_stdin y",)


@pytest.mark.rows("S0-55")
def test_a_tick_of_the_plan_is_no_step_of_the_work() -> None:
    facts = known(([edit("a.py")], ["The file a.py has been updated."]), ([todo("[x] Build")], ["Updated."]))

    assert (facts.steps, facts.told_steps) == (1, ("edited a.py",))


@pytest.mark.rows("S0-55")
def test_the_last_sentence_of_results_is_never_cut() -> None:
    watched = GrowingConversation(folds=False).user("Build it.").does(todo("[>] Lexer"), results=["ok"])
    watched.does(bash("lex"), results=["x"])
    long = "It was long work. " * 200 + "The offset is mended: one column too far left."
    watched.does(todo("[x] Lexer"), results=["ok"], text=long).says("Done.")

    (lexer,) = (f for f in watched.story.tree.frames.values() if f.origin == "plan")
    for results in (lexer.results, lexer.results_compacted):
        assert results.startswith("It was long work.")
        assert results.endswith("[...] The offset is mended: one column too far left.")


@pytest.mark.rows("S0-54", "S0-55")
def test_a_check_that_is_not_installed_here_says_nothing_of_an_edit() -> None:
    made = ([edit("a.py")], ["The file a.py has been updated."])
    missing = ([bash("python -m flake8 a.py")], ["/usr/bin/python: No module named flake8"])

    assert known(made, missing).edits == ("a.py: a -> b",)
    passed = ([bash("pytest -q")], ["3 passed in 0.1s"])
    assert known(made, missing, passed).edits == ("a.py: a -> b (then pytest -q: ok)",)


@pytest.mark.rows("S0-55")
def test_a_patch_that_did_not_match_is_no_edit() -> None:
    refused = "apply_patch verification failed: Error: Failed to find expected lines in a.py"
    patch = "*** Begin Patch\n*** Update File: a.py\n@@\n-a\n+b\n*** End Patch"

    failed = known(([("apply_patch", {"patchText": patch})], [refused]))
    assert failed.edits == ()
    assert [step.partition(" (")[0] for step in failed.told_steps] == ["apply_patch a.py: failed"]
    assert known(([("apply_patch", {"patchText": patch})], ["Success. Updated a.py"])).edits == ("a.py: a -> b",)


@pytest.mark.rows("S0-54", "S0-55")
def test_open_is_what_the_newest_list_of_the_client_has_open() -> None:
    """Each list replaces the one before; what an earlier request left in it is planned no more."""
    watched = GrowingConversation(folds=False).user("Answer three questions about the parser.")
    watched.does(todo("[>] Answer them | [ ] Note them"), results=["ok"]).says("They are these.")
    watched.user("Now write documentation for the installer.")
    watched.does(todo("[>] Write it | [ ] Check it"), results=["ok"]).does(bash("ls"), results=["a.md"])
    messages = [m for p in watched.story.entries if (m := p.message)]

    assert _open_plan_items(watched.story.tree, messages, DEFAULT_TOOL_ROLES) == ("Write it", "Check it")
    assert _open_plan_items(watched.story.tree, messages, DEFAULT_TOOL_ROLES, are_ended=True) == ("Check it",)

    watched.does(todo("[x] Write it | [x] Check it"), results=["ok"]).does(bash("ls"), results=["a.md"])
    assert _open_plan_items(watched.story.tree, messages, DEFAULT_TOOL_ROLES) == ()


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    ("call", "refusal"),
    [
        (edit("src/a.py"), "String to replace not found in file."),
        (
            edit("src/a.py"),
            "<tool_use_error>File has not been read yet. Read it first before writing.</tool_use_error>",
        ),
        (write("src/a.py"), "Error: file was modified since it was read"),
        (edit("src/a.py"), "0 matches found for the search text"),
        (edit("src/a.py"), "You must use the Read tool before editing"),
        (edit("src/a.py"), "The diff could not be applied: no sufficiently similar match found"),
        (edit("src/a.py"), "Der Text wurde nicht gefunden"),
        (("apply_patch", {"input": PATCH.replace("grouping", "a")}), "apply_patch verification failed: no such lines"),
    ],
)
def test_a_refused_edit_failed_only_until_the_file_was_changed(call: Made, refusal: str) -> None:
    refused = known(([call], [refusal]))
    changed = known(([edit("/repo/src/a.py")], ["The file has been updated."]))

    (line,) = refused.errors
    assert line.startswith("a.py: ")
    mended = known(([call], [refusal]), ([read("src/a.py")], ["x"]), ([edit("src/a.py")], ["ok"]))
    assert (": failed (" in refused.told_steps[0], mended.told_steps) == (True, ("read a.py", "edited a.py"))
    assert known(([call], [refusal]), ([read("src/a.py")], ["x"]), ([edit("src/a.py")], ["ok"])).errors == ()
    assert (merge_facts(refused, changed).errors, merge_facts(changed, refused).errors) == ((), (line,))


@pytest.mark.parametrize(
    "result",
    [
        "Edit applied. No errors found.",
        "2 matches replaced",
        "-    if not found:\n+    if found:",
        "Found 1 match and edited a.py",
        "Changed 1 line in a.py. No matches remain.",
    ],
)
def test_an_edit_that_was_made_is_no_refusal(result: str) -> None:
    assert known(([edit("a.py")], [result])).changed == ("a.py",)


def test_a_search_that_finds_nothing_has_not_failed() -> None:
    call = ("find_code", {"search": "def total", "path": "src"})

    assert known(([call], ["No matches found"])).errors == ()


@pytest.mark.rows("S0-55")
def test_a_check_that_passed_in_the_next_part_is_told_of_its_error() -> None:
    failed = known(FAILING)

    assert failed.errors == ("E KeyError: 'sub' (the test run failed when this part ended)",)
    assert merge_facts(failed, known(PASSING)).errors == ("E KeyError: 'sub' (a later test run passed)",)
    assert merge_facts(failed, known(([bash("ls")], ["a.py"]))).errors == ("E KeyError: 'sub'",)


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    "words",
    [
        "<tool_use_error>Sibling tool call errored</tool_use_error>",
        "Skipped because a previous call failed.",
        "Tool call cancelled due to an earlier error",
    ],
)
def test_a_call_that_the_client_left_out_has_not_failed(words: str) -> None:
    facts = known(([bash("pytest -q"), read("b.py")], [words, words]), ([read("c.py")], [words]))

    assert (facts.errors, facts.read, facts.commands) == ((), (), ("pytest -q",))
    assert facts.told_steps == ("pytest -q: not run; 1 more call: not run", "read c.py: not run")


def test_what_a_check_says_of_tests_that_it_skipped_is_its_output() -> None:
    told = known(([bash("pytest -q")], ["Skipped 3 tests because setup failed"])).told_steps

    assert "not run" not in told[0]
