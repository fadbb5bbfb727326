"""Short texts about recent work: probe results (tests, lint, build, types, files present), tool calls on one line each,
and the files that open frames have changed. A command with an unknown outcome changes no probe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from msgspec.structs import replace

from proxy.core.frames import PathEntry, PathState, Status, frame_id_of
from proxy.core.observers import (
    BUILD,
    DEFAULT_TOOL_ROLES,
    LINT,
    TEST,
    TYPES,
    CommandOutcome,
    CommandRun,
    FileAction,
    ToolExecution,
    ToolRoles,
    call_failed,
    changed_paths_of,
    exit_code,
    observe_commands,
    observe_files,
    output_of,
    steps_of,
)
from proxy.core.text import remove_illegal_xml

ProbePatterns = Sequence[tuple[str, Sequence[str]]]
"""Pairs of a probe name and the globs of command lines that belong to it."""
PROBE_NAMES = {TEST: "tests", LINT: "lint", BUILD: "build", TYPES: "types"}
"""Built-in probes: kind of command to the name in the block."""
RECENT_STEPS_LIMIT = 200
"""Only so many of the newest call groups are read."""
MAX_FILE_PROBES = 5


def probe_state(path_state: PathState, names: ToolRoles, patterns: ProbePatterns = ()) -> tuple[tuple[str, bool], ...]:
    """The latest outcome of each probe: kinds of commands in a fixed order, then the newest `MAX_FILE_PROBES` files."""
    outcomes: dict[str, bool] = {}
    files: dict[str, bool] = {}
    for step in list(steps_of(path_state.entries))[-RECENT_STEPS_LIMIT:]:
        for command in observe_commands(step, names):
            if command.outcome is not CommandOutcome.UNKNOWN and not command.on_stash:
                outcomes |= dict.fromkeys(_probe_names_of(command, patterns), command.outcome is CommandOutcome.OK)
        for file in observe_files(step, names):
            if file.is_certain and file.action is not FileAction.READ:
                files.pop(file.path, None)
                files[file.path] = file.action is not FileAction.DELETED
    order = dict.fromkeys((*PROBE_NAMES.values(), *(name for name, _ in patterns)))
    return (*((name, outcomes[name]) for name in order if name in outcomes), *list(files.items())[-MAX_FILE_PROBES:])


def _probe_names_of(command: CommandRun, patterns: ProbePatterns) -> list[str]:
    builtin = [PROBE_NAMES[command.kind]] if command.kind in PROBE_NAMES else []
    return builtin + [name for name, globs in patterns if any(fnmatchcase(command.command, glob) for glob in globs)]


RESULT_CHARACTERS = 100
RESULT_ELLIPSIS = "..."
RECENT_ENTRIES_LIMIT = 200
"""Only so many of a frame's newest entries are searched for actions."""


def actions_of(path_state: PathState, frame_id: str) -> Iterator[ToolExecution]:
    if frame_id not in path_state.tree.frames:
        return
    owner = path_state.tree.frames[frame_id].owner
    entries: Sequence[PathEntry] = path_state.entries_of(owner.__eq__)[-RECENT_ENTRIES_LIMIT:]
    for step in steps_of(entries):
        yield from (execution for execution in step.executions if execution.answered)


def format_action(execution: ToolExecution) -> str:
    """One line, as in `pytest → error: 1 failed`."""
    return f"{remove_illegal_xml(execution.call.name)} → {describe_outcome(execution)}"


def describe_outcome(execution: ToolExecution) -> str:
    code = exit_code(execution.result)
    text = output_of(execution.result)
    words = " ".join(remove_illegal_xml(text[: 8 * RESULT_CHARACTERS]).split())
    if call_failed(execution):
        outcome = f"error (exit code {code})" if code else "error"
        if len(words) > RESULT_CHARACTERS:
            words = words[: RESULT_CHARACTERS - len(RESULT_ELLIPSIS)] + RESULT_ELLIPSIS
        return f"{outcome}: {words}"
    if len(text) <= RESULT_CHARACTERS:
        return words or "ok"
    size = f"{text.count(chr(10)) + 1:,} lines, {len(text):,} characters"
    return f"exit code {code}, {size}" if code is not None else size


def with_open_frame_artifacts(path_state: PathState, names: ToolRoles = DEFAULT_TOOL_ROLES) -> PathState:
    """`path_state` with the files that open frames have changed so far added to their artifacts."""
    open_frames = [f for f in path_state.tree.frames.values() if f.status is Status.IN_PROGRESS]
    changed = {f.id: changed_paths_of(entries_of_frame(path_state, f.id), names) for f in open_frames}
    updated = {f.id: replace(f, artifacts=tuple(dict.fromkeys((*f.artifacts, *changed[f.id])))) for f in open_frames}
    return replace(path_state, tree=replace(path_state.tree, frames={**path_state.tree.frames, **updated}))


def entries_of_frame(path_state: PathState, frame: str) -> Sequence[PathEntry]:
    return path_state.entries_of(lambda owner: frame_id_of(owner) == frame)
