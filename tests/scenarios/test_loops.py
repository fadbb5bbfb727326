"""An agent that runs in a loop is told so: once, behind the request in which it closed, and there for good.

Every scenario ends before the judge of `tests.laws`: a note is part of the line from then on, and no client sees it.
"""

from __future__ import annotations

import pytest

from callstack_proxy.management.issued_keys import issue_key
from llm_test_provider import ScriptedCall, ScriptedProvider, call, says
from tests.harness import Conversation, Json, RunningProxy, Stage, bash, does, pop, push, texts

NOTE = "<stack-context note="
SAME = "nothing to commit, working tree clean"
TOOLS = ("bash", "edit", "read")


def notes_in(messages: list[Json]) -> int:
    return "".join(texts(messages)).count(NOTE)


def plays(
    chat: Conversation, provider: ScriptedProvider, *steps: tuple[ScriptedCall, str], closing: str = "Done."
) -> None:
    """One turn of the user in which the model does these steps, one a message."""
    provider.will(*(does(made) for made, _ in steps), says(closing))
    chat.says(f"Please go on, part {len(chat.history)}.")
    for _, result in steps:
        chat.returns(result)


def loops(proxy: RunningProxy) -> list[Json]:
    return list(proxy.get(f"/stack/conversations/{proxy.conversations[0]['id']}/loops")["loops"])


@pytest.fixture
def chat(stage: Stage) -> Conversation:
    return stage.chat(tools=TOOLS)


@pytest.mark.rows("S3-21", "S3-24", "S3-37")
def test_the_third_same_result_is_told_of_behind_it_and_stays(chat: Conversation, provider: ScriptedProvider) -> None:
    """S3-21, S3-24: the line only grows by it, and the client sees nothing of it."""
    plays(chat, provider, *[(bash("git status"), SAME)] * 5)

    lines = [received.messages for received in provider.received]
    assert [notes_in(line) for line in lines] == [0, 0, 0, 1, 1, 1]
    warned = lines[3][-1]
    assert warned["role"] == "user"
    assert "git status" in texts([warned])[0]
    assert "3 times" in texts([warned])[0]
    assert notes_in(chat.history) == 0


@pytest.mark.rows("D11")
def test_edits_and_tests_that_take_turns_are_never_told_of(chat: Conversation, provider: ScriptedProvider) -> None:
    """D11: five cycles with other edits each time."""
    cycles = [
        step
        for n in range(5)
        for step in (
            (call("edit", filePath="a.py", oldString="x", newString=f"try {n}"), "The file has been updated."),
            (bash("pytest -q"), "1 failed, 3 passed\nExit code: 1"),
        )
    ]
    plays(chat, provider, *cycles)

    assert notes_in(provider.received[-1].messages) == 0
    assert loops(chat.proxy) == []


@pytest.mark.rows("S3-25", "S3-29")
def test_a_restart_forgets_no_loop_and_tells_of_none_twice(chat: Conversation, provider: ScriptedProvider) -> None:
    """S3-25, S3-29: what was told is on disk, and where the model goes on in the same loop it is not told again."""
    provider.will(*[does(bash("git status"))] * 5, says("Done."))
    chat.says("Commit it.")
    for _ in range(3):
        chat.returns(SAME)
    chat.proxy.restart()
    chat.returns(SAME)
    chat.returns(SAME)

    assert [notes_in(r.messages) for r in provider.received] == [0, 0, 0, 1, 1, 1]
    assert [loop["count"] for loop in loops(chat.proxy)] == [3]


@pytest.mark.rows("S3-25", "C24")
def test_a_new_frame_begins_without_loops(chat: Conversation, provider: ScriptedProvider) -> None:
    """C24, S3-25: what is counted is what this frame does."""
    provider.will(
        does(bash("ls")),
        does(bash("ls")),
        does(push("Look"), bash("ls")),
        does(bash("ls")),
        says("Empty."),
    )
    chat.says("What is there?")
    for _ in range(4):
        chat.returns("nothing here")

    assert notes_in(provider.received[-1].messages) == 0
    assert loops(chat.proxy) == []


@pytest.mark.rows("S3-23", "D11")
def test_a_task_that_failed_twice_is_told_of_with_the_next_request(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    """S3-23, D11: the first failure is none."""
    for n in range(2):
        provider.will(does(push("Migrate")), does(pop("no rights", "failed")), says("It failed."))
        chat.says(f"Try to migrate, attempt {n}.")
    provider.will(says("I will look at the rights first."))
    chat.says("And now?")

    assert [notes_in(received.messages) for received in provider.received][-1] == 1
    assert not any(notes_in(received.messages) for received in provider.received[:-1])
    assert [(loop["kind"], loop["count"]) for loop in loops(chat.proxy)] == [("failures", 2)]


@pytest.mark.rows("S3-24")
@pytest.mark.parametrize("settings", [{"loops": "off"}, {"mode": "passive"}, {"mode": "shadow"}])
def test_where_nobody_wants_it_nothing_is_told(
    stage: Stage, provider: ScriptedProvider, settings: dict[str, str]
) -> None:
    """S3-24: warnings are for awake threads in mode `active`."""
    chat = stage.chat(stage.proxy(**settings), tools=TOOLS)
    plays(chat, provider, *[(bash("git status"), SAME)] * 4)

    assert not any(notes_in(received.messages) for received in provider.received)


def test_an_asleep_thread_is_not_told(stage: Stage, provider: ScriptedProvider) -> None:
    """L5: it passes byte for byte."""
    chat = stage.chat(stage.proxy(wake_at_tokens=20000), tools=TOOLS)
    plays(chat, provider, *[(bash("git status"), SAME)] * 4)

    assert not any(notes_in(received.messages) for received in provider.received)


@pytest.mark.rows("S3-25", "S3-26")
def test_loops_are_listed_counted_and_cleared(chat: Conversation, provider: ScriptedProvider) -> None:
    """S3-25, S3-26: moment, signature, count; what was cleared begins anew."""
    proxy = chat.proxy
    provider.will(*[does(bash("git status"))] * 7, says("Done."))
    chat.says("Commit it.")
    for _ in range(3):
        chat.returns(SAME)
    (listed,) = loops(proxy)
    assert (listed["kind"], listed["count"], listed["standing"]) == ("repetition", 3, True)
    assert listed["calls"] == ["bash: git status"]
    assert len(listed["signatures"][0]) == 16
    assert proxy.receipts()[-1]["events"][-1].startswith("looped ")
    assert 'callstack_frame_events_total{event="looped"} 1.0' in proxy.page("/metrics")

    conversation = proxy.conversations[0]["id"]
    assert proxy.asked("DELETE", f"/stack/conversations/{conversation}/loops") == (200, {"cleared": 1})
    assert [loop["standing"] for loop in loops(proxy)] == [False]
    assert proxy.asked("DELETE", f"/stack/conversations/{conversation}/loops") == (200, {"cleared": 0})
    for _ in range(4):
        chat.returns(SAME)
    assert [loop["count"] for loop in loops(proxy)] == [3, 3]
    assert [notes_in(r.messages) for r in provider.received][-5:] == [1, 1, 1, 1, 2]


@pytest.mark.rows("X-25")
def test_loops_of_somebody_else_are_not_there(stage: Stage, provider: ScriptedProvider) -> None:
    """X-15."""
    proxy = stage.proxy(tenancy="key")
    keys = {name: issue_key(proxy.config.keys_path, name, admin=name == "root") for name in ("one", "two", "root")}
    headers = {name: {"authorization": f"Bearer {key}"} for name, key in keys.items()}
    proxy.headers = headers["root"]
    chat = stage.chat(proxy, tools=TOOLS, headers=headers["one"])
    plays(chat, provider, *[(bash("git status"), SAME)] * 3)
    path = f"/stack/conversations/{proxy.conversations[0]['id']}/loops"

    for method in ("GET", "DELETE"):
        assert proxy.asked(method, path, headers=headers["two"])[0] == 404
        assert proxy.asked(method, "/stack/conversations/nobody/loops", headers=headers["one"])[0] == 404
    assert len(proxy.asked("GET", path, headers=headers["one"])[1]["loops"]) == 1


# ------------------------------------------------------------------------------------------------------------- blocking
@pytest.fixture
def blocked(stage: Stage, provider: ScriptedProvider) -> Conversation:
    """A client whose model has asked for the same three times."""
    chat = stage.chat(stage.proxy(loops="block"), tools=TOOLS)
    provider.will(*[does(bash("git status"))] * 3)
    chat.says("Commit it.")
    for _ in range(2):
        chat.returns(SAME)
    return chat


@pytest.mark.rows("S3-24", "S3-32")
def test_the_fourth_same_call_is_answered_by_the_proxy(blocked: Conversation, provider: ScriptedProvider) -> None:
    """S3-24: the client never sees it, the model is told what to do."""
    provider.will(does(bash("git status"), text="Again."), does(bash("git log")), says("Nothing to commit."))
    blocked.returns(SAME)

    assert blocked.last is not None
    assert [name for name, _ in blocked.last.calls] == ["bash"]
    assert "git log" in blocked.last.calls[0][1]
    assert blocked.last.text == "Again."
    refused = provider.received[-1].messages[-1]
    assert (refused["role"], refused["content"].startswith("Error: not run.")) == ("tool", True)
    blocked.returns("one commit")
    assert provider.received[-1].messages[-1]["content"] == "one commit"


@pytest.mark.rows("X-10", "S3-24")
def test_a_refused_call_beside_another_one_leaves_that_to_the_client(
    blocked: Conversation, provider: ScriptedProvider
) -> None:
    """X-10, S3-24: the group is a mixed turn, restored as it was made."""
    provider.will(does(bash("git status"), bash("git log")), says("Nothing to commit."))
    blocked.returns(SAME)
    assert blocked.last is not None
    assert len(blocked.last.calls) == 1
    assert "git log" in blocked.last.calls[0][1]

    blocked.returns("one commit")
    line = provider.received[-1].messages
    assert [m["role"] for m in line[-3:]] == ["assistant", "tool", "tool"]
    assert line[-2]["content"].startswith("Error: not run.")
    assert line[-1]["content"] == "one commit"


@pytest.mark.rows("D11", "C12")
def test_d11_no_other_call_is_ever_refused_and_a_change_ends_the_refusal(
    blocked: Conversation, provider: ScriptedProvider
) -> None:
    """D11, C12: no deadlock."""
    edit = call("edit", filePath="a.py", oldString="x", newString="y")
    others = [bash("ls"), call("read", filePath="a.py"), edit, bash("git status")]
    provider.will(*(does(each) for each in others), says("Changed."))
    blocked.returns(SAME)
    for result in ("a.py", "x", "The file has been updated.", "modified: a.py"):
        assert blocked.last is not None
        assert len(blocked.last.calls) == 1
        blocked.returns(result)

    assert blocked.last is not None
    assert blocked.last.text == "Changed."
    assert "Error: not run." not in "".join(texts(provider.received[-1].messages))


@pytest.mark.rows("S3-25", "C24")
def test_a_refusal_survives_a_restart_and_ends_with_new_words(
    blocked: Conversation, provider: ScriptedProvider
) -> None:
    """S3-25, C24."""
    provider.will(says("Is there anything to commit?"))
    blocked.returns(SAME)
    blocked.proxy.restart()
    provider.will(does(bash("git status")), says("Now there is."))
    blocked.says("Yes: I changed a file just now, look again please.")

    assert blocked.last is not None
    assert len(blocked.last.calls) == 1
    blocked.returns("modified: a.py")


@pytest.mark.rows("S3-25")
def test_a_refusal_survives_a_restart_in_the_middle_of_a_loop(
    blocked: Conversation, provider: ScriptedProvider
) -> None:
    """S3-25."""
    provider.will(does(bash("ls")))
    blocked.returns(SAME)
    blocked.proxy.restart()
    provider.will(does(bash("git status")), says("There is nothing to commit."))
    blocked.returns("a.py")

    assert blocked.last is not None
    assert blocked.last.text == "There is nothing to commit."


@pytest.mark.rows("S3-25", "C24")
@pytest.mark.parametrize(
    "moves", [(push("Look again"),), (push("Look"), pop("Nothing."))], ids=["push", "push and pop"]
)
def test_a_refusal_ends_with_a_change_of_frame_in_the_same_turn(
    blocked: Conversation, provider: ScriptedProvider, moves: tuple[ScriptedCall, ...]
) -> None:
    """S3-25, C24: also where the model changes frames and calls again before the client hears of it."""
    provider.will(
        does(bash("git status")),
        *(does(each) for each in moves),
        does(bash("git status")),
        says("Done."),
    )
    blocked.returns(SAME)

    assert blocked.last is not None
    assert [(name, "git status" in arguments) for name, arguments in blocked.last.calls] == [("bash", True)]
    refusals = [text for text in texts(provider.received[-1].messages) if "part of a loop" in text]
    assert len(refusals) == 1
    blocked.returns("modified: a.py")
