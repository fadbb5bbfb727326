"""A proxy that runs proves itself before anything secret is sent to it."""

from __future__ import annotations

import http.client
import http.server
import json
import os
import resource
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from callstack_proxy.cli import context
from callstack_proxy.cli.context import (
    SERVER_FILE,
    ServerInfo,
    fetch_page,
    find_running_proxy,
    hold_presence,
    holds_presence,
    read_server_file,
    send_request,
    write_server_file,
)
from callstack_proxy.cli.statusline import ask_proxy
from callstack_proxy.cli.statusline.ask_proxy import NotProven, ask
from callstack_proxy.cli.statusline.hook import hook_words
from callstack_proxy.cli.wrap.shared_proxy import not_started_words
from llm_test_provider import ScriptedProvider
from proxy.errors import ProxyError
from proxy.operator_token import proof_of
from tests.wire.proxied import TOKEN, ServedProxy

pytestmark = pytest.mark.rows("X-59")


class Squatter:
    """Any program of any user on a port. `relay` is where it sends challenges on."""

    def __init__(self, relay: str = "", host: str = "127.0.0.1", port: int = 0) -> None:
        self.got: list[dict[str, str]] = []
        self.recorded = "0" * 64
        """What it answers to every challenge where it asks nobody."""
        squatter = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                squatter.got.append({name.lower(): value for name, value in self.headers.items()})
                proof = squatter.proof_from(self.path, relay) if relay else squatter.recorded
                body = b'{"requests": []}'
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.send_header("x-stack-proof", proof)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self._server = http.server.ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self.url = f"http://{host}:{self._server.server_address[1]}"

    def proof_from(self, path: str, relay: str) -> str:
        host, port = relay.removeprefix("http://").split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=10)
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.getheader("x-stack-proof", "")

    @contextmanager
    def listening(self) -> Iterator[Squatter]:
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


@pytest.fixture
def squatter() -> Iterator[Squatter]:
    with Squatter().listening() as running:
        yield running


@pytest.fixture
def real(tmp_path: Path) -> Iterator[ServedProxy]:
    with ScriptedProvider() as provider, ServedProxy(provider.url, tmp_path / "real") as running:
        yield running


def info(url: str) -> ServerInfo:
    return ServerInfo(url, TOKEN, os.getpid())


def test_a_proxy_proves_itself_and_is_asked(real: ServedProxy) -> None:
    status, answer = send_request(info(real.origin), "GET", "/stack/requests?limit=1", None, 10)
    assert (status, json.loads(answer)["requests"]) == (200, [])


def test_no_token_goes_to_another_program(squatter: Squatter) -> None:
    with pytest.raises(NotProven):
        send_request(info(squatter.url), "GET", "/stack/requests", None, 10)
    assert [TOKEN in json.dumps(headers) for headers in squatter.got] == [False]


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can give a file away")
def test_the_note_of_another_user_names_no_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever made the data directory first could name a program that knows its own token."""
    ours = info("http://127.0.0.1:1")
    write_server_file(tmp_path, ours)
    os.chown(tmp_path / SERVER_FILE, 65534, 65534)
    assert read_server_file(tmp_path) == ours, "the superuser looks after others' proxies"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)  # a patch: this process would not get its rights back

    assert read_server_file(tmp_path) is None
    os.chown(tmp_path / SERVER_FILE, 0, 0)
    assert read_server_file(tmp_path) == ours


def test_a_proof_that_was_recorded_at_the_same_address_is_none(squatter: Squatter) -> None:
    """Of a proxy that ran there until it was killed: each command asks with a challenge of its own."""
    port = int(squatter.url.rpartition(":")[2])
    squatter.recorded = proof_of(TOKEN, "an earlier challenge", "127.0.0.1", port)

    for _ in range(2):
        with pytest.raises(NotProven):
            send_request(info(squatter.url), "GET", "/stack/requests?limit=1", None, 10)
    assert not [got for got in squatter.got if TOKEN in got.values()]


def test_a_proof_from_another_port_is_none(real: ServedProxy) -> None:
    with Squatter(real.origin).listening() as relaying, pytest.raises(NotProven):
        send_request(info(relaying.url), "GET", "/stack/requests", None, 10)
    assert TOKEN not in json.dumps(relaying.got)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere loopback has one address")
def test_a_proof_from_another_address_of_the_same_port_is_none(real: ServedProxy) -> None:
    with Squatter(real.origin, "127.0.0.2", real.port).listening() as relaying, pytest.raises(NotProven):
        send_request(info(relaying.url), "GET", "/stack/requests", None, 10)
    assert TOKEN not in json.dumps(relaying.got)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_proxy_on_all_addresses_proves_itself_at_each(tmp_path: Path, host: str) -> None:
    with ScriptedProvider() as provider:
        settings = {"tenancy": "key", "host": host}
        with ServedProxy(provider.url, tmp_path / "real", **settings) as real:
            for asked in ("127.0.0.1", "[::1]", "[::]") if host == "::" else ("127.0.0.1", "0.0.0.0"):
                status, _ = send_request(info(f"http://{asked}:{real.port}"), "GET", "/health", None, 10)
                assert status == 200, asked


def test_a_proxy_with_another_token_is_not_the_one_of_the_note(real: ServedProxy) -> None:
    with pytest.raises(NotProven):
        send_request(replace(info(real.origin), token="an older one"), "GET", "/stack/requests", None, 10)


def test_an_agent_that_asks_another_program_is_told_so_when_it_starts(
    squatter: Squatter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_server_file(tmp_path, info(squatter.url))
    started: dict[str, object] = {"hook_event_name": "SessionStart", "source": "startup"}
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    assert hook_words(started, str(tmp_path)).startswith("no proxy runs here")

    monkeypatch.setenv("ANTHROPIC_BASE_URL", squatter.url)
    words = hook_words(started, str(tmp_path))

    assert words.startswith(f"what answers at {squatter.url.removeprefix('http://')}, where this agent sends its key")
    assert TOKEN not in json.dumps(squatter.got)


def test_without_the_lock_nobody_runs_whatever_the_note_says(squatter: Squatter, tmp_path: Path) -> None:
    presence = hold_presence(tmp_path)
    assert presence is not None
    os.close(presence)
    write_server_file(tmp_path, info(squatter.url))

    assert holds_presence(tmp_path) is False
    assert find_running_proxy(tmp_path) is None
    assert not squatter.got


def test_with_the_lock_a_program_that_proves_nothing_stops_the_command(squatter: Squatter, tmp_path: Path) -> None:
    presence = hold_presence(tmp_path)
    assert presence is not None
    write_server_file(tmp_path, info(squatter.url))

    assert holds_presence(tmp_path) is True
    with pytest.raises(ProxyError, match="did not prove that it is that proxy, so nothing was sent there; stop"):
        find_running_proxy(tmp_path)
    os.close(presence)


def test_where_no_lock_tells_a_program_that_proves_nothing_is_none(squatter: Squatter, tmp_path: Path) -> None:
    write_server_file(tmp_path, info(squatter.url))
    assert holds_presence(tmp_path) is None
    assert find_running_proxy(tmp_path) is None
    assert TOKEN not in json.dumps(squatter.got)


def test_of_a_proxy_that_is_slow_nobody_is_told_to_start_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "PAGE_TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        slow = ServerInfo(f"http://127.0.0.1:{silent.getsockname()[1]}", TOKEN, os.getpid())
        with pytest.raises(ProxyError, match="is busy: no answer within 0 s"):
            fetch_page(slow, "/stack/requests")


def test_a_note_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # no file of this process may grow, as on a full disk
    try:
        with pytest.raises(OSError, match="large"):
            write_server_file(tmp_path, info("http://127.0.0.1:1"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_a_proxy_that_could_not_write_its_log_has_a_full_disk(tmp_path: Path) -> None:
    log = tmp_path / "wrap.log"
    assert not_started_words(log, "", 0).startswith(f"the disk of {tmp_path} is full: free some of it")
    assert not_started_words(log, "a fault", 1 << 30) == f"its log {log} ends:\na fault"
    assert not_started_words(log, "", 1 << 30) == f"it wrote nothing to its log {log}"


OK = b"HTTP/1.1 200 OK\r\n"
MANNERS: dict[str, tuple[bytes, bytes]] = {
    "a header without end": (OK + b"x-slow: ", b"a"),
    "a body without end": (OK + b"content-length: 100000\r\nx-stack-proof: 0\r\n\r\n", b"a"),
    "a flood": (OK + b"x-stack-proof: 0\r\n\r\n", b"a" * 65536),
    "continue, for ever": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a length beyond all memory": (OK + b"content-length: 9999999999999999\r\n\r\n", b""),
    "a length below zero": (OK + b"content-length: -5\r\n\r\n{}", b""),
    "another host": (b"HTTP/1.1 307 T\r\nlocation: http://127.0.0.1:1/health\r\ncontent-length: 0\r\n\r\n", b""),
    "no status": (b"HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}", b""),
    "no HTTP": (b"\x00\xff\r\n\r\n", b""),
}
"""What a squatter writes first, and then every 20 ms; nothing more: it closes."""


@contextmanager
def misbehaving(first: bytes, then: bytes) -> Iterator[tuple[str, bytearray]]:
    """The address, and all bytes that came there."""
    got, ended = bytearray(), threading.Event()

    def answer(client: socket.socket) -> None:
        with client, suppress(OSError):
            got.extend(client.recv(65536))
            client.sendall(first)
            while then and not ended.wait(0.02):
                client.sendall(then)

    def listen() -> None:
        with suppress(OSError):
            while not ended.is_set():
                threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=listen, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}", got
        finally:
            ended.set()


@pytest.mark.parametrize("manner", MANNERS)
def test_whatever_a_squatter_answers_the_question_ends_without_the_token(
    manner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ask_proxy, "TIMEOUT_S", 0.3)  # the same wait, shorter: nine manners would take half a minute
    with misbehaving(*MANNERS[manner]) as (url, got):
        began = time.monotonic()
        with pytest.raises((NotProven, TimeoutError, ConnectionError)):
            send_request(info(url), "GET", "/stack/requests", None, 0.3)
        with pytest.raises((NotProven, TimeoutError, ConnectionError)):
            ask({"url": url, "token": TOKEN}, "session")
        assert time.monotonic() - began < 5
    assert TOKEN.encode() not in got
