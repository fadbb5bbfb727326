"""The provider's side of the proxy, against servers on real sockets that write and read bytes."""

from __future__ import annotations

import asyncio
import gzip
import logging
import shutil
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pydantic import SecretStr

from proxy.config.model import Config
from proxy.config.sections import ModelSettings, UpstreamSettings
from proxy.errors import InvalidConfiguration, UpstreamClosed, UpstreamError, UpstreamTimeout, UpstreamUnreachable
from proxy.upstream.http import Answer, HttpUpstream, _Connection, end_to_end_headers
from proxy.upstream.routing import DialectNotServed, Routes, UnknownModel, outgoing_headers

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass
class Provider:
    """A server that runs a script per connection and keeps the bytes of every request."""

    port: int = 0
    connections: int = 0
    received: list[bytes] = field(default_factory=list)
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def read_request(self, reader: asyncio.StreamReader) -> bytes:
        """One request, head and body; empty where the connection ends first."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return b""
        lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        request = head + await reader.readexactly(int(lengths[0]) if lengths else 0)
        self.received.append(request)
        return request


@asynccontextmanager
async def provider(
    script: Callable[[Provider], Script], certified: ssl.SSLContext | None = None
) -> AsyncIterator[Provider]:
    scripted = Provider()
    run = script(scripted)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        scripted.connections += 1
        try:
            await run(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=certified)
    scripted.port = server.sockets[0].getsockname()[1]
    try:
        yield scripted
    finally:
        server.close()


def answering(*answers: bytes) -> Callable[[Provider], Script]:
    """Answers request after request on kept connections, the last answer again and again."""

    def script(scripted: Provider) -> Script:
        async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await scripted.read_request(reader):
                writer.write(answers[min(len(scripted.received), len(answers)) - 1])
                await writer.drain()
            scripted.closed.set()

        return run

    return script


async def until(condition: Callable[[], bool]) -> None:
    """Let the event loop turn until `condition` holds."""
    while not condition():  # noqa: ASYNC110 - what is looked at here belongs to others and has no event
        await asyncio.sleep(0)


def at_url(routes: Routes) -> HttpUpstream:
    """The upstream of any model."""
    upstream = routes.choose("any").upstream
    assert isinstance(upstream, HttpUpstream)
    return upstream


@asynccontextmanager
async def upstream_at(url: str, **settings: object) -> AsyncIterator[HttpUpstream]:
    routes = Routes(Config(upstreams={"default": UpstreamSettings.model_validate({"url": url, **settings})}))
    try:
        yield at_url(routes)
    finally:
        await routes.aclose()


async def test_a_request_leaves_as_given_and_nothing_is_added() -> None:
    async with provider(answering(OK)) as there, upstream_at(there.url) as upstream:
        headers = [(b"b-second", b"2"), (b"a-first", "é".encode()), (b"b-second", b"3")]
        answer = await upstream.send("POST", "/v1/chat/completions", b"beta=true&x=%2F", headers, b'{"a": 1}')

        assert (answer.status, await answer.body()) == (200, b"ok")
        assert there.received[0] == (
            b"POST /v1/chat/completions?beta=true&x=%2F HTTP/1.1\r\n"
            + f"Host: 127.0.0.1:{there.port}\r\n".encode()
            + b"b-second: 2\r\na-first: \xc3\xa9\r\nb-second: 3\r\n"
            + b'Content-Length: 8\r\n\r\n{"a": 1}'
        )


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "POST"])
async def test_a_request_without_a_body_has_none(method: str) -> None:
    """S14."""
    async with provider(answering(b"HTTP/1.1 204 No Content\r\n\r\n")) as there, upstream_at(there.url) as upstream:
        answer = await upstream.send(method, "/v1/models", b"", [], b"")
        assert (answer.status, await answer.body()) == (204, b"")
        assert there.received[0].startswith(f"{method} /v1/models HTTP/1.1".encode())
        assert b"content-type" not in there.received[0].lower()


async def test_a_connection_that_answered_without_a_body_answers_the_next_request_with_one() -> None:
    async with provider(answering(OK.removesuffix(b"ok"), OK)) as there, upstream_at(there.url) as upstream:
        for method, body in (("HEAD", b""), ("GET", b"ok")):
            assert await (await upstream.send(method, "/v1/x", b"", [], b"")).body() == body
        assert there.connections == 1


@pytest.mark.parametrize("size", [1, 64 * 1024, 64 * 1024 + 1, 3 * 1024 * 1024])
async def test_a_body_of_any_size_leaves_whole(size: int) -> None:
    body = (bytes(range(256)) * (size // 256 + 1))[:size]
    async with provider(answering(OK)) as there, upstream_at(there.url) as upstream:
        await (await upstream.send("POST", "/v1/x", b"", [], body)).body()
        assert there.received[0].endswith(b"\r\n\r\n" + body)


async def test_a_header_in_no_utf_8_leaves_as_latin_1_says_it() -> None:
    async with provider(answering(OK)) as there, upstream_at(there.url) as upstream:
        await (await upstream.send("GET", "/v1/x", b"", [(b"a", b"\xe9"), (b"b", "é".encode())], b"")).body()
        assert there.received[0].endswith(b"\r\na: \xc3\xa9\r\nb: \xc3\xa9\r\n\r\n")


@pytest.mark.parametrize("header", [(b"a", b"1\r\nb: 2"), (b"a\nb", b"1"), (b"a", b"1\0")])
async def test_a_header_that_would_end_before_its_time_does_not_leave(header: tuple[bytes, bytes]) -> None:
    async with provider(answering(OK)) as there, upstream_at(there.url) as upstream:
        with pytest.raises(ValueError, match="header"):
            await upstream.send("GET", "/v1/x", b"", [header], b"")
        assert not there.received


async def test_s5_a_provider_that_reads_slowly_is_not_silent() -> None:
    """Its silence counts from when it last took something of a request."""
    body = bytes(32 * 1024 * 1024)

    def slowly(scripted: Provider) -> Script:
        async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(0.7)  # the waits are what is tested
            await reader.readexactly(len(body) // 2)
            await asyncio.sleep(0.7)
            await reader.readexactly(len(body) // 2)
            writer.write(OK)

        return run

    async with provider(slowly) as there, upstream_at(there.url, idle_timeout_s=1) as upstream:
        assert await (await upstream.send("POST", "/v1/x", b"", [], body)).body() == b"ok"


async def test_a_connection_on_which_a_request_was_answered_unread_is_not_used_again() -> None:
    full = b"HTTP/1.1 413 X\r\nContent-Length: 0\r\n\r\n"

    def at_once(scripted: Provider) -> Script:
        async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(full)
            await asyncio.sleep(0.1)  # else it is the provider who closes

        return run

    async with provider(at_once) as there, upstream_at(there.url) as upstream:
        for _ in range(2):
            answer = await upstream.send("POST", "/v1/x", b"", [], bytes(64 * 1024 * 1024))
            assert (answer.status, await answer.body()) == (413, b"")
        assert there.connections == 2


@pytest.mark.rows("X-19")
@pytest.mark.parametrize("status", [429, 500, 502, 503, 529])
async def test_s8_an_error_comes_back_with_status_headers_and_bytes(status: int) -> None:
    """X-19."""
    head = f"HTTP/1.1 {status} X\r\nRetry-After: 7\r\nX-RateLimit-Remaining-Tokens: 0\r\nanthropic-x: a\r\n".encode()
    told = head + b"openai-y: b\r\nContent-Length: 4\r\n\r\n{no}"
    async with provider(answering(told)) as there, upstream_at(there.url) as upstream:
        answer = await upstream.send("POST", "/v1/x", b"", [], b"{}")
        assert (answer.status, await answer.body()) == (status, b"{no}")
        assert answer.headers == [
            (b"retry-after", b"7"),
            (b"x-ratelimit-remaining-tokens", b"0"),
            (b"anthropic-x", b"a"),
            (b"openai-y", b"b"),
            (b"content-length", b"4"),
        ]
        assert answer.header(b"retry-after") == b"7"


async def test_of_a_refusal_without_end_only_so_much_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """400 MB of one took as much memory."""
    monkeypatch.setattr("proxy.upstream.http.MAX_REFUSAL_BYTES", 1_000)
    head = b"HTTP/1.1 400 X\r\nContent-Length: 999999999\r\n\r\n"
    async with provider(answering(head + bytes(100_000))) as there, upstream_at(there.url) as upstream:
        answer = await upstream.send("POST", "/v1/x", b"", [], b"{}")
        with pytest.raises(UpstreamClosed, match="without end"):
            await answer.body()
        await answer.aclose()


async def test_s10_a_compressed_answer_is_passed_and_not_decoded() -> None:
    packed = gzip.compress(b'{"a": 1}')
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n".encode()
    async with provider(answering(head + packed)) as there, upstream_at(there.url) as upstream:
        answer = await upstream.send("POST", "/v1/x", b"", [(b"accept-encoding", b"gzip")], b"{}")
        assert await answer.body() == packed
        assert answer.header(b"content-encoding") == b"gzip"


async def test_a10_a_redirect_is_an_answer_and_is_not_followed() -> None:
    async with provider(answering(OK)) as elsewhere:
        moved = f"HTTP/1.1 307 X\r\nLocation: {elsewhere.url}/\r\nContent-Length: 0\r\n\r\n".encode()
        async with provider(answering(moved)) as there, upstream_at(there.url) as upstream:
            assert (await upstream.send("POST", "/v1/x", b"", [(b"authorization", b"k")], b"{}")).status == 307
        assert elsewhere.connections == 0


async def test_a_cookie_of_the_provider_is_not_sent_back() -> None:
    cookie = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b; Path=/\r\nContent-Length: 0\r\n\r\n"
    # By name: a cookie jar would keep nothing for a bare address.
    async with provider(answering(cookie)) as there, upstream_at(f"http://localhost:{there.port}") as upstream:
        for _ in range(2):
            await (await upstream.send("GET", "/v1/x", b"", [], b"")).body()
        assert b"cookie" not in there.received[1].lower()


async def test_connections_are_kept_between_requests() -> None:
    async with provider(answering(OK)) as there, upstream_at(there.url) as upstream:
        for _ in range(5):
            await (await upstream.send("POST", "/v1/x", b"", [], b"{}")).body()
        assert (there.connections, len(there.received)) == (1, 5)


async def test_bytes_arrive_while_the_answer_is_still_being_written() -> None:
    go_on = asyncio.Event()

    def script(scripted: Provider) -> Script:
        async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await scripted.read_request(reader)
            writer.write(STREAM + b"3\r\none\r\n")
            await go_on.wait()
            writer.write(b"3\r\ntwo\r\n0\r\n\r\n")
            await writer.drain()

        return run

    async with provider(script) as there, upstream_at(there.url) as upstream:
        answer = await upstream.send("POST", "/v1/x", b"", [], b"{}")
        arriving = answer.chunks()
        assert await anext(arriving) == b"one"
        go_on.set()
        assert [chunk async for chunk in arriving] == [b"two"]
        assert answer.headers == [(b"content-type", b"text/event-stream")]


def waits_for_the_close(*, before_headers: bool) -> Callable[[Provider], Script]:
    def script(scripted: Provider) -> Script:
        async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await scripted.read_request(reader)
            if not before_headers:
                writer.write(STREAM + b"3\r\none\r\n")
            await reader.read()
            scripted.closed.set()

        return run

    return script


async def test_s3_a_closed_answer_is_seen_upstream_within_100_ms() -> None:
    async with provider(waits_for_the_close(before_headers=False)) as there, upstream_at(there.url) as upstream:
        answer = await upstream.send("POST", "/v1/x", b"", [], b"{}")
        assert await anext(answer.chunks()) == b"one"
        await answer.aclose()
        await asyncio.wait_for(there.closed.wait(), 0.1)


async def test_s3_a_request_cancelled_before_its_answer_is_seen_upstream_within_100_ms() -> None:
    async with provider(waits_for_the_close(before_headers=True)) as there, upstream_at(there.url) as upstream:
        waiting = asyncio.create_task(upstream.send("POST", "/v1/x", b"", [], b"{}"))
        await until(lambda: bool(there.received))
        waiting.cancel()
        await asyncio.wait_for(there.closed.wait(), 0.1)
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_closing_an_answer_read_to_its_end_keeps_the_connection() -> None:
    async with provider(answering(OK)) as there, upstream_at(there.url) as upstream:
        for _ in range(2):
            answer = await upstream.send("POST", "/v1/x", b"", [], b"{}")
            await answer.body()
            await answer.aclose()
        assert there.connections == 1


def dying(*written: bytes, reset: bool = False) -> Callable[[Provider], Script]:
    def script(scripted: Provider) -> Script:
        async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await scripted.read_request(reader)
            for part in written:
                writer.write(part)
            await writer.drain()
            if reset:
                break_off(writer)

        return run

    return script


def break_off(writer: asyncio.StreamWriter) -> None:
    """The connection will end with a reset."""
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


async def gather(answer: Answer, arrived: list[bytes]) -> None:
    async for chunk in answer.chunks():
        arrived.append(chunk)  # noqa: PERF401 - what came before an error counts


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(STREAM + b"5\r\nevent\r\n", id="end between chunks"),
        pytest.param(STREAM + b"5\r\neven", id="truncated chunk"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nevent", id="short of its length"),
    ],
)
@pytest.mark.parametrize("busy", [False, True])
async def test_s4_an_answer_cut_short_is_an_error_after_all_that_arrived(written: bytes, busy: bool) -> None:
    async with provider(dying(written)) as there, upstream_at(there.url) as upstream:
        answer = await upstream.send("POST", "/v1/x", b"", [], b"{}")
        if busy:  # we look only after the connection has died
            await until(lambda: answer._content.exception() is not None)
        arrived: list[bytes] = []
        with pytest.raises(UpstreamClosed):
            await gather(answer, arrived)
        assert b"".join(arrived).startswith(b"even")


async def test_s4_a_reset_in_mid_body_is_an_error() -> None:
    async with provider(dying(STREAM + b"5\r\nevent\r\n", reset=True)) as there, upstream_at(there.url) as upstream:
        with pytest.raises(UpstreamClosed):
            await (await upstream.send("POST", "/v1/x", b"", [], b"{}")).body()


async def test_a_provider_that_hangs_up_without_an_answer_is_not_asked_twice() -> None:
    async with provider(dying()) as there, upstream_at(there.url) as upstream:
        with pytest.raises(UpstreamClosed):
            await upstream.send("POST", "/v1/x", b"", [], b"{}")
        assert len(there.received) == 1


@pytest.mark.parametrize("reset", [False, True])
async def test_a_kept_connection_that_was_just_closed_costs_nothing(*, reset: bool) -> None:
    """The provider answers the first request of a connection and hangs up when the second one comes. Where its end and
    the request cross, and we are busy, that shows as a reset."""

    def script(scripted: Provider) -> Script:
        async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await scripted.read_request(reader)
            writer.write(OK)
            await scripted.read_request(reader)
            if reset:
                break_off(writer)

        return run

    async with provider(script) as there, upstream_at(there.url) as upstream:
        for _ in range(3):
            assert await (await upstream.send("POST", "/v1/x", b"", [], b"{}")).body() == b"ok"


async def test_an_answer_that_nobody_asked_for_is_not_taken_for_that_of_the_next_request() -> None:
    """Some load balancers tell an idle connection 408 and close it, some a while after that."""
    late = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 4\r\n\r\nlate"
    told = asyncio.Event()

    def script(scripted: Provider) -> Script:
        async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while request := await scripted.read_request(reader):
                writer.write(OK[:-2] + request[-2:])
                if len(scripted.received) == 1:
                    await asyncio.sleep(0.02)  # until the connection is idle: what comes with its answer closes it
                    writer.write(late)
                    told.set()

        return run

    async with provider(script) as there, upstream_at(there.url) as upstream:
        assert await (await upstream.send("POST", "/v1/x", b"", [], b"01")).body() == b"01"
        await told.wait()
        await asyncio.sleep(0.02)  # until it is here
        for asked in (b"02", b"03"):
            answer = await upstream.send("POST", "/v1/x", b"", [], asked)
            assert (answer.status, await answer.body()) == (200, asked)
        assert there.connections == 2


async def test_a_kept_connection_that_is_lost_after_a_while_may_have_been_read_and_is_not_asked_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The provider reads the second request of a connection, works on it, and hangs up without a word."""
    # A patch: the server need not work for half a second.
    monkeypatch.setattr("proxy.upstream.http._STALE_CONNECTION_S", 0.05)

    def script(scripted: Provider) -> Script:
        async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await scripted.read_request(reader)
            writer.write(OK)
            await scripted.read_request(reader)
            await asyncio.sleep(0.1)  # the work is what is tested

        return run

    async with provider(script) as there, upstream_at(there.url) as upstream:
        assert await (await upstream.send("POST", "/v1/x", b"", [], b"{1}")).body() == b"ok"
        with pytest.raises(UpstreamClosed):
            await upstream.send("POST", "/v1/x", b"", [], b"{2}")
        assert [request[-3:] for request in there.received] == [b"{1}", b"{2}"]


@pytest.mark.parametrize(("method", "times"), [("GET", 2), ("DELETE", 2), ("POST", 1), ("PATCH", 1)])
async def test_only_what_may_be_said_twice_is_and_no_more_than_twice(method: str, times: int) -> None:
    """The provider reads each request, and hangs up without a word: it may have done what it was asked."""
    async with provider(dying(b"")) as there, upstream_at(there.url) as upstream:
        with pytest.raises(UpstreamClosed, match="answered nothing"):
            await upstream.send(method, "/v1/x", b"", [], b"{}")
        assert len(there.received) == times


async def test_a_provider_that_changes_the_protocol_unasked_gives_no_answer() -> None:
    changed = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nhello"
    async with provider(dying(changed)) as there, upstream_at(there.url) as upstream:
        with pytest.raises(UpstreamClosed, match="not HTTP"):
            await upstream.send("POST", "/v1/x", b"", [], b"{}")
        assert len(there.received) == 1


async def test_an_answer_that_is_not_http_is_an_error() -> None:
    async with provider(dying(b"SSH-2.0-OpenSSH\r\n\r\n")) as there, upstream_at(there.url) as upstream:
        with pytest.raises(UpstreamClosed, match="not HTTP"):
            await upstream.send("POST", "/v1/x", b"", [], b"{}")


async def test_s5_silence_before_the_first_byte_is_a_timeout() -> None:
    silent = waits_for_the_close(before_headers=True)
    async with provider(silent) as there, upstream_at(there.url, idle_timeout_s=0.05) as upstream:
        with pytest.raises(UpstreamTimeout, match=r"sent nothing for 0\.05 s"):
            await upstream.send("POST", "/v1/x", b"", [], b"{}")
        await there.closed.wait()


async def test_no_clock_of_the_library_runs_while_an_answer_is_waited_for() -> None:
    """Of 72 processes that were stopped (SIGSTOP) for longer, it failed 11 whose answers waited in the socket."""
    silent = waits_for_the_close(before_headers=False)
    async with provider(silent) as there, upstream_at(there.url, idle_timeout_s=1) as upstream:
        answer = await upstream.send("POST", "/v1/x", b"", [], b"{}")
        assert answer._connection is not None
        assert answer._connection.protocol is not None
        assert answer._connection.protocol._read_timeout_handle is None
        await answer.aclose()


async def test_a_connection_that_came_while_the_process_stood_still_is_asked_for_again() -> None:
    async with provider(answering(OK)) as there, upstream_at(there.url, connect_timeout_s=0.1) as upstream:
        asking = asyncio.create_task(upstream.send("POST", "/v1/x", b"", [], b"{}"))
        await asyncio.sleep(0)  # it has begun to connect
        asyncio.get_running_loop().call_soon(time.sleep, 1.5)

        assert await (await asking).body() == b"ok"


async def test_s5_silence_in_mid_answer_is_a_timeout() -> None:
    silent = waits_for_the_close(before_headers=False)
    async with provider(silent) as there, upstream_at(there.url, idle_timeout_s=1) as upstream:
        arriving = (await upstream.send("POST", "/v1/x", b"", [], b"{}")).chunks()
        assert await anext(arriving) == b"one"
        with pytest.raises(UpstreamTimeout, match="fell silent"):
            await anext(arriving)
        await there.closed.wait()


async def test_a_provider_that_is_not_there_is_unreachable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        async with upstream_at(f"http://127.0.0.1:{unused.getsockname()[1]}") as upstream:
            with pytest.raises(UpstreamUnreachable, match=r"upstream default cannot be reached: .*refused"):
                await upstream.send("POST", "/v1/x", b"", [], b"{}")


async def test_a_proxy_is_left_through() -> None:
    async with provider(answering(OK)) as proxy, upstream_at("http://provider.invalid/v1", proxy=proxy.url) as upstream:
        assert await (await upstream.send("POST", "/v1/x", b"", [], b"{}")).body() == b"ok"
        assert proxy.received[0].startswith(b"POST http://provider.invalid/v1/x HTTP/1.1\r\nHost: provider.invalid\r\n")


async def test_a_proxy_that_refuses_makes_the_provider_unreachable() -> None:
    refused = b"HTTP/1.1 407 X\r\nContent-Length: 0\r\n\r\n"
    async with provider(answering(refused)) as proxy:
        async with upstream_at("https://provider.invalid", proxy=proxy.url) as upstream:
            with pytest.raises(UpstreamUnreachable, match="407"):
                await upstream.send("POST", "/v1/x", b"", [], b"{}")
        assert proxy.received[0].startswith(b"CONNECT provider.invalid:443")


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for localhost that nobody but its own file vouches for; its key lies beside it."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed here")
    file = tmp_path / "localhost.pem"
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(file.with_suffix(".key")), "-out", str(file)]
    subprocess.run([*command, *names], check=True, capture_output=True)
    return file


@pytest.mark.parametrize(
    ("settings", "trusted"), [({"ca_file": True}, True), ({"verify": False}, True), ({}, False)], ids=str
)
async def test_a_certificate_is_checked_against_the_system_or_the_file_named(
    certificate: Path, settings: dict[str, object], trusted: bool
) -> None:
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(certificate, certificate.with_suffix(".key"))
    if "ca_file" in settings:
        settings = {"ca_file": certificate}
    url = "https://localhost:{}".format
    async with provider(answering(OK), served) as there, upstream_at(url(there.port), **settings) as upstream:
        if trusted:
            assert await (await upstream.send("POST", "/v1/x", b"", [], b"{}")).body() == b"ok"
            return
        with pytest.raises(UpstreamUnreachable, match="certificate"):
            await upstream.send("POST", "/v1/x", b"", [], b"{}")
        assert not there.received


LOSSES = {
    "answered": answering(OK),
    "hung up": dying(),
    "cut": dying(STREAM + b"5\r\neven"),
    "not http": dying(b"HTTP/1.1 sk-canary\r\nsk-canary\r\n\r\n"),
}


@pytest.mark.parametrize("loss", LOSSES)
async def test_a8_neither_key_nor_query_stands_in_a_log_or_an_error(
    loss: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    headers = [(b"authorization", b"Bearer sk-canary"), (b"x-api-key", b"sk-canary")]
    told = ""
    async with provider(LOSSES[loss]) as there, upstream_at(f"{there.url}/sk-canary") as upstream:
        try:
            await (await upstream.send("POST", "/v1/x", b"key=sk-canary", headers, b"sk-canary")).body()
        except UpstreamError as error:
            told = str(error)
    assert bool(told) == (loss != "answered")
    assert "canary" not in told + caplog.text


def test_a_certificate_file_that_is_not_there_refuses_to_start() -> None:
    with pytest.raises(InvalidConfiguration, match=r"upstreams\.a\.ca_file"):
        Routes(Config.model_validate({"upstreams": {"a": {"url": "https://a.example", "ca_file": "/absent.pem"}}}))


async def test_s11_a_slow_reader_holds_back_the_provider() -> None:
    """Not more than 256 KiB of an answer wait in us; the rest waits in the provider."""

    def script(scripted: Provider) -> Script:
        async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await scripted.read_request(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 67108864\r\n\r\n")
            with suppress(ConnectionError):
                for _ in range(64):
                    writer.write(bytes(1024 * 1024))
                    await writer.drain()

        return run

    async with provider(script) as there, upstream_at(there.url) as upstream:
        answer = await upstream.send("GET", "/v1/x", b"", [], b"")
        buffered = answer._content
        await until(lambda: buffered._protocol._reading_paused)
        one_read = 256 * 1024
        assert buffered.total_bytes <= one_read + 4096
        await answer.aclose()


async def test_s11_what_waits_is_handed_on_before_more_is_read() -> None:
    """A client that takes a piece and then nothing: never more than one read of the socket waits in us."""
    whole = 8 * 1024 * 1024
    ok = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % whole
    async with provider(answering(ok + bytes(whole))) as there, upstream_at(there.url) as upstream:
        answer = await upstream.send("GET", "/v1/x", b"", [], b"")
        taken = 0
        async for piece in answer.chunks():
            taken += len(piece)
            for _ in range(3):
                await asyncio.sleep(0)
            assert answer._content.total_bytes - taken <= 256 * 1024
        assert taken == whole


async def test_a_burst_is_handed_on_whole_in_pieces_of_several_chunks() -> None:
    """No piece is so large that a slow client's connection would hold much more than one."""
    said = [b"%06d" % number * 20 for number in range(20_000)]
    chunked = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in said)
    async with provider(answering(STREAM + chunked + b"0\r\n\r\n")) as there, upstream_at(there.url) as upstream:
        answer = await upstream.send("GET", "/v1/x", b"", [], b"")
        await until(lambda: answer._content._protocol._reading_paused)
        pieces = [piece async for piece in answer.chunks()]
    whole = b"".join(said)
    assert b"".join(pieces) == whole
    assert max(map(len, pieces)) <= 16 * 1024 + 120
    assert len(pieces) < len(said) / 10


@pytest.mark.parametrize("ahead", range(120, 140))
async def test_a_burst_of_small_pieces_does_not_keep_the_end_of_an_answer(ahead: int) -> None:
    """Somewhere here lies the number of pieces behind which the library stops for a while."""
    piece, taken = b"1\r\nx\r\n", asyncio.Event()

    def script(scripted: Provider) -> Script:
        async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await scripted.read_request(reader):
                writer.write(STREAM + piece * ahead)
                await taken.wait()
                writer.write(piece + b"0\r\n\r\n")

        return run

    async with provider(script) as there, upstream_at(there.url) as upstream:
        for _ in range(2):
            taken.clear()
            answer, arrived = await upstream.send("GET", "/v1/x", b"", [], b""), 0
            async with asyncio.timeout(5):
                async for chunk in answer.chunks():
                    arrived += len(chunk)
                    if arrived == ahead:
                        taken.set()
            assert arrived == ahead + 1
        assert there.connections == 1


async def test_s5_an_answer_may_take_longer_than_a_silence() -> None:
    def slowly(scripted: Provider) -> Script:
        async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await scripted.read_request(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n")
            for _ in range(6):
                await asyncio.sleep(0.25)
                writer.write(b"x")

        return run

    async with provider(slowly) as there, upstream_at(there.url, idle_timeout_s=1) as upstream:
        assert await (await upstream.send("GET", "/v1/x", b"", [], b"")).body() == b"xxxxxx"


@pytest.mark.parametrize("chunked", [False, True])
async def test_s5_a_client_that_reads_slowly_is_no_silence_of_the_provider(chunked: bool) -> None:
    whole = 1024 * 1024
    ok = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % whole + bytes(whole)
    pieces = STREAM + (b"40\r\n" + bytes(64) + b"\r\n") * (whole // 64) + b"0\r\n\r\n"
    held_back = answering(pieces if chunked else ok)
    async with provider(held_back) as there, upstream_at(there.url, idle_timeout_s=0.5) as upstream:
        arriving = (await upstream.send("GET", "/v1/x", b"", [], b"")).chunks()
        taken = len(await anext(arriving))
        await asyncio.sleep(0.8)  # the wait is what is tested
        assert taken + sum([len(piece) async for piece in arriving]) == whole


@pytest.mark.parametrize(
    ("base", "path", "where"),
    [
        ("https://a.example", "/v1/chat/completions", "https://a.example/v1/chat/completions"),
        ("https://a.example/", "/v1/chat/completions", "https://a.example/v1/chat/completions"),
        ("https://a.example/v1", "/v1/chat/completions", "https://a.example/v1/chat/completions"),
        ("https://a.example/v1/", "/v1/models/a%3Ab", "https://a.example/v1/models/a%3Ab"),
        ("https://a.example/api/v1", "/v1/models", "https://a.example/api/v1/models"),
        ("https://a.example/v1beta/openai", "/v1/models", "https://a.example/v1beta/openai/models"),
        ("https://a.example/api/paas/v4", "/v1/models", "https://a.example/api/paas/v4/models"),
        ("https://a.example/gateway", "/v1/models", "https://a.example/gateway/v1/models"),
        ("https://a.example/v1", "/v1", "https://a.example/v1"),
        ("https://a.example/v1", "/v1x", "https://a.example/v1/v1x"),
    ],
)
def test_a_base_url_is_taken_with_or_without_its_version(base: str, path: str, where: str) -> None:
    routes = Routes(Config(upstreams={"a": UpstreamSettings(url=base)}))
    assert at_url(routes).url(path) == where


def test_a_query_passes_as_written_also_with_bytes_beyond_ascii() -> None:
    upstream = at_url(Routes(Config(upstreams={"a": UpstreamSettings(url="https://a.example")})))
    assert upstream.url("/v1/x", b"a=b&c&%2F=+") == "https://a.example/v1/x?a=b&c&%2F=+"
    assert upstream.url("/v1/x", b"a=\xff&%41") == "https://a.example/v1/x?a=%FF&%41"


SEVERAL = Config(
    upstreams={
        "gpt": UpstreamSettings(url="https://gpt.example", models=("gpt-*",), aliases={"fast": "gpt-5-mini"}),
        "exact": UpstreamSettings(url="https://exact.example", models=("gpt-4.1",)),
        "default": UpstreamSettings(url="https://default.example"),
    },
    models={"pinned": ModelSettings(upstream="exact", alias="gpt-4.1-pinned"), "nick": ModelSettings(alias="fast")},
)


@pytest.mark.parametrize(
    ("model", "upstream", "sent"),
    [
        ("gpt-5", "gpt", "gpt-5"),
        ("gpt-4.1", "exact", "gpt-4.1"),
        ("fast", "gpt", "gpt-5-mini"),
        ("pinned", "exact", "gpt-4.1-pinned"),
        ("nick", "gpt", "gpt-5-mini"),
        ("claude", "default", "claude"),
    ],
)
def test_a_model_finds_its_upstream_by_entry_alias_name_glob_and_default(model: str, upstream: str, sent: str) -> None:
    route = Routes(SEVERAL).choose(model)
    assert (route.upstream.name, route.model) == (upstream, sent)


def test_a_model_that_nobody_serves_is_refused_and_never_guessed() -> None:
    routes = Routes(SEVERAL.model_copy(update={"upstreams": {"gpt": SEVERAL.upstreams["gpt"]}, "models": {}}))
    with pytest.raises(UnknownModel, match=r"'http://169\.254\.169\.254/' is not served .* fast, gpt-\*") as refused:
        routes.choose("http://169.254.169.254/")
    assert (refused.value.status, refused.value.code) == (404, "model_not_found")
    assert routes.choose(None).upstream.name == "gpt"


SPEAKING = Config(
    upstreams={
        "claude": UpstreamSettings(url="https://a.example", speaks=("messages",), models=("claude-*",)),
        "gateway": UpstreamSettings(url="https://b.example", speaks=("chat",), models=("claude-*", "gpt-*")),
        "rest": UpstreamSettings(url="https://c.example", speaks=("chat", "responses"), model_prefix="vendor/"),
    },
    models={"pinned": ModelSettings(upstream="claude")},
)


@pytest.mark.rows("X-20")
@pytest.mark.parametrize(
    ("model", "path", "upstream", "sent"),
    [
        ("claude-x", "/v1/messages", "claude", "claude-x"),
        ("claude-x", "/v1/messages/count_tokens", "claude", "claude-x"),
        ("claude-x", "/v1/chat/completions", "gateway", "claude-x"),
        ("claude-x", "/v1/responses", "rest", "vendor/claude-x"),
        ("vendor/claude-x", "/v1/responses", "rest", "vendor/claude-x"),
        ("claude-x", "/v1/embeddings", "claude", "claude-x"),
        ("pinned", "/v1/messages", "claude", "pinned"),
        (None, "/v1/responses/resp_1/cancel", "rest", ""),
        (None, "/v1/models", "rest", ""),
    ],
)
def test_only_an_upstream_that_speaks_the_dialect_is_asked(
    model: str | None, path: str, upstream: str, sent: str
) -> None:
    """X-20."""
    route = Routes(SPEAKING).choose(model, path)
    assert (route.upstream.name, route.model) == (upstream, sent)


@pytest.mark.parametrize(
    ("model", "path", "told"),
    [
        ("gpt-5", "/v1/messages", "'gpt-5' is served by upstream gateway, .* add messages to upstreams.gateway.speaks"),
        ("pinned", "/v1/chat/completions", "'pinned' is served by upstream claude, which is not asked in chat"),
    ],
)
def test_a_model_asked_in_a_dialect_its_upstream_lacks_is_refused_with_what_to_configure(
    model: str, path: str, told: str
) -> None:
    with pytest.raises(DialectNotServed, match=told) as refused:
        Routes(SPEAKING).choose(model, path)
    assert (refused.value.status, refused.value.code) == (404, "dialect_not_served")


def test_a_request_without_a_model_in_a_dialect_nobody_speaks_is_refused() -> None:
    chat = Config(upstreams={"a": UpstreamSettings(url="https://a.example", speaks=("chat",))})
    with pytest.raises(DialectNotServed, match="No upstream is asked in messages"):
        Routes(chat).choose(None, "/v1/messages")


@pytest.mark.parametrize(
    ("headers", "host"),
    [([], "openai.example"), ([(b"anthropic-version", b"2023-06-01")], "anthropic.example")],
)
def test_a_key_goes_to_the_vendor_whose_version_the_client_names(headers: list[tuple[bytes, bytes]], host: str) -> None:
    """`/v1/models` is a path of both."""
    both = {
        "default": UpstreamSettings(url="https://openai.example/v1", speaks=("chat", "responses")),
        "anthropic": UpstreamSettings(url="https://anthropic.example", speaks=("messages",)),
    }
    route = Routes(Config(upstreams=both)).choose_for_endpoint(None, "/v1/models", headers)

    assert route.upstream.settings.url.startswith(f"https://{host}")


def test_what_a_model_costs_is_looked_up_under_the_name_that_is_sent() -> None:
    assert [SPEAKING.upstream_model_of(name) for name in ("claude-x", "pinned")] == ["claude-x", "pinned"]
    prefixed = Config(upstreams={"default": UpstreamSettings(url="https://a.example", model_prefix="vendor/")})
    assert prefixed.upstream_model_of("m") == Routes(prefixed).choose("m").model == "vendor/m"


def test_without_any_upstream_the_refusal_says_how_to_name_one() -> None:
    for model in ("gpt-5", None):
        with pytest.raises(UnknownModel, match="--upstream URL"):
            Routes(Config()).choose(model)


PLAIN = UpstreamSettings(url="https://a.example")
KEYED = UpstreamSettings(url="https://a.example", key=SecretStr("sk-operator"))


def test_the_clients_headers_pass_less_what_belongs_to_the_connection() -> None:
    client = [
        (b"host", b"127.0.0.1:8787"),
        (b"connection", b"keep-alive, X-Private"),
        (b"x-private", b"1"),
        (b"keep-alive", b"1"),
        (b"te", b"trailers"),
        (b"upgrade", b"h2c"),
        (b"expect", b"100-continue"),
        (b"content-length", b"2"),
        (b"proxy-authorization", b"secret"),
        (b"cookie", b"a=b"),
        (b"x-stack-session", b"s"),
        (b"x-stack-mode", b"off"),
        (b"authorization", b"Bearer sk-client"),
        (b"user-agent", b"agent/1"),
        (b"accept-encoding", b"gzip, br"),
    ]
    assert outgoing_headers(client, PLAIN, readable=False) == client[-3:]
    assert outgoing_headers(client, PLAIN, readable=True) == [*client[-3:-1], (b"accept-encoding", b"identity")]


def test_the_operators_key_replaces_every_credential_of_the_client() -> None:
    client = [(b"authorization", b"Bearer sk-client"), (b"x-api-key", b"sk-client"), (b"a", b"b")]
    assert outgoing_headers(client, KEYED, readable=False) == [(b"a", b"b"), (b"authorization", b"Bearer sk-operator")]
    other = KEYED.model_copy(update={"key_header": "api-key"})
    assert outgoing_headers(client, other, readable=False) == [(b"a", b"b"), (b"api-key", b"sk-operator")]


def test_a_key_for_anthropic_has_a_version_beside_it_the_clients_own_where_it_sent_one() -> None:
    anthropic = KEYED.model_copy(update={"key_header": "x-api-key"})
    key, version = (b"x-api-key", b"sk-operator"), (b"anthropic-version", b"2024-01-01")
    assert outgoing_headers([], anthropic, readable=False) == [key, (b"anthropic-version", b"2023-06-01")]
    assert outgoing_headers([version], anthropic, readable=False) == [version, key]


@pytest.mark.parametrize(
    "header", [(b"authorization", b"Bearer csk_1"), (b"x-api-key", b"csk_1"), (b"x-other", b"csk_1")]
)
def test_a_client_key_of_ours_never_goes_upstream(header: tuple[bytes, bytes]) -> None:
    assert outgoing_headers([header, (b"api-key", b"sk-own")], PLAIN, readable=False) == [(b"api-key", b"sk-own")]


def test_hop_by_hop_headers_of_an_answer_stay_here() -> None:
    answer = [(b"Connection", b"close, X-Hop"), (b"X-Hop", b"1"), (b"Transfer-Encoding", b"chunked"), (b"Date", b"d")]
    assert end_to_end_headers(answer) == [(b"date", b"d")]


def test_t8_a_provider_cannot_speak_for_us() -> None:
    assert end_to_end_headers([(b"X-Stack-Status", b"full"), (b"X-Request-Id", b"r")]) == [(b"x-request-id", b"r")]


async def test_a_long_header_of_an_answer_passes() -> None:
    policy = b"a" * 30_000
    told = b"HTTP/1.1 200 OK\r\nPolicy: " + policy + b"\r\nContent-Length: 0\r\n\r\n"
    async with provider(answering(told)) as there, upstream_at(there.url) as upstream:
        answer = await upstream.send("GET", "/v1/x", b"", [], b"")
        assert answer.header(b"policy") == policy
        await answer.aclose()


class Taking(asyncio.Transport):
    """Takes what is written, and says when it has too much as a test asks for: how long a piece holds the event loop
    shows in no answer."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.pieces.append(bytes(data))

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


@pytest.mark.rows("X-54")
async def test_a_long_request_is_written_in_pieces_and_only_as_far_as_it_is_taken() -> None:
    """One piece of 60 MB would hold everybody up while it is copied."""
    transport, body = Taking(), bytes(range(256)) * 14_000
    connection = _Connection(asyncio.get_running_loop())
    connection.connection_made(transport)
    connection.pause_writing()
    connection.write_request(b"head", body)
    await asyncio.sleep(0)
    before = list(transport.pieces)
    connection.resume_writing()
    for _ in range(8):
        await asyncio.sleep(0)

    assert before == [b"head"]
    assert not connection.is_sending
    assert b"".join(transport.pieces) == b"head" + body
    assert max(map(len, transport.pieces)) == 1 << 20
