"""The shapes of events and calls, by value, and cuts of the stream over a socket (S1, S6, S7)."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from llm_test_provider import EVERY_BYTE, Cut, ScriptedCall, ScriptedProvider, answers, calls, says
from llm_test_provider.apis.chat_calls import FORMS as CALL_FORMS
from llm_test_provider.apis.chat_calls import call_deltas
from llm_test_provider.apis.chat_sse import DONE, events_of
from llm_test_provider.apis.chat_sse import FORMS as EVENT_FORMS
from llm_test_provider.delivery import pieces

FINISH = b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
PAYLOADS = [
    b'{"choices":[{"index":0,"delta":{"content":"caf\xc3\xa9"},"finish_reason":null}]}',
    FINISH,
    DONE,
]
CALLS = (ScriptedCall("read_file", {"path": "a"}, "c1"), ScriptedCall("shell", {"command": "ls"}, "c2"))


# --------------------------------------------------------------------------------------------------------------- events
@pytest.mark.parametrize(
    ("form", "written"),
    [
        ("cr", b"data: [DONE]\r\r"),
        ("crlf", b"data: [DONE]\r\n\r\n"),
        ("no_space", b"data:[DONE]\n\n"),
        ("comments", b": still here\ndata: [DONE]\n\n"),
        ("event_fields", b"event: message\nid: 2\nretry: 3000\ndata: [DONE]\n\n"),
        ("no_last_blank_line", b"data: [DONE]"),
        ("no_done", b"data: " + FINISH + b"\n\n"),
        ("data_after_done", b"data: " + PAYLOADS[0] + b"\n\n"),
    ],
)
def test_the_last_event_is_written_as_its_form_says(form: str, written: bytes) -> None:
    """S6"""
    assert events_of(PAYLOADS, [form])[-1] == written


def test_a_byte_order_mark_stands_before_the_first_event_only() -> None:
    """S6"""
    assert b"".join(events_of(PAYLOADS, ["byte_order_mark"])).count(b"\xef\xbb\xbf") == 1
    assert events_of(PAYLOADS, ["byte_order_mark"])[0].startswith(b"\xef\xbb\xbfdata: ")


def test_json_spread_over_data_lines_joins_to_the_same_json() -> None:
    """S6"""
    first = events_of(PAYLOADS, ["many_data_lines"])[0]

    lines = [line.removeprefix(b"data: ") for line in first.splitlines() if line]
    assert len(lines) > 3
    assert json.loads(b"\n".join(lines)) == json.loads(PAYLOADS[0])


def test_two_finish_reasons_and_invalid_utf8_and_a_long_line() -> None:
    """S6"""
    assert events_of(PAYLOADS, ["two_finish_reasons"]).count(b"data: " + FINISH + b"\n\n") == 2
    assert b'"content":"\xff\xfecaf' in events_of(PAYLOADS, ["invalid_utf8"])[0]
    assert len(events_of(PAYLOADS, ["long_line"])[0]) > 10 * 1024 * 1024


def test_forms_of_events_combine() -> None:
    assert events_of(PAYLOADS, ["crlf", "no_space", "no_done"])[-1] == b"data:" + FINISH + b"\r\n\r\n"


@pytest.mark.parametrize("form", sorted(EVENT_FORMS))
def test_every_form_of_events_reaches_the_client(
    provider: ScriptedProvider, ask: Callable[..., tuple[int, dict[str, str], bytes]], form: str
) -> None:
    """S6"""
    words = "caf\N{LATIN SMALL LETTER E WITH ACUTE} and more"
    plain = calls("look", at=words) if "calls" in form else says(words)
    provider.will(plain, plain.but(events=(form,)))

    as_usual, oddly = (ask(provider, stream=True)[2] for _ in range(2))

    assert as_usual.replace(b"scripted-1", b"scripted-2").replace(b'"answer":1', b'"answer":2') != oddly


# ---------------------------------------------------------------------------------------------------------------- calls
def put_together(deltas: list[list[dict[str, Any]]], key: str) -> dict[Any, str]:
    """Names or arguments by index, as a careful client joins them."""
    joined: dict[Any, str] = {}
    for delta in deltas:
        for part in delta:
            joined[part["index"]] = joined.get(part["index"], "") + (part["function"].get(key) or "")
    return joined


@pytest.mark.parametrize(
    "form",
    [
        "arguments_null",
        "arguments_absent",
        "one_character",
        "interleaved",
        "whole_call",
        "calls_together",
        "name_late",
        "name_split",
        "id_in_every_chunk",
    ],
)
def test_calls_join_to_the_same_in_every_order_and_size(form: str) -> None:
    """S7"""
    deltas = call_deltas(CALLS, [form], 4)

    assert put_together(deltas, "name") == {0: "read_file", 1: "shell"}
    assert put_together(deltas, "arguments") == {0: '{"path": "a"}', 1: '{"command": "ls"}'}


@pytest.mark.parametrize(
    ("form", "indexes"),
    [("index_null", {None}), ("index_same", {0}), ("index_from_3", {3, 4}), ("index_string", {"0", "1"})],
)
def test_the_index_of_a_call_is_what_the_form_says(form: str, indexes: set[Any]) -> None:
    """S7"""
    assert {part["index"] for delta in call_deltas(CALLS, [form], 4) for part in delta} == indexes


def test_the_index_may_be_missing() -> None:
    """S7"""
    assert all("index" not in part for delta in call_deltas(CALLS, ["index_missing"], 4) for part in delta)


def test_the_id_stands_in_the_first_chunk_or_in_every_chunk() -> None:
    """S7"""
    assert [part.get("id") for (part,) in call_deltas(CALLS[:1], [], 9)] == ["c1", None, None]
    assert [part.get("id") for (part,) in call_deltas(CALLS[:1], ["id_in_every_chunk"], 9)] == ["c1", "c1", "c1"]


@pytest.mark.parametrize(
    ("form", "function"),
    [
        ((), {"name": "f", "arguments": ""}),
        (("arguments_null",), {"name": "f", "arguments": None}),
        (("arguments_absent",), {"name": "f"}),
    ],
)
def test_a_call_without_arguments_says_nothing_more(form: tuple[str, ...], function: dict[str, Any]) -> None:
    """S7"""
    for order in ("name_in_every_chunk", "whole_call", "calls_together"):
        ((part,),) = call_deltas((ScriptedCall("f", id="c"),), (*form, order), 4)
        assert part["function"] == function


def test_interleaved_calls_take_turns() -> None:
    """S7"""
    indexes = [part["index"] for (part,) in call_deltas(CALLS, ["interleaved"], 5)]

    assert indexes[:4] == [0, 1, 0, 1]


def test_broken_arguments_are_sent_as_they_stand() -> None:
    deltas = call_deltas((ScriptedCall("f", '{"a": ', "c"),), [], 100)

    assert put_together(deltas, "arguments") == {0: '{"a": '}


@pytest.mark.parametrize("form", sorted(CALL_FORMS))
def test_every_form_of_calls_reaches_the_client(
    provider: ScriptedProvider,
    ask: Callable[..., tuple[int, dict[str, str], bytes]],
    chunks: Callable[[bytes], list[dict[str, Any]]],
    form: str,
) -> None:
    """S7"""
    provider.will(answers(calls=CALLS, call_forms=(form,)))

    read = chunks(ask(provider, stream=True)[2])

    sent = [
        chunk["choices"][0]["delta"]["tool_calls"] for chunk in read if chunk["choices"][0]["delta"].get("tool_calls")
    ]
    assert sent == call_deltas(CALLS, [form], 12)


# ----------------------------------------------------------------------------------------------------------------- cuts
@pytest.mark.parametrize("cut", [Cut(), EVERY_BYTE, Cut(7), Cut(40, seed=1), Cut(40, seed=2)])
def test_a_cut_changes_no_byte(cut: Cut) -> None:
    """S1"""
    events = events_of(PAYLOADS, ["crlf"])

    assert b"".join(pieces(events, cut)) == b"".join(events)


def test_seeded_cuts_are_the_same_again_and_others_for_another_seed() -> None:
    """S1"""
    events = events_of(PAYLOADS, [])

    assert list(pieces(events, Cut(9, seed=1))) == list(pieces(events, Cut(9, seed=1)))
    assert list(pieces(events, Cut(9, seed=1))) != list(pieces(events, Cut(9, seed=2)))


def test_a_cut_reaches_the_socket_as_one_chunk_for_each_piece(
    provider: ScriptedProvider,
    exchange: Callable[..., tuple[bytes, str]],
    chat_request: Callable[..., bytes],
) -> None:
    """S1"""
    provider.will(says("\N{SNOWMAN}" * 9, cut=EVERY_BYTE))

    heard, _ = exchange(provider, chat_request(headers="Connection: close\r\n"))

    body = heard.partition(b"\r\n\r\n")[2]
    assert body.startswith(b"1\r\nd\r\n1\r\na\r\n")
    assert "\N{SNOWMAN}" in body.removesuffix(b"0\r\n\r\n").replace(b"\r\n", b"")[1::2].decode()
