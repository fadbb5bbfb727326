"""`callstack resume` and `callstack tree --as-of`: where the work stands, and how it stood (S2-27, S2-42)."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Stocked
from tests.management.api.small_ledger import CLOCK

SCREEN = 24
"""Lines."""


@pytest.mark.rows("S2-42")
def test_one_screen_says_where_the_work_stands(stocked: Stocked) -> None:
    """The way from the goal, what ended, what was said last, what is next; nothing of it can fool a terminal."""
    told = stocked.shell.on_data("resume", stocked.older.conversation)

    lines = told.out.splitlines()
    assert len(lines) <= SCREEN
    assert lines[1] == f"→ Make the suite green [{stocked.older.root}]"
    assert "  ✓ Fix rounding: Decimal until the last step" in lines
    assert "  Billing is green." in lines
    assert lines[-1] == "Next: Begin Write the changelog, which is planned in Make the suite green. (1 planned)"
    newest = stocked.shell.on_data("resume")
    assert newest.out.startswith(stocked.newer.conversation)
    assert "\x1b" not in newest.out


@pytest.mark.rows("S2-42")
def test_the_same_as_json(stocked: Stocked) -> None:
    told = json.loads(stocked.shell.on_data("resume", stocked.older.conversation, "--json").out)

    assert [step["frame"] for step in told["path"]] == [stocked.older.root]
    assert told["next"]["frame"] == stocked.older.planned
    assert [action.partition(" ")[0] for action in told["actions"]] == ["read"]
    assert told["finished"][0]["results"] == "Decimal until the last step"


@pytest.mark.rows("S2-27")
def test_the_tree_is_drawn_as_it_was(stocked: Stocked) -> None:
    """Each entry of the small conversation is a second younger than the one before it."""
    older, shell = stocked.older, stocked.shell
    assert f"✓ Fix rounding [{older.child}]" in shell.on_data("tree", older.conversation).out

    then = shell.on_data("tree", older.conversation, "--as-of", str(CLOCK + 5_000)).out
    assert f"→ Fix rounding [{older.child}]" in then
    assert older.planned in then
    long_ago = shell.on_data("tree", older.conversation, "--as-of", "2001-01-01").out
    assert "No frames yet." in long_ago
    assert " 0 requests, passed on" in long_ago
    before = json.loads(shell.on_data("resume", older.conversation, "--as-of", str(CLOCK + 5_000), "--json").out)
    assert [step["frame"] for step in before["path"]] == [older.root, older.child]
    assert before["next"]["action"] == "Finish Fix rounding, then begin Write the changelog."
    empty = json.loads(shell.on_data("resume", older.conversation, "--as-of", "2001-01-01", "--json").out)
    assert (empty["path"], empty["next"]["action"]) == ([], "Nothing was begun yet.")


def test_a_conversation_whose_work_has_ended_says_what_opens_it_again(own_stock: Stocked) -> None:
    shell, at = own_stock.shell, own_stock.newer.conversation
    shell.on_data("push", "Lexer", "--in", at)
    shell.on_data("cancel", at, "--tree")

    assert "is blocked. The user's next message reopens it." in shell.on_data("resume", at).out


@pytest.mark.parametrize("command", ["tree", "resume"])
def test_a_time_that_is_none_is_a_wrong_argument(stocked: Stocked, command: str) -> None:
    refused = stocked.shell.on_data(command, "--as-of", "yesterday")

    assert refused.code == 2
    assert "as_of: write ms since the epoch, or an ISO time" in refused.errors
    assert stocked.shell.on_data("resume", "nothing-here").code == 2
