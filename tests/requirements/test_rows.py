"""Rows of the requirements whose exact words no scenario holds on its own."""

import pytest

from callstack_proxy.config_sources import load_config
from callstack_proxy.management.issued_keys import issue_key
from llm_test_provider import ScriptedProvider, call, says
from tests.harness import Stage, activate, bash, does, op, plan, pop, push


@pytest.mark.rows("S1-77", "S1-78")
def test_s1_78_invalidation_reaches_every_planned_descendant_and_says_why(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """S1-77, S1-78: three levels of a plan, each with the reason of the frame that took it along."""
    nested = {"title": "B", "successCriteria": "b", "children": [{"title": "C", "successCriteria": "c"}]}
    chat = stage.chat()
    provider.will(
        does(call("stack_frame_plan", title="A", successCriteria="a", children=[nested])),
        does(op("invalidate", sessionID="A", reason="the design changed")),
        says("ok"),
    )
    chat.says("Mend it.")

    frames = chat.proxy.frames()
    assert [frames[title]["status"] for title in "ABC"] == ["invalidated"] * 3
    assert frames["A"]["invalidationReason"] == "the design changed"
    assert [frames[title]["invalidationReason"] for title in "BC"] == [
        "Parent frame invalidated: the design changed"
    ] * 2
    assert all(frames[title]["invalidatedAt"] for title in "ABC")


@pytest.mark.rows("S1-79", "S1-80")
def test_s1_80_what_ended_below_an_invalidated_frame_stays_so(stage: Stage, provider: ScriptedProvider) -> None:
    """S1-79, S1-80: completed, failed and blocked descendants are unchanged; the work goes on in the parent."""
    chat = stage.chat(stage.proxy(stack_rounds=20))
    provider.will(does(push("A")))
    for status in ("completed", "failed", "blocked"):
        provider.will(does(push(status)), does(pop("x", status)))
    provider.will(does(op("invalidate", reason="no longer needed")), says("ok"), says("on"))
    chat.says("Mend it.")

    assert chat.proxy.statuses() == {
        "Mend it.": "in_progress",
        "A": "invalidated",
        "completed": "completed",
        "failed": "failed",
        "blocked": "blocked",
    }
    assert chat.proxy.active() == "Mend it."
    chat.says("go on")


@pytest.mark.rows("S1-77", "S1-125")
def test_s1_125_the_reason_is_required(stage: Stage, provider: ScriptedProvider) -> None:
    """S1-77: without one nothing changes, and the model is told what is missing."""
    chat = stage.chat()
    provider.will(does(plan("A")), does(op("invalidate", sessionID="A")), says("ok"))
    chat.says("Mend it.")

    assert chat.proxy.statuses()["A"] == "planned"
    assert stage.lines()[-1][-1]["content"].startswith("Error: reason is missing")


@pytest.mark.rows("S1-38", "S1-73", "S1-123", "C21")
def test_s1_123_plan_children_needs_children(stage: Stage, provider: ScriptedProvider) -> None:
    """S1-38, S1-73, S1-123: empty is an error; one bad child and none is made; the order is kept."""
    good = {"title": "A", "successCriteria": "a"}
    chat = stage.chat()
    provider.will(
        does(call("stack_frame_plan_children", children=[])),
        does(call("stack_frame_plan_children", children=[good, {"title": "B"}])),
        does(call("stack_frame_plan_children", children=[{**good, "title": t} for t in ("Z", "Y", "X")])),
        says("ok"),
    )
    chat.says("Mend it.")

    told = [m["content"] for m in stage.lines()[-1] if m["role"] == "tool"]
    assert [text.split(":")[0] for text in told[:2]] == ["Error", "Error"]
    assert list(chat.proxy.statuses()) == ["Mend it.", "Z", "Y", "X"]


@pytest.mark.rows("S0-30", "S0-31", "S1-37", "S1-75", "S0-41", "S2-34", "C23")
def test_s0_31_one_frame_at_a_time_is_at_work_below_its_open_parents(stage: Stage, provider: ScriptedProvider) -> None:
    """S0-30, S0-31, S1-37, S1-75: planned frames begin nothing; what is active, and its parents, are in progress."""
    chat = stage.chat()
    provider.will(does(plan("A", "B")), does(activate("A")), does(push("A1")), says("ok"))
    chat.says("Mend it.")

    assert chat.proxy.statuses() == {"Mend it.": "in_progress", "A": "in_progress", "B": "planned", "A1": "in_progress"}
    assert chat.proxy.active() == "A1"


@pytest.mark.rows("S4-01", "X-13", "S4-67")
def test_s4_01_calls_stand_before_their_results_in_log_and_line(stage: Stage, provider: ScriptedProvider) -> None:
    """S4-01, X-13: hidden results too, although the client's came later; all in call order."""
    chat = stage.chat()
    provider.will(does(push("Auth")), does(bash("one"), op("status"), bash("two")), says("ok"))
    chat.says("Mend it.")
    chat.returns("1", "2")

    line = stage.lines()[-1]
    asked = next(m for m in reversed(line) if m.get("tool_calls"))
    ids = [each["id"] for each in asked["tool_calls"]]
    assert len(ids) == 3
    assert [m.get("tool_call_id") for m in line[-3:]] == ids
    roles = [entry["role"] for entry in chat.proxy.log(chat.proxy.frames()["Auth"]["sessionID"])]
    assert roles == ["assistant", "tool", "tool", "assistant"]


@pytest.mark.rows("S4-02", "S4-16", "S4-18")
def test_s4_18_the_end_of_a_turn_tells_its_finish_and_its_usage(stage: Stage, provider: ScriptedProvider) -> None:
    """S4-02, S4-16, S4-18: one row a request; the usage of the last round is told apart from the sum."""
    chat = stage.chat()
    provider.will(does(push("Auth")), says("ok"))
    chat.says("Mend it.")

    receipt = chat.proxy.receipts()[-1]
    assert (receipt["finish_reason"], receipt["rounds"], receipt["hidden_calls"]) == ("stop", 2, 1)
    assert receipt["usage"]["input"] == sum(each["input"] for each in receipt["usage_by_round"])


@pytest.mark.rows("X-24")
def test_x_24_where_parallel_calls_are_off_every_message_has_one_call(stage: Stage, provider: ScriptedProvider) -> None:
    """Calls of ours and of the client in one turn stay the messages they were; nothing is put together."""
    chat = stage.chat(options={"parallel_tool_calls": False})
    provider.will(
        does(push("Auth")),
        does(bash("one")),
        does(op("status")),
        does(bash("two")),
        says("ok"),
    )
    chat.says("Mend it.")
    chat.returns("1")
    chat.returns("2")

    assert all(received.body["parallel_tool_calls"] is False for received in provider.received)
    made = [message["tool_calls"] for message in stage.lines()[-1] if message.get("tool_calls")]
    assert [len(calls) for calls in made] == [1, 1, 1, 1]


@pytest.mark.rows("S1-64")
def test_s1_64_a_pop_asks_nobody_for_a_summary(stage: Stage, provider: ScriptedProvider) -> None:
    """The model's own text is what returns; between the pop and the next round nothing leaves."""
    chat = stage.chat()
    provider.will(does(push("Auth")), does(pop("Tokens, hashed.")), says("ok"))
    chat.says("Mend it.")

    assert len(provider.received) == 3
    assert "Tokens, hashed." in stage.lines()[-1][-1]["content"]


@pytest.mark.rows("S1-71b")
def test_s1_71b_of_two_callers_of_one_prompt_the_users_own_is_meant(stage: Stage, provider: ScriptedProvider) -> None:
    """Also where another user asked for the very same thing later."""
    prompt = "Count the endpoints in src/api and report."
    proxy = stage.proxy(tenancy="key")
    proxy.headers = {"authorization": f"Bearer {issue_key(proxy.config.keys_path, 'operator', admin=True)}"}
    keys = [{"authorization": f"Bearer {issue_key(proxy.config.keys_path, name)}"} for name in ("one", "two")]
    parents = [stage.chat(proxy, tools=("task", "bash"), headers=key) for key in keys]
    for parent, task in zip(parents, ("map the routes", "write a client"), strict=True):
        provider.will(does(call("task", prompt=prompt)))
        parent.says(task)
    child = stage.chat(proxy, tools=("bash",), headers=keys[0])
    provider.will(says("17."))
    child.says(prompt)

    rows = {row["title"]: row for row in proxy.conversations}
    assert rows[prompt]["parent"] == rows["map the routes"]["id"]


@pytest.mark.rows("C25")
def test_c25_outputs_that_fit_are_not_cleared_however_many_they_are(stage: Stage, provider: ScriptedProvider) -> None:
    """Far more than the newest 40,000 tokens and the 20,000 that would be saved, in a window with room for all."""
    unfolded = {"infer_requests": False, "mirror_plans": False, "frame_max_tokens": 10_000_000}
    proxy = stage.proxy(**unfolded)
    chat = stage.chat(proxy, model="claude-sonnet-4-5")  # a window of 200,000 tokens
    results = [f"result {n} " + "word " * 20_000 for n in range(5)]
    provider.will(*(does(bash(f"step {n}")) for n in range(5)), says("ok"))
    chat.says("do it all")
    for result in results:
        chat.returns(result)

    assert [m["content"] for m in stage.lines()[-1] if m["role"] == "tool"] == results


@pytest.mark.rows("C18")
def test_c18_a_conversation_is_idle_after_five_minutes_and_not_five_seconds() -> None:
    """Between two turns of an agent whose model thinks, seconds go by."""
    assert load_config().subagent.idle_delay == 300_000
