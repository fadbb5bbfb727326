"""A request of the responses API, read in three ways: as a conversation, as what a cache sees, as what binds reasoning.

The counterpart of `messages_view.py`: `conversation` tells the input as the chat messages that say the same, items the
model made in one go as one message. Ids and states of items never count.

Its one law: nothing here judges. What has an odd shape is passed over; `responses_check.py` refuses it before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from llm_test_provider.answer import JsonObject
from llm_test_provider.apis.json import canonical, mapping, mappings
from llm_test_provider.prompt_cache import PromptPart
from llm_test_provider.reasoning_binding import BoundRequest, ReasoningItem
from llm_test_provider.templates import text_of
from llm_test_provider.tokens import MESSAGE_OVERHEAD, Counter

NOT_SAID = ("id", "status")
"""Members of an item that the model never sees."""
FREEFORM = "custom"
JsonItem = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Offered:
    """One tool that may be called: its kind, and the namespace it stands in (empty: in none)."""

    name: str
    kind: str = "function"
    namespace: str = ""


# ------------------------------------------------------------------------------------------------------ parts of a body
def items_of(body: Mapping[str, Any]) -> list[JsonObject]:
    """The input as items; a string is one message of the user."""
    given = body.get("input")
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return [dict(item) for item in mappings(given)]


def kind_of(item: JsonItem) -> str:
    """The type of an item; one that has a role and no type is a message."""
    return str(item.get("type") or ("message" if "role" in item else ""))


def is_result(item: JsonItem) -> bool:
    return kind_of(item).endswith("_output") and "call_id" in item


def is_call(item: JsonItem) -> bool:
    """A call that the client has to answer; what the API runs itself has no `call_id`."""
    return kind_of(item).endswith("_call") and "call_id" in item


def is_made(item: JsonItem) -> bool:
    """The model made it, or the API did while the model was speaking."""
    kind = kind_of(item)
    return kind in ("reasoning", "compaction") or kind.endswith("_call") or item.get("role") == "assistant"


def tools_of(body: Mapping[str, Any], items: Sequence[JsonItem] | None = None) -> list[Offered]:
    """The tools offered, in order: those of the body, then those that stand inside the input."""
    inside = [item for item in (items_of(body) if items is None else items) if kind_of(item) == "additional_tools"]
    lists = [body.get("tools"), *(item.get("tools") for item in inside)]
    return [tool for each in lists for tool in _offered(mappings(each), "")]


def _offered(tools: Sequence[JsonItem], namespace: str) -> Iterator[Offered]:
    for tool in tools:
        kind = str(tool.get("type"))
        if kind == "namespace":
            yield from _offered(mappings(tool.get("tools")), str(tool.get("name")))
        else:
            yield Offered(str(tool.get("name") or kind), kind, namespace)


# --------------------------------------------------------------------------------------------------------- conversation
def conversation(body: Mapping[str, Any], items: Sequence[JsonItem] | None = None) -> list[JsonObject]:
    """The request as chat messages, the instructions first. `items` stands for the input where it refers to more."""
    instructions = body.get("instructions")
    told: list[JsonObject] = [{"role": "system", "content": instructions}] if instructions else []
    for made, run in groupby(items_of(body) if items is None else items, is_made):
        group = list(run)
        told += [_assistant(group)] if made else [_other(item) for item in group]
    return [message for message in told if message]


def _assistant(run: Sequence[JsonItem]) -> JsonObject:
    text = "".join(text_of(item.get("content")) for item in run if kind_of(item) == "message")
    thoughts = "".join(text_of(item.get("summary")) for item in run)
    calls = [_call(item) for item in run if is_call(item)]
    said: JsonObject = {"role": "assistant", "content": text or None}
    return said | ({"reasoning_content": thoughts} if thoughts else {}) | ({"tool_calls": calls} if calls else {})


def _call(item: JsonItem) -> JsonObject:
    given = next((item[key] for key in ("arguments", "input", "action") if key in item), "")
    arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    name = item.get("name") or kind_of(item).removesuffix("_call")
    return {"id": item["call_id"], "type": "function", "function": {"name": name, "arguments": arguments}}


def _other(item: JsonItem) -> JsonObject:
    """A message or a result; nothing for tools, which are no part of what was said; another item under its type."""
    if is_result(item):
        return {"role": "tool", "tool_call_id": item["call_id"], "content": output_of(item)}
    if kind_of(item) == "additional_tools":
        return {}
    return {"role": item.get("role") or kind_of(item), "content": item.get("content")}


def output_of(item: JsonItem) -> str:
    """The text of a result: a string, the texts of its parts, or any other value as JSON."""
    output = item.get("output")
    return text_of(output) if isinstance(output, str | list) else json.dumps(output, ensure_ascii=False)


# --------------------------------------------------------------------------------------------------------------- caches
def parts_of(body: Mapping[str, Any], items: Sequence[JsonItem], count: Counter) -> tuple[PromptPart, ...]:
    """Tools, instructions, items. This API has no markers: a cache that wants them finds one behind the head and one
    at the end, as in chat completions."""
    tools = [tool for tool in mappings(body.get("tools")) if not tool.get("defer_loading")]
    head = [(canonical(["tools", tools]), count(json.dumps(tools)))] if tools else []
    instructions = body.get("instructions")
    if instructions:
        head.append((canonical(["instructions", instructions]), MESSAGE_OVERHEAD + count(str(instructions))))
    content = [*head, *((_canonical(item), _tokens(item, count)) for item in items)]
    marked = (len(head) - 1, len(content) - 1)
    return tuple(PromptPart(data, tokens, at in marked) for at, (data, tokens) in enumerate(content))


def _tokens(item: JsonItem, count: Counter) -> int:
    """Texts, calls and results, and tools that stand in the input; reasoning that is sent back is not billed."""
    kind = kind_of(item)
    if kind == "reasoning":
        return 0
    if is_call(item):
        function = _call(item)["function"]
        said = f"{function['name']} {function['arguments']}"
    elif kind in ("additional_tools", "tool_search_output"):
        said = json.dumps(item.get("tools"), ensure_ascii=False)
    else:
        said = output_of(item) if is_result(item) else text_of(item.get("content"))
    return MESSAGE_OVERHEAD + (count(said) if said else 0)


def _canonical(item: JsonItem) -> bytes:
    return canonical({key: value for key, value in item.items() if key not in NOT_SAID})


# -------------------------------------------------------------------------------------------------------------- binding
def bound_of(body: Mapping[str, Any], items: Sequence[JsonItem]) -> BoundRequest:
    """Head and parts for `binding.examine`: instructions, tools and output format, then the items."""
    head = canonical([body.get("instructions"), body.get("tools"), mapping(body.get("text")).get("format")])
    parts = [
        ReasoningItem(
            text_of(item.get("summary")), str(item.get("encrypted_content")), str(item.get("id") or f"input[{at}]")
        )
        if kind_of(item) == "reasoning"
        else _canonical(item)
        for at, item in enumerate(items)
    ]
    return BoundRequest(head, tuple(parts))


def known_as(part: bytes) -> bytes:
    """What an item is known by to the reasoning that was made with it: the call's id, or the words of the message.
    Clients spell the rest in their own way."""
    item = mapping(json.loads(part))
    return canonical(item["call_id"] if is_call(item) else text_of(item.get("content")))
