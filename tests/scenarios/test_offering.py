"""What a thread is offered with its first request by default, when that changes later, and that it never costs what a
user would notice."""

from __future__ import annotations

import pytest

from llm_test_provider import ScriptedProvider, call, says
from tests.clocks import HOUR_MS, set_clock
from tests.harness import Conversation, Stage, bash, does

CLIENT = ["bash", "read"]
DAY_MS = 24 * HOUR_MS
FRAMES = ["stack_frame_push", "stack_frame_pop", "stack_recall"]
CORE = ["stack_frame_push", "stack_frame_pop", "stack_frame_plan", "stack_recall", "stack"]


def words(count: int) -> str:
    return "word " * count


def client_of(stage: Stage, head: int, **settings: object) -> Conversation:
    """A client whose system text has about `head` tokens, before a proxy as it comes."""
    return stage.chat(stage.proxy(wake_at_tokens=None, **settings), system=f"You are careful. {words(head)}")


@pytest.mark.rows("X-40", "S1-174")
@pytest.mark.parametrize(
    ("head", "mode", "ours"),
    [
        (1_000, "active", []),
        (5_000, "active", ["stack_recall"]),
        (9_500, "active", FRAMES),
        (20_000, "active", CORE),
        (32_000, "passive", ["stack_recall"]),
        (1_000, "passive", []),
    ],
)
def test_what_is_offered_follows_the_size_of_the_first_request(
    stage: Stage, provider: ScriptedProvider, head: int, mode: str, ours: list[str]
) -> None:
    """And it stays as it is: the second request has the same tools and the same head."""
    chat = client_of(stage, head, mode=mode)
    provider.will(does(bash("ls")), says("done"))

    assert chat.says("hello").stack_status == ("full" if ours else "asleep")
    chat.returns("a.py")

    first, second = provider.received
    assert first.tool_names == second.tool_names == CLIENT + ours
    assert first.messages == second.messages[: len(first.messages)]
    if not ours:
        assert "stream_options" not in first.body


@pytest.mark.rows("S1-174")
def test_a_subagent_is_offered_recall_alone(stage: Stage, provider: ScriptedProvider) -> None:
    """It is a frame itself, and has one task; at the same size a main thread is offered frames."""
    parent = client_of(stage, 9_500)
    parent.tools = (*CLIENT, "task")
    child = stage.chat(parent.proxy, system=parent.system, tools=CLIENT)
    prompt = "Find the tests that fail now and then."
    provider.will(does(call("task", description="flaky", prompt=prompt)), does(bash("pytest")), says("Two: a and b."))
    parent.says("Make the build green.")
    child.says(prompt)
    child.returns("2 failed")

    main, first, second = provider.received
    assert main.tool_names == [*CLIENT, "task", *FRAMES]
    assert first.tool_names == second.tool_names == [*CLIENT, "stack_recall"]


@pytest.mark.rows("S1-174")
def test_a_client_with_a_plan_tool_gets_none_of_ours(stage: Stage, provider: ScriptedProvider) -> None:
    """One verb for one thing: its items are frames, and the guidance advises no tool that is not offered."""
    chat = client_of(stage, 30_000)
    chat.tools = (*CLIENT, "TodoWrite")
    provider.will(says("done"))
    chat.says("hello")

    (asked,) = provider.received
    assert asked.tool_names == [*CLIENT, "TodoWrite", *FRAMES]
    assert b"Todo items are frames" in asked.raw
    assert b"stack_frame_plan" not in asked.raw


@pytest.mark.rows("X-40")
def test_a_small_head_that_grows_wakes_only_where_that_costs_little(stage: Stage, provider: ScriptedProvider) -> None:
    """A finished request could be folded, but writing the prefix anew would put a short session behind."""
    chat = client_of(stage, 1_000)
    provider.will(*(does(bash(f"{n}")) for n in range(3)), says("done"), says("translated"))
    chat.says("read the logs")
    for n in range(3):
        chat.returns(f"log {n} {words(1_500)}")

    answer = chat.says("Unrelated: translate the onboarding email into French.")

    assert answer.stack_status == "asleep"
    assert all(request.tool_names == CLIENT for request in provider.received)


@pytest.mark.rows("X-40")
def test_a_small_head_that_grows_for_long_wakes_and_folds(stage: Stage, provider: ScriptedProvider) -> None:
    """After many requests the prefix that is written anew is little beside what the conversation has cost."""
    chat = client_of(stage, 1_000)
    steps = 60
    provider.will(*(does(bash(f"{n}")) for n in range(steps)), says("done"), says("translated"))
    chat.says("read the logs")
    for n in range(steps):
        chat.returns(f"log {n} {words(400)}")
    assert all("stack_recall" not in request.tool_names for request in provider.received[:10])

    chat.says("Unrelated: translate the onboarding email into French.")

    assert "stack_recall" in provider.received[-1].tool_names
    assert len(provider.received[-1].raw) < len(provider.received[steps - 1].raw) / 2


@pytest.mark.rows("X-40")
def test_a_retry_of_the_first_request_is_offered_the_same(stage: Stage, provider: ScriptedProvider) -> None:
    chat = client_of(stage, 5_000)
    provider.will(says("one"), says("two"))

    chat.says("hello")
    chat.history.clear()
    chat.says("hello")

    first, second = provider.received
    assert first.tool_names == second.tool_names == [*CLIENT, "stack_recall"]


@pytest.mark.rows("X-40")
def test_the_tools_for_frames_come_when_the_cache_is_cold(stage: Stage, provider: ScriptedProvider) -> None:
    """Not where the client changes its head: what stands behind the part that it left is still cached."""
    with set_clock() as clock:
        chat = client_of(stage, 5_000)
        provider.will(says("hello"), says("quick"), does(bash("ls")), says("seen"))
        chat.says("hello")
        chat.system = f"You are quick. {words(32_000)}"
        stage.excuse()
        chat.says("go on")
        assert provider.received[-1].tool_names == [*CLIENT, "stack_recall"]

        clock.set_by += DAY_MS
        stage.excuse()
        chat.says("go on")
        assert provider.received[-1].tool_names == CLIENT + CORE
        chat.returns("a.py")
        assert provider.received[-1].tool_names == CLIENT + CORE
