"""A request of the responses API taken apart and written again (RELIABILITY P1-P3; X-20, X-21, X-23; CLIENTS 8), beyond
what holds in every dialect (`test_every_request.py`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from proxy.core.context.message_list import UNANSWERED_CALL_RESULT
from proxy.core.ledger.messages import Message, Request
from proxy.dialects.base import RenderOptions
from proxy.dialects.parse_cache import ParseCache, countable_texts, with_token_counts
from proxy.dialects.responses.items import tool_result
from proxy.dialects.responses.request import OPENAI_RESPONSES, client_body, extend_head, render, tools_json
from tests.dialects.responses_items import (
    ADDED,
    CALL,
    CUSTOM,
    DEVELOPER,
    REASONING,
    RESULT,
    SAID,
    TOOLS,
    USER,
    body,
    request,
)

read = OPENAI_RESPONSES.parse_request

OURS = tools_json([{"name": "stack_recall", "description": "d", "parameters": {}}])


def rendered(asked: Request, wanted: RenderOptions | None = None, guidance: str = "", *line: Message) -> dict[str, Any]:
    pieces = render(asked, line or asked.messages, extend_head(asked, guidance), wanted or RenderOptions())
    found = json.loads(b"".join(pieces))
    assert isinstance(found, dict)
    return found


def roles(asked: Request) -> list[str]:
    return [message.role for message in asked.messages]


# -------------------------------------------------------------------------------------------------------------- read
@pytest.mark.rows("X-20")
def test_x20_a_request_is_read() -> None:
    asked = request(ADDED, DEVELOPER, USER, REASONING, SAID, CALL, RESULT, instructions="Be brief.", stream=True)
    assert [(m.role, m.text) for m in asked.head] == [
        ("system", "Be brief."),
        ("developer", ""),
        ("developer", "You write code."),
    ]
    assert roles(asked) == ["user", "assistant", "tool"]
    run = asked.messages[1]
    assert run.text == "I look."
    assert [(c.id, c.name, c.arguments) for c in run.calls] == [("c1", "bash", '{"cmd": "ls", "a": 1}')]
    assert json.loads(run.wire) == [REASONING, SAID, CALL]
    assert (asked.messages[2].answers, asked.messages[2].text) == ("c1", "login.py")
    assert (asked.model, asked.stream, asked.wants_usage, asked.choice_count) == ("m", True, True, 1)


def test_an_input_that_is_a_text_is_a_users_message_and_stays_a_text_while_it_is_alone() -> None:
    asked = request(input="Fix the login.")
    assert [(m.role, m.text) for m in asked.messages] == [("user", "Fix the login.")]
    assert asked.messages[0].identity == request(USER).messages[0].identity
    assert rendered(asked)["input"] == "Fix the login."
    assert b"".join(client_body(asked)) == asked.body
    answered = rendered(asked, None, "", *asked.messages, *request(SAID).messages)
    assert answered["input"] == [{"role": "user", "content": "Fix the login."}, SAID]


def test_instructions_and_an_input_of_the_same_words_are_two_messages() -> None:
    known = ParseCache()
    first = read(body(input="same", instructions="same"), known)
    for asked in (first, read(first.body, known)):
        assert [m.role for m in (*asked.head, *asked.messages)] == ["system", "user"]


@pytest.mark.parametrize("instructions", [None, ["a"], 7])
def test_instructions_that_are_no_text_pass_and_are_no_message(instructions: object) -> None:
    asked = request(USER, instructions=instructions)
    assert asked.head == ()
    assert rendered(asked)["instructions"] == instructions


@pytest.mark.rows("X-23")
@pytest.mark.parametrize(
    ("members", "choice"),
    [
        ({}, "auto"),
        ({"tool_choice": None}, "auto"),
        ({"tool_choice": "none"}, "none"),
        ({"tool_choice": "required"}, "required"),
        ({"tool_choice": {"type": "function", "name": "bash"}}, "forced"),
        ({"tool_choice": {"type": "web_search"}}, "forced"),
        ({"tool_choice": {"type": "allowed_tools", "mode": "required", "tools": []}}, "required"),
        ({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}, "auto"),
        ({"tool_choice": {"type": "allowed_tools", "mode": "auto"}}, "forced"),
    ],
)
def test_x23_a_forced_choice_is_known(members: dict[str, Any], choice: str) -> None:
    assert request(USER, **members).tool_choice == choice


@pytest.mark.rows("X-23")
def test_x23_structured_answers_are_known() -> None:
    assert request(USER, text={"format": {"type": "json_schema"}, "verbosity": "low"}).wants_structured_output
    assert not request(USER, text={"format": {"type": "text"}}).wants_structured_output
    assert not request(USER, text={"verbosity": "low"}).wants_structured_output


def test_tools_are_known_by_name_those_of_the_provider_by_type_those_in_namespaces_by_themselves() -> None:
    web = {"type": "web_search", "external_web_access": False}
    space = {"type": "namespace", "name": "agents", "description": "", "tools": [{"type": "function", "name": "spawn"}]}
    patch = {"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}}
    asked = request(ADDED, USER, tools=[*TOOLS, web, space, patch, 7])
    assert asked.tool_names == ("bash", "web_search", "spawn", "apply_patch", "exec", "wait")
    assert request(USER, ADDED).tool_names == ("exec", "wait")
    assert request(USER).tool_names == ()


def test_tools_in_the_input_are_counted_once_as_tools() -> None:
    known = ParseCache()
    asked = read(body(ADDED, USER), known)
    texts = countable_texts(asked)
    assert texts[:2] == ["", "Fix the login."]
    assert json.loads(texts[2]) == ADDED
    full = with_token_counts(asked, [len(t) for t in texts], known)
    assert full.tokens == sum(len(t) for t in texts)
    assert (full.head, full.messages) == (tuple(full.slices[0].messages), tuple(full.slices[1].messages))
    assert countable_texts(read(body(ADDED, USER), known)) == []


def test_p2_odd_instructions_are_kept_and_take_guidance() -> None:
    raw = b'{"model":"m","instructions":"a\\q\xff","input":"hi"}'
    asked = read(raw, ParseCache())
    assert b"".join(client_body(asked)) == raw
    assert extend_head(asked, "g") == (b'"a\\q\xff\\n\\ng"',)


# ------------------------------------------------------------------------------------------------------------- known
def test_a_run_is_read_and_counted_once() -> None:
    known = ParseCache()
    first = read(body(USER, REASONING, SAID, CALL, instructions="Be brief."), known)
    texts = countable_texts(first)
    assert texts == ["Be brief.", "Fix the login.", 'I look.\nbash {"cmd": "ls", "a": 1}']
    full = with_token_counts(first, [len(t) for t in texts], known)
    assert full.tokens == sum(len(t) for t in texts)
    again = read(body(USER, REASONING, SAID, CALL, RESULT, instructions="Be brief."), known)
    assert countable_texts(again) == ["login.py"]
    assert again.messages[1] is full.messages[1]


def test_a_run_that_grew_is_another_message() -> None:
    known = ParseCache()
    read(body(USER, SAID), known)
    assert [m.text for m in read(body(USER, SAID, CALL), known).messages] == ["Fix the login.", "I look."]


# ------------------------------------------------------------------------------------------------------------ render
def test_p1_what_is_not_changed_is_the_clients_bytes() -> None:
    items = b'{"type":"reasoning","id":"r"},\n {"type":"function_call","call_id":"c","name":"b"},{"role":"user"}'
    raw = b'{"model":"m","x":{"y": [1,  2]},"instructions":"a","input":[{"role":"system"},' + items + b'],"store":true}'
    asked = read(raw, ParseCache())
    pieces = render(asked, asked.messages, [m.wire for m in asked.head], RenderOptions())
    assert b"".join(pieces) == raw == b"".join(client_body(asked))
    assert asked.messages[-1].wire in pieces
    assert set(pieces) >= set(client_body(asked)[1::2])


def test_what_the_client_says_beside_its_items_is_untouched() -> None:
    beside = {
        "prompt_cache_key": "k",
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "client_metadata": {"turn": "1"},
        "metadata": {"a": "b"},
        "parallel_tool_calls": False,
        "truncation": "auto",
        "unheard_of": 1,
    }
    found = rendered(request(USER, **beside), RenderOptions(OURS), "g")
    assert {name: found[name] for name in beside} == beside


def test_a_tool_of_ours_is_a_function_that_is_not_strict() -> None:
    ours = {"type": "function", "name": "stack_recall", "description": "d", "parameters": {}, "strict": False}
    assert json.loads(OURS) == [ours]


def test_where_tools_stand_in_the_input_ours_stand_there_in_a_namespace_as_theirs_do() -> None:
    found = rendered(request(ADDED, DEVELOPER, USER), RenderOptions(OURS), "g")
    assert "tools" not in found
    *theirs, ours = found["input"][0]["tools"]
    assert theirs == ADDED["tools"]
    assert (ours["type"], ours["tools"]) == ("namespace", json.loads(OURS))
    assert found["input"][0] == ADDED | {"tools": [*theirs, ours]}
    assert found["input"][1] == DEVELOPER


@pytest.mark.parametrize("theirs", [TOOLS, [*ADDED["tools"], *TOOLS], [], None])
def test_beside_tools_of_the_input_without_a_namespace_ours_have_none(theirs: list[Any] | None) -> None:
    found = rendered(request(ADDED | {"tools": theirs}, USER), RenderOptions(OURS))
    assert found["input"][0]["tools"] == [*(theirs or []), *json.loads(OURS)]


@pytest.mark.parametrize("items", [(USER, ADDED), (ADDED, USER)])
def test_tools_of_the_input_behind_a_message_or_beside_an_array_are_left_alone(items: tuple[Any, ...]) -> None:
    asked = request(*items, tools=TOOLS) if items[0] is ADDED else request(*items)
    found = rendered(asked, RenderOptions(OURS))
    assert found["input"] == list(items)
    assert found["tools"][-1:] == json.loads(OURS)


@pytest.mark.rows("S4-07")
def test_s4_07_usage_is_never_asked_for() -> None:
    assert rendered(request(USER, stream=True), RenderOptions()).keys() == {"model", "input", "stream"}


def test_p3_the_same_request_is_the_same_bytes() -> None:
    asked = [request(ADDED, USER, SAID, instructions="a") for _ in range(2)]
    assert len({render(a, a.messages[:1], extend_head(a, "g"), RenderOptions(OURS)) for a in asked}) == 1


def test_a_run_of_nothing_leaves_no_trace() -> None:
    empty = Message("assistant", b"[]", "e")
    asked = request(USER, RESULT)
    assert rendered(asked, None, "", empty, asked.messages[0], empty, asked.messages[1], empty)["input"] == [
        USER,
        RESULT,
    ]


ANSWERS: Mapping[str, dict[str, Any]] = {
    "function_call": {"type": "function_call_output", "output": UNANSWERED_CALL_RESULT},
    "custom_tool_call": {"type": "custom_tool_call_output", "output": UNANSWERED_CALL_RESULT},
    "apply_patch_call": {"type": "apply_patch_call_output", "status": "failed", "output": UNANSWERED_CALL_RESULT},
    "tool_search_call": {"type": "tool_search_output", "execution": "client", "status": "completed", "tools": []},
    "local_shell_call": {"type": "function_call_output", "output": UNANSWERED_CALL_RESULT},
}


@pytest.mark.rows("S4-53")
@pytest.mark.parametrize("kind", ANSWERS)
def test_s4_53_a_call_the_client_never_answered_is_answered_as_its_kind_asks(kind: str) -> None:
    asked = request(USER, CUSTOM | {"type": kind, "call_id": "c9"})
    line = (*asked.messages, tool_result("c9", UNANSWERED_CALL_RESULT), tool_result("c9", "of ours"))
    said = rendered(asked, None, "", *line)["input"]
    assert said[2] == ANSWERS[kind] | {"call_id": "c9"}
    assert said[3] == {"type": "function_call_output", "call_id": "c9", "output": "of ours"}


# ---------------------------------------------------------------------------------------------------------- guidance
@pytest.mark.rows("S1-102")
def test_guidance_stands_at_the_end_of_the_instructions() -> None:
    found = rendered(request(DEVELOPER, USER, instructions="Be brief."), RenderOptions(), 'Use "frames".\n')
    assert found["instructions"] == 'Be brief.\n\nUse "frames".\n'
    assert found["input"] == [DEVELOPER, USER]
    assert rendered(request(USER, instructions=""), RenderOptions(), "g")["instructions"] == "g"


@pytest.mark.parametrize(
    ("head", "role"),
    [
        ([], "developer"),
        ([DEVELOPER], "developer"),
        ([{"role": "system", "content": "a"}], "system"),
        ([ADDED], "developer"),
    ],
)
def test_guidance_without_instructions_is_one_more_item_behind_the_leading_ones(head: list[Any], role: str) -> None:
    found = rendered(request(*head, USER), RenderOptions(), "g")
    ours = {"type": "message", "role": role, "content": [{"type": "input_text", "text": "g"}]}
    assert found["input"] == [*head, ours, USER]


def test_nothing_to_say_changes_nothing() -> None:
    asked = request(DEVELOPER, USER, instructions="a")
    assert extend_head(asked, "") == tuple(m.wire for m in asked.head)
