"""The longest text of a message, found and exchanged as it is written, in whatever shape a dialect has it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.dialects.body import NOTHING, decode_text, holds_text_alone, longest_text, replace_text
from proxy.dialects.chat import message as chat_message

LONG = 'größe and "more"\n' * 3
WRITTEN = json.dumps(LONG).encode()
SHAPES = {
    "text": b'{"role" : "user","content": %s , "odd": 1.0e0}',
    "parts": b'{"role":"user","content":[{"type":"image","url":"x"},{"text" :%s,"odd":{}},{"text":"a"}]}',
    "blocks": b'[{"type":"text","text":"a"}, {"type":"text","text":%s}]',
    "string": b"%s",
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_nothing_but_the_longest_text_changes(shape: bytes) -> None:
    wire = shape.replace(b"%s", WRITTEN)

    assert longest_text(wire) == WRITTEN
    assert decode_text(WRITTEN) == LONG
    assert replace_text(wire, WRITTEN, "né\ud800w") == shape.replace(b"%s", '"né\ufffdw"'.encode())


@pytest.mark.parametrize(
    "wire", [b"", b"{}", b"[]", b"null", b"7", b'{"content":null}', b'{"content":[{"type":"image"},7]}', b"[[", b"{"]
)
def test_a_message_without_text_has_none(wire: bytes) -> None:
    assert longest_text(wire) == NOTHING
    assert decode_text(NOTHING) == ""
    assert replace_text(wire, b'"not there"', "new") == wire


@pytest.mark.rows("X-75")
@pytest.mark.parametrize(
    ("wire", "is_text"),
    [
        (b'{"role":"tool","tool_call_id":"c","content":"hi"}', True),
        (b'{"role":"tool","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}', True),
        (b'{"role":"tool","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"x"}}]}', False),
        (b'[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"a"}]}]', True),
        (b'[{"type":"tool_result","tool_use_id":"c","content":[{"type":"image","source":{}}]}]', False),
        (b'[{"type":"tool_result","content":"a"},{"type":"text","text":"b"}]', False),
        (b'{"type":"function_call_output","call_id":"c","output":"a"}', True),
        (b'{"type":"function_call_output","output":[{"type":"input_text","text":"a"}]}', True),
        (b'{"type":"function_call_output","output":[{"type":"input_file","file_id":"f"}]}', False),
        (b'{"type":"shell_call_output","output":[{"stdout":"a","stderr":""}]}', False),
        (b'{"role":"tool","content":[]}', False),
        (b"{", False),
    ],
)
def test_which_messages_hold_text_alone(wire: bytes, is_text: bool) -> None:
    assert holds_text_alone(wire) is is_text


@pytest.mark.parametrize("odd", ["", "\x7f", "é", "\ud800", "\n\t\x00\x1b\\/", '"'])
@pytest.mark.parametrize("kind", ["image_url", "source", "file", "number"])
def test_a_long_file_has_the_text_that_the_slow_writer_gives_it(kind: str, odd: str) -> None:
    """By this text a message is known again, also by those who stored it before."""
    inner: dict[str, Any] = {"url": "A" * 100_000 + odd, "detail": "high", odd or "b": "x"}
    part = {"type": kind, kind: 1.5e300 if kind == "number" else inner, "z": "B" * 70_000}

    text = chat_message.text_of([part])

    assert text == json.dumps(part, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
