"""What a person does to the frames of a conversation from beside it, put into the store.

It hangs on the newest entry of a path, so it holds on that path, in every process and after a restart. It takes effect
with the next request there, and the model is told of it then.

A subagent that a person ends, put into the store: its frame, and the root of its own conversation (S1-120).

It hangs on the newest entry of each, so it holds there in every process and after a restart. What cannot be done is
refused in the words the model would read.

Stopping all work in a conversation, put into the store: on the path of every thread, where it was left off.

It hangs on the last entry that stays whoever goes on from there: an answer that broke off is none. It holds in every
process and after a restart; the model is told of it with the next request of that path.

What a person asks for, put into the store: a folded frame is to come back.

It hangs on the requests at which the frame was folded, so every path that has the fold has the wish too, in every
process and after a restart. When it comes is `proxy.core.compaction.unfold`'s to say.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace
from typing_extensions import TypedDict

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
from proxy.management.views import (
    FrameState,
    UnfoldView,
    all_path_states,
    newest_path_state,
    path_state_of_tip,
    thread_tips,
    tree_state_view,
    truncate_line,
)
from proxy.store import LedgerRecord, Store


class FrameCommandView(TypedDict):
    """What came of it: the frames it was about as they are now, the active one, and the same in words."""

    conversation: str
    frames: list[FrameState]
    activeFrameID: str
    told: str


@dataclass(frozen=True, slots=True)
class CommandTarget:
    """Where a person does something: a path of a conversation, at `now` (ms)."""

    ledger: Ledger
    path_state: PathState
    now: int


async def run_command(
    store: Store, config: Config, at: CommandTarget, command: FrameCommand
) -> tuple[FrameCommandView, Sequence[LedgerEvent]]:
    """Do it; durable when this returns. Raises UnknownFrame, NotAllowed, StoreError."""
    ledger, conversation = at.ledger, at.ledger.conversation
    hand = CommandContext(
        at.path_state,
        ledger,
        secrets.token_hex(8),
        at.now,
        estimate_tokens,
        tool_settings(config),
        forbids_user_after_result(config, _newest_model(at)),
    )
    done = apply_command(hand, command)
    events = attach(hand, done)
    await store.wait_until_durable(
        store.write(conversation.tenant, [LedgerRecord(conversation.id, event) for event in events])
    )
    frames = tree_state_view(ledger, replace(at.path_state, tree=done.tree))["frames"]
    told: FrameCommandView = {
        "conversation": conversation.id,
        "frames": [frames[frame] for frame in done.frames],
        "activeFrameID": done.tree.active,
        "told": done.user_text,
    }
    return told, events


def _newest_model(at: CommandTarget) -> str:
    """Of the newest request there; empty where nobody knows it."""
    tip = at.ledger.entries.get(at.path_state.tip)
    thread = at.ledger.threads.get(tip.thread) if tip else None
    return thread.model if thread else ""


@dataclass(frozen=True, slots=True)
class SubagentEnd:
    """What was recorded, by conversation."""

    events: Sequence[tuple[str, LedgerEvent]]


async def end_subagent(
    store: Store, ledger: Ledger, story: PathState, wanted: tuple[str, str, str], now: int
) -> SubagentEnd:
    """End a subagent at `now` (ms): `wanted` are its frame, the status and the summary. Durable when this returns.

    Raises NotAllowed, StoreError.
    """
    frame, status, summary = wanted
    try:
        event = subagent_end_event(tracked_subagent(story.tree, frame), status, summary)
    except ToolError as mistake:
        raise NotAllowed(str(mistake).removeprefix("Error: "), code="not_allowed") from None
    owner = ledger.conversation
    told = [(owner.id, _attach(ledger, story.tip, event, now))]
    if (child := await store.load(owner.tenant, story.tree.frames[frame].conversation)) is not None:
        told += [(child.conversation.id, root) for root in _end_own_root(child, event, now)]
    await store.wait_until_durable(
        store.write(owner.tenant, [LedgerRecord(conversation, made) for conversation, made in told])
    )
    return SubagentEnd(told)


def _end_own_root(child: Ledger, ended: FramePopped, now: int) -> list[LedgerEvent]:
    """The end of the subagent's own conversation, where that goes on."""
    story = newest_path_state(child)
    root = story.tree.root if story.tree.frames else None
    if root is None or root.status in FINAL_STATUSES | RETURN_STATUSES:
        return []
    popped = FramePopped(root.id, ended.status, ended.results, cut_for_display(ended.results))
    return [_attach(child, story.tip, popped, now)]


def _attach(ledger: Ledger, entry: str, event: FrameEvent, now: int) -> LedgerEvent:
    return as_ledger_event(event, entry, ledger.newest_round_number(entry), ledger.next_seq, now)


class StopView(TypedDict):
    """Ids of frames: those that are blocked now, those that were given up before they began, and those that are still
    under way, because a subagent does their work in a conversation of its own."""

    blocked: list[str]
    invalidated: list[str]
    left: list[str]


async def stop_all(store: Store, config: Config, ledger: Ledger, now: int) -> tuple[StopView, Sequence[LedgerEvent]]:
    """Stop it at `now` (ms); durable when this returns. `ledger` is the caller's own, and has it then. Raises
    StoreError, Unreadable."""
    found: StopView = {"blocked": [], "invalidated": [], "left": []}
    events: list[LedgerEvent] = []
    for tip in _thread_ends(ledger):
        story = path_state_of_tip(ledger, tip)
        thread = ledger.threads.get(tip.thread)
        takes_none_behind = forbids_user_after_result(config, thread.model if thread else "")
        hand = CommandContext(
            story, ledger, secrets.token_hex(8), now, estimate_tokens, tool_settings(config), takes_none_behind
        )
        came = stop_path(hand)
        for event in attach(hand, came.result) if came.result else ():
            ledger.add_event(event)
            events.append(event)
        found["blocked"] += came.blocked
        found["invalidated"] += came.invalidated
        found["left"] += came.still_running
    if events:
        about = ledger.conversation
        await store.wait_until_durable(store.write(about.tenant, [LedgerRecord(about.id, event) for event in events]))
    return _without_duplicates(found), events


def _thread_ends(ledger: Ledger) -> Iterator[Entry]:
    """Where each thread was left off."""
    for tip in thread_tips(ledger).values():
        if tip.id in ledger.parent_ids:
            continue
        rounds = ledger.rounds.get(tip.id, ())
        broken = tip.kind is EntryKind.TURN and not (rounds and rounds[-1].last and rounds[-1].spoken.complete)
        yield ledger.entries[tip.parent] if broken else tip


def _without_duplicates(found: StopView) -> StopView:
    blocked, invalidated, left = (list(dict.fromkeys(found[name])) for name in ("blocked", "invalidated", "left"))
    return {"blocked": blocked, "invalidated": invalidated, "left": left}


AT_ONCE = "with the next request, whatever it costs"
WHEN_CHEAP = "with the next request that finds its cache cold, or folds something else"


@dataclass(frozen=True, slots=True)
class StoredUnfoldRequest:
    """What was recorded, and what is told of it."""

    events: Sequence[LedgerEvent]
    view: UnfoldView


async def store_unfold_request(store: Store, ledger: Ledger, frame: str, *, now: bool, at: int) -> StoredUnfoldRequest:
    """Record at `at` (ms since the epoch) that `frame`, a frame of this conversation, is wanted back; durable when
    this returns.

    Raises NotAllowed where there is nothing to bring back, StoreError.
    """
    story, wanted = _path_with_fold(ledger, frame, now=now)
    events: list[LedgerEvent] = []
    if wanted.is_new:
        kept = FrameKept(wanted.frame, now)
        events = [as_ledger_event(kept, entry, 0, ledger.next_seq + n, at) for n, entry in enumerate(wanted.entries)]
        conversation = ledger.conversation
        await store.wait_until_durable(
            store.write(conversation.tenant, [LedgerRecord(conversation.id, event) for event in events])
        )
    at_once = now or story.tree.kept_frames.get(wanted.frame, False)
    return StoredUnfoldRequest(
        events,
        {
            "frame": wanted.frame,
            "title": truncate_line(story.tree.frames[wanted.frame].title),
            "conversation": ledger.conversation.id,
            "new": wanted.is_new,
            "now": at_once,
            "comes": AT_ONCE if at_once else WHEN_CHEAP,
        },
    )


def _path_with_fold(ledger: Ledger, frame: str, *, now: bool) -> tuple[PathState, UnfoldTarget]:
    """The newest path on which the frame is folded. Raises NotAllowed with what the newest one says."""
    refused: NotAllowed | None = None
    for story in all_path_states(ledger):
        if frame in story.tree.frames:
            try:
                return story, find_unfold_target(ledger, story, frame, now=now)
            except NotAllowed as error:
                refused = refused or error
    raise refused or NotAllowed(f"Frame {frame} stands on no path.", code="not_folded")
