"""`events.jsonl`: what happens, a JSON object a line, beside the database; for whoever collects files (S1-162).

The law: **it never holds anything up**. It listens like everybody else, writes in a thread, and where the disk does not
take it the log says so once and what came is gone. A file that has grown past `LARGEST` is kept as `events.1.jsonl`,
and the one before it goes: there are two at most.

What this module does not do: it is no record. What was decided is in the store, and stays there when this is deleted.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from proxy.telemetry.event_bus import Feed, Numbered

log = logging.getLogger(__name__)

LARGEST = 16 << 20
"""Bytes from which a new file is begun."""
AT_ONCE_S = 0.5
"""What comes within this time is written together."""
PATIENCE_S = 3600.0


class EventFile:
    """Writes what `feed` tells into `folder` until it is cancelled."""

    def __init__(self, feed: Feed, folder: Path) -> None:
        self._feed = feed
        self.path = folder / "events.jsonl"
        self._fails = False

    async def run(self) -> None:
        with self._feed.heard(None) as listener:
            try:
                while True:
                    told, missed = await listener.news(PATIENCE_S)
                    await self._keep(told, missed)
                    await asyncio.sleep(AT_ONCE_S)
            finally:
                self._written(list(listener.waiting), listener.missed)

    async def _keep(self, told: Sequence[Numbered], missed: int) -> None:
        if not told and not missed:
            return
        writing = asyncio.ensure_future(asyncio.to_thread(self._written, told, missed))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await writing  # what was taken from the queue is written before the end, in its order
            raise

    def _written(self, told: Sequence[Numbered], missed: int) -> None:
        lines = [msgspec.json.encode(each.happening.told()) + b"\n" for each in told]
        if missed:
            lines.append(msgspec.json.encode({"type": "missed", "count": missed}) + b"\n")
        try:
            self._begun_anew()
            opened = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(opened, "ab") as file:
                file.write(b"".join(lines))
            self._fails = False
        except OSError as error:
            if not self._fails:
                log.warning("events.jsonl cannot be written", extra={"cause": error.strerror or "unknown"})
            self._fails = True

    def _begun_anew(self) -> None:
        if self.path.exists() and self.path.stat().st_size >= LARGEST:
            self.path.replace(self.path.with_name("events.1.jsonl"))
