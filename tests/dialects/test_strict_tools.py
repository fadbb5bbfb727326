"""Our tools as strict as the client's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.core.tools import tool_definitions
from proxy.dialects import DIALECTS, Dialect, common_strictness, with_strictness

pytestmark = pytest.mark.rows("X-48")
SCHEMA = {"type": "object", "properties": {}}
every_dialect = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.name)


def chat(strict: object = ...) -> dict[str, Any]:
    told = {} if strict is ... else {"strict": strict}
    return {"type": "function", "function": {"name": "f", "parameters": SCHEMA, **told}}


@pytest.mark.parametrize(
    ("tools", "found"),
    [
        ([chat(True), chat(True)], True),
        ([chat(False), chat(False)], False),
        ([chat(True), chat(False)], None),
        ([chat(True), chat()], None),
        ([chat()], None),
        ([chat("yes")], None),
        ([], None),
        ([{"name": "f", "input_schema": SCHEMA, "strict": True}], True),
        ([{"type": "function", "name": "f", "parameters": SCHEMA, "strict": True}, {"type": "web_search"}], True),
        ([{"type": "namespace", "tools": [{"type": "function", "parameters": SCHEMA, "strict": True}]}], True),
        ([7, None, "tool"], None),
    ],
)
def test_what_all_tools_of_a_client_say_is_found(tools: list[Any], found: bool | None) -> None:
    assert common_strictness(tools) is found


def _definitions(dialect: Dialect, profile: str, *, strict: bool) -> list[dict[str, Any]]:
    ours = dialect.tools_json(tool_definitions(profile)).decode()
    return [tool.get("function", tool) for tool in json.loads(with_strictness(ours, strict=strict))]


def _assert_strict(schema: dict[str, Any]) -> None:
    if schema.get("type") == "object":
        assert schema["additionalProperties"] is False
        assert schema["required"] == list(schema["properties"])
        for inner in schema["properties"].values():
            _assert_strict(inner)
    if "items" in schema:
        _assert_strict(schema["items"])
    assert set(schema) <= {"type", "description", "enum", "properties", "items", "required", "additionalProperties"}


@every_dialect
@pytest.mark.parametrize("profile", ["frames", "core", "full", "passive"])
def test_every_schema_of_ours_can_be_strict(dialect: Dialect, profile: str) -> None:
    for definition in _definitions(dialect, profile, strict=True):
        assert definition["strict"] is True
        _assert_strict(definition.get("parameters") or definition["input_schema"])


@every_dialect
def test_what_may_be_left_out_is_nullable_and_nothing_else_is(dialect: Dialect) -> None:
    by_name = {tool["name"]: tool for tool in _definitions(dialect, "core", strict=True)}
    push, recall = (by_name[name] for name in ("stack_frame_push", "stack_recall"))

    properties = (push.get("parameters") or push["input_schema"])["properties"]
    assert {name: inner["type"] for name, inner in properties.items()} == {
        "title": "string",
        "successCriteria": "string",
    }
    optional = (recall.get("parameters") or recall["input_schema"])["properties"]
    assert all(inner["type"] == ["string", "null"] for inner in optional.values())


@every_dialect
def test_beside_tools_that_are_not_strict_only_the_word_is_added(dialect: Dialect) -> None:
    plain = json.loads(dialect.tools_json(tool_definitions("core")))

    for before, after in zip(plain, _definitions(dialect, "core", strict=False), strict=True):
        assert after == {**before.get("function", before), "strict": False}
