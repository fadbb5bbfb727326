"""O3: what never became a request has its one line too, with the id that the client was told."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from llm_test_provider import ScriptedProvider
from tests.wire.proxied import LogCapture, ServedProxy
from tests.wire.stage import Starting
from tests.wire.talking import ask, exchange

HOST = b"Host: 127.0.0.1\r\n"
POST = b"POST /v1/x HTTP/1.1\r\n" + HOST


def only_line(journal: LogCapture) -> dict[str, Any]:
    [line] = journal.wait_for_requests(1)
    return line


def told_id(raw: bytes) -> str:
    """The request's id as the answer tells it."""
    head = raw.partition(b"\r\n\r\n")[0].decode().lower()
    return next(line.partition(": ")[2] for line in head.split("\r\n") if line.startswith("x-stack-request-id"))


REFUSED = {
    "no HTTP": (b"what is this\r\n\r\n", 400, "bad_request"),
    "no path": (b"GET http://evil.example/ HTTP/1.1\r\n" + HOST + b"\r\n", 400, "bad_request"),
    "large headers": (
        b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: %s\r\n" % (n, b"a" * 1000) for n in range(70)) + b"\r\n",
        431,
        "headers_too_large",
    ),
    "a body that does not come": (POST + b"Content-Length: 9\r\n\r\n{", 408, "body_late"),
    "a broken chunk": (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "bad_request"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_o3_what_the_parser_refuses_leaves_one_line(
    start: Starting, provider: ScriptedProvider, journal: LogCapture, name: str
) -> None:
    sent, status, reason = REFUSED[name]
    proxy = start(body_deadline_s=0.2)
    raw = exchange(proxy.port, sent)
    line = only_line(journal)

    assert raw.startswith(b"HTTP/1.1 %d " % status)
    assert json.loads(raw.partition(b"\r\n\r\n")[2])["error"]["code"] == reason
    assert f"x-stack-status: error; reason={reason}".encode() in raw
    assert (line["stack_id"], line["stack_status"], line["stack_reason"]) == (told_id(raw), "error", reason)
    assert (line["stack_client_status"], line["stack_upstream_status"]) == (status, 0)
    assert provider.received == []


def test_o3_half_a_header_is_told_of_and_a_silent_connection_is_not(start: Starting, journal: LogCapture) -> None:
    proxy = start(header_deadline_s=0.2)
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as silent:
        assert exchange(proxy.port, b"GET / HT") == b""
        assert silent.recv(1) == b""
    line = only_line(journal)

    assert (line["stack_reason"], line["stack_client_status"]) == ("headers_late", 0)


def test_o3_what_follows_an_answer_that_is_under_way_makes_no_second_answer(
    start: Starting, journal: LogCapture
) -> None:
    """A body above the limit is answered while it still comes; that the rest is no HTTP changes nothing."""
    proxy = start(body_limit_bytes=2048)
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as peer:
        peer.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n1000\r\n" + b"x" * 0x1000 + b"\r\n")
        raw = peer.recv(1 << 16)
        peer.sendall(b"zz\r\n")
        while more := peer.recv(1 << 16):
            raw += more
    line = only_line(journal)

    assert (raw.count(b"HTTP/1.1"), line["stack_reason"]) == (1, "too_large")


@pytest.mark.parametrize(
    ("method", "path", "status", "reason"),
    [
        ("GET", "/stack/conversations/none", 404, "not_found"),
        ("GET", "/stack/nothing", 404, "not_found"),
        ("PATCH", "/stack/conversations", 405, "method_not_allowed"),
        ("GET", "/stack/totals?by=mood", 400, "bad_request"),
    ],
)
def test_o3_what_the_management_api_refuses_leaves_one_line(
    proxy: ServedProxy, journal: LogCapture, method: str, path: str, status: int, reason: str
) -> None:
    told = ask(proxy.origin, method=method, path=path)
    line = only_line(journal)

    assert (told.status, told.told) == (status, f"error; reason={reason}")
    assert (line["stack_id"], line["stack_reason"]) == (told.request, reason)
    assert line["stack_client_status"] == status


def test_o3_a_probe_of_a_proxy_that_drains_leaves_one_line(start: Starting, journal: LogCapture) -> None:
    proxy = start()
    proxy.app.draining = True
    told = ask(proxy.origin, method="GET", path="/health")
    line = only_line(journal)

    assert (told.status, line["stack_reason"], line["stack_id"]) == (503, "draining", told.request)


def test_what_goes_well_on_the_management_api_is_no_news(proxy: ServedProxy, journal: LogCapture) -> None:
    for path in ("/health", "/metrics", "/stack/conversations", "/"):
        assert ask(proxy.origin, method="GET", path=path).status == 200
    assert journal.requests == []


def test_the_page_that_asks_who_somebody_is_is_no_error(start: Starting, journal: LogCapture) -> None:
    proxy = start(tenancy="key")
    page, api = (ask(proxy.origin, method="GET", path=path) for path in ("/console/", "/stack/conversations"))

    assert (page.status, api.status) == (401, 401)
    assert [line["stack_reason"] for line in journal.requests] == ["unauthorized"]
