"""What failed is tried again: another frame that is told why, and nothing of what was done (S0-39)."""

from __future__ import annotations

from typing import Any

import pytest

from llm_test_provider import ScriptedProvider, call, says
from tests.harness import Conversation, Json, activate, as_one_text, bash, does, pop, push, texts

REASON = "The lock was held by the worker."


@pytest.fixture
def failed(chat: Conversation, provider: ScriptedProvider) -> Conversation:
    """A frame `Migrate` ran a command and failed."""
    provider.will(
        does(push("Migrate")),
        does(bash("migrate")),
        does(pop(REASON, status="failed")),
        says("It failed."),
    )
    chat.says("migrate the database")
    chat.returns("OUTPUT of the first attempt")
    return chat


def begun(chat: Conversation, provider: ScriptedProvider, made: Any) -> str:
    """The line behind the call that begins the next attempt, as text."""
    provider.will(does(made), says("on it"))
    chat.says("try again")
    return as_one_text(provider.received[-1].messages)


def newest_frame(chat: Conversation, provider: ScriptedProvider) -> Json:
    rows = chat.proxy.get(f"/stack/conversations/{chat.proxy.conversations[0]['id']}/frames")["frames"]
    return dict(chat.proxy.get(f"/stack/frames/{rows[-1]['sessionID']}"))


@pytest.mark.rows("S0-39")
@pytest.mark.parametrize("how", ["pushed", "activated"])
def test_a_failed_frame_begun_again_is_another_attempt_with_the_reason(
    failed: Conversation, provider: ScriptedProvider, how: str
) -> None:
    first = failed.proxy.frames()["Migrate"]["sessionID"]
    line = begun(failed, provider, push("migrate") if how == "pushed" else activate(first))

    frame = newest_frame(failed, provider)
    assert "Attempt 2 at this" in line
    assert REASON in line
    assert "OUTPUT of the first attempt" not in line
    assert (frame["retryOf"], frame["status"]) == (first, "in_progress")
    assert frame["sessionID"] != first


@pytest.mark.rows("S0-39")
def test_attempts_are_counted(failed: Conversation, provider: ScriptedProvider) -> None:
    begun(failed, provider, push("Migrate"))
    provider.will(does(pop("No rights.", status="failed")), says("again"))
    failed.says("well?")
    line = begun(failed, provider, push("Migrate"))

    assert "Attempt 3 at this" in line
    assert "No rights." in line


def test_a_frame_that_was_completed_is_no_attempt(chat: Conversation, provider: ScriptedProvider) -> None:
    provider.will(does(push("Migrate")), does(pop("Done.")), says("Done."))
    chat.says("migrate")
    line = begun(chat, provider, push("Migrate"))

    assert "Attempt" not in line
    assert newest_frame(chat, provider)["retryOf"] is None


def test_a_person_wants_another_attempt(failed: Conversation, provider: ScriptedProvider) -> None:
    """`POST /stack/frames/ID/retry`: the model is told of it with its next request."""
    first = failed.proxy.frames()["Migrate"]["sessionID"]
    status, told = failed.proxy.asked("POST", f"/stack/frames/{first}/retry")
    provider.will(says("on it"))
    failed.says("please")

    assert status == 200
    assert told["frames"][0]["title"] == "Migrate"
    assert newest_frame(failed, provider)["retryOf"] == first
    said = "\n".join(texts(provider.received[-1].messages))
    assert REASON in said
    assert "OUTPUT of the first attempt" not in said


def test_only_what_failed_is_tried_again(failed: Conversation) -> None:
    root = failed.proxy.get(f"/stack/conversations/{failed.proxy.conversations[0]['id']}/state")["rootFrameIDs"][0]

    assert failed.proxy.asked("POST", f"/stack/frames/{root}/retry")[0] == 409
    assert failed.proxy.asked("POST", "/stack/frames/fnothere/retry")[0] == 404


def test_a_retry_that_names_no_frame_is_a_push(chat: Conversation, provider: ScriptedProvider) -> None:
    provider.will(does(call("stack_frame_push", title="A", successCriteria="a", retry_of="nothing")), says("on it"))
    chat.says("go")

    assert newest_frame(chat, provider)["retryOf"] is None
