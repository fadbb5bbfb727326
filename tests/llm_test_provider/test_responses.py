"""The responses API of the scripted provider: what it refuses, its events, what it remembers, its reasoning."""

import http.client
import json
from pathlib import Path
from typing import Any

import pytest

from llm_test_provider import (
    Model,
    ScriptedAnswer,
    ScriptedCall,
    ScriptedProvider,
    answers,
    call,
    calls,
    error_chunk,
    says,
)
from llm_test_provider.answer import ErrorEvent
from llm_test_provider.apis.responses_checks import refusal
from llm_test_provider.apis.responses_request import conversation, items_of
from tests.llm_test_provider.speakers import SEALED, SPEAKERS, DialectAnswer, events_of

Json = dict[str, Any]
RESPONSES = SPEAKERS["responses"]
CAPTURES = Path(__file__).resolve().parent.parent.parent.parent / "shared" / "captures"
USER: Json = {"role": "user", "content": "hi"}


def function(name: str, **more: Any) -> Json:
    return {"type": "function_call", "call_id": name, "name": "f", "arguments": "{}", **more}


def output(name: str, **more: Any) -> Json:
    return {"type": "function_call_output", "call_id": name, "output": "ok", **more}


def asked(*items: Json, **more: Any) -> Json:
    return {"model": "m", "input": list(items), **more}


def send(provider: ScriptedProvider, method: str, path: str) -> tuple[int, Json]:
    connection = http.client.HTTPConnection(provider.host, provider.port, timeout=5)
    try:
        connection.request(method, f"/v1/responses/{path}")
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def created(provider: ScriptedProvider, body: Json) -> Json:
    status, raw = RESPONSES.post(provider, body)
    assert status == 200, raw
    response: Json = json.loads(raw)
    return response


def refused(provider: ScriptedProvider, body: Json) -> tuple[int, str]:
    status, raw = RESPONSES.post(provider, body)
    return status, json.loads(raw)["error"]["message"]


# ---------------------------------------------------------------------------------------------------------------
# refused
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"input": "x"}, "Missing required parameter: 'model'"),
        ({"model": "m"}, "Missing required parameter: 'input'"),
        (asked(input=7), "Invalid value for 'input'"),
        (asked(input=["x"]), "Invalid value for 'input'"),
        (asked(USER, max_output_tokens=1), "Invalid value for 'max_output_tokens'"),
        (asked({"x": 1}), "Missing required parameter: 'input[0].type'"),
        (asked(USER, {"role": "user"}), "Missing required parameter: 'input[1].content'"),
        (asked({"role": "tool", "content": "x"}), "Invalid value for 'input[0].role'"),
        (asked({"role": "user", "content": 7}), "Invalid value for 'input[0].content'"),
        (asked({"role": "user", "content": [{"type": "output_text", "text": "x"}]}), "'input[0].content[0].type'"),
        (asked({"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}), "'input[0].content[0].type'"),
        (asked({"type": "reasoning", "encrypted_content": "x"}), "Missing required parameter: 'input[0].summary'"),
        (asked(function("a", arguments={}), output("a")), "Invalid value for 'input[0].arguments'"),
        (asked(function("a", id="call_a"), output("a")), "Invalid value for 'input[0].id'"),
        (asked(USER, tools=[{"type": "function"}]), "Missing required parameter: 'tools[0].name'"),
        (asked(function("a")), "No tool output found for function call a."),
        (asked(function("a"), function("b"), output("a")), "No tool output found for function call b."),
        (asked(output("a")), "No tool call found for function call output with call_id a."),
        (asked(output("a"), function("a")), "No tool call found for function call output with call_id a."),
        (asked({"type": "custom_tool_call_output", "call_id": "a", "output": "x"}), "for custom tool call output"),
        (asked(USER | {"id": "msg_1"}, USER | {"id": "msg_1"}), "Duplicate item found with id msg_1"),
    ],
)
def test_what_the_api_refuses_is_refused_in_its_words(body: Json, words: str) -> None:
    error = refusal(body, items_of(body))

    assert error is not None
    assert words in error.message


@pytest.mark.parametrize(
    "body",
    [
        {"model": "m", "input": "x"},
        {"model": "m", "previous_response_id": "resp_1"},
        asked(USER, function("a", id="fc_1", status="completed"), output("a"), {"type": "of_the_future", "x": 1}),
        asked(USER, function("a"), function("b"), output("b"), output("a")),
        asked(USER, {"type": "local_shell_call", "call_id": "s", "action": {}, "status": "completed"},
              {"type": "local_shell_call_output", "call_id": "s", "output": "x"}),
        asked({"type": "additional_tools", "role": "developer", "tools": []}, USER),
        asked({"type": "compaction", "encrypted_content": "x"}, {"type": "web_search_call", "id": "ws_1"}, USER),
        asked({"role": "assistant", "content": [{"type": "output_text", "text": "x"}, {"type": "refusal"}]}),
    ],
)  # fmt: skip
def test_what_the_api_accepts_is_accepted(body: Json) -> None:
    assert refusal(body, items_of(body)) is None


@pytest.mark.skipif(not CAPTURES.exists(), reason="the captured sessions are not beside this project")
def test_requests_of_real_clients_are_accepted_and_read_as_conversations() -> None:
    """Codex, openai-agents and the Vercel SDK; the last names items by reference, which only a memory can resolve."""
    paths = sorted(CAPTURES.glob("*/*.jsonl"))
    lines = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    bodies = [line["body"] for line in lines if line["path"].endswith("/responses")]

    assert len(bodies) > 50
    for body in bodies:
        items = [item for item in items_of(body) if item.get("type") != "item_reference"]
        told = conversation(body, items)
        assert refusal(body, items) is None
        assert {message["role"] for message in told} <= {"system", "developer", "user", "assistant", "tool"}


# ----------------------------------------------------------------------------------------------------------------
# events
def test_a_stream_is_the_sequence_of_events_that_clients_know(provider: ScriptedProvider) -> None:
    provider.will(answers("Hi.", [call("f", a=1)], reasoning="hm"))

    _, raw = RESPONSES.post(provider, asked(USER, stream=True))

    events = events_of(raw)
    item, part = ("output_item.added", "output_item.done"), ("content_part.added", "content_part.done")
    summary, text, arguments = "reasoning_summary_", "output_text", "function_call_arguments"
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created", "in_progress",
        item[0], f"{summary}part.added", f"{summary}text.delta", f"{summary}text.done", f"{summary}part.done", item[1],
        item[0], part[0], f"{text}.delta", f"{text}.done", part[1], item[1],
        item[0], f"{arguments}.delta", f"{arguments}.done", item[1],
        "completed",
    ]  # fmt: skip
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["output_index"] for event in events if "output_index" in event] == [0] * 6 + [1] * 6 + [2] * 4
    assert b"[DONE]" not in raw


def test_a_stream_may_have_nothing_but_its_ends(provider: ScriptedProvider) -> None:
    provider.will(answers("Hi.", [call("f", a=1)], events=("only_last", "done", "unknown_blocks")))

    _, raw = RESPONSES.post(provider, asked(USER, stream=True))

    assert [event["type"][9:] for event in events_of(raw)] == ["created", "in_progress", "completed"]
    assert events_of(raw)[-1]["response"]["output"][0]["type"] == "vendor_call"
    assert raw.endswith(b"data: [DONE]\n\n")


def test_an_answer_that_was_cut_off_is_incomplete(provider: ScriptedProvider) -> None:
    provider.will(answers("x", [ScriptedCall("f", '{"a": ')], finish="length"))

    _, raw = RESPONSES.post(provider, asked(USER, stream=True))

    last = events_of(raw)[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["status"] for item in last["response"]["output"]] == ["completed", "incomplete"]


def test_a_stream_may_say_that_it_failed(provider: ScriptedProvider) -> None:
    error = {"message": "too long", "code": "context_length_exceeded"}
    provider.will(says("x", error=ErrorEvent(error, after_events=2, as_failed=True)), error_chunk(says("x")))

    (_, failed), (_, broken) = (RESPONSES.post(provider, asked(USER, stream=True)) for _ in range(2))

    assert [event["type"] for event in events_of(failed)][2:] == ["response.failed"]
    assert events_of(failed)[-1]["response"]["error"] == error
    assert events_of(broken) == [
        {"type": "error", "code": "502", "message": "Provider returned error", "param": None, "sequence_number": 0}
    ]


def test_freeform_and_namespaced_tools_are_called_as_they_were_offered(provider: ScriptedProvider) -> None:
    inside = {"type": "namespace", "name": "box", "tools": [{"type": "function", "name": "g"}]}
    tools = {"type": "additional_tools", "role": "developer", "tools": [inside, {"type": "custom", "name": "patch"}]}
    provider.will(answers(calls=[ScriptedCall("patch", "*** Begin"), ScriptedCall("g"), ScriptedCall("unheard")]))

    made = created(provider, asked(tools, USER))["output"]

    assert [item["type"] for item in made] == ["custom_tool_call", "function_call", "function_call"]
    assert (made[0]["input"], made[1]["namespace"], "namespace" in made[2]) == ("*** Begin", "box", False)
    assert provider.asked[0].tool_names == ["g", "patch"]


# ----------------------------------------------------------------------------------------------------------------
# memory
def test_a_response_is_continued_by_its_id(provider: ScriptedProvider) -> None:
    provider.will(calls("f", a=1), says("two"), says("three"))
    first = created(provider, asked(USER, instructions="be good"))
    result = output(first["output"][0]["call_id"])

    second = created(provider, asked(result, previous_response_id=first["id"]))
    created(provider, {"model": "m", "input": "and?", "previous_response_id": second["id"]})

    roles = [[message["role"] for message in received.messages] for received in provider.asked]
    assert roles == [
        ["system", "user"],
        ["user", "assistant", "tool"],
        ["user", "assistant", "tool", "assistant", "user"],
    ]
    assert second["previous_response_id"] == first["id"]
    assert provider.asked[2].usage is not None
    assert provider.asked[2].usage.prompt > 20


def test_a_continued_response_needs_the_results_of_its_calls(provider: ScriptedProvider) -> None:
    provider.will(calls("f"))
    first = created(provider, asked(USER))

    code, words = refused(provider, asked(USER, previous_response_id=first["id"]))

    assert (code, words) == (400, "No tool output found for function call call_00000001.")


@pytest.mark.parametrize("name", ["resp_unheard", "not stored"])
def test_a_response_that_is_not_known_cannot_be_continued(provider: ScriptedProvider, name: str) -> None:
    provider.will(says("one"))
    first = created(provider, asked(USER, store=False))["id"]

    status, raw = RESPONSES.post(provider, asked(USER, previous_response_id=first if name == "not stored" else name))

    assert status == 400
    assert json.loads(raw)["error"]["code"] == "previous_response_not_found"


def test_items_are_named_by_reference_where_they_are_stored(provider: ScriptedProvider) -> None:
    provider.will(answers("one", reasoning="hm"), says("two"), says("kept nowhere"))
    named = [{"type": "item_reference", "id": item["id"]} for item in created(provider, asked(USER))["output"]]

    created(provider, asked(USER, *named, USER, store=False))
    gone = refused(provider, asked(USER, {"type": "item_reference", "id": "msg_scripted_2"}))

    assert [message["content"] for message in provider.asked[1].messages] == ["hi", "one", "hi"]
    assert provider.asked[1].messages[1]["reasoning_content"] == "hm"
    assert gone[0] == 404
    assert gone[1].startswith("Item with id 'msg_scripted_2' not found.")


def test_reasoning_that_came_back_without_its_content_stays_known(provider: ScriptedProvider) -> None:
    provider.will(answers("one", reasoning="hm"), says("two"), says("three"))
    bare, words = created(provider, asked(USER))["output"]
    assert "encrypted_content" not in bare

    for _ in range(2):
        assert created(provider, asked(USER, bare, words, USER))["status"] == "completed"


def test_a_stored_response_can_be_read_listed_and_deleted(provider: ScriptedProvider) -> None:
    provider.will(says("one"))
    response = created(provider, asked(USER, USER | {"id": "msg_mine"}))
    name = response["id"]

    read = send(provider, "GET", name)
    listed = send(provider, "GET", f"{name}/input_items?limit=1")[1]
    rest = send(provider, "GET", f"{name}/input_items?after={listed['last_id']}")[1]
    oldest = send(provider, "GET", f"{name}/input_items?order=asc")[1]["data"][0]["id"]
    deleted = send(provider, "DELETE", name)

    assert read == (200, response)
    assert ([item["id"] for item in listed["data"]], listed["has_more"]) == (["msg_mine"], True)
    assert ([item["id"] for item in rest["data"]], rest["has_more"]) == ([oldest], False)
    assert deleted == (200, {"id": name, "object": "response", "deleted": True})
    assert send(provider, "GET", name)[0] == 404


def test_only_a_response_in_the_background_can_be_cancelled(provider: ScriptedProvider) -> None:
    provider.will(says("one"), says("two"))
    plain, behind = created(provider, asked(USER)), created(provider, asked(USER, background=True))

    ready = send(provider, "GET", behind["id"])[1]
    cancelled = send(provider, "POST", f"{behind['id']}/cancel")

    assert (behind["status"], behind["output"], ready["status"]) == ("queued", [], "completed")
    assert (cancelled[0], cancelled[1]["status"]) == (200, "cancelled")
    assert send(provider, "POST", f"{plain['id']}/cancel")[0] == 400


# -------------------------------------------------------------------------------------------------------------
# reasoning
THINKS = answers("Let me see.", [call("f")], reasoning="I think")


def thought(provider: ScriptedProvider, answer: ScriptedAnswer = THINKS, **more: Any) -> tuple[Json, DialectAnswer]:
    """A first request and its answer with reasoning in it."""
    provider.will(answer, says("done"))
    body = RESPONSES.first("hi", tools=["f"]) | more
    return body, RESPONSES.ask(provider, body)


def test_encrypted_content_is_shown_to_those_who_ask_and_known_to_the_provider(provider: ScriptedProvider) -> None:
    body, heard = thought(provider, include=[])

    following = RESPONSES.then(body, heard, "ok")

    assert "encrypted_content" not in heard.made[0]
    assert created(provider, following)["status"] == "completed"
    assert "encrypted_content" in created_with(provider, include=[SEALED])


def created_with(provider: ScriptedProvider, **more: Any) -> Json:
    """The reasoning item of one more answer."""
    provider.will(THINKS)
    item: Json = created(provider, asked(USER, **more))["output"][0]
    return item


def test_reasoning_without_content_that_nobody_stored_is_not_found(provider: ScriptedProvider) -> None:
    body, heard = thought(provider, include=[], store=False)

    code, words = refused(provider, RESPONSES.then(body, heard, "ok"))

    assert code == 404
    assert words.startswith("Item with id 'rs_scripted_1' not found.")


@pytest.mark.parametrize(
    ("left_out", "words"),
    [
        ([0], "Item 'msg_scripted_1' of type 'message' was provided without its required 'reasoning' item: 'rs_"),
        ([0, 1], "Item 'fc_scripted_1_0' of type 'function_call' was provided without its required 'reasoning' item"),
        ([1], "Item 'rs_scripted_1' of type 'reasoning' was provided without its required following item."),
    ],
)
@pytest.mark.parametrize("binding", ["none", "drop"])
def test_reasoning_and_what_was_made_with_it_go_together(left_out: list[int], words: str, binding: Any) -> None:
    """L8"""
    with ScriptedProvider(models=[Model("m", binding=binding)]) as provider:
        body, heard = thought(provider)
        kept = [item for at, item in enumerate(heard.made) if at not in left_out]
        following = RESPONSES.then(body, DialectAnswer(**{**vars(heard), "made": kept}), "ok")

        code, told = refused(provider, following)

    assert code == 400
    assert told.startswith(words)


def test_without_its_ids_what_was_made_with_reasoning_may_stand_alone(provider: ScriptedProvider) -> None:
    """L8"""
    body, heard = thought(provider)
    kept = [{key: item[key] for key in item if key != "id"} for item in heard.made[1:]]

    assert (
        created(provider, RESPONSES.then(body, DialectAnswer(**{**vars(heard), "made": kept}), "ok"))["status"]
        == "completed"
    )


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"metadata": {"a": "b"}, "tool_choice": "none", "prompt_cache_key": "x"}, 200),
        ({"instructions": "another"}, 400),
        ({"tools": []}, 400),
        ({"text": {"format": {"type": "json_object"}}}, 400),
    ],
)
def test_reasoning_is_bound_to_instructions_tools_format_and_input(change: Json, code: int) -> None:
    """L8"""
    with ScriptedProvider(models=[Model("m", binding="error")]) as provider:
        body, heard = thought(provider)

        assert RESPONSES.post(provider, RESPONSES.then(body, heard, "ok") | change)[0] == code


def test_items_are_the_same_under_new_ids() -> None:
    """L8: a client gives its items new ids when it has rewritten its history."""
    with ScriptedProvider(models=[Model("m", binding="error")]) as provider:
        body, heard = thought(provider)
        provider.script.queue.answers[1:] = [answers("done", reasoning="again"), says("held")]
        following = RESPONSES.then(body, heard, "ok")
        last = RESPONSES.then(following, RESPONSES.ask(provider, following), text="go on")
        renamed = [
            item | {"id": f"{item['id'].split('_')[0]}_new{at}"} if "id" in item else item
            for at, item in enumerate(last["input"])
        ]

        assert RESPONSES.post(provider, last | {"input": renamed})[0] == 200


def test_another_spelling_of_the_newest_answer_changes_nothing() -> None:
    """L8"""
    with ScriptedProvider(models=[Model("m", binding="error")]) as provider:
        body, heard = thought(provider)
        reasoning, _, function_call = heard.made
        respelled = [
            {key: reasoning[key] for key in ("type", "summary", "encrypted_content")},
            {"role": "assistant", "content": "Let me see."},
            {key: function_call[key] for key in ("type", "call_id", "name")} | {"arguments": "{ }"},
        ]
        following = RESPONSES.then(body, DialectAnswer(**{**vars(heard), "made": respelled}), "ok")

        assert RESPONSES.post(provider, following)[0] == 200
