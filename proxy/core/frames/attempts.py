"""Attempts: a task that failed and is tried again, and what the next attempt is told of the one before (S0-39).

The law: **an attempt is a frame of its own**. What the one before did stays off the line; its lesson goes along.

What this module does not do: it begins nothing. Files are the client's, and stay as the attempt before left them.
"""

from __future__ import annotations

from proxy.core.frames.frames import Frame, Status, Tree, children

LESSON = 2_000
"""Characters of what an attempt came to that are told whole; of a longer text its short form."""


def failed_before(tree: Tree, title: str) -> Frame | None:
    """The newest frame by this title that failed under the active one."""
    wanted = title.casefold()
    failed = [f for f in children(tree, tree.active) if f.status is Status.FAILED and f.title.casefold() == wanted]
    return failed[-1] if failed else None


def attempts(tree: Tree, frame: str) -> int:
    """How often the task of a frame was tried, with this one."""
    tried: list[str] = []
    while frame in tree.frames and frame not in tried:
        tried.append(frame)
        frame = tree.frames[frame].retry_of
    return len(tried)


def lesson(tree: Tree, before: str) -> str:
    """What stands above the block of the attempt after `before`; empty where that is no frame that failed."""
    frame = tree.frames.get(before)
    if frame is None or frame.status is not Status.FAILED:
        return ""
    why = frame.results if len(frame.results) <= LESSON else frame.results_compacted
    number = attempts(tree, before)
    return f'Attempt {number + 1} at this. Attempt {number} (ref="{frame.id}") failed: {why}\n\n'
