"""Answers of the messages API that are not streamed: the same engine, gathered (X-09..X-11, H4, S4-02)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dialects.messages_streams import (
    SIGNED,
    call,
    closes,
    ends,
    opens,
    plain,
    play,
    said,
    start,
    text,
    thinking,
    used,
)

FOUND = {"type": "web_search_tool_result", "tool_use_id": "srv", "content": []}


def answered(*rounds: bytes) -> dict[str, Any]:
    found = json.loads(play(*rounds, stream=False).out)
    assert isinstance(found, dict)
    return found


@pytest.mark.rows("X-09")
def test_x09_a_hidden_round_then_text_is_one_answer() -> None:
    """The input side of usage is the last round's, the output side and the requests of server tools are all rounds'."""
    found = answered(plain(said("Start."), used("stack_frame_push"), of="1"), plain(SIGNED, said("Done."), of="2"))
    assert found == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "model-1",
        "content": [said("Start."), SIGNED, said("Done.")],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 200,
            "cache_read_input_tokens": 10,
            "output_tokens": 20,
            "server_tool_use": {"web_search_requests": 2},
        },
        "x_vendor": 1.5,
    }


@pytest.mark.rows("X-10")
def test_x10_h4_a_mixed_turn_shows_the_clients_calls_alone_as_the_provider_wrote_them() -> None:
    own = used("bash", {"n": 1.50}), used("read", {"big": 2**70})
    body = plain(said("Look."), own[0], used("stack_frame_pop", {"title": "stack_"}), FOUND, own[1])
    played = play(body.replace(b"1.5", b"1.50"), stream=False)
    assert b"stack_" not in played.out
    assert b'"n": 1.50' in played.out
    assert b'"big": 1180591620717411303424' in played.out
    assert [b["type"] for b in json.loads(played.out)["content"]] == ["text", "tool_use", FOUND["type"], "tool_use"]
    assert [c.name for c in played.spoken[0].message.calls] == ["bash", "stack_frame_pop", "read"]
    assert b'"n": 1.50' in played.spoken[0].message.wire


def test_an_answer_of_hidden_calls_alone_says_that_the_turn_ended_and_shows_no_thinking() -> None:
    found = answered(plain(SIGNED, used("stack_recall")))
    assert (found["stop_reason"], found["content"]) == ("end_turn", [])


def test_blank_text_of_a_later_round_waits_for_its_first_word() -> None:
    first, second = plain(used("stack_recall"), of="1"), plain(said("\n"), said("B"), of="2")
    assert answered(first, second)["content"] == [said("\nB")]


@pytest.mark.parametrize("given_", [{}, {"ref": "the beg"}, '{"ref": "the beg'], ids=["nothing", "a part", "a text"])
def test_a_truncated_call_of_ours_is_dropped(given_: object) -> None:
    """An input told as a value was closed by who told it, wherever it broke off."""
    played = play(plain(said("A"), used("stack_recall", given_), reason="max_tokens"), stream=False)
    assert played.spoken[0].hidden_truncated
    assert (json.loads(played.out)["stop_reason"], json.loads(played.out)["content"]) == ("max_tokens", [said("A")])


def test_edits_of_the_context_pass_and_are_noted() -> None:
    edits = {"applied_edits": [{"type": "clear_thinking_20251015", "cleared_thinking_turns": 1}]}
    played = play(plain(said("a"), context_management=edits), stream=False)
    assert json.loads(played.spoken[0].extra["applied_edits"]) == edits["applied_edits"]
    assert json.loads(played.out)["context_management"] == edits


def test_what_is_no_stream_cannot_end_with_an_error_event() -> None:
    assert play(plain(said("a")), stream=False).answer.closing_error("The provider went away.") == b""


def test_what_did_not_grow_goes_back_byte_for_byte() -> None:
    blocks = {**FOUND, "score": 1.5}, {"type": "redacted_thinking", "data": "DATA"}, used("bash", {"n": 2.5})
    body = plain(*blocks).replace(b"1.5", b"1.50").replace(b"2.5", b"2.50")
    wire = play(body, stream=False).spoken[0].message.wire
    start_, end = body.index(b"[") + 1, body.index(b'"stop_reason"')
    assert b"".join(wire.split()) == b'{"role":"assistant","content":[' + b"".join(body[start_:end].split())[:-1] + b"}"
    assert wire.count(b"\n") > 10


NAMES = st.sampled_from(["bash", "stack_frame_push", "stack", "read"])
INPUTS = st.sampled_from([{}, {"a": [1, 2]}, {"b": "\u2028\U0001f600"}])
BLOCKS = st.one_of(
    st.builds(said, st.text(max_size=8)), st.just(SIGNED), st.just(FOUND), st.builds(used, NAMES, INPUTS)
)


@given(st.lists(BLOCKS, max_size=5), st.data())
def test_streamed_and_plain_the_same_answer_is_the_same_message(
    blocks: list[dict[str, Any]], data: st.DataObject
) -> None:
    reason = "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
    whole = play(plain(*blocks, reason=reason), stream=False).spoken[0]
    stream = b"".join([start(), *(_streamed(at, block) for at, block in enumerate(blocks)), ends(reason)])
    spoken = play(stream, places=data.draw(st.lists(st.integers(0, 5000), max_size=5))).spoken[0]
    assert json.loads(spoken.message.wire) == json.loads(whole.message.wire)
    assert spoken.message.identity == whole.message.identity
    assert [(c.id, c.name, json.loads(c.arguments)) for c in spoken.message.calls] == [
        (c.id, c.name, json.loads(c.arguments)) for c in whole.message.calls
    ]
    assert (spoken.finish, spoken.complete) == (whole.finish, whole.complete)


def _streamed(at: int, block: dict[str, Any]) -> bytes:
    if block["type"] == "text":
        return text(at, *block["text"])
    if block["type"] == "tool_use":
        return call(at, block["name"], *json.dumps(block["input"]), id_=block["id"])
    return thinking(at, "h", "m") if block is SIGNED else _whole(at, block)


def _whole(at: int, block: dict[str, Any]) -> bytes:
    return opens(at, **block) + closes(at)
