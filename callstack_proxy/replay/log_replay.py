"""Replays the session logs of this machine, the newest first, and counts each request once.

A client that resumes or forks a session writes its beginning again, and a person may have copied a folder. The first
session of the replay counts such a request; in the others it is played, because what follows needs it, and its money is
left out. The files are read twice, once for the keys of their requests, so that the answer does not depend on which
process was faster. Never more than a few sessions are held in memory.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from callstack_proxy.management.reports import is_in_project, sum_receipts
from callstack_proxy.replay.outcome import ReplayFailure, ReplayResult
from callstack_proxy.replay.player import play_recording
from callstack_proxy.replay.recording import NotReplayable, Recording
from callstack_proxy.replay.recording_formats import sessions_of_log
from callstack_proxy.replay.sessions import Session, SessionConverter, SessionFormat, written_s
from callstack_proxy.replay.token_counts import load_memoized_o200k
from callstack_proxy.replay.workers import (
    OnDone,
    Play,
    Progress,
    ReplayInterrupted,
    ReplayOptions,
    ReplayOutcome,
    file_size,
    play_all,
    total_size,
)
from proxy.accounting import TokenCounter
from proxy.errors import ProxyError

PLAN_LOGIN = (b"authorization", b"Bearer sk-ant-oat-of-a-replay")
"""By which a request is known to be paid by a plan."""
NEWEST_FILES = 12
"""The smallest of so many newest files goes first: a first figure comes at once."""


@dataclass(frozen=True, slots=True)
class _ScannedLog:
    """`copied` are keys of requests that an earlier log counts; `sessions` counts those that are wanted, and is 1 where
    the file cannot be read: the replay then says why."""

    copied: frozenset[bytes]
    sessions: int


def replay_logs(  # noqa: PLR0913  what is played, how, and who hears of it
    logs: Mapping[Path, SessionFormat],
    options: ReplayOptions,
    jobs: int,
    progress: Progress,
    on_done: OnDone,
    project: Collection[str] = (),
) -> list[ReplayOutcome]:
    """The outcomes, in the order of `logs`. `project`: only sessions that worked in the folder of one of these names,
    or below it."""
    order = newest_first(logs)
    done = play_all(_tasks(order, logs, options, project), total_size(order), min(jobs, len(order)), progress, on_done)
    outcomes = dict(zip(order, done, strict=True))
    return [outcome for path in logs for outcome in outcomes[path]]


def newest_first(logs: Mapping[Path, SessionFormat]) -> list[Path]:
    """By the time they were last written, and of the newest ones the smallest before all others."""
    order = sorted(logs, key=lambda path: (-written_s(path), str(path)))
    first = min(order[:NEWEST_FILES], key=file_size)
    return [first, *(path for path in order if path != first)]


def _tasks(
    order: list[Path], logs: Mapping[Path, SessionFormat], options: ReplayOptions, project: Collection[str]
) -> Iterator[tuple[Path, Play]]:
    counted: set[bytes] = set()
    for path in order:
        scanned = _scan(path, logs[path], project, counted)
        yield path, partial(_replay_log, path, logs[path], options, project, scanned)


def _scan(path: Path, known: SessionFormat, project: Collection[str], counted: set[bytes]) -> _ScannedLog:
    """Adds the keys of the log to those that are `counted`."""
    copied: set[bytes] = set()
    mine: set[bytes] = set()
    sessions = 0
    try:
        for session in sessions_of_log(path, known):
            if is_in_project(session.folder, project):
                sessions += 1
                keys = set(session.keys)
                copied |= keys & counted
                mine |= keys
    except NotReplayable:
        sessions = max(sessions, 1)
    counted |= mine
    return _ScannedLog(frozenset(copied), sessions)


def _replay_log(  # noqa: PLR0913  a task that is made in one process and runs in another
    path: Path,
    known: SessionFormat,
    options: ReplayOptions,
    project: Collection[str],
    scanned: _ScannedLog,
    advance: Callable[[float], None],
) -> list[ReplayOutcome]:
    """The outcomes of the sessions of one file; a fault of the file comes last."""
    played: list[ReplayOutcome] = []
    counter = TokenCounter(load_memoized_o200k).count
    rest = float(file_size(path))
    share = rest / (scanned.sessions or 1)
    found = 0

    def advance_in_file(weight: float) -> None:
        nonlocal rest
        rest -= weight
        advance(weight)

    try:
        for session in sessions_of_log(path, known):
            found += 1
            if not is_in_project(session.folder, project):
                continue
            if scanned.copied.issuperset(session.keys):
                advance_in_file(share)
                played.append(_as_copy(path, known, session))
                continue
            converter = SessionConverter(known, counter, options.model, options.clock, options.dialect, scanned.copied)
            played.append(_play(converter.recording_of(session), options, path, share, advance_in_file))
    except ReplayInterrupted:
        raise
    except ProxyError as error:
        played.append(ReplayFailure(file=str(path), error=str(error)))
    except Exception as error:  # the edge of one file: the others are played all the same
        words = f"{path}: the replay itself failed on this file: {type(error).__name__}: {error}"
        played.append(ReplayFailure(file=str(path), error=words))
    else:
        if not found:
            words = f"{path}: no answer of a model stands in this session of {known.name}"
            played.append(ReplayFailure(file=str(path), error=words))
    advance(max(rest, 0.0))  # sessions of other projects, and what was not read
    return played


def _play(
    recording: Recording, options: ReplayOptions, path: Path, share: float, advance: Callable[[float], None]
) -> ReplayResult:
    step = partial(advance, share / (len(recording.steps) or 1))
    if options.on_plan:
        steps = tuple(replace(each, headers=(*each.headers, PLAN_LOGIN)) for each in recording.steps)
        recording = msgspec.structs.replace(recording, steps=steps)
    # No log holds the markers that its client had set.
    played = asyncio.run(play_recording(recording, options.config, str(path), step, by_markers=False))
    # The services of a replay refer to each other, and hold every request: few objects, which the collector seldom
    # visits by itself, and tens of megabytes.
    gc.collect()
    return played


def _as_copy(path: Path, known: SessionFormat, session: Session) -> ReplayResult:
    """A session of which every request is counted with another one."""
    copied = sum(1 for _ in session.keys)
    name = f"{known.key} {session.id}"
    return ReplayResult(
        name=name,
        file=str(path),
        model="",
        dialect=known.api,
        row=sum_receipts(()),
        client=known.name,
        started_s=session.started_s,
        folder=session.folder,
        copied=copied,
    )
