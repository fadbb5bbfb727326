"""A conversation of many requests: its page shows some of them, leads to the others, and reads only the newest anew."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from callstack_proxy.management.console import conversation_page, page_memory
from llm_test_provider import ScriptedProvider, says
from proxy.store import Store
from proxy.store.sql import SqlStore
from tests.management.console.conftest import Person
from tests.wire.proxied import ServedProxy
from tests.wire.talking import ask

REQUESTS = 12


class Agent:
    """Asks one thing after another in one conversation."""

    def __init__(self, proxy: ServedProxy, provider: ScriptedProvider) -> None:
        self.proxy, self.provider = proxy, provider
        self.messages: list[dict[str, str]] = [{"role": "user", "content": "Mend the login form."}]

    def asks(self, times: int) -> None:
        for _ in range(times):
            said = f"step {len(self.messages)}"
            self.provider.will(says(said))
            assert ask(self.proxy.origin, json.dumps({"model": "m", "messages": self.messages}).encode()).status == 200
            self.messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "go on"}]


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    # Patched: with those of the pages a conversation would need thousands of requests.
    monkeypatch.setattr(conversation_page, "ROWS_IN_TABLE", 3)
    monkeypatch.setattr(conversation_page, "ROWS_OF_OLDER", 4)
    monkeypatch.setattr(page_memory, "NEW_REQUESTS", 5)


@pytest.fixture
def agent(tmp_path: Path, limits: None) -> Iterator[Agent]:
    with ScriptedProvider() as provider, ServedProxy(provider.url, tmp_path / "data") as proxy:
        one = Agent(proxy, provider)
        one.asks(REQUESTS)
        yield one


@pytest.fixture
def person(agent: Agent) -> Person:
    somebody = Person(agent.proxy.origin)
    somebody.open_link()
    return somebody


def address(person: Person) -> str:
    [found] = set(
        re.findall(r'href="(/console/conversations/\w+)"', person.get("/console/conversations").body.decode())
    )
    return str(found)


def numbers(page: str) -> list[int]:
    return [int(each) for each in re.findall(r'<th scope="row"><a href="/console/requests/\w+">(\d+)</a>', page)]


def links(page: str) -> list[str]:
    [pages] = re.findall(r'<p class="pages">(.*?)</p>', page)
    return re.findall(r'href="([^"]*)"', pages)


def test_older_requests_are_a_page_each(person: Person) -> None:
    at, query = address(person), ""
    seen: list[int] = []
    while query != "?#requests" and len(seen) < REQUESTS:
        page = person.get(at + query.partition("#")[0]).body.decode()
        seen += numbers(page)
        query = links(page)[-1]

    assert seen == list(range(REQUESTS, 0, -1))
    assert links(person.get(f"{at}?before=9").body.decode()) == ["?#requests", "?before=5#requests"]


def test_a_request_opens_by_its_number(person: Person) -> None:
    at = address(person)
    assert f'<input id="goto" name="request" type="number" min="1" max="{REQUESTS}"' in person.get(at).body.decode()

    shown = [person.get(person.get(f"{at}?request={asked}").header("location")).body.decode() for asked in (2, 999)]

    assert ["Request 2 " in shown[0], f"Request {REQUESTS} " in shown[1]] == [True, True]
    assert person.get(f"{at}?request=two").status == 400


def test_requests_that_were_read_are_not_read_again(
    agent: Agent, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, asked = address(person), []
    store_requests = SqlStore.requests

    async def requests(store: Store, scope: str | None, conversation: str, limit: int, offset: int = 0) -> object:
        asked.append(limit)
        return await store_requests(store, scope, conversation, limit, offset)  # type: ignore[arg-type]

    monkeypatch.setattr(SqlStore, "requests", requests)  # the true one, and how much it was asked for
    person.get(at)
    assert conversation_page.MAX_REQUESTS in asked

    agent.asks(2)
    asked.clear()
    page = person.get(f"{at}?before={REQUESTS + 2}").body.decode()

    assert page_memory.NEW_REQUESTS in asked
    assert conversation_page.MAX_REQUESTS not in asked
    assert numbers(page) == [14, 13, 12, 11]
    assert f"{REQUESTS + 2} requests" in page
