"""S1-76: the client's plan, read from its calls and mirrored."""

from collections.abc import Sequence

import pytest

from proxy.core.ledger.messages import Call
from proxy.core.observers.plan import (
    MAX_PLAN_ITEMS,
    ItemStatus,
    MirroredItem,
    PlanChange,
    PlanDiff,
    PlanItem,
    PlanItemChanged,
    PlanReplaced,
    observe_plan,
    reconcile_plan,
)
from proxy.core.observers.step import Step, ToolExecution
from proxy.core.observers.tool_roles import DEFAULT_TOOL_ROLES
from tests.core.observers.steps import done, raw, step

PLANNED, ENTERED, COMPLETED, REMOVED = (
    ItemStatus.PLANNED,
    ItemStatus.IN_PROGRESS,
    ItemStatus.COMPLETED,
    ItemStatus.REMOVED,
)


def seen(*all_done: ToolExecution) -> tuple[PlanChange, ...]:
    return observe_plan(step(*all_done), DEFAULT_TOOL_ROLES)


def listed(*items: tuple[str, str, ItemStatus]) -> PlanReplaced:
    return PlanReplaced(tuple(PlanItem(*each) for each in items), "e1")


TWO = listed(("Look", "Look", ENTERED), ("Build", "Build", PLANNED))
LOOK_AND_BUILD = [{"content": "Look", "status": "in_progress"}, {"content": "Build", "status": "pending"}]


@pytest.mark.rows("S1-76", "X-17")
@pytest.mark.parametrize(
    ("made", "told"),
    [
        (done("TodoWrite", todos=[{**each, "activeForm": "Doing"} for each in LOOK_AND_BUILD]), TWO),
        (done("todowrite", todos=[{**each, "priority": "high"} for each in LOOK_AND_BUILD]), TWO),
        (done("write_todos", todos=LOOK_AND_BUILD), TWO),
        (
            done("write_todos", todos=[{"description": i["content"], "status": i["status"]} for i in LOOK_AND_BUILD]),
            TWO,
        ),
        (done("update_plan", plan=[{"step": i["content"], "status": i["status"]} for i in LOOK_AND_BUILD]), TWO),
        (done("TodoWrite", todos='[{"content": "Look", "status": "in_progress"}, {"content": "Build"}]'), TWO),
        (
            done(
                "todo_write",
                todos=[{"id": "1", "content": "Look", "status": "completed"}, {"id": 2, "content": "Build"}],
            ),
            listed(("1", "Look", COMPLETED), ("2", "Build", PLANNED)),
        ),
        (
            done("task_tracker", command="plan", task_list=[{"id": "a", "title": "Look", "status": "done"}]),
            listed(("a", "Look", COMPLETED)),
        ),
        (
            done("Checklist", checklist="# Plan\n- [x] Look\n- [ ] Build\n  1. [~] Ship\nthe rest"),
            listed(("Look", "Look", COMPLETED), ("Build", "Build", PLANNED), ("Ship", "Ship", ENTERED)),
        ),
        (done("TodoWrite", todos=[]), PlanReplaced((), "e1")),
        (done("TodoWrite", todos=[{"content": "Look", "status": "cancelled"}]), listed(("Look", "Look", REMOVED))),
        (
            done("TaskCreate", "Task #7 created successfully: Look", subject="Look", description="around 3 files"),
            PlanItemChanged("7", "Look", PLANNED, created=True, entry="e1"),
        ),
        (
            done("TaskCreate", '{"task": {"id": "t-9"}}', subject="Look"),
            PlanItemChanged("t-9", "Look", PLANNED, created=True, entry="e1"),
        ),
        (
            done("TaskCreate", "created", subject="Look"),
            PlanItemChanged("Look", "Look", PLANNED, created=True, entry="e1"),
        ),
        (
            done("TaskUpdate", "Updated task #7 status", taskId="7", status="in_progress"),
            PlanItemChanged("7", None, ENTERED, created=False, entry="e1"),
        ),
        (
            done("TaskUpdate", taskId=7, status="deleted"),
            PlanItemChanged("7", None, REMOVED, created=False, entry="e1"),
        ),
        (done("TaskUpdate", taskId="7", subject="See"), PlanItemChanged("7", "See", None, created=False, entry="e1")),
        (
            done("create_goal", objective="Ship it"),
            PlanItemChanged("goal", "Ship it", ENTERED, created=True, entry="e1"),
        ),
        (done("update_goal", status="complete"), PlanItemChanged("goal", None, COMPLETED, created=False, entry="e1")),
    ],
)
def test_a_plan_is_read_as_its_client_writes_it(made: ToolExecution, told: PlanChange) -> None:
    """S1-76, X-17: one fixture per form."""
    assert seen(made) == (told,)


@pytest.mark.parametrize(
    "made",
    [
        raw("TodoWrite", "not json"),
        raw("TodoWrite", '{"todos": [{"content": "Lo'),
        raw("TodoWrite", "{}"),
        raw("TodoWrite", "[]"),
        done("TodoWrite", todos=7),
        done("TodoWrite", todos="do this, then that"),
        done("TodoWrite", todos=[{"status": "completed"}, 7, None, [], {"content": 3}]),
        done("TodoWrite", "Error: todos must be an array", todos=LOOK_AND_BUILD),
        done("TodoWrite", "", todos=LOOK_AND_BUILD, answered=False),
        done("TaskUpdate", "Task not found", taskId="99", status="completed"),
        done("TaskUpdate", taskId="9", status="whatever"),
        done("TaskUpdate", status="completed"),
        done("TaskCreate", "x", subject=""),
        done("TaskList"),
        done("TaskGet", taskId="7"),
        done("task_tracker", command="view", task_list=[]),
        done("update_goal"),
    ],
)
def test_what_nobody_can_read_or_what_failed_changes_nothing(made: ToolExecution) -> None:
    """Bad input."""
    assert seen(made) == ()


# ------------------------------------------------------------------------------------------------------------ mirroring
def known(*items: tuple[str, ItemStatus]) -> list[MirroredItem]:
    return [MirroredItem(f"f{at}", title, title, status) for at, (title, status) in enumerate(items)]


def after(was: Sequence[MirroredItem], *items: tuple[str, ItemStatus]) -> dict[str, list[str]]:
    return told(reconcile_plan(was, PlanReplaced(tuple(PlanItem(title, title, status) for title, status in items))))


def told(changes: PlanDiff) -> dict[str, list[str]]:
    """What changes, by title (key where that differs), without what is empty."""
    every = {
        "planned": changes.planned,
        "entered": changes.entered,
        "paused": changes.paused,
        "completed": changes.completed,
        "removed": changes.removed,
    }
    names = {name: [each.key for each in items] for name, items in every.items() if items}
    return names | ({"renamed": [f"{was.key} -> {now}" for was, now in changes.renamed]} if changes.renamed else {})


def test_a_first_list_is_planned_and_what_is_in_progress_entered() -> None:
    assert after([], ("A", ENTERED), ("B", PLANNED)) == {"planned": ["A", "B"], "entered": ["A"]}


def test_the_same_list_again_changes_nothing() -> None:
    was = known(("A", ENTERED), ("B", PLANNED), ("C", COMPLETED))
    assert after(was, ("A", ENTERED), ("B", PLANNED), ("C", COMPLETED)) == {}


def test_closing_one_and_opening_the_next_is_told_in_that_order() -> None:
    was = known(("A", ENTERED), ("B", PLANNED))
    assert after(was, ("A", COMPLETED), ("B", ENTERED)) == {"completed": ["A"], "entered": ["B"]}


def test_what_the_list_no_longer_names_is_removed_unless_it_is_final() -> None:
    was = known(("A", COMPLETED), ("B", PLANNED), ("C", ENTERED))
    assert after(was, ("C", ENTERED)) == {"removed": ["B"]}
    assert after(was) == {"removed": ["B", "C"]}


def test_an_item_may_be_completed_that_never_started() -> None:
    assert after(known(("A", PLANNED)), ("A", COMPLETED)) == {"completed": ["A"]}
    assert after([], ("A", COMPLETED)) == {"planned": ["A"], "completed": ["A"]}


def test_several_in_progress_at_once_are_all_entered_in_order() -> None:
    was = known(("A", PLANNED), ("B", PLANNED))
    assert after(was, ("B", ENTERED), ("A", ENTERED)) == {"entered": ["B", "A"]}


def test_an_item_that_goes_back_to_planned_is_paused() -> None:
    assert after(known(("A", ENTERED), ("B", PLANNED)), ("A", PLANNED), ("B", ENTERED)) == {
        "paused": ["A"],
        "entered": ["B"],
    }


def test_a_similar_title_in_the_same_state_is_the_same_item_renamed() -> None:
    was = known(("Write the parser", ENTERED), ("Test it", PLANNED))
    assert after(was, ("Write the CSV parser", ENTERED), ("Test it", PLANNED)) == {
        "renamed": ["Write the parser -> Write the CSV parser"]
    }


def test_another_title_is_another_item() -> None:
    was = known(("Write the parser", PLANNED))
    assert after(was, ("Deploy to staging", PLANNED)) == {
        "planned": ["Deploy to staging"],
        "removed": ["Write the parser"],
    }


def test_a_plan_replaced_wholesale_under_the_same_ids_is_a_new_plan() -> None:
    was = [MirroredItem("f1", "1", "Write the parser", ENTERED), MirroredItem("f2", "2", "Test it", PLANNED)]
    new = PlanReplaced((PlanItem("1", "Order flowers", ENTERED), PlanItem("2", "Book a table", PLANNED)))

    changes = reconcile_plan(was, new)

    assert [each.title for each in changes.planned] == ["Order flowers", "Book a table"]
    assert changes.entered == (changes.planned[0],)
    assert list(changes.removed) == was


def test_an_item_renamed_under_its_own_id_may_change_its_state_too() -> None:
    was = [MirroredItem("f1", "1", "Write the parser", PLANNED)]
    changes = reconcile_plan(was, PlanReplaced((PlanItem("1", "Write the CSV parser", ENTERED),)))
    assert (changes.renamed, changes.entered, changes.planned) == (((was[0], "Write the CSV parser"),), (was[0],), ())


def test_equal_titles_are_as_many_items() -> None:
    changes = reconcile_plan([], PlanReplaced((PlanItem("Test", "Test", PLANNED), PlanItem("Test", "Test", ENTERED))))
    assert len(set(changes.planned)) == 2

    was = known(("Test", ENTERED), ("Test", PLANNED))
    assert after(was, ("Test", COMPLETED), ("Test", ENTERED)) in (
        {"completed": ["Test"], "entered": ["Test"]},
        {"completed": ["Test"]},
    )
    assert after(was, ("Test", PLANNED)) == {"removed": ["Test"]}


def test_what_was_completed_and_is_planned_again_is_planned_anew() -> None:
    changes = reconcile_plan(known(("A", COMPLETED)), PlanReplaced((PlanItem("A", "A", PLANNED),)))
    assert told(changes) == {"planned": ["A"]}
    assert changes.planned[0].frame == ""


def test_single_changes_find_their_item_by_its_id() -> None:
    was = [MirroredItem("f1", "1", "A", PLANNED), MirroredItem("f2", "2", "B", ENTERED)]

    assert told(reconcile_plan(was, PlanItemChanged("1", None, ENTERED, created=False))) == {"entered": ["1"]}
    assert told(reconcile_plan(was, PlanItemChanged("2", None, COMPLETED, created=False))) == {"completed": ["2"]}
    assert told(reconcile_plan(was, PlanItemChanged("2", None, REMOVED, created=False))) == {"removed": ["2"]}
    assert told(reconcile_plan(was, PlanItemChanged("2", "C", None, created=False))) == {"renamed": ["2 -> C"]}
    assert told(reconcile_plan(was, PlanItemChanged("3", "C", PLANNED, created=True))) == {"planned": ["3"]}


def test_an_unknown_id_changes_nothing_unless_it_says_what_it_is() -> None:
    """Bad input: unknown ids."""
    assert reconcile_plan([], PlanItemChanged("9", None, COMPLETED, created=False)) == PlanDiff()
    assert told(reconcile_plan([], PlanItemChanged("9", "New", ENTERED, created=False))) == {
        "planned": ["9"],
        "entered": ["9"],
    }


def test_a_final_item_reopened_by_its_id_is_planned_anew() -> None:
    was = [MirroredItem("f1", "1", "A", COMPLETED)]
    changes = reconcile_plan(was, PlanItemChanged("1", None, ENTERED, created=False))
    assert [(each.frame, each.title) for each in changes.planned] == [("", "A")]
    assert reconcile_plan(was, PlanItemChanged("1", None, COMPLETED, created=False)) == PlanDiff()
    assert reconcile_plan(was, PlanItemChanged("1", None, REMOVED, created=False)) == PlanDiff()


def test_a_list_of_very_many_items_is_bounded() -> None:
    many = [{"content": f"item {n}"} for n in range(2_000)]
    (told_,) = seen(done("TodoWrite", todos=many))
    assert isinstance(told_, PlanReplaced)
    assert len(told_.items) == MAX_PLAN_ITEMS


def test_an_argument_of_the_wrong_type_is_nothing() -> None:
    """Bad input: models write lists where words are wanted."""
    odd = ToolExecution(
        Call("c", "task_tracker", '{"command": [], "action": {}, "task_list": {"title": ["Lexer"]}}'), "ok", "e"
    )
    assert observe_plan(Step("", (odd,)), DEFAULT_TOOL_ROLES) == ()
