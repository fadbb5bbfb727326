"""What the pages show of a stored conversation, that it is only ever text, and what they say of what is not there."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from callstack_proxy.management.console import rendering
from callstack_proxy.management.console.frame_page import result_words
from callstack_proxy.management.console.request_page import balance_words
from llm_test_provider import ScriptedProvider, calls, says
from proxy.accounting import Receipt
from tests.management.console.conftest import Building, Person
from tests.wire.proxied import TOKEN, ServedProxy
from tests.wire.talking import ReceivedAnswer, ask, body_of

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"' onmouseover=alert(3) {{7*7}} \x1b[31m\u202egnp.exe"
VENDORED = Path(rendering.__file__).parent / "static" / "vendor"


class Markup(HTMLParser):
    """Collects the elements of a page, and refuses attributes that hold code."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        assert [name for name, _ in attrs if name.startswith("on") or name == "style"] == []
        if tag == "script":
            assert dict(attrs)["src"]


def markup_of(page: str) -> set[str]:
    parser = Markup()
    parser.feed(page)
    return parser.elements


def text_of(person: Person, page: str) -> str:
    answer = person.get(page)
    assert answer.status == 200, page
    return answer.body.decode()


def test_the_overview_has_the_figures_of_the_api(build: Building) -> None:
    site = build()
    person = site.operator()
    totals = site.proxy.page("/stack/totals?by=model")

    page = text_of(person, "/console?by=model")
    assert f"<b>{totals['total']['requests']}</b>" in page
    assert json.loads(person.get("/console/totals.json?by=model").body) == totals
    [row, *_] = csv.DictReader(io.StringIO(person.get("/console/totals.csv?by=model").body.decode()))
    assert {name: str(totals["rows"][0][name]) for name in ("key", "requests", "cost", "saved")}.items() <= row.items()
    points = json.loads(re.findall(r'data-points="([^"]*)"', page)[0])
    assert [len(series) for series in points] == [2, 2, 2, 2]


@pytest.mark.parametrize("by", ["day", "model", "conversation", "frame"])
def test_the_overview_by_each_group(build: Building, by: str) -> None:
    assert f"By {by}" in text_of(build().operator(), f"/console?by={by}")


def test_a_conversation_is_a_tree_with_its_requests(build: Building) -> None:
    site = build()
    page = text_of(site.operator(), f"/console/conversations/{site.ours.conversation}")

    for frame, title in ((site.ours.child, "Fix rounding"), (site.ours.planned, "Write the changelog")):
        assert re.search(rf'href="/console/frames/{frame}"[^>]*><bdi>{title}</bdi>', page)
    assert f"/console/requests/{site.ours.request}" in page
    assert 'class="mark planned"' in page
    assert "Where its tokens went" in page


def test_a_frame_shows_its_result_and_all_it_did(build: Building) -> None:
    site = build()
    page = text_of(site.operator(), f"/console/frames/{site.ours.child}")

    assert "Decimal until the last step" in page
    assert "round(total, 2)" in page
    assert "\x1b" not in page
    assert "billing passes" in page


@pytest.mark.parametrize(
    ("results", "origin", "words"),
    [
        ("All is well", "human", "Result"),
        ("All is well", "request", "Result"),
        ("it passes", "request", "Last words"),
        ("it passes", "model", "Result"),
    ],
)
def test_a_result_that_somebody_gave_is_not_called_last_words(results: str, origin: str, words: str) -> None:
    assert result_words(results, origin, ["I look", "Done: it passes"]) == words
    assert result_words(results, origin, []) == "Result"


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        ("in", "I read billing.py"),
        ("up", "&lt;stack-context&gt;left"),
        ("diff", '<span class="what">put away'),
        ("previous", "no request before"),
    ],
)
def test_a_request_in_each_view(build: Building, view: str, expected: str) -> None:
    site = build()

    assert expected in text_of(site.operator(), f"/console/requests/{site.ours.request}?view={view}")


def test_a_request_says_which_one_of_its_conversation_it_is(build: Building) -> None:
    site = build()
    page = text_of(site.operator(), f"/console/requests/{site.ours.request}")
    assert re.search(r'<h1>Request (\d+) <span class="soft">of \1</span></h1>', page)
    assert site.ours.request in page


def test_a_dearer_request_says_why() -> None:
    sent = {"cached": 100, "written": 50, "uncached": 950, "prefix": 0}
    came = {"cached": 900, "written": 0, "uncached": 100, "prefix": 0}
    counts = ("tokens_in", "tokens_sent", "tokens_last", "tokens_saved", "fixed_in", "fixed_sent", "own_rounds")
    receipt = {"saved": -0.1, "rounds": 2, "sent": sent, "untouched": came, "own_tools": 30, "own_texts": 12}
    receipt |= {"id": "r1", "usage": {}, "usage_by_round": [], "cost": 1.1, "cost_untouched": 1.0}
    receipt |= {"basis": "estimated", "priced": True, "output_priced": True, **dict.fromkeys(counts, 0)}

    told = balance_words(msgspec.convert(receipt, Receipt))
    assert "1 more round;" in told
    assert "900 more tokens" in told
    assert "42 tokens" in told
    assert balance_words(msgspec.convert(receipt | {"saved": 0.0}, Receipt)) == ""


def test_a_changed_message_shows_which_words_came_also_in_a_damaged_conversation(
    build: Building, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = build()
    person = site.operator()
    diff = f"/console/requests/{site.ours.request}?view=diff"
    changed = re.compile(r"be brief<ins>\. Use frames\.</ins>")

    with monkeypatch.context() as damage:  # patched: a row that only reading the ledger stumbles over
        damage.setattr(site.proxy.app._store, "load", None)
        damaged = text_of(person, diff)
    assert changed.search(damaged)
    assert "<bdi>Conversation</bdi>" in damaged  # nothing is known of its task
    page = text_of(person, diff)
    assert changed.search(page)
    assert "<bdi>Conversation</bdi>" not in page


def test_raw_bytes_are_those_that_were_sent(build: Building) -> None:
    site = build()
    person = site.operator()

    body = json.loads(person.get(f"/console/requests/{site.ours.request}/raw/0").body)
    assert body["messages"][0]["content"] == "be brief. Use frames."
    assert person.get(f"/console/requests/{site.ours.request}/raw/0").header("content-type").startswith("text/plain")


def test_text_of_models_and_tools_stays_text(build: Building) -> None:
    site = build(HOSTILE)
    person = site.operator()
    person.send(
        f"/console/conversations/{site.ours.conversation}",
        f"/console/conversations/{site.ours.conversation}/say",
        text=HOSTILE,
    )
    person.send(f"/console/frames/{site.ours.planned}", f"/console/frames/{site.ours.planned}/rename", title=HOSTILE)
    pages = [
        "/console?by=frame",
        "/console?by=conversation",
        "/console/conversations?q=" + "%3Cscript%3Ealert(1)",
        f"/console/conversations/{site.ours.conversation}",
        f"/console/frames/{site.ours.root}",
        f"/console/frames/{site.ours.child}",
        f"/console/frames/{site.ours.planned}",
        f"/console/requests/{site.ours.request}",
        "/console/frames/%3Cscript%3Ealert(1)",
        f"/console/frames/{site.ours.child}?done=%3Cscript%3Ealert(1)%3C/script%3E",
    ]

    for page in pages:
        body = person.get(page).body.decode()
        assert "img" not in markup_of(body), page
        assert not {"\x1b", "\u202e"} & set(body), page


ABSENT = ("conversations/none", "frames/none", "requests/none", "nothing", "frames/none/log/0", "requests/none/raw/in")


@pytest.mark.parametrize("page", ABSENT)
def test_what_is_not_there_is_said(build: Building, page: str) -> None:
    answer = build().operator().get(f"/console/{page}")

    assert answer.status == 404
    assert b"cannot be shown" in answer.body


@pytest.mark.parametrize("query", ["conversations?sort=x", "conversations?state=x", "conversations?page=0", "?by=x",
                                   "conversations/{conversation}?at=x", "frames/{child}?page=-1",
                                   "requests/{request}?view=x"])  # fmt: skip
def test_a_wrong_parameter_is_said(build: Building, query: str) -> None:
    site = build()
    answer = site.operator().get(f"/console/{query.format(**vars(site.ours))}".replace("/?", "?"))

    assert answer.status == 400
    assert b"cannot be shown" in answer.body


def test_a_deleted_conversation_is_said(build: Building) -> None:
    site = build()
    person = site.operator()
    path = f"/stack/conversations/{site.ours.conversation}"
    assert ask(site.proxy.origin, method="DELETE", path=path, headers={"x-stack-key": TOKEN}).status == 200

    for page in (
        f"conversations/{site.ours.conversation}",
        f"frames/{site.ours.child}",
        f"requests/{site.ours.request}",
    ):
        assert person.get(f"/console/{page}").status == 404
    assert site.ours.conversation not in text_of(person, "/console/conversations")


ACTIONS = {
    "conversations/{conversation}/say": ({"text": "go on"}, "The model is told"),
    "conversations/{conversation}/stop": ({"from": "overview"}, "Stopped: no request was under way"),
    "conversations/{conversation}/mode": ({"mode": "shadow"}, "The mode is shadow"),
    "frames/{planned}/rename": ({"title": "Other words"}, "next request"),
    "frames/{planned}/invalidate": ({"reason": "not wanted"}, "next request"),
    "frames/{root}/push": ({"title": "Look closer"}, "next request"),
    "frames/{root}/plan": ({"title": "Later"}, "next request"),
    "frames/{child}/unfold": ({}, "asked to read this work again"),
    "frames/{child}/unfold?x": ({"from": "tree"}, "Take back"),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_an_action_says_what_it_did(build: Building, action: str) -> None:
    fields, expected = ACTIONS[action]
    site = build()
    person = site.operator()
    path = f"/console/{action.format(**vars(site.ours))}"

    answer = person.send(path.rpartition("/")[0], path, **fields)

    assert answer.status == 303
    assert expected in text_of(person, answer.header("location"))
    told = set(fields.values()) - {"shadow", "overview", "tree"}
    assert all(value not in answer.header("location") for value in told)


@pytest.mark.parametrize("action", ["frames/{planned}/rename", "frames/{planned}/invalidate", "frames/{root}/push",
                                    "conversations/{conversation}/say"])  # fmt: skip
@pytest.mark.parametrize("text", ["", "x" * 100_000])
def test_an_action_with_a_wrong_text_changes_nothing(build: Building, action: str, text: str) -> None:
    site = build()
    person = site.operator()
    path = f"/console/{action.format(**vars(site.ours))}"

    answer = person.send(path.rpartition("/")[0], path, title=text, text=text, reason=text)

    assert answer.status == 400
    assert b"x" * 1000 not in answer.body


def test_a_page_shows_what_a_person_changed_since_it_was_seen(build: Building) -> None:
    """Without a request in between: what the proxy reads of a conversation for its pages, it remembers."""
    site = build()
    person = site.operator()
    page = f"/console/frames/{site.ours.planned}"

    assert person.send(page, f"{page}/rename", title="Other words").status == 303

    assert "<h1><bdi>Other words</bdi>" in text_of(person, page)


def test_what_waits_for_the_agent_is_shown_taken_back_and_counted_by_a_stop(build: Building) -> None:
    site = build()
    person = site.operator()
    page = f"/console/conversations/{site.ours.conversation}"
    for _ in range(2):  # the second asks for what is asked already
        asked = person.send(f"/console/frames/{site.ours.child}", f"/console/frames/{site.ours.child}/unfold")
    assert "is+asked+already" in asked.header("location")
    [take_back] = re.findall(rf'action="({page}/messages/\w+/take-back)"', text_of(person, page))
    assert f"“Fix rounding”: call stack_recall with ref={site.ours.child}" in text_of(person, page)

    assert person.send(page, take_back).status == 303
    assert "Take back" not in text_of(person, page)
    person.send(page, f"{page}/say", text="one thing")
    assert "Stop takes it back too." in text_of(person, page)
    stopped = person.send(page, f"{page}/stop").header("location")
    assert "The message that waited for the agent was taken back" in text_of(person, stopped)


def test_a_frame_begins_with_its_closing_words_and_its_decisions(build: Building) -> None:
    site = build()
    page = text_of(site.operator(), f"/console/frames/{site.ours.child}")

    top = page.partition('<dl class="answers">')[2].partition("</dl>")[0]
    assert "Decimal until the last step" in top
    assert "Decisions" in top
    assert page.index('<dl class="answers">') < page.index("Bring back") < page.index("Done when")


def test_a_form_without_a_mode_changes_none(build: Building) -> None:
    """A browser sends no field where the option that is shown cannot be chosen, as on the page of what is held out."""
    site = build()
    person = site.operator()
    page = f"/console/conversations/{site.ours.conversation}"
    assert person.send(page, f"{page}/mode", mode="off").status == 303

    assert person.send(page, f"{page}/mode").status == 400
    assert 'value="off" selected' in person.get(page).body.decode()


def test_a_key_is_issued_shown_once_and_revoked(build: Building) -> None:
    site = build(tenancy="key")
    person = site.owner("admin")

    issued = person.send("/console/operation", "/console/operation/keys", name="laptop")
    [key] = re.findall(r"csk_[\w-]+", issued.body.decode())
    assert issued.status == 200
    assert key not in text_of(person, "/console/operation")
    newcomer = site.person()
    assert newcomer.sign_in(key).status == 303
    assert person.send("/console/operation", "/console/operation/keys/revoke", name="laptop").status == 303
    assert newcomer.get("/console").status == 401


def test_settings_are_shown_with_where_they_come_from_and_without_secrets(build: Building) -> None:
    site = build(upstreams__other__url="https://host.test/v1", upstreams__other__key="sk-very-secret")
    page = text_of(site.operator(), "/console/operation")

    assert "--set wake_at_tokens" in page
    assert "host.test/v1" in page
    assert "secret" not in page


def test_a_request_that_was_sent_as_it_came_says_so_and_shows_its_messages(tmp_path: Path) -> None:
    with ScriptedProvider() as provider, ServedProxy(provider.url, tmp_path / "data") as proxy:
        person = Person(proxy.origin)
        person.open_link()
        provider.will(says("Hello."))
        answer = ask(proxy.origin, body_of("What stands in the cellar?"))
        proxy.catch_up()
        path = f"/console/requests/{answer.request}"
        pages = {view: text_of(person, f"{path}?view={view}") for view in ("diff", "up")}
        opened = [person.get(each) for each in re.findall(r'hx-get="([^"]+)"', pages["up"])]
        raw = person.get(re.findall(r'href="([^"]+/raw/[^"]+)"', pages["diff"])[0]).body

    assert "It was sent as it came" in pages["diff"]
    assert "What stands in the cellar?" in pages["up"]
    assert [each.status for each in opened] == [200] * len(opened) != []
    assert b"What stands in the cellar?" in raw
    for page in pages.values():
        assert "Nothing was sent" not in page
        assert re.search(r'Saved</span><b class="">\$0\.0+</b>', page)


def test_the_vendored_files_are_those_of_their_packages() -> None:
    listed = dict(line.split()[::-1] for line in (VENDORED / "SHA256SUMS").read_text().splitlines())

    assert listed == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDORED.iterdir()
        if path.suffix in (".js", ".css")
    }


def read_modules(proxy: ServedProxy, provider: ScriptedProvider) -> list[ReceivedAnswer]:
    """An agent that reads sixteen long files, so that the first of them are put away."""
    messages = list(body_of("Go through every module.")["messages"])
    answers = []
    for number in range(16):
        provider.will(calls("read_file", path=f"module_{number}.py"))
        answers.append(ask(proxy.origin, body_of(awake=True, messages=messages, model="claude-sonnet-4-5")))
        said = answers[-1].json["choices"][0]["message"]
        text = f"word {number} of a line " * 2_500
        results = [{"role": "tool", "tool_call_id": call["id"], "content": text} for call in said["tool_calls"]]
        messages += [said, *results]
    return answers


def test_a_request_behind_others_that_put_work_away_says_with_which_and_why(tmp_path: Path) -> None:
    with ScriptedProvider() as provider, ServedProxy(provider.url, tmp_path / "data") as proxy:
        person = Person(proxy.origin)
        person.open_link()
        requests = [answer.request for answer in read_modules(proxy, provider)]
        proxy.catch_up()
        pages = [text_of(person, f"/console/requests/{request}") for request in requests]

    sentences = [re.search(r"<b><bdi>([^<]+)</bdi></b>", page) for page in pages]
    putting = [number for number, found in enumerate(sentences) if found and found[1].startswith("Put away")]
    assert putting
    assert putting[-1] < len(pages) - 1
    before, putting_away, behind = pages[putting[0] - 1], putting[-1], pages[putting[-1] + 1]
    assert "The context last changed" not in before
    assert not [number for number in putting if "The context last changed" in pages[number]]
    link = f'<a href="/console/requests/{requests[putting_away]}">request {putting_away + 1}</a>'
    assert f"The context last changed with {link}: <bdi>Put away" in behind


@pytest.mark.rows("S4-50", "X-65")
def test_a_part_whose_work_a_later_part_took_over_is_put_away_and_not_empty(tmp_path: Path) -> None:
    with ScriptedProvider() as provider, ServedProxy(provider.url, tmp_path / "data") as proxy:
        person = Person(proxy.origin)
        person.open_link()
        [*_, newest] = read_modules(proxy, provider)
        page = person.get(f"/console/conversations/{newest.conversation}").body.decode()

    tree = page.partition('id="frames"')[2].partition('id="requests"')[0]
    marks = re.findall(r'<span class="mark [^"]*">([^<]*)</span>', tree)
    assert marks[:2] == ["works here", "in context"]
    assert marks[2:] == ["put away"] * tree.count("<bdi>Part ")
    assert len(marks) >= 2 + 3
