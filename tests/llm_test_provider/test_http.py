"""The HTTP of the provider on a bare socket (S14), and what it remembers of a request."""

import json
import socket
from collections.abc import Callable

from llm_test_provider import ScriptedProvider, says

Exchange = Callable[..., tuple[bytes, str]]
Build = Callable[..., bytes]


def test_an_http_1_0_client_gets_a_stream_without_chunks(
    provider: ScriptedProvider, exchange: Exchange, chat_request: Build
) -> None:
    """S14"""
    provider.will(says("old"))

    heard, ended = exchange(provider, chat_request("HTTP/1.0"))

    head, _, body = heard.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert body.startswith(b"data: {")
    assert ended == "fin"


def test_a_client_that_expects_100_continue_gets_it_before_it_sends_its_body(
    provider: ScriptedProvider, chat_request: Build
) -> None:
    """S14"""
    provider.will(says("go on"))
    head, _, body = chat_request(headers="Expect: 100-continue\r\nConnection: close\r\n").partition(b"\r\n\r\n")
    with socket.create_connection((provider.host, provider.port), timeout=5) as peer:
        peer.sendall(head + b"\r\n\r\n")
        assert peer.recv(1024) == b"HTTP/1.1 100 Continue\r\n\r\n"
        peer.sendall(body)
        assert peer.recv(1024).startswith(b"HTTP/1.1 200 OK\r\n")


def test_head_gets_the_head_alone(provider: ScriptedProvider, exchange: Exchange) -> None:
    """S14"""
    heard, _ = exchange(provider, b"HEAD /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n")

    assert heard.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"content-length: " in heard
    assert heard.endswith(b"\r\n\r\n")


def test_a_chunked_request_with_trailers_is_read_whole(provider: ScriptedProvider, exchange: Exchange) -> None:
    """S14"""
    provider.will(says("read"))
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}]}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    coded = b"5;ext=1\r\n%s\r\n%x\r\n%s\r\n0\r\nX-Digest: abc\r\n\r\n" % (body[:5], len(body) - 5, body[5:])

    exchange(provider, head + coded)

    assert provider.received[0].raw == body
    assert provider.received[0].trailers == (("X-Digest", "abc"),)


def test_a_stream_may_end_with_trailers(provider: ScriptedProvider, exchange: Exchange, chat_request: Build) -> None:
    """S14"""
    provider.will(says("x", trailers=(("x-checksum", "abc"),)))

    heard, _ = exchange(provider, chat_request(headers="Connection: close\r\n"))

    assert heard.endswith(b"[DONE]\n\n\r\n0\r\nx-checksum: abc\r\n\r\n")


def test_one_connection_carries_several_requests_also_ahead_of_their_answers(
    provider: ScriptedProvider, exchange: Exchange, chat_request: Build
) -> None:
    provider.will(says("first"), says("second"))

    heard, _ = exchange(
        provider, chat_request(stream=False) + chat_request(headers="Connection: close\r\n", stream=False)
    )

    assert heard.count(b"HTTP/1.1 200 OK") == 2
    assert heard.index(b"connection: keep-alive\r\n") < heard.index(b"connection: close\r\n")
    assert heard.index(b'"first"') < heard.index(b'"second"')


def test_a_request_is_remembered_as_it_came(
    provider: ScriptedProvider, exchange: Exchange, chat_request: Build
) -> None:
    provider.will(says("x"))
    sent = chat_request(headers="X-Twice: 1\r\nx-twice: 2\r\nAuthorization: Bearer k\r\nConnection: close\r\n")

    exchange(provider, sent)

    (received,) = provider.wait_for(1)
    assert [header for header in received.headers if header[0].lower() == "x-twice"] == [
        ("X-Twice", "1"),
        ("x-twice", "2"),
    ]
    assert received.header("authorization") == "Bearer k"
    assert received.raw == sent.partition(b"\r\n\r\n")[2]
    assert received["messages"] == received.messages
    assert (received.status, received.chat, received.number) == (200, 1, 1)


def test_bytes_that_are_no_request_are_a_400(provider: ScriptedProvider, exchange: Exchange) -> None:
    for nonsense in (
        b"hello\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ):
        heard, ended = exchange(provider, nonsense)
        assert heard.startswith(b"HTTP/1.1 400 ")
        assert ended == "fin"
