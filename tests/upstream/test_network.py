"""Providers behind a forward proxy and a private certificate authority, as in the networks of companies."""

from __future__ import annotations

import asyncio
import base64
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from callstack_proxy.config_sources import load_config
from proxy.config.model import Config
from proxy.config.sections import NetworkSettings
from proxy.errors import UpstreamUnreachable
from proxy.upstream.http import HttpUpstream
from proxy.upstream.network import is_excepted, proxy_for
from proxy.upstream.routing import Routes

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
PROVIDER = "provider.corp.example"


@dataclass
class Listening:
    """A server on loopback, and the heads of the requests that it got."""

    port: int
    heads: list[bytes] = field(default_factory=list)


@asynccontextmanager
async def listening(
    serve: Callable[[Listening, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    certified: ssl.SSLContext | None = None,
) -> AsyncIterator[Listening]:
    """A server on loopback. At the end every connection has ended."""
    open_connections: set[asyncio.Task[None]] = set()

    async def serve_until_lost(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (task := asyncio.current_task()) is not None:
            open_connections.add(task)
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            await serve(there, reader, writer)
        writer.close()

    server = await asyncio.start_server(serve_until_lost, "127.0.0.1", 0, ssl=certified)
    there = Listening(server.sockets[0].getsockname()[1])
    try:
        yield there
    finally:
        server.close()
        for task in open_connections:
            task.cancel()
        await asyncio.gather(*open_connections)


def provider(certified: ssl.SSLContext | None = None) -> AbstractAsyncContextManager[Listening]:
    async def serve(there: Listening, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            there.heads.append(await reader.readuntil(b"\r\n\r\n"))
            await reader.readexactly(2)
            writer.write(OK)
            await writer.drain()

    return listening(serve, certified)


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


def forward_proxy(to: Listening) -> AbstractAsyncContextManager[Listening]:
    """Takes every name for that of `to`, as a proxy that alone can look up names. Tunnels, and passes plain HTTP on."""

    async def serve(here: Listening, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        here.heads.append(head := await reader.readuntil(b"\r\n\r\n"))
        there = await asyncio.open_connection("127.0.0.1", to.port)
        if head.startswith(b"CONNECT "):
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            there[1].write(head)
        await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))

    return listening(serve)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private authority's certificate; beside it `server.pem` for the provider, signed by it, and `server.key`."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed here")
    folder = tmp_path_factory.mktemp("authority")

    def run(*arguments: str) -> None:
        subprocess.run([openssl, *arguments], cwd=folder, check=True, capture_output=True)

    (folder / "names.txt").write_text(f"subjectAltName=DNS:{PROVIDER},DNS:localhost,IP:127.0.0.1\n")
    new = ["-newkey", "rsa:2048", "-nodes"]
    run("req", "-x509", *new, "-days", "2", "-subj", "/CN=Corp CA", "-keyout", "ca.key", "-out", "ca.pem")
    run("req", *new, "-subj", f"/CN={PROVIDER}", "-keyout", "server.key", "-out", "server.csr")
    signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names.txt"]
    run("x509", "-req", "-in", "server.csr", *signing, "-out", "server.pem")
    return folder / "ca.pem"


@pytest.fixture
def certified(authority: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.parent / "server.pem", authority.parent / "server.key")
    return context


@asynccontextmanager
async def upstream_at(url: str, environ: dict[str, str], **settings: object) -> AsyncIterator[HttpUpstream]:
    flags = {"upstream": url} | {f"upstreams.default.{key}": value for key, value in settings.items()}
    routes = Routes(load_config(flags, environ))
    upstream = routes.choose("any").upstream
    assert isinstance(upstream, HttpUpstream)
    try:
        yield upstream
    finally:
        await routes.aclose()


async def ask(upstream: HttpUpstream) -> bytes:
    return await (await upstream.send("POST", "/v1/x", b"", [(b"a", b"b")], b"{}")).body()


@pytest.mark.rows("X-43")
@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
async def test_a_provider_is_reached_through_the_proxy_of_the_environment(
    authority: Path, certified: ssl.SSLContext, variable: str
) -> None:
    async with provider(certified) as there, forward_proxy(there) as proxy:
        environ = {variable: f"http://127.0.0.1:{proxy.port}", "NODE_EXTRA_CA_CERTS": str(authority)}
        async with upstream_at(f"https://{PROVIDER}/v1", environ) as upstream:
            assert [await ask(upstream), await ask(upstream)] == [b"ok", b"ok"]
    assert [head.split(b"\r\n")[0] for head in proxy.heads] == [f"CONNECT {PROVIDER}:443 HTTP/1.1".encode()]
    assert [head.split(b"\r\n")[0] for head in there.heads] == [b"POST /v1/x HTTP/1.1"] * 2


@pytest.mark.rows("X-43")
@pytest.mark.parametrize("plain", [True, False], ids=["http", "https"])
async def test_a_name_and_password_are_for_the_proxy_alone(
    authority: Path, certified: ssl.SSLContext, plain: bool
) -> None:
    wanted = b"Proxy-Authorization: Basic " + base64.b64encode(b"user:p@ss")
    async with provider(None if plain else certified) as there, forward_proxy(there) as proxy:
        variable, scheme = ("HTTP_PROXY", "http") if plain else ("HTTPS_PROXY", "https")
        environ = {variable: f"user:p%40ss@127.0.0.1:{proxy.port}", "SSL_CERT_FILE": str(authority)}
        async with upstream_at(f"{scheme}://{PROVIDER}/v1", environ) as upstream:
            assert [await ask(upstream), await ask(upstream)] == [b"ok", b"ok"]
    assert len(proxy.heads) == 1
    assert wanted in proxy.heads[0]
    assert plain or wanted not in there.heads[0]


@pytest.mark.rows("X-43")
@pytest.mark.parametrize("excepted", ["localhost", "*", "127.0.0.1,localhost", ".localhost", "LOCALHOST:{port}"])
async def test_what_is_excepted_is_reached_directly(authority: Path, certified: ssl.SSLContext, excepted: str) -> None:
    async with provider(certified) as there, forward_proxy(there) as proxy:
        environ = {
            "HTTPS_PROXY": f"http://127.0.0.1:{proxy.port}",
            "NO_PROXY": excepted.format(port=there.port),
            "NODE_EXTRA_CA_CERTS": str(authority),
        }
        async with upstream_at(f"https://localhost:{there.port}", environ) as upstream:
            assert await ask(upstream) == b"ok"
        assert proxy.heads == []
        del environ["NO_PROXY"]
        async with upstream_at(f"https://localhost:{there.port}", environ) as upstream:
            assert await ask(upstream) == b"ok"
        assert len(proxy.heads) == 1


@pytest.mark.rows("X-43")
async def test_a_private_authority_is_trusted_beside_the_others_and_only_where_named(
    authority: Path, certified: ssl.SSLContext
) -> None:
    async with provider(certified) as there:
        url = f"https://localhost:{there.port}"
        for environ in ({}, {"NODE_EXTRA_CA_CERTS": "/absent.pem"}, {"SSL_CERT_FILE": __file__}):
            async with upstream_at(url, environ) as upstream:
                with pytest.raises(UpstreamUnreachable, match="NODE_EXTRA_CA_CERTS"):
                    await ask(upstream)
        for name in ("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"):
            async with upstream_at(url, {name: str(authority)}) as upstream:
                assert await ask(upstream) == b"ok"
                context = upstream._ssl
                assert isinstance(context, ssl.SSLContext)
                assert len(context.get_ca_certs()) >= 1


async def test_a_proxy_that_is_not_there_is_told_as_such() -> None:
    async with upstream_at("https://provider.invalid", {"HTTPS_PROXY": "http://127.0.0.1:9"}) as upstream:
        with pytest.raises(UpstreamUnreachable, match="the HTTP proxy to it cannot be reached: Connection refused"):
            await ask(upstream)


NETWORK = NetworkSettings.model_validate(
    {"https_proxy": "http://proxy.corp.example:3128", "http_proxy": "http://127.0.0.1:3128"}
)


@pytest.mark.parametrize(
    ("upstream", "own", "port"),
    [
        ("https://api.example", None, 3128),
        ("https://api.example", "http://other.example:1", 1),
        ("https://api.example", "", None),
        ("https://localhost:8443", None, None),
        ("https://127.0.0.1", None, None),
        ("http://127.0.0.1:11434", None, 3128),
        ("http://api.example", None, 3128),
    ],
)
def test_an_upstream_may_have_a_proxy_of_its_own_or_none(upstream: str, own: str | None, port: int | None) -> None:
    """A proxy elsewhere cannot reach this machine, so what runs here is reached directly."""
    proxy = proxy_for(upstream, own, NETWORK)
    assert (proxy.url.port if proxy else None) == port


def test_a_proxy_that_is_none_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    for text in ("socks5://user:canary@127.0.0.1:1080", "http://", "http://[", "http://a:b:canary"):
        assert proxy_for("https://api.example", None, NetworkSettings.model_validate({"https_proxy": text})) is None
    assert "passed over" in caplog.text
    assert "canary" not in caplog.text


@pytest.mark.parametrize(
    ("host", "exception", "excepted"),
    [
        ("api.corp.example", "corp.example", True),
        ("api.corp.example", ".corp.example", True),
        ("api.corp.example", "*.corp.example", True),
        ("corp.example", "corp.example", True),
        ("corp.example", ".corp.example", True),
        ("evilcorp.example", "corp.example", False),
        ("corp.example.evil", "corp.example", False),
        ("API.Corp.Example", "corp.EXAMPLE", True),
        ("api.example.", "api.example", True),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("api.example", "10.0.0.0/8", False),
        ("api.example", "api.example:443", True),
        ("api.example", "api.example:8443", False),
        ("::1", "::1", True),
        ("[::1]", "[::1]:443", True),
        ("fd00::1", "fd00::/8", True),
        ("api.example", "*", True),
        ("api.example", "", False),
        ("api.example", "not/a/network", False),
    ],
)
def test_exceptions_are_read_as_other_programs_read_them(host: str, exception: str, excepted: bool) -> None:
    assert is_excepted(host, 443, (" other.example", exception)) is excepted


def test_variables_of_the_network_win_over_the_file_and_lose_to_ours(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("network:\n  https_proxy: http://file:1\n  http_proxy: http://file:2\n  ca_files: []\n")
    environ = {"HTTPS_PROXY": "http://variable:1", "NO_PROXY": "a, b c", "NODE_EXTRA_CA_CERTS": "/a.pem"}
    environ |= {"STACK_NETWORK_NO_PROXY": "d"}
    shown: Callable[[Config], list[str]] = lambda config: [  # noqa: E731 - read at one place
        named.get_secret_value() if named else "" for named in (config.network.https_proxy, config.network.http_proxy)
    ]

    config = load_config({}, environ, file)

    assert shown(config) == ["http://variable:1", "http://file:2"]
    assert (config.network.no_proxy, config.network.ca_files) == (("d",), (Path("/a.pem"),))


def test_the_password_of_a_proxy_is_not_shown() -> None:
    config = load_config({}, {"HTTPS_PROXY": "http://user:canary@proxy.example:3128"})
    assert "canary" not in repr(config) + config.model_dump_json() + str(config)
