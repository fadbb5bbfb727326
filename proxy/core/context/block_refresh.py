"""When a frame is told anew of the tree around it (C8, S1-114).

A block is written once, when its frame is entered, and stands as it was written: news goes to the end of the line. Who
wants it written anew (`stack_cache_clear`) gets that where it costs nothing. The law: **no prefix is broken for it**:
with a cold cache, or behind a place at which the line changes with the same request anyway.

    told_of(tree)     the frames on the path that a block on the line tells of
    due(...)          those of them that can be told anew now

What this module does not do: it writes no block.
"""

from __future__ import annotations

from itertools import takewhile

from proxy.core.frames import Frame, PathState, Tree, path_to

BLOCK_START = "<stack-context "


def frames_with_block(tree: Tree) -> tuple[Frame, ...]:
    """From the root down: the root, for whatever frame the thread was told of when it woke, and those that a call
    opened. Where no guidance was given there is no block of the first kind."""
    path = path_to(tree, tree.active) if tree.active else ()
    waking = tree.wake_state
    guided = waking is not None and (waking.guidance or waking.appended)
    return tuple(f for f in path if f.opening or (guided and not f.parent))


def block_holder(tree: Tree, frame: Frame) -> Frame:
    """The one of `told_of` whose block tells of a frame: itself, or the root for what the guidance tells of."""
    return tree.root if frame in _frames_in_guidance(tree) else frame


def guidance_frame(tree: Tree) -> Frame:
    """The frame that the guidance is to tell of: the deepest on the path above the first that a call opened."""
    return _frames_in_guidance(tree)[-1]


def _frames_in_guidance(tree: Tree) -> tuple[Frame, ...]:
    return tuple(takewhile(lambda frame: not frame.opening, path_to(tree, tree.active)))


def refreshable_frames(path_state: PathState, after: Tree, *, cold: bool, in_front: bool) -> tuple[Frame, ...]:
    """The stale frames of `after`, which is the tree at the end of `path_state` with what else is decided now. `cold`:
    nothing is cached; `in_front`: the request changes from its beginning."""
    stale = [f for f in frames_with_block(after) if f.id in after.stale_blocks]
    if not stale or cold or in_front:
        return tuple(stale)
    order = {p.entry.id: at for at, p in enumerate(path_state.entries)}
    moved = path_state.tree.removed_entries ^ after.removed_entries
    first = min((order[entry] for entry in moved if entry in order), default=len(order))
    return tuple(f for f in stale if order.get(_block_entry(after, f), -1) > first)


def _block_entry(tree: Tree, frame: Frame) -> str:
    """The entry that the block of a frame stands at; empty where that is in front of all."""
    if frame.opening:
        return frame.opening.turn
    return tree.wake_state.at if tree.wake_state and tree.wake_state.appended else ""


def replace_block(before: str, block: str) -> str:
    """The words a frame was opened with, with another block: what an earlier attempt came to stays in front of it."""
    return before[: max(0, before.rfind(BLOCK_START))] + block
