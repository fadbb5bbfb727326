"""S11: a client that reads slowly holds little of an answer here: the provider is not read further ahead."""

from __future__ import annotations

import array
import fcntl
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from llm_test_provider import ScriptedProvider, says
from tests.wire.proxied import LogCapture, ServedProxy
from tests.wire.stage import Starting
from tests.wire.talking import CHAT, ask, body_of, exchange, raw_request

ENDLESS = 64 << 20
DELTA = b'{"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"%b"}}]}'
EVENT = b"data: " + DELTA % (b"x" * 900) + b"\n\n"
SMALL = 8 * 1024
SIOCOUTQNSD = 0x894B
"""The question to a socket how much of its queue was never sent."""


class Pouring:
    """A provider that streams as fast as it is read, and counts what it could write."""

    def __init__(self) -> None:
        self.written = 0
        self.left = threading.Event()
        """Set when whoever read it went away."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        try:
            while True:
                peer, _ = self._listener.accept()
                threading.Thread(target=self._pour, args=(peer,), daemon=True).start()
        except OSError:
            return

    def _pour(self, peer: socket.socket) -> None:
        with peer:
            peer.recv(65536)
            kind = b"text/event-stream"
            self.left.clear()
            try:
                peer.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n" % (kind, ENDLESS))
                while self.written < ENDLESS:
                    peer.sendall(EVENT)
                    self.written += len(EVENT)
            except OSError:
                self.left.set()

    def until_it_waits(self) -> int:
        """What it has written once it can write no more."""
        last = -1
        while last != self.written or not last:
            last = self.written
            time.sleep(0.5)
        return last

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def pouring() -> Iterator[Pouring]:
    one = Pouring()
    yield one
    one.close()


def slow_client(port: int, request: bytes) -> socket.socket:
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
    peer.connect(("127.0.0.1", port))
    peer.sendall(request)
    return peer


def held_for_clients(proxy: ServedProxy) -> int:
    """Bytes of answers that were written and not sent: in the process, and in the system's queues."""
    held = 0
    for connection in list(proxy._server.server_state.connections):
        transport = connection.transport
        descriptor = transport.get_extra_info("socket").fileno()
        if descriptor < 0:  # it was closed a moment ago
            continue
        queued = array.array("i", [0])
        fcntl.ioctl(descriptor, SIOCOUTQNSD, queued)
        held += transport.get_write_buffer_size() + queued[0]
    return held


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is queued")
@pytest.mark.parametrize("path", [CHAT, "/v1/files/f/content"])
@pytest.mark.parametrize("awake", [True, False], ids=["awake", "asleep"])
def test_s11_a_stream_is_not_read_far_ahead_of_a_slow_client(
    start: Starting, pouring: Pouring, awake: bool, path: str
) -> None:
    proxy = start(upstream=pouring.url)
    body = json.dumps(body_of(awake=awake, stream=True)).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with slow_client(proxy.port, head + body):
        assert pouring.until_it_waits() < ENDLESS
        assert not pouring.left.is_set()
        assert ask(proxy.origin, method="GET", path="/health").status == 200
        assert held_for_clients(proxy) <= 256 * 1024


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("awake", [True, False], ids=["awake", "asleep"])
def test_a_large_answer_that_is_written_bit_by_bit_arrives_whole(
    proxy: ServedProxy, provider: ScriptedProvider, awake: bool, version: str
) -> None:
    text = "0123456789" * 100_000
    provider.will(says(text))
    got = exchange(proxy.port, raw_request(json.dumps(body_of(awake=awake)).encode(), version=version))
    head, _, body = got.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" in head.lower():
        pieces = []
        while size := int((line := body.partition(b"\r\n"))[0], 16):
            pieces.append(line[2][:size])
            body = line[2][size + 2 :]
        body = b"".join(pieces)
    assert json.loads(body)["choices"][0]["message"]["content"] == text


IDLE_S = 0.5


def until_broken_off(peer: socket.socket) -> bool:
    """Read what is left of an answer; whether the connection broke before the answer's end."""
    got = b""
    try:
        while part := peer.recv(1 << 20):
            got = got[-16:] + part
    except ConnectionError:
        return True
    return not got.endswith(b"0\r\n\r\n")


@pytest.mark.rows("X-54")
@pytest.mark.parametrize("path", [CHAT, "/v1/files/f/content"])
@pytest.mark.parametrize("awake", [True, False], ids=["awake", "asleep"])
def test_a_client_that_never_reads_ends_its_request_and_leaves_the_provider(
    start: Starting, pouring: Pouring, journal: LogCapture, awake: bool, path: str
) -> None:
    proxy = start(upstream=pouring.url, upstreams__default__idle_timeout_s=IDLE_S)
    body = json.dumps(body_of(awake=awake, stream=True)).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with slow_client(proxy.port, head + body) as peer:
        assert pouring.left.wait(5)
        [line] = journal.wait_for_requests(1)
        assert until_broken_off(peer)

    assert (line["stack_status"], line["stack_reason"]) == ("error", "client_left")
    assert held_for_clients(proxy) == 0
    if path == CHAT:
        [turn] = proxy.turns(line["stack_conversation"])
        assert (turn["complete"], turn["text"][:3]) == (False, "xxx")


@pytest.mark.rows("X-54")
def test_a_client_that_never_reads_a_plain_answer_ends_its_connection(
    start: Starting, provider: ScriptedProvider, journal: LogCapture
) -> None:
    proxy = start(upstreams__default__idle_timeout_s=IDLE_S)
    provider.will(says("0123456789" * 100_000))
    with slow_client(proxy.port, raw_request(json.dumps(body_of(awake=True)).encode())) as peer:
        [line] = journal.wait_for_requests(1)
        assert until_broken_off(peer)

    assert held_for_clients(proxy) == 0
    [turn] = proxy.turns(line["stack_conversation"])
    assert turn["complete"]


@pytest.mark.rows("X-54")
def test_a_client_that_reads_now_and_then_gets_all_of_its_answer(start: Starting, provider: ScriptedProvider) -> None:
    proxy = start(upstreams__default__idle_timeout_s=IDLE_S)
    text = "0123456789" * 40_000
    provider.will(says(text))
    got = b""
    with slow_client(proxy.port, raw_request(json.dumps(body_of(awake=True)).encode())) as peer:
        for _ in range(8):  # four deadlines long
            time.sleep(IDLE_S / 2)
            got += peer.recv(16 * 1024)
        while part := peer.recv(1 << 20):
            got += part
    assert json.loads(got.partition(b"\r\n\r\n")[2])["choices"][0]["message"]["content"] == text
