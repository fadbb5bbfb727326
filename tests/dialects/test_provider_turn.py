"""What a provider tells of a response that it stores, read and written as a client would send it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.dialects.responses.provider_turn import (
    InputPage,
    as_client_sends,
    item_ids,
    read_input_page,
    read_stored_response,
)

pytestmark = pytest.mark.rows("X-61")

Json = dict[str, Any]
SAID: Json = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
OWN: Json = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "stack_frame_push", "arguments": "{}"}


def raw(value: object) -> bytes:
    return json.dumps(value).encode()


def response(**members: Any) -> bytes:
    return raw({"object": "response", "status": "completed", "output": [SAID], **members})


def test_a_whole_response_tells_its_items_and_the_one_before_it() -> None:
    read = read_stored_response(response(previous_response_id="resp_0"))

    assert read is not None
    assert (read.previous, [json.loads(item) for item in read.output]) == ("resp_0", [SAID])
    assert read_stored_response(response(status="incomplete", previous_response_id=None)) == ("", read.output)


@pytest.mark.parametrize(
    "body",
    [
        b"<html>", b"[]", b"", raw({"status": "completed"}), response(status="in_progress"), response(status="failed"),
        response(conversation={"id": "conv_1"}), response(output=[]), response(output=[SAID, OWN]),
    ],
)  # fmt: skip
def test_what_is_not_whole_or_has_more_elsewhere_is_none(body: bytes) -> None:
    """A call of a tool of ours was answered by another proxy, which alone knows the rest of that turn."""
    assert read_stored_response(body) is None


@pytest.mark.parametrize(
    ("told", "page"),
    [
        ({"data": [SAID]}, InputPage((raw(SAID),), "")),
        ({"data": [SAID], "has_more": True}, InputPage((raw(SAID),), "msg_1")),
        ({"data": [SAID], "has_more": True, "last_id": "msg_9"}, InputPage((raw(SAID),), "msg_9")),
        ({"data": [], "has_more": True}, None),
        ({"items": []}, None),
    ],
)
def test_a_page_tells_where_the_next_one_begins(told: Json, page: InputPage | None) -> None:
    assert read_input_page(raw(told)) == page


def test_items_are_written_as_a_client_sends_them() -> None:
    """Ids that providers give to a client's items are not taken back; those of the model's items are needed."""
    user, result = {"role": "user", "content": "look"}, {"type": "function_call_output", "call_id": "c9", "output": "x"}
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    own_result = {"type": "function_call_output", "call_id": "c1", "output": "<frame-results>done</frame-results>"}
    theirs, ours = {"type": "function", "name": "bash"}, {"type": "function", "name": "stack_recall"}
    sent = as_client_sends(
        [
            raw(item)
            for item in (
                {"id": "item_1_0", **user}, {"id": "msg_0", **user}, SAID, {**SAID, "id": "item_2_1"}, reasoning,
                search, {"id": "fco_1", **result}, OWN, own_result,
                {"type": "additional_tools", "tools": [theirs, ours]}, {"type": "additional_tools", "tools": [ours]},
            )
        ]
    )  # fmt: skip

    without_id = {name: value for name, value in SAID.items() if name != "id"}
    *read, shown, offer = [json.loads(item) for item in sent]
    assert read == [user, user, SAID, without_id, reasoning, search, result]
    assert (shown["role"], "<frame-results>done" in json.dumps(shown)) == ("user", True)
    assert offer == {"type": "additional_tools", "tools": [theirs]}
    assert item_ids(sent) == {"msg_1", "rs_1", "ws_1"}
