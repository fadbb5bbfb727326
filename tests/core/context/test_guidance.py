"""What a model is told of task frames as its thread wakes: two wordings, both short."""

from hashlib import sha256

import pytest

from proxy.core.context.guidance import MIRROR_GUIDANCE, guidance_text
from proxy.core.observers.tool_roles import DEFAULT_TOOL_ROLES
from tests.core.forest import count

OPERATIONS = ("frame_push", "frame_pop", "frame_plan", "frame_activate", "stack_recall")


def replacing(*offered: str) -> str:
    return guidance_text("replace", offered, DEFAULT_TOOL_ROLES)


@pytest.mark.rows("S1-141", "S1-150", "C19", "S1-143", "D5")
def test_the_guidance_is_short_and_never_forbids_the_clients_own_plan_tool() -> None:
    """DESIGN 6 (at most 300 tokens), C19, S1-141, S1-150."""
    told = guidance_text("mirror", ["TodoWrite"], DEFAULT_TOOL_ROLES)
    assert count(told) <= 240
    assert "NEVER" not in told
    assert "Keep using your usual todo or plan tool." in told
    assert all(name in told for name in OPERATIONS)


@pytest.mark.rows("C19")
def test_what_is_told_by_default_has_the_bytes_it_always_had() -> None:
    """C19: a conversation that woke before there was a choice goes on with the same prefix as one that wakes now."""
    assert guidance_text("mirror", (), DEFAULT_TOOL_ROLES) == MIRROR_GUIDANCE
    assert (
        sha256(MIRROR_GUIDANCE.encode()).hexdigest()
        == "216dd6cbd433de25aeba5bbe1eac6de927031ab68f78e39584e3cedfdaa8bd81"
    )


@pytest.mark.rows("C19", "S1-76", "S1-141", "S1-150")
def test_replacing_names_the_plan_tools_that_the_client_offers_and_no_other_tool() -> None:
    """In the client's own spelling and order, whatever server they come from; a goal is no plan."""
    told = replacing("bash", "TodoWrite", "mcp__work__Task_Create", "TaskUpdate", "create_goal", "TodoWrite")

    assert "NEVER use TodoWrite, mcp__work__Task_Create, TaskUpdate or any other todo or plan tool." in told
    assert "Keep using" not in told
    assert all(name in told for name in OPERATIONS)
    assert [line for line in told.splitlines() if line not in MIRROR_GUIDANCE.splitlines()] == [
        "- Frames are your only plan: lay out and track all work with the stack tools. NEVER use TodoWrite, "
        "mcp__work__Task_Create, TaskUpdate or any other todo or plan tool."
    ]


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
    assert len(told.splitlines()) == len(MIRROR_GUIDANCE.splitlines())
