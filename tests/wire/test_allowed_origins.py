"""Programs that bring a browser engine are served, and can read the answer; a page of the web is not."""

from __future__ import annotations

import pytest

from llm_test_provider import FixedReply, ScriptedAnswer, ScriptedProvider, says
from proxy.config.model import Config
from tests.wire.proxied import ServedProxy
from tests.wire.stage import Starting
from tests.wire.talking import CHAT, ask, body_of

DESKTOP = [
    "app://obsidian.md",
    "vscode-webview://0a1b2c",
    "vscode-file://vscode-app",
    "tauri://localhost",
    "http://tauri.localhost",
    "https://tauri.localhost",
    "http://wails.localhost",
    "capacitor://localhost",
    "Jan://renderer",
]
PAGES = [
    "https://evil.example",
    "http://evil.example:8787",
    "https://app.obsidian.md",
    "https://tauri.localhost.evil.example",
    "http://tauri.localhost:8080",
    "http://localhost:3000",
    "http://127.0.0.1:1",
    "chrome-extension://abc",
    "moz-extension://abc",
    "file://",
    "null",
    "",
    "app:obsidian.md",
    "app://a/b",
    "app://user@a",
    "tauri://localhost https://evil.example",
]


@pytest.mark.rows("X-38")
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
@pytest.mark.parametrize("origin", DESKTOP)
def test_a_desktop_application_is_served_and_may_read_the_answer(
    proxy: ServedProxy, provider: ScriptedProvider, origin: str, stream: bool
) -> None:
    provider.will(says("fine"))
    told = ask(
        proxy.origin,
        body_of(awake=True, stream=stream),
        headers={"origin": origin, "sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"},
    )

    assert (told.status, told.text) == (200, "fine")
    assert told.header("access-control-allow-origin") == origin
    assert "x-stack-status" in told.header("access-control-expose-headers")


@pytest.mark.rows("X-38")
@pytest.mark.parametrize("origin", PAGES)
def test_a_page_is_refused_and_told_nothing(proxy: ServedProxy, provider: ScriptedProvider, origin: str) -> None:
    for method in ("POST", "GET", "OPTIONS"):
        told = ask(
            proxy.origin,
            body_of() if method == "POST" else None,
            method=method,
            headers={"origin": origin, "access-control-request-method": "POST"},
        )
        assert (method, told.status) == (method, 403)
        assert "access-control" not in str(told.headers).lower()
    assert provider.received == []


@pytest.mark.rows("X-38")
def test_a_desktop_application_that_asks_first_is_granted_what_it_asks_for(
    proxy: ServedProxy, provider: ScriptedProvider
) -> None:
    asked = {
        "origin": "app://obsidian.md",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,x-stainless-os",
        "access-control-request-private-network": "true",
    }
    told = ask(proxy.origin, method="OPTIONS", headers=asked)

    assert (told.status, told.body, provider.received) == (204, b"", [])
    assert told.header("access-control-allow-origin") == "app://obsidian.md"
    assert told.header("access-control-allow-methods") == "POST"
    assert told.header("access-control-allow-headers") == "authorization,content-type,x-stainless-os"
    assert told.header("access-control-allow-private-network") == "true"


def test_what_a_provider_says_of_origins_is_replaced(proxy: ServedProxy, provider: ScriptedProvider) -> None:
    """Two answers to one question are none."""
    theirs = (("access-control-allow-origin", "https://provider.example"), ("content-type", "application/json"))
    provider.will(ScriptedAnswer(instead=FixedReply(200, b"{}", theirs)))
    told = ask(proxy.origin, body_of(), headers={"origin": "tauri://localhost"})
    assert [v for k, v in told.headers if k.lower() == "access-control-allow-origin"] == ["tauri://localhost"]


@pytest.mark.rows("X-38")
@pytest.mark.parametrize("path", ["/stack", "/stack/conversations", "/metrics", "/stack/totals"])
def test_no_other_origin_reaches_the_management_api(start: Starting, path: str) -> None:
    proxy = start(allowed_origins="https://chat.example")
    for origin in ("app://obsidian.md", "https://chat.example"):
        for method in ("GET", "OPTIONS"):
            told = ask(
                proxy.origin,
                method=method,
                path=path,
                headers={"origin": origin, "access-control-request-method": "GET"},
            )
            assert told.status == 403


@pytest.mark.rows("X-38")
def test_the_operator_can_allow_origins(start: Starting, provider: ScriptedProvider) -> None:
    proxy = start(allowed_origins="https://Chat.example,http://localhost:3000,chrome-extension://*")
    provider.when(lambda _: True, says("fine"), loop=True)

    def status_of(origin: str) -> int:
        return ask(proxy.origin, body_of(), path=CHAT, headers={"origin": origin}).status

    for origin in ("https://chat.example", "http://localhost:3000", "chrome-extension://abcdef", "app://obsidian.md"):
        assert (origin, status_of(origin)) == (origin, 200)
    for origin in ("http://chat.example", "https://chat.example:8443", "http://localhost:3001", "moz-extension://a"):
        assert (origin, status_of(origin)) == (origin, 403)


@pytest.mark.parametrize(
    "origin", ["*", "null", "chat.example", "https://*", "http://a/b", "https://a b", "https://*.a"]
)
def test_what_is_no_origin_is_no_configuration(origin: str) -> None:
    with pytest.raises(ValueError, match="is not an origin"):
        Config(allowed_origins=(origin,))
