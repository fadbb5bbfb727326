"""Measures the proxy against a direct connection and a bare pass-through, in one run, and prints the ratios.

python bench/run.py                       everything, a few minutes
python bench/run.py --quick --gate        the gates of CI, a minute; exit code 1 when one does not hold
python bench/run.py --set wake_at_tokens=0 --json figures.json
python bench/run.py --target passthrough  the floor against itself: what the method's own noise is
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import measure
import processes
import verdict

HERE = Path(__file__).resolve().parent
FLOOR = "floor"
COLD_STARTS = 3
MEASURED_FOR_A_GATE = 3


def command(target: str, port: int, upstream: str, folder: Path, settings: list[str]) -> list[str]:
    """How a target is started."""
    if target == "passthrough":
        return [sys.executable, str(HERE / "passthrough.py"), "--port", str(port), "--upstream", upstream]
    served = [
        sys.executable,
        "-m",
        "callstack_proxy",
        "serve",
        "--port",
        str(port),
        "--upstream",
        upstream,
        "--data",
        str(folder),
    ]
    return [*served, *(part for setting in settings for part in ("--set", setting))]


def cold_start_s(target: str, upstream: str, folder: Path, settings: list[str]) -> float:
    """Median time from starting the target to its first complete answer, each on an empty store."""
    taken = []
    for number in range(COLD_STARTS):
        port, data = processes.free_port(), folder / f"cold-{number}"
        with processes.started(command(target, port, upstream, data, settings), port, folder / "cold.log") as running:
            taken.append(running.start_s)
    return statistics.median(taken)


def measured(target: str, settings: list[str], effort: measure.Effort, folder: Path) -> measure.Figures:
    """All figures of the direct connection, the floor and the target."""
    with ExitStack() as stack:

        def start(line: list[str], port: int, name: str) -> processes.Running:
            return stack.enter_context(processes.started(line, port, folder / f"{name}.log"))

        ports = [processes.free_port() for _ in range(3)]
        provider = start([sys.executable, str(HERE / "provider.py"), "--port", str(ports[0])], ports[0], "provider")
        cold = {name: cold_start_s(kind, provider.base, folder, settings) for name, kind in named(target)}
        subjects = [measure.Subject(measure.DIRECT, provider.base)]
        for (name, kind), port in zip(named(target), ports[1:], strict=True):
            running = start(command(kind, port, provider.base, folder / name, settings), port, name)
            subjects.append(measure.Subject(name, running.base, running.pid))
        time.sleep(1)  # what a start leaves to do in threads is not "idle" yet
        figures: measure.Figures = {subject.name: {} for subject in subjects}
        note_memory(figures, subjects, "idle")
        for step in (
            measure.latency,
            measure.throughput,
            measure.growing_session,
            measure.streams,
            measure.first_sight,
            measure.hostile_shapes,
        ):
            print(f"  {step.__name__.replace('_', ' ')} ...", file=sys.stderr, flush=True)
            for name, values in step(subjects, effort).items():
                figures[name] |= values
        note_memory(figures, subjects, "loaded")
        print("  large bodies ...", file=sys.stderr, flush=True)
        port = processes.free_port()
        line = [*command("passthrough", port, provider.base, folder, []), "--parse"]
        running = start(line, port, "parsing")
        for name, values in measure.large_bodies(
            subjects, effort, measure.Subject("parsing", running.base, running.pid)
        ).items():
            figures[name] |= values
        for name, seconds in cold.items():
            figures[name]["start_s"] = seconds
        return figures


def named(target: str) -> list[tuple[str, str]]:
    """The two processes between client and provider: the floor's name and kind, the target's name and kind."""
    return [(FLOOR, "passthrough"), (target, target)]


def note_memory(figures: measure.Figures, subjects: list[measure.Subject], when: str) -> None:
    """Adds what each process holds now."""
    for subject in subjects:
        if subject.pid:
            figures[subject.name][f"resident_mb {when}"] = processes.resident_mb(subject.pid)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=["proxy", "passthrough"], default="proxy")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the proxy; repeatable"
    )
    parser.add_argument("--quick", action="store_true", help="only what the gates need")
    parser.add_argument(
        "--gate",
        action="store_true",
        help=f"exit code 1 when a gate does not hold in any of up to {MEASURED_FOR_A_GATE} measurements",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    return parser.parse_args()


def main() -> int:
    """Measures, prints the table, returns the exit code."""
    asked = arguments()
    broken: dict[str, str] = {}
    for attempt in range(MEASURED_FOR_A_GATE if asked.gate else 1):
        with tempfile.TemporaryDirectory(prefix="callstack-bench-") as folder:
            figures = measured(asked.target, asked.set, measure.QUICK if asked.quick else measure.FULL, Path(folder))
        print(verdict.table(figures, FLOOR, asked.target))
        now = verdict.broken_gates(figures, FLOOR, asked.target)
        # A busy machine only ever makes a figure worse, so a gate that held once holds.
        broken = now if attempt == 0 else {figure: now[figure] for figure in broken if figure in now}
        print("\n".join(["", *(f"gate broken: {line}" for line in now.values())]) if now else "\nall gates hold")
        if not broken:
            break
    if asked.json:
        asked.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 1 if broken and asked.gate else 0


if __name__ == "__main__":
    sys.exit(main())
