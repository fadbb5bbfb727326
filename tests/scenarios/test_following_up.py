"""What a person has for later is told when the model has nothing more to do: the proxy asks for one more round, and the
client reads one answer."""

from __future__ import annotations

import pytest

from llm_test_provider import ScriptedProvider, cut, says, status
from tests.client_dialects import CHAT
from tests.harness import Conversation, Stage, bash, does, op
from tests.scenarios.speaking import beside, meanwhile, told_in, words


@pytest.mark.rows("S4-44")
def test_it_is_told_behind_the_end_and_the_client_reads_one_answer(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    """Not with the next request, but when the model stops; what follows belongs to the same answer."""
    stage = chat.proxy.stage
    provider.will(does(bash("ls")), does(bash("pwd")), says("All done."), says("Pushed too."), says("more"))
    chat.says("Look around.")
    beside(chat).says("then push", "follow_up")
    chat.returns("a.py")
    answer = chat.returns("/home")
    chat.says("go on")

    lines = [r.messages for r in provider.received]
    assert [told_in(line) for line in lines] == [[], [], [], [words("then push")], [words("then push")]]
    assert [m["role"] for m in lines[3][-2:]] == ["assistant", "user"]
    assert lines[4][: len(lines[3])] == lines[3]
    assert answer.text == "All done.\n\nPushed too."
    assert answer.finishes == ["stop"]
    if answer.streamed:
        assert answer.raw.count(stage.tongue.terminator) == 1
    assert beside(chat).states == ["delivered"]


def test_where_the_client_rewrites_its_history_it_stays_in_front_of_the_answer_to_it(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    """L2: the whole line keeps its bytes where an old result is pruned."""
    provider.will(does(bash("ls")), says("All that was to be done is done."), says("Pushed too."), says("more"))
    chat.says("Look around.")
    beside(chat).says("then push", "follow_up")
    chat.returns("a.py\n" * 200)
    next(m for m in chat.history if m["role"] == "tool")["content"] = "[Old tool result content cleared]"
    chat.says("go on")

    lines = [r.messages for r in provider.received]
    assert told_in(lines[-1]) == [words("then push")]
    assert lines[-1][: len(lines[-2])] == lines[-2]


@pytest.mark.rows("S4-44")
def test_what_follows_may_call_tools_of_the_client_and_ours(chat: Conversation, provider: ScriptedProvider) -> None:
    provider.will(
        says("hello"),
        says("All done."),
        does(op("status")),
        does(bash("git push")),
        says("Pushed."),
    )
    chat.says("hello")
    beside(chat).says("then push", "follow_up")
    answer = chat.says("Tidy up.")

    assert answer.text == "All done."
    assert [name for name, _ in answer.calls] == ["bash"]
    assert answer.finishes == ["tool_calls"]
    chat.returns("pushed")
    assert told_in(provider.received[-1].messages) == [words("then push")]


def test_both_lanes_are_told_each_at_its_time(chat: Conversation, provider: ScriptedProvider) -> None:
    provider.will(does(bash("ls")), says("All done."), says("Pushed too."))
    chat.says("Look around.")
    person = beside(chat)
    person.says("then push", "follow_up")
    person.says("use tabs")
    chat.returns("a.py")

    assert [told_in(r.messages) for r in provider.received] == [
        [],
        [words("use tabs")],
        [words("use tabs"), words("then push")],
    ]


def test_a_client_that_asks_for_usage_is_told_that_of_all_rounds(stage: Stage, provider: ScriptedProvider) -> None:
    chat = stage.chat(options={"stream_options": {"include_usage": True}} if stage.streamed else {})
    provider.will(does(bash("ls")), says("All done."), says("Pushed too."))
    chat.says("Look around.")
    beside(chat).says("then push", "follow_up")
    answer = chat.returns("a.py")

    assert answer.usage is not None
    told = [r.usage for r in provider.received[1:]]
    assert answer.usage["completion_tokens"] == sum(usage.completion for usage in told if usage)
    if answer.streamed and stage.tongue is CHAT:
        assert len({event["id"] for event in answer.events}) == 1


@pytest.mark.asked("streamed")
def test_an_answer_that_was_cut_short_is_followed_by_nothing(chat: Conversation, provider: ScriptedProvider) -> None:
    """Nor one that ended for its length: the model has not said that it is done."""
    provider.will(does(bash("ls")), says("All d", finish="length"), cut(says("All done. " * 50), after_events=6))
    chat.says("Look around.")
    person = beside(chat)
    person.says("then push", "follow_up")
    chat.returns("a.py")
    chat.says("go on")

    assert len(provider.received) == 3
    assert person.states == ["waiting"]


def test_what_is_taken_back_at_the_last_moment_leaves_a_regular_end(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    provider.will(does(bash("ls")), says("more"))
    chat.says("Look around.")
    person = beside(chat)
    person.says("then push", "follow_up")
    meanwhile(provider, 2, lambda: chat.proxy.asked("DELETE", f"{person.at}/messages"), says("All done."))
    answer = chat.returns("a.py")

    assert (answer.text, answer.finishes, answer.ended) == ("All done.", ["stop"], True)
    assert len(provider.received) == 2


def test_where_the_round_that_follows_fails_the_words_are_told_again(
    chat: Conversation, provider: ScriptedProvider
) -> None:
    """The answer breaks off, as with any hidden round; asked again, the model is told once more on the new path."""
    provider.will(does(bash("ls")), says("All done."), status(401), says("All done."), says("Pushed."), says("more"))
    chat.says("Look around.")
    beside(chat).says("then push", "follow_up")
    broken = chat.returns("a.py")
    assert broken.status == 401 or not broken.ended
    chat.proxy.stage.excuse()  # the first round of the answer that failed is on no line any more
    assert chat.asks().text == "All done.\n\nPushed."
    chat.says("go on")

    assert told_in(provider.received[-1].messages) == [words("then push")]
