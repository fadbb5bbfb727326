"""The list of conversations: what a row says, and filters that stand in the address."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from pathlib import Path

import pytest

from callstack_proxy.management.console import conversation_list_page
from llm_test_provider import ScriptedProvider, calls, says, stall
from tests.management.console.conftest import Building, Person
from tests.wire.proxied import ServedProxy
from tests.wire.talking import ask, body_of


def rows(person: Person, query: str = "") -> list[str]:
    """The text of each row."""
    answer = person.get(f"/console/conversations{query}")
    assert answer.status == 200, answer
    found = re.findall(r'<tr id="c-\w+">(.*?)</tr>', answer.body.decode(), re.DOTALL)
    return [" ".join(unescape(re.sub(r"<[^>]*>", " ", row)).split()) for row in found]


@pytest.mark.rows("S4-50", "X-65")
def test_a_row_says_the_task_who_asked_and_how_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedProvider() as provider, ServedProxy(provider.url, tmp_path / "data", wake_at_tokens=16_000) as proxy:
        person = Person(proxy.origin)
        person.open_link()
        for agent, task, answer in (
            ("claude-cli", "Good morning! Mend the login form.", calls("bash", command="ls")),
            ("codex_cli_rs", "Write the changelog.", says("done")),
            ("codex_cli_rs", "Tidy the imports.", says("done")),
        ):
            provider.will(answer)
            ask(proxy.origin, body_of(task, awake=True), headers={"user-agent": f"{agent}/1.0"})
        [working] = rows(person, "?state=working")
        assert working.startswith("Mend the login form. claude-cli · m working Stop the agent runs since ")
        page = person.get("/console/conversations").body.decode()
        assert page.count(">Mend the login form.<") == 1
        assert re.search(r'<a href="/console/conversations/\w+#requests"[^>]*>1</a>', page)
        assert "not in this list" not in page
        assert [row[:10] for row in rows(person, "?client=codex_cli_rs&period=today")] == ["Tidy the i", "Write the "]
        assert (
            "1 agent works that is not in this list"
            in person.get("/console/conversations?client=codex_cli_rs").body.decode()
        )
        [short, _] = rows(person, "?state=too+short")
        assert "too short to help yet begins at about 16k tokens; " in short
        assert rows(person, "?period=today&since=2001-01-01&until=2001-01-02") == []

        [stop] = re.findall(r'action="(/console/conversations/\w+/stop)"', person.get("/console/running").body.decode())
        told = person.send("/console/conversations", stop, **{"from": "list"})
        assert told.header("location").startswith("/console/conversations?done=Stopped")
        [stopped] = rows(person, "?state=stopped")
        assert "stopped Resume" in stopped

        monkeypatch.setattr(conversation_list_page, "ROWS_PER_PAGE", 1)  # a page of one row, not of forty
        page = unescape(person.get("/console/conversations?client=codex_cli_rs&sort=requests&q=the").body.decode())
        assert 'href="/console/conversations?q=the&sort=requests&client=codex_cli_rs&page=2"' in page


def test_the_list_reads_no_conversation_whole(build: Building, monkeypatch: pytest.MonkeyPatch) -> None:
    site = build()
    person = site.operator()

    def load(*_: object) -> None:
        raise AssertionError("a list of conversations of thousands of messages each may not wait for these")

    # Patched: that a list reads no conversation shows in nothing that it prints, only in the time that it takes.
    monkeypatch.setattr(site.proxy.app._store, "load", load)
    for query in ("", "?sort=saved", "?q=suite"):
        assert [row[:20] for row in rows(person, query)] == ["make the suite green"] * 2, query


@pytest.mark.rows("S4-50", "X-65")
def test_a_search_finds_conversations_by_title_and_by_finished_work(tmp_path: Path) -> None:
    with ScriptedProvider() as provider, ServedProxy(provider.url, tmp_path / "data") as proxy:
        person = Person(proxy.origin)
        person.open_link()
        for task in ("Mend the login form.", "Write the changelog."):
            provider.will(says("done"))
            ask(proxy.origin, body_of(task, awake=True))
        provider.will(calls("stack_frame_push", title="Count cents", successCriteria="counted"), says("counting"))
        answer = ask(proxy.origin, body_of("Look at the ledger.", awake=True))
        provider.will(calls("stack_frame_pop", status="completed", results="49 invoices are off"), says("49"))
        history = [*body_of("Look at the ledger.")["messages"], {"role": "assistant", "content": answer.text}]
        ask(proxy.origin, body_of(awake=True, messages=[*history, {"role": "user", "content": "go on"}]))

        for words, found in (("FORM login", ["Mend the lo"]), ("invoices", ["Look at the"]), ("nowhere", [])):
            assert [row[:11] for row in rows(person, f"?q={words.replace(' ', '+')}")] == found, words
            assert [row[:11] for row in rows(person, f"?q={words.replace(' ', '+')}&period=today")] == found, words


@pytest.mark.rows("S4-50", "X-65")
def test_every_agent_at_work_is_in_the_list_and_can_be_stopped(tmp_path: Path) -> None:
    """More than a page shows of what runs, and one whose first request is under way."""
    with ScriptedProvider() as provider, ServedProxy(provider.url, tmp_path / "data") as proxy:
        person = Person(proxy.origin)
        person.open_link()
        agents = 22
        for agent in range(agents):
            provider.will(calls("bash", command="ls"))
            ask(proxy.origin, body_of(f"Tidy module {agent}."), headers={"user-agent": f"agent-{agent % 2}/1.0"})
        page = person.get("/console/conversations").body.decode()
        assert '<option value="agent-1">agent-1</option>' in page
        assert f"And {agents - 20} more: " in person.get("/console").body.decode()
        assert page.count("data-since=") == agents
        shown = rows(person, "?state=working")
        assert [" working Stop " in row for row in shown] == [True] * agents

        may_end = threading.Event()
        provider.will(stall(says("I begin"), until=may_end.is_set))
        with ThreadPoolExecutor(1) as thread:
            thread.submit(ask, proxy.origin, body_of("Count the lines."))
            try:
                provider.wait_for(agents + 1)
                [first, *_] = rows(person, "?state=working&period=today")
                of_client = rows(person, "?state=working&client=agent-0")
            finally:
                may_end.set()
        assert first.startswith("Count the lines. working Stop ")
        assert len(of_client) == agents // 2


@pytest.mark.parametrize("query", ["?state=asleep", "?sort=x", "?period=year", "?page=0"])
def test_a_filter_that_is_not_there_is_said(build: Building, query: str) -> None:
    assert build().operator().get(f"/console/conversations{query}").status == 400


def test_what_runs_is_shown_to_its_owner_alone(build: Building) -> None:
    site = build(tenancy="key")

    assert site.person().get("/console/running").status == 401
    assert site.theirs.conversation not in site.owner("ours").get("/console/running").body.decode()
