"""Plays many recordings in several processes.

One process reads and plays a file, its conversations one after the other. A fault of a file costs that file alone.
Workers ignore the keyboard's interrupt and look at a flag after every request, so an interrupt waits for one request,
or for one file to be read.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

from callstack_proxy.management.loggers import set_log_level
from callstack_proxy.replay.outcome import ReplayFailure, ReplayResult
from callstack_proxy.replay.player import play_recording
from callstack_proxy.replay.recording import ClockMode, NoRecording, Recording
from callstack_proxy.replay.recording_formats import read_recordings
from proxy.config import Config
from proxy.errors import ProxyError

PROGRESS_INTERVAL_S = 0.1
"""How often progress is reported, in seconds."""
QUIET = logging.CRITICAL
"""The log level of a replay: the request log is for people who run a proxy."""

ReplayOutcome = ReplayResult | ReplayFailure
Progress = Callable[[float], None]
"""Called with the share of the work that is done, from 0 to 1."""
Play = Callable[[Callable[[float], None]], list[ReplayOutcome]]
"""One task: it calls back with the part of the work that each request was."""
OnDone = Callable[[list[ReplayOutcome]], None]
TASKS_AHEAD = 3
"""Tasks per process that are made before they are needed."""


def _ignore_outcomes(outcomes: list[ReplayOutcome]) -> None:
    """For a caller who takes them all at the end."""


class ReplayInterrupted(ProxyError):
    """A person interrupted the replay."""

    code = "interrupted"


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How to play. `model` and `dialect` replace the recorded model and API; empty keeps those."""

    config: Config
    model: str = ""
    clock: ClockMode = "recorded"
    dialect: str = ""
    on_plan: bool = False
    """As if a login of a plan stood in each request of a log: folds then go by what its windows pay."""


def replay_files(files: Sequence[Path], task: ReplayOptions, jobs: int, progress: Progress) -> list[ReplayOutcome]:
    """The outcomes, in the order of `files`. With several processes the largest go first."""
    jobs = min(jobs, len(files))
    order = sorted(range(len(files)), key=lambda at: -file_size(files[at])) if jobs > 1 else range(len(files))
    tasks = ((files[at], partial(replay_file, files[at], task)) for at in order)
    played = dict(zip(order, play_all(tasks, total_size(files), jobs, progress), strict=True))
    return [result for at in range(len(files)) for result in played[at]]


def replay_file(file: Path, task: ReplayOptions, advance: Callable[[float], None]) -> list[ReplayOutcome]:
    """The outcomes of all conversations of a file, or one failure. `advance` gets a part of the file's size after each
    request."""
    try:
        recordings = read_recordings(file, model=task.model, clock=task.clock, dialect=task.dialect)
        step = partial(advance, file_size(file) / (sum(len(recording.steps) for recording in recordings) or 1))
        return [asyncio.run(play_recording(recording, task.config, str(file), step)) for recording in recordings]
    except ReplayInterrupted:
        raise
    except ProxyError as error:
        advance(file_size(file))
        return [ReplayFailure(file=str(file), error=str(error), foreign=isinstance(error, NoRecording))]
    except Exception as error:  # the edge of one file: the others are played all the same
        advance(file_size(file))
        words = f"{file}: the replay itself failed on this file: {type(error).__name__}: {error}"
        return [ReplayFailure(file=str(file), error=words)]


def replay_recording(recording: Recording, task: ReplayOptions, place: str, progress: Progress) -> ReplayResult:
    """The outcome of a recording that was read from `place`."""
    set_log_level(QUIET)
    done = itertools.count(1)
    return asyncio.run(
        play_recording(recording, task.config, place, lambda: progress(next(done) / len(recording.steps)))
    )


# --------------------------------------------------------------------------------------------------------- processes
_done: Synchronized[float] | None = None
_over: Synchronized[int] | None = None


def _init_worker(done: Synchronized[float], over: Synchronized[int]) -> None:
    """Runs in each process before its first file."""
    global _done, _over
    _done, _over = done, over
    gc.freeze()  # what was imported stays: collections need not walk through it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    set_log_level(QUIET)


def _report_progress(weight: float) -> None:
    if _done is None or _over is None:
        return
    with _done.get_lock():
        _done.value += weight
    if _over.value:
        raise ReplayInterrupted("the replay was interrupted")


def _play_in_worker(play: Play) -> list[ReplayOutcome]:
    _report_progress(0.0)  # a process that was interrupted while it started reads no file
    return play(_report_progress)


def play_all(
    tasks: Iterable[tuple[Path, Play]], whole: float, jobs: int, progress: Progress, on_done: OnDone = _ignore_outcomes
) -> list[list[ReplayOutcome]]:
    """The outcomes of each task, in their order. Tasks are taken as they are needed, each with its file; `whole` is the
    sum of what all of them report. `on_done` gets the outcomes of a task as it ends."""
    set_log_level(QUIET)
    if jobs > 1:
        return _play_in_processes(tasks, whole, jobs, progress, on_done)
    played, done = [], 0.0

    def advance(weight: float) -> None:
        nonlocal done
        done += weight
        progress(done / whole)

    for _, play in tasks:
        played.append(play(advance))
        on_done(played[-1])
    return played


def _play_in_processes(
    tasks: Iterable[tuple[Path, Play]], whole: float, jobs: int, progress: Progress, on_done: OnDone
) -> list[list[ReplayOutcome]]:
    context = multiprocessing.get_context("fork" if _may_fork() else "spawn")
    done: Synchronized[float] = context.Value("d", 0.0)
    over: Synchronized[int] = context.Value("b", 0)
    played: dict[int, list[ReplayOutcome]] = {}
    asked: dict[Future[list[ReplayOutcome]], tuple[int, Path]] = {}
    waiting = enumerate(tasks)
    with ProcessPoolExecutor(jobs, context, _init_worker, (done, over)) as pool:
        try:
            while True:
                task = next(waiting, None) if len(asked) < jobs * TASKS_AHEAD else None
                if task is not None:
                    number, (file, play) = task
                    with _interrupts_put_off():
                        asked[_submitted(pool, play)] = number, file
                if not asked:
                    return [played[number] for number in sorted(played)]
                patience_s = PROGRESS_INTERVAL_S if task is None else 0.0  # the next task may take a while to make
                for future in wait(asked, patience_s, FIRST_COMPLETED).done:
                    number, file = asked.pop(future)
                    played[number] = _result_of(future, file)
                    on_done(played[number])
                progress(done.value / whole)
        except BaseException:  # also Ctrl-C: the processes stop whatever ended the wait
            over.value = 1
            pool.shutdown(cancel_futures=True)
            raise


def _may_fork() -> bool:
    """A fork has everything imported at once, which else costs each process a second. Only Linux forks safely, and only
    a process of one thread: another may hold a lock that nobody in the fork would release."""
    return sys.platform == "linux" and threading.active_count() == 1


def _submitted(pool: ProcessPoolExecutor, play: Play) -> Future[list[ReplayOutcome]]:
    try:
        return pool.submit(_play_in_worker, play)
    except BrokenProcessPool as error:  # an earlier task took the pool with it
        lost: Future[list[ReplayOutcome]] = Future()
        lost.set_exception(error)
        return lost


@contextmanager
def _interrupts_put_off() -> Iterator[None]:
    """The keyboard's interrupt comes behind this block; it never reaches the processes that are started in it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _result_of(future: Future[list[ReplayOutcome]], file: Path) -> list[ReplayOutcome]:
    try:
        return future.result()
    except BrokenProcessPool:
        words = "the process that played it ended, most likely for want of memory; try --jobs 1"
        return [ReplayFailure(file=str(file), error=f"{file}: {words}")]


def file_size(file: Path) -> int:
    """Bytes; 0 where it cannot be found out."""
    try:
        return file.stat().st_size
    except OSError:
        return 0


def total_size(files: Iterable[Path]) -> int:
    """Bytes of all files; 1 where that is nothing."""
    return sum(map(file_size, files)) or 1


def cpu_count() -> int:
    """How many processes this machine runs in parallel."""
    return os.cpu_count() or 1
