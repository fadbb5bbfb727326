"""What was done, in a line each: the name of a tool and what came of it (S3-03).

The law: **a line is short**, however long the output was: an error is cut at 100 characters, and of anything longer
than that only its size and how it ended are told.

What this module does not do: it cuts nothing on a line (`minimizing` does), and judges no result itself (`observe`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proxy.core.context.line import owner_of
from proxy.core.frames.path_state import Placed, Story
from proxy.core.observers.results import exit_code, failed, output_of
from proxy.core.observers.step import Done, steps_of
from proxy.core.text import clean

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
