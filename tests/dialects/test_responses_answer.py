"""What a client gets of a streamed answer of the responses API (S1, S3, S4, S7, H1, H3..H6, X-09..X-11, X-21), beyond
what holds in every dialect (`test_every_answer.py`)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.dialects import raw_json
from proxy.dialects.responses import response as responses_answer
from proxy.dialects.responses.response import ResponsesResponseWriter
from proxy.dialects.sse import SseDecoder
from tests.dialects.playing import SSE, cut
from tests.dialects.responses_streams import (
    DONE,
    ERROR,
    FAILED,
    MIXED,
    STACK_FREE,
    Event,
    Made,
    call,
    client,
    custom,
    events_of,
    hidden,
    message,
    numbered,
    play,
    request,
    response,
    round_,
    search,
    spoken_thought,
    sse,
    thought,
    usage,
    words,
)


def answerable(item: dict[str, Any]) -> dict[str, Any]:
    """An item as it goes back: a call of ours has no id of its own, for which its reasoning would be demanded."""
    return {k: v for k, v in item.items() if k != "id"} if item.get("name", "").startswith("stack") else item


def first(out: bytes, kind: str) -> Event:
    """The first event of this type."""
    line = next(
        line for line in out.split(b"\n") if line.startswith(b"data: ") and b'"type":"%s"' % kind.encode() in line
    )
    found = json.loads(line[6:])
    assert isinstance(found, dict)
    return found


# -------------------------------------------------------------------------------------------------------- stack-free
def test_text_and_open_reasoning_leave_with_the_chunk_that_brought_them() -> None:
    answer = ResponsesResponseWriter(request(), intercept=True)
    answer.begin_round(200, SSE)
    for event in STACK_FREE["spoken_reasoning"].split(b"\n\n")[:-1]:
        held = b"output_item.added" in event and b'"reasoning"' in event
        left = answer.feed(event + b"\n\n")
        assert held or left.endswith(event + b"\n\n")


@pytest.mark.rows("X-21")
def test_x21_reasoning_that_may_be_bound_waits_for_what_was_made_with_it() -> None:
    answer = ResponsesResponseWriter(request(), intercept=True)
    answer.begin_round(200, SSE)
    events = [event + b"\n\n" for event in round_(thought("Hm."), message("a")).split(b"\n\n")[:-1]]
    begins = next(at for at, event in enumerate(events) if b'"type":"message"' in event)
    assert [answer.feed(event) for event in events[:2]] == events[:2]
    assert [answer.feed(event) for event in events[2:begins]] == [b""] * (begins - 2)
    assert answer.feed(events[begins]) == b"".join(events[2 : begins + 1])


def test_reasoning_in_plain_words_leaves_at_its_end_where_no_delta_told_it() -> None:
    answer = ResponsesResponseWriter(request(), intercept=True)
    answer.begin_round(200, SSE)
    made = spoken_thought("Hm.")
    del made.events[1:-1]
    stream = round_(made, hidden())
    ends = stream.index(b"\n\n", stream.index(b"response.output_item.done")) + 2
    assert answer.feed(stream[:ends]) == stream[:ends]


def test_reasoning_told_in_very_many_pieces_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the bound all of the item leaves."""
    # A lower bound, because no setting names it and as many pieces as the true one takes would be read for seconds.
    monkeypatch.setattr(responses_answer, "MAX_HELD_CHUNKS", 50)
    made = thought(*"x" * 60)
    stream = round_(made, message("a"))
    assert play(stream).out == stream
    answer = ResponsesResponseWriter(request(), intercept=True)
    answer.begin_round(200, SSE)
    left = answer.feed(stream[: stream.index(b"response.reasoning_summary_text.done")])
    assert left.count(b"event: response.reasoning_summary_text.delta") > 50
    assert client(play(round_(made, hidden())).out).items == [made.item]


# ------------------------------------------------------------------------------------------------------ what was said
def test_the_message_is_the_items_as_they_were_produced() -> None:
    spoken = play(MIXED).spoken[0]
    last = json.loads(MIXED.split(b"data: ")[-1])
    assert json.loads(spoken.message.wire) == [answerable(item) for item in last["response"]["output"]]
    assert spoken.message.role == "assistant"
    assert spoken.message.text == "Let me look. \u00e9\U0001f600"
    names = ["bash", "stack_frame_push", "apply_patch", "stack", "read"]
    assert [c.name for c in spoken.message.calls] == names
    assert spoken.message.calls[2].arguments == "*** Begin"
    assert (spoken.finish, spoken.model, spoken.complete) == ("completed", "model-1", True)
    assert spoken.extra["response_id"] == b'"resp_1"'
    assert spoken.usage is not None
    assert (spoken.usage.input, spoken.usage.output, spoken.usage.cached) == (100, 10, 10)


def test_items_keep_their_own_bytes() -> None:
    part = b'{"type":"output_text","text":"\\u0061"}'
    item = b'{ "type":"message", "id":"m", "role":"assistant","content":[' + part + b'],"n":1.50}'
    done = b'data: {"type":"response.output_item.done","output_index":0,"item":' + item + b"}\n\n"
    ends = sse({"type": "response.completed", "response": {"output": [json.loads(item) | {"more": 1}]}})
    assert play(done + ends).spoken[0].message.wire == b"[" + item + b"]"


def test_texts_of_several_messages_are_paragraphs() -> None:
    spoken = play(round_(message("A"), message("B", id_="msg_2"))).spoken[0]
    assert spoken.message.text == "A\n\nB"


TOLD = events_of(thought("Hm."), message("Let me ", "look."), call("bash", '{"a":1}', "a"), hidden("b"), custom())


def _less(names: tuple[str, ...], event: Event) -> Event:
    """The event without these members, its items too."""
    kept = {name: value for name, value in event.items() if name not in names}
    for name in ("item", "response"):
        if name in kept:
            kept[name] = {k: v for k, v in kept[name].items() if k not in names or name == "response"}
    if kept.get("response", {}).get("output"):
        kept["response"]["output"] = [_less(names, item) for item in kept["response"]["output"]]
    return kept


def _final(output: object) -> Event:
    return TOLD[-1] | {"response": TOLD[-1]["response"] | {"output": output}}


WHOLE = [e for e in TOLD if "response" in e or e["type"] == "response.output_item.done"]
OUTPUT = TOLD[-1]["response"]["output"]
FORMS: dict[str, list[Event]] = {
    "no_deltas": [e for e in TOLD if not e["type"].endswith(".delta")],
    "no_parts": [e for e in TOLD if "part" not in e["type"] and "text.done" not in e["type"]],
    "done_items_only": WHOLE,
    "no_final_output": [*TOLD[:-1], _final([])],
    "done_items_without_final_output": [*WHOLE[:-1], _final([])],
    "no_done_items": [e for e in TOLD if e["type"] != "response.output_item.done"],
    "final_only": [TOLD[0], TOLD[-1]],
    "never_announced": [e for e in TOLD if e["type"] != "response.output_item.added"],
    "other_ids_at_the_end": [*TOLD[:-1], _final([item | {"id": f"x_{at}"} for at, item in enumerate(OUTPUT)])],
    "calls_alone_at_the_end": [*TOLD[:-1], _final([_less(("id",), item) for item in OUTPUT[2:]])],
    "no_indexes": [_less(("output_index",), e) for e in TOLD],
    "no_item_ids": [_less(("item_id",), e) for e in TOLD],
    "no_places": [_less(("output_index", "item_id"), e) for e in TOLD],
    "all_at_index_0": [e | {"output_index": 0} if "output_index" in e else e for e in TOLD],
    "no_ids": [_less(("item_id", "id"), e) for e in TOLD],
    "no_ids_all_at_index_0": [
        _less(("item_id", "id"), e) | ({"output_index": 0} if "output_index" in e else {}) for e in TOLD
    ],
    "string_indexes": [
        _less(("item_id", "id"), e) | ({"output_index": str(e["output_index"])} if "output_index" in e else {})
        for e in TOLD
    ],
    "names_late": [_less(("name",), e) if e["type"] == "response.output_item.added" else e for e in TOLD],
    "words_at_the_end_alone": [e for e in TOLD if e.get("output_index") != 1],
}
"""The same answer, told otherwise."""


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("numbers", [True, False])
def test_s7_the_same_answer_told_otherwise_is_the_same_message_and_hides_the_same(name: str, numbers: bool) -> None:
    told = FORMS[name]
    stream = numbered(told) if numbers else b"".join(map(sse, told))
    played = play(stream)
    spoken, whole = played.spoken[0], play(numbered(TOLD)).spoken[0]
    assert spoken.complete
    assert (spoken.message.text, spoken.message.calls) == (whole.message.text, whole.message.calls)
    ids = "id" in json.loads(spoken.message.wire)[0]
    assert spoken.message == whole.message or not ids
    assert b"stack" not in played.out
    assert b"title" not in played.out
    ended = [e["item"] for e in told if e["type"] == "response.output_item.done"]
    assert played.out.count(b"event: response.output_item.done") == len(
        [i for i in ended if i.get("call_id") != "call_b"]
    )
    final = json.loads(played.out.split(b"data: ")[-1])["response"]
    assert [item["type"] for item in final["output"]] == ["reasoning", "message", "function_call", "custom_tool_call"]
    assert play(stream, places=range(len(stream))).out == played.out


def test_a_name_that_may_still_come_is_no_call_of_a_draft() -> None:
    answer = ResponsesResponseWriter(request(), intercept=True)
    answer.begin_round(200, SSE)
    answer.feed(numbered(FORMS["names_late"][:-3]))
    assert [c.name for c in answer.partial_response().message.calls] == ["bash", "stack_frame_push"]
    answer.feed(numbered(events_of(call("", "{}", "z"))[2:4]))
    assert [c.id for c in answer.partial_response().message.calls] == ["call_a", "call_b"]


def test_a_call_announced_twice_as_a_whole_is_one() -> None:
    added = {"type": "response.output_item.added", "output_index": 0, "item": hidden().item}
    spoken = play(numbered([added, added])).spoken[0]
    assert [c.arguments for c in spoken.proxy_calls] == ['{"title":"A"}']


def test_a_call_of_ours_behind_the_end_is_neither_answered_nor_shown() -> None:
    late = [{"output_index": 1, **event} for event in hidden().events]
    played = play(numbered([*events_of(message("A")), *late]))
    assert played.spoken[0].message.calls == ()
    assert b"stack" not in played.out
    assert client(played.out).ends == ["completed"]


def test_s7_what_no_event_tells_as_a_whole_is_put_together() -> None:
    told = [e for e in TOLD if e["type"] != "response.output_item.done"]
    told[-1] = TOLD[-1] | {"response": TOLD[-1]["response"] | {"output": None}}
    message_ = play(numbered(told)).spoken[0].message
    whole = play(numbered(TOLD)).spoken[0].message
    assert (message_.text, message_.calls, message_.identity) == (whole.text, whole.calls, whole.identity)


def test_s7_five_calls_interleaved_are_told_apart() -> None:
    made = [hidden(str(i), f'{{"n":{i}}}') if i % 2 else call("bash", f'{{"n":{i}}}', str(i)) for i in range(5)]
    told: list[Event] = []
    for step in range(max(len(m.events) for m in made)):
        told += [{"output_index": at, **m.events[step]} for at, m in enumerate(made)]
    begins, ends = events_of(*made)[:2], events_of(*made)[-1:]
    played = play(numbered([*begins, *told, *ends]))
    assert client(played.out).calls == [("bash", f'{{"n":{i}}}') for i in (0, 2, 4)]
    assert [c.arguments for c in played.spoken[0].proxy_calls] == ['{"n":1}', '{"n":3}']


def test_s7_a_call_that_never_gets_a_name_is_the_clients() -> None:
    stream = round_(call("", "{}"))
    assert play(stream).out == stream


def test_s7_a_call_of_ours_without_an_id_gets_one() -> None:
    stream = round_(hidden()).replace(b'"call_id":"call_h",', b"")
    played = play(stream)
    assert [c.name for c in played.spoken[0].proxy_calls] == ["stack_frame_push"]
    assert played.spoken[0].proxy_calls[0].id
    assert b"stack" not in played.out


@pytest.mark.parametrize(("written", "text"), [(b'{"title": "A"}', '{"title":"A"}'), (b"null", "")])
def test_arguments_that_are_no_text_are_text_for_the_provider(written: bytes, text: str) -> None:
    stream = round_(hidden("b", "{}")).replace(b'"arguments":"{}"', b'"arguments":' + written)
    spoken = play(stream).spoken[0]
    assert spoken.proxy_calls[0].arguments == text
    assert [item["arguments"] for item in json.loads(spoken.message.wire) if "arguments" in item] == [text]


def test_a_tool_of_the_client_that_begins_like_ours_is_not_held_back() -> None:
    stream = numbered(events_of(call("stackoverflow_search"))[:3])
    answer = ResponsesResponseWriter(request(), intercept=True)
    answer.begin_round(200, SSE)
    assert answer.feed(stream) == stream


def test_a_pair_of_surrogates_cut_between_two_deltas_is_one_character() -> None:
    told = events_of(message("X", "Y"))
    told = [e for e in told if not e["type"].endswith(".done")]
    told[-1]["response"]["output"] = []
    stream = numbered(told).replace(b'"delta":"X"', rb'"delta":"\ud83d"').replace(b'"delta":"Y"', rb'"delta":"\ude00"')
    played = play(stream)
    assert played.out == stream
    assert played.spoken[0].message.text == "\U0001f600"


@pytest.mark.parametrize("call_id", ["call_h", ""])
def test_half_a_surrogate_pair_in_a_call_of_ours_is_mended(call_id: str) -> None:
    stream = round_(hidden(arguments='{"title":"X"}')).replace(b"X", rb"\ud83d")
    said = play(stream.replace(b"call_h", call_id.encode())).spoken[0].message
    (item,) = json.loads(said.wire)
    assert json.loads(raw_json.replace_surrogates(item["arguments"])) == {"title": "\ufffd"}
    assert item["call_id"] == (call_id or said.calls[0].id) != ""


# ------------------------------------------------------------------------------------------------------ hidden rounds
@pytest.mark.rows("X-09", "X-11")
def test_x09_x11_a_hidden_round_then_text_is_one_answer() -> None:
    played = play(round_(message("Start."), hidden()), words("Done", " now.", of=2))
    seen = client(played.out)
    assert seen.text == ["Start.", "Done now."]
    assert seen.ids == {"resp_1"}
    assert seen.models == {"model-1"}
    assert seen.ends == ["completed"]
    assert b"stack_" not in played.out
    assert seen.last is not None
    assert seen.last["created_at"] == 1700000001
    assert seen.last["usage"] == usage(2, 20) | {"output_tokens_details": {"reasoning_tokens": 8}}
    assert seen.last["x_vendor"] == 1.5
    assert seen.kinds.count("response.created") == seen.kinds.count("response.in_progress") == 1
    assert [s.extra["response_id"] for s in played.spoken] == [b'"resp_1"', b'"resp_2"']


def test_before_the_first_hidden_call_every_byte_is_the_providers() -> None:
    first_round = round_(message("Start."), hidden())
    answer = ResponsesResponseWriter(request(), intercept=True)
    answer.begin_round(200, SSE)
    shown = answer.feed(first_round)
    assert first_round.startswith(shown)
    assert shown.endswith(b"\n\n")
    assert b"response.output_item.done" in shown


def test_two_stack_calls_and_two_hidden_rounds_leave_nothing() -> None:
    rounds = [
        round_(thought("a"), hidden("1"), hidden("2")),
        round_(thought("b", id_="rs_2"), hidden("3"), of=2),
        words("Done", of=3),
    ]
    played = play(*rounds)
    seen = client(played.out)
    assert [item["type"] for item in seen.items] == ["message"]
    assert b"rs_" not in played.out
    assert b"SIG" not in played.out
    assert [len(s.proxy_calls) for s in played.spoken] == [2, 1, 0]
    assert [json.loads(s.message.wire)[0]["encrypted_content"] for s in played.spoken[:2]] == ["SIG+/="] * 2
    assert seen.last is not None
    assert (seen.last["usage"]["input_tokens"], seen.last["usage"]["output_tokens"]) == (300, 30)


@pytest.mark.rows("X-10")
def test_x10_h4_a_mixed_turn_shows_the_clients_items_alone() -> None:
    played = play(MIXED)
    seen = client(played.out)
    assert b"stack" not in played.out
    assert [item["type"] for item in seen.items] == [
        "reasoning",
        "message",
        "function_call",
        "custom_tool_call",
        "function_call",
    ]
    assert seen.calls == [("bash", '{"cmd":"ls"}'), ("apply_patch", "*** Begin"), ("read", '{"path":"a.py"}')]
    assert seen.ends == ["completed"]
    assert [c.name for c in played.spoken[0].client_calls] == ["bash", "apply_patch", "read"]


@pytest.mark.rows("X-21")
def test_x21_reasoning_goes_with_what_was_made_with_it() -> None:
    made = [
        thought("a", id_="rs_1"),
        hidden("1"),
        thought("b", id_="rs_2"),
        message("M"),
        thought("c", id_="rs_3"),
        hidden("2"),
    ]
    seen = client(play(round_(*made)).out)
    assert [item["id"] for item in seen.items] == ["rs_1", "rs_2", "msg_1"]


def test_reasoning_announced_with_a_signature_is_bound_however_it_is_told() -> None:
    made = spoken_thought("Hm.")
    signed = {"encrypted_content": "SIG"}
    made.events[0]["item"] |= signed
    made.events[-1]["item"] |= signed
    seen = client(play(round_(made, hidden()), words("x", of=2)).out)
    assert [item["type"] for item in seen.items] == ["message"]


@pytest.mark.rows("X-21")
def test_x21_reasoning_that_the_provider_keeps_under_its_id_is_bound_too() -> None:
    rounds = [round_(thought("Hm.", signed=None), hidden()), round_(thought(signed=None), hidden("2"), of=2)]
    seen = client(play(*rounds, words("x", of=3)).out)
    assert [item["type"] for item in seen.items] == ["message"]


def test_reasoning_at_the_end_of_the_last_round_is_shown() -> None:
    made = [message("B", id_="msg_2"), thought("b")]
    seen = client(play(round_(message("A"), hidden()), round_(*made, of=2)).out)
    assert seen.items[1:] == [m.item for m in made]


def test_words_that_go_on_beside_a_hidden_call_are_counted_on() -> None:
    said, ours = message("a", "b").events, [{"output_index": 1, **event} for event in hidden().events]
    told = [{"output_index": 0, **event} for event in said]
    begins, end = events_of(message("a", "b"))[:2], events_of(message("a", "b"), hidden())[-1]
    seen = client(play(numbered([*begins, *told[:3], *ours, *told[3:], end])).out)
    assert (seen.text, seen.deltas) == (["ab"], {0: "ab"})


def test_open_reasoning_of_a_hidden_round_is_shown() -> None:
    seen = client(play(round_(spoken_thought("Hm."), hidden()), words("x", of=2)).out)
    assert [item["type"] for item in seen.items] == ["reasoning", "message"]
    assert seen.deltas[0] == "Hm."


def test_a_server_side_call_of_a_hidden_round_keeps_its_reasoning() -> None:
    seen = client(play(round_(thought("a"), search(), hidden()), words("x", of=2)).out)
    assert [item["type"] for item in seen.items] == ["reasoning", "web_search_call", "message"]
    assert seen.deltas[1] == ""


def test_a_call_that_the_provider_answers_is_none_of_ours_whatever_its_name() -> None:
    item = {"id": "mcp_1", "type": "mcp_call", "name": "stack_overflow", "arguments": "{}", "server_label": "qa"}
    made = Made(item, [{"type": f"response.output_item.{step}", "item": item} for step in ("added", "done")])
    stream = round_(thought("Hm."), made, message("a"))
    assert play(stream).out == stream
    asked = {**item, "type": "new_call", "call_id": "call_1"}
    made = Made(asked, [event | {"item": asked} for event in made.events])
    assert client(play(round_(made)).out).items == []


def test_blank_text_of_a_later_round_stays_where_it_is() -> None:
    seen = client(play(round_(message("\n"), hidden()), words("\n", "B", of=2)).out)
    assert seen.text == ["\n", "\nB"]
    assert seen.deltas == {0: "\n", 1: "\nB"}


def test_later_rounds_go_on_counting_whatever_the_provider_counts_from() -> None:
    second = [
        {**e, "output_index": e["output_index"] + 3} if "output_index" in e else e
        for e in events_of(message("B", id_="msg_2"), call(), of=2)
    ]
    seen = client(play(round_(message("A"), hidden()), numbered(second)).out)
    assert seen.text == ["A", "B"]
    assert seen.calls == [("bash", '{"cmd":"ls"}')]


def test_what_is_no_event_of_an_item_passes_in_any_round() -> None:
    odd = b": comment\n\n" + b"data: {oops\n\n"
    assert odd in play(round_(message("A"), hidden()), odd + words("B", of=2)).out
    ping = numbered([{"type": "keepalive"}])
    seen = client(play(round_(message("A"), hidden()), ping + words("B", of=2)).out)
    assert "keepalive" in seen.kinds


def test_an_answer_of_hidden_calls_alone_is_completed_and_empty() -> None:
    seen = client(play(round_(hidden())).out)
    assert (seen.items, seen.ends) == ([], ["completed"])


def test_a_terminator_is_kept_once_and_at_the_end() -> None:
    out = play(round_(message("A"), hidden()) + DONE, words("B", of=2) + DONE).out
    assert client(out).ends == ["completed", "done"]
    out = play(round_(message("A"), hidden()) + DONE).out
    assert client(out).ends == ["completed", "done"]


def test_the_last_round_may_end_the_answer_incomplete() -> None:
    seen = client(play(round_(message("A"), hidden()), round_(message("B"), of=2, status="incomplete")).out)
    assert seen.ends == ["incomplete"]
    assert seen.last is not None
    assert seen.last["incomplete_details"] == {"reason": "max_output_tokens"}


def test_line_ends_of_the_provider_stay_in_what_is_rewritten() -> None:
    rounds = [round_(message("A"), hidden()), words("B", of=2)]
    out = play(*(r.replace(b"\n", b"\r\n") for r in rounds)).out
    assert out.replace(b"\r\n", b"\n") == play(*rounds).out
    assert out.count(b"\n") == out.count(b"\r\n")


def test_an_event_written_over_several_lines_is_counted_on_too() -> None:
    second = b'event: x\ndata: {"type":"response.rate_limits",\ndata: "sequence_number":0}\n\n'
    assert (
        client(play(round_(message("A"), hidden()), second + words("B", of=2)).out).kinds.count("response.rate_limits")
        == 1
    )


def test_behind_the_end_of_an_answer_nothing_more_is_said() -> None:
    answer = ResponsesResponseWriter(request(), intercept=True)
    answer.begin_round(200, SSE)
    answer.feed(round_(hidden()))
    assert answer.keep_alive()
    answer.end_round(complete=True)
    answer.begin_round(200, SSE)
    answer.feed(words("B", of=2))
    assert answer.keep_alive() == b""
    assert answer.closing_error("x") == b""


# ------------------------------------------------------------------------------------------------------- as was asked
OURS = {"type": "function", "name": "stack_frame_push", "description": "d", "parameters": {}, "strict": False}
THEIRS = {"type": "function", "name": "bash", "parameters": {}, "strict": True}
INSIDE = {"type": "namespace", "name": "stack", "tools": [OURS, OURS | {"name": "stack"}]}


def test_h6_tools_and_guidance_of_ours_are_not_in_what_the_answer_says_of_its_request() -> None:
    told: dict[str, Any] = {"tools": [THEIRS, OURS, INSIDE], "instructions": "Be brief.\n\nUse the stack."}
    own: dict[str, Any] = {"tools": [THEIRS], "instructions": "Be brief."}
    asked = request(**own)
    rounds = [round_(message("A"), hidden(), **told), round_(message("B"), of=2, tool_choice="none", **told)]
    for out in (play(*rounds, asked=asked).out, play(round_(message("A"), **told), asked=asked).out):
        assert b"stack" not in out
        assert first(out, "response.created")["response"] == response(status="in_progress", **own)
        assert first(out, "response.completed")["response"]["tools"] == [THEIRS]
        assert first(out, "response.completed")["response"]["instructions"] == "Be brief."
        assert first(out, "response.completed")["response"]["tool_choice"] == "auto"


def test_s6_what_the_answer_says_of_its_request_may_come_in_many_lines() -> None:
    """An event that is written anew leaves in one line: a client takes nothing behind a line end for data."""
    stream = round_(message("A"), tools=[THEIRS, OURS])
    spread = b"".join(event.raw.replace(b',"', b',\ndata: "') for event in SseDecoder().feed(stream))
    out = play(spread, asked=request(tools=[THEIRS])).out
    assert first(out, "response.completed")["response"]["tools"] == [THEIRS]
    assert b"stack" not in out


def test_an_answer_goes_on_from_the_one_the_client_named() -> None:
    stream = round_(message("A"), previous_response_id=None)
    told = first(play(stream, asked=request(previous_response_id="resp_0")).out, "response.completed")
    assert told["response"]["previous_response_id"] == "resp_0"
    assert play(stream).out == stream


def test_what_the_answer_says_of_its_request_passes_where_nothing_of_it_is_ours() -> None:
    more: dict[str, Any] = {"tools": [THEIRS | {"description": 'a "stack" of'}], "instructions": "Other words."}
    stream = round_(message("A"), **more)
    assert play(stream, asked=request(instructions="Be brief.")).out == stream
    assert play(stream.replace(b'"tools":[', b'"tools":{"stack":[')).out


# ----------------------------------------------------------------------------------------------------------- failures
def test_a_truncated_call_of_ours_is_dropped_with_the_reasoning_that_made_it() -> None:
    made = [message("A"), thought("a"), hidden(arguments='{"title":"A')]
    played = play(round_(*made, status="incomplete"))
    spoken = played.spoken[0]
    assert spoken.hidden_truncated
    assert spoken.message.calls == ()
    assert [item["type"] for item in json.loads(spoken.message.wire)] == ["message"]
    assert client(played.out).ends == ["incomplete"]
    assert b"rs_" not in played.out


def test_a_call_of_ours_that_was_cut_off_before_its_arguments_is_dropped() -> None:
    spoken = play(numbered(events_of(hidden())[:3])).spoken[0]
    assert spoken.message.calls == ()
    assert spoken.hidden_truncated


def test_h3_invalid_arguments_that_were_not_cut_off_stay_for_the_tool_to_answer() -> None:
    spoken = play(round_(hidden(arguments="{oops"))).spoken[0]
    assert [c.arguments for c in spoken.proxy_calls] == ["{oops"]


@pytest.mark.parametrize("fault", [ERROR, FAILED])
@pytest.mark.parametrize("places", [(), range(2000)], ids=["at once", "in pieces"])
def test_an_error_that_waits_takes_no_number_however_the_stream_was_cut(fault: Event, places: range) -> None:
    """A round of which no more than its beginning has left is asked again: the next event is the next one."""
    answer = ResponsesResponseWriter(request(), intercept=True)
    answer.should_retry = lambda _: True
    answer.begin_round(200, SSE)
    begun = events_of()[:1]
    out = b"".join(answer.feed(chunk) for chunk in cut(numbered([*begun, fault]), places))
    answer.end_round(complete=True)
    answer.retry_round()
    answer.begin_round(200, SSE)
    out += answer.feed(words("Again", of=2))
    answer.end_round(complete=True)
    out += answer.finish()
    assert out.startswith(numbered(begun))
    told = [json.loads(event.data)["sequence_number"] for event in SseDecoder().feed(out)]
    assert told == list(range(len(told)))


@pytest.mark.parametrize("fault", [ERROR, FAILED])
def test_what_was_said_before_an_error_is_kept_and_a_client_is_told_how_it_ended(fault: Event) -> None:
    played = play(numbered([*events_of(message("A"))[:5], fault]))
    assert played.spoken[0].message.text == "A"
    assert client(played.out).ends == ([] if fault is ERROR else ["failed"])


@pytest.mark.parametrize("fault", [ERROR, FAILED])
def test_an_error_of_the_last_round_ends_the_answer_and_nothing_is_made_up(fault: Event) -> None:
    told = numbered([*events_of(message("B"), hidden("2"), of=2)[:-1], fault])
    played = play(round_(message("A"), hidden()), told, places=range(0, len(told), 40))
    seen = client(played.out)
    assert b"stack" not in played.out
    assert seen.text == ["A", "B"]
    assert seen.ids == {"resp_1"}
    assert seen.ends == ([] if fault is ERROR else ["failed"])
    assert seen.kinds[-1] == fault["type"]


@pytest.mark.parametrize("events", range(3, 11))
def test_s4_s3_a_stream_that_breaks_off_is_not_complete_and_gets_no_ending(events: int) -> None:
    told = numbered(events_of(message("half"), call("bash", "{}", "a"), of=2)[:events])
    played = play(round_(message("A"), hidden()), told)
    spoken = played.spoken[1]
    assert not spoken.complete
    assert spoken.message.text == ("half" if events >= 5 else "")
    assert client(played.out).ends == []
    partial = json.loads(spoken.message.wire)
    assert all(item["status"] in ("completed", "incomplete") for item in partial)


def test_s3_a_client_that_leaves_makes_a_whole_round_partial() -> None:
    answer = ResponsesResponseWriter(request(), intercept=True)
    answer.begin_round(200, SSE)
    answer.feed(words("A"))
    assert not answer.end_round(complete=False).complete


def test_s4_reasoning_that_was_cut_off_is_no_part_of_the_message() -> None:
    told = numbered(events_of(thought("Hm."), of=1)[:4])
    spoken = play(told).spoken[0]
    assert json.loads(spoken.message.wire) == []


# --------------------------------------------------------------------------------------------------------------- laws
MADE = st.sampled_from(
    [
        message("Go", " on.", id_="msg_a"),
        message("\n", id_="msg_b"),
        thought("Hm.", id_="rs_a"),
        thought(id_="rs_b"),
        spoken_thought("I see.", id_="rs_c"),
        search("ws_a"),
        call("bash", '{"a": [1, 2]}', "x"),
        custom(),
        hidden("g"),
        hidden("h", "{oops"),
        hidden("i", "", "stack"),
    ]
)
PLACES = st.lists(st.integers(0, 9000), max_size=12)


def _distinct(rounds: list[list[Any]]) -> list[bytes]:
    """The rounds, every item with an id of its own."""
    told = []
    for of, made in enumerate(rounds, 1):
        raw = round_(*made, of=of)
        for at, one in enumerate(made):
            raw = raw.replace(
                b'"' + one.item["id"].encode() + b'"', b'"%s_%d_%d"' % (one.item["id"].encode(), of, at), -1
            )
        told.append(raw)
    return told


ROUNDS = st.lists(st.lists(MADE, max_size=5, unique_by=lambda m: m.item["id"]), min_size=1, max_size=4)


@settings(max_examples=80, deadline=None)
@given(ROUNDS, PLACES)
def test_s1_h1_any_cut_of_any_rounds_is_one_strict_answer_and_the_same_messages(
    rounds: list[list[Any]], places: list[int]
) -> None:
    """Every round but the last calls one of our tools, so it is followed by another."""
    rounds = [[*made, hidden(f"z{at}")] for at, made in enumerate(rounds[:-1])] + rounds[-1:]
    streams = _distinct(rounds)
    whole, other = play(*streams), play(*streams, places=places)
    assert other.out == whole.out
    assert other.spoken == whole.spoken
    assert b"stack" not in whole.out
    seen = client(whole.out)
    assert seen.ends == ["completed"]
    visible = [one.item["type"] for made in rounds for one in made if not _ours(one.item)]
    assert [i["type"] for i in seen.items if i["type"] != "reasoning"] == [t for t in visible if t != "reasoning"]


def _ours(item: dict[str, Any]) -> bool:
    return str(item.get("name", "")).startswith("stack")
