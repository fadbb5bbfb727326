"""Measures `callstack statusline` and `callstack hook` with a proxy that runs, beside an interpreter that does nothing,
in one run.

python bench/statusline.py          20 rounds; exit code 1 when one takes more than 5 times the CPU of `python -c pass`

A client runs the first several times a second and wants its line within 50 ms; only the ratio can be compared between
machines.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import processes

HERE = Path(__file__).resolve().parent
MAX_RATIO = 5.0
NOTHING, LINE, HOOK = "python -c pass", "callstack statusline", "callstack hook"
TYPED = b'{"session_id": "never seen", "hook_event_name": "SessionStart", "source": "startup"}'
SAID = {NOTHING: b"", LINE: b"callstack nothing saved today\n", HOOK: b""}


def run_ms(command: Sequence[str]) -> tuple[float, float, bytes]:
    """CPU and time of a process, and what it printed."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    said = subprocess.run(command, input=TYPED, stdout=subprocess.PIPE, check=True).stdout
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000, wall * 1000, said


def measured(rounds: int, data: Path) -> dict[str, list[tuple[float, float]]]:
    """(CPU, time) in ms of each run; one after the other, so a busy machine disturbs both alike."""
    commands = {
        NOTHING: [sys.executable, "-c", "pass"],
        LINE: [sys.executable, "-m", "callstack_proxy", "statusline", "--data", str(data)],
        HOOK: [sys.executable, "-m", "callstack_proxy", "hook", "--data", str(data)],
    }
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, command in commands.items():
            cpu, wall, said = run_ms(command)
            if number:  # the first builds the API of the proxy, and compiles
                figures[name].append((cpu, wall))
                if said != SAID[name]:
                    sys.exit(f"the proxy was not asked: {said.decode()}")
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as place:
        folder, ports = Path(place), [processes.free_port() for _ in range(2)]
        behind = [sys.executable, str(HERE / "provider.py"), "--port", str(ports[0])]
        with processes.started(behind, ports[0], folder / "provider.log") as provider:
            serve = [
                sys.executable,
                "-m",
                "callstack_proxy",
                "serve",
                "--port",
                str(ports[1]),
                "--upstream",
                provider.base,
            ]
            with processes.started([*serve, "--data", str(folder / "data")], ports[1], folder / "proxy.log"):
                for _ in range(20):  # until the API is built
                    run_ms([sys.executable, "-m", "callstack_proxy", "statusline", "--data", str(folder / "data")])
                figures = measured(rounds, folder / "data")
    cpu, wall = (
        {name: statistics.median(each[at] for each in rows) for name, rows in figures.items()} for at in range(2)
    )
    for name in figures:
        print(f"{name:22} {cpu[name]:6.1f} ms CPU {wall[name]:6.1f} ms")
    ratios = [cpu[name] / cpu[NOTHING] for name in (LINE, HOOK)]
    print(f"{ratios[0]:.1f} and {ratios[1]:.1f} times the CPU, at most {MAX_RATIO:.0f}")
    sys.exit(max(ratios) > MAX_RATIO)


if __name__ == "__main__":
    main()
