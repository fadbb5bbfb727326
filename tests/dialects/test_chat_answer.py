"""What a client gets of a streamed chat answer (RELIABILITY S4, S7, S14, H4; X-09..X-11, X-21; S4-07), beyond what
holds in every dialect (`test_every_answer.py`)."""

from __future__ import annotations

import json

import pytest

from proxy.core.ledger import Usage
from proxy.dialects import raw_json
from proxy.dialects.chat.response import ChatResponseWriter
from proxy.dialects.chat.stream import ChatRoundReader
from tests.dialects.chat_streams import (
    DONE,
    MIXED,
    calls,
    client,
    delta,
    hidden_round,
    part,
    play,
    role,
    sse,
    text_round,
    usage,
)
from tests.dialects.playing import SSE, cut


# ------------------------------------------------------------------------------------------------------- stack-free
def test_without_interception_even_the_cuts_are_the_same() -> None:
    pieces = cut(MIXED, [3, 200, 201, 900])
    assert play(MIXED, intercept=False, places=[3, 200, 201, 900]).pieces == [*pieces, b""]


@pytest.mark.rows("S4-07")
def test_s4_07_usage_that_only_we_asked_for_is_left_out_and_nothing_else() -> None:
    stream = text_round("a", "b")
    assert play(stream, wants_usage=False).out == stream.replace(usage(100, 10), b"")


@pytest.mark.rows("S4-07")
def test_s4_07_usage_told_with_the_ending_is_taken_out_of_it() -> None:
    told = {"prompt_tokens": 3, "completion_tokens": 1}
    out = play(role() + delta(finish="stop", usage=told) + DONE, wants_usage=False).out
    assert client(out).ends == ["stop", "done"]


@pytest.mark.rows("S4-02")
def test_s4_02_usage_told_with_the_ending_stays_there_behind_a_hidden_round() -> None:
    told = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    out = play(
        hidden_round(of="1"), role("2") + delta({"content": "x"}, of="2") + delta(finish="stop", usage=told) + DONE
    ).out
    assert client(out).ends == ["stop", "usage", "done"]
    assert b'"usage":{"prompt_tokens":3,"completion_tokens":11,"total_tokens":14}' in out


@pytest.mark.rows("S4-60")
@pytest.mark.parametrize("wants_usage", [False, True])
def test_s4_60_the_timings_of_llama_cpp_count_where_no_usage_is_told(wants_usage: bool) -> None:
    timings = {"cache_n": 60, "prompt_n": 40, "predicted_n": 9}
    ending = sse(
        {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "timings": timings}
    )
    stream = role() + delta({"content": "x"}) + ending + DONE

    without = play(stream, wants_usage=wants_usage)
    beside = play(role() + delta({"content": "x"}) + ending + usage(7, 2) + DONE)

    assert without.out == stream
    assert [response.usage for response in without.spoken] == [Usage(100, 9, 60)]
    assert [response.usage for response in beside.spoken] == [Usage(7, 2)]


def test_text_leaves_with_the_chunk_that_brought_it() -> None:
    answer = ChatResponseWriter(stream=True, wants_usage=True, intercept=True)
    answer.begin_round(200, SSE)
    assert answer.feed(role()) == role()
    assert answer.feed(delta({"content": "now"})) == delta({"content": "now"})


# ----------------------------------------------------------------------------------------------------- hidden rounds
@pytest.mark.rows("X-09", "X-11")
def test_x09_x11_a_hidden_round_then_text_is_one_answer() -> None:
    seen = client(play(hidden_round("Start.", of="1"), text_round("Done", " now.", of="2")).out)
    assert seen.text == "Start.\n\nDone now."
    assert seen.calls == {}
    assert seen.ids == {"chatcmpl-1"}
    assert seen.models == {"model-1"}
    assert seen.ends == ["stop", "usage", "done"]
    assert seen.usages[0] == {"prompt_tokens": 200, "completion_tokens": 20, "total_tokens": 220}


def test_a_hidden_round_without_text_puts_nothing_before_the_next() -> None:
    assert client(play(hidden_round(of="1"), text_round("Done", of="2")).out).text == "Done"


def test_blank_text_of_a_later_round_joins_nothing() -> None:
    rounds = [hidden_round("A", of="1"), hidden_round("\n", " ", of="2"), text_round("\n", "B", of="3")]
    assert client(play(*rounds).out).text == "A\n\n\nB"


def test_the_second_hidden_round_opens_nothing_again() -> None:
    out = play(hidden_round(of="1"), hidden_round(of="2"), text_round("x", of="3"), wants_usage=False).out
    assert out.count(b'"role"') == 1
    assert client(out).ends == ["stop", "done"]


def test_what_is_no_chunk_passes_in_any_round() -> None:
    odd = b'data: {"type":"ping"}\n\n' + b"data: {oops\n\n" + b": comment\n\n"
    assert odd in play(hidden_round("A", of="1"), odd + text_round("B", of="2")).out


def test_later_rounds_count_client_calls_from_0() -> None:
    second = role("2") + calls(part(4, "bash", "{}", "c"), of="2") + delta(finish="tool_calls", of="2") + DONE
    seen = client(play(hidden_round(of="1"), second).out)
    assert seen.calls == {0: {"id": "c", "name": "bash", "arguments": "{}"}}
    assert seen.finishes == ["tool_calls"]


@pytest.mark.rows("X-10")
def test_x10_h4_a_mixed_turn_shows_the_clients_calls_alone() -> None:
    played = play(MIXED)
    seen = client(played.out)
    assert b"stack_" not in played.out
    assert b"completed" not in played.out
    assert seen.calls == {
        0: {"id": "call_a", "name": "bash", "arguments": '{"cmd":"ls"}'},
        1: {"id": "call_c", "name": "read", "arguments": '{"path":"a.py"}'},
    }
    assert seen.ends == ["tool_calls", "usage", "done"]
    assert [c.name for c in played.spoken[0].message.calls] == ["bash", "stack_frame_pop", "read"]


def test_the_ending_of_a_hidden_round_names_no_calls_to_a_client_that_saw_none() -> None:
    assert client(play(hidden_round("A")).out).ends == ["stop", "usage", "done"]


def test_a_call_of_ours_in_the_opening_chunk_leaves_the_opening() -> None:
    out = play(calls(part(0, "stack", '{"op":"tree"}', "c"), role="assistant") + delta(finish="tool_calls") + DONE).out
    assert b'"delta":{"role":"assistant"}' in out
    assert b"stack" not in out


@pytest.mark.rows("X-11")
def test_x11_token_probabilities_of_a_hidden_call_do_not_leave() -> None:
    said = {"role": "assistant", "content": "a", "tool_calls": [part(0, "stack_recall", "{}", "c")]}
    choice = {"index": 0, "delta": said, "logprobs": {"content": [{"token": "stack_"}]}, "finish_reason": "tool_calls"}
    out = play(sse({"id": "1", "model": "m", "created": 1, "choices": [choice]}) + DONE).out
    assert b"stack_" not in out
    assert client(out).text == "a"
    assert client(out).ends == ["stop", "done"]


# ------------------------------------------------------------------------------------------------------- odd deltas
HIDDEN, OWN = "stack_frame_push", "bash"
ODD = {
    "whole_calls_without_index": [
        calls(part(None, HIDDEN, "{}", "a")),
        calls(part(None, OWN, '{"x":1}', "b")),
        calls(part(None, OWN, '{"x":2}', "c")),
    ],
    "whole_calls_without_index_or_id": [
        calls(part(None, HIDDEN, '{"t":1}')),
        calls(part(None, OWN, '{"x":1}')),
        calls(part(None, OWN, '{"x":2}')),
    ],
    "all_at_index_0": [
        calls(part(0, OWN, '{"x":1}', "b")),
        calls(part(0, HIDDEN, "{}", "a")),
        calls(part(0, OWN, '{"x":2}', "c")),
    ],
    "starting_at_3": [
        calls(part(3, HIDDEN, "", "a"), part(4, OWN, "", "b")),
        calls(part(3, arguments="{}"), part(4, arguments='{"x":1}')),
        calls(part(5, OWN, '{"x":2}', "c")),
    ],
    "string_index": [
        calls(part("0", HIDDEN, "", "a")),
        calls(part("0", arguments="{}")),
        calls(part("1", OWN, '{"x":1}', "b")),
        calls(part("2", OWN, '{"x":2}', "c")),
    ],
    "id_and_name_in_every_part": [
        calls(part(0, HIDDEN, "", "a")),
        calls(part(0, HIDDEN, "{", "a")),
        calls(part(0, HIDDEN, "}", "a")),
        calls(part(1, OWN, '{"x":1}', "b")),
        calls(part(2, OWN, "", "c")),
        calls(part(2, arguments='{"x":2}', id_="c")),
    ],
    "name_split": [
        calls(part(0, "sta", "", "a")),
        calls(part(0, "ck_frame")),
        calls(part(0, "_push")),
        calls(part(0, arguments="{}")),
        calls(part(1, OWN, '{"x":1}', "b")),
        calls(part(2, OWN, '{"x":2}', "c")),
    ],
    "name_behind_the_arguments": [
        calls(part(0, None, "{}", "a")),
        calls(part(1, OWN, '{"x":1}', "b")),
        calls(part(0, HIDDEN)),
        calls(part(2, OWN, '{"x":2}', "c")),
    ],
    "null_members": [
        calls({"index": 0, "id": "a", "type": None, "function": {"name": HIDDEN, "arguments": None}}),
        calls({"index": 1, "id": "b", "function": {"name": OWN, "arguments": '{"x":1}'}}),
        calls({"index": 1, "id": None, "function": {"name": None, "arguments": None}}),
        calls({"index": 2, "id": "c", "function": {"name": OWN, "arguments": '{"x":2}'}}),
        calls({"index": 0, "function": None}),
    ],
    "five_interleaved": [
        calls(*(part(i, HIDDEN if i % 2 == 0 else OWN, "", f"{i}") for i in range(5))),
        calls(*(part(i, arguments='{"x":') for i in range(5))),
        calls(*(part(i, arguments=f"{(i + 1) // 2}}}") for i in range(5))),
    ],
    "dispatcher": [
        calls(part(0, "stack", "", "a")),
        calls(part(0, arguments='{"op":"tree"}')),
        calls(part(1, OWN, '{"x":1}', "b")),
        calls(part(2, OWN, '{"x":2}', "c")),
    ],
}


@pytest.mark.parametrize("parts", ODD.values(), ids=ODD)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_s7_odd_deltas_leak_nothing_and_client_calls_are_whole(parts: list[bytes], size: int) -> None:
    stream = b"".join([role(), *parts, delta(finish="tool_calls"), DONE])
    played = play(stream, places=range(0, len(stream), size))
    assert b"stack" not in played.out
    seen = client(played.out)
    assert [c["arguments"] for _, c in sorted(seen.calls.items())] == ['{"x":1}', '{"x":2}']
    assert {c["name"] for c in seen.calls.values()} == {OWN}
    assert seen.ends == ["tool_calls", "done"]
    spoken = played.spoken[0]
    assert [c.arguments for c in spoken.client_calls] == ['{"x":1}', '{"x":2}']
    assert all(c.id for c in spoken.proxy_calls)


@pytest.mark.parametrize("parts", [ODD["starting_at_3"], ODD["five_interleaved"], ODD["name_split"]])
def test_s7_client_calls_behind_hidden_ones_are_counted_from_0(parts: list[bytes]) -> None:
    assert sorted(client(play(b"".join([role(), *parts, DONE])).out).calls) == [0, 1]


def test_s7_a_call_that_never_gets_a_name_is_the_clients() -> None:
    stream = role() + calls(part(0, None, "{}", "a")) + delta(finish="tool_calls") + DONE
    assert play(stream).out == stream


def test_a_tool_of_the_client_that_begins_like_ours_is_not_held_back() -> None:
    stream = role() + calls(part(0, "stackoverflow_search", "", "a"))
    answer = ChatResponseWriter(stream=True, wants_usage=True, intercept=True)
    answer.begin_round(200, SSE)
    assert answer.feed(stream) == stream


# -------------------------------------------------------------------------------------------------------- reasoning
SIGNED = {"reasoning_details": [{"type": "reasoning.text", "text": "", "signature": "SIG", "index": 0}]}


@pytest.mark.rows("X-21")
def test_x21_signed_reasoning_of_a_hidden_round_never_leaves_but_is_kept() -> None:
    first = hidden_round().replace(role(), role() + delta({"reasoning_content": "open"}) + delta(SIGNED))
    played = play(first, text_round("x", of="2"))
    assert b"SIG" not in played.out
    assert client(played.out).reasoning == "open"
    assert json.loads(played.spoken[0].message.wire)["reasoning_details"] == SIGNED["reasoning_details"]


@pytest.mark.rows("X-21")
def test_x21_signed_reasoning_waits_for_something_visible_and_readable_does_not() -> None:
    answer = ChatResponseWriter(stream=True, wants_usage=True, intercept=True)
    answer.begin_round(200, SSE)
    answer.feed(role())
    assert answer.feed(delta({"reasoning_content": "hm"})) == delta({"reasoning_content": "hm"})
    assert answer.feed(delta(SIGNED)) == b""
    assert answer.feed(delta({"content": "x"})) == delta(SIGNED) + delta({"content": "x"})


@pytest.mark.rows("X-21")
def test_x21_unknown_members_of_deltas_and_calls_go_back_with_the_message() -> None:
    google = {"google": {"thought_signature": "SIG"}}
    stream = b"".join(
        [
            delta({"role": "assistant", "content": None, "reasoning_content": "because "}),
            delta({"reasoning_content": "of this"}),
            calls(part(0, HIDDEN, "", "a") | {"extra_content": google}),
            calls(part(0, arguments="{}")),
            delta(finish="tool_calls"),
            DONE,
        ]
    )
    assert json.loads(play(stream).spoken[0].message.wire) == {
        "role": "assistant",
        "content": None,
        "reasoning_content": "because of this",
        "tool_calls": [
            {
                "id": "a",
                "type": "function",
                "function": {"name": HIDDEN, "arguments": "{}"},
                "extra_content": google,
            }
        ],
    }


THINKS = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}


@pytest.mark.rows("X-21")
def test_x21_what_is_thought_inside_the_content_is_reasoning_and_no_text() -> None:
    """As Mistral's reasoning models stream it."""
    first = hidden_round("A").replace(role(), role() + delta({"content": [THINKS]}))
    second = role("2") + delta({"content": [THINKS]}, of="2") + delta({"content": "B"}, of="2")
    played = play(first, second + delta(finish="stop", of="2") + DONE)
    assert played.out.count(json.dumps([THINKS], separators=(",", ":")).encode()) == 2
    assert client(played.out.replace(b"[" + sse(THINKS)[6:-2] + b"]", b"null")).text == "A\n\nB"
    assert [spoken.message.text for spoken in played.spoken] == ["A", "B"]
    assert json.loads(played.spoken[0].message.wire)["content"] == [THINKS, {"type": "text", "text": "A"}]


def test_words_in_parts_keep_their_parts_in_a_later_round() -> None:
    parts = [{"type": "text", "text": "B"}, {"type": "reference", "reference_ids": [1]}]
    second = role("2") + delta({"content": parts}, of="2") + delta(finish="stop", of="2") + DONE
    out = play(hidden_round("A"), second).out
    assert sse([{"type": "text", "text": "\n\n"}, *parts])[6:-2] in out


def test_a_pair_of_surrogates_cut_between_two_chunks_is_one_character() -> None:
    halves = [delta({"content": "X"}).replace(b"X", half) for half in (rb"\ud83d", rb"\ude00")]
    stream = role() + b"".join(halves) + delta(finish="stop") + DONE
    assert play(stream).out == stream
    assert play(stream).spoken[0].message.text == "\U0001f600"
    assert client(play(hidden_round(), stream).out).text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


@pytest.mark.parametrize(("halves", "read"), [("X", "\ufffd"), ("XY", "\U0001f600")])
@pytest.mark.parametrize("id_", ["call_1", ""])
def test_half_a_surrogate_pair_in_a_call_of_ours_is_mended(halves: str, read: str, id_: str) -> None:
    """The two halves come in pieces of their own; a call without an id gets one."""
    stream = role() + calls(part(0, HIDDEN, "", id_))
    stream += b"".join(calls(part(0, arguments=piece)) for piece in ('{"title":"', *halves, '"}'))
    stream = stream.replace(b'"X"', rb'"\ud83d"').replace(b'"Y"', rb'"\ude00"')
    said = play(stream + delta(finish="tool_calls") + DONE).spoken[0].message
    (call,) = json.loads(said.wire)["tool_calls"]
    assert json.loads(raw_json.replace_surrogates(call["function"]["arguments"])) == {"title": read}
    assert call["id"] == (id_ or said.calls[0].id) != ""


# --------------------------------------------------------------------------------------------------------- failures
def test_a_truncated_call_of_ours_is_dropped() -> None:
    stream = hidden_round("A").replace(b'"tool_calls","', b'"length","').replace(b':\\"A\\"}', b':\\"A')
    stream = stream.replace(b'"finish_reason":"tool_calls"', b'"finish_reason":"length"')
    played = play(stream)
    assert played.spoken[0].hidden_truncated
    assert played.spoken[0].message.calls == ()
    assert client(played.out).finishes == ["length"]


def test_h3_invalid_arguments_that_were_not_cut_off_stay_for_the_tool_to_answer() -> None:
    spoken = play(hidden_round(arguments="{oops")).spoken[0]
    assert [c.arguments for c in spoken.proxy_calls] == ["{oops"]


def test_an_error_of_the_last_round_ends_the_answer_without_a_terminator() -> None:
    error = sse({"id": "x", "model": "m", "choices": [], "error": {"message": "overloaded"}})
    played = play(hidden_round("A"), error)
    assert played.out.endswith(error)
    assert client(played.out).ends == []


def test_s4_a_stream_that_breaks_off_is_not_complete_and_gets_no_ending() -> None:
    played = play(hidden_round("A", of="1"), role("2") + delta({"content": "half"}, of="2"))
    assert not played.spoken[1].complete
    assert played.spoken[1].message.text == "half"
    assert client(played.out).ends == []


def test_s14_several_choices_pass_untouched() -> None:
    two = [{"index": i, "delta": {"role": "assistant", "content": f"{i}"}, "finish_reason": None} for i in (0, 1)]
    stream = sse({"id": "1", "choices": two}) + sse({"id": "1", "choices": two[1:]}) + delta(finish="stop") + DONE
    assert play(stream).out == stream


def test_a_legacy_function_call_of_ours_is_hidden_and_the_clients_is_not() -> None:
    stream = role() + delta({"function_call": {"name": "bash", "arguments": "{"}})
    stream += delta({"function_call": {"arguments": "}"}}) + delta(finish="function_call") + DONE
    played = play(stream)
    assert played.out == stream
    assert [(c.id, c.name, c.arguments) for c in played.spoken[0].message.calls] == [("", "bash", "{}")]
    assert b"stack_" not in play(stream.replace(b"bash", b"stack_recall")).out


# -------------------------------------------------------------------------------------------------------- one reading
NO_PLAIN_TEXT = (
    b'{"choices":[{"index":0,"delta":{"content":"b"}}],"usage":{"prompt_tokens":3}}',
    b'{"choices":[{"index":0,"delta":{"content":"b"}}],"usage":{}}',
    b'{"choices":[{"index":0,"delta":{"content":"b"}}],"error":{"message":"no"}}',
    b'{"choices":[{"index":1,"delta":{"content":"b"}}]}',
    b'{"choices":[{"index":null,"delta":{"content":"b"}}]}',
    b'{"choices":[{"delta":{"content":"b"}},{"index":1,"delta":{"content":"c"}}]}',
    b'{"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}',
    b'{"choices":[{"delta":{"content":"b"},"finish_reason":""}]}',
    b'{"choices":[{"delta":{"content":"b","reasoning_content":"r"}}]}',
    b'{"choices":[{"delta":{"reasoning_content":"r"}}]}',
    b'{"choices":[{"delta":{"content":null}}]}',
    b'{"choices":[{"delta":{"content":[{"type":"text","text":"b"}]}}]}',
    b'{"choices":[{"delta":{"content":"\\ud83d"}}]}',
    b'{"choices":[{"message":{"role":"assistant","content":"b"}}]}',
    b'{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"bash","arguments":"{}"}}]}}]}',
    b'{"choices":[]}',
    b'{"choices":[{"delta":{"content":"b"}}],"choices":[]}',
    b"no chunk",
    b"",
)


@pytest.mark.parametrize("odd", NO_PLAIN_TEXT, ids=range(len(NO_PLAIN_TEXT)))
def test_a_piece_of_a_text_is_told_from_what_only_looks_like_one(odd: bytes) -> None:
    """What is expected to be more text, as nearly every chunk is, is read no other way than without expecting it."""
    text = b'{"model":"m","choices":[{"index":0,"delta":{"content":"a"}}]}'
    expecting, careful = ChatRoundReader(), ChatRoundReader()
    for data in (text, text, odd, text, text, odd, text, b'{"choices":[{"delta":{},"finish_reason":"length"}]}'):
        if not expecting.take_simple_delta(data):
            expecting.read(data)
        careful.read(data)
    assert expecting.model_response(complete=True) == careful.model_response(complete=True)
    assert (expecting.failed, expecting.finish_reason, expecting.usage) == (
        careful.failed,
        careful.finish_reason,
        careful.usage,
    )
