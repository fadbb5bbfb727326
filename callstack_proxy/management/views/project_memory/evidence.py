"""What a frame did, as evidence for what it says of itself: the files that its calls read and changed, and the commands
that were run, each with how it ended by its own output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from typing_extensions import TypedDict

from callstack_proxy.management.views.schemas import TouchedFile
from proxy.core.context import owner_of
from proxy.core.frames import CHANGED, PathEntry, PathState, descendants, frame_id_of
from proxy.core.observers import CommandRun, ToolRoles, iter_touched_files, observe_commands, steps_of

MAX_FILES = 12
"""Files of a frame; those that it changed come first."""
MAX_COMMANDS = 6
"""Commands of a frame; tests, linters, builds and type checks come before others."""


class CommandEvidence(TypedDict):
    """`kind` is test, lint, build, types, or empty."""

    command: str
    outcome: Literal["ok", "failed", "unknown"]
    kind: str


class FrameEvidence(TypedDict):
    """`commands`: each wording once, as it ended the last time, in the order of the last runs."""

    files: list[TouchedFile]
    commands: list[CommandEvidence]


def frame_evidence(path_state: PathState, frame: str, names: ToolRoles) -> FrameEvidence:
    """Of the frame and of those below it."""
    frames = {frame, *(below.id for below in descendants(path_state.tree, frame))}
    entries = [entry for entry in path_state.entries if _was_made_in(path_state, entry, frames)]
    return {"files": _files(entries, names), "commands": _commands(entries, names)}


def _was_made_in(path_state: PathState, entry: PathEntry, frames: set[str]) -> bool:
    return bool(frames & {frame_id_of(owner) for owner in (entry.owner, owner_of(path_state, entry))})


def _files(entries: Iterable[PathEntry], names: ToolRoles) -> list[TouchedFile]:
    files: dict[str, TouchedFile] = {}
    for entry, touched in iter_touched_files(entries, names):
        known = files.get(touched.path)
        how = CHANGED if known and known["how"] == CHANGED else touched.how
        files[touched.path] = {"path": touched.path, "how": how, "entry": entry.entry.id}
    return sorted(files.values(), key=lambda file: file["how"] != CHANGED)[:MAX_FILES]


def _commands(entries: Sequence[PathEntry], names: ToolRoles) -> list[CommandEvidence]:
    last: dict[str, CommandRun] = {}
    for step in steps_of(entries):
        for run in observe_commands(step, names):
            last.pop(run.command, None)
            last[run.command] = run
    checks_last = sorted(last.values(), key=lambda run: bool(run.kind))
    chosen = set(map(id, checks_last[-MAX_COMMANDS:]))
    return [
        {"command": run.command, "outcome": run.outcome.value, "kind": run.kind}
        for run in last.values()
        if id(run) in chosen
    ]
