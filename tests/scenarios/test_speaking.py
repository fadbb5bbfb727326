"""A person speaks into a running agent: with its next request to the provider the model is told, once, and the words
stay where they were told.

Every scenario ends before the judge of `tests.laws`.
"""

from __future__ import annotations

import pytest

from proxy.scripted import ScriptedProvider, says
from proxy.stack.queued import HEADING
from tests.harness import Conversation, bash, does, op, pop, push, texts
from tests.scenarios.speaking import beside, meanwhile, told_in, words


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
    provider.will(does(push("Auth"), bash("ls")), does(bash("pwd")), does(pop("it works")), says("done"))
    chat.says("add a login")
    beside(chat).says("use tabs")
    chat.returns("a.py")
    chat.returns("/home")

    assert told_in(provider.received[-1].messages) == [words("use tabs")]
