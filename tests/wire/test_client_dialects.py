"""The tongues themselves: what they write says what it was told to say, what they read is the same streamed and not,
and no disorder passes."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from llm_test_provider import ScriptedCall, ScriptedProvider, answers
from tests.client_dialects import CHAT, MESSAGES, RESPONSES, TONGUES, ClientAnswer, TestDialect
from tests.harness import ClientHabits, tool
from tests.laws import Body

Json = dict[str, Any]
CALLED = [{"id": f"call_{n}", "type": "function", "function": {"name": "bash", "arguments": "{}"}} for n in (1, 2)]
ASKED: Json = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Work with care."},
        {"role": "user", "content": "Look around."},
        {"role": "assistant", "content": "I look.", "tool_calls": CALLED},
        {"role": "tool", "tool_call_id": "call_1", "content": "a.py"},
        {"role": "tool", "tool_call_id": "call_2", "content": "b.py"},
        {"role": "user", "content": "And hurry."},
    ],
    "tools": [tool("bash")],
}
RICH = answers(
    "Two at once.", [ScriptedCall("bash", {"command": "ls"}), ScriptedCall("read", {})], reasoning="Where am I?"
)
OTHERS = [MESSAGES, RESPONSES]


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as running:
        yield running


def heard(provider: ScriptedProvider, tongue: TestDialect, asked: Json) -> tuple[ClientAnswer, list[Json]]:
    """What the provider says, and the events of it."""
    connection = http.client.HTTPConnection(provider.host, provider.port, timeout=5)
    connection.request("POST", tongue.path, tongue.body(asked), dict(tongue.headers))
    raw = connection.getresponse().read()
    connection.close()
    if not asked.get("stream"):
        return tongue.plain(json.loads(raw)), []
    lines = [line[6:] for line in raw.decode().split("\n") if line.startswith("data: {")]
    events = [json.loads(line) for line in lines]
    return tongue.streamed(events), events


# -------------------------------------------------------------------------------------------------------- what is said
@pytest.mark.parametrize("tongue", TONGUES.values(), ids=TONGUES)
def test_what_is_written_tells_what_was_said(tongue: TestDialect) -> None:
    body = Body.read(tongue.neutral(tongue.body(ASKED)))

    said = [(m["role"], m["content"], len(m.get("tool_calls", ())), m.get("tool_call_id")) for m in body.messages]
    assert said == [
        (m["role"], m["content"], len(m.get("tool_calls", ())), m.get("tool_call_id")) for m in ASKED["messages"]
    ]
    assert [json.loads(each)["function"]["name"] for each in body.tools] == ["bash"]


@pytest.mark.parametrize("tongue", OTHERS, ids=lambda tongue: tongue.short)
def test_every_byte_of_a_message_is_told(tongue: TestDialect) -> None:
    """Other bytes are another message to the judge, also where they mean the same; a cache marker is none of them."""
    body = tongue.body(ASKED)
    told = Body.read(tongue.neutral(body)).written

    changed = Body.read(tongue.neutral(body.replace(b'"a.py"', b'"\\u0061.py"'))).written

    assert [at for at, (a, b) in enumerate(zip(told, changed, strict=True)) if a != b] == [3]
    assert "cache_control" not in "".join(told)


@pytest.mark.parametrize("tongue", TONGUES.values(), ids=TONGUES)
def test_an_answer_is_the_same_streamed_and_not_and_given_back_as_it_came(
    provider: ScriptedProvider, tongue: TestDialect
) -> None:
    provider.will(RICH, RICH)

    streamed, _ = heard(provider, tongue, {**ASKED, "stream": True})
    plain, _ = heard(provider, tongue, ASKED)

    for each in (streamed, plain):
        assert (each.message["content"], each.message["reasoning_content"]) == (RICH.text, RICH.reasoning)
        assert [made["function"]["name"] for made in each.message["tool_calls"]] == ["bash", "read"]
        assert (each.finishes, each.ended) == (["tool_calls"], True)
    asked = {**ASKED, "messages": [*ASKED["messages"], ClientHabits().echo(plain.message)]}
    given = Body.read(tongue.neutral(tongue.body(asked))).messages[-1]
    assert given["reasoning_content"] == RICH.reasoning
    assert tongue is CHAT or json.dumps(plain.message["made"][0], separators=(",", ":")) in str(given["reasoning"])
    less = ClientHabits(keeps_reasoning=False).echo(plain.message)
    asked["messages"][-1] = less
    assert "reasoning" not in Body.read(tongue.neutral(tongue.body(asked))).messages[-1]


# ----------------------------------------------------------------------------------------------------------- disorder
def at_of(events: list[Json], kind: str, number: int = 0) -> int:
    return [at for at, event in enumerate(events) if event["type"] == kind][number]


def twice(kind: str, number: int = 0) -> Callable[[list[Json]], None]:
    def change(events: list[Json]) -> None:
        at = at_of(events, kind, number)
        events.insert(at, events[at])

    return change


def without(kind: str, number: int = 0) -> Callable[[list[Json]], None]:
    def change(events: list[Json]) -> None:
        del events[at_of(events, kind, number)]

    return change


def sooner(kind: str) -> Callable[[list[Json]], None]:
    def change(events: list[Json]) -> None:
        at = at_of(events, kind)
        events[at - 1], events[at] = events[at], events[at - 1]

    return change


def other_output(events: list[Json]) -> None:
    events[-1]["response"]["output"] = events[-1]["response"]["output"][1:]


def counted_wrong(events: list[Json]) -> None:
    for event in events:
        if event.get("index"):
            event["index"] += 1


DISORDER: dict[str, tuple[TestDialect, Callable[[list[Json]], None]]] = {
    "begun twice": (MESSAGES, twice("message_start")),
    "a block begun twice": (MESSAGES, twice("content_block_start", 1)),
    "a block left out": (MESSAGES, counted_wrong),
    "a block never ends": (MESSAGES, without("content_block_stop", 1)),
    "a block ends twice": (MESSAGES, twice("content_block_stop", 1)),
    "a delta behind its block": (MESSAGES, sooner("content_block_stop")),
    "two reasons": (MESSAGES, twice("message_delta")),
    "no reason": (MESSAGES, without("message_delta")),
    "two ends": (MESSAGES, twice("message_stop")),
    "another beginning": (RESPONSES, without("response.created")),
    "an item told twice": (RESPONSES, twice("response.output_item.added", 1)),
    "an item never told": (RESPONSES, without("response.output_item.added", 1)),
    "an item never done": (RESPONSES, without("response.output_item.done", 1)),
    "an item done twice": (RESPONSES, twice("response.output_item.done", 1)),
    "two terminal events": (RESPONSES, twice("response.completed")),
    "another output at the end": (RESPONSES, other_output),
}


@pytest.mark.parametrize(("tongue", "change"), DISORDER.values(), ids=DISORDER.keys())
def test_no_disorder_passes(
    provider: ScriptedProvider, tongue: TestDialect, change: Callable[[list[Json]], None]
) -> None:
    provider.will(RICH)
    _, events = heard(provider, tongue, {**ASKED, "stream": True})
    events = json.loads(json.dumps(events))
    change(events)
    if tongue is RESPONSES:  # numbered rightly, so that nothing but the disorder is found
        events = [event | {"sequence_number": number} for number, event in enumerate(events)]

    with pytest.raises(AssertionError):
        tongue.streamed(events)


def test_a_gap_between_the_numbers_does_not_pass(provider: ScriptedProvider) -> None:
    provider.will(RICH)
    _, events = heard(provider, RESPONSES, {**ASKED, "stream": True})
    del events[6]

    with pytest.raises(AssertionError, match="has number"):
        RESPONSES.streamed(events)


@pytest.mark.parametrize("tongue", OTHERS, ids=lambda tongue: tongue.short)
def test_a_stream_that_broke_off_is_read_as_far_as_it_came_and_never_ended(
    provider: ScriptedProvider, tongue: TestDialect
) -> None:
    provider.will(RICH)
    _, events = heard(provider, tongue, {**ASKED, "stream": True})

    for length in range(len(events)):
        found = tongue.streamed(events[:length])
        assert not found.ended
        assert str(RICH.text).startswith(found.message["content"] or "")


# --------------------------------------------------------------------------------------- what the messages API forbids
def refused(change: Callable[[Json], None]) -> list[str]:
    asked = MESSAGES.body(ASKED)
    left = json.loads(asked)
    change(left)
    return list(MESSAGES.breaches(asked, json.dumps(left).encode()))


def mark(body: Json) -> None:
    for block in [*body["messages"][1]["content"], *body["messages"][2]["content"]]:
        block["cache_control"] = {"type": "ephemeral"}


def speak_first(body: Json) -> None:
    body["messages"][2]["content"].insert(0, {"type": "text", "text": "Wait."})


def turn_round(body: Json) -> None:
    body["messages"][2]["content"][:2] = reversed(body["messages"][2]["content"][:2])


def set_apart(body: Json) -> None:
    body["messages"][3:3] = [{"role": "user", "content": [body["messages"][2]["content"].pop(1)]}]


def test_what_the_client_wrote_is_no_breach() -> None:
    assert refused(lambda _: None) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [(mark, "cache markers"), (speak_first, "L1"), (turn_round, "L1"), (set_apart, "L1")],
)
def test_a_breach_of_the_messages_api_is_told(change: Callable[[Json], None], told: str) -> None:
    assert [told in said for said in refused(change)] == [True]


def test_a_marker_where_the_client_has_none_is_a_breach() -> None:
    bare = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
    marked = [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]
    left = json.dumps({"model": "m", "messages": [{"role": "user", "content": marked}]}).encode()

    assert len(list(MESSAGES.breaches(bare, left))) == 1
    assert list(MESSAGES.breaches(bare, bare)) == []
