"""Changes to the frames of a conversation by a person: commands, the end of a subagent, stopping all work, unfolding.

Each is stored as an event: commands and ends on the newest entry of a path, stops on the last complete entry of each
thread, because a broken answer may be replaced, and unfold requests at the requests that folded, so that every path
with the fold has them. They hold after a restart and take effect with the next request, which also tells the model.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace
from typing_extensions import TypedDict

from callstack_proxy.management.views import FrameState, UnfoldView, tree_state_view, truncate_line
from proxy.accounting import estimate_tokens
from proxy.config import Config
from proxy.core.commands import CommandContext, FrameCommand, apply_command, attach, stop_path
from proxy.core.compaction import UnfoldTarget, find_unfold_target
from proxy.core.frames import (
    FINAL_STATUSES,
    RETURN_STATUSES,
    FrameEvent,
    FrameKept,
    FramePopped,
    PathState,
    as_ledger_event,
)
from proxy.core.ledger import Entry, EntryKind, Ledger, LedgerEvent
from proxy.core.text import cut_for_display
from proxy.core.tools import ToolError, subagent_end_event, tracked_subagent
from proxy.errors import NotAllowed
from proxy.exchange import forbids_user_after_result, tool_settings
from proxy.store import LedgerRecord, Store, all_path_states, newest_path_state, path_state_of_tip, thread_tips


class FrameCommandView(TypedDict):
    """What came of it: the frames it was about as they are now, the active one, and the same in words."""

    conversation: str
    frames: list[FrameState]
    activeFrameID: str
    told: str


@dataclass(frozen=True, slots=True)
class CommandTarget:
    """The path on which a person runs a command, and the time (ms)."""

    ledger: Ledger
    path_state: PathState
    now: int


async def run_command(
    store: Store, config: Config, target: CommandTarget, command: FrameCommand
) -> tuple[FrameCommandView, Sequence[LedgerEvent]]:
    """Runs a command; durable on return. Raises NotFound, NotAllowed, StoreError."""
    ledger, conversation = target.ledger, target.ledger.conversation
    context = CommandContext(
        target.path_state,
        ledger,
        secrets.token_hex(8),
        target.now,
        estimate_tokens,
        tool_settings(config),
        forbids_user_after_result(config, _newest_model(target)),
    )
    result = apply_command(context, command)
    events = attach(context, result)
    await store.wait_until_durable(
        store.write(conversation.tenant, [LedgerRecord(conversation.id, event) for event in events])
    )
    frames = tree_state_view(ledger, replace(target.path_state, tree=result.tree))["frames"]
    view: FrameCommandView = {
        "conversation": conversation.id,
        "frames": [frames[frame] for frame in result.frames],
        "activeFrameID": result.tree.active,
        "told": result.user_text,
    }
    return view, events


def _newest_model(target: CommandTarget) -> str:
    """The model of the newest request; empty if unknown."""
    tip = target.ledger.entries.get(target.path_state.tip)
    thread = target.ledger.threads.get(tip.thread) if tip else None
    return thread.model if thread else ""


@dataclass(frozen=True, slots=True)
class SubagentEnd:
    """The stored events with their conversations."""

    events: Sequence[tuple[str, LedgerEvent]]


async def end_subagent(
    store: Store, ledger: Ledger, path_state: PathState, wanted: tuple[str, str, str], now: int
) -> SubagentEnd:
    """Ends a subagent's frame, and the root of its conversation, at `now` (ms): `wanted` is frame, status and summary.
    Durable on return. Raises NotAllowed, StoreError."""
    frame, status, summary = wanted
    try:
        event = subagent_end_event(tracked_subagent(path_state.tree, frame), status, summary)
    except ToolError as mistake:
        raise NotAllowed(str(mistake).removeprefix("Error: "), code="not_allowed") from None
    owner = ledger.conversation
    events = [(owner.id, _attach(ledger, path_state.tip, event, now))]
    if (child := await store.load(owner.tenant, path_state.tree.frames[frame].conversation)) is not None:
        events += [(child.conversation.id, root) for root in _end_own_root(child, event, now)]
    await store.wait_until_durable(
        store.write(owner.tenant, [LedgerRecord(conversation, record) for conversation, record in events])
    )
    return SubagentEnd(events)


def _end_own_root(child: Ledger, ended: FramePopped, now: int) -> list[LedgerEvent]:
    """The end of the subagent's own conversation, if that is not over."""
    path_state = newest_path_state(child)
    root = path_state.tree.root if path_state.tree.frames else None
    if root is None or root.status in FINAL_STATUSES | RETURN_STATUSES:
        return []
    popped = FramePopped(root.id, ended.status, ended.results, cut_for_display(ended.results))
    return [_attach(child, path_state.tip, popped, now)]


def _attach(ledger: Ledger, entry: str, event: FrameEvent, now: int) -> LedgerEvent:
    return as_ledger_event(event, entry, ledger.newest_round_number(entry), ledger.next_seq, now)


class StopView(TypedDict):
    """Ids of frames: those that are blocked now, those that were given up before they began, and those that are still
    under way, because a subagent does their work in a conversation of its own."""

    blocked: list[str]
    invalidated: list[str]
    left: list[str]


async def stop_all(store: Store, config: Config, ledger: Ledger, now: int) -> tuple[StopView, Sequence[LedgerEvent]]:
    """Stops all work at `now` (ms); durable on return. Adds the events to `ledger`, which belongs to the caller. Raises
    StoreError, ConversationUnreadable."""
    stopped: StopView = {"blocked": [], "invalidated": [], "left": []}
    events: list[LedgerEvent] = []
    for tip in _thread_ends(ledger):
        path_state = path_state_of_tip(ledger, tip)
        thread = ledger.threads.get(tip.thread)
        forbids_user_message = forbids_user_after_result(config, thread.model if thread else "")
        context = CommandContext(
            path_state, ledger, secrets.token_hex(8), now, estimate_tokens, tool_settings(config), forbids_user_message
        )
        outcome = stop_path(context)
        for event in attach(context, outcome.result) if outcome.result else ():
            ledger.add_event(event)
            events.append(event)
        stopped["blocked"] += outcome.blocked
        stopped["invalidated"] += outcome.invalidated
        stopped["left"] += outcome.still_running
    if events:
        conversation = ledger.conversation
        await store.wait_until_durable(
            store.write(conversation.tenant, [LedgerRecord(conversation.id, event) for event in events])
        )
    return _without_duplicates(stopped), events


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


AT_ONCE = "with the next request, whatever it costs"
WHEN_CHEAP = "with the next request that finds the provider's cache cold, or puts other work away"


@dataclass(frozen=True, slots=True)
class StoredUnfoldRequest:
    """The stored events, and the view of the request."""

    events: Sequence[LedgerEvent]
    view: UnfoldView


async def store_unfold_request(store: Store, ledger: Ledger, frame: str, *, now: bool, at: int) -> StoredUnfoldRequest:
    """Stores at `at` (ms since the epoch) that a person wants `frame` back; durable on return. Raises NotAllowed if
    nothing of it is folded, StoreError."""
    path_state, wanted = _path_with_fold(ledger, frame, now=now)
    events: list[LedgerEvent] = []
    if wanted.is_new:
        kept = FrameKept(wanted.frame, now)
        events = [as_ledger_event(kept, entry, 0, ledger.next_seq + n, at) for n, entry in enumerate(wanted.entries)]
        conversation = ledger.conversation
        await store.wait_until_durable(
            store.write(conversation.tenant, [LedgerRecord(conversation.id, event) for event in events])
        )
    at_once = now or path_state.tree.kept_frames.get(wanted.frame, False)
    return StoredUnfoldRequest(
        events,
        {
            "frame": wanted.frame,
            "title": truncate_line(path_state.tree.frames[wanted.frame].title),
            "conversation": ledger.conversation.id,
            "new": wanted.is_new,
            "now": at_once,
            "comes": AT_ONCE if at_once else WHEN_CHEAP,
        },
    )


def _path_with_fold(ledger: Ledger, frame: str, *, now: bool) -> tuple[PathState, UnfoldTarget]:
    """The newest path on which the frame is folded. Raises NotAllowed with the newest path's reason."""
    refused: NotAllowed | None = None
    for path_state in all_path_states(ledger):
        if frame in path_state.tree.frames:
            try:
                return path_state, find_unfold_target(ledger, path_state, frame, now=now)
            except NotAllowed as error:
                refused = refused or error
    raise refused or NotAllowed(
        f"Frame {frame} stands on no path. Name a frame that `callstack tree` shows.", code="not_folded"
    )
