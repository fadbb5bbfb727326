"""A frame as a task: the few fields that readers of a database know, in three statuses instead of six (C6).

    active     planned, in_progress
    complete   completed
    blocked    blocked, failed, and invalidated, which has `valid_to` as well

The law: **a task says less than its frame, and nothing else**. A goal is the title, times are ms since the epoch, what
does not apply is None.

What this module does not do: it changes no frame, and reads no store.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from proxy.core.frames.frames import Frame, Status, Tree, ancestors

STATUSES: Mapping[Status, str] = {
    Status.PLANNED: "active",
    Status.IN_PROGRESS: "active",
    Status.COMPLETED: "complete",
    Status.FAILED: "blocked",
    Status.BLOCKED: "blocked",
    Status.INVALIDATED: "blocked",
}


class Task(msgspec.Struct, frozen=True):
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


def task_of(tree: Tree, frame: Frame) -> Task:
    """`frame`, which is in `tree`, as a task."""
    ended = frame.status in (Status.COMPLETED, Status.FAILED)
    return Task(
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
