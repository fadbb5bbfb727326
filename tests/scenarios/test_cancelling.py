"""A person looks at an answer while it is made, and stops it; a client that leaves stops its own request alone."""

from __future__ import annotations

import json
from contextlib import ExitStack

import pytest

from llm_test_provider import ScriptedProvider, says, stall
from tests.client_dialects import MESSAGES
from tests.harness import Conversation, Stage, activate, as_one_text, bash, does, op, plan, pop, push
from tests.scenarios.speaking import beside, in_flight, told_in, until, words

LONG = "an answer that stops in the middle of what it says " * 20


@pytest.mark.asked("streamed")
@pytest.mark.rows("S4-12", "S4-13")
def test_an_answer_is_seen_while_it_is_made(chat: Conversation, provider: ScriptedProvider) -> None:
    """The text of all rounds; a call is pending while its arguments arrive, and running from then on."""
    whole = does(bash("ls"), bash("make " * 2000), text="I build. ")
    provider.will(says("hello"), does(op("status"), text="A look. "), stall(whole, after_events=40))
    chat.says("hello")
    person = beside(chat)
    assert person.live == []
    with in_flight(chat, "Build it."):
        seen = until(lambda: next((r for r in person.live if len(r["calls"]) == 2), None))

        assert (seen["round"], seen["status"], seen["thread"]) == (1, "full", "main")
        assert seen["text"].split() == ["A", "look.", "I", "build."]
        assert [(c["name"], c["state"]) for c in seen["calls"]] == [("bash", "running"), ("bash", "pending")]
    until(lambda: person.live == [])


@pytest.mark.asked("streamed")
@pytest.mark.rows("S4-12")
def test_an_answer_to_an_asleep_thread_is_seen_too(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat(stage.proxy(wake_at_tokens=20000))
    provider.will(says("hello"), stall(says(LONG), after_events=9))
    chat.says("hello")
    with in_flight(chat, "Build it."):
        seen = until(lambda: next((r for r in beside(chat).live if r["text"]), None))

        assert (seen["status"], LONG.startswith(seen["text"])) == ("asleep", True)


@pytest.mark.asked("streamed")
@pytest.mark.rows("S4-50", "S4-52", "C17")
def test_a_cancelled_answer_ends_at_once_and_its_words_are_never_sent_again(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    provider.will(says("hello"), stall(says(LONG), after_events=9), says("from the start"))
    chat.says("hello")
    person = beside(chat)
    person.says("then push", "follow_up")
    with in_flight(chat, "Build it.") as client:
        seen = until(lambda: next((r for r in person.live if r["text"]), None))
        assert person.cancels() == {"requests": 1, "messages": 1, "tree": None}
        told, ended = client.rest()

    assert not ended or b"error" in told
    assert chat.proxy.stage.tongue.terminator not in told
    assert (b"event: error" in told) is (chat.proxy.stage.tongue is MESSAGES)
    provider.wait_until(lambda: provider.open_connections == 0)
    assert (person.messages, person.live) == ([], [])
    root = next(iter(chat.proxy.frames().values()))["sessionID"]
    cancelled = [e for e in chat.proxy.log(root) if e["finish"] == "cancelled"]
    assert [(e["text"][: len(seen["text"])], e["complete"]) for e in cancelled] == [(seen["text"], False)]
    assert chat.proxy.receipts()[-1]["reason"] == "cancelled"
    chat.asks()
    assert LONG[:30] not in as_one_text(provider.received[-1].messages)


@pytest.mark.rows("S4-50")
def test_cancelled_before_the_first_byte_the_client_gets_an_error_it_does_not_repeat(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    provider.will(says("hello"), says("late", delay_s=60.0))
    chat.says("hello")
    person = beside(chat)
    with in_flight(chat, "Build it.") as client:
        provider.wait_for(2)
        assert person.cancels()["requests"] == 1
        status, told = client.answer()

    assert status == 499
    assert "stopped" in str(told)
    assert chat.proxy.receipts()[-1]["client_status"] == 499
    provider.wait_until(lambda: provider.open_connections == 0)


@pytest.mark.rows("S4-50")
def test_an_asleep_request_is_stopped_too(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat(stage.proxy(wake_at_tokens=20000))
    provider.will(says("hello"), says("late", delay_s=60.0))
    chat.says("hello")
    with in_flight(chat, "Build it.") as client:
        provider.wait_for(2)
        assert beside(chat).cancels() == {"requests": 1, "messages": 0, "tree": None}
        assert client.answer()[0] == 499


@pytest.mark.rows("S4-50")
def test_a_stopped_agent_is_refused_until_it_is_resumed(stage: Stage, provider: ScriptedProvider) -> None:
    """What is under way is cut off, what comes next is asked of nobody, and the mode is as it was before."""
    proxy = stage.proxy()
    chat = stage.chat(proxy)
    provider.will(says("hello"), says("late", delay_s=60.0))
    chat.says("hello")
    person = beside(chat)
    proxy.asked("PUT", f"{person.at}/mode", {"mode": "passive"})
    with in_flight(chat, "Build it.") as client:
        provider.wait_for(2)
        assert person.stops() == {"stopped": True, "requests": 1, "messages": 0}
        assert client.answer()[0] == 499

    with in_flight(chat, "Build it.") as client:
        status, told = client.answer()
    assert (status, "Resume" in str(told)) == (499, True)
    assert len(provider.received) == 2
    row = proxy.get(person.at)
    assert (row["stopped"], row["mode"], proxy.receipts()[-1]["reason"]) == (True, "passive", "stopped")

    assert person.resumes()["stopped"] is False
    provider.will(says("on"))
    assert chat.says("Build it.").text == "on"
    row = proxy.get(person.at)
    assert (row["stopped"], row["mode"]) == (False, "passive")


def test_to_cancel_where_nothing_runs_is_no_mistake(chat: Conversation, provider: ScriptedProvider) -> None:
    provider.will(says("hello"))
    chat.says("hello")

    assert beside(chat).cancels() == {"requests": 0, "messages": 0, "tree": None}


@pytest.mark.asked("streamed")
@pytest.mark.rows("S4-50", "C17")
def test_a_client_that_leaves_takes_nothing_back(chat: Conversation, provider: ScriptedProvider) -> None:
    provider.will(says("hello"), stall(says(LONG), after_events=9), says("from the start"), says("pushed"))
    chat.says("hello")
    person = beside(chat)
    person.says("then push", "follow_up")
    with in_flight(chat, "Build it."):
        until(lambda: any(r["text"] for r in person.live))
    provider.wait_until(lambda: provider.open_connections == 0)
    until(lambda: person.live == [])

    assert person.states == ["waiting"]
    chat.asks()
    assert told_in(provider.received[-1].messages) == [words("then push")]


@pytest.mark.asked("streamed")
@pytest.mark.spoken_in("chat", reason="it is about connections, not about bytes")
@pytest.mark.rows("S4-51")
def test_two_hundred_stopped_requests_leave_nothing_behind(chat: Conversation, provider: ScriptedProvider) -> None:
    """Half of them by the client, half by a person: no connection, no flight, no message, and the next one is
    answered."""
    provider.will(says("hello"))
    chat.says("hello")
    person = beside(chat)
    chat.history.append({"role": "user", "content": "Build it."})
    provider.when(lambda r: r.chat < 202, stall(says(LONG), after_events=9), loop=True)
    for round_ in range(10):
        with ExitStack() as clients:
            for _ in range(20):
                clients.enter_context(in_flight(chat))
            provider.wait_for(1 + 20 * (round_ + 1))
            if round_ % 2:
                assert person.cancels()["requests"] == 20
    provider.wait_until(lambda: provider.open_connections == 0)
    until(lambda: person.live == [])
    provider.will(says("built"))

    assert chat.asks().text == "built"
    until(lambda: "callstack_open_requests 0.0" in chat.proxy.page("/metrics"))


@pytest.mark.rows("S1-166")
def test_to_stop_all_blocks_what_is_under_way_and_gives_up_what_is_planned(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    """The next words of the user open the root again, and the model is told what was stopped."""
    provider.will(does(plan("Parser", "Docs")), does(push("Lexer")), says("The lexer is on its way."))
    chat.says("Write a compiler.")
    provider.will(says("late", delay_s=60.0), says("I begin anew."))
    person = beside(chat)
    with in_flight(chat, "Faster.") as client:
        provider.wait_for(4)
        stopped = person.cancels(tree=True)
        assert client.answer()[0] == 499
    frames = {frame["sessionID"]: frame for frame in chat.proxy.frames().values()}

    assert {frames[f]["title"]: "blocked" for f in stopped["tree"]["blocked"]} == {
        title: status for title, status in chat.proxy.statuses().items() if status == "blocked"
    }
    assert chat.proxy.statuses() == {
        "Write a compiler.": "blocked",
        "Parser": "invalidated",
        "Docs": "invalidated",
        "Lexer": "blocked",
    }
    assert stopped["tree"]["left"] == []
    assert "popped around" not in json.dumps(list(frames.values()))
    assert chat.says("Begin anew.").text == "I begin anew."
    assert chat.proxy.statuses()["Write a compiler."] == "in_progress"
    assert "Stopped, and blocked" in as_one_text(provider.received[-1].messages)


@pytest.mark.rows("S1-166", "S4-50")
@pytest.mark.parametrize("child_view", ["fork", "isolate"])
def test_a_frame_in_which_results_wait_for_their_answer_is_stopped_where_it_stands(
    stage: Stage, provider: ScriptedProvider, child_view: str
) -> None:
    """Nothing of it leaves the line before the model has read it (L4); what comes of the calls comes behind it. Then it
    waits for a fold."""
    chat = stage.chat(stage.proxy(child_view=child_view))
    provider.will(does(push("Lexer")), does(bash("ls")), says("on"), says("anew"))
    chat.says("Write a compiler.")
    stopped = beside(chat).cancels(tree=True)["tree"]
    assert (len(stopped["blocked"]), stopped["invalidated"], stopped["left"]) == (2, [], [])
    assert chat.proxy.statuses() == {"Write a compiler.": "blocked", "Lexer": "blocked"}

    chat.returns("a.py, as the shell says")
    sent = as_one_text(provider.received[-1].messages)
    assert ("a.py, as the shell says" in sent, "Stopped, and blocked" in sent) == (True, True)
    assert chat.proxy.statuses() == {"Write a compiler.": "blocked", "Lexer": "blocked"}
    assert chat.says("Begin anew.").text == "anew"
    assert "a.py, as the shell says" in as_one_text(provider.received[-1].messages)
    assert chat.proxy.statuses() == {"Write a compiler.": "in_progress", "Lexer": "blocked"}
    lexer = chat.proxy.frames()["Lexer"]["sessionID"]
    assert chat.proxy.get(f"{beside(chat).at}/compactions")["ended"] == [lexer]


@pytest.mark.rows("S1-166", "S4-50")
def test_frames_in_frames_are_stopped_while_an_answer_to_results_is_awaited(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """Every one of them, those planned below too; the line goes on with the bytes it has. What was stopped is resumed
    as another attempt."""
    chat = stage.chat()
    provider.will(
        does(plan("Docs")),
        does(push("Lexer")),
        does(push("Tokens")),
        does(bash("ls")),
    )
    chat.says("Write a compiler.")
    provider.will(says("late", delay_s=60.0), says("anew"))
    chat.history.append({"role": "tool", "tool_call_id": chat.history[-1]["tool_calls"][0]["id"], "content": "a.py"})
    with in_flight(chat) as client:
        provider.wait_for(5)
        stopped = beside(chat).cancels(tree=True)["tree"]
        assert client.answer()[0] == 499
    before = provider.received[-1].messages

    assert (len(stopped["blocked"]), len(stopped["invalidated"]), stopped["left"]) == (3, 1, [])
    assert chat.says("Begin anew.").text == "anew"
    assert provider.received[-1].messages[: len(before)] == before
    assert chat.proxy.statuses() == {
        "Write a compiler.": "in_progress",
        "Docs": "invalidated",
        "Lexer": "blocked",
        "Tokens": "blocked",
    }

    lexer = chat.proxy.frames()["Lexer"]["sessionID"]
    provider.will(
        does(activate(lexer)),
        does(bash("ls -a")),
        does(pop("The lexer is there.")),
        says("built"),
    )
    chat.says("Go on with the lexer.")
    assert chat.returns("b.py").text == "built"
    assert chat.proxy.statuses()["Lexer"] == "completed"
    sent = as_one_text(provider.received[-1].messages)
    assert ("a.py" in sent, "b.py" in sent, "The lexer is there." in sent) == (True, False, True)


@pytest.mark.rows("S1-166")
def test_a_model_that_takes_no_words_behind_results_has_its_frames_stopped_too(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """Its line stays as it is, so the user's next words stand behind its own answer."""
    chat = stage.chat(stage.proxy(**{"default_tariff.after_tool": "suffix"}))
    provider.will(does(push("Lexer")), says("The lexer is on its way."), says("anew"))
    chat.says("Write a compiler.")
    stopped = beside(chat).cancels(tree=True)["tree"]
    assert (len(stopped["blocked"]), stopped["left"]) == (2, [])

    before = provider.received[-1].messages
    assert chat.says("Begin anew.").text == "anew"
    assert provider.received[-1].messages[: len(before)] == before
    assert provider.received[-1].messages[len(before)]["content"] == "The lexer is on its way."
    assert chat.proxy.statuses() == {"Write a compiler.": "in_progress", "Lexer": "blocked"}


def test_a_cancel_that_is_no_cancel_is_refused_with_a_sentence(chat: Conversation, provider: ScriptedProvider) -> None:
    provider.will(says("hello"))
    chat.says("hello")
    at = beside(chat).at

    wrong: tuple[object, ...] = ({"tree": "perhaps"}, {"everything": True}, [], "all")
    for body in wrong:
        status, told = chat.proxy.asked("POST", f"{at}/cancel", body)
        assert (status, told["error"]["code"]) == (400, "bad_request")
