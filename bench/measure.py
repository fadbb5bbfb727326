"""What is measured, and how: the same work for the direct connection, the floor and the proxy, in turn, in one run.

Turns are interleaved round by round, so what the machine does meanwhile hits all three alike. Each function returns
figures by name for every subject; what a figure should be is not decided here.
"""

import asyncio
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import load
import payloads
import processes

Figures = dict[str, dict[str, float]]
"""Subject -> figure -> value. Units stand in the figures' names."""

DIRECT = "direct"
CONCURRENCY = 8
STREAMS = 4
GAP_MS = 2
FEW_CHUNKS, MANY_CHUNKS, BURST_CHUNKS = 10, 210, 1000
HEALTH = "/health"
VERY_LARGE_MB = (4, 30)
HOSTILE_COUNT = 500
"""Twice of it, too, is too small to wake a conversation, so both sizes are the same kind of work."""
SHORTEST_CPU_S = 0.01
"""What takes less is no measure of growth."""
HOSTILE_BATCH = 4
"""Requests whose CPU is read at once: what is left to do behind the last answer is small beside it."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Something that answers completions. `pid` 0: the provider itself, whose cost is nobody's."""

    name: str
    base: str
    pid: int = 0


@dataclass(frozen=True, slots=True)
class Effort:
    """How much work one run does. Counts are requests per subject and round."""

    rounds: int
    latency: dict[str, int]
    throughput: dict[str, int]
    sessions: int
    streams: int
    first_sights: int
    hostile: int
    very_large: int


FULL = Effort(
    5, {"small": 200, "medium": 60, "large": 20}, {"small": 1500, "medium": 800, "large": 200}, 3, 24, 8, 16, 8
)
QUICK = Effort(3, {"medium": 25}, {"small": 800, "medium": 400}, 2, 48, 0, 8, 3)


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which that share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@dataclass(slots=True)
class Taken:
    """All rounds of one subject."""

    rounds: list[load.Round]
    cpu_s: float = 0.0

    def total_ms(self) -> list[float]:
        """Times of all answers, round after round."""
        return [value for each in self.rounds for value in each.total_ms]

    def first_byte_ms(self) -> list[float]:
        """Times to the first byte of all answers."""
        return [value for each in self.rounds for value in each.first_byte_ms]


def interleaved(
    subjects: Sequence[Subject], rounds: int, work: Callable[[Subject, int], load.Round]
) -> dict[str, Taken]:
    """Every subject does its n-th round before any does the next. CPU is counted over the subject's own rounds."""
    taken = {subject.name: Taken([]) for subject in subjects}
    for number in range(rounds):
        for subject in subjects:
            before = processes.cpu_s(subject.pid) if subject.pid else 0.0
            taken[subject.name].rounds.append(work(subject, number))
            taken[subject.name].cpu_s += (processes.cpu_s(subject.pid) if subject.pid else 0.0) - before
    return taken


def latency(subjects: Sequence[Subject], effort: Effort) -> Figures:
    """`added_p50_ms SIZE`: what one client waits longer than without anything between."""
    figures: Figures = {subject.name: {} for subject in subjects}
    for size, count in effort.latency.items():
        body = payloads.request(size)
        taken = interleaved(subjects, effort.rounds, partial(repeat, body, count, 1))
        direct = quantile(taken[DIRECT].total_ms(), 0.5)
        for name, each in taken.items():
            figures[name][f"p50_ms {size}"] = quantile(each.total_ms(), 0.5)
            figures[name][f"added_p50_ms {size}"] = quantile(each.total_ms(), 0.5) - direct
    return figures


def repeat(body: bytes, count: int, concurrency: int, at: Subject, _round: int) -> load.Round:
    """The same request again and again."""
    return asyncio.run(load.repeat(at.base, lambda _: body, count, concurrency))


def each_once(bodies: Sequence[bytes], at: Subject, _round: int) -> load.Round:
    """Each of these requests, one after the other."""
    return asyncio.run(load.repeat(at.base, bodies.__getitem__, len(bodies)))


def new_session(at: Subject, number: int) -> load.Round:
    """One growing conversation; another one each round."""
    return asyncio.run(load.session(at.base, seed=1000 + number))


def throughput(subjects: Sequence[Subject], effort: Effort) -> Figures:
    """`requests_per_s SIZE` and `cpu_s_per_1000 SIZE` with eight clients."""
    figures: Figures = {subject.name: {} for subject in subjects}
    for size, count in effort.throughput.items():
        body = payloads.request(size)
        taken = interleaved(subjects, effort.rounds, partial(repeat, body, count, CONCURRENCY))
        for name, each in taken.items():
            done = len(each.total_ms())
            figures[name][f"requests_per_s {size}"] = statistics.median(count / turn.wall_s for turn in each.rounds)
            figures[name][f"cpu_s_per_1000 {size}"] = each.cpu_s / done * 1000
    return figures


def growing_session(subjects: Sequence[Subject], effort: Effort) -> Figures:
    """`added_p50_ms session`, `added_p95_ms session`: one agent, its history growing; each round a new one."""
    taken = interleaved(subjects, effort.rounds * effort.sessions, new_session)
    figures: Figures = {}
    for name, each in taken.items():
        added = [ours - direct for ours, direct in zip(each.total_ms(), taken[DIRECT].total_ms(), strict=True)]
        figures[name] = {
            "added_p50_ms session": quantile(added, 0.5),
            "added_p95_ms session": quantile(each.total_ms(), 0.95) - quantile(taken[DIRECT].total_ms(), 0.95),
            "cpu_s_per_1000 session": each.cpu_s / len(added) * 1000,
        }
    return figures


def streams(subjects: Sequence[Subject], effort: Effort) -> Figures:
    """`cpu_us_per_chunk paced|burst` and `added_first_byte_ms stream`.

    The paced figure is the slope between a short and a long stream, so what a request costs by itself falls out of it.
    """

    def streamed(chunks: int, gap_ms: int) -> dict[str, Taken]:
        body = payloads.stream_request(chunks, gap_ms)
        return interleaved(subjects, effort.rounds, partial(repeat, body, effort.streams, STREAMS))

    few, many, burst = streamed(FEW_CHUNKS, GAP_MS), streamed(MANY_CHUNKS, GAP_MS), streamed(BURST_CHUNKS, 0)
    direct = quantile(many[DIRECT].first_byte_ms(), 0.5)
    requests = effort.rounds * effort.streams
    return {
        name: {
            "added_first_byte_ms stream": quantile(many[name].first_byte_ms(), 0.5) - direct,
            "cpu_us_per_chunk paced": (many[name].cpu_s - few[name].cpu_s)
            / requests
            / (MANY_CHUNKS - FEW_CHUNKS)
            * 1e6,
            "cpu_us_per_chunk burst": burst[name].cpu_s / sum(turn.events for turn in burst[name].rounds) * 1e6,
        }
        for name in many
    }


def first_sight(subjects: Sequence[Subject], effort: Effort) -> Figures:
    """`first_sight_added_ms SIZE` for whole conversations nobody has seen, and `loop_stall_ms` meanwhile.

    The stall is how much longer than in peace the slowest of many trivial requests took while large ones came in.
    """
    figures: Figures = {subject.name: {} for subject in subjects}
    for size in ("medium", "large") if effort.first_sights else ():
        bodies = [payloads.request(size, seed=5000 + number) for number in range(effort.first_sights)]
        taken = interleaved(subjects, 1, partial(each_once, bodies))
        for name, each in taken.items():
            added = [ours - direct for ours, direct in zip(each.total_ms(), taken[DIRECT].total_ms(), strict=True)]
            figures[name][f"first_sight_added_ms {size}"] = quantile(added, 0.5)
    for subject in subjects if effort.first_sights else ():
        unseen = [payloads.request("large", seed=7000 + number) for number in range(effort.first_sights)]
        if subject.name != DIRECT:
            figures[subject.name]["loop_stall_ms"] = asyncio.run(stall(subject, unseen))
    return figures


def large_bodies(subjects: Sequence[Subject], effort: Effort, parsing: Subject) -> Figures:
    """`cpu_times_parsing 4_mb|30_mb`: the CPU of each subject as a multiple of what `parsing` takes, which parses each
    body and writes it anew. The proxy knows the history of 4 MB from the request before, and passes 30 MB unread."""
    figures: Figures = {subject.name: {} for subject in subjects}
    for megabytes in VERY_LARGE_MB:
        body = payloads.large_request(megabytes)
        measured = [subject for subject in (parsing, *subjects) if subject.pid]
        for subject in measured:
            repeat(body, 1, 1, subject, 0)
        taken = interleaved(measured, effort.very_large, partial(repeat, body, 1, 1))
        for subject in measured[1:]:
            figures[subject.name][f"cpu_times_parsing {megabytes}_mb"] = taken[subject.name].cpu_s / max(
                taken[parsing.name].cpu_s, SHORTEST_CPU_S
            )
    return figures


def hostile_shapes(subjects: Sequence[Subject], effort: Effort) -> Figures:
    """`growth SHAPE`: the CPU that twice the size takes, as a multiple: 2 where the cost grows as the size, 4 where it
    grows with its square; and `growth` the most of all shapes. `stall_ms SHAPE`: how long others waited meanwhile."""
    figures: Figures = {subject.name: {} for subject in subjects}
    for subject in subjects:
        if not subject.pid:
            continue
        asyncio.run(stall(subject, [payloads.hostile("talk", 10, 0)]))
        for shape in payloads.HOSTILE_SHAPES:
            cpu_s = [0.0, 0.0]
            for first in range(0, effort.hostile, HOSTILE_BATCH):  # in turns: collecting garbage hits both
                for size, count in enumerate((HOSTILE_COUNT, 2 * HOSTILE_COUNT)):
                    batch = [payloads.hostile(shape, count, first + seed) for seed in range(HOSTILE_BATCH)]
                    before = processes.cpu_s(subject.pid)
                    asyncio.run(load.repeat(subject.base, batch.__getitem__, len(batch)))
                    cpu_s[size] += processes.cpu_s(subject.pid) - before
            figures[subject.name][f"growth {shape}"] = cpu_s[1] / max(cpu_s[0], SHORTEST_CPU_S)
            bodies = [
                payloads.hostile(shape, 2 * HOSTILE_COUNT, effort.hostile + seed) for seed in range(effort.hostile)
            ]
            figures[subject.name][f"stall_ms {shape}"] = asyncio.run(stall(subject, bodies))
        grown = [figures[subject.name][f"growth {shape}"] for shape in payloads.HOSTILE_SHAPES]
        figures[subject.name]["growth"] = max(grown)
    return figures


async def stall(subject: Subject, bodies: Sequence[bytes]) -> float:
    """Longest wait for a trivial request while these come in, less the median wait in peace. Milliseconds."""
    async with load.Connection(subject.base) as connection:
        await connection.send(b"", "GET", HEALTH)  # the first one may have to make what answers it
    quiet = await load.repeat(subject.base, lambda _: payloads.request("small"), 20)
    busy = asyncio.create_task(load.repeat(subject.base, bodies.__getitem__, len(bodies)))
    return await load.longest_silence(subject.base, HEALTH, busy) - quantile(quiet.total_ms, 0.5)
