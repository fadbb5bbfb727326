"""A8, A9, A10, T3: keys are nowhere but on the wire; nothing a client sends names a file or an address."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from callstack_proxy.management.issued_keys import issue_key
from llm_test_provider import FixedReply, ScriptedAnswer, ScriptedProvider, answers, call, cut, says, status
from tests.harness import does, pop, push
from tests.wire.proxied import TOKEN, LogCapture, ServedProxy
from tests.wire.stage import Starting
from tests.wire.talking import CHAT, ReceivedAnswer, ask, body_of

KEYS = {
    "authorization": "Bearer canary-authorization-0001",
    "x-api-key": "canary-x-api-key-0002",
    "api-key": "canary-api-key-0003",
    "proxy-authorization": "Basic canary-proxy-0004",
    "cookie": "session=canary-cookie-0005",
    "x-goog-api-key": "canary-goog-0006",
}
OPERATORS = "canary-operators-key-0007"
CONTENT = "canary-content-0008"
PATHS = ["/stack/conversations", "/stack/requests?limit=1000", "/stack/totals", "/stack/openapi.json", "/health"]


def flows(proxy: ServedProxy, provider: ScriptedProvider) -> list[ReceivedAnswer]:
    """Everything that goes well, and everything that does not, each with every key."""
    leaky = {"error": {"message": f"Incorrect API key provided: {KEYS['x-api-key']}", "code": "invalid_api_key"}}
    provider.will(
        does(push("work"), text=CONTENT),
        answers("", [call("read_file", path=CONTENT)]),
        does(pop(CONTENT)),
        says("done"),
        status(401, body=leaky),
        status(500, body=leaky),
        cut(says(CONTENT * 20), after_bytes=100),
        says("asleep"),
        ScriptedAnswer(instead=FixedReply(200, b"<html>" + KEYS["api-key"].encode(), (("content-type", "text/html"),))),
    )
    several = [
        body_of(CONTENT, awake=True),
        body_of(f"{CONTENT} again", awake=True),
        body_of(f"{CONTENT} refused", awake=True),
        body_of(f"{CONTENT} failed", stream=True),
        body_of(f"{CONTENT} cut", awake=True, stream=True),
        body_of(f"{CONTENT} asleep", stream=True),
        body_of(f"{CONTENT} html"),
        body_of(model="nobody"),
    ]
    told = [ask(proxy.origin, body, headers=KEYS) for body in several]
    told.append(ask(proxy.origin, b'{"broken ' + CONTENT.encode(), headers=KEYS))
    told.append(ask(proxy.origin, several[0], headers={**KEYS, "x-stack-mode": "loud"}))
    told.append(ask(proxy.origin, several[0], headers=KEYS, path=f"{CHAT}?key={KEYS['x-api-key']}"))
    told.append(ask(proxy.origin, several[0], headers={**KEYS, "origin": "http://evil.example"}))
    return told


def contents(folder: Path) -> bytes:
    """Everything on disk, names included."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return b"".join(str(path).encode() + path.read_bytes() for path in files)


def pages(proxy: ServedProxy) -> bytes:
    """Everything the API shows an operator, less the bodies of messages."""
    operator = {"x-stack-key": TOKEN}
    told = [ask(proxy.origin, method="GET", path=path, headers=operator) for path in PATHS]
    rows = told[1].json["requests"]
    told += [ask(proxy.origin, method="GET", path=f"/stack/requests/{row['id']}", headers=operator) for row in rows]
    return b"".join(heard.body for heard in told)


SENT = [value.rpartition(" ")[2].removeprefix("session=").encode() for value in KEYS.values()]


def found(keys: list[bytes], where: bytes) -> list[bytes]:
    return [key for key in keys if key in where]


def test_a8_a_clients_keys_are_in_no_log_no_file_no_page_and_no_error_of_ours(
    start: Starting, provider: ScriptedProvider, journal: LogCapture, tmp_path: Path
) -> None:
    proxy = start(log_level="debug")
    told = flows(proxy, provider)
    shown = pages(proxy)
    refused = b"".join(heard.body for heard in told if heard.status in (400, 403, 404))
    proxy.__exit__(None, None, None)

    assert found(SENT, journal.text.encode()) == []
    assert found(SENT, shown) == []
    assert found(SENT, refused) == []
    assert found([CONTENT.encode()], contents(tmp_path)), "the search finds what is there"
    # What a provider itself wrote into an answer it gave is content; only its 200 was kept.
    assert found([key for key in SENT if b"api-key-0003" not in key], contents(tmp_path)) == []


def test_a8_what_a_conversation_says_is_never_logged(
    start: Starting, provider: ScriptedProvider, journal: LogCapture
) -> None:
    flows(start(log_level="debug"), provider)
    assert CONTENT not in journal.text


def test_a8_the_operators_keys_are_nowhere_but_on_the_wire(
    start: Starting, provider: ScriptedProvider, journal: LogCapture, tmp_path: Path
) -> None:
    proxy = start(upstreams__default__key=OPERATORS, upstreams__default__key_header="x-api-key")
    told = flows(proxy, provider)
    shown = pages(proxy)
    headers = b"".join(f"{name}{value}".encode() for heard in told for name, value in heard.headers)
    proxy.__exit__(None, None, None)

    assert {received.header("x-api-key") for received in provider.received} == {OPERATORS}
    assert {received.header("authorization") for received in provider.received} == {None}
    everywhere = journal.text.encode() + contents(tmp_path) + shown + headers + b"".join(heard.body for heard in told)
    assert found([OPERATORS.encode()], everywhere) == []


@pytest.mark.parametrize("name", ["authorization", "x-api-key", "x-stack-key"])
def test_a8_a_client_key_of_ours_never_leaves_and_is_kept_as_a_hash(
    start: Starting, provider: ScriptedProvider, journal: LogCapture, tmp_path: Path, name: str
) -> None:
    key = issue_key(tmp_path / "data" / "keys.json", "somebody")
    proxy = start(tenancy="key", log_level="debug")
    provider.will(says("hi"))
    value = f"Bearer {key}" if name == "authorization" else key

    assert ask(proxy.origin, body_of(awake=True), headers={name: value}).text == "hi"
    wrong = ask(proxy.origin, body_of(awake=True), headers={name: f"{value}x"})
    proxy.__exit__(None, None, None)

    assert wrong.status == 401
    assert not any(key in value for received in provider.received for _, value in received.headers)
    assert found([key.encode()], journal.text.encode() + contents(tmp_path) + wrong.body) == []


def test_a8_proxy_variables_are_read_with_the_configuration_and_nowhere_else(
    start: Starting, provider: ScriptedProvider, journal: LogCapture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://user:canary-proxy-password@127.0.0.1:9")
    provider.will(says("direct"))
    assert ask(start().origin, body_of()).text == "direct"
    assert "canary-proxy-password" not in journal.text


# ---------------------------------------------------------------------------------------------------------- A10, T3
@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("awake", [True, False], ids=["awake", "asleep"])
def test_a10_a_redirect_is_an_answer_and_is_not_followed(
    proxy: ServedProxy, provider: ScriptedProvider, awake: bool, code: int
) -> None:
    with ScriptedProvider() as elsewhere:
        provider.will(status(code, headers={"location": f"{elsewhere.origin}/v1/chat/completions"}))
        told = ask(proxy.origin, body_of(f"A10 {code}", awake=awake), headers=KEYS)
        assert (told.status, told.header("location")) == (code, f"{elsewhere.origin}/v1/chat/completions")
        assert elsewhere.received == []


def test_a10_nothing_a_client_sends_names_the_upstream(proxy: ServedProxy, provider: ScriptedProvider) -> None:
    with ScriptedProvider() as elsewhere:
        provider.when(lambda _: True, says("ours"), loop=True)
        place = elsewhere.origin.removeprefix("http://")
        headers = ["x-upstream", "x-stack-upstream", "x-forwarded-host", "forwarded", "x-original-url", "x-base-url"]
        fields = ["base_url", "api_base", "upstream", "url", "model", "api_key", "endpoint"]
        for name in headers:
            assert ask(proxy.origin, body_of(awake=True), headers={name: elsewhere.url}).text == "ours"
            assert ask(proxy.origin, body_of(), headers={name: f"host={place}"}).text == "ours"
        for name in fields:
            assert ask(proxy.origin, body_of() | {name: elsewhere.url}).text == "ours"
        for path in (f"/v1/@{place}/x", f"/@{place}", f"//{place}/v1/models", f"/v1/http://{place}/"):
            ask(proxy.origin, method="GET", path=path)
        assert elsewhere.received == []


# ------------------------------------------------------------------------------------------------------------------ A9
CLIMBING = [
    "../../evil",
    "..\\..\\evil",
    "/etc/evil",
    "C:\\evil",
    "a/../../evil",
    "evil\n",
    "~/evil",
    "file:///evil",
    "$(evil)",
]


def test_a9_no_name_a_client_gives_becomes_a_file(start: Starting, provider: ScriptedProvider, tmp_path: Path) -> None:
    proxy = start(tenancy="credential")
    provider.when(lambda _: True, does(push("../../evil")), says("ok"), loop=True)
    ask(proxy.origin, body_of("first", awake=True))
    before = {path.name for path in tmp_path.rglob("*")}

    for number, name in enumerate(CLIMBING):
        clean = name.replace("\n", "%0a")
        headers = {"x-stack-session": clean, "authorization": f"Bearer {clean}", "x-parent-session-id": clean}
        ask(proxy.origin, body_of(f"{name} {number}", awake=True, model=name, user=name), headers=headers)
        ask(proxy.origin, method="GET", path="/stack/frames/" + clean.replace("/", "%2f").replace(" ", "%20"))

    assert {path.name for path in tmp_path.rglob("*")} == before


# ----------------------------------------------------------------------------------------------------------- at rest
@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
@pytest.mark.parametrize("umask", [0o022, 0o000])
def test_t10_everything_kept_is_readable_by_its_owner_alone(
    provider: ScriptedProvider, tmp_path: Path, umask: int
) -> None:
    before = os.umask(umask)
    try:
        issue_key(tmp_path / "deep" / "data" / "keys.json", "somebody")
        with ServedProxy(provider.url, tmp_path / "deep" / "data") as proxy:
            provider.will(does(push("x")), says("hi"))
            ask(proxy.origin, body_of(awake=True))
            kept = [proxy.data, *proxy.data.rglob("*")]
            modes = {str(path.relative_to(tmp_path)): stat.S_IMODE(path.stat().st_mode) for path in kept}
    finally:
        os.umask(before)

    assert len(modes) >= 3
    wrong = {name: oct(mode) for name, mode in modes.items() if mode not in (0o600, 0o700) or mode & 0o077}
    assert wrong == {}
