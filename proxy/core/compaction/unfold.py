"""Takes folds back when a person asks for it.

The messages return to their place byte for byte, at the next cheap moment: nothing is cached, or another rewrite breaks
the cache in the same request. A person can also demand it at once, at any cost. An unfolded frame is never folded
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

import msgspec
from msgspec.structs import replace

from proxy.core.compaction.compaction_plan import CompactionDecision, CompactionPlan
from proxy.core.compaction.fold_cost import CompactionInput, ContextRewrite, GateReason, GateVerdict, evaluate_rewrite
from proxy.core.compaction.segments import tokens_in_context
from proxy.core.context import MessageComposer, context_entries, owner_of
from proxy.core.frames import (
    FrameEvent,
    FrameFolded,
    FrameUnfolded,
    PathEntry,
    PathState,
    ReasoningRemoved,
    decode_event,
    frame_id_of,
    is_kept,
    reduce,
)
from proxy.core.ledger import Ledger
from proxy.errors import NotAllowed


# ----------------------------------------------------------------------------------------------------------------- ask
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


# ---------------------------------------------------------------------------------------------------------------- come
def plan_unfolds(
    path_state: PathState, compaction_input: CompactionInput, plan: CompactionPlan, composer: MessageComposer
) -> CompactionPlan:
    """`plan` plus the unfolds that happen now; those that have to wait are added as decisions."""
    tree = path_state.tree
    requested = tuple(dict.fromkeys(trim.frame for trim in tree.removals if trim.frame in tree.kept_frames))
    cheap = _is_rewrite_free(compaction_input) or bool(plan.events)
    now = tuple(frame for frame in requested if cheap or tree.kept_frames[frame])
    later = tuple(frame for frame in requested if frame not in now)
    events: tuple[FrameEvent, ...] = tuple(map(FrameUnfolded, now))
    if compaction_input.binds_reasoning and (muted := _answers_with_stale_reasoning(path_state, now, composer)):
        events = (*events, ReasoningRemoved(muted))
    decisions = tuple(
        CompactionDecision(
            "unfold", frames, _unfold_verdict(path_state, frames, compaction_input, composer, worth=frames is now)
        )
        for frames in (now, later)
        if frames
    )
    return CompactionPlan((*events, *plan.events), (*plan.decisions, *decisions))


def _is_rewrite_free(compaction_input: CompactionInput) -> bool:
    """Nothing is cached, or a cached token costs as much as a written one."""
    return compaction_input.cold or compaction_input.prices.read >= compaction_input.prices.write


def _context_after_unfold(path_state: PathState, frames: Sequence[str]) -> tuple[list[PathEntry], int, set[int]]:
    """The context with these frames back, the position of the first returned entry, and the Python ids of returned
    entries."""
    visible = {id(path_entry) for path_entry in context_entries(path_state)}
    tree = path_state.tree
    for frame in frames:
        tree = reduce(tree, FrameUnfolded(frame), 0)
    after = context_entries(replace(path_state, tree=tree))
    back = {id(path_entry) for path_entry in after} - visible
    first = next((position for position, path_entry in enumerate(after) if id(path_entry) in back), len(after))
    return after, first, back


def _unfold_verdict(
    path_state: PathState,
    frames: Sequence[str],
    compaction_input: CompactionInput,
    composer: MessageComposer,
    *,
    worth: bool,
) -> GateVerdict:
    """The figures of an unfold. It removes nothing and never pays: a person wants it."""
    after, first, back = _context_after_unfold(path_state, frames)
    tokens = [
        tokens_in_context(path_state, path_entry, lambda text: composer.user_message(text).tokens)
        for path_entry in after
    ]
    added = sum(n for n, path_entry in zip(tokens, after, strict=True) if id(path_entry) in back)
    rewrite = ContextRewrite(0, 0, sum(tokens[first:]) - added, compaction_input.head + sum(tokens), added)
    verdict = evaluate_rewrite(rewrite, compaction_input.prices, compaction_input.requests, cold=compaction_input.cold)
    reason = (
        GateReason.NOT_YET if not worth else GateReason.COLD if _is_rewrite_free(compaction_input) else GateReason.ASKED
    )
    return replace(verdict, is_worth_it=worth, reason=reason)


def _answers_with_stale_reasoning(
    path_state: PathState, frames: Sequence[str], composer: MessageComposer
) -> tuple[str, ...]:
    """Answers behind the first change whose reasoning no longer matches the messages before it."""
    after, first, _ = _context_after_unfold(path_state, frames)
    spoken = ((path_entry.entry.id, path_entry.message) for path_entry in after[first:])
    reasoning = (entry for entry, m in spoken if m and m.role == "assistant" and composer.without_reasoning(m) is not m)
    return tuple(dict.fromkeys(entry for entry in reasoning if entry not in path_state.tree.without_reasoning))
