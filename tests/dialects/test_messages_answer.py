"""What a client gets of a streamed answer of the messages API (RELIABILITY S1, S4, S6, S7, H1, H3..H6), beyond what
holds in every dialect (`test_every_answer.py`)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.core.ledger.hold_back_streamed_calls import MAX_WAITING_CHUNKS
from proxy.core.ledger.messages import Usage
from proxy.dialects.messages.response import MessagesResponseWriter
from proxy.dialects.sse import SseDecoder, SseEvent
from tests.dialects.messages_streams import (
    CITED,
    FOUND,
    HIDDEN,
    MIXED,
    OVERLOADED,
    OWN,
    SEARCHED,
    SPOKEN_FIRST,
    call,
    client,
    closes,
    ends,
    event,
    grows,
    hidden_round,
    opens,
    play,
    start,
    text,
    text_round,
    thinking,
)
from tests.dialects.playing import SSE, cut


# ------------------------------------------------------------------------------------------------------- stack-free
def test_without_interception_even_the_cuts_are_the_same_and_calls_of_ours_pass() -> None:
    """H6: a client with tools of its own by our names is not intercepted."""
    pieces = cut(MIXED, [3, 200, 201, 900])
    played = play(MIXED, intercept=False, places=[3, 200, 201, 900])
    assert played.pieces == [*pieces, b""]
    assert played.spoken == play(MIXED).spoken


def test_text_leaves_with_the_chunk_that_brought_it() -> None:
    answer = MessagesResponseWriter(stream=True, wants_usage=True, intercept=True)
    answer.begin_round(200, SSE)
    first = start() + opens(0, type="text", text="")
    assert answer.feed(first) == first
    for said in ("now", " and now"):
        assert answer.feed(grows(0, type="text_delta", text=said)) == grows(0, type="text_delta", text=said)


@pytest.mark.parametrize("name", ["bash", "st", "stackoverflow_search"])
def test_a_call_of_the_client_leaves_as_it_comes_also_one_that_begins_like_ours(name: str) -> None:
    answer = MessagesResponseWriter(stream=True, wants_usage=True, intercept=True)
    answer.begin_round(200, SSE)
    begun = start() + opens(0, type="tool_use", id="a", name=name, input={})
    more = grows(0, type="input_json_delta", partial_json='{"q":')
    assert answer.feed(begun) == begun
    assert answer.feed(more) == more


def test_s4_a_call_that_has_only_begun_has_no_input_in_a_draft() -> None:
    """Every call begins with `{}`, which would be all of its input; without any at all it still ends with that."""
    answer = MessagesResponseWriter(stream=True, wants_usage=True, intercept=True)
    answer.begin_round(200, SSE)
    inputs = []
    for piece in (
        start() + opens(0, type="tool_use", id="a", name="bash", input={}),
        grows(0, type="input_json_delta", partial_json=""),
        grows(0, type="input_json_delta", partial_json='{"q":1}'),
        closes(0) + opens(1, type="tool_use", id="b", name="bash", input={}),
        closes(1),
    ):
        answer.feed(piece)
        inputs.append([c.arguments for c in answer.partial_response().message.calls])
    assert inputs == [[""], [""], ['{"q":1}'], ['{"q":1}', ""], ['{"q":1}', "{}"]]


# ----------------------------------------------------------------------------------------------------- hidden rounds
@pytest.mark.rows("X-09", "X-11")
def test_x09_x11_a_hidden_round_then_text_is_one_answer() -> None:
    seen = client(play(hidden_round("Start.", of="1"), text_round("Done", " now.", of="2")).out)
    assert seen.texts == ["Start.", "Done now."]
    assert seen.calls == []
    assert (seen.message["id"], seen.message["model"]) == ("msg_1", "model-1")
    assert seen.ends == ["end_turn", "stop"]


@pytest.mark.rows("S4-02")
def test_s4_02_the_ending_tells_the_input_of_the_last_round_and_the_output_of_all() -> None:
    played = play(hidden_round("Start.", of="1"), text_round("Done", of="2"))
    assert client(played.out).usage == {
        "input_tokens": 190,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 10,
        "output_tokens": 20,
        "service_tier": "standard",
    }
    assert [s.usage for s in played.spoken] == [Usage(100, 10, 10), Usage(200, 10, 10)]


def test_h1_of_rounds_with_hidden_calls_alone_nothing_leaves_but_the_beginning() -> None:
    hidden = [hidden_round(of=str(n)) for n in range(1, 9)]
    assert play(*hidden[:1]).out.startswith(start("1") + event("message_delta")[:20])
    out = play(*hidden, text_round("x", of="9")).out
    seen = client(out)
    assert out.startswith(start("1") + event("content_block_start")[:20])
    assert (len(seen.blocks), seen.texts, seen.ends) == (1, ["x"], ["end_turn", "stop"])
    assert seen.usage["output_tokens"] == 90


def test_blank_text_of_a_later_round_waits_for_its_first_word() -> None:
    second = start("2") + text(0, "\n", " ") + call(1, "stack_recall", "{}") + ends("tool_use")
    third = start("3") + text(0, "\n", "B", "C") + ends()
    played = play(hidden_round("A", of="1"), second, third)
    assert "".join(client(played.out).texts).replace("\n", "").replace(" ", "") == "ABC"
    assert len(client(played.out).blocks) == 2
    assert [json.loads(s.message.wire)["content"][0]["type"] for s in played.spoken] == ["text", "tool_use", "text"]


def test_words_that_stand_in_the_beginning_of_a_block_are_shown_once() -> None:
    second = start("2") + opens(0, type="text", text="B") + grows(0, type="text_delta", text="C") + closes(0) + ends()
    played = play(hidden_round("A"), second)
    assert client(played.out).texts == ["A", "BC"]
    assert played.spoken[1].message.text == "BC"


def test_more_of_a_text_keeps_its_spelling_but_for_its_index() -> None:
    said = [grows(0, type="text_delta", text=word).replace(b":0,", b": 0, ") for word in ("B", '"index": 0, ')]
    out = play(hidden_round("A"), start("2") + opens(0, type="text", text="") + b"".join(said) + closes(0) + ends()).out
    assert said[1].replace(b'"index": 0, "delta', b'"index":1, "delta') in out
    assert client(out).texts == ["A", 'B"index": 0, ']


def test_a_call_of_ours_behind_the_ending_is_neither_shown_nor_answered() -> None:
    played = play(text_round("a") + call(1, HIDDEN, "{}"))
    assert played.out == text_round("a")
    assert played.spoken[0].proxy_calls == ()


def test_what_belongs_to_no_block_passes_in_any_round() -> None:
    odd = event("novelty", a=1) + b"data: {oops\n\n" + b": comment\n\n"
    assert odd in play(hidden_round("A", of="1"), odd + text_round("B", of="2")).out


def test_blocks_of_a_servers_tools_are_counted_on_in_a_later_round() -> None:
    played = play(hidden_round("A"), SEARCHED.replace(b"msg_1", b"msg_2"))
    seen = client(played.out)
    assert [b["type"] for b in seen.blocks] == ["text", "server_tool_use", "web_search_tool_result", "text"]
    assert seen.blocks[1]["written"] == '{"query":"a"}'
    assert seen.blocks[2]["content"] == FOUND["content"]
    assert seen.blocks[3]["citations"] == [CITED]
    assert b'"score":1.5' in played.out


@pytest.mark.rows("X-10")
def test_x10_h4_a_mixed_turn_shows_the_clients_calls_alone() -> None:
    played = play(MIXED)
    seen = client(played.out)
    assert b"stack_" not in played.out
    assert b"completed" not in played.out
    assert seen.calls == [("toolu_a", "bash", '{"cmd":"ls"}'), ("toolu_c", "read", '{"path":"a.py"}')]
    assert [b["type"] for b in seen.blocks] == ["thinking", "text", "tool_use", "tool_use"]
    assert seen.ends == ["tool_use", "stop"]
    assert [c.name for c in played.spoken[0].message.calls] == ["bash", "stack_frame_pop", "read"]


@pytest.mark.parametrize("reason", ["max_tokens", "stop_sequence", "model_context_window_exceeded", "novel_reason"])
def test_other_reasons_than_calls_are_told_as_they_are(reason: str) -> None:
    stream = text_round("B", of="2", reason=reason)
    assert client(play(hidden_round("A"), stream).out).ends == [reason, "stop"]


@pytest.mark.parametrize("reason", ["pause_turn", "refusal"])
def test_a_pause_and_a_refusal_end_the_turn_and_no_call_of_ours_is_answered(reason: str) -> None:
    played = play(hidden_round("A").replace(b'"stop_reason":"tool_use"', b'"stop_reason":"%s"' % reason.encode()))
    assert client(played.out).ends == [reason, "stop"]
    assert played.spoken[0].proxy_calls == ()
    assert not played.spoken[0].hidden_truncated


def test_usage_that_comes_in_an_event_of_its_own_is_told_in_the_ending() -> None:
    told = event("message_delta", delta={"stop_reason": None}, usage={"input_tokens": 500, "output_tokens": 3})
    stream = start("2") + text(0, "B") + told + event("message_delta", delta={"stop_reason": "end_turn"})
    seen = client(play(hidden_round("A"), stream + event("message_stop")).out)
    assert seen.ends == ["end_turn", "stop"]
    assert (seen.usage["input_tokens"], seen.usage["output_tokens"]) == (500, 13)


# ------------------------------------------------------------------------------------------------------------- calls
ODD = {
    "whole_inputs_in_the_beginning": [
        opens(0, type="tool_use", id="b", name=OWN, input={"x": 1}) + closes(0),
        opens(1, type="tool_use", id="a", name=HIDDEN, input={"title": "stack_"}) + closes(1),
        opens(2, type="tool_use", id="c", name=OWN, input={"x": 2}) + closes(2),
    ],
    "one_character_at_a_time": [
        call(0, HIDDEN, *'{"title":"stack_"}'),
        call(1, OWN, *'{"x":1}'),
        call(2, OWN, *'{"x":2}'),
    ],
    "interleaved": [
        *(opens(i, type="tool_use", id=f"{i}", name=OWN if i % 2 else HIDDEN, input={}) for i in range(5)),
        *(grows(i, type="input_json_delta", partial_json='{"x":') for i in range(5)),
        *(grows(i, type="input_json_delta", partial_json=f"{(i + 1) // 2}}}") for i in range(5)),
        *(closes(i) for i in range(5)),
    ],
    "dispatcher": [call(0, "stack", '{"op":"tree"}'), call(1, OWN, '{"x":1}'), call(2, OWN, '{"x":2}')],
    "novel_deltas": [
        opens(0, type="tool_use", id="a", name=HIDDEN) + grows(0, type="stack_delta", extra="stack_") + closes(0),
        call(1, OWN, "", '{"x":1}'),
        call(2, OWN, '{"x":2}', ""),
    ],
}


@pytest.mark.parametrize("parts", ODD.values(), ids=ODD)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_s7_odd_calls_leak_nothing_and_client_calls_are_whole(parts: list[bytes], size: int) -> None:
    stream = b"".join([start(), *parts, ends("tool_use")])
    played = play(stream, places=range(0, len(stream), size))
    assert b"stack" not in played.out
    indexes = [int(piece.split(b",")[0]) for piece in played.out.split(b'"content_block_start","index":')[1:]]
    assert indexes == [0, 1]
    assert [c.arguments for c in played.spoken[0].client_calls] == ['{"x":1}', '{"x":2}']
    assert all(c.id for c in played.spoken[0].proxy_calls)


# ---------------------------------------------------------------------------------------------------------- thinking
SECRET = r"Erk\/\u0043+=="


@pytest.mark.rows("X-21")
def test_x21_thinking_of_a_hidden_round_never_leaves_but_goes_back_as_it_came() -> None:
    thought = thinking(0, "hm", " \u2028", signature="SIG").replace(b'"SIG"', b'"%s"' % SECRET.encode())
    first = start() + thought + opens(1, type="redacted_thinking", data="DATA", novel=1) + closes(1)
    played = play(first + call(2, HIDDEN, "{}") + ends("tool_use"), text_round("x", of="2"))
    assert [b["type"] for b in client(played.out).blocks] == ["text"]
    content = json.loads(played.spoken[0].message.wire)["content"]
    assert content[0] == {"type": "thinking", "thinking": "hm \u2028", "signature": json.loads(f'"{SECRET}"')}
    assert content[1] == {"type": "redacted_thinking", "data": "DATA", "novel": 1}
    assert SECRET.encode() in played.spoken[0].message.wire


@pytest.mark.rows("X-21")
def test_x21_a_long_thought_of_a_hidden_round_never_leaves_either() -> None:
    first = start() + thinking(0, *(["x"] * MAX_WAITING_CHUNKS)) + call(1, HIDDEN, "{}") + ends("tool_use")
    assert [b["type"] for b in client(play(first, text_round("x", of="2")).out).blocks] == ["text"]
    whole = first.replace(b"stack_frame_push", b"bash")
    assert play(whole).out == whole


@pytest.mark.rows("X-21")
def test_x21_thinking_behind_words_leaves_as_it_comes() -> None:
    answer = MessagesResponseWriter(stream=True, wants_usage=True, intercept=True)
    answer.begin_round(200, SSE)
    answer.feed(start() + text(0, "a"))
    for piece in (opens(1, type="thinking", thinking=""), grows(1, type="thinking_delta", thinking="hm"), closes(1)):
        assert answer.feed(piece) == piece


@pytest.mark.rows("X-21")
def test_x21_thinking_waits_for_something_visible() -> None:
    answer = MessagesResponseWriter(stream=True, wants_usage=True, intercept=True)
    answer.begin_round(200, SSE)
    answer.feed(start())
    assert answer.feed(thinking(0, "hm")) == b""
    assert answer.feed(opens(1, type="text", text="")) == b""
    said = grows(1, type="text_delta", text="x")
    assert answer.feed(said) == thinking(0, "hm") + opens(1, type="text", text="") + said


def test_thinking_of_a_later_round_is_counted_on() -> None:
    second = start("2") + thinking(0, "so") + call(1, OWN, "{}") + ends("tool_use")
    seen = client(play(hidden_round("A"), second).out)
    assert [b["type"] for b in seen.blocks] == ["text", "thinking", "tool_use"]
    assert (seen.blocks[1]["thinking"], seen.blocks[1]["signature"]) == ("so", "SIG+/=")


# --------------------------------------------------------------------------------------------------------- failures
@pytest.mark.parametrize("places", [(), range(1000)])
def test_words_that_came_with_an_error_have_left_however_the_stream_was_cut(places: range) -> None:
    """So it is the same everywhere whether a round can be repeated."""
    answer = MessagesResponseWriter(stream=True, wants_usage=True, intercept=True)
    answer.begin_round(200, SSE)
    answer.feed(hidden_round("A"))
    answer.end_round(complete=True)
    answer.begin_round(200, SSE)
    stream = start("2") + text(0, "B") + OVERLOADED
    out = b"".join(answer.feed(chunk) for chunk in cut(stream, places))
    assert answer.round_is_visible
    assert out.endswith(OVERLOADED)


def test_s6_blocks_that_are_counted_anew_may_come_in_many_lines() -> None:
    """What is written anew leaves in one line: a client takes nothing behind a line end for data."""
    second = b"".join(
        spread(e) for e in SseDecoder().feed(start("2") + text(0, "B") + call(1, OWN, "{}") + ends("tool_use"))
    )
    played = play(hidden_round("A"), second)
    assert [block["type"] for block in client(played.out).blocks] == ["text", "text", "tool_use"]


def spread(one: SseEvent) -> bytes:
    """The event with every token of its data in a line of its own."""
    said = json.loads(one.data)
    lines = "\n".join(f"data: {line}" for line in json.dumps(said, indent=0).split("\n"))
    return f"event: {said['type']}\n{lines}\n\n".encode()


@pytest.mark.parametrize("ending", [b"", ends().split(event("message_stop"))[0]])
def test_s4_an_error_of_the_last_round_ends_the_answer_without_a_terminator(ending: bytes) -> None:
    played = play(hidden_round("A"), start("2") + text(0, "half") + ending + OVERLOADED)
    assert played.out.endswith(OVERLOADED)
    assert client(played.out).ends == []


def test_s4_a_stream_that_breaks_off_is_not_complete_and_gets_no_ending() -> None:
    played = play(hidden_round("A", of="1"), start("2") + text(0, "half"))
    assert not played.spoken[1].complete
    assert played.spoken[1].message.text == "half"
    assert client(played.out).ends == []


def test_s4_a_stream_of_ours_that_cannot_go_on_says_so_as_the_provider_would() -> None:
    answer = MessagesResponseWriter(stream=True, wants_usage=True, intercept=True)
    answer.begin_round(200, SSE)
    assert answer.closing_error("The provider went away.") == b""
    answer.feed(start())
    told = {"type": "api_error", "message": "The provider went away."}
    assert answer.closing_error("The provider went away.") == event("error", error=told)


@pytest.mark.parametrize("intercept", [True, False])
def test_s4_nothing_is_said_behind_half_an_event(*, intercept: bool) -> None:
    """The words of an error would be read as a part of it. Half an event leaves where bytes pass as they come."""
    answer = MessagesResponseWriter(stream=True, wants_usage=True, intercept=intercept)
    answer.begin_round(200, SSE)
    out = answer.feed(start() + b'event: content_block_start\ndata: {"type"')
    answer.end_round(complete=False)
    assert out.endswith(b'{"type"') is not intercept
    assert bool(answer.closing_error("The provider went away.")) is intercept


# -------------------------------------------------------------------------------------------------------------- laws
@pytest.mark.parametrize("last", [MIXED, SEARCHED])
def test_s1_cut_at_every_byte_rounds_read_the_same(last: bytes) -> None:
    rounds = [hidden_round("Go."), SPOKEN_FIRST, last]
    longest = max(map(len, rounds))
    assert play(*rounds, places=range(longest)).out == play(*rounds).out


BLOCKS = st.lists(
    st.one_of(
        st.builds(lambda t: {"type": "text", "text": t}, st.text(max_size=6)),
        st.builds(lambda t: {"type": "thinking", "thinking": t, "signature": "S" + t}, st.text(max_size=6)),
        st.builds(lambda n: {"type": "tool_use", "name": n}, st.sampled_from([OWN, HIDDEN, "stack"])),
        st.just(FOUND),
    ),
    max_size=5,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(BLOCKS, min_size=1, max_size=3))
@example([[{"type": "text", "text": "0"}], [{"type": "text", "text": " "}], [{"type": "text", "text": "0"}]])
def test_h4_whatever_the_rounds_hold_a_strict_client_reads_one_message(rounds: list[list[dict[str, Any]]]) -> None:
    """A round that goes on has a call of ours."""
    streams = []
    for blocks in rounds[:-1]:
        blocks.append({"type": "tool_use", "name": HIDDEN})
    for number, blocks in enumerate(rounds, 1):
        said = [_block(at, block) for at, block in enumerate(blocks)]
        reason = "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
        streams.append(b"".join([start(str(number)), *said, ends(reason)]))
    seen = client(play(*streams).out)
    shown = [b for blocks in rounds for b in blocks if b.get("name") == OWN or b["type"] == FOUND["type"]]
    assert [b.get("name") for b in seen.blocks if b["type"] not in ("text", "thinking")] == [
        b.get("name") for b in shown
    ]
    told = "".join(b.get("text", "") for blocks in rounds for b in blocks)  # a block of blanks alone is none
    assert "".join("".join(seen.texts).split()) == "".join(told.split())
    assert seen.ends == [reason if seen.calls else "end_turn", "stop"]


def _block(at: int, block: dict[str, Any]) -> bytes:
    if block["type"] == "text":
        return text(at, *block["text"])
    if block["type"] == "thinking":
        return thinking(at, *block["thinking"], signature=block["signature"])
    if block["type"] == "tool_use":
        return call(at, block["name"], "", "{", "}")
    return opens(at, **block) + closes(at)
