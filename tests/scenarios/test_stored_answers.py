"""An answer that its client may name later is on disk before its end leaves; any other ends as soon as it can."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from llm_test_provider import ScriptedAnswer, ScriptedProvider, cut, says, stall
from proxy.errors import StoreError
from proxy.store import ConversationCache
from tests.harness import RunningProxy, Stage
from tests.scenarios.test_references import Forgetful

pytestmark = pytest.mark.rows("X-61")

Json = dict[str, Any]
WAIT_S = 10.0
USER: Json = {"role": "user", "content": "look"}
LONG = "All of it, word for word. " * 60_000
"""A plain answer that leaves in pieces while it comes."""
NEVER = 10**9
"""Tokens at which nothing wakes."""


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as running:
        yield running


@pytest.fixture
def stage(provider: ScriptedProvider, tmp_path: Path) -> Iterator[Stage]:
    running = Stage(provider, tmp_path, streamed=True)
    yield running
    running.stop()


class SlowDisk:
    """Nothing is known to be written before it is told to go on."""

    def __init__(self) -> None:
        self.is_awaited, self.goes_on = threading.Event(), threading.Event()

    async def wait(self) -> None:
        self.is_awaited.set()
        assert await asyncio.to_thread(self.goes_on.wait, WAIT_S)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    """Patched: only the wait for the disk tells whether the end of an answer waits for it."""
    slow, waits = SlowDisk(), ConversationCache.wait_until_durable

    async def wait(self: ConversationCache, *given: Any) -> None:
        await waits(self, *given)
        if len(given) == 1:  # what a request waits for before it leaves is another matter
            await slow.wait()

    monkeypatch.setattr(ConversationCache, "wait_until_durable", wait)
    return slow


@contextmanager
def asked(proxy: RunningProxy, path: str = "/v1/responses", **members: Any) -> Iterator[socket.socket]:
    """The connection on which the answer comes, ended with it."""
    question: Json = {"messages": [USER]} if path.endswith("completions") else {"input": [USER]}
    body = json.dumps({"model": "gpt-x", **question, **members}).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=WAIT_S) as connection:
        connection.sendall(head.replace("host: x", f"host: 127.0.0.1:{proxy.port}").encode() + body)
        yield connection


def come_by_now(connection: socket.socket) -> bytes:
    """What has left for the client, and no more."""
    connection.setblocking(False)
    try:
        return rest(connection)
    finally:
        connection.settimeout(WAIT_S)


def rest(connection: socket.socket) -> bytes:
    pieces = []
    try:
        while piece := connection.recv(1 << 20):
            pieces.append(piece)
    except BlockingIOError:
        pass
    return b"".join(pieces)


STREAMED: Json = {"stream": True}
ANSWERS: dict[str, tuple[int, Json, ScriptedAnswer, bytes]] = {
    "a relayed stream": (NEVER, STREAMED, says("Done.", pace_ms=20), b"response.completed"),
    "a relayed answer": (NEVER, {}, says("Done."), b'"completed"'),
    "a relayed answer of many pieces": (NEVER, {}, says(LONG), b'word for word. "'),
    "a stream of ours": (0, STREAMED, says("Done.", pace_ms=20), b"response.completed"),
    "an answer of ours": (0, {}, says("Done."), b'"completed"'),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_the_end_of_an_answer_that_can_be_named_waits_for_the_disk(
    stage: Stage, provider: ScriptedProvider, disk: SlowDisk, kind: str
) -> None:
    wakes_at, members, answer, end = ANSWERS[kind]
    proxy = stage.proxy(wake_at_tokens=wakes_at)
    provider.will(answer)
    with asked(proxy, **members) as connection:
        assert disk.is_awaited.wait(WAIT_S)
        before = come_by_now(connection)
        disk.goes_on.set()
        after = rest(connection)

    assert end not in before
    assert end in before + after
    assert (b"Done." in before) is bool(members), "the words leave at once"


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "plain"])
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
def test_what_nobody_can_name_waits_for_no_disk(
    stage: Stage, provider: ScriptedProvider, disk: SlowDisk, path: str, streamed: bool
) -> None:
    members = {"store": False} if path == "/v1/responses" else {}
    for wakes_at in (0, NEVER):
        provider.will(says("Done."))
        with asked(stage.proxy(wake_at_tokens=wakes_at), path, stream=streamed, **members) as connection:
            assert b"Done." in rest(connection)
    assert not disk.is_awaited.is_set()


@pytest.mark.parametrize("wakes_at", [0, NEVER], ids=["awake", "asleep"])
def test_a_provider_that_goes_wrong_behind_the_end_changes_nothing(
    stage: Stage, provider: ScriptedProvider, wakes_at: int
) -> None:
    """It leaves the connection open, or breaks it: the answer was whole before, and its client can go on from it."""
    client = Forgetful(stage.proxy(wake_at_tokens=wakes_at), streamed=True)
    whole = says("Done.")
    provider.will(whole)
    client.says("how many events?")
    events = client.last.raw.count(b"event: ") if client.last else 0
    provider.will(stall(whole, after_events=events), cut(whole, after_events=events), says("Bye."))
    for words in ("first", "second", "third"):
        assert client.says(words).stack_status == ("asleep" if wakes_at else "full")
    assert {receipt["status"] for receipt in client.proxy.receipts()} == {"asleep" if wakes_at else "full"}


@pytest.mark.parametrize("wakes_at", [0, NEVER], ids=["awake", "asleep"])
def test_a_store_that_fails_keeps_no_end_from_the_client(
    stage: Stage, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch, wakes_at: int
) -> None:
    async def fail(*given: Any) -> None:
        if len(given) == 2:
            raise StoreError("the disk is gone", code="store_unreachable")

    client = Forgetful(stage.proxy(wake_at_tokens=wakes_at), streamed=True)
    provider.will(says("Done."))
    with monkeypatch.context() as patched:
        patched.setattr(ConversationCache, "wait_until_durable", fail)
        assert client.says("look").text == "Done."
