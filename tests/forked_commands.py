"""Runs `callstack` commands in forks of one process that has imported everything once: 0.1 s of CPU a command, not 1 s.

A command runs as in a process of its own: its arguments, directory, environment and streams are its own, and what it
changes in the interpreter ends with it. Tests of imports, signals and cold starts start an interpreter instead.

As a program it reads one order in JSON a line, and answers each with the exit code, negative for a signal.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_S = 60
IMPORTED_LATE = ("proxy.store.database.migrate", "alembic.command", "tiktoken")
"""What commands import beside their own modules, when they come to need it."""
STREAMS = ("stdin", "stdout", "stderr")


@dataclass(frozen=True)
class FinishedCommand:
    """How a command ended: its exit code, and what it printed as text; `raw` is its stdout in bytes."""

    code: int
    out: str
    errors: str
    raw: bytes


def environment(home: Path) -> dict[str, str]:
    """Ours, without settings of whoever runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STACK_")}
    return kept | {"HOME": str(home), "PYTHONPATH": str(ROOT), "COLUMNS": "120", "PYTHONUTF8": "1"}


def run_command(words: tuple[str, ...], folder: Path, environ: Mapping[str, str], typed: str = "") -> FinishedCommand:
    """Run `callstack WORDS` in `folder` to its end. After `TIMEOUT_S` it is ended by an alarm."""
    with TemporaryDirectory() as place:
        stdin, stdout, stderr = (Path(place, name) for name in STREAMS)
        stdin.write_text(typed)
        order = {"words": words, "folder": str(folder), "environ": dict(environ), "streams": place}
        code = _ask_fork_server(json.dumps(order))
        raw = stdout.read_bytes()
        return FinishedCommand(code, raw.decode(), stderr.read_text(), raw)


@cache
def _fork_server() -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.forked_commands"],
        cwd=ROOT,
        env=environment(Path.home()),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(server.communicate)
    return server


def _ask_fork_server(order: str) -> int:
    server = _fork_server()
    assert server.stdin is not None
    assert server.stdout is not None
    print(order, file=server.stdin, flush=True)
    return int(server.stdout.readline())


def serve_forks() -> None:
    """Fork for each order on stdin; in the child the command line runs, and its end is the end of the process."""
    command_line = imported_command_line()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _become(json.loads(line))
            end_with(command_line)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.write(f"{code}\n")
        sys.stdout.flush()


def imported_command_line() -> Callable[[], None]:
    """`main` of the command line, when all that its commands import is here and ready to be forked."""
    from callstack_proxy import __main__ as command_line
    from callstack_proxy.cli.main import COMMANDS
    from callstack_proxy.management.api.app import build_routes
    from proxy.accounting.o200k import load_o200k

    for name in (*(f"callstack_proxy.cli.{module}" for module, _ in COMMANDS.values()), *IMPORTED_LATE):
        import_module(name)
    build_routes()
    load_o200k()
    gc.collect()
    gc.freeze()  # or the first collection of every child copies the memory of all that was imported
    return command_line.main


def end_with(main: Callable[[], None]) -> NoReturn:
    """Run `main`, and end as the interpreter would, without freeing one by one what was imported."""
    code = 0
    try:
        main()
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _become(order: dict[str, Any]) -> None:
    """Take on what the order gives: streams, directory, environment and arguments."""
    signal.alarm(TIMEOUT_S)
    for number, name in enumerate(STREAMS):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT
        opened = os.open(Path(order["streams"], name), flags)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - the old one has read ahead
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environ"])
    time.tzset()
    sys.argv = ["callstack", *order["words"]]


if __name__ == "__main__":
    serve_forks()
