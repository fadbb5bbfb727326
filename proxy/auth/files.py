"""JSON files with what an operator has issued or limited, read anew when they change."""

from __future__ import annotations

import logging
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
        self._held: tuple[tuple[int, int, int] | None, Content | None] = (None, None)
        """Version and content, as one: threads read at once."""

    def read(self) -> Content | None:
        """What the file holds now. None if it cannot be read: what it held a moment ago counts no more."""
        known, content = self._held
        try:
            status = self._file.stat()
            version = (status.st_mtime_ns, status.st_size, status.st_ino)
            if version != known:
                content = self._load(self._file)
                self._held = version, content
        except (OSError, InvalidConfiguration) as error:
            now = self._missing if isinstance(error, FileNotFoundError) else None
            if content is not None and now is None:
                details = {"file": str(self._file), "reason": type(error).__name__}
                log.warning("client keys or limits cannot be read", extra=details)
            self._held = None, now
            return now
        return content
