"""Another model in mid-session, at another upstream: frames and recall go on, the line is rendered for the new model,
and what the other vendor's model thought stays out of it (DESIGN 5, L8)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from llm_test_provider import ScriptedProvider, says
from tests.harness import Conversation, bash, does, pop, push, recall, running_stage

OURS, THEIRS, SISTER = "gpt-5.4", "claude-opus-5.5", "claude-sonnet-5"


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as running:
        yield running


@pytest.fixture(params=["streamed", "plain"])
def chat(request: pytest.FixtureRequest, provider: ScriptedProvider, tmp_path: Path) -> Iterator[Conversation]:
    """A client in front of a proxy with two upstreams, each for one vendor's models."""
    with running_stage(provider, tmp_path, streamed=request.param == "streamed") as stage:
        yield stage.chat(
            stage.proxy(
                upstreams__ours__url=provider.url,
                upstreams__ours__models="gpt-*",
                upstreams__theirs__url=provider.url,
                upstreams__theirs__models="claude-*",
            )
        )


def test_frames_and_recall_go_on_and_the_other_vendors_reasoning_stays_out(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    provider.will(
        does(push("Auth"), reasoning="thought one"),
        does(bash("cat main.py"), reasoning="thought two"),
        does(pop("login works"), reasoning="thought three"),
        says("Auth is done.", reasoning="thought four"),
    )
    chat.says("add login", model=OURS)
    chat.returns("the old main.py", model=OURS)

    provider.will(
        does(recall("Auth", query="main.py"), reasoning="of theirs"),
        says("It was the old one.", reasoning="more of theirs"),
        says("Still there."),
    )
    theirs = chat.says("what was in main.py?", model=THEIRS)
    sister = chat.says("go on", model=SISTER)

    assert (theirs.text, sister.text) == ("It was the old one.", "Still there.")
    assert [answer.stack_status for answer in (theirs, sister)] == ["full", "full"]
    assert len(chat.proxy.conversations) == 1
    assert chat.proxy.statuses()["Auth"] == "completed"
    assert [receipt["upstream"] for receipt in chat.proxy.receipts()] == ["ours", "ours", "theirs", "theirs"]
    first, second, last = (received.raw.decode() for received in provider.asked[4:])
    assert "login works" in first
    assert "the old main.py" in second
    assert "thought" not in first + second + last
    assert "more of theirs" in last
