"""Finds session logs: where the clients keep them below the home directory, or anywhere below a folder. What a file
is, its content decides."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from callstack_proxy.entry_points import load_all, warn_once
from callstack_proxy.replay.sessions.base import LogSample, SessionFormat
from callstack_proxy.replay.sessions.sqlite_log import opened_log

SUFFIXES = (".jsonl", ".json", ".db")
SQLITE = b"SQLite format 3\x00"
SAMPLE_LINES = 20
SAMPLE_LINE_BYTES = 8 << 20
"""A first line that is longer is no line of a session log."""
MAX_OBJECT_BYTES = 256 << 20
"""Bytes of a file that is one JSON object, which is read as a whole."""


@dataclass(frozen=True, slots=True)
class FoundLogs:
    """`files` are session logs with their client. `others` are paths where a client keeps its logs, with the reason
    why they are none."""

    files: dict[Path, SessionFormat]
    others: dict[Path, str]


@cache
def session_formats() -> tuple[SessionFormat, ...]:
    """The clients whose logs are read: the entry points `callstack.sessions`, ours first."""
    return tuple(load_all("callstack.sessions", SessionFormat).values())


def find_logs(home: Path, folders: Iterable[Path], clients: Iterable[str], newer_than_s: float) -> FoundLogs:
    """The logs below `folders`, or, without any, where clients keep them below `home`. `clients` are keys of formats;
    none stands for all. A file last written before `newer_than_s` is left out."""
    wanted = {known.key for known in session_formats() if not clients or known.key in set(clients)}
    named = list(folders)
    found = FoundLogs({}, {})
    for path in dict.fromkeys(_files_below(named) if named else _files_of_clients(home, wanted)):
        if written_s(path) < newer_than_s:
            continue
        known = format_of(path)
        if known and known.key in wanted:
            found.files[path] = known
        elif not known and (not named or path in named):
            found.others[path] = reason_why_none(path)
    return found


def _files_of_clients(home: Path, wanted: set[str]) -> Iterator[Path]:
    for known in session_formats():
        if known.key in wanted:
            for place in known.places:
                files = (path for path in home.glob(place) if path.is_file())
                yield from sorted(path for path in files if path.name not in known.lists)


def _files_below(named: Iterable[Path]) -> Iterator[Path]:
    for path in named:
        if path.is_dir():
            yield from sorted(one for one in path.rglob("*") if one.suffix in SUFFIXES and one.is_file())
        else:
            yield path


def written_s(path: Path) -> float:
    """When a file was last written, in seconds since the epoch; 0 where nobody can say."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def format_of(path: Path) -> SessionFormat | None:
    """The client that wrote this file, or None."""
    sample = _sample_of(path)
    if sample is None or not (sample.values or sample.tables):
        return None
    return next((known for known in session_formats() if _recognises(known, sample)), None)


def _recognises(known: SessionFormat, sample: LogSample) -> bool:
    """A reader that fails, as another package's may, does not know the file; the others go on."""
    try:
        return known.recognises(sample)
    except Exception as error:
        warn_once(f"the reader of {known.name} fails, and its sessions may be missing: {error!r}")
        return False


def reason_why_none(path: Path) -> str:
    """Why a file is no session log, in words for its user."""
    try:
        if path.stat().st_size == 0:
            return "it is empty"
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"
    return "it is no session of a known client, or it is damaged at its beginning"


def _sample_of(path: Path) -> LogSample | None:
    try:
        with path.open("rb") as file:
            start = file.read(len(SQLITE))
            if start == SQLITE:
                return LogSample(path, tables=_tables_of(path))
            if not start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
                return None
            file.seek(0)
            lines = [line for _ in range(SAMPLE_LINES) if (line := file.readline(SAMPLE_LINE_BYTES)).strip()]
        return LogSample(path, tuple(_values_in(lines, path)))
    except (OSError, sqlite3.Error):
        return None


def _values_in(lines: list[bytes], path: Path) -> Iterator[dict[str, object]]:
    """The objects on the lines; or, where the first line is none, the one object of the file."""
    values = [value for line in lines if (value := _object(line)) is not None]
    if lines and _object(lines[0]) is None and path.stat().st_size <= MAX_OBJECT_BYTES:
        whole = _object(path.read_bytes())
        values = [whole] if whole is not None else values
    yield from values


def _object(text: bytes) -> dict[str, object] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _tables_of(path: Path) -> frozenset[str]:
    with opened_log(path) as database:
        return frozenset(name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'"))
