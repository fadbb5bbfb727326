"""A1: raw bytes that two programs could read differently are answered 400 and the connection is closed.

The cases are the table of RELIABILITY section 1, which no Python server passes alone, and the usual ones beside it.
"""

from __future__ import annotations

import json
import re
import select
import time
from contextlib import ExitStack

import pytest

from tests.server.raw import Reply, Served, Start, read_reply

HOST = b"Host: 127.0.0.1\r\n"
POST = b"POST /v1/x HTTP/1.1\r\n" + HOST
GET = b"GET /v1/x HTTP/1.1\r\n" + HOST
CHANGING = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAA\r\n"
"""As the client of Java's library asks first."""

REFUSED = {
    "length and chunked": POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked and length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
    "two equal lengths in one": POST + b"Content-Length: 2, 2\r\n\r\n{}",
    "two lengths, and another protocol": POST + CHANGING + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "two lengths": POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "two different lengths": POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "length with sign": POST + b"Content-Length: +2\r\n\r\n{}",
    "length below zero": POST + b"Content-Length: -2\r\n\r\n{}",
    "length in hexadecimal": POST + b"Content-Length: 0x2\r\n\r\n{}",
    "length beyond 64 bit": POST + b"Content-Length: 99999999999999999999999\r\n\r\n{}",
    "empty length": POST + b"Content-Length: \r\n\r\n{}",
    "identity then chunked": POST + b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked, chunked": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "gzip, chunked": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "identity": POST + b"Transfer-Encoding: identity\r\n\r\n",
    "unknown coding": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "vertical tab before chunked": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "chunked on HTTP/1.0": b"POST /v1/x HTTP/1.0\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "absurd chunk size": POST + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffffff\r\nx\r\n0\r\n\r\n",
    "chunk size with sign": POST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\nx\r\n0\r\n\r\n",
    "chunk longer than said": POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\nxyz\r\n0\r\n\r\n",
    "folded header": GET + b"X-A: 1\r\n 2\r\n\r\n",
    "bare line feed": b"GET /v1/x HTTP/1.1\nHost: 127.0.0.1\n\n",
    "bare carriage return": GET + b"X-A: 1\rX-B: 2\r\n\r\n",
    "zero byte in a value": GET + b"X-A: 1\x002\r\n\r\n",
    "space before the colon": GET + b"X-A : 1\r\n\r\n",
    "no name": GET + b": 1\r\n\r\n",
    "space in a name": GET + b"X A: 1\r\n\r\n",
    "an underscore in a name of ours": GET + b"X_Stack_Session: 1\r\nX-Stack-Session: 2\r\n\r\n",
    "one underscore in a name of ours": GET + b"x-stack_mode: off\r\n\r\n",
    "underscore in a length": POST + b"Content_Length: 3\r\nContent-Length: 2\r\n\r\n{}",
    "underscore in a length alone": POST + b"content_length: 2\r\n\r\n",
    "underscore in a transfer coding": POST + b"Transfer_Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}",
    "underscore in a key": GET + b"X-Api_Key: k\r\n\r\n",
    "no host": b"GET /v1/x HTTP/1.1\r\n\r\n",
    "two hosts": GET + b"Host: 127.0.0.1\r\n\r\n",
    "empty host": b"GET /v1/x HTTP/1.1\r\nHost: \r\n\r\n",
    "host with a path": b"GET /v1/x HTTP/1.1\r\nHost: 127.0.0.1/a\r\n\r\n",
    "host with a query": b"GET /v1/x HTTP/1.1\r\nHost: 127.0.0.1?a\r\n\r\n",
    "host with a fragment": b"GET /v1/x HTTP/1.1\r\nHost: 127.0.0.1#a\r\n\r\n",
    "host with a user": b"GET /v1/x HTTP/1.1\r\nHost: a@127.0.0.1\r\n\r\n",
    "two hosts in one": b"GET /v1/x HTTP/1.1\r\nHost: 127.0.0.1, evil.example\r\n\r\n",
    "host with a word for a port": b"GET /v1/x HTTP/1.1\r\nHost: 127.0.0.1:http\r\n\r\n",
    "more than 100 headers": GET + b"".join(b"X-%d: 1\r\n" % number for number in range(2000)) + b"\r\n",
    "climbing path": b"GET /v1/../stack HTTP/1.1\r\n" + HOST + b"\r\n",
    "climbing path, escaped": b"GET /v1/%2e%2e/stack HTTP/1.1\r\n" + HOST + b"\r\n",
    "climbing path, half escaped": b"GET /v1/.%2E/stack HTTP/1.1\r\n" + HOST + b"\r\n",
    "climbing path, escaped slash": b"GET /v1/%2e%2e%2fstack HTTP/1.1\r\n" + HOST + b"\r\n",
    "step of one dot": b"GET /v1/./models HTTP/1.1\r\n" + HOST + b"\r\n",
    "step of one dot, escaped": b"GET /v1/models/%2E HTTP/1.1\r\n" + HOST + b"\r\n",
    "escaped slash": b"GET /v1%2Fmodels HTTP/1.1\r\n" + HOST + b"\r\n",
    "escaped slash in front of a model": b"GET /v1%2Fmodels/a%2Fb HTTP/1.1\r\n" + HOST + b"\r\n",
    "climbing path in a model's name": b"GET /v1/models/a%2F..%2F..%2Fstack HTTP/1.1\r\n" + HOST + b"\r\n",
    "escaped backslash": b"GET /v1/..%5Cstack HTTP/1.1\r\n" + HOST + b"\r\n",
    "escaped zero byte": b"GET /v1/a%00b HTTP/1.1\r\n" + HOST + b"\r\n",
    "whole URL as target": b"GET http://evil.example/v1/x HTTP/1.1\r\n" + HOST + b"\r\n",
    "authority as target": b"CONNECT evil.example:443 HTTP/1.1\r\n" + HOST + b"\r\n",
    "star as target": b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
    "target without slash": b"GET v1/x HTTP/1.1\r\n" + HOST + b"\r\n",
    "byte beyond ascii in the path": b"GET /v1/\xff HTTP/1.1\r\n" + HOST + b"\r\n",
    "no version": b"GET /v1/x\r\n" + HOST + b"\r\n",
    "version 2": b"GET /v1/x HTTP/2.0\r\n" + HOST + b"\r\n",
    "preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "two spaces before the path": b"GET  /v1/x HTTP/1.1\r\n" + HOST + b"\r\n",
    "two spaces before the version": b"GET /v1/x  HTTP/1.1\r\n" + HOST + b"\r\n",
    "many spaces": b"GET   /v1/x     HTTP/1.1\r\n" + HOST + b"\r\n",
    "space behind the version": b"GET /v1/x HTTP/1.1 \r\n" + HOST + b"\r\n",
    "space before the method": b" GET /v1/x HTTP/1.1\r\n" + HOST + b"\r\n",
    "space in the path": b"GET /v1/x y HTTP/1.1\r\n" + HOST + b"\r\n",
    "tab before the path": b"GET\t/v1/x HTTP/1.1\r\n" + HOST + b"\r\n",
    "tab before the version": b"GET /v1/x\tHTTP/1.1\r\n" + HOST + b"\r\n",
    "two spaces, and another protocol": b"POST  /v1/x HTTP/1.1\r\n" + HOST + CHANGING + b"Content-Length: 2\r\n\r\n{}",
    "two spaces, HTTP/1.0": b"GET  /v1/x HTTP/1.0\r\n" + HOST + b"\r\n",
    "version in small letters": b"GET /v1/x http/1.1\r\n" + HOST + b"\r\n",
    "method in small letters": b"get /v1/x HTTP/1.1\r\n" + HOST + b"\r\n",
    "version 1.2": b"GET /v1/x HTTP/1.2\r\n" + HOST + b"\r\n",
    "unknown method": b"STEAL /v1/x HTTP/1.1\r\n" + HOST + b"\r\n",
    "TLS on a plain port": bytes.fromhex("16030100a5010000a10303") + bytes(100),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a1_an_ambiguous_request_is_answered_400_and_closed(server: Served, name: str) -> None:
    reply = server.say(REFUSED[name])
    assert (reply.statuses, reply.closed) == ([400], True), reply.raw
    assert reply.body["error"]["type"] == "invalid_request_error"
    assert reply.body["error"]["message"]


@pytest.mark.parametrize("name", ["one header", "many headers"])
def test_a1_headers_beyond_64_kib_are_answered_431_and_closed(server: Served, name: str) -> None:
    large = {
        "one header": GET + b"X-A: " + b"a" * 1_000_000 + b"\r\n\r\n",
        "many headers": GET + b"".join(b"X-%d: %s\r\n" % (number, b"a" * 1000) for number in range(90)) + b"\r\n",
    }
    reply = server.say(large[name])
    assert (reply.statuses, reply.closed) == ([431], True)


@pytest.mark.parametrize(
    "begun",
    [b"", b"2\r\n{}\r\n", b"2;a=ffffffffffff\r\n{}\r\n"],
    ids=["first", "second", "behind an extension"],
)
@pytest.mark.parametrize("size", [b"7fffffffffffffff", b"00ffffffffff", b"7FFFFFFFFFFFFFFF;a=b"])
def test_a1_a_chunk_that_announces_too_much_is_answered_413_at_once(start: Start, begun: bytes, size: bytes) -> None:
    served = start("body_deadline_s=60")
    reply = served.say(POST + b"Transfer-Encoding: chunked\r\n\r\n" + begun + size + b"\r\nabc")

    assert (reply.statuses, reply.closed) == ([413], True)
    assert "body_limit_bytes" in reply.body["error"]["message"]


@pytest.mark.parametrize(
    "pieces",
    [
        [b"2;ext=ffff", b"ffffffffff\r\n", b"{}\r\n0\r\n\r\n"],
        [b"2\r\n", b"{", b"}\r\n0\r\n\r\n"],
        [b"2\r\n{}\r\n0\r\nffffffffffffffff", b": x\r\n\r\n"],
        [b"13\r\n{}\nffffffffffffffff", b"\r\n0\r\n\r\n"],
    ],
    ids=["an extension", "a body", "a trailer", "a line of a body"],
)
def test_what_looks_like_the_size_of_a_chunk_is_none(server: Served, pieces: list[bytes]) -> None:
    reply = server.say(POST + b"Transfer-Encoding: chunked\r\n\r\n", *pieces)
    assert reply.statuses == [200], reply.raw


def test_a1_a_header_that_never_ends_is_not_collected(start: Start) -> None:
    """Whatever the deadline."""
    served = start("header_deadline_s=60")
    assert served.say(GET + b"X-A: ", *[b"a" * 65536] * 16).closed


def test_a_header_that_is_refused_because_of_others_leaves_its_room_at_once(start: Start) -> None:
    """And not when the connection ends, on which what comes is thrown away for two seconds."""
    served = start("header_deadline_s=60")
    half = GET + b"X-A: " + b"a" * 60_000
    with ExitStack() as stack:
        begun = [stack.enter_context(served.connect()) for _ in range(35)]  # two MiB together
        for connection in begun:
            connection.sendall(half)
        (refused, *_), _, _ = select.select(begun, [], [], 10)
        assert read_reply(refused, patience=2).statuses == [503]

        assert served.say(half[:50_000], b"\r\n\r\n").statuses == [200]


ACCEPTED = {
    "plain": GET + b"\r\n",
    "chunked": POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "chunked in capitals": POST + b"transfer-encoding: CHUNKED\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "length": POST + b"Content-Length: 2\r\n\r\n{}",
    "dots in a name": b"GET /v1/models/gpt..5 HTTP/1.1\r\n" + HOST + b"\r\n",
    "60 KB of one header": GET + b"X-A: " + b"a" * 60_000 + b"\r\n\r\n",
    "100 headers": GET + b"".join(b"X-%d: 1\r\n" % number for number in range(99)) + b"\r\n",
    "HTTP/1.0": b"GET /v1/x HTTP/1.0\r\n" + HOST + b"\r\n",
    "HEAD": b"HEAD /v1/x HTTP/1.1\r\n" + HOST + b"\r\n",
    "OPTIONS": b"OPTIONS /v1/x HTTP/1.1\r\n" + HOST + b"\r\n",
    "upgrade that we do not take": GET + CHANGING + b"\r\n",
    "empty upgrade, as nginx sends it": GET + b"Connection: upgrade\r\nUpgrade: \r\n\r\n",
    "web socket with a body": POST + b"Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\n{}",
    "empty lines in front": b"\r\n\r\n" + GET + b"\r\n",
    "query and fragment": b"GET /v1/x?a=b%20c&d#e HTTP/1.1\r\n" + HOST + b"\r\n",
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_unambiguous_passes(server: Served, name: str) -> None:
    """S14 beside A1."""
    assert server.say(ACCEPTED[name], patience=0.3).status == 200


def test_s14_a_client_that_asks_before_sending_is_told_to_go_on(server: Served) -> None:
    reply = server.say(POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n", b"{}", patience=0.3)
    assert reply.statuses == [100, 200]
    older = POST.replace(b"HTTP/1.1", b"HTTP/1.0")  # its clients take the first answer for the last
    assert server.say(older + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n", b"{}").statuses == [200]


def test_query_and_path_pass_as_written(server: Served) -> None:
    told = server.ask(target="/v1/models/a%3Ab%20c?beta=true&x=%2F..%2f").body
    assert (told["path"], told["query"]) == ("/v1/models/a%3Ab%20c", "beta=true&x=%2F..%2f")


def test_an_escaped_slash_in_the_name_of_a_model_passes_as_written(server: Served) -> None:
    """As OpenAI's SDK for JavaScript asks for a model of a publisher."""
    assert server.ask(target="/v1/models/org%2Fname").body["path"] == "/v1/models/org%2Fname"


def test_two_requests_in_one_packet_are_two_requests(server: Served) -> None:
    raw = server.says_all(GET + b"\r\n" + GET + b"Connection: close\r\n\r\n")
    assert raw.count(b"HTTP/1.1 200") == 2


@pytest.mark.parametrize("pieces", [1, 2, 7, 1000])
@pytest.mark.parametrize("length", [0, 2, 100_000])
def test_a_request_line_is_checked_wherever_it_stands_in_what_is_received(
    server: Served, pieces: int, length: int
) -> None:
    post = POST + b"Content-Length: %d\r\n\r\n" % length + bytes(length)
    for spaces, passed in ((1, 4), (2, 3)):
        last = b"GET" + spaces * b" " + b"/v1/x HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
        sent = post + GET + b"\r\n" + post + last
        step = -(-len(sent) // pieces)
        raw = server.says_all(*[sent[at : at + step] for at in range(0, len(sent), step)])
        # Refused while those before it are still being answered, it ends the connection.
        assert raw.count(b"HTTP/1.1 200") == passed or (spaces == 2 and raw.count(b"HTTP/1.1 200") < passed)


def test_trace_is_answered_405(server: Served) -> None:
    reply = server.say(b"TRACE /v1/x HTTP/1.1\r\n" + HOST + b"Authorization: Bearer secret\r\n\r\n")
    assert (reply.statuses, reply.closed) == ([405], True)
    assert reply.body["error"]["code"] == "method_not_allowed"
    assert b"allow: GET, HEAD, POST" in reply.raw
    assert b"secret" not in reply.raw


HANDSHAKE = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
KEY = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"


@pytest.mark.rows("X-38")
@pytest.mark.parametrize(
    "headers",
    [HANDSHAKE + KEY, KEY + HANDSHAKE, HANDSHAKE, KEY, b"upgrade: WebSocket\r\nconnection: keep-alive, Upgrade\r\n"],
    ids=["usual", "other order", "without a key", "upgrade taken out on the way", "capitals"],
)
@pytest.mark.parametrize("path", [b"/v1/responses", b"/stack/events", b"/v1/realtime?model=m"])
def test_a_web_socket_is_answered_426_at_once(server: Served, headers: bytes, path: bytes) -> None:
    early = b"\x81\x85frame" if b"pgrade:" in headers else b""
    reply = server.say(b"GET " + path + b" HTTP/1.1\r\n" + HOST + headers + b"\r\n" + early)
    assert (reply.statuses, reply.closed) == ([426], True)
    assert b"\r\nupgrade: HTTP/1.1\r\n" in reply.raw
    assert reply.body["error"]["code"] == "no_web_sockets"


def test_a_request_hidden_behind_a_refused_one_is_not_read(server: Served) -> None:
    reply = server.say(POST + b"Content-Length: 2\r\nTransfer-Encoding: identity\r\n\r\n{}" + GET + b"\r\n")
    assert (reply.statuses, reply.closed) == ([400], True)


CHUNKS = b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"


@pytest.mark.parametrize("body", [b"Content-Length: 2\r\n\r\n{}", CHUNKS], ids=["length", "chunked"])
@pytest.mark.parametrize("pieces", [1, 3, 1000])
def test_a_request_that_would_rather_change_the_protocol_keeps_its_body(
    server: Served, body: bytes, pieces: int
) -> None:
    """And what follows it on its connection is read as ever."""
    sent = 2 * (POST + CHANGING + b"X-A: 1\r\n" + body) + POST + b"Connection: close\r\n" + body
    step = -(-len(sent) // pieces)
    raw = server.says_all(*[sent[at : at + step] for at in range(0, len(sent), step)])

    told = [json.loads(found) for found in re.findall(rb"\{.*?\}", raw)]
    assert [one["size"] for one in told] == [2, 2, 2]
    assert [["x-a", "1"] in one["headers"] for one in told] == [True, True, False]


def test_as_many_as_like_may_ask_for_another_protocol(server: Served) -> None:
    raw = server.says_all((GET + CHANGING + b"\r\n") * 1500, GET + b"Connection: close\r\n\r\n")
    assert raw.count(b"HTTP/1.1 200") == 1501


def test_trailers_do_not_become_headers(server: Served) -> None:
    body = b"2\r\n{}\r\n0\r\nAuthorization: Bearer stolen\r\nX_Evil: 1\r\n\r\n"
    reply = server.say(POST + b"Transfer-Encoding: chunked\r\n\r\n" + body, patience=0.3)
    assert reply.status == 200
    assert [name for name, _ in reply.body["headers"]] == ["host", "transfer-encoding"]


@pytest.mark.parametrize("endless", [b"0\r\nX-A: ", b"2;x="], ids=["trailer", "chunk extension"])
def test_framing_of_a_body_that_never_ends_is_not_collected(start: Start, endless: bytes) -> None:
    """Joined anew with each read, 60 MB of one trailer held everybody else for 5 s."""
    served = start("body_deadline_s=60")
    reply = served.say(POST + b"Transfer-Encoding: chunked\r\n\r\n" + endless, *[b"a" * 65536] * 16)
    assert reply.closed


def test_large_extensions_of_small_chunks_are_not_read_on(start: Start) -> None:
    """A byte of the body between them does not make them welcome; many small ones are usual."""
    served = start("body_deadline_s=60")
    post = POST + b"Transfer-Encoding: chunked\r\n\r\n"
    reply = served.say(post, *[b"1;x=" + b"a" * 32768 + b"\r\n{\r\n"] * 16)
    assert (reply.statuses, reply.closed) == ([400], True), reply.raw
    assert b"chunk extensions" in reply.raw

    assert served.say(post, *[b"1;x=abc\r\n \r\n" * 4096] * 16, b"0\r\n\r\n", patience=2).status == 200


@pytest.mark.parametrize("sent", [b"", b"GET /v1/x HT", GET + b"X-A: 1", GET])
def test_a2_a_client_that_does_not_finish_its_headers_is_closed(server: Served, sent: bytes) -> None:
    start = time.monotonic()
    reply = server.say(sent)
    assert (reply.raw, reply.closed) == (b"", True)
    assert 0.3 < time.monotonic() - start < 1.5


def test_a2_the_deadline_counts_on_a_kept_connection_too(server: Served) -> None:
    with server.connect() as connection:
        connection.sendall(GET + b"\r\n")
        assert read_reply(connection, patience=2).status == 200
        connection.sendall(b"GET /")
        assert read_reply(connection, patience=2) == Reply(b"", closed=True)


def test_a2_a_byte_now_and_then_is_no_progress(server: Served) -> None:
    with server.connect() as connection:
        connection.sendall(POST + b"Content-Length: 1000\r\n\r\n")
        start, reply = time.monotonic(), b""
        connection.settimeout(0.05)
        while not reply and time.monotonic() - start < 3:
            connection.sendall(b" ")
            try:
                reply = connection.recv(65536)
            except TimeoutError:
                continue
    assert reply.startswith(b"HTTP/1.1 408")
    assert 0.3 < time.monotonic() - start < 1.5


def test_a_large_body_that_makes_progress_has_the_time_it_needs(server: Served) -> None:
    """Twice the deadline in all, and 4 KiB in each."""
    with server.connect() as connection:
        connection.sendall(POST + b"Content-Length: 40960\r\n\r\n")
        connection.settimeout(0.1)
        for _ in range(9):
            connection.sendall(bytes(4096))
            with pytest.raises(TimeoutError):  # a tenth of a second each, and no answer yet
                connection.recv(1)
        connection.sendall(bytes(4096))
        connection.settimeout(2)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
