"""Who may listen to what happens, for how long, and how many: the guard of `GET /stack/events`."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from proxy.core.frames.events import EVENT_CLASSES
from proxy.telemetry.event_bus import (
    MAX_LISTENERS_PER_TENANT,
    MAX_WAITING_EVENTS,
    EventBus,
    EventListener,
    NumberedEvent,
)
from proxy.telemetry.events import EVENT_TYPES, ProxyEvent
from tests.management.api.conftest import Served

PATH = "/stack/events"


def happening(tenant: str, conversation: str = "c", number: int = 0) -> ProxyEvent:
    return ProxyEvent("compaction", number, tenant, conversation)


def told(body: bytes) -> list[Any]:
    return [json.loads(line[6:]) for line in body.decode().splitlines() if line.startswith("data: ")]


@pytest.mark.rows("S1-162")
async def test_each_hears_what_is_theirs_and_an_operator_everything(served: Served) -> None:
    """A6."""
    for tenant in ("key-ours", "key-theirs"):
        served.feed.publish(happening(tenant, f"of {tenant}"))

    heard = {key: told((await served.ask(f"{PATH}?follow=false", key)).body) for key in served.keys}
    assert {key: [event["conversation"] for event in events] for key, events in heard.items()} == {
        "ours": ["of key-ours"],
        "theirs": ["of key-theirs"],
        "admin": ["of key-ours", "of key-theirs"],
        "token": ["of key-ours", "of key-theirs"],
    }
    assert "tenant" not in heard["token"][0]


@pytest.mark.rows("S1-162")
async def test_nobody_listens_without_a_key_or_to_what_is_not_theirs(served: Served) -> None:
    """A5, A6: a foreign conversation is answered like one that never was."""
    assert (await served.ask(PATH, None)).status == 401
    foreign = await served.ask(f"{PATH}?conversation={served.theirs.conversation}")
    missing = await served.ask(f"{PATH}?conversation={'0' * 32}")
    assert (foreign.status, missing.status) == (404, 404)
    for wrong in ("follow=perhaps", "follow=2"):
        assert (await served.ask(f"{PATH}?{wrong}")).status == 400


@pytest.mark.parametrize("last", ["-1", "x", "9" * 400, "٣", " "])
async def test_an_odd_id_is_one_that_was_never_heard(served: Served, last: str) -> None:
    served.feed.publish(happening("key-ours"))
    headers = {"last-event-id": last.encode().decode("latin-1")}

    assert len(told((await served.ask(f"{PATH}?follow=false", headers=headers)).body)) == 1


@pytest.mark.rows("S1-162")
async def test_a_stream_ends_when_the_process_drains(served: Served) -> None:
    """Nothing waits for those who listen."""
    async with served.client.get(served.url + PATH, headers={"x-stack-key": served.keys["ours"]}) as stream:
        assert await stream.content.readline() == b": listening\n"
        served.draining = True
        assert await stream.content.read() == b"\n"


@pytest.mark.rows("S1-162")
async def test_so_many_may_listen_and_whoever_leaves_makes_room(served: Served) -> None:
    headers = {"x-stack-key": served.keys["ours"]}
    streams = [await served.client.get(served.url + PATH, headers=headers) for _ in range(MAX_LISTENERS_PER_TENANT)]
    for stream in streams:
        await stream.content.readline()

    refused = await served.ask(PATH)
    assert (refused.status, refused.json["error"]["code"]) == (429, "too_many_listeners")
    assert (await served.ask(f"{PATH}?follow=false")).status == 200
    async with served.client.get(served.url + PATH, headers={"x-stack-key": served.keys["theirs"]}) as other:
        assert other.status == 200

    streams[0].close()
    async with asyncio.timeout(5):
        while (again := await listens(served, headers)) != 200:
            assert again == 429
    for stream in streams:
        stream.close()


async def listens(served: Served, headers: dict[str, str]) -> int:
    async with served.client.get(served.url + PATH, headers=headers, timeout=aiohttp.ClientTimeout(5)) as stream:
        return stream.status


# ---------------------------------------------------------------------------------------------------------- the feed
async def test_a_listener_that_does_not_keep_up_is_told_how_much_it_missed() -> None:
    feed = EventBus()
    with feed.listen("t") as listener:
        for number in range(MAX_WAITING_EVENTS + 7):
            feed.publish(happening("t", number=number))
        heard, missed = await listener.wait_for_events(1.0)

        assert (len(heard), missed) == (MAX_WAITING_EVENTS, 7)
        assert await listener.wait_for_events(0.0) == ([], 0)


async def test_who_has_left_hears_nothing() -> None:
    feed = EventBus()
    with feed.listen("t") as listener:
        pass
    feed.publish(happening("t"))

    assert not listener.waiting
    assert list(feed.events_since(0, EventListener("t"))) == [NumberedEvent(1, happening("t"))]


def test_every_type_is_told_of_an_event_that_there_is() -> None:
    kinds = {event.__struct_config__.tag for event in EVENT_CLASSES}

    assert set(EVENT_TYPES) <= kinds
