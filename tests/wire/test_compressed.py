"""Compressed bodies of clients: read like plain ones, sent upstream plain, bounded, and never a reason to fail."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable

import brotli
import pytest

from llm_test_provider import ScriptedProvider, says
from proxy.upstream import READABLE_CODINGS
from tests.wire.proxied import LogCapture, ServedProxy
from tests.wire.stage import Starting
from tests.wire.talking import CHAT, ask, body_of, exchange

READS_ZSTD = "zstd" in READABLE_CODINGS


def bare_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def stored_zstd(data: bytes) -> bytes:
    """A frame of one block that is stored as it is, which needs no library."""
    block = (len(data) << 3 | 1).to_bytes(3, "little") + data
    return bytes.fromhex("28b52ffda0") + len(data).to_bytes(4, "little") + block


PACKED: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "gzip in capitals": (" GZip ", gzip.compress),
    "the old name of gzip": ("x-gzip", gzip.compress),
    "gzip in two members": ("gzip", lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:])),
    "deflate": ("deflate", zlib.compress),
    "deflate without its header": ("deflate", bare_deflate),
    "br": ("br", brotli.compress),
    "twice": ("deflate, gzip", lambda data: gzip.compress(zlib.compress(data))),
    "identity and gzip": ("identity,gzip", gzip.compress),
    "identity": ("identity", bytes),
}


@pytest.mark.rows("X-35")
@pytest.mark.parametrize("awake", [True, False], ids=["awake", "asleep"])
@pytest.mark.parametrize("form", PACKED)
def test_a_compressed_body_is_read_and_leaves_plain(
    proxy: ServedProxy, provider: ScriptedProvider, form: str, awake: bool
) -> None:
    coding, pack = PACKED[form]
    provider.will(says("fine"))
    body = json.dumps(body_of(f"{form} {awake}", awake=awake)).encode()

    told = ask(proxy.origin, pack(body), headers={"content-encoding": coding})

    assert (told.status, told.told, told.text) == (200, "full" if awake else "asleep", "fine")
    (received,) = provider.received
    assert received.messages[-1]["content"] == f"{form} {awake}"
    assert awake or received.raw == body
    assert received.header("content-encoding") in (None, "identity")


@pytest.mark.rows("X-35")
def test_a_compressed_body_may_come_in_chunks(proxy: ServedProxy, provider: ScriptedProvider) -> None:
    provider.will(says("fine"))
    packed = gzip.compress(json.dumps(body_of("in chunks", awake=True)).encode())
    head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Encoding: gzip\r\n"
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in packed)

    got = exchange(proxy.port, f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunks + b"0\r\n\r\n")

    assert b"x-stack-status: full" in got
    assert provider.received[0].messages[-1]["content"] == "in chunks"


@pytest.mark.rows("X-35")
@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, bare_deflate], ids=["gzip", "zlib", "deflate"])
@pytest.mark.parametrize("layers", [1, 2])
def test_a_body_that_unpacks_to_more_than_the_limit_is_refused(
    start: Starting, provider: ScriptedProvider, pack: Callable[[bytes], bytes], layers: int
) -> None:
    proxy = start(body_limit_bytes=100_000)
    coding = ", ".join(["gzip" if pack is gzip.compress else "deflate"] * layers)
    for size, status in ((100_000, 200), (100_001, 413), (50_000_000, 413)):
        body = json.dumps(body_of("")).encode().ljust(size)
        for _ in range(layers):
            body = pack(body)
        provider.will(says("fine"))
        told = ask(proxy.origin, body, headers={"content-encoding": coding})
        assert (size, told.status) == (size, status)
    assert told.json["error"]["code"] == "too_large"
    assert len(provider.received) == 1


@pytest.mark.rows("X-35")
@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(b"{}")[:-3]),
        ("gzip", b"no gzip"),
        ("gzip", gzip.compress(b"{}") + b"and more"),
        ("gzip", gzip.compress(b"") * 100_000),
        ("deflate", b"no deflate"),
        ("br", b"no brotli"),
        ("br", brotli.compress(b"{}") + b"and more"),
        ("aes128gcm", b"?"),
        ("gzip, gzip, gzip, gzip", b"?"),
        ("gzip", json.dumps(body_of("not compressed at all")).encode()),
    ],
    ids=["cut", "other", "more", "many", "no deflate", "no br", "more br", "unknown", "four", "plain"],
)
def test_a_body_that_cannot_be_unpacked_passes_as_it_came(
    proxy: ServedProxy, provider: ScriptedProvider, journal: LogCapture, coding: str, body: bytes
) -> None:
    """Some servers never look at the coding of a request, so who is in front of one may send anything there."""
    provider.when(lambda _: True, says("fine"), loop=True)
    told = ask(proxy.origin, body, headers={"content-encoding": coding})

    (received,) = provider.received
    assert (received.raw, received.header("content-encoding")) == (body, coding)
    assert told.status == ask(provider.origin, body, headers={"content-encoding": coding}).status
    assert "a compressed body passes unread" in journal.text


@pytest.mark.rows("X-35")
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "two upstreams"])
def test_a_body_that_cannot_be_unpacked_is_refused_where_it_may_not_pass_unread(
    start: Starting, provider: ScriptedProvider, closed: bool
) -> None:
    settings = {"fail_policy": "closed"} if closed else {"upstreams__other__url": provider.url}
    proxy = start(**settings)
    provider.will(says("fine"))

    told = ask(proxy.origin, b"no brotli", headers={"content-encoding": "br"})

    assert (told.status, provider.received) == (415, [])
    assert told.json["error"]["code"] == "unreadable_coding"
    assert "gzip, deflate" in told.json["error"]["message"]
    assert ask(proxy.origin, b"no brotli", path="/v1/files", headers={"content-encoding": "br"}).status != 415


@pytest.mark.rows("X-35")
@pytest.mark.skipif(not READS_ZSTD, reason="this Python was built without zstd")
def test_zstd_is_read(proxy: ServedProxy, provider: ScriptedProvider) -> None:
    provider.when(lambda _: True, says("fine"), loop=True)
    packed = stored_zstd(json.dumps(body_of("in zstd", awake=True)).encode())

    told = ask(proxy.origin, packed, headers={"content-encoding": "zstd"})

    (received,) = provider.received
    assert (told.told, received.messages[-1]["content"]) == ("full", "in zstd")


@pytest.mark.rows("X-35")
@pytest.mark.skipif(not READS_ZSTD, reason="this Python was built without zstd")
def test_zstd_that_unpacks_to_more_than_the_limit_is_refused(start: Starting, provider: ScriptedProvider) -> None:
    """A block of one byte that is repeated: 12 bytes for 128 KiB."""
    proxy = start(body_limit_bytes=1_000_000)
    blocks = [(((128 * 1024) << 3) | 2 | last).to_bytes(3, "little") + b" " for last in [0] * 399 + [1]]
    size = len(blocks) * 128 * 1024
    bomb = bytes.fromhex("28b52ffda0") + size.to_bytes(4, "little") + b"".join(blocks)

    told = ask(proxy.origin, bomb, headers={"content-encoding": "zstd"})

    assert (told.status, provider.received) == (413, [])


@pytest.mark.rows("X-35")
def test_a_compressed_body_of_another_endpoint_finds_the_upstream_of_its_model(
    start: Starting, provider: ScriptedProvider
) -> None:
    with ScriptedProvider() as other:
        proxy = start(upstreams__other__url=other.url, upstreams__other__models="embed-1")
        body = gzip.compress(b'{"model": "embed-1", "input": "text"}')
        ask(proxy.origin, body, path="/v1/embeddings", headers={"content-encoding": "gzip"})
        assert [received.raw for received in other.received] == [gzip.decompress(body)]
    assert provider.received == []
