"""JSON files with what an operator has issued or limited: replaced as a whole, by one after the other, and read anew
when they change."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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


@contextmanager
def change_file(file: Path, what: str) -> Iterator[None]:
    """The block reads `file` and replaces it, while no other thread or process does. Raises InvalidConfiguration if it
    cannot be written; `what` says what the file holds."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = os.open(file.parent, os.O_RDONLY | os.O_CLOEXEC)  # the file itself is another one with each change
        try:
            with suppress(OSError):  # some file systems have no locks
                fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)
    except OSError as error:
        raise InvalidConfiguration(f"{file}: {what} cannot be written: {error.strerror}") from None


def replace_file(file: Path, content: object) -> None:
    """Writes `content` as JSON in place of the file, at once and with mode 0600. Raises OSError."""
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
