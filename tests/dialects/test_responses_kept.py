"""What is kept of a turn of the responses API, and told again; values only."""

import json
from typing import Any

import pytest

from proxy.core.ledger.messages import Message
from proxy.dialects import CLIENT_RESPONSE_KEY, raw_json
from proxy.dialects.responses.items import read_item, read_run
from proxy.dialects.responses.request import resolve_references
from proxy.dialects.responses.stored_turn import (
    client_view,
    input_items,
    members_to_store,
    opening_messages,
    page,
    restore_response,
)
from tests.dialects.responses_items import ADDED, CALL, CUSTOM, DEVELOPER, REASONING, RESULT, SAID, TOOLS, USER, request

HIDDEN = {"type": "function_call", "call_id": "h1", "name": "stack_recall", "arguments": "{}"}
OPEN = {"type": "reasoning", "id": "rs_2", "content": [{"type": "reasoning_text", "text": "I think."}]}


def run(*items: dict[str, Any]) -> Message:
    return read_run(json.dumps(items).encode())


def shown(*rounds: Message) -> list[Any]:
    return list(raw_json.parse(client_view(rounds).wire))


# ---------------------------------------------------------------------------------------------------------------- seen
@pytest.mark.parametrize(
    ("made", "left"),
    [
        ([REASONING, HIDDEN], []),
        ([REASONING, HIDDEN, SAID], [REASONING, SAID]),
        ([SAID, REASONING, HIDDEN], [SAID]),
        ([OPEN, HIDDEN], [OPEN]),
        ([REASONING, SAID, HIDDEN, CALL], [REASONING, SAID, CALL]),
        ([SAID, REASONING], [SAID, REASONING]),
        ([{**CUSTOM, "name": "stack"}, SAID], [SAID]),
    ],
)
def test_l6_reasoning_that_goes_with_a_hidden_call_was_not_seen(made: list[Any], left: list[Any]) -> None:
    assert shown(run(*made)) == left


def test_rounds_are_seen_as_one() -> None:
    assert shown(run(SAID, HIDDEN), run(REASONING, CALL)) == [SAID, REASONING, CALL]


# ------------------------------------------------------------------------------------------------------------ the
# answer
def test_an_answer_is_told_as_it_was_its_members_in_their_order() -> None:
    told = {"id": "resp_1", "tools": TOOLS, "output": [SAID], "instructions": None, "usage": {"total_tokens": 3}}

    kept = members_to_store(request(USER), json.dumps(told).encode())
    again = json.loads(restore_response(kept, run(SAID)))

    assert again == told
    assert list(again) == list(told)
    assert b"I look." not in kept[CLIENT_RESPONSE_KEY]


def test_what_opened_the_conversation_comes_back_without_the_instructions() -> None:
    kept = members_to_store(request(DEVELOPER, ADDED, USER, instructions="Be brief."), b"")

    assert [json.loads(message.wire) for message in opening_messages(kept)] == [DEVELOPER, ADDED]
    assert CLIENT_RESPONSE_KEY not in kept
    assert opening_messages({}) == []


def test_s7_tools_that_opened_the_conversation_are_offered_again() -> None:
    named = request(USER, previous_response_id="resp_1")
    before = opening_messages(members_to_store(request(DEVELOPER, ADDED, USER), b""))

    whole = resolve_references(named, before)

    assert whole.tool_names == request(DEVELOPER, ADDED, USER).tool_names != ()
    assert whole.raw_tools == request(DEVELOPER, ADDED, USER).raw_tools
    assert resolve_references(named, before[:1]).tool_names == ()


# ------------------------------------------------------------------------------------------------------------- the
# input
def test_items_of_an_input_have_ids_types_and_parts() -> None:
    plain = {"role": "user", "content": "Hi."}
    messages = [("a", read_item(json.dumps(plain).encode())), ("b", run(REASONING, SAID)), ("c", _result())]

    items = input_items(messages)

    assert [ident for ident, _ in items] == ["msg_a00", "rs_1", "msg_1", "item_c00"]
    assert [json.loads(raw) for _, raw in items] == [
        {"id": "msg_a00", "type": "message", "content": [{"type": "input_text", "text": "Hi."}], "role": "user"},
        REASONING,
        SAID,
        {"id": "item_c00", **RESULT},
    ]


def _result() -> Message:
    return read_item(json.dumps(RESULT).encode())


def test_words_of_the_assistant_are_told_as_output() -> None:
    ((_, raw),) = input_items([("a", run({"role": "assistant", "content": "Hi."}))])

    assert json.loads(raw)["content"] == [{"type": "output_text", "text": "Hi."}]


def test_pages_follow_one_another_without_a_gap() -> None:
    items = [(f"i{n}", b'{"id":"i%d"}' % n) for n in range(7)]
    found, after = [], ""
    while True:
        got = json.loads(page(items, 3, oldest_first=True, after=after))
        found += [item["id"] for item in got["data"]]
        after = got["last_id"]
        if not got["has_more"]:
            break

    assert found == [f"i{n}" for n in range(7)]
    with pytest.raises(KeyError):
        page(items, 3, oldest_first=False, after="unheard of")
