"""Which descriptions are cut, in each form in which tools are offered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.dialects import brief_tools

LONG = "Says what it does.\nAnd how."
SCHEMA = b'{ "type":"object", "b":1, "a":"\\u00e9" }'


def written(**members: Any) -> bytes:
    """A tool as a client may write it, its schema in odd bytes."""
    return json.dumps(members).encode().replace(b'"SCHEMA"', SCHEMA)


def brief(*tools: bytes) -> tuple[bytes, dict[str, str]]:
    made = brief_tools(b"[" + b", ".join(tools) + b"]", lambda name: name == "kept")
    return made.array, dict(made.descriptions)


@pytest.mark.rows("X-77")
@pytest.mark.parametrize(
    "tool",
    [
        {"name": "t", "description": LONG, "input_schema": "SCHEMA", "cache_control": {"type": "ephemeral"}},
        {"type": "custom", "name": "t", "description": LONG, "input_schema": "SCHEMA"},
        {"type": "function", "name": "t", "description": LONG, "parameters": "SCHEMA", "strict": False},
        {"type": "function", "function": {"name": "t", "description": LONG, "parameters": "SCHEMA"}},
        {
            "type": "namespace",
            "name": "n",
            "description": LONG,
            "tools": [{"type": "function", "name": "t", "description": LONG, "parameters": "SCHEMA"}],
        },
    ],
)
def test_a_description_is_cut_and_nothing_else(tool: dict[str, Any]) -> None:
    array, whole = brief(written(**tool))

    assert list(whole.values()) == [LONG]
    assert list(whole) == ["n.t" if "tools" in tool else "t"]
    assert SCHEMA in array
    (sent,) = json.loads(array)
    innermost = (sent.get("tools") or [sent.get("function", sent)])[0]
    assert innermost.pop("description") == "Says what it does."
    (came,) = json.loads(b"[" + written(**tool) + b"]")
    (came.get("tools") or [came.get("function", came)])[0].pop("description")
    assert sent == came


@pytest.mark.rows("X-77")
@pytest.mark.parametrize(
    "tool",
    [
        {"name": "kept", "description": LONG, "input_schema": "SCHEMA"},
        {"name": "t", "description": "  One line. \n", "input_schema": "SCHEMA"},
        {"name": "t", "description": LONG, "input_schema": "SCHEMA", "strict": True},
        {"type": "function", "function": {"name": "t", "description": LONG, "parameters": "SCHEMA", "strict": True}},
        {"name": "t", "description": LONG, "input_schema": "SCHEMA", "defer_loading": True},
        {"type": "web_search_20250305", "name": "t", "description": LONG, "input_schema": "SCHEMA"},
        {"type": "custom", "name": "t", "description": LONG, "format": {"type": "grammar"}},
        {"name": "t", "input_schema": "SCHEMA"},
        {"name": 7, "description": LONG, "input_schema": "SCHEMA"},
        {"type": "code_execution"},
    ],
)
def test_what_is_left_alone_keeps_its_bytes(tool: dict[str, Any]) -> None:
    came = written(**tool)

    assert brief(came) == (b"[" + came + b"]", {})


@pytest.mark.parametrize("array", [b"", b"[", b"{}", b'[{"name"]', b"[1, null]", b"null"])
def test_an_array_that_nobody_reads_passes(array: bytes) -> None:
    assert brief_tools(array, lambda _: False).array == array
