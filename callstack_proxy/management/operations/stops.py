"""Ends of work by a person: stop the agent of a conversation until it is resumed, stop all its frames, end a subagent.

A stopped agent's requests under way are cut off, and each further one is refused. The stop is stored with the
conversation, so it holds in every process and after a restart. Ends of frames are events: those of all work stand on
the last complete entry of each thread, because a broken answer may be replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import TypedDict

from callstack_proxy.management.operations.base import Decision, Target
from callstack_proxy.management.operations.frames import EndStatus, command_context
from proxy.config import Config
from proxy.core.commands import attach, stop_path
from proxy.core.frames import FINAL_STATUSES, RETURN_STATUSES, FramePopped
from proxy.core.ledger import Conversation, Entry, EntryKind, Ledger, LedgerEvent
from proxy.core.text import cut_for_display
from proxy.core.tools import ToolError, subagent_end_event, tracked_subagent
from proxy.errors import NotAllowed
from proxy.store import LedgerRecord, Store, newest_path_state, path_state_of_tip, thread_tips
from proxy.telemetry import ProxyEvent

if TYPE_CHECKING:  # commands that read the store need nothing of the exchange
    from proxy.exchange import CancelledCounts, Inbox

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
        outcome = stop_path(context)
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
