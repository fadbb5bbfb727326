"""Pieces of one JSON value put together again (X-21)."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest

from proxy.dialects.json_deltas import is_signed, merge_delta


def gathered(*pieces: Any) -> Any:
    return reduce(merge_delta, pieces, None)


def test_items_with_an_index_grow_in_place_and_constant_members_do_not() -> None:
    def item(index: int, **said: object) -> list[object]:
        return [{"type": "reasoning.text", "format": "x", "index": index, **said}]

    pieces = [item(0, text="a"), item(1, text="x"), item(0, text="b"), item(0, signature="SIG")]
    assert gathered(*pieces) == [*item(0, text="ab", signature="SIG"), *item(1, text="x")]


def test_blocks_without_an_index_grow_until_they_are_signed() -> None:
    def block(said: str, signature: str = "") -> list[object]:
        return [{"type": "thinking", "thinking": said, "signature": signature}]

    assert gathered(block("a"), block("b"), block("", "S1"), block("c")) == [*block("ab", "S1"), *block("c")]


def test_encrypted_items_stand_apart() -> None:
    item = {"type": "reasoning.encrypted", "data": "x"}
    assert gathered([item], [item]) == [item, item]


def test_objects_grow_by_member_and_null_changes_nothing() -> None:
    assert gathered({"a": "x", "n": 1}, {"a": "y", "n": 2, "b": None}) == {"a": "xy", "n": 2}


@pytest.mark.rows("X-21")
@pytest.mark.parametrize(
    ("value", "signed"),
    [
        ([{"type": "reasoning.text", "text": "a", "signature": None}], False),
        ([{"type": "reasoning.text", "signature": "S"}], True),
        ({"google": {"thought_signature": "S"}}, True),
        ([{"type": "redacted_thinking", "data": "x"}], True),
        ([{"type": "image", "data": "x"}], False),
        ("signature", False),
    ],
)
def test_x21_signed_reasoning_is_known_wherever_the_signature_stands(value: object, signed: bool) -> None:
    assert is_signed(value) is signed
