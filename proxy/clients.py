"""What clients tell about their sessions in headers (measured, CLIENTS.md sections 1 and 8).

A session header names a thread; a parent or agent header says that the thread was delegated. Only such headers count:
a cache key or a request id that a client shares between threads, or repeats, is none.
"""

from __future__ import annotations

from collections.abc import Iterable

SESSION = (b"x-stack-session", b"x-session-id", b"x-session-affinity")
"""Ours first; then opencode's two, which are equal."""
PARENT = (b"x-parent-session-id",)
"""The session that delegated this one (opencode)."""
LONGEST = 200
"""Bytes of a session name that count."""

Headers = Iterable[tuple[bytes, bytes]]


def session_hint(headers: Headers) -> str:
    """The session the client names, or empty."""
    return _first(headers, SESSION)


def parent_hint(headers: Headers) -> str:
    """The session that this one was delegated by, or empty."""
    return _first(headers, PARENT)


def _first(headers: Headers, names: tuple[bytes, ...]) -> str:
    told = {name.lower(): value for name, value in headers}
    return next((told[n][:LONGEST].decode("latin-1").strip() for n in names if told.get(n, b"").strip()), "")
