"""Chat answers that are not streamed: the same engine, gathered (X-09..X-11, H4, S14, S4-60)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.chat.message import read_message
from tests.dialects.chat_streams import DONE, calls, delta, part, plain, play, role


def answered(*rounds: bytes) -> dict[str, Any]:
    found = json.loads(play(*rounds, stream=False).out)
    assert isinstance(found, dict)
    return found


@pytest.mark.rows("X-09")
def test_x09_a_hidden_round_then_text_is_one_answer() -> None:
    found = answered(plain("Start.", ("stack_frame_push", "{}"), of="1"), plain("Done.", of="2", reasoning_content="r"))
    assert (found["id"], found["model"], found["created"]) == ("chatcmpl-1", "model-1", 1700000001)
    assert found["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Start.\n\nDone.", "reasoning_content": "r"},
            "finish_reason": "stop",
        }
    ]
    assert found["usage"] == {"prompt_tokens": 200, "completion_tokens": 20, "total_tokens": 220}
    assert found["x_vendor"] == 1.5


@pytest.mark.rows("X-10")
def test_x10_h4_a_mixed_turn_shows_the_clients_calls_alone_as_the_provider_wrote_them() -> None:
    body = plain("Look.", ("bash", '{"a": 1}'), ("stack_frame_pop", "{}"), ("read", "{}"))
    played = play(body, stream=False)
    message = json.loads(played.out)["choices"][0]["message"]
    assert b"stack_" not in played.out
    assert message["content"] == "Look."
    original = json.loads(body)["choices"][0]["message"]["tool_calls"]
    assert message["tool_calls"] == [original[0], original[2]]
    assert [c.name for c in played.spoken[0].message.calls] == ["bash", "stack_frame_pop", "read"]


@pytest.mark.rows("X-21")
def test_x21_what_is_thought_inside_the_content_is_no_text() -> None:
    """As Mistral's reasoning models write it."""
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    said = [thought, {"type": "text", "text": "B"}]
    body = json.loads(plain("?", of="2"))
    body["choices"][0]["message"]["content"] = said
    found = answered(plain("A", ("stack_frame_push", "{}")), json.dumps(body).encode())
    assert found["choices"][0]["message"]["content"] == [{"type": "text", "text": "A\n\n"}, *said]


def test_an_answer_of_hidden_calls_alone_says_stop() -> None:
    choice = answered(plain(None, ("stack_recall", "{}")))["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert "tool_calls" not in choice["message"]


@pytest.mark.parametrize("content", ["", None])
@pytest.mark.parametrize("stream", [True, False])
def test_calls_without_a_word_are_kept_as_the_provider_wrote_them(content: str | None, *, stream: bool) -> None:
    """Servers whose templates join texts refuse a null, which their client never sends."""
    streamed = delta({"role": "assistant", "content": content}) + calls(part(0, "bash", "{}", "call_1"))
    whole = plain(content, ("bash", "{}"), ("stack_recall", "{}"))
    body = streamed + delta(finish="tool_calls") + DONE if stream else whole
    message = play(body, stream=stream).spoken[0].message

    assert json.loads(message.wire)["content"] == content
    null = read_message(message.wire.replace(b'"content":""', b'"content":null'))
    assert message.identity == null.identity


def test_calls_alike_in_every_way_are_still_two() -> None:
    body = plain(None, ("bash", ""), ("bash", "")).replace(b'"id": "call_1', b'"x": "call_1')
    assert len(play(body, stream=False).spoken[0].client_calls) == 2


def test_s14_several_choices_pass_untouched() -> None:
    told = json.loads(plain("a"))
    told["choices"] += [told["choices"][0] | {"index": 1}]
    body = json.dumps(told).encode()
    assert play(body, stream=False).out == body


NAMES = st.sampled_from(["bash", "stack_frame_push", "stack", "read"])
ARGUMENTS = st.sampled_from(["{}", '{"a": [1, 2]}', "", "{oops"])


@given(st.text(max_size=20), st.lists(st.tuples(NAMES, ARGUMENTS), max_size=4), st.text(max_size=5), st.data())
def test_streamed_and_plain_the_same_answer_is_the_same_message(
    text: str, called: list[tuple[str, str]], thought: str, data: st.DataObject
) -> None:
    finish = "tool_calls" if called else "stop"
    more: dict[str, Any] = {"reasoning_content": thought, "annotations": [{"a": 1}]} if thought else {}
    whole = play(plain(text, *called, finish=finish, **more), stream=False).spoken[0]
    streamed = [role()]
    streamed += [delta({"reasoning_content": c}) for c in thought] + (
        [delta({"annotations": [{"a": 1}]})] if thought else []
    )
    streamed += [delta({"content": c}) for c in text]
    for i, (name, arguments) in enumerate(called):
        streamed.append(calls(part(i, name, "", f"call_1{i}")))
        streamed += [calls(part(i, arguments=c)) for c in arguments]
    told = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    stream = b"".join([*streamed, delta(finish=finish, usage=told), DONE])
    places = data.draw(st.lists(st.integers(0, 5000), max_size=5))
    assert play(stream, places=places).spoken[0] == whole
