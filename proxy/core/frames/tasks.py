"""A frame as a task: the few fields that readers of a database know, in three statuses instead of six (C6).

    active     planned, in_progress
    complete   completed
    blocked    blocked, failed, and invalidated, which has `valid_to` as well

The law: **a task says less than its frame, and nothing else**. A goal is the title, times are ms since the epoch, what
does not apply is None.

What this module does not do: it changes no frame, and reads no store.

Attempts: a task that failed and is tried again, and what the next attempt is told of the one before (S0-39).

The law: **an attempt is a frame of its own**. What the one before did stays off the line; its lesson goes along.

What this module does not do: it begins nothing. Files are the client's, and stay as the attempt before left them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from proxy.core.frames.tree import Frame, Status, Tree, ancestors, children

STATUSES: Mapping[Status, str] = {
    Status.PLANNED: "active",
    Status.IN_PROGRESS: "active",
    Status.COMPLETED: "complete",
    Status.FAILED: "blocked",
    Status.BLOCKED: "blocked",
    Status.INVALIDATED: "blocked",
}


class FrameTask(msgspec.Struct, frozen=True):
    """`depth` counts from 0 at the root. `completed_at`: when it ended with a result, also a failed one. It is valid
    from its birth on, to when it was invalidated."""

    id: str
    parent_id: str | None
    goal: str
    status: str
    result: str | None
    depth: int
    created_at: int
    completed_at: int | None
    valid_from: int
    valid_to: int | None


def task_of(tree: Tree, frame: Frame) -> FrameTask:
    """`frame`, which is in `tree`, as a task."""
    ended = frame.status in (Status.COMPLETED, Status.FAILED)
    return FrameTask(
        id=frame.id,
        parent_id=frame.parent or None,
        goal=frame.title,
        status=STATUSES[frame.status],
        result=frame.results or None,
        depth=sum(1 for _ in ancestors(tree, frame.id)),
        created_at=frame.created_at,
        completed_at=frame.updated_at if ended else None,
        valid_from=frame.created_at,
        valid_to=frame.invalidated_at or None,
    )


MAX_LESSON_CHARACTERS = 2_000
"""Characters of what an attempt came to that are told whole; of a longer text its short form."""


def newest_failed_attempt(tree: Tree, title: str) -> Frame | None:
    """The newest frame by this title that failed under the active one."""
    wanted = title.casefold()
    failed = [f for f in children(tree, tree.active) if f.status is Status.FAILED and f.title.casefold() == wanted]
    return failed[-1] if failed else None


def attempt_number(tree: Tree, frame: str) -> int:
    """How often the task of a frame was tried, with this one."""
    tried: list[str] = []
    while frame in tree.frames and frame not in tried:
        tried.append(frame)
        frame = tree.frames[frame].retry_of
    return len(tried)


def lesson_of(tree: Tree, before: str) -> str:
    """What stands above the block of the attempt after `before`; empty where that is no frame that failed."""
    frame = tree.frames.get(before)
    if frame is None or frame.status is not Status.FAILED:
        return ""
    why = frame.results if len(frame.results) <= MAX_LESSON_CHARACTERS else frame.results_compacted
    number = attempt_number(tree, before)
    return f'Attempt {number + 1} at this. Attempt {number} (ref="{frame.id}") failed: {why}\n\n'
