"""The formats by name: what each is for, what its files are called, and what makes them.

A new format is one module and one line here. What this module does not do: it writes nothing (`writing` does).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from proxy.errors import BadRequest
from proxy.management.export import flamegraph as flames
from proxy.management.export import handover, jetbox, messages
from proxy.management.export import ledger as whole
from proxy.management.export import otel as spans
from proxy.management.export import stack_layout as layout
from proxy.management.export.flamegraph import MEASURES, MeasureName
from proxy.management.export.items import items_of, log_lines
from proxy.management.export.source import Material

File = tuple[str, Iterator[bytes]]
"""A relative path with slashes, and what stands in it, piece by piece."""
JSON, LINES, TEXT, MARKDOWN = "application/json", "application/x-ndjson", "text/plain", "text/markdown"


@dataclass(frozen=True, slots=True)
class Options:
    """`untrimmed`: the client's history as it was sent (`messages`). `measure`: what is counted (`collapsed`)."""

    untrimmed: bool = False
    measure: MeasureName = "tokens"


@dataclass(frozen=True, slots=True)
class Format:
    """One way to tell a conversation. `suffix` is that of a file of it; a format of several `files` is a folder, or an
    archive. `returns`: it can be imported."""

    about: str
    kind: str
    suffix: str
    one: Callable[[Material, Options], Iterator[bytes]] | None = None
    files: Callable[[Material], Iterator[File]] | None = None
    returns: bool = False


def _messages(material: Material, options: Options) -> Iterator[bytes]:
    return iter((messages.untrimmed(material) if options.untrimmed else messages.trimmed(material), b"\n"))


FORMATS: Mapping[str, Format] = {
    "ledger": Format(
        "everything, a record a line; comes back exactly",
        LINES, ".ledger.jsonl", lambda material, _: whole.lines(material), returns=True,
    ),
    "stack": Format(
        "state.json, and a file and a log for each frame", JSON, "", files=layout.files, returns=True
    ),
    "jetbox": Format(
        "goal, tasks and subtasks; history.jsonl, loops.json", JSON, "", files=jetbox.files, returns=True
    ),
    "logs": Format(
        "every message once, a line each, with its frame",
        LINES, ".jsonl", lambda material, _: log_lines(items_of(material.ledger, material.story.tree)),
    ),
    "handover": Format(
        "what whoever goes on has to know, one page", MARKDOWN, ".md", lambda material, _: handover.page(material)
    ),
    "messages": Format("a request body that any client can go on with", JSON, ".messages.json", _messages),
    "speedscope": Format(
        "tokens, money and time by frame, for speedscope",
        JSON, ".speedscope.json", lambda material, _: flames.speedscope(material),
    ),
    "collapsed": Format(
        "the same as collapsed stacks, for any flame graph",
        TEXT, ".collapsed.txt", lambda material, options: flames.collapsed(material, options.measure),
    ),
    "otel": Format(
        "OpenTelemetry spans, as OTLP in JSON", LINES, ".otlp.jsonl", lambda material, _: spans.batches(material)
    ),
}  # fmt: skip
"""In the order in which they are listed."""


def format_named(name: str) -> Format:
    """Raises BadRequest, with the nearest name."""
    return FORMATS[_known(name, FORMATS, "format")]


def measure_named(name: str) -> MeasureName:
    """Raises BadRequest, with the nearest name."""
    known = _known(name, MEASURES, "measure")
    return next(measure for measure in MEASURES if measure == known)


def _known(name: str, names: Collection[str], what: str) -> str:
    if name in names:
        return name
    near = get_close_matches(name.strip().lower(), names, 1, 0.5)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    raise BadRequest(f"{what}: {name[:40]!r} is none.{meant} There are: {', '.join(names)}.", code=f"unknown_{what}")
