"""What real traffic does at the edges: repeated ids, odd orders, interrupted turns, narrow views in odd company."""

import pytest

from llm_test_provider import ScriptedAnswer, ScriptedCall, ScriptedProvider, answers, call, cut, empty, overflow, says
from tests.client_dialects import CHAT, RESPONSES
from tests.harness import (
    ClientHabits,
    Conversation,
    Stage,
    activate,
    as_one_text,
    bash,
    does,
    op,
    plan,
    pop,
    push,
    spoken_on,
    texts,
)

SMALL, WINDOW = "claude-haiku-4-5", 200_000
"""A model whose window is known, the smallest there is in the table."""


def numbered(*made: ScriptedCall, text: str = "") -> ScriptedAnswer:
    """An answer of a provider that counts the calls of each answer from zero."""
    return answers(text, [ScriptedCall(c.name, c.arguments, f"call_{n}") for n, c in enumerate(made)])


@pytest.mark.rows("X-10")
@pytest.mark.spoken_in("chat", "responses", reason="the messages API refuses ids that repeat")
def test_ids_that_repeat_in_every_round_are_kept_apart(provider: ScriptedProvider, chat: Conversation) -> None:
    """CLIENTS 8.2, X-10: hidden and client calls under the same ids, round after round."""
    provider.will(
        numbered(push("A")), numbered(op("add_decision", decision="JWT"), bash("ls")), numbered(push("B"), bash("pwd")),
        numbered(pop("B done.")), numbered(bash("cat")), numbered(pop("A done.")), says("end"), says("more"),
    )  # fmt: skip
    chat.says("go")
    chat.returns("ls-result")
    chat.returns("pwd-result")
    assert "ls-result" in as_one_text(provider.received[4].messages)
    assert "pwd-result" in as_one_text(provider.received[3].messages)
    assert "pwd-result" not in as_one_text(provider.received[4].messages)
    assert "B done." in as_one_text(provider.received[4].messages)
    chat.returns("cat-result")
    chat.says("and?")

    line = as_one_text(provider.received[-1].messages)
    assert "A done." in line
    assert "cat-result" not in line
    assert chat.proxy.statuses() == {"go": "in_progress", "A": "completed", "B": "completed"}


@pytest.mark.spoken_in("chat", "responses", reason="the messages API refuses ids that repeat")
def test_of_ids_that_repeat_a_narrow_view_shows_the_results_of_the_steps_it_shows(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """L1: a step that is not shown had a call by the same id."""
    chat = stage.chat(stage.proxy(child_view="last:1"))
    provider.will(*(numbered(bash(f"step {n}")) for n in range(2)), numbered(push("A")), says("in A"), says("more"))
    chat.says("go")
    chat.returns("result 0")
    chat.returns("result 1")
    chat.says("and?")

    line = as_one_text(provider.received[-1].messages)
    assert "result 1" in line
    assert "result 0" not in line


def test_a_conversation_without_a_system_message(stage: Stage, provider: ScriptedProvider) -> None:
    """DESIGN 6: a system message of ours where the client sends none."""
    chat = stage.chat(system=None)
    provider.will(does(push("A")), says("one"), does(pop("done")), says("two"))
    chat.says("hello")
    chat.says("go on")

    ours = "developer" if stage.tongue is RESPONSES else "system"
    assert [m["role"] for m in provider.received[0].messages] == [ours, "user"]
    assert texts(provider.received[-1].messages)[-1] == "user: go on"


@pytest.mark.spoken_in("chat", reason="the parts are written in it")
def test_system_texts_as_parts_and_in_the_middle(provider: ScriptedProvider, chat: Conversation) -> None:
    """CLIENTS 2, 8: guidance is one more part of the last head message; later system messages keep their place."""
    chat.system = None
    parts = [
        {"type": "text", "text": "Part one."},
        {"type": "text", "text": "Part two.", "cache_control": {"type": "x"}},
    ]
    chat.history = [{"role": "developer", "content": parts}]
    provider.will(does(push("A")), says("one"), says("two"))
    chat.says("hello")
    chat.history.append({"role": "system", "content": "A reminder in the middle."})
    chat.says("go on")

    line = provider.received[-1].messages
    assert line[0]["content"][:2] == parts
    assert len(line[0]["content"]) == 3
    assert texts(line)[-2:] == ["system: A reminder in the middle.", "user: go on"]


def test_a_partial_echo_of_a_turn_with_hidden_rounds_keeps_its_frames(stage: Stage, provider: ScriptedProvider) -> None:
    """DESIGN 5.2, 10: the push before the break was durable; the client goes on from what it had."""
    chat = stage.chat(streamed=True)
    broken_off = cut(says("I begin with the form of it."), after_events=stage.tongue.opening + 2)
    provider.will(
        does(push("Auth"), text="Let me see."), broken_off, says("Good."), does(pop("done")), says("back"),
    )  # fmt: skip
    chat.history.append({"role": "user", "content": "add a login"})
    broken = chat.tries()
    assert broken.text.startswith("Let me see.\n\nI be")
    chat.history.append({"role": "assistant", "content": broken.text})

    chat.says("go on")

    assert len(chat.proxy.conversations) == 1
    assert chat.proxy.active() == "Auth"
    assert "stack_frame_push" in as_one_text(provider.received[-1].messages[1:])
    chat.says("finish")
    assert chat.proxy.statuses()["Auth"] == "completed"


def test_an_aborted_call_kept_with_empty_arguments(stage: Stage, provider: ScriptedProvider) -> None:
    """CLIENTS 7 (opencode): after a cut the history holds the call with `{}` and a result of the client's own."""
    chat = stage.chat(streamed=True)
    broken_off = cut(does(bash("a long command to be cut")), after_events=stage.tongue.opening + 3)
    provider.will(says("hi"), broken_off, says("I see."), says("ok"))
    chat.says("hello")
    chat.history.append({"role": "user", "content": "run it"})
    broken = chat.tries()
    aborted = {**broken.message["tool_calls"][0], "function": {"name": "bash", "arguments": "{}"}}
    chat.history.append({"role": "assistant", "content": None, "tool_calls": [aborted]})
    chat.history.append({"role": "tool", "tool_call_id": aborted["id"], "content": "Tool execution aborted"})

    assert chat.says("again").text == "I see."
    chat.says("go on")
    assert len(chat.proxy.conversations) == 1
    assert "Tool execution aborted" in as_one_text(provider.received[-1].messages)


BEGUN = {"chat": 6, "messages": 10, "responses": 13}
"""Events of an answer with one word and a call until some of the call's arguments have left."""


def test_half_a_call_that_the_client_dropped_does_not_come_back(stage: Stage, provider: ScriptedProvider) -> None:
    """L4: after a cut most clients keep the words and no call. What is left of one is no JSON, which some providers
    refuse, and would be with every request from then on."""
    chat = stage.chat(streamed=True)
    whole = bash("a command of several words, to be cut in one of them")
    broken_off = cut(does(whole, text="Look:"), after_events=BEGUN[stage.tongue.short])
    provider.will(
        does(push("Auth"), text="Let me see."),
        broken_off,
        says("Good."),
        says("More."),
        does(pop("done")),
    )
    chat.history.append({"role": "user", "content": "add a login"})
    broken = chat.tries()
    (half,) = broken.message["tool_calls"]
    assert '"a com' in half["function"]["arguments"]
    assert not half["function"]["arguments"].endswith("}")
    chat.history.append({"role": "assistant", "content": broken.text})

    chat.says("not so")
    after = provider.received[-1].messages
    chat.says("go on")

    for line in (after, provider.received[-1].messages):
        assert "a com" not in as_one_text(line)
        assert "Look:" in as_one_text(line)
        assert "stack_frame_push" in as_one_text(line[1:])
    assert chat.proxy.active() == "Auth"
    assert len(chat.proxy.conversations) == 1


def test_a_call_renamed_by_the_client(provider: ScriptedProvider, chat: Conversation) -> None:
    """CLIENTS 2 (opencode): an unknown tool comes back as `invalid` with other arguments."""
    provider.will(does(push("Auth")), does(call("bsh", command="ls")), says("I see."), says("ok"))
    chat.says("hello")
    made = chat.history[-1]["tool_calls"][0]
    made["function"] = {"name": "invalid", "arguments": '{"tool": "bsh", "error": "unknown"}'}
    answer = chat.returns("no such tool")
    chat.says("go on")

    assert answer.status == 200
    assert len(chat.proxy.conversations) == 1
    assert chat.proxy.active() == "Auth"


@pytest.mark.rows("X-10")
def test_results_in_another_order_than_the_calls(provider: ScriptedProvider, chat: Conversation) -> None:
    """X-10, L1: the client answered last things first, with a stack call in the group."""
    provider.will(does(bash("one"), push("A"), bash("two")), says("ok"))
    chat.says("hello")
    first, second = chat.history[-1]["tool_calls"]
    for made, words in ((second, "result two"), (first, "result one")):
        chat.history.append({"role": "tool", "tool_call_id": made["id"], "content": words})
    body = chat.body()
    chat.proxy.stage.notes.clear()

    assert chat.proxy.post(body, streamed=chat.streamed).status == 200
    line = provider.received[-1].messages
    assert [c["id"] for c in line[-4]["tool_calls"]] == [m["tool_call_id"] for m in line[-3:]]
    chat.proxy.stage.notes.clear()  # the judge knows one order of results: that of the client


def test_a_user_message_behind_tool_results(provider: ScriptedProvider, chat: Conversation) -> None:
    """Some clients speak in the same request that brings the results."""
    provider.will(does(push("A")), does(bash("ls")), says("ok"), does(pop("done")), says("back"))
    chat.says("hello")
    made = chat.history[-1]["tool_calls"][0]
    chat.history.append({"role": "tool", "tool_call_id": made["id"], "content": "a.py"})
    chat.says("here it is, and hurry")
    chat.says("go on")

    assert chat.proxy.statuses()["A"] == "completed"
    returned = next(m["content"] for m in provider.received[-1].messages if m["role"] == "tool")
    assert "here it is, and hurry" in returned


def test_only_some_of_the_results_came(provider: ScriptedProvider, chat: Conversation) -> None:
    """L1: the user interrupted between two parallel calls."""
    provider.will(does(bash("one"), bash("two")), says("ok"))
    chat.says("hello")
    first = chat.history[-1]["tool_calls"][0]
    chat.history.append({"role": "tool", "tool_call_id": first["id"], "content": "result one"})
    chat.says("stop")

    line = provider.received[-1].messages
    assert [m["role"] for m in line[-4:]] == ["assistant", "tool", "tool", "user"]


def test_a_message_that_holds_a_push_stays_with_the_parent(provider: ScriptedProvider, chat: Conversation) -> None:
    """DESIGN 6: a call belongs to the frame it was made in; after the pop those before the push are on the parent's
    line."""
    provider.will(
        does(bash("ls"), push("A"), bash("ls below")),
        does(bash("in child")),
        does(pop("A done.")),
        says("back"),
        says("end"),
    )
    chat.says("hello")
    chat.returns("parent-result", "child-result of the first message")
    chat.returns("child-result")
    chat.says("and?")

    line = as_one_text(provider.received[-1].messages)
    assert "parent-result" in line
    assert "child-result" not in line
    assert "A done." in line


def test_three_moves_in_one_message(provider: ScriptedProvider, chat: Conversation) -> None:
    """pop + plan + activate in one group: the activated frame hangs on the call that opened the popped one."""
    provider.will(
        does(push("A")),
        says("in A"),
        does(pop("A done."), plan("B", "C"), activate("B")),
        says("in B"),
    )
    provider.will(does(pop("B done.")), says("back"), says("end"))
    for words in ("one", "two"):
        chat.says(words)
    assert chat.proxy.active() == "B"
    assert "in A" not in spoken_on(provider.received[-1].messages)
    chat.says("three")
    chat.says("four")

    assert chat.proxy.statuses() == {"one": "in_progress", "A": "completed", "B": "completed", "C": "planned"}
    line = as_one_text(provider.received[-1].messages)
    assert "B done." in line
    assert "in B" not in spoken_on(provider.received[-1].messages)


def test_push_pop_push_in_one_message(provider: ScriptedProvider, chat: Conversation) -> None:
    """The first push of a group is done; what follows a pop in it is planned, and says so."""
    provider.will(does(push("A"), pop("A done."), push("B")), says("ok"), says("end"))
    chat.says("go")
    chat.says("and?")

    statuses = chat.proxy.statuses()
    assert statuses["A"] == "completed"
    assert statuses["B"] in ("planned", "in_progress")


def test_invalidate_and_push_in_one_message(provider: ScriptedProvider, chat: Conversation) -> None:
    """The wrong way is given up and the right one begun: its block stands where the wrong one was opened."""
    provider.will(
        does(push("Wrong")),
        says("going wrong"),
        does(op("invalidate", reason="wrong"), push("Right")),
    )
    provider.will(says("in Right"), does(pop("Right done.")), says("back"), says("end"))
    for words in ("one", "two", "three", "four"):
        chat.says(words)

    assert chat.proxy.statuses() == {"one": "in_progress", "Wrong": "invalidated", "Right": "completed"}
    line = as_one_text(provider.received[-1].messages)
    assert "Right done." in line
    assert "going wrong" not in spoken_on(provider.received[-1].messages)
    assert "in Right" not in spoken_on(provider.received[-1].messages)


def test_a_push_by_the_title_of_a_plan_begins_that_plan(provider: ScriptedProvider, chat: Conversation) -> None:
    provider.will(does(plan("Model", "View")), does(push("Model")), says("ok"))
    chat.says("go")

    assert chat.proxy.statuses() == {"go": "in_progress", "Model": "in_progress", "View": "planned"}


def test_activating_below_a_planned_frame_begins_that_too(provider: ScriptedProvider, chat: Conversation) -> None:
    """A frame in progress has no planned parent."""
    provider.will(
        does(plan("B")),
        does(plan("B1", parentSessionID="B")),
        does(activate("B1")),
        says("in B1"),
    )
    provider.will(does(pop("B1 done.")), says("in B"), does(pop("B done.")), says("back"), says("end"))
    for words in ("one", "two", "three", "four"):
        chat.says(words)

    assert chat.proxy.statuses() == {"one": "in_progress", "B": "completed", "B1": "completed"}
    assert chat.proxy.active() == "one"


def test_words_to_a_grandchild_survive_the_pop_of_an_ancestor(provider: ScriptedProvider, chat: Conversation) -> None:
    """L4: the newest user message is never folded, through however many frames."""
    provider.will(does(push("A")), does(push("B")), does(push("C")), says("in C"))
    provider.will(does(pop("all of it", frameID="A")), says("back"), says("end"))
    chat.says("go deep")
    chat.says("now finish everything")

    assert texts(provider.received[-1].messages)[-1] == "user: now finish everything"
    chat.says("and?")


@pytest.mark.parametrize("view", ["isolate", "last:2"])
def test_narrow_views_grow_nest_and_return(stage: Stage, provider: ScriptedProvider, view: str) -> None:
    """L2 in narrow views: several turns in a child, a child of it, users in both, a restart, and the way back."""
    proxy = stage.proxy(child_view=view)
    chat = stage.chat(proxy)
    provider.will(
        does(bash("0")),
        does(push("A")),
        does(bash("1")),
        does(bash("2")),
        says("in A"),
    )
    provider.will(
        does(push("B")),
        does(bash("3")),
        says("in B"),
        does(pop("B done.")),
        does(bash("4")),
        says("A again"),
    )
    provider.will(
        does(pop("A done."), push("C")),
        does(bash("5")),
        says("in C"),
        does(pop("C done.")),
        says("back"),
    )
    chat.says("begin")
    for n in range(3):
        chat.returns(f"result {n}")
    chat.says("into B")
    chat.returns("result 3")
    proxy.restart()
    chat.says("out of B")
    chat.returns("result 4")
    chat.says("into C")
    chat.returns("result 5")
    chat.says("out of C")

    assert proxy.statuses() == {"begin": "in_progress", "A": "completed", "B": "completed", "C": "completed"}
    line = as_one_text(provider.received[-1].messages)
    assert "result 0" in line
    assert not any(f"result {n}" in line for n in range(1, 6))


def test_a_blank_answer_is_the_clients_to_keep_or_drop(provider: ScriptedProvider, chat: Conversation) -> None:
    """CLIENTS 7: of itself the proxy puts none on a line; one that the client kept is its own message."""
    provider.will(says("one"), says(""), says("three"))
    chat.says("hello")
    chat.says("go on")
    kept = chat.branch(4)
    kept.history[-1] = {"role": "assistant", "content": ""}
    chat.history.pop()

    provider.will(says("four"))
    assert chat.says("are you there?").text == "three"
    assert texts(provider.received[-1].messages)[-2:] == ["user: go on", "user: are you there?"]
    assert kept.says("are you there?").text == "four"
    if chat.proxy.tongue is CHAT:  # elsewhere a blank answer is no item or message at all
        assert provider.received[-1].messages[-2] == {"role": "assistant", "content": ""}
    assert len(chat.proxy.conversations) == 1


@pytest.mark.parametrize("kept", [False, True], ids=["dropped", "kept"])
def test_what_was_done_before_a_blank_answer_stays_done(stage: Stage, provider: ScriptedProvider, kept: bool) -> None:
    """DESIGN 5.2: a model may end a turn with a stack call and no word behind it. The empty answer comes back as one,
    or as none; the frames are as they were left."""
    if kept and stage.tongue is not CHAT:
        pytest.skip("elsewhere a blank answer is no item or message at all")
    chat = stage.chat()
    provider.will(does(push("Auth"), text="I begin."), says("half done"))
    chat.says("add a login")
    chat.says("and?")
    provider.will(
        does(pop("The login works.")),
        says(""),
        says("Next."),
        does(push("Docs")),
        says(""),
        says("Written."),
    )
    for words in ("finish it", "go on", "write docs", "is it there?"):
        answer = chat.says(words)
        if not answer.text and not kept:
            chat.history.pop()

    assert chat.proxy.statuses() == {"add a login": "in_progress", "Auth": "completed", "Docs": "in_progress"}
    line = as_one_text(provider.received[-1].messages)
    assert "The login works." in line
    assert "half done" not in spoken_on(provider.received[-1].messages)
    assert len(chat.proxy.conversations) == 1


def test_a_retry_of_a_blank_answer_is_another_answer(stage: Stage, provider: ScriptedProvider) -> None:
    """X-04: the client asks again because it was told nothing; what was done on the way to that is not on its path."""
    chat = stage.chat()
    provider.will(
        says("hi"),
        does(push("Auth")),
        says(""),
        does(push("Login")),
        says("I begin."),
        says("Good."),
    )
    chat.says("hello")
    chat.says("add a login")
    chat.history.pop()

    assert chat.asks().text == "I begin."
    chat.says("go on")
    assert chat.proxy.active() == "Login"
    assert "Auth" not in as_one_text(provider.received[-1].messages[1:])


def test_an_empty_body_from_the_provider_is_passed(provider: ScriptedProvider, chat: Conversation) -> None:
    """S10."""
    provider.will(says("one"), empty(), says("two"))
    chat.says("hello")
    chat.history.append({"role": "user", "content": "go on"})
    chat.tries()

    assert chat.asks().text == "two"


def test_a_line_may_be_trimmed_again_and_survives_pops_and_restarts(stage: Stage, provider: ScriptedProvider) -> None:
    """L1, L3, L7 after two trims."""
    proxy = stage.proxy()
    chat = stage.chat(proxy)
    provider.will(
        does(push("A")),
        *(does(bash(f"{n}")) for n in range(5)),
        overflow(),
        does(bash("5")),
    )
    chat.says("go")
    for n in range(4):
        chat.returns(f"result {n} " + "word " * 300)
    stage.excuse()
    chat.returns("result 4 " + "word " * 300)
    proxy.restart()
    provider.will(
        does(bash("6")),
        does(bash("7")),
        overflow(),
        says("fits"),
        does(pop("A done.")),
        says("back"),
        says("end"),
    )
    chat.returns("result 5 " + "word " * 300)
    chat.returns("result 6 " + "word " * 300)
    stage.excuse()
    chat.returns("result 7 " + "word " * 300)
    chat.says("finish")
    chat.says("and?")

    assert proxy.statuses() == {"go": "in_progress", "A": "completed"}
    assert "A done." in as_one_text(provider.received[-1].messages)


@pytest.mark.rows("X-05")
def test_a_branch_inside_a_child_goes_on_in_that_child(provider: ScriptedProvider, chat: Conversation) -> None:
    """X-05: state at an entry is the fold of the events on its path; the branch pops, the main path does not."""
    provider.will(
        does(push("A")),
        says("in A"),
        says("main"),
        does(pop("popped in the branch")),
        says("branch"),
        says("m"),
    )
    chat.says("hello")
    chat.says("left")
    branch = chat.branch(2)
    branch.says("right")
    chat.says("on")

    at = chat.proxy.conversations[0]["id"]
    assert chat.proxy.frames(at, "main")["A"]["status"] == "in_progress"
    assert branch.last is not None
    assert chat.proxy.frames(at, branch.last.headers["x-stack-thread"])["A"]["status"] == "completed"
    assert "popped in the branch" not in as_one_text(provider.received[-1].messages)


@pytest.mark.rows("X-04")
def test_a_retry_of_a_turn_that_pushed_leaves_the_given_up_frame_behind(
    provider: ScriptedProvider, chat: Conversation
) -> None:
    """X-04, H10 (regenerate): only the answer that is echoed counts."""
    provider.will(
        says("hi"),
        does(push("First try")),
        says("one"),
        does(push("Second try")),
        says("two"),
        says("ok"),
    )
    chat.says("hello")
    chat.history.append({"role": "user", "content": "do it"})
    chat.tries()
    chat.asks()
    chat.says("go on")

    assert "First try" not in as_one_text(provider.received[-1].messages)
    assert chat.proxy.active() == "Second try"


def test_a_client_that_rewrites_all_it_can_at_once(stage: Stage, provider: ScriptedProvider) -> None:
    """CLIENTS 2: respelled arguments, absent content, dropped reasoning, tidied results together, over many turns."""
    chat = stage.chat(
        habits=ClientHabits("respelled", "absent", drops_text=True, keeps_reasoning=False, results="tidied")
    )
    for n in range(4):
        provider.will(
            ScriptedAnswer("text", "thought", (bash(f"do {n}"), push(f"Step {n}"), bash(f"look {n}"))),
            ScriptedAnswer("", "more", (bash(f"check {n}"),)),
            ScriptedAnswer("", "", (pop(f"Step {n} done."),)), says(f"Finished {n}."),
        )  # fmt: skip
        chat.says(f"step {n}")
        chat.returns(f"  did {n}\n", f" looked {n}\n")
        chat.returns(f"\tchecked {n}  ")

    line = as_one_text(provider.received[-1].messages)
    assert len(chat.proxy.conversations) == 1
    assert chat.proxy.conversations[0]["threads"] == ["main"]
    assert all(f"Step {n} done." in line and f"did {n}" in line for n in range(4))
    assert not any(f"{word} {n}" in line for n in range(4) for word in ("looked", "checked"))


def test_an_overflow_of_a_hidden_round_is_trimmed_too(provider: ScriptedProvider, chat: Conversation) -> None:
    """DESIGN 7: "first byte" is counted per upstream call; a recalled page may be what was too much."""
    provider.will(
        *(does(bash(f"{n}")) for n in range(4)),
        does(op("status")),
        overflow(),
        says("It fits now."),
    )
    chat.says("go")
    for n in range(3):
        chat.returns(f"result {n} " + "word " * 400)
    chat.proxy.stage.excuse()

    answer = chat.returns("result 3 " + "word " * 400)

    assert answer.text == "It fits now."
    assert len(provider.received[-1].messages) < len(provider.received[-2].messages)
    provider.will(says("ok"))
    chat.says("go on")


@pytest.mark.rows("S1-106", "C20")
def test_the_root_behind_a_popped_one_works_on(provider: ScriptedProvider, chat: Conversation) -> None:
    """S1-106, C20: pop the root, speak again, push and pop below the next one, pop that too."""
    provider.will(does(pop("First done.")), says("Finished."), does(push("More")), says("in More"))
    provider.will(does(pop("More done.")), does(pop("Second done.")), says("Finished again."), says("end"))
    for words in ("build it", "one more thing", "finish it", "thanks"):
        chat.says(words)

    ended = {"build it": "completed", "one more thing": "completed", "More": "completed"}
    assert chat.proxy.statuses() == {**ended, "Conversation": "in_progress"}
    assert chat.proxy.frames()["More"]["parentSessionID"] == chat.proxy.frames()["one more thing"]["sessionID"]
    line = as_one_text(provider.received[-1].messages)
    assert "More done." in line
    assert "in More" not in spoken_on(provider.received[-1].messages)


@pytest.mark.rows("X-15")
def test_shadow_for_one_request_leaves_the_thread_awake(provider: ScriptedProvider, chat: Conversation) -> None:
    """X-15: by header, in mid-conversation."""
    provider.will(does(push("A")), says("one"), says("two"), does(pop("done")), says("three"))
    chat.says("hello")
    assert chat.says("go on", headers={"x-stack-mode": "shadow"}).stack_status == "shadow"
    assert chat.says("finish").stack_status == "full"
    assert chat.proxy.statuses()["A"] == "completed"


def test_a_clash_that_comes_later_passes_untouched(provider: ScriptedProvider, chat: Conversation) -> None:
    """H6: the client begins to offer a tool by our prefix on an awake thread."""
    provider.will(does(push("A")), says("one"), says("two"))
    chat.says("hello")
    chat.tools = ("bash", "read", "stack_overflow_search")

    assert chat.says("go on").stack_status == "asleep; reason=name_clash"


def test_more_tools_in_mid_conversation_are_the_clients_own_edit(
    provider: ScriptedProvider, chat: Conversation
) -> None:
    """L2: an MCP server came up; ours stay behind the client's."""
    provider.will(does(push("A")), says("one"), says("two"))
    chat.says("hello")
    chat.tools = ("bash", "read", "browse")
    chat.says("go on")

    assert provider.received[-1].tool_names[:4] == ["bash", "read", "browse", "stack_frame_push"]
    assert chat.proxy.active() == "A"


def test_a_line_over_a_known_window_is_trimmed_before_it_leaves(stage: Stage, provider: ScriptedProvider) -> None:
    """DESIGN 7: every assembled round is checked against the window; the provider is not asked in vain."""
    chat = stage.chat(stage.proxy(), model=SMALL)
    provider.will(*(does(bash(f"{n}")) for n in range(4)), says("done"))
    chat.says("go")
    for n in range(3):
        chat.returns(f"result {n} " + "word " * 50_000)
    stage.excuse()

    answer = chat.returns("result 3 " + "word " * 50_000)

    assert (answer.status, answer.stack_status, answer.text) == (200, "full", "done")
    assert [r.status for r in provider.received] == [200] * 5
    line = as_one_text(provider.received[-1].messages)
    assert "result 3" in line
    assert "result 0" not in line


def test_a_line_that_only_we_made_too_long_is_left_to_the_client(stage: Stage, provider: ScriptedProvider) -> None:
    """DESIGN 11: the rewrite does not fit the window although the original does: bypass, with the reason."""
    chat = stage.chat(stage.proxy(), model=SMALL)
    provider.will(says("one"))

    answer = chat.says("word " * (WINDOW - 300))

    assert answer.status == 200
    assert answer.stack_status == "bypass; reason=window"
    assert provider.received[0].raw == stage.notes[0].body


@pytest.mark.one_process("each counts, and tells, what it does itself")
def test_whoever_has_the_answer_can_read_what_was_booked_of_it(provider: ScriptedProvider, chat: Conversation) -> None:
    """Books are kept when nobody waits; that is not seen by whoever reads them a moment later."""
    chat.proxy.receipts()  # the management API is built when it is first asked for, which takes longer than any book

    for answered in range(1, 7):
        provider.will(says("yes"))
        chat.says(f"{answered}?")
        if answered % 2:
            assert len(chat.proxy.receipts()) == answered
        else:
            assert (
                f'callstack_answers_total{{client_status="2xx",upstream="default",upstream_status="2xx"}} {answered}.0'
                in (chat.proxy.page("/metrics"))
            )
