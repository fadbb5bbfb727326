"""Stops all work on a path: frames in progress are blocked, planned ones are invalidated. Nothing is final: a blocked
frame can be resumed, and the user's next message reopens the root. Where results are unanswered or still to come, the
work of frames that the model opened stays in the context until a fold. Frames of subagents continue, because they have
a conversation and a stop of their own."""

from __future__ import annotations

import functools

import msgspec
from msgspec import structs
from msgspec.structs import replace

from proxy.core.commands.command_values import InvalidateCommand
from proxy.core.commands.tree_commands import CommandContext, CommandResult, apply_command
from proxy.core.frames import Frame, FrameEvent, FramePopped, PathState, Status, Tree, ancestors, reduce
from proxy.core.observers import message_of
from proxy.core.tools import frame_tools

STOP_REASON = "Stopped by the user."


class StopResult(msgspec.Struct, frozen=True):
    """Ids of frames; those in `still_running` belong to subagents. `result` is None if there was nothing to stop."""

    result: CommandResult | None
    blocked: tuple[str, ...] = ()
    invalidated: tuple[str, ...] = ()
    still_running: tuple[str, ...] = ()


def stop_path(command_context: CommandContext) -> StopResult:
    tree_before = command_context.tree
    if not tree_before.active:
        return StopResult(None)
    steps: list[CommandResult] = []
    for frame in _topmost_planned(tree_before):
        steps.append(apply_command(command_context, InvalidateCommand(frame.id, STOP_REASON)))
        command_context = replace(command_context, path_state=replace(command_context.path_state, tree=steps[-1].tree))
    steps += _block_open_frames(command_context)
    if not steps:
        return StopResult(None, still_running=_ids_with_status(tree_before, Status.IN_PROGRESS))
    tree_after = steps[-1].tree
    changed = tuple(f.id for f in tree_after.frames.values() if f.status is not tree_before.frames[f.id].status)
    text = "\n".join(step.model_text for step in steps)
    result = CommandResult(tuple(e for step in steps for e in step.events), tree_after, changed, text, text)
    blocked, invalidated = (
        tuple(frame for frame in _ids_with_status(tree_after, status) if frame in changed)
        for status in (Status.BLOCKED, Status.INVALIDATED)
    )
    return StopResult(result, blocked, invalidated, _ids_with_status(tree_after, Status.IN_PROGRESS))


def _topmost_planned(tree: Tree) -> list[Frame]:
    """Planned frames without a planned ancestor; invalidating one includes its descendants."""
    planned = {f.id for f in tree.frames.values() if f.status is Status.PLANNED}
    return [tree.frames[i] for i in planned if not planned & {above.id for above in ancestors(tree, i)}]


def _block_open_frames(command_context: CommandContext) -> list[CommandResult]:
    """Block the frames from the active one up to the root, and those in progress beside them."""
    tree = command_context.tree
    if tree.root.status is not Status.IN_PROGRESS:
        return []
    open_frames = (tree.active_frame, *ancestors(tree, tree.active))
    at_work = (frame for frame in tree.frames.values() if frame.status is Status.IN_PROGRESS)
    beside = [f for f in at_work if f not in open_frames and f.origin != "subagent"]
    popped = frame_tools.pop(
        command_context.tool_context, {"frameID": tree.root.id, "status": "blocked", "results": STOP_REASON}
    ).events
    popped = tuple(_as_stopped(event) for event in popped)
    events = (*(FramePopped(f.id, Status.BLOCKED, STOP_REASON, STOP_REASON, stays=True) for f in beside), *popped)
    if any(frame.opening for frame in open_frames) and (
        command_context.forbids_user_after_result or _has_unanswered_results(command_context.path_state)
    ):
        events = tuple(_keep_in_context(event, tree.root.id) for event in events)
    tree_after = functools.reduce(lambda known, event: reduce(known, event, command_context.now), events, tree)
    frames = (*beside, *open_frames)
    text = "Stopped, and blocked: " + ", ".join(f"{frame.id} ({frame.title})" for frame in frames) + "."
    return [CommandResult(events, tree_after, tuple(frame.id for frame in frames), text, text)]


def _as_stopped(event: FrameEvent) -> FrameEvent:
    """The end of a frame, for the reason that a person stopped it, not that the root was popped around it."""
    if not isinstance(event, FramePopped):
        return event
    return structs.replace(event, results=STOP_REASON, compacted=STOP_REASON)


def _keep_in_context(event: FrameEvent, root: str) -> FrameEvent:
    """The same end, without removing anything from the context. The root's work stays in any case."""
    if not isinstance(event, FramePopped) or event.frame == root:
        return event
    return structs.replace(event, call_result="", carried=(), stays=True)


def _has_unanswered_results(path_state: PathState) -> bool:
    """Whether results follow the model's last words, or are still to come."""
    for path_entry in reversed(path_state.entries):
        message = message_of(path_entry)
        if message is not None and message.answers:
            return True
        if message is not None and message.role == "assistant":
            return bool(message.calls)
    return False


def _ids_with_status(tree: Tree, status: Status) -> tuple[str, ...]:
    return tuple(frame.id for frame in tree.frames.values() if frame.status is status)
