"""The answer to how a request relates to a known conversation: a kind, and where the request continues."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from proxy.core.ledger import Entry


class MatchKind(StrEnum):
    """How a request relates to a known conversation."""

    NEW = "new"
    CONTINUED = "continued"
    RETRIED = "retried"
    BRANCHED = "branched"
    ALIGNED = "aligned"
    """The client rewrote or shortened its history; our turns in it say where it continues."""
    COMPACTED = "compacted"
    """The client replaced its history; the session it names, or a summary, says where it continues."""


class Match(msgspec.Struct, frozen=True):
    """Where a request continues. `path` are the known entries of its first messages, in order; `aliases` the stored
    entries that later messages are another form of, by position; `adopts` the entry whose state continues. `exact` is
    how many of `path` are known by their identity, or -1 for all. `call_ids` are the stored ids of known calls by those
    of the client, where it makes them anew."""

    kind: MatchKind
    path: tuple[Entry, ...] = ()
    aliases: tuple[str, ...] = ()
    adopts: str = ""
    exact: int = -1
    call_ids: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def newest_known(self) -> str:
        """The id of the last entry of `path`; empty if nothing is known."""
        return self.path[-1].id if self.path else ""

    @property
    def depth(self) -> int:
        return len(self.path)
