"""Counting tokens for usage and windows: exactly (o200k) where `rs_bpe` is installed, else four characters to a token.

A `Counter` is any function from text to a number of tokens; tests hand in their own. `parts_of` turns a request into
the parts that caches and windows are about.
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

try:
    from rs_bpe.bpe import openai as vocabularies  # type: ignore[import-not-found]
except ImportError:
    vocabularies = None

Counter = Callable[[str], int]
MESSAGE_OVERHEAD = 4
"""Tokens a provider adds around each message."""


@lru_cache(maxsize=1)
def default_counter() -> Counter:
    if vocabularies is None:
        return lambda text: -(-len(text) // 4)
    encoding = vocabularies.o200k_base()

    def count(text: str) -> int:
        return int(encoding.count(text.encode("utf-8", "replace").decode()))

    return lru_cache(maxsize=50_000)(count)


def parts_of(body: JsonObject, count: Counter) -> tuple[PromptPart, ...]:
    """The request in the order a provider reads it: tools, system text, messages.

    Breakpoints stand behind the system text (or the tools, where there is none) and behind the last message.
    """
    offered = body.get("tools") or body.get("functions")
    messages: list[JsonObject] = body["messages"]
    heads = [message for message in messages if message.get("role") in ("system", "developer")]
    leading = heads if messages[: len(heads)] == heads else []
    content = [(canonical(offered), count(json.dumps(offered, ensure_ascii=False)))] if offered else []
    content += [(canonical(message), tokens_of(message, count)) for message in messages]
    head_end = (1 if offered else 0) + len(leading) - 1
    last = len(content) - 1
    return tuple(PromptPart(data, tokens, at in (head_end, last)) for at, (data, tokens) in enumerate(content))


def tokens_of(message: Mapping[str, Any], count: Counter) -> int:
    """Content, call names and arguments; reasoning that is sent back is not billed."""
    calls = [mapping(call.get("function")) for call in mappings(message.get("tool_calls"))]
    said = [text_of(message.get("content")), *(f"{call.get('name')} {call.get('arguments')}" for call in calls)]
    return MESSAGE_OVERHEAD + sum(count(text) for text in said if text)


def completion_tokens(answer: ScriptedAnswer, count: Counter) -> tuple[int, int]:
    """Output tokens of an answer, reasoning included, and the part of them that is reasoning."""
    reasoning = count(answer.reasoning) if answer.reasoning else 0
    said: Sequence[str] = [answer.text, *(f"{call.name} {call.arguments_text()}" for call in answer.calls)]
    return reasoning + sum(count(text) for text in said if text), reasoning
