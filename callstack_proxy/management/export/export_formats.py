"""The list of export formats. A new format is one module and one entry in `FORMATS`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from callstack_proxy.management.export import flamegraph, handover, jetbox, ledger, messages, otel, stack_layout
from callstack_proxy.management.export.flamegraph import MEASURES, MeasureName
from callstack_proxy.management.export.items import items_of, log_lines
from callstack_proxy.management.export.source import ExportInput
from proxy.errors import BadRequest

ExportFile = tuple[str, Iterator[bytes]]
"""A relative path with slashes, and the content in pieces."""
JSON, LINES, TEXT, MARKDOWN = "application/json", "application/x-ndjson", "text/plain", "text/markdown"


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


def _render_messages(export_input: ExportInput, options: ExportOptions) -> Iterator[bytes]:
    return iter(
        (messages.original_body(export_input) if options.untrimmed else messages.context_body(export_input), b"\n")
    )


FORMATS: Mapping[str, ExportFormat] = {
    "ledger": ExportFormat(
        "everything, a record a line; comes back exactly",
        LINES, ".ledger.jsonl", lambda export_input, _: ledger.ledger_lines(export_input), is_importable=True,
    ),
    "stack": ExportFormat(
        "state.json, and a file and a log for each frame",
        JSON, "", render_files=stack_layout.stack_files, is_importable=True,
    ),
    "jetbox": ExportFormat(
        "goal, tasks and subtasks; history.jsonl, loops.json",
        JSON, "", render_files=jetbox.jetbox_files, is_importable=True,
    ),
    "logs": ExportFormat(
        "every message once, a line each, with its frame",
        LINES, ".jsonl", lambda export_input, _: log_lines(items_of(export_input.ledger, export_input.path_state.tree)),
    ),
    "handover": ExportFormat(
        "what whoever goes on has to know, one page",
        MARKDOWN, ".md", lambda export_input, _: handover.render_page(export_input),
    ),
    "messages": ExportFormat("a request body that any client can go on with", JSON, ".messages.json", _render_messages),
    "speedscope": ExportFormat(
        "tokens, money and time by frame, for speedscope",
        JSON, ".speedscope.json", lambda export_input, _: flamegraph.render_speedscope(export_input),
    ),
    "collapsed": ExportFormat(
        "the same as collapsed stacks, for any flame graph",
        TEXT, ".collapsed.txt",
        lambda export_input, options: flamegraph.render_collapsed(export_input, options.measure),
    ),
    "otel": ExportFormat(
        "OpenTelemetry spans, as OTLP in JSON",
        LINES, ".otlp.jsonl", lambda export_input, _: otel.span_batches(export_input),
    ),
}  # fmt: skip
"""In display order."""


def format_named(name: str) -> ExportFormat:
    """Raises BadRequest, which suggests the nearest name."""
    return FORMATS[_require_known(name, FORMATS, "format")]


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
