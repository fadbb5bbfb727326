"""What an event makes of a tree of frames.

One function for every kind of event: `apply` gives the tree after it, and the tree before stays as it was. Beside it
stand two questions that are asked of a tree: where a frame returns to that ends now, and what a new message of the
user reopens, where no event says that a root begins with it.

The law: **what the table does not allow changes nothing**. Two writers may have decided at once; the first one wins,
and the other event is read and passed over.

What this module does not do: it decides nothing (the tools do), keeps no event (`events` tells how), and walks no path
(`path_state` does).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from proxy.core.frames import suggestion_log as advice
from proxy.core.frames.events import (
    ArtifactAdded,
    AutonomySet,
    BlockRenewed,
    BlockStale,
    ContextPressureRelieved,
    ContextPressureWarned,
    ContextTrimmed,
    DecisionAdded,
    FoldSummarized,
    FrameActivated,
    FrameEntered,
    FrameEvent,
    FrameFolded,
    FrameInvalidated,
    FrameKept,
    FramePlanned,
    FramePopped,
    FramePushed,
    FrameReplanned,
    FrameSplit,
    FrameUnfolded,
    InterimSummaryAdded,
    LoopDetected,
    LoopWarningsCleared,
    ParentsAnnounced,
    ProviderCompacted,
    ProviderEditedContext,
    ReasoningRemoved,
    ResultReplaced,
    RootAnnounced,
    RootStarted,
    SubagentStarted,
    SuggestionMade,
    SuggestionsCleared,
    ThreadWoken,
    UserCommandApplied,
    UserCommandsAnnounced,
)
from proxy.core.frames.tree import (
    ALLOWED,
    FINAL_STATUSES,
    RETURN_STATUSES,
    USER_ORIGIN,
    Frame,
    FrameInterimSummary,
    OpeningCall,
    Removal,
    Status,
    Tree,
    WakeState,
    ancestors,
    visible_owners_of,
)


def reduce(tree: Tree, event: FrameEvent, now: int) -> Tree:
    """The tree after `event`. What the table does not allow changes nothing: two writers may have decided at once."""
    return _mark_suggestions_acted_upon(tree, _apply_event(tree, event, now), event, now)


def _apply_event(tree: Tree, event: FrameEvent, now: int) -> Tree:
    match event:
        case RootStarted():
            return _start_root(tree, event, now)
        case FramePlanned():
            return _with_frames(tree, _new_frame(tree, event, Status.PLANNED, now))
        case FrameReplanned():
            return _replan_frame(tree, event, now)
        case FramePushed():
            return _push_frame(tree, event, now)
        case FrameActivated():
            return _activate_frame(tree, event, now)
        case FramePopped():
            return _pop_frame(tree, event, now)
        case FrameInvalidated():
            return _invalidate_frames(tree, event, now)
        case FrameEntered():
            return _enter_frame(tree, event, now)
        case FrameSplit():
            return _split_frame(tree, event, now)
        case SubagentStarted():
            return _start_subagent(tree, event, now)
        case (
            FrameFolded()
            | FoldSummarized()
            | InterimSummaryAdded()
            | FrameKept()
            | FrameUnfolded()
            | BlockStale()
            | BlockRenewed()
        ):
            return _apply_context_event(tree, event, now)
        case _:
            return _apply_other_event(tree, event, now)


def _start_root(tree: Tree, event: RootStarted, now: int) -> Tree:
    """A second root begins beside the one before, once that has ended."""
    if tree.frames and tree.root.status not in FINAL_STATUSES:
        return tree
    begun = _with_frames(tree, _new_frame(tree, event, Status.IN_PROGRESS, now), active=event.frame)
    return replace(begun, unannounced_root=event.frame) if tree.is_awake else begun


def _update_block(tree: Tree, event: BlockStale | BlockRenewed) -> Tree:
    """What a frame was told of the tree around it is told anew, or is to be."""
    if isinstance(event, BlockStale):
        return replace(tree, stale_blocks=tree.stale_blocks | set(event.frames))
    frame = tree.frames.get(event.frame)
    fresh = replace(tree, stale_blocks=tree.stale_blocks - {event.frame})
    if frame is not None and frame.opening is not None:
        opening = replace(frame.opening, block=event.block)
        return _with_frames(fresh, replace(frame, opening=opening), told=_opening_result(opening))
    if tree.wake_state is None:
        return fresh
    return replace(fresh, wake_state=replace(tree.wake_state, guidance=event.guidance, appended=event.appended))


ContextEvent = (
    FrameFolded | FoldSummarized | InterimSummaryAdded | FrameKept | FrameUnfolded | BlockStale | BlockRenewed
)


def _apply_context_event(tree: Tree, event: ContextEvent, now: int) -> Tree:
    """Events that change what stands on the line, now or later, and no frame."""
    match event:
        case FrameFolded():
            trim = Removal(frozenset(event.entries), event.trace, event.at, event.frame)
            others = tuple(t for t in tree.removals if not (t.frame and t.entries <= trim.entries))
            return replace(tree, removals=(*others, trim), without_reasoning=tree.without_reasoning | set(event.muted))
        case FoldSummarized():
            newest = next((t for t in reversed(tree.removals) if t.frame == event.frame), None)
            return replace(
                tree, removals=tuple(replace(t, summary=event.text) if t is newest else t for t in tree.removals)
            )
        case InterimSummaryAdded():
            made = FrameInterimSummary(event.at, event.words, event.text, now)
            return replace(tree, interim_summaries={**tree.interim_summaries, event.frame: made})
        case FrameKept():
            return replace(
                tree,
                kept_frames={**tree.kept_frames, event.frame: event.now or tree.kept_frames.get(event.frame, False)},
            )
        case FrameUnfolded():
            return replace(tree, removals=tuple(t for t in tree.removals if t.frame != event.frame))
        case BlockStale() | BlockRenewed():
            return _update_block(tree, event)


def _update_announcements(
    tree: Tree,
    event: LoopDetected
    | LoopWarningsCleared
    | UserCommandApplied
    | UserCommandsAnnounced
    | RootAnnounced
    | ParentsAnnounced,
) -> Tree:
    """What the model was told of, or is yet to be."""
    match event:
        case LoopDetected():
            return replace(tree, loops=(*tree.loops, event.loop))
        case LoopWarningsCleared():
            return replace(tree, loops=(), loops_cleared_at=event.at)
        case UserCommandApplied():
            return replace(tree, unannounced_commands=tuple(filter(None, (*tree.unannounced_commands, event.words))))
        case UserCommandsAnnounced():
            return replace(tree, unannounced_commands=())
        case RootAnnounced():
            return replace(tree, unannounced_root="")
        case ParentsAnnounced():
            return replace(tree, parents_announced=True)


def _apply_other_event(tree: Tree, event: FrameEvent, now: int) -> Tree:
    """Events that change no status."""
    match event:
        case ArtifactAdded() if event.frame in tree.frames:
            frame = tree.frames[event.frame]
            known = event.artifact in frame.artifacts
            return (
                tree
                if known
                else _with_frames(tree, replace(frame, artifacts=(*frame.artifacts, event.artifact), updated_at=now))
            )
        case DecisionAdded() if event.frame in tree.frames:
            frame = tree.frames[event.frame]
            placement = (d for d in frame.decisions if d != event.supersedes)
            return _with_frames(tree, replace(frame, decisions=(*placement, event.decision), updated_at=now))
        case ThreadWoken():
            waking = WakeState(event.guidance, event.tools, event.appended, event.at)
            return replace(tree, wake_state=waking, unannounced_root="")
        case ContextTrimmed():
            return _trim_context(tree, event)
        case ReasoningRemoved():
            return replace(tree, without_reasoning=tree.without_reasoning | set(event.turns))
        case ResultReplaced():
            return replace(tree, replaced_results={**tree.replaced_results, event.entry: event.text})
        case ProviderCompacted():
            return replace(tree, provider_compactions=tree.provider_compactions | set(event.entries))
        case ProviderEditedContext():
            return replace(tree, provider_edited_context=True)
        case ContextPressureWarned() | ContextPressureRelieved():
            return replace(tree, is_pressure_warned=isinstance(event, ContextPressureWarned))
        case (
            LoopDetected()
            | LoopWarningsCleared()
            | UserCommandApplied()
            | UserCommandsAnnounced()
            | RootAnnounced()
            | ParentsAnnounced()
        ):
            return _update_announcements(tree, event)
        case SuggestionMade() | SuggestionsCleared() | AutonomySet():
            return replace(tree, suggestion_state=_update_suggestions(tree.suggestion_state, event, now))
        case _:
            return tree


def _trim_context(tree: Tree, event: ContextTrimmed) -> Tree:
    told = _with_frames(tree, told=dict.fromkeys(event.answers, event.words))
    left = (Removal(frozenset(event.entries), event.trace, event.at),) if event.trace else ()
    return replace(told, removals=(*tree.removals, *left))


def _update_suggestions(
    known: advice.SuggestionState, event: SuggestionMade | SuggestionsCleared | AutonomySet, now: int
) -> advice.SuggestionState:
    match event:
        case SuggestionMade():
            return advice.add_suggestion(known, event.suggestion, now)
        case SuggestionsCleared():
            return advice.clear_suggestions(known, waiting=event.waiting, counts=event.counts, now=event.at)
        case AutonomySet():
            return advice.set_autonomy(known, event.chosen)


def _mark_suggestions_acted_upon(before: Tree, after: Tree, event: FrameEvent, now: int) -> Tree:
    """What this operation, where it was one, means for what was suggested; the proxy's own are counted (D3)."""
    if after is before:
        return after
    match event:
        case FramePushed() | FrameActivated():
            heeded = advice.mark_acted_upon(after.suggestion_state, advice.PUSH, before.active, now)
        case FrameEntered(origin="auto") if event.frame not in before.frames:
            heeded = advice.count_automatic_operation(after.suggestion_state, advice.PUSH)
        case FramePopped(told="", stays=False) if before.frames[event.frame].origin == "auto":
            heeded = advice.count_automatic_operation(after.suggestion_state, advice.POP)
        case FramePopped() | FrameInvalidated():
            heeded = advice.mark_acted_upon(after.suggestion_state, advice.POP, event.frame, now)
        case _:
            return after
    return replace(after, suggestion_state=heeded)


def _new_frame(tree: Tree, event: RootStarted | FramePlanned | FramePushed, status: Status, now: int) -> Frame:
    if isinstance(event, RootStarted):
        return Frame(event.frame, "", event.title, event.criteria, "", status, len(tree.frames), "root", now, now)
    words = (event.frame, event.parent, event.title, event.criteria, event.compacted)
    key = event.key if isinstance(event, FramePlanned) else ""
    planned = isinstance(event, FramePlanned)
    return Frame(*words, status, len(tree.frames), event.origin, now, now, client_key=key, was_planned=planned)


def _with_frames(
    tree: Tree, *frames: Frame, active: str = "", told: Mapping[tuple[str, str], str] | None = None
) -> Tree:
    return replace(
        tree,
        frames={**tree.frames, **{f.id: f for f in frames}},
        active=active or tree.active,
        result_texts={**tree.result_texts, **told} if told else tree.result_texts,
    )


def _enter_frame(tree: Tree, event: FrameEntered, now: int) -> Tree:
    known = tree.frames.get(event.frame)
    if known is None:
        words = (event.frame, event.parent, event.title, event.criteria, "")
        born = Frame(*words, Status.IN_PROGRESS, len(tree.frames), event.origin, now, now)
        frame = replace(born, retry_of=event.retry_of)
    elif event.origin == USER_ORIGIN and Status.IN_PROGRESS in ALLOWED[known.status]:
        tree = _retire_attempt(tree, known)
        frame = _begin_for_user(known, now)
    elif known.status is Status.IN_PROGRESS or Status.IN_PROGRESS in ALLOWED[known.status]:
        frame = replace(known, status=Status.IN_PROGRESS, updated_at=now)
    else:
        return tree
    entered = _renew_segments(_with_frames(tree, frame, active=frame.id))
    owner = entered.active_frame.owner
    return replace(entered, carried_owners={**entered.carried_owners, **dict.fromkeys(event.taking, owner)})


def _begin_for_user(frame: Frame, now: int) -> Frame:
    """A person begins it, so no call opens it. Where one did, what it did then is told as that call's result, and does
    not come back: it goes on as a new segment."""
    segment = frame.segment + 1 if frame.opening and not frame.has_no_opening_call else frame.segment
    origin = frame.origin if frame.is_inferred else USER_ORIGIN
    begun = replace(frame, status=Status.IN_PROGRESS, updated_at=now, origin=origin)
    return replace(begun, segment=segment, opening=None)


def _start_subagent(tree: Tree, event: SubagentStarted, now: int) -> Tree:
    if event.frame in tree.frames or event.parent not in tree.frames:
        return tree
    words = (event.frame, event.parent, event.title, event.criteria, "")
    frame = Frame(*words, Status.IN_PROGRESS, len(tree.frames), "subagent", now, now)
    return _with_frames(tree, replace(frame, client_key=event.call, conversation=event.conversation))


def _split_frame(tree: Tree, event: FrameSplit, now: int) -> Tree:
    if event.frame in tree.frames or event.parent not in tree.frames:
        return tree
    words = (event.frame, event.parent, event.title, tree.frames[event.parent].criteria, "")
    frame = Frame(*words, Status.COMPLETED, len(tree.frames), "part", now, now, results=event.results)
    told = replace(frame, artifacts=event.artifacts, decisions=event.decisions, tokens=event.tokens)
    parted = _with_frames(tree, told)
    return replace(parted, carried_owners={**parted.carried_owners, **dict.fromkeys(event.taking, told.owner)})


def _replan_frame(tree: Tree, event: FrameReplanned, now: int) -> Tree:
    frame = tree.frames.get(event.frame)
    if frame is None or frame.status is not Status.PLANNED:
        return tree
    words = replace(
        frame, title=event.title, criteria=event.criteria, criteria_compacted=event.compacted, updated_at=now
    )
    return _with_frames(tree, words)


def _push_frame(tree: Tree, event: FramePushed, now: int) -> Tree:
    opening = OpeningCall(event.turn, event.call, event.before, event.view, event.block)
    frame = replace(_new_frame(tree, event, Status.IN_PROGRESS, now), opening=opening, retry_of=event.retry_of)
    return _with_frames(tree, frame, active=frame.id, told=_opening_result(opening))


def _opening_result(opening: OpeningCall) -> Mapping[tuple[str, str], str]:
    return {(opening.turn, opening.call): join_texts(opening.preceding_text, opening.block)}


def join_texts(before: str, text: str) -> str:
    """Two texts that share the result of one call."""
    return f"{before}\n\n{text}" if before and text else before or text


def _activate_frame(tree: Tree, event: FrameActivated, now: int) -> Tree:
    frame = tree.frames.get(event.frame)
    if frame is None or Status.IN_PROGRESS not in ALLOWED[frame.status]:
        return tree
    opening = OpeningCall(event.turn, event.call, event.before, event.view, event.block)
    known = [tree.frames[i] for i in (*event.through, event.frame) if i in tree.frames]
    begun = [_begin_frame(tree, each, opening, now) for each in known]
    for each in known:
        tree = _retire_attempt(tree, each)
    return _renew_segments(_with_frames(tree, *begun, active=frame.id, told=_opening_result(opening)))


def _begin_frame(tree: Tree, frame: Frame, opening: OpeningCall, now: int) -> Frame:
    """Planned, it begins; blocked, it is resumed as a new segment. One that was stopped where it stood leaves there
    what was done in it and below it."""
    begun = replace(frame, status=Status.IN_PROGRESS, updated_at=now, opening=opening, was_stopped_in_place=False)
    if frame.status is not Status.BLOCKED:
        return begun
    placement = visible_owners_of(tree, [frame]) if frame.has_no_opening_call or not frame.opening else frozenset[str]()
    return replace(
        begun, segment=frame.segment + 1, uncalled_owners=tuple(sorted(placement.union(frame.uncalled_owners)))
    )


def _retire_attempt(tree: Tree, frame: Frame) -> Tree:
    """What was done below a blocked frame is told as the result of its call, where it has one, and does not come back
    when the frame is resumed: its own entries do not, and they stand among those."""
    if frame.status is not Status.BLOCKED or frame.has_no_opening_call or not frame.opening:
        return tree
    waiting = {f.owner for f in tree.frames.values() if f.status is Status.PLANNED}
    return replace(
        tree,
        retired_owners=tree.retired_owners
        | visible_owners_of(tree, [frame]).difference(frame.uncalled_owners, waiting),
    )


def _renew_segments(tree: Tree) -> Tree:
    """Frames on the way to the active one whose work has left with an attempt go on as new segments."""
    if not tree.retired_owners:
        return tree
    way = (tree.active_frame, *ancestors(tree, tree.active))
    return _with_frames(tree, *(replace(f, segment=f.segment + 1) for f in way if f.owner in tree.retired_owners))


def _pop_frame(tree: Tree, event: FramePopped, now: int) -> Tree:
    frame = tree.frames.get(event.frame)
    if frame is None or event.status not in ALLOWED[frame.status]:
        return tree
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
    if frame.has_no_opening_call and not _contains_active_frame(tree, frame.id):
        return after
    return _return_from_frame(after, frame, event.told, event.carried)


def _stop_frame(tree: Tree, ended: Frame) -> Tree:
    """A frame is over, and the line stays as it is. Where the work went on in it, its call is over too: it is on the
    line as one that no call opened, and so are those that are left with it."""
    if not _contains_active_frame(tree, ended.id):
        return _with_frames(tree, ended)
    return _leave_in_place(_with_frames(tree, ended), ended.id)


def _leave_in_place(tree: Tree, frame: str) -> Tree:
    """The work goes on above `frame`, and nothing that was done in it leaves the line."""
    left = [replace(f, opening=None, was_stopped_in_place=True) for f in return_path(tree, frame)]
    return _with_frames(tree, *left, active=left[-1].parent)


def _contains_active_frame(tree: Tree, frame: str) -> bool:
    """Whether the work goes on in it, or below it."""
    return frame == tree.active or any(above.id == frame for above in ancestors(tree, tree.active))


def _return_from_frame(tree: Tree, frame: Frame, told: str, carried: Sequence[str]) -> Tree:
    """Back in the frame it returns to, whose line now says `told` where the way down to `frame` begins; but for an item
    of the client's plan that the model began: what was done in it stays there until a fold, and so does its block."""
    way = return_path(tree, frame.id)
    home = tree.frames.get(way[-1].parent)
    if home is None:
        return _with_frames(tree, active=way[-1].id)
    called = outermost_called_frame(way)
    opening = called.opening if called else None
    said = {(opening.turn, opening.call): join_texts(opening.preceding_text, told)} if opening else None
    back = _with_frames(tree, active=home.id, told=said)
    return replace(back, carried_owners={**back.carried_owners, **dict.fromkeys(carried, home.owner)})


def return_path(tree: Tree, frame: str) -> tuple[Frame, ...]:
    """The frames that are left when `frame` ends: itself, and those above it that were invalidated while it was at
    work. The parent of the last one is where it returns to; the root is never passed."""
    left = [tree.frames[frame]]
    for above in ancestors(tree, frame):
        if above.status not in FINAL_STATUSES or not above.parent:
            break
        left.append(above)
    return tuple(left)


def outermost_called_frame(way: Sequence[Frame]) -> Frame | None:
    """Of a `way_back` the frame whose call's result stands on the line for it: the first one on the way down. What no
    call opened above it stays on the line; where nothing was called, all of it does."""
    return next((frame for frame in reversed(way) if not frame.has_no_opening_call), None)


def _invalidate_frames(tree: Tree, event: FrameInvalidated, now: int) -> Tree:
    gone = [
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
    after = _with_frames(tree, *gone)
    target = tree.frames.get(event.frame)
    if target is None or event.frame != tree.active:
        return after
    if event.stays:
        return _leave_in_place(after, target.id)
    return _return_from_frame(after, target, event.told, event.carried)


def reopen_root(tree: Tree, now: int) -> Tree:
    """The tree after a new message of the user's that no root begins with: a root that has returned goes on."""
    if not tree.frames or tree.root.status not in RETURN_STATUSES:
        return tree
    return _with_frames(tree, replace(tree.root, status=Status.IN_PROGRESS, updated_at=now), active=tree.root.id)
