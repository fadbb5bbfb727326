"""Which messages leave together: calls with their results, and whatever shares a link."""

import time

import pytest

from proxy.core.compaction.client_notes import MAX_NOTE_LENGTH, files_noted_in
from proxy.core.compaction.message_groups import NO_GROUP, group_numbers
from proxy.core.ledger import Call, Message

pytestmark = pytest.mark.rows("X-46")
USER = Message("user", b"", "")


def spoke(*calls: str, links: tuple[str, ...] = ()) -> Message:
    return Message("assistant", b"", "", calls=tuple(Call(call, "bash", "{}") for call in calls), links=links)


def result(call: str) -> Message:
    return Message("tool", b"", "", answers=call)


def test_a_group_is_an_answer_with_the_results_of_its_calls() -> None:
    line = [USER, spoke("a", "b"), result("b"), USER, result("a"), spoke(), spoke("c"), result("c"), None]
    assert group_numbers(line) == [NO_GROUP, 1, 1, NO_GROUP, 1, 2, 3, 3, NO_GROUP]


def test_a_result_belongs_to_the_nearest_call_before_it_or_to_none() -> None:
    assert group_numbers([result("a"), spoke("a"), result("a"), spoke("a"), result("a")]) == [NO_GROUP, 1, 1, 2, 2]


def test_groups_that_share_a_link_are_one_with_their_results() -> None:
    """Also where one of them shares one link with the first and another with the last."""
    line = [
        spoke("a", links=("x",)),
        result("a"),
        spoke("b"),
        result("b"),
        spoke(links=("x", "y")),
        spoke(links=("y",)),
    ]
    assert group_numbers(line) == [1, 1, 2, 2, 1, 1]
    assert group_numbers([spoke(links=("x",)), spoke(links=("y",)), spoke(links=("y", "x"))]) == [1, 1, 1]


def test_the_rounds_of_a_turn_are_one_group() -> None:
    line = [spoke("a"), spoke("b"), result("b"), spoke("c")]
    assert group_numbers(line, ["turn", "turn", "b", "next"]) == [1, 1, 1, 3]


def test_a_long_line_of_links_is_followed_in_linear_time() -> None:
    line = [spoke(links=(str(at), str(at + 1))) for at in range(20_000)]
    assert set(group_numbers(line)) == {1}


@pytest.mark.parametrize(
    "filler", ["x", " ", "1", ".", "a.", "[{", "</a>", "\u2718 ", "file ", "\nNote: b.py was modified"]
)
def test_a_note_is_read_in_linear_time(filler: str) -> None:
    text = "Note: a.py was modified. "
    text += filler * ((MAX_NOTE_LENGTH - len(text)) // len(filler))
    began = time.process_time()

    files_noted_in(Message("system", b"", "", text))

    assert time.process_time() - began < 1
