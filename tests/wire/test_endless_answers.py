"""Answers without end, from a provider that sends as fast as it can or only says that it works: each ends with an error
that names the limit, and no other request waits for longer meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.core.ledger import ModelResponse
from proxy.exchange.client_response import MANY_CALLS
from proxy.exchange.turn import Turn
from tests.pace import slowness
from tests.ports import held_port, port_of
from tests.wire.proxied import ServedProxy
from tests.wire.test_bad_input import longest_hold
from tests.wire.test_broken_answers import (
    AWAKE,
    IDLE_S,
    LIMIT_S,
    Misbehaving,
    closes,
    flooding,
    hear,
    looks_good,
    provider_at,
    request_of,
)

pytestmark = [pytest.mark.long, pytest.mark.rows("X-54")]
LIMIT_BYTES = 300_000
HOLD_S = 0.05
"""CPU time; of a burst that is read at once 256 KB of comments took 0.4 s."""
FLOOD_BYTES = 512 * 1024
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
JSON_HEAD = HEAD.replace(b"text/event-stream", b"application/json")


def event(data: object, kind: str = "") -> bytes:
    named = f"event: {kind}\n".encode() if kind else b""
    return named + b"data: " + json.dumps(data).encode() + b"\n\n"


def chat(delta: object) -> bytes:
    return event({"id": "x", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]})


def block(kind: str, **more: object) -> bytes:
    return event({"type": kind, **more}, kind)


WORDS = {
    "chat": (chat({"role": "assistant", "content": "hi"}), chat({"content": "and so on "})),
    "messages": (
        block("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        block("content_block_delta", index=0, delta={"type": "text_delta", "text": "and so on "}),
    ),
    "responses": (
        block("response.output_item.added", output_index=0, item={"id": "m", "type": "message", "content": []}),
        block("response.output_text.delta", output_index=0, item_id="m", content_index=0, delta="and so on "),
    ),
}

FIRSTS = {
    "chat": chat({"role": "assistant", "content": ""}),
    "messages": block("message_start", message={"id": "x", "type": "message", "role": "assistant", "content": []}),
    "responses": b"",
}
END = event({"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}) + b"data: [DONE]\n\n"


def call(dialect: str, number: int) -> bytes:
    ident = f"c{number}"
    match dialect:
        case "chat":
            named = {"name": "bash", "arguments": "{}"}
            return chat({"tool_calls": [{"index": number, "id": ident, "type": "function", "function": named}]})
        case "messages":
            used = {"type": "tool_use", "id": ident, "name": "bash", "input": {}}
            return block("content_block_start", index=number, content_block=used)
        case _:
            item = {"id": f"f{number}", "type": "function_call", "call_id": ident, "name": "bash", "arguments": ""}
            return block("response.output_item.added", output_index=number, item=item)


ENDS = {
    "chat": END,
    "messages": block("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 9})
    + block("message_stop"),
    "responses": block("response.completed", response={"id": "r", "status": "completed", "output": []}),
}


def answer_of_calls(dialect: str, count: int, tool: str = "bash") -> bytes:
    """A whole stream."""
    stops = (block("content_block_stop", index=number) if dialect == "messages" else b"" for number in range(count))
    calls = b"".join(call(dialect, number) + stop for number, stop in enumerate(stops))
    return HEAD + FIRSTS[dialect] + calls.replace(b'"bash"', f'"{tool}"'.encode()) + ENDS[dialect]


def calling(dialect: str) -> Misbehaving:
    async def calls(writer: asyncio.StreamWriter) -> None:
        for first in range(0, 10**7, 100):
            writer.write(b"".join(call(dialect, first + more) for more in range(100)))
            await writer.drain()

    return calls


def bursting(piece: bytes, end: bytes) -> Misbehaving:
    async def bursts(writer: asyncio.StreamWriter) -> None:
        for _ in range(FLOOD_BYTES // len(piece)):
            writer.write(piece)
            await writer.drain()
        writer.write(end)
        await writer.drain()

    return bursts


@pytest.fixture(scope="module")
def behind() -> Iterator[int]:
    with held_port() as place:
        yield port_of(place)


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory, behind: int) -> Iterator[ServedProxy]:
    upstream, data = f"http://127.0.0.1:{behind}", tmp_path_factory.mktemp("limited") / "data"
    limits = {"answer_limit_bytes": LIMIT_BYTES, "upstreams__default__idle_timeout_s": LIMIT_S}
    with ServedProxy(upstream, data, **limits) as running:
        yield running


@pytest.fixture(scope="module")
def unlimited(tmp_path_factory: pytest.TempPathFactory, behind: int) -> Iterator[ServedProxy]:
    upstream, data = f"http://127.0.0.1:{behind}", tmp_path_factory.mktemp("unlimited") / "data"
    with ServedProxy(upstream, data, upstreams__default__idle_timeout_s=LIMIT_S) as running:
        yield running


@AWAKE
@pytest.mark.parametrize("dialect", WORDS)
async def test_a_stream_without_end_ends_at_the_limit(
    limited: ServedProxy, behind: int, dialect: str, awake: bool
) -> None:
    first, more = WORDS[dialect]
    async with provider_at(behind, lambda body: (HEAD + first, flooding(more * 50))):
        heard = await hear(limited.port, request_of(dialect, "go on", awake=awake, stream=True))

    assert not looks_good(heard, stream=True)
    assert len(heard.body) < 2 * LIMIT_BYTES
    if awake:  # else half an event may have passed, and a comment would become a part of it
        assert f"beyond {LIMIT_BYTES} bytes (answer_limit_bytes)".encode() in heard.body


async def test_a_plain_answer_without_end_is_an_error_at_the_limit(limited: ServedProxy, behind: int) -> None:
    async with provider_at(behind, lambda body: (JSON_HEAD + b'{"id":"', flooding(b"x\\n" * 2_000))):
        heard = await hear(limited.port, request_of("chat", "go on", awake=True, stream=False))

    assert heard.status == 502
    assert b"answer_limit_bytes" in heard.body


@AWAKE
@pytest.mark.parametrize("dialect", WORDS)
async def test_an_answer_of_calls_without_end_ends(
    unlimited: ServedProxy, behind: int, dialect: str, awake: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes memory that its bytes do not tell. Here at fewer, which a busy machine reads in time."""
    monkeypatch.setattr("proxy.exchange.request_handler.MAX_CALLS", 500)
    async with provider_at(behind, lambda body: (HEAD + WORDS[dialect][0], calling(dialect))):
        heard = await hear(unlimited.port, request_of(dialect, "call", awake=awake, stream=True))

    assert not looks_good(heard, stream=True)
    if awake:
        assert b"beyond 500 calls" in heard.body


@AWAKE
@pytest.mark.parametrize("dialect", WORDS)
async def test_an_answer_of_thousands_of_calls_is_kept_in_steps(
    unlimited: ServedProxy, behind: int, dialect: str, awake: bool
) -> None:
    """The message is built, counted and stored with pauses in between, and the end leaves behind that."""
    longest = []
    for count in (20, 10_000):
        async with provider_at(behind, lambda body, count=count: (answer_of_calls(dialect, count), closes)):  # type: ignore[misc]
            with longest_hold(unlimited) as held:
                heard = await hear(unlimited.port, request_of(dialect, f"call {count}", awake=awake, stream=True))
        assert looks_good(heard, stream=True)
        longest.append(held.longest_s)

    assert longest[1] < 4 * HOLD_S or longest[1] < 4 * HOLD_S * slowness(), longest


async def test_a_flood_of_calls_is_not_written_down_again_and_again(
    unlimited: ServedProxy, behind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A draft has all that came, so each of them takes longer than the one before."""
    drafts: list[int] = []

    def note(turn: Turn, spoken: ModelResponse, now: int) -> None:
        drafts.append(len(spoken.message.calls))

    # Patched: a draft leaves no trace behind the answer, and whether its time comes depends on the machine.
    monkeypatch.setattr(Turn, "store_draft", note)
    monkeypatch.setattr("proxy.exchange.request_handler.DRAFT_DELAY_S", 0)
    answer = answer_of_calls("chat", 3_000)

    async def says_on(writer: asyncio.StreamWriter) -> None:
        for start in range(len(answer) // 100, len(answer), len(answer) // 100):
            writer.write(answer[start : start + len(answer) // 100])
            await writer.drain()

    async with provider_at(behind, lambda body: (answer[: len(answer) // 100], says_on)):
        heard = await hear(unlimited.port, request_of("chat", "call 3000", awake=True, stream=True))

    assert looks_good(heard, stream=True)
    assert 0 < max(drafts) <= MANY_CALLS


@pytest.mark.parametrize("dialect", WORDS)
async def test_more_calls_of_ours_than_any_model_makes_at_once_are_refused(
    unlimited: ServedProxy, behind: int, dialect: str
) -> None:
    """Each may read all of a conversation: of 20,000 in eight rounds others waited for 10 s at a time."""
    outs = iter([answer_of_calls(dialect, 1_000, "stack_recall")])
    async with provider_at(behind, lambda body: (next(outs), closes)):
        heard = await hear(unlimited.port, request_of(dialect, "recall", awake=True, stream=True))

    assert not looks_good(heard, stream=True)
    assert b"went on beyond 128 calls of the proxy's own tools" in heard.body


@AWAKE
@pytest.mark.parametrize("begun", [True, False], ids=["begun", "nothing-yet"])
@pytest.mark.parametrize("piece", [b": c\n\n", b"\n", b": c\r\n\r\n"], ids=["comments", "blank", "crlf"])
async def test_a_flood_of_nothing_holds_nobody_up(
    unlimited: ServedProxy, behind: int, awake: bool, begun: bool, piece: bytes
) -> None:
    """An answer that never has to be waited for lets others have their turn, and is whole at its end."""
    first, more = WORDS["chat"]
    flood = bursting(piece * 2_000, (b"" if begun else first) + more + END)

    def said(body: bytes) -> tuple[bytes, Misbehaving]:
        is_first_ever = b"warm up" in body
        return (HEAD + first + more + END, closes) if is_first_ever else (HEAD + (first if begun else b""), flood)

    async with provider_at(behind, said):
        await hear(unlimited.port, request_of("chat", "warm up", awake=awake, stream=True))
        with longest_hold(unlimited) as held:
            heard = await hear(unlimited.port, request_of("chat", "wait", awake=awake, stream=True))

    assert looks_good(heard, stream=True)
    assert heard.body.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    assert held.longest_s < HOLD_S or held.longest_s < HOLD_S * slowness()


@AWAKE
@pytest.mark.parametrize(
    "piece", [b": PROCESSING\n\n", b'event: ping\ndata: {"type": "ping"}\n\n'], ids=["comments", "pings"]
)
async def test_an_answer_that_only_says_that_it_works_ends(
    behind: int, tmp_path: Path, awake: bool, piece: bytes
) -> None:
    """Four times as long as silence may last: an hour by default, where queues of providers take ten minutes."""

    async def works_on(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(IDLE_S / 4)

    first = block("message_start", message={"id": "x", "type": "message", "role": "assistant", "content": []})
    with ServedProxy(f"http://127.0.0.1:{behind}", tmp_path, upstreams__default__idle_timeout_s=IDLE_S) as proxy:
        async with provider_at(behind, lambda body: (HEAD + first, works_on)):
            heard = await hear(proxy.port, request_of("messages", "wait", awake=awake, stream=True))

    assert not looks_good(heard, stream=True)
    assert heard.body.count(piece) >= 4 * 3
    assert b"or only keep-alives for 4 times that" in heard.body
