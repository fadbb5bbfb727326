"""A server at a distance: a relay in a thread of its own that delivers every byte later, in both directions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

LIMIT = 1 << 20


@contextmanager
def at_distance(port: int, round_trip_s: float) -> Iterator[int]:
    """The port of a relay to a server on this machine, behind which a round trip takes that much longer."""
    loop, listening = asyncio.new_event_loop(), threading.Event()
    found: list[int] = []
    writers: list[asyncio.StreamWriter] = []

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to = await asyncio.open_connection("127.0.0.1", port)
        writers.extend((writer, to))
        await asyncio.gather(_carry(reader, to, round_trip_s / 2), _carry(there, writer, round_trip_s / 2))

    async def run() -> None:
        server = await asyncio.start_server(relay, "127.0.0.1", 0)
        found.append(server.sockets[0].getsockname()[1])
        listening.set()
        await server.serve_forever()

    task = loop.create_task(run())

    def work() -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(task)
        except asyncio.CancelledError:
            pass
        finally:
            for writer in writers:
                writer.transport.abort()
            loop.run_until_complete(asyncio.sleep(round_trip_s + 0.05))  # until all have heard of it
            loop.close()

    thread = threading.Thread(target=work, name="distance")
    thread.start()
    assert listening.wait(5)
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(5)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, late_s: float) -> None:
    """What comes later does not wait for what is under way."""
    loop = asyncio.get_running_loop()
    try:
        while data := await reader.read(LIMIT):
            loop.call_later(late_s, writer.write, data)
    except OSError:
        pass
    finally:
        loop.call_later(late_s, writer.close)
