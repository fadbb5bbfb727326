"""What the work of a frame shows, read off the traffic; and that reading it message by message shows the same (D2)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.observers.observe_step import DEFAULT_TOOL_ROLES
from proxy.core.policy.signals import ANSWERED_WITHOUT_CALL, FrameActivity, FrameSignals, read_activity, signals_of
from tests.core.working import GrowingConversation, bash, padded, todo
from tests.properties.depth import searched

Made = tuple[str, dict[str, Any]]
FAILED = "2 failed, 3 passed\nExit code: 1"
PASSED = "5 passed\nExit code: 0"


def edit(path: str, new: str = "b") -> Made:
    return "edit", {"filePath": path, "oldString": "a", "newString": new}


def view(path: str) -> Made:
    return "read", {"filePath": path}


def seen(watched: GrowingConversation, window: int = 200_000) -> FrameSignals:
    watched.arrives()
    return signals_of(read_activity(watched.story, DEFAULT_TOOL_ROLES), watched.story.tree.active_frame, window)


def began(text: str = "Let the cart round prices.") -> GrowingConversation:
    return GrowingConversation(folds=False).user(text)


@pytest.mark.rows("S1-85", "D2")
def test_an_error_counts_until_the_same_check_or_tool_succeeds() -> None:
    watched = began()
    for _ in range(3):
        watched.does(bash("pytest -q"), results=[FAILED])
    watched.does(view("gone.py"), results=["Error: no such file"]).does(edit("cart.py"), results=["Updated."])
    assert seen(watched).errors == 4

    watched.does(bash("ls"), results=["cart.py"]).does(view("cart.py"), results=["def total():"])
    assert seen(watched).errors == 3  # a listing is no success of the tests

    watched.does(bash("pytest -q"), results=[PASSED])
    assert (seen(watched).errors, seen(watched).failures) == (0, ())


@pytest.mark.rows("S1-89")
def test_a_check_that_passed_is_a_sign_of_success_until_it_fails_again() -> None:
    watched = began().does(bash("pytest -q"), results=[PASSED]).does(bash("pytest -q"), results=[PASSED])
    watched.does(bash("ruff check ."), results=["All checks passed!"])
    assert seen(watched).successes == ("pytest -q", "ruff check .")

    watched.does(bash("pytest -q"), results=[FAILED])
    assert seen(watched).successes == ("ruff check .",)


@pytest.mark.rows("S1-89")
def test_an_answer_without_a_call_is_a_sign_of_success_until_the_work_goes_on() -> None:
    watched = began().does(bash("ls"), results=["cart.py"]).says("The cart rounds its prices now.")
    watched.user("ok, continue")
    shown = seen(watched)
    assert shown.successes == (ANSWERED_WITHOUT_CALL,)
    assert shown.goal_coverage == 1.0

    watched.does(bash("ls tests"), results=["test_cart.py"])
    assert seen(watched).successes == ()


@pytest.mark.proves("S1-86")
@pytest.mark.rows("S1-86", "S1-87")
def test_changed_files_are_recent_for_ten_turns_and_artifacts_for_as_long_as_the_frame() -> None:
    watched = began().does(edit("a.py"), edit("b.py"), results=["Updated.", "Updated."])
    watched.does(edit("broken.py"), results=["Error: string to replace not found"])
    for n in range(8):
        watched.does(view(f"r{n}.py"), results=[f"text {n}"])
    assert (seen(watched).files, seen(watched).artifacts) == (2, 2)

    watched.does(view("last.py"), results=["text"])
    assert (seen(watched).files, seen(watched).artifacts) == (0, 2)


@pytest.mark.rows("S1-104")
def test_a_patch_in_a_command_line_changes_files_and_a_redirect_may_not() -> None:
    """S1-104: what a command line says of files is unsure."""
    patch = "apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n*** End Patch\nEOF"
    watched = began().does(bash(patch), results=["Success. Updated the following files:\nM a.py"])
    watched.does(bash("echo x > b.py"), results=[""])

    assert (seen(watched).files, seen(watched).artifacts) == (1, 1)


@pytest.mark.rows("S1-90")
def test_turns_are_without_progress_where_each_call_gave_what_it_gave_before() -> None:
    watched = began().does(bash("git status"), results=["clean"])
    for _ in range(6):
        watched.does(bash("git status"), results=["clean"])
    assert seen(watched).idle_turns == 6

    watched.does(bash("git status"), results=["1 file changed"])
    assert seen(watched).idle_turns == 0


@pytest.mark.rows("S1-90")
def test_an_edit_is_progress_though_its_result_says_the_same_each_time() -> None:
    watched = began()
    for n in range(4):
        watched.does(edit("a.py", str(n)), results=["Updated."]).does(bash("pytest -q"), results=[FAILED])
        assert seen(watched).idle_turns <= 1


@pytest.mark.rows("S1-85", "S1-86")
@pytest.mark.parametrize(
    ("asked", "is_new"),
    [
        ("Unrelated: translate the onboarding email into French.", True),
        ("yes, go on", False),
        ("And the rounding of the cart, does it cover negative prices?", False),
    ],
)
def test_a_request_is_a_new_goal_where_it_starts_something_else(asked: str, is_new: bool) -> None:
    watched = began().does(bash("ls"), results=["cart.py"]).says("Cents are rounded.")
    before = read_activity(watched.story, DEFAULT_TOOL_ROLES)
    watched.user(asked)
    reading = FrameActivity(before.owner, before.carried)
    watched.arrives()
    for path_entry in watched.story.entries:  # as in a frame in which requests are not told apart
        reading.add_message(path_entry, DEFAULT_TOOL_ROLES)

    assert bool(signals_of(reading, watched.story.tree.root, 0).goal) is is_new


@pytest.mark.rows("S1-85")
def test_an_item_that_begins_where_another_was_under_way_is_a_new_goal() -> None:
    reading = FrameActivity("f#1", {})
    watched = began().does(todo("[>] Lexer | [ ] Parser"), results=["ok"])
    watched.does(todo("[x] Lexer | [>] Parser"), results=["ok"])
    watched.arrives()
    for path_entry in watched.story.entries:
        reading.add_message(path_entry, DEFAULT_TOOL_ROLES)

    assert signals_of(reading, watched.story.tree.root, 0).goal == "Parser"


@pytest.mark.proves("S1-91")
@pytest.mark.rows("S1-91")
def test_a_window_nobody_knows_is_taken_for_a_hundred_thousand_tokens() -> None:
    reading = FrameActivity("f#1", {}, reported_tokens=91_000)
    frame = began().does(bash("ls"), results=["x"]).story.tree.root

    assert signals_of(reading, frame, 0).usage == 0.91
    assert signals_of(reading, frame, 182_000).usage == 0.5


def test_a_result_without_a_call_and_a_call_without_a_result_are_passed_over() -> None:
    watched = began().does(bash("ls"), bash("pwd"), results=["cart.py"])
    watched.tells("tool", "from nowhere", "call_unknown")
    shown = seen(watched)
    assert (shown.errors, shown.idle_turns) == (0, 0)
    assert not read_activity(watched.story, DEFAULT_TOOL_ROLES).has_all_results


# -------------------------------------------------------------------------------------------------------------- the law
STEPS = st.sampled_from(
    [
        ("does", (edit("a.py"), "Updated.")),
        ("does", (edit("b.py"), "Error: not found")),
        ("does", (bash("pytest -q"), FAILED)),
        ("does", (bash("pytest -q"), PASSED)),
        ("does", (bash("git status"), "clean")),
        ("does", (todo("[>] Lexer | [ ] Parser"), "ok")),
        ("does", (todo("[x] Lexer | [>] Parser"), "ok")),
        ("says", "There."),
        ("user", "Unrelated: translate the onboarding email into French."),
        ("user", "go on"),
    ]
)


@pytest.mark.rows("D2")
@searched(60)
@given(st.lists(STEPS, max_size=25))
def test_a_path_read_message_by_message_shows_what_it_shows_in_one_go(steps: list[tuple[str, Any]]) -> None:
    """D2: whatever happens to the frames meanwhile: long work is cut, and older messages are another frame's then."""
    watched, known = began(), None
    watched.folds, watched.settings = True, {"cold": True, "frame_max": 2_000}
    for what, told in steps:
        if what == "does":
            watched.does(told[0], results=[padded(told[1], 1_500)])
        elif what == "says":
            watched.says(told)
        else:
            watched.user(told)
        watched.arrives()
        known = read_activity(watched.story, DEFAULT_TOOL_ROLES, known)
        tree = watched.story.tree
        assert signals_of(known, tree.active_frame, 0) == signals_of(
            read_activity(watched.story, DEFAULT_TOOL_ROLES), tree.active_frame, 0
        )


def test_another_branch_of_a_path_is_read_anew() -> None:
    """The same frame and as many messages, and other ones."""
    failed, passed = (began().does(bash("pytest -q"), results=[result]) for result in (FAILED, PASSED))
    for watched in (failed, passed):
        watched.arrives()
    known = read_activity(failed.story, DEFAULT_TOOL_ROLES)

    shown = signals_of(read_activity(passed.story, DEFAULT_TOOL_ROLES, known), passed.story.tree.active_frame, 0)
    assert (shown.errors, len(shown.successes)) == (0, 1)
