"""What holds messages together beside calls and their results, in each API that has it."""

import json
from typing import Any

import pytest

from proxy.dialects.links import links_in, links_of
from proxy.dialects.messages.message import read_message

pytestmark = pytest.mark.rows("X-46")
BEGUN = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
ENDED = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
CALLED = {"type": "tool_use", "id": "t1", "name": "x", "input": {}, "caller": {"type": "code", "tool_id": "s1"}}
TEXT = {"type": "text", "text": "server_tool_use and approval_request"}
ASKED = {"type": "mcp_approval_request", "id": "m1", "name": "t", "server_label": "s", "arguments": "{}"}
RAN = {"type": "mcp_call", "id": "c1", "approval_request_id": "m1", "output": "4"}


@pytest.mark.parametrize(
    ("parts", "links"),
    [
        ([TEXT], ()),
        ([BEGUN, ENDED, TEXT], ()),
        ([BEGUN, CALLED, ENDED], ()),
        ([BEGUN | {"type": "mcp_tool_use"}, TEXT], ("s1",)),
        ([ENDED, TEXT, BEGUN | {"id": "s0"}], ("s0", "s1")),
        ([CALLED], ("s1",)),
        ([CALLED | {"caller": {"type": "direct"}}, CALLED | {"caller": None}], ()),
        ([CALLED, ENDED], ("s1",)),
        ([ASKED], ("m1",)),
        ([RAN, RAN | {"approval_request_id": None}], ("m1",)),
        (["no part", None, {"type": 1}, {"type": "server_tool_use"}, {"caller": {"tool_id": 1}}], ()),
    ],
)
def test_a_message_is_linked_by_what_does_not_both_begin_and_end_in_it(parts: list[Any], links: tuple[str]) -> None:
    assert links_of(parts) == links
    assert links_in(json.dumps(parts).encode()) == links
    assert links_in(json.dumps({"role": "assistant", "content": parts}).encode()) == links


def test_what_cannot_be_read_has_no_links() -> None:
    assert links_in(b"[server_tool_use") == links_in(b'"server_tool_use"') == links_in(b'{"x":"server_tool_use"}') == ()


def test_a_users_result_is_a_pair_by_its_call() -> None:
    assert read_message(b'{"role":"assistant","content":[' + json.dumps(BEGUN).encode() + b"]}").links == ("s1",)
    assert read_message(b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"s1"}]}').links == ()
