"""A4, T2, T8: who may talk to the proxy, and what of their words is believed."""

from __future__ import annotations

import time

import pytest

from tests.server.raw import Served, Start, read_reply

PATHS = [
    "/",
    "/v1/chat/completions",
    "/v1/models?x=1",
    "/stack/conversations",
    "/health",
    "/metrics",
    "//stack",
    "/nowhere",
]
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]

FOREIGN_HOSTS = [
    "evil.example",
    "evil.example:8787",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "notlocalhost",
    "192.168.1.5",
    "0.0.0.0",
    "169.254.169.254",
    "[2001:db8::1]",
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("path", PATHS)
def test_a4_a_foreign_host_is_refused_on_every_path_and_method(server: Served, path: str, method: str) -> None:
    assert server.ask(method=method, target=path, host="evil.example").status == 403


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_a4_a_host_that_is_not_ours_is_refused(server: Served, host: str) -> None:
    reply = server.ask(host=host)
    assert (reply.status, reply.closed) == (403, True)
    assert "allowed_hosts" in reply.body["error"]["message"]


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:1", "localhost", "LOCALHOST:8787", "[::1]:8787", "127.8.8.8", "proxy.internal:443"]
)
def test_a4_our_own_names_pass_whatever_the_port(server: Served, host: str) -> None:
    assert server.ask(host=host).status == 200


@pytest.mark.parametrize(
    "header",
    [
        "Origin: https://evil.example",
        "Origin: http://localhost.evil.example",
        "Origin: null",
        "Origin: http://127.0.0.1:1",
        "Origin: http://127.0.0.1",
        "Origin: file://",
        "Origin: ",
        "Sec-Fetch-Site: cross-site",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_a4_a_foreign_page_is_refused(server: Served, header: str, method: str) -> None:
    assert server.ask(header, method=method).status == 403


@pytest.mark.parametrize("site", ["same-origin", "same-site", "none"])
def test_a4_our_own_page_and_a_typed_address_pass(server: Served, site: str) -> None:
    assert server.ask(f"Sec-Fetch-Site: {site}").status == 200
    assert server.ask(f"Origin: http://127.0.0.1:{server.port}").status == 200


def test_a4_no_answer_opens_itself_to_other_origins(server: Served) -> None:
    reply = server.ask("Origin: https://evil.example", "Access-Control-Request-Method: POST", method="OPTIONS")
    assert b"access-control" not in reply.raw.lower()


def test_t8_result_headers_from_a_client_are_not_believed(server: Served) -> None:
    told = server.ask(
        "X-Stack-Status: full", "x-stack-conversation: c1", "X-Stack-Session: s1", "X-Stack-Mode: off"
    ).body
    assert [pair for pair in told["headers"] if pair[0].startswith("x-stack")] == [
        ["x-stack-session", "s1"],
        ["x-stack-mode", "off"],
    ]


def test_the_server_does_not_say_what_it_is_made_of(server: Served) -> None:
    assert b"uvicorn" not in server.ask().raw.lower()


HEAD = "POST /v1/x HTTP/1.1\r\nHost: 127.0.0.1\r\n"
LIMIT = 1024 * 1024


def test_a3_a_body_at_the_limit_passes(server: Served) -> None:
    reply = server.say(f"{HEAD}Content-Length: {LIMIT}\r\n\r\n".encode() + bytes(LIMIT))
    assert (reply.status, reply.body["size"]) == (200, LIMIT)


def test_a3_a_body_that_announces_too_much_is_answered_413_and_the_client_reads_it(server: Served) -> None:
    with server.connect() as connection:
        # It is still sending when it is refused; most clients would report a cut connection and never the answer.
        connection.sendall(f"{HEAD}Content-Length: {16 * LIMIT}\r\n\r\n".encode() + bytes(16 * LIMIT))
        reply = read_reply(connection, patience=3)
    assert (reply.statuses, reply.closed) == ([413], True)
    assert reply.body["error"]["code"] == "too_large"
    assert str(LIMIT) in reply.body["error"]["message"]


def test_a3_a_client_that_asks_first_is_answered_413_at_once(start: Start) -> None:
    served = start(f"body_limit_bytes={LIMIT}")
    begin = time.monotonic()
    reply = served.say(f"{HEAD}Expect: 100-continue\r\nContent-Length: {LIMIT + 1}\r\n\r\n".encode())
    assert (reply.statuses, reply.closed) == ([413], True)
    assert time.monotonic() - begin < 1


def test_a3_a_chunked_body_is_counted_while_it_is_read(server: Served) -> None:
    chunk = b"10000\r\n" + bytes(65536) + b"\r\n"
    reply = server.say(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode(), *[chunk] * 20, b"0\r\n\r\n")
    assert (reply.statuses, reply.closed) == ([413], True)
