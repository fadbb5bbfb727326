"""A machine with several users: without client keys, `/stack` is for the user that runs the proxy."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys

import pytest

from llm_test_provider import FixedReply, ScriptedProvider
from proxy.server.peer_user import Peer, find_user, user_of_peer
from tests.wire.proxied import TOKEN, ServedProxy
from tests.wire.stage import Starting
from tests.wire.talking import ask

NOBODY = 65534
ASKING = """
import sys, http.client
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=30)
headers = {"x-stack-key": sys.argv[4]} if sys.argv[4] else {}
connection.request(sys.argv[2], sys.argv[3], "{}" if sys.argv[2] == "POST" else None, headers)
print(connection.getresponse().status)
"""
as_others = pytest.mark.skipif(
    sys.platform != "linux" or os.getuid() != 0, reason="only root can ask as somebody else, and only Linux tells"
)


def status_for_nobody(proxy: ServedProxy, method: str, path: str, *token: str) -> int:
    python = shutil.which("python3", path="/usr/bin:/bin")  # ours may lie where nobody may look
    if python is None:
        pytest.skip("the system has no Python of its own")
    command = [python, "-I", "-c", ASKING, str(proxy.port), method, path, *(token or ("",))]
    done = subprocess.run(
        command, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, text=True, cwd="/", env={}, check=True
    )
    return int(done.stdout)


@as_others
@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/stack/conversations"), ("POST", "/stack/conversations/c/cancel"), ("GET", "/stack")]
)
def test_another_user_of_the_machine_needs_the_token_to_read_and_to_write(
    proxy: ServedProxy, method: str, path: str
) -> None:
    own = ask(proxy.origin, {} if method == "POST" else None, method=method, path=path).status
    assert own in (200, 404, 400)
    assert status_for_nobody(proxy, method, path) == 401
    assert status_for_nobody(proxy, method, path, "guessed") == 401
    assert status_for_nobody(proxy, method, path, TOKEN) in (own, 400)


@as_others
def test_what_tells_nothing_of_anybody_is_open_to_every_user(start: Starting) -> None:
    proxy = start()
    assert [status_for_nobody(proxy, "GET", path) for path in ("/", "/health", "/metrics")] == [200, 200, 200]
    assert status_for_nobody(start("open", stack_access="all"), "GET", "/stack/conversations") == 200


@as_others
@pytest.mark.rows("X-59")
def test_the_operators_key_is_spent_for_the_own_user_alone(start: Starting, provider: ScriptedProvider) -> None:
    proxy = start(upstreams__default__key="k")
    provider.reply("/v1/models", FixedReply(200, b'{"data": []}'))
    assert ask(proxy.origin, method="GET", path="/v1/models").status == 200
    before = len(provider.received)

    assert status_for_nobody(proxy, "GET", "/v1/models") == 403
    assert status_for_nobody(proxy, "POST", "/v1/chat/completions") == 403
    assert len(provider.received) == before
    assert status_for_nobody(proxy, "GET", "/health") == 200

    shared = start("shared", upstreams__default__key="k", key_access="all")
    keyless = start("keyless")
    assert [status_for_nobody(each, "GET", "/v1/models") for each in (shared, keyless)] == [200, 200]


@pytest.mark.parametrize(("access", "status"), [("all", 200), ("own", 200), ("token", 401)])
def test_the_own_user_needs_the_token_only_where_it_alone_counts(start: Starting, access: str, status: int) -> None:
    proxy = start(stack_access=access)
    told = ask(proxy.origin, method="GET", path="/stack/conversations")
    assert told.status == status
    if status == 401:
        assert "server.json" in told.json["error"]["message"]
    assert "conversations" in proxy.page("/stack/conversations")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["IPv4", "IPv6"])
def test_the_user_of_a_connection_is_found(family: socket.AddressFamily) -> None:
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    with socket.create_server((host, 0), family=family) as server:
        client = socket.create_connection(server.getsockname()[:2])
        accepted, _ = server.accept()
        ends = client.getsockname()[:2], server.getsockname()[:2]
        with accepted:
            assert user_of_peer(*ends) in (os.getuid(), Peer.UNKNOWN)
            client.close()
            assert user_of_peer(*ends) in (Peer.GONE, Peer.UNKNOWN)


CLIENT, SERVER = ("127.0.0.1", 0xA000), ("127.0.0.1", 0x2253)
THEIRS = (
    "  1: 0100007F:A000 0100007F:2253 01 00000000:00000000 00:00000000 00000000  1001        0 77 1 0 20 4 30 10 -1"
)
CLOSED = "  1: 0100007F:A000 0100007F:2253 05 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1"
OURS = "  2: 0100007F:2253 0100007F:A000 01 00000000:00000000 00:00000000 00000000  1000        0 78 1 0 20 4 30 10 -1"
MAPPED = THEIRS.replace("0100007F", "0000000000000000FFFF00000100007F")
OTHER = THEIRS.replace("0100007F:A000", "0200007F:A000").replace("1001", "1002")


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ([OURS, THEIRS], 1001),
        ([OTHER, THEIRS], 1001),
        ([MAPPED, OURS], 1001),
        ([OURS], Peer.GONE),
        ([OURS, CLOSED], Peer.GONE),
        ([OURS, OTHER], Peer.GONE),
        ([], Peer.UNKNOWN),
        (["  sl  local_address rem_address :A000 :2253 x", ":A000 :2253 "], Peer.UNKNOWN),
    ],
)
def test_a_closed_socket_or_one_of_somebody_else_is_not_taken_for_the_peer(table: list[str], found: int | Peer) -> None:
    assert find_user(table, CLIENT, SERVER) == found
