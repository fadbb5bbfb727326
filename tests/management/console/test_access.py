"""Who may see the console, and who may change something by it."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock, patch
from urllib.parse import urlencode

import pytest

from callstack_proxy.management.issued_keys import issue_key, revoke_key
from tests.management.console.conftest import Building, Person, Site
from tests.wire.talking import ask

POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'"
PAGES = ("/console", "/console/conversations", "/console/operation", "/console/events", "/console/totals.csv")


def pages_of(site: Site) -> list[str]:
    ours = site.ours
    return [
        *(page for page in PAGES if page != "/console/events"),
        f"/console/conversations/{ours.conversation}",
        f"/console/frames/{ours.child}",
        f"/console/requests/{ours.request}",
        f"/console/requests/{ours.request}/raw/in",
        f"/console/requests/{ours.request}/messages/0/1",
        f"/console/frames/{ours.child}/log/0",
    ]


@pytest.mark.parametrize("page", PAGES)
def test_without_a_sign_in_a_page_says_how_to_come_in(build: Building, page: str) -> None:
    answer = build().person().get(page)

    assert answer.status == 401
    assert b"callstack console" in answer.body
    assert b"Make the suite green" not in answer.body


def test_the_printed_link_opens_it_and_leaves_no_code_in_the_address(build: Building) -> None:
    person = build().person()
    answer = person.open_link()
    cookie = answer.header("set-cookie")

    assert (answer.status, answer.header("location")) == (303, "/console")
    assert {"HttpOnly", "SameSite=strict", "Path=/console"} <= set(cookie.split("; "))
    assert person.get("/console").status == 200


@pytest.mark.parametrize("code", ["x", "", "\u00e9", "a" * 4000])
def test_a_wrong_code_is_refused_with_what_to_do(build: Building, code: str) -> None:
    answer = build().person().get(f"/console?code={code.encode().hex() if not code.isascii() else code}")

    assert answer.status == 401
    assert b"callstack console" in answer.body


def test_a_session_outlasts_a_restart_and_the_link_does_not(build: Building) -> None:
    site = build()
    person = site.operator()
    [(name, value)] = person.cookies.items()

    assert re.fullmatch(r"callstack_\d+", name), "browsers send a cookie to every port of a host"
    assert person.get("/console").status == 200
    person.cookies[name] = value[:-1] + ("0" if value[-1] != "0" else "1")
    assert person.get("/console").status == 401
    person.cookies[name] = "." + value
    assert person.get("/console").status == 401


def test_a_key_opens_what_is_its_own_and_nothing_else(build: Building) -> None:
    site = build(tenancy="key")
    ours, theirs = site.owner("ours"), site.owner("theirs")

    for page in pages_of(site):
        operators = page == "/console/operation"
        assert ours.get(page).status == (403 if operators else 200), page
        if page.count("/") > 2:
            stranger = theirs.get(page)
            assert stranger.status == 404, page
            assert b"rounding" not in stranger.body
    assert site.ours.conversation.encode() not in theirs.get("/console/conversations").body
    assert site.ours.conversation.encode() in ours.get("/console/conversations").body


def test_a_key_issued_with_admin_sees_everything(build: Building) -> None:
    site = build(tenancy="key")
    admin = site.owner("admin")

    assert [page for page in pages_of(site) if admin.get(page).status != 200] == []
    assert site.theirs.conversation.encode() in admin.get("/console/conversations").body


@pytest.mark.parametrize("key", ["", "csk_wrong", "sk-ant-oat01-rotating"])
def test_a_wrong_key_is_refused(build: Building, key: str) -> None:
    person = build(tenancy="key").person()

    assert person.sign_in(key).status == 401
    assert person.cookies == {}


def test_without_client_keys_none_opens_it(build: Building) -> None:
    site = build()

    answer = site.person().sign_in(site.keys["admin"])

    assert answer.status == 401
    assert b"callstack console" in answer.body


def test_revoking_a_key_ends_its_sessions_also_when_the_name_is_issued_again(build: Building) -> None:
    site = build(tenancy="key")
    person = site.owner("ours")
    keys = site.proxy.data / "keys.json"

    revoke_key(keys, "ours")
    assert person.get("/console").status == 401
    issue_key(keys, "ours")
    assert person.get("/console").status == 401
    assert site.owner("theirs").get("/console").status == 200


def test_a_page_waits_for_no_style_sheet_that_the_browser_has(build: Building) -> None:
    """The address of a file names what is in it, so it is never asked for again."""
    person = build().operator()
    [address] = re.findall(r'href="(/console/static/console.css[^"]*)"', person.get("/console").body.decode())
    assert person.get(address).header("cache-control") == "max-age=31536000, immutable"
    for other in ("", "?0123456789ab"):  # the second is of another version's file
        assert person.get(address.partition("?")[0] + other).header("cache-control") == "no-cache"


def test_scripts_and_styles_come_compressed_to_who_takes_gzip(build: Building) -> None:
    person = build().operator()
    page = person.get("/console", **{"accept-encoding": "gzip"})
    addresses = re.findall(r'"(/console/static/[^"]+)"', page.body.decode())
    gzipped = {address: person.get(address, **{"accept-encoding": "br, gzip;q=0.5"}) for address in addresses}

    assert page.header("content-encoding") == "", "a page holds the token of the forms beside the words of others"
    assert len(gzipped) >= 6
    assert sum(len(each.body) for each in gzipped.values()) < 60_000
    for address, packed in gzipped.items():
        plain = person.get(address, **{"accept-encoding": "br, gzip;q=0"})
        assert (packed.header("content-encoding"), plain.header("content-encoding")) == ("gzip", "")
        assert gzip.decompress(packed.body) == plain.body
        assert packed.header("content-type") == plain.header("content-type") != ""
        assert packed.header("vary") == plain.header("vary") == "accept-encoding"
        assert packed.header("etag") != plain.header("etag")
        assert hashlib.sha256(plain.body).hexdigest().startswith(address.partition("?")[2])


def test_a_file_that_the_browser_has_is_not_sent_again(build: Building) -> None:
    person = build().operator()
    sent = person.get("/console/static/console.css", **{"accept-encoding": "gzip"})

    again = person.get(
        "/console/static/console.css", **{"accept-encoding": "gzip", "if-none-match": sent.header("etag")}
    )
    other = person.get("/console/static/console.css", **{"if-none-match": sent.header("etag")})

    assert (again.status, again.body, other.status) == (304, b"", 200)
    assert person.get("/console/static/none.css").status == 404


def test_signing_out_ends_the_session_here(build: Building) -> None:
    person = build().operator()

    answer = person.send("/console", "/console/sign-out")

    assert answer.status == 303
    assert person.get("/console").status == 401


def test_signing_out_ends_the_session_for_a_copy_of_its_cookie_too(build: Building) -> None:
    site = build()
    person, other = site.operator(), site.operator()
    thief = Person(person.origin, dict(person.cookies))
    assert thief.get("/console").status == 200

    person.send("/console", "/console/sign-out")

    assert thief.get("/console").status == 401
    assert other.get("/console").status == 200


def test_a_clock_that_jumps_opens_no_session_that_was_ended(build: Building) -> None:
    """A12: while it is a year ahead somebody else signs out."""
    site = build()
    person, other = site.operator(), site.operator()
    thief, late_thief = (Person(each.origin, dict(each.cookies)) for each in (person, other))
    token = token_of(other)
    person.send("/console", "/console/sign-out")
    # A patch: the proxy runs in this process, and nobody may set the clock of the machine.
    with patch("callstack_proxy.management.console.sessions.time", Mock(time=lambda: time.time() + 366 * 86_400)):
        assert late_thief.get("/console").status == 401, "its days are over"
        ahead = site.operator()
        ahead.send("/console", "/console/sign-out")

    assert thief.get("/console").status == 401
    assert late_thief.get("/console").status == 200
    assert other.post("/console/sign-out", {"token": token}).status == 303
    assert late_thief.get("/console").status == 401


def test_of_many_who_sign_out_at_once_none_stays_signed_in(build: Building) -> None:
    site = build()
    people = [site.operator() for _ in range(16)]
    thieves = [Person(each.origin, dict(each.cookies)) for each in people]
    tokens = [token_of(each) for each in people]

    with ThreadPoolExecutor(len(people)) as pool:
        left = list(pool.map(lambda each, token: each.post("/console/sign-out", {"token": token}), people, tokens))

    assert {answer.status for answer in left} == {303}
    assert [thief.get("/console").status for thief in thieves] == [401] * len(people)


FORMS = ("conversations/{conversation}/say", "conversations/{conversation}/stop", "conversations/{conversation}/mode",
         "frames/{planned}/rename", "operation/keys", "operation/keys/revoke", "sign-out")  # fmt: skip


@pytest.mark.parametrize("token", ["", "0" * 32, "of another"])
def test_a_form_without_its_session_s_token_changes_nothing(build: Building, token: str) -> None:
    site = build()
    person = site.operator()
    fields = {"text": "forged", "title": "forged", "mode": "off", "name": "forged", "token": token}
    if token == "of another":
        fields["token"] = token_of(site.operator())

    for form in FORMS:
        answer = person.post(f"/console/{form.format(**vars(site.ours))}", fields)
        assert (form, answer.status) == (form, 403)
        assert b"another session" in answer.body

    assert "forged" not in (site.proxy.data / "keys.json").read_text()
    assert b"forged" not in person.get(f"/console/conversations/{site.ours.conversation}").body
    assert person.get("/console").status == 200


def token_of(person: Person) -> str:
    found = re.search(rb'name="token" value="(\w+)"', person.get("/console").body)
    assert found
    return found[1].decode()


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "vscode-webview://x"])
def test_a_page_of_another_site_reaches_nothing(build: Building, origin: str) -> None:
    site = build()
    person = site.operator()

    assert person.get("/console", origin=origin).status == 403
    assert person.get("/console", **{"sec-fetch-site": "cross-site"}).status == 403
    assert ask(site.proxy.origin, method="GET", path="/console", headers={"host": "evil.example"}).status == 403


FORGED = {
    "another site": {"origin": "https://evil.example"},
    "no origin that has a name": {"origin": "null"},
    "another port": {"origin": "http://127.0.0.1:1"},
    "another name of this machine": {"origin": "http://localhost"},
    "an origin that begins like ours": {"origin": "{origin}.evil.example"},
    "ours as the user of another": {"origin": "{origin}@evil.example"},
    "two origins": {"origin": "{origin} https://evil.example"},
    "an extension of the browser": {"origin": "chrome-extension://abc"},
    "another application": {"origin": "vscode-webview://abc"},
    "without an origin": {"sec-fetch-site": "cross-site"},
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED.keys())
def test_a_form_with_its_token_from_elsewhere_changes_nothing(build: Building, forged: dict[str, str]) -> None:
    """Whoever has seen a page of ours, token and all, cannot send its form from a page of theirs."""
    site = build()
    person, before = site.operator(), state_of(site)
    fields = {"text": "forged", "title": "forged", "mode": "off", "name": "forged", "token": token_of(person)}
    headers = {name: value.format(origin=person.origin) for name, value in forged.items()}
    managed = ("DELETE", "conversations/{conversation}"), ("PUT", "conversations/{conversation}/mode")

    for form in FORMS:
        assert person.post(f"/console/{form.format(**vars(site.ours))}", fields, **headers).status == 403, form
    for method, path in managed:
        asked = f"/stack/{path.format(**vars(site.ours))}"
        assert ask(person.origin, {"mode": "off"}, method=method, path=asked, headers=headers).status == 403, path

    is_as_it_was(site, person, before)


OTHER_WAYS: dict[str, tuple[str, dict[str, str]]] = {
    "GET": ("GET", {}),
    "GET that would be a POST": ("GET", {"x-http-method-override": "POST", "x-method-override": "POST"}),
    "HEAD": ("HEAD", {}),
    "JSON said to be text": ("POST", {"content-type": "text/plain"}),
    "no type": ("POST", {"content-type": ""}),
}


@pytest.mark.parametrize(("method", "headers"), OTHER_WAYS.values(), ids=OTHER_WAYS.keys())
def test_a_form_is_no_address_and_no_other_kind_of_body(build: Building, method: str, headers: dict[str, str]) -> None:
    """What a page of another site can make a browser send without asking: a token there counts for nothing."""
    site = build()
    person, before = site.operator(), state_of(site)
    fields = {"text": "forged", "title": "forged", "mode": "off", "name": "forged", "token": token_of(person)}
    body = json.dumps(fields).encode() if method == "POST" else None
    cookies = {"cookie": "; ".join(f"{name}={value}" for name, value in person.cookies.items())}

    for form in FORMS:
        path = f"/console/{form.format(**vars(site.ours))}?{urlencode({**fields, '_method': 'POST'})}"
        answer = ask(person.origin, body, method=method, path=path, headers=cookies | headers)
        assert answer.status in (403, 404, 405), form

    is_as_it_was(site, person, before)


def state_of(site: Site) -> object:
    return ask(site.proxy.origin, method="GET", path=f"/stack/conversations/{site.ours.conversation}").json


def is_as_it_was(site: Site, person: Person, before: object) -> None:
    page = person.get(f"/console/conversations/{site.ours.conversation}")
    assert page.status == 200, "signed out"
    assert b"forged" not in page.body
    assert "forged" not in (site.proxy.data / "keys.json").read_text()
    assert state_of(site) == before


def test_every_answer_forbids_what_is_not_ours(build: Building) -> None:
    site = build()
    person = site.operator()
    answers = [
        person.get(page)
        for page in (*pages_of(site), "/console/static/console.css", "/console/none", "/console/sign-in")
    ]

    for answer in (*answers, site.person().get("/console")):
        assert answer.header("content-security-policy").startswith(POLICY)
        assert answer.header("x-content-type-options") == "nosniff"
        assert answer.header("referrer-policy") == "same-origin"
        assert b"<script>" not in answer.body
        assert b"style=" not in answer.body
        assert b" onclick" not in answer.body
        assert not re.search(rb'(?:src|href)="(?:https?:)?//', answer.body)


def test_a_body_that_is_too_large_is_refused(build: Building) -> None:
    person = build().operator()

    assert person.post("/console/sign-in", {"key": "x" * 1_100_000}).status == 413
    assert person.get("/console").status == 200


def test_no_key_and_no_message_comes_into_the_log(build: Building, caplog: pytest.LogCaptureFixture) -> None:
    site = build(tenancy="key")
    person = site.owner("admin")
    person.send(
        f"/console/conversations/{site.ours.conversation}",
        f"/console/conversations/{site.ours.conversation}/say",
        text="a secret word",
    )

    logged = caplog.text + " ".join(str(vars(record)) for record in caplog.records)
    assert "secret word" not in logged
    assert site.keys["admin"] not in logged


def test_with_the_provider_s_keys_as_tenants_one_sees_what_came_with_it(build: Building) -> None:
    site = build(tenancy="credential")
    person = site.person()

    assert person.sign_in("sk-a-static-key").status == 303
    assert person.get("/console/conversations").status == 200
    assert site.ours.conversation.encode() not in person.get("/console/conversations").body
    assert person.get("/console/operation").status == 403
    assert "sk-a-static-key" not in "".join(person.cookies.values())
    assert site.person().sign_in("sk-ant-oat01-rotating").status == 401
