"""What an event makes of a tree of frames.

One function for every kind of event: `apply` gives the tree after it, and the tree before stays as it was. Beside it
stand two questions that are asked of a tree: where a frame returns to that ends now, and what a new message of the
user reopens, where no event says that a root begins with it.

The law: **what the table does not allow changes nothing**. Two writers may have decided at once; the first one wins,
and the other event is read and passed over.

What this module does not do: it decides nothing (the tools do), keeps no event (`events` tells how), and walks no path
(`story` does).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from proxy.core.frames import suggestion_log as advice
from proxy.core.frames.events import (
    Activated,
    ArtifactAdded,
    AutonomySet,
    BlockRenewed,
    BlockStale,
    ByHand,
    Decided,
    Delegated,
    Entered,
    Folded,
    FrameEvent,
    HandTold,
    InterimSummary,
    Invalidated,
    Kept,
    Looped,
    LoopsCleared,
    ParentsTold,
    Parted,
    Planned,
    Popped,
    Pressed,
    ProviderTrimmed,
    Pushed,
    ReasoningRemoved,
    Relieved,
    Replaced,
    Replanned,
    Rooted,
    RootTold,
    Sealed,
    Suggested,
    SuggestionsCleared,
    Summarised,
    Trimmed,
    Unfolded,
    Woken,
)
from proxy.core.frames.tree import (
    ALLOWED,
    BY_HAND,
    FINAL,
    RETURNED,
    Frame,
    Interim,
    Opening,
    Status,
    Tree,
    Trim,
    Waking,
    ancestors,
    owners_shown,
)


def apply(tree: Tree, event: FrameEvent, now: int) -> Tree:
    """The tree after `event`. What the table does not allow changes nothing: two writers may have decided at once."""
    return _heeded(tree, _happened(tree, event, now), event, now)


def _happened(tree: Tree, event: FrameEvent, now: int) -> Tree:
    match event:
        case Rooted():
            return _rooted(tree, event, now)
        case Planned():
            return _with(tree, _born(tree, event, Status.PLANNED, now))
        case Replanned():
            return _replanned(tree, event, now)
        case Pushed():
            return _pushed(tree, event, now)
        case Activated():
            return _activated(tree, event, now)
        case Popped():
            return _popped(tree, event, now)
        case Invalidated():
            return _invalidated(tree, event, now)
        case Entered():
            return _entered(tree, event, now)
        case Parted():
            return _parted(tree, event, now)
        case Delegated():
            return _delegated(tree, event, now)
        case Folded() | Summarised() | InterimSummary() | Kept() | Unfolded() | BlockStale() | BlockRenewed():
            return _moved(tree, event, now)
        case _:
            return _noted(tree, event, now)


def _rooted(tree: Tree, event: Rooted, now: int) -> Tree:
    """A second root begins beside the one before, once that has ended."""
    if tree.frames and tree.root.status not in FINAL:
        return tree
    begun = _with(tree, _born(tree, event, Status.IN_PROGRESS, now), active=event.frame)
    return replace(begun, untold_root=event.frame) if tree.awake else begun


def _retold(tree: Tree, event: BlockStale | BlockRenewed) -> Tree:
    """What a frame was told of the tree around it is told anew, or is to be."""
    if isinstance(event, BlockStale):
        return replace(tree, stale=tree.stale | set(event.frames))
    frame = tree.frames.get(event.frame)
    fresh = replace(tree, stale=tree.stale - {event.frame})
    if frame is not None and frame.opening is not None:
        opening = replace(frame.opening, block=event.block)
        return _with(fresh, replace(frame, opening=opening), told=_opened(opening))
    if tree.waking is None:
        return fresh
    return replace(fresh, waking=replace(tree.waking, guidance=event.guidance, appended=event.appended))


Moved = Folded | Summarised | InterimSummary | Kept | Unfolded | BlockStale | BlockRenewed


def _moved(tree: Tree, event: Moved, now: int) -> Tree:
    """Events that change what stands on the line, now or later, and no frame."""
    match event:
        case Folded():
            trim = Trim(frozenset(event.entries), event.trace, event.at, event.frame)
            others = tuple(t for t in tree.trims if not (t.frame and t.entries <= trim.entries))
            return replace(tree, trims=(*others, trim), mute=tree.mute | set(event.muted))
        case Summarised():
            newest = next((t for t in reversed(tree.trims) if t.frame == event.frame), None)
            return replace(tree, trims=tuple(replace(t, summary=event.text) if t is newest else t for t in tree.trims))
        case InterimSummary():
            made = Interim(event.at, event.words, event.text, now)
            return replace(tree, interims={**tree.interims, event.frame: made})
        case Kept():
            return replace(tree, kept={**tree.kept, event.frame: event.now or tree.kept.get(event.frame, False)})
        case Unfolded():
            return replace(tree, trims=tuple(t for t in tree.trims if t.frame != event.frame))
        case BlockStale() | BlockRenewed():
            return _retold(tree, event)


def _remembered(tree: Tree, event: Looped | LoopsCleared | ByHand | HandTold | RootTold | ParentsTold) -> Tree:
    """What the model was told of, or is yet to be."""
    match event:
        case Looped():
            return replace(tree, loops=(*tree.loops, event.loop))
        case LoopsCleared():
            return replace(tree, loops=(), loops_cleared=event.at)
        case ByHand():
            return replace(tree, by_hand=tuple(filter(None, (*tree.by_hand, event.words))))
        case HandTold():
            return replace(tree, by_hand=())
        case RootTold():
            return replace(tree, untold_root="")
        case ParentsTold():
            return replace(tree, parents_told=True)


def _noted(tree: Tree, event: FrameEvent, now: int) -> Tree:
    """Events that change no status."""
    match event:
        case ArtifactAdded() if event.frame in tree.frames:
            frame = tree.frames[event.frame]
            known = event.artifact in frame.artifacts
            return (
                tree
                if known
                else _with(tree, replace(frame, artifacts=(*frame.artifacts, event.artifact), updated_at=now))
            )
        case Decided() if event.frame in tree.frames:
            frame = tree.frames[event.frame]
            standing = (d for d in frame.decisions if d != event.supersedes)
            return _with(tree, replace(frame, decisions=(*standing, event.decision), updated_at=now))
        case Woken():
            waking = Waking(event.guidance, event.tools, event.appended, event.at)
            return replace(tree, waking=waking, untold_root="")
        case Trimmed():
            return _trimmed(tree, event)
        case ReasoningRemoved():
            return replace(tree, mute=tree.mute | set(event.turns))
        case Replaced():
            return replace(tree, replaced={**tree.replaced, event.entry: event.text})
        case Sealed():
            return replace(tree, sealed=tree.sealed | set(event.entries))
        case ProviderTrimmed():
            return replace(tree, provider_trimmed=True)
        case Pressed() | Relieved():
            return replace(tree, pressed=isinstance(event, Pressed))
        case Looped() | LoopsCleared() | ByHand() | HandTold() | RootTold() | ParentsTold():
            return _remembered(tree, event)
        case Suggested() | SuggestionsCleared() | AutonomySet():
            return replace(tree, advice=_advised(tree.advice, event, now))
        case _:
            return tree


def _trimmed(tree: Tree, event: Trimmed) -> Tree:
    told = _with(tree, told=dict.fromkeys(event.answers, event.words))
    left = (Trim(frozenset(event.entries), event.trace, event.at),) if event.trace else ()
    return replace(told, trims=(*tree.trims, *left))


def _advised(known: advice.Advice, event: Suggested | SuggestionsCleared | AutonomySet, now: int) -> advice.Advice:
    match event:
        case Suggested():
            return advice.suggested(known, event.suggestion, now)
        case SuggestionsCleared():
            return advice.cleared(known, waiting=event.waiting, counts=event.counts, now=event.at)
        case AutonomySet():
            return advice.set_to(known, event.chosen)


def _heeded(before: Tree, after: Tree, event: FrameEvent, now: int) -> Tree:
    """What this operation, where it was one, means for what was suggested; the proxy's own are counted (D3)."""
    if after is before:
        return after
    match event:
        case Pushed() | Activated():
            heeded = advice.acted_upon(after.advice, advice.PUSH, before.active, now)
        case Entered(origin="auto") if event.frame not in before.frames:
            heeded = advice.by_itself(after.advice, advice.PUSH)
        case Popped(told="", stays=False) if before.frames[event.frame].origin == "auto":
            heeded = advice.by_itself(after.advice, advice.POP)
        case Popped() | Invalidated():
            heeded = advice.acted_upon(after.advice, advice.POP, event.frame, now)
        case _:
            return after
    return replace(after, advice=heeded)


def _born(tree: Tree, event: Rooted | Planned | Pushed, status: Status, now: int) -> Frame:
    if isinstance(event, Rooted):
        return Frame(event.frame, "", event.title, event.criteria, "", status, len(tree.frames), "root", now, now)
    words = (event.frame, event.parent, event.title, event.criteria, event.compacted)
    key = event.key if isinstance(event, Planned) else ""
    planned = isinstance(event, Planned)
    return Frame(*words, status, len(tree.frames), event.origin, now, now, key=key, was_planned=planned)


def _with(tree: Tree, *frames: Frame, active: str = "", told: Mapping[tuple[str, str], str] | None = None) -> Tree:
    return replace(
        tree,
        frames={**tree.frames, **{f.id: f for f in frames}},
        active=active or tree.active,
        told={**tree.told, **told} if told else tree.told,
    )


def _entered(tree: Tree, event: Entered, now: int) -> Tree:
    known = tree.frames.get(event.frame)
    if known is None:
        words = (event.frame, event.parent, event.title, event.criteria, "")
        born = Frame(*words, Status.IN_PROGRESS, len(tree.frames), event.origin, now, now)
        frame = replace(born, retry_of=event.retry_of)
    elif event.origin == BY_HAND and Status.IN_PROGRESS in ALLOWED[known.status]:
        tree = _without_attempt(tree, known)
        frame = _by_hand(known, now)
    elif known.status is Status.IN_PROGRESS or Status.IN_PROGRESS in ALLOWED[known.status]:
        frame = replace(known, status=Status.IN_PROGRESS, updated_at=now)
    else:
        return tree
    entered = _anew(_with(tree, frame, active=frame.id))
    owner = entered.current.owner
    return replace(entered, carried={**entered.carried, **dict.fromkeys(event.taking, owner)})


def _by_hand(frame: Frame, now: int) -> Frame:
    """A person begins it, so no call opens it. Where one did, what it did then is told as that call's result, and does
    not come back: it goes on as a new segment."""
    segment = frame.segment + 1 if frame.opening and not frame.is_uncalled else frame.segment
    origin = frame.origin if frame.is_inferred else BY_HAND
    begun = replace(frame, status=Status.IN_PROGRESS, updated_at=now, origin=origin)
    return replace(begun, segment=segment, opening=None)


def _delegated(tree: Tree, event: Delegated, now: int) -> Tree:
    if event.frame in tree.frames or event.parent not in tree.frames:
        return tree
    words = (event.frame, event.parent, event.title, event.criteria, "")
    frame = Frame(*words, Status.IN_PROGRESS, len(tree.frames), "subagent", now, now)
    return _with(tree, replace(frame, key=event.call, conversation=event.conversation))


def _parted(tree: Tree, event: Parted, now: int) -> Tree:
    if event.frame in tree.frames or event.parent not in tree.frames:
        return tree
    words = (event.frame, event.parent, event.title, tree.frames[event.parent].criteria, "")
    frame = Frame(*words, Status.COMPLETED, len(tree.frames), "part", now, now, results=event.results)
    told = replace(frame, artifacts=event.artifacts, decisions=event.decisions, tokens=event.tokens)
    parted = _with(tree, told)
    return replace(parted, carried={**parted.carried, **dict.fromkeys(event.taking, told.owner)})


def _replanned(tree: Tree, event: Replanned, now: int) -> Tree:
    frame = tree.frames.get(event.frame)
    if frame is None or frame.status is not Status.PLANNED:
        return tree
    words = replace(
        frame, title=event.title, criteria=event.criteria, criteria_compacted=event.compacted, updated_at=now
    )
    return _with(tree, words)


def _pushed(tree: Tree, event: Pushed, now: int) -> Tree:
    opening = Opening(event.turn, event.call, event.before, event.view, event.block)
    frame = replace(_born(tree, event, Status.IN_PROGRESS, now), opening=opening, retry_of=event.retry_of)
    return _with(tree, frame, active=frame.id, told=_opened(opening))


def _opened(opening: Opening) -> Mapping[tuple[str, str], str]:
    return {(opening.turn, opening.call): joined(opening.before, opening.block)}


def joined(before: str, text: str) -> str:
    """Two texts that share the result of one call."""
    return f"{before}\n\n{text}" if before and text else before or text


def _activated(tree: Tree, event: Activated, now: int) -> Tree:
    frame = tree.frames.get(event.frame)
    if frame is None or Status.IN_PROGRESS not in ALLOWED[frame.status]:
        return tree
    opening = Opening(event.turn, event.call, event.before, event.view, event.block)
    known = [tree.frames[i] for i in (*event.through, event.frame) if i in tree.frames]
    begun = [_begun(tree, each, opening, now) for each in known]
    for each in known:
        tree = _without_attempt(tree, each)
    return _anew(_with(tree, *begun, active=frame.id, told=_opened(opening)))


def _begun(tree: Tree, frame: Frame, opening: Opening, now: int) -> Frame:
    """Planned, it begins; blocked, it is resumed as a new segment. One that was stopped where it stood leaves there
    what was done in it and below it."""
    begun = replace(frame, status=Status.IN_PROGRESS, updated_at=now, opening=opening, stays=False)
    if frame.status is not Status.BLOCKED:
        return begun
    standing = owners_shown(tree, [frame]) if frame.is_uncalled or not frame.opening else frozenset[str]()
    return replace(begun, segment=frame.segment + 1, uncalled=tuple(sorted(standing.union(frame.uncalled))))


def _without_attempt(tree: Tree, frame: Frame) -> Tree:
    """What was done below a blocked frame is told as the result of its call, where it has one, and does not come back
    when the frame is resumed: its own entries do not, and they stand among those."""
    if frame.status is not Status.BLOCKED or frame.is_uncalled or not frame.opening:
        return tree
    waiting = {f.owner for f in tree.frames.values() if f.status is Status.PLANNED}
    return replace(tree, left=tree.left | owners_shown(tree, [frame]).difference(frame.uncalled, waiting))


def _anew(tree: Tree) -> Tree:
    """Frames on the way to the active one whose work has left with an attempt go on as new segments."""
    if not tree.left:
        return tree
    way = (tree.current, *ancestors(tree, tree.active))
    return _with(tree, *(replace(f, segment=f.segment + 1) for f in way if f.owner in tree.left))


def _popped(tree: Tree, event: Popped, now: int) -> Tree:
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
        return _stopped(tree, ended)
    after = _with(tree, ended)
    if frame.is_uncalled and not _is_under_way(tree, frame.id):
        return after
    return _returned(after, frame, event.told, event.carried)


def _stopped(tree: Tree, ended: Frame) -> Tree:
    """A frame is over, and the line stays as it is. Where the work went on in it, its call is over too: it is on the
    line as one that no call opened, and so are those that are left with it."""
    if not _is_under_way(tree, ended.id):
        return _with(tree, ended)
    return _left_standing(_with(tree, ended), ended.id)


def _left_standing(tree: Tree, frame: str) -> Tree:
    """The work goes on above `frame`, and nothing that was done in it leaves the line."""
    left = [replace(f, opening=None, stays=True) for f in way_back(tree, frame)]
    return _with(tree, *left, active=left[-1].parent)


def _is_under_way(tree: Tree, frame: str) -> bool:
    """Whether the work goes on in it, or below it."""
    return frame == tree.active or any(above.id == frame for above in ancestors(tree, tree.active))


def _returned(tree: Tree, frame: Frame, told: str, carried: Sequence[str]) -> Tree:
    """Back in the frame it returns to, whose line now says `told` where the way down to `frame` begins; but for an item
    of the client's plan that the model began: what was done in it stays there until a fold, and so does its block."""
    way = way_back(tree, frame.id)
    home = tree.frames.get(way[-1].parent)
    if home is None:
        return _with(tree, active=way[-1].id)
    called = called_in(way)
    opening = called.opening if called else None
    said = {(opening.turn, opening.call): joined(opening.before, told)} if opening else None
    back = _with(tree, active=home.id, told=said)
    return replace(back, carried={**back.carried, **dict.fromkeys(carried, home.owner)})


def way_back(tree: Tree, frame: str) -> tuple[Frame, ...]:
    """The frames that are left when `frame` ends: itself, and those above it that were invalidated while it was at
    work. The parent of the last one is where it returns to; the root is never passed."""
    left = [tree.frames[frame]]
    for above in ancestors(tree, frame):
        if above.status not in FINAL or not above.parent:
            break
        left.append(above)
    return tuple(left)


def called_in(way: Sequence[Frame]) -> Frame | None:
    """Of a `way_back` the frame whose call's result stands on the line for it: the first one on the way down. What no
    call opened above it stays on the line; where nothing was called, all of it does."""
    return next((frame for frame in reversed(way) if not frame.is_uncalled), None)


def _invalidated(tree: Tree, event: Invalidated, now: int) -> Tree:
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
    after = _with(tree, *gone)
    target = tree.frames.get(event.frame)
    if target is None or event.frame != tree.active:
        return after
    if event.stays:
        return _left_standing(after, target.id)
    return _returned(after, target, event.told, event.carried)


def reopened(tree: Tree, now: int) -> Tree:
    """The tree after a new message of the user's that no root begins with: a root that has returned goes on."""
    if not tree.frames or tree.root.status not in RETURNED:
        return tree
    return _with(tree, replace(tree.root, status=Status.IN_PROGRESS, updated_at=now), active=tree.root.id)
