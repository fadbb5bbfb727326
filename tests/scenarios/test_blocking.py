"""At level `auto` a frame ends as blocked under which the same task failed again and again (S3-23)."""

from __future__ import annotations

import pytest

from llm_test_provider import ScriptedProvider, says
from tests.harness import Conversation, Stage, bash, does, pop, push, texts


def fails_twice(chat: Conversation, provider: ScriptedProvider) -> None:
    """Inside a frame of its own the model tries the same thing in two turns of the user."""
    provider.will(does(push("Release")))
    for number in range(2):
        provider.will(
            does(push("Migrate")),
            does(pop(f"no rights, attempt {number}", "failed")),
            says("It failed."),
        )
        chat.says(f"Try to migrate, attempt {number}.")


@pytest.mark.rows("S3-23")
def test_a_frame_whose_task_failed_twice_ends_as_blocked(stage: Stage, provider: ScriptedProvider) -> None:
    """S3-23: as the user speaks; what was tried is told above it, and stays behind its ref."""
    chat = stage.chat(stage.proxy(autonomy="auto", enabled_heuristics="stagnation"))
    fails_twice(chat, provider)
    assert chat.proxy.statuses()["Release"] == "in_progress"
    stage.excuse()
    provider.will(says("I will ask for the rights."))
    chat.says("And now?")

    frames = chat.proxy.frames()
    assert frames["Release"]["status"] == "blocked"
    assert chat.proxy.active() == "Try to migrate, attempt 0."
    line = "".join(texts(provider.received[-1].messages))
    assert "Blocked: Migrate failed 2 times. The last attempt: no rights, attempt 1" in line
    assert "And now?" in line
    stage.excuse()
    provider.will(says("Still waiting."))
    chat.says("Go on without.")
    assert chat.proxy.statuses()["Release"] == "blocked"


@pytest.mark.rows("S3-23")
@pytest.mark.parametrize("settings", [{}, {"autonomy": "auto", "loops": "off"}])
def test_at_any_other_level_it_is_only_told(stage: Stage, provider: ScriptedProvider, settings: dict[str, str]) -> None:
    chat = stage.chat(stage.proxy(**settings))
    fails_twice(chat, provider)
    provider.will(says("I will ask for the rights."))
    chat.says("And now?")

    assert "blocked" not in chat.proxy.statuses().values()


@pytest.mark.rows("S3-23")
def test_a_root_is_never_given_up_for_the_user(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat(stage.proxy(autonomy="auto", enabled_heuristics="stagnation"))
    for number in range(2):
        provider.will(does(push("Migrate")), does(pop("no rights", "failed")), says("It failed."))
        chat.says(f"Try to migrate, attempt {number}.")
    provider.will(says("I will ask for the rights."))
    chat.says("And now?")

    assert "blocked" not in chat.proxy.statuses().values()


@pytest.mark.rows("S3-23")
def test_while_the_agent_is_at_work_nothing_ends(stage: Stage, provider: ScriptedProvider) -> None:
    """What the user says in the middle of a tool loop is no rest."""
    chat = stage.chat(stage.proxy(autonomy="auto", enabled_heuristics="stagnation"), tools=("bash",))
    provider.will(does(push("Release")))
    for _ in range(2):
        provider.will(does(push("Migrate")), does(pop("no rights", "failed")))
    provider.will(does(bash("id")), says("I see."))
    chat.says("Release it.")
    chat.returns("root")

    assert chat.proxy.statuses()["Release"] == "in_progress"
