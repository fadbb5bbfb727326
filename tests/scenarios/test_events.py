"""What happens is told to whoever listens, as it happens: by type, with ids and figures, and no word of anybody."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from llm_test_provider import ScriptedProvider, call, says
from tests.harness import Conversation, Json, RunningProxy, Stage, activate, bash, does, op, plan, pop, push
from tests.scenarios.sessions import TOOLS
from tests.scenarios.test_summaries import ASKS, SUMMARY, session, summarising, until

PATIENCE_S = 10.0
SECRET = "a word that must not be told"

pytestmark = pytest.mark.one_process("each counts, and tells, what it does itself")


@pytest.fixture
def writer() -> Iterator[ScriptedProvider]:
    """The summariser's provider."""
    with ScriptedProvider() as running:
        yield running


@contextmanager
def listening(proxy: RunningProxy, query: str = "", last: str = "") -> Iterator[http.client.HTTPResponse]:
    """A stream of events, its first comment read: from then on nothing is missed."""
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=PATIENCE_S)
    try:
        connection.request("GET", f"/stack/events{query}", headers={"last-event-id": last} if last else {})
        response = connection.getresponse()
        assert response.status == 200
        assert response.getheader("content-type", "").startswith("text/event-stream")
        if "follow=false" not in query:
            assert response.readline() == b": listening\n"
            response.readline()
        yield response
    finally:
        connection.close()


def heard(stream: http.client.HTTPResponse) -> Iterator[Json]:
    """The events of a stream, in order, each with its id; until it ends."""
    event: Json = {}
    while line := stream.readline().decode().rstrip("\n"):
        name, _, value = line.partition(": ")
        if name == "data":
            event |= json.loads(value)
            yield event
            assert stream.readline() == b"\n"
            event = {}
        elif name == "id":
            event["id"] = value
        elif name == "event":
            event["named"] = value


def remembered(proxy: RunningProxy, query: str = "", last: str = "") -> list[Json]:
    with listening(proxy, f"?follow=false{query}", last) as stream:
        return list(heard(stream))


def works(chat: Conversation, provider: ScriptedProvider) -> None:
    """A frame that is pushed and popped, one that is planned and begun, and one that is withdrawn."""
    provider.will(
        does(push(f"Look for {SECRET}")),
        does(bash(f"cat '{SECRET}'")),
        does(pop(f"found {SECRET}")),
        does(plan("Model", "View")),
        does(activate("Model")),
        does(pop("there")),
        does(op("invalidate", sessionID="View", reason=SECRET)),
        says(SECRET),
    )
    chat.says(SECRET)
    chat.returns(SECRET)


def stumbles(chat: Conversation, provider: ScriptedProvider) -> None:
    """Work in which one command after the other fails."""
    provider.will(*(does(bash(f"make {name}")) for name in "abcdef"), says("I give up."))
    chat.says("Build all of it.")
    for name in "abcdef":
        chat.returns(f"make: *** [{name}] Error {ord(name)}\nExit code: 2")


@pytest.mark.rows("S1-162")
def test_a_scripted_run_tells_of_each_type(stage: Stage, provider: ScriptedProvider, writer: ScriptedProvider) -> None:
    """S1-162: frames, contexts, subagents, compactions, summaries, suggestions."""
    proxy = summarising(stage, writer, autonomy="suggest", push_threshold=1)
    writer.when("claude-haiku-4-5", says(SUMMARY), loop=True)
    session(stage, provider, proxy).plays(ASKS)
    until(proxy, kept=2)
    works(stage.chat(proxy), provider)
    stumbles(stage.chat(proxy), provider)
    parent, child = stage.chat(proxy, tools=(*TOOLS, "task")), stage.chat(proxy, tools=("bash",))
    provider.will(does(call("task", prompt="Find what flickers.")), says("Two tests."), says("Mended."))
    parent.says("Make the build green.")
    child.says("Find what flickers.")
    parent.returns("Two tests.")

    types = {event["type"] for event in remembered(proxy)}
    assert types >= {
        *("conversation.opened", "thread.woken", "context.generated", "compaction", "summary", "suggestion"),
        *("frame.created", "frame.activated", "frame.completed", "frame.invalidated"),
        *("subagent.detected", "subagent.completed"),
    }


@pytest.mark.rows("S1-162", "S1-161")
def test_what_happens_is_told_as_it_happens_and_without_a_word_of_it(stage: Stage, provider: ScriptedProvider) -> None:
    proxy = stage.proxy()
    with listening(proxy) as stream:
        works(stage.chat(proxy), provider)
        told: list[Json] = []
        for event in heard(stream):
            told.append(event)
            if sum(each["type"] == "context.generated" for each in told) == 2:
                break

    frames = {title: frame["sessionID"] for title, frame in proxy.frames().items()}
    assert [(e["type"], e["frame"]) for e in told if e["type"].startswith("frame.")] == [
        ("frame.created", frames[f"Look for {SECRET}"]),
        ("frame.completed", frames[f"Look for {SECRET}"]),
        ("frame.created", frames["Model"]),
        ("frame.created", frames["View"]),
        ("frame.activated", frames["Model"]),
        ("frame.completed", frames["Model"]),
        ("frame.invalidated", frames["View"]),
    ]
    assert all(event["type"] == event.pop("named") for event in told)
    assert not [word for word in SECRET.split() if len(word) > 4 and word in json.dumps(told)]
    first, second = (event for event in told if event["type"] == "context.generated")
    assert (first["tokens_sent"] > 0, second["rounds"] > 1) == (True, True)


@pytest.mark.rows("S1-162")
def test_a_listener_that_comes_back_is_told_what_it_missed(stage: Stage, provider: ScriptedProvider) -> None:
    """By the id it heard last."""
    proxy = stage.proxy()
    works(stage.chat(proxy), provider)
    everything = remembered(proxy)

    assert [int(event["id"]) for event in everything] == list(range(1, len(everything) + 1))
    assert remembered(proxy, last="5") == everything[5:]
    with listening(proxy, last="5") as stream:
        assert next(heard(stream)) == everything[5]


@pytest.mark.rows("S1-162")
def test_one_conversation_can_be_listened_to(stage: Stage, provider: ScriptedProvider) -> None:
    proxy = stage.proxy()
    provider.will(says("One."), says("Two."))
    stage.chat(proxy).says("First.")
    stage.chat(proxy).says("Second.")
    wanted = proxy.conversations[0]["id"]

    told = remembered(proxy, f"&conversation={wanted}")
    assert told
    assert {event["conversation"] for event in told} == {wanted}


@pytest.mark.rows("S1-162")
def test_events_jsonl_has_a_line_for_each(stage: Stage, provider: ScriptedProvider) -> None:
    """Where it is wanted; readable by its owner alone."""
    proxy = stage.proxy(events_file="true")
    works(stage.chat(proxy), provider)
    told = remembered(proxy)
    proxy.stop()

    file = proxy.config.data / "events.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["type"] for line in lines] == [event["type"] for event in told]
    assert file.stat().st_mode & 0o077 == 0
    assert SECRET not in file.read_text()
    assert not (stage.proxy().config.data / "events.jsonl").exists()
    proxy.start()


def test_the_file_has_what_happened_in_the_moment_before_the_end(stage: Stage, provider: ScriptedProvider) -> None:
    """The books of a request are late by some milliseconds, and whoever stops the process waits for them."""
    proxy = stage.proxy(events_file="true")
    provider.will(says("ok"))
    stage.chat(proxy).says("hello")
    proxy.stop()

    lines = (proxy.config.data / "events.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["type"] == "context.generated"
    proxy.start()
