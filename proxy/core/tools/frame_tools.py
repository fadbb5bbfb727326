"""The tools that change the active frame: push, pop, activate.

A call belongs to the frame it was made in; calls of the client behind a push in the same message belong to the frame
that it opened. The first push or activate of a group takes effect; further ones become planned siblings. A pop runs
only if every call of its group is a stack call, because results of client calls would be unread. Consecutive pops each
return into the next parent; a push behind a pop has no call of its own left in the context, so its block is appended to
the results of that pop. Open items of the client's plan inside a popped frame move to the frame above.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from proxy.core.compaction import user_messages
from proxy.core.context import block_of, context_entries
from proxy.core.frames import (
    ALLOWED,
    FINAL_STATUSES,
    NEXT_PLANNED_SECTION,
    PLAN_ORIGIN,
    RETURN_STATUSES,
    Frame,
    FrameActivated,
    FrameEntered,
    FrameEvent,
    FrameMoved,
    FramePlanned,
    FramePopped,
    FramePushed,
    OpeningCall,
    PathState,
    PopDeferred,
    Status,
    Tree,
    ancestors,
    children,
    decisions_in,
    derive_compaction,
    descendants,
    find_frame,
    frame_id,
    frame_id_of,
    frame_results_text,
    invalidation_text,
    is_ended_root,
    lesson_of,
    newest_failed_attempt,
    outermost_called_frame,
    path_to,
    plan_parent,
    reduce,
    return_path,
)
from proxy.core.observers import broken_lines, broken_tools, changed_paths_of, touched_file_labels
from proxy.core.policy import FrameEnd, next_message_effect
from proxy.core.text import element, escape_xml, quoted, truncate_to_tokens, without_escaped_quotes
from proxy.core.tools.base import (
    UNBOUNDED,
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
from proxy.core.tools.branch_tools import checkpoint_before_push
from proxy.core.tools.child_view import AUTO_VIEW, choose_view, view_costs_at

Opened = TypeVar("Opened", FramePushed, FrameActivated)
UNREAD_RESULTS = (
    "Not popped: this message also holds calls whose results you have not read. "
    "Read those results, then pop again in a message of its own."
)
POP_DEFERRED = f"{UNREAD_RESULTS} If you answer the user instead, it is popped then."
TITLE_MISSING = "Error: title is missing. Give 2-5 words that name the subtask."
CRITERIA_MISSING = "Error: successCriteria is missing. Say how one can verify that the subtask is done."
NO_ROOM_FOR_FRAME = (
    "Error: not begun: your context window has no room for another frame now. Go on without it, or pop the frame you "
    "are in with what it came to."
)
RESULTS_MISSING = (
    "Error: results is missing or empty. Say what was done, found and decided: it is all the parent frame will see."
)


def push(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    """Open a frame under the active one; if the group has opened a frame already, plan it as a sibling."""
    title = without_escaped_quotes(text_argument(arguments, "title", required=TITLE_MISSING))
    criteria = prose_argument(arguments, "successCriteria", "success_criteria", "criteria", required=CRITERIA_MISSING)
    compacted = prose_argument(arguments, "successCriteriaCompacted") or derive_compaction(
        criteria, tool_context.count_tokens
    )
    refuse_if_root_ended(tool_context.tree)
    if tool_context.call_group.opened_frame:
        return _plan_sibling(tool_context, title, criteria, compacted)
    if planned := _planned_frame_titled(tool_context.tree, title):
        return activate(tool_context, {"frame": planned.id})
    if len(path_to(tool_context.tree, tool_context.tree.active)) >= tool_context.settings.max_depth:
        raise ToolError(
            f"Error: {tool_context.settings.max_depth} frames are open already. Pop one before you push another."
        )
    opening = _opening_call(tool_context)
    retried = _retried_frame_id(tool_context.tree, text_argument(arguments, "retry_of", "retryOf"), title)
    event = FramePushed(
        frame_id(tool_context.turn_id, tool_context.call_number),
        tool_context.tree.active,
        title,
        criteria,
        opening.turn,
        opening.call,
        "",
        compacted,
        opening.preceding_text,
        opening.view,
        retried,
    )
    pushed = _with_block(tool_context, event, lesson_of(tool_context.tree, retried), (criteria,))
    checkpoints = checkpoint_before_push(tool_context, pushed.frame)
    return ToolResult(pushed.block, (*checkpoints, pushed), replace(tool_context.call_group, opened_frame=pushed.frame))


def _planned_frame_titled(tree: Tree, title: str) -> Frame | None:
    """A planned child with this title: models often push a planned frame by title instead of activating it."""
    waiting = [f for f in children(tree, tree.active) if f.status is Status.PLANNED]
    return next((f for f in waiting if f.title.casefold() == title.casefold()), None)


def _plan_sibling(tool_context: ToolContext, title: str, criteria: str, compacted: str) -> ToolResult:
    """Plan a sibling of the frame the group opened; if the parent has ended by now, plan under the active frame."""
    opened = tool_context.tree.frames[tool_context.call_group.opened_frame]
    parent_frame = tool_context.tree.frames[opened.parent or opened.id]
    parent = parent_frame.id if parent_frame.status is Status.IN_PROGRESS else tool_context.tree.active
    event = FramePlanned(frame_id(tool_context.turn_id, tool_context.call_number), parent, title, criteria, compacted)
    then = "When that is popped" if opened.status is Status.IN_PROGRESS else "In your next message"
    text = (
        f"Frame {event.frame} is planned, not begun: this message already opened {opened.id} ({opened.title}). "
        f"{then}, push it by its title."
    )
    return ToolResult(text, (event,))


def _opening_call(tool_context: ToolContext) -> OpeningCall:
    """The call whose result shows the new frame: this one, or, behind a pop, the call that opened the popped frame."""
    if (returned := tool_context.call_group.returned_opening) is not None:
        results = tool_context.tree.result_texts.get((returned.turn, returned.call), "")
        # What comes next has been chosen: the push stands in the same message as the pop.
        return OpeningCall(returned.turn, returned.call, NEXT_PLANNED_SECTION.sub("", results), "fork")
    return OpeningCall(
        tool_context.turn_id,
        tool_context.call_key,
        "",
        _child_view(tool_context) if tool_context.call_group.has_only_stack_calls else "fork",
    )


def _child_view(tool_context: ToolContext) -> str:
    """What the child sees of its parents. For a model with a small window, `fork` and `auto` become `isolate`."""
    view = tool_context.settings.child_view
    if tool_context.settings.block_format.minimal and view in ("fork", AUTO_VIEW):
        return "isolate"
    if view != AUTO_VIEW:
        return view
    return choose_view(
        view_costs_at(
            tool_context.path_state, tool_context.visible_entries, tool_context.prices, tool_context.count_tokens
        ),
        tool_context.settings.isolate_above,
    )


def _retried_frame_id(tree: Tree, reference: str, title: str) -> str:
    """The named earlier attempt, or the failed one with the same title."""
    frame = find_frame(tree, reference) if reference else newest_failed_attempt(tree, title)
    return frame.id if frame else ""


def _with_block(tool_context: ToolContext, event: Opened, lesson: str, said: Sequence[str] = ()) -> Opened:
    """The event with the new frame's block, which includes the earlier attempt `lesson`. In a fork the parent's context
    stays: the block must fit into the free tokens, and repeats neither that context nor what the call `said`."""
    tree = reduce(tool_context.tree, event, tool_context.now)
    adds_to_context = event.view == "fork" and tool_context.call_group.returned_opening is None
    path = path_to(tool_context.tree, tool_context.tree.active)
    sees_all = event.view == "fork" and not any(f.opening and f.opening.view != "fork" for f in path)
    known = (said if adds_to_context else ()) if sees_all else None  # behind a pop this call leaves with its message
    block = lesson + _render_block(tool_context, tree, event, known)
    if adds_to_context and tool_context.count_tokens(block) > tool_context.free_tokens:
        short_lesson = truncate_to_tokens(
            lesson.strip(), max(0, tool_context.free_tokens // 2), tool_context.count_tokens
        )
        lesson = f"{short_lesson}\n\n" if short_lesson else ""
        block = lesson + _render_block(
            tool_context, tree, event, known, max(1, tool_context.free_tokens - tool_context.count_tokens(lesson))
        )
        if tool_context.count_tokens(block) > tool_context.free_tokens:
            raise ToolError(NO_ROOM_FOR_FRAME)
    return replace(event, block=block)


def _render_block(
    tool_context: ToolContext, tree: Tree, event: Opened, said: Sequence[str] | None, max_tokens: int = UNBOUNDED
) -> str:
    return block_of(
        tool_context.settings.block_format,
        tool_context.path_state,
        tree,
        event.frame,
        session=tool_context.ledger.conversation.id,
        nonce=tool_context.nonce,
        now=tool_context.now,
        budgets=replace(tool_context.settings.budgets, total=min(tool_context.settings.budgets.total, max_tokens)),
        count=tool_context.count_tokens,
        said=said,
    )


def refuse_if_root_ended(tree: Tree) -> None:
    if tree.root.status in RETURN_STATUSES:
        effect = next_message_effect(tree.root)
        raise ToolError(f"Error: the root frame is {tree.root.status}. Answer the user; their next message {effect}.")


def pop(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    """End the frame that was pushed last, or the one that is named, with everything open below it, and return its
    results. Where none is pushed, the active frame ends. Beside calls of the client the pop is deferred:
    `core/policy/forgotten_frames.py` ends the frame at the user's next message, if the model answered right behind."""
    target = _frame_to_pop(tool_context.tree, frame_argument(arguments))
    status = _parse_return_status(text_argument(arguments, "status"))
    results = prose_argument(arguments, "results", "result", required=RESULTS_MISSING)
    if target.status in FINAL_STATUSES or status not in ALLOWED[target.status]:
        raise ToolError(f"Error: frame {target.id} is {target.status}; it cannot be popped again.")
    compacted = prose_argument(arguments, "resultsCompacted", "results_compacted") or derive_compaction(
        results, tool_context.count_tokens
    )
    if not tool_context.call_group.has_only_stack_calls:
        if target.opening is None:
            raise ToolError(UNREAD_RESULTS)
        deferred = PopDeferred(target.id, tool_context.turn_id, status, results, compacted)
        return ToolResult(POP_DEFERRED, (deferred,))
    frames_inside = [
        f
        for f in (tool_context.tree.active_frame, *ancestors(tool_context.tree, tool_context.tree.active))
        if target in ancestors(tool_context.tree, f.id)
    ]
    items_move_up = _plan_items_move_up(tool_context, target)
    open_below = [f for f in frames_inside if not (items_move_up and f.origin == PLAN_ORIGIN)]
    unfinished = f"Not finished: {quoted(target.title)} was popped around it."
    ends = [FramePopped(frame.id, Status.BLOCKED, unfinished, unfinished) for frame in open_below]
    events: list[FramePopped] = []
    tree = tool_context.tree
    for end in (*ends, FramePopped(target.id, status, results, compacted)):
        events.append(_completed_pop(tool_context, tree, end))
        tree = reduce(tree, events[-1], tool_context.now)
    closed_ids = {target.id, *(f.id for f in frames_inside)}
    outermost = outermost_called_frame(return_path(tool_context.tree, target.id))
    group_leaves = (
        tool_context.call_group.returned_opening is not None or tool_context.call_group.home_frame in closed_ids
    ) and not events[-1].stays
    opening = outermost.opening if outermost and group_leaves else tool_context.call_group.returned_opening
    moves = item_moves(tool_context.tree, tree, target) if items_move_up else ()
    for move in moves:
        tree = reduce(tree, move, tool_context.now)
    text = _pop_text(tool_context, tree, target, status, open_below)
    if target.opening is None:
        events = _with_outer_end(events, open_below, f"{text}\n{element('results', {}, escape_xml(results))}")
    return ToolResult(text, (*events, *moves), replace(tool_context.call_group, returned_opening=opening))


def _plan_items_move_up(tool_context: ToolContext, target: Frame) -> bool:
    """Whether open items of the client's plan outlive the popped frame: not below a root, nor where its content stays
    in the context."""
    if not target.parent or target.leaves_only_by_fold:
        return False
    return not has_lost_opening_call(tool_context.path_state, tool_context.turn_id, target)


def item_moves(before: Tree, after: Tree, target: Frame) -> tuple[FrameMoved | FrameEntered, ...]:
    """Open items of the client's plan go on where the popped frame stood, and work goes on in the one in progress."""
    home = plan_parent(after)
    items = [f for f in descendants(before, target.id) if f.origin == PLAN_ORIGIN and f.status not in FINAL_STATUSES]
    moves = tuple(FrameMoved(f.id, home) for f in items)
    running = [f for f in items if f.status is Status.IN_PROGRESS]
    if not running or after.active != home:
        return moves
    newest = max(running, key=lambda f: (f.updated_at, f.order))
    return (*moves, FrameEntered(newest.id, home, newest.title, newest.criteria, newest.origin))


def _with_outer_end(events: Sequence[FramePopped], open_below: Sequence[Frame], end: str) -> list[FramePopped]:
    """`events`, where the popped frame was opened by no call, so that its results have no place of their own: `end`,
    which tells them, is appended to the results of the outermost frame below it that a call opened. The pop call itself
    leaves the context with that frame."""
    outermost = next((frame.id for frame in reversed(open_below) if frame.opening), "")
    return [
        msgspec.structs.replace(event, call_result=f"{event.call_result}\n\n{end}")
        if event.frame == outermost and event.call_result
        else event
        for event in events
    ]


def end_frames(tool_context: ToolContext, ends: Iterable[FrameEnd]) -> Iterator[FrameEvent]:
    """The events that end these frames, innermost first, and what is open below them."""
    for end in ends:
        arguments = {"frame": end.frame, "status": str(end.status), "results": end.results}
        for event in pop(tool_context, {**arguments, "resultsCompacted": end.compacted}).events:
            yield event
            tree = reduce(tool_context.tree, event, tool_context.now)
            tool_context = replace(tool_context, path_state=replace(tool_context.path_state, tree=tree))


def _frame_to_pop(tree: Tree, reference: str) -> Frame:
    open_frames = [tree.active_frame, *ancestors(tree, tree.active)]
    if not reference:
        return next((f for f in open_frames if f.parent and not f.is_inferred), tree.active_frame)
    frame = find_frame(tree, reference)
    if frame is None:
        known = ", ".join(f"{f.id} ({tree.as_shown.frames[f.id].title})" for f in open_frames)
        raise ToolError(f"Error: there is no frame {reference[:80]!r}. Open frames: {known}.")
    if frame.status in FINAL_STATUSES:
        raise ToolError(f"Error: frame {frame.id} is {frame.status}; it cannot be popped again.")
    if frame.id not in {f.id for f in open_frames}:
        raise ToolError(
            f"Error: frame {frame.id} is {frame.status}, not open. Only {tree.active} or one above it can be popped."
        )
    return frame


def _parse_return_status(word: str) -> Status:
    if not word:
        return Status.COMPLETED
    allowed = sorted(RETURN_STATUSES)
    if word not in allowed:
        raise ToolError(f"Error: status {word[:80]!r} is none of {', '.join(allowed)}.")
    return Status(word)


def _completed_pop(tool_context: ToolContext, tree: Tree, event: FramePopped) -> FramePopped:
    """`event` with what the frame returns, its artifacts and decisions. Files come from everything done inside, because
    all of it leaves with the frame; notes also from frames below that no call opened, because nothing else reports
    them."""
    frame = tree.frames[event.frame]
    path_state = replace(tool_context.path_state, tree=tree)
    work_stays = has_lost_opening_call(path_state, tool_context.turn_id, frame)
    own_entries = path_state.entries_of(frame.owner.__eq__)
    below = descendants(tree, frame.id)
    frame_ids = {frame.id, *(f.id for f in below)}
    reporting = (frame, *(f for f in below if f.leaves_only_by_fold))
    returned_frames = return_path(tree, frame.id)
    invalidated = returned_frames[1:]
    past, unfinished = user_messages(path_state, outermost_called_frame(returned_frames) or frame)
    results_text = ""
    if frame.parent and not work_stays:
        inside = path_state.entries_of(lambda owner: frame_id_of(owner) in frame_ids)
        broken = broken_tools(path_state.entries, tool_context.settings.tool_roles)
        results_text = frame_results_text(
            tree,
            replace(
                frame,
                parent=returned_frames[-1].parent,
                decisions=tuple(d for f in reporting for d in f.decisions),
                kept_notes=tuple(note for f in reporting for note in f.kept_notes),
            ),
            event.status,
            event.results,
            count=tool_context.count_tokens,
            budget=tool_context.settings.budgets.total,
            paths=(
                *touched_file_labels(inside, tool_context.settings.tool_roles, path_state.entries),
                *(artifact for f in (frame, *below) for artifact in f.artifacts),
            ),
            past_speech=past,
            below=[f for f in children(tree, frame.id) if f.origin != PLAN_ORIGIN or f.status in FINAL_STATUSES],
            broken=broken_lines(broken, frozenset(p.entry.id for p in inside)),
        )
        results_text = "\n\n".join([*map(invalidation_text, reversed(invalidated)), results_text])
    tokens = sum(
        p.round.spoken.message.tokens if p.round else p.entry.message.tokens if p.entry.message else 0
        for p in own_entries
    )
    return msgspec.structs.replace(
        event,
        call_result=results_text,
        carried=unfinished if frame.parent and not work_stays else (),
        tokens=tokens,
        artifacts=changed_paths_of(own_entries, tool_context.settings.tool_roles),
        decisions=decisions_in(event.results),
        stays=work_stays,
    )


def has_lost_opening_call(path_state: PathState, turn: str, frame: Frame) -> bool:
    """Whether the call that opened the frame to be popped has left the context, as when the client compacts its
    history. Then no result can replace the frame's work, and the work stays. `turn` is the current turn, which is not
    in the context yet."""
    called = outermost_called_frame(return_path(path_state.tree, frame.id))
    opening = called.opening if called else None
    if opening is None or opening.turn == turn:
        return False
    return all(path_entry.entry.id != opening.turn for path_entry in context_entries(path_state))


def _pop_text(
    tool_context: ToolContext, tree: Tree, target: Frame, status: Status, closed_frames: Sequence[Frame]
) -> str:
    closed = "".join(f" {f.id} below it closed as blocked." for f in closed_frames)
    if not target.parent:
        effect = next_message_effect(tree.root)
        return f"Root frame {target.id} is {status}.{closed} Answer the user; their next message {effect}."
    return f"Frame {target.id} is {status}.{closed}{location_text(tool_context, tree, active_frame_text(tree))}"


def active_frame_text(tree: Tree) -> str:
    return f" You are back in {tree.active} ({tree.as_shown.active_frame.title})."


def location_text(tool_context: ToolContext, tree: Tree, text: str) -> str:
    """`text` about the active frame of `tree`, if this message should carry it. A message that stays in the context of
    its home frame is read again after the frame it opened has ended, and would then be wrong; the result of the opening
    call says it instead."""
    outlives_frame = tree.frames[tool_context.call_group.home_frame].status is Status.IN_PROGRESS
    return "" if outlives_frame and tree.active != tool_context.call_group.home_frame else text


def activate(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    """Begin a planned frame below the active one, or resume a blocked one as a new segment. A failed frame is tried
    again as a new frame."""
    reference = frame_argument(arguments, "Error: frame is missing: which one?")
    refuse_if_root_ended(tool_context.tree)
    tree = tool_context.tree
    frame = find_frame(tree, reference)
    if frame is None:
        raise ToolError(f"Error: there is no frame {reference[:80]!r}. Planned: {_list_planned_frames(tree)}.")
    if frame.status is Status.FAILED and frame.id in {f.id for f in descendants(tree, tree.active)}:
        return push(tool_context, {"title": frame.title, "successCriteria": frame.criteria, "retry_of": frame.id})
    if Status.IN_PROGRESS not in ALLOWED[frame.status]:
        raise ToolError(f"Error: frame {frame.id} is {frame.status}; only planned or blocked frames can be activated.")
    if tool_context.call_group.opened_frame:
        raise ToolError(
            f"Not activated: this message already opened {tool_context.call_group.opened_frame}. Pop that, "
            f"then activate {frame.id}."
        )
    if is_ended_root(tree, top := path_to(tree, frame.id)[0]):
        raise ToolError(f"Error: frame {frame.id} stands below {top.id}, which is {top.status}. Push it anew instead.")
    if frame.id not in {f.id for f in descendants(tree, tree.active)}:
        raise ToolError(
            f"Error: frame {frame.id} is not below {tree.active} ({tree.as_shown.active_frame.title}). "
            f"Pop {tree.active} first."
        )
    opening = _opening_call(tool_context)
    through = _frames_begun_with(tree, frame)
    event = FrameActivated(frame.id, opening.turn, opening.call, "", opening.preceding_text, opening.view, through)
    activated = _with_block(tool_context, event, _earlier_attempt_text(frame))
    return ToolResult(activated.block, (activated,), replace(tool_context.call_group, opened_frame=frame.id))


def _frames_begun_with(tree: Tree, frame: Frame) -> tuple[str, ...]:
    """Frames between the active one and `frame` that begin or resume with it, topmost first."""
    ancestor_ids = [f.id for f in reversed(tuple(ancestors(tree, frame.id)))]
    frames = [tree.frames[f] for f in ancestor_ids[ancestor_ids.index(tree.active) + 1 :]]
    if ended := next((f for f in frames if f.status in FINAL_STATUSES), None):
        raise ToolError(
            f"Error: frame {frame.id} stands below {ended.id}, which is {ended.status}. Push it anew instead."
        )
    return tuple(f.id for f in frames if Status.IN_PROGRESS in ALLOWED[f.status])


def _earlier_attempt_text(frame: Frame) -> str:
    """What an earlier attempt at a resumed frame came to; its entries do not return to the context."""
    if frame.status is not Status.BLOCKED:
        return ""
    return f'Earlier attempt (ref="{frame.id}", blocked): {frame.results}\n\n'


def _list_planned_frames(tree: Tree) -> str:
    waiting = [f for f in tree.frames.values() if f.status is Status.PLANNED]
    return ", ".join(f"{f.id} ({f.title})" for f in waiting) or "none"


_PUSH_SCHEMA = {"title": text_schema("2-5 words"), "successCriteria": text_schema("how to check it")}
_PUSH_REQUIRED = ["title", "successCriteria"]
_POP_SCHEMA = {
    "status": {
        "type": "string",
        "description": "how it ended",
        "enum": ["completed", "failed", "blocked"],
    },
    "results": text_schema("outcome, files, decisions, what is open"),
}
_POP_REQUIRED = ["status", "results"]
PUSH = Tool(
    "stack_frame_push",
    "push",
    "Begin a subtask.",
    object_schema(
        *_PUSH_REQUIRED,
        **_PUSH_SCHEMA,
        successCriteriaCompacted=text_schema("the criteria in a few words"),
        retry_of=text_schema("failed frame this tries again; default: the one of this title"),
    ),
    push,
    limits_own_length=True,
    core_parameters=object_schema(*_PUSH_REQUIRED, **_PUSH_SCHEMA),
)
POP = Tool(
    "stack_frame_pop",
    "pop",
    "Return from the frame you pushed last. Call it alone.",
    object_schema(
        *_POP_REQUIRED,
        **_POP_SCHEMA,
        resultsCompacted=text_schema("the results in a few words"),
        frame=text_schema("id or title; default: the frame you pushed last"),
    ),
    pop,
    core_parameters=object_schema(*_POP_REQUIRED, **_POP_SCHEMA),
)
ACTIVATE = Tool(
    "stack_frame_activate",
    "activate",
    "Begin a planned frame, or resume a blocked one.",
    object_schema("frame", frame=text_schema("id or title")),
    activate,
    limits_own_length=True,
)
