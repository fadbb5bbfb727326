"""Plans compaction: which finished work leaves the context in this request, and the trace that replaces it.

An inferred frame is folded when it ends; the user's messages and the closing message stay. Long unfinished work is cut
between two call groups: behind a command rather than between what was read and the edits that it was read for. Every
fold needs a positive verdict of the cost gate, first with estimated and then with written traces, and every verdict is
returned. Between the last tick of the client's plan and the closing words, which are written from it, nothing is folded
unless the window fills up. What may leave at all is decided in `segments`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from proxy.core.compaction.detours import detour_history
from proxy.core.compaction.facts import summarized_positions, texts_of_path
from proxy.core.compaction.fold_cost import (
    PRESSURE_SHARE,
    TAIL_REWRITE_SHARE,
    CompactionInput,
    ContextRewrite,
    GateReason,
    GateVerdict,
    within_outlay,
)
from proxy.core.compaction.fold_events import (
    CompactionCandidate,
    TraceWriter,
    fold_events,
    names_still_shown,
    positions_of_user,
    readings_that_stay,
)
from proxy.core.compaction.segments import (
    FoldRules,
    Segment,
    TokensByPlace,
    newest_answer_position,
    original_tokens,
    outermost_finished,
    reasoning_tokens,
    removable_groups,
    segments_of,
)
from proxy.core.context import MessageComposer, context_entries, owner_of
from proxy.core.frames import FINAL_STATUSES, FrameEvent, FrameFolded, PathEntry, PathState, Status, frame_id_of
from proxy.core.observers import ToolRoles, may_have_side_effects, runs_program, steps_of


class CompactionDecision(msgspec.Struct, frozen=True):
    """A verdict of the cost gate. `kind` is wake, fold or unfold; `frames` are the frames concerned (for a part, the
    frame that goes on)."""

    kind: str
    frames: tuple[str, ...]
    verdict: GateVerdict


class CompactionPlan(msgspec.Struct, frozen=True):
    """The events to apply now. Without events nothing changes, and the decisions say why."""

    events: tuple[FrameEvent, ...] = ()
    decisions: tuple[CompactionDecision, ...] = ()


def is_compaction_due(path_state: PathState, rules: FoldRules) -> bool:
    """A cheap test before planning: in most requests nothing can be folded."""
    context = context_entries(path_state)
    part_tokens = 0
    summarized = summarized_positions(path_state, context)
    for position in removable_groups(path_state, context, rules):
        frame = frame_id_of(owner_of(path_state, context[position]))
        if position in summarized or outermost_finished(path_state.tree, frame, rules):
            return True
        part_tokens += original_tokens(context[position])
    return part_tokens > rules.part_tokens


def plan_compaction(path_state: PathState, compaction_input: CompactionInput, writer: TraceWriter) -> CompactionPlan:
    """The folds that are due now; for a thread that wakes, if they have to pay for that."""
    context = context_entries(path_state)
    by_place = TokensByPlace.measure(path_state, context, writer.composer)
    segments = segments_of(path_state, context, by_place, compaction_input.rules)
    if awaits_closing_words(path_state) and not _window_fills_up(by_place, compaction_input):
        segments = []
    part_tokens = sum(s.tokens for s in segments if s.path_entries and s.is_part)
    if part_tokens <= compaction_input.shortest_part or (
        part_tokens <= compaction_input.longest_wait
        and not _window_fills_up(by_place, compaction_input)
        and _still_uses_what_it_read(path_state, context, writer.names)
    ):
        early = _may_compact_early(by_place, compaction_input)
        segments = [s for s in segments if not s.is_part or (s.is_summarized and early)]
    if not any(s.path_entries for s in segments) and not compaction_input.pays_for_waking:
        return CompactionPlan()
    chosen, verdict = _choose_segments(segments, by_place, compaction_input)
    # Asked last, because it walks over the whole path. With `folds_items` as much as pays is to leave, whatever the
    # agent reads again.
    if verdict.is_worth_it and path_state.tree.removals and not compaction_input.rules.folds_items:
        compaction_input = replace(compaction_input, history=detour_history(path_state, writer.names))
        chosen, verdict = _choose_segments(segments, by_place, compaction_input)
    if not chosen and not compaction_input.pays_for_waking:
        return CompactionPlan()
    kind = "wake" if compaction_input.pays_for_waking else "fold"
    subjects = tuple(c.frame for c in chosen)
    if not verdict.is_worth_it:
        return CompactionPlan((), (CompactionDecision(kind, subjects, verdict),))
    written: list[_WrittenCandidate] = []
    readings = readings_that_stay(path_state, context, chosen, writer.names)
    writer = replace(writer, texts=texts_of_path(path_state, writer.names))
    for candidate, names in zip(chosen, names_still_shown(path_state, context, chosen), strict=True):
        if events := fold_events(path_state, context, names, readings, candidate, compaction_input, writer):
            written.append(_WrittenCandidate(candidate, events))
    verdict = _evaluate_written(path_state, context, written, by_place, compaction_input, writer.composer)
    if not verdict.is_worth_it:
        return CompactionPlan((), (CompactionDecision(kind, subjects, verdict),))
    frames = tuple(w.candidate.frame for w in written)
    return CompactionPlan(
        tuple(event for w in written for event in w.events), (CompactionDecision(kind, frames, verdict),)
    )


def _may_compact_early(by_place: TokensByPlace, compaction_input: CompactionInput) -> bool:
    """Whether a short, unfinished, summarized part may be folded: nothing is cached, or the window fills up."""
    return compaction_input.cold or _window_fills_up(by_place, compaction_input)


def _window_fills_up(by_place: TokensByPlace, compaction_input: CompactionInput) -> bool:
    return 0 < compaction_input.window * PRESSURE_SHARE < compaction_input.head + by_place.total


def _still_uses_what_it_read(path_state: PathState, context: Sequence[PathEntry], tool_roles: ToolRoles) -> bool:
    """Whether what was read is still being used: the newest step reads, edits or plans, while an agent that runs its
    tests or commits has done what it read for; a ticked item has others behind it. Where the user speaks: nothing was
    changed since they spoke before, so they may ask now for what was only talked about."""
    said = positions_of_user(context)
    if positions_of_user(path_state.newest_client_entries):
        before = context[said[-2] if len(said) > 1 else 0 :]
        return not any(may_have_side_effects(e, tool_roles) for step in steps_of(before) for e in step.executions)
    last = newest_answer_position(context)
    executions = [execution for step in steps_of(context[last:]) for execution in step.executions]
    return bool(executions) and not any(runs_program(execution, tool_roles) for execution in executions)


def awaits_closing_words(path_state: PathState) -> bool:
    """Whether the client's plan was ticked off to its last item since the user's newest message, and the assistant has
    yet to say what came of it."""
    if positions_of_user(path_state.newest_client_entries) or not (said := positions_of_user(path_state.entries)):
        return False
    newest = path_state.entries[said[-1]]
    plan = [f for f in path_state.tree.frames.values() if f.origin == "plan" and f.status is not Status.INVALIDATED]
    ticked = [f for f in plan if f.status in FINAL_STATUSES and f.updated_at >= newest.entry.created]
    homes = {f.parent for f in ticked}
    return bool(ticked) and all(f.status in FINAL_STATUSES for f in plan if f.parent in homes)


def _choose_segments(
    segments: Sequence[Segment], by_place: TokensByPlace, compaction_input: CompactionInput
) -> tuple[tuple[CompactionCandidate, ...], GateVerdict]:
    """The newest segments, back to the one that gives the best verdict."""
    ordered = sorted(segments, key=lambda s: s.start)
    best_first, best = len(ordered), _evaluate_estimated((), by_place, compaction_input)
    by_frame: dict[tuple[str, bool], CompactionCandidate] = {}
    for first in range(len(ordered) - 1, -1, -1):
        key = (ordered[first].frame, ordered[first].is_part)
        later = by_frame[key].segments if key in by_frame else ()
        by_frame[key] = CompactionCandidate(*key, (ordered[first], *later))
        candidates = [c for c in by_frame.values() if c.shortens_context]
        verdict = _evaluate_estimated(candidates, by_place, compaction_input)
        if candidates and (best_first == len(ordered) or _verdict_rank(verdict) > _verdict_rank(best)):
            best_first, best = first, verdict
    return _group_by_frame(ordered[best_first:]), best


def _verdict_rank(verdict: GateVerdict) -> tuple[bool, float]:
    return verdict.is_worth_it, verdict.gain - verdict.cost


def _group_by_frame(segments: Sequence[Segment]) -> tuple[CompactionCandidate, ...]:
    """One candidate per frame, oldest first."""
    by_frame: dict[tuple[str, bool], list[Segment]] = {}
    for segment in segments:
        by_frame.setdefault((segment.frame, segment.is_part), []).append(segment)
    groups = (CompactionCandidate(*key, tuple(group)) for key, group in by_frame.items())
    return tuple(c for c in groups if c.shortens_context)


def _evaluate_estimated(
    chosen: Sequence[CompactionCandidate], by_place: TokensByPlace, compaction_input: CompactionInput
) -> GateVerdict:
    return _evaluate_candidates(chosen, by_place, compaction_input, sum(c.estimated_trace_tokens for c in chosen), 0)


class _WrittenCandidate(msgspec.Struct, frozen=True):
    candidate: CompactionCandidate
    events: tuple[FrameEvent, ...]


def _evaluate_written(  # noqa: PLR0913  what was weighed before, and what has been written since
    path_state: PathState,
    context: Sequence[PathEntry],
    written: Sequence[_WrittenCandidate],
    by_place: TokensByPlace,
    compaction_input: CompactionInput,
    composer: MessageComposer,
) -> GateVerdict:
    """The final verdict, with the tokens of the written traces and of reasoning that becomes invalid."""
    folds = [event for w in written for event in w.events if isinstance(event, FrameFolded)]
    traces = sum(composer.user_message(fold.trace).tokens for fold in folds)
    leaving = {id(p) for w in written for p in w.candidate.path_entries}
    muted = {turn for fold in folds for turn in fold.muted}
    bare = [p for p in context if id(p) not in leaving and (compaction_input.voids_reasoning or p.entry.id in muted)]
    reasoning = reasoning_tokens(bare, path_state.tree.without_reasoning, composer.without_reasoning)
    return _evaluate_candidates([w.candidate for w in written], by_place, compaction_input, traces, reasoning)


def _evaluate_candidates(
    chosen: Sequence[CompactionCandidate],
    by_place: TokensByPlace,
    compaction_input: CompactionInput,
    compaction: int,
    reasoning: int,
) -> GateVerdict:
    removed = sum(c.tokens for c in chosen)
    start = min((c.start for c in chosen), default=by_place.sent_before)
    breaks_prefix = compaction_input.pays_for_waking and not compaction_input.wake_is_appended
    parts = [s for c in chosen if c.is_part for s in c.segments if s.path_entries]
    part_tokens = sum(s.tokens for s in parts)
    behind = by_place.tokens_to_resend(0 if breaks_prefix else start, removed) + (
        compaction_input.head if breaks_prefix else 0
    )
    rewrite = ContextRewrite(
        removed,
        compaction,
        behind,
        compaction_input.head + by_place.total,
        compaction_input.added_tokens or 0,
        reasoning,
    )
    verdict = compaction_input.evaluate(rewrite)
    if breaks_prefix:
        verdict = within_outlay(verdict, compaction_input.paid, cold=compaction_input.cold)
    if compaction_input.provider_edits:
        return replace(verdict, is_worth_it=False, reason=GateReason.PROVIDER_TRIMMED)
    summarized = all(s.is_summarized for s in parts) and _may_compact_early(by_place, compaction_input)
    too_short = 0 < part_tokens <= compaction_input.shortest_part and not summarized
    resends_much = not breaks_prefix and behind > TAIL_REWRITE_SHARE * (removed - compaction)
    if resends_much and verdict.reason is GateReason.GATE and verdict.band > verdict.cost:
        verdict = replace(verdict, reason=GateReason.BAND)
    if too_short or (verdict.reason is GateReason.GATE and resends_much):
        return replace(verdict, is_worth_it=False, reason=GateReason.NOT_YET)
    return verdict
