"""The messages API of the scripted provider: what it refuses, its events, its caches, its thinking."""

import http.client
import json
from pathlib import Path
from typing import Any

import pytest

from llm_test_provider import Model, ScriptedCall, ScriptedProvider, answers, call, calls, says
from llm_test_provider.apis.messages_checks import BINDING_BETA, refusal
from tests.llm_test_provider.speakers import SPEAKERS, events_of

Json = dict[str, Any]
MESSAGES = SPEAKERS["messages"]
CAPTURES = Path(__file__).resolve().parent.parent.parent.parent / "shared" / "captures" / "claude"
MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
UNOPENED = "Expected `thinking` or `redacted_thinking`, but found `tool_use`"


def user(*blocks: Json | str) -> Json:
    return {"role": "user", "content": [text(each) if isinstance(each, str) else each for each in blocks]}


def assistant(*blocks: Json | str) -> Json:
    return user(*blocks) | {"role": "assistant"}


def text(words: str, **more: Any) -> Json:
    return {"type": "text", "text": words, **more}


def use(name: str) -> Json:
    return {"type": "tool_use", "id": name, "name": "f", "input": {}}


def result(name: str, content: Any = "ok") -> Json:
    return {"type": "tool_result", "tool_use_id": name, "content": content}


def asked(*messages: Json, **more: Any) -> Json:
    return {"model": "m", "max_tokens": 2000, "messages": list(messages), **more}


SYSTEM = {"role": "system", "content": "s"}
THOUGHT: Json = {"type": "thinking", "thinking": "hm", "signature": "s"}
MANUAL: Json = {"thinking": {"type": "enabled", "budget_tokens": 1024}}


# ---------------------------------------------------------------------------------------------------------------
# refused
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([], "not valid JSON"),
        ({"max_tokens": 1, "messages": [user("x")]}, "model: Field required"),
        ({"model": "m", "messages": [user("x")]}, "max_tokens: Field required"),
        (asked(user("x"), max_tokens=0), "max_tokens: Input should be a valid integer"),
        (asked(), "at least one message is required"),
        (asked("x"), "messages: Input should be a valid list"),  # type: ignore[arg-type]
        (asked({"role": "tool", "content": "x"}), "messages.0.role: Input should be"),
        (asked(assistant("x")), 'first message must use the "user" role'),
        (asked(user("x"), {"role": "user", "content": 7}), "messages.1.content: Input should be a valid string"),
        (asked({"role": "user", "content": ""}), "messages.0: all messages must have non-empty content"),
        (asked(user("x"), assistant(), user("y")), "messages.1: all messages must have non-empty content"),
        (asked(user("")), "text content blocks must be non-empty"),
        (asked(user(text("", **MARK))), "cache_control cannot be set for empty text blocks"),
        (asked(user(" \n")), "text content blocks must contain non-whitespace text"),
        (asked(user("x"), assistant("y ")), "final assistant content cannot end with trailing whitespace"),
        (asked(user({"text": "x"})), "messages.0.content.0.type: Field required"),
        (asked(user("x"), system=[text("")]), "system: text content blocks must be non-empty"),
        (asked(user(use("a"))), "`tool_use` blocks can only be in `assistant` messages"),
        (asked(user("x"), assistant(result("a"))), "`tool_result` blocks can only be in `user` messages"),
        (asked(user(THOUGHT)), "`thinking` blocks can only be in `assistant` messages"),
        (asked(user("x"), assistant({"type": "thinking", "thinking": ""}), user("y")), "thinking.signature: Field req"),
        (asked(user("x"), assistant(THOUGHT | MARK), user("y")), "thinking.cache_control: Extra inputs"),
        (asked(user("x"), assistant(use("a") | {"input": "{}"})), "tool_use.input: Input should be a valid dictionary"),
        (asked(user("x"), assistant(use("a b")), user(result("a b"))), "String should match pattern"),
        (asked(user("x"), tools=[{"name": "f"}, {"name": "f"}]), "Tool names must be unique"),
        (asked(user("x"), tools=[{"name": "f.g"}]), "tools.0.custom.name: String should match pattern"),
        (asked(user("x"), assistant(use("a"))), "messages.1: `tool_use` ids were found without `tool_result` blocks"),
        (asked(user("x"), assistant(use("a")), user("no")), "immediately after: a."),
        (asked(user("x"), assistant(use("a"), use("b")), user(result("a"))), "immediately after: b."),
        (asked(user("x"), assistant(use("a")), user("first", result("a"))), "immediately after: a."),
        (
            asked(user("x"), assistant(use("a")), {"role": "system", "content": "psst"}, user(result("a"))),
            "immediately after: a.",
        ),
        (asked(user("x"), SYSTEM, user("y")), "messages.1: role 'system' must precede an 'assistant' message"),
        (asked(SYSTEM, user("x")), "messages.0: role 'system' must follow a 'user' message"),
        (
            asked(user("x"), assistant("y"), SYSTEM, assistant("z"), user("w")),
            "messages.2: role 'system' must follow a 'user' message",
        ),
        (
            asked(user("x"), {"role": "system", "content": [{"type": "tool_addition", "tool": {}}]}),
            "messages.1: tool changes need the beta `inline-tools-2026-09-15`",
        ),
        (asked(user("x"), assistant("y"), user(result("a"))), "messages.2.content.0: unexpected `tool_use_id` found"),
        (asked(user(result("a"))), "unexpected `tool_use_id` found in `tool_result` blocks: a."),
        (asked(user("x"), assistant(use("a")), user(result("a"), result("a"))), "must have a single result"),
        (asked(user("x"), assistant(use("a"), use("a")), user(result("a"))), "`tool_use` ids must be unique"),
        (
            asked(user("x"), assistant(use("a")), user(result("a")), assistant(use("a")), user(result("a"))),
            "`tool_use` ids must be unique",
        ),
        (asked(user(*(text("x", **MARK) for _ in range(5)))), "A maximum of 4 blocks with cache_control may be"),
        (asked(user(*(text("x", **MARK) for _ in range(4))), system=[text("s", **MARK)]), "Found 5."),
        (asked(user(*(text("x", **MARK) for _ in range(4))), **MARK), "Found 5."),
        (asked(user(text("x", **HOUR)), system=[text("s", **MARK)]), "a ttl='1h' cache_control block must not"),
        (asked(user("x"), thinking={"type": "enabled", "budget_tokens": 10}), "than or equal to 1024"),
        (asked(user("x"), max_tokens=1024, **MANUAL), "`max_tokens` must be greater than `thinking.budget_tokens`."),
        (asked(user("x"), tool_choice={"type": "any"}, **MANUAL), "Thinking may not be enabled when tool_choice"),
        (asked(user("x"), assistant(use("a")), user(result("a")), **MANUAL), "messages.1.content.0.type: Expected"),
        (
            asked(user("x"), thinking={"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}),
            "thinking.block_binding: Extra inputs are not permitted",
        ),
    ],
)  # fmt: skip
def test_what_the_api_refuses_is_refused_in_its_words(body: Any, words: str) -> None:
    assert words in refusal(body)


@pytest.mark.parametrize(
    "body",
    [
        asked({"role": "user", "content": "x"}),
        asked(user("x"), assistant("half an ans")),
        asked(user("x"), assistant()),
        asked(user("x"), user("y"), system="s"),
        asked(user("x"), {"role": "system", "content": "s"}, {"role": "system", "content": "t"}),
        asked(
            user("x"), {"role": "system", "content": "s"}, assistant("y"), user("z"), {"role": "system", "content": "t"}
        ),
        asked({"role": "system", "content": [], "output_config": {"effort": "low"}}, user("x")),
        asked(user("x"), assistant(use("a"), use("b")), user(result("b"), result("a"), "and")),
        asked(user("x"), assistant(use("a")), user(result("a", [text("t"), {"type": "image", "source": {}}]))),
        asked(user("x"), assistant(use("a")), user({"type": "tool_result", "tool_use_id": "a"})),
        asked(user("x"), assistant({"type": "server_tool_use", "id": "s"}, {"type": "of_the_future"}), user("y")),
        asked(user(*(text("x", **MARK) for _ in range(4)))),
        asked(user(text("x", **MARK)), system=[text("s", **HOUR)]),
        asked(user("x"), assistant(THOUGHT, use("a")), user(result("a")), **MANUAL),
        asked(user("x"), assistant({"type": "redacted_thinking", "data": ""}, use("a")), user(result("a")), **MANUAL),
        asked(user("x"), assistant(use("a")), user(result("a"), "a new turn"), **MANUAL),
        asked(user("x"), assistant(use("a")), user(result("a")), thinking={"type": "adaptive"}),
    ],
)
def test_what_the_api_accepts_is_accepted(body: Json) -> None:
    assert refusal(body) == ""


@pytest.mark.skipif(not CAPTURES.exists(), reason="the captured sessions are not beside this project")
def test_requests_of_a_real_client_are_accepted() -> None:
    """Less those of manual thinking: the recording's scripted model never thought."""
    lines = [line for path in sorted(CAPTURES.glob("*.jsonl")) for line in path.read_text().splitlines()]
    bodies = [json.loads(line)["body"] for line in lines]
    bodies = [body for body in bodies if body and "messages" in body]

    assert len(bodies) > 50
    assert {refusal(body) for body in bodies if body["thinking"]["type"] != "enabled"} <= {""}
    assert all(UNOPENED[:40] in words for body in bodies if (words := refusal(body)))


def test_a_refused_request_takes_no_answer(provider: ScriptedProvider) -> None:
    provider.will(says("kept"))

    code, raw = MESSAGES.post(provider, asked(user("x"), assistant(use("a"))))

    assert code == 400
    assert json.loads(raw)["error"]["type"] == "invalid_request_error"
    assert provider.script.left == 1


# ----------------------------------------------------------------------------------------------------------------
# events
def test_a_stream_is_the_sequence_of_events_that_clients_know(provider: ScriptedProvider) -> None:
    provider.will(answers("Hi.", [call("f", a=1)], reasoning="hm"))

    _, raw = MESSAGES.post(provider, asked(user("x"), stream=True))

    told = [(event["type"].removeprefix("content_block_"), event.get("index")) for event in events_of(raw)]
    blocks = [("start", 0), *[("delta", 0)] * 2, ("stop", 0), ("start", 1), ("delta", 1), ("stop", 1)]
    blocks += [("start", 2), *[("delta", 2)] * 2, ("stop", 2)]
    assert told == [
        ("message_start", None), ("ping", None), *blocks, ("message_delta", None), ("message_stop", None)
    ]  # fmt: skip
    names = [line.removeprefix("event: ") for line in raw.decode().splitlines() if line.startswith("event:")]
    assert names == [event["type"] for event in events_of(raw)]


def test_blocks_may_come_whole_of_unknown_kind_and_counted_from_1(provider: ScriptedProvider) -> None:
    odd = answers("Hi.", [call("f", a=1)], events=("no_deltas", "unknown_blocks", "from_1"))
    provider.will(odd)

    _, raw = MESSAGES.post(provider, asked(user("x"), stream=True))

    events = events_of(raw)
    opened = {event["index"]: event["content_block"] for event in events if event["type"] == "content_block_start"}
    assert [opened[at]["type"] for at in (1, 2, 3)] == ["vendor_block", "text", "tool_use"]
    assert (opened[2]["text"], opened[3]["input"]) == ("Hi.", {"a": 1})
    assert not [event for event in events if event["type"] == "content_block_delta"]


def test_further_members_of_an_answer_come_with_its_end(provider: ScriptedProvider) -> None:
    edits = {"context_management": {"applied_edits": [{"type": "clear_tool_uses_20250919"}]}}
    provider.will(says("x", extra=edits), says("x", extra=edits))

    _, raw = MESSAGES.post(provider, asked(user("x"), stream=True))
    _, whole = MESSAGES.post(provider, asked(user("x")))

    assert edits.items() <= events_of(raw)[-2].items()
    assert edits.items() <= json.loads(whole).items()


def test_usage_is_told_in_three_parts(provider: ScriptedProvider) -> None:
    provider.will(says("hello"))

    _, raw = MESSAGES.post(provider, asked(user(text("word " * 2000, **MARK), "tail"), stream=True))

    start, *_, delta, _ = events_of(raw)
    usage = start["message"]["usage"]
    assert usage["cache_creation_input_tokens"] > 1024
    assert (usage["input_tokens"] > 0, usage["output_tokens"]) == (True, 1)
    assert delta["usage"]["output_tokens"] > 0
    assert usage["input_tokens"] == delta["usage"]["input_tokens"]


def test_tokens_are_counted_without_an_answer(provider: ScriptedProvider) -> None:
    provider.will(says("kept"))
    body = asked(user("some words"), system="s")
    del body["max_tokens"]
    connection = http.client.HTTPConnection(provider.host, provider.port, timeout=5)

    counted = []
    for each in (body, body | {"messages": []}):
        connection.request("POST", "/v1/messages/count_tokens", json.dumps(each))
        response = connection.getresponse()
        counted.append((response.status, json.loads(response.read())))
    connection.close()

    assert counted[0] == (200, {"input_tokens": 7})
    assert (counted[1][0], counted[1][1]["error"]["type"]) == (400, "invalid_request_error")
    assert provider.asked == []


# ----------------------------------------------------------------------------------------------------------------
# caches
def usages(*bodies: Json) -> list[tuple[int, int, int]]:
    """What each request read from the cache, wrote to it, and paid in full. A character is a token."""
    with ScriptedProvider(*(says("x") for _ in bodies), count=len) as provider:
        for body in bodies:
            MESSAGES.post(provider, body)
    used = [received.usage for received in provider.asked if received.usage]
    return [(each.cached, each.written, each.prompt - each.cached - each.written) for each in used]


def test_only_what_a_request_marks_is_cached() -> None:
    first, second = user(text("x" * 1996, **MARK)), user("y" * 96)

    unmarked, marked = asked(user("x" * 1996), second), asked(first, second)

    assert usages(unmarked, unmarked, marked, marked) == [
        (0, 0, 2100), (0, 0, 2100), (0, 2000, 100), (2000, 0, 100)
    ]  # fmt: skip


def test_a_marker_that_moves_on_finds_what_it_wrote_before() -> None:
    first, second = "x" * 1996, "y" * 96

    grown = asked(user(first), assistant("z" * 96), user(text(second, **MARK)))

    assert usages(asked(user(text(first, **MARK))), grown) == [(0, 2000, 0), (2000, 200, 0)]


def test_a_marker_looks_back_twenty_blocks_and_no_further() -> None:
    first = asked(user(text("x" * 1996, **MARK)))

    def grown(blocks: int) -> Json:
        return asked(user("x" * 1996, *["y"] * (blocks - 1), text("y", **MARK)))

    assert [cached for cached, _, _ in usages(first, grown(20), first, grown(19))] == [0, 0, 2000, 2000]


def test_a_prefix_below_the_minimum_is_not_cached_and_a_marker_beside_the_messages_marks_the_last_block() -> None:
    assert usages(asked(user(text("x" * 1019, **MARK))))[0] == (0, 0, 1023)
    assert usages(asked(user("x" * 1020), **MARK))[0] == (0, 1024, 0)


def test_what_is_marked_for_an_hour_lives_an_hour_and_is_told_apart() -> None:
    """Its price is another one."""
    seconds = 0.0
    body = asked(user("x" * 96), system=[text("s" * 2000, **HOUR)]) | MARK
    with ScriptedProvider(*[says("x")] * 3, count=len, clock=lambda: seconds) as provider:
        raw = MESSAGES.post(provider, body)[1]
        seconds = 3600.0
        MESSAGES.post(provider, body)
        seconds = 7201.0
        MESSAGES.post(provider, body)

    usage = json.loads(raw)["usage"]
    assert usage["cache_creation"] == {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 2000}
    used = [(r.usage.cached, r.usage.written, r.usage.written_long) for r in provider.asked if r.usage]
    assert used == [(0, 2100, 2000), (2000, 100, 0), (0, 2100, 2000)]


def test_tools_and_system_are_blocks_before_the_messages() -> None:
    tools = [{"name": "f", "description": "x" * 2000, **MARK}]
    system = [text("y" * 500, **MARK)]

    one = asked(user("u"), tools=tools, system=system)
    other = asked(user("u"), tools=tools, system=[text("z" * 500, **MARK)])
    (_, written, _), (_, _, _), (cached, again, _) = usages(one, one, other)

    assert (written - 500, cached, again) == (cached, written - 500, 500)


# --------------------------------------------------------------------------------------------------------------
# thinking
def bound(*script: Any) -> ScriptedProvider:
    return ScriptedProvider(*script, models=[Model("m", binding="error")])


def test_a_request_may_choose_to_have_blocks_dropped_if_it_says_the_beta() -> None:
    """L8"""
    chosen = {"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}}
    with bound(answers("yes", reasoning="I think"), says("again")) as provider:
        body = MESSAGES.first("hi") | {"system": "one"}
        changed = MESSAGES.then(body, MESSAGES.ask(provider, body), text="go on") | {"system": "two"} | chosen
        without, _ = MESSAGES.post(provider, changed)
        code, raw = MESSAGES.post(provider, changed, {"anthropic-beta": f"other-2026, {BINDING_BETA}"})

    assert (without, code) == (400, 200)
    assert json.loads(raw)["input_transformations"] == [
        {"type": "thinking_dropped", "path": "messages.1.content.0", "reason": "prefix_binding_mismatch"}
    ]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"metadata": {"user_id": "another"}, "tool_choice": {"type": "none"}, "max_tokens": 3000}, 200),
        ({"system": [text("be good", **MARK)]}, 200),
        ({"system": [text("x-anthropic-billing-header: 7"), text("be good")]}, 200),
        ({"tools": [{"name": "f"}, {"name": "later", "defer_loading": True}]}, 200),
        ({"tools": [{"name": "f"}, {"name": "g"}]}, 400),
        ({"system": "be bad"}, 400),
    ],
)
def test_thinking_is_bound_to_system_tools_and_messages_alone(change: Json, code: int) -> None:
    """L8"""
    with bound(answers("yes", reasoning="I think"), says("again")) as provider:
        body = MESSAGES.first("hi", system="be good", tools=["f"]) | {"tools": [{"name": "f"}]}
        following = MESSAGES.then(body, MESSAGES.ask(provider, body), text="go on")

        assert MESSAGES.post(provider, following | change)[0] == code


def test_a_gap_between_thoughts_is_refused_and_leaving_out_the_first_ones_is_not() -> None:
    """L8"""
    thinks = [calls("f").but(reasoning=f"thought {n}") for n in range(3)]
    with bound(*thinks, says("held"), says("left out")) as provider:
        body = MESSAGES.first("hi", tools=["f"])
        for _ in thinks:
            body = MESSAGES.then(body, MESSAGES.ask(provider, body), "ok")

        def without(*turns: int) -> int:
            kept = [dict(message) for message in body["messages"]]
            for turn in turns:
                kept[1 + 2 * turn]["content"] = kept[1 + 2 * turn]["content"][1:]
            return MESSAGES.post(provider, body | {"messages": kept})[0]

        assert [without(), without(0), without(1)] == [200, 200, 400]


def test_thoughts_may_be_left_out_of_sight() -> None:
    """L8: the text is empty, the signature is not."""
    unseen = {"thinking": {"type": "adaptive", "display": "omitted"}}
    with bound(answers("yes", reasoning="I think"), says("held"), says("altered")) as provider:
        body = MESSAGES.first("hi") | unseen
        heard = MESSAGES.ask(provider, body | {"stream": True})
        following = MESSAGES.then(body, heard, text="go on")
        altered = json.loads(json.dumps(following).replace('"thinking": ""', '"thinking": "I think"'))

        assert heard.reasoning == ""
        assert [MESSAGES.post(provider, each)[0] for each in (following, altered)] == [200, 400]


def test_two_messages_made_into_one_are_another_conversation() -> None:
    """L8"""
    with bound(answers("yes", reasoning="I think"), says("held")) as provider:
        body = MESSAGES.first("hi") | {"messages": [user("hi"), user("there")]}
        following = MESSAGES.then(body, MESSAGES.ask(provider, body), text="go on")
        merged = following | {"messages": [user("hi", "there"), *following["messages"][2:]]}

        assert [MESSAGES.post(provider, each)[0] for each in (merged, following)] == [400, 200]


def test_thinking_made_elsewhere_is_passed_over_where_nothing_is_bound(provider: ScriptedProvider) -> None:
    provider.will(says("fine"))

    assert MESSAGES.post(provider, asked(user("x"), assistant(THOUGHT, "y"), user("z")))[0] == 200


def test_calls_are_numbered_as_this_api_numbers_them(provider: ScriptedProvider) -> None:
    provider.will(answers(calls=[call("f"), ScriptedCall("g", {}, "mine")]))

    assert MESSAGES.ask(provider, MESSAGES.first("hi")).ids == ["toolu_00000001", "mine"]
