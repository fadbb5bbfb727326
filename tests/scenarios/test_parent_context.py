"""What a subagent is told of the frames it was delegated by, where the configuration asks for it (S1-71i)."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from callstack_proxy.config_sources import load_config
from callstack_proxy.management.issued_keys import issue_key
from llm_test_provider import ScriptedProvider, call, says
from tests.core.forest import count
from tests.harness import Conversation, RunningProxy, Stage, as_one_text, bash, does, push, recall, texts
from tests.scenarios.test_idle import idle

pytestmark = pytest.mark.rows("S1-71i")
PROMPT, TASK = "Find the tests that fail now and then.", "Make the <build> green."
WAY = [(TASK, TASK), ("Flaky tests", "no test is flaky"), ("Search", "they are listed")]
ASKED: dict[str, Any] = {"subagent__parent_context": True}
SLEEPING: dict[str, Any] = {"wake_at_tokens": 1_000_000}
SUFFIXED: dict[str, Any] = {"tariffs__own__names": "gpt-x", "tariffs__own__after_tool": "suffix"}
OFF, PASSIVE = {"x-stack-mode": "off"}, {"x-stack-mode": "passive"}


def delegates(stage: Stage, proxy: RunningProxy, provider: ScriptedProvider, **about: Any) -> Conversation:
    """A conversation whose model has just called a subagent, out of frames that it pushed unless it sleeps."""
    parent = stage.chat(proxy, tools=("task", "bash"), **about)
    if not proxy.config.wake_at_tokens:
        provider.will(does(push("Flaky tests", "no test is flaky")), does(push("Search", "they are listed")))
    provider.will(does(call("task", description="flaky", prompt=PROMPT)))
    parent.says(TASK)
    return parent


def told(provider: ScriptedProvider) -> list[tuple[int, str]]:
    """What the newest request tells of parents, with the place of each on the line."""
    line = texts(provider.received[-1].messages)
    return [(at, said.removeprefix("user: ")) for at, said in enumerate(line) if 'note="parents"' in said]


def way(block: str) -> list[tuple[str, str]]:
    """Titles and criteria of the frames in a block, the root first."""
    frames = ElementTree.fromstring(block).findall("ancestors/frame")
    return [(f.findtext("title", ""), f.findtext("success-criteria", "")) for f in frames]


def test_a_subagent_is_told_once_of_the_frames_above_its_call(stage: Stage, provider: ScriptedProvider) -> None:
    """Behind its prompt, titles and criteria as they stood; the same bytes at the same place ever after, also behind
    a restart. Whose frames these are it can look up. Its client sees nothing of it."""
    proxy = stage.proxy(**ASKED)
    parent = delegates(stage, proxy, provider)
    child = stage.chat(proxy, tools=("bash",))
    provider.will(does(bash("pytest")))

    answer = child.says(PROMPT)
    ((at, block),) = told(provider)
    assert way(block) == WAY
    assert PROMPT not in block
    assert f"user: {PROMPT}" in texts(provider.received[-1].messages)[:at]
    assert at == len(provider.received[-1].messages) - 1
    assert "stack-context" not in as_one_text([answer.message])

    provider.will(does(bash("pytest")))
    child.branch(1).asks()
    assert told(provider) == [(at, block)], "asked again it is the same request"

    provider.will(says("Two."), says("Three."))
    child.returns("2 failed")
    assert told(provider) == [(at, block)]
    proxy.restart()
    child.says("And now?")
    assert told(provider) == [(at, block)]

    provider.will(does(recall(proxy.frames(titled(proxy)[TASK])["Search"]["sessionID"])), says("It is a search."))
    child.says("What is it for?")
    assert "Search" in str(provider.received[-1].messages[-1]["content"])
    provider.will(says("Done."))
    parent.returns("Three.")
    assert not told(provider)


def titled(proxy: RunningProxy) -> dict[str, str]:
    """Conversations by the titles of their roots."""
    return {row["title"]: row["id"] for row in proxy.conversations}


def test_off_as_it_comes_a_subagent_passes_byte_for_byte(stage: Stage, provider: ScriptedProvider) -> None:
    proxy = stage.proxy(**SLEEPING)
    delegates(stage, proxy, provider)
    child = stage.chat(proxy, tools=("bash",))
    provider.will(says("Two."))

    assert child.says(PROMPT).stack_status == "asleep"
    assert provider.received[-1].raw == stage.notes[-1].body
    assert not load_config({}).subagent.parent_context
    assert load_config({}, {"STACK_SUBAGENT_PARENT_CONTEXT": "true"}).subagent.parent_context


def test_off_an_awake_subagent_is_told_nothing(stage: Stage, provider: ScriptedProvider) -> None:
    proxy = stage.proxy()
    delegates(stage, proxy, provider)
    child = stage.chat(proxy, tools=("bash",))
    provider.will(does(bash("pytest")), says("Two."))
    child.says(PROMPT)
    child.returns("2 failed")

    assert not told(provider)
    assert "Flaky tests" not in as_one_text(provider.received[-1].messages)


def test_a_small_subagent_wakes_for_it_at_its_first_message(stage: Stage, provider: ScriptedProvider) -> None:
    """Whoever delegated it sleeps on: its root is all there is to tell."""
    proxy = stage.proxy(**ASKED, **SLEEPING)
    parent = delegates(stage, proxy, provider)
    child = stage.chat(proxy, tools=("bash",))
    provider.will(says("Two."), says("Done."))

    assert child.says(PROMPT).stack_status == "full"
    assert [way(block) for _, block in told(provider)] == [WAY[:1]]
    assert parent.returns("Two.").stack_status == "asleep"


@pytest.mark.parametrize(("mode", "tools"), [(OFF, ("bash",)), (PASSIVE, ("bash",)), ({}, ())])
def test_one_that_cannot_have_it_is_told_nothing(
    stage: Stage, provider: ScriptedProvider, mode: dict[str, str], tools: tuple[str, ...]
) -> None:
    proxy = stage.proxy(**ASKED, **SLEEPING)
    delegates(stage, proxy, provider)
    child = stage.chat(proxy, tools=tools, headers=mode)
    provider.will(says("Two."))

    child.says(PROMPT)
    assert provider.received[-1].raw == stage.notes[-1].body


def test_it_comes_as_the_thread_wakes_also_from_the_store(stage: Stage, provider: ScriptedProvider) -> None:
    """Switched off for its first message; the proxy that goes on read both conversations from the disk."""
    proxy = stage.proxy(**ASKED, **SLEEPING)
    delegates(stage, proxy, provider)
    child = stage.chat(proxy, tools=("bash",))
    provider.will(says("Two."), says("Three."))
    child.says(PROMPT, headers=OFF)
    proxy.restart()

    child.says("And now?")
    assert [way(block) for _, block in told(provider)] == [WAY[:1]]


def test_of_a_conversation_that_was_forgotten_nothing_is_told(stage: Stage, provider: ScriptedProvider) -> None:
    stage.looks_into_store = False  # the laws would look for what the person has deleted
    proxy = stage.proxy(**ASKED, **SLEEPING)
    delegates(stage, proxy, provider)
    child = stage.chat(proxy, tools=("bash",))
    provider.will(says("Two."), says("Three."))
    child.says(PROMPT, headers=OFF)
    proxy.manage("DELETE", f"/stack/conversations/{titled(proxy)[TASK]}")

    assert child.says("And now?").stack_status == "asleep"
    assert provider.received[-1].raw == stage.notes[-1].body


def test_a_model_that_takes_no_words_behind_results_is_told_behind_the_users(
    stage: Stage, provider: ScriptedProvider
) -> None:
    proxy = stage.proxy(**ASKED, **SUFFIXED)
    delegates(stage, proxy, provider)
    child = stage.chat(proxy, tools=("bash",))
    provider.will(does(bash("pytest")), says("Two."), says("Three."))
    child.says(PROMPT, headers=PASSIVE)
    child.returns("2 failed")
    assert not told(provider)

    child.says("And now?")
    assert [way(block) for _, block in told(provider)] == [WAY]


def test_an_awake_thread_is_told_behind_results_where_the_model_takes_that(
    stage: Stage, provider: ScriptedProvider
) -> None:
    proxy = stage.proxy(**ASKED)
    delegates(stage, proxy, provider)
    child = stage.chat(proxy, tools=("bash",))
    provider.will(does(bash("pytest")), says("Two."))
    child.says(PROMPT, headers=PASSIVE)
    child.returns("2 failed")

    assert [(at, way(block)) for at, block in told(provider)] == [(len(provider.received[-1].messages) - 1, WAY)]


def test_nobody_is_told_of_somebody_elses_frames(stage: Stage, provider: ScriptedProvider) -> None:
    """Neither by the prompt of a call nor by the name of a session."""
    proxy = stage.proxy(tenancy="key", **ASKED)
    proxy.headers = {"authorization": f"Bearer {issue_key(proxy.config.keys_path, 'operator', admin=True)}"}
    one, two = ({"authorization": f"Bearer {issue_key(proxy.config.keys_path, name)}"} for name in ("one", "two"))
    delegates(stage, proxy, provider, headers=one | {"x-session-id": "main"})
    provider.will(says("Two."), says("Two."))

    stage.chat(proxy, tools=("bash",), headers=two).says(PROMPT)
    assert not told(provider)
    stage.chat(proxy, tools=("bash",), headers=two | {"x-parent-session-id": "main"}).says(PROMPT)
    assert not told(provider)


def test_a_fork_is_told_nothing_for_nobody_delegated_it(stage: Stage, provider: ScriptedProvider) -> None:
    """Also where the conversation that it was forked from delegated something else."""
    proxy = stage.proxy(**ASKED)
    chat = delegates(stage, proxy, provider)
    provider.will(says("Two."), says("Done."), says("fork"))
    stage.chat(proxy, tools=("bash",)).says(PROMPT)
    chat.returns("Two.")
    fork = chat.branch(len(chat.history))
    fork.tools = ("bash",)

    assert fork.says("you are the fork").stack_status == "full"
    assert not told(provider)
    assert sum(bool(row["parent"]) for row in proxy.conversations) == 2


@pytest.mark.one_process("each counts, and tells, what it does itself")
@pytest.mark.spoken_in("chat", reason="about silence, which is the same in every dialect")
@pytest.mark.asked("plain")
def test_a_fork_that_got_its_frame_when_it_went_idle_is_told_nothing(stage: Stage, provider: ScriptedProvider) -> None:
    proxy = stage.proxy(**ASKED, subagent__idle_delay=100, subagent__min_duration=0)
    chat = stage.chat(proxy)
    provider.will(says("one"), says("fork"), says("two"))
    chat.says("hello")
    fork = chat.branch(2)
    fork.tools = ("bash",)
    at = fork.says("you are the fork").headers["x-stack-conversation"]
    idle(proxy, at)
    parent = next(row["parent"] for row in proxy.conversations if row["id"] == at)
    assert "parentSessionID" in proxy.frames(parent)["you are the fork"]

    fork.says("go on")
    assert not told(provider)


def test_what_is_told_fits_what_is_given_for_ancestors(stage: Stage, provider: ScriptedProvider) -> None:
    proxy = stage.proxy(**ASKED, budgets__ancestors=200)
    parent = stage.chat(proxy, tools=("task", "bash"))
    provider.will(*(does(push(f"Level {n}", "every test is sorted by its length " * 50)) for n in range(4)))
    provider.will(does(call("task", prompt=PROMPT)), says("Two."))
    parent.says("The shop sells things. " * 50)
    stage.chat(proxy, tools=("bash",)).says(PROMPT)

    ((_, block),) = told(provider)
    assert count(block) <= 200
    assert "The shop sells things." in block


def test_who_only_names_a_parent_is_told_nothing(stage: Stage, provider: ScriptedProvider) -> None:
    proxy = stage.proxy(**ASKED)
    provider.will(does(push("Auth")), says("one"), says("named"))
    stage.chat(proxy, headers={"x-session-id": "main"}).says("hello")
    child = stage.chat(proxy, headers={"x-session-id": "child", "x-parent-session-id": "main"})

    assert child.says("Look around.").stack_status == "full"
    assert not told(provider)
    assert sum(bool(row["parent"]) for row in proxy.conversations) == 1


def test_where_each_conversation_is_its_own_nothing_is_told(stage: Stage, provider: ScriptedProvider) -> None:
    proxy = stage.proxy(**ASKED, subagent__enabled=False)
    delegates(stage, proxy, provider)
    provider.will(says("Two."))

    stage.chat(proxy, tools=("bash",)).says(PROMPT)
    assert not told(provider)


@pytest.mark.spoken_in("chat", reason="about a setting, which is the same in every dialect")
@pytest.mark.asked("plain")
def test_it_can_be_asked_for_while_the_proxy_runs(stage: Stage, provider: ScriptedProvider) -> None:
    """Whoever began before is told with the user's next message."""
    proxy = stage.proxy(**SLEEPING)
    delegates(stage, proxy, provider)
    child = stage.chat(proxy, tools=("bash",))
    provider.will(says("Two."), says("Three."))
    child.says(PROMPT)
    assert not told(provider)
    proxy.manage("PATCH", "/stack/config", {"injectParentContext": True})

    child.says("And now?")
    assert [way(block) for _, block in told(provider)] == [WAY[:1]]
