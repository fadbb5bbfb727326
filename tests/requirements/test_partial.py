"""S4-10 to S4-13: what arrives is on disk while it arrives, and seen as what it is."""

import http.client
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from llm_test_provider import Ending, ScriptedProvider, says
from tests.harness import WAIT_S, Conversation, Json, Stage, as_one_text, bash, does, push

LONG = "an answer that stops in the middle of what it says " * 20


@contextmanager
def unfinished(chat: Conversation) -> Iterator[http.client.HTTPResponse]:
    """An answer whose provider has fallen silent; the client goes on listening."""
    connection, response = chat.proxy.opened(chat.body(), {})
    try:
        yield response
    finally:
        connection.close()


def seen(chat: Conversation, wanted: Callable[[Json], bool]) -> Json:
    """The first turn of the root frame that is as `wanted`, once there is one. Asked again and again: what it waits
    for is what the management API tells."""
    root = next(iter(chat.proxy.frames().values()))["sessionID"]
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        for entry in chat.proxy.log(root):
            if entry["kind"] == "turn" and wanted(entry):
                return entry
    raise AssertionError("the log never showed it")


@pytest.mark.rows("S4-10", "S4-11", "S4-06")
def test_s4_11_what_came_before_a_silence_is_kept_while_the_stream_is_open(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """S4-10, S4-11: at most 250 ms later, also when no further byte comes."""
    chat = stage.chat(streamed=True)
    provider.will(says(LONG, ending=Ending("stall", after_events=9)))
    chat.history.append({"role": "user", "content": "hello"})

    with unfinished(chat) as response:
        turn = seen(chat, lambda entry: bool(entry["text"]))
        assert LONG.startswith(turn["text"])
        assert (turn["complete"], turn["finish"]) == (False, "")
        assert response.status == 200


@pytest.mark.rows("S4-12", "S4-13")
def test_s4_12_a_call_whose_arguments_still_arrive_is_pending(stage: Stage, provider: ScriptedProvider) -> None:
    """S4-12, S4-13: pending while it arrives; running once it is whole, completed with its result."""
    chat = stage.chat(streamed=True)
    half = does(bash("make " * 50), ending=Ending("stall", after_events=5))
    provider.will(half, does(bash("make")), says("ok"))
    chat.history.append({"role": "user", "content": "hello"})

    with unfinished(chat):
        turn = seen(chat, lambda entry: bool(entry["calls"]))
        assert [(call["name"], call["state"]) for call in turn["calls"]] == [("bash", "pending")]

    chat.asks()
    whole = seen(chat, lambda entry: entry["complete"])
    assert [(json.loads(call["arguments"]), call["state"]) for call in whole["calls"]] == [
        ({"command": "make"}, "running")
    ]


@pytest.mark.rows("S4-50", "S4-52")
def test_s4_52_what_a_client_left_is_kept_and_never_said_again(stage: Stage, provider: ScriptedProvider) -> None:
    """S4-50, S4-52: a disconnect keeps the tree; the words it cut off are in the log, marked, and on no later line."""
    chat = stage.chat(streamed=True)
    left = does(push("Auth"))
    provider.will(left, says(LONG, ending=Ending("stall", after_events=9)), says("from the start"), says("on"))
    chat.history.append({"role": "user", "content": "hello"})

    with unfinished(chat) as response:
        assert LONG.startswith(said(response))
    provider.wait_until(lambda: provider.open_connections == 0)

    assert chat.asks().text == "from the start"
    chat.says("go on")
    assert LONG[:30] not in as_one_text(stage.lines()[-1])
    assert [r["reason"] for r in chat.proxy.receipts()] == ["client_left", "", ""]


def said(response: http.client.HTTPResponse) -> str:
    """The first words of text in a stream."""
    while line := response.readline():
        if line.startswith(b"data: {"):
            choices = json.loads(line[6:])["choices"]
            if choices and choices[0]["delta"].get("content"):
                return str(choices[0]["delta"]["content"])
    raise AssertionError("the stream ended without a word")
