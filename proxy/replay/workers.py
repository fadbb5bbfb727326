"""Many recordings, in several processes, and one that waits for them.

Each file is read and played by one process, a file's conversations one after the other; the largest files go first. The
law: **a fault of one file costs that file alone**, and whoever interrupts waits for one request, or for one file to be
read: the processes leave a keyboard's interrupt to the one that started them, and look at a flag after every request.

What this module does not do: it shows nothing. Progress is a number that others may look at.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

from proxy.config.model import Config
from proxy.errors import ProxyError
from proxy.replay.formats import recordings_in
from proxy.replay.outcome import Failed, Played
from proxy.replay.player import play
from proxy.replay.recording import Clock, NoRecording, Recording

LOOK_S = 0.1
"""How often whoever waits is told how far it is."""
QUIET = logging.CRITICAL
"""What the proxy logs of its requests is for somebody who runs one."""

Result = Played | Failed
Progress = Callable[[float], None]
"""Is told which share of the work is done, from 0 to 1."""


class Interrupted(ProxyError):
    """Somebody asked for the end."""

    code = "interrupted"


@dataclass(frozen=True, slots=True)
class Task:
    """How to play: the configuration, the model instead of the recorded one (or empty), the clock, and the API instead
    of each recording's own (or empty)."""

    config: Config
    model: str = ""
    clock: Clock = "recorded"
    dialect: str = ""


def played(files: Sequence[Path], task: Task, jobs: int, progress: Progress) -> list[Result]:
    """What came of each file, in the order of `files`."""
    logging.getLogger("proxy").setLevel(QUIET)
    if jobs > 1 and len(files) > 1:
        return _shared_out(files, task, min(jobs, len(files)), progress)
    whole, done = _weight(files), 0.0

    def advance(weight: float) -> None:
        nonlocal done
        done += weight
        progress(done / whole)

    return [result for file in files for result in of_file(file, task, advance)]


def of_file(file: Path, task: Task, advance: Callable[[float], None]) -> list[Result]:
    """All conversations of a file, or why there is none. `advance` is told a part of the file's size after each
    request."""
    try:
        recordings = recordings_in(file, model=task.model, clock=task.clock, dialect=task.dialect)
        step = partial(advance, _size(file) / (sum(len(recording.steps) for recording in recordings) or 1))
        return [asyncio.run(play(recording, task.config, str(file), step)) for recording in recordings]
    except Interrupted:
        raise
    except ProxyError as error:
        advance(_size(file))
        return [Failed(file=str(file), error=str(error), foreign=isinstance(error, NoRecording))]
    except Exception as error:  # the edge of one file: the others are played all the same
        advance(_size(file))
        words = f"{file}: the replay itself failed on this file: {type(error).__name__}: {error}"
        return [Failed(file=str(file), error=words)]


def of_recording(recording: Recording, task: Task, place: str, progress: Progress) -> Played:
    """What came of one recording that was read from `place`."""
    logging.getLogger("proxy").setLevel(QUIET)
    done = itertools.count(1)
    return asyncio.run(play(recording, task.config, place, lambda: progress(next(done) / len(recording.steps))))


# --------------------------------------------------------------------------------------------------------- processes
_done: Synchronized[float] | None = None
_over: Synchronized[int] | None = None


def _begin(done: Synchronized[float], over: Synchronized[int]) -> None:
    """In each process, before its first file."""
    global _done, _over
    _done, _over = done, over
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.getLogger("proxy").setLevel(QUIET)


def _advance(weight: float) -> None:
    if _done is None or _over is None:
        return
    with _done.get_lock():
        _done.value += weight
    if _over.value:
        raise Interrupted("the replay was interrupted")


def _in_process(file: Path, task: Task) -> list[Result]:
    _advance(0.0)  # whoever was interrupted while it started reads no file first
    return of_file(file, task, _advance)


def _shared_out(files: Sequence[Path], task: Task, jobs: int, progress: Progress) -> list[Result]:
    context = multiprocessing.get_context("spawn")
    done: Synchronized[float] = context.Value("d", 0.0)
    over: Synchronized[int] = context.Value("b", 0)
    whole = _weight(files)
    largest_first = sorted(range(len(files)), key=lambda at: -_size(files[at]))
    with ProcessPoolExecutor(jobs, context, _begin, (done, over)) as pool:
        with _undisturbed():
            asked = {at: pool.submit(_in_process, files[at], task) for at in largest_first}
        try:
            while wait(asked.values(), LOOK_S).not_done:
                progress(done.value / whole)
        except BaseException:  # Ctrl-C too: the processes are told to stop whatever ended the wait
            over.value = 1
            pool.shutdown(cancel_futures=True)
            raise
    return [result for at, file in enumerate(files) for result in _result_of(asked[at], file)]


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Whoever starts processes here: they begin deaf to the keyboard's interrupt, also before they have read a line of
    ours."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _result_of(future: Future[list[Result]], file: Path) -> list[Result]:
    try:
        return future.result()
    except BrokenProcessPool:
        words = "the process that played it ended, most likely for want of memory; try --jobs 1"
        return [Failed(file=str(file), error=f"{file}: {words}")]


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _weight(files: Sequence[Path]) -> int:
    return sum(map(_size, files)) or 1


def cores() -> int:
    """How many processes this machine runs at once."""
    return os.cpu_count() or 1
