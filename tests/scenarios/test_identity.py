"""Which conversation is this? A client's history is found again whatever the client did to it."""

import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from llm_test_provider import ScriptedAnswer, ScriptedCall, ScriptedProvider, Usage, call, cut, says, stall
from tests.client_dialects import MESSAGES
from tests.harness import (
    NUMBER,
    ClientHabits,
    Conversation,
    Stage,
    as_one_text,
    bash,
    does,
    op,
    plan,
    pop,
    push,
    texts,
)

ECHOES = {
    "kept": ClientHabits(),
    "respelled arguments": ClientHabits(arguments="respelled"),
    "defaulted arguments": ClientHabits(arguments="defaulted"),
    "empty text": ClientHabits(nothing="empty"),
    "absent text": ClientHabits(nothing="absent"),
    "text dropped beside calls": ClientHabits(drops_text=True),
    "lists of parts": ClientHabits(parts=True, arguments="respelled"),
    "tidied results": ClientHabits(results="tidied"),
    "reasoning dropped": ClientHabits(keeps_reasoning=False),
}


@pytest.mark.rows("X-01", "X-03", "X-08", "X-21", "S0-08")
@pytest.mark.parametrize("habits", ECHOES.values(), ids=ECHOES.keys())
def test_a_turn_is_known_in_every_form_clients_echo_it_in(
    stage: Stage, provider: ScriptedProvider, habits: ClientHabits
) -> None:
    """X-01, X-03, X-08, X-21, S0-08: one conversation, each message recorded once, first-sent bytes on the line."""
    chat = stage.chat(habits=habits)
    provider.will(
        ScriptedAnswer(text="Looking.", calls=(bash("ls"), bash("pwd")), reasoning="Where am I?"),
        ScriptedAnswer(calls=(push("Auth"), bash("cat a.py")), reasoning="A subtask."),
        says("Read.", reasoning="Enough."),
        does(pop("It is a.py.")), says("Done."),
    )  # fmt: skip
    chat.says("look around")
    chat.returns("a.py  \n", "/src")
    chat.returns("print(1)\n\n")
    chat.says("thanks")

    proxy = chat.proxy
    assert len(proxy.conversations) == 1
    assert proxy.active() == "look around"
    logs = [[entry["wire"] for entry in proxy.log(frame["sessionID"])] for frame in proxy.frames().values()]
    assert [len(set(log)) for log in logs] == [len(log) for log in logs]
    assert len({wire for log in logs for wire in log}) == 10
    line = provider.received[-1].messages
    assert line[2]["reasoning_content"] == "Where am I?"
    assert line[2]["content"] == "Looking."
    # Only the messages API tells arguments as a value, which is spelled as the provider spells its body.
    spelled = '{"command":"%s"}' if stage.tongue is MESSAGES and not stage.streamed else '{"command": "%s"}'
    assert [c["function"]["arguments"] for c in line[2]["tool_calls"]] == [spelled % "ls", spelled % "pwd"]
    assert line[3]["content"] == "a.py  \n"


@pytest.mark.spoken_in("chat", reason="elsewhere what a model thinks has blocks or items of its own")
@pytest.mark.parametrize("kept", ["", "<think>\n{}\n</think>\n\n"], ids=["taken out", "written otherwise"])
def test_a_turn_is_known_without_what_was_thought_aloud_in_it(
    provider: ScriptedProvider, chat: Conversation, kept: str
) -> None:
    """DESIGN 5.2, reasoning does not count: many models write it into their words, in tags. The AI SDK takes it out of
    what it gives back, pydantic-ai writes it in its own way."""

    def tidied() -> None:
        said = chat.history[-1]
        parts = re.split(r"<think>(.*?)</think>\s*", said["content"], flags=re.DOTALL)
        said["content"] = "".join(part if at % 2 == 0 else kept.format(part) for at, part in enumerate(parts)).strip()

    provider.will(
        does(push("Shop"), text="<think>A task.</think>"), says("<think>What now?</think>The shop is open."),
        does(bash("ls"), text="<think>Let me see.</think>I look around."),
        does(pop("It is closed."), text="<think>Enough.</think>"), says("I closed the shop.</think>It is closed."),
        says("<think>Well.</think>You are welcome."),
    )  # fmt: skip
    chat.says("Open a shop.")
    tidied()
    chat.says("What is in it?")
    tidied()
    chat.returns("nothing")
    chat.history[-1]["content"] = "It is closed."
    chat.says("Thanks.")

    assert [row["threads"] for row in chat.proxy.conversations] == [["main"]]
    assert chat.proxy.statuses() == {"Open a shop.": "in_progress", "Shop": "completed"}


@pytest.mark.rows("X-01", "X-02", "S1-36", "S1-97", "S1-101")
def test_two_requests_are_one_conversation_with_a_root(provider: ScriptedProvider, chat: Conversation) -> None:
    """X-01, X-02, S1-36: an unknown history opens a conversation; the user's words are the root's title and
    criterion."""
    provider.will(does(bash("ls")), says("Two files."))
    words = "please add a login form to the settings page and make it look nice"
    chat.says(words)
    chat.returns("a.py")

    (conversation,) = chat.proxy.conversations
    assert conversation["requests"] == 2
    (root,) = chat.proxy.frames().values()
    assert root["status"] == "in_progress"
    assert words.startswith(root["title"].rstrip("…. "))
    assert root["successCriteria"] == words


@pytest.mark.rows("X-03", "S0-01", "S1-11")
def test_five_turns_are_recorded_once_each(provider: ScriptedProvider, chat: Conversation) -> None:
    """X-03, S0-01: only the new tail is recorded; every message belongs to exactly one frame."""
    provider.will(*(says(f"answer {n}") for n in range(5)))
    for n in range(5):
        chat.says(f"question {n}")

    (root,) = chat.proxy.frames().values()
    said = [entry["text"] for entry in chat.proxy.log(root["sessionID"])]
    assert said == [words for n in range(5) for words in (f"question {n}", f"answer {n}")]


def test_the_same_words_twice_are_two_messages(provider: ScriptedProvider, chat: Conversation) -> None:
    provider.will(says("ok"), says("ok"), says("ok"))
    for _ in range(3):
        chat.says("go on")

    assert len(chat.proxy.conversations) == 1
    assert texts(provider.received[-1].messages)[1:] == [
        "user: go on", "assistant: ok", "user: go on", "assistant: ok", "user: go on"
    ]  # fmt: skip


@pytest.mark.rows("X-04")
def test_an_identical_opening_request_joins_until_the_follow_up(provider: ScriptedProvider, chat: Conversation) -> None:
    """X-04, CLIENTS 8.4: a retry goes upstream again and makes no second conversation or frame; the answer that is
    echoed is the one that counts."""
    provider.will(does(push("First")), says("one"), does(push("Second")), says("two"))
    chat.history.append({"role": "user", "content": "add a login"})
    first = chat.tries()
    chat.asks()

    assert first.text == "one"
    assert len(chat.proxy.conversations) == 1
    provider.will(says("three"))
    chat.says("go on")
    assert "Second" in as_one_text(provider.received[-1].messages)
    assert "First" not in as_one_text(provider.received[-1].messages[1:])
    assert len(chat.proxy.conversations) == 1


@pytest.mark.rows("X-02")
def test_the_same_opening_after_its_follow_up_is_another_conversation(
    stage: Stage, provider: ScriptedProvider, chat: Conversation
) -> None:
    """X-02: two users with the same words do not share frames."""
    provider.will(says("one"), says("two"), says("three"), says("four"))
    chat.says("add a login")
    chat.says("go on")
    other = stage.chat(chat.proxy)
    other.says("add a login")
    other.says("go on, too")

    assert len(chat.proxy.conversations) == 2


@pytest.mark.rows("X-02")
@pytest.mark.parametrize("first", ["Build a shop.", "Build a rocket."], ids=["the same words", "other words"])
def test_what_an_application_begins_every_session_with_makes_no_two_sessions_one(
    stage: Stage, provider: ScriptedProvider, chat: Conversation, first: str
) -> None:
    """X-02: examples in front of the user's words (aider) identify nobody, and neither session sees the other's."""
    examples = [
        {"role": "user", "content": "Change get_factorial() to use math.factorial."},
        {"role": "assistant", "content": "To make this change we need to modify app.py."},
    ]
    other = stage.chat(chat.proxy, history=[dict(each) for each in examples])
    chat.history = [dict(each) for each in examples]
    provider.will(does(push("Shop")), says("The shop is begun."), says("It is open."), says("I begin."), says("Begun."))
    chat.says("Build a shop.")
    chat.says("Open it.")
    other.says(first)
    other.says("Go on.")

    assert len(chat.proxy.conversations) == 2
    assert "Shop" not in as_one_text(provider.received[-1].messages)
    provider.will(says("The first goes on."))
    chat.says("Go on.")
    assert len(chat.proxy.conversations) == 2
    assert "The shop is begun." in as_one_text(provider.received[-1].messages)


@pytest.mark.rows("D6")
def test_two_parallel_identical_openers_part_with_their_follow_ups(
    stage: Stage, provider: ScriptedProvider, chat: Conversation
) -> None:
    """DESIGN 5.4: both are answered; the follow-ups choose by what they echo, and neither reads the other's line."""
    provider.will(does(push("A")), says("in A"), does(push("B")), says("in B"))
    other = stage.chat(chat.proxy)
    chat.says("same words")
    other.says("same words")
    provider.when("to A", says("yes A"))
    provider.when("to B", says("yes B"))

    assert chat.says("to A").text == "yes A"
    assert other.says("to B").text == "yes B"
    first, second = provider.received[-2:]
    assert "in B" not in as_one_text(first.messages)
    assert "in A" not in as_one_text(second.messages)
    assert len(chat.proxy.conversations[0]["threads"]) == 2
    provider.will(says("A again"), says("B again"))
    chat.says("on, A")
    other.says("on, B")
    assert len(chat.proxy.conversations[0]["threads"]) == 2


@pytest.mark.rows("X-04")
def test_a_retry_in_mid_conversation_makes_no_second_turn(provider: ScriptedProvider, chat: Conversation) -> None:
    """X-04: the last request sent once more: same line, no further frame than the new answer makes."""
    provider.will(says("one"), does(bash("ls")), does(bash("ls")))
    chat.says("hello")
    chat.history.append({"role": "user", "content": "look"})
    chat.tries()
    chat.asks()

    assert provider.received[1].messages == provider.received[2].messages
    (root,) = chat.proxy.frames().values()
    assert [e["text"] for e in chat.proxy.log(root["sessionID"])].count("look") == 1
    assert len(chat.proxy.conversations) == 1


@pytest.mark.rows("X-05")
def test_an_edited_message_is_a_branch(provider: ScriptedProvider, chat: Conversation) -> None:
    """X-05, H10: the branch goes on from the last common message with the frames of that moment; nothing is deleted."""
    provider.will(says("one"), does(push("Old way")), says("two"), says("three"))
    chat.says("hello")
    chat.says("do it the old way")
    branch = chat.branch(2)
    branch.says("do it the new way")

    assert texts(provider.received[-1].messages)[1:] == ["user: hello", "assistant: one", "user: do it the new way"]
    (conversation,) = chat.proxy.conversations
    assert len(conversation["threads"]) == 2
    main = chat.proxy.frames(conversation["id"], "main")
    assert main["Old way"]["status"] == "in_progress"
    assert "Old way" not in chat.proxy.frames(conversation["id"], branch.last.headers["x-stack-thread"])  # type: ignore[union-attr]
    root = next(iter(main.values()))["sessionID"]
    assert "do it the old way" in [entry["text"] for entry in chat.proxy.log(root)]


@pytest.mark.rows("X-05")
def test_a_rewind_and_the_way_back_stand_beside_each_other(provider: ScriptedProvider, chat: Conversation) -> None:
    """X-05: the abandoned path is still known when the client returns to it."""
    provider.will(says("one"), does(push("A")), says("two"), says("other"), says("back"))
    chat.says("hello")
    chat.says("left")
    chat.branch(2).says("right")

    chat.says("and on")

    assert "right" not in as_one_text(provider.received[-1].messages)
    assert "A" in chat.proxy.frames(chat.proxy.conversations[0]["id"], "main")
    assert chat.last is not None
    assert chat.last.headers["x-stack-thread"] == "main"


def test_a_fork_with_fewer_tools_is_a_conversation_of_its_own(
    stage: Stage, provider: ScriptedProvider, chat: Conversation
) -> None:
    """DESIGN 5.5, CLIENTS 5: a loop that starts with this history and offers fewer tools is a child; parent and child
    grow apart."""
    provider.will(does(push("Auth")), says("one"), says("fork"), says("parent"))
    chat.says("hello")
    fork = chat.branch(2)
    fork.tools = ("bash",)
    fork.says("you are the fork")
    chat.says("you are the parent")

    parent, child = sorted(chat.proxy.conversations, key=lambda c: c["parent"] or "")
    assert child["parent"] == parent["id"]
    assert "you are the fork" not in as_one_text(provider.received[-1].messages)


@pytest.mark.rows("X-32")
@pytest.mark.parametrize("told", ["prompt", "other words", "prompt on another day"])
def test_forks_of_one_history_are_told_their_own_directive_and_nothing_of_their_parents_plan(
    stage: Stage, provider: ScriptedProvider, chat: Conversation, told: str
) -> None:
    """Two forks that leave the same history, the second while the first works: each is a conversation of its own under
    the parent. What its block tells is the task for which it was forked."""
    chat.tools = ("bash", "todowrite", "agent")
    directives = ("Count the lines of the ledger.", "Count the words of the ledger.")
    items = [{"content": "Read the ledger", "status": "in_progress"}, {"content": "Mend it", "status": "pending"}]
    made = [call("agent", description="count", prompt=each) for each in directives]
    provider.will(does(call("todowrite", todos=items)), does(*made))
    chat.says("Please mend the ledger.")
    chat.returns("ok")
    chat.history += [
        {"role": "tool", "tool_call_id": each["id"], "content": "Fork started."}
        for each in chat.history[-1]["tool_calls"]
    ]
    forks = []
    for words in directives:
        fork = chat.branch(len(chat.history))
        fork.tools = ("bash", "todowrite")
        fork.system = f"{chat.system}{' It is the next day.' * told.endswith('day')}"
        provider.will(does(bash("wc"), text="Scope: as told."), says("Scope: counted."))
        directive = words.upper() if told == "other words" else words
        opening = f"<fork-rules>You are a worker.</fork-rules>\n\nDirective: {directive}"
        fork.history += [{"role": "user", "content": opening}, {"role": "assistant", "content": "Understood."}]
        fork.says("Begin.")
        sent = as_one_text(provider.received[-1].messages)
        block = sent[sent.rindex("<stack-context session") :]
        assert directive in block
        assert "Mend it" not in block
        assert "Please mend the ledger" not in block
        fork.returns("12")
        forks.append(fork)
    provider.will(does(bash("cat"), text="Meanwhile."))
    chat.asks()

    at = [(one.last.headers["x-stack-conversation"], one.last.headers["x-stack-thread"]) for one in forks if one.last]
    parents = {row["id"]: row["parent"] for row in chat.proxy.conversations}
    assert chat.last is not None
    parent = chat.last.headers["x-stack-conversation"]
    assert len({parent, *(conversation for conversation, _ in at)}) == 3
    assert [parents[conversation] for conversation, _ in at] == [parent, parent]
    assert {thread for _, thread in at} == {"main"}
    assert chat.proxy.statuses(parent)["Read the ledger"] == "in_progress"


def test_a_delegated_session_is_a_child_of_the_one_it_names(
    stage: Stage, provider: ScriptedProvider, chat: Conversation
) -> None:
    """CLIENTS 5: opencode names the parent session in a header."""
    chat.headers = {"x-session-id": "ses_parent"}
    provider.will(says("one"), says("sub"))
    chat.says("hello")
    sub = stage.chat(chat.proxy, headers={"x-session-id": "ses_child", "x-parent-session-id": "ses_parent"})
    sub.says("find all callers")

    parent, child = sorted(chat.proxy.conversations, key=lambda c: c["parent"] or "")
    assert child["parent"] == parent["id"]


def test_a_partial_answer_echoed_is_the_turn_it_was_cut_from(stage: Stage, provider: ScriptedProvider) -> None:
    """DESIGN 5.2, H10: "partial answer echoed". The stream broke; the client kept what it had and goes on from it."""
    chat = stage.chat(streamed=True)
    begun = stage.tongue.opening + 2
    provider.will(says("hello"), cut(says("I begin with the login form."), after_events=begun), says("Good."))
    chat.says("hi")
    chat.history.append({"role": "user", "content": "add a login"})
    broken = chat.tries()
    assert not broken.ended
    assert broken.text
    chat.history.append({"role": "assistant", "content": broken.text})

    assert chat.says("go on").text == "Good."
    (conversation,) = chat.proxy.conversations
    assert conversation["threads"] == ["main"]
    assert texts(provider.received[-1].messages)[-2:] == [f"assistant: {broken.text}", "user: go on"]


@pytest.mark.parametrize("events", [4, 6])
@pytest.mark.parametrize("calls", [[plan("A")], [bash("ls"), plan("A")], [plan("A"), bash("ls")]], ids=["1", "2", "3"])
def test_of_a_partial_answer_no_call_stays_that_nobody_ran(
    stage: Stage, provider: ScriptedProvider, calls: list[ScriptedCall], events: int
) -> None:
    """The client kept the words alone, as nearly all do: ours beside its calls were not run either, whatever of them
    had arrived."""
    chat = stage.chat(streamed=True)
    said = "I begin with the login form."
    provider.will(
        says("hello"),
        cut(does(*calls, text=said, piece=200), after_events=stage.tongue.opening + events),
        says("Good."),
    )
    chat.says("hi")
    chat.history.append({"role": "user", "content": "add a login"})
    broken = chat.tries()
    assert not broken.ended
    chat.history.append({"role": "assistant", "content": broken.text})

    assert chat.says("go on").text == "Good."

    assert texts(provider.received[-1].messages)[-2:] == [f"assistant: {broken.text}", "user: go on"]
    assert not any(m.get("tool_calls") for m in provider.received[-1].messages)


@pytest.mark.parametrize("events", [1, 4, 7])
def test_a_partial_answer_is_known_behind_what_the_client_tidied(
    stage: Stage, provider: ScriptedProvider, events: int
) -> None:
    """The user stopped the answer in mid-stream, and the client cleared an old output before it went on: the frame that
    was begun in that answer goes on too."""
    chat = stage.chat(streamed=True)
    said = "I begin with the form of the login, and go on with its tests after that."
    provider.will(
        does(bash("ls")),
        does(push("Auth")),
        cut(does(bash("pytest"), text=said, piece=40), after_events=stage.tongue.opening + events),
        says("ok"),
    )
    chat.says("add a login")
    chat.history.append(
        {"role": "tool", "tool_call_id": chat.history[-1]["tool_calls"][0]["id"], "content": "a.py b.py c.py"}
    )
    broken = chat.tries()
    assert not broken.ended
    assert 24 < len(broken.text) <= len(said)
    chat.history.append({"role": "assistant", "content": broken.text})
    chat.history[2]["content"] = "[Old tool result content cleared]"

    assert chat.says("go on").text == "ok"

    assert chat.proxy.active() == "Auth"
    line = texts(provider.received[-1].messages)
    assert line[-2:] == [f"assistant: {broken.text}", "user: go on"]
    assert "tool: a.py b.py c.py" in line


@pytest.mark.rows("X-04", "X-18")
def test_a_retry_while_the_first_stream_is_open(stage: Stage, provider: ScriptedProvider) -> None:
    """X-04, X-18: "retry while the first stream is open". The second attempt is another answer to the same request; the
    first one may end later, and the follow-up says which of them the client took."""
    chat = stage.chat(streamed=True)
    provider.will(says("hello"), stall(says("the first answer"), after_events=2), says("the second answer"), says("ok"))
    chat.says("hi")
    chat.history.append({"role": "user", "content": "add a login"})
    connection, response = chat.proxy.opened(chat.body(), {NUMBER: "0"})
    response.readline()

    answer = chat.asks()

    assert answer.text == "the second answer"
    connection.close()
    chat.says("go on")
    assert "the second answer" in as_one_text(provider.received[-1].messages)
    assert "the first answer" not in as_one_text(provider.received[-1].messages)
    assert len(chat.proxy.conversations) == 1


@pytest.mark.rows("X-04")
def test_an_opening_asked_again_in_the_other_way_of_answering_is_a_retry(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """X-04: clients whose first stream broke off ask for the same unstreamed (Claude Code), and some stream the second
    time. How the answer is to arrive is nothing of what is asked."""
    chat = stage.chat()
    provider.will(cut(does(push("First")), after_events=2), says("two"), says("three"))
    chat.history.append({"role": "user", "content": "add a login"})
    chat.tries()
    chat.streamed = not stage.streamed
    chat.asks()
    chat.says("go on")

    (row,) = chat.proxy.conversations
    assert (row["parent"], row["threads"]) == (None, ["main"])


@pytest.mark.rows("X-04")
def test_an_opening_with_another_temperature_is_another_conversation(stage: Stage, provider: ScriptedProvider) -> None:
    """X-04: what else differs is asked for: not the same request."""
    chat = stage.chat()
    provider.will(says("one"), says("two"))
    chat.history.append({"role": "user", "content": "add a login"})
    chat.tries()
    chat.asks(temperature=0.5, stream=not stage.streamed)

    assert len(chat.proxy.conversations) == 2


@pytest.mark.one_process("two requests of one conversation at the same moment do not see each other")
@pytest.mark.rows("X-18", "D6")
def test_20_parallel_requests_of_one_conversation(stage: Stage, provider: ScriptedProvider, chat: Conversation) -> None:
    """X-18: every one is answered on its own path, the tree stays whole, and no lock is held while the provider
    thinks: the slowest answer bounds them all."""
    provider.will(does(push("Auth")), says("base"))
    chat.says("hello")
    together = threading.Barrier(20, timeout=10)
    for n in range(20):
        provider.when(f"branch {n:02} ", says(f"answer {n:02}", delay_s=0.15))

    def ask(n: int) -> str:
        branch = chat.branch(2)
        together.wait()
        return branch.says(f"branch {n:02} please").text

    with ThreadPoolExecutor(20) as pool:
        answered = list(pool.map(ask, range(20)))

    assert answered == [f"answer {n:02}" for n in range(20)]
    (conversation,) = chat.proxy.conversations
    assert conversation["requests"] == 21
    assert chat.proxy.statuses() == {"Conversation": "in_progress", "Auth": "in_progress"}
    lines = [as_one_text(r.messages) for r in provider.received[2:]]
    assert all(sum(f"branch {n:02}" in line for n in range(20)) == 1 for line in lines)


@pytest.mark.rows("X-07")
@pytest.mark.parametrize(
    ("tools", "system", "options"),
    [
        ((), "You are a title generator.", {}),
        (("read",), "You extract memories.", {}),
        ((), "Summarize.", {"max_tokens": 20}),
    ],
    ids=["title", "memory extraction", "summary"],
)
def test_a_side_request_over_the_history_passes_beside_the_thread(
    provider: ScriptedProvider, chat: Conversation, tools: tuple[str, ...], system: str, options: dict[str, int]
) -> None:
    """X-07, CLIENTS 3: another system text and other tools: byte-identical, no frame, nothing of it on the path."""
    provider.will(does(push("Auth")), says("one"), says("A title"), says("two"))
    chat.says("hello")
    side = chat.branch(2)
    side.tools, side.system = tools, system
    assert side.says("Give this a title.", **options).stack_status == "side"

    chat.says("go on")

    assert "Give this a title." not in as_one_text(provider.received[-1].messages)
    assert len(chat.proxy.conversations) == 1


@pytest.mark.rows("X-07")
def test_a_title_request_beside_the_first_turn_never_wakes(
    stage: Stage, provider: ScriptedProvider, chat: Conversation
) -> None:
    """X-07, DESIGN 5.7: without tools, a conversation that never wakes, under the same session id."""
    chat.headers = {"x-session-id": "ses_1"}
    provider.when("title generator", says("A title"))
    provider.when("careful engineer", says("one"), says("two"))
    title = stage.chat(chat.proxy, system="You are a title generator.", tools=(), headers=dict(chat.headers))
    chat.says("add a login")
    assert title.says("add a login").stack_status == "asleep"

    chat.says("go on")

    assert texts(provider.received[-1].messages)[1:] == ["user: add a login", "assistant: one", "user: go on"]


SESSION_HEADERS = {
    "opencode": ("x-session-id", "x-session-affinity"),
    "pi": ("session_id",),
    "older Codex": ("conversation_id", "session_id"),
    "gateway": ("thread_id",),
}


@pytest.mark.rows("X-06", "S1-100", "X-26")
@pytest.mark.parametrize("named", SESSION_HEADERS.values(), ids=SESSION_HEADERS)
def test_the_clients_compaction_under_a_session_keeps_the_frames(
    stage: Stage, provider: ScriptedProvider, chat: Conversation, named: tuple[str, ...]
) -> None:
    """X-06, CLIENTS 6 (opencode): the history is replaced by a summary, the session id stays: same conversation, same
    frames, and a block behind the newest message says where the work stands."""
    chat.headers = dict.fromkeys(named, "ses_1")
    provider.will(does(push("Auth", "login works")), says("I have begun the login."))
    chat.says("add a login")
    compaction = stage.chat(
        chat.proxy, system="You are a context summarization agent.", tools=(), headers=dict(chat.headers)
    )
    provider.will(says("SUMMARY: login begun."))
    summary = compaction.says("<conversation>user: add a login</conversation> Summarize it.").text
    chat.history = [
        {"role": "user", "content": "What did we do so far?"},
        {"role": "assistant", "content": summary},
        {"role": "user", "content": "Continue."},
    ]
    provider.will(says("On it."), does(pop("The login works.")), says("Done."))
    stage.excuse()

    answer = chat.asks()

    assert answer.stack_status == "full"
    line = provider.received[-1].messages
    assert [m["content"] for m in line[1:4]] == ["What did we do so far?", summary, "Continue."]
    assert "login works" in line[4]["content"]
    assert chat.proxy.frames(answer.headers["x-stack-conversation"])["Auth"]["status"] == "in_progress"
    chat.says("finish it")
    assert chat.proxy.statuses(answer.headers["x-stack-conversation"])["Auth"] == "completed"


TASK = "Add a login to the page of settings."


@pytest.mark.rows("X-06", "S1-70b", "S1-100")
@pytest.mark.parametrize("role", ["assistant", "user"])
def test_who_begins_anew_with_a_summary_that_another_agent_made_keeps_the_frames(
    stage: Stage, provider: ScriptedProvider, chat: Conversation, role: str
) -> None:
    """X-06, CLIENTS 6 (opencode), without a session: the summary is asked for under another system text and without
    tools, in one message that tells the whole conversation. A second conversation stands beside it."""
    beside = stage.chat(chat.proxy)
    provider.will(
        does(push("Auth", "login works")), says("I have begun the login page."), says("Nothing is begun here.")
    )
    chat.says(TASK)
    beside.says("Add a logout to the page of settings.")
    maker = stage.chat(chat.proxy, system="You are a context summarization agent.", tools=())
    provider.will(says("<summary>\nThe login is begun; the form is next.\n</summary>"))
    told = f"[User]: {TASK}\n\n[Assistant]: I have begun the login page."
    summary = maker.says(f"<conversation>\n{told}\n</conversation>\n\nSummarize the conversation above.").text
    if role == "user":  # as Claude Code and Codex tell it, without the tags
        summary = f"The conversation was compacted.\n\nSummary:\n{summary[10:-11]}\n\nGo on."
    chat.history = [
        {"role": "user", "content": "What did we do so far?"},
        {"role": role, "content": summary},
        {"role": "user", "content": "Continue."},
    ]
    provider.will(says("On it."))
    stage.excuse()

    found = chat.asks().headers["x-stack-conversation"]

    assert chat.proxy.statuses(found) == {TASK: "in_progress", "Auth": "in_progress"}


@pytest.mark.rows("X-06")
@pytest.mark.parametrize(
    "beside",
    [
        [(TASK, "")],
        [(TASK, "the rest")],
        [(TASK, "I begin with the form of the login.")],
        [(TASK, "I begin with the form of the login."), ("go on", "the rest")],
    ],
    ids=["no word", "a short word", "the same beginning", "another short request"],
)
def test_a_summary_by_another_agent_does_not_open_a_second_conversation_with_the_same_task(
    stage: Stage, provider: ScriptedProvider, chat: Conversation, beside: list[tuple[str, str]]
) -> None:
    """X-06: two agents are given the same task at once. Frames of the other one are worse than none."""
    second = stage.chat(chat.proxy)
    provider.will(says("I begin with the form of the login."), says("The form stands, and the rest is next."))
    chat.says(TASK)
    chat.says("Do the rest of it too, please.")
    provider.will(does(push("Second", "login works")), *[says(answer) for _, answer in beside])
    for request, _ in beside:
        second.says(request)
    maker = stage.chat(chat.proxy, system="You are a context summarization agent.", tools=())
    provider.will(says("The form of the login stands; the rest is next."))
    told = "\n\n".join(f"[{m['role']}]: {m['content']}" for m in chat.history)
    summary = maker.says(f"<conversation>\n{told}\n</conversation>\n\nSummarize the conversation above.").text
    chat.history = [{"role": "user", "content": f"{summary}\n\nContinue."}]
    provider.will(says("On it."))
    stage.excuse()

    found = chat.asks().headers["x-stack-conversation"]

    assert "Second" not in chat.proxy.statuses(found)


@pytest.mark.rows("X-06")
@pytest.mark.parametrize("same", [False, True], ids=["", "another as far"])
def test_of_an_agent_with_few_words_the_results_tell_whose_summary_it_is(
    stage: Stage, provider: ScriptedProvider, chat: Conversation, same: bool
) -> None:
    """X-06, CLIENTS 6 (opencode), without a session: "Step 1." tells nobody from another, what its call found does."""
    beside = stage.chat(chat.proxy)
    for agent, files in ((chat, "form.py\nledger_of_march.py"), (beside, "form.py\nledger_of_april.py")):
        provider.will(
            does(bash("ls"), text="Step 1."), does(push("Auth"), bash("pwd"), text="Step 2."), says("Step 3.")
        )
        agent.says(TASK)
        agent.returns("form.py\nledger_of_march.py" if same else files)
        agent.returns("/workspace")
    maker = stage.chat(chat.proxy, system="You are a context summarization agent.", tools=())
    provider.will(says("The login is begun; the form is next."))
    told = "\n\n".join(f"[{m['role']}]: {m['content']}" for m in chat.history)
    summary = maker.says(f"<conversation>\n{told}\n</conversation>\n\nSummarize the conversation above.").text
    chat.system = f"{chat.system} It is the next day."
    assert chat.last is not None
    begun = chat.last.headers["x-stack-conversation"]
    chat.history = [{"role": "user", "content": f"{summary}\n\nContinue."}]
    provider.will(says("On it."))
    stage.excuse()

    goes_on = chat.asks().headers["x-stack-conversation"]

    assert (goes_on == begun) is not same


def begun_anew(first: str, role: str, *titles: str) -> list[dict[str, Any]]:
    """A history that its client compacted: the words it always begins with, and a summary."""
    summary = f"A summary of all that was done so far: {', '.join(titles) or 'nothing'} was begun."
    return [{"role": "user", "content": first}, {"role": role, "content": summary}]


ALWAYS = {
    "its own words": ("What did we do so far?", "assistant"),
    "what the user said first": ("add a login", "assistant"),
    "what the user said first, and no answer": ("add a login", "user"),
}
"""What clients begin every compacted history with, and who the summary is told by: opencode, and Codex last."""


@pytest.mark.rows("X-06")
@pytest.mark.parametrize("restarts", [False, True], ids=["", "restarted"])
@pytest.mark.parametrize(("first", "role"), ALWAYS.values(), ids=ALWAYS)
def test_each_compaction_goes_on_from_where_the_work_stands(
    provider: ScriptedProvider, chat: Conversation, first: str, role: str, restarts: bool
) -> None:
    """X-06: each begins with the same words, and none of them goes back to where the one before it stood. A client
    that tries again, with another member in its body, is in no frame of its first try."""
    chat.headers["x-session-id"] = "ses_1"
    provider.will(says("hello"))
    chat.says("add a login")
    titles: list[str] = []
    for title in ("Auth", "Tokens", "Docs"):
        chat.history = begun_anew(first, role, *titles)
        provider.will(
            does(push(title)),
            says("It is begun."),
            does(push(title)),
            says("It is begun."),
            says("More."),
        )
        chat.proxy.stage.excuse()
        chat.says(f"begin {title}")
        chat.history.pop()
        chat.proxy.stage.excuse()
        chat.asks(user="once more")
        titles.append(title)
        if restarts:
            chat.proxy.restart()
        chat.says("go on")

        (conversation,) = chat.proxy.conversations
        assert chat.proxy.statuses() == dict.fromkeys(["add a login", *titles], "in_progress")
        assert (chat.proxy.active(), conversation["frames"]) == (title, 1 + len(titles))


def test_a_history_from_before_a_compaction_goes_on_in_its_own_frames(
    provider: ScriptedProvider, chat: Conversation
) -> None:
    """X-05: the words it begins with are also those of the compacted ones; what follows tells them apart."""
    chat.headers["x-session-id"] = "ses_1"
    provider.will(does(push("Auth")), says("Auth is begun."))
    chat.says("add a login")
    before = [dict(message) for message in chat.history]
    provider.will(
        does(pop("The login works.")),
        says("It is done."),
        does(push("Docs")),
        says("Docs is begun."),
    )
    chat.says("finish it")
    chat.history = begun_anew("add a login", "user", "Auth")
    chat.proxy.stage.excuse()
    chat.says("begin Docs")
    assert chat.proxy.statuses() == {"add a login": "in_progress", "Auth": "completed", "Docs": "in_progress"}
    chat.history = before
    provider.will(says("As you like."))
    chat.proxy.stage.excuse()
    chat.says("do it otherwise")

    assert len(chat.proxy.conversations) == 1
    (there,) = (thread for thread in chat.proxy.conversations[0]["threads"] if thread != "main")
    at = chat.proxy.conversations[0]["id"]
    assert {t: f["status"] for t, f in chat.proxy.frames(at, there).items()} == {
        "add a login": "in_progress",
        "Auth": "in_progress",
    }


SUMMARY = "We began the login: tokens expire in 12 minutes, and src/auth.py holds the check."


def compacted_by_hand(chat: Conversation, provider: ScriptedProvider, *then: Any) -> None:
    """In a frame of the model the user asks for a summary, and begins anew with it; `then` is answered."""
    provider.will(does(push("Auth", "login works")), says("I have begun the login."), says(SUMMARY), *then)
    chat.says("add a login")
    chat.says("Please summarize our conversation so far, so that we can go on without it.")
    chat.history = []
    chat.proxy.stage.excuse()
    chat.says(f"Summary of the work so far:\n{SUMMARY}\n\nGo on with it.")


@pytest.mark.rows("X-06", "S1-70b", "S1-100")
def test_who_begins_anew_with_the_summary_it_was_given_keeps_the_frames(
    provider: ScriptedProvider, chat: Conversation
) -> None:
    """X-06, without a session: the answer's own words open the next request, however little was said before."""
    compacted_by_hand(chat, provider, says("On it."))

    assert len(chat.proxy.conversations) == 1
    assert chat.proxy.statuses() == {"add a login": "in_progress", "Auth": "in_progress"}
    assert chat.proxy.active() == "Auth"


def test_a_retry_of_the_request_that_begins_anew_is_one(provider: ScriptedProvider, chat: Conversation) -> None:
    compacted_by_hand(chat, provider, says("On it."), says("On it."), says("Done."))
    chat.history.pop()
    chat.asks()

    (row,) = chat.proxy.conversations
    assert (row["turns"], row["retries"]) == (3, 1)
    chat.says("finish it")
    assert chat.proxy.active() == "Auth"


def test_the_same_summary_twice_is_two_compactions(provider: ScriptedProvider, chat: Conversation) -> None:
    """Without a session too: the newest words are the old ones, and the work went on between them."""
    compacted_by_hand(chat, provider, does(push("Docs")), says("I have begun the docs."), says(SUMMARY))
    opening = dict(chat.history[0])
    chat.says("Please summarize our conversation so far, so that we can go on without it.")
    provider.will(says("On it."), says("Done."))
    chat.history = [opening]
    chat.proxy.stage.excuse()
    chat.asks()
    chat.proxy.restart()
    chat.says("finish it")

    assert len(chat.proxy.conversations) == 1
    assert chat.proxy.statuses() == dict.fromkeys(["add a login", "Auth", "Docs"], "in_progress")
    assert chat.proxy.active() == "Docs"


@pytest.mark.parametrize("ending", [pop("The login works."), op("invalidate", reason="The login works.")])
def test_the_end_of_a_frame_whose_call_was_compacted_away_takes_nothing_along(
    provider: ScriptedProvider, chat: Conversation, ending: ScriptedCall
) -> None:
    """S0-04: no result can stand for it any more, so the client's summary stays, and what the model said at the
    end; the frame after it stands on that line as any other does."""
    compacted_by_hand(
        chat,
        provider,
        says("On it."),
        does(ending),
        does(push("Docs")),
        does(pop("written")),
        says("Done."),
    )
    chat.says("finish it")

    assert chat.proxy.active() == "add a login"
    line = provider.received[-1].messages
    told = texts(line)
    assert SUMMARY in told[1]
    assert [text for text in told if text.startswith(("assistant: On it.", "user: finish it"))] == [
        "assistant: On it.",
        "user: finish it",
    ]
    assert "The login works." in as_one_text(line)
    assert [name for message in line for name in named(message)][-1] == "stack_frame_push"
    assert "written" in told[-1]


def named(message: dict[str, Any]) -> list[str]:
    return [each["function"]["name"] for each in message.get("tool_calls") or []]


def test_a_push_in_the_group_of_such_a_pop_has_a_call_of_its_own(
    provider: ScriptedProvider, chat: Conversation
) -> None:
    compacted_by_hand(
        chat,
        provider,
        says("On it."),
        does(pop("It works."), push("Docs")),
        does(pop("written")),
        says("Done."),
    )
    chat.says("finish it")

    line = provider.received[-1].messages
    assert SUMMARY in texts(line)[1]
    assert "It works." in as_one_text(line)
    assert "written" in texts(line)[-1]
    assert chat.proxy.statuses()["Docs"] == "completed"


def test_a_history_cut_at_its_head_goes_on_with_its_frames(provider: ScriptedProvider, chat: Conversation) -> None:
    """DESIGN 5.3, H10 (cline): old messages dropped, the newest turns kept: aligned on what this proxy produced."""
    provider.will(
        does(bash("ls")),
        does(push("Auth")),
        does(bash("cat a.py")),
        says("I have read the file a.py."),
        says("ok"),
    )
    chat.says("hello")
    chat.returns("a.py")
    chat.returns("print(1)")
    chat.history = [{"role": "user", "content": "(earlier context was compacted)"}, *chat.history[3:]]

    answer = chat.says("go on")

    assert answer.stack_status == "full"
    assert len(chat.proxy.conversations) == 1
    assert chat.proxy.active() == "Auth"


def test_a_client_that_drops_the_beginning_of_a_frame_has_it_told_again_once(
    provider: ScriptedProvider, chat: Conversation
) -> None:
    """DESIGN 8: the call that began the frame went with the client's oldest messages, and what says which task the
    model is at with it; as behind a history that the client compacted, the block follows the newest message."""
    steps = [does(bash(f"step {n}"), text=f"Now comes step {n} of the login.") for n in range(4)]
    provider.will(
        does(push("Auth", criteria="the login works")),
        *steps,
        does(pop("built")),
        says("The login is built."),
    )
    chat.says("add a login")
    for n in range(4):
        if n:
            del chat.history[1:3]
        chat.proxy.stage.excuse()
        chat.returns(f"result {n}")

    lines = [texts(asked.messages)[1:] for asked in provider.received[3:-1]]
    blocks = [sum("<stack-context session=" in said and "the login works" in said for said in line) for line in lines]
    assert blocks == [1, 1, 1]
    assert chat.proxy.statuses() == {"add a login": "in_progress", "Auth": "completed"}


@pytest.mark.rows("X-05")
def test_behind_an_answer_that_said_nothing_a_tidied_history_stays_on_its_thread(
    provider: ScriptedProvider, chat: Conversation
) -> None:
    """The client has nothing to give back of it, so its next message stands behind what was asked: that is the way the
    work went, and no branch."""
    provider.will(does(bash("ls")), does(bash("cat a.py")), does(plan("A")), says(""), says("ok"))
    chat.says("look around")
    chat.returns("a.py b.py c.py")
    chat.returns("def login(): ...")
    if chat.history[-1]["role"] == "assistant":
        del chat.history[-1]
    chat.history[2]["content"] = "[Old tool result content cleared]"
    chat.proxy.stage.excuse()

    answer = chat.says("go on")

    assert answer.headers["x-stack-thread"] == "main"


def test_what_a_client_has_rewritten_is_known_when_it_is_rewritten_again(
    provider: ScriptedProvider, chat: Conversation
) -> None:
    """An output is cleared, so everything behind it stands anew; then the text beside a call goes too. What was done
    out of the client's sight in that turn stays on the line."""
    provider.will(
        does(bash("ls")),
        does(push("Auth"), text="I begin with the login."),
        does(bash("cat a.py")),
        does(bash("pytest"), text="Now its tests."),
        says("ok"),
    )
    chat.says("add a login")
    chat.returns("a.py b.py c.py")
    chat.history[2]["content"] = "[Old tool result content cleared]"
    chat.returns("def login(): ...")
    for message in chat.history:
        if message.get("tool_calls"):
            message["content"] = None
    chat.returns("3 passed")

    lines = [r.messages for r in provider.received]
    assert lines[4][: len(lines[3])] == lines[3]
    assert chat.proxy.active() == "Auth"


def test_a_small_output_that_is_cleared_keeps_its_bytes_on_the_line(
    provider: ScriptedProvider, chat: Conversation
) -> None:
    """DESIGN 5.6: the first-sent bytes win, also where the client's note is longer than what it stands for."""
    provider.will(does(bash("edit")), says("That is all there is to see here, I am done."), says("more"))
    chat.says("go")
    chat.returns("ok")
    next(m for m in chat.history if m["role"] == "tool")["content"] = "[Old tool result content cleared]"
    chat.says("go on")

    lines = [r.messages for r in provider.received]
    assert lines[2][: len(lines[1])] == lines[1]


@pytest.mark.rows("X-05")
@pytest.mark.parametrize("rewritten", ["before", "with it"])
def test_a_rewind_into_what_was_rewritten_goes_on_from_what_stood_there(
    provider: ScriptedProvider, chat: Conversation, rewritten: str
) -> None:
    """The client cleared an old output, so its history was aligned with the path to the newest turn; whoever goes back
    to before that turn, then or at once, has none of the frames it began, and is another branch."""
    found = "That is all there is to see here, I am done."
    provider.will(does(bash("ls")), says(found), does(push("Auth")), says("I have begun with the login."))
    provider.will(*[says("ok")] * (rewritten == "before"))
    chat.says("look around")
    chat.returns("a.py b.py c.py")
    chat.says("add a login")
    chat.history[2]["content"] = "[Old tool result content cleared]"
    if rewritten == "before":
        chat.says("go on")
        assert chat.proxy.active() == "Auth"
    provider.will(says("The tests are few."), says("Five."))

    back = chat.branch(4)
    answer = back.says("rather look at the tests")

    told = answer.headers["x-stack-conversation"], answer.headers["x-stack-thread"]
    assert told[1] != "main"
    assert list(chat.proxy.frames(*told)) == ["look around"]
    assert "a.py b.py c.py" in as_one_text(provider.received[-1].messages)
    assert "I have begun" not in as_one_text(provider.received[-1].messages)
    back.says("how many?")
    assert list(chat.proxy.frames(*told)) == ["look around"]


@pytest.mark.rows("X-05")
def test_a_cleared_output_stands_for_that_of_its_own_attempt(provider: ScriptedProvider, chat: Conversation) -> None:
    """The client went back, ran the same call again and cleared its output too: the same note in the same place, for
    another output."""
    cleared = "[Old tool result content cleared]"
    provider.will(does(bash("ls")), says("That is all there is to see here, I am done."), says("It has begun by now."))
    chat.says("look around")
    chat.returns("a.py b.py c.py")
    chat.history[2]["content"] = cleared
    chat.says("add a login")
    provider.will(does(bash("ls src")), says("There are a few more of them by now."), says("ok"), says("well"))
    back = chat.branch(2)
    again = chat.history[1]["tool_calls"][0]["id"]
    back.history.append({"role": "tool", "tool_call_id": again, "content": "d.py e.py"})
    back.says("and now?")
    back.returns("f.py")
    back.history[2]["content"] = cleared

    back.says("add a logout")
    back.says("go on")

    for asked in provider.received[-2:]:
        assert "d.py e.py" in as_one_text(asked.messages)
        assert "a.py b.py c.py" not in as_one_text(asked.messages)


def test_a_changed_first_message_keeps_the_conversation(provider: ScriptedProvider, chat: Conversation) -> None:
    """CLIENTS 2 (Qwen Code between two processes): message 1 differs, every call id is the same."""
    provider.will(does(bash("ls")), does(push("Auth")), says("I have begun with the login."), says("ok"))
    chat.says("folder: a.py. Add a login.")
    chat.returns("a.py")
    chat.history[0] = {"role": "user", "content": "folder: a.py, b.py. Add a login."}
    chat.proxy.stage.excuse()

    answer = chat.says("go on")

    assert answer.stack_status == "full"
    assert len(chat.proxy.conversations) == 1
    assert chat.proxy.active() == "Auth"


def test_a_message_that_the_client_changed_stays_with_the_parent_when_a_frame_ends(
    provider: ScriptedProvider, chat: Conversation
) -> None:
    """DESIGN 6 (Cline's environment, Qwen Code's folder listing): the words that a client writes anew are the parent's
    as they were, and do not leave with the frame that is active by then. A line without them is refused where the
    first message has to be the user's."""
    provider.will(
        does(push("Auth")), says("I have begun with the login."),
        does(bash("ls")), does(pop("It works.")), says("The login works now."),
    )  # fmt: skip
    chat.says("Add a login. <folder>a.py</folder>")
    chat.history[0] = {"role": "user", "content": "Add a login."}
    chat.proxy.stage.excuse()
    chat.says("Finish it.")
    chat.proxy.stage.excuse()  # the parent's line is sent for the first time since
    chat.returns("a.py, b.py")

    assert chat.last is not None
    assert chat.last.text == "The login works now."
    line = texts(provider.received[-1].messages)
    assert line[1] == "user: Add a login."


def test_a_changed_system_text_is_the_same_conversation(provider: ScriptedProvider, chat: Conversation) -> None:
    """CLIENTS 2: dates in system texts change at midnight; the client's text of today leads the line."""
    provider.will(does(push("Auth")), says("one"), says("two"))
    chat.says("hello")
    chat.system = "You are a careful engineer. It is the next day."
    chat.proxy.stage.excuse()
    chat.says("go on")

    assert len(chat.proxy.conversations) == 1
    assert provider.received[-1].messages[0]["content"].startswith("You are a careful engineer. It is the next day.")


def test_another_model_in_mid_conversation_keeps_the_frames(provider: ScriptedProvider, chat: Conversation) -> None:
    """DESIGN 5.1: users switch models inside a session."""
    provider.will(does(push("Auth")), says("one"), says("two"))
    chat.says("hello")
    chat.model = "gpt-y"
    chat.says("go on")

    assert provider.received[-1].body["model"] == "gpt-y"
    assert chat.proxy.active() == "Auth"
    assert len(chat.proxy.conversations) == 1


@pytest.mark.spoken_in("chat", "responses", reason="the messages API refuses ids that repeat")
def test_call_ids_that_repeat_in_every_turn_are_kept_apart(provider: ScriptedProvider, chat: Conversation) -> None:
    """CLIENTS 8.2, DESIGN 5.3: some providers number the calls of each answer from zero."""
    same = [ScriptedAnswer(calls=(ScriptedCall("bash", {"command": f"step {n}"}, "call_0"),)) for n in range(3)]
    provider.will(*same, says("done"))
    chat.says("hello")
    for n in range(3):
        chat.returns(f"result {n}")

    line = provider.received[-1].messages
    assert [m["content"] for m in line if m["role"] == "tool"] == ["result 0", "result 1", "result 2"]
    assert len(chat.proxy.conversations) == 1


def test_an_import_of_a_history_never_seen_opens_a_conversation(provider: ScriptedProvider, chat: Conversation) -> None:
    """DESIGN 5.4: assistant turns never seen are imported, and the thread may wake on them."""
    chat.history = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "Hi, what is next?"}]
    provider.will(does(push("Auth")), says("one"), says("two"))
    chat.says("add a login")
    chat.says("go on")

    assert len(chat.proxy.conversations) == 1
    assert chat.proxy.active() == "Auth"


@pytest.mark.rows("X-13", "S4-53")
def test_a_call_the_client_never_answered_gets_a_result(provider: ScriptedProvider, chat: Conversation) -> None:
    """L1, X-13, S4-53: the user interrupted; the call stays, and a result of ours stands behind it."""
    provider.will(says("one"), does(bash("sleep 99")), says("two"))
    chat.says("hello")
    chat.says("run it")
    chat.says("stop, something else")

    line = provider.received[-1].messages
    assert [m["role"] for m in line[-3:]] == ["assistant", "tool", "user"]
    assert "cancelled" in line[-2]["content"]


@pytest.mark.rows("X-16")
def test_usage_is_reported_for_the_record(provider: ScriptedProvider, chat: Conversation) -> None:
    """X-16: the receipt has what the provider reported beside our own count."""
    provider.will(says("one", usage=Usage(prompt=1000, completion=10, cached=600)))
    chat.says("hello")

    (receipt,) = chat.proxy.receipts()
    assert json.dumps(receipt).count("600")
