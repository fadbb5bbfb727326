"""What a PostgreSQL store costs against SQLite, and what more workers bring.

python bench/replicas.py           # four minutes; starts a PostgreSQL server of its own

Latency: medium requests (a conversation each) and growing sessions, one client, in turns between the stores. Two
replicas get a session's requests alternately, as from a balancer without affinity. Throughput: eight clients, one
worker and several, in turns. The database runs on the same machine and takes part of its cores; its CPU is told beside.
It has its statistics, as a server has that ran for a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import load
import payloads
import processes
import run

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.postgresql_server import PostgresServer

ROUNDS, REQUESTS, TURNS = 5, 60, 20
CLIENTS, BUSY_REQUESTS, BUSY_ROUNDS = 8, 320, 5
CONNECT_PAUSE_S = 0.02
"""Between the connections of two clients: workers take connections as they come, and all at once go to one."""


def command(port: int, upstream: str, folder: Path, store: str, workers: int = 1) -> list[str]:
    words = run.command("proxy", port, upstream, folder, [f"store={store}"])
    return [*words, *(["--workers", str(workers)] if workers > 1 else [])]


async def session(bases: Sequence[str], seed: int) -> list[float]:
    """The ms of each turn of an agent whose requests go to the bases in turns."""
    writer = payloads.Writer(seed)
    history, taken = payloads.opening(writer), []
    for turn in range(TURNS):
        async with load.Connection(bases[turn % len(bases)]) as connection:
            answer = await connection.send(payloads.body(history, "bench-call"))
        taken.append(answer.total_ms)
        said = json.loads(answer.body)["choices"][0]["message"]
        history = payloads.follow_up(history, said, turn, writer)
    return taken


def medium(base: str, count: int, clients: int, first_seed: int) -> load.Round:
    bodies = [payloads.request("medium", seed=first_seed + at) for at in range(count)]
    return asyncio.run(load.repeat(base, bodies.__getitem__, count, clients))


def latency(subjects: Mapping[str, Sequence[str]]) -> None:
    """Prints the added p50 of each subject over the first one."""
    single: dict[str, list[float]] = {name: [] for name in subjects}
    turns: dict[str, list[float]] = {name: [] for name in subjects}
    for number in range(ROUNDS):
        for name, bases in subjects.items():
            single[name] += medium(bases[0], REQUESTS, 1, 10_000 * (number + 1)).total_ms
            turns[name] += asyncio.run(session(bases, number))
    print("added ms, p50                medium   session")
    direct = next(iter(subjects))
    for name in list(subjects)[1:]:
        added = [statistics.median(each[name]) - statistics.median(each[direct]) for each in (single, turns)]
        print(f"{name:24} {added[0]:10.2f} {added[1]:9.2f}")


Client = Callable[[load.Connection], Awaitable[None]]
"""What one client does on its connection: `BUSY_REQUESTS / CLIENTS` requests, one after the other."""


def first_sights(seed: int) -> Client:
    """Medium conversations that nobody has seen. They are written now, which takes longer than to send them."""
    bodies = [payloads.request("medium", seed=seed + at) for at in range(BUSY_REQUESTS // CLIENTS)]

    async def client(connection: load.Connection) -> None:
        for body in bodies:
            await connection.send(body)

    return client


def growing_session(seed: int) -> Client:
    """The turns of an agent's session."""

    async def client(connection: load.Connection) -> None:
        writer = payloads.Writer(seed)
        history = payloads.opening(writer)
        for turn in range(BUSY_REQUESTS // CLIENTS):
            answer = await connection.send(payloads.body(history, "bench-call"))
            said = json.loads(answer.body)["choices"][0]["message"]
            history = payloads.follow_up(history, said, turn, writer)

    return client


async def busy(base: str, clients: Sequence[Client]) -> float:
    """The seconds that all clients take together, each with a connection of its own."""
    async with AsyncExitStack() as closing:
        connections = []
        for _ in clients:
            connections.append(await closing.enter_async_context(load.Connection(base)))
            await asyncio.sleep(CONNECT_PAUSE_S)
        began = time.perf_counter()
        await asyncio.gather(*(client(each) for client, each in zip(clients, connections, strict=True)))
        return time.perf_counter() - began


def throughput(subjects: Mapping[str, processes.Running], postgres: PostgresServer, urls: Sequence[str]) -> None:
    """Prints requests a second of each, and the CPU of it and of the database."""
    for at in subjects.values():
        asyncio.run(busy(at.base, [first_sights(1), growing_session(1)]))
    for url in urls:
        postgres.run("ANALYZE", url)
    print(f"\nrequests/s, {CLIENTS} clients     median    best   CPU ms of a request: proxy, database")
    for kind, client_of in {"first sights": first_sights, "sessions": growing_session}.items():
        taken: dict[str, list[list[float]]] = {name: [] for name in subjects}
        for number in range(1, BUSY_ROUNDS + 1):
            for name, at in subjects.items():
                clients = [client_of(1_000_000 * number + 1_000 * at_once) for at_once in range(CLIENTS)]
                taken[name].append(_measured(at, postgres.pid, clients))
        print(kind)
        for name, rounds in taken.items():
            rate, proxy_ms, database_ms = map(statistics.median, zip(*rounds, strict=True))
            print(f"  {name:22} {rate:8.0f} {max(rounds)[0]:8.0f} {proxy_ms:16.2f} {database_ms:8.2f}")


def _measured(at: processes.Running, database: int, clients: Sequence[Client]) -> list[float]:
    """Requests a second, and the CPU ms of one: of the proxy and of the database."""
    before = processes.cpu_s(at.pid), processes.cpu_s(database)
    wall_s = asyncio.run(busy(at.base, clients))
    after = processes.cpu_s(at.pid), processes.cpu_s(database)
    cpu_ms = [1_000 * (end - start) / BUSY_REQUESTS for start, end in zip(before, after, strict=True)]
    return [BUSY_REQUESTS / wall_s, *cpu_ms]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    workers = parser.parse_args().workers
    postgres = PostgresServer(durable=True)
    with ExitStack() as running, tempfile.TemporaryDirectory() as place:
        running.callback(postgres.close)
        folder, port = Path(place), processes.free_port()
        provider = [sys.executable, str(Path(__file__).with_name("provider.py")), "--port", str(port)]
        upstream = running.enter_context(processes.started(provider, port, folder / "provider.log")).base

        def serve(name: str, store: str, count: int = 1) -> processes.Running:
            (folder / name).mkdir()
            at, log = processes.free_port(), folder / f"{name}.log"
            return running.enter_context(processes.started(command(at, upstream, folder / name, store, count), at, log))

        shared = postgres.new_database()
        sqlite, alone = serve("sqlite", "sqlite"), serve("postgresql", postgres.new_database())
        pair = [serve(f"replica{at}", shared).base for at in range(2)]
        latency({"direct": [upstream], "SQLite": [sqlite.base], "PostgreSQL": [alone.base], "two replicas": pair})
        served, urls = {"SQLite": sqlite}, [postgres.new_database() for _ in workers]
        for count, url in zip(workers, urls, strict=True):
            name = f"PostgreSQL, {count} worker{'s' if count > 1 else ''}"
            served[name] = serve(f"workers{count}", url, count)
        throughput(served, postgres, urls)
    return 0


if __name__ == "__main__":
    sys.exit(main())
