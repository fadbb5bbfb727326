"""What our own tools answer in a window that is nearly full: as much as there is room for, so that the next round fits.

A hidden round that is refused for its length breaks a stream that has begun, so what makes it too long must not be
ours.
"""

from __future__ import annotations

import pytest

from llm_test_provider import Model, ScriptedCall, ScriptedProvider, says
from tests.harness import Conversation, Stage, bash, does, op, plan, pop, push, recall

LITTLE = {"models": [Model("gpt-x", window=6_000)]}
UNFOLDED = {"infer_requests": False, "mirror_plans": False, "frame_max_tokens": 10_000_000, "stack_rounds": 30}
KNOWN = {**UNFOLDED, "tariffs__own__names": "gpt-x", "tariffs__own__window": 6_000}


def words(tokens: int, about: str) -> str:
    return f"{about} " + "word " * tokens


def finished(chat: Conversation, provider: ScriptedProvider, frames: int) -> None:
    """So many frames, each with results that a block tells of, and behind them two calls of which the results are for
    the caller."""
    provider.will(says("ready"))
    chat.says("do it all")
    for number in range(frames):
        provider.will(
            does(push(f"Part {number}")),
            does(bash("look")),
            does(pop(words(150, f"came {number}"))),
            says("so"),
        )
        chat.says(f"part {number}")
        chat.returns(words(600, f"seen {number}"))
    provider.will(does(bash("first"), bash("second")))
    chat.says("go on")


@pytest.mark.rows("S1-48")
@pytest.mark.parametrize("provider", [LITTLE], indirect=True)
@pytest.mark.parametrize("newest", [1_500, 1_900])
def test_a_frame_is_told_as_little_of_the_tree_as_the_window_asks_for(
    stage: Stage, provider: ScriptedProvider, newest: int
) -> None:
    """The results just given fill the window and may not leave it: the block of a frame that begins now is shorter, or
    the model is told to go on without."""
    chat = stage.chat(stage.proxy(**KNOWN))
    finished(chat, provider, 4)
    provider.will(does(push("Next"), text="Now the next."), says("done"))

    answer = chat.returns(words(newest, "one"), words(newest, "two"))

    assert answer.stack_status == "full"
    assert (answer.text, answer.ended) == ("Now the next.\n\ndone", True)
    assert {received.status for received in provider.received} == {200}


@pytest.mark.parametrize("provider", [LITTLE], indirect=True)
@pytest.mark.parametrize("asked", [op("get_state"), plan(*"abcdefghijklmnop")], ids=["state", "plan"])
def test_what_a_tool_answers_is_cut_where_the_window_has_no_room_for_it(
    stage: Stage, provider: ScriptedProvider, asked: ScriptedCall
) -> None:
    chat = stage.chat(stage.proxy(**KNOWN))
    finished(chat, provider, 5)
    provider.will(does(asked, text="Let me look."), says("done"))

    answer = chat.returns(words(1_700, "one"), words(1_700, "two"))

    assert answer.stack_status == "full"
    assert (answer.text, answer.ended) == ("Let me look.\n\ndone", True)
    assert {received.status for received in provider.received} == {200}


@pytest.mark.rows("S4-24")
@pytest.mark.parametrize("provider", [{"models": [Model("gpt-x", window=9_000, refusal="openai")]}], indirect=True)
def test_an_answer_of_ours_that_made_a_round_too_long_is_left_out_of_it(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """Of a window that nobody knows yet: the round is asked again without it, also behind words that the client has
    read, and from then on the window is known."""
    chat = stage.chat(stage.proxy(**UNFOLDED))
    provider.will(
        does(push("Look")),
        *(does(bash(f"step {n}")) for n in range(3)),
        does(pop("seen")),
        does(bash("more")),
    )
    chat.says("do it all")
    for number in range(3):
        chat.returns(words(1_200, f"result {number}"))
    provider.will(does(recall("Look", page="1-4"), text="Let me look."), says("done"), says("on"))
    stage.excuse()

    answer = chat.returns(words(5_000, "the newest"))

    assert (answer.text, answer.ended) == ("Let me look.\n\ndone", True)
    assert [received.status for received in provider.received[-3:]] == [200, 400, 200]
    assert provider.received[-1].messages[-1]["content"].startswith("Error: this answer is left out")
    stage.excuse()
    assert chat.says("go on").text == "on"


@pytest.mark.rows("S4-24")
@pytest.mark.parametrize("provider", [{"models": [Model("gpt-x", window=9_000, refusal="openai")]}], indirect=True)
def test_an_answer_of_ours_beside_calls_of_the_client_s_is_left_out_where_both_do_not_fit(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """The results that the client sent last stay, with the call they answer; what we answered beside them need not."""
    chat = stage.chat(stage.proxy(**UNFOLDED))
    provider.will(does(push("Look")), *(does(bash(f"step {n}")) for n in range(3)))
    provider.will(does(pop("seen")), does(recall("Look", page="1-4"), bash("more")))
    chat.says("do it all")
    for number in range(3):
        chat.returns(words(1_200, f"result {number}"))
    provider.will(says("done"), says("on"))
    stage.excuse()

    answer = chat.returns(words(4_200, "the newest"))

    assert (answer.status, answer.text) == (200, "done")
    assert [received.status for received in provider.received[-2:]] == [400, 200]
    assert words(4_200, "the newest") in [m["content"] for m in provider.received[-1].messages]
    stage.excuse()
    assert chat.says("go on").text == "on"
