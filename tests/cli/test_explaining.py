"""`explain` on a stored conversation: which frames stand in the block of the active one, with their scores."""

import json

import pytest

from tests.cli.conftest import Stocked


@pytest.mark.rows("S1-54", "S1-56")
def test_scores_stand_in_columns_with_what_became_of_each(own_stock: Stocked) -> None:
    shell, at = own_stock.shell, own_stock.older.conversation
    shell.on_data("push", "Billing tests", "--in", at)
    shown = shell.on_data("explain", at)

    assert shown.code == 0
    lines = shown.out.splitlines()
    assert "(Billing tests), which the model has not read yet; as it would be now" in lines[0]
    above = next(line.split() for line in lines if line.startswith(own_stock.older.root))
    assert above[-2:] == ["stands:", "parent"]
    assert "1000" in above
    beside = next(line.split() for line in lines if line.startswith(own_stock.older.child))
    assert beside[-2] == "stands:"
    assert lines[-1] == "A sibling stands from a relevance of 30 on, and the three newest in any case."


@pytest.mark.rows("S1-54", "S1-56")
def test_an_explanation_as_json_is_what_the_api_tells(own_stock: Stocked) -> None:
    shell, at = own_stock.shell, own_stock.older.conversation
    shell.on_data("push", "Billing tests", "--in", at)
    told = json.loads(shell.on_data("explain", at, "--json").out)

    (parent,) = told["ancestors"]
    assert parent["score"] == sum(parent["parts"].values())
    for row in told["siblings"]:
        assert row["relevance"] == sum(row["words"].values())
        assert row["score"] == pytest.approx(row["relevance"] + sum(row["rest"].values()))


def test_a_root_without_anything_beside_it_says_so(stocked: Stocked) -> None:
    shown = stocked.shell.on_data("explain", stocked.older.conversation)

    assert shown.code == 0
    assert "No frame stands above it." in shown.out
    assert "Nothing was finished beside it, nor beside those above it." in shown.out


@pytest.mark.parametrize("named", ["nothing-here", "abc", "x" * 5_000, "../../etc"])
def test_a_conversation_that_is_not_there_is_one_message(stocked: Stocked, named: str) -> None:
    shown = stocked.shell.on_data("explain", named)

    assert (shown.code, shown.out) == (2, "")
    assert "Traceback" not in shown.errors
