"""An upstream that is the proxy itself is refused at the start, and a request that comes back is not sent again."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from callstack_proxy.config_sources import load_config
from llm_test_provider import ScriptedProvider, says
from proxy.errors import InvalidConfiguration
from proxy.server.runner import bind
from proxy.server.upstream_loop import refuse_own_upstreams
from tests.server.raw import run
from tests.wire.stage import Starting
from tests.wire.talking import ask, body_of


class Front:
    """A server that passes connections on to a port of this machine, as a load balancer does."""

    def __init__(self) -> None:
        self.to = 0
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(RuntimeError):
            self._loop.run_until_complete(self._run())

    async def _run(self) -> None:
        server = await asyncio.start_server(self._pass_on, sock=self._listener)
        async with server:
            self._ended = asyncio.Event()
            await self._ended.wait()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        there, to_there = await asyncio.open_connection("127.0.0.1", self.to)
        with suppress(ConnectionError, asyncio.CancelledError):
            await asyncio.gather(copy(reader, to_there), copy(there, writer))
        to_there.close()
        writer.close()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(5)
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
            with suppress(asyncio.CancelledError):
                self._loop.run_until_complete(task)
        self._loop.close()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.fixture
def front() -> Iterator[Front]:
    one = Front()
    yield one
    one.close()


@pytest.mark.parametrize("awake", [True, False], ids=["awake", "asleep"])
@pytest.mark.parametrize("between", [0, 1], ids=["itself", "another proxy between"])
def test_a_request_that_comes_back_is_refused_and_not_sent_again(
    start: Starting, front: Front, awake: bool, between: int
) -> None:
    proxy = start("first", front.url)
    front.to = (start("second", proxy.origin) if between else proxy).port

    told = ask(proxy.origin, body_of(awake=awake))

    assert (told.status, told.json["error"]["code"]) == (508, "loop_detected")
    assert "upstream leads back" in told.json["error"]["message"]
    assert front.connections <= 2
    assert ask(proxy.origin, method="GET", path="/health").status == 200


def test_proxies_in_a_row_are_no_loop(start: Starting, provider: ScriptedProvider) -> None:
    provider.will(says("fine"))
    last = start("last")
    first = start("first", last.origin)
    told = ask(first.origin, body_of(), headers={"via": "1.1 squid"})
    assert (told.status, told.text) == (200, "fine")
    assert next(value for name, value in provider.received[0].headers if name.lower() == "via") == "1.1 squid"


OWN = ["http://127.0.0.1:{}", "http://localhost:{}/v1", "http://0.0.0.0:{}", "http://127.1:{}", "http://LOCALHOST.:{}"]


@pytest.mark.parametrize("url", OWN)
@pytest.mark.parametrize("kind", ["http", "litellm"])
def test_an_upstream_at_the_own_address_is_refused(url: str, kind: str) -> None:
    listener = bind("127.0.0.1", 0)
    with listener:
        port = listener.getsockname()[1]
        named = {"upstreams.a.url": url.format(port), "upstreams.a.kind": kind, "upstreams.a.models": "m"}
        with pytest.raises(InvalidConfiguration, match=r"upstreams\.a\.url: .* is this proxy itself"):
            refuse_own_upstreams(load_config(named), listener)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.2:{}", "http://127.0.0.1:1", "http://provider.example:{}", "http://[::1]:{}"]
)
def test_any_other_upstream_is_not(url: str) -> None:
    with bind("127.0.0.1", 0) as listener:
        refuse_own_upstreams(load_config({"upstream": url.format(listener.getsockname()[1])}), listener)


def test_a_listener_on_all_addresses_is_reached_by_each() -> None:
    listener = bind("0.0.0.0", 0)
    with listener:
        port = listener.getsockname()[1]
        for host in ("127.0.0.1", "127.0.0.9", "localhost", socket.gethostname()):
            config = load_config({"upstream": f"http://{host}:{port}", "host": "0.0.0.0", "tenancy": "key"})
            with pytest.raises(InvalidConfiguration):
                refuse_own_upstreams(config, listener)
        refuse_own_upstreams(load_config({"upstream": f"http://192.0.2.1:{port}"}), listener)


def test_the_proxy_does_not_start_in_front_of_itself() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    process = run((f"port={port}", f"upstream=http://127.0.0.1:{port}/v1"))
    _, told = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "is this proxy itself" in told
