"""Git commands that put changes away, bring them back or undo them are no edits."""

import pytest

from proxy.core.observers.files import observe_files
from proxy.core.observers.shell import TreeMove, away_at_each, parse_command_line, tree_move_of
from proxy.core.observers.tool_roles import DEFAULT_TOOL_ROLES
from tests.core.observers.steps import done, step


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    ("line", "move"),
    [
        ("git stash", TreeMove(puts_away=True)),
        ("git -C /repo stash push -u -m base", TreeMove(puts_away=True)),
        ("git stash -k", TreeMove(puts_away=True)),
        ("git stash pop", TreeMove(brings_back=True)),
        ("git stash apply -q", TreeMove(brings_back=True)),
        ("git stash drop", TreeMove(drops=True)),
        ("git stash list", TreeMove()),
        ("git checkout -- src/a.py b.py", TreeMove(undone=("src/a.py", "b.py"))),
        ("git checkout HEAD -- a.py", TreeMove(undone=("a.py",))),
        ("git checkout .", TreeMove(undone=(".",))),
        ("git checkout main -- a.py", TreeMove()),
        ("git checkout main", TreeMove()),
        ("git restore a.py", TreeMove(undone=("a.py",))),
        ("git restore --staged a.py", TreeMove()),
        ("git restore --source=v1 a.py", TreeMove()),
        ("git reset --hard", TreeMove(undone=(".",))),
        ("git reset --hard HEAD", TreeMove(undone=(".",))),
        ("git reset --soft HEAD", TreeMove()),
        ("git switch -", TreeMove()),
        ("git commit -m x", TreeMove(commits=True)),
        ("git diff", None),
        ("stash pop", None),
    ],
)
def test_what_git_does_to_the_changes_is_read_from_its_words(line: str, move: TreeMove | None) -> None:
    assert tree_move_of(parse_command_line(line)[0]) == move


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    ("line", "result", "away", "flags"),
    [
        ("git stash && pytest -q; git stash pop; pytest -q", "", False, [False, True, True, False, False]),
        ("git stash && pytest -q", "No local changes to save", False, [False, False, False]),
        ("pytest -q", "", True, [True, True]),
        ("git stash pop && pytest -q", "", True, [True, False, False]),
    ],
)
def test_between_a_stash_and_its_pop_the_changes_are_away(
    line: str, result: str, away: bool, flags: list[bool]
) -> None:
    assert away_at_each(parse_command_line(line), result, away=away) == flags


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    ("line", "files"),
    [
        ("git stash", []),
        ("git stash && python -m pytest -q; git stash pop", []),
        ("git checkout -- a.py", []),
        ("git restore a.py && git status", []),
        ("git reset --hard", []),
        ("git switch main", []),
        ("git checkout main && make codegen", ["a.py"]),
        ("python gen.py", ["a.py"]),
    ],
)
def test_a_file_that_git_only_moved_is_not_changed(line: str, files: list[str]) -> None:
    result = "done\n[This command modified 1 file: a.py]"

    assert [f.path for f in observe_files(step(done("bash", result, command=line)), DEFAULT_TOOL_ROLES)] == files
