"""Starts `callstack serve` many times for the price of one: everything is imported once, each start is a fork of that.

Run as a program: a JSON list of starts on stdin, a list of how each ended on stdout. A start that does not end by
itself within some seconds is ended by an alarm, and its exit code is negative.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE_S = 10


@dataclass(frozen=True)
class Start:
    """Options behind `serve`, the directory it runs in, and variables of its environment."""

    options: tuple[str, ...]
    folder: str
    environ: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ProcessResult:
    code: int
    out: str
    err: str


def started(starts: list[Start]) -> list[ProcessResult]:
    """How each start ended, in order."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STACK_")}
    done = subprocess.run(
        [sys.executable, __file__],
        input=json.dumps([asdict(start) for start in starts]),
        env={**clean, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return [ProcessResult(**each) for each in json.loads(done.stdout)]


def forked(start: Start) -> ProcessResult:
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = os.fork()
        if not child:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            run(start)
        _, status = os.waitpid(child, 0)
        out.seek(0)
        err.seek(0)
        return ProcessResult(os.waitstatus_to_exitcode(status), out.read(), err.read())


def run(start: Start) -> None:
    """In the child: what the command line does. Never returns."""
    signal.alarm(PATIENCE_S)
    os.chdir(start.folder)
    os.environ.update(start.environ)
    sys.argv = ["callstack", "serve", "--data", str(Path(start.folder) / "data"), *start.options]
    code = 0
    try:
        command_line.main()
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    from proxy import __main__ as command_line

    wanted = [Start(**each) for each in json.load(sys.stdin)]
    json.dump([asdict(forked(start)) for start in wanted], sys.stdout)
