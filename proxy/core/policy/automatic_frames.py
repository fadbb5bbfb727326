"""Opens and ends frames by itself, at autonomy level `auto`.

An automatic frame is an inferred frame: it removes nothing from the context until a fold takes it after its end. It
opens only beside requests and plan items, never inside a frame that the model pushed, and a second one follows the
first instead of nesting. Decisions are made only when every call has its result, and only automatic frames are ended
here.
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
from proxy.core.policy.heuristics import judge
from proxy.core.policy.signals import FrameActivity, FrameSignals
from proxy.core.policy.suggest import push_title, reason_not_to_suggest

AUTO_ORIGIN = "auto"
AUTO_FRAME_NUMBER_OFFSET = 2_000
"""Added to a frame's number, so that its id differs from the ids of other frames that begin at the same entry."""


class AutonomyInput(msgspec.Struct, frozen=True):
    """The path up to its last entry `entry_id`, at `now` (ms since the epoch)."""

    path_state: PathState
    entry_id: str
    now: int
    tool_roles: ToolRoles
    max_depth: int


def decide_automatic_frames(
    place: AutonomyInput, activity: FrameActivity, signals: FrameSignals, rules: AutonomyRules
) -> tuple[FrameEvent, ...]:
    """Events that open or end an automatic frame, from the activity and signals of the active frame."""
    tree = place.path_state.tree
    is_in_models_frame = any(frame.parent and not frame.is_inferred for frame in path_to(tree, tree.active))
    if not activity.has_all_results or is_in_models_frame:
        return ()
    pushes = judge(PUSH, signals, rules).is_reached and not reason_not_to_suggest(tree, PUSH, place.max_depth)
    pop = judge(POP, signals, rules)
    events: list[FrameEvent] = []
    if tree.active_frame.origin == AUTO_ORIGIN and (pushes or pop.is_reached):
        status = Status(pop.status) if pop.is_reached else Status.COMPLETED
        events.append(build_pop_event(place.path_state, tree.active, status, place.tool_roles))
        tree = reduce(tree, events[0], place.now)
        pushes = pushes and bool(signals.goal or not pop.is_reached)  # what is done needs no other part
    if pushes:
        title, criteria = _title_and_criteria(tree, signals.goal)
        events.append(
            FrameEntered(frame_id(place.entry_id, AUTO_FRAME_NUMBER_OFFSET), tree.active, title, criteria, AUTO_ORIGIN)
        )
    return tuple(events)


def _title_and_criteria(tree: Tree, goal: str) -> tuple[str, str]:
    """Title and criteria from the new goal; without one, the next numbered step of the active frame's task."""
    if goal:
        return push_title(tree, goal), first_user_text([goal], MAX_CRITERION_CHARACTERS)
    step = 2 + sum(frame.origin == AUTO_ORIGIN for frame in children(tree, tree.active))
    return f"Step {step} of: {title_of(tree.active_frame.title)}", tree.active_frame.criteria
