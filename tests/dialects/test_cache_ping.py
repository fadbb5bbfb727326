"""A body that was sent, asked again for the shortest answer: only the limits of the answer differ."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.dialects import ANTHROPIC_MESSAGES, OPENAI_CHAT, OPENAI_RESPONSES, Dialect

LINE = b'"messages": [ {"role":"user","content":"h\\u00e9, 1.0e2"} ], "temperature":1.50'
ITEMS = b'"input": [ {"role":"user","content":"h\\u00e9, 1.0e2"} ], "temperature":1.50'


def pinged(dialect: Dialect, body: bytes) -> dict[str, Any]:
    """The ping of a body, whose other members are there byte for byte."""
    sent = dialect.cache_ping(body)
    assert sent is not None
    for kept in (LINE, ITEMS):
        if kept in body:
            assert kept.split(b": ", 1)[1].partition(b', "temp')[0] in sent
    assert b":1.50" in sent
    found: dict[str, Any] = json.loads(sent)
    return found


@pytest.mark.parametrize(
    ("model", "limit", "asked"),
    [
        ("gpt-5.4", "", "max_completion_tokens"),
        ("openai/o4-mini", "", "max_completion_tokens"),
        ("claude-opus-4-6", "", "max_tokens"),
        ("llama-3", '"max_completion_tokens":900,', "max_completion_tokens"),
        ("gpt-5.4", '"max_tokens":900,', "max_tokens"),
    ],
)
def test_chat_is_limited_as_the_client_does_it_or_as_the_model_wants_it(model: str, limit: str, asked: str) -> None:
    own = f'"model":"{model}","stream":true,"stream_options":{{"include_usage":true}},"n":3,{limit}'
    said = pinged(OPENAI_CHAT, b"{" + own.encode() + LINE + b"}")
    limits = {"max_tokens": said.get("max_tokens"), "max_completion_tokens": said.get("max_completion_tokens")}
    assert {name: value for name, value in limits.items() if value is not None} == {asked: 16}
    assert said["stream"] is False
    assert not {"n", "stream_options"} & said.keys()


def test_messages_are_limited_to_one_token() -> None:
    body = b'{"model":"claude-opus-4-6","max_tokens":32000,"stream":true,"thinking":{"type":"adaptive"},' + LINE + b"}"
    said = pinged(ANTHROPIC_MESSAGES, body)
    assert (said["max_tokens"], said["stream"], said["thinking"]) == (1, False, {"type": "adaptive"})


def test_a_budget_to_think_leaves_no_short_answer() -> None:
    """Another budget would be another prefix, and the limit has to be larger than the budget."""
    body = b'{"model":"m","max_tokens":9000,"thinking":{"type":"enabled","budget_tokens":8000},' + LINE + b"}"
    assert ANTHROPIC_MESSAGES.cache_ping(body) is None


def test_responses_are_limited_to_the_least_and_not_kept() -> None:
    body = b'{"model":"gpt-5.4","stream":true,"store":true,"previous_response_id":"resp_1",' + ITEMS + b"}"
    said = pinged(OPENAI_RESPONSES, body)
    assert (said["max_output_tokens"], said["stream"], said["store"]) == (16, False, False)
    assert said["previous_response_id"] == "resp_1"


def test_what_is_answered_in_the_background_is_not_asked_again() -> None:
    assert OPENAI_RESPONSES.cache_ping(b'{"model":"m","background":true,' + ITEMS + b"}") is None
