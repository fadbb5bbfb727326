"""Token counts for usage, prompt caches and context windows: o200k if it can be loaded, else four characters a token.

A `Counter` is any function from text to a number of tokens; a test may pass its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from llm_test_provider.answer import JsonObject, ScriptedAnswer
from llm_test_provider.apis.json import canonical, mapping, mappings
from llm_test_provider.prompt_cache import PromptPart
from llm_test_provider.templates import text_of
from proxy.accounting import load_o200k

Counter = Callable[[str], int]
MESSAGE_OVERHEAD = 4
"""Tokens a provider adds around each message."""


@lru_cache(maxsize=1)
def default_counter() -> Counter:
    try:
        return lru_cache(maxsize=50_000)(load_o200k())
    except (ImportError, OSError):
        return lambda text: -(-len(text) // 4)


def parts_of(body: JsonObject, count: Counter) -> tuple[PromptPart, ...]:
    """The parts of a request in the order in which a provider reads them: tools, system text, messages.

    Cache breakpoints are after the system text (or the tools, without one) and after the last message.
    """
    offered = body.get("tools") or body.get("functions")
    messages: list[JsonObject] = body["messages"]
    heads = [message for message in messages if message.get("role") in ("system", "developer")]
    leading = heads if messages[: len(heads)] == heads else []
    content = [(canonical(offered), count(json.dumps(offered, ensure_ascii=False)))] if offered else []
    content += [(canonical(message), tokens_of(message, count)) for message in messages]
    head_end = (1 if offered else 0) + len(leading) - 1
    last = len(content) - 1
    return tuple(PromptPart(data, tokens, index in (head_end, last)) for index, (data, tokens) in enumerate(content))


def tokens_of(message: Mapping[str, Any], count: Counter) -> int:
    """Tokens of content, call names and arguments. Reasoning that is sent back is not billed."""
    calls = [mapping(call.get("function")) for call in mappings(message.get("tool_calls"))]
    texts = [text_of(message.get("content")), *(f"{call.get('name')} {call.get('arguments')}" for call in calls)]
    return MESSAGE_OVERHEAD + sum(count(text) for text in texts if text)


def completion_tokens(answer: ScriptedAnswer, count: Counter) -> tuple[int, int]:
    """Output tokens of an answer including its reasoning, and the tokens of the reasoning."""
    reasoning = count(answer.reasoning) if answer.reasoning else 0
    texts: Sequence[str] = [answer.text, *(f"{call.name} {call.arguments_text()}" for call in answer.calls)]
    return reasoning + sum(count(text) for text in texts if text), reasoning
