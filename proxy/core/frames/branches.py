"""Lines of work: the branches of one client thread, and the points at which they begin.

A client knows one history, which only grows. The proxy may have the work in it stand on several lines: `main`, and
branches that each begin at a *checkpoint*, a point of an earlier line with a name. One of them is current; what the
client says goes there, and nowhere else. What is wanted of them waits here until a message of the user comes, which is
the one place where a line can be left without cutting through a call group.

The law: **names only**. A line is what the path says of it (`path_state`); this holds which there are, and nothing
of what stands on them.

What this module does not do: it decides nothing (`branching` does), and renders nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from proxy.core.frames.events import (
    BranchSwitched,
    BranchSwitchRequested,
    CheckpointSet,
    CopiedText,
    FrameEvent,
    InjectionDelivered,
    InjectionRequested,
)

MAIN_BRANCH = "main"
"""The line on which every conversation begins."""
MAX_AUTOMATIC_CHECKPOINTS = 32
"""Checkpoints that nobody asked for, the newest ones; one named by somebody stays."""
BRANCH_EVENT_KINDS = frozenset({"checkpoint", "line wanted", "switched", "injection wanted", "injected"})
"""Kinds of events that say something of lines."""
BRANCH_SWITCHED_KIND = "switched"
"""The kind of the event with which another line becomes current."""
RequestFingerprint = tuple[str, str, str]
"""Of a request: the hashes of its system text and of its tools, and the model."""


class Checkpoint(msgspec.Struct, frozen=True):
    """A point: everything on the line `line` up to and with the entry `at`. `created` is in ms since the epoch."""

    name: str
    at: str
    branch: str
    automatic: bool
    fingerprint: RequestFingerprint
    created: int


class PendingInjection(msgspec.Struct, frozen=True):
    """Texts of the line `source` that wait for the next request on the line `line`."""

    branch: str
    source_branch: str
    texts: tuple[CopiedText, ...]


class BranchState(msgspec.Struct, frozen=True):
    """`begun` are the lines there are, with the checkpoint each began at (none: `main`), in order; `looks` how a
    request looked on each: the last one before it was left, or the one before the checkpoint it begins at."""

    current: str = MAIN_BRANCH
    start_checkpoints: Mapping[str, str] = msgspec.field(default_factory=lambda: {MAIN_BRANCH: ""})
    checkpoints: Mapping[str, Checkpoint] = msgspec.field(default_factory=dict)
    fingerprints: Mapping[str, RequestFingerprint] = msgspec.field(default_factory=dict)
    requested_switch: BranchSwitchRequested | None = None
    pending_injections: tuple[PendingInjection, ...] = ()


def reduce_branches(lines: BranchState, event: FrameEvent, created: int) -> BranchState:
    """What an event at `created` (ms since the epoch) makes of the lines; most say nothing of them."""
    match event:
        case CheckpointSet() if event.name not in lines.checkpoints:
            made = Checkpoint(event.name, event.at, event.line, event.automatic, event.look, created)
            return replace(lines, checkpoints=_limit_automatic({**lines.checkpoints, made.name: made}))
        case BranchSwitchRequested():
            return replace(lines, requested_switch=None if event.line == lines.current else event)
        case BranchSwitched():
            return _switch(lines, event)
        case InjectionRequested():
            waiting = PendingInjection(event.line, event.source, event.texts)
            return replace(lines, pending_injections=(*lines.pending_injections, waiting))
        case InjectionDelivered():
            return replace(
                lines, pending_injections=tuple(each for each in lines.pending_injections if each.branch != event.line)
            )
        case _:
            return lines


def _limit_automatic(checkpoints: Mapping[str, Checkpoint]) -> Mapping[str, Checkpoint]:
    automatic = [each.name for each in checkpoints.values() if each.automatic]
    gone = set(automatic[:-MAX_AUTOMATIC_CHECKPOINTS])
    return {name: each for name, each in checkpoints.items() if name not in gone}


def _switch(lines: BranchState, event: BranchSwitched) -> BranchState:
    looks = {**lines.fingerprints, lines.current: event.look}
    begun = lines.start_checkpoints
    if event.line not in begun:
        begun = {**begun, event.line: event.checkpoint}
        if (point := lines.checkpoints.get(event.checkpoint)) is not None:
            looks[event.line] = point.fingerprint
    return replace(lines, current=event.line, start_checkpoints=begun, fingerprints=looks, requested_switch=None)
