"""S14: the less common corners of HTTP and of the API keep their meaning through the proxy."""

from __future__ import annotations

import json
import socket

import pytest

from llm_test_provider import ScriptedProvider, answers, call, says
from tests.harness import Json
from tests.wire.proxied import ServedProxy
from tests.wire.talking import CHAT, TOOLS, ask, body_of, exchange, raw_request

AWAKE = pytest.mark.parametrize("awake", [True, False], ids=["awake", "asleep"])
STREAM = pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])


def encoded(**more: object) -> bytes:
    return json.dumps(body_of(**more)).encode()  # type: ignore[arg-type] # fields of a request


@AWAKE
@STREAM
def test_s14_a_client_of_http_1_0_gets_its_answer_without_chunks(
    proxy: ServedProxy, provider: ScriptedProvider, awake: bool, stream: bool
) -> None:
    provider.will(says("for an old client"))
    got = exchange(proxy.port, raw_request(encoded(awake=awake, stream=stream), version="1.0"))
    head, _, body = got.partition(b"\r\n\r\n")

    assert b" 200 " in head.splitlines()[0]
    assert b"transfer-encoding" not in head.lower()
    told = body.decode()
    if stream:
        assert told.startswith("data: {")
        assert told.endswith("data: [DONE]\n\n")
    else:
        assert json.loads(told)["choices"][0]["message"]["content"] == "for an old client"


@AWAKE
def test_s14_a_client_that_asks_first_is_told_to_go_on(
    proxy: ServedProxy, provider: ScriptedProvider, awake: bool
) -> None:
    provider.will(says("fine"))
    request = raw_request(encoded(awake=awake), headers="Expect: 100-continue\r\n")
    head, _, body = request.partition(b"\r\n\r\n")
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as peer:
        peer.sendall(head + b"\r\n\r\n")
        told = peer.recv(1000)
        peer.sendall(body)
        got = b""
        while data := peer.recv(65536):
            got += data

    assert told.startswith(b"HTTP/1.1 100 ")
    assert b" 200 " in got.splitlines()[0]
    assert b"fine" in got
    assert provider.received[0].header("expect") is None


@pytest.mark.parametrize("path", ["/v1/models", CHAT, "/v1/nothing"])
def test_s14_head_is_answered_without_a_body(proxy: ServedProxy, provider: ScriptedProvider, path: str) -> None:
    told, direct = (ask(origin, method="HEAD", path=path) for origin in (proxy.origin, provider.origin))
    assert (told.status, told.body, direct.body) == (direct.status, b"", b"")
    assert told.header("content-length") == direct.header("content-length")
    assert [received.method for received in provider.received] == ["HEAD", "HEAD"]


def test_s14_head_of_the_root_says_that_we_are_here(proxy: ServedProxy, provider: ScriptedProvider) -> None:
    assert (ask(proxy.origin, method="HEAD", path="/").status, provider.received) == (200, [])


@AWAKE
def test_s14_trailers_of_a_client_change_nothing(proxy: ServedProxy, provider: ScriptedProvider, awake: bool) -> None:
    provider.will(says("fine"))
    body = encoded(awake=awake)
    head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    trailers = b"0\r\nX-Stack-Mode: off\r\nAuthorization: Bearer late\r\n\r\n"

    got = exchange(proxy.port, head.encode() + f"{len(body):x}\r\n".encode() + body + b"\r\n" + trailers)

    assert b" 200 " in got.splitlines()[0]
    assert f"x-stack-status: {'full' if awake else 'asleep'}".encode() in got
    assert provider.received[0].header("authorization") is None


@AWAKE
@STREAM
def test_s14_trailers_of_the_provider_do_not_break_the_answer(
    proxy: ServedProxy, provider: ScriptedProvider, awake: bool, stream: bool
) -> None:
    provider.will(says("fine", trailers=(("x-late", "1"),), framing="chunked"))
    told = ask(proxy.origin, body_of(awake=awake, stream=stream))
    assert (told.status, told.whole, told.text) == (200, True, "fine")


@pytest.mark.parametrize("awake", [True, False], ids=["awake", "asleep"])
@STREAM
def test_s14_several_answers_pass_untouched(
    proxy: ServedProxy, provider: ScriptedProvider, awake: bool, stream: bool
) -> None:
    provider.will(says("one of three"))
    body = encoded(awake=awake, stream=stream, n=3)
    told = ask(proxy.origin, body)

    assert (told.told, provider.received[0].raw) == ("side; reason=several_answers", body)
    indexes = (
        {choice["index"] for chunk in told.chunks for choice in chunk["choices"]}
        if stream
        else {choice["index"] for choice in told.json["choices"]}
    )
    assert indexes == {0, 1, 2}


@AWAKE
@STREAM
def test_s14_log_probabilities_pass(proxy: ServedProxy, provider: ScriptedProvider, awake: bool, stream: bool) -> None:
    provider.will(says("likely"), says("likely"))
    body = body_of(awake=awake, stream=stream, logprobs=True, top_logprobs=2)
    told, direct = ask(proxy.origin, body), ask(provider.origin, body)

    def told_of(chunks: list[Json]) -> list[object]:
        return [choice.get("logprobs") for chunk in chunks for choice in chunk["choices"]]

    ours, theirs = (told_of(h.chunks if stream else [h.json]) for h in (told, direct))
    assert (provider.received[0]["logprobs"], provider.received[0]["top_logprobs"]) == (True, 2)
    assert ours == theirs
    assert any(ours)


@AWAKE
@pytest.mark.parametrize("asked", [True, False], ids=["asked", "not asked"])
def test_s14_usage_in_a_stream_is_told_to_who_asked(
    proxy: ServedProxy, provider: ScriptedProvider, awake: bool, asked: bool
) -> None:
    provider.will(says("fine"))
    options: Json = {"stream_options": {"include_usage": True}} if asked else {}
    told = ask(proxy.origin, body_of(awake=awake, stream=True, **options))

    usages = [chunk for chunk in told.chunks if chunk.get("usage")]
    assert (len(usages), told.text, told.payloads[-1]) == (int(asked), "fine", b"[DONE]")
    assert not asked or usages[0]["choices"] == []


@STREAM
def test_s14_legacy_functions_get_no_tools_beside_them(
    proxy: ServedProxy, provider: ScriptedProvider, stream: bool
) -> None:
    """S14, H6: the API takes either `functions` or `tools`, and no `tool_calls` beside `functions`. Both together are
    a 400, of which we would be the cause."""
    functions = [tool["function"] for tool in TOOLS]
    provider.will(answers("B", [call("read_file", path="x")]))

    told = ask(proxy.origin, body := body_of(stream=stream, functions=functions))

    assert (told.status, told.text, told.told) == (200, "B", "asleep; reason=legacy_functions")
    assert b'"function_call"' in told.body
    assert [received.raw for received in provider.asked] == [json.dumps(body).encode()]


def test_a_connection_is_used_again_after_every_kind_of_answer(proxy: ServedProxy, provider: ScriptedProvider) -> None:
    """Framing errors show in the answer after: many requests on one connection, each answered with its own."""
    kinds = [body_of("k", awake=awake, stream=stream) for awake in (True, False) for stream in (True, False)]
    requests, words = b"", []
    for number, body in enumerate([*kinds, *kinds]):
        words.append(f"answer-{number}-")
        provider.will(says(words[-1]))
        closing = raw_request(json.dumps(body | {"user": str(number)}).encode())
        last = number == len(kinds) * 2 - 1
        requests += closing if last else closing.replace(b"Connection: close\r\n", b"")

    got = exchange(proxy.port, requests)

    places = [got.find(word.encode()) for word in words]
    assert -1 not in places
    assert places == sorted(places)
    assert got.count(b"HTTP/1.1 200 OK") == len(words)
