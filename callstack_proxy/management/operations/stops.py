"""Ends of work by a person: stop the agent of a conversation until it is resumed, stop all its frames, end a subagent.

A stopped agent's requests under way are cut off, and each further one is refused. The stop is stored with the
conversation, so it holds in every process and after a restart. Ends of frames are events: those of all work stand on
the last complete entry of each thread, because a broken answer may be replaced.

Of all work, frames in progress are blocked and planned ones invalidated. Nothing is final: a blocked frame can be
resumed, and the user's next message reopens the root. Where results are unanswered or still to come, the work of frames
that the model opened stays in the context until a fold. Frames of subagents continue, because they have a conversation
and a stop of their own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs
from typing_extensions import TypedDict

from callstack_proxy.management.find_by_id import newest_path_state, path_state_of_tip, thread_tips
from callstack_proxy.management.operations.base import Decision, Target
from callstack_proxy.management.operations.frames import EndStatus, command_context
from proxy.config import Config
from proxy.core.commands import CommandContext, CommandResult, InvalidateCommand, apply_command, attach
from proxy.core.frames import (
    FINAL_STATUSES,
    RETURN_STATUSES,
    Frame,
    FrameEvent,
    FramePopped,
    PathState,
    Status,
    Tree,
    ancestors,
    reduce,
)
from proxy.core.ledger import Conversation, Entry, EntryKind, Ledger, LedgerEvent
from proxy.core.text import cut_for_display
from proxy.core.tools import ToolError, frame_tools, subagent_end_event, tracked_subagent
from proxy.errors import NotAllowed
from proxy.store import LedgerRecord, Store
from proxy.telemetry import ProxyEvent

if TYPE_CHECKING:  # commands that read the store need nothing of the exchange
    from proxy.exchange import CancelledCounts, Inbox

STOP_REASON = "Stopped by the user."
OnModeChanged = Callable[[str, str, str], None]
"""Gets a tenant, a conversation and its new mode as stored."""


async def stop_agent(
    store: Store, inbox: Inbox, conversation: Conversation, on_mode_changed: OnModeChanged
) -> CancelledCounts:
    """Refuses what comes from now on, then cuts off what is under way in this process and tells the others. Waiting
    messages are taken back. Raises StoreError."""
    await store_mode(store, conversation, conversation.chosen_mode, on_mode_changed, stopped=True)
    done = await inbox.cancel_requests(conversation.tenant, conversation.id)
    inbox.event_bus.publish(ProxyEvent("conversation.stopped", inbox.now(), conversation.tenant, conversation.id))
    return done


async def resume_agent(store: Store, inbox: Inbox, conversation: Conversation, on_mode_changed: OnModeChanged) -> bool:
    """Whether it was stopped. Raises StoreError."""
    if conversation.is_stopped:
        await store_mode(store, conversation, conversation.chosen_mode, on_mode_changed, stopped=False)
        inbox.event_bus.publish(ProxyEvent("conversation.resumed", inbox.now(), conversation.tenant, conversation.id))
    return conversation.is_stopped


async def store_mode(
    store: Store, conversation: Conversation, mode: str, on_mode_changed: OnModeChanged, *, stopped: bool | None = None
) -> None:
    """`mode` is empty for that of the configuration. What is stopped stays so unless `stopped` says otherwise. Durable
    on return. Raises StoreError."""
    told = conversation.with_mode(mode, stopped=conversation.is_stopped if stopped is None else stopped)
    await store.wait_until_durable(store.write(told.tenant, [told]))
    on_mode_changed(told.tenant, told.id, told.mode)


# -------------------------------------------------------------------------------------------------------------- frames
class StopView(TypedDict):
    """Ids of frames: those that are blocked now, those that were given up before they began, and those that are still
    under way, because a subagent does their work in a conversation of its own."""

    blocked: list[str]
    invalidated: list[str]
    left: list[str]


def stop_all(ledger: Ledger, config: Config, now: int) -> Decision:
    """Stops all work at `now` (ms); the view is a `StopView`. Adds the events to `ledger`, which belongs to the caller.
    Raises ConversationUnreadable."""
    stopped: StopView = {"blocked": [], "invalidated": [], "left": []}
    events: list[LedgerEvent] = []
    for tip in _thread_ends(ledger):
        context = command_context(Target(ledger, path_state_of_tip(ledger, tip), config, now))
        outcome = _stop_path(context)
        for event in attach(context, outcome.result) if outcome.result else ():
            ledger.add_event(event)
            events.append(event)
        stopped["blocked"] += outcome.blocked
        stopped["invalidated"] += outcome.invalidated
        stopped["left"] += outcome.still_running
    return Decision(_without_duplicates(stopped), events)


def _thread_ends(ledger: Ledger) -> Iterator[Entry]:
    """The last complete entry of each thread."""
    for tip in thread_tips(ledger).values():
        if tip.id in ledger.parent_ids:
            continue
        rounds = ledger.rounds.get(tip.id, ())
        is_broken = tip.kind is EntryKind.TURN and not (rounds and rounds[-1].last and rounds[-1].spoken.complete)
        yield ledger.entries[tip.parent] if is_broken else tip


def _without_duplicates(stopped: StopView) -> StopView:
    blocked, invalidated, left = (list(dict.fromkeys(stopped[name])) for name in ("blocked", "invalidated", "left"))
    return {"blocked": blocked, "invalidated": invalidated, "left": left}


class _StopOfPath(NamedTuple):
    """What a stop does to one path; `result` is None if there was nothing to stop. Ids of frames: those in
    `still_running` belong to subagents."""

    result: CommandResult | None
    blocked: tuple[str, ...] = ()
    invalidated: tuple[str, ...] = ()
    still_running: tuple[str, ...] = ()


def _stop_path(command_context: CommandContext) -> _StopOfPath:
    tree_before = command_context.tree
    if not tree_before.active:
        return _StopOfPath(None)
    steps: list[CommandResult] = []
    for frame in _topmost_planned(tree_before):
        steps.append(apply_command(command_context, InvalidateCommand(frame.id, STOP_REASON)))
        command_context = structs.replace(
            command_context, path_state=structs.replace(command_context.path_state, tree=steps[-1].tree)
        )
    steps += _block_open_frames(command_context)
    if not steps:
        return _StopOfPath(None, still_running=_ids_with_status(tree_before, Status.IN_PROGRESS))
    tree_after = steps[-1].tree
    changed = tuple(f.id for f in tree_after.frames.values() if f.status is not tree_before.frames[f.id].status)
    text = "\n".join(step.model_text for step in steps)
    result = CommandResult(tuple(e for step in steps for e in step.events), tree_after, changed, text, text)
    blocked, invalidated = (
        tuple(frame for frame in _ids_with_status(tree_after, status) if frame in changed)
        for status in (Status.BLOCKED, Status.INVALIDATED)
    )
    return _StopOfPath(result, blocked, invalidated, _ids_with_status(tree_after, Status.IN_PROGRESS))


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
        message = path_entry.message
        if message is not None and message.answers:
            return True
        if message is not None and message.role == "assistant":
            return bool(message.calls)
    return False


def _ids_with_status(tree: Tree, status: Status) -> tuple[str, ...]:
    return tuple(frame.id for frame in tree.frames.values() if frame.status is status)


# ----------------------------------------------------------------------------------------------------------- subagents
async def end_subagent(
    store: Store, target: Target, status: EndStatus, summary: str
) -> Sequence[tuple[str, LedgerEvent]]:
    """Ends a subagent's frame, and the root of its own conversation; the events with their conversations. Durable on
    return. Raises NotAllowed, StoreError."""
    tree, owner = target.path_state.tree, target.ledger.conversation
    try:
        ended = subagent_end_event(tracked_subagent(tree, target.frame), status, summary)
    except ToolError as mistake:
        raise NotAllowed(str(mistake).removeprefix("Error: "), code="not_allowed") from None
    events = [(owner.id, event) for event in target.events_at_tips([(ended, target.path_state)])]
    if (child := await store.load(owner.tenant, tree.frames[target.frame].conversation)) is not None:
        events += [(child.conversation.id, event) for event in _end_own_root(child, ended, target)]
    await store.wait_until_durable(
        store.write(owner.tenant, [LedgerRecord(conversation, record) for conversation, record in events])
    )
    return events


def _end_own_root(child: Ledger, ended: FramePopped, target: Target) -> list[LedgerEvent]:
    """The end of the subagent's own conversation, if that is not over."""
    path_state = newest_path_state(child)
    root = path_state.tree.root if path_state.tree.frames else None
    if root is None or root.status in FINAL_STATUSES | RETURN_STATUSES:
        return []
    popped = FramePopped(root.id, ended.status, ended.results, cut_for_display(ended.results))
    return replace(target, ledger=child).events_at_tips([(popped, path_state)])
