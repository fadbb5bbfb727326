"""What a PostgreSQL store costs against SQLite, and what more workers bring.

python bench/replicas.py           # two minutes; starts a PostgreSQL server of its own

Latency: medium requests (a conversation each) and growing sessions, one client, in turns between the stores. Two
replicas get a session's requests alternately, as from a balancer without affinity. Throughput: eight clients, one
worker and several. The database runs on the same machine and takes part of its cores; its CPU is told beside.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import load
import payloads
import processes
import run

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.postgresql_server import PostgresServer

ROUNDS, REQUESTS, TURNS = 5, 60, 20
CLIENTS, BUSY_REQUESTS = 8, 400


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


def throughput(subjects: Mapping[str, processes.Running], database: int) -> None:
    """Prints requests a second of each, and the CPU of it and of the database."""
    print(f"\nrequests/s, {CLIENTS} clients        medium   CPU s per 1,000: proxy, database")
    taken: dict[str, list[tuple[float, float, float]]] = {name: [] for name in subjects}
    for number in range(3):
        for name, at in subjects.items():
            before = processes.cpu_s(at.pid), processes.cpu_s(database)
            wall_s = medium(at.base, BUSY_REQUESTS, CLIENTS, 1_000_000 * (number + 1)).wall_s
            proxy_s, database_s = processes.cpu_s(at.pid) - before[0], processes.cpu_s(database) - before[1]
            per_1000 = 1_000 / BUSY_REQUESTS
            taken[name].append((BUSY_REQUESTS / wall_s, proxy_s * per_1000, database_s * per_1000))
    for name, rounds in taken.items():
        rate, proxy_s, database_s = (statistics.median(column) for column in zip(*rounds, strict=True))
        print(f"{name:24} {rate:10.0f} {proxy_s:16.2f} {database_s:8.2f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--workers", type=int, default=4)
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
        many = serve("workers", postgres.new_database(), workers)
        served = {"SQLite": sqlite, "PostgreSQL, 1 worker": alone, f"PostgreSQL, {workers} workers": many}
        throughput(served, postgres.pid)
    return 0


if __name__ == "__main__":
    sys.exit(main())
