"""Runs `callstack` commands that die by SIGKILL at a named point of their code.

A point is a function, by the name under which its caller looks it up. It is wrapped before the command line runs, so
the product holds nothing for it. Its calls count once a file exists: the commands are *armed*.

As a program it forks for each order on stdin, as `tests.forked_commands` does. The orders and the lines that it prints
are known to `DyingCommands` alone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from inspect import iscoroutinefunction
from itertools import count
from pathlib import Path
from typing import Any, Literal, Self

from tests.forked_commands import ROOT, end_with, imported_command_line

LONGEST_S = 60
"""A command that runs longer has not come by its point: an alarm ends it."""
PID, ENDED = "process ", "ended "
"""What the program's own lines begin with; those between them are the command's."""


@dataclass(frozen=True, slots=True)
class KillPoint:
    """Before or after a call of `name` (`module:function` or `module:Class.method`), by its number from 1."""

    when: Literal["before", "after"]
    name: str
    call: int = 1

    def __str__(self) -> str:
        return f"{self.when} {self.call} {self.name}"

    @classmethod
    def parsed(cls, text: str) -> Self:
        when, number, name = text.split()
        return cls("before" if when == "before" else "after", name, int(number))

    @property
    def holder(self) -> Any:
        """The module or class that has the function."""
        module, _, path = self.name.partition(":")
        found: Any = import_module(module)
        for part in path.split(".")[:-1]:
            found = getattr(found, part)
        return found

    @property
    def attribute(self) -> str:
        return self.name.rpartition(":")[2].rpartition(".")[2]


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def lay(point: KillPoint, armed: Path) -> None:
    """Wrap the function of `point` where it is looked up. Raises KeyError where it is not defined."""
    holder, calls = point.holder, count(1)
    vars(holder)[point.attribute]  # an inherited one would be wrapped for other classes too
    setattr(holder, point.attribute, _wrapped(getattr(holder, point.attribute), point, armed, calls.__next__))


def _wrapped(
    function: Callable[..., Any], point: KillPoint, armed: Path, next_number: Callable[[], int]
) -> Callable[..., Any]:
    def is_reached() -> bool:
        return armed.exists() and next_number() == point.call

    if iscoroutinefunction(function):

        @wraps(function)
        async def waits(*given: Any, **named: Any) -> Any:
            dies = is_reached()
            if dies and point.when == "before":
                kill()
            done = await function(*given, **named)
            if dies:
                kill()
            return done

        return waits

    @wraps(function)
    def runs(*given: Any, **named: Any) -> Any:
        dies = is_reached()
        if dies and point.when == "before":
            kill()
        done = function(*given, **named)
        if dies:
            kill()
        return done

    return runs


class DyingCommands:
    """One command after the other, each a fork of one process. Not for several threads."""

    def __init__(self, armed: Path, log: Path) -> None:
        self._armed = armed
        with log.open("a") as errors:
            self._forks = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.killed_at", str(armed)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._pid = 0

    def begin(self, dies_at: KillPoint | None, *words: str, armed: bool = False) -> None:
        """Start `callstack WORDS`."""
        assert self._forks.stdin is not None
        self._armed.unlink(missing_ok=True)
        if armed:
            self.arm()
        print(json.dumps([str(dies_at or ""), *words]), file=self._forks.stdin, flush=True)
        self._pid = int(self.read_until(PID))

    def arm(self) -> None:
        self._armed.touch()

    def end(self) -> int:
        """The exit code, negative for a signal, when the command has ended."""
        code = int(self.read_until(ENDED))
        self._pid = 0
        return code

    def kill(self) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            self.end()

    def read_until(self, beginning: str) -> str:
        """The rest of the next line that begins so. Fails where the command ends before."""
        assert self._forks.stdout is not None
        for line in self._forks.stdout:
            if line.startswith(beginning):
                return line.removeprefix(beginning)
            assert not line.startswith(ENDED), f"the command {line}"
        raise AssertionError(f"no line begins with {beginning!r}")

    def close(self) -> None:
        self.kill()
        self._forks.communicate()


def serve_forks(armed: Path) -> None:
    command_line = imported_command_line()
    for order in sys.stdin:
        point, *words = json.loads(order)
        read_end, write_end = os.pipe()
        child = os.fork()
        if not child:
            signal.alarm(LONGEST_S)
            os.close(write_end)
            os.read(read_end, 1)  # its own lines stand behind that of its number
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            if point:
                lay(KillPoint.parsed(point), armed)
            sys.argv = ["callstack", *words]
            end_with(command_line)
        tell(f"{PID}{child}")
        os.close(read_end)
        os.close(write_end)
        tell(f"{ENDED}{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    serve_forks(Path(sys.argv[1]))
