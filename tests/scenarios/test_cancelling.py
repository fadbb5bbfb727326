"""A person looks at an answer while it is made, and stops it; a client that leaves stops its own request alone."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from proxy.scripted import ScriptedProvider, says, stall
from tests.harness import Conversation, Stage, bash, does, everything, op, plan, push
from tests.scenarios.speaking import beside, in_flight, told_in, until, words
from tests.tongues import MESSAGES

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
    assert LONG[:30] not in everything(provider.received[-1].messages)


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
    assert chat.says("Begin anew.").text == "I begin anew."
    assert chat.proxy.statuses()["Write a compiler."] == "in_progress"
    assert "Stopped, and blocked" in everything(provider.received[-1].messages)


@pytest.mark.rows("S1-166")
def test_a_frame_in_which_results_wait_for_their_answer_is_left_under_way(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    """They would leave the line with it before the model has seen them (L4)."""
    provider.will(does(plan("Docs")), does(push("Lexer"), bash("ls")))
    chat.says("Write a compiler.")
    stopped = beside(chat).cancels(tree=True)["tree"]
    provider.will(says("on"))
    chat.returns("a.py")

    assert (len(stopped["blocked"]), len(stopped["invalidated"]), len(stopped["left"])) == (0, 1, 2)
    assert chat.proxy.statuses()["Lexer"] == "in_progress"


def test_a_cancel_that_is_no_cancel_is_refused_with_a_sentence(chat: Conversation, provider: ScriptedProvider) -> None:
    provider.will(says("hello"))
    chat.says("hello")
    at = beside(chat).at

    wrong: tuple[object, ...] = ({"tree": "perhaps"}, {"everything": True}, [], "all")
    for body in wrong:
        status, told = chat.proxy.asked("POST", f"{at}/cancel", body)
        assert (status, told["error"]["code"]) == (400, "bad_request")
