"""Runs the agent as if nobody stood between it and the shell: the same terminal, process group and streams, signals
passed on, stops and the exit code repeated."""

from __future__ import annotations

import os
import signal
import subprocess
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

SIGNALLED = 128
"""A shell reports a process that was ended by signal N as 128 + N."""
FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
"""The terminal sends these to the whole foreground group, and so to the agent."""
PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def run_agent(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """The exit code of the agent, 128 + N where signal N ended it. Raises OSError where it cannot be started."""
    received: list[int] = []
    agents: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        if not agents:
            received.append(number)
        elif agents[0].returncode is None:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(agents[0].pid, number)  # its own method might reap the process that `_wait` waits for

    # Handlers, not SIG_IGN: the agent would inherit ignored signals.
    handlers: dict[int, Callable[[int, FrameType | None], None]] = dict.fromkeys(PASSED_ON, pass_on)
    handlers |= dict.fromkeys(FROM_TERMINAL, _leave_to_agent if _owns_terminal() else pass_on)
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        with _terminal_restored():
            agents.append(subprocess.Popen(command, env=environ))  # noqa: S603 - the command that the user named
            for number in received:
                os.kill(agents[0].pid, number)
            return _wait(agents[0])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave_to_agent(_number: int, _frame: FrameType | None) -> None:
    """The agent has the signal too and decides what it means."""


def _owns_terminal() -> bool:
    """Whether this process is in the foreground of a terminal."""
    try:
        terminal = os.open(os.ctermid(), os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _wait(agent: subprocess.Popen[bytes]) -> int:
    """Waits for the end. An agent that stops itself (Ctrl-Z in raw mode) stops us too, or the shell would not come
    back."""
    while True:
        _, status = os.waitpid(agent.pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            os.kill(os.getpid(), signal.SIGSTOP)
            continue
        code = os.waitstatus_to_exitcode(status)
        agent.returncode = code  # or its destructor would wait for a process that is gone
        return code if code >= 0 else SIGNALLED - code


@contextmanager
def _terminal_restored() -> Iterator[None]:
    """An agent that was killed leaves the terminal in raw mode, where our last line would be staircase text."""
    try:
        before = termios.tcgetattr(0)
    except (termios.error, OSError):
        yield
        return
    try:
        yield
    finally:
        if _owns_terminal():
            termios.tcsetattr(0, termios.TCSADRAIN, before)
