"""Lines of work: the branches of one client thread, and the points at which they begin.

A client knows one history, which only grows. The proxy may have the work in it stand on several lines: `main`, and
branches that each begin at a *checkpoint*, a point of an earlier line with a name. One of them is current; what the
client says goes there, and nowhere else. What is wanted of them waits here until a message of the user comes, which is
the one place where a line can be left without cutting through a call group.

The law: **names only**. A line is what the path says of it (`story`); this holds which there are, and nothing of what
stands on them.

What this module does not do: it decides nothing (`branching` does), and renders nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from proxy.core.frames.events import CheckpointSet, Copied, FrameEvent, Injected, InjectionWanted, LineWanted, Switched

MAIN = "main"
"""The line on which every conversation begins."""
AUTOMATIC_KEPT = 32
"""Checkpoints that nobody asked for, the newest ones; one named by somebody stays."""
KINDS = frozenset({"checkpoint", "line wanted", "switched", "injection wanted", "injected"})
"""Kinds of events that say something of lines."""
SWITCHED = "switched"
"""The kind of the event with which another line becomes current."""
Look = tuple[str, str, str]
"""Of a request: the hashes of its system text and of its tools, and the model."""


class Checkpoint(msgspec.Struct, frozen=True):
    """A point: everything on the line `line` up to and with the entry `at`. `created` is in ms since the epoch."""

    name: str
    at: str
    line: str
    automatic: bool
    look: Look
    created: int


class Injection(msgspec.Struct, frozen=True):
    """Texts of the line `source` that wait for the next request on the line `line`."""

    line: str
    source: str
    texts: tuple[Copied, ...]


class Lines(msgspec.Struct, frozen=True):
    """`begun` are the lines there are, with the checkpoint each began at (none: `main`), in order; `looks` how a
    request looked on each: the last one before it was left, or the one before the checkpoint it begins at."""

    current: str = MAIN
    begun: Mapping[str, str] = msgspec.field(default_factory=lambda: {MAIN: ""})
    checkpoints: Mapping[str, Checkpoint] = msgspec.field(default_factory=dict)
    looks: Mapping[str, Look] = msgspec.field(default_factory=dict)
    wanted: LineWanted | None = None
    injections: tuple[Injection, ...] = ()


def after(lines: Lines, event: FrameEvent, created: int) -> Lines:
    """What an event at `created` (ms since the epoch) makes of the lines; most say nothing of them."""
    match event:
        case CheckpointSet() if event.name not in lines.checkpoints:
            made = Checkpoint(event.name, event.at, event.line, event.automatic, event.look, created)
            return replace(lines, checkpoints=_bounded({**lines.checkpoints, made.name: made}))
        case LineWanted():
            return replace(lines, wanted=None if event.line == lines.current else event)
        case Switched():
            return _switched(lines, event)
        case InjectionWanted():
            waiting = Injection(event.line, event.source, event.texts)
            return replace(lines, injections=(*lines.injections, waiting))
        case Injected():
            return replace(lines, injections=tuple(each for each in lines.injections if each.line != event.line))
        case _:
            return lines


def _bounded(checkpoints: Mapping[str, Checkpoint]) -> Mapping[str, Checkpoint]:
    automatic = [each.name for each in checkpoints.values() if each.automatic]
    gone = set(automatic[:-AUTOMATIC_KEPT])
    return {name: each for name, each in checkpoints.items() if name not in gone}


def _switched(lines: Lines, event: Switched) -> Lines:
    looks = {**lines.looks, lines.current: event.look}
    begun = lines.begun
    if event.line not in begun:
        begun = {**begun, event.line: event.checkpoint}
        if (point := lines.checkpoints.get(event.checkpoint)) is not None:
            looks[event.line] = point.look
    return replace(lines, current=event.line, begun=begun, looks=looks, wanted=None)
