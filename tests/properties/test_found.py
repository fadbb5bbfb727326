"""What random programs have found, each as the shortest story that shows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from llm_test_provider import ScriptedProvider, says
from tests.harness import Conversation, activate, bash, does, op, plan, pop, push, running_stage


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as running:
        yield running


@pytest.fixture
def chat(provider: ScriptedProvider, tmp_path: Path) -> Iterator[Conversation]:
    with running_stage(provider, tmp_path, streamed=False) as stage:
        yield stage.chat()


def told(provider: ScriptedProvider, request: int) -> str:
    """The last result that stood on the line of a request, counted from the end."""
    return str(provider.received[request].messages[-1]["content"])


def test_a_root_popped_as_blocked_is_reopened_by_the_next_user_message(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    provider.will(does(pop(status="blocked")), says("I need the password."))
    chat.says("deploy it")
    provider.will(does(pop()), says("Deployed."))
    chat.says("it is 1234")

    assert list(chat.proxy.statuses().values()) == ["completed"]


def test_under_a_root_popped_as_blocked_nothing_is_pushed(chat: Conversation, provider: ScriptedProvider) -> None:
    provider.will(does(pop(status="blocked")), does(push("More")), says("I need the password."))
    chat.says("deploy it")

    assert "More" not in chat.proxy.statuses()


def test_a_second_push_is_planned_beside_the_first_also_when_that_was_popped_between_them(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    provider.will(does(push("Outer")), does(push("A"), pop(), push("B")), says("so far"))
    chat.says("go")
    frames = chat.proxy.frames()

    assert frames["B"]["status"] == "planned"
    assert frames["B"]["parentSessionID"] == frames["Outer"]["sessionID"]


def test_a_frame_planned_below_one_that_has_ended_is_not_activated(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    provider.will(
        does(push("A")),
        does(plan("Later")),
        does(pop()),
        does(activate("Later")),
        says("so far"),
    )
    chat.says("go")

    assert chat.proxy.statuses()["Later"] == "planned"
    assert "which is completed" in told(provider, -1)


def test_a_frame_planned_below_a_blocked_one_resumes_that_with_it(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    provider.will(
        does(push("A")),
        does(plan("Later")),
        does(pop("no key", "blocked")),
        does(activate("Later")),
    )
    provider.will(does(pop("later done")), does(pop("a done")), says("all done"))
    chat.says("go")

    assert chat.proxy.statuses() | {"go": ""} == {"go": "", "A": "completed", "Later": "completed"}


@pytest.mark.rows("S1-79")
def test_a_frame_whose_parent_was_invalidated_meanwhile_returns_to_the_next_one_that_goes_on(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    """S1-79: what is in progress below goes on; its parent is not there to return to, and the line above says why."""
    provider.will(
        does(push("A")),
        does(push("B")),
        does(op("invalidate", sessionID="A", reason="not needed")),
    )
    provider.will(does(pop("found the key")), says("so far"))
    chat.says("go")

    assert chat.proxy.active() == "go"
    assert "was invalidated: not needed" in told(provider, -1)
    assert "found the key" in told(provider, -1)


def test_a_resumed_frame_whose_block_stands_where_it_stood_begins_a_line_of_its_own(
    provider: ScriptedProvider, tmp_path: Path
) -> None:
    """Of the view `last:2` the groups on the line have changed by then, and their number has not."""
    provider.will(does(bash("one")), does(bash("two")), does(push("A")))
    provider.will(does(pop("no key", "blocked")), does(activate("A")), says("here again"))
    with running_stage(provider, tmp_path, streamed=False) as stage:
        chat = stage.chat(stage.proxy(child_view="last:2"))
        chat.says("go")
        chat.returns("one done")
        chat.returns("two done")
        first, resumed = ([str(m["content"]) for m in provider.received[at].messages] for at in (3, 5))

        assert "<stack-context " in first[-1]
        assert 'Earlier attempt (ref="' in resumed[-1]
        assert len(first) == len(resumed)
        assert first[2:-1] != resumed[2:-1]
