"""Whole sessions: a chat client, the proxy, litellm, the provider. Hidden calls, reasoning and frames work as they do
at a provider that is reached by its URL."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.scripted import ScriptedProvider, says
from tests.harness import RunningProxy, Stage, bash, does, pop, push, staged

VENDORS = ("openai", "anthropic")


@pytest.fixture(params=["streamed", "plain"])
def stage(request: pytest.FixtureRequest, provider: ScriptedProvider, tmp_path: Path) -> Iterator[Stage]:
    with staged(provider, tmp_path, streamed=request.param == "streamed") as running:
        yield running


def behind(stage: Stage, vendor: str, **more: Any) -> RunningProxy:
    url = stage.provider.url if vendor == "openai" else stage.provider.origin
    about = {"url": url, "kind": "litellm", "model_prefix": f"{vendor}/", "key": "sk-operator"}
    return stage.proxy(**{f"upstreams__default__{name}": value for name, value in about.items()}, **more)


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_frame_is_pushed_worked_in_and_popped_and_the_client_sees_its_own_calls_alone(
    stage: Stage, vendor: str
) -> None:
    """Hidden rounds, a mixed one among them, with reasoning that the provider signed."""
    chat = stage.chat(behind(stage, vendor), model="claude-sonnet-4-5" if vendor == "anthropic" else "gpt-5")
    stage.provider.will(
        does(push("Auth"), reasoning="a frame for this"),
        does(bash("ls"), text="I look."),
        does(pop("login works"), reasoning="that was all"),
        says("Done."),
    )

    first = chat.says("add login")
    last = chat.returns("main.py")

    assert (first.text, first.calls) == ("I look.", [("bash", '{"command": "ls"}')])
    assert (last.text, last.calls, last.ended) == ("Done.", [], True)
    assert first.stack_status == last.stack_status == "full"
    assert chat.proxy.statuses()["Auth"] == "completed"
    assert "login works" in stage.provider.asked[3].raw.decode()
    if vendor == "anthropic":
        signed = [block for message in stage.provider.asked[1]["messages"] for block in message["content"]]
        assert [bool(block["signature"]) for block in signed if block["type"] == "thinking"] == [True]
