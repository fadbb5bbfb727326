"""Takes folds back when a person asks for it.

The messages return to their place byte for byte, at the next cheap moment: nothing is cached, or another rewrite breaks
the cache in the same request. A person can also demand it at once, at any cost. An unfolded frame is never folded
again.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from proxy.core.compaction.compaction_plan import CompactionDecision, CompactionPlan
from proxy.core.compaction.fold_cost import CompactionInput, ContextRewrite, GateReason, GateVerdict, evaluate_rewrite
from proxy.core.compaction.segments import tokens_in_context
from proxy.core.context import MessageComposer, context_entries
from proxy.core.frames import FrameEvent, FrameUnfolded, PathEntry, PathState, ReasoningRemoved, reduce


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
