"""Frames that the proxy opens and ends by itself (level `auto`, S1-83).

Such a frame is inferred as those of a plan or a request are: it takes nothing off the line, and folds when it has
ended and that pays. It stands where requests and plans stand; inside a frame that the model pushed the model divides
its work, and is only told. A second one follows the first, it does not nest: what is long goes on in parts.

The law: **only at rest**. Every call has its result, so no call group is cut through, and **only what was opened here
is ended here**.

What this module does not do: it tells the model nothing, for nothing on the line changes.
"""

from __future__ import annotations

import msgspec

from proxy.core.frames import (
    MAX_CRITERION_CHARACTERS,
    POP,
    PUSH,
    FrameEntered,
    FrameEvent,
    PathState,
    Status,
    Tree,
    children,
    frame_id,
    path_to,
    reduce,
    title_of,
)
from proxy.core.observers import ToolRoles, first_user_text
from proxy.core.policy.autonomy_rules import AutonomyRules
from proxy.core.policy.frame_inference import build_pop_event
from proxy.core.policy.scoring import judge
from proxy.core.policy.signals import FrameActivity, FrameSignals
from proxy.core.policy.suggest import push_title, reason_not_to_suggest

AUTO_ORIGIN = "auto"
AUTO_FRAME_NUMBER_OFFSET = 2_000
"""Added to the number of a frame born here, beside those that others decide at the same entry."""


class AutonomyInput(msgspec.Struct, frozen=True):
    """A request where it stands: the path up to its last entry `node`, at `now` (ms). `names` tell which tool does
    what."""

    story: PathState
    node: str
    now: int
    names: ToolRoles
    max_depth: int


def decide_automatic_frames(
    at: AutonomyInput, reading: FrameActivity, seen: FrameSignals, rules: AutonomyRules
) -> tuple[FrameEvent, ...]:
    """What is opened or ended here, by what was read of the active frame."""
    tree = at.story.tree
    if not reading.has_all_results or not _may_divide_active_frame(tree):
        return ()
    pushes = judge(PUSH, seen, rules).is_reached and not reason_not_to_suggest(tree, PUSH, at.max_depth)
    pop = judge(POP, seen, rules)
    events: list[FrameEvent] = []
    if tree.active_frame.origin == AUTO_ORIGIN and (pushes or pop.is_reached):
        status = Status(pop.status) if pop.is_reached else Status.COMPLETED
        events.append(build_pop_event(at.story, tree.active, status, at.names))
        tree = reduce(tree, events[0], at.now)
        pushes = pushes and bool(seen.goal or not pop.is_reached)  # what is done needs no other part
    if pushes:
        title, criteria = _title_and_criteria(tree, seen.goal)
        events.append(
            FrameEntered(frame_id(at.node, AUTO_FRAME_NUMBER_OFFSET), tree.active, title, criteria, AUTO_ORIGIN)
        )
    return tuple(events)


def _title_and_criteria(tree: Tree, goal: str) -> tuple[str, str]:
    """Title and criteria: of the new goal, or of one more step of what the active frame is for."""
    if goal:
        return push_title(tree, goal), first_user_text([goal], MAX_CRITERION_CHARACTERS)
    step = 2 + sum(frame.origin == AUTO_ORIGIN for frame in children(tree, tree.active))
    return f"Step {step} of: {title_of(tree.active_frame.title)}", tree.active_frame.criteria


def _may_divide_active_frame(tree: Tree) -> bool:
    return all(frame.is_inferred or not frame.parent for frame in path_to(tree, tree.active))
