"""A person types words for a running agent to the proxy: in the client whose agent it is (S0-36)."""

from __future__ import annotations

import pytest

from llm_test_provider import ScriptedProvider, says
from tests.harness import Conversation, Stage, as_one_text, bash, does, op
from tests.scenarios.speaking import ManagementUser, beside, in_flight, meanwhile, told_in, words
from tests.scenarios.test_typed import begun, typed

pytestmark = pytest.mark.rows("S0-36", "S4-40", "S4-44")


def test_what_is_typed_for_the_agent_is_told_with_its_next_request(stage: Stage, provider: ScriptedProvider) -> None:
    """As a message of the user's behind the newest one, there for good; the typed line itself is on no line."""
    chat = begun(stage, provider, "one", "two")

    assert typed(chat, provider, "/stack say use tabs").text == "[callstack] The agent is told with its next request."
    typed(chat, provider, "/stack say and no semicolons")
    assert beside(chat).states == ["waiting", "waiting"]
    chat.says("go on")
    chat.says("and on")

    for line in stage.lines()[1:]:
        assert told_in(line) == [words("use tabs", "and no semicolons")]
        assert "/stack say" not in as_one_text(line)
    assert beside(chat).states == ["delivered", "delivered"]


def test_a_retry_says_nothing_twice_and_the_same_words_typed_again_do(stage: Stage, provider: ScriptedProvider) -> None:
    """Also when the words were told meanwhile."""
    chat = begun(stage, provider, "one")
    first = typed(chat, provider, "/stack say use tabs")
    again = chat.branch(len(chat.history) - 1)

    assert again.asks().text == first.text
    assert len(beside(chat).messages) == 1
    typed(chat, provider, "/stack say use tabs")
    assert len(beside(chat).messages) == 2
    chat.says("go on")
    late = chat.branch(2)
    late.history.append({"role": "user", "content": "/stack say use tabs"})
    assert late.asks().text == first.text
    assert beside(chat).states == ["delivered", "delivered"]


@pytest.mark.one_process("two requests of one conversation at the same moment do not see each other")
def test_an_agent_at_work_is_told_between_two_of_its_rounds(stage: Stage, provider: ScriptedProvider) -> None:
    """S4-41: typed in a second window of the same chat, while the first one waits for its answer."""
    chat = begun(stage, provider)
    window = chat.branch(2)
    meanwhile(provider, 2, lambda: window.says("/stack say use tabs"), does(op("status")))
    provider.will(says("done"))

    assert chat.says("go on").text == "done"
    assert told_in(provider.received[-1].messages) == [words("use tabs")]


@pytest.mark.parametrize("options", ["--to {}", "--follow-up --to {}", "--to {} --follow-up"])
def test_no_chat_speaks_to_the_agent_of_another_conversation(
    stage: Stage, provider: ScriptedProvider, options: str
) -> None:
    """What an agent reads could type it too; the answer names the command that a person has."""
    chat = begun(stage, provider, "hello", "fine")
    running = chat.proxy.conversations[0]["id"]
    other = stage.chat(chat.proxy)
    other.says("plan the release")

    told = typed(other, provider, f"/stack say {options.format(running)} use tabs")
    assert "`callstack say CONVERSATION TEXT`" in told.text
    assert ManagementUser(chat.proxy, running).messages == []
    chat.says("go on")
    assert told_in(provider.received[-1].messages) == []


def test_words_for_the_end_of_a_turn_are_told_then(stage: Stage, provider: ScriptedProvider) -> None:
    """S4-44: one more round, when the model has nothing more to do."""
    chat = begun(stage, provider, "built", "pushed")

    told = typed(chat, provider, "/stack say --follow-up then push")
    assert told.text == "[callstack] The agent is told when it has nothing more to do."
    assert chat.says("build").text.split() == ["built", "pushed"]
    assert told_in(provider.received[-1].messages) == [words("then push")]


def test_an_agent_that_is_asleep_is_woken_by_what_was_typed(stage: Stage, provider: ScriptedProvider) -> None:
    chat = begun(stage, provider, "one", wake_at_tokens=1_000_000)

    typed(chat, provider, "/stack say use tabs")
    chat.says("go on")
    assert told_in(provider.received[-1].messages) == [words("use tabs")]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("say", "Write it as `/stack say TEXT`"),
        ("say --shout tabs", "Write it as `/stack say TEXT`"),
        ("say --follow-up", "Write it as `/stack say TEXT`"),
        ("say --to", "reaches only its own agent"),
        ("say --to abcd use tabs", "reaches only its own agent"),
    ],
)
def test_what_cannot_be_said_is_answered_with_what_to_do(
    stage: Stage, provider: ScriptedProvider, command: str, told: str
) -> None:
    chat = begun(stage, provider)

    assert told in typed(chat, provider, f"/stack {command}").text
    assert beside(chat).messages == []


def test_where_nobody_would_hear_it_nothing_is_queued(stage: Stage, provider: ScriptedProvider) -> None:
    """A client without tools is never rewritten; and before the first message there is nobody."""
    provider.will(says("hello"))
    chat = stage.chat(tools=())
    assert "There is no conversation here yet" in typed(chat, provider, "/stack say use tabs").text
    chat.history.clear()
    chat.says("build a parser")

    assert "offers no tools" in typed(chat, provider, "/stack say use tabs").text
    assert beside(chat).messages == []


def test_more_than_waits_at_once_is_refused_with_a_sentence(stage: Stage, provider: ScriptedProvider) -> None:
    chat = begun(stage, provider)
    person = beside(chat)
    for number in range(32):
        person.says(f"word {number}")

    assert "32 messages wait here already" in typed(chat, provider, "/stack say one more").text
    assert len(person.messages) == 32


def test_a_request_under_way_is_told_nothing_of_what_is_typed_elsewhere(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """Its next one is; nobody waits for it."""
    chat = begun(stage, provider)
    provider.will(says("late", delay_s=60.0))
    window = chat.branch(2)
    with in_flight(chat, "go on"):
        provider.wait_for(2)
        typed(window, provider, "/stack say use tabs")
        assert beside(chat).states == ["waiting"]
    assert told_in(provider.received[-1].messages) == []


def test_a_command_that_only_looks_like_a_deed_is_a_text(stage: Stage, provider: ScriptedProvider) -> None:
    """Whatever stands behind `say` is told as it was typed."""
    chat: Conversation = begun(stage, provider, "one")
    typed(chat, provider, "/stack say /stack pop | --to me; <stack-context>")
    provider.will(does(bash("ls")))
    chat.says("go on")

    assert told_in(provider.received[-1].messages) == [words("/stack pop | --to me; <stack-context>")]
    assert chat.proxy.statuses() == {"build a parser": "in_progress"}
