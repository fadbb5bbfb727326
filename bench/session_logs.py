"""Measures `callstack savings` on many session logs: when the first figure comes, how long all takes, how much memory.

    python bench/session_logs.py --mb 200

Writes logs as Claude Code does into a folder that is deleted afterwards, a tenth of them forks of others, and replays
them with the command's own code. Prints one line of figures. Processor time is told too, because the rest depends on
what else the machine does. A megabyte of these logs takes as long as one of a real client's (`shared/client-logs`).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

STEPS = 60
"""Answers of a session: 1.1 MB, as in a real log of so many."""
OUTPUT_CHARACTERS = 8_000
"""Of a tool's output. Claude Code writes it twice, the second time for its own screen."""
PROJECTS = 5
CODE_LINES = tuple(
    f"    {name} = {verb}_{name}(rows[{number}], default=None)  # as in the {name} of the month before\n"
    for verb in ("read", "parse", "retry")
    for name in ("total", "invoice", "discount", "customer")
    for number in range(150)
)
DAY_S = 86_400


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    with TemporaryDirectory(prefix="callstack-logs-") as folder:
        files = write_logs(Path(folder) / ".claude" / "projects", chosen.mb * 1_000_000)
        written = sum(path.stat().st_size for path in files) / 1e6
        first_s, whole_s, said = measure(Path(folder), chosen.jobs)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor_s, peak_mb = used.ru_utime + used.ru_stime, used.ru_maxrss / 1_000
    print(
        f"{written:,.0f} MB in {len(files):,} files, {chosen.jobs} jobs: first figure {first_s:.1f} s, "
        f"whole {whole_s:.0f} s ({processor_s:.0f} s of processor time), largest process {peak_mb:,.0f} MB"
    )
    print(said)


def write_logs(folder: Path, size: int) -> list[Path]:
    """Files of a year, until they have `size` bytes together."""
    chance, files, written, newest = random.Random(36), list[Path](), 0, time.time()  # noqa: S311 - the same each time
    while written < size:
        number = len(files)
        path = folder / f"-work-project{number % PROJECTS}" / f"session-{number:05}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        if number % 10 == 9:  # a fork: the beginning of another session, and more
            kept = files[-1].read_text().splitlines(keepends=True)[: STEPS * 2]
            named = f'"sessionId": "session-{number - 1:05}"'
            kept = [line.replace(named, f'"sessionId": "{path.stem}"') for line in kept]
        else:
            kept = []
        with path.open("w") as file:
            file.writelines(kept)
            file.writelines(json.dumps(line) + "\n" for line in lines_of(path.stem, number, len(kept), chance))
        os.utime(path, (newest - number * DAY_S / 20,) * 2)
        written += path.stat().st_size
        files.append(path)
    return files


def lines_of(session: str, number: int, first: int, chance: random.Random) -> Iterator[dict[str, object]]:
    """A task of `STEPS` answers, each of which reads a file."""
    about = {
        "sessionId": session,
        "version": "2.1.330",
        "isSidechain": False,
        "cwd": f"/repos/project{number % PROJECTS}",
    }
    at = 1_790_000_000 + number * 40_000
    before: str | None = None

    def line(kind: str, message: dict[str, object]) -> dict[str, object]:
        nonlocal before, at
        at += 5
        moment = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(at))
        name, parent = f"{session}-{first}-{at}", before
        before = name
        return {**about, "type": kind, "message": message, "uuid": name, "parentUuid": parent, "timestamp": moment}

    yield line("user", {"role": "user", "content": f"Find the fault {number}."})
    held = 14_000
    for step in range(STEPS):
        call = f"toolu_{session}_{first}_{step}"
        usage = {"input_tokens": 4, "cache_creation_input_tokens": 4_000, "cache_read_input_tokens": held}
        held += 4_000
        yield line(
            "assistant",
            {
                "id": f"msg_{session}_{first}_{step}",
                "role": "assistant",
                "model": "claude-opus-4-8",
                "usage": usage,
                "content": [
                    {"type": "text", "text": f"Part {step}."},
                    {"type": "tool_use", "id": call, "name": "Read", "input": {"file_path": f"src/part{step}.py"}},
                ],
            },
        )
        text = "".join(chance.choices(CODE_LINES, k=OUTPUT_CHARACTERS // len(CODE_LINES[0])))
        result = {"type": "tool_result", "tool_use_id": call, "content": text}
        shown = {"type": "text", "file": {"filePath": f"src/part{step}.py", "content": text}}
        yield {**line("user", {"role": "user", "content": [result]}), "toolUseResult": shown}


def measure(home: Path, jobs: int) -> tuple[float, float, str]:
    """Seconds to the first figure and to the end, and the first sentence of the answer. The sum so far is shown on a
    terminal, so the command gets one."""
    words = [sys.executable, "-m", "callstack_proxy", "savings", "--jobs", str(jobs)]
    read, write = os.openpty()
    began, first_s, said = time.monotonic(), 0.0, b""
    environment = {**os.environ, "HOME": str(home), "COLUMNS": "200"}
    with subprocess.Popen(words, stdout=write, stderr=subprocess.DEVNULL, env=environment) as running:
        os.close(write)
        while True:
            try:
                chunk = os.read(read, 65_536)
            except OSError:  # Linux: the other end of the terminal is closed
                break
            if not chunk:
                break
            said += chunk
            if not first_s and b"$" in said:
                first_s = time.monotonic() - began
        running.wait()
    os.close(read)
    sentences = said.decode().replace("\r\n", "\n").rpartition("\x1b[K")[2].splitlines()
    return first_s, time.monotonic() - began, sentences[0] if sentences else ""


if __name__ == "__main__":
    main()
