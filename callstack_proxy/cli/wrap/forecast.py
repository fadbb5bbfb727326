"""What mode `active` would have made of conversations that mode `shadow` recorded: they are replayed from the store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from callstack_proxy.cli.store_access import opened_store
from callstack_proxy.management.reports import ReceiptTotals
from callstack_proxy.replay import (
    NotReplayable,
    Recording,
    ReplayOptions,
    ReplayResult,
    replay_recording,
    stored_recording,
    sum_rows,
)
from proxy.config import Config


def replay_as_active(settings: Config, conversations: Iterable[str]) -> ReceiptTotals | None:
    """Their totals; None where none of them can be replayed. Raises ProxyError where the store cannot be read."""
    options = ReplayOptions(settings.model_copy(update={"mode": "active"}))
    played: list[ReplayResult] = []
    for recording in asyncio.run(_recordings(settings, conversations, options)):
        with suppress(NotReplayable):
            played.append(replay_recording(recording, options, f"{settings.data}", lambda _: None))
    return sum_rows(played) if played else None


async def _recordings(settings: Config, conversations: Iterable[str], options: ReplayOptions) -> list[Recording]:
    found: list[Recording] = []
    async with opened_store(settings) as store:
        for conversation in conversations:
            with suppress(NotReplayable):
                found.append(await stored_recording(store, conversation, clock=options.clock))
    return found
