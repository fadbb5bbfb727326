"""Finds the fold that a person asks to take back; `proxy.core.compaction` decides when it is taken back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

import msgspec

from proxy.core.context import owner_of
from proxy.core.frames import FrameFolded, PathState, decode_event, frame_id_of, is_kept
from proxy.core.ledger import Ledger
from proxy.errors import NotAllowed


class UnfoldTarget(msgspec.Struct, frozen=True):
    """The fold to take back. `entries` are the entries at which `frame` was folded; every path through one of them must
    know. `is_new` is False if the same was asked before."""

    frame: str
    entries: tuple[str, ...]
    is_new: bool


def find_unfold_target(ledger: Ledger, path_state: PathState, frame: str, *, now: bool = False) -> UnfoldTarget:
    """The fold to take back for `frame`: its own, or the one that contains its work. Raises NotAllowed if there is
    none, with the reason and what to do instead."""
    holder = unfoldable_frames(ledger, path_state).get(frame)
    if not holder:
        raise NotAllowed(_refusal_text(path_state, frame), code="not_folded")
    entries = tuple(fold_at for fold_at, folded in _recorded_folds(ledger) if folded.frame == holder)
    earlier_request = path_state.tree.kept_frames.get(holder)
    return UnfoldTarget(holder, entries, is_new=earlier_request is None or (now and not earlier_request))


def unfoldable_frames(ledger: Ledger, path_state: PathState) -> Mapping[str, str]:
    """Every frame that can be unfolded, with the frame whose fold contains its work; a trace may have replaced earlier
    ones."""
    removed_by_frame = {trim.frame: trim.entries for trim in path_state.tree.removals if trim.frame}
    if not removed_by_frame:
        return {}
    entries_by_frame: dict[str, set[str]] = {}
    for path_entry in path_state.entries:
        entries_by_frame.setdefault(frame_id_of(owner_of(path_state, path_entry)), set()).add(path_entry.entry.id)
    for _, folded in _recorded_folds(ledger):
        entries_by_frame.setdefault(folded.frame, set()).update(folded.entries)
    holders = (
        (frame, _frame_holding(frame, entries_by_frame.get(frame, set()), removed_by_frame))
        for frame in path_state.tree.frames
    )
    return {frame: holder for frame, holder in holders if holder}


def _frame_holding(frame: str, own: Set[str], removed_by_frame: Mapping[str, frozenset[str]]) -> str:
    """The frame in `removed_by_frame` whose entries include some of `own`; empty if none."""
    if frame in removed_by_frame:
        return frame
    return next((holder for holder, removed in removed_by_frame.items() if removed & own), "")


def _recorded_folds(ledger: Ledger) -> Iterable[tuple[str, FrameFolded]]:
    """Every fold of the conversation, with the entry at which it was decided."""
    for entry, events in ledger.events.items():
        for event in events:
            if event.kind == "folded" and isinstance(folded := decode_event(event), FrameFolded):
                yield entry, folded


def _refusal_text(path_state: PathState, frame: str) -> str:
    tree = path_state.tree
    refused = tree.frames[frame]
    elsewhere = f"`callstack log {frame}` shows all of it, and the model recalls it with stack_recall ref={frame}."
    if is_kept(tree, frame):
        return f"Frame {frame} was brought back already, and stays in the context."
    if refused.parent and not refused.leaves_only_by_fold:
        return f"Frame {frame} was begun by the model: once it ends, its result alone stays in the context. {elsewhere}"
    own = {p.entry.id for p in path_state.entries if frame_id_of(owner_of(path_state, p)) == frame}
    if any(not trim.frame and trim.entries & own for trim in tree.removals):
        return f"Frame {frame} left because the context did not fit the model's window, so it stays away. {elsewhere}"
    return f"Frame {frame} was not put away: what it did is in the context. `callstack tree` shows the other frames."
