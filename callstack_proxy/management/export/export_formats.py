"""The export formats by their names: the entry points `callstack.exports`, ours and those of other packages."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from functools import cache

from callstack_proxy.entry_points import load_all
from callstack_proxy.management.export.base import ExportFormat, MeasureName
from callstack_proxy.management.export.flamegraph import MEASURES
from proxy.errors import BadRequest


@cache
def export_formats() -> Mapping[str, ExportFormat]:
    return load_all("callstack.exports", ExportFormat)


def format_named(name: str) -> ExportFormat:
    """Raises BadRequest, which suggests the nearest name."""
    return export_formats()[_require_known(name, export_formats(), "format")]


def measure_named(name: str) -> MeasureName:
    """Raises BadRequest, which suggests the nearest name."""
    known = _require_known(name, MEASURES, "measure")
    return next(measure for measure in MEASURES if measure == known)


def _require_known(name: str, names: Collection[str], what: str) -> str:
    if name in names:
        return name
    near = get_close_matches(name.strip().lower(), names, 1, 0.5)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    raise BadRequest(f"{what}: {name[:40]!r} is none.{meant} There are: {', '.join(names)}.", code=f"unknown_{what}")
