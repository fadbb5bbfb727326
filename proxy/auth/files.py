"""JSON files with what an operator has issued or limited: replaced as a whole, and read anew when they change."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from proxy.errors import InvalidConfiguration

log = logging.getLogger(__name__)

Content = TypeVar("Content")


class WatchedFile(Generic[Content]):
    """What `load` makes of a file. `load` raises InvalidConfiguration if the file is unreadable."""

    def __init__(self, file: Path, load: Callable[[Path], Content], missing: Content | None = None) -> None:
        """`missing` stands for a file that is not there."""
        self._file = file
        self._load = load
        self._missing = missing
        self._version: tuple[int, int, int] | None = None
        self._content: Content | None = None

    def read(self) -> Content | None:
        """What the file holds now. None if it cannot be read: what it held a moment ago counts no more."""
        try:
            status = self._file.stat()
            version = (status.st_mtime_ns, status.st_size, status.st_ino)
            if version != self._version:
                self._content = self._load(self._file)
            self._version = version
        except (OSError, InvalidConfiguration) as error:
            now = self._missing if isinstance(error, FileNotFoundError) else None
            if self._content is not None and now is None:
                details = {"file": str(self._file), "reason": type(error).__name__}
                log.warning("client keys or limits cannot be read", extra=details)
            self._content, self._version = now, None
        return self._content


def replace_file(file: Path, content: object, what: str) -> None:
    """Writes `content` as JSON in place of the file, at once and with mode 0600. Raises InvalidConfiguration if that
    fails; `what` says what the file holds."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(file, content)
    except OSError as error:
        raise InvalidConfiguration(f"{file}: {what} cannot be written: {error.strerror}") from None


def _replace(file: Path, content: object) -> None:
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.stem}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as output:
            json.dump(content, output, indent=1)
            output.flush()
            os.fsync(output.fileno())
        Path(temporary).replace(file)
    except BaseException:  # also Ctrl-C: no copy stays
        Path(temporary).unlink(missing_ok=True)
        raise
