"""Which members of a request are secrets, and that everything else of its stored copy is as it was sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.dialects import without_secrets
from proxy.dialects.raw_json import cut, items, members
from proxy.dialects.secret_members import LEFT_OUT

SECRETS: list[dict[str, Any]] = [
    {"api_key": "canary-0001"},
    {"x-api-key": "canary-0001"},
    {"apiKeys": ["canary-0001", "canary-0002"]},
    {"headers": {"X-Custom": "canary-0001"}},
    {"extra_headers": {"a": {"b": ["canary-0001"]}}},
    {"metadata": {"authToken": 1, "auth_token": "canary-0001"}},
    {"aws_session_token": "canary-0001"},
    {"vertex_credentials": '{"private_key": "canary-0001"}'},
    {"options": {"anything": "Bearer canary-0001"}},
    {"options": {"anything": "sk-proj-canary-0001"}},
    {"api_base": "https://user:canary-0001@host.example/v1"},
    {"tools": [{"type": "mcp", "authorization": "canary-0001", "headers": {"X": "canary-0002"}}]},
]
KEPT: list[dict[str, Any]] = [
    {"max_tokens": 12345678, "prompt_cache_key": "session-12345678", "user": "somebody-12345678"},
    {"stop": ["Authorization: Bearer"], "tool_choice": {"type": "function", "function": {"name": "get_api_key"}}},
    {"tools": [{"name": "login", "input_schema": {"properties": {"api_key": {"default": "a-default-value"}}}}]},
    {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"headers": "described at length"}}}]},
    {"system": "api_key: sk-proj-12345678 is what the user talks about"},
    {"metadata": {"user_id": '{"session_id": "12345678"}'}},
    {"api_key": "short"},
]
CONTENT = {"role": "user", "content": [{"type": "tool_use", "input": {"api_key": "content-canary-0001"}}]}


def stored(more: dict[str, Any], *, behind: bool) -> tuple[bytes, bytes]:
    """A body and its stored copy, with these members before or behind its messages."""
    said = {"messages": [CONTENT, CONTENT]}
    body = json.dumps({"model": "m", **said, **more} if behind else {"model": "m", **more, **said}).encode()
    fields = members(body)
    pieces = cut(body, fields["messages"], items(fields["messages"]))
    return body, b"".join(without_secrets(pieces, fields))


@pytest.mark.parametrize("behind", [True, False])
@pytest.mark.parametrize("more", SECRETS, ids=json.dumps)
def test_a_secret_is_left_out_and_the_messages_are_not(more: dict[str, Any], behind: bool) -> None:
    _, kept = stored(more, behind=behind)
    assert b"canary-0001" not in kept.replace(b"content-canary-0001", b"")
    assert b"canary-0002" not in kept
    assert LEFT_OUT in kept
    assert json.loads(kept)["messages"] == [CONTENT, CONTENT]


@pytest.mark.parametrize("behind", [True, False])
@pytest.mark.parametrize("more", KEPT, ids=json.dumps)
def test_what_is_no_secret_is_stored_as_it_was_sent(more: dict[str, Any], behind: bool) -> None:
    body, kept = stored(more, behind=behind)
    assert kept == body


def test_what_cannot_be_taken_apart_does_no_harm() -> None:
    for raw in (b"{" * 5000, b'{"a":' * 5000, b'"half', b"[1,"):
        assert without_secrets((b"body",), {"headers": raw}) == (b"body",)


def test_a_member_too_long_to_be_searched_is_left_out_whole() -> None:
    """Half a million values were searched for 2.5 s, and everybody waited."""
    body, kept = stored({"x": [{"a": number, "b": [1, 2]} for number in range(100_000)]}, behind=True)
    assert json.loads(kept) == {**json.loads(body), "x": json.loads(LEFT_OUT)}
