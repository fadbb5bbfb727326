"""Reading JSON whose shape nobody promised: what has the wrong type reads as nothing, and never raises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def mappings(value: Any) -> list[Mapping[str, Any]]:
    """The objects in a list, in order; none if it is no list."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
