"""A frame as a task with three statuses, for readers of the database and exports, and the lesson of a failed attempt.

    active     planned, in_progress
    complete   completed
    blocked    blocked, failed, and invalidated, which has `valid_to` as well

Each attempt at a task is a frame of its own: the next one gets the lesson of the one before, not its entries.
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
    """`depth` is 0 at the root. `completed_at`: when it completed or failed. Times are ms since the epoch; fields that
    do not apply are None."""

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
"""Longer results of a failed attempt are replaced by their short form."""


def newest_failed_attempt(tree: Tree, title: str) -> Frame | None:
    """The newest failed frame of this title under the active one; case does not count."""
    wanted = title.casefold()
    failed = [f for f in children(tree, tree.active) if f.status is Status.FAILED and f.title.casefold() == wanted]
    return failed[-1] if failed else None


def attempt_number(tree: Tree, frame: str) -> int:
    """How many attempts the task has had, including this one."""
    tried: list[str] = []
    while frame in tree.frames and frame not in tried:
        tried.append(frame)
        frame = tree.frames[frame].retry_of
    return len(tried)


def lesson_of(tree: Tree, before: str) -> str:
    """Text above the block of the attempt after `before`; empty if that is no failed frame."""
    frame = tree.frames.get(before)
    if frame is None or frame.status is not Status.FAILED:
        return ""
    results = frame.results if len(frame.results) <= MAX_LESSON_CHARACTERS else frame.results_compacted
    number = attempt_number(tree, before)
    return f'Attempt {number + 1} at this. Attempt {number} (ref="{frame.id}") failed: {results}\n\n'
