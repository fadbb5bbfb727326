"""S11, S12, S13: slow clients, many clients, and the end of the process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aiohttp
import pytest

from llm_test_provider import Cut, FixedReply, ReceivedRequest, ScriptedAnswer, ScriptedProvider, says, stall
from tests.harness import does, push
from tests.wire.proxied import TOKEN, ServedProxy
from tests.wire.talking import CHAT, ReceivedAnswer, ask, body_of, raw_request

ROOT = Path(__file__).parents[2]
STREAMS = 200
MEBI = 1024 * 1024
AWAKE = pytest.mark.parametrize("awake", [True, pytest.param(False, marks=pytest.mark.long)], ids=["awake", "asleep"])


# ----------------------------------------------------------------------------------------------------------------- S11
@pytest.mark.parametrize("awake", [True, False], ids=["awake", "asleep"])
def test_s11_a_slow_client_holds_the_provider_back(proxy: ServedProxy, provider: ScriptedProvider, awake: bool) -> None:
    """A client that reads nothing: the provider cannot get rid of more than the buffers on the way hold."""
    event = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"' + b"x" * 1000 + b'"}}]}\n\n'
    reply = FixedReply(200, event * (32 * MEBI // len(event)), (("content-type", "text/event-stream"),))
    provider.will(ScriptedAnswer(instead=reply, framing="chunked", cut=Cut(65536)))
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        peer.connect(("127.0.0.1", proxy.port))
        peer.sendall(raw_request(json.dumps(body_of("S11", awake=awake, stream=True)).encode()))
        first = peer.recv(4096)
        asked = provider.wait_for(1)[0]
        with pytest.raises(TimeoutError):
            provider.wait_until(lambda: asked.finished_at is not None, timeout=0.7)
        got = len(first)
        while got < MEBI:
            got += len(peer.recv(MEBI))
    provider.wait_until(lambda: asked.left_at is not None)


# ----------------------------------------------------------------------------------------------------------------- S12
def test_s12_many_streams_at_once_are_whole_and_never_crossed(proxy: ServedProxy, provider: ScriptedProvider) -> None:
    """Every tenth has a hidden round; each is known by a marker that its answer must carry, and no other."""

    def plays(received: ReceivedRequest) -> ScriptedAnswer:
        marker = next(m["content"] for m in received.messages if m["role"] == "user")
        if int(marker[2:-1]) % 10 == 0 and received.messages[-1]["role"] == "user":
            return does(push(f"frame {marker}"), text=f"{marker} ")
        return says(f"{marker} " * 20, piece=len(marker) + 1, pace_ms=5)

    provider.when(lambda _: True, plays, loop=True)
    told = asyncio.run(_all(proxy.origin))

    for number, (status, body) in enumerate(told):
        marker = f"<m{number}>"
        heard = ReceivedAnswer(status, (("content-type", "text/event-stream"),), body)
        assert (status, heard.finishes, heard.done) == (200, ["stop"], True)
        assert set(heard.text.split()) == {marker}
        assert heard.text.split().count(marker) == (21 if number % 10 == 0 else 20)


async def _all(origin: str) -> list[tuple[int, bytes]]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def one(number: int) -> tuple[int, bytes]:
            body = body_of(f"<m{number}>", awake=True, stream=True)
            async with session.post(origin + CHAT, json=body) as answer:
                return answer.status, await answer.read()

        return await asyncio.gather(*map(one, range(STREAMS)))


# ----------------------------------------------------------------------------------------------------------------- S13
def serve(provider: ScriptedProvider, data: Path, *settings: str) -> tuple[subprocess.Popen[str], str]:
    """`callstack serve`, and where it listens."""
    chosen = [part for setting in ("wake_at_tokens=0", *settings) for part in ("--set", setting)]
    options = ["--port", "0", "--upstream", provider.url, "--data", str(data), *chosen]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-m", "callstack_proxy", "serve", *options],
        cwd=data.parent,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().split()[1].removesuffix("/v1")


@AWAKE
def test_s13_a_stream_that_runs_at_the_end_is_finished_and_kept(
    provider: ScriptedProvider, tmp_path: Path, awake: bool
) -> None:
    process, origin = serve(provider, tmp_path / "data", "drain_s=10")
    provider.will(stall(says("until the very end"), 0.6, after_events=1))
    told: list[ReceivedAnswer] = []
    client = threading.Thread(target=lambda: told.append(ask(origin, body_of("S13", awake=awake, stream=True))))
    client.start()
    provider.wait_for(1, timeout=20)
    process.send_signal(signal.SIGTERM)
    client.join()
    _, complaints = process.communicate(timeout=20)

    assert (process.returncode, told[0].text, told[0].done) == (0, "until the very end", True), complaints
    with ServedProxy(provider.url, tmp_path / "data") as again:
        [turn] = again.turns(told[0].conversation)
        assert (turn["text"], turn["complete"]) == ("until the very end", True)
        [booked] = again.page("/stack/requests")["requests"]
        assert (booked["receipt"]["client_status"], booked["receipt"]["finish_reason"]) == (200, "stop")


@AWAKE
def test_s13_a_stream_that_outlives_the_drain_is_broken_off_and_kept_as_partial(
    provider: ScriptedProvider, tmp_path: Path, awake: bool
) -> None:
    process, origin = serve(provider, tmp_path / "data", "drain_s=1")
    provider.will(stall(says("never to be whole " * 9), after_events=6))
    told: list[ReceivedAnswer] = []
    client = threading.Thread(target=lambda: told.append(ask(origin, body_of("S13", awake=awake, stream=True))))
    client.start()
    provider.wait_for(1, timeout=20)
    process.send_signal(signal.SIGTERM)
    client.join()
    _, complaints = process.communicate(timeout=20)

    assert (process.returncode, told[0].whole, told[0].done, told[0].finishes) == (0, False, False, []), complaints
    with ServedProxy(provider.url, tmp_path / "data") as again:
        [turn] = again.turns(told[0].conversation)
        assert (turn["complete"], turn["text"]) == (False, told[0].text)
    assert TOKEN not in complaints


@pytest.mark.parametrize("stream", [True, pytest.param(False, marks=pytest.mark.long)], ids=["stream", "plain"])
@AWAKE
def test_s13_who_has_been_told_nothing_at_the_end_is_told_to_ask_again(
    provider: ScriptedProvider, tmp_path: Path, awake: bool, stream: bool
) -> None:
    provider.will(says("never", delay_s=60))

    told = told_at_the_end(provider, tmp_path, body_of("S13", awake=awake, stream=stream))

    assert (told.status, told.whole, told.told) == (503, True, "error; reason=shutdown")
    assert told.json["error"]["code"] == "shutdown"


@AWAKE
def test_s13_a_stream_of_messages_that_the_end_cuts_off_ends_with_an_error(
    provider: ScriptedProvider, tmp_path: Path, awake: bool
) -> None:
    provider.will(stall(says("never to be whole " * 9), after_events=6))
    tools = {"tools": [{"name": "read_file", "input_schema": {"type": "object"}}]} if awake else {}
    body = {"model": "m", "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "S13"}], **tools}

    told = told_at_the_end(provider, tmp_path, body, path="/v1/messages")

    assert (told.status, told.whole, b"message_stop" in told.body) == (200, False, False)
    assert told.body.count(b"event: error") == 1
    assert told.body.split(b"\n\n")[-2].startswith(b"event: error")


def test_s13_who_passes_unread_is_told_as_well(provider: ScriptedProvider, tmp_path: Path) -> None:
    """A bypass, and what goes to another endpoint: streamed, and waiting for the first byte."""
    process, origin = serve(provider, tmp_path / "data", "drain_s=1")
    provider.when(lambda got: "stream" in got.body, stall(says("never to be whole " * 9), after_events=6), loop=True)
    provider.when(lambda _: True, says("never", delay_s=60), loop=True)
    unread = body_of(messages=[{"role": "user", "content": "a"}] * 10_501)
    with ThreadPoolExecutor(2) as clients:
        streamed, plain = (clients.submit(ask, origin, unread | more) for more in ({"stream": True}, {}))
        provider.wait_for(2, timeout=20)
        process.send_signal(signal.SIGUSR1)
        cut, refused = streamed.result(), plain.result()
    _, complaints = process.communicate(timeout=20)

    assert process.returncode == 0, complaints
    assert (cut.told, cut.whole) == ("bypass; reason=too_many_messages", False)
    assert cut.body.endswith(b": callstack: The proxy was stopped before the answer was whole. Send it again.\n\n")
    assert (refused.status, refused.told, refused.json["error"]["code"]) == (503, "error; reason=shutdown", "shutdown")


def told_at_the_end(provider: ScriptedProvider, tmp_path: Path, body: object, path: str = CHAT) -> ReceivedAnswer:
    """What a client hears whose answer the provider does not go on with when the proxy is ended."""
    process, origin = serve(provider, tmp_path / "data", "drain_s=1")
    told: list[ReceivedAnswer] = []
    client = threading.Thread(target=lambda: told.append(ask(origin, body, path=path)))
    client.start()
    provider.wait_for(1, timeout=20)
    process.send_signal(signal.SIGTERM)
    client.join()
    _, complaints = process.communicate(timeout=20)
    assert process.returncode == 0, complaints
    return told[0]
