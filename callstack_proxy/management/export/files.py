"""Writes an export as a file, a folder or a zip archive, or streams it. Files are written under a temporary name and
renamed, so an existing name is complete; only the owner can read them."""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from io import RawIOBase
from pathlib import Path

from callstack_proxy.management.export.base import ExportFile, ExportFormat, ExportOptions
from callstack_proxy.management.export.source import ExportInput
from callstack_proxy.management.export.stack_layout import safe_file_name
from proxy.errors import BadRequest

CHUNK_BYTES = 64 * 1024
"""Pieces are joined to chunks of at least this size."""
ARCHIVE_SUFFIX = ".zip"
ARCHIVE_CONTENT_TYPE = "application/zip"
ARCHIVE_TIMESTAMP = (1980, 1, 1, 0, 0, 0)
"""A constant time, so that the same conversation gives the same archive."""


def export_chunks(format_: ExportFormat, export_input: ExportInput, options: ExportOptions) -> Iterator[bytes]:
    """The file of a format, or its files as a zip archive, in chunks."""
    if format_.render_files is not None:
        return zip_chunks(format_.render_files(export_input))
    assert format_.render is not None  # noqa: S101 - a format has one or several files
    return _in_chunks(format_.render(export_input, options))


def file_name_for(format_: ExportFormat, export_input: ExportInput) -> str:
    return safe_file_name(export_input.id) + (format_.suffix or ARCHIVE_SUFFIX)


def content_type_of(format_: ExportFormat) -> str:
    return format_.content_type if format_.render else ARCHIVE_CONTENT_TYPE


def write_export(format_: ExportFormat, export_input: ExportInput, options: ExportOptions, place: Path) -> None:
    """Write the export to `place`: a file, or a folder if the format has several files and the name does not end in
    `.zip`. Raises BadRequest if `place` exists or cannot be written."""
    if place.exists():
        raise BadRequest(f"{place} is there already. Remove it, or name another place with --out.", code="not_written")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        if format_.render_files is not None and place.suffix != ARCHIVE_SUFFIX:
            _write_folder(format_.render_files(export_input), place)
        else:
            _write_file(export_chunks(format_, export_input, options), place)
    except OSError as error:
        raise BadRequest(
            f"{place} cannot be written: {error.strerror or error}. Name another place with --out.", code="not_written"
        ) from None


def _write_file(pieces: Iterable[bytes], place: Path) -> None:
    handle, temporary = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name[:64]}-")
    try:
        with os.fdopen(handle, "wb") as output:
            output.writelines(pieces)
        Path(temporary).replace(place)
    except BaseException:  # also Ctrl-C: no half a file stays
        Path(temporary).unlink(missing_ok=True)
        raise


def _write_folder(files: Iterable[ExportFile], place: Path) -> None:
    temporary = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name[:64]}-"))
    try:
        for name, pieces in files:
            path = temporary / name
            path.parent.mkdir(mode=0o700, exist_ok=True)
            _write_file(pieces, path)
        temporary.rename(place)
    except BaseException:  # also Ctrl-C: no half a folder stays
        shutil.rmtree(temporary, ignore_errors=True)
        raise


# ------------------------------------------------------------------------------------------------------------- streams
class _ForwardOnlyBuffer(RawIOBase):
    """An output file without seeking, so that written bytes can be sent at once."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        self._buffer += data
        return len(data)

    def take(self) -> bytes:
        data = bytes(self._buffer)
        self._buffer.clear()
        return data


def zip_chunks(files: Iterable[ExportFile]) -> Iterator[bytes]:
    """A zip archive, made while it is sent; it is never held in memory."""
    output = _ForwardOnlyBuffer()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, pieces in files:
            about = zipfile.ZipInfo(name, ARCHIVE_TIMESTAMP)
            about.compress_type = zipfile.ZIP_DEFLATED
            about.external_attr = 0o600 << 16
            with archive.open(about, "w", force_zip64=True) as member:
                for piece in _in_chunks(pieces):
                    member.write(piece)
                    if data := output.take():
                        yield data
    yield output.take()


def _in_chunks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= CHUNK_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)
