"""Reads files of recordings as JSON values, each with its place in the file.

A file is gzip or plain, and holds one JSON value or one on each line; the content decides, never the name. Every fault
of a file is raised as one sentence that names the file and the line.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from callstack_proxy.replay.recording import NotReplayable

MOST_BYTES = 1 << 30
"""Bytes of a file, unpacked: a small gzip file may unpack to any size."""
GZIP = b"\x1f\x8b"
RECORDING_SUFFIXES = (".json", ".jsonl", ".ndjson")
"""Name endings of recordings in a directory; a file that is named itself is read whatever its name."""


@dataclass(frozen=True, slots=True)
class LocatedValue:
    """A value and its place: `chat.jsonl:3`."""

    value: Any
    place: str


def recording_files_in(paths: Iterable[Path]) -> list[Path]:
    """The files to replay. A directory stands for all recordings below it, by name, except hidden ones."""
    found: dict[Path, None] = {}
    for path in paths:
        inside = sorted(p for p in path.rglob("*") if _may_be_recording(p, path)) if path.is_dir() else [path]
        found.update(dict.fromkeys(inside))
    return list(found)


def _may_be_recording(file: Path, below: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(below).parts)
    return not hidden and file.name.lower().removesuffix(".gz").endswith(RECORDING_SUFFIXES) and file.is_file()


def json_values_in(path: Path) -> list[LocatedValue]:
    """The JSON values of a file in order. Raises NotReplayable."""
    text = _text(path)
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise NotReplayable(f"{path} is empty: there is no conversation in it")
    if len(lines) == 1 or _is_json(lines[0][1]):
        return [LocatedValue(_parse_json(line, path, number), f"{path}:{number}") for number, line in lines]
    return [LocatedValue(_parse_json(text, path), str(path))]


def _text(path: Path) -> str:
    data = _bytes(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise NotReplayable(
            f"{path}:{line}: this is no text (byte {error.start} is not UTF-8); "
            "a recording is JSON or JSON lines, packed with gzip or plain"
        ) from None


def _bytes(path: Path) -> bytes:
    """The unpacked file."""
    try:
        with path.open("rb") as file:
            packed = file.read(len(GZIP)) == GZIP
            file.seek(0)
            if not packed:
                return _check_size(file.read(MOST_BYTES + 1), path)
            with gzip.open(file) as unpacked:
                return _check_size(unpacked.read(MOST_BYTES + 1), path)
    except FileNotFoundError:
        raise NotReplayable(f"{path}: there is no such file") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise NotReplayable(f"{path}: it cannot be unpacked, for it is cut off or damaged; fetch it again") from None
    except OSError as error:
        raise NotReplayable(f"{path} cannot be read: {error.strerror or error}") from None


def _check_size(data: bytes, path: Path) -> bytes:
    if len(data) > MOST_BYTES:
        raise NotReplayable(
            f"{path}: it is larger than {MOST_BYTES >> 20:,} MiB unpacked; split it, one conversation a file"
        )
    return data


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _parse_json(text: str, path: Path, line: int = 0) -> Any:
    """`line` is the line of `text` in the file; 0 for the whole file."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"{path}:{line or error.lineno}"
        raise NotReplayable(f"{place}: this is not JSON: {error.msg}, at column {error.colno}") from None
    except RecursionError:
        raise NotReplayable(f"{path}:{line or 1}: this JSON is nested too deeply to be a conversation") from None
    except ValueError as error:
        raise NotReplayable(f"{path}:{line or 1}: this is not JSON: {error}") from None
