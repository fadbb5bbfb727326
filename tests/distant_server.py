"""A server at a distance: a relay in a thread of its own that delivers every byte later, in both directions, or not at
all while the link is held."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

LIMIT = 1 << 20
START_S = 5


class Link:
    """A relay to the server at `port` on this machine. `round_trip_s` may change while it runs."""

    def __init__(self, port: int, round_trip_s: float) -> None:
        self.port = 0
        """Where the relay listens."""
        self.round_trip_s = round_trip_s
        self._server_port = port
        self._loop = asyncio.new_event_loop()
        self._is_open = asyncio.Event()
        self._listens = threading.Event()
        self._writers: list[asyncio.StreamWriter] = []
        self._task = self._loop.create_task(self._run())
        self._thread = threading.Thread(target=self._work, name="link")
        self._is_open.set()
        self._thread.start()
        assert self._listens.wait(START_S)

    def hold(self) -> None:
        """Nothing passes from now on, and nobody is told: as where a cable is cut."""
        self._loop.call_soon_threadsafe(self._is_open.clear)

    def let_go(self) -> None:
        """What was held passes."""
        self._loop.call_soon_threadsafe(self._is_open.set)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(START_S)

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)
        for writer in self._writers:
            writer.transport.abort()
        rest = asyncio.all_tasks(self._loop)
        for each in rest:
            each.cancel()
        self._loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
        self._loop.close()

    async def _run(self) -> None:
        server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._listens.set()
        await server.serve_forever()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._is_open.wait()
        try:
            there, to = await asyncio.open_connection("127.0.0.1", self._server_port)
        except OSError:
            writer.close()
            return
        self._writers += (writer, to)
        with suppress(asyncio.CancelledError):  # at the end; the library would log it
            await asyncio.gather(self._carry(reader, to), self._carry(there, writer))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """What comes later does not wait for what is under way, and does not overtake it."""
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        delivering = self._loop.create_task(self._deliver(under_way, writer))
        data = b"-"
        while data:
            try:
                data = await reader.read(LIMIT)
            except OSError:
                data = b""
            under_way.put_nowait((self._loop.time() + self.round_trip_s / 2, data))
        await delivering

    async def _deliver(self, under_way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        while True:
            due, data = await under_way.get()
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            await self._is_open.wait()
            if not data:
                writer.close()
                return
            writer.write(data)


@contextmanager
def at_distance(port: int, round_trip_s: float = 0.0) -> Iterator[Link]:
    """A link to a server on this machine, behind which a round trip takes that much longer."""
    link = Link(port, round_trip_s)
    try:
        yield link
    finally:
        link.close()
