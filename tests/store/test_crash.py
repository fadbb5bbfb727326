"""D1, D13 in small: a process killed while it writes loses nothing it was told is on disk, and tears nothing."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.conftest import Making, rows

WRITER = """
import asyncio, sys
from pathlib import Path
from proxy.store.interface import LedgerRecord
from proxy.store.sql import open_store
from tests.store.values import entry, opened

async def main():
    store = open_store("sqlite:" + sys.argv[1], Path())
    await store.start()
    name, at = sys.argv[2], 0
    await store.wait_until_durable(store.write("a", opened(name, entry("m0"))))
    print(0, flush=True)
    while True:
        group = [LedgerRecord(name, entry(f"m{n}", f"m{n - 1}", "words " * 300, seq=n)) for n in range(at + 1, at + 4)]
        at += 3
        await store.wait_until_durable(store.write("a", group))
        print(at, flush=True)

asyncio.run(main())
"""
KILLS = 10
BATCH = 3


@pytest.mark.long
async def test_ten_kills_lose_no_acknowledged_record_and_tear_no_batch(making: Making, path: Path) -> None:
    chance = random.Random(7)
    for kill in range(KILLS):
        acknowledged = await asyncio.to_thread(killed_after, path, f"c{kill}", chance.randrange(1, 30))

        store = await making()
        ledger = await store.load("a", f"c{kill}")
        await store.close()

        assert ledger is not None
        assert len(ledger.entries) > acknowledged
        assert (len(ledger.entries) - 1) % BATCH == 0
        newest = ledger.newest_tip()
        assert newest is not None
        assert len(ledger.path(newest.id)) == len(ledger.entries)
        assert rows(path, "PRAGMA integrity_check") == [("ok",)]


def killed_after(path: Path, name: str, acknowledgements: int) -> int:
    """Kill a writer when it has acknowledged so often; the last number it told."""
    command = [sys.executable, "-c", WRITER, str(path), name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        told = [int(process.stdout.readline()) for _ in range(acknowledgements)]
        process.kill()
        told.extend(int(line) for line in process.stdout.read().split(b"\n")[:-1] if line)
    return told[-1]
