"""Reasoning for providers that refuse an answer with calls without it, by value, in both APIs that write it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from proxy.config import Config
from proxy.core.ledger import Message
from proxy.dialects import ANTHROPIC_MESSAGES, OPENAI_CHAT, Dialect, ParseCache
from proxy.exchange.thread.bound_reasoning import UNKNOWN_REASONING, binds_reasoning, with_reasoning_back

CALL = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
USE = {"type": "tool_use", "id": "c1", "name": "bash", "input": {}}


def chat_answer(thought: str = "", call: str = "c1") -> Message:
    told = {"reasoning_content": thought} if thought else {}
    return _read(OPENAI_CHAT, {"role": "assistant", "content": None, **told, "tool_calls": [{**CALL, "id": call}]})


def messages_answer(thought: str = "", call: str = "c1") -> Message:
    told = [{"type": "thinking", "thinking": thought, "signature": "s"}] if thought else []
    return _read(ANTHROPIC_MESSAGES, {"role": "assistant", "content": [*told, {**USE, "id": call}]})


def _read(dialect: Dialect, message: dict[str, object]) -> Message:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}, message]}
    return dialect.parse_request(json.dumps(body).encode(), ParseCache()).messages[-1]


@pytest.mark.parametrize(("dialect", "answer"), [(OPENAI_CHAT, chat_answer), (ANTHROPIC_MESSAGES, messages_answer)])
def test_an_answer_gets_back_what_is_known_of_it(dialect: Dialect, answer: Callable[..., Message]) -> None:
    bare, theirs, ours = answer(), answer("(none kept)"), answer("I must look.")

    assert with_reasoning_back(dialect, [bare], [theirs, ours]) == (ours,)
    assert with_reasoning_back(dialect, [bare], [theirs]) == (theirs,)
    assert with_reasoning_back(dialect, [ours], [theirs]) == (ours,)


@pytest.mark.parametrize(("dialect", "answer"), [(OPENAI_CHAT, chat_answer), (ANTHROPIC_MESSAGES, messages_answer)])
def test_an_answer_that_nobody_knows_gets_a_stand_in_where_the_model_thinks(
    dialect: Dialect, answer: Callable[..., Message]
) -> None:
    bare, other = answer(call="c2"), answer("I must look.")

    (told,) = with_reasoning_back(dialect, [bare], [other])

    assert UNKNOWN_REASONING in told.wire.decode()
    assert told.calls == bare.calls
    assert with_reasoning_back(dialect, [bare], [answer(call="c3")]) == (bare,)


@pytest.mark.parametrize(
    ("dialect", "model", "bound"),
    [
        (ANTHROPIC_MESSAGES, "claude-opus-5", True),
        (ANTHROPIC_MESSAGES, "somebody-elses", True),
        (ANTHROPIC_MESSAGES, "deepseek-v4-pro", False),
        (ANTHROPIC_MESSAGES, "moonshotai/kimi-for-coding", False),
        (OPENAI_CHAT, "deepseek-v4-pro", False),
    ],
)
def test_a_provider_that_wants_reasoning_back_binds_none(dialect: Dialect, model: str, bound: bool) -> None:
    assert binds_reasoning(Config(), dialect, model) is bound
