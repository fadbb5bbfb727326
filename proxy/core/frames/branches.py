"""The branches of one client thread, and the checkpoints at which they begin.

A client knows one growing history; the proxy may split its work into `main` and branches that each begin at a named
checkpoint. New messages go to the current branch. A requested switch waits for the user's next message, because only
there a branch can be left without splitting a call from its result. `path_state` holds the entries of each branch.
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
"""The branch on which every conversation begins."""
MAX_AUTOMATIC_CHECKPOINTS = 32
"""Automatic checkpoints to keep, newest first; named ones are never dropped."""
BRANCH_EVENT_KINDS = frozenset({"checkpoint", "line wanted", "switched", "injection wanted", "injected"})
"""Kinds of events about branches."""
BRANCH_SWITCHED_KIND = "switched"
RequestFingerprint = tuple[str, str, str]
"""Of a request: the hashes of its system text and of its tools, and the model."""


class Checkpoint(msgspec.Struct, frozen=True):
    """All entries of `branch` up to and including the entry `at`. `created` is in ms since the epoch."""

    name: str
    at: str
    branch: str
    automatic: bool
    fingerprint: RequestFingerprint
    created: int


class PendingInjection(msgspec.Struct, frozen=True):
    """Texts of `source_branch` that wait for the next request on `branch`."""

    branch: str
    source_branch: str
    texts: tuple[CopiedText, ...]


class BranchState(msgspec.Struct, frozen=True):
    """`start_checkpoints` lists the branches in order, with the checkpoint at which each began (`main`: none).
    `fingerprints` describes the last request of each branch before it was left, or before its checkpoint."""

    current: str = MAIN_BRANCH
    start_checkpoints: Mapping[str, str] = msgspec.field(default_factory=lambda: {MAIN_BRANCH: ""})
    checkpoints: Mapping[str, Checkpoint] = msgspec.field(default_factory=dict)
    fingerprints: Mapping[str, RequestFingerprint] = msgspec.field(default_factory=dict)
    requested_switch: BranchSwitchRequested | None = None
    pending_injections: tuple[PendingInjection, ...] = ()


def reduce_branches(branches: BranchState, event: FrameEvent, created: int) -> BranchState:
    """The branches after an event at `created` (ms since the epoch); most events change nothing."""
    match event:
        case CheckpointSet() if event.name not in branches.checkpoints:
            checkpoint = Checkpoint(event.name, event.at, event.branch, event.automatic, event.look, created)
            return replace(
                branches, checkpoints=_limit_automatic({**branches.checkpoints, checkpoint.name: checkpoint})
            )
        case BranchSwitchRequested():
            return replace(branches, requested_switch=None if event.branch == branches.current else event)
        case BranchSwitched():
            return _switch(branches, event)
        case InjectionRequested():
            injection = PendingInjection(event.branch, event.source, event.texts)
            return replace(branches, pending_injections=(*branches.pending_injections, injection))
        case InjectionDelivered():
            return replace(
                branches,
                pending_injections=tuple(
                    injection for injection in branches.pending_injections if injection.branch != event.branch
                ),
            )
        case _:
            return branches


def _limit_automatic(checkpoints: Mapping[str, Checkpoint]) -> Mapping[str, Checkpoint]:
    automatic = [each.name for each in checkpoints.values() if each.automatic]
    dropped = set(automatic[:-MAX_AUTOMATIC_CHECKPOINTS])
    return {name: each for name, each in checkpoints.items() if name not in dropped}


def _switch(branches: BranchState, event: BranchSwitched) -> BranchState:
    fingerprints = {**branches.fingerprints, branches.current: event.look}
    starts = branches.start_checkpoints
    if event.branch not in starts:
        starts = {**starts, event.branch: event.checkpoint}
        if (checkpoint := branches.checkpoints.get(event.checkpoint)) is not None:
            fingerprints[event.branch] = checkpoint.fingerprint
    return replace(
        branches, current=event.branch, start_checkpoints=starts, fingerprints=fingerprints, requested_switch=None
    )
