"""A4, A5, A13: who may talk to the whole proxy, on every route there is; and with which configuration it starts at all.

The matrix comes from the description of the API and the endpoints of `/v1`, so a new route is in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from llm_test_provider import ScriptedProvider, says
from tests.forked_commands import environment, run_command
from tests.management.api.pages import pages_in
from tests.wire.proxied import ServedProxy
from tests.wire.stage import Starting
from tests.wire.talking import CHAT, ReceivedAnswer, ask, body_of, exchange

PASSED = [
    ("POST", CHAT),
    ("GET", "/v1/models"),
    ("GET", "/metrics"),
    ("POST", "/v1/embeddings"),
    ("GET", "/v1/unknown"),
    ("GET", "/unknown"),
]
OPEN = [("GET", "/"), ("HEAD", "/"), ("GET", "/health")]
STRANGE = {
    "host": {"host": "evil.example"},
    "rebound host": {"host": "127.0.0.1.evil.example:8787"},
    "metadata host": {"host": "169.254.169.254"},
    "origin": {"origin": "https://evil.example"},
    "null origin": {"origin": "null"},
    "cross-site": {"sec-fetch-site": "cross-site"},
}


def managed(proxy: ServedProxy) -> list[tuple[str, str]]:
    """Every page of the management API, by its own description, with words that are no ids."""
    described = pages_in(proxy.page("/stack/openapi.json")["paths"])
    return [("GET", "/health"), *((page.method, page.path.replace("{", "").replace("}", "")) for page in described)]


def body_for(method: str) -> dict[str, object] | None:
    return body_of(awake=True) if method in ("POST", "PUT", "PATCH") else None


@pytest.mark.parametrize("strange", STRANGE)
def test_a4_a_foreign_page_or_name_reaches_no_route(
    proxy: ServedProxy, provider: ScriptedProvider, strange: str
) -> None:
    for method, path in [*managed(proxy), *PASSED, ("GET", "/")]:
        told = ask(proxy.origin, body_for(method), method=method, path=path, headers=STRANGE[strange])
        assert (method, path, told.status) == (method, path, 403)
        assert "access-control-allow-origin" not in dict(told.headers)
        assert told.json["error"]["code"] == "forbidden"
    assert provider.received == []


@pytest.mark.parametrize("tenancy", ["key"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer sk-somebodys-own"},
        {"authorization": "Bearer csk_guessed"},
        {"x-stack-key": "csk_guessed"},
        {"x-api-key": "csk_"},
        {"x-stack-key": ""},
        {"authorization": "Basic Y3NrOmNzaw=="},
    ],
    ids=str,
)
def test_a5_without_a_key_no_route_answers(
    start: Starting, provider: ScriptedProvider, tenancy: str, headers: dict[str, str]
) -> None:
    proxy = start(tenancy=tenancy)
    closed = [route for route in [*managed(proxy), *PASSED] if route not in OPEN]
    for method, path in closed:
        for spelled in spellings(path):
            told = ask(proxy.origin, body_for(method), method=method, path=spelled, headers=headers)
            assert (method, spelled, told.status in (400, 401)) == (method, spelled, True), told.status
            assert b"conversations" not in told.body or b"error" in told.body
    for method in ("OPTIONS", "HEAD", "TRACE", "PATCH"):
        told = ask(proxy.origin, method=method, path="/stack/conversations", headers=headers)
        assert told.status == (405 if method == "TRACE" else 401)
    assert provider.received == []


def spellings(path: str) -> list[str]:
    """A route as somebody writes it who hopes that the guard reads another path than the router."""
    first, _, rest = path.lstrip("/").partition("/")
    return [
        path,
        f"{path}/",
        f"/{path}",
        f"/{first.upper()}/{rest}",
        f"/x/..{path}",
        f"/{first}%2f{rest}",
        f"/%2e{path}",
        f"{path}?x=/health",
        f"{path};/health",
    ]


def test_a5_what_is_open_tells_nothing_of_anybody(start: Starting, provider: ScriptedProvider) -> None:
    proxy = start(tenancy="key")
    for method, path in OPEN:
        assert ask(proxy.origin, method=method, path=path).status == 200
    health = ask(proxy.origin, method="GET", path="/health").json
    assert set(health) == {"status", "version", "started", "now", "store", "token_counter"}


def test_a5_an_upgrade_to_a_websocket_is_not_served(proxy: ServedProxy, provider: ScriptedProvider) -> None:
    key = b"Sec-WebSocket-Key: eHh4eHh4eHh4eHh4eHh4eA==\r\nSec-WebSocket-Version: 13\r\n"
    wish = b"Connection: upgrade\r\nUpgrade: websocket\r\n" + key
    provider.will(says("hi"))
    for path in (b"/stack/conversations", b"/v1/realtime"):
        got = exchange(
            proxy.port, b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n" + wish + b"Connection: close\r\n\r\n"
        )
        assert not got.startswith(b"HTTP/1.1 101")


# ----------------------------------------------------------------------------------------------------------------- A13
UPSTREAM = ("--upstream", "http://127.0.0.1:9/v1")
REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "no upstream": ((), "upstreams"),
    "bind to all": ((*UPSTREAM, "--host", "0.0.0.0"), "tenancy"),
    "bind to all, v6": ((*UPSTREAM, "--host", "::"), "tenancy"),
    "bind to all by credential": ((*UPSTREAM, "--host", "0.0.0.0", "--set", "tenancy=credential"), "tenancy"),
    "bind to a name": ((*UPSTREAM, "--host", "example.com"), "tenancy"),
    "unknown key": ((*UPSTREAM, "--set", "wake_at_token=5"), "wake_at_tokens"),
    "wrong type": ((*UPSTREAM, "--set", "port=many"), "port"),
    "out of range": ((*UPSTREAM, "--port", "70000"), "port"),
    "wrong mode": ((*UPSTREAM, "--mode", "loud"), "mode"),
    "a tenancy of later": ((*UPSTREAM, "--set", "tenancy=header"), "tenancy"),
    "no url": (("--upstream", "localhost:9"), "upstreams.default.url"),
    "a url with a password": (("--upstream", "http://u:canary@127.0.0.1:9/v1"), "upstreams.default.url"),
    "no equals": ((*UPSTREAM, "--set", "mode"), "mode"),
    "a key that is not in the environment": ((*UPSTREAM, "--set", "upstreams.default.key=env:NOT_THERE"), "NOT_THERE"),
    "no such file": ((*UPSTREAM, "--config", "missing.yaml"), "missing.yaml"),
    "an unknown upstream": ((*UPSTREAM, "--set", "models.m.upstream=other"), "models.m.upstream"),
    "no such certificate": ((*UPSTREAM, "--set", "upstreams.default.ca_file=missing.pem"), "ca_file"),
}


FILES: dict[str, tuple[str, str]] = {
    "an unknown key": ("upstream: http://127.0.0.1:9/v1\nmoed: off\n", "mode"),
    "a list for a number": ("upstream: http://127.0.0.1:9/v1\nport: [1]\n", "port"),
    "a key twice": ("upstream: http://127.0.0.1:9/v1\nport: 1\nport: 2\n", "port"),
    "no mapping": ("- a\n- b\n", "proxy.yaml"),
    "no YAML": ("a: b: c\n", "proxy.yaml"),
    "a tab": ("\tx", "proxy.yaml"),
    "open to all": ("upstream: http://127.0.0.1:9/v1\nhost: 0.0.0.0\n", "tenancy"),
}
VARIABLES = ["STACK_PORT", "STACK_WAKE_AT_TOKEN", "STACK_UPSTREAMS_DEFAULT_URLL"]


@dataclass(frozen=True)
class WrongStart:
    """A `serve` that must not begin: its options, its `proxy.yaml`, its variables, and what the error must name."""

    name: str
    options: tuple[str, ...] = UPSTREAM
    file: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)


WRONG_STARTS = {
    **{fault: WrongStart(name, options) for fault, (options, name) in REFUSED.items()},
    **{f"file: {fault}": WrongStart(name, (), text) for fault, (text, name) in FILES.items()},
    **{name: WrongStart(name, environ={name: "many"}) for name in VARIABLES},
}


@pytest.mark.parametrize("fault", WRONG_STARTS)
def test_a13_a_configuration_that_is_wrong_is_told_with_its_key_and_nothing_starts(tmp_path: Path, fault: str) -> None:
    start = WRONG_STARTS[fault]
    if start.file:
        (tmp_path / "proxy.yaml").write_text(start.file)
    words = ("serve", "--data", str(tmp_path / "data"), *start.options)
    ended = run_command(words, tmp_path, {**environment(tmp_path), **start.environ})

    assert (ended.code, ended.out) == (2, ""), ended
    assert start.name in ended.errors
    assert "Traceback" not in ended.errors
    assert "canary" not in ended.errors
    # What YAML has to say of a place in a file takes a few lines.
    is_long = start.name == "proxy.yaml" or "twice" in fault
    assert len(ended.errors.strip().splitlines()) == 1 or is_long, ended.errors


def test_a13_a_bind_beyond_loopback_with_client_keys_starts(provider: ScriptedProvider, start: Starting) -> None:
    proxy = start(host="0.0.0.0", tenancy="key")
    told: ReceivedAnswer = ask(proxy.origin, body_of())
    assert told.status == 401
