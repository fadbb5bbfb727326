"""The tools that plan: plan, change a plan, invalidate.

The law: **a plan is mutable, a begun frame is not.** Title and criteria change only while a frame is planned;
invalidation takes the planned descendants along, warns of those in progress, and leaves what ended as it is.

What this module does not do: planned frames cost no line and begin nothing by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from proxy.core.compaction.user_messages import user_messages
from proxy.core.frames.events import Invalidated, Planned, Replanned, frame_id
from proxy.core.frames.reducer import apply, called_in, way_back
from proxy.core.frames.results import derived_compaction, invalidated_text, past_speech_text
from proxy.core.frames.tree import FINAL, Frame, Status, Tree, children, descendants, find
from proxy.core.text import cut_for_display
from proxy.core.tools.base import Desk, Group, Mistake, Outcome, Tool, text_of
from proxy.core.tools.frame_tools import CRITERIA, NOT_READ, TITLE, back_in, is_let_go, refuse_if_over, told_of_place

MOST = 40
"""Frames one call may plan."""
SHOWN = 200
"""Characters of a title or a criterion that an answer repeats."""
NUMBERS_PER_CALL = 1_000
"""Frame ids are made of the number of the call in its turn; the children of one plan call count below it."""


def plan(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
    """Plan one frame, several children, or both; change a planned one by `frameID` (S1-122, S1-123, C21). All or
    none."""
    if reference := text_of(arguments, "frameID", "frame_id"):
        return _replan(desk, reference, arguments)
    parent = _parent(desk.tree, text_of(arguments, "parentSessionID", "parent"))
    events = _planned(desk, parent.id, arguments)
    if not events:
        raise Mistake(
            "Error: nothing to plan. Give title and successCriteria, or children: [{title, successCriteria}, ...]."
        )
    tree = desk.tree
    for event in events:
        tree = apply(tree, event, desk.now)
    return Outcome(_plan_text(tree, parent, events), events)


def _planned(desk: Desk, parent: str, arguments: Mapping[str, Any]) -> tuple[Planned, ...]:
    """The frames of a plan, parents before their children. Asked for once in a call: ids count from the first of
    them."""
    made = 0

    def new() -> str:
        nonlocal made
        made += 1
        return frame_id(desk.turn, (desk.number + 1) * NUMBERS_PER_CALL + made)

    def walk(item: Mapping[str, Any], above: str) -> Iterator[Planned]:
        title = text_of(item, "title", required=TITLE)
        criteria = text_of(item, "successCriteria", "success_criteria", "criteria", required=CRITERIA)
        compacted = text_of(item, "successCriteriaCompacted") or derived_compaction(criteria, desk.count)
        event = Planned(new(), above, title, criteria, compacted)
        yield event
        for child in _list(item):
            yield from walk(child, event.frame)

    items = [arguments] if text_of(arguments, "title") else _list(arguments)
    events = tuple(event for item in items for event in walk(item, parent))
    if len(events) > MOST:
        raise Mistake(f"Error: {len(events)} frames in one plan; {MOST} at most. Plan the next steps, refine later.")
    return events


def _list(item: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = item.get("children") or []
    if not isinstance(found, list) or not all(isinstance(c, dict) for c in found):
        raise Mistake("Error: children must be a list of objects with title and successCriteria.")
    return found


def _parent(tree: Tree, reference: str) -> Frame:
    """Explicit, else the active frame (S1-42). It may itself be planned."""
    frame = find(tree, reference) if reference else tree.current
    if frame is None:
        raise Mistake(f"Error: there is no frame {reference[:80]!r} to plan under. The active frame is {tree.active}.")
    if frame.status in FINAL:
        raise Mistake(f"Error: frame {frame.id} is {frame.status}; nothing can be planned under it.")
    return frame


def _plan_text(tree: Tree, parent: Frame, events: tuple[Planned, ...]) -> str:
    following = next((f for f in children(tree, parent.id) if f.status is Status.PLANNED), None)
    begin = (
        f"Begin with stack_frame_activate {following.id} ({cut_for_display(following.title, SHOWN)})."
        if following
        else ""
    )
    return "\n".join([f"Planned under {parent.id} ({cut_for_display(parent.title, SHOWN)}):", *_rows(events), begin])


def _rows(events: tuple[Planned, ...]) -> list[str]:
    return [f"- {e.frame}: {cut_for_display(e.title, SHOWN)}" for e in events]


def _replan(desk: Desk, reference: str, arguments: Mapping[str, Any]) -> Outcome:
    frame = find(desk.tree, reference)
    if frame is None:
        raise Mistake(f"Error: there is no frame {reference[:80]!r}.")
    if frame.status is not Status.PLANNED:
        raise Mistake(
            f"Error: frame {frame.id} is {frame.status}; title and criteria change only while a frame is planned."
        )
    title = text_of(arguments, "title") or frame.title
    criteria = text_of(arguments, "successCriteria") or frame.criteria
    compacted = text_of(arguments, "successCriteriaCompacted") or derived_compaction(criteria, desk.count)
    more = _planned(desk, frame.id, {"children": _list(arguments)})
    text = f"Frame {frame.id} is now planned as: {cut_for_display(title, SHOWN)} - {cut_for_display(criteria, SHOWN)}"
    below = ["Planned under it:", *_rows(more)] if more else []
    return Outcome("\n".join([text, *below]), (Replanned(frame.id, title, criteria, compacted), *more))


# --------------------------------------------------------------------------------------------------------- invalidate
def invalidate(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
    """A frame is no longer relevant (S1-77 to S1-80, S1-125)."""
    reason = text_of(arguments, "reason", required="Error: reason is missing. Say why the frame is no longer relevant.")
    reference = text_of(arguments, "sessionID", "frameID", "frame_id", "frame")
    tree = desk.tree
    frame = find(tree, reference) if reference else tree.current
    if frame is None:
        raise Mistake(f"Error: there is no frame {reference[:80]!r}.")
    if not frame.parent:
        raise Mistake("Error: the root frame cannot be invalidated. Pop it, as failed if it cannot be done.")
    if frame.status in FINAL:
        raise Mistake(f"Error: frame {frame.id} is {frame.status} already.")
    if frame.id == tree.active:
        refuse_if_over(tree)
        if not desk.group.alone:
            raise Mistake(NOT_READ.replace("popped", "invalidated").replace("pop again", "invalidate it"))
    below = descendants(tree, frame.id)
    cascade = tuple(f.id for f in below if f.status is Status.PLANNED)
    working = [f for f in below if f.status is Status.IN_PROGRESS]
    left = way_back(tree, frame.id) if frame.id == tree.active else ()
    past, unfinished = user_messages(desk.story, called_in(left) or frame) if left else ((), ())
    gone = (*reversed(left[1:]), replace(frame, invalidation_reason=reason))
    event = Invalidated(frame.id, reason, "", cascade, unfinished)
    after = apply(tree, event, desk.now)
    back = "\n\n".join(map(invalidated_text, gone)) + back_in(after)
    event = replace(event, told="\n\n".join(filter(None, (back, past_speech_text(past)))))
    if frame.id == tree.active and is_let_go(desk.story, desk.turn, frame):
        event = replace(event, told="", carried=(), stays=True)
    return Outcome(_invalidated_text(desk, after, frame, cascade, working), (event,), _after(desk, frame, event))


def _after(desk: Desk, frame: Frame, event: Invalidated) -> Group | None:
    """The active frame's own group has left the line with it: a push behind it hangs on the call that opened the
    frame."""
    called = called_in(way_back(desk.tree, frame.id))
    leaves = desk.group.returned is not None or desk.group.home == frame.id
    if frame.id != desk.tree.active or not leaves or event.stays or called is None:
        return None
    return replace(desk.group, returned=called.opening)


def _invalidated_text(desk: Desk, tree: Tree, frame: Frame, cascade: tuple[str, ...], working: list[Frame]) -> str:
    lines = [f"Frame {frame.id} ({frame.title}) is invalidated."]
    if cascade:
        lines.append("Planned frames invalidated with it: " + ", ".join(cascade) + ".")
    if working:
        lines.append("Warning, still in progress below it: " + ", ".join(f"{f.id} ({f.title})" for f in working) + ".")
    return " ".join(lines) + told_of_place(desk, tree, f" Active: {tree.active} ({tree.current.title}).")


# -------------------------------------------------------------------------------------------------------------- tools
_CHILD = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "successCriteria": {"type": "string"}},
    "required": ["title", "successCriteria"],
}
PLAN = Tool(
    "stack_frame_plan",
    "plan",
    "Plan frames before you begin them: one by title and successCriteria, or several as children.",
    {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "successCriteria": {"type": "string"},
            "children": {"type": "array", "items": _CHILD},
            "parentSessionID": {"type": "string", "description": "default: the current frame"},
            "frameID": {"type": "string", "description": "change this planned frame"},
        },
    },
    plan,
    core=True,
)
PLAN_CHILDREN = Tool(
    "stack_frame_plan_children",
    "plan_children",
    "Plan several frames under one parent.",
    {
        "type": "object",
        "properties": {"parentSessionID": {"type": "string"}, "children": {"type": "array", "items": _CHILD}},
        "required": ["children"],
    },
    plan,
)
INVALIDATE = Tool(
    "stack_frame_invalidate",
    "invalidate",
    "Mark a frame as no longer relevant; its planned children go with it.",
    {
        "type": "object",
        "properties": {"sessionID": {"type": "string"}, "reason": {"type": "string"}},
        "required": ["reason"],
    },
    invalidate,
)
TOOLS = (PLAN, PLAN_CHILDREN, INVALIDATE)
