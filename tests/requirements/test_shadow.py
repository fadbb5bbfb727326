"""S3-36: shadow sends what the client sent, and tells what would have been sent instead."""

import pytest

from llm_test_provider import ScriptedProvider, says
from tests.harness import Answer, Stage, bash, does, pop, push

TOLD = "x-stack-tokens-would-send"
OF_IDS = 20
"""Tokens by which the ids of two conversations may differ."""


@pytest.mark.rows("S3-36")
def test_s3_36_a_thread_with_frames_tells_what_its_line_would_have_cost(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """Switched to shadow, the popped frame goes upstream with the client's history; the line would have left it out."""
    chat = stage.chat()
    provider.will(
        does(push("Auth")),
        does(bash("cat a.py")),
        does(pop("Done.")),
        says("ok"),
        says("shadowed"),
    )
    chat.says("hello")
    chat.returns("x = 1\n" * 3000)

    answer = chat.says("go on", headers={"x-stack-mode": "shadow"})

    assert answer.stack_status == "shadow"
    assert int(answer.headers["x-stack-tokens-sent"]) == int(answer.headers["x-stack-tokens-in"])
    assert 0 < int(answer.headers[TOLD]) < int(answer.headers["x-stack-tokens-in"]) / 2
    assert chat.proxy.receipts()[-1]["would_send"] == int(answer.headers[TOLD])


@pytest.mark.rows("S3-36")
def test_s3_36_a_thread_that_would_wake_tells_our_tools_and_texts_too(stage: Stage, provider: ScriptedProvider) -> None:
    """The figure is that of mode active for the same request, but for the random letters of ids; the thread sleeps."""
    provider.will(says("active"), says("shadowed"))
    active = _asked(stage)
    shadow = _asked(stage, mode="shadow")

    assert int(shadow.headers[TOLD]) == pytest.approx(int(active.headers["x-stack-tokens-sent"]), abs=OF_IDS)
    assert TOLD not in active.headers
    assert not stage.proxies[-1].conversations[0]["awake"]


@pytest.mark.rows("S3-36")
def test_s3_36_a_thread_that_would_have_woken_is_taken_as_awake_from_then_on(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """A request that may call nothing wakes no thread; in one that is awake it carries our tools all the same."""
    provider.will(says("first"), says("second"))
    chat = stage.chat(stage.proxy(mode="shadow"))
    first = chat.says("make the login work")
    second = chat.says("now tell", tool_choice="none")

    ours = [int(answer.headers[TOLD]) - int(answer.headers["x-stack-tokens-in"]) for answer in (first, second)]
    assert ours[0] > 0
    assert ours[1] == ours[0]


@pytest.mark.rows("S3-36")
def test_s3_36_a_thread_that_would_stay_asleep_would_send_what_came(stage: Stage, provider: ScriptedProvider) -> None:
    provider.will(says("small"))
    shadow = _asked(stage, mode="shadow", wake_at_tokens=20_000)

    assert shadow.headers[TOLD] == shadow.headers["x-stack-tokens-in"]


def _asked(stage: Stage, **settings: object) -> Answer:
    return stage.chat(stage.proxy(**settings)).says("make the login work")
