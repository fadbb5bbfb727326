"""L8: some models accept reasoning only behind the exact prefix it was made under. What the proxy changes of the
prefix, it pays for with the reasoning made before, once; what a client's own history no longer fits, is left out
there too."""

import pytest

from proxy.scripted import ScriptedProvider, says
from tests.harness import Conversation, Stage

BOUND, FREE = "claude-opus-5.5", "some-free-model"
ANSWERS = (("one", "first"), ("two", "second"), ("three", "third"))
LONG = "please look at all of this: " + "word " * 600


def thoughts(request: dict[str, object]) -> list[str]:
    """The reasoning in a body, in order."""
    messages = request["messages"]
    assert isinstance(messages, list)
    return [m["reasoning_content"] for m in messages if m.get("reasoning_content")]


@pytest.fixture
def chat(stage: Stage) -> Conversation:
    """Asleep for its first, small request."""
    return stage.chat(stage.proxy(wake_at_tokens=500))


def woken(chat: Conversation, provider: ScriptedProvider, model: str) -> None:
    """One turn asleep, one that wakes, one awake; each answer with a thought."""
    provider.will(*(says(text, reasoning=thought) for text, thought in ANSWERS))
    for text in ("hello", LONG, "go on"):
        chat.says(text, model=model)


def test_waking_leaves_out_what_was_thought_before(chat: Conversation, provider: ScriptedProvider) -> None:
    """Tools and system text change in front of it; what is thought afterwards stays, and nothing is ever put back."""
    woken(chat, provider, BOUND)
    assert [thoughts(r.body) for r in provider.asked] == [[], [], ["second"]]


def test_a_model_that_binds_nothing_loses_nothing(chat: Conversation, provider: ScriptedProvider) -> None:
    woken(chat, provider, FREE)
    assert [thoughts(r.body) for r in provider.asked] == [[], ["first"], ["first", "second"]]


def test_off_leaves_out_what_was_thought_behind_our_tools(
    chat: Conversation, provider: ScriptedProvider, stage: Stage
) -> None:
    """The client's own bytes go up, less what was made under a prefix they do not have; what was made before fits
    again."""
    woken(chat, provider, BOUND)
    stage.excuse()
    provider.will(says("four"))
    chat.says("without you", model=BOUND, headers={"x-stack-mode": "off"})
    assert thoughts(provider.asked[-1].body) == ["first"]
    assert "stack_" not in str(provider.asked[-1].body)


def test_off_sends_the_clients_bytes_where_nothing_is_bound(
    chat: Conversation, provider: ScriptedProvider, stage: Stage
) -> None:
    woken(chat, provider, FREE)
    stage.excuse()
    provider.will(says("four"))
    chat.says("without you", model=FREE, headers={"x-stack-mode": "off"})
    assert thoughts(provider.asked[-1].body) == ["first", "second", "third"]
