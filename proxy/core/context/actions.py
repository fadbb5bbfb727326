"""How things stand, as named yes and no: what the newest run of each kind of command came to, and which files are there
(S3-05).

Tests, linters, builds and type checks are known by their commands; configuration names others. A file is there where a
call of the client's wrote it, and is not where one took it away.

The law: **only what a result says is told**. A command whose end is unknown changes nothing, and of a file that nobody
wrote nothing is said.

What this module does not do: it runs nothing and looks at no disk.

What was done, in a line each: the name of a tool and what came of it (S3-03).

The law: **a line is short**, however long the output was: an error is cut at 100 characters, and of anything longer
than that only its size and how it ended are told.

What this module does not do: it cuts nothing on a line (`minimizing` does), and judges no result itself (`observe`).

What the open frames of a path made so far (S0-16).

A frame that ends takes the list of its files along with its results. The law: **an open frame lists what it would take
along now**, to people as to the model.

What this module does not do: it lists no file that was only read, and nothing of a command line (`observe.files`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from msgspec.structs import replace

from proxy.core.context.message_list import owner_of
from proxy.core.frames import PathEntry, PathState, Status
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
"""Globs of command lines, by the name that is told of them."""
PROBE_NAMES = {TEST: "tests", LINT: "lint", BUILD: "build", TYPES: "types"}
"""The kinds that are known without configuration, by the names they are told by."""
RECENT_STEPS_LIMIT = 200
"""The newest call groups that are looked at."""
MAX_FILE_PROBES = 5
"""Files that are told, the newest ones."""


def probe_state(path_state: PathState, names: ToolRoles, patterns: ProbePatterns = ()) -> tuple[tuple[str, bool], ...]:
    """What is known at the end of a path: the kinds of commands in a fixed order, then the files."""
    ended: dict[str, bool] = {}
    files: dict[str, bool] = {}
    for step in list(steps_of(path_state.entries))[-RECENT_STEPS_LIMIT:]:
        for ran in observe_commands(step, names):
            if ran.outcome is not CommandOutcome.UNKNOWN:
                ended |= dict.fromkeys(_probe_names_of(ran, patterns), ran.outcome is CommandOutcome.OK)
        for file in observe_files(step, names):
            if file.is_certain and file.action is not FileAction.READ:
                files.pop(file.path, None)
                files[file.path] = file.action is not FileAction.DELETED
    order = dict.fromkeys((*PROBE_NAMES.values(), *(name for name, _ in patterns)))
    return (*((name, ended[name]) for name in order if name in ended), *list(files.items())[-MAX_FILE_PROBES:])


def _probe_names_of(ran: CommandRun, patterns: ProbePatterns) -> list[str]:
    """The names that a command is a probe of."""
    known = [PROBE_NAMES[ran.kind]] if ran.kind in PROBE_NAMES else []
    return known + [name for name, globs in patterns if any(fnmatchcase(ran.command, glob) for glob in globs)]


RESULT_CHARACTERS = 100
"""Characters of a result as it is told (S3-03)."""
RESULT_ELLIPSIS = "..."
RECENT_ENTRIES_LIMIT = 200
"""The newest messages of a frame in which its actions are looked for."""


def actions_of(path_state: PathState, frame_id: str) -> Iterator[ToolExecution]:
    """The newest calls of the client's tools that belong to a frame, with their results, oldest first."""
    if frame_id not in path_state.tree.frames:
        return
    owner = path_state.tree.frames[frame_id].owner
    own: Sequence[PathEntry] = [p for p in path_state.entries if owner_of(path_state, p) == owner][
        -RECENT_ENTRIES_LIMIT:
    ]
    for step in steps_of(own):
        yield from (done for done in step.executions if done.answered)


def format_action(done: ToolExecution) -> str:
    """`pytest → error: 1 failed`."""
    return f"{remove_illegal_xml(done.call.name)} → {describe_outcome(done)}"


def describe_outcome(done: ToolExecution) -> str:
    """What came of a call, in a few words."""
    code = exit_code(done.result)
    text = output_of(done.result)
    words = " ".join(remove_illegal_xml(text[: 8 * RESULT_CHARACTERS]).split())
    if call_failed(done):
        ended = f"error (exit code {code})" if code else "error"
        if len(words) > RESULT_CHARACTERS:
            words = words[: RESULT_CHARACTERS - len(RESULT_ELLIPSIS)] + RESULT_ELLIPSIS
        return f"{ended}: {words}"
    if len(text) <= RESULT_CHARACTERS:
        return words or "ok"
    size = f"{text.count(chr(10)) + 1:,} lines, {len(text):,} characters"
    return f"exit code {code}, {size}" if code is not None else size


def with_open_frame_artifacts(path_state: PathState, names: ToolRoles = DEFAULT_TOOL_ROLES) -> PathState:
    """The story with the files that open frames changed so far; what ended lists its own."""
    open_frames = [f for f in path_state.tree.frames.values() if f.status is Status.IN_PROGRESS]
    made = {f.id: changed_paths_of(entries_of_frame(path_state, f.id), names) for f in open_frames}
    known = {f.id: replace(f, artifacts=tuple(dict.fromkeys((*f.artifacts, *made[f.id])))) for f in open_frames}
    return replace(path_state, tree=replace(path_state.tree, frames={**path_state.tree.frames, **known}))


def entries_of_frame(path_state: PathState, frame: str) -> Iterator[PathEntry]:
    """What any segment of the frame owns."""
    return (
        path_entry for path_entry in path_state.entries if owner_of(path_state, path_entry).partition("#")[0] == frame
    )
