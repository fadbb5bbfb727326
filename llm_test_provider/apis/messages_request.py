"""A request of the messages API, read in three ways: as a conversation, as what a cache sees, as what binds reasoning.

`conversation` tells it as the chat messages that say the same, so that a condition, a template or a test asks one
question of all dialects. `parts_of` and `bound_of` keep the blocks as they came, less what never counts.

Its one law: nothing here judges. What has an odd shape is passed over; `messages_check.py` refuses it before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from llm_test_provider.answer import JsonObject
from llm_test_provider.apis.json import canonical, mapping, mappings
from llm_test_provider.prompt_cache import HOUR, PromptPart
from llm_test_provider.reasoning_binding import BoundRequest, ReasoningItem
from llm_test_provider.templates import text_of
from llm_test_provider.tokens import MESSAGE_OVERHEAD, Counter

THINKING = ("thinking", "redacted_thinking")
CHANGES = ("tool_addition", "tool_removal")
"""Blocks of a system message that change which tools there are."""
BILLING = "x-anthropic-billing-header:"
"""A system text that opens like this is for the bookkeeping of one client; the model never reads it."""
Block = Mapping[str, Any]


def blocks_of(content: object) -> list[Block]:
    """The blocks of a content; a string is one block of text."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else mappings(content)


def tool_names(body: Mapping[str, Any]) -> list[str]:
    """The tools offered: those of the body, then those whose definitions stand inside its messages."""
    blocks = [block for message in mappings(body.get("messages")) for block in blocks_of(message.get("content"))]
    added = (mapping(mapping(b.get("tool")).get("definition")) for b in blocks if b.get("type") == "tool_addition")
    return [str(tool.get("name")) for tool in (*mappings(body.get("tools")), *filter(None, added))]


# --------------------------------------------------------------------------------------------------------- conversation
def conversation(body: Mapping[str, Any]) -> list[JsonObject]:
    """The request as chat messages: system text first, each tool result a message of its own."""
    system = text_of(body.get("system"))
    head = [{"role": "system", "content": system}] if system else []
    return [*head, *(told for message in mappings(body.get("messages")) for told in _told(message))]


def _told(message: Mapping[str, Any]) -> Iterator[JsonObject]:
    content = message.get("content")
    if message.get("role") == "assistant":
        yield _assistant(blocks_of(content))
    elif not isinstance(content, list):
        yield {"role": message.get("role"), "content": content}
    else:
        for is_result, run in groupby(mappings(content), lambda block: block.get("type") == "tool_result"):
            if is_result:
                yield from map(_result, run)
            else:
                yield {"role": message.get("role"), "content": list(run)}


def _assistant(blocks: Sequence[Block]) -> JsonObject:
    calls = [
        {"id": block.get("id"), "type": "function", "function": {"name": block.get("name"), "arguments": _input(block)}}
        for block in blocks
        if block.get("type") == "tool_use"
    ]
    thoughts = "".join(str(block.get("thinking") or "") for block in blocks)
    said: JsonObject = {"role": "assistant", "content": text_of(list(blocks)) or None}
    return said | ({"reasoning_content": thoughts} if thoughts else {}) | ({"tool_calls": calls} if calls else {})


def _result(block: Block) -> JsonObject:
    return {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": text_of(block.get("content"))}


def _input(block: Block) -> str:
    return json.dumps(block.get("input"), ensure_ascii=False)


# --------------------------------------------------------------------------------------------------------------- caches
def parts_of(body: Mapping[str, Any], count: Counter) -> tuple[PromptPart, ...]:
    """Tools, system blocks, blocks of messages; a breakpoint where the request has set a marker. A deferred tool counts
    where a message refers to it first.

    A marker beside `messages` stands for one on the last block. Two messages of one role in a row are, to a cache, one.
    """
    offered = mappings(body.get("tools"))
    tools = [_part("tool", tool, _tool_tokens(tool, count)) for tool in offered if not tool.get("defer_loading")]
    deferred = {tool.get("name"): _tool_tokens(tool, count) for tool in offered if tool.get("defer_loading")}
    system = [_part("system", block, count(text_of([block]))) for block in blocks_of(body.get("system") or [])]
    said = [
        _part(
            message.get("role"),
            block,
            _tokens(block, count)
            + (0 if position else MESSAGE_OVERHEAD)
            + sum(deferred.pop(name, 0) for name in references_in(block)),
        )
        for message in mappings(body.get("messages"))
        for position, block in enumerate(blocks_of(message.get("content")))
    ]
    parts = (*tools, *system, *said)
    marker = mapping(body.get("cache_control"))
    last = tuple(replace(part, breakpoint=True, lifetime=_lifetime(marker)) for part in parts[-1:])
    return (*parts[:-1], *last) if marker else parts


def references_in(block: Block) -> list[str]:
    """The names of the tools that a block loads: results of a tool search, the client's or the provider's own."""
    content = block.get("content")
    inside = mappings(content) if isinstance(content, list) else mappings(mapping(content).get("tool_references"))
    return [str(each.get("tool_name")) for each in inside if each.get("type") == "tool_reference"]


def _tool_tokens(tool: Block, count: Counter) -> int:
    return int(count(json.dumps(tool, ensure_ascii=False)))


def _part(role: object, block: Block, tokens: int) -> PromptPart:
    marker = mapping(block.get("cache_control"))
    return PromptPart(canonical([role, block]), tokens, bool(marker), _lifetime(marker))


def _lifetime(marker: Mapping[str, Any]) -> float | None:
    """Seconds for which a marker asks; `None` leaves it to the cache."""
    return HOUR if marker.get("ttl") == "1h" else None


def _tokens(block: Block, count: Counter) -> int:
    """Texts, calls and results; thinking that is sent back is not billed, and no picture is measured."""
    kind = block.get("type")
    if kind == "tool_use":
        return int(count(f"{block.get('name')} {_input(block)}"))
    said = text_of(block.get("content")) if kind == "tool_result" else text_of([block])
    return int(count(said)) if said else 0


# -------------------------------------------------------------------------------------------------------------- binding
def bound_of(body: Mapping[str, Any]) -> BoundRequest:
    """Head and parts for `binding.examine`. A message counts with its border: what merges two messages changes both.

    Tools that are deferred are no part of the head, nor are cache markers and the text of a client's bookkeeping.
    """
    system = [block for block in blocks_of(body.get("system") or []) if not _is_billing(block)]
    tools = [tool for tool in mappings(body.get("tools")) if not tool.get("defer_loading")]
    parts = [part for at, message in enumerate(mappings(body.get("messages"))) for part in _bound_parts(message, at)]
    return BoundRequest(canonical([system, tools]), tuple(parts))


def _bound_parts(message: Mapping[str, Any], at: int) -> Iterator[bytes | ReasoningItem]:
    opens = True
    for position, block in enumerate(blocks_of(message.get("content"))):
        if block.get("type") in THINKING:
            path = f"messages.{at}.content.{position}"
            token = block.get("data" if block["type"] == "redacted_thinking" else "signature")
            yield ReasoningItem(str(block.get("thinking") or ""), str(token), path)
        else:
            yield canonical([message.get("role"), opens, block])
            opens = False


def _is_billing(block: Block) -> bool:
    return str(block.get("text") or "").startswith(BILLING)
