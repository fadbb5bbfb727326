"""A person speaks into a running agent: with its next request to the provider the model is told, once, and the words
stay where they were told.

Every scenario ends before the judge of `tests.laws`.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from llm_test_provider import ScriptedProvider, call, says, status
from proxy.core.ledger.queued_messages import HEADING
from proxy.exchange.background.inbox import MAX_MESSAGE_CHARACTERS, MAX_WAITING_MESSAGES
from tests.crash.killable import KillableProxy
from tests.harness import Conversation, Stage, bash, does, op, pop, push, texts
from tests.laws import calls_of
from tests.scenarios.sessions import TOOLS, Session
from tests.scenarios.speaking import beside, in_flight, meanwhile, told_in, words


@pytest.mark.rows("S4-40", "S4-04")
def test_what_is_said_is_the_last_user_message_of_the_next_request_and_stays(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    provider.will(does(bash("ls")), does(bash("pwd")), says("done"), says("more"))
    chat.says("Look around.")
    person = beside(chat)
    told = person.says("use tabs")
    chat.returns("a.py")
    chat.returns("/home")
    chat.says("go on")

    lines = [r.messages for r in provider.received]
    assert told["position"] == 1
    assert [told_in(line) for line in lines] == [[], [words("use tabs")], [words("use tabs")], [words("use tabs")]]
    assert lines[1][-1]["role"] == "user"
    assert lines[2][: len(lines[1])] == lines[1]
    assert person.states == ["delivered"]
    assert HEADING not in "".join(texts(chat.history))


@pytest.mark.parametrize("act", ["nothing", "a mode is set", "nothing old is deleted"])
def test_what_management_does_while_an_answer_is_under_way_parts_nobody_from_it(
    chat: Conversation, provider: ScriptedProvider, act: str
) -> None:
    """The answer and who speaks meanwhile stand in the same conversation: the model sees again what it called."""
    provider.will(does(bash("ls")), does(bash("pwd")), says("done"), says("more"))
    chat.says("Look around.")
    person = beside(chat)

    def acts() -> None:
        if act == "a mode is set":
            chat.proxy.manage("PUT", f"{person.at}/mode", {"mode": "active"})
        elif act == "nothing old is deleted":
            assert chat.proxy.asked("DELETE", "/stack/conversations?before=1")[1]["conversations"] == 0
        person.says("use tabs")

    meanwhile(provider, 2, acts, does(push("Auth"), text="I begin. "))
    chat.returns("a.py")
    chat.returns("/home")

    called = [name for message in provider.received[-1].messages for _, name in calls_of(message)]
    assert "stack_frame_push" in called
    assert chat.proxy.active() == "Auth"


@pytest.mark.rows("S4-42", "C16")
def test_all_that_waits_is_one_message_with_a_bullet_each(chat: Conversation, provider: ScriptedProvider) -> None:
    provider.will(does(bash("ls")), says("done"))
    chat.says("Look around.")
    person = beside(chat)
    places = [person.says(text)["position"] for text in ("use tabs", "no emojis\nanywhere", "be brief")]
    chat.returns("a.py")

    assert places == [1, 2, 3]
    assert told_in(provider.received[-1].messages) == [words("use tabs", "no emojis\n  anywhere", "be brief")]


@pytest.mark.rows("S4-41")
def test_between_two_hidden_rounds_it_is_told_with_the_second(chat: Conversation, provider: ScriptedProvider) -> None:
    """The words stand behind the results of the round, also with the next request, and the client sees none of them."""
    provider.will(does(bash("ls")), says("tabs it is"), says("more"))
    chat.says("Look around.")
    person = beside(chat)
    meanwhile(provider, 2, lambda: person.says("use tabs"), does(op("status"), text="I look. "))
    answer = chat.returns("a.py")
    chat.says("go on")

    lines = [r.messages for r in provider.received]
    assert [told_in(line) for line in lines] == [[], [], [words("use tabs")], [words("use tabs")]]
    assert lines[2][-1]["role"] == "user"
    assert lines[3][: len(lines[2])] == lines[2]
    assert answer.text.endswith("tabs it is")
    assert "dequeued" in "".join(chat.proxy.receipts()[-2]["events"])


@pytest.mark.one_process("each counts, and tells, what it does itself")
@pytest.mark.rows("S4-41", "S4-43")
def test_whoever_listens_hears_of_it_and_of_no_word(
    chat: Conversation, provider: ScriptedProvider, caplog: pytest.LogCaptureFixture
) -> None:
    provider.will(does(bash("ls")), says("done"))
    chat.says("Look around.")
    person = beside(chat)
    with caplog.at_level("INFO"):
        person.says("use sesame")
        chat.proxy.asked("DELETE", f"{person.at}/messages/{person.says('never mind')['id']}")
        chat.returns("a.py")
    heard = chat.proxy.page("/stack/events?follow=false")

    types = re.findall(r'"type":"(message[^"]*)"', heard)
    assert types == ["message.queued", "message.queued", "message.removed", "message.dequeued"]
    assert [r.getMessage() for r in caplog.records if r.getMessage().startswith("message")] == [
        "message queued",
        "message queued",
        "message removed",
        "message dequeued",
    ]
    assert "sesame" not in heard + caplog.text
    assert 'callstack_messages_total{event="dequeued"} 1.0' in chat.proxy.page("/metrics")


@pytest.mark.rows("S4-41")
def test_what_is_told_behind_a_pop_stands_on_the_line_it_returns_to(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    provider.will(does(push("Auth"), bash("ls")), says("done"), says("more"))
    chat.says("add a login")
    person = beside(chat)
    meanwhile(provider, 2, lambda: person.says("use tabs"), does(pop("it works")))
    chat.returns("a.py")
    chat.says("go on")

    assert [told_in(r.messages) for r in provider.received] == [[], [], [words("use tabs")], [words("use tabs")]]


def test_what_is_told_inside_a_frame_follows_it_out_while_the_turn_goes_on(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    """A user message of the unfinished turn is handed to the frame it returns to; so are these words."""
    provider.will(
        does(push("Auth"), bash("ls")),
        does(bash("pwd")),
        does(pop("it works")),
        says("done"),
    )
    chat.says("add a login")
    beside(chat).says("use tabs")
    chat.returns("a.py")
    chat.returns("/home")

    assert told_in(provider.received[-1].messages) == [words("use tabs")]


# ----------------------------------------------------------------------------------------------------- who is told,
# when
def test_a_message_wakes_a_small_thread_also_inside_a_tool_loop(stage: Stage, provider: ScriptedProvider) -> None:
    """Asleep, a request passes byte for byte (L5); with something to tell it is told."""
    chat = stage.chat(stage.proxy(wake_at_tokens=20000))
    provider.will(does(bash("ls")), says("done"), says("more"))
    chat.says("Look around.")
    beside(chat).says("use tabs")
    told = chat.returns("a.py")
    later = chat.says("go on")

    assert (told.stack_status, later.stack_status) == ("full", "full")
    assert [told_in(r.messages) for r in provider.received] == [[], [words("use tabs")], [words("use tabs")]]


def test_in_mode_passive_it_is_told_too(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat(stage.proxy(mode="passive"))
    provider.will(does(bash("ls")), says("done"))
    chat.says("Look around.")
    beside(chat).says("use tabs")
    chat.returns("a.py")

    assert told_in(provider.received[-1].messages) == [words("use tabs")]


@pytest.mark.parametrize("mode", ["off", "shadow"])
def test_where_requests_pass_as_they_are_a_message_is_refused_with_what_to_do(
    stage: Stage, provider: ScriptedProvider, mode: str
) -> None:
    chat = stage.chat(stage.proxy(mode=mode))
    provider.will(does(bash("ls")), says("done"))
    chat.says("Look around.")
    person = beside(chat)

    assert person.refused("use tabs") == (409, "mode")
    chat.proxy.asked("PUT", f"{person.at}/mode", {"mode": "active"})
    person.says("use tabs")
    chat.returns("a.py")
    assert told_in(provider.received[-1].messages) == [words("use tabs")]


def test_a_conversation_without_tools_is_told_nothing_and_says_so(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat(tools=())
    provider.will(says("hello"))
    chat.says("hello")

    assert beside(chat).refused("use tabs") == (409, "no_tools")


def test_a_summary_of_the_thread_is_not_told(chat: Conversation, provider: ScriptedProvider) -> None:
    """A request without tools that carries the history asks about it; the message waits for the work to go on."""
    provider.will(does(bash("ls")), says("a summary"), says("done"))
    chat.says("Look around.")
    beside(chat).says("use tabs")
    chat.tries(tools=...)
    chat.returns("a.py")

    assert [told_in(r.messages) for r in provider.received] == [[], [], [words("use tabs")]]


def test_only_the_thread_that_is_named_is_told(chat: Conversation, provider: ScriptedProvider) -> None:
    provider.will(says("one"), says("two"), says("other"), says("main"))
    chat.says("first")
    branch = chat.branch(1)
    chat.says("second")
    branch.history[0]["content"] = "first"
    branch.history.append(dict(chat.history[1]))
    other = branch.says("another second")
    thread = other.headers["x-stack-thread"]
    person = beside(chat)
    person.says("use tabs", thread=thread)
    assert person.refused("x", thread="nobody") == (404, "not_found")
    provider.will(says("on"), says("on"))
    chat.says("third")
    branch.says("another third")

    assert [told_in(r.messages) for r in provider.received[-2:]] == [[], [words("use tabs")]]


@pytest.mark.one_process("two requests of one conversation at the same moment do not see each other")
def test_of_two_requests_at_once_one_is_told(stage: Stage, provider: ScriptedProvider) -> None:
    """Two threads of a conversation; which one comes first is nobody's promise."""
    chat = stage.chat()
    provider.will(says("one"))
    chat.says("first")
    threads = [chat.branch(2) for _ in range(4)]
    beside(chat).says("use tabs")
    provider.when(lambda _: True, says("on"), loop=True)
    with ThreadPoolExecutor(len(threads)) as pool:
        list(pool.map(lambda pair: pair[1].says(f"second {pair[0]}"), enumerate(threads)))

    assert sorted(len(told_in(r.messages)) for r in provider.received[1:]) == [0, 0, 0, 1]


def test_a_subagent_is_not_told_what_its_parent_is(chat: Conversation, provider: ScriptedProvider) -> None:
    prompt = "Find out which module renders the invoice."
    provider.will(does(call("task", description="look", prompt=prompt)), says("it is pdf.py"), says("done"))
    chat.says("Where is the bug?")
    beside(chat).says("use tabs")
    chat.proxy.stage.chat(chat.proxy, system="You are a subagent.", tools=("read",)).says(prompt)
    chat.returns("it is pdf.py")

    assert [told_in(r.messages) for r in provider.received] == [[], [], [words("use tabs")]]


# ------------------------------------------------------------------------------------------------- what is not
# forgotten
@pytest.mark.rows("S4-45")
def test_what_waits_survives_a_restart_and_is_told_once(chat: Conversation, provider: ScriptedProvider) -> None:
    provider.will(does(bash("ls")), does(bash("pwd")), says("done"))
    chat.says("Look around.")
    beside(chat).says("use tabs")
    chat.proxy.restart()
    (waiting,) = beside(chat).messages
    assert (waiting["state"], waiting["expires"] - waiting["created"]) == ("waiting", 24 * 3_600_000)
    chat.returns("a.py")
    chat.proxy.restart()
    chat.returns("/home")

    assert [told_in(r.messages) for r in provider.received] == [[], [words("use tabs")], [words("use tabs")]]
    assert beside(chat).states == ["delivered"]


@pytest.mark.rows("S4-45")
def test_what_nobody_asked_for_in_time_is_expired_and_never_told(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat(stage.proxy(queue_hours=1e-9))
    provider.will(does(bash("ls")), says("done"))
    chat.says("Look around.")
    person = beside(chat)
    person.says("use tabs")
    assert person.states == ["expired"]
    chat.returns("a.py")

    assert not told_in(provider.received[-1].messages)


@pytest.mark.rows("S4-43")
def test_what_waits_is_listed_and_taken_back_one_by_one_or_all(chat: Conversation, provider: ScriptedProvider) -> None:
    provider.will(does(bash("ls")), says("done"))
    chat.says("Look around.")
    person = beside(chat)
    first, *_ = [person.says(text) for text in ("one", "two", "three")]
    assert chat.proxy.asked("DELETE", f"{person.at}/messages/{first['id']}") == (200, {"removed": 1})
    assert [(m["text"], m["position"]) for m in person.messages] == [("two", 1), ("three", 2)]
    assert chat.proxy.asked("DELETE", f"{person.at}/messages") == (200, {"removed": 2})
    assert person.messages == []
    person.says("four")
    chat.returns("a.py")

    assert told_in(provider.received[-1].messages) == [words("four")]
    (four,) = person.messages
    assert chat.proxy.asked("DELETE", f"{person.at}/messages/{four['id']}")[0] == 409
    assert chat.proxy.asked("DELETE", f"{person.at}/messages/{first['id']}")[0] == 404


def test_the_queue_is_bounded_and_so_is_a_text(chat: Conversation, provider: ScriptedProvider) -> None:
    provider.will(says("hello"))
    chat.says("hello")
    person = beside(chat)
    assert person.refused("x" * (MAX_MESSAGE_CHARACTERS + 1)) == (400, "bad_request")
    assert person.refused(" \n") == (400, "no_text")
    for n in range(MAX_WAITING_MESSAGES):
        person.says(f"message {n}")

    assert person.refused("one more") == (409, "queue_full")
    assert len(person.messages) == MAX_WAITING_MESSAGES
    chat.proxy.asked("DELETE", f"{person.at}/messages")
    for _ in range(4):
        person.says("x" * MAX_MESSAGE_CHARACTERS)
    assert person.refused("one more") == (409, "queue_full")


def test_words_told_with_a_request_that_failed_are_told_with_the_next_try_once(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    provider.will(does(bash("ls")), status(401), says("done"), says("more"))
    chat.says("Look around.")
    beside(chat).says("use tabs")
    chat.returns("a.py")
    assert chat.asks().text == "done"
    chat.says("go on")

    assert [told_in(r.messages) for r in provider.received] == [[], *[[words("use tabs")]] * 3]


def test_words_told_between_rounds_of_a_turn_that_failed_are_told_again_where_it_is_tried_again(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    """They hang on the turn that nobody saw the end of; the client goes on from before it."""
    provider.will(does(bash("ls")))
    chat.says("Look around.")
    person = beside(chat)
    meanwhile(provider, 2, lambda: person.says("use tabs"), does(op("status")))
    provider.will(status(401), says("done"), says("more"))
    broken = chat.returns("a.py")
    assert broken.status == 401 or not broken.ended
    chat.proxy.stage.excuse()  # the hidden round of the turn that failed is on no line any more
    chat.asks()
    chat.says("go on")

    assert [told_in(r.messages) for r in provider.received] == [[], [], *[[words("use tabs")]] * 3]


def test_words_of_a_turn_that_failed_are_not_told_to_another_thread(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    """Whoever asks again from where they were told is told; a thread that never came by there is not."""
    provider.will(says("one"), does(bash("ls")))
    chat.says("first")
    other = chat.branch(2)
    chat.says("second")
    person = beside(chat)
    meanwhile(provider, 3, lambda: person.says("use tabs"), does(op("status")))
    provider.will(status(401), says("elsewhere"), says("done"))
    chat.returns("a.py")
    other.says("another second")
    chat.proxy.stage.excuse()  # the hidden round of the turn that failed is on no line any more
    chat.asks()

    assert [told_in(r.messages) for r in provider.received[3:]] == [[words("use tabs")], [], [words("use tabs")]]


def test_where_the_client_rewrites_its_history_the_words_stay(chat: Conversation, provider: ScriptedProvider) -> None:
    """Clients prune old results: what stands in the place of one is another entry, and what the user said stays."""
    provider.will(
        does(bash("ls")),
        does(bash("pwd")),
        says("That is all there is to see here, I am done."),
        says("more"),
    )
    chat.says("Look around.")
    beside(chat).says("use tabs")
    chat.returns("a.py\n" * 200)
    chat.returns("/home")
    next(m for m in chat.history if m["role"] == "tool")["content"] = "[Old tool result content cleared]"
    chat.says("go on")

    assert told_in(provider.received[-1].messages) == [words("use tabs")]


def test_where_the_client_rewrites_its_history_the_words_stay_in_the_frame_they_were_said_in(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    """What was said in a child that has returned does not come back to its parent's line."""
    provider.will(does(push("Auth")), does(bash("ls")), says("Here is the end of what there was to do in it."))
    chat.says("Look around.")
    beside(chat).says("use tabs")
    chat.returns("a.py\n" * 200)
    provider.will(does(pop("seen")), says("I am back with what was found in there."), says("more"))
    chat.says("finish it")
    next(m for m in chat.history if m["role"] == "tool")["content"] = "[Old tool result content cleared]"
    chat.says("go on")

    lines = [r.messages for r in provider.received]
    assert [told_in(line) for line in lines[2:]] == [[words("use tabs")], [words("use tabs")], [], []]
    assert lines[5][: len(lines[4])] == lines[4]


def test_a_fold_takes_the_work_and_leaves_the_words(stage: Stage, provider: ScriptedProvider) -> None:
    """They count as the user's own; the work around them is finished and leaves."""
    chat = stage.chat(stage.proxy(), tools=TOOLS)
    session = Session(chat, provider)
    provider.will(
        does(call("read", filePath="handbook.md")),
        does(bash("make docs")),
        says("The title is right now."),
    )
    chat.says("Fix the title of the handbook.")
    beside(chat).says("use tabs")
    chat.returns(session.output("the handbook"))
    chat.returns(session.output("built"))
    session.plays("""
        user: Implement a rate limiter for the public API.
        read src/limit.py
        edit src/limit.py
        run pytest -q
        says: There is a token bucket in src/limit.py.
        user: Investigate why the nightly billing export takes five hours.
        run time ./export --sample
        says: Every invoice is read twice, once for its tax.
    """)

    assert 1 not in session.outputs_sent()
    assert told_in(provider.received[-1].messages) == [words("use tabs")]


@pytest.mark.spoken_in("chat", reason="the trait is of models that are reached in chat completions")
def test_a_model_that_takes_no_words_behind_a_result_reads_them_in_it(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat(stage.proxy(tariffs__own__names="gpt-x", tariffs__own__after_tool="suffix"))
    provider.will(does(bash("ls")), does(bash("pwd")), says("done"))
    chat.says("Look around.")
    beside(chat).says("use tabs")
    chat.returns("a.py")
    chat.returns("/home")

    lines = [[m for m in r.messages if m["role"] == "tool"] for r in provider.received]
    assert [m["content"] for m in lines[1]] == ["a.py\n\n" + words("use tabs")]
    assert [m["content"] for m in lines[2]] == ["a.py\n\n" + words("use tabs"), "/home"]


@pytest.mark.spoken_in("chat", reason="the model is known by its name")
def test_asleep_inside_a_loop_that_must_open_with_its_reasoning_it_waits_for_the_users_next_words(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """L8: waking there would change what the reasoning stands behind."""
    proxy = stage.proxy(wake_at_tokens=20000, **{"tariffs__claude-strict__thinking_in_loop": "required"})
    chat = stage.chat(proxy, model="claude-strict")
    provider.will(does(bash("ls"), reasoning="Where am I?"), says("done"), says("tabs it is"))
    chat.says("Look around.")
    person = beside(chat)
    person.says("use tabs")
    assert chat.returns("a.py").stack_status == "asleep"
    assert person.states == ["waiting"]
    assert chat.says("go on").stack_status == "full"

    assert told_in(provider.received[-1].messages) == [words("use tabs")]


@pytest.mark.spoken_in("chat", reason="it is about the process, not about bytes")
@pytest.mark.asked("plain")
@pytest.mark.long
def test_a_process_that_is_killed_tells_nothing_twice(stage: Stage, provider: ScriptedProvider) -> None:
    """Killed while the provider reads the words: they stand on the line of the next try, once. Killed between two
    hidden rounds: the turn that nobody saw is on no path, and the next try is told."""
    proxy = KillableProxy(stage, wake_at_tokens=0).start()
    chat = stage.chat(proxy)
    provider.will(does(bash("ls")))
    chat.says("Look around.")
    person = beside(chat)
    person.says("use tabs")
    provider.will(says("late", delay_s=60.0), does(bash("pwd")))
    chat.history.append({"role": "tool", "tool_call_id": chat.history[-1]["tool_calls"][0]["id"], "content": "a.py"})
    with in_flight(chat):
        provider.wait_for(2)
        proxy.kill()
    proxy.start()
    chat.asks()
    meanwhile(provider, 4, lambda: person.says("be brief"), does(op("status")))
    provider.will(says("late", delay_s=60.0), says("done"))
    chat.history.append({"role": "tool", "tool_call_id": chat.history[-1]["tool_calls"][0]["id"], "content": "/home"})
    with in_flight(chat):
        provider.wait_for(5)
        proxy.kill()
    proxy.start()
    chat.asks()

    told = [told_in(r.messages) for r in provider.received]
    assert told[:3] == [[], [words("use tabs")], [words("use tabs")]]
    assert told[4:] == [[words("use tabs"), words("be brief")]] * 2
