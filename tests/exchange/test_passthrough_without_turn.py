"""What stands at the end of a stream that passes unread and is broken off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.exchange import passthrough_without_turn

PIECE_BYTES = 64 * 1024


class SlowClient:
    """Takes an answer in pieces as the server writes them; before the second piece of a chunk it reads no more. It
    stands in for one, because no real client stops at a byte that a test chooses."""

    started, client_left = True, False

    def __init__(self) -> None:
        self.came = b""
        self.is_full = asyncio.Event()

    async def start(self, *_: Any) -> None:
        """The head of the answer."""

    async def send(self, chunk: bytes) -> None:
        self.came += chunk[:PIECE_BYTES]
        if rest := chunk[PIECE_BYTES:]:
            self.is_full.set()
            await asyncio.sleep(60)
            self.came += rest


class Streamed:
    status, headers = 200, ((b"content-type", b"text/event-stream"),)

    def header(self, name: bytes) -> bytes:
        return dict(self.headers).get(name, b"")

    async def chunks(self) -> AsyncIterator[bytes]:
        yield b"data: {}\n\n"
        yield b"data: %b\n\n" % (b"x" * 2 * PIECE_BYTES)

    async def aclose(self) -> None:
        """Nothing is open."""


async def test_no_comment_becomes_part_of_an_event_that_left_by_half(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sent(*_: Any) -> Streamed:
        return Streamed()

    # Who stops reading between two pieces of one chunk cannot be timed over a socket, whose buffers take both.
    monkeypatch.setattr(passthrough_without_turn, "_send_upstream", sent)
    passing: Any = SimpleNamespace(client_request=SimpleNamespace(body=b""), untouched_body=b"", request=None)
    record: Any = SimpleNamespace(upstream_status=0, status="asleep", headers=list)
    client: Any = SlowClient()

    copying = asyncio.create_task(passthrough_without_turn._send_and_copy(passing, client, record))
    await client.is_full.wait()
    copying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await copying

    assert client.came.endswith(b"xxx")
