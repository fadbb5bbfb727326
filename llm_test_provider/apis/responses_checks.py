"""What the responses API refuses before any model reads the request, in its own words.

`refusal` goes through the body, then through its items: their members, then calls and their results. Items of unknown
types pass. What needs memory (reasoning and what was made with it, earlier responses) is `responses_kept.py`'s.

Its one law: what it refuses, the real one refuses too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llm_test_provider.answer import ApiError
from llm_test_provider.apis.json import mappings
from llm_test_provider.apis.responses_request import JsonItem, is_call, is_result, kind_of

FIELDS: Mapping[str, tuple[str, ...]] = {
    "message": ("role", "content"),
    "reasoning": ("summary",),
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id", "output"),
    "custom_tool_call": ("call_id", "name", "input"),
    "custom_tool_call_output": ("call_id", "output"),
    "item_reference": ("id",),
}
"""What an item of a type must have; other types are not known here."""
IDS: Mapping[str, str] = {"message": "msg", "reasoning": "rs", "function_call": "fc"}
"""What the id of an item begins with, where it has one."""
ROLES = ("user", "assistant", "system", "developer")
WRONG_PARTS: Mapping[str, tuple[str, ...]] = {
    "assistant": ("text", "input_text", "input_image", "input_file"),
    "user": ("text", "output_text", "refusal"),
    "system": ("text", "output_text", "refusal"),
    "developer": ("text", "output_text", "refusal"),
}
"""Types of content that a message of a role cannot have."""


def refusal(body: Any, items: Sequence[JsonItem]) -> ApiError | None:
    """Why this request is refused. `items` is its input, with all it refers to."""
    if not isinstance(body, dict):
        return ApiError("We could not parse the JSON body of your request.")
    return next(_problems(body, items), None)


def _problems(body: Mapping[str, Any], items: Sequence[JsonItem]) -> Iterator[ApiError]:
    yield from _members(body)
    for at, item in enumerate(items):
        yield from _item(item, f"input[{at}]")
    for at, tool in enumerate(mappings(body.get("tools"))):
        if tool.get("type") in ("function", "custom") and not tool.get("name"):
            yield _missing(f"tools[{at}].name")
    yield from _pairs(items)


def _members(body: Mapping[str, Any]) -> Iterator[ApiError]:
    given = body.get("input")
    if not body.get("model"):
        yield _missing("model")
    if given is None and not body.get("previous_response_id"):
        yield _missing("input")
    if not isinstance(given, str | list | None):
        yield _invalid("input", "expected one of a string or array of input items")
    if isinstance(given, list) and len(mappings(given)) != len(given):
        yield _invalid("input", "expected an object in every place")
    limit = body.get("max_output_tokens")
    if limit is not None and (not isinstance(limit, int) or limit < 16):
        yield _invalid("max_output_tokens", "expected an integer of at least 16")


def _item(item: JsonItem, path: str) -> Iterator[ApiError]:
    kind = kind_of(item)
    if not kind:
        yield _missing(f"{path}.type")
    for name in FIELDS.get(kind, ()):
        if item.get(name) is None:
            yield _missing(f"{path}.{name}")
    identity, begins = item.get("id"), IDS.get(kind, "")
    if isinstance(identity, str) and not identity.startswith(begins):
        yield _invalid(f"{path}.id", f"{identity!r} is no id that begins with {begins!r}")
    if kind == "function_call" and not isinstance(item.get("arguments"), str):
        yield _invalid(f"{path}.arguments", "expected a string")
    if kind == "message":
        yield from _message(item, path)


def _message(item: JsonItem, path: str) -> Iterator[ApiError]:
    role, content = item["role"], item["content"]
    if role not in ROLES:
        yield _invalid(f"{path}.role", f"{role!r} is none of {', '.join(ROLES)}")
    if not isinstance(content, str | list):
        yield _invalid(f"{path}.content", "expected a string or an array of content parts")
    for at, part in enumerate(mappings(content)):
        if part.get("type") in WRONG_PARTS.get(role, ()):
            yield _invalid(f"{path}.content[{at}].type", f"{part['type']!r} cannot stand in a message of role {role!r}")


def _pairs(items: Sequence[JsonItem]) -> Iterator[ApiError]:
    """Every call has its result, and every result a call before it. No item stands twice."""
    called = {str(item["call_id"]) for item in items if is_call(item)}
    answered = {str(item["call_id"]) for item in items if is_result(item)}
    made: set[str] = set()
    seen: set[str] = set()
    for item in items:
        name, kind = str(item.get("call_id")), kind_of(item).removesuffix("_output").removesuffix("_call")
        if is_result(item) and name not in made:
            yield _at_input(f"No tool call found for {kind.replace('_', ' ')} call output with call_id {name}.")
        if is_call(item):
            made.add(name)
        identity = str(item.get("id") or "")
        if identity and identity in seen:
            yield _at_input(f"Duplicate item found with id {identity}. Remove duplicate items from your input.")
        seen.add(identity)
    for name in sorted(called - answered):
        yield _at_input(f"No tool output found for function call {name}.")


def _missing(path: str) -> ApiError:
    return ApiError(f"Missing required parameter: '{path}'.", code="missing_required_parameter", param=path)


def _invalid(path: str, why: str) -> ApiError:
    return ApiError(f"Invalid value for '{path}': {why}.", code="invalid_value", param=path)


def _at_input(words: str) -> ApiError:
    return ApiError(words, param="input")
