"""Whole sessions: a chat client, the proxy, litellm, the provider. Hidden calls, reasoning and frames work as they do
at a provider that is reached by its URL."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llm_test_provider import ScriptedProvider, cut, overflow, says, status
from tests.harness import RunningProxy, Stage, bash, does, pop, push, recall, running_stage

VENDORS = ("openai", "anthropic")


@pytest.fixture(params=["streamed", "plain"])
def stage(request: pytest.FixtureRequest, provider: ScriptedProvider, tmp_path: Path) -> Iterator[Stage]:
    with running_stage(provider, tmp_path, streamed=request.param == "streamed") as running:
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


@pytest.mark.rows("S4-24")
@pytest.mark.parametrize("vendor", VENDORS)
def test_a_refusal_for_length_is_trimmed_and_asked_again(stage: Stage, vendor: str) -> None:
    """S4-24."""
    proxy = behind(stage, vendor, infer_requests=False, mirror_plans=False, frame_max_tokens=10_000_000)
    chat, provider = stage.chat(proxy, model="house-model"), stage.provider
    provider.will(*(does(bash(f"step {n}")) for n in range(4)))
    chat.says("do it all")
    for n in range(3):
        chat.returns(f"result {n} " + "word " * 6_000)
    provider.will(overflow("anthropic"), says("It fits now."))
    stage.excuse()

    answer = chat.returns("result 3")

    assert (answer.status, answer.text) == (200, "It fits now.")
    refused, passed = provider.asked[-2:]
    assert len(passed.raw) < 0.7 * len(refused.raw)


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_provider_that_is_busy_in_a_hidden_round_is_asked_again(stage: Stage, vendor: str) -> None:
    stage.provider.will(does(push("Auth")), status(503), says("Here."))
    assert stage.chat(behind(stage, vendor)).says("add login").text == "Here."


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_provider_that_dies_in_mid_answer_leaves_no_answer_that_ended(stage: Stage, vendor: str) -> None:
    """S4."""
    stage.provider.will(cut(says("one two three four five six seven"), after_bytes=400))
    answer = stage.chat(behind(stage, vendor)).says("add login")
    assert not answer.ended or answer.status == 502
    assert b"[DONE]" not in answer.raw


def test_a_session_goes_on_when_its_model_is_behind_litellm_from_now_on(stage: Stage) -> None:
    """DESIGN 5: an upstream of another kind is another model's line, and the same conversation."""
    provider = stage.provider
    proxy = behind(stage, "anthropic", upstreams__ours__url=provider.url, upstreams__ours__models="gpt-*")
    chat = stage.chat(proxy)
    provider.will(does(push("Auth")), does(pop("login works")), says("Auth is done.", reasoning="ours alone"))
    chat.says("add login", model="gpt-5.4")
    provider.will(does(recall("Auth")), says("It was login."))

    answer = chat.says("what was it?", model="claude-opus-5.5")

    assert (answer.text, answer.stack_status) == ("It was login.", "full")
    assert [received.path for received in provider.asked[-3:]] == [
        "/v1/chat/completions",
        "/v1/messages",
        "/v1/messages",
    ]
    assert b"login works" in provider.asked[-1].raw
    assert b"ours alone" not in provider.asked[-1].raw
    assert len(proxy.conversations) == 1
