"""Which tools a message loads, in the forms of each API (DESIGN 6, L11)."""

import json
from typing import Any

import pytest

from proxy.core.ledger import LoadedTool, deferred_tools_in, without_deferred_tools
from proxy.dialects.messages.message import joined, messages_in, user_message, with_content
from proxy.dialects.tool_references import loaded_tools

Json = dict[str, Any]
REFERENCE = {"type": "tool_reference", "tool_name": "issue"}
FUNCTION = {"type": "function", "name": "issue", "parameters": {}, "defer_loading": True}
NAMESPACE = {"type": "namespace", "name": "tracker", "tools": [FUNCTION, {**FUNCTION, "name": "close"}]}
SEARCHED = {"type": "tool_search_tool_search_result", "tool_references": [REFERENCE]}


def result(*content: Json) -> Json:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [*content]}]}


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.rows("X-46")
@pytest.mark.parametrize(
    ("said", "loaded"),
    [
        (result(REFERENCE), [LoadedTool("issue")]),
        (result(REFERENCE, REFERENCE | {"tool_name": "fetch"}), [LoadedTool("issue"), LoadedTool("fetch")]),
        ({"role": "tool", "tool_call_id": "t", "content": [{"type": "tool_reference", "name": "issue"}]},
         [LoadedTool("issue")]),
        ([{"type": "tool_search_tool_result", "tool_use_id": "s", "content": SEARCHED}], [LoadedTool("issue")]),
        ({"type": "tool_search_output", "execution": "client", "tools": [FUNCTION]}, [LoadedTool("issue", True)]),
        ({"type": "tool_search_output", "execution": "client", "tools": [NAMESPACE]},
         [LoadedTool("tracker.issue", True), LoadedTool("tracker.close", True)]),
        ([{"type": "tool_search_output", "execution": "server", "tools": [FUNCTION]}], [LoadedTool("issue")]),
        ({"type": "additional_tools", "role": "developer", "tools": [FUNCTION]}, [LoadedTool("issue", True)]),
        ({"role": "system", "content": [
            {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "issue"}}
        ]}, [LoadedTool("issue")]),
        ({"role": "system", "content": [
            {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": FUNCTION}}
        ]}, [LoadedTool("issue", True)]),
        ({"type": "tool_search_output", "execution": "client", "tools": []}, []),
        ({"role": "tool", "content": encoded(REFERENCE).decode()}, []),
        (result({"type": "text", "text": encoded(REFERENCE).decode()}), []),
    ],
)  # fmt: skip
def test_a_message_says_what_it_loads(said: Any, loaded: list[LoadedTool]) -> None:
    assert list(loaded_tools(encoded(said))) == loaded


@pytest.mark.rows("X-46")
def test_what_cannot_be_read_loads_nothing() -> None:
    assert loaded_tools(b'{"type":"tool_reference"') == ()


@pytest.mark.rows("X-46")
def test_a_reference_takes_no_text_beside_it_and_is_gone_with_its_content() -> None:
    (message,) = messages_in(encoded(result(REFERENCE)))

    assert joined(message, user_message("a note")) is None
    assert with_content(message, "cleared").loaded_tools == ()


@pytest.mark.rows("X-46")
def test_deferred_tools_are_found_by_name_also_in_a_namespace() -> None:
    whole = {"name": "bash", "input_schema": {}}
    tools = encoded([whole, FUNCTION | {"name": "fetch"}, NAMESPACE | {"tools": [whole, FUNCTION]}])

    assert list(deferred_tools_in(tools)) == ["fetch", "tracker.issue"]
    left = without_deferred_tools(tools)
    assert b"bash" in left
    assert b"tracker" in left
    assert b"issue" not in left
    assert b"fetch" not in left


@pytest.mark.rows("X-46")
@pytest.mark.parametrize(
    "tools", [b"[]", b'[{"name":"bash"}]', b'["defer_loading"]', b'[{"defer_loading":"yes"}]', b'"defer_loading"']
)
def test_tools_of_another_shape_stay_as_they_are(tools: bytes) -> None:
    assert without_deferred_tools(tools) == tools
    assert deferred_tools_in(tools) == {}
