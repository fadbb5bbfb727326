"""Runs the proxy for an hour under the traffic of many clients, and says whether anything grows.

python bench/soak.py                        # one hour; exit code 1 where memory grows or a request failed
python bench/soak.py --minutes 10

Clients of three dialects come and go (`soak_clients.py`) in front of `callstack serve`, behind which the scripted
provider answers. Every ten seconds the kernel is asked what the proxy and its children hold. The slope of a figure is
that of the line through its samples of the second half: in the first, clients that hurry fill what has a size.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import load
import payloads
import processes
import run
from soak_clients import AWAKE_TOKENS, Traffic, come_and_go, write_scenario

CLIENTS = 12
LIMIT_MB_PER_HOUR = 24.0
"""What memory may grow by in an hour, by the slope of the second half."""
HURRIED_SHARE = 0.4
"""The share of the run at its beginning in which clients do not pause, so that what has a size is full by its half."""
PROBES = 5
HOUR_S = 3_600


@dataclass(frozen=True, slots=True)
class Sample:
    """What is known at one moment, in the order of the table's rows."""

    at_s: float
    memory_mb: float
    descriptors: float
    threads: float
    store_mb: float
    requests_per_s: float
    added_ms: float


FIGURES = [each.name for each in fields(Sample)[1:]]


def held(pid: int, folder: Path) -> tuple[float, float, float, float]:
    """Memory in MB, open descriptors and threads of the process and its children; MB of the store."""
    family = processes.family(pid)
    descriptors = sum(len(list(Path(f"/proc/{member}/fd").iterdir())) for member in family)
    threads = sum(len(list(Path(f"/proc/{member}/task").iterdir())) for member in family)
    stored = sum(path.stat().st_size for path in folder.glob("callstack.db*"))
    return processes.resident_mb(pid), float(descriptors), float(threads), stored / 2**20


async def added_ms(direct: str, proxied: str) -> float:
    """What a small request takes longer through the proxy; the median of some."""
    body = payloads.request("small")
    taken: dict[str, list[float]] = {direct: [], proxied: []}
    for _ in range(PROBES):
        for base, times in taken.items():
            times += (await load.repeat(base, lambda _: body, 1)).total_ms
    return statistics.median(taken[proxied]) - statistics.median(taken[direct])


async def soak(
    provider: str, proxy: processes.Running, folder: Path, asked: argparse.Namespace
) -> tuple[list[Sample], Traffic]:
    traffic, samples = Traffic(), list[Sample]()
    chance = random.Random(asked.seed)  # noqa: S311 - traffic, not secrets
    clients = [
        asyncio.create_task(come_and_go(proxy.base, traffic, random.Random(chance.getrandbits(32))))  # noqa: S311
        for _ in range(asked.clients)
    ]
    began = time.monotonic()
    before, counted_at = 0, began
    try:
        while time.monotonic() - began < asked.minutes * 60:
            await asyncio.sleep(asked.every)
            traffic.is_hurried = time.monotonic() - began < asked.minutes * 60 * HURRIED_SHARE
            if ended := [client for client in clients if client.done()]:
                await ended[0]  # a fault of this script
            now, total = time.monotonic(), traffic.requests.total()
            rate, before, counted_at = (total - before) / (now - counted_at), total, now
            samples.append(Sample(now - began, *held(proxy.pid, folder), rate, await added_ms(provider, proxy.base)))
            print(f"  {line_of(samples[-1])}", file=sys.stderr, flush=True)
    finally:
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
    return samples, traffic


def line_of(sample: Sample) -> str:
    return "  ".join(f"{each.name} {value:.1f}" for each, value in zip(fields(sample), astuple(sample), strict=True))


def slope_per_hour(times_s: Sequence[float], values: Sequence[float]) -> float:
    """Of the line through the values, by least squares; 0 for a single one."""
    if len(values) == 1:
        return 0.0
    return statistics.linear_regression(times_s, values).slope * HOUR_S


def slopes_of(samples: Sequence[Sample]) -> dict[str, float]:
    """Of each figure an hour, over the second half."""
    second = samples[len(samples) // 2 :]
    times = [sample.at_s for sample in second]
    return {name: slope_per_hour(times, [getattr(sample, name) for sample in second]) for name in FIGURES}


def table(samples: Sequence[Sample], slopes: dict[str, float]) -> list[str]:
    """A row for each figure."""
    rows = [f"{'':16} {'first':>9} {'middle':>9} {'last':>9} {'most':>9} {'slope/hour':>11}"]
    for name in FIGURES:
        values = [float(getattr(sample, name)) for sample in samples]
        told = " ".join(f"{value:9.1f}" for value in (values[0], values[len(values) // 2], values[-1], max(values)))
        rows.append(f"{name:16} {told} {slopes[name]:11.1f}")
    return rows


def faults(slopes: dict[str, float], traffic: Traffic, limit: float) -> list[str]:
    """Why the run was not good, each in a line."""
    found = [f"failed: {each}" for each in traffic.failures]
    if slopes["memory_mb"] > limit:
        found.append(f"memory grows by {slopes['memory_mb']:.1f} MB an hour in the second half; the limit is {limit:g}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--every", type=float, default=10, help="seconds between two samples")
    parser.add_argument("--limit", type=float, default=LIMIT_MB_PER_HOUR, help="MB that memory may grow by in an hour")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], help="a setting of the proxy, as for `callstack serve`")
    asked = parser.parse_args()
    with ExitStack() as running, tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        port, at = processes.free_port(), processes.free_port()
        script = [sys.executable, "-m", "llm_test_provider", str(write_scenario(folder)), "--port", str(port)]
        provider = running.enter_context(processes.started(script, port, folder / "provider.log"))
        data = folder / "data"
        served = run.command("proxy", at, provider.base, data, [f"wake_at_tokens={AWAKE_TOKENS}", *asked.set])
        proxy = running.enter_context(processes.started(served, at, folder / "proxy.log"))
        samples, traffic = asyncio.run(soak(provider.base, proxy, data, asked))
    slopes = slopes_of(samples)
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in traffic.requests.most_common())
    total, minutes = traffic.requests.total(), samples[-1].at_s / 60
    print(f"{asked.clients} clients for {minutes:.1f} minutes: {total:,} requests ({kinds})")
    print(f"{traffic.failed} failed that must not, {traffic.bypassed} passed without us\n")
    print("\n".join(table(samples, slopes)))
    found = faults(slopes, traffic, asked.limit)
    print("\n".join(["", *found]) if found else f"\nall is level: memory may grow by {asked.limit:g} MB an hour")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
