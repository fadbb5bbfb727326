"""What a field of the log is: a figure of six digits, a short text, or a list or counts of such.

The journal makes the fields of every line plain. The one line that every request leaves is made plain by whoever says
it, who knows which of its thirty fields are texts and which are measured: to look at each of them again would cost as
much as all the rest of the line.

What this module does not do: it writes nothing, and takes no word out of a text.
"""

from __future__ import annotations

from typing import Any

MAX_FIELD_CHARS = 400
"""Characters of a field."""


class LogFields(dict[str, Any]):
    """Fields of a line by their names, plain already."""


def log_field(value: object) -> object:
    """As JSON says it: figures stay figures, lists and counts stay what they are, anything else is a short text."""
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
    """The text, cut where it is longer than a field may be."""
    return text if len(text) <= MAX_FIELD_CHARS else f"{text[: MAX_FIELD_CHARS - 1]}…"
