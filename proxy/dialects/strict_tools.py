"""Our tools in the strictness of the client's, for providers that refuse a mixture.

A strict schema (OpenAI, Cerebras, Anthropic) names every property as required and allows no other; what may be left out
is nullable instead, and the model sends null for it. Only keywords that every strict dialect takes are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

STRICT = "strict"
_SCHEMA_MEMBERS = ("parameters", "input_schema")
_KEPT_KEYWORDS = ("type", "description", "enum", "properties", "items", "required", "additionalProperties")


def common_strictness(tools: Sequence[Any]) -> bool | None:
    """What all tools of a client that have a schema say of `strict`; None where they differ, or say nothing."""
    told = {definition.get(STRICT) for definition in _definitions(tools)}
    if len(told) != 1:
        return None
    (strict,) = told
    return strict if isinstance(strict, bool) else None


def _definitions(tools: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
    """The parts of tools that hold a schema, in every dialect; a namespace holds several."""
    for tool in tools:
        if not isinstance(tool, dict):
            continue
        inner = tool.get("function")
        definition = inner if isinstance(inner, dict) else tool
        if any(isinstance(definition.get(name), dict) for name in _SCHEMA_MEMBERS):
            yield definition if STRICT in definition else {**definition, STRICT: tool.get(STRICT)}
        if isinstance(nested := tool.get("tools"), list):
            yield from _definitions(nested)


@lru_cache(maxsize=32)
def with_strictness(ours: str, *, strict: bool) -> str:
    """Our JSON array of tools, each with this `strict` and, where that is true, with a strict schema."""
    tools = msgspec.json.decode(ours) if ours else []
    for tool in tools:
        definition = tool.get("function", tool)
        definition[STRICT] = strict
        if strict:
            name = next(member for member in _SCHEMA_MEMBERS if member in definition)
            definition[name] = _strict_schema(definition[name])
    return msgspec.json.encode(tools).decode()


def _strict_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in schema.items() if name in _KEPT_KEYWORDS}
    if isinstance(items := found.get("items"), dict):
        found["items"] = _strict_schema(items)
    if found.get("type") == "object":
        needed = schema.get("required", ())
        properties = schema.get("properties", {})
        found["properties"] = {
            name: _strict_schema(inner) if name in needed else _nullable(_strict_schema(inner))
            for name, inner in properties.items()
        }
        found["required"] = list(properties)
        found["additionalProperties"] = False
    return found


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    own = schema.get("type", "string")
    schema["type"] = [*own, "null"] if isinstance(own, list) else [own, "null"]
    if "enum" in schema:
        schema["enum"] = [*schema["enum"], None]
    return schema
