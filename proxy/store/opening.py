"""Which store a configuration means. A new kind of store is one function and one line in `STORES`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from proxy.errors import InvalidConfiguration
from proxy.store import Store
from proxy.store.memory import MemoryStore
from proxy.store.sql import SqlStore
from proxy.store.sqlite import SqliteFile

FILE = "callstack.db"
"""The file in the data directory, where none is named."""


def _sqlite(rest: str, data: Path, sets_aside: bool) -> Store:  # noqa: FBT001 - one of `STORES`
    return SqlStore(SqliteFile(Path(rest).expanduser() if rest else data / FILE, sets_aside=sets_aside))


def _memory(rest: str, data: Path, sets_aside: bool) -> Store:  # noqa: FBT001 - one of `STORES`
    return MemoryStore()


STORES: dict[str, Callable[[str, Path, bool], Store]] = {"sqlite": _sqlite, "memory": _memory}
"""By scheme: what follows the colon, the data directory, and whether a damaged file is set aside make a store."""


def open_store(url: str, data: Path, *, sets_aside: bool = True) -> Store:
    """The store that `url` names, not started yet: `sqlite` (a file in `data`), `sqlite:/a/path.db`, or `memory:`.
    Without `sets_aside` a damaged file stays where it is, and cannot be used."""
    scheme, _, rest = url.partition(":")
    if scheme not in STORES:
        raise InvalidConfiguration(
            f"store: {url.split('@')[-1]!r} is not a store; allowed: sqlite, sqlite:/a/path.db, memory:"
        )
    return STORES[scheme](rest, data, sets_aside)
