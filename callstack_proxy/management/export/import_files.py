"""Reads files of an import from a folder or a zip archive. Nothing is unpacked, only names that a layout defines are
opened, and the size of each read is limited."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, NoReturn, Protocol

from proxy.errors import BadRequest

MAX_DOCUMENT_BYTES = 256 * 1024 * 1024
"""Maximum size of a document or of one line."""
LAYOUT_FOLDERS = ("", "stack", ".opencode/stack", ".agent_context")
"""Subfolders in which a layout may be."""


class FileSource(Protocol):
    """Files by name, with slashes."""

    def file_names(self) -> list[str]: ...

    def open_file(self, name: str) -> IO[bytes]: ...


class FolderSource:
    def __init__(self, place: Path) -> None:
        self._root = place

    def file_names(self) -> list[str]:
        return sorted(path.relative_to(self._root).as_posix() for path in self._root.rglob("*") if path.is_file())

    def open_file(self, name: str) -> IO[bytes]:
        return (self._root / name).open("rb")


class ArchiveSource:
    """A zip archive, read in place; a single top-level folder is skipped."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        names = [name for name in archive.namelist() if not name.endswith("/")]
        first = {PurePosixPath(name).parts[0] for name in names if "/" in name}
        whole = len(first) == 1 and all("/" in name for name in names)
        self._prefix = f"{first.pop()}/" if whole else ""

    def file_names(self) -> list[str]:
        return sorted(name.removeprefix(self._prefix) for name in self._archive.namelist() if not name.endswith("/"))

    def open_file(self, name: str) -> IO[bytes]:
        return self._archive.open(self._prefix + name)


@contextmanager
def open_source(place: Path) -> Iterator[FileSource]:
    """Raises BadRequest if `place` is neither a folder nor an archive."""
    if place.is_dir():
        yield FolderSource(
            next((f for below in LAYOUT_FOLDERS if ((f := place / below) / "state.json").is_file()), place)
        )
        return
    try:
        with zipfile.ZipFile(place) as archive:
            yield ArchiveSource(archive)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError) as error:  # zipfile's of a method it lacks
        refuse_import(
            f"{place} is neither a folder, nor an archive that can be read, nor a file of a known format ({error})"
        )


def read_document(conversations: FileSource, name: str) -> dict[str, Any]:
    """A JSON object. Raises BadRequest, which names the file and the problem."""
    with conversations.open_file(name) as source:
        data = source.read(MAX_DOCUMENT_BYTES + 1)
    if len(data) > MAX_DOCUMENT_BYTES:
        refuse_import(f"{name} is larger than {MAX_DOCUMENT_BYTES:,} bytes")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        refuse_import(f"{name} is no JSON ({error})")
    return document if isinstance(document, dict) else refuse_import(f"{name} is no JSON object")


def read_lines(source: IO[bytes], name: str) -> Iterator[bytes]:
    """The lines of a file without empty ones. Raises BadRequest for a line that is too long."""
    while line := source.readline(MAX_DOCUMENT_BYTES + 1):
        if len(line) > MAX_DOCUMENT_BYTES:
            refuse_import(f"{name} has a line of more than {MAX_DOCUMENT_BYTES:,} bytes")
        if line.strip():
            yield line


def read_objects(conversations: FileSource, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """JSON objects with their line numbers. Raises BadRequest."""
    with conversations.open_file(name) as source:
        for number, line in enumerate(read_lines(source, name), start=1):
            try:
                fields = json.loads(line)
            except (ValueError, RecursionError):
                refuse_import(f"{name}, line {number} is no JSON; was the file cut off?")
            if not isinstance(fields, dict):
                refuse_import(f"{name}, line {number} is no JSON object")
            yield number, fields


def refuse_import(what: str) -> NoReturn:
    """Always raises BadRequest. Nothing has been written at that time."""
    raise BadRequest(f"{what}. Nothing was imported; name a file that `callstack export` wrote.", code="not_importable")
