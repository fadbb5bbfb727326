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
from proxy.core.frames.path_state import Placed, Story
from proxy.core.frames.tree import Status
from proxy.core.observers.call_outcomes import exit_code, failed, output_of
from proxy.core.observers.commands import BUILD, LINT, TEST, TYPES, Ran, State, commands_seen
from proxy.core.observers.files import How, artifacts_of, files_seen
from proxy.core.observers.step import Done, steps_of
from proxy.core.observers.tool_roles import NAMES, Names
from proxy.core.text import clean

Patterns = Sequence[tuple[str, Sequence[str]]]
"""Globs of command lines, by the name that is told of them."""
CALLED = {TEST: "tests", LINT: "lint", BUILD: "build", TYPES: "types"}
"""The kinds that are known without configuration, by the names they are told by."""
STEPS = 200
"""The newest call groups that are looked at."""
FILES = 5
"""Files that are told, the newest ones."""


def probe_state(story: Story, names: Names, patterns: Patterns = ()) -> tuple[tuple[str, bool], ...]:
    """What is known at the end of a path: the kinds of commands in a fixed order, then the files."""
    ended: dict[str, bool] = {}
    files: dict[str, bool] = {}
    for step in list(steps_of(story.placed))[-STEPS:]:
        for ran in commands_seen(step, names):
            if ran.state is not State.UNKNOWN:
                ended |= dict.fromkeys(_called(ran, patterns), ran.state is State.OK)
        for file in files_seen(step, names):
            if file.sure and file.how is not How.READ:
                files.pop(file.path, None)
                files[file.path] = file.how is not How.DELETED
    order = dict.fromkeys((*CALLED.values(), *(name for name, _ in patterns)))
    return (*((name, ended[name]) for name in order if name in ended), *list(files.items())[-FILES:])


def _called(ran: Ran, patterns: Patterns) -> list[str]:
    """The names that a command is a probe of."""
    known = [CALLED[ran.kind]] if ran.kind in CALLED else []
    return known + [name for name, globs in patterns if any(fnmatchcase(ran.command, glob) for glob in globs)]


SHOWN = 100
"""Characters of a result as it is told (S3-03)."""
CUT = "..."
LOOKED_AT = 200
"""The newest messages of a frame in which its actions are looked for."""


def actions_of(story: Story, frame_id: str) -> Iterator[Done]:
    """The newest calls of the client's tools that belong to a frame, with their results, oldest first."""
    if frame_id not in story.tree.frames:
        return
    owner = story.tree.frames[frame_id].owner
    own: Sequence[Placed] = [p for p in story.placed if owner_of(story, p) == owner][-LOOKED_AT:]
    for step in steps_of(own):
        yield from (done for done in step.done if done.answered)


def in_a_line(done: Done) -> str:
    """`pytest → error: 1 failed`."""
    return f"{clean(done.call.name)} → {outcome(done)}"


def outcome(done: Done) -> str:
    """What came of a call, in a few words."""
    code = exit_code(done.result)
    text = output_of(done.result)
    words = " ".join(clean(text[: 8 * SHOWN]).split())
    if failed(done):
        ended = f"error (exit code {code})" if code else "error"
        return f"{ended}: {words if len(words) <= SHOWN else words[: SHOWN - len(CUT)] + CUT}"
    if len(text) <= SHOWN:
        return words or "ok"
    size = f"{text.count(chr(10)) + 1:,} lines, {len(text):,} characters"
    return f"exit code {code}, {size}" if code is not None else size


def with_artifacts(story: Story, names: Names = NAMES) -> Story:
    """The story with the files that open frames changed so far; what ended lists its own."""
    open_frames = [f for f in story.tree.frames.values() if f.status is Status.IN_PROGRESS]
    made = {f.id: artifacts_of(own_of(story, f.id), names) for f in open_frames}
    known = {f.id: replace(f, artifacts=tuple(dict.fromkeys((*f.artifacts, *made[f.id])))) for f in open_frames}
    return replace(story, tree=replace(story.tree, frames={**story.tree.frames, **known}))


def own_of(story: Story, frame: str) -> Iterator[Placed]:
    """What any segment of the frame owns."""
    return (placed for placed in story.placed if owner_of(story, placed).partition("#")[0] == frame)
