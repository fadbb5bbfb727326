"""What the pages say while the store fails. How open pages hear of it is in test_browser.py."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from callstack_proxy.management.console import app
from callstack_proxy.management.console.store_trouble import HINTS, unread_words
from proxy.errors import StoreError
from proxy.store.database_errors import TEXT_BY_CODE
from tests.management.console.conftest import Building, Site
from tests.wire.talking import connection

DISK = "the disk of the store is full (database or disk is full)"
READS = ("requests", "request", "load", "conversations", "recently_active", "conversation_with_event", "usage_days",
         "search_finished_frames")  # fmt: skip
PAGES = (
    "/console",
    "/console?by=conversation&client=agent-a",
    "/console/totals.json",
    "/console/totals.csv",
    "/console/conversations",
    "/console/conversations/{conversation}",
    "/console/conversations/{conversation}?at=1",
    "/console/frames/{child}",
    "/console/frames/{child}/log/0",
    "/console/requests/{request}",
    "/console/requests/{request}/raw/in",
)


def break_store(site: Site, monkeypatch: pytest.MonkeyPatch, code: str = "store_full", text: str = DISK) -> None:
    """From now on every read fails, and nothing is written."""

    def fails(*_: Any, **__: Any) -> Any:
        raise StoreError(text, code=code)

    # Patched: a store of its own that fails for each of these reasons in turn is not to be had on one machine.
    for name in READS:
        monkeypatch.setattr(site.proxy.app._store, name, fails)
    monkeypatch.setattr(site.proxy.app._store, "write_error", lambda: StoreError(text, code=code))


@pytest.mark.parametrize("page", PAGES)
def test_every_page_says_that_the_store_cannot_be_read_and_why(
    build: Building, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    site = build()
    person = site.operator()
    break_store(site, monkeypatch)

    answer = person.get(page.format(**vars(site.ours)))
    shown = answer.body.decode()
    assert answer.status == 500
    assert f"The store cannot be read: {DISK}. Free some space on its disk." in shown
    assert "Agents go on meanwhile" in shown
    assert "data-retry" in shown
    assert "Traceback" not in shown


def test_the_operation_page_shows_all_else_and_the_reason(build: Building, monkeypatch: pytest.MonkeyPatch) -> None:
    site = build(tenancy="key")
    person = site.owner("admin")
    break_store(site, monkeypatch)

    answer = person.get("/console/operation")
    assert answer.status == 200
    assert f"takes nothing new: {DISK}" in answer.body.decode()
    assert "Client keys" in answer.body.decode()


def test_a_form_that_could_not_be_stored_is_not_sent_again_by_itself(
    build: Building, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = build()
    person = site.operator()
    path = f"/console/conversations/{site.ours.conversation}"
    token = person.get(path).body.decode().partition('name="token" value="')[2].partition('"')[0]
    break_store(site, monkeypatch)

    answer = person.post(f"{path}/say", {"token": token, "text": "go on"})
    assert answer.status == 500
    assert b"may not have been done" in answer.body
    assert b"data-retry" not in answer.body


def test_with_a_closed_policy_the_pages_say_that_agents_are_refused(
    build: Building, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = build(fail_policy="closed")
    person = site.operator()
    break_store(site, monkeypatch)

    assert b"Requests of agents are refused until it is back" in person.get("/console").body


def test_every_failure_that_has_a_code_says_what_to_do() -> None:
    assert HINTS.keys() == TEXT_BY_CODE.keys()
    assert "log" in unread_words(StoreError("the store failed"))


def test_a_store_that_hangs_is_given_up(build: Building, monkeypatch: pytest.MonkeyPatch) -> None:
    site = build()
    person = site.operator()

    async def hang(*_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    # Patched: a disk that hangs cannot be had by itself, and the real time to wait is ten seconds.
    monkeypatch.setattr(site.proxy.app._store, "requests", hang)
    monkeypatch.setattr(app, "PAGE_TIMEOUT_S", 0.2)

    answer = person.get("/console")
    assert answer.status == 503
    assert b"may hang" in answer.body
    assert b"data-retry" in answer.body


def test_the_events_tell_when_it_begins_to_fail_and_when_it_is_well(
    build: Building, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = build()
    person = site.operator()
    cookie = "; ".join(f"{name}={value}" for name, value in person.cookies.items())
    with connection(site.proxy.origin) as connected:
        connected.request("GET", "/console/events", headers={"cookie": cookie})
        stream = connected.getresponse()

        def next_problem() -> str:
            while stream.readline() != b"event: store\n":
                pass
            problem: str = json.loads(stream.readline().removeprefix(b"data: "))["problem"]
            return problem

        with monkeypatch.context() as patched:
            break_store(site, patched)
            assert next_problem().startswith(f"The store takes nothing new: {DISK}.")
        assert next_problem() == ""
