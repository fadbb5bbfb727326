"""How JSON values become bytes: as they are sent, and in the one spelling by which equal ones are recognised."""

from __future__ import annotations

import json
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
