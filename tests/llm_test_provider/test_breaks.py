"""How an answer goes wrong, seen on a bare socket (S3, S4, S5, S8, S10), and how a client that leaves is seen."""

import gzip
import json
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from llm_test_provider import (
    FixedReply,
    ScriptedAnswer,
    ScriptedProvider,
    cut,
    empty,
    error_chunk,
    gzip_bomb,
    half_close,
    html,
    json_error,
    only_done,
    raw,
    reset,
    says,
    stall,
    status,
    truncated,
    wrong_type,
)
from llm_test_provider.answer import ErrorEvent

Ask = Callable[..., tuple[int, dict[str, str], bytes]]
Exchange = Callable[..., tuple[bytes, str]]
Build = Callable[..., bytes]
LONG = says("words that make up a stream of many events, " * 4)


@pytest.mark.parametrize(("broken", "end"), [(cut, "fin"), (reset, "reset"), (truncated, "fin"), (half_close, "fin")])
def test_a_stream_breaks_after_the_events_the_script_names(
    provider: ScriptedProvider, exchange: Exchange, chat_request: Build, broken: Callable[..., ScriptedAnswer], end: str
) -> None:
    """S4"""
    provider.will(broken(LONG, after_events=3))

    heard, ended = exchange(provider, chat_request())

    assert ended == end
    assert heard.count(b"}\n\n\r\n") == 3
    assert b"[DONE]" not in heard
    assert b"0\r\n\r\n" not in heard


@pytest.mark.parametrize("streamed", [True, False])
def test_an_answer_is_cut_at_the_very_byte(
    provider: ScriptedProvider, exchange: Exchange, chat_request: Build, *, streamed: bool
) -> None:
    """S4"""
    provider.will(cut(LONG.but(framing="close"), after_bytes=37))

    heard, ended = exchange(provider, chat_request(stream=streamed))

    assert ended == "fin"
    assert len(heard.partition(b"\r\n\r\n")[2]) == 37


def test_an_unstreamed_answer_that_is_cut_announced_more(
    provider: ScriptedProvider, exchange: Exchange, chat_request: Build
) -> None:
    provider.will(cut(LONG, after_bytes=10))

    heard, _ = exchange(provider, chat_request(stream=False))

    head, _, body = heard.partition(b"\r\n\r\n")
    announced = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    assert announced > len(body) == 10


def test_a_truncated_chunk_holds_less_than_it_announced(
    provider: ScriptedProvider, exchange: Exchange, chat_request: Build
) -> None:
    """S4"""
    provider.will(truncated(LONG, after_events=1))

    heard, _ = exchange(provider, chat_request())

    *_, size, rest = heard.split(b"\r\n", heard.count(b"\r\n"))[-2:]
    assert int(size, 16) > len(rest) > 0


def test_a_half_closed_connection_stays_open_for_reading(provider: ScriptedProvider, chat_request: Build) -> None:
    """S4"""
    provider.will(half_close(LONG, after_events=1))
    with socket.create_connection((provider.host, provider.port), timeout=5) as peer:
        peer.sendall(chat_request())
        while peer.recv(65536):
            pass
        assert provider.open_connections == 1
    provider.wait_until(lambda: provider.open_connections == 0)


def test_a_stall_is_silent_and_then_goes_on(
    provider: ScriptedProvider, exchange: Exchange, chat_request: Build
) -> None:
    """S5"""
    provider.will(stall(LONG, 0.1, after_events=2))
    began = time.monotonic()

    heard, _ = exchange(provider, chat_request(headers="Connection: close\r\n"))

    assert time.monotonic() - began >= 0.1
    assert heard.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def test_pieces_are_paced(provider: ScriptedProvider, exchange: Exchange, chat_request: Build) -> None:
    provider.will(says("x", pace_ms=20))
    began = time.monotonic()

    heard, _ = exchange(provider, chat_request(headers="Connection: close\r\n"))

    assert time.monotonic() - began >= 0.02 * (heard.count(b"data: ") - 1)


@pytest.mark.parametrize("silent", [stall(LONG, after_events=2), LONG.but(delay_s=3600)])
def test_a_stall_without_end_lasts_until_the_client_leaves(
    provider: ScriptedProvider, exchange: Exchange, chat_request: Build, silent: ScriptedAnswer
) -> None:
    """S3, S5"""
    provider.will(silent)

    _, ended = exchange(provider, chat_request(), timeout=0.05)

    assert ended == "open"
    provider.wait_until(lambda: bool(provider.disconnects))


def test_a_client_that_leaves_is_noticed_at_once(provider: ScriptedProvider, chat_request: Build) -> None:
    """S3"""
    provider.will(LONG.but(delay_s=3600))
    with socket.create_connection((provider.host, provider.port)) as peer:
        peer.sendall(chat_request())
        provider.wait_for(1)
    left = time.monotonic()

    provider.wait_until(lambda: len(provider.disconnects) == 1)

    assert provider.received[0].left_at is not None
    assert provider.received[0].left_at - left < 0.5
    provider.wait_until(lambda: provider.open_connections == 0)


def test_a_client_that_hears_all_did_not_leave(
    provider: ScriptedProvider, exchange: Exchange, chat_request: Build
) -> None:
    provider.will(LONG)

    exchange(provider, chat_request(headers="Connection: close\r\n"))

    provider.wait_until(lambda: provider.open_connections == 0)
    assert provider.disconnects == []
    assert provider.received[0].finished_at is not None


def test_errors_carry_their_headers_and_body_byte_for_byte(provider: ScriptedProvider, ask: Ask) -> None:
    """S8"""
    limits = {"Retry-After": "7", "x-ratelimit-remaining-tokens": "0", "anthropic-ratelimit-requests-limit": "5"}
    provider.will(status(429, headers=limits, body=b'{ "odd":   1}'), status(529))

    code, headers, body = ask(provider, stream=True)
    other, _, words = ask(provider)

    assert (code, body) == (429, b'{ "odd":   1}')
    assert {name.lower(): value for name, value in limits.items()}.items() <= headers.items()
    assert other == 529
    assert json.loads(words)["error"]["code"] == "529"


@pytest.mark.parametrize("with_choices", [True, False])
def test_a_stream_turns_into_an_error_event(
    provider: ScriptedProvider, ask: Ask, chunks: Callable[[bytes], list[dict[str, Any]]], *, with_choices: bool
) -> None:
    error = ErrorEvent({"message": "gone"}, after_events=2, with_choices=with_choices, then_done=True)
    provider.will(LONG.but(error=error))

    code, _, body = ask(provider, stream=True)

    *before, last = chunks(body)
    assert (code, len(before), last["error"]) == (200, 2, {"message": "gone"})
    assert ("choices" in last) == with_choices
    assert body.endswith(b"data: [DONE]\n\n")


def test_an_error_event_ends_the_stream_without_done(provider: ScriptedProvider, ask: Ask) -> None:
    provider.will(error_chunk(LONG, "boom", after_events=1), error_chunk(LONG, "boom"))

    assert b"[DONE]" not in ask(provider, stream=True)[2]
    assert json.loads(ask(provider)[2])["error"]["message"] == "boom"


@pytest.mark.parametrize(
    ("odd", "content_type", "start"),
    [
        (json_error("inside"), "application/json", b'{"error"'),
        (html(), "text/html", b"<html>"),
        (empty(), "application/json", b""),
        (only_done(), "text/event-stream; charset=utf-8", b"data: [DONE]"),
        (wrong_type(LONG), "text/plain", b"data: {"),
    ],
)
def test_200_with_something_else_inside(
    provider: ScriptedProvider, ask: Ask, odd: ScriptedAnswer, content_type: str, start: bytes
) -> None:
    """S10"""
    provider.will(odd)

    code, headers, body = ask(provider, stream=True)

    assert (code, headers["content-type"]) == (200, content_type)
    assert body.startswith(start)
    assert bool(body) == bool(start)


@pytest.mark.parametrize("streamed", [True, False])
def test_answers_are_compressed_once_or_twice(provider: ScriptedProvider, ask: Ask, *, streamed: bool) -> None:
    """S10"""
    provider.will(says("packed", encoding=("gzip",)), says("packed", encoding=("gzip", "gzip")))

    _, headers, once = ask(provider, stream=streamed)
    _, _, twice = ask(provider, stream=streamed)

    assert headers["content-encoding"] == "gzip"
    assert b"packed" in gzip.decompress(once)
    assert b"packed" in gzip.decompress(gzip.decompress(twice))


def test_a_gzip_bomb_is_small_on_the_wire(provider: ScriptedProvider, ask: Ask) -> None:
    """S10"""
    provider.will(gzip_bomb(8 * 1024 * 1024))

    body = ask(provider)[2]

    assert len(gzip.decompress(body)) == 8 * 1024 * 1024 > 500 * len(body)


def test_raw_bytes_stand_in_for_http(provider: ScriptedProvider, exchange: Exchange, chat_request: Build) -> None:
    provider.will(raw(b"SSH-2.0-nothing like http\r\n"))

    assert exchange(provider, chat_request()) == (b"SSH-2.0-nothing like http\r\n", "fin")


def test_a_fixed_reply_may_be_broken_too(provider: ScriptedProvider, exchange: Exchange, chat_request: Build) -> None:
    provider.will(cut(ScriptedAnswer(instead=FixedReply(503, b"long words")), after_bytes=4))

    heard, _ = exchange(provider, chat_request())

    assert heard.endswith(b"\r\n\r\nlong")


def test_leaving_a_provider_drops_what_is_still_open(chat_request: Build) -> None:
    with ScriptedProvider(stall(LONG)) as provider:
        peer = socket.create_connection((provider.host, provider.port), timeout=5)
        peer.sendall(chat_request())
        provider.wait_for(1)
    with peer:
        try:
            while peer.recv(65536):
                pass
        except ConnectionResetError:
            pass
    assert provider.open_connections == 0
