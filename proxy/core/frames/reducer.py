"""The reducer: `reduce(tree, event)` returns the frame tree after an event.

What the status table `ALLOWED` forbids changes nothing: two writers may have decided at once, the first one wins, and
the other event stays stored without effect. The tree before is never edited.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from proxy.core.frames import events, suggestion_log
from proxy.core.frames.tree import (
    ALLOWED,
    FINAL_STATUSES,
    RETURN_STATUSES,
    USER_ORIGIN,
    DeferredPop,
    Frame,
    FrameInterimSummary,
    FrameNote,
    OpeningCall,
    Removal,
    Status,
    Tree,
    WakeState,
    ancestors,
    is_below_returned_frame,
    visible_owners_of,
)


def reduce(tree: Tree, event: events.FrameEvent, now: int) -> Tree:
    """The tree after `event`. A change that `ALLOWED` forbids is ignored: of two writers that decided at once the first
    wins."""
    return _mark_suggestions_acted_upon(tree, _apply_event(tree, event, now), event, now)


def _apply_event(tree: Tree, event: events.FrameEvent, now: int) -> Tree:
    match event:
        case events.RootStarted():
            return _start_root(tree, event, now)
        case events.FramePlanned():
            return _with_frames(tree, _new_frame(tree, event, Status.PLANNED, now))
        case events.FrameReplanned():
            return _replan_frame(tree, event, now)
        case events.FramePushed():
            return _push_frame(tree, event, now)
        case events.FrameActivated():
            return _activate_frame(tree, event, now)
        case events.FramePopped():
            return _pop_frame(tree, event, now)
        case events.FrameInvalidated():
            return _invalidate_frames(tree, event, now)
        case events.FrameEntered() | events.FrameMoved():
            return (
                _enter_frame(tree, event, now) if isinstance(event, events.FrameEntered) else _move_frame(tree, event)
            )
        case events.FrameSplit():
            return _split_frame(tree, event, now)
        case events.SubagentStarted():
            return _start_subagent(tree, event, now)
        case _:
            return _apply_context_event(tree, event, now)


def _start_root(tree: Tree, event: events.RootStarted, now: int) -> Tree:
    """Another root begins beside the last one, once that has ended."""
    if tree.frames and tree.root.status not in FINAL_STATUSES:
        return tree
    started = _with_frames(tree, _new_frame(tree, event, Status.IN_PROGRESS, now), active=event.frame)
    return replace(started, unannounced_frame=event.frame) if tree.is_awake else started


def _update_block(tree: Tree, event: events.BlockStale | events.BlockRenewed) -> Tree:
    if isinstance(event, events.BlockStale):
        return replace(tree, stale_blocks=tree.stale_blocks | set(event.frames))
    frame = tree.frames.get(event.frame)
    updated = replace(tree, stale_blocks=tree.stale_blocks - {event.frame})
    if frame is not None and frame.opening is not None:
        opening = replace(frame.opening, block=event.block)
        return _with_frames(updated, replace(frame, opening=opening), results=_opening_result(opening))
    if tree.wake_state is None:
        return updated
    wake_state = replace(tree.wake_state, guidance=event.guidance, appended=event.appended)
    return replace(updated, wake_state=wake_state, unannounced_frame=event.due or updated.unannounced_frame)


def _apply_context_event(tree: Tree, event: events.FrameEvent, now: int) -> Tree:
    """Events that change the context, now or later, and no frame; then the others."""
    match event:
        case events.FrameFolded():
            removal = Removal(frozenset(event.entries), event.trace, event.at, event.frame)
            others = tuple(t for t in tree.removals if not (t.frame and t.entries <= removal.entries))
            return replace(
                tree, removals=(*others, removal), without_reasoning=tree.without_reasoning | set(event.muted)
            )
        case events.FoldSummarized():
            newest = next((t for t in reversed(tree.removals) if t.frame == event.frame), None)
            return replace(
                tree, removals=tuple(replace(t, summary=event.text) if t is newest else t for t in tree.removals)
            )
        case events.InterimSummaryAdded():
            summary = FrameInterimSummary(event.at, event.words, event.text, now)
            return replace(tree, interim_summaries={**tree.interim_summaries, event.frame: summary})
        case events.FrameKept():
            return replace(
                tree,
                kept_frames={**tree.kept_frames, event.frame: event.now or tree.kept_frames.get(event.frame, False)},
            )
        case events.FrameUnfolded():
            return replace(tree, removals=tuple(t for t in tree.removals if t.frame != event.frame))
        case events.BlockStale() | events.BlockRenewed():
            return _update_block(tree, event)
        case _:
            return _apply_other_event(tree, event, now)


def _update_announcements(tree: Tree, event: events.FrameEvent) -> Tree:
    """Events about what the model was told, or has yet to be told. All others change nothing."""
    match event:
        case events.LoopDetected():
            return replace(tree, loops=(*tree.loops, event.loop))
        case events.LoopWarningsCleared():
            return replace(tree, loops=(), loops_cleared_at=event.at)
        case events.UserCommandApplied():
            return replace(tree, unannounced_commands=tuple(filter(None, (*tree.unannounced_commands, event.words))))
        case events.UserCommandsAnnounced():
            return replace(tree, unannounced_commands=())
        case events.RootAnnounced():
            return replace(tree, unannounced_frame="")
        case events.ParentsAnnounced():
            return replace(tree, parents_announced=True)
        case events.PopDeferred():
            pop = DeferredPop(event.turn, event.status, event.results, event.compacted)
            return replace(tree, deferred_pops={**tree.deferred_pops, event.frame: pop})
        case _:
            return tree


def _apply_other_event(tree: Tree, event: events.FrameEvent, now: int) -> Tree:
    """Events that change no status."""
    match event:
        case events.ArtifactAdded() | events.DecisionAdded() | events.NoteKept():
            frame = tree.frames.get(event.frame)
            noted = _with_note(frame, event) if frame else frame
            return tree if noted is None or noted is frame else _with_frames(tree, replace(noted, updated_at=now))
        case events.ThreadWoken():
            wake_state = WakeState(event.guidance, event.tools, event.appended, event.at, event.brief)
            return replace(tree, wake_state=wake_state, unannounced_frame=event.frame)
        case events.ContextTrimmed():
            return _trim_context(tree, event)
        case events.ReasoningRemoved():
            return replace(tree, without_reasoning=tree.without_reasoning | set(event.turns))
        case events.ResultReplaced():
            texts = {**tree.replaced_results, event.entry: event.text}
            return replace(tree, replaced_results={entry: text for entry, text in texts.items() if text})
        case events.ProviderCompacted():
            return replace(tree, provider_compactions=tree.provider_compactions | set(event.entries))
        case events.ProviderEditedContext():
            return replace(tree, provider_edited_context=True)
        case events.ContextPressureWarned() | events.ContextPressureRelieved():
            return replace(tree, is_pressure_warned=isinstance(event, events.ContextPressureWarned))
        case events.SuggestionMade() | events.SuggestionsCleared() | events.AutonomySet():
            return replace(tree, suggestion_state=_update_suggestions(tree.suggestion_state, event, now))
        case _:
            return _update_announcements(tree, event)


def _with_note(frame: Frame, event: events.ArtifactAdded | events.DecisionAdded | events.NoteKept) -> Frame:
    """The frame with what a tool keeps on it."""
    match event:
        case events.ArtifactAdded():
            is_known = event.artifact in frame.artifacts
            return frame if is_known else replace(frame, artifacts=(*frame.artifacts, event.artifact))
        case events.DecisionAdded():
            remaining = (d for d in frame.decisions if d != event.supersedes)
            return replace(frame, decisions=(*remaining, event.decision))
        case events.NoteKept():
            return replace(frame, kept_notes=(*frame.kept_notes, FrameNote(event.kind, event.text)))


def _trim_context(tree: Tree, event: events.ContextTrimmed) -> Tree:
    updated = _with_frames(tree, results=dict.fromkeys(event.answers, event.words))
    removals = (Removal(frozenset(event.entries), event.trace, event.at),) if event.trace else ()
    return replace(updated, removals=(*tree.removals, *removals))


def _update_suggestions(
    state: suggestion_log.SuggestionState,
    event: events.SuggestionMade | events.SuggestionsCleared | events.AutonomySet,
    now: int,
) -> suggestion_log.SuggestionState:
    match event:
        case events.SuggestionMade():
            return suggestion_log.add_suggestion(state, event.suggestion, now)
        case events.SuggestionsCleared():
            return suggestion_log.clear_suggestions(state, waiting=event.waiting, counts=event.counts, now=event.at)
        case events.AutonomySet():
            is_newest = event.chosen.at >= state.settings.at  # wherever on the path it is
            return replace(state, settings=event.chosen) if is_newest else state


def _mark_suggestions_acted_upon(before: Tree, after: Tree, event: events.FrameEvent, now: int) -> Tree:
    """Marks waiting suggestions that this operation fulfils, and counts the proxy's own operations."""
    if after is before:
        return after
    match event:
        case events.FramePushed() | events.FrameActivated():
            suggestions = suggestion_log.mark_acted_upon(
                after.suggestion_state, suggestion_log.PUSH, before.active, now
            )
        case events.FrameEntered(origin="auto") if event.frame not in before.frames:
            suggestions = suggestion_log.count_automatic_operation(after.suggestion_state, suggestion_log.PUSH)
        case events.FramePopped(call_result="", stays=False) if before.frames[event.frame].origin == "auto":
            suggestions = suggestion_log.count_automatic_operation(after.suggestion_state, suggestion_log.POP)
        case events.FramePopped() | events.FrameInvalidated():
            suggestions = suggestion_log.mark_acted_upon(after.suggestion_state, suggestion_log.POP, event.frame, now)
        case _:
            return after
    return replace(after, suggestion_state=suggestions)


def _new_frame(
    tree: Tree, event: events.RootStarted | events.FramePlanned | events.FramePushed, status: Status, now: int
) -> Frame:
    if isinstance(event, events.RootStarted):
        return Frame(event.frame, "", event.title, event.criteria, "", status, len(tree.frames), "root", now, now)
    fields = (event.frame, event.parent, event.title, event.criteria, event.compacted)
    key = event.key if isinstance(event, events.FramePlanned) else ""
    planned = isinstance(event, events.FramePlanned)
    return Frame(*fields, status, len(tree.frames), event.origin, now, now, client_key=key, was_planned=planned)


def _with_frames(
    tree: Tree, *frames: Frame, active: str = "", results: Mapping[tuple[str, str], str] | None = None
) -> Tree:
    return replace(
        tree,
        frames={**tree.frames, **{f.id: f for f in frames}},
        active=active or tree.active,
        result_texts={**tree.result_texts, **results} if results else tree.result_texts,
    )


def _enter_frame(tree: Tree, event: events.FrameEntered, now: int) -> Tree:
    existing = tree.frames.get(event.frame)
    if existing is None:
        fields = (event.frame, event.parent, event.title, event.criteria, "")
        created = Frame(*fields, Status.IN_PROGRESS, len(tree.frames), event.origin, now, now)
        frame = replace(created, retry_of=event.retry_of)
    elif event.origin == USER_ORIGIN and Status.IN_PROGRESS in ALLOWED[existing.status]:
        tree = _retire_attempt(tree, existing)
        frame = _begin_for_user(existing, now)
    elif existing.status is Status.IN_PROGRESS or Status.IN_PROGRESS in ALLOWED[existing.status]:
        frame = replace(existing, status=Status.IN_PROGRESS, updated_at=now)
    else:
        return tree
    if (waiting := tree.deferred_pops.get(frame.id)) and waiting.status not in FINAL_STATUSES:
        tree = _without_deferred(tree, frame.id)
    entered = _renew_segments(_with_frames(tree, frame, active=frame.id))
    owner = entered.active_frame.owner
    entered = replace(entered, carried_owners={**entered.carried_owners, **dict.fromkeys(event.taking, owner)})
    inner = entered.frames.get(event.around)
    if inner is None or inner.status is not Status.IN_PROGRESS or not _contains_active_frame(tree, inner.id):
        return entered
    return replace(_put_under(entered, inner.id, frame.id), active=tree.active)


def _put_under(tree: Tree, frame: str, parent: str) -> Tree:
    """The tree with `frame` below `parent`. Parents stand before their children, so its branch goes to the end."""
    if frame == parent or any(above.id == frame for above in ancestors(tree, parent)):
        return tree
    branch = {frame: replace(tree.frames[frame], parent=parent)}
    for each in tree.frames.values():
        if each.parent in branch and each.id not in branch:
            branch[each.id] = each
    return replace(tree, frames={**{i: f for i, f in tree.frames.items() if i not in branch}, **branch})


def _move_frame(tree: Tree, event: events.FrameMoved) -> Tree:
    frame = tree.frames.get(event.frame)
    if frame is None or event.parent not in tree.frames or frame.status in FINAL_STATUSES:
        return tree
    if frame.opening or not is_below_returned_frame(tree, frame):
        return _put_under(tree, frame.id, event.parent)
    left = dict.fromkeys((frame.owner, *frame.uncalled_owners), frame.parent)
    renewed = replace(frame, segment=frame.segment + 1, uncalled_owners=())
    moved = _put_under(_with_frames(tree, renewed), frame.id, event.parent)
    return replace(moved, holder_by_owner={**tree.holder_by_owner, **left})


def _begin_for_user(frame: Frame, now: int) -> Frame:
    """A person begins the frame, so no call opens it. If a call opened it before, that call's result replaces the
    earlier work, and the frame continues as a new segment."""
    segment = frame.segment + 1 if frame.opening and not frame.leaves_only_by_fold else frame.segment
    origin = frame.origin if frame.is_inferred else USER_ORIGIN
    begun = replace(frame, status=Status.IN_PROGRESS, updated_at=now, origin=origin)
    return replace(begun, segment=segment, opening=None)


def _start_subagent(tree: Tree, event: events.SubagentStarted, now: int) -> Tree:
    if event.frame in tree.frames or event.parent not in tree.frames:
        return tree
    fields = (event.frame, event.parent, event.title, event.criteria, "")
    frame = Frame(*fields, Status.IN_PROGRESS, len(tree.frames), "subagent", now, now)
    return _with_frames(tree, replace(frame, client_key=event.call, conversation=event.conversation))


def _split_frame(tree: Tree, event: events.FrameSplit, now: int) -> Tree:
    if event.frame in tree.frames or event.parent not in tree.frames:
        return tree
    fields = (event.frame, event.parent, event.title, tree.frames[event.parent].criteria, "")
    frame = Frame(*fields, Status.COMPLETED, len(tree.frames), "part", now, now, results=event.results)
    split = replace(frame, artifacts=event.artifacts, decisions=event.decisions, tokens=event.tokens)
    updated = _with_frames(tree, split)
    return replace(updated, carried_owners={**updated.carried_owners, **dict.fromkeys(event.taking, split.owner)})


def _replan_frame(tree: Tree, event: events.FrameReplanned, now: int) -> Tree:
    frame = tree.frames.get(event.frame)
    if frame is None or not (frame.status is Status.PLANNED or frame.has_no_task):
        return tree
    replanned = replace(
        frame, title=event.title, criteria=event.criteria, criteria_compacted=event.compacted, updated_at=now
    )
    return _with_frames(tree, replanned)


def _push_frame(tree: Tree, event: events.FramePushed, now: int) -> Tree:
    opening = OpeningCall(event.turn, event.call, event.before, event.view, event.block)
    frame = replace(_new_frame(tree, event, Status.IN_PROGRESS, now), opening=opening, retry_of=event.retry_of)
    return _with_frames(tree, frame, active=frame.id, results=_opening_result(opening))


def _opening_result(opening: OpeningCall) -> Mapping[tuple[str, str], str]:
    return {(opening.turn, opening.call): join_texts(opening.preceding_text, opening.block)}


def join_texts(before: str, text: str) -> str:
    """Two texts that share the result of one call."""
    return f"{before}\n\n{text}" if before and text else before or text


def _activate_frame(tree: Tree, event: events.FrameActivated, now: int) -> Tree:
    frame = tree.frames.get(event.frame)
    if frame is None or Status.IN_PROGRESS not in ALLOWED[frame.status]:
        return tree
    opening = OpeningCall(event.turn, event.call, event.before, event.view, event.block)
    frames = [tree.frames[i] for i in (*event.through, event.frame) if i in tree.frames]
    started = [_begin_frame(tree, each, opening, now) for each in frames]
    for each in frames:
        tree = _retire_attempt(tree, each)
    return _renew_segments(_with_frames(tree, *started, active=frame.id, results=_opening_result(opening)))


def _begin_frame(tree: Tree, frame: Frame, opening: OpeningCall, now: int) -> Frame:
    """A planned frame begins; a blocked one is resumed as a new segment. If it was stopped in place, its earlier work
    and that of the frames below stays in the context."""
    begun = replace(frame, status=Status.IN_PROGRESS, updated_at=now, opening=opening, was_stopped_in_place=False)
    if frame.status is not Status.BLOCKED:
        return begun
    left_owners = (
        visible_owners_of(tree, [frame]) if frame.leaves_only_by_fold or not frame.opening else frozenset[str]()
    )
    return replace(
        begun, segment=frame.segment + 1, uncalled_owners=tuple(sorted(left_owners.union(frame.uncalled_owners)))
    )


def _retire_attempt(tree: Tree, frame: Frame) -> Tree:
    """The result of a blocked frame's call stands for the work below it, which does not return when the frame is
    resumed."""
    if frame.status is not Status.BLOCKED or frame.leaves_only_by_fold or not frame.opening:
        return tree
    planned = {f.owner for f in tree.frames.values() if f.status is Status.PLANNED}
    return replace(
        tree,
        retired_owners=tree.retired_owners
        | visible_owners_of(tree, [frame]).difference(frame.uncalled_owners, planned),
    )


def _renew_segments(tree: Tree) -> Tree:
    """Frames from the root to the active one whose work was retired continue as new segments."""
    if not tree.retired_owners:
        return tree
    path = (tree.active_frame, *ancestors(tree, tree.active))
    return _with_frames(tree, *(replace(f, segment=f.segment + 1) for f in path if f.owner in tree.retired_owners))


def _without_deferred(tree: Tree, frame: str) -> Tree:
    return replace(tree, deferred_pops={at: pop for at, pop in tree.deferred_pops.items() if at != frame})


def _pop_frame(tree: Tree, event: events.FramePopped, now: int) -> Tree:
    frame = tree.frames.get(event.frame)
    if frame is None or event.status not in ALLOWED[frame.status]:
        return tree
    tree = _without_deferred(tree, frame.id)
    ended = replace(
        frame,
        status=event.status,
        results=event.results,
        results_compacted=event.compacted,
        tokens=event.tokens,
        artifacts=tuple(dict.fromkeys((*frame.artifacts, *event.artifacts))),
        decisions=tuple(dict.fromkeys((*frame.decisions, *event.decisions))),
        updated_at=now,
    )
    if event.stays:
        return _stop_frame(tree, ended)
    after = _with_frames(tree, ended)
    if frame.leaves_only_by_fold and not _contains_active_frame(tree, frame.id):
        return after
    return _return_from_frame(after, frame, event.call_result, event.carried)


def _stop_frame(tree: Tree, ended: Frame) -> Tree:
    """Ends a frame whose entries stay (`FramePopped.stays`): the context is unchanged. If it contained the active
    frame, its opening call is forgotten, so that no result of it takes their place."""
    if not _contains_active_frame(tree, ended.id):
        return _with_frames(tree, ended)
    return _leave_in_place(_with_frames(tree, ended), ended.id)


def _leave_in_place(tree: Tree, frame: str) -> Tree:
    """Work continues above `frame`, and its entries stay in the context."""
    left = [replace(f, opening=None, was_stopped_in_place=True) for f in return_path(tree, frame)]
    return _with_frames(tree, *left, active=left[-1].parent)


def _contains_active_frame(tree: Tree, frame: str) -> bool:
    """Whether the active frame is this one or below it."""
    return frame == tree.active or any(above.id == frame for above in ancestors(tree, tree.active))


def _return_from_frame(tree: Tree, frame: Frame, text: str, carried: Sequence[str]) -> Tree:
    """Returns to the frame above, where `text` becomes the result of the outermost opening call on the way down to
    `frame`. A frame without an opening call keeps its entries in the context until a fold."""
    path = return_path(tree, frame.id)
    target = tree.frames.get(path[-1].parent)
    if target is None:
        return _with_frames(tree, active=path[-1].id)
    outermost = outermost_called_frame(path)
    opening = outermost.opening if outermost else None
    results = {(opening.turn, opening.call): join_texts(opening.preceding_text, text)} if opening else None
    returned = _with_frames(tree, active=target.id, results=results)
    return replace(returned, carried_owners={**returned.carried_owners, **dict.fromkeys(carried, target.owner)})


def return_path(tree: Tree, frame: str) -> tuple[Frame, ...]:
    """The frames that are left when `frame` ends: itself, and ended frames right above it, innermost first. Work
    returns to the parent of the last one; the root is never passed."""
    frames = [tree.frames[frame]]
    for ancestor in ancestors(tree, frame):
        if ancestor.status not in FINAL_STATUSES or not ancestor.parent:
            break
        frames.append(ancestor)
    return tuple(frames)


def outermost_called_frame(way: Sequence[Frame]) -> Frame | None:
    """Of a `return_path` the frame whose opening call's result replaces it in the context: the outermost that a call
    opened, or None."""
    return next((frame for frame in reversed(way) if not frame.leaves_only_by_fold), None)


def _invalidate_frames(tree: Tree, event: events.FrameInvalidated, now: int) -> Tree:
    invalidated = [
        replace(
            tree.frames[i],
            status=Status.INVALIDATED,
            invalidation_reason=event.reason if i == event.frame else f"Parent frame invalidated: {event.reason}",
            invalidated_at=now,
            updated_at=now,
        )
        for i in (event.frame, *event.cascade)
        if i in tree.frames and Status.INVALIDATED in ALLOWED[tree.frames[i].status]
    ]
    after = _with_frames(tree, *invalidated)
    target = tree.frames.get(event.frame)
    returns = event.frame == tree.active or (event.returns and _contains_active_frame(tree, event.frame))
    if target is None or not returns:
        return after
    if event.stays:
        return _leave_in_place(after, target.id)
    return _return_from_frame(after, target, event.call_result, event.carried)


def reopen_root(tree: Tree, now: int) -> Tree:
    """The tree after a user message that starts no root: a root that has returned continues."""
    if not tree.frames or tree.root.status not in RETURN_STATUSES:
        return tree
    return _with_frames(tree, replace(tree.root, status=Status.IN_PROGRESS, updated_at=now), active=tree.root.id)
