"""The overview's filters: which client, whose requests, money or tokens. All of them stand in the address."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from callstack_proxy.management.issued_keys import issue_key
from llm_test_provider import ScriptedProvider, calls, says
from tests.management.console.conftest import Building, Person
from tests.wire.proxied import TOKEN, ServedProxy
from tests.wire.talking import ask, body_of

CLAUDE, CODEX = "claude-cli/2.0.14 (external, cli)", "codex_cli_rs/0.42.0 (Debian 13.0.0; x86_64)"

PRICED = {"m": {"input": 1.0, "output": 2.0}}
"""A price for the model of these requests."""


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[ServedProxy]:
    """Two requests of claude-cli, one of codex_cli_rs, and one of a client that names itself not at all."""
    with ScriptedProvider() as provider, ServedProxy(provider.url, tmp_path / "data") as running:
        for agent in (CLAUDE, CLAUDE, CODEX, ""):
            provider.will(says("done"))
            assert ask(running.origin, body_of(f"task of {agent}"), headers={"user-agent": agent}).status == 200
        yield running


@pytest.fixture
def person(proxy: ServedProxy) -> Person:
    operator = Person(proxy.origin)
    assert operator.open_link().status == 303
    return operator


def page_of(person: Person, query: str = "") -> str:
    answer = person.get(f"/console{query}")
    assert answer.status == 200, answer
    return answer.body.decode()


def options(page: str, name: str) -> list[str]:
    """Texts of a list, the chosen one marked by a star."""
    found = re.search(rf'<select name="{name}">(.*?)</select>', page)
    return [
        f"*{text}" if chosen else text
        for chosen, text in re.findall(r"<option[^>]*?( selected)?>([^<]*)", found[1] if found else "")
    ]


def points(page: str) -> list[list[float]]:
    [told] = re.findall(r'data-points="([^"]*)"', page)
    lines: list[list[float]] = json.loads(unescape(told))
    return lines


def requests_in(page: str) -> int:
    return int(re.findall(r"Requests</span><b>(\d+)", page)[0])


def test_clients_can_be_chosen_by_the_name_of_their_program(person: Person) -> None:
    page, of_one = page_of(person), page_of(person, "?client=claude-cli")

    assert options(page, "client") == ["all clients", "claude-cli", "codex_cli_rs", "unknown client"]
    assert options(of_one, "client") == ["all clients", "*claude-cli", "codex_cli_rs", "unknown client"]
    assert (requests_in(page), requests_in(of_one)) == (4, 2)
    assert [len(points(each)[0]) for each in (page, of_one)] == [4, 2]
    assert "Money over time, <bdi>claude-cli</bdi>" in of_one


def test_the_overview_leads_to_what_was_worked_on_last(person: Person) -> None:
    """To the conversation, to its frames and to its requests, the newest first."""
    [line] = re.findall(r"<dt>Worked on last</dt><dd>(.*?)</dd>", page_of(person))

    assert re.findall(r"<bdi>(.*?)</bdi>", line) == ["task of", f"task of {CODEX}", f"task of {CLAUDE}"]
    first = re.findall(r'href="(/console/conversations/\w+#?\w*)"', line)[:3]
    assert first == [first[0], f"{first[0]}#frames", f"{first[0]}#requests"]
    anchors = person.get(first[0]).body.decode()
    assert 'id="frames"' in anchors
    assert 'id="requests"' in anchors


def test_the_figures_follow_what_comes_and_what_is_deleted(proxy: ServedProxy, person: Person) -> None:
    """Receipts that were read once are remembered, and the same page is asked for again and again."""
    assert [requests_in(page_of(person)) for _ in range(2)] == [4, 4]
    ids = re.findall(r'id="c-(\w+)"', person.get("/console/conversations").body.decode())
    gone = ask(proxy.origin, method="DELETE", path=f"/stack/conversations/{ids[1]}", headers={"x-stack-key": TOKEN})
    assert gone.status == 200
    assert requests_in(page_of(person)) == 3
    ask(proxy.origin, body_of("fails"), headers={"user-agent": CODEX})
    assert requests_in(page_of(person)) == 4


def test_what_names_no_client_is_one_of_them(person: Person) -> None:
    assert requests_in(page_of(person, "?client=(unnamed)")) == 1


def test_the_chart_shows_tokens_as_well(proxy: ServedProxy, person: Person) -> None:
    page = page_of(person, "?chart=tokens&client=claude-cli")
    rows = proxy.page("/stack/totals?by=client")["rows"]
    [claude] = [row for row in rows if row["key"] == "claude-cli"]

    _, came, sent, _ = points(page)
    assert (came[-1], sent[-1]) == (claude["tokens_in"], claude["tokens_sent"])
    assert 'data-unit="tokens"' in page


def test_every_link_keeps_the_other_filters(person: Person) -> None:
    page = page_of(person, "?chart=tokens&client=claude-cli&by=model")
    links = [unescape(link) for link in re.findall(r'href="(/console\?[^"]*|/console/totals[^"]*)"', page)]
    asked = [{name: values[0] for name, values in parse_qs(urlsplit(link).query).items()} for link in links]

    assert {"by": "model", "client": "claude-cli"} in asked  # money
    assert {"by": "frame", "chart": "tokens", "client": "claude-cli"} in asked
    assert {"by": "model", "chart": "tokens"} in asked  # all clients
    kept = dict(re.findall(r'type="hidden" name="(\w+)" value="(\w+)"', page))
    assert (kept["by"], kept["chart"]) == ("model", "tokens")
    assert 'hx-get="/console?chart=tokens&amp;client=claude-cli&amp;by=model"' in page
    assert all(person.get(link).status == 200 for link in links)


def test_csv_and_json_are_of_the_same_requests(proxy: ServedProxy, person: Person) -> None:
    query = "by=model&client=codex_cli_rs"
    told = json.loads(person.get(f"/console/totals.json?{query}").body)
    table = person.get(f"/console/totals.csv?{query}").body.decode()
    [row] = csv.DictReader(io.StringIO(table))

    assert told == proxy.page(f"/stack/totals?{query}")
    assert (told["total"]["requests"], row["requests"]) == (1, "1")
    assert table.startswith("key,title,status,")


def test_the_table_by_client_begins_with_the_dearest(person: Person) -> None:
    rows = re.findall(r'<th scope="row"><a href="[^"]*"><bdi>([^<]*)', page_of(person, "?by=client"))

    assert (rows[0], len(rows)) == ("claude-cli", 3)


def test_a_row_of_the_table_by_client_leads_to_that_client(person: Person) -> None:
    assert 'href="/console?client=codex_cli_rs"' in page_of(person, "?by=client")


def test_a_client_that_is_not_there_is_said_with_a_way_back(person: Person) -> None:
    page = page_of(person, "?client=%3Cb%3Enobody&by=model")

    assert "There is no request of <bdi>&lt;b&gt;nobody</bdi>" in page
    assert 'href="/console?by=model"' in page


def test_where_all_is_of_one_client_nothing_is_asked(tmp_path: Path) -> None:
    with ScriptedProvider() as provider, ServedProxy(provider.url, tmp_path / "data") as running:
        provider.will(says("done"))
        ask(running.origin, body_of(), headers={"user-agent": CLAUDE})
        person = Person(running.origin)
        person.open_link()

        assert '<select name="client"' not in page_of(person)


def answers(page: str) -> dict[str, str]:
    """The lines at the top, by their questions, without markup."""
    [told] = re.findall(r'<dl class="answers">(.*?)</dl>', page, re.DOTALL)
    lines = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", told, re.DOTALL)
    return {name: " ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split()) for name, text in lines}


@pytest.mark.rows("X-65")
def test_three_questions_are_answered_in_a_line_each(tmp_path: Path) -> None:
    """What was saved this week, what runs now and since when, with a button that stops it, and what there is to do."""
    with ScriptedProvider() as provider, ServedProxy(provider.url, tmp_path / "data", tariffs=PRICED) as running:
        person = Person(running.origin)
        person.open_link()
        provider.will(says("done"))
        ask(running.origin, body_of("Hello! Mend the login form."))
        told = answers(page_of(person))
        assert re.search(r"\$0\.\d+ of \$0\.\d+ .*Dearer with us: none of 1 conversation\.", told["Saved this week"])
        assert (told["Running now"], told["What to do"]) == ("Nothing.", "Nothing.")

        provider.will(calls("bash", command="pytest -q"))
        ask(running.origin, body_of("Hello! Run the tests."))
        told = answers(page_of(person))
        assert re.match(r"Run the tests\. the agent runs since .* : bash pytest -q Stop$", told["Running now"])
        [path] = re.findall(r'action="(/console/conversations/\w+/stop)"', person.get("/console/running").body.decode())
        stopped = person.send("/console", path, **{"from": "overview"})
        assert stopped.header("location").startswith("/console?done=Stopped")
        told = answers(page_of(person))
        assert told["Running now"] == "Nothing."
        assert told["What to do"].startswith("An agent is stopped (“Run the tests.”): its requests are refused until ")
        assert ask(running.origin, body_of("Hello! Run the tests.")).status == 499
        assert len(provider.received) == 2
        assert '<th scope="row">broken off: stopped</th>' in page_of(person)

        for task in ("Tidy the imports", "Count the lines", "Write the changelog"):
            provider.will(calls("bash", command="ls"))
            ask(running.origin, body_of(f"{task}."))
            page = person.get("/console/running").body.decode()
            person.send("/console", *re.findall(r'action="(/console/conversations/\w+/stop)"', page))
        told = answers(page_of(person))
        assert told["What to do"].startswith(
            "4 agents are stopped (“Write the changelog.”, “Count the lines.”, “Tidy the imports.”, …): their requests"
        )


@pytest.mark.rows("X-65")
def test_a_period_can_be_chosen_by_a_word_or_by_dates(person: Person) -> None:
    week, before = page_of(person, "?period=week&client=claude-cli"), page_of(person, "?until=2001-01-01&period=week")

    assert options(week, "period") == ["all time", "today", "*last 7 days", "last 30 days"]
    assert requests_in(week) == 2
    assert "Dearer with us: none (1 conversation in the last 7 days)." in week
    assert 'href="/console?by=model&amp;client=claude-cli&amp;period=week"' in week
    assert "There is no request until 2001-01-01" in before
    assert (options(before, "period")[0], 'value="2001-01-01"' in before) == ("*all time", True)
    assert json.loads(person.get("/console/totals.json?until=2001-01-01").body)["total"]["requests"] == 0


@pytest.mark.parametrize("query", ["?chart=x", "?by=x&client=claude-cli", "?period=year", "?since=yesterday"])
def test_a_chart_that_is_not_there_is_said(person: Person, query: str) -> None:
    assert person.get(f"/console{query}").status == 400


# ------------------------------------------------------------------------------------------------------------- tenants
def test_an_operator_chooses_a_client_key(build: Building) -> None:
    site = build(tenancy="key")
    admin = site.owner("admin")

    page = page_of(admin, "?tenant=key-ours&by=client")
    assert options(page, "tenant") == ["all", "admin", "*ours", "theirs"]
    assert requests_in(page) == 1
    assert "agent-a" in page
    assert "agent-b" not in page
    assert requests_in(page_of(admin)) == 2
    assert json.loads(admin.get("/console/totals.json?tenant=key-theirs").body)["total"]["requests"] == 1
    assert "by the client key <bdi>ours</bdi>" in page_of(admin, "?tenant=key-ours&client=agent-b")


def test_the_key_that_used_most_stands_at_the_top(tmp_path: Path) -> None:
    with ScriptedProvider() as provider, ServedProxy(provider.url, tmp_path / "data", tenancy="key") as running:
        keys = {name: issue_key(running.data / "keys.json", name) for name in ("ana", "ben")}
        for name in ("ana", "ben", "ben"):
            provider.will(says("done"))
            assert ask(running.origin, body_of(f"task of {name}"), headers={"x-stack-key": keys[name]}).status == 200
        admin, ana = Person(running.origin), Person(running.origin)
        admin.open_link()
        ana.sign_in(keys["ana"])

        told = answers(page_of(admin))["Used most this week"]
        assert re.match(r"ben \$\S+ \(\d+\s%\), 2 requests; ana .*, 1 request\. All client keys$", told)
        assert 'href="/console?tenant=key-ben&amp;period=week"' in page_of(admin)
        assert "Used most" not in page_of(ana)


@pytest.mark.parametrize("page", ["/console", "/console/totals.json", "/console/totals.csv"])
def test_nobody_else_sees_requests_of_another_key(build: Building, page: str) -> None:
    site = build(tenancy="key")
    owner = site.owner("ours")

    assert owner.get(f"{page}?tenant=key-theirs").status == 403
    assert owner.get(f"{page}?tenant=key-ours").status == 200
    shown = owner.get(page).body.decode()
    assert "theirs" not in shown
    assert "agent-b" not in shown


@pytest.mark.rows("X-63")
def test_what_a_plan_paid_is_told_by_what_it_took_of_the_plan(tmp_path: Path) -> None:
    login = {"authorization": "Bearer eyJh.eyJz.sig", "chatgpt-account-id": "1111-2222"}
    with ScriptedProvider() as provider, ServedProxy(provider.url, tmp_path / "data") as running:
        provider.will(says("done"))
        assert ask(running.origin, body_of("a task"), headers=login).status == 200
        person = Person(running.origin)
        assert person.open_link().status == 303
        page = page_of(person)
        [conversation] = set(re.findall(r"/console/conversations/(\w+)", page_of(person, "?by=conversation")))
        of_conversation = person.get(f"/console/conversations/{conversation}").body.decode()
        listed = person.get("/console/conversations").body.decode()

    assert "Taken</span><b>as much of your plan as untouched" in page
    assert answers(page)["Taken this week"] == "as much of your plan as untouched ."
    assert "Paid</span>" not in page
    assert "took as much of your plan as untouched" in of_conversation
    assert 'data-label="took">as much of your plan as untouched' in listed


@pytest.mark.rows("X-63")
def test_where_a_plan_pays_no_page_speaks_of_dollars(tmp_path: Path) -> None:
    """A login in place of a key. What a key pays beside it is told in dollars, and that alone."""
    login = {"authorization": "Bearer sk-ant-oat01-a"}
    with ScriptedProvider() as provider, ServedProxy(provider.url, tmp_path / "data", tariffs=PRICED) as running:
        person = Person(running.origin)
        person.open_link()
        provider.will(says("done"))
        ask(running.origin, body_of("Tidy up."), headers=login)
        [made] = running.page("/stack/requests")["requests"]
        addresses = ("", f"/conversations/{made['conversation']}", f"/requests/{made['id']}", "/conversations")
        for address in addresses:
            page = page_of(person, address)
            assert "of your plan" in page, address
            assert "$" not in re.sub(r"<script.*?</script>|<code>.*?</code>", "", page), address
        assert 'data-unit="tokens"' in page_of(person)

        provider.will(says("done"))
        ask(running.origin, body_of("Count the lines."))
        both = page_of(person, "?by=request")
        total = running.page("/stack/totals?by=request")["total"]
        paid = total["cost"] - made["receipt"]["cost"]
        assert f"With us</span><b>${paid:.4f}" in both


@pytest.mark.rows("X-63")
def test_where_a_plan_paid_for_a_part_pages_say_which_and_price_the_rest(tmp_path: Path) -> None:
    """One conversation, begun with a login and gone on with by a key."""
    login = {"authorization": "Bearer sk-ant-oat01-a"}
    begun = body_of("Tidy up.")
    dear = {"m": {"input": 100.0, "output": 200.0}}
    more = [{"role": "assistant", "content": "done"}, {"role": "user", "content": "And the tests."}]
    with ScriptedProvider() as provider, ServedProxy(provider.url, tmp_path / "data", tariffs=dear) as running:
        provider.will(says("done"), says("done"))
        ask(running.origin, begun, headers=login)
        ask(running.origin, {**begun, "messages": [*begun["messages"], *more]})
        by_key, by_login = (row["receipt"] for row in running.page("/stack/requests")["requests"])
        [row] = running.page("/stack/conversations")["conversations"]
        total = running.page("/stack/totals?by=request")["total"]
        person = Person(running.origin)
        person.open_link()
        addresses = "", "/conversations", f"/conversations/{row['id']}"
        pages = {address: page_of(person, address) for address in addresses}

    assert by_login["plan"]
    assert not by_key.get("plan")
    assert by_login["conversation"] == by_key["conversation"]
    assert row["cost"] == pytest.approx(by_key["cost"])
    assert row["plan_part"] == "a plan paid for 1 of 2 requests (as much of your plan as untouched)"
    assert (total["by_plan"], total["by_plan_cost"]) == (1, pytest.approx(by_login["cost"]))
    assert total["cost"] == pytest.approx(by_key["cost"] + by_login["cost"])
    for address, page in pages.items():
        assert "a plan paid for 1 of 2 requests" in page.lower(), address
        assert f"${by_key['cost']:.4f}" in page, address
        assert f"${by_login['cost']:.4f}" not in page, address
    assert '<td colspan="2" data-label="with us">a plan paid</td>' in pages[addresses[-1]]
