"""Which rows of finished frames are looked at."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.exchange.background import frame_embedder
from proxy.exchange.background.frame_embedder import FRAMES_PER_CHECK, LOOK_AGAIN_S, FrameEmbedder, RowCursor


def test_a_row_that_another_replica_commits_behind_a_later_one_is_not_passed_over() -> None:
    """Two replicas cannot be made to write in that order from outside."""
    cursor, looked_at = RowCursor(), set[int]()

    for second in range(int(4 * LOOK_AGAIN_S)):
        committed = [4] if second < 10 else [4, 6] if second < 14 else [4, 5, 6]
        found = [number for number in committed if number > cursor.next_after(float(second))]
        looked_at |= set(found)
        cursor.reached(max(found, default=cursor.next_after(float(second))))

    assert looked_at == {4, 5, 6}
    assert cursor.next_after(4 * LOOK_AGAIN_S - 1) == 6


async def test_rows_that_have_vectors_are_passed_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mock: a replica that looks again at what it filled had a third of its pace left."""
    frame = SimpleNamespace(title="Auth", criteria="", results="", noted="")
    known, asked_after = sha256(b"m\nAuth").digest(), list[int]()

    async def frames_to_embed(after: int, limit: int) -> list[Any]:
        asked_after.append(after)
        return [SimpleNamespace(number=after + n, frame=frame, made_of=known) for n in range(1, limit + 1)][
            : 320 - after
        ]

    monkeypatch.setattr(frame_embedder, "CHECK_INTERVAL_S", 0.1)
    monkeypatch.setattr(frame_embedder, "KNOWN_INTERVAL_S", 0.0)
    store: Any = SimpleNamespace(frames_to_embed=frames_to_embed, is_shared=True)
    upstream: Any = None
    with suppress(TimeoutError):
        async with asyncio.timeout(0.35):
            await FrameEmbedder(upstream, "m", 0.5, store).run()

    assert asked_after[:11] == [*range(0, 321, FRAMES_PER_CHECK)]
