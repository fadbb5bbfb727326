"""`holdout`: a share of new conversations passes untouched, and the others are compared with it."""

from __future__ import annotations

import pytest

from llm_test_provider import ScriptedProvider, says
from tests.harness import Answer, Conversation, RunningProxy, Stage

PARENT = "x-parent-session-id"
SESSIONS = 40
"""A coin falls on one side so often in one of a million million runs."""


def opened(stage: Stage, proxy: RunningProxy, name: str, **headers: str) -> tuple[Conversation, Answer]:
    chat = stage.chat(proxy, headers={"x-stack-session": name, **headers})
    return chat, chat.says(f"begin {name}")


def one_of_each(stage: Stage, provider: ScriptedProvider, proxy: RunningProxy) -> dict[str, Conversation]:
    """A conversation that is held out, and one that is not."""
    found: dict[str, Conversation] = {}
    for number in range(SESSIONS):
        provider.will(says("begun"))
        chat, answer = opened(stage, proxy, f"session-{number}")
        found.setdefault(answer.stack_status, chat)
        if len(found) == 2:
            return found
    raise AssertionError(found)


@pytest.mark.rows("X-64")
def test_a_held_out_conversation_passes_untouched_with_all_that_it_begins(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """Its subagents and forks follow it, also after a restart; the receipt and the header say so."""
    proxy = stage.proxy(holdout=0.5)
    chats = one_of_each(stage, provider, proxy)
    assert set(chats) == {"shadow; reason=holdout", "full"}
    proxy.restart()

    for status, group in (("shadow; reason=holdout", "holdout"), ("full", "folded")):
        chat = chats[status]
        provider.will(says("goes on"), says("helped"), says("forked"))
        answers = [chat.says("go on")]
        sent = provider.received[-1]
        name = chat.headers["x-stack-session"]
        answers.append(opened(stage, proxy, f"child of {name}", **{PARENT: name})[1])
        fork = chat.branch(len(chat.history))
        fork.tools = ("bash",)
        answers.append(fork.says("look at the other side"))

        assert [answer.stack_status for answer in answers] == [status] * 3
        assert [receipt["group"] for receipt in proxy.receipts()[-3:]] == [group] * 3
        assert ("stack_recall" in sent.tool_names) is (group == "folded")

    proof = proxy.get("/stack/proof")
    assert proof["sentences"][0].startswith("Not enough sessions yet: ")
    assert proof["held_out"] == 1 or proof["folded"] == 1
    assert {row["verdict"] for row in proof["measures"]} == {"few"}


@pytest.mark.rows("X-64")
def test_a_stopped_conversation_stays_in_its_group(stage: Stage, provider: ScriptedProvider) -> None:
    """So do the requests that are refused meanwhile, and what the conversation begins."""
    proxy = stage.proxy(holdout=0.5)
    for status, chat in one_of_each(stage, provider, proxy).items():
        name = chat.headers["x-stack-session"]
        provider.will(says("goes on"), says("helped"))
        chat.says("go on")
        proxy.manage("POST", f"/stack/conversations/{proxy.receipts()[-1]['conversation']}/stop", {})

        assert chat.says("go on again").status == 499
        assert opened(stage, proxy, f"child of {name}", **{PARENT: name})[1].stack_status == status
        group = "folded" if status == "full" else "holdout"
        assert [receipt["group"] for receipt in proxy.receipts()[-2:]] == [group] * 2


@pytest.mark.rows("X-65")
def test_what_an_agent_does_in_a_folder_is_added_up(stage: Stage, provider: ScriptedProvider) -> None:
    """Clients tell the model where they work, in their system text."""
    proxy = stage.proxy()
    for folder in ("/repos/shop", "/repos/bank"):
        provider.will(says("begun"))
        stage.chat(proxy, system=f"You are it.\n - Primary working directory: {folder}").says("begin")

    rows = proxy.get("/stack/totals?by=project")["rows"]
    assert {row["key"]: row["requests"] for row in rows} == {"/repos/shop": 1, "/repos/bank": 1}
    assert proxy.get("/stack/totals?project=/repos/shop")["total"]["requests"] == 1


@pytest.mark.rows("X-64")
def test_a_mode_that_was_chosen_is_not_part_of_the_comparison(stage: Stage, provider: ScriptedProvider) -> None:
    proxy = stage.proxy(holdout=0.5)
    chats = one_of_each(stage, provider, proxy)
    for number, chat in enumerate(chats.values()):
        provider.will(says("goes on"))
        if number:
            chat.says("go on", headers={"x-stack-mode": "active"})
        else:
            proxy.manage("PUT", f"/stack/conversations/{proxy.receipts()[0]['conversation']}/mode", {"mode": "active"})
            chat.says("go on")
        assert (proxy.receipts()[-1]["status"], proxy.receipts()[-1]["group"]) == ("full", "")
