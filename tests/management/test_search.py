"""How much a search reads (S2-45, X-68)."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from callstack_proxy.management.views import search_frames
from proxy.store import FrameSearchResult, FrameVector, QueryVector
from proxy.store.sql import open_store
from tests.store.values import worked

pytestmark = pytest.mark.rows("S2-45", "X-68")
NEAR = QueryVector("m", (1.0, 0.0), 0.3)


async def test_a_search_in_a_project_does_not_read_all_that_is_near_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With some models everything is near: it read 200 frames and their conversations at a time, up to 5,000. Counted
    at the store, because only the time of an answer would tell."""
    store = open_store("sqlite", tmp_path)
    await store.start()
    for number in range(450):
        store.write("a", worked(f"c{number}", f"Frame {number}"))
    frames = await store.frames_to_embed(0, 500)
    await store.keep_vectors([FrameVector(frame, "m", b"made", struct.pack("<2f", 1, 0)) for frame in frames])
    searches = 0
    search = store.search_finished_frames

    async def counted(*arguments: Any) -> FrameSearchResult:
        nonlocal searches
        searches += 1
        return await search(*arguments)

    async def meaning(_: str) -> QueryVector:
        return NEAR

    # Counted, not replaced: how often the store is asked is the cost, and no answer tells it.
    monkeypatch.setattr(store, "search_finished_frames", counted)
    elsewhere = await search_frames(store, "a", "unheard", 10, project=("shop",), meaning_of=meaning)
    await store.close()

    assert (elsewhere["frames"], elsewhere["meaning"], searches) == ([], "on", 1)
