"""The surfaces of DESIGN 12: headers in and out by name, and their description."""

import pytest

from callstack_proxy.management.api.openapi import RESPONSE_HEADERS
from llm_test_provider import ScriptedProvider, says
from tests.harness import Answer, Stage, does, push

ALWAYS = {
    f"x-stack-{name}"
    for name in (
        "status", "request-id", "conversation", "thread", "frame", "tokens-in", "tokens-sent", "tokens-saved",
        "overhead-ms",
    )
}  # fmt: skip
MONEY = {"x-stack-cost", "x-stack-cost-untouched"}
KNOWN_MODEL = "claude-opus-5"


def ours(answer: Answer) -> set[str]:
    return {name for name in answer.headers if name.startswith("x-stack-")}


@pytest.mark.rows("X-16")
@pytest.mark.parametrize("mode", ["active", "off", "shadow"])
def test_every_answer_has_the_headers_by_name(stage: Stage, provider: ScriptedProvider, mode: str) -> None:
    """X-16: all of them, whatever the mode; money where the answer is not streamed."""
    chat = stage.chat(stage.proxy(mode=mode), model=KNOWN_MODEL)
    provider.will(*([does(push("Auth"))] if mode == "active" else []), says("ok"))
    answer = chat.says("hello")

    shadow = {"x-stack-tokens-would-send"} if mode == "shadow" else set()
    assert ours(answer) == ALWAYS | shadow | (set() if answer.streamed else MONEY)


def test_the_frame_told_is_the_one_that_was_active_when_the_first_round_left(
    stage: Stage, provider: ScriptedProvider
) -> None:
    chat = stage.chat()
    provider.will(does(push("Auth")), says("ok"))
    answer = chat.says("hello")

    assert answer.headers["x-stack-frame"] == chat.proxy.frames()["Conversation"]["sessionID"]


def test_none_of_our_headers_goes_upstream(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat(headers={"x-stack-session": "s", "x-stack-mode": "active", "x-stack-anything": "x"})
    provider.will(says("ok"))
    chat.says("hello")

    assert [name for name, _ in provider.received[-1].headers if name.lower().startswith("x-stack")] == []


def test_the_description_tells_every_header_that_is_sent(stage: Stage, provider: ScriptedProvider) -> None:
    """DESIGN 12: OpenAPI describes all of it, the client's side too."""
    provider.will(says("ok"))
    answer = stage.chat(model=KNOWN_MODEL).says("hello")
    described = stage.proxies[0].get("/stack/openapi.json")["paths"]["/v1/chat/completions"]["post"]

    assert ours(answer) <= set(RESPONSE_HEADERS) == set(described["responses"]["200"]["headers"])
    assert [each["name"] for each in described["parameters"]] == ["x-stack-session", "x-stack-mode"]
