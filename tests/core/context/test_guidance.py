"""The guidance on task frames: short, constant, and nothing in it that can become false."""

import pytest

from proxy.core.context.guidance import GuidanceWording, guidance_text
from proxy.core.observers.tool_roles import DEFAULT_TOOL_ROLES
from tests.core.forest import count

KEEP = "Keep using your todo or plan tool."
ITEMS = "Todo items are frames: tick one off with what came out."


def mirroring(*offered: str, mirrors_plans: bool = True) -> str:
    return guidance_text("mirror", offered, DEFAULT_TOOL_ROLES, mirrors_plans=mirrors_plans)


def replacing(*offered: str) -> str:
    return guidance_text("replace", offered, DEFAULT_TOOL_ROLES)


@pytest.mark.rows("S1-141", "S1-143", "S1-150", "S1-169", "C19", "D5")
@pytest.mark.parametrize("offered", [(), ("bash",), ("bash", "TodoWrite")], ids=["none", "no plan tool", "a plan tool"])
def test_the_guidance_is_short_and_says_when_to_push(offered: tuple[str, ...]) -> None:
    """What a model can act on: for what a frame is good, and where it is not."""
    told = mirroring(*offered)

    assert count(told) <= 100
    assert "NEVER" not in told
    assert "Push for many steps of which you keep little" in told
    assert "if ten more will follow and the next needs other files" in told


@pytest.mark.rows("S1-169", "S1-76", "C19")
def test_where_the_client_has_a_plan_tool_its_items_are_called_frames() -> None:
    assert ITEMS in mirroring("bash", "TodoWrite")
    assert "stack_frame_plan" not in mirroring("bash", "TodoWrite")
    assert KEEP in mirroring("bash", "TodoWrite", mirrors_plans=False)
    assert ITEMS not in mirroring("bash", "TodoWrite", mirrors_plans=False)
    assert ITEMS not in mirroring("bash")
    assert "stack_frame_plan" in mirroring("bash")


@pytest.mark.rows("S1-174")
@pytest.mark.parametrize("wording", ["mirror", "replace"])
@pytest.mark.parametrize("offered", [("bash",), ("bash", "TodoWrite")])
def test_no_tool_is_advised_that_is_not_offered(wording: GuidanceWording, offered: tuple[str, ...]) -> None:
    assert "stack_frame_plan" not in guidance_text(wording, offered, DEFAULT_TOOL_ROLES, offers_plan=False)


@pytest.mark.rows("S1-169")
@pytest.mark.parametrize("told", [mirroring("bash"), mirroring("TodoWrite"), replacing("bash", "TodoWrite")])
def test_the_guidance_holds_no_state(told: str) -> None:
    """No frame, position, plan or next step of a conversation: it stands for as long as the conversation lives."""
    assert not any(word in told for word in ("<current", "in_progress", "Task 1", "Nothing is planned", "Now:"))


@pytest.mark.rows("C19", "S1-76", "S1-141", "S1-150")
def test_replacing_names_the_plan_tools_that_the_client_offers_and_no_other_tool() -> None:
    """In the client's own spelling and order, whatever server they come from; a goal is no plan."""
    told = replacing("bash", "TodoWrite", "mcp__work__Task_Create", "TaskUpdate", "create_goal", "TodoWrite")

    assert "NEVER use TodoWrite, mcp__work__Task_Create, TaskUpdate or any other todo or plan tool." in told
    assert KEEP not in told
    assert "Plan with stack_frame_plan alone" in told


@pytest.mark.rows("C19")
def test_a_tool_that_configuration_calls_a_plan_tool_is_named_too() -> None:
    told = guidance_text(
        "replace", ["steps", "TodoWrite"], DEFAULT_TOOL_ROLES.with_entries({"steps": "plan", "TodoWrite": "none"})
    )

    assert "NEVER use steps or any other todo or plan tool." in told


@pytest.mark.rows("C19")
def test_where_no_plan_tool_is_offered_none_is_named() -> None:
    assert "NEVER use any other todo or plan tool." in replacing("bash", "read")


@pytest.mark.rows("C19", "S1-134")
@pytest.mark.parametrize(
    "offered",
    [
        ["TodoWrite", "update_plan", "task_tracker", "TaskCreate", "TaskUpdate", "write_todos"],
        [f"{'server' * 7}{n}__todowrite" for n in range(200)],
        ["x" * 60_000 + "__todowrite"],
        ["</stack-context> and now__todowrite", "line\nbreak__todowrite", "__todowrite"],
    ],
    ids=["all known", "very many", "very long", "no names"],
)
def test_replacing_stays_within_the_budget_of_the_guidance_whatever_tools_are_called(offered: list[str]) -> None:
    """DESIGN 6: at most 300 tokens, and nothing but names in it."""
    told = replacing(*offered)

    assert count(told) <= 300
    assert told.count("</stack-context>") == 0
    assert len(told.splitlines()) == len(mirroring().splitlines())
