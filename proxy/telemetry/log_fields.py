"""Bounds the fields of log lines: figures of six digits, short texts, and lists or counts of these. The recorder bounds
the fields of the line `request` itself, because checking them again is slow."""

from __future__ import annotations

from typing import Any

MAX_FIELD_CHARS = 400


class LogFields(dict[str, Any]):
    """Fields by name, already bounded."""


def log_field(value: object) -> object:
    """A value for JSON: figures, lists and counts keep their type, everything else becomes a short text."""
    if isinstance(value, float):  # nearly all fields are one of these, and a pattern is asked at three times the cost
        return float(f"{value:.6g}")
    if isinstance(value, str):
        return truncate_field(value)
    if isinstance(value, int):
        return value
    match value:
        case None:
            return value
        case dict():
            return {truncate_field(str(name)): log_field(each) for name, each in value.items()}
        case list():
            return [log_field(each) for each in value]
        case _:
            return truncate_field(str(value))


def truncate_field(text: str) -> str:
    return text if len(text) <= MAX_FIELD_CHARS else f"{text[: MAX_FIELD_CHARS - 1]}…"
