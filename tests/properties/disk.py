"""What lies on disk, read by opening the store's file once more, as another process would."""

from __future__ import annotations

import asyncio
from pathlib import Path

from proxy.core.ledger.ledger import Ledger
from proxy.store.sql import open_store


def ledgers(data: Path, url: str = "sqlite") -> list[Ledger]:
    """Every conversation of every tenant in this data directory, the newest first; or in the store `url`."""
    return asyncio.run(_loaded(data, url))


def texts(data: Path, url: str = "sqlite") -> dict[str, frozenset[str]]:
    """The stored texts of all messages, by conversation."""
    return {ledger.conversation.id: _texts(ledger) for ledger in ledgers(data, url)}


def _texts(ledger: Ledger) -> frozenset[str]:
    said = [entry.message.wire for entry in ledger.entries.values() if entry.message]
    rounds = [done for all_of_it in ledger.rounds.values() for done in all_of_it]
    produced = [wire for done in rounds for wire in (done.spoken.message.wire, *(r.wire for r in done.results))]
    return frozenset(wire.decode("utf-8", "surrogateescape") for wire in (*said, *produced))


async def _loaded(data: Path, url: str) -> list[Ledger]:
    store = open_store(url, data)
    await store.start()
    try:
        known = await store.conversations(None, limit=1_000_000)
        found = [await store.load(each.tenant, each.id) for each in known]
    finally:
        await store.close()
    return [ledger for ledger in found if ledger is not None]
