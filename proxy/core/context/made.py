"""What the open frames of a path made so far (S0-16).

A frame that ends takes the list of its files along with its results. The law: **an open frame lists what it would take
along now**, to people as to the model.

What this module does not do: it lists no file that was only read, and nothing of a command line (`observe.files`).
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from proxy.core.context.line import owner_of
from proxy.core.frames.frames import Status
from proxy.core.frames.path_state import Placed, Story
from proxy.core.observers.files import artifacts_of
from proxy.core.observers.tool_roles import NAMES, Names


def with_artifacts(story: Story, names: Names = NAMES) -> Story:
    """The story with the files that open frames changed so far; what ended lists its own."""
    open_frames = [f for f in story.tree.frames.values() if f.status is Status.IN_PROGRESS]
    made = {f.id: artifacts_of(own_of(story, f.id), names) for f in open_frames}
    known = {f.id: replace(f, artifacts=tuple(dict.fromkeys((*f.artifacts, *made[f.id])))) for f in open_frames}
    return replace(story, tree=replace(story.tree, frames={**story.tree.frames, **known}))


def own_of(story: Story, frame: str) -> Iterator[Placed]:
    """What any segment of the frame owns."""
    return (placed for placed in story.placed if owner_of(story, placed).partition("#")[0] == frame)
