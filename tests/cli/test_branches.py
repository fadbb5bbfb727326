"""`callstack checkpoint`, `branch`, `switch` and `inject`, where no proxy runs and where one does."""

from __future__ import annotations

import json

from tests.cli.conftest import Stocked


def test_a_branch_is_asked_for_without_a_proxy(own_stock: Stocked) -> None:
    shell, at = own_stock.shell, own_stock.older.conversation

    assert shell.on_data("checkpoint", "start", "--in", at[:8]).out == "checkpoint start is set on main\n"
    assert "start" in shell.on_data("checkpoint", "--list", "--in", at).out
    told = shell.on_data("branch", "other", "--from", "start", "--in", at)
    assert told.out == "branch other begins at checkpoint start with the user's next message\n"
    rows = json.loads(shell.on_data("branch", "--list", "--json", "--in", at).out)["branches"]
    assert [(row["name"], row["current"], row["wanted"]) for row in rows] == [
        ("main", True, False), ("other", False, True),
    ]  # fmt: skip
    listed = shell.on_data("branch", "--list", "--in", at).out.splitlines()
    assert [line.split()[-1] for line in listed] == ["at", "current", "next"]
    messages = shell.on_data("branch", "main", "--list", "--in", at).out.splitlines()
    assert messages[0].split() == ["number", "role", "text"]
    assert messages[1].split()[:2] == ["1", "user"]
    assert shell.on_data("checkpoint", "start", "--list", "--in", at).out.splitlines() == messages
    copied = shell.on_data("inject", "main", "1", "--to", "other", "--in", at)
    assert copied.out == "1 text of main will be copied to other with the next request there\n"
    assert json.loads(shell.on_data("switch", "main", "--json", "--in", at).out)["branch"] == "main"


def test_what_cannot_be_is_told_with_what_there_is(own_stock: Stocked) -> None:
    shell, at = own_stock.shell, own_stock.older.conversation
    for command, says_so in (
        (("branch",), "Set one first"),
        (("switch", "nowhere"), "Branches: main"),
        (("switch", "main"), "already"),
        (("inject", "main"), "message numbers"),
        (("inject", "nowhere", "1"), "Branches: main"),
        (("branch", "nowhere", "--list"), "`callstack branch --list`"),
        (("checkpoint", "nowhere", "--list"), "`callstack branch checkpoint --list`"),
        (("checkpoint", "a/b"), "no name"),
    ):
        refused = shell.on_data(*command, "--in", at)
        assert refused.code in (1, 2), command
        assert says_so in refused.errors, command
        assert refused.out == ""


def test_what_is_no_number_or_no_conversation_is_refused(stocked: Stocked) -> None:
    assert stocked.shell.on_data("inject", "main", "one").code == 2
    assert stocked.shell.on_data("checkpoint", "--in", "nothing-here").code == 2
    assert stocked.shell.on_data("switch").code == 2


def test_a_conversation_without_checkpoints_says_how_to_set_one(stocked: Stocked) -> None:
    assert stocked.shell.on_data("checkpoint", "--list").out.startswith("There is no checkpoint here.")


def test_branches_leave_with_a_conversation_and_come_back(own_stock: Stocked) -> None:
    """A backup has what hangs on its entries."""
    shell, at = own_stock.shell, own_stock.older.conversation
    shell.on_data("checkpoint", "start", "--in", at)
    shell.on_data("branch", "other", "--in", at)
    listed = shell.on_data("branch", "--list", "--in", at).out
    left = shell.on_data("export", at, "--format", "ledger", "--out", "backup.jsonl")
    there = ("--data", str(shell.home / "elsewhere"))
    back = shell.run("import", "backup.jsonl", *there)

    assert (left.code, back.code) == (0, 0), left.errors + back.errors
    assert shell.run("branch", "--list", *there).out == listed
    assert "other" in listed
