"""How subagents are tracked, set while the proxy runs, and titles that show one (S1-71a..d, S1-118, S1-163)."""

from __future__ import annotations

from typing import Any

import pytest

from llm_test_provider import ScriptedProvider, call, says
from tests.harness import Conversation, Json, RunningProxy, Stage, does, texts
from tests.scenarios.sessions import TOOLS
from tests.scenarios.test_idle import QUICK, Sessions, idle, stats, worked

pytestmark = [
    pytest.mark.spoken_in("chat", reason="about sessions and settings, which are the same in every dialect"),
    pytest.mark.asked("plain"),
]
PATH = "/stack/config"
LOOKED = {"id": "call_old", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
TASK, PROMPT = "Make the build green.", "Find the tests that fail now and then."
TITLED = "@scout subagent: look at the tests"
DEFAULTS = {
    "enabled": True,
    "minDuration": 60_000,
    "minMessageCount": 3,
    "autoCompleteOnIdle": True,
    "idleCompletionDelay": 300_000,
    "injectParentContext": False,
    "propagateSummaries": True,
    "patterns": [],
    "changed": [],
}


def change(proxy: RunningProxy, **wanted: Any) -> Json:
    told: Json = proxy.manage("PATCH", PATH, wanted)
    return told


def delegating(
    stage: Stage, proxy: RunningProxy, provider: ScriptedProvider, *prompts: str, task: str = TASK
) -> Conversation:
    """A conversation that waits for these calls."""
    parent = stage.chat(proxy, tools=(*TOOLS, "task"))
    provider.will(does(*(call("task", prompt=prompt) for prompt in prompts or (PROMPT,))))
    parent.says(task)
    return parent


def opened(stage: Stage, proxy: RunningProxy, provider: ScriptedProvider, text: str, **about: Any) -> Json:
    """The row of a conversation that begins with these words."""
    provider.will(says("Two: a and b."))
    answer = stage.chat(proxy, **{"tools": ("bash",), **about}).says(text)
    return next(row for row in proxy.conversations if row["id"] == answer.headers["x-stack-conversation"])


# --------------------------------------------------------------------------------------------------------- while it
# runs
@pytest.mark.rows("S1-118", "S1-71j")
def test_what_is_set_holds_at_once_and_after_a_restart_until_it_is_taken_back(
    stage: Stage, provider: ScriptedProvider
) -> None:
    proxy = stage.proxy()
    assert proxy.get(PATH) == DEFAULTS
    told = change(proxy, enabled=False, minDuration=5)
    assert told == {**DEFAULTS, "enabled": False, "minDuration": 5, "changed": ["enabled", "minDuration"]}
    delegating(stage, proxy, provider)
    assert opened(stage, proxy, provider, PROMPT)["parent"] is None

    proxy.restart()
    assert proxy.get(PATH) == told
    assert opened(stage, proxy, provider, PROMPT)["parent"] is None

    assert change(proxy, enabled=None, minDuration=None) == DEFAULTS
    delegating(stage, proxy, provider, "Look at the parser.")
    assert opened(stage, proxy, provider, "Look at the parser.")["parent"] is not None
    proxy.restart()
    assert proxy.get(PATH) == DEFAULTS


@pytest.mark.rows("S1-118")
def test_patterns_are_added_and_removed_one_by_one(stage: Stage) -> None:
    proxy = stage.proxy(subagent__patterns="subagent,scout")
    assert proxy.get(PATH)["patterns"] == ["subagent", "scout"]
    assert change(proxy, addPattern=r"\[Task\]")["patterns"] == ["subagent", "scout", r"\[Task\]"]
    assert change(proxy, addPattern="scout")["patterns"] == ["subagent", "scout", r"\[Task\]"]
    assert change(proxy, removePattern="subagent", addPattern="a{1,3}b")["patterns"] == [
        "scout",
        r"\[Task\]",
        "a{1,3}b",
    ]
    proxy.restart()
    assert proxy.get(PATH)["patterns"] == ["scout", r"\[Task\]", "a{1,3}b"]
    assert change(proxy, patterns=["x"])["patterns"] == ["x"]
    assert change(proxy, patterns=None)["patterns"] == ["subagent", "scout"]


@pytest.mark.rows("S1-118", "S1-132")
@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"addPattern": "("}, "subagent.patterns: '(' is no regular expression (missing )"),
        ({"addPattern": "(a+)+b"}, "subagent.patterns: '(a+)+b' could take too long: use at most two repeats"),
        ({"addPattern": ".*"}, "fits an empty text, and with it every title"),
        ({"addPattern": "x" * 5_000}, "addPattern': String should have at most 200 characters"),
        ({"removePattern": "none"}, "'none' is none of them; known: there is none"),
        ({"patterns": ["a"], "addPattern": "b"}, "leave out addPattern and removePattern, or patterns"),
        ({"patterns": ["a"] * 21}, "at most 20 items"),
        ({"idleCompletionDelay": 99}, "greater than or equal to 100"),
        ({"minDuration": -1}, "greater than or equal to 0"),
        ({"minDuration": 10**30}, "minDuration': Input should be"),
        ({"minMessageCount": "4"}, "minMessageCount': Input should be a valid integer"),
        ({"enabled": "yes"}, "enabled': Input should be a valid boolean"),
        ({"propagateSummaries": False}, "Extra inputs are not permitted"),
        ({"model_may_configure": True}, "Extra inputs are not permitted"),
        ([], "valid"),
    ],
)
def test_what_cannot_hold_is_refused_as_a_whole(stage: Stage, body: Any, says: str) -> None:
    proxy = stage.proxy()
    more = {**body, "minDuration": body.get("minDuration", 7)} if isinstance(body, dict) else body
    status, told = proxy.asked("PATCH", PATH, more)
    assert status == 400
    assert says in told["error"]["message"]
    assert proxy.get(PATH) == DEFAULTS


@pytest.mark.rows("S1-118")
def test_at_most_twenty_patterns_are_kept(stage: Stage) -> None:
    proxy = stage.proxy()
    change(proxy, patterns=[f"agent {number}" for number in range(20)])
    status, told = proxy.asked("PATCH", PATH, {"addPattern": "one more"})
    assert (status, "at most 20; remove one first" in told["error"]["message"]) == (400, True)


@pytest.mark.rows("S1-118", "S1-71f")
def test_without_auto_complete_a_silent_session_stays_at_work_until_somebody_ends_it(
    stage: Stage, provider: ScriptedProvider
) -> None:
    at = Sessions(stage, provider, **QUICK)
    change(at.proxy, autoCompleteOnIdle=False)
    child = at.child("long", calls=2)
    idle(at.proxy, child)

    frame = at.frames()[f"{PROMPT_OF_SESSIONS} long"]
    assert frame["status"] == "in_progress"
    at.proxy.manage("POST", f"/stack/frames/{frame['sessionID']}/complete", {"summary": "enough"})
    assert at.frames()[f"{PROMPT_OF_SESSIONS} long"]["results"] == "enough"
    assert stats(at.proxy)["manually_completed"] == 1


PROMPT_OF_SESSIONS = "Find flaky tests"


# -------------------------------------------------------------------------------------------------------------- the
# model
@pytest.mark.rows("S1-118")
def test_the_model_only_reads_unless_the_configuration_lets_it(stage: Stage, provider: ScriptedProvider) -> None:
    for may, said in ((False, "Error: you may only read this. The operator sets subagent.min_duration"), (True, "Set")):
        chat = stage.chat(stage.proxy(subagent__model_may_configure=str(may).lower()))
        provider.will(
            does(call("stack_config", minDuration=7, addPattern="scout")),
            does(call("stack_config")),
            says("ok"),
        )
        chat.says("go")
        result, told = (text for text in texts(provider.received[-1].messages) if text.startswith("tool: "))
        assert result.startswith(f"tool: {said}")
        assert ("minDuration: 7" in told, "patterns: 'scout'" in told) == (may, may)
        holds = chat.proxy.get(PATH)
        assert (holds["minDuration"] == 7, holds["patterns"] == ["scout"]) == (may, may)
        chat.proxy.restart()
        assert chat.proxy.get(PATH) == holds


@pytest.mark.rows("S1-118", "S1-132")
def test_what_the_model_cannot_set_is_told_to_it(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat(stage.proxy(subagent__model_may_configure="true"))
    provider.will(does(call("stack_config", idleCompletionDelay=1)), says("ok"))
    chat.says("go")
    told = texts(provider.received[-1].messages)[-1]
    assert told.startswith("tool: Error: subagent.idle_delay: Input should be greater than or equal to 100")
    assert told.endswith("Nothing was set.")
    assert chat.proxy.get(PATH) == DEFAULTS


# ------------------------------------------------------------------------------------------------------------------
# titles
@pytest.mark.rows("S1-71a", "S1-71d", "S1-71f")
def test_a_title_that_fits_makes_a_session_the_subagent_of_a_call_that_waits(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """S1-71d: with a frame at once; S1-71f: which ends with the result of that call."""
    proxy = stage.proxy(subagent__patterns=r"@.*subagent,subagent,\[Task\]")
    parent = delegating(stage, proxy, provider)
    child = opened(stage, proxy, provider, TITLED)
    at = next(row["id"] for row in proxy.conversations if row["title"] == TASK)
    assert child["parent"] == at
    assert proxy.statuses(at) == {TASK: "in_progress", TITLED: "in_progress"}

    provider.will(says("Both are mended."))
    parent.returns("Two: a and b.")
    assert proxy.frames(at)[TITLED]["results"] == "Two: a and b."


@pytest.mark.rows("S1-71a")
def test_the_first_line_of_the_system_text_counts_as_a_title_and_no_other(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """What a main agent is told of subagents further down makes none of it."""
    proxy = stage.proxy(subagent__patterns="subagent")
    parent = delegating(stage, proxy, provider, PROMPT, "Look at the parser.")
    main = opened(stage, proxy, provider, "go", system="You are an agent.\nUse a subagent for long searches.")
    long = opened(stage, proxy, provider, "go on", system="You are an agent. " * 20 + "subagent")
    child = opened(stage, proxy, provider, "begin", system="\nYou are a subagent.\nBe short.")

    assert (main["parent"], long["parent"]) == (None, None)
    assert child["parent"] == parent.last.headers["x-stack-conversation"] if parent.last else False


@pytest.mark.rows("S1-71a", "S1-71b")
def test_the_newest_call_that_waits_is_meant_and_each_only_once(stage: Stage, provider: ScriptedProvider) -> None:
    proxy = stage.proxy(subagent__patterns="subagent")
    older, newer = (delegating(stage, proxy, provider, task=task) for task in (TASK, "Mend the parser."))
    rows = [opened(stage, proxy, provider, f"{TITLED} {number}") for number in range(3)]
    waited = [each.last.headers["x-stack-conversation"] for each in (newer, older) if each.last]

    assert [row["parent"] for row in rows] == [*waited, None]


@pytest.mark.rows("S1-71a", "S1-71b")
def test_a_title_links_nothing_where_nobody_waits_or_something_else_does(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """Not without a call that waits, without tools, with a history, by default, or across users."""
    stage.looks_into_store = False  # which needs a key here
    proxy = stage.proxy(subagent__patterns="subagent", tenancy="credential")
    mine, other = {"authorization": "Bearer sk-mine"}, {"authorization": "Bearer sk-other"}
    proxy.headers = mine
    parent = stage.chat(proxy, tools=(*TOOLS, "task"), headers=mine)
    provider.will(says("Hello."))
    parent.says(TASK)
    assert opened(stage, proxy, provider, TITLED, headers=mine)["parent"] is None

    provider.will(does(call("task", prompt=PROMPT)))
    parent.says("delegate it")
    assert opened(stage, proxy, provider, f"{TITLED}: no tools", headers=mine, tools=())["parent"] is None
    past = [
        {"role": "user", "content": f"{TITLED} of old"},
        {"role": "assistant", "content": None, "tool_calls": [LOOKED]},
        {"role": "tool", "tool_call_id": LOOKED["id"], "content": "a.py"},
        {"role": "assistant", "content": "Yes."},
    ]
    assert opened(stage, proxy, provider, "go on", headers=mine, history=past)["parent"] is None
    proxy.headers = other
    assert opened(stage, proxy, provider, TITLED, headers=other)["parent"] is None


@pytest.mark.rows("S1-71a")
def test_by_default_no_title_counts(stage: Stage, provider: ScriptedProvider) -> None:
    proxy = stage.proxy()
    delegating(stage, proxy, provider)
    assert opened(stage, proxy, provider, TITLED)["parent"] is None
    change(proxy, addPattern="subagent")
    assert opened(stage, proxy, provider, f"{TITLED} now")["parent"] is not None


@pytest.mark.rows("S1-71c", "S1-71d")
def test_a_session_that_names_its_parent_has_its_frame_at_once_where_its_title_fits(
    stage: Stage, provider: ScriptedProvider
) -> None:
    at = Sessions(stage, provider, subagent__patterns="scout")
    at.parent.tools = ("bash", "task")
    provider.will(does(call("task", prompt="something else")))
    at.parent.says("delegate it")
    headers = {"x-session-id": "child", "x-parent-session-id": "main"}
    worked(stage.chat(at.proxy, headers=headers), provider, "scout: look around")
    worked(stage.chat(at.proxy, headers=headers | {"x-session-id": "plain"}), provider, "look around")

    assert {title: frame["status"] for title, frame in at.frames().items()} == {"scout: look around": "in_progress"}


@pytest.mark.rows("S1-163")
def test_a_pattern_that_cannot_be_used_is_passed_over_with_a_line_in_the_log(
    stage: Stage, provider: ScriptedProvider, caplog: pytest.LogCaptureFixture
) -> None:
    """S1-163: the start goes on, and the others count."""
    proxy = stage.proxy(subagent__patterns="([a-z,subagent,(a+)+b")
    assert proxy.get("/health")["status"] == "ready"
    assert proxy.get(PATH)["patterns"] == ["subagent"]
    reasons = [vars(record)["reason"] for record in caplog.records if "passed over" in record.message]
    assert ["'([a-z' is no regular" in reasons[0], "'(a+)+b' could take too long" in reasons[1]] == [True, True]
    delegating(stage, proxy, provider)
    assert opened(stage, proxy, provider, TITLED)["parent"] is not None
