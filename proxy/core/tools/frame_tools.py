"""The tools that move: push, pop, activate.

The law: **a call group belongs to the frame it was made in.** The first push or activate of a group is done, further
ones become planned siblings. A pop runs only when every call of its group is a stack call: beside client calls there
are results the model has not read. Consecutive pops each return into the next. A push in the group of a pop has no
call of its own on the line, so its block is appended to the value that the pop returned.

What this module does not do: it changes nothing. It says what happened, and what the model is told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from proxy.core.compaction.user_messages import user_messages
from proxy.core.context.block_format import block_of
from proxy.core.context.message_list import on_line, owner_of
from proxy.core.frames.events import Activated, Planned, Popped, Pushed, frame_id
from proxy.core.frames.path_state import Story
from proxy.core.frames.reducer import apply, called_in, way_back
from proxy.core.frames.results import decisions_in, derived_compaction, invalidated_text, returned_text
from proxy.core.frames.tasks import failed_before, lesson
from proxy.core.frames.tree import (
    ALLOWED,
    FINAL,
    RETURNED,
    Frame,
    Opening,
    Status,
    Tree,
    ancestors,
    children,
    descendants,
    find,
    is_left,
    path_to,
)
from proxy.core.observers.files import artifacts_of, paths_of_calls
from proxy.core.policy.roots import following
from proxy.core.text import truncate_to_tokens
from proxy.core.tools.base import UNBOUNDED, Desk, Mistake, Outcome, Tool, text_of
from proxy.core.tools.branch_tools import at_push
from proxy.core.tools.child_view import AUTO, choice_at, chosen_view

Opened = TypeVar("Opened", Pushed, Activated)
NOT_READ = (
    "Not popped: this message also holds calls whose results you have not read. "
    "Read those results, then pop again in a message of its own."
)
TITLE = "Error: title is missing. Give 2-5 words that name the subtask."
CRITERIA = "Error: successCriteria is missing. Say how one can verify that the subtask is done."
NO_ROOM = (
    "Error: not begun: your context window has no room for another frame now. Go on without it, or pop the frame you "
    "are in with what it came to."
)
RESULTS = (
    "Error: results is missing or empty. Say what was done, found and decided: it is all the parent frame will see."
)


# --------------------------------------------------------------------------------------------------------------- push
def push(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
    """Open a frame under the active one; in a group that opened one already, plan it as a sibling (S1-105)."""
    title = text_of(arguments, "title", required=TITLE)
    criteria = text_of(arguments, "successCriteria", "success_criteria", "criteria", required=CRITERIA)
    compacted = text_of(arguments, "successCriteriaCompacted") or derived_compaction(criteria, desk.count)
    refuse_if_over(desk.tree)
    if desk.group.opened:
        return _plan_beside(desk, title, criteria, compacted)
    if planned := _planned_by_title(desk.tree, title):
        return activate(desk, {"sessionID": planned.id})
    if len(path_to(desk.tree, desk.tree.active)) >= desk.settings.max_depth:
        raise Mistake(f"Error: {desk.settings.max_depth} frames are open already. Pop one before you push another.")
    opening = _opening(desk)
    retried = _retried(desk.tree, text_of(arguments, "retry_of", "retryOf"), title)
    event = Pushed(
        frame_id(desk.turn, desk.number),
        desk.tree.active,
        title,
        criteria,
        opening.turn,
        opening.call,
        "",
        compacted,
        opening.before,
        opening.view,
        retried,
    )
    done = _telling(desk, event, lesson(desk.tree, retried))
    before = at_push(desk, done.frame)
    return Outcome(done.block, (*before, done), replace(desk.group, opened=done.frame))


def _planned_by_title(tree: Tree, title: str) -> Frame | None:
    """A model that planned a frame often pushes it by its title instead of activating it."""
    waiting = [f for f in children(tree, tree.active) if f.status is Status.PLANNED]
    return next((f for f in waiting if f.title.casefold() == title.casefold()), None)


def _plan_beside(desk: Desk, title: str, criteria: str, compacted: str) -> Outcome:
    """A sibling of what the group opened; where the frame around that is over by now, it goes under the active one."""
    opened = desk.tree.frames[desk.group.opened]
    around = desk.tree.frames[opened.parent or opened.id]
    parent = around.id if around.status is Status.IN_PROGRESS else desk.tree.active
    event = Planned(frame_id(desk.turn, desk.number), parent, title, criteria, compacted)
    then = "When that is popped" if opened.status is Status.IN_PROGRESS else "In your next message"
    text = (
        f"Frame {event.frame} is planned, not begun: this message already opened {opened.id} ({opened.title}). "
        f"{then}, activate {event.frame}."
    )
    return Outcome(text, (event,))


def _opening(desk: Desk) -> Opening:
    """The call whose result stands for a frame opened now: this one, or, behind a pop, the one that opened what was
    popped."""
    if (back := desk.group.returned) is not None:
        return Opening(back.turn, back.call, desk.tree.told.get((back.turn, back.call), ""), "fork")
    return Opening(desk.turn, desk.call, "", _view(desk) if desk.group.alone else "fork")


def _view(desk: Desk) -> str:
    """Of the parents, a model with a small window sees what its block tells, and no more than is asked for."""
    view = desk.settings.child_view
    if desk.settings.form.minimal and view in ("fork", AUTO):
        return "isolate"
    if view != AUTO:
        return view
    return chosen_view(choice_at(desk.story, desk.on_line, desk.prices, desk.count), desk.settings.isolate_above)


def _retried(tree: Tree, reference: str, title: str) -> str:
    """The attempt before: as it is named, else the one by the same title that failed here."""
    frame = find(tree, reference) if reference else failed_before(tree, title)
    return frame.id if frame else ""


def _telling(desk: Desk, event: Opened, before: str) -> Opened:
    """The event with what its frame is told as it begins: of the attempt `before`, and of the tree around it. In a fork
    that stands on this very line, so it is told in as little as there is room for."""
    tree = apply(desk.tree, event, desk.now)
    told = before + _block(desk, tree, event.frame)
    stands_here = event.view == "fork" and desk.group.returned is None
    if stands_here and desk.count(told) > desk.room:
        kept = truncate_to_tokens(before.strip(), max(0, desk.room // 2), desk.count)
        before = f"{kept}\n\n" if kept else ""
        told = before + _block(desk, tree, event.frame, max(1, desk.room - desk.count(before)))
        if desk.count(told) > desk.room:
            raise Mistake(NO_ROOM)
    return replace(event, block=told)


def _block(desk: Desk, tree: Tree, frame: str, most: int = UNBOUNDED) -> str:
    return block_of(
        desk.settings.form,
        desk.story,
        tree,
        frame,
        session=desk.ledger.conversation.id,
        nonce=desk.nonce,
        now=desk.now,
        budgets=replace(desk.settings.budgets, total=min(desk.settings.budgets.total, most)),
        count=desk.count,
    )


def refuse_if_over(tree: Tree) -> None:
    if tree.root.status in RETURNED:
        then = following(tree.root)
        raise Mistake(f"Error: the root frame is {tree.root.status}. Answer the user; their next message {then}.")


# ---------------------------------------------------------------------------------------------------------------- pop
def pop(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
    """End the active frame, or an ancestor of it with everything open below, and return its results (S1-106)."""
    target = _target(desk.tree, text_of(arguments, "frameID", "frame_id", "sessionID", "frame"))
    status = _returned_status(text_of(arguments, "status"))
    results = text_of(arguments, "results", "result", required=RESULTS)
    if target.status in FINAL or status not in ALLOWED[target.status]:
        raise Mistake(f"Error: frame {target.id} is {target.status}; it cannot be popped again.")
    if not desk.group.alone:
        raise Mistake(NOT_READ)
    below = [f for f in (desk.tree.current, *ancestors(desk.tree, desk.tree.active)) if _is_below(desk.tree, f, target)]
    events: list[Popped] = []
    tree = desk.tree
    for frame in below:
        unfinished = f"Not finished: {target.title!r} was popped around it."
        tree = _return(desk, tree, events, Popped(frame.id, Status.BLOCKED, unfinished, unfinished))
    compacted = text_of(arguments, "resultsCompacted", "results_compacted") or derived_compaction(results, desk.count)
    tree = _return(desk, tree, events, Popped(target.id, status, results, compacted))
    closed = {e.frame for e in events}
    called = called_in(way_back(desk.tree, target.id))
    leaves = (desk.group.returned is not None or desk.group.home in closed) and not events[-1].stays
    returned = called.opening if called and leaves else desk.group.returned
    text = _pop_text(desk, tree, target, status, below)
    return Outcome(text, tuple(events), replace(desk.group, returned=returned))


def _target(tree: Tree, reference: str) -> Frame:
    open_frames = [tree.current, *ancestors(tree, tree.active)]
    if not reference:
        return tree.current
    frame = find(tree, reference)
    if frame is None:
        known = ", ".join(f"{f.id} ({f.title})" for f in open_frames)
        raise Mistake(f"Error: there is no frame {reference[:80]!r}. Open frames: {known}.")
    if frame.status in FINAL:
        raise Mistake(f"Error: frame {frame.id} is {frame.status}; it cannot be popped again.")
    if frame.id not in {f.id for f in open_frames}:
        raise Mistake(
            f"Error: frame {frame.id} is {frame.status}, not open. Only {tree.active} or one above it can be popped."
        )
    return frame


def _returned_status(word: str) -> Status:
    if not word:
        return Status.COMPLETED
    allowed = sorted(RETURNED)
    if word not in allowed:
        raise Mistake(f"Error: status {word[:80]!r} is none of {', '.join(allowed)}.")
    return Status(word)


def _is_below(tree: Tree, frame: Frame, target: Frame) -> bool:
    return target.id in {f.id for f in ancestors(tree, frame.id)}


def _return(desk: Desk, tree: Tree, events: list[Popped], event: Popped) -> Tree:
    """Complete `event` with what the parent is told, append it, and give the tree after it. The files are those of
    everything done inside, for all of it leaves with the frame (S2-12); the decisions also those of frames below that
    no call opened, for nothing else tells them."""
    frame = tree.frames[event.frame]
    story = replace(desk.story, tree=tree)
    stays = is_let_go(story, desk.turn, frame)
    own = [p for p in story.placed if owner_of(story, p) == frame.owner]
    below = descendants(tree, frame.id)
    inside = {frame.id, *(f.id for f in below)}
    decided = (d for f in below if f.is_uncalled for d in f.decisions)
    way = way_back(tree, frame.id)
    passed = way[1:]
    past, unfinished = user_messages(story, called_in(way) or frame)
    told = ""
    if frame.parent and not stays:
        told = returned_text(
            tree,
            replace(frame, parent=way[-1].parent, decisions=(*frame.decisions, *decided)),
            event.status,
            event.results,
            count=desk.count,
            budget=desk.settings.budgets.total,
            paths=(
                *paths_of_calls(
                    (p for p in story.placed if owner_of(story, p).partition("#")[0] in inside), desk.settings.names
                ),
                *(artifact for f in (frame, *below) for artifact in f.artifacts),
            ),
            past_speech=past,
            children=children(tree, frame.id),
        )
        told = "\n\n".join([*map(invalidated_text, reversed(passed)), told])
    tokens = sum(
        p.round.spoken.message.tokens if p.round else p.entry.message.tokens if p.entry.message else 0 for p in own
    )
    done = msgspec.structs.replace(
        event,
        told=told,
        carried=unfinished if frame.parent and not stays else (),
        tokens=tokens,
        artifacts=artifacts_of(own, desk.settings.names),
        decisions=decisions_in(event.results),
        stays=stays,
    )
    events.append(done)
    return apply(tree, done, desk.now)


def is_let_go(story: Story, turn: str, frame: Frame) -> bool:
    """Whether the call that opened what ends with `frame` left the line before it, as it does where the client
    compacts its history: then no result can stand for what was done, and what was done stays. `turn` is the one at
    hand, which is not told yet."""
    called = called_in(way_back(story.tree, frame.id))
    opening = called.opening if called else None
    if opening is None or opening.turn == turn:
        return False
    return all(placed.entry.id != opening.turn for placed in on_line(story))


def _pop_text(desk: Desk, tree: Tree, target: Frame, status: Status, below: Sequence[Frame]) -> str:
    closed = "".join(f" {f.id} below it closed as blocked." for f in below)
    if not target.parent:
        then = following(tree.root)
        return f"Root frame {target.id} is {status}.{closed} Answer the user; their next message {then}."
    return f"Frame {target.id} is {status}.{closed}{told_of_place(desk, tree, back_in(tree))}"


def back_in(tree: Tree) -> str:
    """Where the work goes on behind an end."""
    return f" You are back in {tree.active} ({tree.current.title})."


def told_of_place(desk: Desk, tree: Tree, words: str) -> str:
    """`words` of where the work is in `tree`, if this message is the place for them. One that stays with the frame it
    was made in is still read there when what it began is over: then the result of the call that began it says it."""
    stays = tree.frames[desk.group.home].status is Status.IN_PROGRESS
    return "" if stays and tree.active != desk.group.home else words


# ----------------------------------------------------------------------------------------------------------- activate
def activate(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
    """Begin a planned frame below the active one, or resume a blocked one as a new segment (S1-124, C6). One that
    failed is tried again as another frame (S0-39)."""
    reference = text_of(
        arguments, "sessionID", "frameID", "frame_id", "frame", required="Error: sessionID is missing: which frame?"
    )
    refuse_if_over(desk.tree)
    tree = desk.tree
    frame = find(tree, reference)
    if frame is None:
        raise Mistake(f"Error: there is no frame {reference[:80]!r}. Planned: {_planned_list(tree)}.")
    if frame.status is Status.FAILED and frame.id in {f.id for f in descendants(tree, tree.active)}:
        return push(desk, {"title": frame.title, "successCriteria": frame.criteria, "retry_of": frame.id})
    if Status.IN_PROGRESS not in ALLOWED[frame.status]:
        raise Mistake(f"Error: frame {frame.id} is {frame.status}; only planned or blocked frames can be activated.")
    if desk.group.opened:
        raise Mistake(
            f"Not activated: this message already opened {desk.group.opened}. Pop that, then activate {frame.id}."
        )
    if is_left(tree, top := path_to(tree, frame.id)[0]):
        raise Mistake(f"Error: frame {frame.id} stands below {top.id}, which is {top.status}. Push it anew instead.")
    if frame.id not in {f.id for f in descendants(tree, tree.active)}:
        raise Mistake(
            f"Error: frame {frame.id} is not below {tree.active} ({tree.current.title}). Pop {tree.active} first."
        )
    opening = _opening(desk)
    through = _way_down(tree, frame)
    event = Activated(frame.id, opening.turn, opening.call, "", opening.before, opening.view, through)
    done = _telling(desk, event, _earlier(frame))
    return Outcome(done.block, (done,), replace(desk.group, opened=frame.id))


def _way_down(tree: Tree, frame: Frame) -> tuple[str, ...]:
    """The frames between the active one and `frame` that begin, or are resumed, with it: the highest first."""
    above = [f.id for f in reversed(tuple(ancestors(tree, frame.id)))]
    between = [tree.frames[f] for f in above[above.index(tree.active) + 1 :]]
    if ended := next((f for f in between if f.status in FINAL), None):
        raise Mistake(
            f"Error: frame {frame.id} stands below {ended.id}, which is {ended.status}. Push it anew instead."
        )
    return tuple(f.id for f in between if Status.IN_PROGRESS in ALLOWED[f.status])


def _earlier(frame: Frame) -> str:
    """What an earlier attempt at a resumed frame came to; its entries do not come back to the line."""
    if frame.status is not Status.BLOCKED:
        return ""
    return f'Earlier attempt (ref="{frame.id}", blocked): {frame.results}\n\n'


def _planned_list(tree: Tree) -> str:
    waiting = [f for f in tree.frames.values() if f.status is Status.PLANNED]
    return ", ".join(f"{f.id} ({f.title})" for f in waiting) or "none"


# -------------------------------------------------------------------------------------------------------------- tools
_STRING = {"type": "string"}
PUSH = Tool(
    "stack_frame_push",
    "push",
    "Begin a distinct subtask as a frame of its own, under the current one. Its work leaves your context at its pop; "
    "only its results stay.",
    {
        "type": "object",
        "properties": {
            "title": {"type": "string", "description": "2-5 words"},
            "successCriteria": {"type": "string", "description": "how to verify it is done"},
            "successCriteriaCompacted": _STRING,
        },
        "required": ["title", "successCriteria"],
    },
    push,
    core=True,
    fits=True,
)
POP = Tool(
    "stack_frame_pop",
    "pop",
    "End the current frame and return its results to the parent frame, which sees nothing else of it. Call it alone.",
    {
        "type": "object",
        "properties": {
            "status": {"type": "string", "enum": ["completed", "failed", "blocked"]},
            "results": {
                "type": "string",
                "description": "done, found, decided, files touched, left open; on failure what was tried and why",
            },
            "resultsCompacted": _STRING,
            "frameID": {"type": "string", "description": "default: the current frame"},
        },
        "required": ["status", "results"],
    },
    pop,
    core=True,
)
ACTIVATE = Tool(
    "stack_frame_activate",
    "activate",
    "Begin a planned frame, or resume a blocked one.",
    {
        "type": "object",
        "properties": {"sessionID": {"type": "string", "description": "its frame id"}},
        "required": ["sessionID"],
    },
    activate,
    core=True,
    fits=True,
)
TOOLS = (PUSH, POP, ACTIVATE)
