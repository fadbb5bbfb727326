"""Processes under measurement: start, wait until they answer, read what the kernel counted for them, end.

CPU and memory are those of the process and all its children, from /proc, so this runs on Linux. Each process is ended
by the number we started it under.
"""

import asyncio
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import load
import payloads

CPU_CLOCK_OF_PROCESS = 2
"""How Linux numbers the clock that counts what all threads of a process ran (clock_getcpuclockid(3))."""
ENDED_CHILDREN = slice(13, 15)
"""Where a process's stat has user and system time of children that it waited for, counted behind its name."""
START_LIMIT_S = 30
STOP_LIMIT_S = 10


class DidNotStart(Exception):
    """The process ended, or never answered; the message holds the end of what it said."""


@dataclass(frozen=True, slots=True)
class Running:
    """A process that answers at `base`. `start_s` is from its start to its first complete answer."""

    base: str
    pid: int
    start_s: float


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def started(command: Sequence[str], port: int, log: Path) -> Iterator[Running]:
    """The process while it runs, from its first answer on. Raises DidNotStart."""
    began = time.perf_counter()
    # Compiled modules are kept, as on a user's machine; a shell that forbids it would time the compiler at each start.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, env=environment
        )
    base = f"http://127.0.0.1:{port}"
    try:
        until_it_answers(process, base, began, log)
        yield Running(base, process.pid, time.perf_counter() - began)
    finally:
        stop(process)


def until_it_answers(process: subprocess.Popen[bytes], base: str, began: float, log: Path) -> None:
    """Returns at the first complete answer to a small completion."""
    body = payloads.request("small")
    while time.perf_counter() - began < START_LIMIT_S:
        try:
            asyncio.run(load.repeat(base, lambda _: body, 1))
        except (OSError, asyncio.IncompleteReadError, load.RequestFailed) as reason:
            failure = reason
        else:
            return
        if process.poll() is not None:
            break
        time.sleep(0.005)
    raise DidNotStart(f"{failure}\n{log.read_text(errors='replace')[-2000:]}")


def stop(process: subprocess.Popen[bytes]) -> None:
    """Asks the process to end, and ends it when it does not."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def family(pid: int) -> list[int]:
    """The process and its children, theirs included."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := stat_fields(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for member in found:  # grows while we walk it
        found += children.get(member, [])
    return found


def stat_fields(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def cpu_s(pid: int) -> float:
    """CPU seconds the process and its children have used, user and system, also children that have ended."""
    return sum(map(_cpu_clock, family(pid))) + _cpu_of_ended_children(pid)


def _cpu_of_ended_children(pid: int) -> float:
    """In hundredths of a second; 0 where the process is gone."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, told[ENDED_CHILDREN])) / os.sysconf("SC_CLK_TCK")


def _cpu_clock(pid: int) -> float:
    """By the kernel's clock of the process, in ns: /proc/PID/stat tells hundredths of a second, and the floor takes ten
    of them in a round of small requests. 0 where the process is gone."""
    try:
        return time.clock_gettime((~pid << 3) | CPU_CLOCK_OF_PROCESS)
    except OSError:
        return 0.0


def resident_mb(pid: int) -> float:
    """Resident memory of the process and its children, in MB of 2**20 bytes."""
    pages = [int(Path(f"/proc/{member}/statm").read_text().split()[1]) for member in family(pid)]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20
