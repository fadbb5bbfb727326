"""Which call a result answers."""

import pytest

from proxy.core.ledger.open_calls import OpenCalls


@pytest.mark.rows("X-30")
def test_calls_of_one_message_under_one_id_are_answered_in_their_order() -> None:
    calls = OpenCalls[str]()
    calls.add([("X", "first"), ("Y", "other"), ("X", "second")])
    assert [calls.take(ident) for ident in ("X", "X", "X", "Y")] == ["first", "second", None, "other"]
    assert not calls


@pytest.mark.rows("X-30")
def test_a_newer_message_takes_over_the_ids_of_older_ones() -> None:
    calls = OpenCalls[str]()
    calls.add([("X", "old"), ("Y", "still open")])
    calls.add([("X", "new")])
    assert [calls.take("X"), calls.take("Y"), calls.take("X")] == ["new", "still open", None]


def test_the_last_call_under_an_id_may_be_answered_again() -> None:
    calls = OpenCalls[str]()
    calls.add([("X", "first"), ("X", "second")])
    assert [calls.find("X"), calls.find("X"), calls.find("X"), calls.find("Y")] == ["first", "second", "second", None]
