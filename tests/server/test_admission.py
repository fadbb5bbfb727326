"""Who may ask, and how much, is known before a body is read: refused by the headers alone, then the connection ends,
and what a thousand connections send that bring no key is not kept."""

from __future__ import annotations

import gzip
import json
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from callstack_proxy.management.issued_keys import issue_key
from llm_test_provider import ScriptedProvider, Usage, says
from proxy.auth import UsageLimits
from tests.ports import held_port, port_of
from tests.wire.proxied import ServedProxy

pytestmark = pytest.mark.rows("X-56")
CHAT = "/v1/chat/completions"
WAIT_S = 20.0
CONNECTIONS = 1_000
MOST_GROWTH_MB = 24


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as running:
        yield running


def head(size: int | None, path: str = CHAT, *headers: str) -> bytes:
    framing = "transfer-encoding: chunked" if size is None else f"content-length: {size}"
    return "\r\n".join([f"POST {path} HTTP/1.1", "host: 127.0.0.1", framing, *headers, "", ""]).encode()


def answered(port: int, sent: bytes) -> tuple[int, bytes, bool]:
    """Status, body, and whether the connection ended after it, of a request that is not sent whole."""
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as connection:
        connection.sendall(sent)
        came = b""
        while b"\r\n\r\n" not in came:
            came += connection.recv(65536) or b"\r\n\r\n"
        top, _, body = came.partition(b"\r\n\r\n")
        connection.settimeout(WAIT_S)
        while more := connection.recv(65536):
            body += more
        return int(top.split()[1]), body, b"connection: close" in top.lower()


def test_without_a_key_the_headers_are_enough(provider: ScriptedProvider, tmp_path: Path) -> None:
    """Every path, with a large body, a small one and one of unknown size. They are asked at once, because the proxy
    waits two seconds for the client to close each connection."""
    paths = (CHAT, "/v1/messages", "/v1/responses", "/stack/config", "/health", "/v1/whatever")
    asked = [(size, path) for size in (60_000_000, 10, None) for path in paths]
    with ServedProxy(provider.url, tmp_path, tenancy="key") as proxy, ThreadPoolExecutor(len(asked)) as clients:
        answers = list(clients.map(lambda each: answered(proxy.port, head(*each)), asked))

    refused = [
        (status, closes) == (401, True) and "csk_" in json.loads(body)["error"]["message"]
        for status, body, closes in answers
    ]
    assert [each for each, is_refused in zip(asked, refused, strict=True) if not is_refused] == []


def test_a_client_that_waits_for_our_word_is_not_told_to_go_on(provider: ScriptedProvider, tmp_path: Path) -> None:
    with ServedProxy(provider.url, tmp_path, tenancy="key") as proxy:
        assert answered(proxy.port, head(60_000_000, CHAT, "expect: 100-continue"))[0] == 401


def test_a_large_body_is_not_read_for_a_spent_budget(provider: ScriptedProvider, tmp_path: Path) -> None:
    with ServedProxy(provider.url, tmp_path, tenancy="key") as proxy:
        key = issue_key(proxy.app.config.keys_path, "ana", limits=UsageLimits(tokens=100))
        credential = f"authorization: Bearer {key}"
        provider.will(says("ok", usage=Usage(100, 1)))
        hello = b'{"model":"m","messages":[{"role":"user","content":"x"}]}'
        assert answered(proxy.port, head(len(hello), CHAT, credential, "connection: close") + hello)[0] == 200
        status, body, closes = answered(proxy.port, head(60_000_000, CHAT, credential))
    assert (status, closes) == (429, True)
    assert json.loads(body)["error"]["code"] == "budget_spent"


def test_all_bodies_together_have_a_limit(provider: ScriptedProvider, tmp_path: Path) -> None:
    """What is being read counts until it is read; then there is room again."""
    limits = {"body_limit_bytes": 1_000_000, "bodies_limit_bytes": 1_000_000}
    with ServedProxy(provider.url, tmp_path, **limits) as proxy, ExitStack() as stack:
        held = stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port)))
        held.sendall(head(900_000) + b"a" * 800_000)
        time.sleep(0.3)
        status, body, closes = answered(proxy.port, head(400_000) + b"a" * 390_000)
        assert (status, closes) == (503, True)
        assert "bodies_limit_bytes" in json.loads(body)["error"]["message"]
        held.close()
        provider.will(says("ok"))
        hello = json.dumps({"model": "m", "messages": [{"role": "user", "content": "a" * 800_000}]}).encode()
        assert answered(proxy.port, head(len(hello), CHAT, "connection: close") + hello)[0] == 200


def test_one_key_takes_at_most_half_of_the_room(provider: ScriptedProvider, tmp_path: Path) -> None:
    """Who sends a byte now and then holds what was sent for as long as it likes."""
    limits = {"tenancy": "key", "body_limit_bytes": 400_000, "bodies_limit_bytes": 1_000_000}
    provider.when(lambda _: True, says("ok"), loop=True)
    with ServedProxy(provider.url, tmp_path, **limits) as proxy, ExitStack() as stack:
        greedy, other = (issue_key(proxy.app.config.keys_path, name) for name in ("greedy", "other"))
        for _ in range(2):
            held = stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port)))
            held.sendall(head(390_000, CHAT, f"x-stack-key: {greedy}") + b"a" * 240_000)
        time.sleep(0.3)
        hello = json.dumps({"model": "m", "messages": [{"role": "user", "content": "a" * 200_000}]}).encode()
        for key, status in ((greedy, 503), (other, 200)):
            asked = head(len(hello), CHAT, "connection: close", f"x-stack-key: {key}") + hello
            assert answered(proxy.port, asked)[0] == status


def test_bodies_that_are_being_answered_have_a_limit_too(provider: ScriptedProvider, tmp_path: Path) -> None:
    """2 KB that unpack to 60 MB, sent a thousand times, would take 60 GB."""
    limits = {"body_limit_bytes": 2_000_000, "bodies_limit_bytes": 1_000_000}
    provider.when(lambda _: True, says("ok", delay_s=1), loop=True)
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "a" * 1_900_000}]}).encode()
    packed = gzip.compress(body)
    asked = head(len(packed), CHAT, "connection: close", "content-encoding: gzip") + packed
    with ServedProxy(provider.url, tmp_path, **limits) as proxy, ThreadPoolExecutor(6) as clients:
        got = list(clients.map(lambda _: answered(proxy.port, asked), range(6)))
        assert sorted(status for status, _, _ in got) == [200] * 4 + [503] * 2
        refused = next(answer for status, answer, _ in got if status == 503)
        assert "bodies_limit_bytes" in json.loads(refused)["error"]["message"]
        assert answered(proxy.port, asked)[0] == 200


SENT = {
    "idle": b"",
    "headers that do not end": b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\nx: " + b"a" * 60_000,
    "bodies": head(60_000_000) + b"a" * 200_000,
    "chunks": head(None, "/v1/messages") + b"100000\r\n" + b"a" * 200_000,
    "management": head(1_000_000, "/stack/config") + b"a" * 200_000,
}


@pytest.mark.long
def test_a_thousand_connections_without_a_key_do_not_make_the_process_grow(
    provider: ScriptedProvider, tmp_path: Path
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4_000), hard))
    place = held_port()
    command = [
        sys.executable,
        "-m",
        "callstack_proxy",
        "serve",
        "--port",
        str(port_of(place)),
        "--data",
        str(tmp_path / "data"),
    ]
    command += ["--upstream", provider.url, "--set", "tenancy=key"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            wait_until_up(port_of(place))
            before, grown = resident_mb(process.pid), {}
            for name, sent in SENT.items():
                grown[name] = most_memory(process.pid, port_of(place), sent) - before
            assert max(grown.values()) <= MOST_GROWTH_MB, grown
        finally:
            process.terminate()
            place.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def most_memory(pid: int, port: int, sent: bytes) -> int:
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=WAIT_S))
            connection.setblocking(False)
            try:
                connection.send(sent)
            except OSError:  # already refused
                continue
        found = [resident_mb(pid)]
        for _ in range(5):
            time.sleep(0.1)
            found.append(resident_mb(pid))
    return max(found)


def resident_mb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) // 1024


def wait_until_up(port: int) -> None:
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
                connection.sendall(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
                if connection.recv(100).startswith(b"HTTP/1.1 200"):
                    return
        except OSError:
            time.sleep(0.2)
    raise AssertionError("the proxy did not start")
