"""X-64: how often edits failed, answers were asked for again, and the user broke in."""

import pytest

from callstack_proxy.management.reports import WorkCounts, count_work
from tests.core.forest import LedgerBuilder, call

EDIT = {"file_path": "a.py", "old_string": "x", "new_string": "y"}


@pytest.mark.rows("X-64")
def test_what_went_wrong_is_counted_once() -> None:
    talk = LedgerBuilder()
    talk.client("user", "Fix the sum")
    for ident, name, arguments, result in (
        ("c1", "Edit", EDIT, "Error: String to replace not found in file."),
        ("c2", "Edit", EDIT, "The file a.py has been updated."),
        ("c3", "Write", {"file_path": "b.py", "content": "1"}, "File created successfully at: b.py"),
        ("c4", "Read", {"file_path": "a.py"}, "Error: no such file"),
        ("c5", "Bash", {"command": "ls"}, "Exit code 1"),
        ("c6", "delete_file", {"path": "a.py"}, "Error: not found"),
    ):
        talk.model(("", (call(ident, name, **arguments),)))
        talk.client("tool", result, ident)
    talk.client("user", "[Request interrupted by user]")
    asked = talk.client("user", "The user interrupted by phone, he says.")
    talk.model(("one", ()))
    talk.ledger.turns_by_parent[asked].append("another answer")

    assert count_work(talk.ledger) == WorkCounts(edits=3, failed_edits=1, retries=1, interruptions=1)
