"""What lies where an import is asked to look: a file, a folder or an archive, as named documents and lines.

The law: **nothing is unpacked and no name is believed**. Only the names a layout has are asked for, and what is read of
one is bounded.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, NoReturn, Protocol

from proxy.errors import BadRequest

LARGEST = 256 * 1024 * 1024
"""Bytes of one document, or of one line."""
KEPT_IN = ("", "stack", ".opencode/stack", ".agent_context")
"""Where below a folder a layout may lie."""


class Shelf(Protocol):
    """Files by their names, with slashes."""

    def names(self) -> list[str]: ...

    def open(self, name: str) -> IO[bytes]: ...


class Folder:
    """A directory on disk."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def names(self) -> list[str]:
        return sorted(path.relative_to(self._place).as_posix() for path in self._place.rglob("*") if path.is_file())

    def open(self, name: str) -> IO[bytes]:
        return (self._place / name).open("rb")


class Archive:
    """A zip archive, read where it lies; a folder that everything in it is in does not count."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        names = [name for name in archive.namelist() if not name.endswith("/")]
        first = {PurePosixPath(name).parts[0] for name in names if "/" in name}
        whole = len(first) == 1 and all("/" in name for name in names)
        self._before = f"{first.pop()}/" if whole else ""

    def names(self) -> list[str]:
        return sorted(name.removeprefix(self._before) for name in self._archive.namelist() if not name.endswith("/"))

    def open(self, name: str) -> IO[bytes]:
        return self._archive.open(self._before + name)


@contextmanager
def shelf_at(place: Path) -> Iterator[Shelf]:
    """The files of a folder or an archive. Raises BadRequest where it is neither."""
    if place.is_dir():
        yield Folder(next((f for below in KEPT_IN if ((f := place / below) / "state.json").is_file()), place))
        return
    try:
        with zipfile.ZipFile(place) as archive:
            yield Archive(archive)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError) as error:  # zipfile's of a method it lacks
        refuse(f"{place} is neither a folder, nor an archive that can be read, nor a file of a known format ({error})")


def document(shelf: Shelf, name: str) -> dict[str, Any]:
    """A JSON object. Raises BadRequest, which names the file and what is wrong with it."""
    with shelf.open(name) as source:
        data = source.read(LARGEST + 1)
    if len(data) > LARGEST:
        refuse(f"{name} is larger than {LARGEST:,} bytes")
    try:
        told = json.loads(data)
    except (ValueError, RecursionError) as error:
        refuse(f"{name} is no JSON ({error})")
    return told if isinstance(told, dict) else refuse(f"{name} is no JSON object")


def rows(source: IO[bytes], name: str) -> Iterator[bytes]:
    """The lines of a file, without empty ones. Raises BadRequest for one that has no end."""
    while line := source.readline(LARGEST + 1):
        if len(line) > LARGEST:
            refuse(f"{name} has a line of more than {LARGEST:,} bytes")
        if line.strip():
            yield line


def objects(shelf: Shelf, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The JSON objects of a file of lines, with the numbers of their lines. Raises BadRequest."""
    with shelf.open(name) as source:
        for number, line in enumerate(rows(source, name), start=1):
            try:
                told = json.loads(line)
            except (ValueError, RecursionError):
                refuse(f"{name}, line {number} is no JSON; was the file cut off?")
            if not isinstance(told, dict):
                refuse(f"{name}, line {number} is no JSON object")
            yield number, told


def refuse(what: str) -> NoReturn:
    """Raises BadRequest. Nothing has been written at that time."""
    raise BadRequest(f"{what}. Nothing was imported.", code="not_importable")
