"""How JSON values become bytes: as they are sent, and in the one spelling by which equal ones are recognised.

Reading JSON whose shape nobody promised: what has the wrong type reads as nothing, and never raises.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def encoded(value: Any) -> bytes:
    """Compact JSON in UTF-8. A lone surrogate, which UTF-8 cannot hold, is written as the JSON escape it came from."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def canonical(value: Any) -> bytes:
    """The bytes by which a piece of a request is known: sorted keys, no cache markers."""
    return json.dumps(_without_markers(value), sort_keys=True).encode()


def _without_markers(value: Any) -> Any:
    """The same value less cache markers, which say where to cache and are no text."""
    if isinstance(value, dict):
        return {key: _without_markers(item) for key, item in value.items() if key != "cache_control"}
    if isinstance(value, list):
        return [_without_markers(item) for item in value]
    return value


def mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def mappings(value: Any) -> list[Mapping[str, Any]]:
    """The objects in a list, in order; none if it is no list."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
