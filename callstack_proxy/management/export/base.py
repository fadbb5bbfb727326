"""What an export format is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from callstack_proxy.management.export.source import ExportInput

ExportFile = tuple[str, Iterator[bytes]]
"""A relative path with slashes, and the content in pieces."""
JSON, LINES, TEXT, MARKDOWN = "application/json", "application/x-ndjson", "text/plain", "text/markdown"
MeasureName = Literal["tokens", "output", "cost", "time"]


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """`untrimmed` (format "messages"): the history as the client sent it. `measure` (format "collapsed"): what is
    counted."""

    untrimmed: bool = False
    measure: MeasureName = "tokens"


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """A format has either `render` (one file with `suffix`) or `render_files` (a folder or an archive)."""

    description: str
    content_type: str
    suffix: str
    render: Callable[[ExportInput, ExportOptions], Iterator[bytes]] | None = None
    render_files: Callable[[ExportInput], Iterator[ExportFile]] | None = None
    is_importable: bool = False
