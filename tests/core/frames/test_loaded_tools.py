"""Which call groups hold the tools that the client believes loaded, by value (DESIGN 6, L11)."""

import pytest

from proxy.core.frames import LoadingGroup, groups_still_needed, groups_that_load
from proxy.core.ledger import Call, LoadedTool, Message


def said(*calls: str, loads: str = "") -> Message:
    return Message(
        "assistant", b"", "", "", tuple(Call(call, "tool", "{}") for call in calls), loaded_tools=tools(loads)
    )


def result(call: str, loads: str = "") -> Message:
    return Message("tool", b"", "", answers=call, loaded_tools=tools(loads))


def tools(names: str) -> tuple[LoadedTool, ...]:
    return tuple(map(LoadedTool, names.split()))


WORDS = Message("user", b"", "")


@pytest.mark.rows("X-46")
def test_a_group_is_the_call_with_all_its_results() -> None:
    groups = groups_that_load([WORDS, said("a", "b"), result("a", "issue"), WORDS, result("b"), said("c"), result("c")])

    assert groups == [LoadingGroup((1, 2, 4), frozenset({"issue"}))]


@pytest.mark.rows("X-46")
def test_a_result_belongs_to_the_nearest_call_of_its_id() -> None:
    groups = groups_that_load([said("a"), result("a"), said("a"), result("a", "issue")])

    assert [group.positions for group in groups] == [(2, 3)]


@pytest.mark.rows("X-46")
def test_an_answer_or_a_message_may_load_by_itself() -> None:
    added = Message("system", b"", "", loaded_tools=tools("late"))
    groups = groups_that_load([said("a", loads="issue"), result("a"), added, None])

    assert groups == [LoadingGroup((0, 1), frozenset({"issue"})), LoadingGroup((2,), frozenset({"late"}))]


@pytest.mark.rows("X-46")
@pytest.mark.parametrize(
    ("first", "second", "needed"),
    [("issue", "issue", [2]), ("issue", "fetch", [0, 2]), ("issue fetch", "issue", [0, 2])],
)
def test_a_search_is_needed_until_all_it_loaded_is_loaded_again(first: str, second: str, needed: list[int]) -> None:
    found = groups_still_needed([said("a"), result("a", first), said("b"), result("b", second)])

    assert [group.positions[0] for group in found] == needed


@pytest.mark.rows("X-46")
def test_where_nothing_is_loaded_nothing_is_found() -> None:
    assert groups_that_load([said("a"), result("a"), WORDS]) == []
