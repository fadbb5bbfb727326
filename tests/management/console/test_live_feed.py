"""What open pages are told while agents work. How the pages show it is in test_browser.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from callstack_proxy.management.console import live_feed
from llm_test_provider import ScriptedProvider, says
from proxy.operator_token import console_code
from proxy.telemetry import NumberedEvent, ProxyEvent
from tests.management.console.conftest import Person
from tests.wire.proxied import TOKEN, ServedProxy
from tests.wire.talking import ask, body_of, connection


def test_what_happens_first_is_told_at_once_and_the_rest_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests in quick succession wake the browser once; without the pause each request would."""
    # A patch: five requests must fit into the pause on a busy machine.
    monkeypatch.setattr(live_feed, "PAUSE_S", 2.0)
    with ScriptedProvider() as provider, ServedProxy(provider.url, tmp_path / "data") as proxy:
        person = Person(proxy.origin)
        person.get(f"/console?code={console_code(TOKEN)}")
        cookie = "; ".join(f"{name}={value}" for name, value in person.cookies.items())

        def works(text: str) -> str:
            provider.will(says("done"))
            return ask(proxy.origin, body_of(text, awake=True)).conversation

        with connection(proxy.origin) as connected:
            connected.request("GET", "/console/events", headers={"cookie": cookie})
            stream = connected.getresponse()

            def next_data(name: bytes) -> Any:
                while stream.readline() != b"event: " + name + b"\n":
                    pass
                return json.loads(stream.readline().removeprefix(b"data: "))

            assert next_data(b"at") == {"number": 0}
            first = works("first")
            assert next_data(b"changed")["conversations"] == [first]
            others = {works(f"another {number}") for number in range(5)}
            assert others <= set(next_data(b"changed")["conversations"])


def test_who_missed_events_is_told_that_everything_changed() -> None:
    events = [NumberedEvent(number, ProxyEvent("summary", 0, "local", f"c{number}")) for number in (7, 8)]

    assert live_feed._changes(events, 0) == b'event: changed\ndata: {"number":8,"conversations":["c7","c8"]}\n\n'
    assert live_feed._changes(events, 3) == b'event: changed\ndata: {"number":8,"conversations":[""]}\n\n'
    assert live_feed._changes([], 0) == b""
