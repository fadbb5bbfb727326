"""What a streamed answer of the messages API is as a message that goes back (H3, H5, S3, X-21)."""

from __future__ import annotations

import json

import pytest

from proxy.core.ledger.ledger import ROUND_SEPARATOR
from proxy.dialects.messages.message import read_message
from proxy.dialects.messages.response import MessagesResponseWriter
from tests.dialects.messages_streams import (
    CITED,
    FOUND,
    HIDDEN,
    MIXED,
    OWN,
    SEARCHED,
    call,
    client,
    closes,
    ends,
    grows,
    hidden_round,
    opens,
    play,
    start,
    text,
    text_round,
    thinking,
)
from tests.dialects.playing import SSE


# ----------------------------------------------------------------------------------------------------------- message
def test_s6_what_comes_behind_the_terminator_changes_no_thought_and_no_word() -> None:
    """A thought that grew would no longer be what was signed, and the provider refuses it."""
    late = grows(0, type="thinking_delta", thinking="late") + grows(1, type="text_delta", text="late")
    made = start() + thinking(0, "so") + text(1, "A") + call(2, HIDDEN, "{}") + ends("tool_use")
    [spoken], [same] = play(made + late).spoken, play(made).spoken
    assert spoken.message == same.message


def test_every_block_goes_back_as_it_was_produced() -> None:
    content = json.loads(play(SEARCHED).spoken[0].message.wire)["content"]
    assert content == [
        {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "a"}},
        FOUND,
        {"type": "text", "text": "Found.", "citations": [CITED]},
    ]


def test_members_and_blocks_we_have_no_word_for_go_back_with_the_message() -> None:
    stream = b"".join(
        [
            start(),
            opens(0, type="compaction", content=None),
            grows(0, type="compaction_delta", content="sum", encrypted_content="ENC"),
            closes(0),
            opens(1, type="novel", big=2**70, inner={"a": [1.5]}) + closes(1),
            opens(2, type="tool_use", id="a", name=OWN, input={}, caller={"type": "direct"}),
            grows(2, type="input_json_delta", partial_json='{ "a" : 1.0 }'),
            closes(2),
            ends("tool_use"),
        ]
    )
    wire = play(stream).spoken[0].message.wire
    assert b'"big":1180591620717411303424' in wire
    assert b'"input":{ "a" : 1.0 }' in wire
    content = json.loads(wire)["content"]
    assert content[0] == {"type": "compaction", "content": "sum", "encrypted_content": "ENC"}
    assert content[2]["caller"] == {"type": "direct"}


def test_a_text_with_citations_gets_more_of_them() -> None:
    more = CITED | {"url": "v"}
    stream = (
        start() + opens(0, type="text", text="a", citations=[CITED]) + grows(0, type="citations_delta", citation=more)
    )
    content = json.loads(play(stream + closes(0) + ends()).spoken[0].message.wire)["content"]
    assert content == [{"type": "text", "text": "a", "citations": [CITED, more]}]


def test_what_a_delta_tells_beside_its_text_does_not_go_back() -> None:
    stream = start() + opens(0, type="thinking", thinking="", signature="S")
    stream += grows(0, type="thinking_delta", thinking="hm", estimated_tokens=1) + closes(0) + ends()
    content = json.loads(play(stream).spoken[0].message.wire)["content"]
    assert content == [{"type": "thinking", "thinking": "hm", "signature": "S"}]


def test_texts_without_words_are_left_out_of_the_message_because_providers_refuse_them() -> None:
    spoken = play(start() + text(0, "a") + text(1, " ") + text(2, "b") + ends()).spoken[0]
    assert json.loads(spoken.message.wire)["content"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


def test_h5_the_message_read_from_its_wire_is_the_message_and_its_text_is_the_clients() -> None:
    """A client echoes the rounds of a turn as one message; its text is that of the rounds, joined."""
    played = play(hidden_round("A", of="1"), MIXED.replace(b"stack_frame_pop", b"edit"))
    for spoken in played.spoken:
        assert read_message(spoken.message.wire) == spoken.message
    echoed = json.dumps(
        {"role": "assistant", "content": [{"type": "text", "text": t} for t in client(played.out).texts]}
    )
    assert read_message(echoed.encode()).text == ROUND_SEPARATOR.join(s.message.text for s in played.spoken)


def test_edits_of_the_context_and_other_news_pass_and_edits_are_noted() -> None:
    edits = {"applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 2}]}
    first = start(input_transformations=[{"type": "thinking_dropped"}])
    second = start("2") + text(0, "B") + ends(context_management=edits, novel=1.50)
    played = play(first + call(0, HIDDEN, "{}") + ends("tool_use"), second)
    assert client(played.out).message["input_transformations"] == [{"type": "thinking_dropped"}]
    assert json.dumps(edits, separators=(",", ":")).encode() in played.out
    assert b'"novel":1.5' in played.out
    assert json.loads(played.spoken[1].extra["applied_edits"]) == edits["applied_edits"]
    assert "applied_edits" not in played.spoken[0].extra
    assert (
        "applied_edits"
        not in play(text_round("a").replace(b'"usage"', b'"context_management":{"applied_edits":[]},"usage"'))
        .spoken[0]
        .extra
    )


def test_a_pair_of_surrogates_cut_between_two_events_is_one_character() -> None:
    halves = [grows(0, type="text_delta", text="X").replace(b"X", half) for half in (rb"\ud83d", rb"\ude00")]
    stream = start() + opens(0, type="text", text="") + b"".join(halves) + closes(0) + ends()
    assert play(stream).out == stream
    assert play(stream).spoken[0].message.text == "\U0001f600"
    seen = client(play(hidden_round(), stream.replace(b"msg_1", b"msg_2")).out)
    assert seen.texts[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le") == "\U0001f600"


@pytest.mark.parametrize(("halves", "read"), [("X", "\ufffd"), ("XY", "\U0001f600")])
def test_half_a_surrogate_pair_in_a_call_of_ours_is_mended(halves: str, read: str) -> None:
    """The two halves come in pieces of their own."""
    stream = start() + call(0, HIDDEN, '{"title":"', *halves, '"}') + ends("tool_use")
    spoken = play(stream.replace(b'"X"', rb'"\ud83d"').replace(b'"Y"', rb'"\ude00"')).spoken[0]
    (block,) = json.loads(spoken.message.wire)["content"]
    assert block["input"] == {"title": read}


def test_an_input_that_is_empty_is_an_empty_object() -> None:
    spoken = play(start() + call(0, HIDDEN, "", "") + ends("tool_use")).spoken[0]
    assert [c.arguments for c in spoken.proxy_calls] == ["{}"]
    assert json.loads(spoken.message.wire)["content"][0]["input"] == {}


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
@pytest.mark.parametrize("written", [":1", ""])
def test_a_truncated_call_of_ours_is_dropped(reason: str, written: str) -> None:
    played = play(start() + text(0, "A") + call(1, HIDDEN, "", written and '{"a"' + written) + ends(reason))
    assert played.spoken[0].hidden_truncated
    assert played.spoken[0].message.calls == ()
    assert client(played.out).ends == [reason, "stop"]


def test_a_whole_call_of_ours_is_kept_though_the_answer_was_cut_behind_it() -> None:
    spoken = play(start() + call(0, HIDDEN, '{"a":1}') + ends("max_tokens")).spoken[0]
    assert [c.arguments for c in spoken.proxy_calls] == ['{"a":1}']


def test_h3_invalid_arguments_stay_for_the_tool_to_answer_and_are_no_invalid_request() -> None:
    spoken = play(start() + call(0, HIDDEN, "{oops") + call(1, "stack_recall", "[1]") + ends("tool_use")).spoken[0]
    assert [c.arguments for c in spoken.proxy_calls] == ["{oops", "[1]"]
    assert [b["input"] for b in json.loads(spoken.message.wire)["content"]] == [{}, {}]


# ---------------------------------------------------------------------------------------------------- what broke off
def test_s3_of_a_round_that_broke_off_only_what_can_be_sent_again_is_kept() -> None:
    answer = MessagesResponseWriter(stream=True, wants_usage=True, intercept=True)
    answer.begin_round(200, SSE)
    answer.feed(start() + text(0, "half") + opens(1, type="tool_use", id="a", name=HIDDEN, input={}))
    answer.feed(grows(1, type="input_json_delta", partial_json='{"a') + opens(2, type="thinking", thinking="hm"))
    spoken = answer.end_round(complete=False)
    assert not spoken.complete
    assert json.loads(spoken.message.wire)["content"] == [{"type": "text", "text": "half"}]
