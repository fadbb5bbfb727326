"""Runs `callstack` commands in forks of one process that has imported everything once: 0.1 s of CPU a command, not 1 s.

A command runs as in a process of its own: its arguments, directory, environment and streams are its own, and what it
changes in the interpreter ends with it. Tests of imports, signals and cold starts start an interpreter instead.

As a program it reads one order in JSON a line, and answers each with the exit code, negative for a signal. With the
name of a socket it takes orders of `forked_program` there instead, several at a time, until its stdin ends.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, NoReturn

from tests import forked_program
from tests.forked_program import NUMBER_BYTES, read_number

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_S = 60
IMPORTED_LATE = (
    "callstack_proxy.cli.serve.command",
    "proxy.store.database.migrate",
    "proxy.store.sql",
    "tiktoken",
)
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


def forked_callstack(folder: Path) -> Path:
    """A program in `folder` that does what `callstack` does, for scripts that start and stop it themselves."""
    program = folder / "callstack"
    starter = Path(forked_program.__file__)
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -IS "{starter}" "{_program_server()}" "$@"\n'
    )
    program.chmod(0o755)
    return program


@cache
def _program_server() -> Path:
    """The socket of a process that takes orders of `forked_program` as long as this process runs."""
    place = Path(mkdtemp(prefix="forks-")) / "socket"  # a short name: that of a socket has at most 107 bytes
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.forked_commands", str(place)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(shutil.rmtree, place.parent)
    atexit.register(server.communicate)
    assert server.stdout is not None
    server.stdout.readline()
    return place


def serve_programs(place: Path) -> None:
    """Fork for each order that comes to the socket `place`, until stdin ends."""
    command_line = imported_command_line()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen()
        sys.stdout.write("listening\n")
        sys.stdout.flush()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks that wait for a command
        while sys.stdin not in select.select([sys.stdin, listener], [], [])[0]:
            connection, _ = listener.accept()
            if not os.fork():
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _run_program(connection, command_line)
            connection.close()


def _run_program(connection: socket.socket, command_line: Callable[[], None]) -> NoReturn:
    """Run one order in a fork, and kill that where the program that gave the order has gone."""
    _, streams, _, _ = socket.recv_fds(connection, 1, len(STREAMS))
    order = json.loads(connection.recv(read_number(connection), socket.MSG_WAITALL))
    command = os.fork()
    if not command:
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        # Those of before may have been files, and would seek in a pipe.
        sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))  # noqa: SIM115
        _become(order)
        end_with(command_line)
    connection.sendall(command.to_bytes(NUMBER_BYTES, "big"))
    ended = os.pidfd_open(command)
    if ended not in select.select([ended, connection.fileno()], [], [])[0]:
        os.kill(command, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
    with suppress(OSError):
        connection.sendall(code.to_bytes(NUMBER_BYTES, "big", signed=True))
    os._exit(0)


def serve_forks() -> None:
    """Fork for each order on stdin; in the child the command line runs, and its end is the end of the process."""
    command_line = imported_command_line()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            order = json.loads(line)
            signal.alarm(TIMEOUT_S)
            _open_streams(Path(order["streams"]))
            _become(order)
            end_with(command_line)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.write(f"{code}\n")
        sys.stdout.flush()


def imported_command_line() -> Callable[[], None]:
    """`main` of the command line, when all that its commands import is here and ready to be forked."""
    from callstack_proxy import __main__ as command_line
    from callstack_proxy.entry_points import entry_points
    from callstack_proxy.management.api.app import build_routes
    from proxy.accounting.o200k import load_o200k

    for name in (*(one.module for one in entry_points("callstack.commands").values()), *IMPORTED_LATE):
        import_module(name)
    build_routes()
    load_o200k()
    compile_late_patterns()
    gc.collect()
    gc.freeze()  # or the first collection of every child copies the memory of all that was imported
    return command_line.main


def compile_late_patterns() -> None:
    """Else each child would compile those that it uses."""
    from proxy.core.memo import late_pattern

    kind = type(late_pattern(""))
    for module in [module for name, module in sys.modules.items() if name.startswith("proxy.core.")]:
        for pattern in [each for each in vars(module).values() if isinstance(each, kind)]:
            for method in ("search", "match", "sub", "findall", "finditer"):
                getattr(pattern, method)


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


def _open_streams(folder: Path) -> None:
    for number, name in enumerate(STREAMS):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT
        opened = os.open(folder / name, flags)
        os.dup2(opened, number)
        os.close(opened)


def _become(order: dict[str, Any]) -> None:
    """Take on what the order gives: directory, environment and arguments; the streams stand open."""
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - the old one has read ahead
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environ"])
    time.tzset()
    sys.argv = ["callstack", *order["words"]]


if __name__ == "__main__":
    if sys.argv[1:]:
        serve_programs(Path(sys.argv[1]))
    else:
        serve_forks()
