"""Opens the SQLite database of a client to read it, and leaves no file beside it.

SQLite makes `-wal` and `-shm` files even for a reader, where the database was last written in WAL mode. As
`immutable` it makes none, and reads no `-wal` either: where there is one with content, because the client runs or was
killed, both are copied first.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def opened_log(path: Path) -> Iterator[sqlite3.Connection]:
    """Raises sqlite3.Error and OSError."""
    path = path.resolve()
    journal = path.with_name(f"{path.name}-wal")
    if not (journal.is_file() and journal.stat().st_size):
        with closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as database:
            yield database
        return
    with TemporaryDirectory(prefix="callstack-") as folder:
        copy = Path(folder, "copy.db")
        shutil.copyfile(path, copy)
        shutil.copyfile(journal, copy.with_name(f"{copy.name}-wal"))
        with closing(sqlite3.connect(copy)) as database:
            yield database
