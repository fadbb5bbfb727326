"""Tools that plan: plan frames, change a planned frame, invalidate. Title and criteria change only while a frame is
planned. Invalidation includes planned descendants, warns about those in progress, and leaves ended ones unchanged.
Planned frames take no room in the context and do not begin by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from proxy.core.compaction import user_messages
from proxy.core.frames import (
    FINAL_STATUSES,
    PLAN_ORIGIN,
    Frame,
    FrameInvalidated,
    FramePlanned,
    FrameReplanned,
    Status,
    Tree,
    children,
    derive_compaction,
    descendants,
    find_frame,
    frame_id,
    invalidation_text,
    next_planned_text,
    outermost_called_frame,
    past_speech_text,
    path_to,
    reduce,
    return_path,
)
from proxy.core.observers import decode_json_or_text
from proxy.core.text import cut_for_display, quoted, without_escaped_quotes
from proxy.core.tools.base import (
    FRAME_SCHEMA,
    CallGroup,
    Tool,
    ToolContext,
    ToolError,
    ToolResult,
    frame_argument,
    object_schema,
    prose_argument,
    text_argument,
    text_schema,
)
from proxy.core.tools.frame_tools import (
    CRITERIA_MISSING,
    TITLE_MISSING,
    UNREAD_RESULTS,
    active_frame_text,
    has_lost_opening_call,
    item_moves,
    location_text,
    refuse_if_root_ended,
)

CHILDREN_WRONG = (
    'Error: children must be a list of texts, each "title: how to check it", or of objects with title and '
    "successCriteria."
)
MAX_PLANNED_FRAMES = 40  # of one call
MAX_SHOWN_CHARACTERS = 200  # of a title or criterion repeated in an answer
NUMBERS_PER_CALL = 1_000
"""Frame ids contain the call's number in its turn; the frames of one plan call are numbered below it."""


def plan(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    """Plan one frame, several children, or both; with `replan`, change a planned frame. All or nothing."""
    if reference := text_argument(arguments, "replan", "frameID", "frame_id"):
        return _replan(tool_context, reference, arguments)
    parent = _parent_frame(tool_context.tree, text_argument(arguments, "frame", "parentSessionID", "parent"))
    events = _planned_events(tool_context, parent.id, arguments)
    if not events:
        raise ToolError(
            "Error: nothing to plan. Give children, each as 'title: how to check it', or title and successCriteria."
        )
    tree = tool_context.tree
    for event in events:
        tree = reduce(tree, event, tool_context.now)
    return ToolResult(_plan_text(tree, parent, events), events)


def _planned_events(tool_context: ToolContext, parent: str, arguments: Mapping[str, Any]) -> tuple[FramePlanned, ...]:
    """The planned frames, parents before children. Call it once per tool call, because it numbers the ids from 1."""
    count = 0

    def new() -> str:
        nonlocal count
        count += 1
        return frame_id(tool_context.turn_id, (tool_context.call_number + 1) * NUMBERS_PER_CALL + count)

    def walk(item: Mapping[str, Any], above: str) -> Iterator[FramePlanned]:
        title = without_escaped_quotes(text_argument(item, "title", required=TITLE_MISSING))
        criteria = prose_argument(item, "successCriteria", "success_criteria", "criteria", required=CRITERIA_MISSING)
        compacted = prose_argument(item, "successCriteriaCompacted") or derive_compaction(
            criteria, tool_context.count_tokens
        )
        event = FramePlanned(new(), above, title, criteria, compacted)
        yield event
        for child in _children_argument(item):
            yield from walk(child, event.frame)

    items = [arguments] if text_argument(arguments, "title") else _children_argument(arguments)
    events = tuple(event for item in items for event in walk(item, parent))
    if len(events) > MAX_PLANNED_FRAMES:
        raise ToolError(
            f"Error: {len(events)} frames in one plan; {MAX_PLANNED_FRAMES} at most. Plan the next steps, refine later."
        )
    return events


def _children_argument(item: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The children as objects. Models also write lists of texts, and the whole list as one text."""
    items = item.get("children") or []
    if isinstance(items, str):
        lines = [line for line in items.splitlines() if line.strip()]
        items = lines if len(lines) > 1 and not items.lstrip().startswith(("[", "{")) else decode_json_or_text(items)
    if not isinstance(items, list) or not all(isinstance(child, dict | str) for child in items):
        raise ToolError(CHILDREN_WRONG)
    return [child if isinstance(child, dict) else _child_from_text(child) for child in items]


def _child_from_text(text: str) -> Mapping[str, Any]:
    """`title: how to check it`. A text without a colon is both."""
    title, _, criteria = text.strip().lstrip("-* ").partition(": ")
    return {"title": title, "successCriteria": criteria.strip() or title}


def _parent_frame(tree: Tree, reference: str) -> Frame:
    """The named frame, else the active one; it may itself be planned."""
    frame = find_frame(tree, reference) if reference else tree.active_frame
    if frame is None:
        raise ToolError(
            f"Error: there is no frame {reference[:80]!r} to plan under. The active frame is {tree.active}."
        )
    if frame.status in FINAL_STATUSES:
        raise ToolError(f"Error: frame {frame.id} is {frame.status}; nothing can be planned under it.")
    return frame


def _plan_text(tree: Tree, parent: Frame, events: tuple[FramePlanned, ...]) -> str:
    following = next((f for f in children(tree, parent.id) if f.status is Status.PLANNED), None)
    begin = (
        f"To begin, push {following.id} by its title, {quoted(cut_for_display(following.title, MAX_SHOWN_CHARACTERS))}."
        if following
        else ""
    )
    return "\n".join(
        [
            f"Planned under {parent.id} ({cut_for_display(parent.title, MAX_SHOWN_CHARACTERS)}):",
            *_planned_lines(events),
            begin,
        ]
    )


def _planned_lines(events: tuple[FramePlanned, ...]) -> list[str]:
    return [f"- {e.frame}: {cut_for_display(e.title, MAX_SHOWN_CHARACTERS)}" for e in events]


def _replan(tool_context: ToolContext, reference: str, arguments: Mapping[str, Any]) -> ToolResult:
    frame = find_frame(tool_context.tree, reference)
    if frame is None:
        raise ToolError(f"Error: there is no frame {reference[:80]!r}.")
    if frame.status is not Status.PLANNED:
        raise ToolError(
            f"Error: frame {frame.id} is {frame.status}; title and criteria change only while a frame is planned."
        )
    title = without_escaped_quotes(text_argument(arguments, "title")) or frame.title
    criteria = prose_argument(arguments, "successCriteria") or frame.criteria
    compacted = prose_argument(arguments, "successCriteriaCompacted") or derive_compaction(
        criteria, tool_context.count_tokens
    )
    events = _planned_events(tool_context, frame.id, {"children": _children_argument(arguments)})
    shown = [cut_for_display(value, MAX_SHOWN_CHARACTERS) for value in (title, criteria)]
    text = f"Frame {frame.id} is now planned as: {shown[0]} - {shown[1]}"
    lines = ["Planned under it:", *_planned_lines(events)] if events else []
    return ToolResult("\n".join([text, *lines]), (FrameReplanned(frame.id, title, criteria, compacted), *events))


def invalidate(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    reason = prose_argument(
        arguments, "reason", required="Error: reason is missing. Say why the frame is no longer relevant."
    )
    reference = frame_argument(arguments)
    tree = tool_context.tree
    frame = find_frame(tree, reference) if reference else tree.active_frame
    if frame is None:
        raise ToolError(f"Error: there is no frame {reference[:80]!r}.")
    if not frame.parent:
        raise ToolError("Error: the root frame cannot be invalidated. Pop it, as failed if it cannot be done.")
    if frame.status in FINAL_STATUSES:
        raise ToolError(f"Error: frame {frame.id} is {frame.status} already.")
    if is_at_work := _is_at_work(tree, frame):
        refuse_if_root_ended(tree)
        if not tool_context.call_group.has_only_stack_calls:
            raise ToolError(UNREAD_RESULTS.replace("popped", "invalidated").replace("pop again", "invalidate it"))
    below_frames = descendants(tree, frame.id)
    cascade = tuple(f.id for f in below_frames if f.status is Status.PLANNED and f.origin != PLAN_ORIGIN)
    working = [f for f in below_frames if f.status is Status.IN_PROGRESS and f.origin != PLAN_ORIGIN]
    returned_frames = return_path(tree, frame.id) if is_at_work else ()
    past, unfinished = (
        user_messages(tool_context.path_state, outermost_called_frame(returned_frames) or frame)
        if returned_frames
        else ((), ())
    )
    invalidated = (*reversed(returned_frames[1:]), replace(frame, invalidation_reason=reason))
    event = FrameInvalidated(frame.id, reason, "", cascade, unfinished, returns=is_at_work and frame.id != tree.active)
    tree_after = reduce(tree, event, tool_context.now)
    following = next_planned_text(tree_after, returned_frames[-1]) if returned_frames else ""
    note = "\n\n".join(map(invalidation_text, invalidated)) + active_frame_text(tree_after)
    note = f"{note} {following}" if following else note
    event = replace(event, call_result="\n\n".join(filter(None, (note, past_speech_text(past)))))
    if is_at_work and has_lost_opening_call(tool_context.path_state, tool_context.turn_id, frame):
        event = replace(event, call_result="", carried=(), stays=True)
    moves = item_moves(tree, tree_after, frame) if returned_frames and frame.opening and not event.stays else ()
    return ToolResult(
        _invalidated_text(tool_context, tree_after, frame, cascade, working),
        (event, *moves),
        _group_after_invalidation(tool_context, frame, event),
    )


def _is_at_work(tree: Tree, frame: Frame) -> bool:
    """Whether work is in the frame itself, or in an item of the client's plan inside it."""
    path = path_to(tree, tree.active)
    return frame in path and all(f.origin == PLAN_ORIGIN for f in path[path.index(frame) + 1 :])


def _group_after_invalidation(tool_context: ToolContext, frame: Frame, event: FrameInvalidated) -> CallGroup | None:
    """The changed group where the home frame was invalidated: the group has left the context, so a push behind it is
    attached to the call that opened the frame."""
    called = outermost_called_frame(return_path(tool_context.tree, frame.id))
    home = tool_context.call_group.home_frame
    leaves = tool_context.call_group.returned_opening is not None or frame in path_to(tool_context.tree, home)
    if not _is_at_work(tool_context.tree, frame) or not leaves or event.stays or called is None:
        return None
    return replace(tool_context.call_group, returned_opening=called.opening)


def _invalidated_text(
    tool_context: ToolContext, tree: Tree, frame: Frame, cascade: tuple[str, ...], working: list[Frame]
) -> str:
    lines = [f"Frame {frame.id} ({frame.title}) is invalidated."]
    if cascade:
        lines.append("Planned frames invalidated with it: " + ", ".join(cascade) + ".")
    if working:
        lines.append("Warning, still in progress below it: " + ", ".join(f"{f.id} ({f.title})" for f in working) + ".")
    return " ".join(lines) + location_text(
        tool_context, tree, f" Active: {tree.active} ({tree.as_shown.active_frame.title})."
    )


_FRAME_TEXTS = {"title": text_schema("2-5 words"), "successCriteria": text_schema("how to check that it is done")}
_CHILDREN_SCHEMA = {
    "type": "array",
    "description": "in the order in which you will do them",
    "items": object_schema("title", "successCriteria", **_FRAME_TEXTS),
}
_PARENT_SCHEMA = text_schema("the frame to plan under; default: the current one")
PLAN = Tool(
    "stack_frame_plan",
    "plan",
    "Plan frames below the current one.",
    object_schema(
        **_FRAME_TEXTS,
        children=_CHILDREN_SCHEMA,
        frame=_PARENT_SCHEMA,
        replan=text_schema("change this planned frame instead"),
    ),
    plan,
    core_parameters=object_schema(
        "children",
        children={
            "type": "array",
            "description": "title: how to check it, in order",
            "items": {"type": "string"},
        },
    ),
)
PLAN_CHILDREN = Tool(
    "stack_frame_plan_children",
    "plan_children",
    "Plan several frames under one parent.",
    object_schema("children", frame=_PARENT_SCHEMA, children=_CHILDREN_SCHEMA),
    plan,
)
INVALIDATE = Tool(
    "stack_frame_invalidate",
    "invalidate",
    "Mark a frame as no longer relevant; its planned children go with it.",
    object_schema("reason", frame=FRAME_SCHEMA, reason=text_schema("why it is no longer relevant")),
    invalidate,
)
