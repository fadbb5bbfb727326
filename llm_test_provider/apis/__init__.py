"""The three dialects a scripted model speaks, and which path asks for which."""

from __future__ import annotations

from typing import Literal

Dialect = Literal["chat", "messages", "responses"]
ENDINGS: tuple[tuple[str, Dialect], ...] = (
    ("/chat/completions", "chat"),
    ("/messages", "messages"),
    ("/responses", "responses"),
)


def dialect_of(path: str) -> Dialect | None:
    """The dialect whose answers are asked for at this path; `None` for every other path."""
    return next((dialect for ending, dialect in ENDINGS if path.rstrip("/").endswith(ending)), None)
