"""Conversations that go quiet, and those that another one began without a call that says so: what is told of them,
which get a frame, and how they are counted (S1-71c, S1-71e, S1-71g, S1-71h, S1-71j, S1-98, S1-99, S1-119, S1-121)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from callstack_proxy.config_sources import load_config
from llm_test_provider import ScriptedProvider, call, says
from tests.harness import Conversation, Json, RunningProxy, Stage, bash, does, op, pop, push, texts
from tests.scenarios.test_events import heard, listening

pytestmark = [
    pytest.mark.spoken_in("chat", reason="about sessions and silence, which are the same in every dialect"),
    pytest.mark.asked("plain"),
]
TASK, PROMPT = "Make the build green.", "Find flaky tests"
QUICK = {"subagent__idle_delay": 100, "subagent__min_duration": 0}


def subagents(proxy: RunningProxy, query: str = "") -> list[Json]:
    return list(proxy.get(f"/stack/subagents{query}")["subagents"])


def stats(proxy: RunningProxy) -> Json:
    told: Json = proxy.get("/stack/subagents/stats")
    return told


def idle(proxy: RunningProxy, *conversations: str) -> None:
    """Returns once each of these has gone idle, and what that makes has been made."""
    waiting = set(conversations)
    with listening(proxy, last="0") as stream:
        for event in heard(stream):
            if event["type"] == "conversation.idle":
                waiting.discard(event["conversation"])
            if not waiting:
                return


def worked(chat: Conversation, provider: ScriptedProvider, text: str, *, calls: int = 0) -> str:
    """A turn of the user, with so many calls; the conversation."""
    provider.will(*[does(bash("ls"))] * calls, says(f"Done with it: {text}"))
    answer = chat.says(text)
    for _ in range(calls):
        answer = chat.returns("a.py")
    return answer.headers["x-stack-conversation"]


class Sessions:
    """A session, and others that name it as their parent without a call that began them."""

    def __init__(self, stage: Stage, provider: ScriptedProvider, **settings: Any) -> None:
        self.provider = provider
        self.proxy = stage.proxy(**settings)
        self.stage = stage
        self.parent = stage.chat(self.proxy, headers={"x-session-id": "main"})
        self.at = worked(self.parent, provider, TASK)

    def child(self, name: str, *, calls: int) -> str:
        headers = {"x-session-id": name, "x-parent-session-id": "main"}
        return worked(self.stage.chat(self.proxy, headers=headers), self.provider, f"{PROMPT} {name}", calls=calls)

    def frames(self) -> dict[str, Json]:
        return {title: f for title, f in self.proxy.frames(self.at).items() if "parentSessionID" in f}


@pytest.mark.one_process("each counts, and tells, what it does itself")
@pytest.mark.rows("S1-99")
def test_a_conversation_that_nobody_asks_goes_idle_once(stage: Stage, provider: ScriptedProvider) -> None:
    """S1-99: told to whoever listens; a further request makes it busy, and it goes idle once more."""
    proxy = stage.proxy(subagent__idle_delay=100)
    chat = stage.chat(proxy)
    conversation = worked(chat, provider, TASK)
    with listening(proxy, last="0") as stream:
        events = heard(stream)
        told = _until_idle(events, conversation)
        assert worked(chat, provider, "go on") == conversation
        told += _until_idle(events, conversation)

    assert [event["type"] for event in told].count("conversation.idle") == 2
    answered = [at for at, event in enumerate(told) if event["type"] == "context.generated"]
    assert len(answered) == 2
    assert told[answered[0] :][-1]["type"] == "conversation.idle"


def _until_idle(events: Iterator[Json], conversation: str) -> list[Json]:
    told = []
    for event in events:
        told.append(event)
        if event["type"] == "conversation.idle" and event["conversation"] == conversation:
            break
    return told


@pytest.mark.rows("S1-98", "S1-101")
def test_every_request_is_activity_and_changes_no_frame_by_itself(stage: Stage, provider: ScriptedProvider) -> None:
    """S1-98: also one that is not recorded on the path."""
    chat = stage.chat()
    worked(chat, provider, TASK)
    (before,) = chat.proxy.conversations
    worked(chat, provider, "yes")
    (after,) = chat.proxy.conversations

    assert after["last_active"] > before["last_active"]
    assert after["active_frame"] == before["active_frame"]


@pytest.mark.rows("S1-71c", "S1-71e", "D8")
def test_a_session_without_a_call_gets_a_frame_once_it_is_idle_and_long_enough(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """S1-71c: under the active frame of the one it names, ended with its last words; a short one is skipped."""
    at = Sessions(stage, provider, **QUICK)
    long, short = at.child("long", calls=2), at.child("short", calls=0)
    idle(at.proxy, long, short)

    (row, skipped) = sorted(subagents(at.proxy), key=lambda each: each["skipped"])
    frame = at.frames()[f"{PROMPT} long"]
    assert (frame["status"], frame["results"]) == ("completed", f"Done with it: {PROMPT} long")
    assert frame["parentSessionID"] == at.proxy.frames(at.at)[TASK]["sessionID"]
    assert (row["id"], row["frame"], row["parent"]) == (long, frame["sessionID"], at.at)
    assert (row["has_frame"], row["is_completed"], row["is_idle"], row["messages"]) == (True, True, True, 6)
    assert (skipped["id"], skipped["has_frame"], skipped["is_idle"]) == (short, False, True)
    assert len(row["title"]) <= 30
    assert list(at.frames()) == [f"{PROMPT} long"]


@pytest.mark.rows("S1-71c")
def test_a_session_that_did_not_last_gets_no_frame(stage: Stage, provider: ScriptedProvider) -> None:
    """S1-71c: 60 s at least."""
    at = Sessions(stage, provider, subagent__idle_delay=100)
    child = at.child("quick", calls=4)
    idle(at.proxy, child)

    assert at.frames() == {}
    assert [row["skipped"] for row in subagents(at.proxy)] == [True]


@pytest.mark.rows("S1-71g", "S1-119")
def test_the_figures_are_those_of_the_run_and_can_be_counted_anew(stage: Stage, provider: ScriptedProvider) -> None:
    """S1-71g: detected, frames, skipped, by their result or by hand; rates with one decimal."""
    at = Sessions(stage, provider, **QUICK)
    long, short = at.child("long", calls=2), at.child("short", calls=0)
    idle(at.proxy, long, short)
    at.parent.tools = ("bash", "task")
    provider.will(does(call("task", prompt=PROMPT)), does(bash("pytest")))
    at.parent.says("delegate it")
    child = stage.chat(at.proxy, tools=("bash",))
    child.says(PROMPT)
    assert subagents(at.proxy, "?filter=active")[0]["title"].startswith("Find flaky")

    told = stats(at.proxy)
    assert (told["detected"], told["frames_created"], told["skipped"]) == (3, 2, 1)
    assert (told["auto_completed"], told["manually_completed"], told["last_reset"]) == (1, 0, None)
    assert told["rates"] == {"framed": 66.7, "skipped": 33.3, "completed": 50.0}
    assert len(told["active"]) == 1 + 1, "the one at work, and the one that got no frame"

    frame = at.frames()[PROMPT]["sessionID"]
    at.proxy.manage("POST", f"/stack/frames/{frame}/complete", {"summary": "enough"})
    assert stats(at.proxy)["manually_completed"] == 1
    provider.will(says("ok"))
    at.parent.returns("Two: a and b.")

    since = at.proxy.manage("POST", "/stack/subagents/reset")["last_reset"]
    told = stats(at.proxy)
    assert (told["detected"], told["last_reset"], told["rates"]["framed"]) == (0, since, 0.0)
    assert len(subagents(at.proxy)) == 3, "nothing is forgotten"


@pytest.mark.rows("S1-71h", "S1-121")
def test_the_list_is_whole_after_a_restart(stage: Stage, provider: ScriptedProvider) -> None:
    """S1-71h: memory may forget, the rows stay."""
    at = Sessions(stage, provider, **QUICK)
    long, short = at.child("long", calls=2), at.child("short", calls=0)
    idle(at.proxy, long, short)
    before = subagents(at.proxy)
    at.proxy.restart()

    assert subagents(at.proxy) == before
    assert [row["id"] for row in subagents(at.proxy, "?filter=with-frame")] == [long]
    assert [row["id"] for row in subagents(at.proxy, "?filter=without-frame")] == [short]
    assert [row["id"] for row in subagents(at.proxy, "?filter=completed")] == [long]
    assert len(subagents(at.proxy, "?limit=1")) == 1
    assert [row["last_active"] for row in before] == sorted((row["last_active"] for row in before), reverse=True)


@pytest.mark.rows("S1-71a", "S1-71c", "S1-71f", "S1-71j")
def test_the_settings_have_the_names_they_are_known_by() -> None:
    names = {"ENABLED": "false", "MIN_DURATION": "1", "MIN_MESSAGES": "2", "IDLE_DELAY": "5000"}
    names |= {"AUTO_COMPLETE": "false", "PATTERNS": r"@.*subagent, subagent,\[Task\]"}
    told = load_config({}, {f"STACK_SUBAGENT_{name}": value for name, value in names.items()}).subagent

    assert (told.enabled, told.min_duration, told.min_messages, told.idle_delay) == (False, 1, 2, 5_000)
    assert (told.auto_complete, told.patterns) == (False, (r"@.*subagent", r"subagent", r"\[Task\]"))


@pytest.mark.rows("S1-71j")
def test_switched_off_each_conversation_is_its_own(stage: Stage, provider: ScriptedProvider) -> None:
    """S1-71j: a delegated one too."""
    at = Sessions(stage, provider, subagent__enabled=False, subagent__idle_delay=100)
    at.parent.tools = ("bash", "task")
    provider.will(does(call("task", prompt=PROMPT)), says("Two: a and b."), says("Done."))
    at.parent.says("delegate it")
    stage.chat(at.proxy, tools=("bash",)).says(PROMPT)
    at.parent.returns("Two: a and b.")

    assert at.frames() == {}
    assert [row["parent"] for row in at.proxy.conversations] == [None, None]
    assert subagents(at.proxy) == []


# ------------------------------------------------------------------------------------------------------------ contexts
@pytest.mark.rows("S1-48", "S1-112")
def test_a_block_is_told_by_the_count_its_budget_is_kept_by(provider: ScriptedProvider, stage: Stage) -> None:
    """To people as to the model: by an estimate, a block that fills its budget would be over it."""
    chat = stage.chat(stage.proxy(budgets__total=500, stack_rounds=20, child_view="isolate"), model="claude-haiku-4-5")
    results = "Everything works without further difficulties. " * 40
    provider.will(
        *(step for i in range(4) for step in (does(push(f"Part {i}")), does(pop(results)))),
        does(push("Model")),
        does(op("context_info"), bash("ls")),
    )
    chat.says(TASK)
    told = chat.proxy.get(f"/stack/conversations/{chat.proxy.conversations[0]['id']}/context")
    assert 400 < told["block_tokens"] <= 500

    provider.will(says("ok"))
    chat.returns("a.py")
    info = texts(provider.received[-1].messages)[-2]
    assert f"Block: {told['block_tokens']} tokens" in info
    assert f" tokens of {told['window']:,} (" in info


@pytest.mark.rows("S1-112", "S1-113", "S1-116", "S1-117", "S1-12")
def test_people_see_what_the_model_is_told_of_its_context(provider: ScriptedProvider, stage: Stage) -> None:
    chat = stage.chat(stage.proxy(budgets__total=3000))
    provider.will(does(call("stack_frame_push", title="Model", successCriteria="it works")), does(bash("ls")))
    chat.says(TASK)
    path = f"/stack/conversations/{chat.proxy.conversations[0]['id']}"
    told = chat.proxy.get(f"{path}/context")
    assert (told["title"], told["budgets"]["total"], told["changed"]) == ("Model", 3000, ["total"])
    assert told["entries"] >= 2
    assert told["tokens"] > 0
    assert told["usage"]["input"] > 0
    assert told["block_tokens"] > 0

    preview = chat.proxy.get(f"{path}/context/preview?max_length=100000")
    assert preview["told"] is True
    assert preview["text"] in str(provider.received[-1].messages[-1]["content"])
    short = chat.proxy.get(f"{path}/context/preview?max_length=10")
    assert short["text"].startswith(preview["text"][:10] + "\n... ")
    assert short["more"] == len(preview["text"]) - 10

    provider.will(does(call("stack_frame_pop", status="completed", results="The model stands.")), says("ok"))
    chat.returns("a.py")
    done = chat.proxy.frames()["Model"]["sessionID"]
    assert chat.proxy.get(f"{path}/compactions")["returned"] == [done]
    summary = chat.proxy.get(f"/stack/frames/{done}/summary")
    assert (summary["results"], summary["status"]) == ("The model stands.", "completed")
    assert chat.proxy.get(f"{path}/context/preview")["told"] is False
