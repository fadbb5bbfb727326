"""When the proxy keeps out of the way: small threads, modes, requests that must not be touched. What passes, passes
byte for byte; the judge checks that for every request here too."""

from typing import Any

import pytest

from llm_test_provider import ScriptedProvider, call, says
from tests.client_dialects import CHAT, MESSAGES
from tests.harness import Conversation, Stage, as_one_text, bash, does, other_members, pop, push, recall

SCHEMA = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}


def names(provider: ScriptedProvider, at: int = -1) -> list[str]:
    return provider.received[at].tool_names


# --------------------------------------------------------------------------------------------------------------- waking
@pytest.mark.rows("S4-07")
def test_a_small_thread_stays_asleep(stage: Stage, provider: ScriptedProvider) -> None:
    """L5, S4-07, DESIGN 8: byte-identical, not even usage is asked for; frames are kept all the same."""
    chat = stage.chat(stage.proxy(wake_at_tokens=20_000))
    provider.will(does(bash("ls")), says("one"), says("two"))

    assert chat.says("hello").stack_status == "asleep"
    chat.returns("a.py")
    chat.says("go on")

    assert "stream_options" not in provider.received[0].body
    assert names(provider) == ["bash", "read"]
    assert chat.proxy.statuses() == {"Conversation": "in_progress"}
    assert not chat.proxy.conversations[0]["awake"]


def test_a_thread_wakes_at_the_first_user_message_above_the_size(stage: Stage, provider: ScriptedProvider) -> None:
    """DESIGN 8: not inside a tool loop; once awake, for good."""
    chat = stage.chat(stage.proxy(wake_at_tokens=1_000))
    provider.will(
        does(bash("cat big")),
        does(bash("ls")),
        says("read"),
        does(push("Auth")),
        says("begun"),
        says("ok"),
    )

    assert chat.says("read it").stack_status == "asleep"
    assert chat.returns("word " * 3_000).stack_status == "asleep"
    assert chat.returns("a.py").stack_status == "asleep"
    assert chat.says("add a login").stack_status == "full"
    assert "stack_recall" in names(provider)
    chat.says("go on")
    assert chat.proxy.conversations[0]["awake"]
    assert chat.proxy.active() == "Auth"


def test_a_branch_from_before_the_waking_is_asleep(stage: Stage, provider: ScriptedProvider) -> None:
    """DESIGN 8: waking is an event on the path."""
    chat = stage.chat(stage.proxy(wake_at_tokens=1_000))
    provider.will(says("one"), says("two"), says("three"))
    chat.says("hello")
    chat.says("word " * 3_000)
    branch = chat.branch(2)

    assert branch.says("something small").stack_status == "asleep"


@pytest.mark.rows("X-23")
def test_a_thread_whose_client_never_sent_tools_does_not_wake(stage: Stage, provider: ScriptedProvider) -> None:
    """L7, X-23: no tools, no guidance."""
    chat = stage.chat(tools=())
    provider.will(says("one"), says("two"))

    chat.says("hello")
    assert chat.says("go on").stack_status == "asleep"


def test_a_request_without_tools_on_an_awake_thread_is_rendered_on_its_line(
    provider: ScriptedProvider, chat: Conversation
) -> None:
    """L7, DESIGN 5.7: the same system text, no tools: the line, with the thread's frames and tools."""
    provider.will(
        does(push("Auth")),
        does(bash("ls")),
        does(pop("done")),
        says("back"),
        says("toolless"),
    )
    chat.says("hello")
    chat.returns("SECRET-OF-CHILD")

    answer = chat.says("sum it up", tools=...)

    assert answer.stack_status == "full"
    assert "SECRET-OF-CHILD" not in as_one_text(provider.received[-1].messages)
    assert "stack_recall" in names(provider)


# -------------------------------------------------------------------------------------------------- must not be touched
@pytest.mark.rows("X-23")
@pytest.mark.parametrize(
    "options",
    [
        {"tool_choice": {"type": "function", "function": {"name": "bash"}}},
        {"tool_choice": "none"},
        {"response_format": {"type": "json_object"}},
        {"n": 2},
    ],
    ids=["forced", "none", "json_object", "n"],
)
def test_a_request_that_may_not_use_tools_does_not_wake_its_thread(
    stage: Stage, provider: ScriptedProvider, options: dict[str, Any]
) -> None:
    """X-23, H6: no stack tools, no injection; the next free request may wake."""
    if "n" in options and stage.tongue is not CHAT:
        pytest.skip("only chat completions give several answers")
    if "response_format" in options and stage.tongue is MESSAGES:
        pytest.skip("the messages API asks for no object without a schema")
    chat = stage.chat()
    provider.will(says("one"), says("two"))

    assert chat.says("hello", **options).stack_status.split(";")[0] in ("asleep", "side")
    assert chat.says("go on").stack_status == "full"


@pytest.mark.parametrize(
    "options",
    [
        {"tool_choice": {"type": "function", "function": {"name": "bash"}}},
        {"tool_choice": "none"},
        {"tool_choice": "required"},
        {"response_format": SCHEMA},
        {"parallel_tool_calls": False},
    ],
    ids=["forced", "none", "required", "json_schema", "parallel"],
)
def test_an_awake_thread_carries_its_tools_whatever_the_request(
    provider: ScriptedProvider, chat: Conversation, options: dict[str, Any]
) -> None:
    """H6, L2, DESIGN 7: a property of the thread, never of the request; the client's wish goes up unchanged."""
    provider.will(says("one"), says("two"), says("three"))
    chat.says("hello")

    answer = chat.says("go on", **options)
    chat.says("and on")

    assert answer.stack_status == "full"
    assert provider.received[0].body["tools"] == provider.received[1].body["tools"]
    wished = other_members(chat.proxy.stage.notes[1].body)
    assert len(wished) > len(other_members(chat.proxy.stage.notes[0].body))
    assert {key: provider.received[1].body[key] for key in wished} == wished


@pytest.mark.rows("X-23")
@pytest.mark.spoken_in("chat", reason="the others give one answer")
def test_several_answers_are_asked_for_without_us(provider: ScriptedProvider, chat: Conversation) -> None:
    """H6, X-23: n > 1 carries none of ours, and the thread stays awake."""
    provider.will(does(push("Auth")), says("one"), says("two"), says("three"))
    chat.says("hello")
    branch = chat.branch(2)

    assert branch.says("give me two", n=2).stack_status == "side; reason=several_answers"
    assert chat.says("go on").stack_status == "full"
    assert chat.proxy.active() == "Auth"


def test_a_client_with_a_tool_by_our_prefix_keeps_its_thread_asleep(stage: Stage, provider: ScriptedProvider) -> None:
    """H6, DESIGN 7: name clash; its own call passes to it."""
    chat = stage.chat(tools=("bash", "stack_overflow_search"))
    provider.will(does(call("stack_overflow_search", q="why")), says("ok"))

    answer = chat.says("hello")

    assert answer.stack_status == "asleep; reason=name_clash"
    assert answer.calls[0][0] == "stack_overflow_search"


# ---------------------------------------------------------------------------------------------------------------- modes
WAYS = {
    "configuration": ({"mode": "off"}, {}),
    "model": ({"models.gpt-x.mode": "off"}, {}),
    "header": ({}, {"x-stack-mode": "off"}),
}


@pytest.mark.rows("X-15")
@pytest.mark.parametrize(("settings", "headers"), WAYS.values(), ids=WAYS.keys())
def test_off_by_configuration_model_or_header(
    stage: Stage, provider: ScriptedProvider, settings: dict[str, str], headers: dict[str, str]
) -> None:
    """X-15: exact pass-through; the header itself does not travel."""
    chat = stage.chat(stage.proxy(**settings), headers=headers)
    provider.will(does(bash("ls")), says("done"))

    assert chat.says("hello").stack_status == "off"
    assert chat.returns("a.py").stack_status == "off"
    assert all(received.header("x-stack-mode") is None for received in provider.received)


@pytest.mark.rows("S3-36", "X-16")
def test_shadow_reports_and_forwards_the_original(stage: Stage, provider: ScriptedProvider) -> None:
    """S3-36, X-16: what the client sent is what leaves, and headers tell of both."""
    chat = stage.chat(stage.proxy(mode="shadow"))
    provider.will(does(bash("ls")), says("done"))

    answer = chat.says("hello")
    assert answer.stack_status == "shadow"
    assert answer.headers["x-stack-tokens-in"] == answer.headers["x-stack-tokens-sent"]
    chat.returns("a.py")


@pytest.mark.rows("X-15", "X-08")
def test_off_and_on_again_in_mid_conversation(provider: ScriptedProvider, chat: Conversation) -> None:
    """X-15, X-08, DESIGN 11: the client's full history goes without us; switched on, the line is where it was, and what
    happened meanwhile is on it."""
    provider.will(
        does(push("Auth")),
        does(bash("ls")),
        does(bash("cat a.py")),
        says("read"),
        does(pop("Done.")),
        says("back"),
    )
    chat.says("hello")
    chat.returns("a.py")
    off = chat.returns("print(1)", headers={"x-stack-mode": "off"})
    assert off.stack_status == "off"

    assert chat.says("go on").stack_status == "full"

    in_child = as_one_text(provider.received[4].messages)
    assert all(words in in_child for words in ("stack_frame_push", "a.py", "print(1)", "read"))
    assert chat.proxy.statuses()["Auth"] == "completed"


def test_a_conversation_is_switched_off_by_management(provider: ScriptedProvider, chat: Conversation) -> None:
    """Issue "turn it down or away": per conversation; null goes back to what the configuration says."""
    provider.will(does(push("Auth")), says("one"), says("two"), says("three"))
    chat.says("hello")
    at = f"/stack/conversations/{chat.proxy.conversations[0]['id']}/mode"

    chat.proxy.manage("PUT", at, {"mode": "off"})
    assert chat.says("go on").stack_status == "off"
    chat.proxy.manage("PUT", at, {"mode": None})
    assert chat.says("go on").stack_status == "full"
    assert chat.proxy.active() == "Auth"


def test_an_unknown_mode_is_refused_with_the_known_ones(provider: ScriptedProvider, chat: Conversation) -> None:
    chat.headers = {"x-stack-mode": "sideways"}

    answer = chat.says("hello")

    assert answer.status == 400
    assert "active" in answer.json["error"]["message"]
    assert provider.received == []


def test_a_mode_header_changes_behaviour_not_the_array(stage: Stage, provider: ScriptedProvider) -> None:
    """DESIGN 7: asked active on a proxy that is off, the thread wakes and its later active requests carry its tools."""
    chat = stage.chat(stage.proxy(mode="off"), headers={"x-stack-mode": "active"})
    provider.will(does(push("Auth")), says("one"), does(recall("Auth")), says("two"))

    chat.says("hello")
    chat.says("go on")

    assert len({str(r.body["tools"]) for r in provider.received}) == 1
