"""Captured sessions of real clients: a request that sends more than its client and cuts nothing is told no saving.

The recordings are other people's, so they stay outside the project: without them these tests skip and say so.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from callstack_proxy.config_sources import load_config
from callstack_proxy.replay.player import _Player
from callstack_proxy.replay.recording import Recording
from callstack_proxy.replay.recording_formats import read_recordings
from callstack_proxy.replay.services import TENANT
from proxy.accounting import Receipt
from proxy.core.ledger import Request

CAPTURES = Path(__file__).resolve().parents[3] / "shared" / "captures"
FILES = sorted(CAPTURES.glob("*/*.jsonl"))

pytestmark = pytest.mark.skipif(not FILES, reason="the captured sessions are not beside this checkout")


async def told(recording: Recording, settings: dict[str, object]) -> list[tuple[Receipt, Request, list[Request]]]:
    """Each request's receipt, what the client sent, and what was sent for it."""
    player = _Player(recording, load_config(settings), "a file")
    played: dict[str, tuple[Request, list[Request]]] = {}
    for number, step in enumerate(recording.steps, 1):
        await player.play_step(number, step)
        provider = player._replay.provider
        played[f"r{number:08d}"] = player._parse(step.body), provider.received
    records = await player._replay.store.requests(TENANT, limit=len(recording.steps))
    receipts = (msgspec.json.decode(record.receipt, type=Receipt) for record in records)
    return [(receipt, *played[receipt.id]) for receipt in receipts if receipt.id in played]


def cuts_nothing(client: Request, sent: list[Request]) -> bool:
    theirs = Counter(message.identity for message in client.messages)
    return all(not theirs - Counter(message.identity for message in each.messages) for each in sent)


def broken(recording: Recording, settings: dict[str, object]) -> Iterator[str]:
    for receipt, client, sent in asyncio.run(told(recording, settings)):
        sends_more = sum(each.tokens for each in sent) > client.tokens
        if receipt.saved > 0 and sent and sends_more and cuts_nothing(client, sent):
            yield f"{receipt.id}: {client.tokens} came, {receipt.tokens_sent} left, {receipt.saved:.6f} saved"


@pytest.mark.rows("X-41")
@pytest.mark.parametrize("wake_at", [None, "0"], ids=["as it comes", "awake at once"])
@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_no_captured_request_that_cuts_nothing_is_told_as_cheaper(file: Path, wake_at: str | None) -> None:
    settings: dict[str, object] = {} if wake_at is None else {"wake_at_tokens": wake_at}
    found = [words for recording in read_recordings(file) for words in broken(recording, settings)]
    assert not found
