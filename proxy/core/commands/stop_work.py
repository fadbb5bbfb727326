"""Stopping all work on a path: what is under way is blocked, what is planned is given up (S1-166).

The laws: **nothing unanswered leaves the line**, so where results wait for their answer, or are still to come, frames
that the model opened end where they stand: all they did stays on the line until it is folded; and **nothing is final**:
a blocked frame can be resumed, and the user's next message opens the root again.

A subagent's frame goes on: its work is a conversation of its own, which is stopped by its own name.

What this module does not do: it stops no request (`flights` does), and stores nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
import functools

import msgspec
from msgspec import structs
from msgspec.structs import replace

from proxy.core.commands.apply_command import Done, Hand, did
from proxy.core.commands.command_values import Invalidate
from proxy.core.frames.events import FrameEvent, Popped
from proxy.core.frames.path_state import Story
from proxy.core.frames.reducer import apply
from proxy.core.frames.tree import Frame, Status, Tree, ancestors
from proxy.core.observers.step import said_by
from proxy.core.tools import frame_tools as moves

REASON = "Stopped by the user."


class Stopped(msgspec.Struct, frozen=True):
    """What came of it: the ids of the frames that are blocked now, that were given up, and that are still under way,
    because a subagent does their work. `done` is None where there was nothing to do."""

    done: Done | None
    blocked: tuple[str, ...] = ()
    invalidated: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def stopped(hand: Hand) -> Stopped:
    """What comes of stopping all work on this path."""
    before = hand.tree
    if not before.active:
        return Stopped(None)
    steps: list[Done] = []
    for frame in _planned(before):
        steps.append(did(hand, Invalidate(frame.id, REASON)))
        hand = replace(hand, story=replace(hand.story, tree=steps[-1].tree))
    steps += _blocked(hand)
    if not steps:
        return Stopped(None, left=_with(before, Status.IN_PROGRESS))
    after = steps[-1].tree
    changed = tuple(f.id for f in after.frames.values() if f.status is not before.frames[f.id].status)
    words = "\n".join(step.words for step in steps)
    done = Done(tuple(e for step in steps for e in step.events), after, changed, words, words)
    blocked, invalidated = (
        tuple(frame for frame in _with(after, status) if frame in changed)
        for status in (Status.BLOCKED, Status.INVALIDATED)
    )
    return Stopped(done, blocked, invalidated, _with(after, Status.IN_PROGRESS))


def _planned(tree: Tree) -> list[Frame]:
    """Those that no other planned frame stands above; the others go with them."""
    planned = {f.id for f in tree.frames.values() if f.status is Status.PLANNED}
    return [tree.frames[i] for i in planned if not planned & {above.id for above in ancestors(tree, i)}]


def _blocked(hand: Hand) -> list[Done]:
    """All frames from the active one up to the root end as blocked, with those that were under way beside them."""
    tree = hand.tree
    if tree.root.status is not Status.IN_PROGRESS:
        return []
    way = (tree.current, *ancestors(tree, tree.active))
    beside = [f for f in _under_way(tree) if f not in way and f.origin != "subagent"]
    popped = moves.pop(hand.desk, {"frameID": tree.root.id, "status": "blocked", "results": REASON}).events
    events = (*(Popped(f.id, Status.BLOCKED, REASON, REASON, stays=True) for f in beside), *popped)
    if any(frame.opening for frame in way) and (hand.suffixed or _waits_for_an_answer(hand.story)):
        events = tuple(_where_it_stood(event, tree.root.id) for event in events)
    after = functools.reduce(lambda known, event: apply(known, event, hand.now), events, tree)
    frames = (*beside, *way)
    words = "Stopped, and blocked: " + ", ".join(f"{frame.id} ({frame.title})" for frame in frames) + "."
    return [Done(events, after, tuple(frame.id for frame in frames), words, words)]


def _where_it_stood(event: FrameEvent, root: str) -> FrameEvent:
    """The same end, that takes nothing off the line. What the root did stays anyway."""
    if not isinstance(event, Popped) or event.frame == root:
        return event
    return structs.replace(event, told="", carried=(), stays=True)


def _waits_for_an_answer(story: Story) -> bool:
    """Whether results stand behind the last words of the model, or are still to come."""
    for placed in reversed(story.placed):
        message = said_by(placed)
        if message is not None and message.answers:
            return True
        if message is not None and message.role == "assistant":
            return bool(message.calls)
    return False


def _under_way(tree: Tree) -> Iterator[Frame]:
    return (frame for frame in tree.frames.values() if frame.status is Status.IN_PROGRESS)


def _with(tree: Tree, status: Status) -> tuple[str, ...]:
    return tuple(frame.id for frame in tree.frames.values() if frame.status is status)
