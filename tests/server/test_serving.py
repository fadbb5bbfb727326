"""S13 and the start: a port in use, a drain, a forced end."""

from __future__ import annotations

import signal
import socket
from typing import Any

import pytest

from proxy.errors import InvalidConfiguration
from proxy.server.runner import _ResponseCycle, bind
from tests.server.raw import Served, Start, run


def test_a_port_in_use_is_one_clear_line_and_an_honest_exit_code() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = run((f"port={port}",))
        _, told = process.communicate(timeout=10)
    assert process.returncode == 2
    assert told == f"port: {port} on 127.0.0.1 is in use; stop the program that has it, or choose another with --port\n"


EVENTS = b"data: first\n\ndata: last\n\n"


@pytest.mark.parametrize(("method", "body"), [("GET", EVENTS), ("HEAD", b"")])
def test_s14_a_stream_to_http_1_0_is_not_chunked_and_ends_with_its_connection(
    server: Served, method: str, body: bytes
) -> None:
    reply = server.say(f"{method} /short HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
    assert (reply.status, reply.closed) == (200, True)
    assert b"transfer-encoding" not in reply.raw.lower()
    assert reply.raw.endswith(b"\r\n\r\n" + body)


def test_s14_an_answer_with_a_length_to_http_1_0_has_just_that(server: Served) -> None:
    reply = server.say(b"GET /v1/x HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert (reply.closed, reply.body["path"]) == (True, "/v1/x")


def test_the_head_of_an_answer_leaves_before_its_body_is_there(server: Served) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET /silent HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("status", [418, 599, 600, 999])
def test_a_status_that_http_does_not_know_passes(server: Served, status: int) -> None:
    reply = server.say(f"GET /status/{status} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert (reply.status, reply.body["path"]) == (status, f"/status/{status}")


def test_an_answer_without_a_body_may_tell_the_length_of_one(server: Served) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        asked = b"GET /unchanged HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for _ in range(2):
            connection.sendall(asked)
            head = received(connection)
            assert head.startswith(b"HTTP/1.1 304 ")
            assert b'etag: "a"\r\n' in head
            assert b"content-length: 5\r\n" in head
            assert b"chunked" not in head


def test_a_header_that_no_server_may_send_is_left_out_and_the_answer_is_not(server: Served) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(b"GET /odd HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = received(connection)
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"x-even: a\r\n" in head
    assert b"odd" not in head


def received(connection: socket.socket) -> bytes:
    """The head of an answer."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        more = connection.recv(4096)
        assert more, head
        head += more
    return head


async def test_no_byte_of_a_large_answer_is_copied_twice() -> None:
    """Cut off from the front, the rest of 40 MB was copied 600 times: nobody else was served for seconds."""
    copied: list[int] = []
    written: list[bytes] = []

    class Body(bytes):
        def __getitem__(self, key: Any) -> Any:
            part = super().__getitem__(key)
            copied.append(len(part))
            return Body(part)

    class Cycle(_ResponseCycle):
        def __init__(self) -> None:
            """The one step of a connection that is looked at."""

        async def _send_body(self, message: Any) -> None:
            written.append(message["body"])

    body = Body(bytes(range(256)) * 4_000)
    await Cycle().send({"type": "http.response.body", "body": body})
    assert (b"".join(written), sum(copied)) == (body, len(body))


def test_an_address_of_another_machine_is_told() -> None:
    with pytest.raises(InvalidConfiguration, match=r"host: cannot listen on 192\.0\.2\.1:0"):
        bind("192.0.2.1", 0)
    with pytest.raises(InvalidConfiguration, match=r"host: 'no such host' is not an address"):
        bind("no such host", 0)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_port_0_takes_a_free_port_and_says_which(start: Start, host: str) -> None:
    served = start(f"host={host}")
    assert served.port > 0
    with socket.create_connection((host, served.port), timeout=5) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_s13_a_signal_lets_running_streams_finish_and_exits_with_0(start: Start, number: signal.Signals) -> None:
    served = start()
    with served.connect() as streaming, served.connect() as idle:
        streaming.sendall(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        seen = b""
        while b"first" not in seen:
            seen += streaming.recv(65536)

        served.process.send_signal(number)

        while part := streaming.recv(65536):
            seen += part
        assert b"data: last" in seen
        assert seen.endswith(b"0\r\n\r\n")
        assert idle.recv(1) == b""
    assert served.process.wait(timeout=5) == 0
    with pytest.raises(ConnectionRefusedError):
        served.connect()


def test_a_hangup_is_ignored_where_it_was_ignored_before(start: Start) -> None:
    """As under `nohup`: the terminal is closed, and the proxy goes on."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        served = start()
    finally:
        signal.signal(signal.SIGHUP, before)
    served.process.send_signal(signal.SIGHUP)
    with served.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_s13_a_stream_that_does_not_end_is_cut_when_the_time_is_over(start: Start) -> None:
    served = start("drain_s=1")
    with served.connect() as streaming:
        streaming.sendall(b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n")
        seen = b""
        while b"first" not in seen:
            seen += streaming.recv(65536)
        served.process.send_signal(signal.SIGTERM)
        while part := streaming.recv(65536):
            seen += part
        assert not seen.endswith(b"0\r\n\r\n")
    assert served.process.wait(timeout=5) == 0


@pytest.mark.rows("X-54")
def test_a_drain_does_not_wait_for_a_client_that_reads_nothing(start: Start) -> None:
    served = start()
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        deaf.connect(("127.0.0.1", served.port))
        deaf.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        deaf.recv(1, socket.MSG_PEEK)

        served.process.send_signal(signal.SIGTERM)

        assert served.process.wait(timeout=10) == 0  # and not after `drain_s`
