"""Decides when a stale frame block may be rewritten: after `stack_cache_clear`, or where the client's plan changed in
the message that opened the frame, and only if that breaks no cached prefix (a block that was never sent, a cold cache,
or behind the first message that changes in this request anyway)."""

from __future__ import annotations

from itertools import takewhile

from proxy.core.frames import Frame, PathState, Tree, call_key, path_to

BLOCK_START = "<stack-context "


def frames_with_block(tree: Tree) -> tuple[Frame, ...]:
    """Frames with a block in the context, from the root down. The root stands for the block that an awake thread is
    given behind a message; the others are frames that a call opened."""
    path = path_to(tree, tree.active) if tree.active else ()
    wake_state = tree.wake_state
    guided = wake_state is not None and (wake_state.guidance or wake_state.appended)
    return tuple(f for f in path if f.opening or (guided and not f.parent))


def block_holder(tree: Tree, frame: Frame) -> Frame:
    """The frame whose block describes `frame`: the root if no call opened it, else the frame itself."""
    return tree.root if frame in _frames_without_call(tree) else frame


def uncalled_frame(tree: Tree) -> Frame:
    """The deepest frame on the path above the first one that a call opened: its block comes behind a message."""
    return _frames_without_call(tree)[-1]


def _frames_without_call(tree: Tree) -> tuple[Frame, ...]:
    return tuple(takewhile(lambda frame: not frame.opening, path_to(tree, tree.active)))


def refreshable_frames(path_state: PathState, after: Tree, *, cold: bool, in_front: bool) -> tuple[Frame, ...]:
    """The stale frames of `after` that may be rewritten now. `cold`: nothing is cached; `in_front`: the request changes
    from its beginning."""
    stale = [f for f in frames_with_block(after) if f.id in after.stale_blocks]
    if not stale or cold or in_front:
        return tuple(stale)
    order = {p.entry.id: position for position, p in enumerate(path_state.entries)}
    changed_entries = path_state.tree.removed_entries ^ after.removed_entries
    first_change = min((order[entry] for entry in changed_entries if entry in order), default=len(order))
    return tuple(f for f in stale if order.get(_block_entry(after, f), -1) > first_change)


def unsent_stale_frames(path_state: PathState) -> tuple[Frame, ...]:
    """The stale frames whose block nobody has read: the newest round opened them."""
    newest = next((p for p in reversed(path_state.entries) if p.round), None)
    if newest is None or newest.round is None:
        return ()
    calls = {(newest.entry.id, call_key(newest.round.number, call.id)) for call in newest.round.spoken.message.calls}
    tree = path_state.tree
    return tuple(
        f
        for f in frames_with_block(tree)
        if f.id in tree.stale_blocks and f.opening and (f.opening.turn, f.opening.call) in calls
    )


def _block_entry(tree: Tree, frame: Frame) -> str:
    """The entry that holds the frame's block; empty for a block that no call brought."""
    if frame.opening:
        return frame.opening.turn
    return tree.wake_state.at if tree.wake_state and tree.wake_state.appended else ""


def replace_block(opening_text: str, block: str) -> str:
    """The opening text of a frame with its block replaced; the text about an earlier attempt in front stays."""
    return opening_text[: max(0, opening_text.rfind(BLOCK_START))] + block
