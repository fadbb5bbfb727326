"""Writes events to `events.jsonl`, a JSON object a line, in a thread. If the disk fails, the log says so once and
events are lost. A file larger than `MAX_FILE_BYTES` becomes `events.1.jsonl`, so there are at most two."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from proxy.telemetry import EventBus, NumberedEvent

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 16 << 20
BATCH_INTERVAL_S = 0.5
"""Events within this time are written together."""
WAIT_TIMEOUT_S = 3600.0


class EventFileWriter:
    """Writes the events of the bus into `folder` until cancelled."""

    def __init__(self, feed: EventBus, folder: Path) -> None:
        self._event_bus = feed
        self.path = folder / "events.jsonl"
        self._is_failing = False

    async def run(self) -> None:
        with self._event_bus.listen(None) as listener:
            try:
                while True:
                    told, missed = await listener.wait_for_events(WAIT_TIMEOUT_S)
                    await self._write_in_thread(told, missed)
                    await asyncio.sleep(BATCH_INTERVAL_S)
            finally:
                self._write(list(listener.waiting), listener.missed)

    async def _write_in_thread(self, events: Sequence[NumberedEvent], missed: int) -> None:
        if not events and not missed:
            return
        writing = asyncio.ensure_future(asyncio.to_thread(self._write, events, missed))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await writing  # what was taken from the queue is written before the end, in its order
            raise

    def _write(self, events: Sequence[NumberedEvent], missed: int) -> None:
        lines = [msgspec.json.encode(each.event.as_dict()) + b"\n" for each in events]
        if missed:
            lines.append(msgspec.json.encode({"type": "missed", "count": missed}) + b"\n")
        try:
            self._rotate_if_large()
            opened = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(opened, "ab") as file:
                file.write(b"".join(lines))
            self._is_failing = False
        except OSError as error:
            if not self._is_failing:
                log.warning("events.jsonl cannot be written", extra={"cause": error.strerror or "unknown"})
            self._is_failing = True

    def _rotate_if_large(self) -> None:
        if self.path.exists() and self.path.stat().st_size >= MAX_FILE_BYTES:
            self.path.replace(self.path.with_name("events.1.jsonl"))
