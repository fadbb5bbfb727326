"""Plays many recordings in several processes.

One process reads and plays a file, its conversations one after the other; the largest files go first. A fault of a file
costs that file alone. Workers ignore the keyboard's interrupt and look at a flag after every request, so an interrupt
waits for one request, or for one file to be read.
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

from proxy.config import Config
from proxy.errors import ProxyError
from proxy.replay.outcome import ReplayFailure, ReplayResult
from proxy.replay.player import play_recording
from proxy.replay.recording import ClockMode, NoRecording, Recording
from proxy.replay.recording_formats import read_recordings

PROGRESS_INTERVAL_S = 0.1
"""How often progress is reported, in seconds."""
QUIET = logging.CRITICAL
"""The log level of a replay: the request log is for people who run a proxy."""

ReplayOutcome = ReplayResult | ReplayFailure
Progress = Callable[[float], None]
"""Called with the share of the work that is done, from 0 to 1."""


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


def replay_files(files: Sequence[Path], task: ReplayOptions, jobs: int, progress: Progress) -> list[ReplayOutcome]:
    """The outcomes, in the order of `files`."""
    logging.getLogger("proxy").setLevel(QUIET)
    if jobs > 1 and len(files) > 1:
        return _replay_in_parallel(files, task, min(jobs, len(files)), progress)
    whole, done = _total_size(files), 0.0

    def advance(weight: float) -> None:
        nonlocal done
        done += weight
        progress(done / whole)

    return [result for file in files for result in replay_file(file, task, advance)]


def replay_file(file: Path, task: ReplayOptions, advance: Callable[[float], None]) -> list[ReplayOutcome]:
    """The outcomes of all conversations of a file, or one failure. `advance` gets a part of the file's size after each
    request."""
    try:
        recordings = read_recordings(file, model=task.model, clock=task.clock, dialect=task.dialect)
        step = partial(advance, _size(file) / (sum(len(recording.steps) for recording in recordings) or 1))
        return [asyncio.run(play_recording(recording, task.config, str(file), step)) for recording in recordings]
    except ReplayInterrupted:
        raise
    except ProxyError as error:
        advance(_size(file))
        return [ReplayFailure(file=str(file), error=str(error), foreign=isinstance(error, NoRecording))]
    except Exception as error:  # the edge of one file: the others are played all the same
        advance(_size(file))
        words = f"{file}: the replay itself failed on this file: {type(error).__name__}: {error}"
        return [ReplayFailure(file=str(file), error=words)]


def replay_recording(recording: Recording, task: ReplayOptions, place: str, progress: Progress) -> ReplayResult:
    """The outcome of a recording that was read from `place`."""
    logging.getLogger("proxy").setLevel(QUIET)
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.getLogger("proxy").setLevel(QUIET)


def _report_progress(weight: float) -> None:
    if _done is None or _over is None:
        return
    with _done.get_lock():
        _done.value += weight
    if _over.value:
        raise ReplayInterrupted("the replay was interrupted")


def _replay_in_worker(file: Path, task: ReplayOptions) -> list[ReplayOutcome]:
    _report_progress(0.0)  # a process that was interrupted while it started reads no file
    return replay_file(file, task, _report_progress)


def _replay_in_parallel(
    files: Sequence[Path], task: ReplayOptions, jobs: int, progress: Progress
) -> list[ReplayOutcome]:
    context = multiprocessing.get_context("spawn")
    done: Synchronized[float] = context.Value("d", 0.0)
    over: Synchronized[int] = context.Value("b", 0)
    whole = _total_size(files)
    largest_first = sorted(range(len(files)), key=lambda at: -_size(files[at]))
    with ProcessPoolExecutor(jobs, context, _init_worker, (done, over)) as pool:
        with _ignore_interrupts():
            asked = {at: pool.submit(_replay_in_worker, files[at], task) for at in largest_first}
        try:
            while wait(asked.values(), PROGRESS_INTERVAL_S).not_done:
                progress(done.value / whole)
        except BaseException:  # also Ctrl-C: the processes stop whatever ended the wait
            over.value = 1
            pool.shutdown(cancel_futures=True)
            raise
    return [result for at, file in enumerate(files) for result in _result_of(asked[at], file)]


@contextmanager
def _ignore_interrupts() -> Iterator[None]:
    """Processes started in this block ignore the keyboard's interrupt from their very beginning."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _result_of(future: Future[list[ReplayOutcome]], file: Path) -> list[ReplayOutcome]:
    try:
        return future.result()
    except BrokenProcessPool:
        words = "the process that played it ended, most likely for want of memory; try --jobs 1"
        return [ReplayFailure(file=str(file), error=f"{file}: {words}")]


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _total_size(files: Sequence[Path]) -> int:
    return sum(map(_size, files)) or 1


def cpu_count() -> int:
    """How many processes this machine runs in parallel."""
    return os.cpu_count() or 1
