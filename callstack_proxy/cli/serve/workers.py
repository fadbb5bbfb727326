"""`callstack serve --workers N`: N processes that accept from one socket.

The first process holds the socket, starts the others with its own arguments, starts one again that ends, and passes
signals on. It serves nothing itself. A worker learns what it is from the environment, because its token must not stand
among its arguments, where every user of the machine can read it.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from types import FrameType
from typing import NamedTuple

import msgspec

from proxy.errors import ProxyError

log = logging.getLogger(__name__)

VARIABLE = "CALLSTACK_WORKER"
POLL_S = 0.1
"""How often the first process looks after the others."""
START_TIMEOUT_S = 60.0
RESTART_PAUSE_S = 1.0
MAX_ENDS, ENDS_WINDOW_S = 10, 60.0
"""So many workers that end by themselves within this time end all: something is wrong that a start does not mend."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


class Worker(msgspec.Struct):
    """What a worker is given: descriptors of the socket, of a pipe to write to when it serves, and of one that closes
    when the first process has ended; and the token of an operator."""

    listener: int
    ready: int
    parent: int
    token: str

    def report_ready(self) -> None:
        os.write(self.ready, b".")

    def end_with_parent(self) -> None:
        """End this process, as SIGTERM does, when the first one is gone."""
        threading.Thread(target=self._wait_for_end, name="parent", daemon=True).start()

    def _wait_for_end(self) -> None:
        os.read(self.parent, 1)
        os.kill(os.getpid(), signal.SIGTERM)


def worker_from(environ: Mapping[str, str]) -> Worker | None:
    """What this process is, if it is a worker."""
    given = environ.get(VARIABLE)
    return msgspec.json.decode(given, type=Worker) if given else None


class _Pipe(NamedTuple):
    read: int
    write: int


class Workers:
    """`count` processes that accept from `listener`, until a signal. `ready` is called when all of them serve."""

    def __init__(self, listener: socket.socket, count: int, token: str) -> None:
        self._listener = listener
        self._count = count
        self._token = token
        self._is_ready, self._alive = _Pipe(*os.pipe()), _Pipe(*os.pipe())
        self._processes: list[subprocess.Popen[bytes]] = []
        self._ends: deque[float] = deque(maxlen=MAX_ENDS)
        self._received: list[int] = []

    def run(self, ready: Callable[[], None]) -> None:
        """Returns when all have ended after a signal. Raises ProxyError where they do not start, or do not stay."""
        before = {each: signal.signal(each, self._on_signal) for each in SIGNALS}
        try:
            self._processes = [self._start() for _ in range(self._count)]
            self._wait_until_ready()
            if not self._received:
                ready()
            self._look_after()
        finally:
            self._pass_on(signal.SIGTERM)
            for process in self._processes:
                process.wait()
            for each, handler in before.items():
                signal.signal(each, handler)
            for descriptor in (*self._is_ready, *self._alive):
                os.close(descriptor)

    def _start(self) -> subprocess.Popen[bytes]:
        worker = Worker(self._listener.fileno(), self._is_ready.write, self._alive.read, self._token)
        return subprocess.Popen(  # noqa: S603 - this program, with the arguments that it was given
            [sys.executable, "-m", "callstack_proxy", *sys.argv[1:]],
            env={**os.environ, VARIABLE: msgspec.json.encode(worker).decode()},
            pass_fds=(worker.listener, worker.ready, worker.parent),
            start_new_session=True,  # Ctrl-C reaches them through this process, once
        )

    def _wait_until_ready(self) -> None:
        os.set_blocking(self._is_ready.read, False)
        until, count = time.monotonic() + START_TIMEOUT_S, 0
        while count < self._count and not self._received:
            if any(process.poll() is not None for process in self._processes) or time.monotonic() > until:
                raise ProxyError("a worker did not start; the log above says why", code="not_started")
            try:
                count += len(os.read(self._is_ready.read, self._count))
            except BlockingIOError:
                time.sleep(POLL_S)

    def _look_after(self) -> None:
        told = 0
        while not self._received or any(process.poll() is None for process in self._processes):
            for number in self._received[told:]:
                self._pass_on(number)
            told = len(self._received)
            if not told:
                self._replace_ended()
            time.sleep(POLL_S)

    def _replace_ended(self) -> None:
        for at, process in enumerate(self._processes):
            if process.poll() is None:
                continue
            now = time.monotonic()
            if len(self._ends) == MAX_ENDS and now - self._ends[0] < ENDS_WINDOW_S:
                raise ProxyError("the workers do not stay; the log above says why", code="workers_ended")
            self._ends.append(now)
            log.warning("a worker ended; another one starts", extra={"worker": process.pid, "code": process.returncode})
            time.sleep(RESTART_PAUSE_S)
            self._processes[at] = self._start()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._received.append(number)

    def _pass_on(self, number: int) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(number)
