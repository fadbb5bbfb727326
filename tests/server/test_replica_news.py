"""What replicas tell each other by PostgreSQL's notifications: events, settings, and what a person stops."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from llm_test_provider import ScriptedProvider, says, stall
from tests.harness import Conversation, RunningProxy, Stage
from tests.postgresql_server import PostgresServer
from tests.scenarios.speaking import in_flight

pytestmark = pytest.mark.long
SOON_S = 60.0
"""A busy machine is late; what is not told never comes here."""


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as running:
        yield running


@pytest.fixture
def replicas(
    provider: ScriptedProvider, tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[RunningProxy]]:
    """Two proxies on one database, which have heard of each other. What is set is never read again unasked, so that it
    comes by news alone."""
    monkeypatch.setattr("proxy.config.runtime.REFRESH_INTERVAL_S", 3_600.0)
    stage = Stage(provider, tmp_path, streamed=False)
    store = postgres.new_database()
    proxies = [stage.proxy(store=store) for _ in range(2)]
    has_heard(*proxies, duration=4)
    has_heard(*reversed(proxies), duration=5)
    yield proxies
    stage.stop()


def has_heard(speaker: RunningProxy, listener: RunningProxy, *, duration: int) -> None:
    """Returns once one hears what the other one says: it listens a moment after it has started."""

    def hears() -> bool:
        speaker.manage("PATCH", "/stack/config", {"minDuration": duration})
        return bool(listener.get("/stack/config")["minDuration"] == duration)

    eventually(hears)


def eventually(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + SOON_S
    while not holds():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.05)


def test_events_of_one_are_heard_at_the_other(replicas: list[RunningProxy], provider: ScriptedProvider) -> None:
    here, there = replicas
    connection = http.client.HTTPConnection("127.0.0.1", there.port, timeout=SOON_S)
    connection.request("GET", "/stack/events")
    stream = connection.getresponse()
    assert stream.readline() == b": listening\n"
    provider.will(says("hello"))
    Conversation(here, streamed=False).says("build it")

    heard = set()
    while "context.generated" not in heard:
        line = stream.readline().decode()
        if line.startswith("data:"):
            heard.add(json.loads(line[5:])["type"])
    connection.close()

    assert "conversation.opened" in heard


def test_each_hears_of_a_request_once(replicas: list[RunningProxy], provider: ScriptedProvider) -> None:
    provider.will(says("hello"))
    here, _ = replicas
    Conversation(here, streamed=False).says("build it")

    def told(proxy: RunningProxy) -> list[str]:
        lines = proxy.page("/stack/events?follow=false&after=0").splitlines()
        return [json.loads(line[5:])["type"] for line in lines if line.startswith("data:")]

    for proxy in replicas:
        eventually(lambda at=proxy: "context.generated" in told(at))  # type: ignore[misc]  # bound here
    assert [told(proxy).count("context.generated") for proxy in replicas] == [1, 1]


def test_what_is_set_at_one_holds_at_the_other(replicas: list[RunningProxy]) -> None:
    here, there = replicas
    here.manage("PATCH", "/stack/config", {"minDuration": 7})

    eventually(lambda: there.get("/stack/config")["minDuration"] == 7)


def test_a_person_stops_what_the_other_one_does(replicas: list[RunningProxy], provider: ScriptedProvider) -> None:
    here, there = replicas
    provider.will(says("hello"), stall(says("an answer that stops in the middle " * 20), after_events=9))
    chat = Conversation(here, streamed=True)
    conversation = chat.says("build it").headers["x-stack-conversation"]
    live = f"/stack/conversations/{conversation}/live"
    with in_flight(chat, "go on"):
        eventually(lambda: bool(here.get(live)["requests"]))
        there.manage("POST", f"/stack/conversations/{conversation}/cancel", {})
        eventually(lambda: not here.get(live)["requests"])


def test_branches_that_begin_at_once_at_two_replicas_get_a_thread_each(
    replicas: list[RunningProxy], provider: ScriptedProvider
) -> None:
    """Neither knows of the other one at first. The later one has a name of its own from its second request on."""
    provider.when(lambda _: True, says("ok"), loop=True)
    trunk = Conversation(replicas[0], streamed=False)
    trunk.says("build it")
    forks = [trunk.branch(2), trunk.branch(2)]
    forks[1].proxy = replicas[1]
    together = threading.Barrier(2)

    def forked(number: int) -> None:
        together.wait(SOON_S)
        forks[number].says(f"try way {number}")

    with ThreadPoolExecutor(2) as clients:
        list(clients.map(forked, range(2)))
    for _ in range(2):
        for number, fork in enumerate(forks):
            fork.proxy = replicas[1 - number]  # and the other way round
            assert fork.says("go on").status == 200

    told = [fork.last.headers for fork in forks if fork.last]
    assert len({headers["x-stack-conversation"] for headers in told}) == 1
    assert len({headers["x-stack-thread"] for headers in told}) == 2
    [row] = replicas[0].conversations
    assert len(row["threads"]) == 2
