"""What 10,000 agents would write to a PostgreSQL store: measured for one session, calculated for all.

python bench/scale.py                              # a minute; starts a PostgreSQL server of its own
python bench/scale.py --agents 500 --requests 200  # another team

Sessions of 20 requests are played through one proxy, and the database is asked what it holds and wrote. The rest is
multiplication; `docs/scale.md` says what follows from it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import processes
import replicas
import run

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.postgresql_server import PostgresServer

SESSIONS = 8
TABLES_SQL = (
    "SELECT relname, n_live_tup, pg_total_relation_size(relid) FROM pg_stat_user_tables ORDER BY 3 DESC"  # with indexes
)
WRITTEN_SQL = (
    "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn, xact_commit FROM pg_stat_database WHERE datname = current_database()"
)
BUSY_SHARE = 0.2
"""Of a day's requests, those of its busiest hour: eight working hours, one of them twice as busy as the others."""
KEPT_DAYS = 30
CONNECTIONS_PER_PROXY = 7
"""One that writes, four that read, one that searches, one that listens."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Per request of a session. `tables`: rows and bytes by table, with indexes. `wal`: bytes of the log."""

    tables: Mapping[str, tuple[float, float]]
    wal: float
    commits: float
    cpu_s: float


def measure() -> Measured:
    with ExitStack() as running, tempfile.TemporaryDirectory() as place:
        postgres = PostgresServer(durable=True)
        running.callback(postgres.close)
        folder, port = Path(place), processes.free_port()
        provider = [sys.executable, str(Path(__file__).with_name("provider.py")), "--port", str(port)]
        upstream = running.enter_context(processes.started(provider, port, folder / "provider.log")).base
        url, at = postgres.new_database(), processes.free_port()
        command = run.command("proxy", at, upstream, folder, [f"store={url}"])
        proxy = running.enter_context(processes.started(command, at, folder / "proxy.log"))
        asyncio.run(replicas.session([proxy.base], 1))  # what is loaded and prepared once is not counted
        before, cpu_s = _state(postgres, url), processes.cpu_s(proxy.pid)
        for seed in range(2, 2 + SESSIONS):
            asyncio.run(replicas.session([proxy.base], seed))
        cpu_s = processes.cpu_s(proxy.pid) - cpu_s
        tables, wal, commits = _state(postgres, url)
    count = SESSIONS * replicas.TURNS
    grown = {
        name: ((rows - before[0][name][0]) / count, (size - before[0][name][1]) / count)
        for name, (rows, size) in tables.items()
    }
    return Measured(grown, (wal - before[1]) / count, (commits - before[2]) / count, cpu_s / count)


def _state(postgres: PostgresServer, url: str) -> tuple[dict[str, tuple[int, int]], int, int]:
    """Rows and bytes by table, bytes of log, and commits so far."""
    postgres.run("ANALYZE", url)
    postgres.run("SELECT pg_stat_clear_snapshot()", url)
    tables = {str(name): (int(rows), int(size)) for name, rows, size in postgres.run(TABLES_SQL, url)}
    [(wal, commits)] = postgres.run(WRITTEN_SQL, url)
    return tables, int(wal), int(commits)


def report(found: Measured, agents: int, requests: int) -> None:
    daily = agents * requests
    busiest = daily * BUSY_SHARE / 3_600
    print("per request of a session       rows    bytes")
    for name, (rows, size) in found.tables.items():
        if rows or size > 1:
            print(f"  {name:26} {rows:6.1f} {size:8,.0f}")
    size = sum(size for _, size in found.tables.values())
    print(f"  {'all':26} {sum(rows for rows, _ in found.tables.values()):6.1f} {size:8,.0f}")
    print(f"  write-ahead log                   {found.wal:8,.0f}")
    print(f"  commits                    {found.commits:6.1f}")
    print(f"  CPU of the proxy           {found.cpu_s * 1_000:6.1f} ms")
    workers = busiest * found.cpu_s / 0.7
    print(f"\n{agents:,} agents, {requests:,} requests each a day")
    print(f"  requests a second, in the busiest hour   {busiest:12,.0f}")
    print(f"  commits a second, then                   {busiest * found.commits:12,.0f}")
    print(f"  write-ahead log, MB a second, then       {busiest * found.wal / 1e6:12,.1f}")
    print(f"  proxies (cores, 70 % busy), then         {workers:12,.0f}")
    print(f"  connections of these                     {workers * CONNECTIONS_PER_PROXY:12,.0f}")
    print(f"  rows a day, millions                     {daily * sum(r for r, _ in found.tables.values()) / 1e6:12,.0f}")
    print(f"  GB a day                                 {daily * size / 1e9:12,.0f}")
    print(f"  TB kept, {KEPT_DAYS} days                         {daily * size * KEPT_DAYS / 1e12:12,.1f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=300, help="of each agent on a day")
    chosen = parser.parse_args()
    report(measure(), chosen.agents, chosen.requests)
    return 0


if __name__ == "__main__":
    sys.exit(main())
